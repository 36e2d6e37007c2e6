"""`ExpectationProvider`, the protocol of null moments, and the error if none are known."""

import math
from typing import Protocol, runtime_checkable

import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, Moments
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.validation import shorten


@runtime_checkable
class ExpectationProvider(Protocol):
    """Anything that computes the null mean and variance of a metric from a definition and candidate counts.

    The null: rank i is uniform on {1..N_i}, independently of the others.
    """

    def moments(
        self, definition: RankDefinition, counts: npt.ArrayLike | CandidateCounts, weight: npt.ArrayLike | None = None
    ) -> Moments:
        """Null mean and variance of the metric; the variance is exactly zero if the metric cannot vary.

        Args:
            definition (RankDefinition): the metric.
            counts (array-like or CandidateCounts): (n,) integers N_i >= 1, or a compressed ``CandidateCounts``.
            weight (array-like, default None): (n,) weights w_i >= 0; None: equal.

        Returns:
            ``Moments``: mean and variance, float64.

        Raises:
            ExpectationUnavailableError: if this provider has no moments for the definition and counts.
            TypeError, ValueError: if counts or weights are invalid.
        """
        ...

    def answers(self, definition: RankDefinition) -> bool:
        """Whether ``moments`` serves this definition, for at least some counts.

        Args:
            definition (RankDefinition): the metric.

        Returns:
            True if ``moments`` supports the definition.
        """
        ...


class ExpectationUnavailableError(ValueError):
    """The null moments of a metric are not known; the message names an alternative."""


def valued_tasks(
    definition: RankDefinition, counts: npt.ArrayLike | CandidateCounts, weight: npt.ArrayLike | None
) -> CandidateCounts:
    """Return the counts of the ranking tasks on which a metric has a value; maybe none."""
    if weight is not None or not isinstance(counts, CandidateCounts):
        counts = CandidateCounts.of(counts, weight)
    return counts.at_least(definition.min_candidates)


UNDEFINED = Moments(math.nan, 0.0)  # without tasks


def unavailable(definition: Definition, why: str = "has no exact expectation") -> ExpectationUnavailableError:
    """Build the error that names the metric and an alternative."""
    if not definition.has_null:
        return ExpectationUnavailableError(
            f"{shorten(definition.name)} has no null distribution given by candidate counts; use view='base'"
        )
    return ExpectationUnavailableError(
        f"{shorten(definition.name)} {why}; "
        "pass expectation=MonteCarloExpectation(samples=10_000, seed=0) for an estimate"
    )
