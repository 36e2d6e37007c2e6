"""Counting compiled by Numba on several threads, for scores on the CPU."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.ranking.exclude import NOTHING, Excluded, ExcludedSlices


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
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="assignment,attr-defined,call-arg"


if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

_NUMBERS = {torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}
# the bits of +inf: beyond it are the NaN
_HALVES = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
_PER_THREAD = 1 << 20  # comparisons that are worth a thread
_LEAD = 1 << 18  # comparisons made here until another thread has begun
_NO_ROWS = np.empty(0, np.int64)


class _Matrix(NamedTuple):
    """The memory a row-major matrix spans, as one contiguous vector, and the step from row to row."""

    cells: Any
    step: int


class _KernelTasks(NamedTuple):
    """Arguments of ``plain.count`` for its tasks, an empty vector for None, and the order of counting."""

    true: Any
    row: Any
    column: Any
    order: Any


class _Slices(NamedTuple):
    """Excluded columns of every row; without rows for None."""

    start: Any
    length: Any
    columns: Any
    first: int


# plain tuples cross into compiled code, which names them: a named one takes microseconds there
_NO_CELLS = (np.empty(0, np.uint8), 0)
_NO_SLICES = (_NO_ROWS, _NO_ROWS, _NO_ROWS, 0)


def count(
    scores: Tensor,
    true: Tensor | None,
    row: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Excluded = NOTHING,
) -> Tensor:
    """As ``plain.count``, bit for bit."""
    N, matrix = scores.shape[1], excluded.matrix
    tasks = (scores if row is None else row).shape[0] if true is None else true.shape[0]
    half = _HALVES.get(scores.dtype, 0)
    by_row = N == 1 or (scores.stride(1) == 1 and (matrix is None or matrix.stride(1) == 1))
    read = (half or scores.dtype in _NUMBERS) and by_row and not scores.is_neg()
    if tasks == 0 or not 0 < N < 1 << 31 or not read:  # 32-bit counters
        return plain.count(scores, true, row, column, excluded)
    result = np.empty((4, tasks), np.int64)
    order = _NO_ROWS
    if row is not None:
        order = row.argsort(stable=True).numpy()  # tasks of a row one after the other find it in the cache
    flat = _flat(scores)
    arguments = (
        flat,
        N,
        half,
        (
            flat[0][:0] if true is None else _numbers(true.contiguous()),
            _NO_ROWS if row is None else row.contiguous().numpy(),
            _NO_ROWS if column is None else column.contiguous().numpy(),
            order,
        ),
        _slices(excluded.slices),
        _NO_CELLS if matrix is None else _flat(matrix),
    )
    threads = max(1, min(torch.get_num_threads(), tasks * N // _PER_THREAD))
    if threads == 1:
        _count_tasks(*arguments, 0, tasks, 0, N, result)
    elif tasks >= threads:
        lead = min(tasks, _LEAD // N)
        cuts = [0, *(lead + (tasks - lead) * i // threads for i in range(1, threads + 1))]
        side_by_side(_count_tasks, [(*arguments, a, b, 0, N, result) for a, b in pairwise(cuts)])
    else:
        cuts = [N * i // threads for i in range(threads + 1)]
        parts = [np.empty_like(result) for _ in range(threads)]
        pieces = zip(pairwise(cuts), parts, strict=True)
        side_by_side(_count_tasks, [(*arguments, 0, tasks, a, b, part) for (a, b), part in pieces])
        result = np.sum(parts, axis=0)
    return torch.from_numpy(result)


def _slices(slices: ExcludedSlices | None) -> tuple[Any, Any, Any, int]:
    """What ``_Slices`` names."""
    if slices is None:
        return _NO_SLICES
    return slices.start.numpy(), slices.length.numpy(), slices.columns.numpy(), slices.first


def _flat(matrix: Tensor) -> tuple[Any, int]:
    """What ``_Matrix`` names."""
    rows, width = matrix.shape
    step = matrix.stride(0) if rows > 1 else 0  # one row of excluded columns serves every task
    if matrix.is_contiguous():
        return _numbers(matrix).ravel(), step
    return _numbers(matrix.as_strided(((rows - 1) * step + width,), (1,))), step


def _numbers(vector: Tensor) -> Any:
    if vector.dtype in _HALVES:
        vector = vector.view(torch.uint16)
    elif vector.dtype == torch.bool:
        vector = vector.view(torch.uint8)
    return vector.numpy()


def _count(cells, true, half, own):
    """Below, not above and NaN among cells, own of which equal the true score whatever else; by the type of cells."""


@overload(_count)
def _choose_count(cells, true, half, own):
    if cells.dtype == numba.uint16:
        return _count_halves
    return _count_wide if cells.dtype.bitwidth == 64 else _count_numbers


def _count_by(integer):
    """Counting in integers as wide as the cells, or else the loop does not vectorise."""

    @numba.njit(inline="always")
    def compare(cell, true, below, above):
        # the casts keep Numba from widening them
        return integer(below + integer(cell < true)), integer(above + integer(cell > true))

    def count(cells, true, half, own):
        below, above = integer(0), integer(0)
        p, q, r, s, rest = _quarters(cells)
        for j in range(p.shape[0]):
            below, above = compare(p[j], true, below, above)
            below, above = compare(q[j], true, below, above)
            below, above = compare(r[j], true, below, above)
            below, above = compare(s[j], true, below, above)
        for cell in rest:
            below, above = compare(cell, true, below, above)
        return _rest(cells, true, own, int(below), int(above))

    return count


@numba.njit(inline="always")
def _quarters(cells):
    """Four places to read from at once, for which a core waits less than for one; and up to three cells that remain."""
    n = cells.shape[0] // 4
    return cells[:n], cells[n : 2 * n], cells[2 * n : 3 * n], cells[3 * n : 4 * n], cells[4 * n :]


_count_numbers, _count_wide = _count_by(np.int32), _count_by(np.int64)


@numba.njit(inline="always")
def _rest(cells, true, own, below, above):
    """Count ties and NaN, which are neither below nor above: the cells are read again only if there are any."""
    rest, nan = cells.shape[0] - below - above, 0
    if true != true:
        own = 0
    if rest > own:
        for j in range(cells.shape[0]):
            nan += cells[j] != cells[j]
    return below, 0 if true != true else below + rest - nan, nan


def _count_halves(cells, true, half, own):
    inf = np.int16(half)
    limit, magnitude = _in_order(true)
    below, not_above, nan = 0, 0, 0
    p, q, r, s, rest = _quarters(cells)
    # 16-bit counters fill a vector register with twice the cells, and are emptied before they overflow
    for left in range(0, p.shape[0], 4096):
        a, b, c = np.int16(0), np.int16(0), np.int16(0)
        for j in range(left, min(left + 4096, p.shape[0])):
            a, b, c = _compare_halves(p[j], limit, inf, a, b, c)
            a, b, c = _compare_halves(q[j], limit, inf, a, b, c)
            a, b, c = _compare_halves(r[j], limit, inf, a, b, c)
            a, b, c = _compare_halves(s[j], limit, inf, a, b, c)
        below, not_above, nan = below + a, not_above + b, nan + c
    a, b, c = np.int16(0), np.int16(0), np.int16(0)
    for cell in rest:
        a, b, c = _compare_halves(cell, limit, inf, a, b, c)
    if magnitude > inf:
        return 0, 0, nan + c
    return below + a, not_above + b, nan + c


@numba.njit(inline="always")
def _compare_halves(cell, limit, inf, below, not_above, nan):
    number, magnitude = _in_order(cell)
    is_nan = magnitude > inf
    return (
        np.int16(below + np.int16((number < limit) & (not is_nan))),
        np.int16(not_above + np.int16((number <= limit) & (not is_nan))),
        np.int16(nan + np.int16(is_nan)),
    )


@numba.njit(inline="always")
def _in_order(cell):
    """A half as an integer, by its bits: in the order of the numbers, -0 as 0; and its magnitude, NaN beyond inf."""
    # sign and magnitude become a two's complement
    bits = np.int16(cell)
    sign, magnitude = np.int16(bits >> np.int16(15)), np.int16(bits & np.int16(0x7FFF))
    return np.int16(np.int16(magnitude ^ sign) - sign), magnitude


def _is_nan(number, half):
    """Whether a cell is NaN; by its type."""


@overload(_is_nan)
def _choose_is_nan(number, half):
    if number == numba.uint16:
        return lambda number, half: int(_in_order(number)[1] > half)
    return lambda number, half: int(number != number)


@numba.njit(nogil=True, cache=True)
def _count_tasks(scores, N, half, tasks, slices, excluded, first, last, left, right, out):
    """Tasks [first, last) of the order over columns [left, right) into out (4, P)."""
    scores, tasks, slices, excluded = _Matrix(*scores), _KernelTasks(*tasks), _Slices(*slices), _Matrix(*excluded)
    cells = scores.cells
    for place in range(first, last):
        task = tasks.order[place] if len(tasks.order) else place
        row = tasks.row[task] if len(tasks.row) else task
        column = tasks.column[task] if len(tasks.column) else -1
        base = row * scores.step
        read = len(tasks.true) == 0  # else the true score may have been rounded otherwise than the cell in its column
        true = cells[base + column] if read else tasks.true[task]
        below, not_above, nan, number = 0, 0, 0, 0
        if len(excluded.cells) == 0:
            gone = excluded.cells
            a, b, c = _count(cells[base + left : base + right], true, half, int(read and left <= column < right))
            below, not_above, nan, number = below + a, not_above + b, nan + c, right - left
        else:
            gone = excluded.cells[row * excluded.step : row * excluded.step + N]
            begin = left
            while begin < right:
                # runs between excluded columns, read at full speed: matrices that exclude much are slower
                end = begin
                while end < right and not gone[end]:
                    end += 1
                a, b, c = _count(cells[base + begin : base + end], true, half, int(read and begin <= column < end))
                below, not_above, nan, number = below + a, not_above + b, nan + c, number + end - begin
                begin = end + 1
        if left <= column < right and not (len(gone) and gone[column]):
            a, b, c = _count(cells[base + column : base + column + 1], true, half, 0)
            below, not_above, nan, number = below - a, not_above - b, nan - c, number - 1
        if len(slices.length):
            for position in range(slices.start[row], slices.start[row] + slices.length[row]):
                other = slices.columns[position] - slices.first
                if left <= other < right and other != column and not (len(gone) and gone[other]):
                    a, b, c = _count(cells[base + other : base + other + 1], true, half, 0)
                    below, not_above, nan, number = below - a, not_above - b, nan - c, number - 1
        if right == N:
            nan += _is_nan(true, half)
        out[0, task], out[1, task], out[2, task], out[3, task] = number - not_above, number - below, number, nan
