"""The protocol of expectation providers, and the error when no moments are known."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, Moments
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.validation import shown


@runtime_checkable
class ExpectationProvider(Protocol):
    """Anything that turns a definition and candidate counts into the null mean and variance.

    The null: rank i is uniform on {1..N_i}, independently of the others.
    """

    def moments(
        self, definition: RankDefinition, counts: npt.ArrayLike | CandidateCounts, weight: npt.ArrayLike | None = None
    ) -> Moments:
        """Null mean and variance of the metric; the variance is exactly zero where the metric cannot vary.

        Args:
            definition: the metric.
            counts: (n,) integers N_i >= 1, or a compressed ``CandidateCounts``.
            weight: (n,) weights w_i >= 0; None: equal.

        Raises:
            ExpectationUnavailableError: if this provider has no answer for the definition and counts.
            TypeError, ValueError: for counts or weights that are none.
        """
        ...

    def answers(self, definition: RankDefinition) -> bool:
        """Whether ``moments`` can answer for this definition at all, for at least some counts."""
        ...


class ExpectationUnavailableError(ValueError):
    """No expectation is known for a metric; the message says what would answer."""


@dataclass(frozen=True)
class Strategy:
    """A way to null moments, beside what tells the metrics that it is for.

    Called with a definition and counts it gives their ``Moments``, or None if they are not its kind or beyond it.
    """

    recognises: Callable[[RankDefinition], bool]
    compute: Callable[[RankDefinition, CandidateCounts], Moments | None]

    def __call__(self, definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
        """Moments, or None."""
        return self.compute(definition, counts) if self.recognises(definition) else None


def strategy(
    recognises: Callable[[RankDefinition], bool],
) -> Callable[[Callable[[RankDefinition, CandidateCounts], Moments | None]], Strategy]:
    """Make a function of a definition and counts the strategy for the metrics that are recognised."""
    return functools.partial(Strategy, recognises)


def of_tasks_with_a_value(
    compute: Callable[[RankDefinition, CandidateCounts], Moments],
    definition: RankDefinition,
    counts: npt.ArrayLike | CandidateCounts,
    weight: npt.ArrayLike | None,
) -> Moments:
    """Moments of the tasks on which the metric has a value; NaN without any."""
    if weight is not None or not isinstance(counts, CandidateCounts):  # asked for every value
        counts = CandidateCounts.of(counts, weight)
    counts = counts.at_least(definition.min_candidates)
    return compute(definition, counts) if counts.num_tasks else Moments(math.nan, 0.0)


def unavailable(definition: Definition, why: str = "has no exact expectation") -> ExpectationUnavailableError:
    """Build the error that names the metric and what would help."""
    if not definition.has_null:
        return ExpectationUnavailableError(
            f"{shown(definition.name)} has no null distribution given by candidate counts; "
            "only view='base' has a meaning"
        )
    return ExpectationUnavailableError(
        f"{shown(definition.name)} {why}; "
        "pass expectation=MonteCarloExpectation(samples=10_000, seed=0) for an estimate"
    )
