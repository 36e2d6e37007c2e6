"""Counting against an interval, and products of single pairs, compiled by Numba for the CPU; as ``intervals``.

Cells are float32, float64, or bfloat16 by their bits.
"""
# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"

import os
from itertools import pairwise

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from torchrankmetrics.ranking.counting.compiled import _pool
from torchrankmetrics.ranking.counting.intervals import Between, Form, Sought

_BLOCK = 256  # cells counted at once: few enough for 16-bit counters, and to look again at those that hold an open one
_PER_THREAD = 1 << 18  # cells that are worth a thread
_PAIRS_PER_THREAD = 1 << 9


def between(tile: Tensor, row: Tensor, low: Tensor, high: Tensor, limit: int) -> Between:
    """As ``intervals.between``, and for bfloat16 tiles, where low and high are int16 keys of ``intervals.keys``."""
    cells = (tile.view(torch.uint16) if tile.dtype == torch.bfloat16 else tile).numpy()
    tasks = len(row)
    above, inside = np.empty(tasks, np.int64), np.empty(tasks, np.int64)
    pieces = list(pairwise(_cuts(tasks, tasks * tile.shape[1] // _PER_THREAD)))
    lists = [np.empty((2, (b - a) * limit + 1), np.int32) for a, b in pieces]
    given = cells, row.numpy(), low.numpy(), high.numpy(), limit, above, inside
    found = _side_by_side(_scan, [(*given, *piece, listed) for piece, listed in zip(pieces, lists, strict=True)])
    entries = np.concatenate([listed[:, :n] for listed, n in zip(lists, found, strict=True)], axis=1)
    task, column = torch.from_numpy(entries.astype(np.int64))
    return Between(torch.from_numpy(above), torch.from_numpy(inside), task, column)


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """As ``intervals.products``."""
    out = np.empty(len(row))
    given = queries.numpy(), candidates.numpy(), row.numpy(), column.numpy(), out
    cuts = _cuts(len(row), len(row) // _PAIRS_PER_THREAD)
    _side_by_side(_products, [(*given, *piece) for piece in pairwise(cuts)])
    return torch.from_numpy(out)


def compare(
    queries: Tensor,
    candidates: Tensor,
    form: Form,
    tasks: Sought,
    entry: Tensor,
    column: Tensor,
) -> tuple[Tensor, Tensor]:
    """As ``intervals.compare``."""
    scale, shift = (np.empty(0) if part is None else part.numpy() for part in form)
    given = queries.numpy(), candidates.numpy(), scale, shift, *(part.numpy() for part in tasks)
    given += entry.numpy(), column.numpy()
    pieces = list(pairwise(_cuts(len(entry), len(entry) // _PAIRS_PER_THREAD)))
    above = np.zeros((len(pieces), len(tasks.row)), np.int64)
    open_ = np.empty(len(entry), np.bool_)
    _side_by_side(_compare, [(*given, *piece, one, open_) for piece, one in zip(pieces, above, strict=True)])
    return torch.from_numpy(above.sum(0)), torch.from_numpy(open_)


def _cuts(number, threads):
    threads = max(1, min(torch.get_num_threads(), threads))
    return [number * i // threads for i in range(threads + 1)]


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
                        # written always and kept if it is inside: a branch would be guessed wrong
                        entries[0, n], entries[1, n] = task, left + j
                        n += _is_inside(block[j], least, most)
        if between > limit:
            n = begin
        above[task], inside[task] = over, between
    return n


def _count(cells, limit, equal):
    """How many cells are above a limit, or equal to it where that is asked; by the type of cells."""


def _is_inside(cell, low, high):
    """Whether a cell is in [low, high]."""


@overload(_count)
def _choose_count(cells, limit, equal):
    return _count_halves if cells.dtype == numba.uint16 else _count_numbers


@overload(_is_inside)
def _choose_is_inside(cell, low, high):
    if cell == numba.uint16:
        return lambda cell, low, high: int((_key(cell) >= low) & (_key(cell) <= high))
    return lambda cell, low, high: int((cell >= low) & (cell <= high))


# loops over an index: those over the cells themselves are not vectorised


def _count_numbers(cells, limit, equal):
    number = np.int32(0)
    if equal:
        for j in range(cells.shape[0]):
            number = np.int32(number + np.int32(cells[j] >= limit))
    else:
        for j in range(cells.shape[0]):
            number = np.int32(number + np.int32(cells[j] > limit))
    return int(number)


def _count_halves(cells, limit, equal):
    # one comparison of bits each: with a sign above what is not negative, without one above what is
    number, key = np.int16(0), int(limit) - int(equal)
    if key >= 0:
        bits = np.int16(key)
        for j in range(cells.shape[0]):
            number = np.int16(number + np.int16(np.int16(cells[j]) > bits))
    else:
        end = np.uint16(0x8000 - key)
        for j in range(cells.shape[0]):
            number = np.int16(number + np.int16(cells[j] < end))
    return int(number)


@numba.njit
def _key(cell):
    bits = np.int16(cell)
    sign = bits >> np.int16(15)
    return ((bits & np.int16(0x7FFF)) ^ sign) - sign


# in any order: the bounds hold for all of them, and eight sums at once take a fifth of the time of one
@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _product(q, e):
    total = 0.0
    for k in range(q.shape[0]):
        total += np.float64(q[k]) * np.float64(e[k])
    return total


@numba.njit(nogil=True, cache=True)
def _products(queries, candidates, row, column, out, first, last):
    for i in range(first, last):
        out[i] = _product(queries[row[i]], candidates[column[i]])


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _compare(queries, candidates, scale, shift, row, own, low, high, entry, column, first, last, above, open_):
    for i in range(first, last):
        task, place = entry[i], column[i]
        open_[i] = False
        if place == own[task]:
            continue
        score = _product(queries[row[task]], candidates[place])
        if scale.shape[0]:
            score /= scale[place]
        if shift.shape[0]:
            score += shift[place]
        if score > high[task]:
            above[task] += 1
        elif not score < low[task]:
            open_[i] = True
