"""`rank_embeddings` and `Candidates`: ranks of embeddings without the score matrix."""

from __future__ import annotations  # help() shows the names of types

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.ranking.arrays import Array, check_device, read_scores
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.similarities import SIMILARITIES
from torchrankmetrics.ranking.tasks import Exclude, Target, read_tasks
from torchrankmetrics.ranking.tile_ranks import rank_by_tiles
from torchrankmetrics.validation import check_choice, check_int

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# names of other projects, and what to pass here
_ELSEWHERE = {
    "inner": '"dot"',
    "inner_product": '"dot"',
    "euclidean": '"l2"',
    "manhattan": '"l1"',
    "cityblock": '"l1"',
    "csls": "the matrix of CSLS similarities to rank_alignment, without right, or to rank_scores",
}


class Candidates:
    """Candidate embeddings that serve many calls of ``rank_embeddings``, which stores their norms.

    The embeddings are not copied and must not change: create new candidates after a step of
    training.

    Args:
        embeddings (Tensor or array): (N, d) floats, only read; N may be 0 on a process of a group.
        bias (Tensor or array, default None): (N,) floats added to the similarities "dot", "l2" and
            "l1".

    Raises:
        TypeError: if they are not floats.
        ValueError: if shapes or devices do not match; in ``rank_embeddings``, if they have been
            written to since.

    >>> import torch
    >>> from torchrankmetrics.ranking import Candidates
    >>> from torchrankmetrics import rank_embeddings
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> candidates = Candidates(embeddings, bias=torch.tensor([0.0, 0.0, -0.5]))
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
                raise TypeError(f"bias must contain floats, got {bias.dtype}")
            if bias.shape != embeddings.shape[:1]:
                raise ValueError(
                    f"bias must be (N,) = ({len(embeddings)},), got {tuple(bias.shape)}"
                )
            check_device(bias, "bias", embeddings.device, "candidates")
        self.bias = None if bias is None else _without_float8(bias.resolve_neg())
        self.embeddings = _without_float8(embeddings.resolve_neg())
        # a tensor of inference mode has no version
        self._given = [x for x in (embeddings, bias) if x is not None and not x.is_inference()]
        self._versions = [x._version for x in self._given]
        # squared norms of slices, by their first column and size
        self.prepared: dict[tuple[int, int], Tensor] = {}

    def __len__(self) -> int:
        return len(self.embeddings)

    def settings(self, queries: Tensor) -> dict[str, object]:
        """Check candidates and queries; name what all processes must share to rank them."""
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


def _without_float8(numbers: Tensor) -> Tensor:
    """Return float8 as bfloat16, which represents all of them: torch does not index float8."""
    return numbers.to(torch.bfloat16) if numbers.dtype.itemsize == 1 else numbers


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
    offset: int | None = None,
    num_candidates: int | None = None,
    process_group: ProcessGroup | None = None,
    top_k: int | None = None,
) -> Ranks:
    """Rank candidates by the similarity of embeddings, without the matrix (B, N) of scores.

    dot: q.e; cosine: q.e / |e| (|q| changes no rank; a zero vector gives NaN, which never helps);
    l2: -|q - e|^2; l1: -sum |q - e|; the bias of each candidate is added.

    Ranks are those of float64 scores, each computed by one fixed routine from its query, its
    candidate and its bias alone: equal candidates tie, and the ranks do not depend on tiles,
    batches, threads, backends or processes. The page "Large candidate sets" has the costs. On an
    accelerator the function waits for the device; on MPS, which has no float64, embeddings are
    ranked on the CPU.

    With a ``process_group`` each process passes its slice of the candidates, and all get the ranks
    among all of them, which are those of one process bit for bit. Every process must call the
    function, and an error on one process is raised on all.

    Args:
        queries (Tensor or array): (B, d) floats.
        candidates (Tensor, array or Candidates): (N, d) floats, same dtype and device, only read.
        target (Tensor, list or tuple): the targets of each row, in every form of ``rank_scores``.
        similarity (str, default "dot"): "dot", "cosine", "l2" or "l1"; larger is better for all
            four.
        exclude (Tensor, list or tuple, default None): known positives to exclude, in every form of
            ``rank_scores``.
        chunk_size (int, default None): candidates per tile; None: 4096, on an accelerator 32768.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        bias (Tensor or array, default None): (N,) floats, for all but cosine; ``Candidates`` have
            their own.
        offset (int, default None): index of the first candidate of the slice; None: slices are in
            order of processes.
        num_candidates (int, default None): N of all slices together, to be checked; None: their
            sum.
        process_group (ProcessGroup, default None): processes with the same queries, target and
            exclude, whose columns are of all candidates, and with slices that cover the candidates
            once. None: this process has all.
        top_k (int, default None): number of best candidates of each query in ``answers`` of the
            ranks, filtered as the ranks are; not with process_group.

    Returns:
        Ranks, one entry per target, in the order of target.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError for options that do not
            fit together, and for slices with gaps or overlaps or arguments that differ on the
            processes.
        RuntimeError: if products on a device are less accurate than their precision allows.

    >>> import torch
    >>> from torchrankmetrics import rank_embeddings
    >>> points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    >>> rank_embeddings(points[:1], points, torch.tensor([0]), similarity="l2")
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[3])
    """
    with Shard(process_group, offset, num_candidates).joining() as shard:
        queries = read_scores(queries, "queries", "embeddings")
        prepared = read_candidates(candidates, bias, similarity)
        check_embeddings(queries, prepared.embeddings, some=process_group is None)
        for name, number in (("chunk_size", chunk_size), ("top_k", top_k)):
            if number is not None:
                check_int(name, number, 1)
        if top_k is not None and process_group is not None:
            raise ValueError(
                "top_k must be None with a process_group, whose processes score only their shards"
            )
        shard.size = len(prepared)
        shard.settings |= {"similarity": similarity, "the device": queries.device.type}
        shard.settings |= prepared.settings(queries)
    how = similarity, backend, chunk_size
    ranks = rank_by_tiles(queries, prepared, target, exclude, shard, *how)
    if top_k is not None:
        from torchrankmetrics.ranking.best import best_of_tasks

        shape = len(queries), len(prepared)
        tasks = read_tasks(target, exclude, shape, queries.device)
        with torch.no_grad():
            ranks.answers = best_of_tasks(queries, prepared, *how[:2], tasks, top_k)
    return ranks


def read_candidates(
    candidates: Tensor | Array | Candidates, bias: Tensor | Array | None, similarity: str
) -> Candidates:
    """Read candidates and their bias for a similarity; ``Candidates`` have their own bias."""
    if not isinstance(candidates, Candidates):
        candidates = Candidates(candidates, bias)
    elif bias is not None:
        raise ValueError("bias must not be given with Candidates: they hold their own")
    if isinstance(similarity, str) and similarity.lower() in _ELSEWHERE:
        raise ValueError(
            f"similarity must be one of {', '.join(map(repr, SIMILARITIES))}; got {similarity!r}: "
            f"pass {_ELSEWHERE[similarity.lower()]}"
        )
    check_choice("similarity", similarity, SIMILARITIES)
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
    is_same = _without_float8(queries[:0]).dtype == _without_float8(candidates[:0]).dtype
    if not queries.is_floating_point() or not is_same:
        raise TypeError(
            f"queries and candidates must share a float dtype, got {queries.dtype} and "
            f"{candidates.dtype}"
        )
    check_device(candidates, "candidates", queries.device, "queries")
