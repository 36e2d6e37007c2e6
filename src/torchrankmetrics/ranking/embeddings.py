"""`rank_embeddings` and `Candidates`: ranks from embeddings, tile by tile without the score matrix."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.ranking.accumulator import rank_chunks
from torchrankmetrics.ranking.arrays import Array, check_device, read_scores
from torchrankmetrics.ranking.counting import chosen
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.tasks import Exclude, Target
from torchrankmetrics.validation import check_choice, check_int

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_TILE, _WIDEST, _NARROWEST, _NARROWEST_ACCELERATOR = 1 << 20, 4096, 256, 1024
_QUERIES, _QUERIES_ACCELERATOR = 256, 4096  # multiplied at once
_EXACT = ("dot", "cosine", "l2")


class Candidates:
    """Candidate embeddings that serve many calls of ``rank_embeddings``, which stores prepared copies in them.

    The embeddings themselves are not copied and must not change: create new candidates after a step
    of training.

    Args:
        embeddings (Tensor or array): (N, d) floats, only read; N may be 0 on a process of a group.
        bias (Tensor or array, default None): (N,) floats added to the similarities "dot", "l2" and
            "l1".

    Raises:
        TypeError: if they are not floats.
        ValueError: if shapes or devices do not match; in ``rank_embeddings``, if they have been
            written to since.

    >>> from torchrankmetrics import rank_embeddings
    >>> candidates = Candidates(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), bias=torch.tensor([0.0, 0.0, -0.5]))
    >>> rank_embeddings(torch.tensor([[2.0, 1.0]]), candidates, torch.tensor([0]))
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """

    def __init__(self, embeddings: Tensor | Array, bias: Tensor | Array | None = None) -> None:
        embeddings = read_scores(embeddings, "candidates", "embeddings (N, d)")
        if embeddings.ndim != 2:
            raise ValueError(f"candidates must be (N, d), got {tuple(embeddings.shape)}")
        if not embeddings.is_floating_point():
            raise TypeError(f"candidates must be floats, got {embeddings.dtype}")
        if bias is not None:
            bias = read_scores(bias, "bias", "floats (N,)")
            if not bias.is_floating_point():
                raise TypeError(f"bias must hold floats, got {bias.dtype}")
            if bias.shape != embeddings.shape[:1]:
                raise ValueError(
                    f"bias must be (N,) = ({len(embeddings)},), got {tuple(bias.shape)}"
                )
            check_device(bias, "bias", embeddings.device, "candidates")
        self.bias, self.embeddings = bias, embeddings.resolve_neg()
        # torch does not multiply float8; bfloat16 represents every float8
        if embeddings.dtype.itemsize == 1:
            self.embeddings = self.embeddings.to(torch.bfloat16)
        # a tensor of inference mode has no version
        self._given = [x for x in (embeddings, bias) if x is not None and not x.is_inference()]
        self._versions = [x._version for x in self._given]
        self.prepared: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.embeddings)

    def settings(self, queries: Tensor) -> dict[str, object]:
        """Name what all processes must share to rank these candidates for the queries, after a check of them."""
        self.check_unchanged()
        bias = None if self.bias is None else self.bias.dtype
        return {
            "candidates": (self.embeddings.dtype, self.embeddings.shape[1:]),
            "bias": bias,
            "queries": queries,
        }

    def check_unchanged(self) -> None:
        """Raise if torch has counted a write to the tensors since."""
        if [x._version for x in self._given] != self._versions:
            raise ValueError(
                "the embeddings or the bias of Candidates have changed since: make new Candidates "
                "of them"
            )


@eager
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

    dot: q.e; cosine: q.e / |e| (|q| changes no rank; a zero vector gives NaN, which never helps);
        l2: -|q - e|^2; l1:
    -sum |q - e|; the bias of each candidate is added.

    Exact arithmetic ranks by the scores as real numbers: the ranks are the same on every device,
    with any tiles, threads and libraries; infinite and NaN numbers follow IEEE arithmetic.
    "product" ranks by the product that torch computes in the dtype of the embeddings (float32 for
    half precision, except dot): scores that differ by less than its rounding may swap or tie.
    Algorithm and costs: docs/scale.md.

    With a ``process_group`` each process passes its slice of the candidates, and all get the ranks
    among all of them: exact ranks are those of one process bit for bit, ranks by the product if a
    score has the same bits everywhere. Every process must call the function, and an error on one
    process is raised on all.

    Args:
        queries (Tensor or array): (B, d) floats.
        candidates (Tensor, array or Candidates): (N, d) floats, same dtype and device, only read.
        target (Tensor, list or tuple): as in ``rank_scores``.
        similarity (str, default "dot"): "dot", "cosine", "l2" or "l1"; larger is better for all
            four.
        exclude (Tensor, list or tuple, default None): as in ``rank_scores``.
        chunk_size (int, default None): candidates per tile; None: 32768, by the product 256 to
            4096.
        backend (str, default "auto"): as in ``rank_scores``.
        bias (Tensor or array, default None): (N,) floats, for all but cosine; ``Candidates`` have
            their own.
        arithmetic (str, default None): "exact", "product", or None: exact on the CPU, except for
            l1.
        offset (int, default None): index of the first candidate of the slice; None: slices are in
            order of processes.
        num_candidates (int, default None): N of all slices together, to be checked; None: their
            sum.
        process_group (ProcessGroup, default None): processes with the same queries, target and
            exclude, whose columns are of all candidates, and with slices that cover the candidates
            once. None: this process has all.

    Returns:
        Ranks, one entry per target, in the order of target.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError for options that do not
            fit together, and for slices with gaps or overlaps or arguments that differ on the
            processes.

    >>> points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> rank_embeddings(points[:1], points, torch.tensor([0]), similarity="l2")
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[3])
    """
    with Shard(process_group, offset, num_candidates).joining() as shard:
        queries = read_scores(queries, "queries", "embeddings")
        prepared = read_candidates(candidates, bias, similarity)
        check_embeddings(queries, prepared.embeddings, some=process_group is None)
        if chunk_size is not None:
            check_int("chunk_size", chunk_size, 1)
        arithmetic, shard.size = (
            resolve_arithmetic(arithmetic, similarity, queries.device),
            len(prepared),
        )
        shard.settings |= {
            "arithmetic": arithmetic,
            "similarity": similarity,
            "the device": queries.device.type,
        }
        shard.settings |= prepared.settings(queries)
        if arithmetic == "product":
            shard.settings["chunk_size"] = chunk_size
    if arithmetic == "exact":
        from torchrankmetrics.ranking.exact.rank import rank_exactly

        how = similarity, backend, chunk_size
        return rank_exactly(
            queries, prepared, target, exclude, shard, *how, is_reused=prepared is candidates
        )
    narrowest = _NARROWEST if queries.is_cpu else _NARROWEST_ACCELERATOR
    width = min(
        chunk_size or max(narrowest, min(_WIDEST, _TILE // max(len(queries), 1))), shard.total
    )
    with torch.no_grad():
        product = _Product(queries, prepared, similarity, width)
        true_of, like = product.scores_of_pairs, product.buffer
        return rank_chunks(product.chunks(), true_of, target, exclude, like, shard, backend)


def resolve_arithmetic(arithmetic: str | None, similarity: str, device: torch.device) -> str:
    """Find how embeddings are ranked, "exact" or "product"."""
    if arithmetic is None:
        return "exact" if device.type == "cpu" and similarity in _EXACT else "product"
    check_choice("arithmetic", arithmetic, ("exact", "product"))
    if arithmetic == "exact" and similarity not in _EXACT:
        raise ValueError(
            f'arithmetic="exact" is for {", ".join(_EXACT)}; use "product" for {similarity}'
        )
    return arithmetic


class _Product:
    """Scores of queries (B, d) in one buffer; every product has one shape, because another may round differently."""

    def __init__(
        self, queries: Tensor, candidates: Candidates, similarity: str, width: int
    ) -> None:
        dtype = queries.dtype
        # half precision overflows in squares and sums, and torch does not multiply float8
        if dtype.itemsize == 1 or (dtype.itemsize == 2 and similarity != "dot"):
            dtype = torch.float32
        self.queries, self._candidates, self._dtype = queries.detach().to(dtype), candidates, dtype
        self._product, self.width = _PRODUCTS[similarity], width
        self._height = min(len(queries), _QUERIES if queries.is_cpu else _QUERIES_ACCELERATOR)
        self.buffer = self.queries.new_empty(len(queries), width)

    def scores(self, columns: Tensor | slice) -> Tensor:
        B, candidates = len(self.queries), self._read(columns)
        for first in range(0, B, max(1, self._height)):
            first = min(first, B - self._height)  # the last queries begin earlier
            rows = slice(first, first + self._height)
            self._multiply(self.queries[rows], *candidates, self.buffer[rows])
        return self.buffer

    def chunks(self) -> Iterator[Tensor]:
        n = len(self._candidates)
        for left in range(0, n, self.width):
            start = max(0, min(left, n - self.width))  # the last tile begins earlier
            yield self.scores(slice(start, start + self.width))[:, left - start : n - start]

    def scores_of_pairs(self, row: Tensor, column: Tensor) -> Tensor:
        """Scores (P,) of pairs, from the diagonals of products."""
        found, buffer = self.buffer.new_empty(len(column)), self.buffer[: self._height]
        place, step = torch.arange(self.width, device=column.device), min(self._height, self.width)
        for first in range(0, len(column), max(1, step)):
            here = slice(first, first + step)
            rows, columns = row[here], column[here]
            candidates = self._read(columns[place % len(columns)])
            queries = self.queries[rows[torch.arange(self._height, device=row.device) % len(rows)]]
            found[here] = self._multiply(queries, *candidates, buffer).diagonal()[: len(rows)]
        return found

    def _read(self, columns: Tensor | slice) -> tuple[Tensor, Tensor | None]:
        tile, bias = self._candidates.embeddings[columns], self._candidates.bias
        bias = None if bias is None else bias[columns]
        if len(tile) < self.width:
            tile = torch.cat([tile, tile.new_zeros(self.width - len(tile), tile.shape[1])])
            bias = (
                None if bias is None else torch.cat([bias, bias.new_zeros(self.width - len(bias))])
            )
        return tile.to(self._dtype), None if bias is None else bias.to(self._dtype)

    def _multiply(self, queries: Tensor, tile: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
        scores = self._product(queries, tile, out)
        return scores if bias is None else scores.add_(bias)


def product_scores(queries: Tensor, candidates: Candidates, similarity: str) -> Tensor:
    """Scores (B, N) of all candidates in one matrix, by the product."""
    candidates.check_unchanged()
    return _Product(queries, candidates, similarity, len(candidates)).scores(slice(None))


def _negative_distances(queries: Tensor, tile: Tensor, out: Tensor) -> Tensor:
    if chosen(queries) == "numba":  # a fifth of the time
        from torchrankmetrics.ranking.counting.numba_backend import negative_distances

        return negative_distances(queries, tile, out)
    return torch.neg(torch.cdist(queries, tile, p=1), out=out)


_PRODUCTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "dot": lambda queries, tile, out: torch.mm(queries, tile.T, out=out),
    "cosine": lambda queries, tile, out: torch.mm(queries, tile.T, out=out).div_(
        torch.linalg.vector_norm(tile, dim=1)
    ),
    "l2": lambda queries, tile, out: torch.addmm(
        -tile.square().sum(1)[None], queries, tile.T, alpha=2, out=out
    ),
    "l1": _negative_distances,
}


def read_candidates(
    candidates: Tensor | Array | Candidates, bias: Tensor | Array | None, similarity: str
) -> Candidates:
    """Read candidates and their bias for a similarity; ``Candidates`` have their own bias."""
    if not isinstance(candidates, Candidates):
        candidates = Candidates(candidates, bias)
    elif bias is not None:
        raise ValueError("bias must not be given with Candidates: they hold their own")
    check_choice("similarity", similarity, _PRODUCTS)
    if candidates.bias is not None and similarity == "cosine":
        raise ValueError(
            "bias is added to a product or a distance; with similarity cosine it must be None"
        )
    return candidates


def check_embeddings(queries: Tensor, candidates: Tensor, *, some: bool = True) -> None:
    """Check that embeddings can be multiplied; without ``some``, N may be 0 (an empty shard)."""
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
            f"queries and candidates must share a float dtype, got {queries.dtype} and "
            f"{candidates.dtype}"
        )
    check_device(candidates, "candidates", queries.device, "queries")
