"""`rank_alignment`: entity alignment in both directions, from embeddings or similarities."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from torchrankmetrics.errors import told
from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Array, Integers, as_ids, read_scores, unique_rows
from torchrankmetrics.ranking.embeddings import Candidates, check_embeddings, rank_embeddings
from torchrankmetrics.ranking.exclude import ExcludedSlices
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import rank_scores
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import EntitySide, check_choice, shown

_QUERIES, _SCORES = 4096, 1 << 22


@told
def rank_alignment(
    pairs: Integers,
    left: Tensor | Array,
    right: Tensor | Array | None = None,
    *,
    candidates: Literal["test", "all"] = "test",
    similarity: str | None = None,
    known: Integers | None = None,
    backend: str = "auto",
    arithmetic: str | None = None,
) -> RankTable:
    """Rank the counterpart of every aligned entity, in both directions.

    Side "tail" looks for the right entity of a left one, side "head" for the left one of a right one. The other
    counterparts of the same entity, in ``pairs`` or ``known``, are not candidates. Pairs that share an entity are one
    query of its side, with several relevant items: five captions of an image are one query of the image. Metrics of
    queries (``success_at_<k>``, ``rr``, ``ap``) average over entities, metrics of tasks over pairs.

    Args:
        pairs: (n, 2) integers [left, right], the test alignment. A repeated pair counts once.
        left: (L, d) embeddings of the left graph, a tensor or an array, like what follows; without ``right`` the
            similarities (L, R), higher is better.
        right: (R, d) embeddings of the right graph, same dtype and device.
        candidates: "test": entities of the test pairs; "all": every row. The number of candidates differs, and with it
            every metric but AMRI: tell which (Berrendorf et al. 2020, arXiv 2002.06914, section 3).
        similarity: "dot", "cosine", "l2" or "l1", as ``rank_embeddings``; None: dot.
        known: (m, 2) further true pairs, such as the training alignment.
        backend: as ``rank_scores`` takes it.
        arithmetic: as ``rank_embeddings`` takes it.

    Returns:
        One row per side and pair, in the order of the pairs, tails first. The sample id is the index at which the pair
        occurs first, the query is the entity that is given.

    Raises:
        TypeError, ValueError: as ``rank_embeddings`` and ``rank_scores``; for wrong shapes, an unknown ``candidates``,
            and a similarity or an arithmetic of what are similarities already.
        IndexError: if an id is outside of its graph.

    >>> pairs, similarities = torch.tensor([[0, 0], [2, 1]]), torch.tensor([[0.9, 0.2], [0.0, 0.8], [0.1, 0.7]])
    >>> rank_alignment(pairs, similarities).ranks
    Ranks(optimistic=[1, 1, 1, 1], pessimistic=[1, 1, 1, 1], num_candidates=[2, 2, 2, 2])
    >>> rank_alignment(pairs, similarities, candidates="all").ranks  # 1 on the left is no test entity, and beats 2
    Ranks(optimistic=[1, 1, 1, 2], pessimistic=[1, 1, 1, 2], num_candidates=[2, 2, 3, 3])
    """
    left = read_scores(left, "left", "embeddings (L, d)")
    right = None if right is None else read_scores(right, "right", "embeddings (R, d)")
    sizes = _sizes(left, right)
    check_choice("candidates", candidates, ("test", "all"))
    for name, option in (("similarity", similarity), ("arithmetic", arithmetic)):
        if right is None and option is not None:
            raise ValueError(f"{name} is for embeddings; without right, left holds similarities, got {shown(option)}")
    device = left.device
    test = _as_pairs(pairs, "pairs", sizes, device)
    true = test if known is None else torch.cat([test, _as_pairs(known, "known", sizes, device)])
    distinct, pair = unique_rows(test)
    first_index = torch.full((len(distinct),), len(test), device=device)
    sample_id = first_index.scatter_reduce_(0, pair, torch.arange(len(test), device=device), "amin")[pair]
    tables = []
    directions: tuple[tuple[EntitySide, int, int], ...] = (("tail", 0, 1), ("head", 1, 0))
    for side, query, answer in directions:
        ids = torch.arange(sizes[answer], device=device) if candidates == "all" else torch.unique(test[:, answer])
        column = torch.full((sizes[answer],), -1, device=device).index_put_(
            (ids,), torch.arange(len(ids), device=device)
        )
        among = true[column[true[:, answer]] >= 0]
        counterparts = KnownAnswers(among[:, query], column[among[:, answer]])
        if right is None:
            rank = _of_scores(left, query, ids, backend)
        else:
            rank = _of_embeddings((left, right), query, ids, similarity, backend, arithmetic)
        size = max(1, min(_QUERIES, _SCORES // max(len(ids), 1))) if right is None else _QUERIES
        for first in range(0, len(test), size):
            task = torch.arange(first, min(first + size, len(test)), device=device)
            queries = test[task, query]
            ranks = rank(queries, column[test[task, answer]], counterparts(queries))
            filtered = torch.full_like(task, fault.FILTERED)  # counterparts holds the target too
            ranks = Ranks.trusted(ranks.columns, filtered if ranks.flags is None else ranks.flags | filtered)
            tables.append(RankTable.from_ranks(ranks, side=side, sample_id=sample_id[task], query=queries))
    return RankTable.concatenate(tables)


_Rank = Callable[[Tensor, Tensor, ExcludedSlices], Ranks]


def _of_scores(scores: Tensor, query: int, ids: Tensor, backend: str) -> _Rank:
    rows = scores.T if query else scores
    return lambda queries, target, exclude: rank_scores(
        rows.index_select(0, queries).index_select(1, ids), target, exclude=exclude, backend=backend
    )


def _of_embeddings(
    graphs: tuple[Tensor, Tensor],
    query: int,
    ids: Tensor,
    similarity: str | None,
    backend: str,
    arithmetic: str | None,
) -> _Rank:
    here = graphs[query].detach()
    check_embeddings(here, graphs[1 - query])
    # gathered once, for all batches of queries; without test pairs there is nothing to gather
    there = Candidates(graphs[1 - query].detach()[ids if len(ids) else slice(None)])
    options: dict[str, Any] = {"similarity": similarity or "dot", "backend": backend, "arithmetic": arithmetic}
    return lambda queries, target, exclude: rank_embeddings(here[queries], there, target, exclude=exclude, **options)


def _sizes(left: Tensor, right: Tensor | None) -> tuple[int, int]:
    """Numbers of entities of the two graphs."""
    for name, given in (("left", left), ("right", right)):
        if given is None and name == "right":
            continue
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(given).__name__}")
        if given.ndim != 2 or not given.numel():
            shape = "similarities (L, R)" if right is None else "embeddings (entities, d)"
            raise ValueError(f"{name} must be {shape}, none of them empty; got {tuple(given.shape)}")
    if right is None:
        return left.shape[0], left.shape[1]
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"left and right must share d, got {tuple(left.shape)} and {tuple(right.shape)}")
    return len(left), len(right)


def _as_pairs(values: Integers, name: str, sizes: tuple[int, int], device: torch.device) -> Tensor:
    pairs = as_ids(values, name)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"{name} must be (n, 2): left, right; got {tuple(pairs.shape)}")
    for column, (side, size) in enumerate(zip(("left", "right"), sizes, strict=True)):
        ids = pairs[:, column]
        outside = (ids < 0) | (ids >= size)
        if outside.any():
            at = int(outside.nonzero()[0])
            raise IndexError(f"{name} must hold {side} entities in [0, {size}), got {int(ids[at])} in pair {at}")
    return pairs.to(device)
