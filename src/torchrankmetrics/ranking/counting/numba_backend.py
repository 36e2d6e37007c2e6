"""Counting compiled by Numba on several threads, for scores on the CPU."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.ranking.exclude import Excluded


def cuts(number: int, threads: int) -> list[int]:
    """Where to part a number of things for so many threads, or for as many as torch has."""
    threads = max(1, min(torch.get_num_threads(), threads))
    return [number * i // threads for i in range(threads + 1)]


def side_by_side(function: Callable[..., Any], pieces: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results of the pieces in order, the first of them made here."""
    if len(pieces) == 1:
        return [function(*pieces[0])]
    waiting = [_pool(len(pieces) - 1, os.getpid()).submit(function, *piece) for piece in pieces[1:]]
    return [function(*pieces[0]), *(future.result() for future in waiting)]


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    # one per process, for threads do not survive a fork
    return ThreadPoolExecutor(workers, thread_name_prefix="torchrankmetrics")


# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return,attr-defined,call-overload"


if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

_NUMBERS = {torch.bool, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}
_FLOAT16, _BFLOAT16 = 13, 16  # bits of a float32 behind theirs
_HALVES = {torch.float16: _FLOAT16, torch.bfloat16: _BFLOAT16}
_PER_THREAD = 1 << 20  # comparisons that are worth a thread
_BLOCK = 1 << 14  # cells that stay in the cache while all targets of a row are compared; 16-bit counters hold as many
_GROUP = 64  # cells that are copied at once if none of them is excluded
_FEW = 80  # targets of a row: above, a search for each cell is faster than a comparison with each target
_NONE, _NO_MARKS, _NO_HALVES = np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.float32)
_EMPTY_LISTS = (_NONE, _NONE, _NONE, 0)


