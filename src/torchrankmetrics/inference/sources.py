"""Protocols of objects that contain the ranks of an evaluation: `Ranks`, `RankTable`, metric collections."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy.typing as npt

from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.ranking.arrays import as_tensor
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import is_int, one_number


@runtime_checkable
class Collected(Protocol):
    """A ``RankCollection``, without a dependence on its class."""

    storage: str
    measures: Mapping[str, Measure]

    def table(self) -> RankTable:
        """All rows of all processes, sorted, distinct and counted."""

    def local_table(self) -> RankTable:
        """Rows of this process in input order, without synchronization."""


@runtime_checkable
class HasArray(Protocol):
    """A tensor, an array, a pandas Series or a data frame."""

    def __array__(self) -> npt.NDArray[Any]:
        """Convert to NumPy."""
        ...


Evaluation = Ranks | RankTable | Collected
Values = Mapping[Any, float]
"""Values of a metric by query."""


def is_values(given: object) -> TypeGuard[Values]:
    """Whether this is a mapping of numbers."""
    return isinstance(given, Mapping) and len(given) > 0 and one_number(next(iter(given.values()))) is not None


def is_list_of_ranks(given: object) -> bool:
    """Whether this is a list of integers, the ranks of one model."""
    return isinstance(given, list | tuple) and len(given) > 0 and is_int(given[0])


def as_evaluation(given: object, name: str, instead: str = "") -> Evaluation:
    """Return ranks as ``Ranks`` or ``RankTable``: arrays have unknown numbers of candidates, frames have columns.

    Raises:
        TypeError: if it has no ranks, or ranks that are not integers.
    """
    if isinstance(given, HasArray) and hasattr(given, "columns"):
        return RankTable.from_pandas(cast("Any", given))
    if isinstance(given, HasArray) or is_list_of_ranks(given):
        ranks = as_tensor(cast("Any", given), name)
        if ranks.is_floating_point():
            raise TypeError(
                f"{name} must hold integers, got {ranks.dtype}; for ties pass Ranks(optimistic, pessimistic)"
            )
        return Ranks(ranks)
    check_evaluation(given, name, instead)
    return cast("Evaluation", given)


def check_evaluation(evaluation: object, name: str, instead: str = "") -> None:
    """Raise a TypeError unless an argument contains ranks; ``instead``: further allowed types."""
    if not isinstance(evaluation, Ranks | RankTable | Collected):
        raise TypeError(
            f"{name} must be a RankTable, a RankCollection, Ranks or an array of ranks{instead}, got "
            f"{type(evaluation).__name__}; pass ranks as Ranks(ranks, None, num_candidates)"
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
