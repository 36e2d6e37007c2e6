"""The value of a definition on many outcomes of the ranks at once: what enumeration and Monte Carlo average."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.sums import evaluate

_NORMAL_QUARTILE = 0.6744897501960817  # Phi^-1(3/4): the MAD of a standard normal
_HALF = 1e-12  # how near a cumulative weight must come to 1/2 to count as exactly half


def metric_values(definition: RankDefinition, transformed: FloatArray, weight: FloatArray) -> FloatArray:
    """Values of g(aggregate of f(r_i)) for outcomes in columns.

    Args:
        definition: the metric.
        transformed: (tasks, outcomes) the f(r_i).
        weight: (tasks,) shares v_i > 0 with sum 1.

    Returns:
        (outcomes,) values.
    """
    return evaluate(definition.g, _aggregate(definition, transformed, weight), "g")


def _aggregate(definition: RankDefinition, values: FloatArray, weight: FloatArray) -> FloatArray:
    match definition.aggregation:
        case "mean":
            return np.asarray(weight @ values)
        case "maximum":
            return np.asarray(values.max(0))
        case "minimum":
            return np.asarray(values.min(0))
        case "variance":
            return np.asarray(weight @ (values - weight @ values) ** 2)
        case "median":
            return weighted_median(values, weight)
        case "mad":
            return weighted_median(np.abs(values - weighted_median(values, weight)), weight) / _NORMAL_QUARTILE
    raise ValueError(f"{definition.name!r} aggregates by {definition.aggregation!r}, which has no value under the null")


def weighted_median(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Lower weighted median of each column; midpoint with the next value where the cumulative weight is exactly 1/2.

    Args:
        values: (tasks, outcomes).
        weight: (tasks,) positive, with sum 1.
    """
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    cumulative = np.cumsum(weight[order], axis=0)
    cumulative[-1] = 1.0
    lower = np.argmax(cumulative >= 0.5 - _HALF, axis=0)
    column = np.arange(values.shape[1])
    half = cumulative[lower, column] <= 0.5 + _HALF
    upper = np.where(half, np.minimum(lower + 1, len(values) - 1), lower)
    return np.asarray((ordered[lower, column] + ordered[upper, column]) / 2)


def sample_moments(values: FloatArray, ddof: int) -> tuple[float, float]:
    """Mean and variance; the variance is exactly zero when all values are equal."""
    if values.min() == values.max():
        return float(values[0]), 0.0
    mean = values.mean()
    residual = values - mean
    # the second term takes back what the rounding of the mean has added
    variance = ((residual**2).sum() - residual.sum() ** 2 / len(values)) / (len(values) - ddof)
    return float(mean), float(variance)
