"""Read and store excluded candidates as sorted columns per row, cells, or columns of all rows; backends skip them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import first_outside
from torchrankmetrics.ranking.forms import Cells, Form, read_form


@dataclass(frozen=True, eq=False)
class ExcludedSlices:
    """Columns excluded per row, as slices of one shared tensor (nothing is copied per batch).

    Row i excludes ``columns[start[i] : start[i] + length[i]] - first``, distinct and ascending within a row.

    Attributes:
        columns: (A,) int64.
        start: (B,) int64.
        length: (B,) int64.
        longest: an upper bound of ``length``, available without waiting for the device.
        num_columns: an upper bound of ``columns`` plus one, available without waiting for the device.
        first: column of the whole matrix at which this chunk begins.
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
        """Split every row before a column by bisection; the second part counts columns from there."""
        end = self.start + self.length
        place = self._bisect(self.start, end, column + self.first)
        left = replace(self, length=place - self.start, longest=min(self.longest, column))
        return left, replace(self, start=place, length=end - place, first=self.first + column)

    def contain(self, row: Tensor, column: Tensor) -> Tensor:
        """Find which cells (row, column), int64 (n,) each, are excluded, bool (n,), without a synchronization."""
        start, column = self.start[row], column + self.first
        end = start + self.length[row]
        place = self._bisect(start, end, column)
        return (place < end) & (self.columns[place.clamp(max=len(self.columns) - 1)] == column)

    def _bisect(self, low: Tensor, high: Tensor, column: Tensor | int) -> Tensor:
        for bit in reversed(range(self.longest.bit_length())):
            place = low + (1 << bit)
            before = self.columns[(place - 1).clamp(max=len(self.columns) - 1)] < column
            low = torch.where(before & (place <= high), place, low)
        return low

    def pairs(self) -> Tensor:
        """Write out as (2, P) int64 pairs of (row, column)."""
        row, position = self.entries()
        return torch.stack([row, self.columns[position] - self.first])

    def entries(self, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Find (task, position in ``columns``), int64 (n,) each, of the excluded columns of tasks in the given rows."""
        start, length = (self.start, self.length) if rows is None else (self.start[rows], self.length[rows])
        task = torch.repeat_interleave(torch.arange(len(start), device=start.device), length)
        offset = torch.arange(len(task), device=start.device) - (length.cumsum(0) - length)[task]
        return task, start[task] + offset


Exclude = Form | ExcludedSlices | None
"""Type of ``exclude`` in ``rank_scores``: a form of ``target``, bool (N,), or the result of a ``KnownTriples``."""


class Excluded(NamedTuple):
    """Excluded candidates, checked: the union of its fields.

    Attributes:
        slices: of each row; the target of a ranking task stays a candidate of its own task.
        cells: bool (B, N), likewise; never together with other fields.
        columns: bool (N,), of all rows; never the target of a task.
        bad_pairs: bool 0-d, whether pairs were out of range; only on an accelerator.
    """

    slices: ExcludedSlices | None = None
    cells: Tensor | None = None
    columns: Tensor | None = None
    bad_pairs: Tensor | None = None

    @property
    def matrix(self) -> Tensor | None:
        """Cells or columns as a matrix, bool (B, N), or (1, N) for all rows."""
        return self.cells if self.columns is None else self.columns[None]

    def lists(self, row: Tensor, column: Tensor) -> Tensor:
        """Find which targets (row, column) are excluded from other tasks of their rows, bool (tasks,)."""
        listed = torch.zeros_like(column, dtype=torch.bool) if self.cells is None else self.cells[row, column]
        if self.slices is not None and len(self.slices.columns):
            listed = listed | self.slices.contain(row, column)
        return listed

    def split(self, column: int) -> "tuple[Excluded, Excluded]":
        """Split before a column; the second part counts columns from there. Nothing is copied."""
        before, rest = (None, None) if self.slices is None else self.slices.split(column)
        cells, columns = self.cells, self.columns
        if cells is not None:
            return Excluded(before, cells[:, :column]), Excluded(rest, cells[:, column:])
        if columns is not None:
            return Excluded(before, None, columns[:column]), Excluded(rest, None, columns[column:])
        return Excluded(before), Excluded(rest)

    def between(self, left: int, right: int) -> tuple[Tensor, Tensor] | None:
        """Find rows and columns, int64 (n,), of slices in [left, right) that ``columns`` does not exclude anyway."""
        if self.slices is None:
            return None
        rows, place = self.slices.entries()
        columns = self.slices.columns[place]
        counted = (columns >= left) & (columns < right)
        if self.columns is not None:
            counted &= ~self.columns[columns]
        return rows[counted], columns[counted]

    def num_others(self, row: Tensor, column: Tensor, num_rows: int, left: int, right: int) -> Tensor:
        """Count the candidates of each task in columns [left, right) except its target, int64 (P,)."""
        number = torch.zeros(num_rows, dtype=torch.int64, device=row.device)
        if (cells := self.between(left, right)) is not None:
            number.index_add_(0, cells[0], torch.ones_like(cells[0]))
        if (matrix := self.matrix) is not None:
            number += num_excluded(matrix[:, left:right])
        own = self.lists(row, column)
        inside = (column >= left) & (column < right)
        return right - left - number[row] - (inside & ~own).long()

    def fingerprint(self, num_columns: int) -> dict[str, Tensor | None]:
        """Name the excluded candidates in a canonical order, for processes that must be given the same."""
        pairs = None
        if self.slices is not None:
            rows, place = self.slices.entries()
            pairs = (rows * num_columns + self.slices.columns[place]).sort().values
        return {"exclude": pairs, "exclude, as a mask,": self.cells, "candidates of all queries": self.columns}


NOTHING = Excluded()
_CELLS = 1 << 18  # torch sums booleans through an int64 copy


def num_excluded(matrix: Tensor) -> Tensor:
    """Count the excluded columns of each row of a matrix, bool (B, N): int64 (B,)."""
    number = torch.zeros(len(matrix), dtype=torch.int64, device=matrix.device)
    width = max(1, min(matrix.shape[1], _CELLS))
    height = max(1, _CELLS // width)
    for left in range(0, matrix.shape[1], width):
        part = matrix[:, left : left + width]
        for rows, block in zip(torch.split(number, height), torch.split(part, height), strict=True):
            rows += block.sum(1)
    return number


def read_exclude(exclude: Exclude | Excluded, shape: tuple[int, ...], device: torch.device) -> Excluded:
    """Read ``exclude`` in any form, or in several, for scores of a shape (B, N) on a device."""
    if exclude is None:
        return NOTHING
    if isinstance(exclude, Excluded):  # of a whole evaluation: known positives, and columns for all queries
        read_exclude(exclude.slices, shape, device)
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
        return Excluded(exclude)
    cells = read_form(exclude, "exclude", shape, device)
    if isinstance(cells, Cells):
        slices, bad = slices_of_pairs(cells, B, N)
        return Excluded(slices, bad_pairs=bad)
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


def slices_of_pairs(
    cells: Cells, num_rows: int, num_columns: int, *, fixed_shape: bool = False
) -> tuple[ExcludedSlices, Tensor | None]:
    """Sort (row, column) pairs into slices; repeated pairs count once.

    Args:
        cells: the pairs.
        num_rows: B.
        num_columns: N.
        fixed_shape: True on an accelerator: no shape may depend on the data, so that nothing waits for the device.

    Returns:
        The slices; and of a fixed shape a bool 0-d tensor, whether a pair is out of range (such pairs are dropped).

    Raises:
        IndexError: if a pair is out of range and the shape is not fixed.
    """
    (row, column, _), bad, last = cells, None, num_rows * num_columns
    if fixed_shape or not row.is_cpu:
        wrong = (row < 0) | (row >= num_rows) | (column < 0) | (column >= num_columns)
        bad = wrong.any()
        key = torch.where(wrong, last, row * num_columns + column).sort().values
        repeated = torch.zeros_like(wrong)
        repeated[1:] = key[1:] == key[:-1]
        key = torch.where(repeated, last, key).sort().values  # repeats and wrong pairs go behind the last row
    elif (outside := first_outside(row, column, num_rows, num_columns)) is not None:
        raise IndexError(
            f"exclude must hold rows in [0, {num_rows}) and columns in [0, {num_columns}); "
            f"pair {outside} is ({int(row[outside])}, {int(column[outside])})"
        )
    else:
        key = torch.unique_consecutive((row * num_columns + column).sort().values)
    border = torch.searchsorted(key, torch.arange(num_rows + 1, device=key.device) * num_columns)
    length = border.diff()
    longest = int(length.max()) if bad is None and num_rows else min(len(key), num_columns)
    return ExcludedSlices(key % num_columns, border[:-1], length, longest, num_columns), bad
