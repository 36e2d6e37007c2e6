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
from torchrankmetrics.ranking.exclude import NOTHING, Excluded


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

_NUMBERS = {torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}
_INF = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80}  # the bits of infinity; larger magnitudes are NaN
_NAN = np.uint16(0xFFFF)  # the key of every NaN of 16 bits
_PER_THREAD = 1 << 20  # comparisons that are worth a thread
_LEAD = 1 << 18  # comparisons made here until another thread has begun
_BLOCK = 1 << 14  # cells that stay in the cache while all targets of a row are compared; 16-bit counters hold as many
_GROUP = 64  # cells that are copied at once if none of them is excluded
_FEW = 80  # targets of a row: above, a search for each cell is faster than a comparison with each target
_NONE, _NO_MARKS = np.empty(0, np.int64), np.empty(0, np.uint8)
_EMPTY_LISTS = (_NONE, _NONE, _NONE, 0)


def count(
    scores: Tensor,
    true: Tensor | None,
    row: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Excluded = NOTHING,
) -> Tensor:
    """As ``plain.count``, bit for bit."""
    N, matrix, slices = scores.shape[1], excluded.matrix, excluded.slices
    tasks = (scores if row is None else row).shape[0] if true is None else true.shape[0]
    by_row = N == 1 or (scores.stride(1) == 1 and (matrix is None or matrix.stride(1) == 1))
    read = (scores.dtype in _INF or scores.dtype in _NUMBERS) and by_row and not scores.is_neg()
    if tasks == 0 or N == 0 or not read:
        return plain.count(scores, true, row, column, excluded)
    lists = _EMPTY_LISTS
    if slices is not None:
        lists = slices.start.numpy(), slices.length.numpy(), slices.columns.numpy(), slices.first
    marks = (_NO_MARKS, 0) if matrix is None else _flat(matrix)
    return _count(scores.dtype, (*_flat(scores), _NONE), (true, row, column), lists, marks, tasks, N)


def count_lists(
    scores: Tensor,
    borders: Tensor,
    row: Tensor,
    true: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Tensor | None = None,
) -> Tensor:
    """As ``plain.count_lists``, bit for bit."""
    if not len(row) or not len(scores) or scores.dtype not in _NUMBERS | _INF.keys() | {torch.bool} or scores.is_neg():
        return plain.count_lists(scores, borders, row, true, column, excluded)
    marks = _NO_MARKS if excluded is None else _numbers(excluded.contiguous())
    cells = _numbers(scores.contiguous()), 0, borders.numpy()
    longest = int(np.diff(cells[2]).max())
    return _count(scores.dtype, cells, (true, row, column), _EMPTY_LISTS, (marks, 0), len(row), longest)


