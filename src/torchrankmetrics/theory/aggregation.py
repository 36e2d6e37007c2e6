"""How transformed ranks become one number: by weighted mean, median and their kin, along the first axis."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.definitions import RankDefinition

_NORMAL_QUARTILE = 0.6744897501960817  # Phi^-1(3/4): the MAD of a standard normal
_HALF = 1e-12  # how near 1/2 a share of the weight counts as exactly half


def aggregate(definition: RankDefinition, x: FloatArray, mass: FloatArray) -> FloatArray:
    """Aggregate transformed ranks: of one sample, or of many outcomes in columns.

    Args:
        definition: the metric, for its kind of aggregation.
        x: (m,) or (m, outcomes) float64, the f(r_i).
        mass: (m,) float64 > 0, the weight of each entry, of any sum.

    Returns:
        () or (outcomes,) float64.

    Raises:
        ValueError: for counts and the tie rate, which are no functions of the f(r_i).
    """
    match definition.aggregation:
        case "mean":
            return weighted_mean(x, mass)
        case "median":
            return weighted_median(x, mass)
        case "maximum":
            return np.asarray(x.max(0))
        case "minimum":
            return np.asarray(x.min(0))
        case "variance":
            return weighted_mean((x - weighted_mean(x, mass)) ** 2, mass)
        case "mad":
            return weighted_median(np.abs(x - weighted_median(x, mass)), mass) / _NORMAL_QUARTILE
    raise ValueError(f"{definition.name!r} aggregates by {definition.aggregation!r}, which is no function of f(r_i)")


def weighted_mean(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of x (m,) or of the columns of x (m, outcomes), weighted by mass (m,) > 0."""
    if x.ndim == 1:  # the bits of a dot product would depend on the number of threads
        return np.asarray((mass * x).sum() / mass.sum())
    return np.asarray(mass @ x / mass.sum())


def weighted_median(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Lower weighted median; the midpoint where the weight up to it is exactly half (to 1e-12 of the total).

    Args:
        x: (m,) or (m, outcomes) float64.
        mass: (m,) float64 > 0, of any sum.

    Returns:
        () or (outcomes,) float64.
    """
    if x.ndim > 1 or (x[1:] < x[:-1]).any():  # a histogram comes in order
        order = np.argsort(x, axis=0, kind="stable")
        x, mass = np.take_along_axis(x, order, 0), mass[order]
    cumulative = np.cumsum(mass, axis=0)
    half, slack = cumulative[-1] / 2, _HALF * cumulative[-1]
    column = tuple(np.arange(size) for size in x.shape[1:])
    lower = np.argmax(cumulative >= half - slack, axis=0)
    exactly_half = cumulative[(lower, *column)] <= half + slack
    upper = np.minimum(lower + exactly_half, len(x) - 1)
    return np.asarray((x[(lower, *column)] + x[(upper, *column)]) / 2)
