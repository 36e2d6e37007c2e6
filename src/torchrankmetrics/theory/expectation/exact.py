"""The default provider: deterministic moments by the structure of the definition."""

import functools
from typing import Any

import numpy.typing as npt

from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.enumeration import LIMIT, enumeration
from torchrankmetrics.theory.expectation.extremes import extreme_rank
from torchrankmetrics.theory.expectation.geometric import geometric_mean
from torchrankmetrics.theory.expectation.means import mean_of_f
from torchrankmetrics.theory.expectation.median import median_rank
from torchrankmetrics.theory.expectation.power import power_mean
from torchrankmetrics.theory.expectation.power_gauss import power_mean_by_gauss
from torchrankmetrics.theory.expectation.provider import Strategy, of_tasks_with_a_value, unavailable
from torchrankmetrics.theory.expectation.standard_deviation import rank_standard_deviation
from torchrankmetrics.theory.expectation.variance import rank_variance

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

    >>> from torchrankmetrics.theory.definitions import MEAN_RANK
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
