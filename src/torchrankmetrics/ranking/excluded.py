"""Which columns of a score matrix are excluded: row slices of known answers, a mask, or a restriction. True = out."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Pairs, as_pairs, as_tensor, first_outside


@dataclass(frozen=True, eq=False)
class KnownSlices:
    """Known answers of a batch of queries, as slices of one shared column tensor (nothing is copied per batch).

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

    def split(self, column: int) -> "tuple[KnownSlices, KnownSlices]":
        """Part every row before a column, by bisection: nothing waits for the device, nothing is copied."""
        end = self.start + self.length
        place = self._bisect(self.start, end, column)
        left = replace(self, length=place - self.start, longest=min(self.longest, max(column, 0)))
        return left, replace(self, start=place, length=end - place)

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


Exclude = Pairs | KnownSlices | None
"""What ``rank_scores`` takes as not a candidate: pairs, bool (B, N), bool (N,), or what ``KnownTriples`` returns."""


class Excluded(NamedTuple):
    """Checked union of what is not a candidate: known answers, a mask (B, N), a restriction (N,)."""

    known: KnownSlices | None = None
    mask: Tensor | None = None
    restriction: Tensor | None = None
    bad_pairs: Tensor | None = None  # bool 0-d, on an accelerator only

    def lists(self, row: Tensor | None, column: Tensor) -> Tensor:
        """Whether the known answers and the mask hold the own column of each task, bool (tasks,); nothing waits."""
        if row is None:
            row = torch.arange(len(column), device=column.device)
        listed = torch.zeros_like(column, dtype=torch.bool) if self.mask is None else self.mask[row, column]
        if self.known is not None and len(self.known.columns):
            listed = listed | self.known.hold(row, column)
        return listed

    def hold(self, row: Tensor, column: Tensor) -> Tensor:
        """Whether cells in rows (n,) and columns (n,), int64, are excluded in any form, bool (n,)."""
        listed = self.lists(row, column)
        return listed if self.restriction is None else listed | self.restriction[column]

    @property
    def columns(self) -> Tensor | None:
        """What ``counting`` leaves out beside the known answers: bool (B, N), or (1, N) for all rows."""
        return self.mask if self.restriction is None else self.restriction[None]


_NOTHING = Excluded()


def check_exclude(
    exclude: Exclude | Excluded, shape: tuple[int, ...], device: torch.device, restriction: Tensor | None = None
) -> Excluded:
    """Read what is not a candidate, in any form or in several, for scores of a shape on a device."""
    if restriction is not None:
        return check_exclude(exclude, shape, device)._replace(restriction=restriction)
    if exclude is None:
        return _NOTHING
    if isinstance(exclude, Excluded):  # of a whole evaluation: known answers, and columns for all queries
        check_exclude(exclude.known, shape, device)
        return exclude
    B, N = shape
    if isinstance(exclude, KnownSlices):
        if len(exclude) != B:
            raise ValueError(f"exclude must come from {B} queries, one per row of scores; it has {len(exclude)}")
        if exclude.num_columns > N:
            raise IndexError(
                f"exclude holds columns up to {exclude.num_columns - 1}, but scores ({B}, {N}) have columns [0, {N})"
            )
        if exclude.start.device != device:
            raise ValueError(f"exclude must be on the device of scores, {device}; got {exclude.start.device}")
        return Excluded(known=exclude)
    if not isinstance(exclude, Tensor):
        exclude = _read(exclude, device)
    if isinstance(exclude, Tensor) and exclude.dtype == torch.bool:
        if exclude.device != device:
            raise ValueError(f"exclude must be on the device of scores, {device}; got {exclude.device}")
        if exclude.shape == shape:
            return Excluded(mask=exclude)
        if exclude.shape == (N,):
            return Excluded(restriction=exclude)
        raise ValueError(f"exclude as bool must be (B, N) = ({B}, {N}) or (N,) = ({N},), got {tuple(exclude.shape)}")
    known, bad = slices_of_pairs(exclude, B, N, device)
    return Excluded(known=known, bad_pairs=bad)


def _read(exclude: Any, device: torch.device) -> Pairs:
    """Read arrays in the place of tensors; lists could be rows or columns, and are not guessed at."""
    if isinstance(exclude, tuple | list) and len(exclude) == 2 and all(hasattr(part, "__array__") for part in exclude):
        row, column = (part if isinstance(part, Tensor) else as_tensor(part, "exclude").to(device) for part in exclude)
        return row, column
    if hasattr(exclude, "__array__"):
        return as_tensor(exclude, "exclude").to(device)
    if isinstance(exclude, tuple | list):
        raise ValueError(
            "exclude as lists is not taken: for a list of columns for every row pass the pairs "
            "torch.tensor([(row, column) for row, columns in enumerate(exclude) for column in columns]).T, else "
            "torch.tensor(exclude), (2, P) pairs of (row, column) or bool (B, N)"
        )
    raise TypeError(
        "exclude must be (2, P) pairs, bool (B, N), bool (N,), what KnownTriples returns or a tuple (rows, columns), "
        f"as .nonzero() of a SciPy matrix gives it; got {type(exclude).__name__}"
    )


def slices_of_pairs(
    pairs: Pairs, num_rows: int, num_columns: int, device: torch.device
) -> tuple[KnownSlices, Tensor | None]:
    """Sort (row, column) pairs into slices; repeated pairs count once.

    Returns:
        The slices; and on an accelerator a bool 0-d tensor, whether a pair is out of range (such are left out).

    Raises:
        TypeError: if the pairs are not integers.
        ValueError: if they are not (2, P), or on another device.
        IndexError: on the CPU, if a pair is out of range.
    """
    row, column = as_pairs(pairs, "exclude", device)
    if device.type == "cpu" and (outside := first_outside(row, column, num_rows, num_columns)) is not None:
        raise IndexError(
            f"exclude must hold rows in [0, {num_rows}) and columns in [0, {num_columns}); "
            f"pair {outside} is ({int(row[outside])}, {int(column[outside])})"
        )
    if device.type != "cpu":
        return slices_of_fixed_shape(row, column, num_rows, num_columns)
    key = torch.unique_consecutive((row * num_columns + column).sort().values)
    border = torch.searchsorted(key, torch.arange(num_rows + 1, device="cpu") * num_columns)
    length = border.diff()
    longest = int(length.max()) if num_rows else 0
    return KnownSlices(key % num_columns, border[:-1], length, longest, num_columns), None


def slices_of_fixed_shape(row: Tensor, column: Tensor, num_rows: int, num_columns: int) -> tuple[KnownSlices, Tensor]:
    """Sort pairs into slices where no shape may depend on the data, so that nothing waits for the device."""
    wrong = (row < 0) | (row >= num_rows) | (column < 0) | (column >= num_columns)
    last = num_rows * num_columns
    key = torch.where(wrong, last, row * num_columns + column).sort().values
    repeated = torch.zeros_like(wrong)
    repeated[1:] = key[1:] == key[:-1]
    key = torch.where(repeated, last, key).sort().values  # repeats and wrong pairs go behind the last row
    border = torch.searchsorted(key, torch.arange(num_rows + 1, device=key.device) * num_columns)
    longest = min(len(key), num_columns)
    return KnownSlices(key % num_columns, border[:-1], border.diff(), longest, num_columns), wrong.any()
