"""Metrics of every kind, the collection and scores, for the tests of torchmetrics' contract."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import torchrankmetrics as trm
from bits import bits
from torchrankmetrics import RankCollection, RankDefinition, RankMetric


def _gain(rank: Tensor) -> Tensor:
    return 1 / torch.log2(1 + rank)


_PUBLIC = [getattr(trm, name) for name in trm.__all__]
METRIC_CLASSES = [
    one
    for one in _PUBLIC
    if inspect.isclass(one) and issubclass(one, RankMetric) and one != RankMetric
]
# the code of classes of one kind is the same: a mean, a view, an argument, no direction, a query
# metric, an own f
METRICS: dict[str, Callable[..., RankMetric]] = {
    "MeanRank": trm.MeanRank,
    "AdjustedMeanRankIndex": trm.AdjustedMeanRankIndex,
    "HitsAtK": partial(trm.HitsAtK, 3),
    "RankVariance": trm.RankVariance,
    "AveragePrecision": trm.AveragePrecision,
    "RankMetric": partial(RankMetric, RankDefinition("own_gain", f=_gain)),
}
KINDS = METRICS | {"RankCollection": partial(RankCollection, prefix="val/")}
every_metric = pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def scores(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 9, (7, 12), generator=generator).float(), torch.randint(
        0, 12, (7,), generator=generator
    )


def expected(make: Callable[..., Any], *seeds: int) -> dict[str, str]:
    """The bits of a fresh one after the updates of these seeds."""
    metric = make()
    for seed in seeds:
        metric.update(*scores(seed))
    return bits(metric)
