"""The columns of a row of state: where each fact of a ranking task stands, and how it is read."""

from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.sides import TASK_SIDES, TaskSide

Rows = npt.NDArray[np.int64]
Table = TypeVar("Table", Tensor, Rows)

WIDTH = 9
ABSENT = -(1 << 63)  # no group, no sample id, a query by itself
SIDES_BY_CODE: tuple[TaskSide | None, ...] = (None, *TASK_SIDES)
SIDE_CODES: dict[TaskSide | None, int] = {side: code for code, side in enumerate(SIDES_BY_CODE)}
SIDE_WORDS: dict[str, int] = {side or "none": code for side, code in SIDE_CODES.items()}  # as files and people say it
SIDE_BITS = 2  # the side column carries the flags of the task above its two lowest bits


class HasRows:
    """What holds rows, as a ``RankTable`` does."""

    rows: Tensor


def empty_rows(device: torch.device | str = "cpu") -> Tensor:
    """Give the (0, 9) int64 block of a process without data."""
    return torch.empty(0, WIDTH, dtype=torch.int64, device=device)


class _Column:
    """A column, or several, of rows: read as a view of them, written through."""

    def __init__(self, place: int | slice) -> None:
        self.place = place

    def __get__(self, of: "Columns[Table]", owner: type) -> Table:
        column: Table = of.rows[:, self.place]
        return column

    def __set__(self, of: "Columns[Table]", values: Table | int) -> None:
        of.rows[:, self.place] = values


class Columns(Generic[Table]):
    """Rows (n, 9), a tensor or an array, by the names of their columns."""

    optimistic = _Column(0)
    pessimistic = _Column(1)
    num_candidates = _Column(2)
    ranks = _Column(slice(3))  # these three, as a Ranks has them
    side_and_flags = _Column(3)
    group = _Column(4)
    sample_id = _Column(5)
    weight_bits = _Column(6)  # of a float64
    count = _Column(7)
    query = _Column(8)

    def __init__(self, rows: Table) -> None:
        self.rows: Table = rows

    @property
    def side(self) -> Table:
        """Side of each row (n,) as in ``SIDE_CODES``."""
        return self.side_and_flags & ((1 << SIDE_BITS) - 1)

    @property
    def flags(self) -> Table:
        """Flags of each row (n,), the bits of ``ranking.flags``."""
        return self.side_and_flags >> SIDE_BITS


def check_side_codes(side: Rows) -> None:
    """Refuse numbers (n,) that are no sides."""
    wrong = (side < 0) | (side >= len(SIDES_BY_CODE))
    if wrong.any():
        *others, last = (f"{code} ({word})" for word, code in SIDE_WORDS.items())
        row = int(wrong.argmax())
        raise ValueError(f"side must be {', '.join(others)} or {last}; got {side[row]} in row {row}")


PLACES = {name: column.place for name, column in vars(Columns).items() if isinstance(column, _Column)}


def without_flag(rows: Rows, flag: int) -> Rows:
    """Copy rows (n, 9) and take a flag, or several, from them."""
    rows = rows.copy(order="K")
    Columns(rows).side_and_flags &= ~(flag << SIDE_BITS)
    return rows


def without_queries(rows: Rows) -> Rows:
    """Copy rows (n, 9) and forget which of them are answers of one query."""
    rows = without_flag(rows, fault.FILTERED | fault.RAW)
    Columns(rows).query = ABSENT
    return rows


def weights(rows: Rows) -> npt.NDArray[np.float64]:
    """Weight of one task of each row, float64 (n,)."""
    return np.ascontiguousarray(Columns(rows).weight_bits).view(np.float64)


def used(rows: Rows, side: Literal["both", TaskSide], min_candidates: int = 1) -> npt.NDArray[np.bool_]:
    """Rows of a side ("both": of all) that have a positive weight and so many candidates or more, bool (n,)."""
    positive: npt.NDArray[np.bool_] = (weights(rows) > 0) & (Columns(rows).num_candidates >= min_candidates)
    return positive if side == "both" else positive & (Columns(rows).side == SIDE_CODES[side])
