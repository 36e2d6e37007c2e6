"""Counting against an interval instead of a score, and products of single pairs, in plain torch on any device."""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import chosen

_PAIRS = 1 << 18  # numbers gathered at once


class IntervalCounter:
    """Counts cells above and inside the intervals (row, low, high) of T tasks; lists up to ``limit`` cells inside."""

    def __init__(self, tasks: Sequence[Tensor], limit: int) -> None:
        self._row, self._low, self._high = tasks
        self._limit = limit
        self._above, self._inside = torch.zeros_like(self._row), torch.zeros_like(self._row)
        self._listed = [(self._row[:0], self._row[:0])]

    def add(self, cells: Tensor, left: int) -> None:
        """Count a block (rows, n) of float32 or float64 without NaN, whose first column is ``left``."""
        lines, low, high = cells[self._row], self._low[:, None], self._high[:, None]
        flag = torch.empty(lines.shape, dtype=torch.float32, device=cells.device)  # sums of floats are fast
        above = torch.gt(lines, high, out=flag).sum(1).long()
        inside = torch.ge(lines, low, out=flag).sum(1).long() - above
        self._above += above
        self._inside += inside
        few = ((inside > 0) & (self._inside <= self._limit)).nonzero()[:, 0]
        place, column = ((lines[few] >= low[few]) & (lines[few] <= high[few])).nonzero().unbind(1)
        self._listed.append((few[place], column + left))

    def found(self) -> tuple[Tensor, ...]:
        """Cells above and inside so far, int64 (T,); and the listed cells: task and column, int64 (n,)."""
        task, column = (torch.cat(part) for part in zip(*self._listed, strict=True))
        keep = self._inside[task] <= self._limit
        return self._above, self._inside, task[keep], column[keep]


counter = IntervalCounter


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Products of the pairs queries[row], candidates[column], summed in float64: (n,)."""
    out = torch.empty(len(row), dtype=torch.float64, device=queries.device)
    step = max(1, _PAIRS // max(queries.shape[1], 1))
    for part, rows, columns in zip(*(torch.split(x, step) for x in (out, row, column)), strict=True):
        torch.sum(queries[rows].double() * candidates[columns].double(), 1, out=part)
    return out


def choose_intervals(scores: Tensor, backend: str = "auto") -> ModuleType:
    """Choose how exact ranks are counted, by this module, or compiled, which also counts in int8."""
    if chosen(scores, backend) == "torch":
        return sys.modules[__name__]
    return importlib.import_module("torchrankmetrics.ranking.exact.kernels")  # late: numba takes half a second
