"""The base value of a metric: g(aggregate of f(r)) over a sample, in float64, from its histogram of ranks."""

import math

import numpy as np
from scipy.stats import norm

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.definitions import Power, RankDefinition
from torchrankmetrics.theory.expectation.sums import evaluate
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.ties import expected_value

MAD_SCALE = float(norm.ppf(0.75))
_HALF = 1e-12


def base_value(definition: RankDefinition, sample: RankSample, rank_type: RankType = "realistic") -> float:
    """Value of the metric on a sample; NaN for an empty one (a count is 0).

    Raises:
        ValueError: if the rank type is not defined for the metric or the sample.
    """
    if definition.aggregation == "count":
        return float(sample.num_tasks)
    if sample.num_tasks == 0:
        return math.nan
    if definition.aggregation == "tie_rate":
        return sample.tie_mass / sample.total
    if rank_type == "expected":
        return expected_value(definition, sample)
    histogram = sample.histogram(rank_type)
    if definition.aggregation == "mean" and _is_power_mean(definition):
        assert isinstance(definition.f, Power)
        return _power_mean(definition.f.p, histogram.rank, histogram.mass)
    x = evaluate(definition.f, histogram.rank)
    return float(evaluate(definition.g, np.array([_aggregate(definition, x, histogram.mass)]), "g")[0])


def _aggregate(definition: RankDefinition, x: FloatArray, mass: FloatArray) -> float:
    if definition.aggregation == "mean":
        return _mean(x, mass)
    if definition.aggregation == "median":
        return _median(x, mass)
    if definition.aggregation == "maximum":
        return float(x.max())
    if definition.aggregation == "minimum":
        return float(x.min())
    if definition.aggregation == "variance":
        return _mean((x - _mean(x, mass)) ** 2, mass)
    if definition.aggregation == "mad":
        return _median(np.abs(x - _median(x, mass)), mass) / MAD_SCALE
    raise ValueError(f"aggregation of {definition.name!r} is unknown: {definition.aggregation!r}")


def _mean(x: FloatArray, mass: FloatArray) -> float:
    return float((mass * x).sum() / mass.sum())


def _median(x: FloatArray, mass: FloatArray) -> float:
    """Lower weighted median; the midpoint where the weight up to it is exactly half (to 1e-12 of the total)."""
    if not (x[1:] > x[:-1]).all():  # ranks as they are come distinct and in order
        order = np.argsort(x, kind="stable")
        x, mass = x[order], mass[order]
        first = np.r_[True, x[1:] != x[:-1]]
        x, mass = x[first], np.add.reduceat(mass, np.flatnonzero(first))
    share = np.cumsum(mass) / mass.sum()
    at = int(np.argmax(share >= 0.5 - _HALF))
    if abs(share[at] - 0.5) <= _HALF and at + 1 < len(x):
        return float((x[at] + x[at + 1]) / 2)
    return float(x[at])


def _is_power_mean(definition: RankDefinition) -> bool:
    f, g = definition.f, definition.g
    return isinstance(f, Power) and isinstance(g, Power) and abs(f.p) != 1 and g.p == 1 / f.p


def _power_mean(p: float, rank: FloatArray, mass: FloatArray) -> float:
    """(sum v r^p)^(1/p) relative to its dominating rank: finite for every p, exact near p = 0."""
    scale = rank.max() if p > 0 else rank.min()
    exponent = p * np.log(rank / scale)  # all <= 0
    if exponent.min() > -0.5:
        return float(scale * math.exp(math.log1p(_mean(np.expm1(exponent), mass)) / p))
    return float(scale * _mean(np.exp(exponent), mass) ** (1 / p))
