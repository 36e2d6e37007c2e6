"""Columns of a row of state, their canonical form, and names of queries made from content."""

import math
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.definitions.sample import UnknownCandidatesError, changes
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
# as in files and messages
SIDE_WORDS: dict[str, int] = {side or "none": code for side, code in SIDE_CODES.items()}
SIDE_BITS = 2  # the side column carries the flags of the task above its two lowest bits
_MARKS = (fault.FILTERED | fault.RAW) << SIDE_BITS
_LARGEST = 1 << 62  # key of a row
# odd numbers below 2^63 without a pattern: digits of sqrt 2, 3, 5, 7, 11, 13, 17, 19, 23 behind the
# point
_FACTORS = [int(k**0.5 % 1 * (1 << 53)) * 1021 | 1 for k in (2, 3, 5, 7, 11, 13, 17, 19, 23)]


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
    *others, last = (f"{code} ({word})" for word, code in SIDE_WORDS.items())
    refuse(
        (side < 0) | (side >= len(SIDES_BY_CODE)),
        side,
        f"side must be {', '.join(others)} or {last}",
    )


def refuse(wrong: npt.NDArray[np.bool_], values: npt.NDArray[Any], text: str) -> None:
    """Raise ValueError with the value of the first row that is wrong, (n,) each."""
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"{text}; got {values[first]} in row {first}")


PLACES = {
    name: column.place
    for name, column in vars(Columns).items()
    if isinstance(column, _ColumnAttribute)
}


def without_flag(rows: Rows, flag: int) -> Rows:
    """Copy rows (n, 10) and take a flag, or several, from them."""
    rows = rows.copy(order="K")
    Columns(rows).side_and_flags &= ~(flag << SIDE_BITS)
    return rows


def without_queries(rows: Rows) -> Rows:
    """Copy rows (n, 10) without queries and gains, in which otherwise equal tasks may differ."""
    rows = without_flag(rows, fault.FILTERED | fault.RAW | fault.EXCLUDED)
    Columns(rows).query = ABSENT
    Columns(rows).gain_bits = ONE
    return rows


def weights(rows: Rows) -> npt.NDArray[np.float64]:
    """Weight of one task of each row, float64 (n,)."""
    return np.ascontiguousarray(Columns(rows).weight_bits).view(np.float64)


def gains(rows: Rows) -> npt.NDArray[np.float64]:
    """Gain of each row, float64 (n,)."""
    return np.ascontiguousarray(Columns(rows).gain_bits).view(np.float64)


def is_empty_query(rows: Rows) -> npt.NDArray[np.bool_]:
    """Which rows are queries without a relevant item, bool (n,): they have no rank."""
    return np.asarray(Columns(rows).flags & fault.EMPTY > 0)


def has_entries(rows: Tensor) -> bool:
    """Whether some rows (n, 10) are scores of flat lists; waits for an accelerator."""
    return bool((Columns(rows).flags & fault.ENTRY).any())


def has_unknown(num_candidates: Tensor | Rows) -> bool:
    """Whether the number of candidates of a task is unknown."""
    return bool((num_candidates == fault.UNKNOWN).any())


def used(
    rows: Rows, side: Literal["both", TaskSide], min_candidates: int = 1
) -> npt.NDArray[np.bool_]:
    """Which rows of a side (or "both") have a positive weight and enough candidates, bool (n,)."""
    positive: npt.NDArray[np.bool_] = (weights(rows) > 0) & ~is_empty_query(rows)
    if min_candidates > 1:
        if has_unknown(candidates := Columns(rows).num_candidates):
            raise UnknownCandidatesError
        positive &= candidates >= min_candidates
    return positive if side == "both" else positive & (Columns(rows).side == SIDE_CODES[side])