def _count(
    dtype: torch.dtype,
    cells: tuple[Any, int, Any],
    tasks: tuple[Tensor | None, Tensor | None, Tensor | None],
    lists: tuple[Any, Any, Any, int],
    marks: tuple[Any, int],
    P: int,
    N: int,
) -> Tensor:
    """Count on several threads, which share the tasks, or of few tasks the columns."""
    true, rows, columns = (_NONE if part is None else _numbers(part.contiguous()) for part in tasks)
    if tasks[0] is None:
        true = cells[0][:0]
    order = None
    if tasks[1] is not None and (rows[1:] < rows[:-1]).any():
        order = rows.argsort(kind="stable")  # a row is read once for all its tasks
        true, rows, columns = (part[order] if len(part) else part for part in (true, rows, columns))
    given = cells, _INF.get(dtype, 0), (true, rows, columns), lists, marks
    threads = max(1, min(torch.get_num_threads(), P * N // _PER_THREAD))
    if threads <= P:
        lead = min(P, _LEAD // N) if threads > 1 else 0
        ends = [0, *(lead + cut for cut in cuts(P - lead, threads)[1:])]
        result = np.empty((4, P), np.int64)
        side_by_side(_count_tasks, [(*given, piece, (0, N, 1), result) for piece in pairwise(ends)])
    else:
        spans = [(a, b, int(a == 0)) for a, b in pairwise(cuts(N, threads))]
        parts = np.empty((threads, 4, P), np.int64)
        side_by_side(_count_tasks, [(*given, (0, P), *part) for part in zip(spans, parts, strict=True)])
        result = parts.sum(0)
    if order is not None:
        result[:, order] = result.copy()
    return torch.from_numpy(result)


def _flat(matrix: Tensor) -> tuple[Any, int]:
    """Return the memory a row-major matrix spans, as one contiguous vector, and the step from row to row."""
    rows, width = matrix.shape
    step = matrix.stride(0) if rows > 1 else 0  # one row of excluded columns serves every task
    if matrix.is_contiguous():
        return _numbers(matrix).ravel(), step
    return _numbers(matrix.as_strided(((rows - 1) * step + width,), (1,))), step


def _numbers(vector: Tensor) -> Any:
    if vector.dtype in _INF:
        vector = vector.view(torch.uint16)
    elif vector.dtype == torch.bool:
        vector = vector.view(torch.uint8)
    return vector.numpy()


def _key(cell, inf):
    """A number in the order of the cells, by their type; of halves, which come as bits, ``_NAN`` for NaN."""


@overload(_key)
def _choose_key(cell, inf):
    def of_half(cell, inf):
        # sign and magnitude become a two's complement, in which -0 is 0
        bits = np.int16(cell)
        sign, magnitude = np.int16(bits >> np.int16(15)), np.int16(bits & np.int16(0x7FFF))
        number = np.uint16(np.uint16(np.int16(np.int16(magnitude ^ sign) - sign)) ^ np.uint16(0x8000))
        return np.uint16(number | np.uint16(-np.int16(magnitude > np.int16(inf))))

    return of_half if cell == numba.uint16 else lambda cell, inf: cell


def _is_nan(key):
    """Whether a key is NaN, by its type."""


@overload(_is_nan)
def _choose_is_nan(key):
    return (lambda key: key == _NAN) if key == numba.uint16 else lambda key: key != key


def _line(cells, here, gone, there, number, inf, buffer):
    """Keys of cells[here : here + number] that gone[there:] does not mark; in the buffer, unless the cells are keys."""


@overload(_line)
def _choose_line(cells, here, gone, there, number, inf, buffer):
    is_half = cells.dtype == numba.uint16

    def line(cells, here, gone, there, number, inf, buffer):
        some = cells[here : here + number]
        if len(gone) == 0:
            if is_half:
                for j in range(number):
                    buffer[j] = _key(some[j], inf)
            return buffer[:number] if is_half else some
        n, marks = np.uint64(0), gone[there : there + number]  # unsigned: an index below zero would be looked for
        for begin in range(0, number, _GROUP):
            end = min(begin + _GROUP, number)
            if marks[begin:end].sum() == 0:
                for j in range(begin, end):
                    buffer[n + np.uint64(j - begin)] = _key(some[j], inf)
                n += np.uint64(end - begin)
            else:
                for j in range(begin, end):
                    buffer[n] = _key(some[j], inf)
                    n += np.uint64(1 - marks[j])
        return buffer[:n]

    return line


def _compare(line, limit):
    """Count the numbers of a line below and above a limit, by their type; NaN is neither."""


@overload(_compare)
def _choose_compare(line, limit):
    # counters as wide as the cells, or else the loop does not vectorise
    integer = {16: np.int16, 64: np.int64}.get(line.dtype.bitwidth, np.int32)

    @numba.njit(inline="always")
    def add(key, limit, below, above):
        # the casts keep Numba from widening them
        over = (key > limit) & (not _is_nan(key))
        return integer(below + integer(key < limit)), integer(above + integer(over))

    def compare(line, limit):
        below, above = integer(0), integer(0)
        # four places to read from at once, for which a core waits less than for one; and up to three keys that remain
        n = len(line) // 4
        p, q, r, s = line[:n], line[n : 2 * n], line[2 * n : 3 * n], line[3 * n : 4 * n]
        for j in range(n):
            below, above = add(p[j], limit, below, above)
            below, above = add(q[j], limit, below, above)
            below, above = add(r[j], limit, below, above)
            below, above = add(s[j], limit, below, above)
        for key in line[4 * n :]:
            below, above = add(key, limit, below, above)
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
    while number and _is_nan(ordered[number - 1]):
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


@numba.njit(nogil=True, cache=True, forceinline=True)
def _count_line(line, limits, first, last, own, sign, out):
    """Add how many keys of a line are below and above limits [first, last) to out; return how many are NaN.

    ``own`` of the keys are equal to the first limit whatever else.
    """
    rest = len(line)
    for i in range(first, last):
        below, above = _compare(line, limits[i])
        out[0, i] += sign * below
        out[1, i] += sign * above
        if i == first:
            rest -= below + above + own
    # what is neither below nor above is tied or NaN: only then another look is worth its time
    return _num_nan(line) if rest > 0 else 0


@numba.njit(nogil=True, cache=True)
def _num_nan(line):
    nan = 0
    for key in line:
        nan += _is_nan(key)
    return nan


@numba.njit(nogil=True, cache=True)
def _count_tasks(scores, inf, tasks, slices, excluded, piece, span, out):
    """Count the tasks of a piece over a span of the columns into out (4, P)."""
    (cells, step, borders), (gone, gone_step) = scores, excluded
    true, rows, columns = tasks
    start, length, listed, shift = slices
    first, last = piece
    left, width, counts_own = span
    buffer, limits, is_candidate = np.empty(_BLOCK, cells.dtype), np.empty(last, cells.dtype), np.empty(last, np.bool_)
    most = last - first if last - first > _FEW else 0
    search = np.empty(most, cells.dtype), np.empty(2 * most + 2, cells.dtype), np.empty(2 * most + 1, np.int64)
    while first < last:
        row, end = rows[first] if len(rows) else first, first + 1
        while end < last and len(rows) and rows[end] == row:
            end += 1
        line, marks, right = row * step, row * gone_step, width
        if len(borders):
            line = marks = borders[row]
            right = min(right, borders[row + 1] - line)
        begin, stop = (start[row], start[row] + length[row]) if len(length) else (0, 0)
        for i in range(first, end):
            column = columns[i] if len(columns) else -1
            limits[i] = _key(true[i] if len(true) else cells[line + column], inf)
            is_candidate[i] = left <= column < right and not (len(gone) and gone[marks + column])
            if is_candidate[i] and begin < stop:
                place = begin + np.searchsorted(listed[begin:stop], column + shift)
                is_candidate[i] = place == stop or listed[place] != column + shift
            out[0, i], out[1, i] = 0, 0
        own = columns[first] if len(columns) and not (len(true) or _is_nan(limits[first])) else -1
        if own >= 0 and len(gone) and gone[marks + own]:
            own = -1
        number, nan, searched, size = 0, 0, 0, 0
        if end - first > _FEW:
            searched, size = _begin_search(limits[first:end], search)
        for here in range(left, right, _BLOCK):
            until = min(here + _BLOCK, right)
            block = _line(cells, line + here, gone, marks + here, until - here, inf, buffer)
            number += len(block)
            if size:
                _search(block, searched, size, 1, search)
                nan += _num_nan(block)
            else:
                nan += _count_line(block, limits, first, end, int(here <= own < until), 1, out)
        for here in range(begin, stop, _BLOCK):
            n = 0
            for place in range(here, min(here + _BLOCK, stop)):
                column = listed[place] - shift
                if left <= column < right and not (len(gone) and gone[marks + column]):
                    buffer[n] = _key(cells[line + column], inf)
                    n += 1
            number -= n
            if size:
                _search(buffer[:n], searched, size, -1, search)
                nan -= _num_nan(buffer[:n])
            else:
                nan -= _count_line(buffer[:n], limits, first, end, 0, -1, out)
        if size:
            _finish_search(limits[first:end], searched, nan, search, out[0, first:end], out[1, first:end])
        for i in range(first, end):
            n, below, not_above, nans = number, out[0, i], number - nan - out[1, i], nan
            if is_candidate[i]:
                key = _key(cells[line + columns[i]], inf)
                n, below, not_above, nans = (
                    n - 1,
                    below - (key < limits[i]),
                    not_above - (key <= limits[i]),
                    nans - _is_nan(key),
                )
            if _is_nan(limits[i]):  # which nothing is below
                below, not_above, nans = 0, 0, nans + counts_own
            out[0, i], out[1, i], out[2, i], out[3, i] = n - not_above, n - below, n, nans
        first = end
