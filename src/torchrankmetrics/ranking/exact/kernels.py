"""Counting against an interval, compiled by Numba: the functions of ``exact.counting``, and int8."""

from collections.abc import Sequence

import numba
import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting.numba_backend import side_by_side
from torchrankmetrics.ranking.exact.counting import Blocks

# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"


_GROUP = 64  # cells that are listed if one of them is inside
# cells whose flags are bytes that stay in the cache; a multiple of 8, at most 8 * 255
_BLOCK = 1024
_PER_THREAD = 1 << 18  # cells that are worth a thread


def count_intervals(
    blocks: Blocks, tasks: Sequence[Tensor], limit: int, columns: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    """As ``exact.counting.count_intervals``, on several threads, also for products of int8 vectors: cells of int32.

    Then tasks are (row, true, step, by_error, by_norm, slack) and columns (unit, error, norm,
    shift), see ``exact.levels``. A cell is above if cell - (true unit - step shift) > by_error
    error + by_norm norm + slack unit. It is inside if the difference is not larger either way. The
    least integer is never counted.
    """
    given, facts = (tuple(part.numpy() for part in parts) for parts in (tasks, columns))
    number = len(tasks[0])
    totals = np.zeros((2, number), np.int64)  # cells above and inside
    # a thread lists cells from the start of its first task on; one more, as the last that is
    # written may be outside
    entries, starts = np.empty((2, number * (limit + 1)), np.int32), np.arange(number) * (limit + 1)
    ends = starts.copy()
    scan, threads, last = _scan_int8 if columns else _scan, 0, None
    for cells, left in blocks:
        if cells is not last:  # calls are slow after a product
            last, array = cells, cells.numpy()
            threads = max(threads, min(number, number * array.shape[1] // _PER_THREAD))
        side_by_side(
            scan, number, threads, array, given, facts, (left, limit), totals, entries, ends
        )
    found = [entries[:, starts[first] : ends[first]] for first in (ends > starts).nonzero()[0]]
    listed = np.concatenate([entries[:, :0], *found], axis=1)
    listed = listed[:, (totals[1] <= limit)[listed[0]]]
    return *torch.from_numpy(totals), *torch.from_numpy(listed.astype(np.int64))


def quantized(vectors: Tensor) -> tuple[Tensor, ...]:
    """Round float32 vectors (n, d) to int8 times a scale each: int8 (n, d), scales and lengths of the errors, float32.

    Vectors that are not finite, or too small for an exact scale, become zeros with a scale of 1.
    """
    given = vectors.contiguous().numpy()
    found = (
        np.empty(given.shape, np.int8),
        np.ones(len(given), np.float32),
        np.empty(len(given), np.float32),
    )
    side_by_side(
        _quantize, len(given), given.size // _PER_THREAD, given, given.view(np.int32), *found
    )
    return tuple(torch.from_numpy(part) for part in found)


@numba.njit(nogil=True, cache=True)
def _scan(tile, tasks, columns, places, totals, entries, ends, first, last):
    (left, limit), n = places, ends[first]
    for task in range(first, last):
        cells, least, most = tile[tasks[0][task]], tasks[1][task], tasks[2][task]
        above, reached = np.int32(0), np.int32(0)  # sums of int64 are not vectorized
        for j in range(cells.shape[0]):
            above = np.int32(above + np.int32(cells[j] > most))
            reached = np.int32(reached + np.int32(cells[j] >= least))
        totals[0, task] += above
        totals[1, task] += reached - above
        if reached > above and totals[1, task] <= limit:
            for begin in range(0, cells.shape[0], _GROUP):
                end, some = min(begin + _GROUP, cells.shape[0]), np.int32(0)
                for j in range(begin, end):
                    some = np.int32(some + np.int32((cells[j] >= least) & (cells[j] <= most)))
                for j in range(begin, end if some else begin):
                    # written always, overwritten if it is not inside: a branch would be guessed
                    # wrong
                    entries[0, n], entries[1, n] = task, left + j
                    n += (cells[j] >= least) & (cells[j] <= most)
    ends[first] = n


@numba.njit(nogil=True, cache=True)
def _scan_int8(tile, tasks, columns, places, totals, entries, ends, first, last):
    (left, limit), n = places, ends[first]
    flags = np.zeros((2, _BLOCK), np.uint8)
    flag_above, flag_inside, above, inside = (
        flags[0],
        flags[1],
        flags[0].view(np.uint64),
        flags[1].view(np.uint64),
    )
    for task in range(first, last):
        over, between = 0, totals[1, task]
        for begin in range(0, tile.shape[1], _BLOCK):
            end = min(begin + _BLOCK, tile.shape[1])
            if end - begin < _BLOCK:
                flags[:] = 0
            _mark_int8(tile, left, begin, end, task, tasks, columns, flag_above, flag_inside)
            over += _ones(above)
            more = _ones(inside)
            between += more
            for i in range(inside.shape[0] if more and between <= limit else 0):
                for j in range(8 * i, 8 * i + 8 if inside[i] else 0):
                    entries[0, n], entries[1, n] = task, left + begin + j
                    n += flag_inside[j]
        totals[0, task] += over
        totals[1, task] = between
    ends[first] = n


# inlined, because a call for each block takes twice as long; its loop does not vectorize inside of
# _scan_int8
@numba.njit(nogil=True, cache=True, fastmath={"contract"}, inline="always")
def _mark_int8(tile, left, begin, end, task, tasks, columns, above, inside):
    cells, true, step = tile[tasks[0][task], begin:end], tasks[1][task], tasks[2][task]
    begin += left
    by_error, by_norm, slack = tasks[3][task], tasks[4][task], tasks[5][task]
    unit, error, norm, shift = (
        columns[0][begin:],
        columns[1][begin:],
        columns[2][begin:],
        columns[3][begin:],
    )
    for j in range(cells.shape[0]):
        apart = np.float32(cells[j]) - true * unit[j]
        if shift.shape[0]:
            apart += step * shift[j]
        bound = by_error * error[j] + by_norm * norm[j] + slack * unit[j]
        above[j], inside[j] = np.uint8(apart > bound), np.uint8(abs(apart) <= bound)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _quantize(given, bits, out, scale, error, first, last):
    highest_bits, without_sign = np.zeros(1, np.int32), np.int32(0x7FFFFFFF)
    largest = highest_bits.view(np.float32)
    for i in range(first, last):
        highest, square = np.int32(0), np.float32(0)
        for k in range(bits.shape[1]):  # bits of numbers without a sign are in their order
            highest = max(highest, bits[i, k] & without_sign)
        highest_bits[0], out[i] = highest, 0
        if np.float32(127 * 2.0**-120) < largest[0] < np.float32(np.inf):
            scale[i] = largest[0] / np.float32(127)
            inverse = np.float32(1) / scale[i]
            for k in range(bits.shape[1]):
                out[i, k] = np.int8(np.int32(np.rint(given[i, k] * inverse)))
        for k in range(bits.shape[1]):
            apart = given[i, k] - np.float32(out[i, k]) * scale[i]
            square += apart * apart
        error[i] = np.sqrt(square)


@numba.njit(nogil=True, cache=True)
def _ones(words):
    """How many bytes are 1, the others being 0; eight at once."""
    total = np.uint64(0)
    for i in range(words.shape[0]):
        total += words[i]
    pairs = np.uint64(0x00FF00FF00FF00FF)
    total = (total & pairs) + ((total >> np.uint64(8)) & pairs)
    return np.int64((total * np.uint64(0x0001000100010001)) >> np.uint64(48))


_PAIRS_PER_THREAD = 1 << 9  # pairs that are worth a thread


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """As ``exact.counting.products``."""
    out = np.empty(len(row))
    given = queries.numpy(), candidates.numpy(), row.numpy(), column.numpy(), out
    side_by_side(_products, len(row), len(row) // _PAIRS_PER_THREAD, *given)
    return torch.from_numpy(out)


# in any order: the bounds hold for all of them, and eight sums at once take a fifth of the time of
# one
@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _products(queries, candidates, row, column, out, first, last):
    for i in range(first, last):
        q, e, total = queries[row[i]], candidates[column[i]], 0.0
        for k in range(q.shape[0]):
            total += np.float64(q[k]) * np.float64(e[k])
        out[i] = total
