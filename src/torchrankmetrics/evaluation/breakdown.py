"""A table of an evaluation by group: which relations, query patterns or degree buckets a model is good at."""

import csv
import importlib
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

from torchrankmetrics.checks import check_choice
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.summary import align, sampled_notes

Cell = int | float | str
Names = Mapping[int, str] | Sequence[str] | None


@dataclass(frozen=True)
class Breakdown:
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

    def __str__(self) -> str:
        cells = [tuple(_text(cell) for cell in row) for row in self.rows]
        return "\n".join([*align(self.columns, cells, 1), *self.notes])

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

    def to_pandas(self) -> Any:
        """Give a ``pandas.DataFrame``.

        Raises:
            ImportError: if pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas; to_csv does without") from error
        return pandas.DataFrame.from_records(list(self.rows), columns=list(self.columns))

    @overload
    def to_csv(self, path: None = None) -> str: ...

    @overload
    def to_csv(self, path: str | os.PathLike[str]) -> None: ...

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write as CSV with all digits, NaN as an empty cell; without a path give the text."""
        text = csv_text(self.columns, self.rows)
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8", newline="")
        return None

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
    rows = []
    for group, part in analysis.by_group():
        count = part.sample().num_tasks
        if count:  # a group whose weights are all zero is dropped like its tasks
            values = [measure.value_or_nan(part) for measure in columns.values()]
            rows.append((_name(group, names), count, *values))
    return Breakdown(("group", "count", *columns), tuple(rows), tuple(sampled_notes(analysis)))


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a table as CSV with all digits, None and NaN as empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if cell is None or _is_nan(cell) else cell for cell in row] for row in rows)
    return text.getvalue()


def _name(group: int, names: Names) -> Cell:
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


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return "-" if math.isnan(cell) else f"{cell:.4f}"
    return str(cell)
