"""Candidates that are excluded from a score matrix: slices of columns by row, cells, or whole columns."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import first_outside
from torchrankmetrics.ranking.forms import Cells, Form, read_form


@dataclass(frozen=True, eq=False)
class ExcludedSlices:
    """Columns excluded row by row, as known answers are: slices of one shared tensor (nothing is copied per batch).

    Row i excludes ``columns[start[i] : start[i] + length[i]] - first``, distinct and ascending within a row.

    Attributes:
        columns: (A,) int64.
        start: (B,) int64.
        length: (B,) int64.
        longest: an upper bound of ``length``, known without asking the device.
        num_columns: an upper bound of ``columns`` plus one, known without asking the device.
        first: where the columns are counted from, for a chunk of a matrix.
    """

    columns: Tensor
    start: Tensor
    length: Tensor
    longest: int
    num_columns: int
    first: int = 0

    def __len__(self) -> int:
        return len(self.start)

    def split(self, column: int) -> "tuple[ExcludedSlices, ExcludedSlices]":
        """Part every row before a column, by bisection, the rest counted from there; nothing waits or is copied."""
        end = self.start + self.length
        place = self._bisect(self.start, end, column + self.first)
        left = replace(self, length=place - self.start, longest=min(self.longest, column))
        return left, replace(self, start=place, length=end - place, first=self.first + column)

    def hold(self, row: Tensor, column: Tensor) -> Tensor:
        """Whether a row holds a column, bool (tasks,), for int64 rows and columns (tasks,); bisects as ``split``."""
        start, column = self.start[row], column + self.first
        end = start + self.length[row]
        place = self._bisect(start, end, column)
        return (place < end) & (self.columns[place.clamp(max=len(self.columns) - 1)] == column)

    def _bisect(self, low: Tensor, high: Tensor, column: Tensor | int) -> Tensor:
        """The places in [low, high) from which on the columns are no smaller."""
        for _ in range(self.longest.bit_length()):
            middle = (low + high) // 2
            before = (self.columns[middle.clamp(max=len(self.columns) - 1)] < column) & (low < high)
            low, high = torch.where(before, middle + 1, low), torch.where(before, high, middle)
        return low

    def pairs(self) -> Tensor:
        """Write out as (2, P) int64 pairs of (row, column)."""
        row, position = self.entries()
        return torch.stack([row, self.columns[position] - self.first])

    def entries(self, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """For tasks in the given rows: (task, position in columns) of every excluded entry, both int64 (entries,)."""
        start, length = (self.start, self.length) if rows is None else (self.start[rows], self.length[rows])
        task = torch.repeat_interleave(torch.arange(len(start), device=start.device), length)
        offset = torch.arange(len(task), device=start.device) - (length.cumsum(0) - length)[task]
        return task, start[task] + offset


Exclude = Form | ExcludedSlices | None
"""What ``rank_scores`` takes as not a candidate: a form of ``target``, bool (N,), or what ``KnownTriples`` returns."""


class Excluded(NamedTuple):
    """What is not a candidate, checked: the union of its forms, of which cells come alone.

    Attributes:
        slices: of each row; the own column of a task is left in.
        cells: bool (B, N); so it is here.
        columns: bool (N,), of all rows; no task has its own among them.
        bad_pairs: bool 0-d, whether pairs were out of range, on an accelerator only.
    """

    slices: ExcludedSlices | None = None
    cells: Tensor | None = None
    columns: Tensor | None = None
    bad_pairs: Tensor | None = None

    def lists(self, row: Tensor | None, column: Tensor) -> Tensor:
        """Whether slices and cells hold the own column of each task, bool (tasks,); nothing waits."""
        if row is None:
            row = torch.arange(len(column), device=column.device)
        listed = torch.zeros_like(column, dtype=torch.bool) if self.cells is None else self.cells[row, column]
        if self.slices is not None and len(self.slices.columns):
            listed = listed | self.slices.hold(row, column)
        return listed

    def hold(self, row: Tensor, column: Tensor) -> Tensor:
        """Whether cells in rows (n,) and columns (n,), int64, are excluded in any form, bool (n,)."""
        listed = self.lists(row, column)
        return listed if self.columns is None else listed | self.columns[column]

    def split(self, column: int) -> "tuple[Excluded, Excluded]":
        """What is excluded before a column, and of the rest, counted from there; nothing is copied."""
        before, rest = (None, None) if self.slices is None else self.slices.split(column)
        cells, columns = self.cells, self.columns
        return (
            Excluded(
                before, cells if cells is None else cells[:, :column], columns if columns is None else columns[:column]
            ),
            Excluded(
                rest, cells if cells is None else cells[:, column:], columns if columns is None else columns[column:]
            ),
        )

    @property
    def matrix(self) -> Tensor | None:
        """Cells or columns as a matrix, bool (B, N), or (1, N) for all rows."""
        return self.cells if self.columns is None else self.columns[None]


NOTHING = Excluded()


def check_exclude(exclude: Exclude | Excluded, shape: tuple[int, ...], device: torch.device) -> Excluded:
    """Read what is not a candidate, in any form or in several, for scores of a shape on a device."""
    if exclude is None:
        return NOTHING
    if isinstance(exclude, Excluded):  # of a whole evaluation: known answers, and columns for all queries
        check_exclude(exclude.slices, shape, device)
        return exclude
    B, N = shape
    if isinstance(exclude, ExcludedSlices):
        if len(exclude) != B:
            raise ValueError(f"exclude must come from {B} queries, one per row of scores; it has {len(exclude)}")
        if exclude.num_columns > N:
            raise IndexError(
                f"exclude holds columns up to {exclude.num_columns - 1}, but scores ({B}, {N}) have columns [0, {N})"
            )
        if exclude.start.device != device:
            raise ValueError(f"exclude must be on the device of scores, {device}; got {exclude.start.device}")
        return Excluded(slices=exclude)
    cells = read_form(exclude, "exclude", shape, device)
    if isinstance(cells, Cells):
        slices, bad = slices_of_pairs(cells, B, N)
        return Excluded(slices=slices, bad_pairs=bad)
    if cells.dtype != torch.bool:
        raise TypeError(
            f"exclude as a mask must be bool (B, N) = ({B}, {N}) or (N,) = ({N},), got {cells.dtype} "
            f"{tuple(cells.shape)}; for the columns of every row pass a list, such as exclude=[[0, 2], [1]]"
        )
    if cells.shape == shape:
        return Excluded(cells=cells)
    if cells.shape == (N,):
        return Excluded(columns=cells)
    raise ValueError(f"exclude as bool must be (B, N) = ({B}, {N}) or (N,) = ({N},), got {tuple(cells.shape)}")


def slices_of_pairs(cells: Cells, num_rows: int, num_columns: int) -> tuple[ExcludedSlices, Tensor | None]:
    """Sort (row, column) pairs into slices; repeated pairs count once.

    Returns:
        The slices; and on an accelerator a bool 0-d tensor, whether a pair is out of range (such are left out).

    Raises:
        IndexError: on the CPU, if a pair is out of range.
    """
    row, column = cells
    if not row.is_cpu:
        return slices_of_fixed_shape(row, column, num_rows, num_columns)
    if (outside := first_outside(row, column, num_rows, num_columns)) is not None:
        raise IndexError(
            f"exclude must hold rows in [0, {num_rows}) and columns in [0, {num_columns}); "
            f"pair {outside} is ({int(row[outside])}, {int(column[outside])})"
        )
    key = torch.unique_consecutive((row * num_columns + column).sort().values)
    border = torch.searchsorted(key, torch.arange(num_rows + 1, device="cpu") * num_columns)
    length = border.diff()
    longest = int(length.max()) if num_rows else 0
    return ExcludedSlices(key % num_columns, border[:-1], length, longest, num_columns), None


def slices_of_fixed_shape(
    row: Tensor, column: Tensor, num_rows: int, num_columns: int
) -> tuple[ExcludedSlices, Tensor]:
    """Sort pairs into slices where no shape may depend on the data, so that nothing waits for the device."""
    wrong = (row < 0) | (row >= num_rows) | (column < 0) | (column >= num_columns)
    last = num_rows * num_columns
    key = torch.where(wrong, last, row * num_columns + column).sort().values
    repeated = torch.zeros_like(wrong)
    repeated[1:] = key[1:] == key[:-1]
    key = torch.where(repeated, last, key).sort().values  # repeats and wrong pairs go behind the last row
    border = torch.searchsorted(key, torch.arange(num_rows + 1, device=key.device) * num_columns)
    longest = min(len(key), num_columns)
    return ExcludedSlices(key % num_columns, border[:-1], border.diff(), longest, num_columns), wrong.any()
