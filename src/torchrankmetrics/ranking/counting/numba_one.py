"""Count with one target a row, compiled by Numba in about a second: each cell is compared once."""

from typing import Any

import numba
import numpy as np
from numba.extending import overload

# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="no-any-return,attr-defined,call-overload"

NAN = 0x7FFF  # key of the NaN of halves, above all others
_BLOCK_HALF = 1 << 14  # cells that 16-bit counters hold
_BLOCK = 1 << 30  # cells that 32-bit counters hold


def key_of(cell, infinity):
    """Turn a cell into a number in the order of the cells.

    Halves are read as int16 bits, with the bits of their infinity; ``infinity`` is 0 for others.
    """


@overload(key_of)
def _choose_key(cell, infinity):
    def of_half(cell, infinity):
        sign = np.int16(cell >> np.int16(15))
        magnitude = np.int16(cell & np.int16(0x7FFF))
        if infinity and magnitude > infinity:
            return np.int16(NAN)
        # sign and magnitude become a two's complement: -0 is 0
        return np.int16(np.int16(magnitude ^ sign) - sign) if infinity else cell

    return of_half if cell == numba.int16 else lambda cell, infinity: cell


@numba.njit(nogil=True)
def is_nan(key, infinity):
    """Whether a key is NaN."""
    return key != key or (infinity > 0 and key == NAN)


def _compare(cells, marks, limit, infinity):
    """Count the cells without a mark, and of them the keys below and above a limit.

    NaN of floats is neither.
    """


@overload(_compare)
def _choose_compare(cells, marks, limit, infinity):
    # counters as wide as the keys, or else the loop does not vectorize
    integer: Any = {16: np.int16, 64: np.int64}.get(limit.bitwidth, np.int32)

    def compare(cells, marks, limit, infinity):
        below = integer(0)
        above = integer(0)
        marked = integer(0)
        if len(marks):
            for j in range(len(cells)):
                key = key_of(cells[j], infinity)
                mark = integer(marks[j])
                marked = integer(marked + mark)
                below = integer(below + (integer(key < limit) & ~mark))
                above = integer(above + (integer(key > limit) & ~mark))
        else:
            for j in range(len(cells)):
                key = key_of(cells[j], infinity)
                below = integer(below + integer(key < limit))
                above = integer(above + integer(key > limit))
        return len(cells) - int(marked), int(below), int(above)

    return compare


@numba.njit(nogil=True, cache=True)
def _num_nan(cells, marks, infinity):
    """Count the NaN among the cells without a mark."""
    nan = np.int32(0)
    for j in range(len(cells)):
        is_counted = np.int32(1 - marks[j]) if len(marks) else np.int32(1)
        nan = np.int32(nan + np.int32(is_nan(key_of(cells[j], infinity), infinity)) * is_counted)
    return int(nan)


@numba.njit(nogil=True, cache=True)
def count_one(scores, tasks, lists, excluded, out, first, last):
    """Count the tasks [first, last), each alone in its row, into out (4, P)."""
    # one function: counting the references of arrays that are passed takes as long as a short row
    cells, step, borders, width, infinity = scores
    true, rows, columns = tasks
    start, length, listed, offset = lists
    gone, gone_step = excluded
    infinity = np.int16(infinity)
    block = _BLOCK_HALF if cells.itemsize == 2 else _BLOCK
    for i in range(first, last):
        row = rows[i] if len(rows) else i
        begin = row * step
        begin_gone = row * gone_step
        end = begin + width
        if len(borders):
            begin = begin_gone = borders[row]
            end = borders[row + 1]
        line = cells[begin:end]
        marks = gone[begin_gone : begin_gone + len(line)]
        own = columns[i] if len(columns) else -1
        limit = key_of(true[i] if len(true) else line[own], infinity)
        below = 0
        above = 0
        nan = 0
        number = 0
        for left in range(0, len(line), block):
            right = left + block
            counted, less, more = _compare(line[left:right], marks[left:right], limit, infinity)
            number += counted
            below += less
            above += more
        # the target, which is left out, and excluded columns were counted
        num_listed = length[row] if len(length) else 0
        for k in range(num_listed + 1):
            place = listed[start[row] + k] - offset if k < num_listed else own
            is_counted = 0 <= place < len(line) and not (len(marks) and marks[place])
            if not is_counted or (k < num_listed and place == own):
                continue
            key = key_of(line[place], infinity)
            number -= 1
            below -= key < limit
            above -= key > limit
            nan -= is_nan(key, infinity)
        # cells that are neither below nor above are tied or NaN; NaN of halves is above
        if infinity or below + above < number:
            nan += _num_nan(line, marks, infinity)
        else:
            nan = 0  # only cells that were left out are NaN
        if not infinity:
            above += nan
        out[0, i] = above
        out[1, i] = number - below
        out[2, i] = number
        out[3, i] = nan
        if is_nan(limit, infinity):
            out[0, i] = out[1, i] = number
            out[3, i] += 1
