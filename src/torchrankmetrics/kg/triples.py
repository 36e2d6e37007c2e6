"""`rank_triples`: filtered evaluation of any model on test triples, each query scored once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.kg.answers import AnsweredTable, Best, TopAnswers
from torchrankmetrics.kg.known_triples import KnownTriples, as_triples, asked_of
from torchrankmetrics.kg.loop import QuerySide
from torchrankmetrics.kg.scorers import Scores, both_sides, look_for_distances
from torchrankmetrics.ranking.arrays import Integers, as_tensor
from torchrankmetrics.ranking.shards import ShardSpec
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_function, check_int

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


ScoreFunction = Callable[[Tensor, Tensor], Scores]


def rank_triples(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | None,
    *,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    score_hrt: Callable[[Tensor], Scores] | None = None,
    num_entities: int | None = None,
    higher_is_better: bool = True,
    progress: bool = True,
    top_k: int | None = None,
    tolerance: float | Tolerance = 0.0,
    offset: int | None = None,
    num_candidates: int | None = None,
    process_group: "ProcessGroup | None" = None,
) -> AnsweredTable:
    """Rank both sides of every triple among all entities that are not known answers.

    Without ``batch_size`` a batch has 16 queries at first, then as many as take 30 ms at that pace,
    and twice as many for as long as the time per query falls: up to 2^22 scores on the CPU and 2^28 on an accelerator,
    and at most an eighth of the free memory. Out of memory, a batch is halved and tried again.

    With a ``process_group`` each process scores its slice of the entities: the functions give (B, n), an
    ``EmbeddingScorer`` holds n candidates, and every process gets the ranks among all entities (``rank_embeddings``).
    A batch has 2048 queries of an exact scorer, else 16, then as many as 2^22 (2^28) scores of the largest slice.

    Args:
        score_tails: (heads (B,), relations (B,)) -> scores (B, N), tensors or arrays; None: tails are not ranked. An
            ``EmbeddingScorer`` ranks by exact arithmetic, and without the scores.
        score_heads: (relations (B,), tails (B,)) -> scores (B, N); None: heads are not ranked.
        triples: (n, 3) integers [head, relation, tail], on the device the functions take; or a tuple of three (n,)
            tensors or arrays.
        known: the true triples of every split to filter by; None: raw ranks.
        candidates: entities that are candidates at all, as ids (m,) or bool (N,); None: all. Scores are still (B, N).
        batch_size: queries scored at once.
        backend: as ``rank_scores`` takes it.
        score_hrt: (triples (m, 3)) -> scores (m,) or (m, 1), in the place of both others: every candidate is put in.
        num_entities: N of ``score_hrt``; None: that of ``known``.
        higher_is_better: False for distances.
        progress: whether a bar is shown.
        top_k: how many of the best candidates of each query are kept beside the ranks, in ``answers`` of the table.
        tolerance: as ``rank_scores`` takes it; not with an ``EmbeddingScorer`` that is exact.
        offset: as ``rank_embeddings`` takes it, like what follows.
        num_candidates: as there.
        process_group: as there; its processes are given the same triples. Not with top_k or score_hrt.

    Warns:
        RankMetricWarning: if the ranks are so far worse than chance that the scores look like distances, or the
            distances like scores.

    Returns:
        One row per side and triple, in the order of the triples, tails first: side, the relation as group, the index of
        the triple as sample id.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError if scores are not (B, N).

    >>> scores = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [0.0, 0.0, 1.0]])
    >>> table = rank_triples(lambda h, r: scores[h], None, torch.tensor([[0, 0, 2]]), None)
    >>> table.ranks
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """
    shards = ShardSpec(process_group, offset, num_candidates)
    with shards.agreeing() as agreement:
        tasks = as_triples(triples, "triples")
        if batch_size is not None:
            check_int("batch_size", batch_size, 1)
        if top_k is not None:
            check_int("top_k", top_k, 1)
        for name, given in (("top_k", top_k), ("score_hrt", score_hrt)):
            if process_group is not None and given is not None:
                raise ValueError(f"{name} must be None with a process_group, whose processes see their slices only")
        sides = sides_of(score_tails, score_heads, tasks, known, score_hrt, num_entities)
        for side in sides:
            if top_k is not None and side.is_exact:
                raise ValueError(
                    "top_k needs scores, which exact ranks do without: pass arithmetic='product' to the scorer"
                )
            side.best = None if top_k is None else Best(top_k, higher_is_better)
            side.shards = shards
        if agreement is not None:
            agreement.settings = {
                "triples": tasks,
                "the sides, and whether they are exact": [(side.name, side.is_exact) for side in sides],
                "known": "nothing" if known is None else "some",
                "candidates": None if candidates is None else as_tensor(candidates, "candidates"),
                "batch_size": batch_size,
                "higher_is_better": higher_is_better,
                "tolerance": tolerance,
            }
    options = (candidates, batch_size, backend, higher_is_better, progress, tolerance)
    table = AnsweredTable(rank_sides(sides, tasks[:, 1], *options).rows)
    if top_k is not None:
        table.answers = TopAnswers({str(side.name): side.answers() for side in sides})
    return table


def sides_of(
    score_tails: Callable[..., Scores] | None,
    score_heads: Callable[..., Scores] | None,
    tasks: Tensor,
    known: Any,
    score_hrt: Callable[[Tensor], Scores] | None = None,
    num_entities: int | None = None,
) -> "list[QuerySide]":
    """Queries of the sides that are scored, tails first, of tasks (n, 3) and more; errors as ``rank_triples``."""
    if score_hrt is not None:
        if score_tails is not None or score_heads is not None:
            raise ValueError("score_hrt ranks both sides: score_tails and score_heads must be None beside it")
        if num_entities is None and known is not None:
            num_entities = known.num_entities
        if num_entities is None:
            raise ValueError("num_entities is needed with score_hrt where known is None")
        score_tails, score_heads = both_sides(score_hrt, num_entities)
    if score_tails is None and score_heads is None:
        raise ValueError(
            "score_tails and score_heads are both None, and so is score_hrt where it is known: there is nothing to rank"
        )
    for name, score in (("score_tails", score_tails), ("score_heads", score_heads)):
        if score is not None:
            check_function(name, score, "two (B,) tensors of ids -> scores (B, N), an EmbeddingScorer or None")
    if known is not None and not hasattr(known, "tails"):
        raise TypeError(f"known must be KnownTriples of the true triples, or None; got {type(known).__name__}")
    sides: list[QuerySide] = []
    if score_tails is not None:
        sides.append(QuerySide("tail", score_tails, *asked_of(tasks, "tail"), known and known.tails))
    if score_heads is not None:
        sides.append(QuerySide("head", score_heads, *asked_of(tasks, "head"), known and known.heads))
    return sides


def rank_sides(
    sides: "list[QuerySide]",
    group: Tensor,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    higher_is_better: bool = True,
    progress: bool = True,
    tolerance: float | Tolerance | None = None,
) -> RankTable:
    """Rank the queries of all sides, one after the other, with a progress bar; the tasks of each have these groups."""
    tables, total = [], sum(len(side.queries) for side in sides)
    with tqdm(total=total, desc="ranking", unit="query", disable=not progress) as bar, torch.no_grad():
        for side in sides:
            side.compare_by(higher_is_better, 0.0 if tolerance is None else tolerance)
            tables.append(side.rank(group, candidates, batch_size, backend, bar))
    table = RankTable.concatenate(tables)
    look_for_distances(table.ranks, higher_is_better)
    return table
