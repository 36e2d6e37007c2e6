"""The evaluation loop: each query of a side is scored once, and filtered ranks are counted.

`rank_triples`, temporal facts, complex queries, alignment, PyG and the sequential evaluation all
run this loop.
"""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from torchrankmetrics.kg.answers import AnsweredTable, SideAnswers, TopAnswers, answered
from torchrankmetrics.kg.batch_size import BatchSize, is_out_of_memory, most_queries
from torchrankmetrics.kg.candidates import (
    CandidatesByRelation,
    check_by_relation,
    excluded_by,
    excluded_by_relation,
)
from torchrankmetrics.kg.query_tasks import QueryTasks
from torchrankmetrics.kg.scorers import EmbeddingScorer, as_scores, reversed_order
from torchrankmetrics.ranking.accumulator import rank_chunks
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.ranking.best import BestCandidates, Cells, best_candidates, best_of_embeddings
from torchrankmetrics.ranking.counting import Excluded, ExcludedSlices
from torchrankmetrics.ranking.counting.torch_backend import at
from torchrankmetrics.ranking.ranks import Ranks, rank_dense
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.tile_ranks import rank_by_tiles
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import QUERY_AND_ANSWER, TaskSide, check_int

_QUERIES_EMBEDDED = 2048  # no matrix of their scores exists
ONLY = ""
"""Name of the filter of an evaluation with one filter."""

LookUp = Callable[..., ExcludedSlices]
"""Known positives of queries, from columns of ids (B,)."""


class RankOptions(TypedDict, total=False):
    """Options that ``rank_triples`` and ``rank_facts`` share."""

    candidates: Integers | CandidatesByRelation | None
    batch_size: int | None
    backend: str
    higher_is_better: bool
    progress: bool
    top_k: int | None


class LoopOptions(NamedTuple):
    """Options of an evaluation, see ``rank_triples``."""

    candidates: Integers | CandidatesByRelation | None = None
    batch_size: int | None = None
    backend: str = "auto"
    higher_is_better: bool = True
    progress: bool = True
    top_k: int | None = None
    shard: Shard = Shard()
    num_entities: int | None = None  # that the user gave to KnownTriples, else None
    least_columns: int = 1  # of the scores: the number of entities in the known triples


class ScoreMatrix(NamedTuple):
    """Scores (B, n) of a batch of queries, higher is better, for the candidates of a shard."""

    tensor: Tensor
    shard: Shard
    options: LoopOptions

    def rank(self, target: Cells, excluded: Excluded) -> Ranks:
        """Rank targets, given as (row, column)."""
        scores = self.tensor.detach()
        backend = self.options.backend
        if self.shard.is_whole:
            return rank_dense(scores, target, excluded, by_query=False, backend=backend)
        true_of = partial(at, scores)
        return rank_chunks(
            [scores], true_of, target, excluded, scores, self.shard, backend, by_query=False
        )

    def best(self, target: Cells, excluded: Excluded, k: int) -> BestCandidates:
        """Find the best candidates of each query, with the scores that the model returned."""
        if self.options.higher_is_better:
            return best_candidates(self.tensor, target, excluded, k)
        return best_candidates(self.tensor, target, excluded, k, reversed_order)


class EmbeddedQueries(NamedTuple):
    """Embeddings (B, d) of a batch of queries: ranks need no matrix of their scores."""

    tensor: Tensor
    shard: Shard
    options: LoopOptions
    scorer: EmbeddingScorer

    def rank(self, target: Cells, excluded: Excluded) -> Ranks:
        """Rank targets, given as (row, column)."""
        how = self.scorer.similarity, self.options.backend
        candidates = self.scorer.candidates
        return rank_by_tiles(
            self.tensor, candidates, target, excluded, self.shard, *how, by_query=False
        )

    def best(self, target: Cells, excluded: Excluded, k: int) -> BestCandidates:
        """Find the best candidates of each query."""
        how = self.scorer.similarity, self.options.backend
        return best_of_embeddings(self.tensor, self.scorer.candidates, *how, target, excluded, k)


class _Batch(NamedTuple):
    """Results of a batch, by filter."""

    tables: dict[str, RankTable]
    best: dict[str, BestCandidates]


