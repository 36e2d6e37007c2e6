"""Which columns of a score matrix are not candidates: row slices of known answers, a mask, or a restriction."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Exclusion:
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

    def split(self, column: int) -> "tuple[Exclusion, Exclusion]":
        """Part every row before a column, by bisection: nothing waits for the device, nothing is copied."""
        low, high = self.start, self.start + self.length
        for _ in range(self.longest.bit_length()):
            middle = (low + high) // 2
            before = (self.columns[middle.clamp(max=len(self.columns) - 1)] < column) & (low < high)
            low, high = torch.where(before, middle + 1, low), torch.where(before, high, middle)
        left = replace(self, length=low - self.start, longest=min(self.longest, max(column, 0)))
        return left, replace(self, start=low, length=self.start + self.length - low)

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


def exclusion_from_pairs(
    pairs: Any, num_rows: int, num_columns: int, device: torch.device
) -> tuple[Exclusion, Tensor | None]:
    """Sort (row, column) pairs into slices; repeated pairs count once.

    Returns:
        The exclusion; and on an accelerator a bool 0-d tensor, whether a pair is out of range (such are left out).

    Raises:
        TypeError: if the pairs are not integers.
        ValueError: if they are not (2, P), or on another device.
        IndexError: on the CPU, if a pair is out of range.
    """
    row, column = pair_columns(pairs, "exclude", device)
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
    return Exclusion(key % num_columns, border[:-1], length, longest, num_columns), None


def slices_of_fixed_shape(row: Tensor, column: Tensor, num_rows: int, num_columns: int) -> tuple[Exclusion, Tensor]:
    """Sort pairs into slices where no shape may depend on the data, so that nothing waits for the device."""
    wrong = (row < 0) | (row >= num_rows) | (column < 0) | (column >= num_columns)
    last = num_rows * num_columns
    key = torch.where(wrong, last, row * num_columns + column).sort().values
    repeated = torch.zeros_like(wrong)
    repeated[1:] = key[1:] == key[:-1]
    key = torch.where(repeated, last, key).sort().values  # repeats and wrong pairs go behind the last row
    border = torch.searchsorted(key, torch.arange(num_rows + 1, device=key.device) * num_columns)
    longest = min(len(key), num_columns)
    return Exclusion(key % num_columns, border[:-1], border.diff(), longest, num_columns), wrong.any()


def pair_columns(pairs: Any, name: str, device: torch.device) -> tuple[Tensor, Tensor]:
    """Split pairs, as (2, P) integers or a tuple of two (P,), into int64 rows and columns."""
    if isinstance(pairs, tuple | list) and len(pairs) == 2 and all(isinstance(part, Tensor) for part in pairs):
        row, column = pairs
        if row.ndim != 1 or row.shape != column.shape:
            raise ValueError(
                f"{name} as (rows, columns) must be two (P,) tensors, got {tuple(row.shape)} and {tuple(column.shape)}"
            )
    elif isinstance(pairs, Tensor) and pairs.ndim == 2 and pairs.shape[0] == 2:
        row, column = pairs[0], pairs[1]
    else:
        shape = tuple(pairs.shape) if isinstance(pairs, Tensor) else type(pairs).__name__
        raise ValueError(f"{name} must be (2, P) pairs of (row, column), got {shape}")
    for part in (row, column):
        if part.is_floating_point() or part.is_complex() or part.dtype == torch.bool:
            raise TypeError(f"{name} must hold integers, got {part.dtype}")
        if part.device != device:
            raise ValueError(f"{name} must be on the device of scores, {device}; got {part.device}")
    return row.to(torch.int64), column.to(torch.int64)


def first_outside(row: Tensor | None, column: Tensor, num_rows: int, num_columns: int) -> int | None:
    """Place of the first pair out of range, or None; asks for values, so it is for the CPU only."""
    wrong: Tensor | None = None
    for values, size in ((row, num_rows), (column, num_columns)):
        # NumPy's calls cost a fifth of torch's; read without a sign, what is below zero is too large
        if values is not None and values.shape[0] and values.numpy().view(np.uint64).max() >= size:
            wrong = ((values < 0) | (values >= size)) | (False if wrong is None else wrong)
    return None if wrong is None else int(wrong.nonzero()[0])
