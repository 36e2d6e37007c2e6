"""Counting against an interval instead of a score, and products of single pairs, in plain torch on any device."""

import importlib
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import chosen

Blocks = Iterable[tuple[Tensor, int]]
"""Cells (rows, n) of some columns, and the first of these."""
_PAIRS = 1 << 18  # numbers gathered at once


def count_intervals(blocks: Blocks, tasks: Sequence[Tensor], limit: int) -> tuple[Tensor, ...]:
    """Count the cells above and inside the intervals (row, low, high) of T tasks, int64 (T,); list the cells inside.

    Blocks are cells (rows, n) of float32 or float64 without NaN, with their first column. The task
    and the column of listed cells are int64 (n,); cells of a task are listed if there are at most
    ``limit``.
    """
    row, low, high = tasks[0], tasks[1][:, None], tasks[2][:, None]
    above, inside, listed = torch.zeros_like(row), torch.zeros_like(row), [(row[:0], row[:0])]
    for cells, left in blocks:
        lines = cells[row]
        # sums of floats are fast
        flag = torch.empty(lines.shape, dtype=torch.float32, device=cells.device)
        over = torch.gt(lines, high, out=flag).sum(1).long()
        between = torch.ge(lines, low, out=flag).sum(1).long() - over
        above += over
        inside += between
        few = ((between > 0) & (inside <= limit)).nonzero()[:, 0]
        place, column = ((lines[few] >= low[few]) & (lines[few] <= high[few])).nonzero().unbind(1)
        listed.append((few[place], column + left))
    task, column = (torch.cat(part) for part in zip(*listed, strict=True))
    keep = inside[task] <= limit
    return above, inside, task[keep], column[keep]


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Products of the pairs queries[row], candidates[column], summed in float64: (n,)."""
    out = torch.empty(len(row), dtype=torch.float64, device=queries.device)
    step = max(1, _PAIRS // max(queries.shape[1], 1))
    for part, rows, columns in zip(
        *(torch.split(x, step) for x in (out, row, column)), strict=True
    ):
        torch.sum(queries[rows].double() * candidates[columns].double(), 1, out=part)
    return out


def choose_intervals(scores: Tensor, backend: str = "auto") -> ModuleType:
    """Choose how exact ranks are counted, by this module, or compiled, which also counts in int8."""
    if chosen(scores, backend) == "torch":
        return sys.modules[__name__]
    # late: numba takes half a second
    return importlib.import_module("torchrankmetrics.ranking.exact.kernels")
