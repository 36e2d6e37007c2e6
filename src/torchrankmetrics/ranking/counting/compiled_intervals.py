"""Counting against an interval, and products of single pairs, compiled by Numba for the CPU; as ``intervals``.

Cells are float32, float64, or bfloat16 by their bits.
"""
# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"

import os

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from torchrankmetrics.ranking.counting.compiled import _pool
from torchrankmetrics.ranking.counting.intervals import Between

_BLOCK = 256  # cells counted at once: few enough for 16-bit counters, and to look again at those that hold an open one
_PER_THREAD = 1 << 18  # cells that are worth a thread
_PAIRS_PER_THREAD = 1 << 9


def between(tile: Tensor, row: Tensor, low: Tensor, high: Tensor, limit: int) -> Between:
    """As ``intervals.between``, and for bfloat16 tiles, where low and high are int16 keys of ``intervals.keys``."""
    cells = (tile.view(torch.uint16) if tile.dtype == torch.bfloat16 else tile).numpy()
    tasks, threads = len(row), _threads(row.shape[0] * tile.shape[1] // _PER_THREAD)
    above, inside = np.empty(tasks, np.int64), np.empty(tasks, np.int64)
    cuts = [tasks * i // threads for i in range(threads + 1)]
    lists = [np.empty((2, (b - a) * limit), np.int32) for a, b in zip(cuts, cuts[1:], strict=False)]
    given = cells, row.numpy(), low.numpy(), high.numpy(), limit, above, inside
    pieces = [(*given, *parts) for parts in zip(cuts, cuts[1:], lists, strict=False)]
    found = _side_by_side(_scan, pieces)
    entries = np.concatenate([listed[:, :n] for listed, n in zip(lists, found, strict=True)], axis=1)
    task, column = torch.from_numpy(entries.astype(np.int64))
    return Between(torch.from_numpy(above), torch.from_numpy(inside), task, column)


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """As ``intervals.products``."""
    out = np.empty(len(row))
    threads = _threads(len(row) // _PAIRS_PER_THREAD)
    cuts = [len(row) * i // threads for i in range(threads + 1)]
    given = queries.numpy(), candidates.numpy(), row.numpy(), column.numpy(), out
    _side_by_side(_products, [(*given, a, b) for a, b in zip(cuts, cuts[1:], strict=False)])
    return torch.from_numpy(out)


def _threads(worth: int) -> int:
    return max(1, min(torch.get_num_threads(), worth))


def _side_by_side(function, pieces):
    """Results of the pieces in order, the first of them made here: the compiled code holds no lock."""
    if len(pieces) == 1:
        return [function(*pieces[0])]
    waiting = [_pool(len(pieces) - 1, os.getpid()).submit(function, *piece) for piece in pieces[1:]]
    return [function(*pieces[0]), *(future.result() for future in waiting)]


@numba.njit(nogil=True, cache=True)
def _scan(tile, row, low, high, limit, above, inside, first, last, entries):
    n = 0
    for task in range(first, last):
        line, begin, least, most = tile[row[task]], n, low[task], high[task]
        over, between = 0, 0
        for left in range(0, line.shape[0], _BLOCK):
            block = line[left : left + _BLOCK]
            more = _count(block, most, False)
            rest = _count(block, least, True) - more
            over += more
            if rest:
                between += rest
                if between <= limit:
                    for j in range(block.shape[0]):
                        if _is_above(block[j], least, True) and not _is_above(block[j], most, False):
                            entries[0, n], entries[1, n] = task, left + j
                            n += 1
        if between > limit:
            n = begin
        above[task], inside[task] = over, between
    return n


def _count(cells, limit, equal):
    """How many cells are above a limit, or equal to it where that is asked; by the type of cells."""


def _is_above(cell, limit, equal):
    """The same of one cell."""


@overload(_count)
def _choose_count(cells, limit, equal):
    return _count_halves if cells.dtype == numba.uint16 else _count_numbers


@overload(_is_above)
def _choose_is_above(cell, limit, equal):
    if cell == numba.uint16:
        return lambda cell, limit, equal: _key(cell) > limit or (equal and _key(cell) == limit)
    return lambda cell, limit, equal: cell > limit or (equal and cell == limit)


def _count_numbers(cells, limit, equal):
    number = np.int32(0)
    if equal:
        for cell in cells:
            number = np.int32(number + np.int32(cell >= limit))
    else:
        for cell in cells:
            number = np.int32(number + np.int32(cell > limit))
    return int(number)


def _count_halves(cells, limit, equal):
    # one comparison of bits each: with a sign above what is not negative, without one above what is
    number, key = np.int16(0), int(limit) - int(equal)
    if key >= 0:
        bits = np.int16(key)
        for cell in cells:
            number = np.int16(number + np.int16(np.int16(cell) > bits))
    else:
        end = np.uint16(0x8000 - key)
        for cell in cells:
            number = np.int16(number + np.int16(cell < end))
    return int(number)


@numba.njit
def _key(cell):
    return -int(cell & 0x7FFF) if cell & 0x8000 else int(cell)


@numba.njit(nogil=True, cache=True)
def _products(queries, candidates, row, column, out, first, last):
    d = queries.shape[1]
    whole = d // 8 * 8
    for i in range(first, last):
        q, e = queries[row[i]], candidates[column[i]]
        # eight sums, or a core would wait for every single one
        s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(0, whole, 8):
            s0 += np.float64(q[k]) * np.float64(e[k])
            s1 += np.float64(q[k + 1]) * np.float64(e[k + 1])
            s2 += np.float64(q[k + 2]) * np.float64(e[k + 2])
            s3 += np.float64(q[k + 3]) * np.float64(e[k + 3])
            s4 += np.float64(q[k + 4]) * np.float64(e[k + 4])
            s5 += np.float64(q[k + 5]) * np.float64(e[k + 5])
            s6 += np.float64(q[k + 6]) * np.float64(e[k + 6])
            s7 += np.float64(q[k + 7]) * np.float64(e[k + 7])
        for k in range(whole, d):
            s0 += np.float64(q[k]) * np.float64(e[k])
        out[i] = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
