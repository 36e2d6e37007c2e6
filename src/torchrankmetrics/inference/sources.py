"""Protocols of objects that contain the ranks of an evaluation: `Ranks`, `RankTable`, metric collections."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.rank_table import RankTable


@runtime_checkable
class Collected(Protocol):
    """A ``RankCollection``, without a dependence on its class."""

    storage: str
    measures: Mapping[str, Measure]

    def table(self) -> RankTable:
        """All rows of all processes, sorted, distinct and counted."""

    def local_table(self) -> RankTable:
        """Rows of this process in input order, without synchronization."""


Evaluation = Ranks | RankTable | Collected


def check_evaluation(evaluation: object, name: str, instead: str = "") -> None:
    """Raise a TypeError unless an argument contains ranks; ``instead``: further allowed types."""
    if not isinstance(evaluation, Ranks | RankTable | Collected):
        raise TypeError(
            f"{name} must be a RankTable, a RankCollection or Ranks{instead}, got {type(evaluation).__name__}; "
            "pass ranks as Ranks(ranks, None, num_candidates)"
        )


def check_complete(table: RankTable, name: object) -> None:
    """Raise a ValueError for a table without tasks, or of a sequential evaluation."""
    if not table.num_tasks:
        raise ValueError(f"{name} contains no ranking tasks")
    if table.is_partial:
        raise ValueError(f"{name} is the sample of a sequential evaluation: rank all tasks")


def as_table(evaluation: Evaluation) -> RankTable:
    """Return all ranks of an evaluation; a collection is synchronized."""
    if isinstance(evaluation, Ranks):
        return RankTable.from_ranks(evaluation)
    return evaluation if isinstance(evaluation, RankTable) else evaluation.table()
