"""rank_triples: a whole filtered evaluation of any model, each query scored once for all its answers."""

import copy
import os
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.checks import check_int
from torchrankmetrics.protocols.answers import AnsweredTable, Best, SideAnswers, TopAnswers
from torchrankmetrics.protocols.batches import FIRST, BatchSize
from torchrankmetrics.protocols.embedding_scorer import EmbeddingScorer
from torchrankmetrics.protocols.known_triples import KnownTriples, as_triples, excluded_by
from torchrankmetrics.protocols.scorers import Scores, as_scores, both_sides, look_for_distances
from torchrankmetrics.ranking.accumulator import rank_part
from torchrankmetrics.ranking.arrays import Integers, as_tensor
from torchrankmetrics.ranking.parallel.part import Slicing
from torchrankmetrics.ranking.scores import rank_filtered
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.sides import TaskSide
from torchrankmetrics.table.rank_table import RankTable

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

ScoreFunction = Callable[[Tensor, Tensor], Scores]

_SCORES_CPU, _SCORES_ACCELERATOR = 1 << 22, 1 << 28
_SHARE = 8
_QUERIES_EXACT = 2048  # no matrix of their scores exists


def rank_triples(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | None,
    *,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    counting: str = "auto",
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

    Without ``batch_size`` a batch has 16 queries at first, and twice as many for as long as the time per query falls:
    up to 2^22 scores on the CPU and 2^28 on an accelerator, and at most an eighth of the free memory. Out of memory, a
    batch is halved and tried again.

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
        counting: as ``rank_scores`` takes it.
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
    slicing = Slicing(process_group, offset, num_candidates)

    def read() -> "tuple[Tensor, list[QuerySide]]":
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
            side.slicing = slicing
        return tasks, sides

    def said(found: "tuple[Tensor, list[QuerySide]]") -> dict[str, object]:
        return {
            "triples": found[0],
            "the sides, and whether they are exact": [(side.name, side.is_exact) for side in found[1]],
            "known": "nothing" if known is None else "some",
            "candidates": None if candidates is None else as_tensor(candidates, "candidates"),
            "batch_size": batch_size,
            "higher_is_better": higher_is_better,
            "tolerance": tolerance,
        }

    tasks, sides = slicing.agree(read, said)
    options = (candidates, batch_size, counting, higher_is_better, progress, tolerance)
    table = AnsweredTable(rank_sides(sides, tasks[:, 1], *options).rows)
    if top_k is not None:
        table.answers = TopAnswers({str(side.name): side.answers() for side in sides})
    return table


def sides_of(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    tasks: Tensor,
    known: KnownTriples | None,
    score_hrt: Callable[[Tensor], Scores] | None = None,
    num_entities: int | None = None,
) -> "list[QuerySide]":
    """Queries of the sides that are scored, tails first; arguments and errors as ``rank_triples``."""
    if score_hrt is not None:
        if score_tails is not None or score_heads is not None:
            raise ValueError("score_hrt ranks both sides: score_tails and score_heads must be None beside it")
        if num_entities is None and known is not None:
            num_entities = known.num_entities
        if num_entities is None:
            raise ValueError("num_entities is needed with score_hrt where known is None")
        score_tails, score_heads = both_sides(score_hrt, num_entities)
    if score_tails is None and score_heads is None:
        raise ValueError("score_tails, score_heads and score_hrt are all None: there is nothing to rank")
    sides: list[QuerySide] = []
    if score_tails is not None:
        sides.append(QuerySide("tail", score_tails, tasks[:, [0, 1]], tasks[:, 2], known and known.tails))
    if score_heads is not None:
        sides.append(QuerySide("head", score_heads, tasks[:, [1, 2]], tasks[:, 0], known and known.heads))
    return sides


def rank_sides(
    sides: "list[QuerySide]",
    group: Tensor,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    counting: str = "auto",
    higher_is_better: bool = True,
    progress: bool = True,
    tolerance: float | Tolerance = 0.0,
) -> RankTable:
    """Rank the queries of all sides, one after the other, with a progress bar; the tasks of each have these groups."""
    tables, total = [], sum(len(side.queries) for side in sides)
    with tqdm(total=total, desc="ranking", unit="query", disable=not progress) as bar, torch.no_grad():
        for side in sides:
            side.compare_by(higher_is_better, tolerance)
            tables.append(side.rank(group, candidates, batch_size, counting, bar))
    table = RankTable.concatenate(tables)
    look_for_distances(table.ranks, higher_is_better)
    return table


class QuerySide:
    """The unique queries of one side, (Q, k) ids, and the tasks of each; scored and filtered by their k columns."""

    higher_is_better = True
    best: Best | None = None
    tolerance: float | Tolerance = 0.0
    slicing = Slicing()

    def __init__(
        self, name: TaskSide | None, score: Callable[..., Any], queries: Tensor, own: Tensor, known: Any
    ) -> None:
        self.name, self.score, self.own, self.known = name, score, own, known
        self.queries, self.row = torch.unique(queries, dim=0, return_inverse=True)
        self.order = self.row.argsort(stable=True)
        numbers = torch.bincount(self.row, minlength=len(self.queries))
        self.border = [0, *numbers.cumsum(0).tolist()]
        self.is_exact = isinstance(score, EmbeddingScorer) and score.is_exact

    def compare_by(self, higher_is_better: bool, tolerance: float | Tolerance) -> None:
        """Say which scores are better, and which are the same.

        Raises:
            ValueError: for what the scorer does otherwise.
        """
        self.higher_is_better, self.tolerance = higher_is_better, tolerance
        if isinstance(self.score, EmbeddingScorer):
            if not higher_is_better:
                raise ValueError("higher_is_better must be True with an EmbeddingScorer: l2 and l1 are negated there")
            if tolerance != 0.0 and self.is_exact:
                raise ValueError(
                    'tolerance is for float noise, of which exact ranks have none; or arithmetic="product"'
                )

    def part(self, queries: Tensor) -> "QuerySide":
        """Some of the queries, by their places (b,) among all, and the tasks of them."""
        part = copy.copy(self)
        tasks = [self.order[self.border[i] : self.border[i + 1]] for i in queries.tolist()]
        part.queries, part.order = self.queries[queries], torch.cat([self.order[:0], *tasks])
        part.border = [0, *accumulate(map(len, tasks))]
        place = torch.zeros(len(self.queries), dtype=torch.int64, device=self.row.device)
        place[queries] = torch.arange(len(queries), device=place.device)
        part.row = place[self.row]
        return part

    def rank(
        self, relation: Tensor, candidates: Integers | None, batch_size: int | None, counting: str, bar: Any
    ) -> RankTable:
        """Rank the tasks in their order, batch after batch; ``relation`` holds their groups."""
        tables, first = [], 0
        fixed = batch_size or (_QUERIES_EXACT if self.is_exact else None)
        shared = self.slicing.process_group is not None
        # processes that share the candidates take the same batches, which no clock can tell them
        batch = BatchSize(fixed or (FIRST if shared else None), relation.device)
        while first < len(self.queries):
            last = min(first + batch.size, len(self.queries))
            try:
                with batch.timed(last - first):
                    table, num_columns, itemsize = self._rank_batch(first, last, relation, candidates, counting)
            except (RuntimeError, MemoryError) as error:
                if last - first == 1 or not _is_out_of_memory(error):
                    raise
                batch.fix(max(1, (last - first) // 2))
                continue
            tables.append(table)
            bar.update(last - first)
            if shared and first == 0 and fixed is None:
                batch.fix(_most(num_columns, relation.device))
            first = last
            batch.grow(partial(_fitting, num_columns, itemsize, relation.device))
        rows = RankTable.concatenate(tables).rows
        return RankTable(rows[self.order.argsort()] if len(rows) else rows)

    def answers(self) -> SideAnswers:
        """The best candidates of the queries that were ranked."""
        assert self.best is not None
        return self.best.finish(self.queries)

    def _rank_batch(
        self, first: int, last: int, relation: Tensor, candidates: Integers | None, counting: str
    ) -> tuple[RankTable, int, int]:
        """Ranks of some queries; and for the next batch how many scores a query has, of how many bytes."""
        ids = self.queries[first:last].unbind(1)
        tasks = self.order[self.border[first] : self.border[last]]
        target = self.row[tasks] - first, self.own[tasks]
        known = None if self.known is None else self.known(*ids)
        if isinstance(self.score, EmbeddingScorer) and self.is_exact:
            scorer, alone = self.score, self.slicing.process_group is None
            size = len(scorer.candidates)
            queries, part = self.slicing.join(lambda: scorer.embed(ids, some=alone), lambda _: size)
            restriction = excluded_by(candidates, part.total, target[1].device)
            ranks = scorer.rank(queries, target, known, restriction, counting, part)
            table = RankTable.from_ranks(ranks, side=self.name, group=relation[tasks], sample_id=tasks)
            return table, part.total, 0
        scores, part = self.slicing.join(lambda: self._scores(ids), lambda scores: scores.shape[1])
        restriction = excluded_by(candidates, part.total, scores.device)
        if part.is_whole:
            ranks = rank_filtered(scores, target, known, restriction, counting, self.tolerance)
        else:
            ranks = rank_part(scores, target, known, restriction, counting, self.tolerance, part)
        if self.best is not None:
            self.best.keep(scores, target, known, restriction)
        table = RankTable.from_ranks(ranks, side=self.name, group=relation[tasks], sample_id=tasks)
        return table, part.largest, scores.element_size()

    def _scores(self, ids: tuple[Tensor, ...]) -> Tensor:
        scores = as_scores(self.score(*ids), self.queries.device, self.higher_is_better)
        if scores is None or scores.ndim != 2 or len(scores) != len(ids[0]):
            got = "no tensor or array" if scores is None else tuple(scores.shape)
            what = "score" if self.name is None else f"score_{self.name}s"
            raise ValueError(f"{what} must return scores ({len(ids[0])}, N), got {got}")
        return scores


def _fitting(num_columns: int, itemsize: int, device: torch.device) -> int:
    """How many queries to score at once: bounded by what a cache, or a launch, is worth, and by the free memory."""
    return max(1, min(_most(num_columns, device), _free_memory(device) // (_SHARE * num_columns * itemsize)))


def _most(num_columns: int, device: torch.device) -> int:
    return max(1, (_SCORES_CPU if device.type == "cpu" else _SCORES_ACCELERATOR) // num_columns)


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 1 << 30  # not told by this system


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text
