"""Ranks of embeddings: a product of tiles decides most candidates, scores of pairs the rest.

A cell above the true score plus the error bound is better, and a cell below the true score minus
the bound is worse. The few cells between are open: their scores are computed pair by pair.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, num_excluded
from torchrankmetrics.ranking.ranks import Ranks, from_counts
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.similarities import LARGE, product_dtype
from torchrankmetrics.ranking.tasks import Exclude, Target, read_tasks
from torchrankmetrics.ranking.tiles import Queries, Tile, Tiles, prepared

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

# queries and candidates of a product: on a CPU the scores stay in the cache
_ROWS = 256
_WIDTH = 4096
# not measured
_ROWS_ACCELERATOR = 1024
_WIDTH_ACCELERATOR = 32768
_TASKS = 1024  # of a block, which may have many targets of a row
_OPEN = 16  # a float64 product is tried if more than one cell in so many is open


class SortedTasks(NamedTuple):
    """Ranking tasks in ascending order of their rows."""

    row: Tensor  # int64 (P,)
    column: Tensor  # int64 (P,), the target; negative: not among these candidates
    true: Tensor  # float64 (P,), the scores of the targets
    excluded: Excluded  # of these candidates


class Block(NamedTuple):
    """Tasks whose cells of a tile are computed at once."""

    tasks: slice
    rows: Tensor  # int64, ascending, distinct
    place: Tensor  # int64, of each task among the rows


class OpenCells(NamedTuple):
    """The cells of a block, of which those between two ends are open."""

    scores: Tensor  # (rows, n), a product
    ends: tuple[Tensor, Tensor]  # (tasks,) each
    above: Tensor  # int64 (tasks,), the number of cells that are better
    number: Tensor  # int64 (tasks,), of open cells


def _blocks(row: Tensor) -> Iterator[Block]:
    """Split tasks, ascending by row, into blocks of few rows and few tasks."""
    height = _ROWS if row.is_cpu else _ROWS_ACCELERATOR
    distinct = torch.unique_consecutive(row)
    starts = torch.searchsorted(row, distinct[::height].contiguous()).tolist()
    for begin, end in pairwise([*starts, len(row)]):
        for first in range(begin, end, _TASKS):
            some = slice(first, min(first + _TASKS, end))
            rows, place = torch.unique_consecutive(row[some], return_inverse=True)
            yield Block(some, rows, place)


class Counter:
    """Counts the candidates of all tasks, tile by tile."""

    def __init__(self, queries: Queries, tasks: SortedTasks) -> None:
        self._queries = queries
        self._tasks = tasks
        self._norm = queries.norm[tasks.row]
        self._blocks = list(_blocks(tasks.row))
        # better candidates, tied ones, the targets themselves, and NaN
        shape = 4, len(tasks.row)
        self._found = torch.zeros(shape, dtype=torch.int64, device=tasks.row.device)

    def add(self, tile: Tile, left: int) -> None:
        """Count the candidates of a tile that begins at a column."""
        excluded = self._tasks.excluded.between(left, left + len(tile))
        for block in self._blocks:
            cells = self._compare(tile, excluded, block, product_dtype())
            size = len(block.place) * len(tile)
            if cells.scores.dtype == torch.float32 and _OPEN * int(cells.number.sum()) > size:
                cells = self._compare(tile, excluded, block, torch.float64)
            self._found[0, block.tasks] += cells.above
            task, column = tile.kernels.list_open(
                cells.scores, block.place, *cells.ends, cells.number
            )
            self._decide(tile, left, block.tasks, task, column)

    def _compare(
        self, tile: Tile, excluded: Excluded, block: Block, dtype: torch.dtype
    ) -> OpenCells:
        """Compare the true scores of a block with a product in a precision."""
        norm = self._norm[block.tasks]
        ends = tile.product(dtype).interval(norm, self._tasks.true[block.tasks])
        scores = self._approximate(tile, excluded, block, dtype)
        above, number = tile.kernels.count_open(scores, block.place, *ends)
        return OpenCells(scores, ends, above, number)

    def _approximate(
        self, tile: Tile, excluded: Excluded, block: Block, dtype: torch.dtype
    ) -> Tensor:
        """Multiply the rows of a block; excluded cells are -inf, which is never counted."""
        scores = tile.product(dtype).scores(self._queries, block.rows)
        if excluded.slices is not None:
            row, place = excluded.slices.entries(block.rows)
            scores[row, excluded.slices.columns[place] - excluded.slices.first] = -torch.inf
        if excluded.cells is not None:
            scores.masked_fill_(excluded.cells[block.rows], -torch.inf)
        if excluded.columns is not None:
            scores.masked_fill_(excluded.columns, -torch.inf)
        return scores

    def _decide(self, tile: Tile, left: int, some: slice, task: Tensor, column: Tensor) -> None:
        """Compare open cells of some tasks by their scores; NaN is better than any true score."""
        scores = tile.scores(self._queries, self._tasks.row[some][task], column)
        true = self._tasks.true[some][task]
        own = column + left == self._tasks.column[some][task]
        kinds = ~(scores <= true) & ~own, (scores == true) & ~own, own, scores.isnan() & ~own
        for found, holds in zip(self._found[:, some], kinds, strict=True):
            found += torch.bincount(task[holds], minlength=len(found))

    def counts(self, num_columns: int) -> Tensor:
        """Count better, not worse, all and NaN candidates, the target left out: int64 (4, P).

        The score of a target is equal to itself, so its cell is open and was found. If it was not,
        the product is less accurate than its error bound.
        """
        row, column, _, excluded = self._tasks
        others = num_columns - _num_excluded(excluded, len(self._queries.wide), row.device)[row]
        own = column >= 0
        if num_columns:
            place = column.clamp(min=0)
            own &= ~excluded.lists(row, place)
            if excluded.columns is not None:  # an error that an accelerator reports later
                own &= ~excluded.columns[place]
        better, tied, found, nan = self._found
        if bool((found != own).any()):
            raise RuntimeError(
                f"products of embeddings on {row.device} are less accurate than "
                f"{product_dtype()} allows, so that ranks would be wrong; pass queries and "
                "candidates on the CPU"
            )
        return torch.stack([better, better + tied, others - own.long(), nan])


def _num_excluded(excluded: Excluded, num_rows: int, device: torch.device) -> Tensor:
    """Count the excluded columns of each row, int64 (num_rows,)."""
    number = torch.zeros(num_rows, dtype=torch.int64, device=device)
    if excluded.matrix is not None:
        number += num_excluded(excluded.matrix)
    if excluded.slices is not None:
        row, column = excluded.slices.pairs()
        if excluded.columns is not None:
            row = row[~excluded.columns[column]]
        number += torch.bincount(row, minlength=num_rows)
    return number


def _counted(queries: Queries, tiles: Tiles, tasks: SortedTasks, chunk_size: int | None) -> Tensor:
    counter = Counter(queries, tasks)
    width = chunk_size or (_WIDTH if tasks.row.is_cpu else _WIDTH_ACCELERATOR)
    for left, tile in tiles.slices(width) if len(tasks.row) else ():
        counter.add(tile, left)
    return counter.counts(len(tiles))


def rank_by_tiles(
    queries: Tensor,
    candidates: "Candidates",
    target: Target,
    exclude: Exclude | Excluded,
    shard: Shard,
    similarity: str,
    backend: str,
    chunk_size: int | None = None,
    by_query: bool | None = None,
) -> Ranks:
    """Rank as ``rank_embeddings``; every process of a group calls it."""
    with torch.no_grad():
        with shard.agreeing() as settings:
            tasks = read_tasks(
                target, exclude, (len(queries), shard.total), queries.device, by_query=by_query
            )
            if not shard.is_whole:
                settings |= tasks.fingerprint(shard.total)
            given, tiles = prepared(queries, candidates, similarity, backend)
            order = tasks.row_of_each.argsort(stable=True)
            row = tasks.row_of_each[order].to(given.device)
            column = tasks.column[order].to(given.device)
            true = tiles.scores(given, row, shard.local(column))
        true = shard.gather_from_owner(true, column)
        with shard.agreeing():
            excluded = tasks.excluded.between(shard.first, shard.last).to(given.device)
            sorted_tasks = SortedTasks(row, shard.local(column), true, excluded)
            counts = _counted(given, tiles, sorted_tasks, chunk_size)
        counts = shard.all_sum(counts)
        counts[3] += true.isnan()
        counts = counts.to(queries.device)
        counts = torch.empty_like(counts).index_copy_(1, order, counts)
    flags = tasks.flags_by(counts[2], shard.total)
    return from_counts(counts, flags, tasks.rows, tasks.gain)


def all_scores(
    queries: Tensor, candidates: "Candidates", similarity: str, backend: str = "auto"
) -> Tensor:
    """Scores (B, N) of all pairs of a query and a candidate, float64, as ranks compare them."""
    given, tiles = prepared(queries, candidates, similarity, backend)
    cell = torch.arange(len(queries) * len(tiles), device=given.device)
    row = cell // max(1, len(tiles))
    scores = tiles.tile(slice(None)).scores(given, row, cell - row * len(tiles))
    return scores.view(len(queries), len(tiles))


def best_scores(
    queries: Tensor, candidates: "Candidates", similarity: str, backend: str, out: Tensor, k: int
) -> Tensor:
    """As ``all_scores``, but -inf for candidates that are not among the k best of a query.

    Candidates marked in ``out``, bool (B, N), are not counted.
    """
    given, tiles = prepared(queries, candidates, similarity, backend)
    tile = tiles.tile(slice(None))
    out = out.to(given.device)
    product = tile.product(product_dtype())
    approximate = product.scores(given, torch.arange(len(queries), device=given.device))
    known = approximate.masked_fill(out | approximate.isnan(), -torch.inf)
    bar = known.topk(min(k, len(tiles)), dim=1).values[:, -1].double()
    low = bar - 2 * product.error(given.norm, bar)
    low = low.masked_fill_(~(given.norm < LARGE), -torch.inf).to(approximate.dtype)
    row, column = (~(approximate < low[:, None]) & ~out).nonzero().unbind(1)
    scores = torch.full(out.shape, -torch.inf, dtype=torch.float64, device=given.device)
    scores[row, column] = tile.scores(given, row, column)
    return scores