def canonical_rows(rows: Rows, *, drop_repeats: bool = True) -> tuple[Rows, int]:
    """Sort rows, merge equal ones into their count, and drop repeats of (side, sample id).

    The count of rows with a sample id is 1.
    Any split and any sharding give the same array (u, 10), bit for bit. The second result is the
    number of repeats that were dropped although they differ from the one that stays, the smallest;
    ``drop_repeats`` False keeps these.
    """
    rows = _without_weight_zero(rows)
    if len(rows) == 0:
        return rows.reshape(0, WIDTH), 0
    _check_total(Columns(rows).count)
    order, count = _distinct(Columns(rows))
    result = rows.T.take(order, axis=1).T
    merged = Columns(result)
    named = merged.sample_id != ABSENT
    merged.count = np.where(named, 1, count)
    if not (drop_repeats and named.any()):
        return result, 0
    repeat = named & ~changes(merged.side, merged.sample_id)
    return result.T[:, ~repeat].T, int(repeat.sum())


def _without_weight_zero(rows: Rows) -> Rows:
    """Rows with a weight; one without must not replace a repeat of another task."""
    weighed = Columns(rows).weight_bits != 0  # -0.0 is made positive where rows are written
    return np.ascontiguousarray(rows.T if weighed.all() else rows[weighed].T).T


def _check_total(count: Rows) -> None:
    """Raise ValueError if the counts (n,) do not sum to an int64."""
    may_overflow = int(count.max()) * len(count) >= 1 << 63
    if may_overflow and count.sum(dtype=np.float64) >= 1 << 63:
        raise ValueError(
            "counts of a table must sum to less than 2^63, for the number of tasks is an int64"
        )


def _distinct(rows: Columns[Rows]) -> tuple[Rows, Rows]:
    """Sorted index of the distinct rows, and the count of each with its equal rows."""
    side = rows.side
    order = _ordered_by_id(side, rows.sample_id)
    if order is not None:
        return order, rows.count[order]

    gap = rows.pessimistic - rows.optimistic  # fewer bits than the pessimistic rank
    key = [side, rows.sample_id, rows.optimistic, gap, rows.num_candidates]
    key += [rows.group, rows.weight_bits]
    # query and gain last, so that the same repeat is kept with and without them
    key += [rows.flags, rows.query, rows.gain_bits]
    order, starts = sorted_rows(key)
    if rows.count.max() == 1:  # a sum takes three times as long
        count = np.concatenate((starts[1:], [len(order)])) - starts
    else:
        count = np.add.reduceat(rows.count[order], starts)
    return order[starts], count


def sorted_rows(columns: Sequence[Rows]) -> tuple[Rows, Rows]:
    """Stable order of rows by columns (n,), the first one first, and the starts of equal rows."""
    if (key := _pack(columns)) is None:
        order = np.lexsort(columns[::-1])
        return order, np.flatnonzero(changes(*(column[order] for column in columns)))
    order, key = _sorted(key)
    return order, np.flatnonzero(changes(key))


def _ordered_by_id(side: Rows, sample_id: Rows) -> Rows | None:
    """Return the order of rows if the first two columns are distinct for all rows, else None."""
    (low, high) = _ends(sample_id)
    sides = _ends(side)[1] + 1
    if (high - low + 1) * sides > _LARGEST or high - low + 1 < len(side) // sides:
        return None
    key = side * (high - low + 1) + (sample_id - low)
    if (key[1:] > key[:-1]).all():
        return np.arange(len(key))
    order, key = _sorted(key)
    return order if (key[1:] != key[:-1]).all() else None


def _sorted(key: Rows) -> tuple[Rows, Rows]:
    """Stable order of numbers >= 0, which are overwritten, and the sorted numbers."""
    bits = len(key).bit_length()
    if int(key.max()) >> (63 - bits):
        order = np.argsort(key, kind="stable")
        return order, key[order]
    key <<= bits
    key |= np.arange(len(key))
    key.sort()  # 1M numbers: 5 ms, argsort 40
    return key & ((1 << bits) - 1), key >> bits


def _ends(column: Rows) -> tuple[int, int]:
    """Return the smallest and the largest number."""
    # argmin takes a quarter of the time of min for few numbers
    return int(column[column.argmin()]), int(column[column.argmax()])


