"""`rank_alignment`: entity alignment in both directions, from embeddings or similarities."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.kg.answers import AnsweredTable, answered, concatenate_tables
from torchrankmetrics.kg.known_positives import KnownPositives
from torchrankmetrics.kg.known_triples import as_facts, check_below
from torchrankmetrics.kg.loop import ONLY, LoopOptions, QuerySide
from torchrankmetrics.kg.query_tasks import QueryTasks
from torchrankmetrics.kg.scorers import EmbeddingScorer
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Array, Integers, read_scores, unique_rows
from torchrankmetrics.ranking.embeddings import check_embeddings
from torchrankmetrics.ranking.ranks import trusted
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide, check_choice, shorten

Scorer = Callable[[Tensor], Tensor]


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
    top_k: int | None = None,
) -> AnsweredTable:
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
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        top_k (int, default None): number of best candidates of each query in ``answers`` of the
            table.

    Returns:
        One row per side and pair, tails first: the first index of the pair as sample id, the given
        entity as query.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_embeddings`` and ``rank_scores``; for an id
            outside of its graph.

    >>> import torch
    >>> from torchrankmetrics.kg import rank_alignment
    >>> pairs = torch.tensor([[0, 0], [2, 1]])
    >>> similarities = torch.tensor([[0.9, 0.2], [0.0, 0.8], [0.1, 0.7]])
    >>> rank_alignment(pairs, similarities).ranks
    Ranks(optimistic=[1, 1, 1, 1], pessimistic=[1, 1, 1, 1], num_candidates=[2, 2, 2, 2])
    >>> rank_alignment(pairs, similarities, candidates="all").ranks  # left entity 1 beats 2
    Ranks(optimistic=[1, 1, 1, 2], pessimistic=[1, 1, 1, 2], num_candidates=[2, 2, 3, 3])
    """
    graphs = _read_graphs(left, right)
    sizes = graphs.sizes
    check_choice("candidates", candidates, ("test", "all"))
    if right is None and similarity is not None:
        raise ValueError(
            "similarity is for embeddings; without right, left contains similarities, got "
            f"{shorten(similarity)}"
        )
    device = graphs.left.device
    test = _as_pairs(pairs, "pairs", sizes, device)
    true = test if known is None else torch.cat([test, _as_pairs(known, "known", sizes, device)])
    scorers = graphs.scorers(similarity or "dot")
    tables = []
    for side, score in zip(reversed(ENTITY_SIDES), scorers, strict=True):
        of_test = test if candidates == "test" else None
        options = LoopOptions(None, None, backend, progress=False, top_k=top_k)
        tables.append(_rank_side(side, score, test, true, of_test, options))
    return concatenate_tables(tables)


class _Graphs(NamedTuple):
    """Embeddings of both graphs, or in ``left`` the similarities of their entities."""

    left: Tensor
    right: Tensor | None

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of left and right entities."""
        right = self.left.T if self.right is None else self.right
        return len(self.left), len(right)

    def scorers(self, similarity: str) -> tuple[Scorer, Scorer]:
        """Return functions that score right entities for left ones, and left for right ones."""
        left = self.left
        right = self.right
        if right is None:
            return _selection(left), _selection(left.T)
        check_embeddings(left, right)
        return (
            EmbeddingScorer(_selection(left), right, similarity=similarity),
            EmbeddingScorer(_selection(right), left, similarity=similarity),
        )


def _selection(rows: Tensor) -> Scorer:
    return lambda ids: rows.index_select(0, ids)


def _read_graphs(left: Tensor | Array, right: Tensor | Array | None) -> _Graphs:
    graphs = _Graphs(
        read_scores(left, "left", "embeddings (L, d)"),
        None if right is None else read_scores(right, "right", "embeddings (R, d)"),
    )
    shapes = [tuple(part.shape) for part in graphs if part is not None]
    is_matrix = all(len(shape) == 2 and 0 not in shape for shape in shapes)
    if not is_matrix or shapes[0][1] != shapes[-1][1]:
        raise ValueError(
            "left and right must be embeddings (L, d) and (R, d), or left similarities (L, R), "
            f"none of them empty; got {' and '.join(map(str, shapes))}"
        )
    return graphs


def _as_pairs(values: Integers, name: str, sizes: tuple[int, ...], device: torch.device) -> Tensor:
    pairs = as_facts(values, name, "left", "right")
    for ids, side, size in zip(pairs.T, ("left", "right"), sizes, strict=True):
        check_below(ids, size, f"{name} must contain {side} entities")
    return pairs.to(device)


def _rank_side(
    side: EntitySide,
    score: Scorer,
    test: Tensor,
    true: Tensor,
    of_test: Tensor | None,
    options: LoopOptions,
) -> AnsweredTable:
    """Rank right entities (side "tail") or left ones for the other entity of each test pair.

    Args:
        side: the predicted side.
        score: the function of this side.
        test: (n, 2) int64, the tasks.
        true: (m, 2) int64, the test pairs and further true ones.
        of_test: (n, 2) int64 if only entities of the test pairs are candidates; None: all.
        options: of the loop.
    """
    query = 0 if side == "tail" else 1
    target = 1 - query
    if of_test is not None:
        options = options._replace(candidates=of_test[:, target])
    columns = ("left", "right") if side == "tail" else ("right", "left")
    counterparts = KnownPositives(true[:, query], true[:, target])
    tasks = QueryTasks(test[:, [query]], test[:, target])
    one = QuerySide(side, score, tasks, {ONLY: counterparts.of_columns}, options, columns)
    ranked = one.rank(None, tqdm(disable=True))[ONLY]

    # counterparts contain the target
    ranks = ranked.ranks
    filtered = ranks.columns.new_full((len(test),), fault.FILTERED)
    flags = filtered if ranks.flags is None else ranks.flags | filtered
    rows = RankTable.from_ranks(
        trusted(ranks.columns, flags),
        side=side,
        sample_id=_first_index(test),
        query=test[:, query],
    ).rows
    return answered(rows, ranked.answers)


def _first_index(pairs: Tensor) -> Tensor:
    """Return the index of the first pair that is equal to each pair, int64 (n,)."""
    distinct, pair = unique_rows(pairs)
    index = torch.arange(len(pairs), device=pairs.device)
    first = torch.full((len(distinct),), len(pairs), device=pairs.device)
    return first.scatter_reduce_(0, pair, index, "amin")[pair]
