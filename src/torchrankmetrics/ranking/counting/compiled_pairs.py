"""Products of single pairs, compiled by Numba for the CPU; as ``plain_intervals``."""
# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"

from itertools import pairwise

import numba
import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting.plain_intervals import Form, Sought
from torchrankmetrics.ranking.counting.threads import cuts, side_by_side

_PER_THREAD = 1 << 9  # pairs that are worth a thread
_CACHE = 1 << 18  # bytes of candidates that pairs are compared with at once
_WIDE = 128  # numbers in a candidate from where on that pays


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """As ``plain_intervals.products``."""
    out = np.empty(len(row))
    given = queries.numpy(), candidates.numpy(), row.numpy(), column.numpy(), out
    parts = cuts(len(row), len(row) // _PER_THREAD)
    side_by_side(_products, [(*given, *piece) for piece in pairwise(parts)])
    return torch.from_numpy(out)


def compare(
    queries: Tensor, candidates: Tensor, form: Form, tasks: Sought, entry: Tensor, column: Tensor, single: bool = False
) -> tuple[Tensor, Tensor]:
    """As ``plain_intervals.compare``; ``single``: products are summed in float32, for intervals of that precision."""
    scale, shift = (np.empty(0) if part is None else part.numpy() for part in form)
    given = queries.numpy(), candidates.numpy(), scale, shift, *(part.numpy() for part in tasks)
    pairs = entry.numpy(), column.numpy(), single
    pieces = list(pairwise(cuts(len(entry), len(entry) // _PER_THREAD)))
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
