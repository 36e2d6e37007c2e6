"""The expected rank type: the expectation of a metric over independent uniform orders of the tied candidates.

McSherry and Najork 2008 (doi:10.1007/978-3-540-78646-7_38) for means of f; the same independence makes GMR a product.
It keeps the null mean exactly, so a constant scorer has adjusted index 0.
"""

from collections.abc import Callable

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import (
    AUC,
    IDENTITY,
    AtMost,
    Exponential,
    Log,
    Power,
    RankDefinition,
    RankTransform,
    WithCandidates,
)
from torchrankmetrics.theory.expectation.means import centered_sums
from torchrankmetrics.theory.quadrature.panels import PANEL_NODES, SMALL_RANKS, panel_rule
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.transforms import apply_transform


def has_expected(definition: RankDefinition) -> bool:
    """Whether the expectation over tie orders is known: means of f, and the geometric means."""
    plain = definition.g == IDENTITY
    geometric = definition.f == Log() and isinstance(definition.g, Exponential)
    return definition.aggregation == "mean" and (plain or geometric)


def value_over_tie_orders(definition: RankDefinition, sample: RankSample) -> float:
    """Expectation of the metric over independent uniform orders within each tie block {optimistic..pessimistic}.

    A mean of f averages f over each block; GMR and IGMR are the product of the block means of r^(+-v_i).

    Raises:
        ValueError: for a metric whose expectation over tie orders is not known.

    >>> from torchrankmetrics.theory.definitions import MEAN_RECIPROCAL_RANK
    >>> tied = RankSample(np.array([1]), np.array([2]), None)  # 1 or 1/2
    >>> value_over_tie_orders(MEAN_RECIPROCAL_RANK, tied)
    0.75
    """
    if not has_expected(definition):
        raise ValueError(
            f"rank_type='expected' is known for means of a transform, GMR and IGMR, not for {definition.name!r}; "
            "use 'realistic', 'optimistic' or 'pessimistic'"
        )
    if definition.uses_candidates:
        mean = block_means(definition.f, sample.optimistic, sample.pessimistic, sample.known_candidates)
        return float((sample.mass * mean).sum() / sample.total)
    blocks = sample.tie_blocks
    if isinstance(definition.g, Exponential):
        s = definition.g.sign * blocks.weight / sample.total
        excess = _smooth_means(
            lambda rank, block: np.expm1(s[block] * np.log(rank)), blocks.optimistic, blocks.pessimistic
        )
        return float(np.exp((blocks.count * np.log1p(excess)).sum()))
    mean = block_means(definition.f, blocks.optimistic, blocks.pessimistic)
    return float((blocks.count * blocks.weight * mean).sum() / sample.total)


def block_means(f: RankTransform, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
    """Mean of f over {low..high} for each block: (b,) int64 >= 1 twice or thrice in, (b,) float64 out."""
    if f == AUC:
        return apply_transform(f, (low + high) / 2.0, num_candidates=num_candidates)
    if isinstance(f, WithCandidates):
        assert num_candidates is not None
        means = np.empty(len(low))
        for n in np.unique(num_candidates).tolist():
            part = num_candidates == n
            means[part] = block_means(f.at(n), low[part], high[part])
        return means
    if f == IDENTITY:
        middle: FloatArray = (low + high) / 2.0
        return middle
    if isinstance(f, AtMost):
        hits: FloatArray = np.clip(f.k - low + 1, 0, high - low + 1) / (high - low + 1)
        return hits
    if isinstance(f, Power | Log):
        return _smooth_means(lambda rank, _: apply_transform(f, rank), low, high)
    center = float(apply_transform(f, np.ones(1))[0])
    mean: FloatArray = center + centered_sums(f, center, low, high + 1)[0] / (high - low + 1)
    return mean


def _smooth_means(f: Callable[[FloatArray, IntArray], FloatArray], low: IntArray, high: IntArray) -> FloatArray:
    """Mean over {low..high} of a function smooth on dyadic panels: positive rules, no differences of prefix sums.

    ``f(rank (m,), block (m,))`` gives the values at ranks of the blocks of these indices.
    """
    total = np.zeros(len(low))
    block, start = np.arange(len(low)), low.copy()
    while len(block):
        # one by one where powers bend most; then panels no longer than their start
        length = np.minimum(np.where(start <= SMALL_RANKS, PANEL_NODES, start), high[block] - start + 1)
        nodes, weights, size = panel_rule(start, length)
        terms = weights * f(nodes, np.repeat(block, size))
        total[block] += np.add.reduceat(terms, np.cumsum(size) - size)
        start = start + length
        left = start <= high[block]
        block, start = block[left], start[left]
    mean: FloatArray = total / (high - low + 1)
    return mean
