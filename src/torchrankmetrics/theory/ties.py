"""The expected rank type: the expectation of a metric over independent uniform orders of the tied candidates.

McSherry and Najork 2008 (doi 10.1007/978-3-540-78646-7_38) for means of f; the same independence makes GMR a product.
It keeps the null mean exactly, so a constant scorer has adjusted index 0.
"""

from collections.abc import Callable

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import (
    IDENTITY,
    AtMost,
    Exponential,
    Log,
    Power,
    RankDefinition,
    Transform,
)
from torchrankmetrics.theory.expectation.means import adaptive_sums
from torchrankmetrics.theory.expectation.sums import evaluate, gauss_counting
from torchrankmetrics.theory.sample import RankSample


def has_expected(definition: RankDefinition) -> bool:
    """Whether the expectation over tie orders is known: means of f, and the geometric means."""
    plain = definition.g == IDENTITY
    geometric = definition.f == Log() and isinstance(definition.g, Exponential)
    return definition.aggregation == "mean" and (plain or geometric)


def expected_value(definition: RankDefinition, sample: RankSample) -> float:
    """Expectation of the metric over uniform orders within each tie block [optimistic, pessimistic].

    Raises:
        ValueError: for a metric whose expectation over tie orders is not known.
    """
    if not has_expected(definition):
        raise ValueError(
            f"rank_type='expected' is known for means of a transform, GMR and IGMR, not for {definition.name!r}; "
            "use 'realistic', 'optimistic' or 'pessimistic'"
        )
    low, high, weight, number = sample.blocks
    if isinstance(definition.g, Exponential):
        s = definition.g.sign * weight / sample.total
        excess = _smooth_means(lambda rank, which: np.expm1(s[which, None] * np.log(rank)), low, high)
        return float(np.exp((number * np.log1p(excess)).sum()))
    mean = block_means(definition.f, low, high)
    return float((number * weight * mean).sum() / sample.total)


def block_means(f: Transform, low: IntArray, high: IntArray) -> FloatArray:
    """Mean of f over {low..high}, for each block."""
    if f == IDENTITY:
        middle: FloatArray = (low + high) / 2.0
        return middle
    if isinstance(f, AtMost):
        hits: FloatArray = np.clip(f.k - low + 1, 0, high - low + 1) / (high - low + 1)
        return hits
    if isinstance(f, Power | Log):
        return _smooth_means(lambda rank, _: evaluate(f, rank.ravel()).reshape(rank.shape), low, high)
    center = float(evaluate(f, np.ones(1))[0])
    mean: FloatArray = center + adaptive_sums(f, center, low, high + 1)[0] / (high - low + 1)
    return mean


def _smooth_means(f: Callable[[FloatArray, IntArray], FloatArray], low: IntArray, high: IntArray) -> FloatArray:
    """Mean over {low..high} of a function smooth on dyadic panels: positive rules, no differences of prefix sums.

    ``f(ranks (m, 16), which (m,))`` gives the values for the blocks ``which``.
    """
    total = np.zeros(len(low))
    which, start = np.arange(len(low)), low.copy()
    while len(which):
        # singly up to 64, where powers bend most; then panels no longer than their start
        length = np.minimum(np.where(start <= 64, 16, start), high[which] - start + 1)
        nodes = np.minimum(start[:, None] + np.arange(16.0), (start + length - 1)[:, None])
        weights = (np.arange(16) < length[:, None]).astype(np.float64)
        long = length > 16
        if long.any():
            unique, index = np.unique(length[long], return_inverse=True)
            x, a = gauss_counting(unique)
            nodes[long], weights[long] = start[long][:, None] + x[index], a[index]
        total[which] += (weights * f(nodes, which)).sum(1)
        start = start + length
        left = start <= high[which]
        which, start = which[left], start[left]
    mean: FloatArray = total / (high - low + 1)
    return mean
