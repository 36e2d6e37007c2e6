"""Null moments of any metric by simulation, on request, with a standard error."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, Moments
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import apply_transform
from torchrankmetrics.null.expectation.enumeration import metric_values, outcome_moments
from torchrankmetrics.null.expectation.provider import of_tasks_with_a_value, unavailable
from torchrankmetrics.validation import check_int

_BLOCK = 1 << 22  # ranks in memory at a time
_CACHE_SIZE = 512


class MonteCarloExpectation:
    """Estimate null moments from random rank vectors; the same seed gives the same numbers, in any order of questions.

    The mean has standard error sqrt(V / samples), the variance about V sqrt(2 / samples) for a nearly normal metric.

    Args:
        samples: number of rank vectors, at least 2.
        seed: seed of NumPy's default generator, >= 0.

    Raises:
        TypeError: if ``samples`` or ``seed`` is not an integer.
        ValueError: if ``samples`` < 2 or ``seed`` < 0.

    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> round(MonteCarloExpectation(samples=10_000).moments(MEAN_RANK, [3, 5]).mean, 1)  # 2.5 exactly
    2.5
    """

    def __init__(self, samples: int = 10_000, seed: int = 0) -> None:
        self.samples = check_int("samples", samples, 2)
        self.seed = check_int("seed", seed, 0)
        self._cached = functools.lru_cache(_CACHE_SIZE)(self._simulate)

    def __reduce__(self) -> tuple[Any, ...]:
        return MonteCarloExpectation, (self.samples, self.seed)  # a pickle carries no results

    def __repr__(self) -> str:
        return f"MonteCarloExpectation(samples={self.samples}, seed={self.seed})"

    def moments(
        self, definition: RankDefinition, counts: npt.ArrayLike | CandidateCounts, weight: npt.ArrayLike | None = None
    ) -> Moments:
        """See ``ExpectationProvider.moments``; the variance is the unbiased estimate."""
        if not self.answers(definition):
            raise unavailable(definition)
        return of_tasks_with_a_value(self._cached, definition, counts, weight)

    def answers(self, definition: RankDefinition) -> bool:
        """See ``ExpectationProvider.answers``."""
        return definition.has_null

    def _simulate(self, definition: RankDefinition, counts: CandidateCounts) -> Moments:
        size = np.repeat(counts.num_candidates, counts.count)
        weight = np.repeat(counts.weight, counts.count)
        random = np.random.default_rng(self.seed)
        values = np.empty(self.samples)
        block = max(1, _BLOCK // len(size))
        for begin in range(0, self.samples, block):
            ranks = random.integers(1, size[:, None], (len(size), min(block, self.samples - begin)), endpoint=True)
            N = np.broadcast_to(size[:, None], ranks.shape).ravel() if definition.uses_candidates else None
            transformed = apply_transform(definition.f, ranks.ravel().astype(np.float64), num_candidates=N)
            values[begin : begin + block] = metric_values(definition, transformed.reshape(ranks.shape), weight)
        return outcome_moments(values, ddof=1)
