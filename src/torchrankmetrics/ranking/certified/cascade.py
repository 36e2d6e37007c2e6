"""Ranks by exact arithmetic: each precision counts what its error bound decides, and leaves the rest to the next.

Whatever the precisions, the tiles, the threads and the order of a sum: what is counted is certain, so the ranks are
always the same.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.bounds import error_bound, interval
from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.exact import Rational
from torchrankmetrics.ranking.certified.left_out import LeftOut
from torchrankmetrics.ranking.certified.queries import Queries
from torchrankmetrics.ranking.certified.specials import classes
from torchrankmetrics.ranking.certified.structure import grain_of
from torchrankmetrics.ranking.certified.tiles import FLOAT32, FLOAT64, Sizes, Tile
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.counting.intervals import Intervals
from torchrankmetrics.ranking.excluded import Excluded

_CELLS = 1 << 20  # scores computed at once
_TASKS = 1 << 12  # true scores computed at once
_FEW = 16  # a task is open in a tile if fewer than one in so many of its candidates are: else the next precision counts
_AGAIN = 16  # tiles after which the first precision is tried again for those tasks
_LOOK = 1 << 10  # pairs that float64 leaves open before the structure of the candidates is looked for
_PENDING = 1 << 20  # pairs that wait for the last level


class _Block(NamedTuple):
    """Rows [first, last) of the queries and their tasks [begin, end)."""

    first: int
    last: int
    begin: int
    end: int


class Cascade:
    """Exact counts of tasks in ascending order of their rows.

    Args:
        queries: (B, d) floats.
        candidates: of the same dtype.
        row: int64 (P,), ascending.
        column: int64 (P,).
        excluded: what is no candidate.
        similarity: "dot", "l2" or "cosine".
        width: candidates a tile.
        precisions: of the products, the last of them float64.
        intervals: how cells and pairs are counted.
        keep: whether the candidates keep what is worked out for their tiles.
        counting: how special scores are counted, as ``rank_scores`` takes it.
    """

    def __init__(
        self,
        queries: Tensor,
        candidates: Candidates,
        row: Tensor,
        column: Tensor,
        excluded: Excluded,
        *,
        similarity: str,
        width: int,
        precisions: Sequence[torch.dtype],
        intervals: Intervals,
        keep: bool,
        counting: str,
    ) -> None:
        self._candidates, self._similarity, self._width, self._keep = candidates, similarity, width, keep
        self._precisions, self._intervals, self._counting = precisions, intervals, counting
        self._row, self._column = row, column
        has_bias = similarity == "l2" or candidates.bias is not None
        self._queries = Queries(queries, has_bias)
        shape = (len(queries), len(candidates))
        self._out = LeftOut(excluded, row, column, shape, width)
        # better, tied and NaN candidates of each task
        self._above, self._tied, self._nan = (torch.zeros_like(row) for _ in range(3))
        self._special_seen = torch.zeros_like(row)
        self._start = torch.zeros_like(row)
        self._grain, self._group = 0.0, None
        self._looked = False
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._num_pending = 0
        self._buffers: dict[torch.dtype, Tensor] = {}

    def counts(self) -> Tensor:
        """As ``counting.plain.count`` of the exact scores: int64 (4, P)."""
        self._find_true()
        blocks = list(self._blocks())
        for number, tile in enumerate(self._candidates.tiles(self._similarity, self._width, self._keep)):
            if number % _AGAIN == 0:
                self._start.zero_()
            self._bounds: dict[torch.dtype, Tensor] = {}
            self._thresholds: dict[torch.dtype, tuple[Tensor, Tensor]] = {}
            self._count_specials(number, tile)
            for block in blocks:
                self._count_block(number, tile, block)
        self._decide_pending()
        # among finite scores a truth that is none is above or below all
        rest = self._out.others - self._special_seen
        self._above += rest * ~(self._class > -torch.inf)
        nan = self._nan + self._class.isnan()
        return torch.stack([self._above, self._above + self._tied, self._out.others, nan])

    def _find_true(self) -> None:
        """The true scores in float64, and their class: 0 for a finite one, NaN, inf or -inf."""
        scores, found = [self._queries.rounded(FLOAT64)[1][:0]], [torch.zeros(0, device=self._row.device)]
        for task, tile, bias in self._true_tiles():
            given = self._queries.given[self._row[task]]
            place = torch.arange(len(task), device=task.device)
            scores.append(self._pairs(tile, given, place, place))
            found.append(_classes_of_pairs(given, tile.given, bias, self._similarity))
        self._true, self._class = torch.cat(scores).nan_to_num(0.0, 0.0, 0.0), torch.cat(found)
        self._bound_true()

    def _bound_true(self) -> None:
        """The errors of the true scores."""
        d = self._queries.given.shape[1]
        _, norm, error = self._queries.rounded(FLOAT64)
        errors = [norm[:0]]
        for task, tile, _ in self._true_tiles():
            row = self._row[task]
            errors.append(error_bound(FLOAT64, d, tile.each, norm[row], error[row], self._grain))
        self._true_error = torch.cat(errors)

    def _true_tiles(self) -> Iterable[tuple[Tensor, Tile, Tensor | None]]:
        """The true candidates of some tasks at a time."""
        given, bias = self._candidates.embeddings, self._candidates.bias
        for task in torch.arange(len(self._row), device=self._row.device).split(_TASKS):
            own = self._column[task]
            added = None if bias is None else bias[own]
            yield task, Tile(given[own], added, slice(0, len(own)), self._similarity), added

    def _blocks(self) -> Iterable[_Block]:
        B = len(self._queries.given)
        rows = max(1, _CELLS // self._width)
        edges = [*range(0, B, rows), B]
        border = torch.searchsorted(self._row, torch.tensor(edges, device=self._row.device)).tolist()
        for i in range(len(edges) - 1):
            if border[i] < border[i + 1]:
                yield _Block(edges[i], edges[i + 1], border[i], border[i + 1])

    # one tile, one block of queries

    def _count_block(self, number: int, tile: Tile, block: _Block) -> None:
        task = torch.arange(block.begin, block.end, device=self._row.device)
        ordinary = self._class[block.begin : block.end] == 0
        if not bool(ordinary.all()):
            task = task[ordinary]
        for level, dtype in enumerate(self._precisions):
            if not len(task):
                return
            last = dtype == FLOAT64
            ready = (self._start[task] <= level) & self._error(tile, dtype)[task].isfinite()
            now, task = (task, task[:0]) if bool(ready.all()) else (task[ready], task[~ready])
            if len(now):
                open_ = self._count_tasks(number, tile, block, now, dtype, last)
                self._start[open_] = level + 1
                task = torch.cat([task, open_])
        for one in task.tolist():  # not even float64 holds their scores
            self._leave_all(number, tile, one)

    def _count_tasks(
        self, number: int, tile: Tile, block: _Block, task: Tensor, dtype: torch.dtype, last: bool
    ) -> Tensor:
        """Count in one precision; what is left to the next is returned."""
        scores, place = self._scores(number, tile, block, task, dtype)
        low, high = self._interval(tile, dtype)
        found = self._intervals.between(scores, place, low[task], high[task], len(tile) // _FEW)
        exact = (self._error(tile, dtype)[task] == 0) if dtype in (FLOAT32, FLOAT64) else None
        many = found.inside > len(tile) // _FEW
        if exact is None:
            self._above.index_add_(0, task, found.above * ~many)
            self._decide(tile, task[found.task], found.column)
            return task[many]
        if bool((many & ~exact).any()) and not self._looked:
            self._look()
            return self._count_tasks(number, tile, block, task, dtype, last)
        # what is equal where nothing is rounded is tied
        own = self._own_inside(tile, task)
        self._tied.index_add_(0, task, (found.inside - own) * exact)
        many &= ~exact
        self._above.index_add_(0, task, found.above * ~many)
        listed = ~exact[found.task]
        self._decide(tile, task[found.task[listed]], found.column[listed])
        if not bool(many.any()) or (self._group is None and not last):
            return task[many]
        hard = many.nonzero()[:, 0]
        rest = []
        for some in hard.split(max(1, _CELLS // len(tile))):
            asked = task[some]
            found = self._intervals.between(scores, place[some], low[asked], high[asked], len(tile))
            rest.append(self._drop_equal(tile, asked, found.above, found.task, found.column, last))
        return torch.cat(rest)

    def _drop_equal(self, tile: Tile, task: Tensor, above: Tensor, entry: Tensor, column: Tensor, last: bool) -> Tensor:
        """Count the candidates equal to the true one; tasks with many open beside them are left to the next."""
        if self._group is None:
            tied = torch.zeros_like(entry, dtype=torch.bool)
        else:
            tied = self._group[column + tile.left] == self._group[self._column[task[entry]]]
        other = column + tile.left != self._column[task[entry]]
        number = torch.bincount(entry[~tied], minlength=len(task))
        many = (number > len(tile) // _FEW) & (not last)
        taken = ~many[entry] & other
        self._tied.index_add_(0, task[entry[tied & taken]], torch.ones_like(entry[tied & taken]))
        self._above.index_add_(0, task, above * ~many)
        self._decide(tile, task[entry[~tied & taken]], column[~tied & taken])
        return task[many]

    def _scores(
        self, number: int, tile: Tile, block: _Block, task: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Scores of the rows of some tasks, -inf where nothing is to be counted; and the row of each task in them."""
        row = self._row[task]
        rows = torch.arange(block.first, block.last, device=row.device)
        place = row - block.first
        queries = self._queries.rounded(dtype)[0][block.first : block.last]
        if len(task) < block.end - block.begin:
            distinct, place = torch.unique(row, return_inverse=True)
            if len(distinct) < len(rows):
                rows, queries = distinct, queries[distinct - block.first]
            else:
                place = row - block.first
        if dtype not in self._buffers:
            self._buffers[dtype] = queries.new_empty(min(_CELLS, len(self._queries.given) * self._width))
        if len(rows) * len(tile) > len(self._buffers[dtype]):
            self._buffers[dtype] = queries.new_empty(len(rows) * len(tile))
        scores = self._buffers[dtype][: len(rows) * len(tile)].view(len(rows), len(tile))
        tile.scores(queries, scores)
        self._out.fill(scores, number, slice(tile.left, tile.right), rows, -torch.inf)
        if tile.special is not None:
            scores.index_fill_(1, tile.special, -torch.inf)
        return scores, place

    def _own_inside(self, tile: Tile, task: Tensor) -> Tensor:
        column = self._column[task]
        return ((column >= tile.left) & (column < tile.right) & ~self._out.own[task]).long()

    # bounds, once a tile

    def _error(self, tile: Tile, dtype: torch.dtype) -> Tensor:
        """Bound of the error of a difference to the true score, (P,)."""
        if dtype not in self._bounds:
            _, norm, error = self._queries.rounded(dtype)
            d = self._queries.given.shape[1]
            bound = error_bound(dtype, d, tile.sizes(dtype), norm, error, self._grain)
            self._bounds[dtype] = bound[self._row] + self._true_error
        return self._bounds[dtype]

    def _interval(self, tile: Tile, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if dtype not in self._thresholds:
            self._thresholds[dtype] = interval(dtype, self._true, self._error(tile, dtype))
        return self._thresholds[dtype]

    def _look(self) -> None:
        """Look for what makes candidates tie, and for numbers so coarse that products are exact."""
        structure = self._candidates.structure
        self._looked, self._group = True, structure.group
        grain = grain_of(self._queries.given)
        if self._similarity != "cosine" and 0 < structure.grain < torch.inf and 0 < grain < torch.inf:
            grain *= structure.grain
            if self._similarity == "l2":
                grain = min(grain, structure.grain**2 / 2)
            if self._candidates.bias is not None:
                grain = min(grain, grain_of(self._candidates.bias[:, None]) / 2)
            self._grain = grain
            self._bounds, self._thresholds = {}, {}
            self._bound_true()

    # single pairs

    def _pairs(self, tile: Tile, queries: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Scores of pairs in float64, of queries (B, d) and candidates of a tile."""
        wide = FLOAT64 if queries.dtype == FLOAT64 else FLOAT32
        candidates = tile.given.to(wide).contiguous()
        scores = self._intervals.products(queries.to(wide).contiguous(), candidates, row, column)
        if self._similarity == "cosine":
            return scores / tile.length[column]
        return scores if tile.bias is None else scores + tile.bias[column]

    def _decide(self, tile: Tile, task: Tensor, column: Tensor) -> None:
        """Compare pairs in float64; what it leaves open waits for the last level."""
        other = column + tile.left != self._column[task]
        task, column = task[other], column[other]
        if not len(task):
            return
        row = self._row[task]
        _, norm, error = self._queries.rounded(FLOAT64)
        sizes = Sizes(*(numbers[column] for numbers in tile.each))
        d = self._queries.given.shape[1]
        bound = error_bound(FLOAT64, d, sizes, norm[row], error[row], self._grain) + self._true_error[task]
        bound = torch.where(bound > 0, bound * (1 + 2.0**-20), 0.0)
        difference = self._pairs(tile, self._queries.given, row, column) - self._true[task]
        above, below = difference > bound, difference < -bound
        tied = (difference == 0) & (bound == 0)
        self._above.index_add_(0, task, above.long())
        self._tied.index_add_(0, task, tied.long())
        left = ~(above | below | tied)
        if bool(left.any()):
            self._leave(task[left], column[left] + tile.left)

    def _leave(self, task: Tensor, column: Tensor) -> None:
        """Count candidates that are equal to the true one; the others wait for the last level."""
        if not self._looked and self._num_pending + len(task) > _LOOK:
            self._look()
        own = self._column[task]
        if self._looked:
            group = self._group
            tied = torch.zeros_like(own, dtype=torch.bool) if group is None else group[column] == group[own]
        else:
            given, bias = self._candidates.embeddings, self._candidates.bias
            tied = (given[column] == given[own]).all(1)
            if bias is not None:
                tied &= bias[column] == bias[own]
        self._tied.index_add_(0, task, tied.long())
        self._pending.append((task[~tied], column[~tied]))
        self._num_pending += len(self._pending[-1][0])
        if self._num_pending > _PENDING:
            self._decide_pending()

    def _leave_all(self, number: int, tile: Tile, task: int) -> None:
        """All candidates of a tile that a task counts."""
        cells = torch.zeros(1, len(tile), device=self._row.device)
        self._out.fill(cells, number, slice(tile.left, tile.right), self._row[task : task + 1], 1.0)
        if tile.special is not None:
            cells.index_fill_(1, tile.special, 1.0)
        column = (cells[0] == 0).nonzero()[:, 0]
        self._decide(tile, torch.full_like(column, task), column)

    def _decide_pending(self) -> None:
        """The last level: exact, one pair of equal ones for all."""
        if not self._num_pending:
            return
        task, column = (torch.cat(part) for part in zip(*self._pending, strict=True))
        self._pending, self._num_pending = [], 0
        given, bias = self._candidates.embeddings, self._candidates.bias
        order = self._row[task].argsort(stable=True)
        last, known = -1, {}
        for one, other in zip(task[order].tolist(), column[order].tolist(), strict=True):
            row, own = int(self._row[one]), int(self._column[one])
            if row != last:
                query = Rational(self._queries.given[row].double().cpu().numpy(), self._similarity)
                last, known = row, {}
            for asked in (own, other):
                key = asked if self._group is None else int(self._group[asked])
                if key not in known:
                    added = 0.0 if bias is None else float(bias[asked])
                    known[key] = query.score(given[asked].double().cpu().numpy(), added)
            true, score = (known[k if self._group is None else int(self._group[k])] for k in (own, other))
            self._above[one] += score > true
            self._tied[one] += score == true

    # scores that are no finite numbers

    def _count_specials(self, number: int, tile: Tile) -> None:
        """Count NaN and infinite scores, whatever the truth; and all scores of queries that are not finite."""
        finite = self._queries.rounded(FLOAT64)[1].isfinite()
        if not bool(finite.all()):
            finite = self._queries.given.double().isfinite().all(1)
        strange = (~finite).nonzero()[:, 0]
        every = torch.arange(len(tile), device=finite.device)
        if len(strange):
            self._count_classes(number, tile, strange, every)
        if tile.special is not None:
            self._count_classes(number, tile, finite.nonzero()[:, 0], tile.special)

    def _count_classes(self, number: int, tile: Tile, rows: Tensor, columns: Tensor) -> None:
        for some in rows.split(max(1, _CELLS // len(tile))):
            task = torch.isin(self._row, some).nonzero()[:, 0]
            if not len(task):
                continue
            out = torch.zeros(len(some), len(tile), device=some.device)
            self._out.fill(out, number, slice(tile.left, tile.right), some, 1.0)
            out = out[:, columns] != 0
            bias = self._candidates.bias
            scores = classes(
                self._queries.given[some],
                tile.given[columns],
                None if bias is None else bias[tile.left : tile.right][columns],
                self._similarity,
            )
            place = torch.searchsorted(some, self._row[task])
            mine = (columns + tile.left == self._column[task][:, None]).nonzero()
            own = torch.full_like(task, -1).index_put_((mine[:, 0],), mine[:, 1])
            count = choose(scores, self._counting)
            found = count(scores, self._class[task], place, own, None, out)
            self._above[task] += found[0]
            self._tied[task] += found[1] - found[0]
            self._special_seen[task] += found[2]
            self._nan[task] += found[3]


def _classes_of_pairs(queries: Tensor, candidates: Tensor, bias: Tensor | None, similarity: str) -> Tensor:
    """``classes`` of row i with row i, (n,)."""
    found = torch.zeros(len(queries), device=queries.device)
    odd = ~(queries.double().isfinite().all(1) & candidates.double().isfinite().all(1))
    if bias is not None:
        odd |= ~bias.isfinite()
    if similarity == "cosine":
        odd |= ~(candidates != 0).any(1)
    for i in odd.nonzero()[:, 0].tolist():
        one = slice(i, i + 1)
        found[i] = classes(queries[one], candidates[one], None if bias is None else bias[one], similarity)[0, 0]
    return found
