"""Counting against an interval, compiled by Numba for the CPU; as ``plain_intervals``.

Cells are float32, float64, bfloat16 by their bits, or integer products of eighths, which only this way knows.
"""
# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"

from itertools import pairwise

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from torchrankmetrics.ranking.counting.plain_intervals import Between, Rulers, Scales
from torchrankmetrics.ranking.counting.threads import cuts, side_by_side

_BLOCK = 1024  # cells whose flags are bytes that stay in the cache; a multiple of 8, at most 8 * 255
_PER_THREAD = 1 << 18  # cells that are worth a thread
_BYTES = np.uint64(sum(j << (61 - 8 * j) for j in range(8)))


class Counter:
    """As ``plain_intervals.Counter``, and for bfloat16 cells, where low and high are int16 keys (``keys`` there)."""

    def __init__(self, row: Tensor, low: Tensor, high: Tensor, limit: int, spare: int = 0) -> None:
        self._tasks = [part.numpy() for part in (row, low, high)]
        self._limit, self._spare = limit, spare
        self._above, self._inside = np.zeros((2, len(row)), np.int64)
        self._pieces: list[tuple[int, int]] | None = None
        self._listed = [np.empty((2, 0), np.int32)]

    def add(self, cells: Tensor, left: int) -> None:
        """Count a block of cells."""
        numbers = (cells.view(torch.uint16) if cells.dtype == torch.bfloat16 else cells).numpy()
        self._scan(_scan, numbers, left)

    def found(self) -> Between:
        """What has been counted."""
        listed = np.concatenate(self._listed, axis=1)
        complete = self._pieces is None or all(beyond <= self._spare // len(self._pieces) for beyond in self._beyond)
        if not complete:
            listed = listed[:, (self._inside <= self._limit)[listed[0]]]
        task, column = torch.from_numpy(listed.astype(np.int64))
        return Between(torch.from_numpy(self._above), torch.from_numpy(self._inside), task, column, complete)

    def _scan(self, scan, cells, left, *columns):
        """Scan the tasks side by side; the lists are written anew for each block."""
        tasks, width = len(self._above), cells.shape[1]
        if self._pieces is None:
            self._pieces = list(pairwise(cuts(tasks, tasks * width // _PER_THREAD)))
            self._beyond = [0] * len(self._pieces)
            self._lists = [np.empty((2, 0), np.int32)] * len(self._pieces)
        spare = self._spare // len(self._pieces)
        given = cells, *self._tasks, *columns, left, self._limit, spare, self._above, self._inside
        pieces = []
        for i, (first, last) in enumerate(self._pieces):
            most = (last - first) * min(self._limit, width) + spare + 8
            if self._lists[i].shape[1] < most:
                self._lists[i] = np.empty((2, most), np.int32)
            pieces.append((*given, first, last, self._lists[i], self._beyond[i]))
        for i, (number, beyond) in enumerate(side_by_side(scan, pieces)):
            self._beyond[i] = beyond
            if number:
                self._listed.append(self._lists[i][:, :number].copy())


class CounterOfEighths(Counter):
    """Counts as ``Counter`` does int32 products of eighths, the least of integers where nothing counts.

    A cell is above if cell - (true unit - step shift) > by_error error + by_norm norm + slack unit, with what is of the
    task and of the column, and inside if the difference is no larger either way.
    """

    def __init__(self, row: Tensor, tasks: Rulers, columns: Scales, limit: int, spare: int = 0) -> None:
        super().__init__(row, tasks.true, tasks.step, limit, spare)
        self._tasks = [part.numpy() for part in (row, *tasks)]
        shift = row[:0].float() if columns.shift is None else columns.shift
        self._columns = [part.numpy() for part in (columns.unit, columns.error, columns.norm, shift)]

    def add(self, cells: Tensor, left: int) -> None:
        """Count a block of cells."""
        here = slice(left, left + cells.shape[1])
        self._scan(_scan_eighths, cells.numpy(), left, *(part[here] for part in self._columns))


@numba.njit(nogil=True, cache=True)
def _scan(tile, row, low, high, left, limit, spare, above, inside, first, last, entries, beyond):
    n = 0
    flags = np.zeros((2, _BLOCK), np.uint8)
    words = flags.view(np.uint64)
    for task in range(first, last):
        line, least, most = tile[row[task]], low[task], high[task]
        over, between = 0, inside[task]
        for begin in range(0, line.shape[0], _BLOCK):
            block = line[begin : begin + _BLOCK]
            if block.shape[0] < _BLOCK:
                flags[:] = 0
            _mark(block, least, most, flags[0], flags[1])
            over += _ones(words[0])
            more = _ones(words[1])
            between += more
            if between > limit:
                beyond += more
            if more and (between <= limit or beyond <= spare):
                n = _list(words[1], task, left + begin, entries, n)
        above[task] += over
        inside[task] = between
    return n, beyond


@numba.njit(nogil=True, cache=True)
def _scan_eighths(
    tile, row, true, step, by_error, by_norm, slack, unit, error, norm, shift,
    left, limit, spare, above, inside, first, last, entries, beyond,
):  # fmt: skip
    n = 0
    flags = np.zeros((2, _BLOCK), np.uint8)
    words = flags.view(np.uint64)
    for task in range(first, last):
        line = tile[row[task]]
        about = true[task], step[task], by_error[task], by_norm[task], slack[task]
        over, between = 0, inside[task]
        for begin in range(0, line.shape[0], _BLOCK):
            here = slice(begin, begin + _BLOCK)
            block = line[here]
            if block.shape[0] < _BLOCK:
                flags[:] = 0
            if shift.shape[0]:
                _mark_shifted(block, unit[here], error[here], norm[here], shift[here], about, flags[0], flags[1])
            else:
                _mark_eighths(block, unit[here], error[here], norm[here], about, flags[0], flags[1])
            over += _ones(words[0])
            more = _ones(words[1])
            between += more
            if between > limit:
                beyond += more
            if more and (between <= limit or beyond <= spare):
                n = _list(words[1], task, left + begin, entries, n)
        above[task] += over
        inside[task] = between
    return n, beyond


# loops over an index: those over the cells themselves are not vectorised


@numba.njit(nogil=True, cache=True)
def _mark(cells, least, most, above, inside):
    for j in range(cells.shape[0]):
        number = _in_order(cells[j])
        over = number > most
        above[j], inside[j] = np.uint8(over), np.uint8((number >= least) & (not over))


def _in_order(cell):
    """A number in the order of the cells, by their type."""


@overload(_in_order)
def _choose_in_order(cell):
    return _key if cell == numba.uint16 else lambda cell: cell


def _key(cell):
    bits = np.int16(cell)
    sign = np.int16(bits >> np.int16(15))
    return np.int16(np.int16(np.int16(bits & np.int16(0x7FFF)) ^ sign) - sign)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _mark_eighths(cells, unit, error, norm, about, above, inside):
    true, _, by_error, by_norm, slack = about
    for j in range(cells.shape[0]):
        apart = np.float32(cells[j]) - true * unit[j]
        bound = by_error * error[j] + by_norm * norm[j] + slack * unit[j]
        above[j], inside[j] = np.uint8(apart > bound), np.uint8(abs(apart) <= bound)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _mark_shifted(cells, unit, error, norm, shift, about, above, inside):
    true, step, by_error, by_norm, slack = about
    for j in range(cells.shape[0]):
        apart = np.float32(cells[j]) - (true * unit[j] - step * shift[j])
        bound = by_error * error[j] + by_norm * norm[j] + slack * unit[j]
        above[j], inside[j] = np.uint8(apart > bound), np.uint8(abs(apart) <= bound)


@numba.njit(nogil=True, cache=True)
def _ones(words):
    """How many bytes are 1, the others being 0; eight at once."""
    total = np.uint64(0)
    for i in range(words.shape[0]):
        total += words[i]
    pairs = np.uint64(0x00FF00FF00FF00FF)
    total = (total & pairs) + ((total >> np.uint64(8)) & pairs)
    return np.int64((total * np.uint64(0x0001000100010001)) >> np.uint64(48))


@numba.njit(nogil=True, cache=True)
def _list(words, task, left, entries, n):
    place = np.empty(_BLOCK // 8, np.int32)
    some = 0
    for i in range(words.shape[0]):
        # written always and kept if there is one: a branch would be guessed wrong
        place[some] = i
        some += words[i] != 0
    for i in place[:some]:
        word = words[i]
        while word:
            lowest = word & (
                ~word + np.uint64(1)
            )  # 2^8j for the byte j, which the product brings to its first three bits
            entries[0, n], entries[1, n] = task, left + 8 * i + np.int64((lowest * _BYTES) >> np.uint64(61))
            n += 1
            word ^= lowest
    return n
