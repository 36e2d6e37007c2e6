"""Count better, tied and NaN candidates and skip excluded ones, in plain torch or Numba."""

import importlib
import importlib.util
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.validation import check_choice

_CELLS = 1 << 18  # torch sums booleans through an int64 copy
_STEP = 8  # a step of a bisection takes as long as the allocation of so many bytes of a table


class MissingTargets:
    """Warns once, for all look-ups of one object, that they do not contain targets."""

    def __init__(self) -> None:
        self._has_warned = False

    def warn(self, number: int, total: int) -> None:
        """Warn of the first tasks that are not known positives themselves."""
        if not self._has_warned:
            self._has_warned = True
            warn(missing_targets(number, total))


def missing_targets(number: int, total: int) -> str:
    """Text of the warning."""
    return (
        f"the look-up of known positives does not contain the target of {number} of {total} "
        "ranking tasks: other known positives may count as wrong candidates, so that ranks are "
        "not filtered. Pass all evaluated splits to KnownTriples, in the order (head, relation, "
        "tail), and look up queries by their ids there: where a reciprocal relation "
        "r + num_relations is scored, exclude=known.heads(r, t)"
    )


@dataclass(frozen=True, eq=False)
class ExcludedSlices:
    """Columns excluded per row, as slices of one shared tensor (nothing is copied per batch).

    Row i excludes ``columns[start[i] : start[i] + length[i]] - first``, distinct and ascending
    within a row.
    """

    columns: Tensor  # int64 (A,)
    start: Tensor  # int64 (B,)
    length: Tensor  # int64 (B,)
    longest: int  # upper bounds that are known without waiting for the device: of ``length``,
    num_columns: int  # and of ``columns`` plus one
    first: int = 0  # column of the whole matrix at which this chunk begins
    # of look-ups that must contain the targets; None: seen items, for example, need not
    missing: MissingTargets | None = None

    def __len__(self) -> int:
        return len(self.start)

    def between(self, left: int, right: int) -> "ExcludedSlices":
        """Find the columns in [left, right) of every row, counted from ``left``."""
        end = self.start + self.length
        start = self._bisect(self.start, end, left + self.first) if left else self.start
        length = self._bisect(start, end, right + self.first) - start
        longest = min(self.longest, right - left)
        return replace(self, start=start, length=length, longest=longest, first=self.first + left)

    def contain(self, row: Tensor, column: Tensor) -> Tensor:
        """Find which cells (row, column), int64 (n,) each, are excluded: bool (n,).

        Nothing waits for an accelerator.
        """
        if row.is_cpu and len(row):
            shape = len(self), max(self.num_columns, int(column.max()) + 1)
            if len(row) * self.longest.bit_length() * _STEP > shape[0] * shape[1]:
                table = torch.zeros(shape, dtype=torch.bool, device=row.device)
                table[tuple(self.pairs())] = True
                return table[row, column]
        start = self.start[row]
        column = column + self.first
        end = start + self.length[row]
        place = self._bisect(start, end, column)
        return (place < end) & (self.columns[place.clamp(max=len(self.columns) - 1)] == column)

    def _bisect(self, low: Tensor, high: Tensor, column: Tensor | int) -> Tensor:
        for bit in reversed(range(self.longest.bit_length())):
            place = low + (1 << bit)
            # index_select takes a third of the time of an index in brackets
            before = (
                self.columns.index_select(0, (place - 1).clamp(max=len(self.columns) - 1)) < column
            )
            low = torch.where(before & (place <= high), place, low)
        return low

    def to(self, device: torch.device) -> "ExcludedSlices":
        """Move to a device."""
        columns = self.columns.to(device)
        start = self.start.to(device)
        return replace(self, columns=columns, start=start, length=self.length.to(device))

    def pairs(self) -> Tensor:
        """Write out as (2, P) int64 pairs of (row, column)."""
        row, position = self.entries()
        return torch.stack([row, self.columns[position] - self.first])

    def entries(self, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Find (task, position in ``columns``), int64 (n,) each, of what tasks in rows exclude."""
        start = self.start
        length = self.length
        if rows is not None:
            start = start[rows]
            length = length[rows]
        task = torch.repeat_interleave(torch.arange(len(start), device=start.device), length)
        offset = torch.arange(len(task), device=start.device) - (length.cumsum(0) - length)[task]
        return task, start[task] + offset


class Excluded(NamedTuple):
    """Excluded candidates, checked: the union of its fields."""

    # of each row; the target of a task stays a candidate of its own task
    slices: ExcludedSlices | None = None
    # bool, of the shape of the scores, likewise; never together with other fields
    cells: Tensor | None = None
    columns: Tensor | None = None  # bool (N,), of all rows; never the target of a task
    # bool 0-d, whether pairs were out of range; only on an accelerator
    bad_pairs: Tensor | None = None

    @property
    def matrix(self) -> Tensor | None:
        """Cells, or columns as a matrix (1, N) for all rows."""
        return self.cells if self.columns is None else self.columns[None]

    def lists(self, row: Tensor, column: Tensor) -> Tensor:
        """Find which targets (row, column) other tasks of their rows exclude, bool (tasks,)."""
        if self.cells is not None:
            return self.cells[row, column]
        if self.slices is None or not len(self.slices.columns):
            return torch.zeros_like(column, dtype=torch.bool)
        return self.slices.contain(row, column)

    def num_candidates(self, row: Tensor, num_columns: int) -> Tensor:
        """Count the candidates of rows (n,) that are not excluded, int64 (n,)."""
        if self.cells is not None:
            return num_columns - num_excluded(self.cells[row])
        number = torch.full_like(row, num_columns)
        if self.columns is not None:
            number -= self.columns.sum()
        if self.slices is not None and len(row):
            task, position = self.slices.entries(row)
            own = torch.ones_like(task)
            if self.columns is not None:  # a column counts once
                own = (~self.columns[self.slices.columns[position] - self.slices.first]).long()
            number.index_add_(0, task, -own)
        return number

    def between(self, left: int, right: int) -> "Excluded":
        """Return the part in columns [left, right), counted from ``left``. Nothing is copied."""
        slices = None if self.slices is None else self.slices.between(left, right)
        cells = None if self.cells is None else self.cells[:, left:right]
        columns = None if self.columns is None else self.columns[left:right]
        return Excluded(slices, cells, columns)

    def to(self, device: torch.device) -> "Excluded":
        """Move to a device."""
        slices = None if self.slices is None else self.slices.to(device)
        cells = None if self.cells is None else self.cells.to(device)
        columns = None if self.columns is None else self.columns.to(device)
        bad_pairs = None if self.bad_pairs is None else self.bad_pairs.to(device)
        return Excluded(slices, cells, columns, bad_pairs)

    def clone(self) -> "Excluded":
        """Copy the masks, which the caller may write to."""
        cells = None if self.cells is None else self.cells.clone()
        columns = None if self.columns is None else self.columns.clone()
        return self._replace(cells=cells, columns=columns)

    def fingerprint(self, num_columns: int) -> dict[str, Tensor | None]:
        """Name the excluded candidates in an order that is the same on all processes."""
        pairs = None
        if self.slices is not None:
            rows, columns = self.slices.pairs()
            pairs = (rows * num_columns + columns).sort().values
        return {
            "exclude": pairs,
            "exclude, as a mask,": self.cells,
            "candidates of all queries": self.columns,
        }


NOTHING = Excluded()


def num_excluded(matrix: Tensor) -> Tensor:
    """Count the excluded columns of each row of a matrix, bool (B, N): int64 (B,)."""
    blocks = torch.split(matrix, max(1, _CELLS // max(1, matrix.shape[1])))
    return torch.cat([rows.sum(1) for rows in blocks])


def count(
    scores: Tensor,
    true: Tensor | None = None,
    row: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Excluded = NOTHING,
    borders: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Count the other candidates of each task: better, not worse, all, and NaN: int64 (4, P).

    A NaN candidate is better than any true score, and any candidate is better than a NaN; a NaN
    true score counts too.

    Args:
        scores: (B, N), any real dtype and strides; or lists of different lengths, flat (T,). Only
            read.
        true: (P,) the true score of each task, same dtype; None: the score in its own column.
        row: (P,) int64, the row or list each task belongs to; None: task i is row i (P = B).
        column: (P,) int64, its own column, which is left out, negative if it is not in the matrix;
            None: in none.
        excluded: candidates that are not counted; of lists only ``cells``, bool (T,).
        borders: (B + 1,) int64, of lists: list i is scores[borders[i] : borders[i + 1]], and
            ``row`` is given.
        backend: as in ``chosen``.
    """
    counts: Tensor = _module(chosen(scores, backend)).count(
        scores, true, row, column, excluded, borders
    )
    return counts


def chosen(scores: Tensor, backend: str = "auto") -> str:
    """Return the backend that counts these scores: "numba" on the CPU if installed, or "torch"."""
    if backend == "auto":
        return "numba" if scores.is_cpu and _numba_problem() is None else "torch"
    if check_choice("backend", backend, ("auto", "torch", "numba")) == "numba":
        if not scores.is_cpu:
            raise ValueError(
                f'backend="numba" is for scores on the CPU, got {scores.device}; use "auto" or '
                '"torch"'
            )
        if problem := _numba_problem():
            raise ImportError(
                f'backend="numba" needs numba: pip install "torchrankmetrics[fast]"; {problem}'
            )
    return backend


@cache
def _module(backend: str) -> Any:
    # late: numba takes half a second
    return importlib.import_module(f"{__name__}.{backend}_backend")


@cache
def _numba_problem() -> str | None:
    """Why Numba cannot be used; None: it can."""
    if importlib.util.find_spec("numba") is None:
        return "it is not installed"
    try:
        _module("numba")
    except Exception as error:  # torch counts as well, only slower
        problem = f"numba is installed, but not usable: {error}"
        warn(f"scores are counted by plain torch, which is slower; {problem}")
        return problem
    return None
