"""Count with several targets a row, compiled by Numba: a row is read once for all of them."""

from typing import Any

import numba
import numpy as np
from numba.extending import overload

from torchrankmetrics.ranking.counting.numba_one import is_nan, key_of

# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="no-any-return,attr-defined,call-overload"

# cells that stay in the cache while all targets of a row are compared; 16-bit counters hold as many
_BLOCK = 1 << 14
_FEW = 64  # bytes of the targets of a row: above, most cells are counted by bucket
# targets of a row: above, a search for each other cell is faster than a comparison with each target
_MANY = 80
_BUCKETS = 1 << 11  # of equal width, from the least target of a row to the largest
_SIFTED = 128  # keys whose buckets are looked up at a time


@numba.njit(nogil=True)
def _read(cells, infinity, marks, buffer):
    """Read the keys of the cells that are not marked into the buffer, and count them."""
    if len(marks) == 0:
        for j in range(len(cells)):
            buffer[j] = key_of(cells[j], infinity)
        return len(cells)
    n = np.uint64(0)  # unsigned: an index below zero would be looked for
    for j in range(len(cells)):  # written always, overwritten if it is marked
        buffer[n] = key_of(cells[j], infinity)
        n += np.uint64(1 - marks[j])
    return int(n)


def _compare(keys, begin, end, limits, first, last, sign, out):
    """Add how many keys [begin, end) are below and above limits [first, last) to out.

    NaN of floats is neither. Returns how many are below or above the last of these limits.
    """


@overload(_compare)
def _choose_compare(keys, begin, end, limits, first, last, sign, out):
    # counters as wide as the keys, or else the loop does not vectorize
    integer: Any = {16: np.int16, 64: np.int64}.get(keys.dtype.bitwidth, np.int32)

    def compare(keys, begin, end, limits, first, last, sign, out):
        # four places to read from at once, for which a core waits less than for one; and up to
        # three keys that remain
        keys = keys[begin:end]
        n = (end - begin) // 4
        p = keys[:n]
        q = keys[n : 2 * n]
        r = keys[2 * n : 3 * n]
        s = keys[3 * n :]
        for i in range(first, last):
            limit = limits[i]
            below = integer(0)
            above = integer(0)
            for j in range(n):
                for key in (p[j], q[j], r[j], s[j]):
                    below = integer(below + integer(key < limit))
                    above = integer(above + integer(key > limit))
            for key in keys[4 * n :]:
                below = integer(below + integer(key < limit))
                above = integer(above + integer(key > limit))
            out[0, i] += sign * below
            out[1, i] += sign * above
        return int(below) + int(above)

    return compare


@numba.njit(nogil=True, cache=True)
def _num_nan(keys, infinity):
    nan = np.int32(0)
    for j in range(len(keys)):  # by an index, or else the loop does not vectorize
        nan = np.int32(nan + np.int32(is_nan(keys[j], infinity)))
    return int(nan)


@numba.njit(nogil=True, cache=True)
def _bucket(key, infinity, least, scale):
    """Number in [0, _BUCKETS + 1] that never falls when the key grows; _BUCKETS + 2 for NaN."""
    place = (np.float32(key) - least) * scale + np.float32(1)
    place = place if place < np.float32(_BUCKETS + 1) else np.float32(_BUCKETS + 1)
    return np.int32(place if place > np.float32(0) else np.float32(0)) + np.int32(
        is_nan(key, infinity)
    )


@numba.njit(nogil=True, cache=True)
def _begin_search(limits, infinity, search):
    """Sort limits, fill them up to a power of two, and mark their buckets.

    Returns the number of limits that are not NaN, this power, and whether most cells can be counted
    by bucket.
    """
    ordered, between, line, occupied, counts = search
    number = len(limits)
    size = 2
    # an assignment to a slice takes four seconds more to compile
    for i, limit in enumerate(np.sort(limits)):
        ordered[i] = limit
    while number and is_nan(ordered[number - 1], infinity):
        number -= 1
    while size <= number:
        size *= 2
    ordered[number:size] = ordered[max(number - 1, 0)]
    between[: 2 * number + 1] = 0
    least = np.float32(ordered[0])
    line[:] = 0
    occupied[:] = 0
    counts[:] = 0
    distinct = 0
    width = np.float32(ordered[max(number - 1, 0)]) - least
    # of more targets, few buckets would be without one
    if number <= _BUCKETS // 4 and 1e-30 < width < np.inf:
        scale = np.float32(_BUCKETS - 1) / width
        occupied[-1] = 1
        for i in range(number):
            bucket = _bucket(ordered[i], infinity, least, scale)
            distinct += 1 - occupied[bucket]
            occupied[bucket] = 1
        # else most cells would be in buckets with limits, as limits are
        if 4 * distinct > 3 * number:
            line[0] = least
            line[1] = scale
    return number, size, line[1] > 0