class _Digit(NamedTuple):
    """A column as a digit of a key: integers from ``low`` to ``low + size - 1``."""

    values: Rows
    low: int
    size: int


def _pack(columns: Sequence[Rows]) -> Rows | None:
    """One int64 key that orders like the columns; None if 62 bits are too few."""
    digits = _small_digits(columns)
    if _num_keys(digits) > _LARGEST:
        return None
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for values, low, size in digits:
        if size > 1:
            key *= size
            key += values
            key -= low
    return key


def _num_keys(digits: Sequence[_Digit]) -> int:
    return math.prod(digit.size for digit in digits)


def _small_digits(columns: Sequence[Rows]) -> list[_Digit]:
    """Columns as digits; the largest ones are numbered until all fit into a key."""
    digits = [_digit(column) for column in columns]
    # weights, above all, use the whole int64 range
    for i in sorted(range(len(digits)), key=lambda i: -digits[i].size):
        if _num_keys(digits) <= _LARGEST:
            break
        digits[i] = _numbered(columns[i])
    return digits


def _digit(column: Rows) -> _Digit:
    low, high = _ends(column)
    return _Digit(column, low, high - low + 1)


def _numbered(column: Rows) -> _Digit:
    """Replace integers by the numbers of their distinct values, in the same order."""
    runs = changes(column)  # rows of a query follow each other in an update
    distinct, index = np.unique(column[runs], return_inverse=True)
    return _Digit(index[np.cumsum(runs) - 1], 0, len(distinct))


