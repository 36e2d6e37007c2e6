"""Protocols of objects that contain the ranks of an evaluation: `Ranks`, `RankTable`, metric collections."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.rank_table import RankTable


@runtime_checkable
class Collected(Protocol):
    """A ``RankCollection``, as far as questions about its rows go."""

    storage: str
    measures: Mapping[str, Measure]

    def table(self) -> RankTable:
        """All rows of all processes, sorted, distinct and counted."""
        ...

    def local_table(self) -> RankTable:
        """The rows of this process in the order they came; nothing is synchronised."""
        ...


Evaluation = Ranks | RankTable | Collected


def check_evaluation(evaluation: object, name: str, instead: str = "") -> None:
    """Refuse what holds no ranks.

    Raises:
        TypeError: with the name of the argument and what it may be.
    """
    if not isinstance(evaluation, Ranks | RankTable | Collected):
        raise TypeError(
            f"{name} must be a RankTable, a RankCollection or Ranks{instead}, got {type(evaluation).__name__}; "
            "ranks go in as Ranks(ranks, None, num_candidates)"
        )


def check_complete(table: RankTable, name: object) -> None:
    """Refuse a table without tasks, or of some of the tasks only.

    Raises:
        ValueError: with the name of the table.
    """
    if not table.num_tasks:
        raise ValueError(f"{name} holds no ranking tasks")
    if table.is_partial:
        raise ValueError(f"{name} is a sample of the tasks that ended where something was decided: rank all of them")


def as_table(evaluation: Evaluation) -> RankTable:
    """All ranks of an evaluation; a collection synchronises."""
    if isinstance(evaluation, Ranks):
        return RankTable.from_ranks(evaluation)
    return evaluation if isinstance(evaluation, RankTable) else evaluation.table()
