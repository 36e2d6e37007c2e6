"""Every public metric and the collection, and scores to update them with: for the tests of torchmetrics' contract."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import torchrankmetrics
from bits import bits
from torchrankmetrics import RankCollection, RankDefinition, RankMetric


def _gain(rank: Tensor) -> Tensor:
    return 1 / torch.log2(1 + rank)


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "k": (3,),
    "p": (2.5,),
    "definition": (RankDefinition("dcg", f=_gain),),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def _public_metrics() -> Iterator[Callable[..., RankMetric]]:
    for name in torchrankmetrics.__all__:
        found = getattr(torchrankmetrics, name)
        if isinstance(found, type) and issubclass(found, RankMetric):
            first = next(iter(inspect.signature(found).parameters))
            yield pytest.param(lambda found=found, first=first, **kw: found(*_ARGUMENTS.get(first, ()), **kw), id=name)


METRICS = list(_public_metrics())
every_metric = pytest.mark.parametrize("make", METRICS)
_COLLECTION = pytest.param(lambda **kw: RankCollection(prefix="val/", **kw), id="RankCollection")
every_kind = pytest.mark.parametrize("make", [*METRICS, _COLLECTION])


def scores(seed: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 9, (7, 12), generator=generator).float()
    return values.to(device), torch.randint(0, 12, (7,), generator=generator).to(device)


def expected(make: Callable[..., Any], *seeds: int) -> dict[str, str]:
    """The bits of a fresh one after the updates of these seeds."""
    metric = make()
    for seed in seeds:
        metric.update(*scores(seed))
    return bits(metric)
