"""Rank by exact arithmetic: each precision counts the cells that its error bound decides; the next counts the rest.

Only certain comparisons are counted, so the ranks do not depend on precisions, tiles, threads or
the order of a sum.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, chosen
from torchrankmetrics.ranking.exact import counting, problem as sizes
from torchrankmetrics.ranking.exact.counting import choose_intervals
from torchrankmetrics.ranking.exact.levels import LEVELS, Level, cost, precisions
from torchrankmetrics.ranking.exact.problem import (
    FLOAT32,
    FLOAT64,
    INT8,
    Counts,
    ExcludedTiles,
    Problem,
    Queries,
    Tile,
    rows_of,
    tiles_of,
)
from torchrankmetrics.ranking.exact.target_scores import (
    TargetScores,
    count_specials,
    scores_of_pairs,
)
from torchrankmetrics.ranking.ranks import Ranks, from_counts
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.tasks import Exclude, Target, read_tasks

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

_LEAST = 16  # open candidates of a task in a tile that are compared one by one in any case
_AGAIN = 16  # tiles after which the first precision is tried again
# candidates of a tile; of the first one, which shows whether int8 decides enough
_WIDTH, _FIRST = 32768, 256
# queries whose product with a tile costs no less than that of one query, which reads the candidates
_FEW = 16
_LONG = 4  # times the usual limit: listed in int8, in case only few queries have as many
_BLOCKS = 4  # multiplied at once, of few queries: of more the matrices leave the cache
_LISTED = 1 << 22  # open candidates of the tasks that are counted at once, at most
# pairs that float64 leaves open before the structure of the candidates is looked for
_LOOK = 1 << 10
_PENDING = 1 << 20  # pairs that wait for the last level

Integers = tuple[list[int], int]
"""Integers and the exponent of the power of two that they are to be multiplied with."""


class Cascade:
    """Exact counts of a problem, tile by tile, in precisions of which the last is float64."""

    def __init__(
        self, problem: Problem, tiles: Iterable[Tile], precisions: Sequence[torch.dtype]
    ) -> None:
        self._problem, self._tiles = problem, tiles
        self._counts, self._targets = Counts(problem.row), TargetScores(problem)
        self._ordinary = (self._targets.kind == 0).nonzero()[:, 0]
        self._levels = [LEVELS[dtype](dtype, problem, self._targets) for dtype in precisions]
        self._pairs = Pairs(problem, self._targets, self._counts)
        self._in_pairs = cost(FLOAT32, problem.width) / cost(None, problem.width)  # a score
        # the first precision that is worth it for a task
        self._start = torch.zeros_like(problem.row)

    def counts(self) -> Tensor:
        """As ``counting.plain.count`` of the exact scores: int64 (4, P)."""
        for number, tile in enumerate(self._tiles):
            if number % _AGAIN == 0:
                self._start.fill_(0)
            count_specials(self._problem, self._targets.kind, self._counts, tile)
            self._count_tile(tile)
        self._pairs.finish()
        counts, kind, others = self._counts, self._targets.kind, self._problem.excluded.others
        # a target score that is not finite is above or below all of them
        above = counts.above + (others - counts.special) * ~(kind > -torch.inf)
        return torch.stack([above, above + counts.tied, others, counts.nan + kind.isnan()])

    def _count_tile(self, tile: Tile) -> None:
        task = self._ordinary
        for place, level in enumerate(self._levels):
            if not len(task):
                return
            begins = self._start.index_select(0, task) <= place
            if not bool(begins.any()):
                continue
            ready = begins & level.ready(tile).index_select(0, task)
            left = [task[~ready]]
            # where many may be equal to the true one, all that is open is listed, which takes twice
            # the memory
            listed = not level.is_coarse and (
                self._targets.group is not None or level.dtype == FLOAT64
            )
            width, most = (
                (2 * len(tile), len(tile))
                if listed
                else (min(len(tile), sizes.BLOCK), self._limit(tile))
            )
            for some in self._chunks(task[ready], width, most):
                left.append(self._count_some(tile, some, level, listed))
                self._start[left[-1]] = place + 1
            task = torch.cat(left).sort().values
        # not even float64 holds their scores: all candidates are compared as single pairs
        for one in task[:, None]:
            cells = torch.zeros(1, len(tile), dtype=torch.bool, device=one.device)
            for fill in self._problem.excluded.of(tile, self._problem.row[one], tile.special):
                fill(cells, slice(0, len(tile)), True)
            column = (~cells[0]).nonzero()[:, 0]
            self._pairs.decide(tile, one.expand(len(column)), column)

    def _chunks(self, task: Tensor, width: int, limit: int) -> Iterable[Tensor]:
        """Tasks in ascending order, at once as many as the buffer of scores and the lists of open cells hold."""
        height, most = max(1, sizes.CELLS // width), max(1, _LISTED // max(limit, 1))
        if len(task) <= min(height, most):
            return (task,) if len(task) else ()
        place = torch.unique_consecutive(self._problem.row[task], return_inverse=True)[1]
        parts = torch.split(task, torch.bincount(place // height).tolist())
        return chain.from_iterable(torch.split(some, most) for some in parts)

    def _count_some(self, tile: Tile, task: Tensor, level: Level, listed: bool) -> Tensor:
        """Count some tasks in one precision, and their few open candidates as pairs; tasks with more are returned."""
        limit = self._limit(tile)
        most = len(tile) if listed else _LONG * limit if level.is_coarse else limit
        rows, place = torch.unique_consecutive(
            self._problem.row.index_select(0, task), return_inverse=True
        )
        above, inside, entry, column = level.count(
            self._blocks(tile, rows, level), tile, task, place, most
        )
        own, many, tied = (
            task.index_select(0, entry),
            inside > limit,
            torch.zeros_like(entry, dtype=torch.bool),
        )
        remaining = ~tied
        if level.is_coarse:
            # their pairs cost most of what int8 saves
            hard = inside > len(tile) * self._in_pairs / 2
            if int(hard.sum()) > _FEW:
                is_usual = 2 * int((inside > len(tile) * self._in_pairs / 3).sum()) > len(task)
                self._start[task if is_usual else task[hard]] = 1
            elif int(inside[many].sum()) <= _FEW * limit:
                many = inside > most
        else:
            exact = self._targets.bounds(tile, level.dtype)[0].index_select(0, task) == 0
            # most calls: all that is left is a few pairs
            if not (listed or bool((many | exact).any())):
                self._counts.above.index_add_(0, task, above)
                self._pairs.decide(tile, own, column)
                return task[:0]
            if not self._targets.looked and bool((many & ~exact).any()):
                self._targets.look()  # there may be a reason for so many
                return self._count_some(tile, task, level, listed)
            if bool(exact.any()):  # what is equal where nothing is rounded is tied
                place = self._problem.column[task] - tile.left
                own_inside = (place >= 0) & (place < len(tile)) & ~self._problem.excluded.own[task]
                self._counts.tied.index_add_(0, task, (inside - own_inside.long()) * exact)
                remaining = ~exact[entry]
            if listed:
                other = remaining & (column + tile.left != self._problem.column[own])
                if self._targets.group is not None:
                    tied = other & self._targets.are_equal(own, column + tile.left)
                remaining = other & ~tied
                inside = torch.bincount(entry[remaining], minlength=len(task))
            many = (inside > (len(tile) if level.dtype == FLOAT64 else limit)) & ~exact
        self._counts.above.index_add_(0, task, above * ~many)
        if listed:
            self._counts.tied.index_add_(0, own, (tied & ~many[entry]).long())
        remaining &= ~many[entry]
        self._pairs.decide(tile, own[remaining], column[remaining])
        return task[many]

    def _blocks(self, tile: Tile, rows: Tensor, level: Level) -> Iterator[tuple[Tensor, int]]:
        """Scores block by block, counted while in the cache; what is not counted is filled with the least number."""
        queries, fills = level.queries(rows), self._problem.excluded.of(tile, rows, tile.special)
        # less time, or more calls
        times = 4 if level.is_coarse or self._problem.intervals is counting else 1
        width = (
            max(1, min(times * _BLOCKS, times * sizes.CELLS // 2 // len(rows) // sizes.BLOCK))
            * sizes.BLOCK
        )
        for number, scores in enumerate(level.scores(tile, queries, width)):
            for fill in fills:
                fill(scores, slice(number * width, number * width + scores.shape[1]), level.nothing)
            yield scores, number * width

    def _limit(self, tile: Tile) -> int:
        """How many open candidates are compared one by one: from here on another product costs less."""
        return max(_LEAST, int(len(tile) * self._in_pairs))


def rank_exactly(
    queries: Tensor,
    candidates: "Candidates",
    target: Target,
    exclude: Exclude | Excluded,
    shard: Shard,
    similarity: str,
    backend: str,
    chunk_size: int | None = None,
    *,
    is_reused: bool = True,
    by_query: bool | None = None,
) -> Ranks:
    """Rank as ``rank_embeddings``; every process of a group calls it. Candidates that are reused store their tiles."""
    N = len(candidates)
    with torch.no_grad():
        with shard.agreeing() as settings:
            compiled = chosen(queries, backend) == "numba"
            tasks = read_tasks(
                target, exclude, (len(queries), shard.total), queries.device, by_query=by_query
            )
            row, column, order = tasks.row_of_each, tasks.column, None
            if tasks.row is not None:
                row, order = row.sort(stable=True)
                column = column[order]
            excluded = ExcludedTiles(tasks.excluded, row, column, len(queries), shard)
            if not shard.is_whole:
                settings |= tasks.fingerprint(shard.total)
        embeddings, bias = candidates.embeddings, candidates.bias
        tables = [(embeddings, bias)]
        if not shard.is_whole:
            tables.append(
                (
                    shard.rows_of(embeddings, column),
                    None if bias is None else shard.rows_of(bias, column),
                )
            )
        with shard.agreeing():
            given, intervals = queries.detach().resolve_neg(), choose_intervals(queries, backend)
            column = shard.local(column)
            problem = Problem(
                Queries(given),
                candidates,
                similarity,
                row,
                column,
                tables,
                excluded,
                intervals,
                backend,
            )
            ladder = precisions(problem.width, len(queries), len(row) * N, compiled=compiled)
            width = max(1, min(chunk_size or _WIDTH, N))
            first = min(width, _FIRST) if ladder[0] == INT8 else width
            tiles = tiles_of(candidates, similarity, width, first, is_reused)
            counts = Cascade(problem, tiles, ladder).counts()
        counts = shard.all_sum(counts)
    if order is not None:
        counts = torch.empty_like(counts).index_copy_(1, order, counts)
    return from_counts(counts, tasks.flags, tasks.rows, tasks.gain)


class Pairs:
    """The last level: pairs that no product of a whole tile has decided, in float64 and as rational numbers."""

    def __init__(self, problem: Problem, targets: TargetScores, counts: Counts) -> None:
        self._problem, self._targets, self._counts = problem, targets, counts
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._num_pending = 0

    def decide(self, tile: Tile, task: Tensor, column: Tensor) -> None:
        """Compare candidates of a tile, by their place in it, with the targets of tasks, which are not counted."""
        row, true = (
            of_all.index_select(0, task) for of_all in (self._problem.row, self._problem.column)
        )
        scores = scores_of_pairs(self._problem, tile, row, column)
        low, high = (end.index_select(0, task) for end in self._targets.bounds(tile, FLOAT64)[1:])
        other = column != true - tile.left
        above = other & (scores > high)
        self._counts.above.index_add_(0, task, above.long())
        open_ = (other & ~above & ~(scores < low)).nonzero()[:, 0]
        if not len(open_):
            return
        task, column, scores = task[open_], column[open_], scores[open_]
        # the bound of each candidate decides some of what the bound of the tile leaves open
        while True:
            found, certain = self._targets.signs(tile, task, column, scores)
            self._counts.above.index_add_(0, task, (found > 0).long())
            self._counts.tied.index_add_(0, task, ((found == 0) & certain).long())
            left = (found == 0) & ~certain
            task, column, scores = task[left], column[left], scores[left]
            if self._targets.looked or self._num_pending + len(task) <= _LOOK:
                break
            self._targets.look()
        column = column + tile.left
        tied = self._targets.are_equal(task, column)
        self._counts.tied.index_add_(0, task, tied.long())
        self._pending.append((task[~tied], column[~tied]))
        self._num_pending += len(self._pending[-1][0])
        if self._num_pending > _PENDING:
            self.finish()

    def finish(self) -> None:
        """Decide what waits, exactly; scores of equal candidates of a query are computed once."""
        if not self._num_pending:
            return
        task, column = (torch.cat(part) for part in zip(*self._pending, strict=True))
        self._pending, self._num_pending = [], 0
        problem, group, among = self._problem, self._targets.group, self._problem.among
        order = problem.row[task].argsort(stable=True)
        last = -1
        for one, other in zip(task[order].tolist(), column[order].tolist(), strict=True):
            row = int(problem.row[one])
            if row != last:
                query, known, last = (
                    _integers(problem.queries.given[row]),
                    dict[int, Fraction](),
                    row,
                )
            scores = []
            for candidate in (other, int(among[one])):
                key = candidate if group is None else int(group[candidate])
                if key not in known:
                    (given,), bias = rows_of(
                        problem.tables, torch.tensor([candidate], device=task.device)
                    )
                    added = 0.0 if bias is None else float(bias)
                    known[key] = rational_score(query, _integers(given), added, problem.similarity)
                scores.append(known[key])
            self._counts.above[one] += scores[0] > scores[1]
            self._counts.tied[one] += scores[0] == scores[1]


def rational_score(query: Integers, candidate: Integers, bias: float, similarity: str) -> Fraction:
    """Exact score: dot, l2 as 2 q.e - |e|^2 + bias, cosine as the signed square of q.e / |e|."""
    (numbers, unit), product = candidate, _dot(query[0], candidate[0])
    if similarity == "cosine":  # a vector of zeros scores NaN, and is handled before
        return Fraction(product * abs(product), _dot(numbers, numbers))
    score = product * Fraction(2) ** (query[1] + unit)
    if similarity == "l2":
        score = 2 * score - _dot(numbers, numbers) * Fraction(2) ** (2 * unit)
    return score + Fraction(bias)


def _integers(vector: Tensor) -> Integers:
    """Integers and the exponent of the power of two that they are to be multiplied with."""
    fraction, exponent = np.frexp(vector.double().cpu().numpy())
    exponent = np.where(fraction == 0, 0, exponent - 53)
    unit = int(exponent.min(initial=0))
    whole = np.ldexp(fraction, 53).astype(np.int64).tolist()
    return [
        number << shift for number, shift in zip(whole, (exponent - unit).tolist(), strict=True)
    ], unit


def _dot(one: list[int], other: list[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
