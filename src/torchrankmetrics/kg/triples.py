"""Filtered evaluation of any model, each query scored once: of triples, and of complex queries."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

import torch
from torch import Tensor

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.kg.answers import AnsweredTable, answered
from torchrankmetrics.kg.candidates import CandidatesByRelation
from torchrankmetrics.kg.known_positives import KnownPositives
from torchrankmetrics.kg.known_triples import KnownTriples, as_facts, as_triples, check_vectors
from torchrankmetrics.kg.loop import ONLY, LoopOptions, QuerySide, RankOptions
from torchrankmetrics.kg.query_tasks import QueryTasks
from torchrankmetrics.kg.scorers import Scores
from torchrankmetrics.kg.sides import rank_sides, sides_of
from torchrankmetrics.ranking.arrays import Integers, as_ids, as_tensor
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.table.rank_table import RankTable

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


ScoreFunction = Callable[[Tensor, Tensor], Scores]


class _TripleOptions(RankOptions, total=False):
    score_hrt: Callable[[Tensor], Scores] | None
    num_entities: int | None
    offset: int | None
    num_candidates: int | None
    process_group: ProcessGroup | None


@overload
def rank_triples(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | None,
    **options: Unpack[_TripleOptions],
) -> AnsweredTable: ...


@overload
def rank_triples(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: Mapping[str, KnownTriples | None],
    **options: Unpack[_TripleOptions],
) -> dict[str, AnsweredTable]: ...


@suggest_keywords
def rank_triples(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | Mapping[str, KnownTriples | None] | None,
    *,
    candidates: Integers | CandidatesByRelation | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    score_hrt: Callable[[Tensor], Scores] | None = None,
    num_entities: int | None = None,
    higher_is_better: bool = True,
    progress: bool = True,
    top_k: int | None = None,
    offset: int | None = None,
    num_candidates: int | None = None,
    process_group: ProcessGroup | None = None,
) -> AnsweredTable | dict[str, AnsweredTable]:
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
        known (KnownTriples): the true triples of every split to filter by; None: raw ranks. Or a
            dict of several, such as {"raw": None, "filtered": known}: each query is scored once,
            and ranked with each of them.
        candidates (integers or dict, default None): ids (m,) or bool (N,) of the candidates; None:
            all. Or a dict of relation -> (heads, tails), the candidates of each side in one of
            these forms; relations that are missing have all entities. A target that is not in such
            a dict stays a candidate, with a warning. Scores are (B, N).
        batch_size (int, default None): queries scored at once; None: it grows while that is faster
            and memory allows, up to 2^22 scores on the CPU and 2^28 on an accelerator.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        score_hrt (callable, default None): (triples (m, 3)) -> scores (m,) or (m, 1), instead of
            both other functions.
        num_entities (int, default None): N of ``score_hrt``; None: ``known.num_entities``.
        higher_is_better (bool, default True): False for distances.
        progress (bool, default True): whether to show a progress bar, on a terminal only.
        top_k (int, default None): number of best candidates of each query in ``answers`` of the
            table.
        offset (int, default None): index of the first candidate of the slice; None: slices are in
            order of processes.
        num_candidates (int, default None): N of all slices together, to be checked; None: their
            sum.
        process_group (ProcessGroup, default None): processes that share the entities and pass the
            same triples; None: this process has all. Not with top_k or score_hrt.

    Warns:
        RankMetricWarning: if evaluated triples are not in known, targets are not candidates of
            their relation, or the ranks are so far worse than random that ``higher_is_better``
            looks wrong.

    Returns:
        One row per side and triple, tails first: the relation as group, the index of the triple as
        sample id. If known is a dict, a table for each of its names.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``; ValueError if scores are not (B, N),
            or if N differs from the num_entities that ``known`` was given and candidates are not
            ids; IndexError if known has an entity of N or more.

    >>> import torch
    >>> from torchrankmetrics import rank_triples
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
            settings["triples"] = tasks
            settings |= _shared_settings(sides)
    tables = rank_sides(sides, tasks[:, 1])
    return tables if isinstance(known, Mapping) else tables[ONLY]


def _shared_settings(sides: list[QuerySide]) -> dict[str, object]:
    """Name what all processes that share the candidates must be given alike."""
    options = sides[0].options
    candidates = options.candidates
    known = {}
    for name, one in sides[0].filters.items():
        known[name] = "nothing" if one is None else "some"
    if isinstance(candidates, Mapping):
        candidates = sorted(candidates)
    elif candidates is not None:
        candidates = as_tensor(candidates, "candidates")
    are_embedded = [(side.name, side.is_embedded) for side in sides]
    return {
        "the sides, and whether they are embedded": are_embedded,
        "known": known if len(known) > 1 else "".join(known.values()),
        "candidates": candidates,
        "batch_size": options.batch_size,
        "higher_is_better": options.higher_is_better,
    }


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
    top_k: int | None = None,
) -> AnsweredTable:
    """Rank the hard answers of every query among the entities that are not answers.

    Easy answers are filtered.

    A hard answer needs an edge that is missing from the given graph; an easy answer does not. The
    weight of a ranking task is one over the number of hard answers of its query, so that a mean
    over tasks is the mean over queries: by pattern in ``breakdown``, and over patterns with
    ``average="macro"``.

    Args:
        score (callable): (queries (B,)) -> scores (B, N), tensors or arrays; queries are numbered
            from 0.
        hard (integers or list): (2, P) integers or a tuple of two (P,): query and answer; or a list
            of the answers of each query, such as sets, which are ranked in the order of their ids.
        easy (integers or list, default None): the easy answers, in the same forms; None: there are
            none.
        pattern (integers, default None): (Q,) integers, the pattern (1p, 2i, ...) of each query;
            None: one for all.
        batch_size (int, default None): queries scored at once; None: it grows while that is faster
            and memory allows.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        higher_is_better (bool, default True): False for distances.
        progress (bool, default True): whether to show a progress bar, on a terminal only.
        top_k (int, default None): number of best candidates of each query in ``answers`` of the
            table.

    Returns:
        One row per hard answer: the index as sample id, the pattern as group, and the weight. Rows
        are in the order of pairs (2, P); the answers of a query in a list are sorted by id.
        ``table.positives`` (2, P) has the query and the answer of each row.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples``; ValueError if an answer is given
            twice.

    Source: Ren et al. 2020, Query2box (arXiv 2002.05969); Ren and Leskovec 2020, BetaE (arXiv
        2010.11465).

    >>> import torch
    >>> from torchrankmetrics.kg import rank_complex_queries
    >>> scores = torch.arange(5.0).expand(2, 5)
    >>> hard, easy = [{1, 2}, {4}], [{4}, {0}]
    >>> table = rank_complex_queries(lambda queries: scores[queries], hard, easy)
    >>> table.ranks
    Ranks(optimistic=[2, 2, 1], pessimistic=[2, 2, 1], num_candidates=[3, 3, 4])
    >>> table.weight
    tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    >>> table.positives
    tensor([[0, 0, 1],
            [1, 2, 4]])
    """
    pairs = _pairs(hard, "hard")
    query, own = pairs
    both = pairs if easy is None else torch.cat([pairs, _pairs(easy, "easy").to(pairs.device)], 1)
    known = KnownPositives(*both)
    if both.shape[1] > len(known.index.positives):
        raise _repeated_answer(both)
    group = torch.zeros_like(query) if pattern is None else _patterns(pattern, query)
    options = LoopOptions(None, batch_size, backend, higher_is_better, progress, top_k)
    tasks = QueryTasks(query[:, None], own)
    side = QuerySide(None, score, tasks, {ONLY: known.of_columns}, options, ("query", "answer"))
    ranked = rank_sides([side], group)[ONLY]
    weight = 1 / torch.bincount(query)[query].double()
    table = answered(
        RankTable.from_ranks(
            ranked.ranks, group=group, weight=weight, sample_id=ranked.sample_id
        ).rows,
        ranked.answers,
    )
    table.positives = pairs
    return table


def _repeated_answer(pairs: Tensor) -> ValueError:
    """Return the error for pairs (2, P) of query and answer of which one is given twice."""
    distinct, repeats = torch.unique(pairs, dim=1, return_counts=True)
    query, answer = distinct[:, repeats > 1][:, 0].tolist()
    return ValueError(
        f"hard and easy must contain every answer once; {answer} of query {query} is given again"
    )


def _patterns(pattern: Integers, query: Tensor) -> Tensor:
    """Return the pattern of the query (P,) of each task."""
    patterns = as_ids(pattern, "pattern").to(query.device)
    least = int(query.max()) + 1 if len(query) else 0
    if patterns.ndim != 1 or len(patterns) < least:
        raise ValueError(
            f"pattern must be (Q,), at least ({least},), one per query; got {tuple(patterns.shape)}"
        )
    return patterns[query]


def _pairs(given: Any, name: str) -> Tensor:
    """Read queries and answers, int64 (2, P)."""
    if isinstance(given, list) and all(isinstance(part, Collection) for part in given):
        numbered = [(i, int(answer)) for i, part in enumerate(given) for answer in sorted(part)]
        given = torch.tensor(numbered, dtype=torch.int64, device="cpu").reshape(-1, 2).T
    given = given if isinstance(given, tuple) else as_ids(given, name)
    parts = [as_ids(part, name) for part in given]
    check_vectors(
        parts, 2, f"{name} must be (2, P), pairs of (query, answer), or a list of answers per query"
    )
    return as_facts(torch.stack(parts, 1), name, "query", "answer").T
