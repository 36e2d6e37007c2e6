"""A metric of every kind, the collection, and scores to update them with: for the tests of torchmetrics' contract."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import torchrankmetrics
from bits import bits
from torchrankmetrics import (
    AdjustedMeanRankIndex,
    AveragePrecision,
    HitsAtK,
    MeanRank,
    RankCollection,
    RankDefinition,
    RankMetric,
    RankVariance,
)


def _gain(rank: Tensor) -> Tensor:
    return 1 / torch.log2(1 + rank)


METRIC_CLASSES = [
    found
    for name in torchrankmetrics.__all__
    if inspect.isclass(found := getattr(torchrankmetrics, name))
    and issubclass(found, RankMetric)
    and found is not RankMetric
]
# the code of classes of one kind is the same: a mean, a view, an argument, no direction, a query metric, an own f
METRICS: dict[str, Callable[..., RankMetric]] = {
    "MeanRank": MeanRank,
    "AdjustedMeanRankIndex": AdjustedMeanRankIndex,
    "HitsAtK": partial(HitsAtK, 3),
    "RankVariance": RankVariance,
    "AveragePrecision": AveragePrecision,
    "RankMetric": partial(RankMetric, RankDefinition("own_gain", f=_gain)),
}
KINDS = METRICS | {"RankCollection": partial(RankCollection, prefix="val/")}
every_metric = pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def scores(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 9, (7, 12), generator=generator).float(), torch.randint(0, 12, (7,), generator=generator)


def expected(make: Callable[..., Any], *seeds: int) -> dict[str, str]:
    """The bits of a fresh one after the updates of these seeds."""
    metric = make()
    for seed in seeds:
        metric.update(*scores(seed))
    return bits(metric)
