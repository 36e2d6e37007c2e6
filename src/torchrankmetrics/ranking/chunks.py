"""Ranks of candidates that never stand in one matrix: scores in chunks, or embeddings multiplied tile by tile."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from torchrankmetrics.checks import check_choice, check_int
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.excluded import Exclude, check_exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, Tasks, check_target, flags_of, said_of_answers

_TILE = 1 << 20
_WIDEST, _NARROWEST = 4096, 1024


class RankAccumulator:
    """Ranks of a batch whose candidates arrive in chunks of columns, in order; as ``rank_scores`` on the whole matrix.

    Args:
        true_scores: (tasks,) score of each true candidate, from the same computation as the chunks: a product of
            another shape may round differently, and then a candidate equal to the truth no longer ties with it.
        target: as ``rank_scores`` takes it, columns of the whole matrix. The own column is left out by index.
        shape: (B, N) of the whole matrix.
        exclude: as ``rank_scores`` takes it, for the whole matrix.
        counting: as ``rank_scores`` takes it.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError at ``compute`` if not all N columns came.

    >>> scores = torch.tensor([[3.0, 1.0, 2.0, 1.0]])
    >>> ranks = RankAccumulator(scores[:, 1], torch.tensor([1]), (1, 4))
    >>> for chunk in scores.split(3, dim=1):
    ...     ranks.update(chunk)
    >>> ranks.compute()
    Ranks(optimistic=[3], pessimistic=[4], num_candidates=[4])
    """

    def __init__(
        self,
        true_scores: Tensor,
        target: Target,
        shape: tuple[int, int],
        *,
        exclude: Exclude = None,
        counting: str = "auto",
    ) -> None:
        tasks = check_target(target, shape, true_scores.device)
        # copies, for what the caller writes between two chunks must not part them
        self._tasks = Tasks(tasks.row if tasks.row is None else tasks.row.clone(), tasks.column.clone(), tasks.wrong)
        excluded = check_exclude(exclude, shape, true_scores.device)
        if true_scores.shape != self._tasks.column.shape:
            expected = tuple(self._tasks.column.shape)
            raise ValueError(f"true_scores must be (tasks,) = {expected}, got {tuple(true_scores.shape)}")
        self._flags = flags_of(self._tasks, excluded)
        if tasks.row is not None:
            told = said_of_answers(self._tasks, excluded)
            self._flags = told if self._flags is None else told + self._flags
        self._true = true_scores.detach().clone()
        self._shape = tuple(shape)
        self._seen = 0
        self._counting = counting
        self._known = excluded.known  # the columns that are still to come
        self._excluded = None if excluded.columns is None else excluded.columns.clone()
        self._counts = torch.zeros(4, len(self._true), dtype=torch.int64, device=self._true.device)

    @torch.no_grad()
    def update(self, scores: Tensor) -> None:
        """Count the next columns, (B, n) with n of any size; dtype and device of the true scores."""
        B, N = self._shape
        if scores.ndim != 2 or len(scores) != B or self._seen + scores.shape[1] > N:
            left = N - self._seen
            raise ValueError(f"scores must be ({B}, n) with n up to the {left} columns left, got {tuple(scores.shape)}")
        if scores.dtype != self._true.dtype:
            raise TypeError(f"scores must have the dtype of true_scores, {self._true.dtype}; got {scores.dtype}")
        if scores.device != self._true.device:
            raise ValueError(f"scores must be on the device of true_scores, {self._true.device}; got {scores.device}")
        left, right = self._seen, self._seen + scores.shape[1]
        if left == right:
            return
        column = self._tasks.column
        column = torch.where((column >= left) & (column < right), column - left, -1)
        excluded = None if self._excluded is None else self._excluded[:, left:right]
        known = rest = None
        if self._known is not None:
            known, rest = self._known.split(right)
            known = replace(known, longest=min(known.longest, right - left), first=left)
        count = choose(scores, self._counting)
        # a new tensor: one made in inference mode must not be written outside
        self._counts = self._counts + count(scores.detach(), self._true, self._tasks.row, column, known, excluded)
        self._known, self._seen = rest, right

    def compute(self) -> Ranks:
        """Ranks among all N columns."""
        if self._seen != self._shape[1]:
            raise ValueError(f"compute needs all {self._shape[1]} columns; update has been given {self._seen}")
        ranks = Ranks.from_counts(self._counts.clone(), self._flags)
        rows = None if self._tasks.row is None else (self._tasks.row, self._shape[0])
        return Ranks.trusted(ranks.columns, ranks.flags, rows)


def rank_embeddings(
    queries: Tensor,
    candidates: Tensor,
    target: Target,
    *,
    similarity: str = "dot",
    exclude: Exclude = None,
    chunk_size: int | None = None,
    counting: str = "auto",
) -> Ranks:
    """Rank candidates by the similarity of embeddings, tile by tile: the (B, N) matrix never exists.

    dot: q.e; cosine: q.e / |e| (|q| changes no rank; a zero vector gives NaN, which never helps); l2: 2 q.e - |e|^2,
    which orders as -|q - e|; l1: -sum |q - e|. In half precision all but dot are computed in float32. The true score
    comes from a tile of the same shape and product. Where the arithmetic is exact (small integers) the ranks are those
    of ``rank_scores`` on the whole matrix; elsewhere scores that differ by less than the rounding of the product may
    swap or tie, as between any two ways to compute it.

    Args:
        queries: (B, d) floats.
        candidates: (N, d) floats, same dtype and device; only read.
        target: as ``rank_scores`` takes it.
        similarity: "dot", "cosine", "l2" or "l1"; larger is better for all four.
        exclude: as ``rank_scores`` takes it.
        chunk_size: candidates a tile; None: 1024 to 4096, about 2^20 scores.
        counting: as ``rank_scores`` takes it.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError for an unknown similarity.

    >>> points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> rank_embeddings(points[:1], points, torch.tensor([0]), similarity="l2")
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[3])
    """
    _check_embeddings(queries, candidates, similarity, chunk_size)
    B, N = len(queries), len(candidates)
    tasks = check_target(target, (B, N), queries.device)
    width = chunk_size or max(_NARROWEST, min(_WIDEST, _TILE // max(B, 1)))
    width = min(width, N)
    product = _PRODUCTS[similarity]
    dtype = _dtype_of_scores(queries.dtype, similarity)
    with torch.no_grad():
        queries, candidates = queries.detach().to(dtype), candidates.detach()
        buffer = queries.new_empty(B, width)
        true = _true_scores(queries, candidates, tasks, product, buffer)
        ranks = RankAccumulator(true, target, (B, N), exclude=exclude, counting=counting)
        for left in range(0, N, width):
            start = min(left, N - width)  # the last tile reaches back: every product has the same shape
            scores = product(queries, candidates[start : start + width].to(dtype), buffer)
            ranks.update(scores[:, left - start :])
    return ranks.compute()


def _dtype_of_scores(dtype: torch.dtype, similarity: str) -> torch.dtype:
    """Half precision overflows in squares and sums, and torch multiplies no eighths: both are widened tile by tile."""
    narrow = dtype.itemsize == 1 or (dtype.itemsize == 2 and similarity != "dot")
    return torch.float32 if narrow else dtype


def _true_scores(queries: Tensor, candidates: Tensor, tasks: Tasks, product: "_Product", buffer: Tensor) -> Tensor:
    column = tasks.column
    row = torch.arange(len(queries), device=column.device) if tasks.row is None else tasks.row
    true = queries.new_empty(len(column))
    width = buffer.shape[1]
    place = torch.arange(width, device=column.device)
    for first in range(0, len(column), width):
        here = slice(first, min(first + width, len(column)))
        # repeated up to the width of a tile, for a narrower product may round differently
        wide = column[here][place % (here.stop - here.start)]
        tile = candidates[wide].to(queries.dtype)
        true[here] = product(queries, tile, buffer)[row[here], place[: here.stop - here.start]]
    return true


_Product = Callable[[Tensor, Tensor, Tensor], Tensor]


def _dot(queries: Tensor, tile: Tensor, out: Tensor) -> Tensor:
    return torch.mm(queries, tile.T, out=out)


def _cosine(queries: Tensor, tile: Tensor, out: Tensor) -> Tensor:
    return _dot(queries, tile, out).div_(torch.linalg.vector_norm(tile, dim=1))


def _l2(queries: Tensor, tile: Tensor, out: Tensor) -> Tensor:
    return torch.addmm(-tile.square().sum(1)[None], queries, tile.T, alpha=2, out=out)


def _l1(queries: Tensor, tile: Tensor, out: Tensor) -> Tensor:
    return torch.neg(torch.cdist(queries, tile, p=1), out=out)


_PRODUCTS: dict[str, _Product] = {"dot": _dot, "cosine": _cosine, "l2": _l2, "l1": _l1}


def _check_embeddings(queries: Tensor, candidates: Tensor, similarity: str, chunk_size: int | None) -> None:
    if queries.ndim != 2 or candidates.ndim != 2 or queries.shape[1] != candidates.shape[1] or not len(candidates):
        raise ValueError(
            "queries must be (B, d) and candidates (N, d) with N >= 1, "
            f"got {tuple(queries.shape)} and {tuple(candidates.shape)}"
        )
    if not queries.is_floating_point() or queries.dtype != candidates.dtype:
        raise TypeError(
            f"queries and candidates must share a floating dtype, got {queries.dtype} and {candidates.dtype}"
        )
    if queries.device != candidates.device:
        raise ValueError(f"candidates must be on the device of queries, {queries.device}; got {candidates.device}")
    check_choice("similarity", similarity, _PRODUCTS)
    if chunk_size is not None:
        check_int("chunk_size", chunk_size, 1)
