"""A definition on many outcomes of the ranks at once: what enumeration and Monte Carlo average."""

from torchrankmetrics.theory.aggregation import aggregate
from torchrankmetrics.theory.candidates import FloatArray, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.transforms import apply_transform


def metric_values(definition: RankDefinition, transformed: FloatArray, weight: FloatArray) -> FloatArray:
    """Values of g(aggregate of f(r_i)) for outcomes in columns.

    Args:
        definition: the metric.
        transformed: (tasks, outcomes) float64, the f(r_i).
        weight: (tasks,) float64 > 0.

    Returns:
        (outcomes,) float64.

    Raises:
        ValueError: if the metric is no function of the f(r_i), or g is not finite.
    """
    return apply_transform(definition.g, aggregate(definition, transformed, weight), "g")


def outcome_moments(values: FloatArray, ddof: int) -> Moments:
    """Mean and variance of outcomes (m,); the variance is exactly zero when all are equal.

    Args:
        values: (m,) float64.
        ddof: 0 if these are all outcomes, equally likely; 1 if they are a sample of them.
    """
    if values.min() == values.max():
        return Moments(float(values[0]), 0.0)
    mean = values.mean()
    residual = values - mean
    # the second term takes back what the rounding of the mean has added
    variance = ((residual**2).sum() - residual.sum() ** 2 / len(values)) / (len(values) - ddof)
    return Moments(float(mean), float(variance))