def mixed(x: Table) -> Table:
    """Mix the bits of int64 numbers by the finalizer of splitmix64, doi:10.1145/2714064.2660195."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def combined(*columns: Table) -> Table:
    """One int64 number of each row, from some of its columns; sums wrap around."""
    total = columns[0] * _FACTORS[0]
    for column, factor in zip(columns[1:], _FACTORS[1:], strict=False):
        total = total + column * factor
    return mixed(total)


def _terms(rows: Columns[Table]) -> Table:
    """Term of each target in the name of its query, from its sample id or else its ranks."""
    # group and weight, which others may give to a table later, distinguish queries by themselves
    marks = (rows.side_and_flags & _MARKS) | rows.side
    absent: Table = rows.sample_id == ABSENT
    about = (rows.optimistic, rows.pessimistic, rows.num_candidates, marks, rows.gain_bits - ONE)
    return combined(rows.sample_id, rows.side) * ~absent + combined(*about) * absent


def _name(total: Table, number: Table) -> Table:
    """Names below zero, apart from those that users give and from none at all."""
    return mixed(total + number * _FACTORS[8]) | (ABSENT + 1)


def name_by_content(block: Tensor, row: Tensor, num_rows: int) -> None:
    """Name the tasks (tasks,) of each row of scores in place; a single one stays its own query."""
    rows = Columns(block)
    if block.is_cpu and np.bincount(row.numpy(), minlength=1).max() < 2:
        several = torch.zeros_like(rows.count, dtype=torch.bool)
    else:
        weighed = (rows.weight_bits != 0).long()  # tasks of weight zero are dropped
        total, number = torch.zeros(2, num_rows, dtype=torch.int64, device=block.device)
        # NumPy's calls cost half of torch's
        terms = torch.from_numpy(_terms(Columns(block.numpy()))) if block.is_cpu else _terms(rows)
        total.index_add_(0, row, terms * weighed)
        number.index_add_(0, row, weighed)
        several = number[row] > 1
        rows.query = torch.where(several, _name(total, number)[row], ABSENT)
    rows.side_and_flags &= ~(_MARKS * ~several)


def num_copies(rows: Rows, starts: Rows) -> Rows:
    """Number of equal queries in each run of rows with one name below zero; 0: rows are missing.

    Runs begin at ``starts``. The name of a query is computed from its rows. In k equal queries
    every row counts k times or a multiple of it, so that the rows with their counts divided by k
    have the name of one query.
    """
    columns = Columns(rows)
    terms = _terms(columns)
    name = columns.query[starts]
    length = np.diff(np.append(starts, len(rows)))

    def is_number(divisor: Rows) -> npt.NDArray[np.bool_]:
        """Whether the rows of each run, with counts divided by a number, have its name."""
        count = columns.count // np.repeat(divisor, length)
        total = np.add.reduceat(terms * count, starts)
        return np.asarray(_name(total, np.add.reduceat(count, starts)) == name)

    common = np.gcd.reduceat(columns.count, starts)  # a multiple of the number
    copies = np.where(is_number(common), common, 0)
    if not copies.all():
        copies[(copies == 0) & is_number(np.ones_like(common))] = 1
    # rarely: several equal queries, each with equal rows
    for multiple in np.unique(common[copies == 0]).tolist():
        for divisor in _divisors(multiple):
            is_open = (copies == 0) & (common == multiple)
            copies[is_open & is_number(np.where(is_open, divisor, 1))] = divisor
    return copies


def _divisors(number: int) -> list[int]:
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return small + [number // divisor for divisor in small]


def with_ids_apart(parts: list[Tensor]) -> list[Tensor]:
    """Copy parts with moved sample ids and queries: each begins where the last one ends."""
    apart = []
    ends = {"sample_id": 0, "query": 0}
    for rows in parts:
        columns = Columns(rows.clone())
        for name, end in ends.items():
            ids = getattr(columns, name)
            ends[name] = _move(ids, ids != ABSENT if name == "sample_id" else ids >= 0, end)
        _rename_queries(columns)
        apart.append(columns.rows)
    return apart


def _move(ids: Tensor, named: Tensor, start: int) -> int:
    """Move the ids (n,) that are named, in place, to begin at ``start``; return their end."""
    if not named.any():
        return start
    low = int(ids[named].min())
    high = int(ids[named].max())
    if start + high - low >= 1 << 63:
        raise ValueError(
            "sample ids of all tables together must fit in int64: give them ids without holes"
        )
    ids[named] += start - low
    return start + high - low + 1


def _rename_queries(columns: Columns[Tensor]) -> None:
    """Compute again, in place, the names of queries that are made from sample ids."""
    renamed = (columns.query < 0) & (columns.query != ABSENT) & (columns.sample_id != ABSENT)
    part = columns.rows[renamed]
    found, row = unique_rows(torch.stack([Columns(part).query, Columns(part).side], 1))
    name_by_content(part, row, len(found))
    columns.rows[renamed] = part


def raise_faults(flags: npt.NDArray[np.int64]) -> int:
    """Raise the first error that an accelerator flagged, or return the union of flags (rows,)."""
    seen = int(np.bitwise_or.reduce(flags)) if len(flags) else 0
    for kind, (error, text) in fault.ERRORS.items():
        if seen & kind:
            number = int((flags & kind > 0).sum())
            raise error(
                f"{text}; {number} ranking tasks of an accelerator violate this (reported at "
                "compute)"
            )
    if seen >= 2 * fault.LARGEST:
        raise ValueError(
            f"rows must have known flags in side_and_flags, got {seen:#x}: a later version wrote "
            "them"
        )
    return seen


def far_below_random(rows: Rows) -> str:
    """Describe ranks so far below random that the scores must be reversed; else ""."""
    columns = Columns(rows)
    # twice r - E[r]
    above = columns.optimistic + columns.pessimistic - columns.num_candidates - 1.0
    if (above * columns.count).sum() <= 0 or has_unknown(columns.num_candidates):  # nearly always
        return ""
    # tasks with NaN rank last in any order
    count = columns.count * (columns.flags & fault.NAN == 0)
    surplus = float((count * above).sum()) / 2
    N = columns.num_candidates.astype(np.float64)
    if surplus <= 0:
        return ""
    index = -2 * surplus / float((count * (N - 1)).sum())
    z = -surplus / float((count * ((N**2 - 1) / 12)).sum()) ** 0.5
    if not (z < -6 and index < -0.25):
        return ""
    return f"the ranks are far worse than random ranking (AMRI {index:.2f}, its z-score {z:.1f})"
