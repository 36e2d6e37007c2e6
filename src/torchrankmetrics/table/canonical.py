"""Rows in canonical form: sorted, distinct, counted. Any split and any sharding give the same array, bit for bit."""

import math
from collections.abc import Sequence

import numpy as np

from torchrankmetrics.table.columns import ABSENT, WIDTH, Columns, Rows

_LARGEST = 1 << 62


def canonical_rows(rows: Rows, *, drop_repeats: bool = True) -> tuple[Rows, int]:
    """Sort rows, merge equal ones into their count (1 for rows with a sample id), drop repeats of (side, sample id).

    Tasks of weight zero are dropped first: they must not replace a repeat of another task.

    Args:
        rows: (n, 10) int64; read by columns, so that the transpose of a contiguous (10, n) is fastest.
        drop_repeats: False keeps repeats that differ, as long as more rows may be added.

    Returns:
        (u, 10) int64, the transpose of a contiguous (10, u); and the number of repeats that were dropped although they
        differ from the one kept (the smallest).

    Raises:
        ValueError: if the counts sum to 2^63 or more.
    """
    weighed = Columns(rows).weight_bits != 0  # the bits of 0.0; -0.0 is made positive where rows are written
    rows = np.ascontiguousarray(rows.T if weighed.all() else rows[weighed].T).T
    if len(rows) == 0:
        return rows.reshape(0, WIDTH), 0
    given = Columns(rows)
    if int(given.count.max()) * len(rows) >= 1 << 63 and given.count.sum(dtype=np.float64) >= 1 << 63:
        raise ValueError("counts of a table must sum to less than 2^63, for the number of tasks is an int64")
    key = [
        given.side,
        given.sample_id,
        given.optimistic,
        given.pessimistic - given.optimistic,  # fewer bits than the pessimistic rank
        given.num_candidates,
        given.group,
        given.weight_bits,
        given.flags,
        # last, so that the same repeat is kept with and without queries and gains
        given.query,
        given.gain_bits,
    ]
    order, count = _distinct(key, given.count)
    result = rows.T.take(order, axis=1).T
    merged = Columns(result)
    merged.count = count
    side, sample_id = merged.side, merged.sample_id
    named = sample_id != ABSENT
    if not named.any():
        return result, 0
    merged.count = np.where(named, 1, count)
    if not drop_repeats:
        return result, 0
    repeat = np.zeros(len(result), dtype=bool)
    repeat[1:] = named[1:] & (side[1:] == side[:-1]) & (sample_id[1:] == sample_id[:-1])
    return result.T[:, ~repeat].T, int(repeat.sum())


def _distinct(columns: Sequence[Rows], count: Rows) -> tuple[Rows, Rows]:
    """Indices of the distinct rows in lexicographic order, and their summed counts."""
    if (order := _ordered_by_id(*columns[:2])) is not None:
        return order, count[order]
    key = _pack(columns)
    if key is None:
        order = np.lexsort(columns[::-1])
        ordered = [column[order] for column in columns]
    else:
        order, key = _sorted(key)
        ordered = [key]
    first = np.zeros(len(order), dtype=bool)
    first[0] = True
    for column in ordered:
        first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(first)
    return order[starts], np.add.reduceat(count[order], starts)


def _ordered_by_id(side: Rows, sample_id: Rows) -> Rows | None:
    """Return the order of rows if the first two columns are distinct for all rows, else None."""
    (low, high), sides = _ends(sample_id), _ends(side)[1] + 1
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
    """Return the smallest and the largest number; argmin takes a quarter of the time of min for few numbers."""
    return int(column[column.argmin()]), int(column[column.argmax()])


def _pack(columns: Sequence[Rows]) -> Rows | None:
    """One int64 key that orders like the columns; None if 62 bits are too few."""
    columns, ends = list(columns), [_ends(column) for column in columns]
    lows, sizes = [low for low, _ in ends], [high - low + 1 for low, high in ends]
    # weights, above all, use the whole int64 range: number their distinct values
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if math.prod(sizes) <= _LARGEST:
            break
        distinct, columns[i] = np.unique(columns[i], return_inverse=True)
        lows[i], sizes[i] = 0, len(distinct)
    if math.prod(sizes) > _LARGEST:
        return None
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column, low, size in zip(columns, lows, sizes, strict=True):
        if size > 1:
            key *= size
            key += column
            key -= low
    return key