@numba.njit(nogil=True, cache=True)
def _sift(keys, infinity, buckets, rest, are_many):
    """Count the keys in buckets without limits; write the others to rest; return how many.

    ``rest`` may be the memory of ``keys``.
    """
    (least, scale), occupied, counts = buckets
    places = np.empty(_SIFTED, np.int32)
    n = np.uint64(0)
    whole = len(keys) // 8 * 8
    for begin in range(0, whole, len(places)):
        some = keys[begin : min(begin + len(places), whole)]
        for j in range(len(some)):
            places[j] = _bucket(some[j], infinity, least, scale)
        for j in range(0, len(some), 8):
            found = np.uint32(0)  # a bit for each of eight keys
            for i in range(8):
                bucket = np.uint32(places[j + i])
                # two counters: a core would wait to add to one again
                counts[i % 2, bucket] += np.int32(1)
                found |= np.uint32(occupied[bucket]) << np.uint32(i)
            # a core would predict wrongly whether one of eight is found, if many are
            if are_many or found:
                for i in range(8):  # written always, overwritten if its bucket has no limit
                    rest[n] = some[j + i]
                    n += np.uint64(found >> np.uint32(i) & np.uint32(1))
    for key in keys[whole:]:
        rest[n] = key
        n += np.uint64(1)
    return int(n)


