"""A table of an evaluation by group: which relations, query patterns or degree buckets a model is good at."""

import gc
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchrankmetrics.checks import check_choice
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.groups import Groups
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.summary import sampled_notes
from torchrankmetrics.rendering import Rendered, Tabular

Cell = int | float | str
Names = Mapping[int, str] | Sequence[str] | None


@dataclass(frozen=True)
class Breakdown(Rendered):
    """One row per group: group (its name or id), count, and base value, adjusted index and z-score of every metric.

    Attributes:
        columns: names of the columns.
        rows: cells in the order of the columns; NaN where a value has no meaning in its group.
        notes: what a reader must know, printed below the table.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> list[Cell]:
        """Cells of one column, one per group."""
        index = self._index(column)
        return [row[index] for row in self.rows]

    def sort(self, column: str, *, descending: bool = False) -> "Breakdown":
        """Order the rows by a column, NaN last; equal ones keep their order.

        Raises:
            ValueError: if there is no such column.
        """
        index = self._index(column)
        missing = [row for row in self.rows if _is_nan(row[index])]
        there: list[Any] = [row for row in self.rows if not _is_nan(row[index])]
        there.sort(key=lambda row: row[index], reverse=descending)
        return replace(self, rows=(*there, *missing))

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        return Tabular.named(self.columns, self.rows, self.notes)

    def _index(self, column: str) -> int:
        return self.columns.index(check_choice("column", column, self.columns))


def break_down(analysis: Analysis, measures: Iterable[Measure], names: Names) -> Breakdown:
    """Tabulate metrics by group; within a group micro and macro are the same.

    Raises:
        ValueError: if a task has no group, or a group has no name.
    """
    columns: dict[str, Measure] = {}
    for measure in measures:
        if measure.definition.name != "count":
            seen = replace(measure, average="micro").seen_as("base", "adjusted_index", "z_score")
            columns |= {view.key: view for view in seen if view is not None and view.key not in columns}
    groups = Groups(analysis)
    ids: list[Cell] = groups.ids.tolist()
    cells = [ids if names is None else [name_of(group, names) for group in groups.ids.tolist()]]
    cells.append(groups.num_tasks.tolist())
    cells += [groups.values(measure).tolist() for measure in columns.values()]
    return Breakdown(("group", "count", *columns), _rows(cells), tuple(sampled_notes(analysis)))


def _rows(cells: list[list[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows of columns. A million of them would set off the search for cycles often, and hold none."""
    searching = gc.isenabled()
    gc.disable()
    try:
        return tuple(zip(*cells, strict=True))
    finally:
        if searching:
            gc.enable()


def name_of(group: int, names: Names) -> Cell:
    """Name of a group, itself without names.

    Raises:
        ValueError: if it has none.
    """
    if names is None:
        return group
    if isinstance(names, str):
        raise TypeError(f"names must be a dict of id -> name, or a sequence of names by id; got the string {names!r}")
    inside = group in names if isinstance(names, Mapping) else 0 <= group < len(names)
    if not inside:
        raise ValueError(f"names must have a name for every group that occurs; group {group} has none")
    return names[group]


def _is_nan(cell: object) -> bool:
    return isinstance(cell, float) and math.isnan(cell)
