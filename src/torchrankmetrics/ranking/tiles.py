"""Ranks of embeddings by float64 scores of single pairs, most of which a product of a tile of candidates decides.

The score of a pair is the float64 number of ``pairs``. The product of a tile is within an error
bound of it, so a cell above the true score plus the bound is better and a cell below the true score
minus the bound is worse. The few cells between are open: their scores are computed pair by pair.
"""

import importlib
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, chosen, num_excluded
from torchrankmetrics.ranking.pairs import PRODUCT
from torchrankmetrics.ranking.ranks import Ranks, from_counts
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.similarities import (
    LARGE,
    SIMILARITIES,
    Similarity,
    error_bound,
    product_dtype,
)
from torchrankmetrics.ranking.tasks import Exclude, Target, read_tasks

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

# queries and candidates of a product: on a CPU the scores stay in the cache
_ROWS, _WIDTH = 256, 4096
_ROWS_ACCELERATOR, _WIDTH_ACCELERATOR = 1024, 32768  # not measured
_TASKS = 1024  # of a block
_OPEN = 16  # a float64 product is tried if more than one cell in so many is open
_TARGETS = 4096  # whose candidates are copied at once
_NO_FLOAT64 = {"mps"}  # devices whose embeddings are ranked on the CPU


def wide(vectors: Tensor) -> Tensor:
    """Return floats (n, d) as float32, or float64 if they are, row by row in memory: the same numbers."""
    dtype = torch.float64 if vectors.dtype == torch.float64 else torch.float32
    return vectors.detach().to(dtype).contiguous()


def squared_norms(vectors: Tensor, kernels: Any) -> Tensor:
    """Squared norms of wide vectors (n, d): float64 (n,)."""
    every = torch.arange(len(vectors), device=vectors.device)
    squares: Tensor = kernels.sums_of_pairs(vectors, vectors, every, every, PRODUCT)
    return squares


