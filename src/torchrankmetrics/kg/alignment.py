"""`rank_alignment`: entity alignment in both directions, from embeddings or similarities."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.kg.known_triples import as_facts, check_below
from torchrankmetrics.kg.loop import EmbeddingScorer, LoopOptions, QuerySide
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Array, Integers, read_scores, unique_rows
from torchrankmetrics.ranking.embeddings import check_embeddings
from torchrankmetrics.ranking.ranks import trusted
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES, check_choice, shorten

_QUERIES = 4096  # of embeddings, at once


@suggest_keywords
def rank_alignment(
    pairs: Integers,
    left: Tensor | Array,
    right: Tensor | Array | None = None,
    *,
    candidates: Literal["test", "all"] = "test",
    similarity: str | None = None,
    known: Integers | None = None,
    backend: str = "auto",
) -> RankTable:
    """Rank the counterpart of every aligned entity, in both directions.

    Side "tail" ranks right entities for a left one, side "head" left entities for a right one.
    Other counterparts of the same entity, in ``pairs`` or ``known``, are filtered. Pairs that share
    an entity are one query of its side, with several relevant items: query metrics
    (``success_at_<k>``, ``ap``) average over entities, task metrics over pairs.

    Args:
        pairs (integers): (n, 2) integers [left, right], the test alignment. A repeated pair counts
            once.
        left (Tensor or array): (L, d) embeddings of the left graph; without ``right`` the
            similarities (L, R).
        right (Tensor or array, default None): (R, d) embeddings of the right graph, same dtype and
            device.
        candidates (str, default "test"): "test": entities of the test pairs; "all": every row.
            Report the choice: metrics depend on the number of candidates (Berrendorf et al. 2020,
            arXiv 2002.06914, section 3).
        similarity (str, default None): "dot", "cosine", "l2" or "l1", as in ``rank_embeddings``;
            None: dot.
        known (integers, default None): (m, 2) further true pairs, such as the training alignment.
        backend (str, default "auto"): as in ``rank_scores``.

    Returns:
        One row per side and pair, tails first: the first index of the pair as sample id, the given
        entity as query.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_embeddings`` and ``rank_scores``; for an id
            outside of its graph.

    >>> pairs, similarities = torch.tensor([[0, 0], [2, 1]]), torch.tensor([[0.9, 0.2], [0.0, 0.8], [0.1, 0.7]])
    >>> rank_alignment(pairs, similarities).ranks
    Ranks(optimistic=[1, 1, 1, 1], pessimistic=[1, 1, 1, 1], num_candidates=[2, 2, 2, 2])
    >>> rank_alignment(pairs, similarities, candidates="all").ranks  # left entity 1 beats 2
    Ranks(optimistic=[1, 1, 1, 2], pessimistic=[1, 1, 1, 2], num_candidates=[2, 2, 3, 3])
    """
    left = read_scores(left, "left", "embeddings (L, d)")
    right = None if right is None else read_scores(right, "right", "embeddings (R, d)")
    shapes = [tuple(part.shape) for part in (left, right) if part is not None]
    if any(len(shape) != 2 or 0 in shape for shape in shapes) or shapes[0][1] != shapes[-1][1]:
        raise ValueError(
            "left and right must be embeddings (L, d) and (R, d), or left similarities (L, R), "
            f"none of them empty; got {' and '.join(map(str, shapes))}"
        )
    sizes = shapes[0] if right is None else (len(left), len(right))
    check_choice("candidates", candidates, ("test", "all"))
    if right is None and similarity is not None:
        raise ValueError(
            "similarity is for embeddings; without right, left holds similarities, got "
            f"{shorten(similarity)}"
        )
    device = left.device
    test = _as_pairs(pairs, "pairs", sizes, device)
    true = test if known is None else torch.cat([test, _as_pairs(known, "known", sizes, device)])
    distinct, pair = unique_rows(test)
    first_index = torch.full((len(distinct),), len(test), device=device)
    sample_id = first_index.scatter_reduce_(
        0, pair, torch.arange(len(test), device=device), "amin"
    )[pair]
    tables = []
    for query, side in enumerate(reversed(ENTITY_SIDES)):
        answer = 1 - query
        ids = (
            torch.arange(sizes[answer], device=device)
            if candidates == "all"
            else torch.unique(test[:, answer])
        )
        # columns of the candidates; -1 for other entities
        column = torch.full(sizes[answer : answer + 1], -1, device=device)
        column[ids] = torch.arange(len(ids), device=device)
        among = true[column[true[:, answer]] >= 0]
        counterparts = KnownAnswers(among[:, query], column[among[:, answer]])
        scorer = _scorer((left, right), query, ids, similarity)
        options = LoopOptions(batch_size=None if right is None else _QUERIES, backend=backend)
        one = QuerySide(
            side, scorer, test[:, [query]], column[test[:, answer]], counterparts, options
        )
        ranks = one.rank(torch.zeros_like(sample_id), tqdm(disable=True)).ranks
        # counterparts contain the target
        filtered = ranks.columns.new_full((len(test),), fault.FILTERED)
        ranks = trusted(ranks.columns, filtered if ranks.flags is None else ranks.flags | filtered)
        tables.append(
            RankTable.from_ranks(ranks, side=side, sample_id=sample_id, query=test[:, query])
        )
    return RankTable.concatenate(tables)


def _scorer(
    graphs: tuple[Tensor, Tensor | None],
    query: int,
    ids: Tensor,
    similarity: str | None,
) -> Callable[[Tensor], Tensor]:
    left, right = graphs
    if right is None:
        rows = left.T if query else left
        return lambda queries: rows.index_select(0, queries).index_select(1, ids)
    here, there = (part.detach() for part in ((right, left) if query else (left, right)))
    check_embeddings(here, there)
    selected = there[ids if len(ids) else slice(None)]  # without test pairs nothing is selected
    return EmbeddingScorer(lambda one: here[one], selected, similarity=similarity or "dot")


def _as_pairs(values: Integers, name: str, sizes: tuple[int, ...], device: torch.device) -> Tensor:
    pairs = as_facts(values, name, "left", "right")
    for ids, side, size in zip(pairs.T, ("left", "right"), sizes, strict=True):
        check_below(ids, size, f"{name} must hold {side} entities")
    return pairs.to(device)
