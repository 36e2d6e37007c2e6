"""Filtered evaluation of any model, each query scored once: of triples, facts with a time, and complex queries."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.kg.answers import AnsweredTable, TopAnswers
from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.kg.known_triples import (
    KnownTriples,
    as_facts,
    as_triples,
    check_vectors,
    split_facts,
)
from torchrankmetrics.kg.loop import LoopOptions, QuerySide, Scores, rank_sides, sides_of
from torchrankmetrics.ranking.arrays import Integers, as_ids, as_tensor
from torchrankmetrics.ranking.counting import ExcludedSlices
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


ScoreFunction = Callable[[Tensor, Tensor], Scores]


@suggest_keywords
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

    With a ``process_group`` each process scores its shard of the entities: the functions return (B,
    n), an ``EmbeddingScorer`` has n candidates, and every process returns the ranks among all
    entities (``rank_embeddings``).

    Args:
        score_tails (callable): (heads (B,), relations (B,)) -> scores (B, N), tensors or arrays;
            None: tails are not ranked. An ``EmbeddingScorer`` ranks by float64 scores, without a
            matrix of scores.
        score_heads (callable): (relations (B,), tails (B,)) -> scores (B, N); None: heads are not
            ranked.
        triples (integers): (n, 3) integers [head, relation, tail], on the device that the functions
            take; or a tuple of three (n,) tensors or arrays.
        known (KnownTriples): the true triples of every split to filter by; None: raw ranks.
        candidates (integers, default None): ids (m,) or bool (N,) of the candidates; None: all.
            Scores are (B, N).
        batch_size (int, default None): queries scored at once; None: it grows while that is faster
            and memory allows, up to 2^22 scores on the CPU and 2^28 on an accelerator.
        backend (str, default "auto"): as in ``rank_scores``.
        score_hrt (callable, default None): (triples (m, 3)) -> scores (m,) or (m, 1), instead of
            both other functions.
        num_entities (int, default None): N of ``score_hrt``; None: ``known.num_entities``.
        higher_is_better (bool, default True): False for distances.
        progress (bool, default True): whether to show a progress bar, on a terminal only.
        top_k (int, default None): number of best candidates of each query in ``answers`` of the
            table.
        offset (int, default None): as in ``rank_embeddings``.
        num_candidates (int, default None): as in ``rank_embeddings``.
        process_group (ProcessGroup, default None): as in ``rank_embeddings``; all processes pass
            the same triples. Not with top_k or score_hrt.

    Warns:
        RankMetricWarning: if evaluated triples are not in known, or the ranks are so far worse than
            random that ``higher_is_better`` looks wrong.

    Returns:
        One row per side and triple, tails first: the relation as group, the index of the triple as
        sample id.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError if scores are not (B, N),
            or without ``candidates`` N differs from the num_entities that ``known`` was given.

    >>> scores = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [0.0, 0.0, 1.0]])
    >>> rank_triples(lambda h, r: scores[h], None, torch.tensor([[0, 0, 2]]), None).ranks
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    """
    shard = Shard(process_group, offset, num_candidates)
    options = LoopOptions(
        candidates, batch_size, backend, higher_is_better, progress, top_k=top_k, shard=shard
    )
    with shard.agreeing() as settings:
        tasks = as_triples(triples, "triples")
        for name, given in (("top_k", top_k), ("score_hrt", score_hrt)):
            if process_group is not None and given is not None:
                raise ValueError(
                    f"{name} must be None with a process_group, whose processes score only their "
                    "shards"
                )
        sides = sides_of((score_tails, score_heads), tasks, known, options, score_hrt, num_entities)
        if process_group is not None:
            settings |= {
                "triples": tasks,
                "the sides, and whether they are embedded": [
                    (side.name, side.is_embedded) for side in sides
                ],
                "known": "nothing" if known is None else "some",
                "candidates": None if candidates is None else as_tensor(candidates, "candidates"),
                "batch_size": batch_size,
                "higher_is_better": higher_is_better,
            }
    table = AnsweredTable(rank_sides(sides, tasks[:, 1]).rows)
    if top_k is not None:
        table.answers = TopAnswers(
            {str(side.name): side.best.finish(side.queries) for side in sides if side.best}
        )
    return table


