"""The columns of a row of state: where each fact of a ranking task stands, and how it is read."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

Rows = npt.NDArray[np.int64]
Table = TypeVar("Table", Tensor, Rows)

OPTIMISTIC, PESSIMISTIC, NUM_CANDIDATES, SIDE, GROUP, SAMPLE_ID, WEIGHT, COUNT = range(8)
WIDTH = 8
RANKS = slice(OPTIMISTIC, NUM_CANDIDATES + 1)  # the columns of a Ranks, in its order
ABSENT = -(1 << 63)  # no group, no sample id
SIDE_CODES = {None: 0, "head": 1, "tail": 2, "relation": 3}
SIDE_BITS = 2  # the side column carries the flags of the task above its two lowest bits


def side_codes(rows: Table) -> Table:
    """Side of each row (n,) as in ``SIDE_CODES``; rows (n, 8) as a tensor or an array, as all functions here."""
    return rows[:, SIDE] & ((1 << SIDE_BITS) - 1)


def task_flags(rows: Table) -> Table:
    """Flags of each row (n,), the bits of ``ranking.flags``."""
    return rows[:, SIDE] >> SIDE_BITS


def without_flag(rows: Rows, flag: int) -> Rows:
    """Copy rows (n, 8) and take a flag from them."""
    rows = rows.copy(order="K")
    rows[:, SIDE] &= ~(flag << SIDE_BITS)
    return rows


def weights(rows: Rows) -> npt.NDArray[np.float64]:
    """Weight of one task of each row, float64 (n,)."""
    return np.ascontiguousarray(rows[:, WEIGHT]).view(np.float64)


def used(rows: Rows, side: str, min_candidates: int = 1) -> npt.NDArray[np.bool_]:
    """Rows of a side ("both": of all) that have a positive weight and so many candidates or more, bool (n,)."""
    positive: npt.NDArray[np.bool_] = (weights(rows) > 0) & (rows[:, NUM_CANDIDATES] >= min_candidates)
    return positive if side == "both" else positive & (side_codes(rows) == SIDE_CODES[side])
