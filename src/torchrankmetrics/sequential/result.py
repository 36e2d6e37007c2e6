"""`SequentialResult`: estimate and interval from the ranking tasks that were ranked."""

import math
from dataclasses import dataclass

from torchrankmetrics.table.rank_table import RankTable


@dataclass(frozen=True, eq=False)
class SequentialResult:
    """Estimate and interval of a metric over all tasks of the test set, from the tasks ranked so far.

    ``alpha`` bounds the probability, over the random order of these tasks, that this comparison has a wrong answer,
    however often it was tested; several comparisons have alpha each. The result does not apply to other tasks.

    Attributes:
        metric (str): canonical key.
        answer (bool): True if the model is better than the ``baseline``, or its value (with ``baseline`` its
            difference) is at least ``threshold``; False if not; None while undecided, and for ``half_width``.
        is_decided (bool): whether the hypothesis is decided.
        estimate (float): of the value, or of the difference from ``baseline``; exact once all tasks are ranked, else
            biased towards the answer by stopping at the decision.
        low, high (float): anytime-valid interval with confidence level 1 - alpha; both are the exact value at the end.
        alpha, threshold, half_width (float): as passed.
        num_tasks, total_tasks, num_queries, total_queries (int): number that was ranked, and of all.
        table (RankTable): the ranks; a sample, and marked as one, unless all tasks are ranked.
        baseline (RankTable): the ranks of the other model, including new ones; None: the hypothesis is about one model.
    """

    metric: str
    answer: bool | None
    is_decided: bool
    estimate: float
    low: float
    high: float
    alpha: float
    threshold: float | None
    half_width: float | None
    num_tasks: int
    total_tasks: int
    num_queries: int
    total_queries: int
    table: RankTable
    baseline: RankTable | None

    @property
    def is_exact(self) -> bool:
        """Whether all tasks were ranked."""
        return self.num_tasks == self.total_tasks

    def values(self) -> dict[str, float]:
        """Return values to log; the value of a sample has the prefix ``partial_``.

        Keys are ``<metric>`` or ``partial_<metric>`` with ``_low`` and ``_high``, of a difference with ``difference_``
        before the metric, and ``decided_share_<metric>``, the share of the queries that was ranked.
        """
        key = f"{'difference_' if self.baseline is not None else ''}{self.metric}"
        found = {key: self.estimate}
        if not self.is_exact:
            found = {f"partial_{key}": self.estimate}
            found |= {f"partial_{key}_low": self.low, f"partial_{key}_high": self.high}
        return {**found, f"decided_share_{self.metric}": self.num_queries / max(self.total_queries, 1)}

    def __str__(self) -> str:
        sign = "+" if self.baseline is not None else ""
        known = f"difference of {self.metric}" if sign else self.metric
        known += " unknown" if math.isnan(self.estimate) else f" {self.estimate:{sign}.4f}"
        words = "better" if self.answer else "not better"
        if not self.is_decided:
            words = "not decided"
        elif self.half_width is not None:
            words = f"to within {self.half_width:g}"
        elif self.threshold is not None:
            words = f"{'at least' if self.answer else 'below'} {self.threshold:g}"
        elif self.is_exact and self.estimate == 0:
            words = "equal"
        if self.is_exact:
            return f"{known}: {words}, exactly, after all {self.total_tasks} tasks; about these tasks only"
        if not math.isnan(self.estimate):
            known += f" [{self.low:{sign}.4f}, {self.high:{sign}.4f}]"
        return (
            f"{known}: {words} after {self.num_tasks} of {self.total_tasks} tasks ({self.num_queries} of "
            f"{self.total_queries} queries); alpha {self.alpha:g} for this comparison, about these tasks only"
        )
