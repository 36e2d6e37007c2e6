"""Ranks by exact arithmetic: each precision counts what its error bound decides, and leaves the rest to the next.

Whatever the precisions, the tiles, the threads and the order of a sum: what is counted is certain, so the ranks are
always the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified import problem as sizes
from torchrankmetrics.ranking.certified.pairs import Pairs
from torchrankmetrics.ranking.certified.problem import Problem, Tally
from torchrankmetrics.ranking.certified.specials import count_specials
from torchrankmetrics.ranking.certified.tiles import BFLOAT16, FLOAT64, Tile
from torchrankmetrics.ranking.certified.truth import Truth
from torchrankmetrics.ranking.counting.intervals import Between

# a task with more open candidates in a tile than one in so many, or so few at all, is left to the next precision
_FEW, _LEAST = 64, 16
_AGAIN = 16  # tiles after which the first precision is tried again


class _Block(NamedTuple):
    """Rows [first, last) of the queries and their tasks [begin, end)."""

    first: int
    last: int
    begin: int
    end: int


class Cascade:
    """Exact counts.

    Args:
        problem: what is to be ranked.
        tiles: slices of the candidates, in order, of at most ``width`` candidates.
        width: as said.
        precisions: of the products, the last of them float64.
    """

    def __init__(self, problem: Problem, tiles: Iterable[Tile], width: int, precisions: Sequence[torch.dtype]) -> None:
        self._problem, self._tiles, self._width, self._precisions = problem, tiles, width, precisions
        self._tally, self._truth = Tally(problem.row), Truth(problem)
        self._pairs = Pairs(problem, self._truth, self._tally)
        self._start = torch.zeros_like(problem.row)  # the first precision that is worth it for a task
        self._buffers: dict[torch.dtype, Tensor] = {}

    def counts(self) -> Tensor:
        """As ``counting.plain.count`` of the exact scores: int64 (4, P)."""
        blocks = list(self._blocks())
        for number, tile in enumerate(self._tiles):
            if number % _AGAIN == 0:
                self._start.zero_()
            count_specials(self._problem, self._truth.kind, self._tally, number, tile)
            for block in blocks:
                self._count_block(number, tile, block)
        self._pairs.finish()
        tally, kind, others = self._tally, self._truth.kind, self._problem.left_out.others
        # a true score that is no finite number is above all of them or below
        above = tally.above + (others - tally.special) * ~(kind > -torch.inf)
        return torch.stack([above, above + tally.tied, others, tally.nan + kind.isnan()])

    def _blocks(self) -> Iterator[_Block]:
        B, row = len(self._problem.queries.given), self._problem.row
        edges = [*range(0, B, max(1, sizes.CELLS // self._width)), B]
        border = torch.searchsorted(row, torch.tensor(edges, device=row.device)).tolist()
        for i in range(len(edges) - 1):
            if border[i] < border[i + 1]:
                yield _Block(edges[i], edges[i + 1], border[i], border[i + 1])

    def _count_block(self, number: int, tile: Tile, block: _Block) -> None:
        task = torch.arange(block.begin, block.end, device=self._start.device)
        ordinary = self._truth.kind[block.begin : block.end] == 0
        if not bool(ordinary.all()):
            task = task[ordinary]
        for level, dtype in enumerate(self._precisions):
            if not len(task):
                return
            ready = (self._start[task] <= level) & self._truth.error(tile, dtype)[task].isfinite()
            now, task = (task, task[:0]) if bool(ready.all()) else (task[ready], task[~ready])
            if len(now):
                open_ = self._count_tasks(number, tile, block, now, dtype)
                self._start[open_] = level + 1
                task = torch.cat([task, open_])
        for one in task.tolist():  # not even float64 holds their scores
            self._decide_all(number, tile, one)

    def _count_tasks(self, number: int, tile: Tile, block: _Block, task: Tensor, dtype: torch.dtype) -> Tensor:
        """Count in one precision; the tasks that are left to the next are returned."""
        scores, place = self._scores(number, tile, block, task, dtype)
        low, high = self._truth.interval(tile, dtype)
        limit = _limit(tile)
        found = self._problem.intervals.between(scores, place, low[task], high[task], limit)
        many = found.inside > limit
        if dtype != BFLOAT16:
            # what is equal where nothing is rounded is tied
            exact = self._truth.error(tile, dtype)[task] == 0
            if not self._truth.looked and bool((many & ~exact).any()):
                self._truth.look()  # there may be a reason for so many
                return self._count_tasks(number, tile, block, task, dtype)
            if bool(exact.any()):
                self._tally.tied.index_add_(0, task, (found.inside - self._own_inside(tile, task)) * exact)
                self._tally.above.index_add_(0, task, found.above * exact)
                task, place, keep = task[~exact], place[~exact], ~exact[found.task]
                entry = ((~exact).cumsum(0) - 1)[found.task[keep]]
                found = found._replace(
                    above=found.above[~exact], inside=found.inside[~exact], task=entry, column=found.column[keep]
                )
                many = many[~exact]
        self._tally.above.index_add_(0, task, found.above * ~many)
        span = slice(block.begin, block.end)
        self._pairs.decide(tile, span, task[found.task] - block.begin, found.column)
        last = dtype == FLOAT64
        if dtype == BFLOAT16 or not bool(many.any()) or (self._truth.group is None and not last):
            return task[many]
        left = []
        for some in torch.split(many.nonzero()[:, 0], max(1, sizes.CELLS // len(tile))):
            asked = task[some]
            found = self._problem.intervals.between(scores, place[some], low[asked], high[asked], len(tile))
            left.append(self._count_equal(tile, span, asked, found, last))
        return torch.cat(left)

    def _count_equal(self, tile: Tile, span: slice, task: Tensor, found: Between, last: bool) -> Tensor:
        """Count the open candidates that are equal to the true one; tasks with many beside them are returned."""
        entry, column = found.task, found.column
        own, group = task[entry], self._truth.group
        other = column + tile.left != self._problem.column[own]
        equal = torch.zeros_like(other)
        if group is not None:
            equal = group[column + tile.left] == group[self._problem.answers.among[own]]
        number = torch.bincount(entry[~equal], minlength=len(task))
        many = number > (len(tile) if last else _limit(tile))
        counted = other & ~many[entry]
        tied = task[entry[equal & counted]]
        self._tally.tied.index_add_(0, tied, torch.ones_like(tied))
        self._tally.above.index_add_(0, task, found.above * ~many)
        rest = ~equal & counted
        self._pairs.decide(tile, span, task[entry[rest]] - span.start, column[rest])
        return task[many]

    def _decide_all(self, number: int, tile: Tile, task: int) -> None:
        """All candidates of a tile as single pairs."""
        span = slice(task, task + 1)
        cells = torch.zeros(1, len(tile), device=self._start.device)
        self._fill(cells, number, tile, self._problem.row[span], 1.0)
        column = (cells[0] == 0).nonzero()[:, 0]
        self._pairs.decide(tile, span, torch.zeros_like(column), column)

    def _scores(
        self, number: int, tile: Tile, block: _Block, task: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Scores of the rows of some tasks, -inf where nothing is to be counted; and the row of each task in them."""
        row = self._problem.row[task]
        place, queries = row - block.first, self._problem.queries.rounded(dtype)[0][block.first : block.last]
        rows = torch.arange(block.first, block.last, device=row.device)
        if len(task) < block.end - block.begin:
            distinct, where = torch.unique(row, return_inverse=True)
            if len(distinct) < len(rows):
                rows, place, queries = distinct, where, queries[distinct - block.first]
        cells = len(rows) * len(tile)
        if dtype not in self._buffers or len(self._buffers[dtype]) < cells:
            self._buffers[dtype] = queries.new_empty(cells)
        scores = tile.scores(queries, self._buffers[dtype][:cells].view(len(rows), len(tile)))
        self._fill(scores, number, tile, rows, -torch.inf)
        return scores, place

    def _fill(self, cells: Tensor, number: int, tile: Tile, rows: Tensor, value: float) -> None:
        """Write a value where nothing is to be counted: excluded candidates, and those whose scores are special."""
        self._problem.left_out.fill(cells, number, slice(tile.left, tile.right), rows, value)
        if tile.special is not None:
            cells.index_fill_(1, tile.special, value)

    def _own_inside(self, tile: Tile, task: Tensor) -> Tensor:
        column = self._problem.column[task]
        inside = (column >= tile.left) & (column < tile.right)
        return (inside & ~self._problem.left_out.own[task]).to(torch.int64)


def _limit(tile: Tile) -> int:
    """How many open candidates are compared one by one: from here on another product costs less."""
    return max(_LEAST, len(tile) // _FEW)