_COLUMNS = ("head", "relation", "tail", "time")


class KnownFacts:
    """Known positives with a time, of every split that an evaluation filters by.

    Args:
        facts (integers): (n, 4) integers [head, relation, tail, time], one argument per split.
        time_aware (bool, default True): True filters entities that are true at the time of the
            query; False entities that are true at any time (static, or time-unaware, filtering).

    Raises:
        TypeError, ValueError, IndexError: if ids are not integers, a split is not (n, 4), or an id
            is negative.

    Source: Lacroix et al. 2020 (arXiv 2004.04926) filter time-aware; Gastinger et al. 2023
    (doi:10.1007/978-3-031-43418-1_32) compare the settings.

    >>> facts = torch.tensor([[0, 0, 1, 2001], [0, 0, 2, 2001], [0, 0, 3, 2002]])
    >>> for known in KnownFacts(facts), KnownFacts(facts, time_aware=False):
    ...     print(known.tails(*facts[:1, [0, 1, 3]].T).pairs()[1])
    tensor([1, 2])
    tensor([1, 2, 3])
    """

    def __init__(self, *facts: Integers, time_aware: bool = True) -> None:
        parts = [as_facts(part, f"facts[{i}]", *_COLUMNS) for i, part in enumerate(facts)]
        known = torch.cat(parts) if parts else torch.empty(0, 4, dtype=torch.int64, device="cpu")
        self._width = 3 if time_aware else 2  # of a query
        known = known[:, : self._width + 1]
        self._heads, self._tails = (
            KnownAnswers(*split_facts(known, side)) for side in ENTITY_SIDES
        )

    def tails(self, heads: Tensor, relations: Tensor, times: Tensor) -> ExcludedSlices:
        """Return the known tails of (head, relation, ?, time), (B,) each, for ``rank_scores(..., exclude=...)``."""
        return self._tails(torch.stack([heads, relations, times][: self._width], 1))

    def heads(self, relations: Tensor, tails: Tensor, times: Tensor) -> ExcludedSlices:
        """Return the known heads of (?, relation, tail, time), (B,) each, for ``rank_scores(..., exclude=...)``."""
        return self._heads(torch.stack([relations, tails, times][: self._width], 1))


@suggest_keywords
def rank_facts(
    score_tails: Callable[[Tensor, Tensor, Tensor], Scores] | None,
    score_heads: Callable[[Tensor, Tensor, Tensor], Scores] | None,
    facts: Integers,
    known: KnownFacts | None,
    *,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    higher_is_better: bool = True,
    progress: bool = True,
) -> RankTable:
    """Rank both sides of every fact with a time, each query once.

    Args:
        score_tails (callable): (heads (B,), relations (B,), times (B,)) -> scores (B, N); None:
            tails are not ranked.
        score_heads (callable): (relations (B,), tails (B,), times (B,)) -> scores (B, N); None:
            heads are not ranked.
        facts (integers): (n, 4) integers [head, relation, tail, time].
        known (KnownFacts): known positives, and how to filter them; None: raw ranks.
        candidates (integers, default None): as in ``rank_triples``.
        batch_size (int, default None): as in ``rank_triples``.
        backend (str, default "auto"): as in ``rank_triples``.
        higher_is_better (bool, default True): as in ``rank_triples``.
        progress (bool, default True): as in ``rank_triples``.

    Returns:
        One row per side and fact, tails first: the relation as group, the index of the fact as
        sample id.

    >>> facts = torch.tensor([[0, 0, 1, 2001], [0, 0, 2, 2001], [0, 0, 3, 2002]])
    >>> score = lambda h, r, time: torch.zeros(len(h), 5)
    >>> rank_facts(score, None, facts, KnownFacts(facts)).ranks.num_candidates
    tensor([4, 4, 5])
    """
    tasks = as_facts(facts, "facts", *_COLUMNS)
    options = LoopOptions(candidates, batch_size, backend, higher_is_better, progress)
    return rank_sides(
        sides_of((score_tails, score_heads), tasks, known, options, kind=KnownFacts), tasks[:, 1]
    )


