"""Counting against an interval instead of a score, and products of single pairs, in plain torch on any device."""

import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import chosen

_PAIRS = 1 << 18  # numbers gathered at once


class Between(NamedTuple):
    """Numbers of cells above and inside the interval of each task, int64 (T,), and a list of the latter.

    Attributes:
        above: int64 (T,).
        inside: int64 (T,).
        task: int64 (n,), of each cell that is listed, by its place among the tasks.
        column: int64 (n,).
        complete: whether all cells inside are listed, or only the cells of tasks with few.
    """

    above: Tensor
    inside: Tensor
    task: Tensor
    column: Tensor
    complete: bool

    def of(self, selected: Tensor) -> "Between":
        """The same of some of the tasks, bool (T,)."""
        keep = selected[self.task]
        place = (selected.cumsum(0) - 1)[self.task[keep]]
        return Between(self.above[selected], self.inside[selected], place, self.column[keep], self.complete)


class Form(NamedTuple):
    """Map from products to scores: a number (n,) of each candidate to divide by, and one to add; None: neither."""

    length: Tensor | None
    bias: Tensor | None


class PairTasks(NamedTuple):
    """Tasks as pairs are compared for: their rows, own columns (int64), and intervals in float64, (T,) each."""

    row: Tensor
    own: Tensor
    low: Tensor
    high: Tensor


class ErrorBounds(NamedTuple):
    """Bounds of int8 products for each task, float32 (T,); ``exact.kernels`` has the formula.

    All in steps of the query's int8 scale: the true score, one, and the factors of the errors of a column.
    """

    true: Tensor
    step: Tensor
    by_error: Tensor
    by_norm: Tensor
    slack: Tensor


class ColumnBounds(NamedTuple):
    """Bounds for each column, float32 (n,), in steps of its int8 scale: one, bounds of rounding and norm, a bias."""

    unit: Tensor
    error: Tensor
    norm: Tensor
    shift: Tensor | None


class IntervalBackend(NamedTuple):
    """A way to count: this module, or the same compiled, which also rounds to int8."""

    counter: Callable[..., "IntervalCounter"]
    products: Callable[..., Tensor]
    compare: Callable[..., tuple[Tensor, Tensor]]
    rounded_to_int8: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]] | None = None


class IntervalCounter:
    """Counts the cells of each task's row above [low, high] and inside, one block of columns after the other.

    Args:
        tasks: (row, low, high) of T tasks: int64 row of the cells, and interval in their dtype.
        limit: tasks with more cells inside need not be listed.
        spare: limit of the cells of all such tasks together; beyond it, `found` lists none of them.
    """

    def __init__(self, tasks: Sequence[Tensor], limit: int, spare: int = 0) -> None:
        self._row, self._low, self._high = tasks
        self._limit, self._spare = limit, spare
        self._above, self._inside = torch.zeros_like(self._row), torch.zeros_like(self._row)
        self._listed: list[tuple[Tensor, Tensor]] = []

    def add(self, cells: Tensor, left: int) -> None:
        """Count a block (rows, n) of float32 or float64 without NaN, whose first column is ``left``."""
        lines, low, high = cells[self._row], self._low[:, None], self._high[:, None]
        flag = torch.empty(lines.shape, dtype=torch.float32, device=cells.device)  # sums of floats are fast
        above = torch.gt(lines, high, out=flag).sum(1).long()
        inside = torch.ge(lines, low, out=flag).sum(1).long() - above
        self._above += above
        self._inside += inside
        beyond = self._inside > self._limit
        self._spare -= int(inside[beyond].sum())
        some = (inside > 0) & (~beyond | (self._spare >= 0))
        few = some.nonzero()[:, 0]
        place, column = ((lines[few] >= low[few]) & (lines[few] <= high[few])).nonzero().unbind(1)
        self._listed.append((few[place], column + left))

    def found(self) -> Between:
        """Return the counts so far."""
        listed = self._listed or [(self._row[:0], self._row[:0])]
        task, column = (torch.cat(part) for part in zip(*listed, strict=True))
        if self._spare < 0:
            keep = self._inside[task] <= self._limit
            task, column = task[keep], column[keep]
        return Between(self._above, self._inside, task, column, self._spare >= 0)


def products(queries: Tensor, candidates: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Products of the pairs queries[row], candidates[column], summed in float64: (n,)."""
    out = torch.empty(len(row), dtype=torch.float64, device=queries.device)
    step = max(1, _PAIRS // max(queries.shape[1], 1))
    for part, rows, columns in zip(*(torch.split(x, step) for x in (out, row, column)), strict=True):
        torch.sum(queries[rows].double() * candidates[columns].double(), 1, out=part)
    return out


def compare(
    queries: Tensor, candidates: Tensor, form: Form, tasks: PairTasks, entry: Tensor, column: Tensor
) -> tuple[Tensor, Tensor]:
    """Compare single pairs in float64 with the intervals of their tasks.

    Args:
        queries: (B, d) float32 or float64.
        candidates: (n, d), of the same dtype.
        form: how a score is made of a product.
        tasks: some tasks.
        entry: int64 (m,), the task of each pair, by its place among them.
        column: int64 (m,), the candidate.

    Returns:
        How many candidates are above the interval of each task, int64; and which pairs are inside, bool (m,). The own
        column of a task is neither.
    """
    scores = products(queries, candidates, tasks.row[entry], column)
    if form.length is not None:
        scores /= form.length[column]
    if form.bias is not None:
        scores += form.bias[column]
    other = column != tasks.own[entry]
    above = other & (scores > tasks.high[entry])
    number = torch.zeros_like(tasks.row).index_add_(0, entry, above.long())
    return number, other & ~above & ~(scores < tasks.low[entry])


def choose_intervals(scores: Tensor, backend: str = "auto") -> IntervalBackend:
    """Choose how exact ranks are counted; errors as ``chosen``."""
    if chosen(scores, backend) == "torch":
        return IntervalBackend(IntervalCounter, products, compare)
    kernels = importlib.import_module("torchrankmetrics.ranking.exact.kernels")  # late: numba takes half a second
    return IntervalBackend(kernels.CompiledIntervalCounter, kernels.products, kernels.compare, kernels.rounded_to_int8)
