"""Null moments of the largest and the smallest rank, from their laws.

P(max <= x) = product of min(x / N_i, 1) and P(min >= x) = product of 1 - (x - 1) / N_i. All logarithms are sums of
negative terms and probabilities of single values come from expm1, so nothing cancels for any number of tasks.
"""

import math
from bisect import bisect_left

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray, Moments, tally
from torchrankmetrics.theory.definitions import IDENTITY, RankDefinition
from torchrankmetrics.theory.expectation.provider import strategy
from torchrankmetrics.theory.quadrature.adaptive import Functions, smooth_sums
from torchrankmetrics.theory.transforms import KnownTransform, apply_transform, known

_NEGLIGIBLE = -60.0  # log of a probability that changes no digit
_BLOCK = 1 << 20


@strategy(lambda d: d.is_extreme and d.f == IDENTITY and not math.isnan(known(d.g).exponent))
def extreme_rank(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of g(max r_i) and g(min r_i) for g a power. Weights play no part."""
    g = known(definition.g)
    N, count = tally(counts.num_candidates, counts.count)
    if definition.aggregation == "maximum":
        if N[-1] == 1:
            return _constant(g)
        law, edges, anchor = _maximum_law(N, count)
    else:
        if N[0] == 1:
            return _constant(g)
        law, edges, anchor = _minimum_law(N, count)
    return _moments(g, law, edges, anchor)


def _constant(g: KnownTransform) -> Moments:
    return Moments(float(apply_transform(g, np.ones(1), "g")[0]), 0.0)


def _maximum_law(N: IntArray, count: FloatArray) -> tuple[Functions, IntArray, int]:
    """P(max = x) as a function of x, the gaps between its kinks, and the most extreme value."""
    alive = np.cumsum(count[::-1])[::-1]  # tasks with N_i >= N[k]
    steps = alive[1:] * np.log(N[:-1] / N[1:])
    log_cdf = np.append(np.cumsum(steps[::-1])[::-1], 0.0)  # log P(max <= N[k])
    first = int(np.searchsorted(log_cdf, _NEGLIGIBLE))  # the values below N[first - 1] never come up
    lowest = int(N[first] * np.exp((_NEGLIGIBLE - log_cdf[first]) / alive[first]))
    lowest = max(lowest - 1, int(N[first - 1]) if first else 0)

    def law(x: FloatArray) -> FloatArray:
        segment = np.searchsorted(N, x)
        log_probability = alive[segment] * np.log(x / N[segment]) + log_cdf[segment]
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(log_probability) * -np.expm1(alive[segment] * np.log1p(-1 / x)))

    return law, np.r_[lowest, N[first:]], int(N[-1])


def _minimum_law(N: IntArray, count: FloatArray) -> tuple[Functions, IntArray, int]:
    """P(min = x) as a function of x, its range as one gap, and the most extreme value."""

    def logarithms(x: FloatArray) -> FloatArray:
        """Log P(min >= x), and log P(min > x | min >= x): (2, len(x))."""
        result = np.empty((2, len(x)))
        block = max(1, _BLOCK // len(N))
        for begin in range(0, len(x), block):
            part = x[begin : begin + block, None]
            with np.errstate(divide="ignore"):
                result[0, begin : begin + block] = np.log1p(-(part - 1) / N) @ count
                result[1, begin : begin + block] = np.log1p(-1 / (N - part + 1)) @ count
        return result

    def law(x: FloatArray) -> FloatArray:
        at_least, next_one = logarithms(x)
        return np.asarray(np.exp(at_least) * -np.expm1(next_one))

    possible = range(1, int(N[0]) + 1)
    last = bisect_left(possible, True, lo=1, key=lambda x: bool(logarithms(np.array([float(x)]))[0, 0] <= _NEGLIGIBLE))
    return law, np.array([0, last]), 1


def _moments(g: KnownTransform, law: Functions, edges: IntArray, anchor: int) -> Moments:
    center = float(anchor) ** g.exponent

    def functions(x: FloatArray) -> FloatArray:
        difference = apply_transform(g, x, "g") - center
        probability = law(x)
        return np.stack([probability * difference, probability * difference**2])

    first, second = smooth_sums(functions, edges[:-1] + 1, edges[1:] + 1, together=True).sum(1)
    return Moments(float(center + first), float(second - first**2))
