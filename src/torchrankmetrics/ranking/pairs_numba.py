"""The functions of ``pairs``, compiled by Numba on several threads: the same bits."""

import numba
import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting.numba_backend import side_by_side
from torchrankmetrics.ranking.pairs import PRODUCT, SQUARE

# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"

_PER_THREAD = 1 << 18  # cells that are worth a thread
_PAIRS_PER_THREAD = 1 << 9
_DISTANCES_PER_THREAD = 1 << 22  # terms
_GROUP = 16  # cells that are listed if one of them is open
_TILE = 512  # candidates whose columns stay in the cache for all queries


def sums_of_pairs(
    queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor, terms: int
) -> Tensor:
    """As ``pairs.sums_of_pairs``."""
    sums = np.empty(len(row))
    given = queries.numpy(), candidates.numpy(), row.numpy(), column.numpy(), terms, sums
    side_by_side(_sum, len(row), len(row) // _PAIRS_PER_THREAD, *given)
    return torch.from_numpy(sums)


def negative_distances(queries: Tensor, candidates: Tensor, out: Tensor) -> Tensor:
    """As ``pairs.negative_distances``."""
    B = queries.shape[0]
    (n, d) = candidates.shape
    given = queries.numpy(), candidates.numpy(), out.numpy()
    side_by_side(_distances, B, min(B, B * n * d // _DISTANCES_PER_THREAD), *given)
    return out


def count_open(scores: Tensor, place: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """As ``pairs.count_open``."""
    totals = np.empty((2, len(place)), np.int64)
    threads = len(place) * scores.shape[1] // _PER_THREAD
    given = scores.numpy(), place.numpy(), low.numpy(), high.numpy(), totals
    side_by_side(_count, len(place), threads, *given)
    return torch.from_numpy(totals[0]), torch.from_numpy(totals[1])


def list_open(
    scores: Tensor, place: Tensor, low: Tensor, high: Tensor, num_open: Tensor
) -> tuple[Tensor, Tensor]:
    """As ``pairs.list_open``."""
    number = num_open.numpy()
    starts = number.cumsum() - number
    found = np.empty((2, int(number.sum())), np.int64)
    threads = len(place) * scores.shape[1] // _PER_THREAD
    given = scores.numpy(), place.numpy(), low.numpy(), high.numpy(), number, starts, found
    side_by_side(_list, len(place), threads, *given)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


@numba.njit(nogil=True, cache=True)
def _sum(queries, candidates, row, column, terms, sums, first, last):
    values = np.zeros(max(queries.shape[1], 1))
    for i in range(first, last):
        q = queries[row[i]]
        e = candidates[column[i]]
        if terms == PRODUCT:
            for k in range(q.shape[0]):
                values[k] = np.float64(q[k]) * np.float64(e[k])
        elif terms == SQUARE:
            for k in range(q.shape[0]):
                apart = np.float64(q[k]) - np.float64(e[k])
                values[k] = apart * apart
        else:
            for k in range(q.shape[0]):
                values[k] = abs(np.float64(q[k]) - np.float64(e[k]))
        width = q.shape[0]
        while width > 1:
            half = (width + 1) // 2
            upper = values[half:width]  # a slice: its loop vectorizes
            for k in range(upper.shape[0]):
                values[k] += upper[k]
            width = half
        sums[i] = values[0]


@numba.njit(nogil=True, cache=True)
def _count(scores, place, low, high, totals, first, last):
    for task in range(first, last):
        line = scores[place[task]]
        above = np.int32(0)  # sums of int64 are not vectorized
        below = np.int32(0)
        for j in range(line.shape[0]):
            above = np.int32(above + np.int32(line[j] > high[task]))
            below = np.int32(below + np.int32(line[j] < low[task]))
        totals[0, task] = above
        totals[1, task] = line.shape[0] - above - below


@numba.njit(nogil=True, cache=True)
def _list(scores, place, low, high, number, starts, found, first, last):
    for task in range(first, last):
        if not number[task]:
            continue
        n = starts[task]
        line = scores[place[task]]
        for begin in range(0, line.shape[0], _GROUP):
            group = line[begin : begin + _GROUP]
            some = np.int32(0)
            for j in range(group.shape[0]):
                some = np.int32(
                    some + np.int32(not (group[j] > high[task] or group[j] < low[task]))
                )
            for j in range(group.shape[0] if some else 0):
                if not (group[j] > high[task] or group[j] < low[task]):
                    found[0, n] = task
                    found[1, n] = begin + j
                    n += 1


@numba.njit(nogil=True, cache=True)
def _distances(queries, candidates, out, first, last):
    """Write -|q - e|_1 of the queries [first, last) and all candidates to out, tile by tile.

    A tile is transposed, so that the loop over its candidates vectorizes; it adds four dimensions
    at a time.
    """
    d = queries.shape[1]
    columns = np.zeros((d + 3) // 4 * 4 * _TILE, candidates.dtype).reshape(-1, _TILE)
    query = np.zeros(columns.shape[0], queries.dtype)  # zeros fill up the last four dimensions
    for left in range(0, len(candidates), _TILE):
        width = min(_TILE, len(candidates) - left)
        for j in range(width):  # an assignment to a slice takes four seconds more to compile
            for k in range(d):
                columns[k, j] = candidates[left + j, k]
        for i in range(first, last):
            for k in range(d):
                query[k] = queries[i, k]
            line = out[i, left : left + width]
            for j in range(width):
                line[j] = 0
            for k in range(0, d, 4):
                p = query[k : k + 4]
                a = columns[k]
                b = columns[k + 1]
                c = columns[k + 2]
                e = columns[k + 3]
                for j in range(width):
                    line[j] -= abs(a[j] - p[0]) + abs(b[j] - p[1])
                    line[j] -= abs(c[j] - p[2]) + abs(e[j] - p[3])
