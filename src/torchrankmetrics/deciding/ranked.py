"""The tasks of an evaluation of which some are ranked, by their indices."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.columns import ABSENT, SIDE_BITS, WIDTH, Columns, Rows, without_flag
from torchrankmetrics.theory.candidates import IntArray


@dataclass(frozen=True, eq=False)
class Ranked:
    """Rows of the tasks that are ranked.

    Attributes:
        rows: (n, 9) int64, zeros for the others.
        there: (n,) bool, which are ranked.
    """

    rows: Rows
    there: npt.NDArray[np.bool_]

    @classmethod
    def none(cls, size: int) -> "Ranked":
        """None of so many tasks."""
        return cls(np.zeros((size, WIDTH), dtype=np.int64), np.zeros(size, dtype=bool))

    @classmethod
    def of(cls, table: RankTable, size: int, begin: Mapping[int, int] | None = None) -> "Ranked":
        """Find the tasks of a model that ``baseline`` holds.

        Args:
            table: all tasks, or a sample that is marked as one.
            size: n.
            begin: where the tasks of each side begin, by its code; None: sample ids are the indices.

        Raises:
            TypeError, ValueError: if these are not the tasks.
        """
        if not isinstance(table, RankTable):
            raise TypeError(f"baseline must be a RankTable, got {type(table).__name__}")
        rows = table.compact().rows.cpu().numpy()
        columns = Columns(rows)
        if (columns.sample_id == ABSENT).any():
            raise ValueError("against must have a sample_id for every task: nothing else tells which they are")
        index = columns.sample_id
        if begin is not None:
            if not set(columns.side.tolist()) <= set(begin):
                raise ValueError(f"baseline has tasks of sides that are not ranked here: {table!r}")
            index = index + np.array([begin.get(code, 0) for code in range(max(begin) + 1)])[columns.side]
            ends = sorted([*begin.values(), size])[1:]
            last = np.array([min(end for end in ends if end > begin[code]) for code in columns.side.tolist()])
        else:
            last = np.full(len(index), size)
        if ((columns.sample_id < 0) | (index >= last)).any():
            raise ValueError(f"baseline has tasks that are none here: sample ids must be indices of the {size} tasks")
        found = cls.none(size)
        found.put(index, rows)
        if not (table.is_partial or not len(table) or found.there.all()):
            raise ValueError(
                f"baseline lacks {int((~found.there).sum())} of {size} tasks, and is not marked as a sample"
            )
        return found

    @property
    def most_candidates(self) -> int | None:
        """The most candidates of a task; None while some tasks are not ranked."""
        return int(Columns(self.rows).num_candidates.max()) if self.there.all() else None

    def put(self, index: IntArray, rows: Rows) -> None:
        """Keep rows (m, 9) of tasks (m,)."""
        self.rows[index], self.there[index] = without_flag(rows, fault.PARTIAL), True

    def table(self) -> RankTable:
        """The ranked tasks in the order of their indices, marked as a sample unless they are all."""
        rows = self.rows[self.there]
        if not self.there.all():
            Columns(rows).side_and_flags |= fault.PARTIAL << SIDE_BITS
        return RankTable(torch.from_numpy(rows))
