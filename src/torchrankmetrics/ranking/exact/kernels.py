"""Counting against an interval, compiled by Numba for the CPU; as ``exact.counting``.

Cells are float32, float64, bfloat16 by their bits, or integer products of eighths, which only this way knows.
"""

from itertools import pairwise

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from torchrankmetrics.ranking.counting.numba_backend import cuts, side_by_side
from torchrankmetrics.ranking.exact.counting import Between, Form, Rulers, Scales, Sought

# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"


_BLOCK = 1024  # cells whose flags are bytes that stay in the cache; a multiple of 8, at most 8 * 255
_PER_THREAD = 1 << 18  # cells that are worth a thread
_BYTES = np.uint64(sum(j << (61 - 8 * j) for j in range(8)))


class Counter:
    """As ``exact.counting.Counter``, and for bfloat16 cells, where low and high are int16 keys (``keys`` there)."""

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


# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"


def eighths(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Round each of (n, d) float32 vectors to integers of at most 127 times a scale of its own.

    Returns:
        int8 (n, d); the scales, float32 (n,), 1 for zeros; the squares of the lengths, float64, and of those of the
        rounding, float32. What is not finite becomes zeros, with lengths of inf.
    """
    given = numbers.contiguous().numpy()
    n = len(given)
    out, scale = np.empty(given.shape, np.int8), np.empty(n, np.float32)
    square, error = np.empty(n), np.empty(n, np.float32)
    arrays = given, given.view(np.int32), out, scale, square, error
    parts = cuts(n, given.size // _PER_THREAD)
    side_by_side(_round, [(*arrays, *piece) for piece in pairwise(parts)])
    matrix, scales, squares, errors = (torch.from_numpy(part) for part in (out, scale, square, error))
    return matrix, scales, squares, errors


@numba.njit(nogil=True, cache=True)
def _round(given, bits, out, scale, square, error, first, last):
    cell = np.empty(1, np.int32)
    largest = cell.view(np.float32)
    for i in range(first, last):
        most = np.int32(0)
        for k in range(bits.shape[1]):
            most = max(most, np.int32(bits[i, k] & np.int32(0x7FFFFFFF)))
        out[i] = 0
        scale[i], square[i], error[i] = 1, 0, 0
        if most >= np.int32(0x7F800000):
            square[i] = error[i] = np.inf
        elif most:
            cell[0] = most
            scale[i] = largest[0] / np.float32(127)
            # of numbers that are denormal the scale is inexact, and may be zero: they stay zeros
            if scale[i] > np.float32(2.0**-120):
                _round_one(given[i], np.float32(1) / scale[i], out[i])
            else:
                scale[i] = 1
            square[i], error[i] = _squares(given[i], out[i], scale[i])


@numba.njit(nogil=True, cache=True)
def _round_one(numbers, inverse, out):
    for k in range(numbers.shape[0]):
        out[k] = np.int8(np.int32(np.rint(numbers[k] * inverse)))


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _squares(numbers, whole, scale):
    square, error = 0.0, np.float32(0)
    for k in range(numbers.shape[0]):
        square += np.float64(numbers[k]) * np.float64(numbers[k])
    for k in range(numbers.shape[0]):
        apart = numbers[k] - np.float32(whole[k]) * scale
        error += apart * apart
    return square, error


# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"


_PAIRS_PER_THREAD = 1 << 9  # pairs that are worth a thread
_CACHE = 1 << 18  # bytes of candidates that pairs are compared with at once
_WIDE = 128  # numbers in a candidate from where on that pays


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """As ``exact.counting.products``."""
    out = np.empty(len(row))
    given = queries.numpy(), candidates.numpy(), row.numpy(), column.numpy(), out
    parts = cuts(len(row), len(row) // _PAIRS_PER_THREAD)
    side_by_side(_products, [(*given, *piece) for piece in pairwise(parts)])
    return torch.from_numpy(out)


def compare(
    queries: Tensor, candidates: Tensor, form: Form, tasks: Sought, entry: Tensor, column: Tensor, single: bool = False
) -> tuple[Tensor, Tensor]:
    """As ``exact.counting.compare``; ``single``: products are summed in float32, for intervals of that precision."""
    scale, shift = (np.empty(0) if part is None else part.numpy() for part in form)
    given = queries.numpy(), candidates.numpy(), scale, shift, *(part.numpy() for part in tasks)
    pairs = entry.numpy(), column.numpy(), single
    pieces = list(pairwise(cuts(len(entry), len(entry) // _PAIRS_PER_THREAD)))
    above = np.zeros((len(pieces), len(tasks.row)), np.int64)
    open_ = np.empty(len(entry), np.bool_)
    side_by_side(_compare, [(*given, *pairs, *piece, one, open_) for piece, one in zip(pieces, above, strict=True)])
    return torch.from_numpy(above.sum(0)), torch.from_numpy(open_)


# in any order: the bounds hold for all of them, and eight sums at once take a fifth of the time of one
@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _product(q, e):
    total = 0.0
    for k in range(q.shape[0]):
        total += np.float64(q[k]) * np.float64(e[k])
    return total


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _product_single(q, e):
    total = np.float32(0)
    for k in range(q.shape[0]):
        total += np.float32(q[k]) * np.float32(e[k])
    return np.float64(total)


@numba.njit(nogil=True, cache=True)
def _products(queries, candidates, row, column, out, first, last):
    for i in range(first, last):
        out[i] = _product(queries[row[i]], candidates[column[i]])


@numba.njit(nogil=True, cache=True)
def _near(column, size):
    """Order of columns in which they come from one slice of so many after the other."""
    begin = np.zeros(column.max() // size + 2 if len(column) else 2, np.int64)
    for j in column:
        begin[j // size + 1] += 1
    for i in range(1, len(begin)):
        begin[i] += begin[i - 1]
    order = np.empty(len(column), np.int64)
    for i in range(len(column)):
        order[begin[column[i] // size]] = i
        begin[column[i] // size] += 1
    return order


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _compare(queries, candidates, scale, shift, row, own, low, high, entry, column, single, first, last, above, open_):
    size = max(1, _CACHE // max(1, candidates.itemsize * candidates.shape[1]))
    near = _near(column[first:last], size) if candidates.shape[1] >= _WIDE else np.arange(last - first)
    for i in near:
        i += first
        task, place = entry[i], column[i]
        open_[i] = False
        if place == own[task]:
            continue
        q, e = queries[row[task]], candidates[place]
        score = _product_single(q, e) if single else _product(q, e)
        if scale.shape[0]:
            score /= scale[place]
        if shift.shape[0]:
            score += shift[place]
        # no branch: of open pairs half would be guessed wrong
        over = score > high[task]
        above[task] += over
        open_[i] = not (over | (score < low[task]))
