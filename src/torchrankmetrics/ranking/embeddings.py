"""`rank_embeddings`: ranks from embeddings, multiplied tile by tile without the score matrix."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchrankmetrics.eager import eager
from torchrankmetrics.errors import told
from torchrankmetrics.ranking.accumulator import RankAccumulator, read_tasks
from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.exact.candidates import Candidates
from torchrankmetrics.ranking.exact.rank import SIMILARITIES, rank_exactly
from torchrankmetrics.ranking.exclude import Exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, Tasks
from torchrankmetrics.ranking.shards import Part, Slicing
from torchrankmetrics.validation import check_choice, check_int

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


_TILE, _WIDEST, _NARROWEST = 1 << 20, 4096, 1024


@eager
@told
def rank_embeddings(
    queries: Tensor | Array,
    candidates: Tensor | Array | Candidates,
    target: Target,
    *,
    similarity: str = "dot",
    exclude: Exclude = None,
    chunk_size: int | None = None,
    backend: str = "auto",
    bias: Tensor | Array | None = None,
    arithmetic: str | None = None,
    offset: int | None = None,
    num_candidates: int | None = None,
    process_group: "ProcessGroup | None" = None,
) -> Ranks:
    """Rank candidates by the similarity of embeddings, tile by tile: the (B, N) matrix never exists.

    dot: q.e; cosine: q.e / |e| (|q| changes no rank; a zero vector gives NaN, which never helps); l2: -|q - e|^2; l1:
    -sum |q - e|; the bias of each candidate is added.

    Exact arithmetic, the default for all but l1 on the CPU, ranks by the scores as real numbers: the ranks are the same
    on every device, with any tiles, threads and libraries; infinite and NaN numbers follow IEEE arithmetic. "product"
    ranks by what torch multiplies in the dtype of the embeddings (of half precision all but dot in float32): scores
    that differ by less than its rounding may swap or tie. How, and what it costs: docs/scale.md.

    With a ``process_group`` each process passes its slice of the candidates, and all get the ranks among all of them.
    By exact arithmetic these are bit for bit those of one process; by the product they are where that gives a score the
    same bits on all processes. Every process waits for the others, and what is wrong on one is an error on all.

    Args:
        queries: (B, d) floats, a tensor or an array, like what follows.
        candidates: (N, d) floats, same dtype and device, only read; or ``Candidates``, which serve many calls.
        target: as ``rank_scores`` takes it.
        similarity: "dot", "cosine", "l2" or "l1"; larger is better for all four.
        exclude: as ``rank_scores`` takes it.
        chunk_size: candidates a tile; None: 16384, of the product 1024 to 4096.
        backend: as ``rank_scores`` takes it.
        bias: (N,) floats, for all but cosine; ``Candidates`` hold their own.
        arithmetic: "exact", "product", or None: exact where the error of the product is known to be bounded, which is
            on the CPU and not for l1.
        offset: which of all candidates the first of the slice is; None: the slices come in the order of the processes.
        num_candidates: N of all slices together, to be checked; None: it is their sum.
        process_group: processes that are given the same queries, target and exclude, whose columns are of all
            candidates, and slices that cover these once; some may be empty. None: this process has all candidates.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError for an unknown similarity, a bias with cosine,
            and exact arithmetic with l1; with a group on every process: what is wrong on one, by its name; slices with
            gaps or overlaps; arguments that differ.

    >>> points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> rank_embeddings(points[:1], points, torch.tensor([0]), similarity="l2")
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[3])
    """

    def read() -> tuple[Tensor, Candidates, str]:
        asked = read_scores(queries, "queries", "embeddings")
        if isinstance(candidates, Candidates):
            check_embeddings(asked, candidates.embeddings, some=process_group is None)
            held = read_candidates(candidates, bias)
        else:
            given = read_scores(candidates, "candidates", "embeddings")
            check_embeddings(asked, given, some=process_group is None)
            held = read_candidates(given, bias)
        check_similarity(similarity, held.bias)
        if chunk_size is not None:
            check_int("chunk_size", chunk_size, 1)
        return asked, held, resolve_arithmetic(arithmetic, similarity, asked.device)

    def said(found: tuple[Tensor, Candidates, str]) -> dict[str, object]:
        return {"arithmetic": found[2], "similarity": similarity, "the device": found[0].device.type}

    slicing = Slicing(process_group, offset, num_candidates)
    (queries, held, way), part = slicing.join(read, lambda found: len(found[1]), said)
    if way == "exact":
        return rank_exactly(
            queries,
            held,
            target,
            exclude,
            similarity=similarity,
            chunk_size=chunk_size,
            backend=backend,
            kept=isinstance(candidates, Candidates),
            say_rows=True,
            part=part,
        )
    return _rank_by_product(queries, held, target, similarity, exclude, chunk_size, backend, part)


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
    backend: str,
    part: Part,
) -> Ranks:
    B, n = len(queries), len(candidates)
    width = min(chunk_size or max(_NARROWEST, min(_WIDEST, _TILE // max(B, 1))), part.total)
    dtype = _dtype_of_scores(queries.dtype, similarity)
    with torch.no_grad():
        queries = queries.detach().to(dtype)
        buffer = queries.new_empty(B, width)

        def scores_of(columns: Tensor | slice) -> Tensor:
            tile, bias = candidates.embeddings[columns], candidates.bias
            bias = None if bias is None else bias[columns]
            if len(tile) < width:  # a slice of fewer: every product of every process has the same shape
                tile = torch.cat([tile, tile.new_zeros(width - len(tile), tile.shape[1])])
                bias = None if bias is None else torch.cat([bias, bias.new_zeros(width - len(bias))])
            scores = _PRODUCTS[similarity](queries, tile.to(dtype), buffer)
            return scores if bias is None else scores.add_(bias.to(dtype))

        def chunks() -> Iterator[Tensor]:
            for left in range(0, n, width):
                start = max(0, min(left, n - width))  # the last tile reaches back, for its shape too
                yield scores_of(slice(start, start + width))[:, left - start : n - start]

        def true_scores(tasks: Tasks) -> Tensor:
            return _true_scores(scores_of, tasks, part, buffer)

        asked = part.agree(
            lambda: read_tasks(target, exclude, part, B, queries.device, true_scores),
            lambda asked: {
                **asked.said(part, B),
                "candidates": (candidates.embeddings.dtype, candidates.embeddings.shape[1:]),
                "bias": None if candidates.bias is None else candidates.bias.dtype,
                "chunk_size": width,
                "queries": queries,
            },
        )
        return RankAccumulator.of(asked, part, B, backend).rank(chunks())


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


def _true_scores(scores_of: Callable[[Tensor], Tensor], tasks: Tasks, part: Part, buffer: Tensor) -> Tensor:
    row, column = tasks.rows, part.local(tasks.column)
    if not part.is_whole:
        held = column >= 0
        true = buffer.new_zeros(len(column))
        row, column = row[held], column[held]
    found, width = buffer.new_empty(len(column)), buffer.shape[1]
    place = torch.arange(width, device=column.device)
    for first in range(0, len(column), width):
        here = slice(first, first + width)
        some = column[here]
        # repeated up to the width of a tile, for a narrower product may round differently
        found[here] = scores_of(some[place % len(some)])[row[here], place[: len(some)]]
    if part.is_whole:
        return found
    true[held] = found
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


def read_candidates(candidates: Tensor | Array | Candidates, bias: Tensor | Array | None) -> Candidates:
    """Make candidates of a tensor; those that are some already hold their bias."""
    if not isinstance(candidates, Candidates):
        return Candidates(candidates, bias)
    if bias is not None:
        raise ValueError("bias must not be given with Candidates: they hold their own")
    return candidates


def check_embeddings(queries: Tensor, candidates: Tensor, *, some: bool = True) -> None:
    """Refuse embeddings that cannot be multiplied; ``some`` candidates are needed where there are no other slices."""
    none = some and not len(candidates)
    if queries.ndim != 2 or candidates.ndim != 2 or queries.shape[1] != candidates.shape[1] or none:
        raise ValueError(
            f"queries must be (B, d) and candidates (N, d){' with N >= 1' if some else ''}, "
            f"got {tuple(queries.shape)} and {tuple(candidates.shape)}"
        )
    # Candidates store float8 as bfloat16
    dtypes = {torch.bfloat16 if x.dtype.itemsize == 1 else x.dtype for x in (queries, candidates)}
    if not queries.is_floating_point() or len(dtypes) > 1:
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
