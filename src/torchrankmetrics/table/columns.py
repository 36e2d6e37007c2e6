"""Columns of a row of state, and identities (sample ids, queries) made from content."""

import math
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.definitions.sample import UnknownCandidatesError
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import unique_rows
from torchrankmetrics.validation import TASK_SIDES, TaskSide

Rows = npt.NDArray[np.int64]
Table = TypeVar("Table", Tensor, Rows)

WIDTH = 10
ABSENT = -(1 << 63)  # no group, no sample id, a query by itself
ONE = int(np.float64(1.0).view(np.int64))  # the bits of a weight or gain of 1
SIDES_BY_CODE: tuple[TaskSide | None, ...] = (None, *TASK_SIDES)
SIDE_CODES: dict[TaskSide | None, int] = {side: code for code, side in enumerate(SIDES_BY_CODE)}
SIDE_WORDS: dict[str, int] = {side or "none": code for side, code in SIDE_CODES.items()}  # as in files and messages
SIDE_BITS = 2  # the side column carries the flags of the task above its two lowest bits


class HasRows:
    """Rows (n, 10) of ranking tasks, as in a ``RankTable``."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def has_sides(self) -> bool:
        """Whether every row has a side."""
        return bool((Columns(self.rows).side != SIDE_CODES[None]).all())

    def has_groups(self) -> bool:
        """Whether every row has a group."""
        return bool((Columns(self.rows).group != ABSENT).all())


def empty_rows(device: torch.device | str = "cpu") -> Tensor:
    """Give the (0, 10) int64 block of a process without data."""
    return torch.empty(0, WIDTH, dtype=torch.int64, device=device)


class _ColumnAttribute:
    """A column, or several, of rows: read as a view of them, written through."""

    def __init__(self, place: int | slice) -> None:
        self.place = place

    def __get__(self, of: "Columns[Table]", owner: type) -> Table:
        column: Table = of.rows[:, self.place]
        return column

    def __set__(self, of: "Columns[Table]", values: Table | int) -> None:
        of.rows[:, self.place] = values


class Columns(Generic[Table]):
    """Rows (n, 10), a tensor or an array, by the names of their columns."""

    optimistic = _ColumnAttribute(0)
    pessimistic = _ColumnAttribute(1)
    num_candidates = _ColumnAttribute(2)
    ranks = _ColumnAttribute(slice(3))  # these three, as a Ranks has them
    side_and_flags = _ColumnAttribute(3)
    group = _ColumnAttribute(4)
    sample_id = _ColumnAttribute(5)
    weight_bits = _ColumnAttribute(6)  # of a float64
    count = _ColumnAttribute(7)
    query = _ColumnAttribute(8)
    gain_bits = _ColumnAttribute(9)  # of a float64, the relevance label; 1.0 without labels

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
    """Raise ValueError for numbers (n,) that are not codes of sides."""
    wrong = (side < 0) | (side >= len(SIDES_BY_CODE))
    if wrong.any():
        *others, last = (f"{code} ({word})" for word, code in SIDE_WORDS.items())
        row = int(wrong.argmax())
        raise ValueError(f"side must be {', '.join(others)} or {last}; got {side[row]} in row {row}")


PLACES = {name: column.place for name, column in vars(Columns).items() if isinstance(column, _ColumnAttribute)}


def without_flag(rows: Rows, flag: int) -> Rows:
    """Copy rows (n, 10) and take a flag, or several, from them."""
    rows = rows.copy(order="K")
    Columns(rows).side_and_flags &= ~(flag << SIDE_BITS)
    return rows


def without_queries(rows: Rows) -> Rows:
    """Copy rows (n, 10) without queries and gains: ranking tasks that differ in these only become equal."""
    rows = without_flag(rows, fault.FILTERED | fault.RAW)
    Columns(rows).query = ABSENT
    Columns(rows).gain_bits = ONE
    return rows


def weights(rows: Rows) -> npt.NDArray[np.float64]:
    """Weight of one task of each row, float64 (n,)."""
    return np.ascontiguousarray(Columns(rows).weight_bits).view(np.float64)


def gains(rows: Rows) -> npt.NDArray[np.float64]:
    """Gain of each row, float64 (n,)."""
    return np.ascontiguousarray(Columns(rows).gain_bits).view(np.float64)


def known_candidates(rows: Rows) -> Rows:
    """Number of candidates of each row; UnknownCandidatesError if one is unknown."""
    candidates = Columns(rows).num_candidates
    if has_unknown(candidates):
        raise UnknownCandidatesError
    return candidates


def has_unknown(num_candidates: Tensor | Rows) -> bool:
    """Whether the number of candidates of a task is unknown."""
    return bool((num_candidates == fault.UNKNOWN).any())


def used(rows: Rows, side: Literal["both", TaskSide], min_candidates: int = 1) -> npt.NDArray[np.bool_]:
    """Rows of a side ("both": of all) that have a positive weight and so many candidates or more, bool (n,)."""
    positive: npt.NDArray[np.bool_] = weights(rows) > 0
    if min_candidates > 1:
        positive &= known_candidates(rows) >= min_candidates
    return positive if side == "both" else positive & (Columns(rows).side == SIDE_CODES[side])


Numbers = TypeVar("Numbers", Tensor, Rows)

_MARKS = (fault.FILTERED | fault.RAW) << SIDE_BITS
# odd numbers below 2^63 without a pattern: digits of sqrt 2, 3, 5, 7, 11, 13, 17, 19, 23 behind the point
_FACTORS = [int(k**0.5 % 1 * (1 << 53)) * 1021 | 1 for k in (2, 3, 5, 7, 11, 13, 17, 19, 23)]


def mixed(x: Numbers) -> Numbers:
    """Mix the bits of int64 numbers, tensors or arrays: a bijection, the finaliser of splitmix64.

    Steele, Lea and Flood 2014 (doi:10.1145/2714064.2660195).
    """
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def combined(*columns: Numbers) -> Numbers:
    """One int64 number of each row, from some of its columns; sums wrap around."""
    total = columns[0] * _FACTORS[0]
    for column, factor in zip(columns[1:], _FACTORS[1:], strict=False):
        total = total + column * factor
    return mixed(total)


def _of_rows(rows: Columns[Numbers]) -> tuple[Numbers, Numbers]:
    """Term of each answer in the name of its query: from its sample id, and without one from its ranks and gain.

    Group and weight, which others may give to a table later, distinguish queries by themselves.
    """
    side = rows.side_and_flags & ((1 << SIDE_BITS) - 1)
    marks = (rows.side_and_flags & _MARKS) | side
    about = (rows.optimistic, rows.pessimistic, rows.num_candidates, marks, rows.gain_bits - ONE)
    return combined(rows.sample_id, side), combined(*about)


def _name(total: Numbers, number: Numbers) -> Numbers:
    """Names below zero, apart from those that users give and from none at all."""
    return mixed(total + number * _FACTORS[8]) | (ABSENT + 1)


def name_by_content(block: Tensor, row: Tensor, num_rows: int) -> None:
    """Name, in place, what shares a row of scores in one update; a single answer stays a query by itself.

    Args:
        block: (tasks, 10) rows.
        row: (tasks,) int64, the row of scores of each task.
        num_rows: B.
    """
    rows = Columns(block)
    if block.is_cpu and (not len(row) or np.bincount(row.numpy(), minlength=1).max() < 2):
        several = torch.zeros_like(rows.count, dtype=torch.bool)
    else:
        by_id, by_content = _of_rows(rows)
        weighed = rows.weight_bits != 0  # tasks of weight zero are dropped
        part = torch.where(rows.sample_id == ABSENT, by_content, by_id) * weighed
        total = torch.zeros(max(num_rows, 1), dtype=torch.int64, device=block.device)
        number = torch.zeros_like(total)
        total.index_add_(0, row, part)
        number.index_add_(0, row, weighed.long())
        several = number[row] > 1
        rows.query = torch.where(several, _name(total, number)[row], ABSENT)
    rows.side_and_flags &= ~(_MARKS * ~several)


def name_again(rows: Tensor) -> None:
    """Name, in place, the queries without a name of their own by sample ids that have changed since."""
    columns = Columns(rows)
    mine = ((columns.query < 0) & (columns.query != ABSENT) & (columns.sample_id != ABSENT)).nonzero()[:, 0]
    part = rows[mine]
    keys = torch.stack([Columns(part).query, Columns(part).side], 1)
    found, row = unique_rows(keys)
    name_by_content(part, row, len(found))
    rows[mine] = part


def num_copies(rows: Rows, starts: Rows) -> Rows:
    """Number of equal queries in each run of rows of one name below zero; 0 if rows are missing.

    Args:
        rows: (n, 10), the rows of a query side by side.
        starts: (queries,) where each begins.
    """
    columns = Columns(rows)
    by_id, by_content = _of_rows(columns)
    part, count = np.where(columns.sample_id == ABSENT, by_content, by_id), columns.count
    name, length = columns.query[starts], np.diff(np.append(starts, len(rows)))

    def fits(divisor: Rows) -> npt.NDArray[np.bool_]:
        each = count // np.repeat(divisor, length)
        fitting: npt.NDArray[np.bool_] = (
            _name(np.add.reduceat(part * each, starts), np.add.reduceat(each, starts)) == name
        )
        return fitting

    common = np.gcd.reduceat(count, starts)
    copies = np.where(fits(common), common, np.where(fits(np.ones_like(common)), 1, 0))
    for i in np.flatnonzero((copies == 0) & (common > 1)):
        own = slice(starts[i], starts[i] + length[i])
        for divisor in _divisors(int(common[i])):
            each = count[own] // divisor
            if _name((part[own] * each).sum(keepdims=True), each.sum(keepdims=True))[0] == name[i]:
                copies[i] = divisor
                break
    return copies


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return [*small, *(number // divisor for divisor in small)]


def with_ids_apart(parts: list[Tensor]) -> list[Tensor]:
    """Copies whose sample ids, and names of queries, follow each other: each part begins where the last one ends."""
    apart, ends = [], {"sample_id": 0, "query": 0}
    for rows in parts:
        rows = rows.clone()
        for name in ends:
            ids = getattr(Columns(rows), name)
            named = ids != ABSENT if name == "sample_id" else ids >= 0
            if named.any():
                low, high = int(ids[named].min()), int(ids[named].max())
                if ends[name] + high - low >= 1 << 63:
                    raise ValueError("sample ids of all tables together must fit in int64: give them ids without holes")
                ids[named] += ends[name] - low
                ends[name] += high - low + 1
        name_again(rows)
        apart.append(rows)
    return apart
