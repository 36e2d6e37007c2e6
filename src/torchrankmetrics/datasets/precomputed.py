"""`PrecomputedExpectation`: null moments of stored candidate counts, not of evaluated tasks."""

from __future__ import annotations  # help() shows the names of types

import numpy.typing as npt

from torchrankmetrics.datasets.facts import candidate_counts
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import CandidateCounts, Moments, Sample
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.null.expectation.provider import ExpectationProvider, unavailable


class PrecomputedExpectation(ExpectationProvider):
    """Null moments of stored candidate counts, for example of a test set that is evaluated in part.

    Then use them for adjusted indices only: the variance is of the stored tasks, so that z-scores
    of a part are too far from 0.

    Args:
        num_candidates (array-like, CandidateCounts or str): (n,) integers N_i >= 1 of the stored
            tasks, or the name of a dataset (``dataset_names`` lists them) for its filtered test
            tasks of both sides.
        weight (array-like, default None): (n,) weights w_i >= 0; None: equal.
        count (array-like, default None): (n,) number of tasks of each entry; None: one each.
        provider (ExpectationProvider, default None): computes the moments; None: exact.

    Raises:
        TypeError, ValueError: if counts or weights are invalid, or the dataset is unknown.

    >>> from torchrankmetrics.datasets import PrecomputedExpectation
    >>> from torchrankmetrics.definitions.tasks import MEAN_RANK
    >>> round(PrecomputedExpectation("fb15k237").moments(MEAN_RANK, [2, 2]).mean, 2)
    7153.31
    """

    def __init__(
        self,
        num_candidates: npt.ArrayLike | CandidateCounts | str,
        weight: npt.ArrayLike | None = None,
        count: npt.ArrayLike | None = None,
        *,
        provider: ExpectationProvider | None = None,
    ) -> None:
        if isinstance(num_candidates, str):
            num_candidates = candidate_counts(num_candidates)
        self.counts = CandidateCounts.of(num_candidates, weight, count)
        self._provider: ExpectationProvider = DEFAULT_EXPECTATION if provider is None else provider

    def moments(
        self,
        definition: Definition,
        counts: npt.ArrayLike | CandidateCounts | Sample,
        weight: npt.ArrayLike | None = None,
    ) -> Moments:
        """Moments of the stored set; ``counts`` and ``weight`` are ignored."""
        if definition.of_tasks is None:
            raise unavailable(
                definition,
                "is a metric of queries, and stored counts are of ranking tasks",
                "pass expectation=None",
            )
        return self._provider.moments(definition, self.counts)

    def supports(self, definition: Definition) -> bool:
        """Whether the provider supports the definition, a metric of ranking tasks."""
        return definition.of_tasks is not None and self._provider.supports(definition)