Answers = Integers | list[Collection[int]]
"""Pairs of (query, answer), or the answers of every query."""


@suggest_keywords
def rank_complex_queries(
    score: Callable[[Tensor], Scores],
    hard: Answers,
    easy: Answers | None = None,
    *,
    pattern: Integers | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    higher_is_better: bool = True,
    progress: bool = True,
) -> RankTable:
    """Rank the hard answers of every query among all entities that are not answers; easy answers are filtered.

    A hard answer needs an edge that is missing from the given graph; an easy answer does not. The
    weight of a ranking task is one over the number of hard answers of its query, so that a mean
    over tasks is the mean over queries: by pattern in ``breakdown``, and over patterns with
    ``average="macro"``.

    Args:
        score (callable): (queries (B,)) -> scores (B, N), tensors or arrays; queries are numbered
            from 0.
        hard (integers or list): (2, P) integers or a tuple of two (P,): query and answer; or a list
            of sets of answers.
        easy (integers or list, default None): likewise for easy answers; None: no easy answers.
        pattern (integers, default None): (Q,) integers, the pattern (1p, 2i, ...) of each query;
            None: one for all.
        batch_size (int, default None): as in ``rank_triples``.
        backend (str, default "auto"): as in ``rank_triples``.
        higher_is_better (bool, default True): as in ``rank_triples``.
        progress (bool, default True): as in ``rank_triples``.

    Returns:
        One row per hard answer, in their order: the index as sample id, the pattern as group, and
        the weight.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples``; ValueError if an answer is given
            twice.

    Source: Ren et al. 2020, Query2box (arXiv 2002.05969); Ren and Leskovec 2020, BetaE (arXiv
        2010.11465).

    >>> scores = torch.arange(5.0).expand(2, 5)
    >>> table = rank_complex_queries(lambda queries: scores[queries], hard=[{1, 2}, {4}], easy=[{4}, {0}])
    >>> table.ranks
    Ranks(optimistic=[2, 2, 1], pessimistic=[2, 2, 1], num_candidates=[3, 3, 4])
    >>> table.weight
    tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    query, own = pairs = _pairs(hard, "hard")
    both = pairs if easy is None else torch.cat([pairs, _pairs(easy, "easy").to(pairs.device)], 1)
    known = KnownAnswers(*both)
    if both.shape[1] > len(known.index.answers):
        distinct, repeats = torch.unique(both, dim=1, return_counts=True)
        first, answer = distinct[:, repeats > 1][:, 0].tolist()
        raise ValueError(
            f"hard and easy must hold every answer once; {answer} of query {first} is given again"
        )
    group = torch.zeros_like(query)
    if pattern is not None:
        patterns = as_ids(pattern, "pattern").to(query.device)
        if patterns.ndim != 1 or (len(query) and int(query.max()) >= len(patterns)):
            most = int(query.max()) + 1 if len(query) else 0
            raise ValueError(
                f"pattern must be (Q,), at least ({most},), one per query; got "
                f"{tuple(patterns.shape)}"
            )
        group = patterns[query]
    options = LoopOptions(None, batch_size, backend, higher_is_better, progress)
    ranked = rank_sides(
        [QuerySide(None, score, query[:, None], own, known.of_columns, options)], group
    )
    weight = 1 / torch.bincount(query)[query].double()
    return RankTable.from_ranks(
        ranked.ranks, group=group, weight=weight, sample_id=ranked.sample_id
    )


def _pairs(given: Any, name: str) -> Tensor:
    """Read queries and answers, int64 (2, P)."""
    if isinstance(given, list) and all(isinstance(part, Collection) for part in given):
        numbered = [(i, int(answer)) for i, part in enumerate(given) for answer in sorted(part)]
        given = torch.tensor(numbered, dtype=torch.int64, device="cpu").reshape(-1, 2).T
    parts = [
        as_ids(part, name) for part in (given if isinstance(given, tuple) else as_ids(given, name))
    ]
    check_vectors(
        parts, 2, f"{name} must be (2, P), pairs of (query, answer), or a list of answers per query"
    )
    return as_facts(torch.stack(parts, 1), name, "query", "answer").T