class Queries:
    """Queries (B, d) of one call, in the precisions of the products, with the memory of their scores."""

    def __init__(self, given: Tensor, kernels: Any) -> None:
        self.wide = wide(given)
        self.norm = squared_norms(self.wide, kernels).sqrt()
        self.device = given.device
        self._rounded: dict[torch.dtype, Tensor] = {}
        self._memory: dict[torch.dtype, Tensor] = {}

    def rounded(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return some queries in a precision; zeros for queries out of range, all of whose cells are open."""
        if dtype not in self._rounded:
            odd = ~(self.norm < LARGE)
            self._rounded[dtype] = self.wide.to(dtype).masked_fill(odd[:, None], 0.0)
        return self._rounded[dtype][rows]

    def buffer(self, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Return memory for scores, which the next call overwrites."""
        number = shape[0] * shape[1]
        memory = self._memory.get(dtype)
        if memory is None or len(memory) < number:
            memory = torch.empty(number, dtype=dtype, device=self.device)
            self._memory[dtype] = memory
        return memory[:number].view(shape)


class Tile:
    """Some candidates, prepared for pairs and for products."""

    def __init__(
        self, embeddings: Tensor, bias: Tensor | None, similarity: Similarity, kernels: Any
    ) -> None:
        self.wide = wide(embeddings)
        self.bias = None if bias is None else bias.detach().double()
        self.similarity = similarity
        self.kernels = kernels
        self._products: dict[torch.dtype, Product] = {}

    def __len__(self) -> int:
        return len(self.wide)

    @cached_property
    def square(self) -> Tensor:
        """Squared norms, float64 (n,)."""
        return squared_norms(self.wide, self.kernels)

    def scores(self, queries: Queries, row: Tensor, column: Tensor) -> Tensor:
        """Scores of pairs of queries and candidates of the tile by the routine, float64 (n,)."""
        given = queries.wide, self.wide, row, column
        sums = self.kernels.sums_of_pairs(*given, self.similarity.terms)
        square = self.square[column] if self.similarity.needs_norm else None
        scores = self.similarity.score(sums, square)
        return scores if self.bias is None else scores.add_(self.bias[column])

    def product(self, dtype: torch.dtype) -> "Product":
        """Prepare products in a precision, once."""
        if dtype not in self._products:
            self._products[dtype] = Product(self, dtype)
        return self._products[dtype]


class Product:
    """Products of queries with a tile in a precision, and their error bounds.

    Candidates out of range become NaN, which is open.
    """

    def __init__(self, tile: Tile, dtype: torch.dtype) -> None:
        self._tile, self.dtype = tile, dtype
        similarity = tile.similarity
        norm = tile.square.sqrt()
        odd = ~(norm < LARGE)
        if tile.bias is not None:
            odd |= ~(tile.bias.abs() < LARGE)
        if similarity.needs_norm:
            odd |= ~(norm > 1 / LARGE)
        self.matrix = similarity.matrix(tile.wide.to(dtype), norm)
        if bool(odd.any()):
            self.matrix = self.matrix.masked_fill(odd[:, None], torch.nan)
        addend = similarity.addend(tile.bias, tile.square)
        self.addend = None if addend is None else addend.to(dtype)
        self.longest = norm.masked_fill(odd, 0.0).amax()
        self.largest_bias = torch.zeros_like(self.longest)
        if tile.bias is not None:
            self.largest_bias = tile.bias.abs().masked_fill(odd, 0.0).amax()

    def scores(self, queries: Queries, rows: Tensor) -> Tensor:
        """Approximate scores (rows, n) of some queries, in the memory of the queries."""
        out = queries.buffer((len(rows), len(self._tile)), self.dtype)
        given = queries.rounded(rows, self.dtype), self.matrix, self.addend
        return self._tile.similarity.multiply(*given, out, self._tile.kernels)

    def error(self, norm: Tensor, approximated: Tensor) -> Tensor:
        """Bound the errors for queries of some norms and approximations of about a value, float64 (P,)."""
        d = self.matrix.shape[1]
        size = self._tile.similarity.size(norm, self.longest, self.largest_bias, d)
        return error_bound(self.dtype, d, size, approximated, norm + self.longest)

    def interval(self, norm: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds of the open cells of tasks with a norm of the query and a true score, in the precision."""
        approximated = self._tile.similarity.approximated(true, norm)
        error = self.error(norm, approximated)
        odd = ~(norm < LARGE) | ~(true.abs() < LARGE**2)
        low = (approximated - error).masked_fill_(odd, -torch.inf).to(self.dtype)
        high = (approximated + error).masked_fill_(odd, torch.inf).to(self.dtype)
        return low.clamp_(min=torch.finfo(self.dtype).min), high  # excluded cells are -inf: below


class Tiles:
    """Candidates of one process, of which a tile at a time is prepared; the candidates store the norms."""

    def __init__(
        self, candidates: "Candidates", similarity: str, queries: Tensor, backend: str
    ) -> None:
        self._candidates = candidates
        self._embeddings = candidates.embeddings.to(queries.device)
        self._bias = None if candidates.bias is None else candidates.bias.to(queries.device)
        self._similarity = SIMILARITIES[similarity]
        # late: numba takes half a second
        name = "pairs" if chosen(queries, backend) == "torch" else "pairs_numba"
        self.kernels = importlib.import_module(f"torchrankmetrics.ranking.{name}")

    def __len__(self) -> int:
        return len(self._embeddings)

    def tile(self, columns: Tensor | slice) -> Tile:
        """Select some candidates."""
        bias = None if self._bias is None else self._bias[columns]
        return Tile(self._embeddings[columns], bias, self._similarity, self.kernels)

    def slices(self, width: int) -> Iterator[tuple[int, Tile]]:
        """Tiles of so many candidates, in order, with their first column."""
        stored = self._candidates.prepared
        for left in range(0, len(self), width):
            tile = self.tile(slice(left, left + width))
            tile.square = stored.setdefault((left, len(tile)), tile.square)
            yield left, tile

    def scores(self, queries: Queries, row: Tensor, column: Tensor) -> Tensor:
        """Scores of pairs by the routine, 0 where the column is negative: float64 (P,)."""
        found = torch.zeros(len(row), dtype=torch.float64, device=row.device)
        for some in torch.split((column >= 0).nonzero()[:, 0], _TARGETS):
            every = torch.arange(len(some), device=some.device)
            found[some] = self.tile(column[some]).scores(queries, row[some], every)
        return found


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
        self._queries, self._tasks = queries, tasks
        self._norm = queries.norm[tasks.row]
        self._blocks = list(_blocks(tasks.row))
        # better candidates, tied ones, the targets themselves, and NaN
        shape = 4, len(tasks.row)
        self._found = torch.zeros(shape, dtype=torch.int64, device=tasks.row.device)

    def add(self, tile: Tile, left: int) -> None:
        """Count the candidates of a tile that begins at a column."""
        excluded = self._tasks.excluded.between(left, left + len(tile))
        dtype = product_dtype()
        low, high = tile.product(dtype).interval(self._norm, self._tasks.true)
        for block in self._blocks:
            given = tile, excluded, block
            ends = low[block.tasks], high[block.tasks]
            scores = self._approximate(*given, dtype)
            above, num_open = tile.kernels.count_open(scores, block.place, *ends)
            cells = len(block.place) * len(tile)
            if dtype == torch.float32 and _OPEN * int(num_open.sum()) > cells:
                scores = self._approximate(*given, torch.float64)
                facts = self._norm[block.tasks], self._tasks.true[block.tasks]
                ends = tile.product(torch.float64).interval(*facts)
                above, num_open = tile.kernels.count_open(scores, block.place, *ends)
            self._found[0, block.tasks] += above
            task, column = tile.kernels.list_open(scores, block.place, *ends, num_open)
            self._decide(tile, left, block.tasks, task, column)

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
        """Count better, not worse, all and NaN candidates of each task, the target left out: int64 (4, P).

        The cell of a target ties with itself, so it is open and was found, or the product is wrong.
        """
        row, column, _, excluded = self._tasks
        others = num_columns - _num_excluded(excluded, len(self._queries.wide), row.device)[row]
        own = column >= 0
        if num_columns:
            own &= ~excluded.lists(row, column.clamp(min=0))
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
            shape, device = (len(queries), shard.total), queries.device
            tasks = read_tasks(target, exclude, shape, device, by_query=by_query)
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
            counter = Counter(given, SortedTasks(row, shard.local(column), true, excluded))
            width = chunk_size or (_WIDTH if row.is_cpu else _WIDTH_ACCELERATOR)
            for left, tile in tiles.slices(width) if len(row) else ():
                counter.add(tile, left)
            counts = counter.counts(len(tiles))
        counts = shard.all_sum(counts)
        counts[3] += true.isnan()
        counts = torch.empty_like(counts, device=device).index_copy_(1, order, counts.to(device))
    flags = tasks.flags_by(counts[2], shard.total)
    return from_counts(counts, flags, tasks.rows, tasks.gain)


def all_scores(
    queries: Tensor, candidates: "Candidates", similarity: str, backend: str = "auto"
) -> Tensor:
    """Scores (B, N) of all candidates by the routine, float64, as they are compared."""
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
    tile, out = tiles.tile(slice(None)), out.to(given.device)
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


def prepared(
    queries: Tensor, candidates: "Candidates", similarity: str, backend: str
) -> tuple[Queries, Tiles]:
    """Read queries and candidates where they are ranked: on their device, or on the CPU without float64."""
    if queries.device.type in _NO_FLOAT64:
        queries = queries.cpu()
    tiles = Tiles(candidates, similarity, queries, backend)
    return Queries(queries.resolve_neg(), tiles.kernels), tiles
