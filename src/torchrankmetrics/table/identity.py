"""Which rows are the answers of one query, where nobody gave it a name: a hash of what the rows hold.

Equal queries get equal names, on every process and in any order of updates, so that their rows merge and count; how
many there are is read back from the counts, of which only those that give the name again can be right.
"""

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import unique_rows
from torchrankmetrics.table.columns import ABSENT, SIDE_BITS, Columns, Rows

Numbers = TypeVar("Numbers", Tensor, Rows)

_SAID = (fault.FILTERED | fault.RAW) << SIDE_BITS
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
    """What each answer adds to the name of its query: by its sample id, and without one by its ranks.

    Group and weight, which others may give to a table later, tell queries apart by themselves.
    """
    side = rows.side_and_flags & ((1 << SIDE_BITS) - 1)
    said = (rows.side_and_flags & _SAID) | side
    return combined(rows.sample_id, side), combined(rows.optimistic, rows.pessimistic, rows.num_candidates, said)


def _name(total: Numbers, number: Numbers) -> Numbers:
    """Names below zero, apart from those that users give and from none at all."""
    return mixed(total + number * _FACTORS[8]) | (ABSENT + 1)


def name_by_content(block: Tensor, row: Tensor, num_rows: int) -> None:
    """Name, in place, what shares a row of scores in one update; a single answer stays a query by itself.

    Args:
        block: (tasks, 9) rows.
        row: (tasks,) int64, the row of scores of each task.
        num_rows: B.
    """
    rows = Columns(block)
    if block.is_cpu and (not len(row) or np.bincount(row.numpy(), minlength=1).max() < 2):
        several = torch.zeros_like(rows.count, dtype=torch.bool)
    else:
        by_id, by_content = _of_rows(rows)
        weighed = rows.weight_bits != 0  # tasks of weight zero are no tasks
        part = torch.where(rows.sample_id == ABSENT, by_content, by_id) * weighed
        total = torch.zeros(max(num_rows, 1), dtype=torch.int64, device=block.device)
        number = torch.zeros_like(total)
        total.index_add_(0, row, part)
        number.index_add_(0, row, weighed.long())
        several = number[row] > 1
        rows.query = torch.where(several, _name(total, number)[row], ABSENT)
    rows.side_and_flags &= ~(_SAID * ~several)


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
    """How many equal queries each run of rows of one name below zero stands for; 0 where rows are missing.

    Args:
        rows: (n, 9), the rows of a query side by side.
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
    """Copies whose sample ids, and names of queries, follow each other: those of a part begin where the last end."""
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
