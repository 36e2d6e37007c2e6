"""Float64 sums of single pairs by one fixed routine, and the search for the pairs that need them.

This is plain torch for any device; ``pairs_numba`` has the same functions, compiled. The sum of a
pair depends on its query and its candidate alone: d terms are added by halves, the second half onto
the first, until one number is left. Only IEEE additions, subtractions and multiplications are used,
so that every backend returns the same bits.
"""

import torch
from torch import Tensor

PRODUCT, SQUARE, DISTANCE = range(3)  # terms q e, (q - e)^2 and |q - e|
_NUMBERS = 1 << 16  # read at once on a CPU: the terms stay in the cache
_NUMBERS_ACCELERATOR = 1 << 24


def sums_of_pairs(
    queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor, terms: int
) -> Tensor:
    """Sum the terms of queries[row] and candidates[column], each (n, d): float64 (n,)."""
    sums = torch.empty(len(row), dtype=torch.float64, device=row.device)
    numbers = _NUMBERS if row.is_cpu else _NUMBERS_ACCELERATOR
    step = max(1, numbers // max(1, queries.shape[1]))
    for first in range(0, len(row), step):
        some = slice(first, first + step)
        values = queries.index_select(0, row[some]).double()
        others = candidates.index_select(0, column[some])
        if terms == PRODUCT:
            values *= others
        elif terms == SQUARE:
            values -= others
            values *= values
        else:
            values -= others
            values.abs_()
        sums[some] = _added_by_halves(values)
    return sums


def _added_by_halves(values: Tensor) -> Tensor:
    """Add the second half of each row (n, d) onto its first half until one number is left: (n,)."""
    while values.shape[1] > 1:
        half = (values.shape[1] + 1) // 2
        values[:, : values.shape[1] - half] += values[:, half:]
        values = values[:, :half]
    return values.sum(1)


def negative_distances(queries: Tensor, candidates: Tensor, out: Tensor) -> Tensor:
    """Write -sum |q - e| of all pairs, in any order of additions, into out (B, n)."""
    return torch.neg(torch.cdist(queries, candidates, p=1), out=out)


def count_open(scores: Tensor, place: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Count the scores above ``high`` in row ``place`` of each task, and the open ones: int64 (P,).

    Open is a score that is neither above ``high`` nor below ``low``, so a NaN too.
    """
    lines = scores[place]
    flags = torch.empty(lines.shape, dtype=torch.float32, device=lines.device)  # summed fast
    above = torch.gt(lines, high[:, None], out=flags).sum(1).long()
    below = torch.lt(lines, low[:, None], out=flags).sum(1).long()
    return above, lines.shape[1] - above - below


def list_open(
    scores: Tensor, place: Tensor, low: Tensor, high: Tensor, num_open: Tensor
) -> tuple[Tensor, Tensor]:
    """List the open cells that ``count_open`` counted: task and column, int64 (n,) each."""
    some = num_open.nonzero()[:, 0]
    lines = scores[place[some]]
    decided = (lines > high[some, None]) | (lines < low[some, None])
    task, column = (~decided).nonzero().unbind(1)
    return some[task], column