class QuerySide:
    """One side of an evaluation: its ranking tasks, their scorer, and the filters.

    Args:
        name: the predicted side.
        score: the function, or an ``EmbeddingScorer``.
        tasks: the queries and their targets.
        filters: known positives by name, None for raw ranks; ranks are counted for each of them,
            from the same scores.
        options: see ``rank_triples``.
        columns: names of the columns of queries, then of the target.
    """

    def __init__(
        self,
        name: TaskSide | None,
        score: Any,
        tasks: QueryTasks,
        filters: Mapping[str, LookUp | None],
        options: LoopOptions,
        columns: tuple[str, ...],
    ) -> None:
        self.name = name
        self.score = score
        self.tasks = tasks
        self.filters = filters
        self.options = options
        self.columns = columns
        self.outside = 0  # targets that are not candidates of their relation
        for option, number in (("batch_size", options.batch_size), ("top_k", options.top_k)):
            if number is not None:
                check_int(option, number, 1)
        if isinstance(options.candidates, Mapping):
            check_by_relation(options.candidates)
        self.is_embedded = isinstance(score, EmbeddingScorer)
        if self.is_embedded and not options.higher_is_better:
            raise ValueError(
                "higher_is_better must be True with an EmbeddingScorer, which negates l2 and l1 "
                "itself"
            )

    def part(self, queries: Tensor) -> "QuerySide":
        """Select some of the queries, by their indices (b,), and their tasks."""
        part = copy.copy(self)
        part.tasks = self.tasks.part(queries)
        return part

    @torch.no_grad()
    def rank(self, group: Tensor | None, bar: Any) -> dict[str, AnsweredTable]:
        """Rank the tasks batch after batch: by filter, with rows in the order of the tasks (n,).

        ``bar`` is a progress bar of queries.
        """
        size = BatchSize(self._given_batch_size(), self._most_queries())
        batches: list[_Batch] = []
        first = 0
        while first < len(self.tasks):
            last = min(first + size.size, len(self.tasks))
            begin = time.perf_counter()
            try:
                scored = self._score(first, last)
                batch = self._rank_batch(scored, first, last, group)
            except (RuntimeError, MemoryError) as error:
                if last - first == 1 or not is_out_of_memory(error):
                    raise
                size.halve(last - first)
                continue
            batches.append(batch)
            bar.update(last - first)
            first = last
            tensor, shard = scored[:2]
            if shard.is_whole:
                size.grow(begin, shard.total, tensor.element_size(), tensor.device)
            else:  # processes that share the candidates need the same batches
                size.settle_for_all(shard.largest, tensor.device)
        return {name: self._joined(batches, name) for name in self.filters}

    @cached_property
    def _least_columns(self) -> int:
        """Number of columns of scores that contain all targets."""
        targets = self.tasks.targets
        return int(targets.max()) + 1 if len(targets) else 1

    def _most_queries(self) -> int:
        """Bound the first batch by the number of entities that is known before it is scored."""
        least = max(self._least_columns, self.options.least_columns)
        return most_queries(least, self.tasks.targets.device)

    def _given_batch_size(self) -> int | None:
        """Return the number of queries of a batch, None to find it while scoring."""
        if self.options.batch_size is not None or not self.is_embedded:
            return self.options.batch_size
        if self.options.top_k is None and not isinstance(self.options.candidates, Mapping):
            return _QUERIES_EMBEDDED
        embeddings = self.score.candidates.embeddings  # a matrix of cells is needed
        return min(_QUERIES_EMBEDDED, most_queries(max(1, len(embeddings)), embeddings.device))

    def _score(self, first: int, last: int) -> ScoreMatrix | EmbeddedQueries:
        """Score the queries in [first, last), or embed them."""
        # a copy: score functions may change their arguments, such as r += num_relations
        ids = self.tasks.queries[first:last].clone().unbind(1)
        with self.options.shard.joining() as shard:
            if self.is_embedded:
                embedded = self.score.embed(ids, some=shard.is_whole)
                shard.size = len(self.score.candidates)
                shard.settings |= self.score.candidates.settings(embedded)
            else:
                scores = self._checked_scores(ids)
                shard.size = scores.shape[1]
        self._check_num_columns(shard.total)
        if self.is_embedded:
            return EmbeddedQueries(embedded, shard, self.options, self.score)
        return ScoreMatrix(scores, shard, self.options)

    def _checked_scores(self, ids: tuple[Tensor, ...]) -> Tensor:
        """Score queries, given as columns of ids (B,): (B, N), higher is better."""
        name = "score" if self.name is None else f"score_{self.name}s"
        scores = as_scores(
            self.score(*ids), ids[0].device, self.options.higher_is_better, f"{name}(...)"
        )
        if scores.ndim != 2 or len(scores) != len(ids[0]):
            raise ValueError(
                f"{name} must return scores ({len(ids[0])}, N), got {tuple(scores.shape)}"
            )
        if scores.is_complex():
            raise TypeError(f"{name} must return real scores, got {scores.dtype}")
        return scores

    def _check_num_columns(self, total: int) -> None:
        """Compare the number of columns with the targets and with num_entities of ``known``."""
        if total < self._least_columns:
            name = "score" if self.name is None else f"score_{self.name}s"
            raise IndexError(
                f"{name} must score all entities, but it returned {total} columns, and the largest "
                f"target is entity {self._least_columns - 1}"
            )
        number = self.options.num_entities
        candidates = self.options.candidates
        # with candidates by relation, other relations have all entities
        has_ids = candidates is not None and not isinstance(candidates, Mapping)
        if number is None or number == total or has_ids:
            return
        remedy = "correct num_entities of KnownTriples"
        if number < total and candidates is None:
            remedy += f", or ignore other columns by candidates=range({number})"
        raise ValueError(
            f"scores must have num_entities={number} columns as known, got {total}; {remedy}"
        )

    def _rank_batch(
        self,
        scored: ScoreMatrix | EmbeddedQueries,
        first: int,
        last: int,
        group: Tensor | None,
    ) -> _Batch:
        """Rank the tasks of the queries in [first, last), for every filter."""
        tasks = self.tasks.of(first, last)
        target = self.tasks.row[tasks] - first, self.tasks.targets[tasks]
        ids = self.tasks.queries[first:last].unbind(1)
        allowed = self._allowed(ids, scored)
        batch = _Batch({}, {})
        for name, look_up in self.filters.items():
            excluded = self._excluded(look_up, ids, allowed, scored.shard.total)
            ranks = scored.rank(target, excluded)
            batch.tables[name] = RankTable.from_ranks(
                ranks,
                side=self.name,
                group=None if group is None else group[tasks],
                sample_id=tasks,
            )
            if self.options.top_k is not None:
                batch.best[name] = scored.best(target, excluded, self.options.top_k)
        if allowed.cells is not None:
            self.outside += int(allowed.cells[target].sum())
        return batch

    def _allowed(self, ids: tuple[Tensor, ...], scored: ScoreMatrix | EmbeddedQueries) -> Excluded:
        """Return what ``candidates`` exclude, in all rows or by relation."""
        candidates = self.options.candidates
        total = scored.shard.total
        if not isinstance(candidates, Mapping):
            return Excluded(columns=excluded_by(candidates, total, scored.tensor.device))
        assert self.name in ("tail", "head")
        relations = ids[QUERY_AND_ANSWER[self.name].index(1)]
        return Excluded(cells=excluded_by_relation(candidates, self.name, relations, total))

    def _excluded(
        self, look_up: LookUp | None, ids: tuple[Tensor, ...], allowed: Excluded, total: int
    ) -> Excluded:
        """Return what a filter and ``candidates`` exclude together."""
        if look_up is None:
            return allowed
        known = replace(look_up(*ids), missing=None)  # all targets have been looked up before
        if known.num_columns > total:
            raise IndexError(
                f"known must contain entities in [0, {total}), the columns of the scores; it has "
                f"{known.num_columns - 1}: it is of another graph, or numbers entities differently"
            )
        if allowed.cells is None:
            return allowed._replace(slices=known)
        cells = allowed.cells.clone()
        cells[tuple(known.pairs())] = True
        return Excluded(cells=cells)

    def _joined(self, batches: list[_Batch], name: str) -> AnsweredTable:
        """Join the results of all batches for one filter."""
        rows = self.tasks.in_order(RankTable.concatenate([batch.tables[name] for batch in batches]))
        if self.options.top_k is None:
            return AnsweredTable(rows.rows)
        empty = BestCandidates.empty(self.options.top_k)
        best = BestCandidates.concatenate([empty, *(batch.best[name] for batch in batches)])
        tasks = self.tasks
        side = SideAnswers(self.columns, tasks.queries.cpu(), tasks.row.cpu(), *best)
        return answered(rows.rows, TopAnswers({self.name or self.columns[-1]: side}))
