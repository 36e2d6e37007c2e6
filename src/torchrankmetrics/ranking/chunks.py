"""Ranks of candidates that never stand in one matrix: scores in chunks, or embeddings multiplied tile by tile."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from torchrankmetrics.checks import check_choice, check_int
from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.rank import SIMILARITIES, rank_exactly
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.excluded import Exclude, check_exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, Tasks, check_target, flags_of, said_of_answers
from torchrankmetrics.ranking.tolerance import Tolerance, check_tolerance, count_within, within

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
        tolerance: as ``rank_scores`` takes it, but not relative: the spread of a row is not known before its end.

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
        tolerance: float | Tolerance = 0.0,
    ) -> None:
        absolute, relative = check_tolerance(tolerance, true_scores.dtype)
        if relative:
            raise ValueError(
                "tolerance of chunks must be absolute: the spread of a row is known when its last chunk has come, and "
                "the scores of the others are gone; pass the width itself, or whole rows to rank_scores"
            )
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
        self._ends = within(self._true, absolute) if absolute else None
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
        given = self._tasks.row, column, known, excluded
        if self._ends is None:
            counts = count(scores.detach(), self._true, *given)
        else:
            counts = count_within(count, scores.detach(), self._ends, *given)
        self._counts = self._counts + counts
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
    candidates: Tensor | Candidates,
    target: Target,
    *,
    similarity: str = "dot",
    exclude: Exclude = None,
    chunk_size: int | None = None,
    counting: str = "auto",
    bias: Tensor | None = None,
    arithmetic: str | None = None,
) -> Ranks:
    """Rank candidates by the similarity of embeddings, tile by tile: the (B, N) matrix never exists.

    dot: q.e; cosine: q.e / |e| (|q| changes no rank; a zero vector gives NaN, which never helps); l2: -|q - e|^2; l1:
    -sum |q - e|; the bias of each candidate is added.

    Exact arithmetic, the default for all but l1 on the CPU, ranks by the scores as real numbers: the ranks are the same
    on every device, with any tiles, threads and libraries; infinite and NaN numbers follow IEEE arithmetic. "product"
    ranks by what torch multiplies in the dtype of the embeddings (of half precision all but dot in float32): scores
    that differ by less than its rounding may swap or tie. How, and what it costs: docs/scale.md.

    Args:
        queries: (B, d) floats.
        candidates: (N, d) floats, same dtype and device, only read; or ``Candidates``, which serve many calls.
        target: as ``rank_scores`` takes it.
        similarity: "dot", "cosine", "l2" or "l1"; larger is better for all four.
        exclude: as ``rank_scores`` takes it.
        chunk_size: candidates a tile; None: 4096, of the product about 2^20 scores.
        counting: as ``rank_scores`` takes it.
        bias: (N,) floats, for all but cosine; ``Candidates`` hold their own.
        arithmetic: "exact", "product", or None: exact where the error of the product is known to be bounded, which is
            on the CPU and not for l1.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError for an unknown similarity, a bias with cosine,
            and exact arithmetic with l1.

    >>> points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> rank_embeddings(points[:1], points, torch.tensor([0]), similarity="l2")
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[3])
    """
    kept = isinstance(candidates, Candidates)
    check_embeddings(queries, candidates.embeddings if isinstance(candidates, Candidates) else candidates)
    held = read_candidates(candidates, bias)
    check_similarity(similarity, held.bias)
    if chunk_size is not None:
        check_int("chunk_size", chunk_size, 1)
    if resolve_arithmetic(arithmetic, similarity, queries.device) == "exact":
        return rank_exactly(
            queries,
            held,
            target,
            exclude,
            None,
            similarity=similarity,
            chunk_size=chunk_size,
            counting=counting,
            kept=kept,
            say_rows=True,
        )
    return _rank_by_product(queries, held, target, similarity, exclude, chunk_size, counting)


def resolve_arithmetic(arithmetic: str | None, similarity: str, device: torch.device) -> str:
    """Tell how embeddings are ranked, "exact" or "product", if nothing is said by default."""
    if arithmetic is None:
        return "exact" if device.type == "cpu" and similarity in SIMILARITIES else "product"
    check_choice("arithmetic", arithmetic, ("exact", "product"))
    if arithmetic == "exact" and similarity not in SIMILARITIES:
        raise ValueError(f'arithmetic="exact" is for {", ".join(SIMILARITIES)}; use "product" for {similarity}')
    return arithmetic


def _rank_by_product(
    queries: Tensor,
    candidates: Candidates,
    target: Target,
    similarity: str,
    exclude: Exclude,
    chunk_size: int | None,
    counting: str,
) -> Ranks:
    B, N = len(queries), len(candidates)
    tasks = check_target(target, (B, N), queries.device)
    width = chunk_size or max(_NARROWEST, min(_WIDEST, _TILE // max(B, 1)))
    width = min(width, N)
    dtype = _dtype_of_scores(queries.dtype, similarity)
    with torch.no_grad():
        queries = queries.detach().to(dtype)
        buffer = queries.new_empty(B, width)

        def scores_of(columns: Tensor | slice) -> Tensor:
            scores = _PRODUCTS[similarity](queries, candidates.embeddings[columns].to(dtype), buffer)
            return scores if candidates.bias is None else scores.add_(candidates.bias[columns].to(dtype))

        true = _true_scores(scores_of, tasks, buffer)
        ranks = RankAccumulator(true, target, (B, N), exclude=exclude, counting=counting)
        for left in range(0, N, width):
            start = min(left, N - width)  # the last tile reaches back: every product has the same shape
            ranks.update(scores_of(slice(start, start + width))[:, left - start :])
    return ranks.compute()


def product_scores(queries: Tensor, candidates: Candidates, similarity: str) -> Tensor:
    """Scores (B, N) of all candidates in one matrix, by the product."""
    dtype = _dtype_of_scores(queries.dtype, similarity)
    buffer = torch.empty(len(queries), len(candidates), dtype=dtype, device=queries.device)
    scores = _PRODUCTS[similarity](queries.detach().to(dtype), candidates.embeddings.to(dtype), buffer)
    return scores if candidates.bias is None else scores.add_(candidates.bias.to(dtype))


def _dtype_of_scores(dtype: torch.dtype, similarity: str) -> torch.dtype:
    """Half precision overflows in squares and sums, and torch multiplies no eighths: both are widened tile by tile."""
    narrow = dtype.itemsize == 1 or (dtype.itemsize == 2 and similarity != "dot")
    return torch.float32 if narrow else dtype


def _true_scores(scores_of: Callable[[Tensor], Tensor], tasks: Tasks, buffer: Tensor) -> Tensor:
    column = tasks.column
    row = torch.arange(len(buffer), device=column.device) if tasks.row is None else tasks.row
    true = buffer.new_empty(len(column))
    width = buffer.shape[1]
    place = torch.arange(width, device=column.device)
    for first in range(0, len(column), width):
        here = slice(first, min(first + width, len(column)))
        # repeated up to the width of a tile, for a narrower product may round differently
        wide = column[here][place % (here.stop - here.start)]
        true[here] = scores_of(wide)[row[here], place[: here.stop - here.start]]
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


def read_candidates(candidates: Tensor | Candidates, bias: Tensor | None) -> Candidates:
    """Make candidates of a tensor; those that are some already hold their bias."""
    if not isinstance(candidates, Candidates):
        return Candidates(candidates, bias)
    if bias is not None:
        raise ValueError("bias must not be given with Candidates: they hold their own")
    return candidates


def check_embeddings(queries: Tensor, candidates: Tensor) -> None:
    """Refuse embeddings that cannot be multiplied."""
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


def check_similarity(similarity: str, bias: Tensor | None) -> None:
    """Refuse a similarity that is none, or takes no bias."""
    check_choice("similarity", similarity, _PRODUCTS)
    if bias is not None and similarity == "cosine":
        raise ValueError("bias is added to a product or a distance; with similarity cosine it must be None")