@numba.njit(nogil=True, cache=True)
def _search(keys, number, size, sign, search):
    """Add how many keys lie below limit i, to between[2i], and equal it, to between[2i + 1]."""
    ordered, between = search
    places = np.zeros(len(keys), np.uint32)
    step = np.uint32(size // 2)
    while step:  # one step of a bisection for all keys, which vectorizes
        last = np.uint32(step - np.uint32(1))
        for j in range(len(keys)):
            places[j] += step * np.uint32(not (keys[j] <= ordered[places[j] + last]))
        step = np.uint32(step >> np.uint32(1))
    for j in range(len(keys)):
        place = min(np.int64(places[j]), number)  # NaN is beyond all limits
        between[2 * place + (place < number and ordered[place] == keys[j])] += sign


@numba.njit(nogil=True, cache=True)
def _finish_search(limits, number, infinity, nan, search, out):
    """Add the keys in buckets and between limits to those below and above each limit."""
    ordered, between, (least, scale), occupied, counts = search
    last = 0
    for i in range(number + 1 if scale > 0 else 0):
        bucket = _bucket(ordered[i], infinity, least, scale) if i < number else len(occupied) - 1
        between[2 * i] += counts[0, last:bucket].sum() + counts[1, last:bucket].sum()
        last = bucket + 1
    total = between[: 2 * number + 1].cumsum()
    for i in range(len(limits)):
        place = np.searchsorted(ordered[:number], limits[i])
        if place < number:
            out[0, i] += total[2 * place]
            out[1, i] += total[-1] - nan - total[2 * place + 1]


@numba.njit(nogil=True, cache=True)
def count_several(scores, tasks, lists, excluded, out, first, last):
    """Count the tasks [first, last) into out (4, P).

    Row by row: read the true scores of its tasks; count its cells, a block at a time; subtract its
    excluded columns, a block at a time; then leave out the target of each task.
    """
    # one function: counting the references of arrays that are passed takes as long as a short row
    cells, step, borders, width, infinity = scores
    gone, gone_step = excluded
    infinity = np.int16(infinity)
    true, rows, columns = tasks
    start, length, listed, offset = lists

    limits = np.full(last, key_of(cells[0], infinity))
    few = _FEW // limits.itemsize
    buffer = np.empty(_BLOCK, limits.dtype)
    most = last - first if last - first > few else 0
    search = np.empty(2 * most + 2, limits.dtype), np.empty(2 * most + 1, np.int64)
    buckets = (
        np.empty(2, np.float32),
        np.empty(_BUCKETS + 3, np.uint8),
        np.empty((2, _BUCKETS + 3), np.int32),
    )
    known = np.zeros(width // 64 + 1 if len(length) else 0, np.int64)  # a bit for each column

    while first < last:
        # the tasks [first, end) of a row, its cells, and its excluded columns
        row = rows[first] if len(rows) else first
        end = first + 1
        while end < last and len(rows) and rows[end] == row:
            end += 1
        line = row * step
        marks = row * gone_step
        right = width
        if len(borders):
            line = marks = borders[row]
            right = borders[row + 1] - line
        known_first, num_known = (start[row], length[row]) if len(length) else (0, 0)
        is_searched = end - first > _MANY

        for i in range(first, end):
            limits[i] = key_of(true[i] if len(true) else cells[line + columns[i]], infinity)
        own = columns[end - 1] if len(columns) else -1
        is_tied = 0 <= own < right and key_of(cells[line + own], infinity) == limits[end - 1]
        own = own if is_tied and not (len(gone) and gone[marks + own]) else -1

        size = 0
        number = 0
        nan = 0
        left = 0
        in_buckets = False
        if end - first > (few if width > _BUCKETS else _MANY):  # clearing buckets takes time
            num_limits, size, in_buckets = _begin_search(
                limits[first:end], infinity, search + buckets
            )

        # cells are added in [0, right), and excluded ones subtracted in [right, right + num_known)
        while left < right + num_known:
            in_place = left < right and not len(gone) and not infinity
            if left < right:
                sign = 1
                until = min(left + _BLOCK, right)
                begin = line + left
                n = until - left
                if not in_place:
                    begin = 0
                    hidden = gone[marks + left : marks + until]
                    n = _read(cells[line + left : line + until], infinity, hidden, buffer)
            else:
                sign = -1
                until = min(left + _BLOCK, right + num_known)
                begin = 0
                n = 0
                for i in range(known_first + left - right, known_first + until - right):
                    place = listed[i] - offset
                    if 0 <= place < right:
                        known[place >> 6] |= 1 << (place & 63)
                        if not (len(gone) and gone[marks + place]):
                            buffer[n] = key_of(cells[line + place], infinity)
                            n += 1
            number = number + sign * n
            differ = 0
            if in_buckets and sign > 0:
                keys = cells[begin : begin + n] if in_place else buffer[:n]
                n = _sift(keys, infinity, buckets, buffer, is_searched)
                begin = 0
                in_place = False
            if is_searched:
                _search(
                    cells[begin : begin + n] if in_place else buffer[:n],
                    num_limits,
                    size,
                    sign,
                    search,
                )
            # not by one array of either: counting its references takes as long as a short row
            elif in_place:
                differ = _compare(cells, begin, begin + n, limits, first, end, sign, out)
            else:
                differ = _compare(buffer, 0, n, limits, first, end, sign, out)
            rest = n if infinity else n - differ - (left <= own < until)
            # what is neither below nor above is tied or NaN: only then another look is worth its
            # time
            if rest > 0:
                keys = cells[begin : begin + n] if in_place else buffer[:n]
                nan += sign * _num_nan(keys, infinity)
            left = until

        apart = 0 if infinity else nan  # NaN of halves are counted as above
        if size:
            searched = apart if is_searched else 0
            _finish_search(
                limits[first:end],
                num_limits,
                infinity,
                searched,
                search + buckets,
                out[:2, first:end],
            )

        # from counts of all cells to those without the target of each task
        for i in range(first, end):
            others = number
            low = out[0, i]
            high = number - apart - out[1, i]
            nans = nan
            column = columns[i] if len(columns) else -1
            is_candidate = 0 <= column < right and not (len(gone) and gone[marks + column])
            # which is left out
            if is_candidate and not (num_known and known[column >> 6] >> (column & 63) & 1):
                key = key_of(cells[line + column], infinity)
                others -= 1
                low -= key < limits[i]
                high -= key <= limits[i]
                nans -= is_nan(key, infinity)
            if is_nan(limits[i], infinity):  # which nothing is below
                low = 0
                high = 0
                nans = nans + 1
            out[0, i] = others - high
            out[1, i] = others - low
            out[2, i] = others
            out[3, i] = nans
        if num_known:
            known[:] = 0
        first = end
