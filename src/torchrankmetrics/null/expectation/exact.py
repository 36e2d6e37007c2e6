"""Exact null moments of every metric: means, geometric mean, extremes, and the choice of method."""

import functools
import math
from bisect import bisect_left
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, IntArray, Moments, tally
from torchrankmetrics.definitions.sums import PrefixRule, prefix_rule
from torchrankmetrics.definitions.tasks import IDENTITY, RankDefinition
from torchrankmetrics.definitions.transforms import KnownTransform, apply_transform, known
from torchrankmetrics.null.adaptive import Functions, smooth_sums
from torchrankmetrics.null.expectation.enumeration import LIMIT, enumeration
from torchrankmetrics.null.expectation.median import median_rank
from torchrankmetrics.null.expectation.power import power_mean, power_mean_by_gauss
from torchrankmetrics.null.expectation.provider import Strategy, of_tasks_with_a_value, strategy, unavailable
from torchrankmetrics.null.expectation.variance import rank_standard_deviation, rank_variance

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


@strategy(lambda definition: definition.is_geometric_mean)
def geometric_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of exp(+-mean of log r).

    E = product of E[r_i^s], V = E^2 (product of (1 + Var(r_i^s) / E[r_i^s]^2) - 1) with s = +-v_i, all in
    logarithms that stay exact for tiny v_i.
    """
    log_mean = log_spread = 0.0
    for weight in np.unique(counts.weight):
        part = counts.weight == weight
        N, count = counts.num_candidates[part], counts.count[part]
        rule = prefix_rule(N.tobytes())
        log_factor, relative_variance = _power_moments(rule, known(definition.g).direction * weight)
        log_mean += float((count * log_factor).sum())
        log_spread += float((count * np.log1p(relative_variance)).sum())
    with np.errstate(over="ignore"):
        return Moments(float(np.exp(log_mean)), float(np.exp(2 * log_mean) * np.expm1(log_spread)))


def _power_moments(rule: PrefixRule, s: float) -> tuple[FloatArray, FloatArray]:
    """Log E[r^s] and Var(r^s) / E[r^s]^2 for every N of the rule."""
    if abs(s) * math.log(rule.upper[-1]) > 1:
        power = rule.nodes**s
        mean = rule.means(power)
        return np.log(mean), rule.variances(power) / mean**2
    excess = np.expm1(s * np.log(rule.nodes))  # r^s - 1: keeps its digits when s is 1 / (number of tasks)
    mean = rule.means(excess)
    return np.log1p(mean), rule.variances(excess) / (1 + mean) ** 2


@strategy(lambda definition: definition.is_mean_of_f)
def mean_of_f(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of a plain mean of a transform."""
    mean, variance = known(definition.f).null_moments(counts.num_candidates)
    share = counts.count * counts.weight
    return Moments(float((share * mean).sum()), float((share * counts.weight * variance).sum()))


# the first that recognises the structure and reaches the counts answers
STRATEGIES: tuple[Strategy, ...] = (
    mean_of_f,
    geometric_mean,
    rank_variance,
    extreme_rank,
    power_mean,
    median_rank,
    enumeration,
    power_mean_by_gauss,
    rank_standard_deviation,
)


class ExactExpectation:
    """Deterministic null moments, each metric by the closed form or quadrature of its kind; results are cached.

    The formulas and their sources stand with each kind, in the modules of ``STRATEGIES``, and in docs/mathematics.md.

    Args:
        cache_size: how many (definition, counts) results are kept; the second epoch on the same data pays nothing.

    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> ExactExpectation().moments(MEAN_RANK, [3, 5])
    Moments(mean=2.5, variance=0.6666666666666666)
    """

    def __init__(self, cache_size: int = 512) -> None:
        self._cache_size = cache_size
        self._cached = functools.lru_cache(cache_size)(_first_answer)

    def moments(
        self, definition: RankDefinition, counts: npt.ArrayLike | CandidateCounts, weight: npt.ArrayLike | None = None
    ) -> Moments:
        """See ``ExpectationProvider.moments``."""
        return of_tasks_with_a_value(self._cached, definition, counts, weight)

    def answers(self, definition: RankDefinition) -> bool:
        """See ``ExpectationProvider.answers``."""
        return definition.has_null and any(strategy.recognises(definition) for strategy in STRATEGIES)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ExactExpectation":
        # copies of a metric share the cache: the answers do not depend on who asks
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactExpectation, (self._cache_size,)  # a pickle carries no results


def _first_answer(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    if definition.has_null:
        for strategy in STRATEGIES:
            result = strategy(definition, counts)
            if result is not None:
                return result
    raise unavailable(definition, f"has no exact expectation for these counts, whose product exceeds {LIMIT:,}")


DEFAULT_EXPECTATION = ExactExpectation()
