"""`rank_complex_queries`: hard answers ranked among non-answers, averaged per query and per pattern."""

from collections.abc import Callable, Collection
from typing import Any, cast

import torch
from torch import Tensor

from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.kg.loop import LoopOptions, QuerySide, rank_sides
from torchrankmetrics.kg.scorers import Scores
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.table.rank_table import RankTable

Answers = Integers | list[Collection[int]]
"""Pairs of (query, answer), or the answers of every query."""


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

    A hard answer needs an edge that is missing from the given graph; an easy answer does not. The weight of a ranking
    task is one over the number of hard answers of its query, so that a mean over tasks is the mean over queries: by
    pattern in ``breakdown``, and over patterns with ``average="macro"``.

    Args:
        score (callable): (queries (B,)) -> scores (B, N), tensors or arrays; queries are numbered from 0.
        hard (list or tuple): (2, P) integers or a tuple of two (P,): query and answer; or for every query a list or set
            of its answers.
        easy (list or tuple, default None): likewise for easy answers; None: no easy answers.
        pattern (integers, default None): (Q,) integers, the pattern (1p, 2i, ...) of each query; None: one for all.
        batch_size (int, default None): as in ``rank_triples``.
        backend (str, default "auto"): as in ``rank_triples``.
        higher_is_better (bool, default True): as in ``rank_triples``.
        progress (bool, default True): as in ``rank_triples``.

    Returns:
        One row per hard answer, in their order: the index as sample id, the pattern as group, and the weight.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples``; ValueError if an answer is given twice, or both as hard
            and as easy.

    Source: Ren et al. 2020, Query2box (arXiv 2002.05969); Ren and Leskovec 2020, BetaE (arXiv 2010.11465).

    >>> scores = torch.arange(5.0).expand(2, 5)
    >>> table = rank_complex_queries(lambda queries: scores[queries], hard=[{1, 2}, {4}], easy=[{4}, {0}])
    >>> table.ranks
    Ranks(optimistic=[2, 2, 1], pessimistic=[2, 2, 1], num_candidates=[3, 3, 4])
    >>> table.weight
    tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    query, own = _pairs(hard, "hard")
    queries, answers = query, own
    if easy is not None:
        more = _pairs(easy, "easy")
        queries, answers = (torch.cat([one, two.to(one.device)]) for one, two in zip((query, own), more, strict=True))
    pairs, repeats = torch.unique(torch.stack([queries, answers]), dim=1, return_counts=True)
    if (repeats > 1).any():
        first, answer = pairs[:, repeats > 1][:, 0].tolist()
        raise ValueError(f"hard and easy must hold every answer once; {answer} of query {first} is given again")
    group = torch.zeros_like(query)
    if pattern is not None:
        patterns = as_ids(pattern, "pattern").to(query.device)
        if patterns.ndim != 1 or (len(query) and int(query.max()) >= len(patterns)):
            most = int(query.max()) + 1 if len(query) else 0
            raise ValueError(f"pattern must be (Q,), at least ({most},), one per query; got {tuple(patterns.shape)}")
        group = patterns[query]
    options = LoopOptions(None, batch_size, backend, higher_is_better, progress)
    ranked = rank_sides([QuerySide(None, score, query[:, None], own, KnownAnswers(queries, answers), options)], group)
    weight = 1 / torch.bincount(query)[query].double()
    return RankTable.from_ranks(ranked.ranks, group=group, weight=weight, sample_id=ranked.sample_id)


def _pairs(given: Answers, name: str) -> tuple[Tensor, Tensor]:
    """Queries and answers, each int64 (P,)."""
    if isinstance(given, list) and all(isinstance(part, Collection) for part in given):
        numbered = [(i, int(answer)) for i, part in enumerate(given) for answer in sorted(part)]
        pair: Any = torch.tensor(numbered, dtype=torch.int64, device="cpu").reshape(-1, 2).T
    else:
        pair = given if isinstance(given, tuple) else as_ids(cast("Integers", given), name)
    if len(pair) != 2:
        raise ValueError(f"{name} must be (2, P) pairs of (query, answer), or a list of answers per query")
    query_ids, answer_ids = (as_ids(part, name) for part in pair)
    if query_ids.ndim != 1 or query_ids.shape != answer_ids.shape:
        raise ValueError(f"{name} must be (2, P), got {tuple(query_ids.shape)} and {tuple(answer_ids.shape)}")
    if len(query_ids) and min(int(query_ids.min()), int(answer_ids.min())) < 0:
        raise IndexError(f"{name} must hold queries and answers of at least 0")
    return query_ids, answer_ids
