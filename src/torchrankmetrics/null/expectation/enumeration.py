"""Null moments by enumerating all ranks of a few ranking tasks."""

import math

import numpy as np

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, Moments
from torchrankmetrics.definitions.tasks import RankDefinition, aggregate
from torchrankmetrics.definitions.transforms import apply_transform
from torchrankmetrics.null.expectation.provider import strategy


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


LIMIT = 2_000_000
_BLOCK = 1 << 20


@strategy(lambda definition: definition.has_null)
def enumeration(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Moments over all rank vectors, equally likely; None if the product of the N_i exceeds ``LIMIT``.

    Serves every definition whose value is a function of ranks and weights, the weighted median and the MAD included.
    """
    N, count = counts.num_candidates, counts.count
    free = N > 1
    if (count[free] * np.log(N[free])).sum() > math.log(LIMIT) + 1e-9:
        return None
    # tasks with one candidate all have rank 1: one entry with their common weight is the same weighted sample
    size = np.repeat(N[free], count[free])
    weight = np.repeat(counts.weight[free], count[free])
    fixed = float((counts.weight[~free] * count[~free]).sum())
    if fixed:
        size, weight = np.append(size, 1), np.append(weight, fixed)
    tables = {n: apply_transform(definition.f_at(n), np.arange(1, n + 1, dtype=np.float64)) for n in size.tolist()}
    total = math.prod(size.tolist())
    values = np.empty(total)
    block = max(1, _BLOCK // len(size))
    for begin in range(0, total, block):
        number = np.arange(begin, min(begin + block, total))
        index = np.unravel_index(number, size.tolist())
        transformed = np.stack([tables[n][i] for n, i in zip(size.tolist(), index, strict=True)])
        values[begin : begin + block] = metric_values(definition, transformed, weight)
    return outcome_moments(values, ddof=0)
