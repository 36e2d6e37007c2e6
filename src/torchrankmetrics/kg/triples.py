"""`rank_triples`: filtered evaluation of any model on test triples, each query scored once."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from torchrankmetrics.kg.answers import AnsweredTable, TopAnswers
from torchrankmetrics.kg.known_triples import KnownTriples, as_triples
from torchrankmetrics.kg.loop import LoopOptions, rank_sides, sides_of
from torchrankmetrics.kg.scorers import Scores
from torchrankmetrics.ranking.arrays import Integers, as_tensor
from torchrankmetrics.ranking.shards import ShardSpec
from torchrankmetrics.validation import check_int

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
    offset: int | None = None,
    num_candidates: int | None = None,
    process_group: "ProcessGroup | None" = None,
) -> AnsweredTable:
    """Rank both sides of every triple among all entities that are not known positives.

    Without ``batch_size`` the first batch has 16 queries. The size doubles while a batch takes less than 30 ms or the
    time per query falls, up to 2^22 scores on the CPU and 2^28 on an accelerator, and at most an eighth of the free
    memory. If memory runs out, a batch is halved and repeated.

    With a ``process_group`` each process scores its shard of the entities: the functions return (B, n), an
    ``EmbeddingScorer`` has n candidates, and every process returns the ranks among all entities (``rank_embeddings``).
    A batch then has 2048 queries of an exact scorer; else 16, then as many as 2^22 (2^28) scores of the largest shard.

    Args:
        score_tails (callable): (heads (B,), relations (B,)) -> scores (B, N), tensors or arrays; None: tails are not
            ranked. An ``EmbeddingScorer`` ranks by exact arithmetic, without a matrix of scores.
        score_heads (callable): (relations (B,), tails (B,)) -> scores (B, N); None: heads are not ranked.
        triples (integers): (n, 3) integers [head, relation, tail], on the device that the functions take; or a tuple of
            three (n,) tensors or arrays.
        known (KnownTriples): the true triples of every split to filter by; None: raw ranks.
        candidates (integers, default None): ids (m,) or bool (N,) of the entities that are candidates; None: all.
            Scores are still (B, N).
        batch_size (int, default None): queries scored at once.
        backend (str, default "auto"): as in ``rank_scores``.
        score_hrt (callable, default None): (triples (m, 3)) -> scores (m,) or (m, 1), instead of both other functions:
            it is called with every candidate.
        num_entities (int, default None): N of ``score_hrt``; None: ``known.num_entities``.
        higher_is_better (bool, default True): False for distances.
        progress (bool, default True): whether to show a progress bar, on a terminal only.
        top_k (int, default None): how many of the best candidates of each query to return in ``answers`` of the table.
        offset (int, default None): as in ``rank_embeddings``.
        num_candidates (int, default None): as in ``rank_embeddings``.
        process_group (ProcessGroup, default None): as in ``rank_embeddings``; all processes pass the same triples. Not
            with top_k or score_hrt.

    Warns:
        RankMetricWarning: if the ranks are so far worse than random that the scores look like distances, or the
            distances like scores.

    Returns:
        One row per side and triple, in the order of the triples, tails first. The group is the relation, the sample id
        the index of the triple.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError if scores are not (B, N).

    >>> import torch
    >>> scores = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [0.0, 0.0, 1.0]])
    >>> table = rank_triples(lambda h, r: scores[h], None, torch.tensor([[0, 0, 2]]), None)
    >>> table.ranks
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """
    shards = ShardSpec(process_group, offset, num_candidates)
    options = LoopOptions(candidates, batch_size, backend, higher_is_better, progress, top_k=top_k, shards=shards)
    with shards.agreeing() as agreement:
        tasks = as_triples(triples, "triples")
        for name, number in (("batch_size", batch_size), ("top_k", top_k)):
            if number is not None:
                check_int(name, number, 1)
        for name, given in (("top_k", top_k), ("score_hrt", score_hrt)):
            if process_group is not None and given is not None:
                raise ValueError(f"{name} must be None with a process_group, whose processes score only their shards")
        sides = sides_of((score_tails, score_heads), tasks, known, options, score_hrt, num_entities)
        if agreement is not None:
            agreement.settings = {
                "triples": tasks,
                "the sides, and whether they are exact": [(side.name, side.is_exact) for side in sides],
                "known": "nothing" if known is None else "some",
                "candidates": None if candidates is None else as_tensor(candidates, "candidates"),
                "batch_size": batch_size,
                "higher_is_better": higher_is_better,
            }
    table = AnsweredTable(rank_sides(sides, tasks[:, 1]).rows)
    if top_k is not None:
        table.answers = TopAnswers({str(side.name): side.best.finish(side.queries) for side in sides if side.best})
    return table