def count(
    scores: Tensor,
    true: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    excluded: Excluded,
    borders: Tensor | None = None,
) -> Tensor:
    """As ``plain.count``, bit for bit, on several threads, which share the tasks."""
    matrix, slices = excluded.matrix, excluded.slices
    if borders is not None:
        scores, matrix = scores.contiguous(), None if matrix is None else matrix.contiguous()
    parts = (scores, matrix)
    by_row = all(part is None or part.shape[-1] == 1 or part.stride(-1) == 1 for part in parts)
    is_read = scores.dtype in _NUMBERS or scores.dtype in _HALVES
    P = len(scores if row is None else row) if true is None else len(true)
    if not (P and scores.numel() and is_read and by_row) or scores.is_neg():
        return plain.count(scores, true, row, column, excluded, borders)
    rows, columns = (_NONE if part is None else _numbers(part) for part in (row, column))
    cells, step = _flat(scores)
    keys = cells[:0] if true is None else _numbers(true)
    order = None
    if row is not None and (rows[1:] < rows[:-1]).any():
        order = rows.argsort(kind="stable")  # a row is read once for all its tasks
        keys, rows, columns = (part[order] if len(part) else part for part in (keys, rows, columns))
    lists = _EMPTY_LISTS
    if slices is not None:
        lists = slices.start.numpy(), slices.length.numpy(), slices.columns.numpy(), slices.first
    marks = (_NO_MARKS, 0) if matrix is None else _flat(matrix)
    ends, width = (_NONE, scores.shape[1]) if borders is None else (borders.numpy(), int(borders.diff().max()))
    kind = _NO_HALVES if scores.dtype in _HALVES else cells[:0]
    result = np.empty((4, P), np.int64)
    given = (cells, step, ends, width, _HALVES.get(scores.dtype, 0), kind), (keys, rows, columns), lists, marks
    pieces = pairwise(cuts(P, min(P, P * width // _PER_THREAD)))
    side_by_side(_count_tasks, [(*given, piece, result) for piece in pieces])
    if order is not None:
        result[:, order] = result.copy()
    return torch.from_numpy(result)


def _flat(matrix: Tensor) -> tuple[Any, int]:
    """Return the memory that a row-major matrix spans, as one contiguous vector, and the step from row to row."""
    step = matrix.stride(0) if len(matrix) > 1 else 0  # one row of excluded columns serves every task
    if matrix.is_contiguous():
        return _numbers(matrix).reshape(-1), step
    return _numbers(matrix.as_strided(((len(matrix) - 1) * step + matrix.shape[1],), (1,))), step


def _numbers(vector: Tensor) -> Any:
    if vector.dtype in _HALVES:
        vector = vector.view(torch.uint16)
    elif vector.dtype == torch.bool:
        vector = vector.view(torch.uint8)
    return vector.contiguous().numpy()


@numba.njit(inline="always")
def _widened(half, shift):
    """A float32 from the bits of a half, in the order of the halves; infinities and NaN are those of a float32."""
    magnitude = np.uint32(half & 0x7FFF) << np.uint32(shift)
    if shift == _FLOAT16:
        if magnitude >= np.uint32(0x0F800000):
            magnitude |= np.uint32(0x7F800000)
        elif magnitude > 0:  # away from subnormal numbers, which torch may have set to be read as 0
            magnitude += np.uint32(0x10000000)
    return np.uint32(magnitude | (np.uint32(half & 0x8000) << np.uint32(16))).view(np.float32)


@numba.njit(nogil=True, inline="always")
def _without(line, marks, buffer):
    """Copy what is not marked to the buffer; a group without a mark is copied at once."""
    n = np.uint64(0)  # unsigned: an index below zero would be looked for
    for begin in range(0, len(line), _GROUP):
        end = min(begin + _GROUP, len(line))
        if marks[begin:end].sum() == 0:
            for j in range(begin, end):
                buffer[n + np.uint64(j - begin)] = line[j]
            n += np.uint64(end - begin)
        else:
            for j in range(begin, end):
                buffer[n] = line[j]
                n += np.uint64(1 - marks[j])
    return buffer[:n]


def _keys(cells, shift, marks, buffer):
    """Numbers in the order of the cells that are not marked; in the buffer if they are copied."""


@overload(_keys)
def _choose_keys(cells, shift, marks, buffer):
    def of_halves(cells, shift, marks, buffer):
        for j in range(len(cells)):
            buffer[j] = _widened(cells[j], shift)
        return _without(buffer[: len(cells)], marks, buffer) if len(marks) else buffer[: len(cells)]

    def of_numbers(cells, shift, marks, buffer):
        return _without(cells, marks, buffer) if len(marks) else cells

    return of_halves if cells.dtype == numba.uint16 else of_numbers


def _compare(line, limit):
    """Count the keys of a line below and above a limit; NaN is neither."""


@overload(_compare)
def _choose_compare(line, limit):
    # counters as wide as the keys, or else the loop does not vectorise
    integer: Any = {16: np.int16, 64: np.int64}.get(line.dtype.bitwidth, np.int32)

    def compare(line, limit):
        below, above = integer(0), integer(0)
        # four places to read from at once, for which a core waits less than for one; and up to three keys that remain
        n = len(line) // 4
        p, q, r, s = line[:n], line[n : 2 * n], line[2 * n : 3 * n], line[3 * n : 4 * n]
        for j in range(n):
            below = integer(below + integer(p[j] < limit))
            above = integer(above + integer(p[j] > limit))
            below = integer(below + integer(q[j] < limit))
            above = integer(above + integer(q[j] > limit))
            below = integer(below + integer(r[j] < limit))
            above = integer(above + integer(r[j] > limit))
            below = integer(below + integer(s[j] < limit))
            above = integer(above + integer(s[j] > limit))
        for key in line[4 * n :]:
            below, above = integer(below + integer(key < limit)), integer(above + integer(key > limit))
        return int(below), int(above)

    return compare


@numba.njit(nogil=True, cache=True)
def _begin_search(limits, search):
    """Sort limits, and arrange them as a complete binary tree, in which the sons of node p are 2p and 2p + 1.

    Returns the number of limits that are not NaN and the size of the tree.
    """
    ordered, tree, between = search
    number, size = len(limits), 2
    ordered[:number] = np.sort(limits)
    while number and ordered[number - 1] != ordered[number - 1]:
        number -= 1
    while size <= number:
        size *= 2
    begin, step = 1, size
    while begin < size:
        for place in range(begin):
            tree[begin + place] = ordered[min(place * step + step // 2, number) - 1]
        begin, step = 2 * begin, step // 2
    between[: 2 * number + 1] = 0
    return number, size


@numba.njit(nogil=True, cache=True)
def _search(line, number, size, sign, search):
    """Add how many keys of a line are between the limits, to between[2i], and equal to limit i, to between[2i + 1]."""
    ordered, tree, between = search
    node, level = np.ones(len(line), np.uint32), 1
    while level < size:  # one level for all keys, which vectorises
        for j in range(len(line)):
            node[j] = np.uint32(np.uint32(2) * node[j] + np.uint32(not (line[j] <= tree[node[j]])))
        level *= 2
    for j in range(len(line)):
        place = min(np.int64(node[j]) - size, number)  # NaN is beyond all limits
        between[2 * place + (place < number and ordered[place] == line[j])] += sign


@numba.njit(nogil=True, cache=True)
def _finish_search(limits, number, nan, search, below, above):
    """Count the keys below and above each limit."""
    ordered, _, between = search
    total = between[: 2 * number + 1].cumsum()
    for i in range(len(limits)):
        place = np.searchsorted(ordered[:number], limits[i])
        if place < number:
            below[i], above[i] = total[2 * place], total[-1] - nan - total[2 * place + 1]


@numba.njit(nogil=True, cache=True)
def _add(line, limits, own, sign, tree, search, below, above):
    """Add the keys of a line below and above each limit, or subtract them; return the number of NaN.

    ``own`` of the keys are equal to the first limit whatever else.
    """
    number, size = tree
    rest = len(line)
    if size:
        _search(line, number, size, sign, search)
    else:
        for i in range(len(limits)):
            less, more = _compare(line, limits[i])
            below[i] += sign * less
            above[i] += sign * more
            if i == 0:
                rest -= less + more + own
    # what is neither below nor above is tied or NaN: only then another look is worth its time
    return sign * _num_nan(line) if rest > 0 else 0


@numba.njit(nogil=True, cache=True)
def _num_nan(line):
    nan = 0
    for key in line:
        nan += key != key
    return nan


@numba.njit(nogil=True, cache=True)
def _mark(marks, columns, offset, right, value):
    for column in columns:
        if 0 <= column - offset < right:
            marks[column - offset] = value


@numba.njit(nogil=True, cache=True)
def _count_tasks(scores, tasks, lists, excluded, piece, out):
    """Count the tasks of a piece into out (4, P)."""
    (cells, step, borders, width, shift, kind), (gone, gone_step) = scores, excluded
    true, rows, columns = tasks
    start, length, listed, offset = lists
    first, last = piece
    buffer, limits, own_keys = np.empty(_BLOCK, kind.dtype), np.empty(last, kind.dtype), np.empty(last, kind.dtype)
    most = last - first if last - first > _FEW else 0
    search = np.empty(most, kind.dtype), np.empty(2 * most + 2, kind.dtype), np.empty(2 * most + 1, np.int64)
    is_known = np.zeros(width if most and len(length) else 0, np.bool_)
    while first < last:
        row, end = rows[first] if len(rows) else first, first + 1
        while end < last and len(rows) and rows[end] == row:
            end += 1
        line, marks, right = row * step, row * gone_step, width
        if len(borders):
            line = marks = borders[row]
            right = borders[row + 1] - line
        known = listed[start[row] : start[row] + length[row]] if len(length) else listed[:0]
        for i in range(first, end):
            if len(columns) and 0 <= columns[i] < right:
                place = line + columns[i]
                own_keys[i] = _keys(cells[place : place + 1], shift, gone[:0], buffer)[0]
            limits[i] = _keys(true[i : i + 1], shift, gone[:0], buffer)[0] if len(true) else own_keys[i]
        some, below, above = limits[first:end], out[0, first:end], out[1, first:end]
        tree, number, nan, own = (0, 0), 0, 0, columns[first] if len(columns) else -1
        below[:], above[:] = 0, 0
        if not (0 <= own < right and own_keys[first] == some[0]) or (len(gone) and gone[marks + own]):
            own = -1
        if end - first > _FEW:
            tree = _begin_search(some, search)
        for here in range(0, right, _BLOCK):
            until = min(here + _BLOCK, right)
            hidden = gone[marks + here : marks + until] if len(gone) else gone
            keys = _keys(cells[line + here : line + until], shift, hidden, buffer)
            number += len(keys)
            nan += _add(keys, some, int(here <= own < until), 1, tree, search, below, above)
        for here in range(0, len(known), _BLOCK):
            n = 0
            for column in known[here : here + _BLOCK]:
                place = column - offset
                if 0 <= place < right and not (len(gone) and gone[marks + place]):
                    place += line
                    buffer[n] = _keys(cells[place : place + 1], shift, gone[:0], buffer[n:])[0]
                    n += 1
            number -= n
            nan += _add(buffer[:n], some, 0, -1, tree, search, below, above)
        if tree[1]:
            _finish_search(some, tree[0], nan, search, below, above)
            _mark(is_known, known, offset, right, True)  # one look instead of a search for each task
        for i in range(first, end):
            others, low, high, nans = number, out[0, i], number - nan - out[1, i], nan
            column = columns[i] if len(columns) else -1
            if 0 <= column < right and not (len(gone) and gone[marks + column]):
                if tree[1]:
                    is_candidate = not (len(known) and is_known[column])
                else:
                    place = np.searchsorted(known, column + offset) if len(known) else 0
                    is_candidate = place == len(known) or known[place] != column + offset
                if is_candidate:  # which is left out
                    key = own_keys[i]
                    others -= 1
                    low -= key < limits[i]
                    high -= key <= limits[i]
                    nans -= key != key
            if limits[i] != limits[i]:  # which nothing is below
                low, high, nans = 0, 0, nans + 1
            out[0, i], out[1, i], out[2, i], out[3, i] = others - high, others - low, others, nans
        if tree[1]:
            _mark(is_known, known, offset, right, False)
        first = end
