"""`ExactExpectation`: the ordered strategies for exact null moments."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray, Moments
from torchrankmetrics.definitions.sums import PrefixRule, prefix_rule
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import as_transform
from torchrankmetrics.null.expectation.provider import CachedExpectation, enumeration, unavailable


def strategies(
    definition: RankDefinition,
) -> Iterator[Callable[[RankDefinition, CandidateCounts], Moments | None]]:
    """Yield the strategies for a metric, in order.

    A strategy returns None or raises for counts that it does not serve.
    """
    kind = definition.aggregation
    p = as_transform(definition.f).exponent
    a = as_transform(definition.g).exponent
    if definition.is_mean_of_f:
        yield mean_of_f
    elif definition.is_geometric_mean:
        yield geometric_mean
    elif p == 1 and (
        (definition.is_extreme and not math.isnan(a)) or (kind == "median" and abs(a) == 1)
    ):
        from torchrankmetrics.null.expectation.order_statistics import order_statistic

        yield order_statistic
    is_power = kind == "mean" and 0 < abs(p) <= 3 and abs(a) > 0
    if is_power and -20 <= a <= 2.5:  # beyond these exponents the Gauss rule is better
        from torchrankmetrics.null.expectation.power import power_mean

        yield power_mean
    elif kind == "variance" and p == 1 and a == 1:
        from torchrankmetrics.null.expectation.variance import rank_variance

        yield rank_variance
    yield enumeration
    if is_power:
        from torchrankmetrics.null.expectation.power import power_mean_by_gauss

        yield power_mean_by_gauss
    elif kind == "variance" and p == 1 and a == 0.5:
        from torchrankmetrics.null.expectation.variance import rank_standard_deviation

        yield rank_standard_deviation


def mean_of_f(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of a mean of f: of MR, MRR, hits at k, AUC and a user-defined f."""
    mean, variance = as_transform(definition.f).null_moments(counts.num_candidates)
    share = counts.count * counts.weight
    return Moments(float((share * mean).sum()), float((share * counts.weight * variance).sum()))


def geometric_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of exp(+-(sum of v_i log r_i)), products of moments of r_i^(+-v_i)."""
    log_mean = log_spread = 0.0
    for weight in np.unique(counts.weight):
        part = counts.weight == weight
        N = counts.num_candidates[part]
        count = counts.count[part]
        log_factor, relative_variance = _power_moments(
            prefix_rule(N.tobytes()), as_transform(definition.g).direction * weight
        )
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
    # r^s - 1 keeps its digits when s is 1 / (number of ranking tasks)
    excess = np.expm1(s * np.log(rule.nodes))
    mean = rule.means(excess)
    return np.log1p(mean), rule.variances(excess) / (1 + mean) ** 2


class ExactExpectation(CachedExpectation):
    """Deterministic null moments by closed forms or quadrature; results are cached.

    Args:
        cache_size (int, default 512): number of (definition, counts) results to keep.

    >>> from torchrankmetrics.null import ExactExpectation
    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> ExactExpectation().moments(MEAN_RANK, [3, 5])
    Moments(mean=2.5, variance=0.6666666666666666)
    """

    def __init__(self, cache_size: int = 512) -> None:
        self._cache_size = cache_size
        self._cached = functools.lru_cache(cache_size)(_exact_moments)

    def _of_queries(self, definition: Any, queries: Any) -> Moments:
        return definition.exact_moments(queries)  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ExactExpectation":
        return self  # copies of a metric share the cache

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactExpectation, (self._cache_size,)  # without results


def _exact_moments(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    for strategy in strategies(definition):
        if (result := strategy(definition, counts)) is not None:
            return result
    raise unavailable(
        definition, "has no exact expectation for these counts, whose product exceeds 2,000,000"
    )


DEFAULT_EXPECTATION = ExactExpectation()
