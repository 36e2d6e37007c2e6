"""The evaluation loop, and scorers: the unique queries of each side are scored once, and filtered ranks are counted.

`rank_triples`, temporal facts, complex queries, alignment, PyG and the sequential evaluation all
run this loop.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.errors import warn
from torchrankmetrics.kg.answers import BestCandidates, cells_of
from torchrankmetrics.kg.known_triples import KnownTriples, excluded_by, split_facts
from torchrankmetrics.ranking.accumulator import rank_chunks
from torchrankmetrics.ranking.arrays import Array, Integers, read_scores, unique_rows
from torchrankmetrics.ranking.counting import Excluded
from torchrankmetrics.ranking.counting.torch_backend import at
from torchrankmetrics.ranking.embeddings import (
    Candidates,
    check_embeddings,
    read_candidates,
)
from torchrankmetrics.ranking.ranks import rank_dense
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.similarities import SIMILARITIES
from torchrankmetrics.ranking.tiles import all_scores, best_scores, rank_by_tiles
from torchrankmetrics.table.columns import far_below_chance
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES, TaskSide, check_function, check_int

FIRST = 16
_FALLS = 0.95
# seconds: a shorter batch may be mostly the cost of its calls, and cannot have filled much memory
_SHORT = 0.03
_SCORES_CPU, _SCORES_ACCELERATOR = 1 << 22, 1 << 28
_SHARE = 8  # of the free memory of a GPU
_QUERIES_EMBEDDED = 2048  # no matrix of their scores exists
_TRIPLES = 1 << 17  # scored at once: a model holds several embeddings for each

Scores = Tensor | Array
"""Scores that a function returns."""


def both_sides(
    score_hrt: Callable[[Tensor], Scores], num_entities: int
) -> tuple[Callable[..., Tensor], ...]:
    """Make scorers of all tails and of all heads from a function that scores single triples (m, 3)."""
    number = check_int("num_entities", num_entities, 1)

    def score(first: Tensor, second: Tensor, place: int) -> Tensor:
        rows = torch.stack([first, second], 1)
        total, parts = len(rows) * number, []
        for begin in range(0, total, _TRIPLES):
            cell = torch.arange(begin, min(begin + _TRIPLES, total), device=rows.device)
            given, put_in = rows[cell // number], (cell % number)[:, None]
            triples = torch.cat([put_in, given] if place == 0 else [given, put_in], 1)
            scores = as_scores(score_hrt(triples), rows.device, name="score_hrt(...)")
            if scores.shape not in ((len(cell),), (len(cell), 1)):
                got = tuple(scores.shape)
                raise ValueError(
                    f"score_hrt must return scores ({len(cell)},), one for each triple; got {got}"
                )
            parts.append(scores.flatten())
        return torch.cat(parts).view(len(rows), number)

    return lambda heads, relations: score(heads, relations, 2), lambda relations, tails: score(
        relations, tails, 0
    )


def as_scores(
    given: Scores, device: torch.device, higher_is_better: bool = True, name: str = "score"
) -> Tensor:
    """Return scores as a tensor, higher is better, arrays on the device."""
    scores = read_scores(given, name, "scores")
    scores = scores if isinstance(given, Tensor) else scores.to(device)
    if higher_is_better:
        return scores
    # integers by the complement: -x overflows for the lowest integer, and for unsigned ones
    return -scores if scores.is_floating_point() else torch.bitwise_not(scores)


class EmbeddingScorer:
    """A scorer for ``rank_triples`` and similar functions, from embeddings of queries and candidates.

    The example is DistMult; ComplEx, RESCAL and TransE are in docs/scale.md. Ranks are those of
    ``rank_embeddings``.

    Args:
        queries (callable): (ids (B,), ...) -> (B, d) floats, with the ids that a score function
            takes.
        candidates (Tensor, array or Candidates): (N, d) embeddings, or ``Candidates``, which may
            serve both sides; with a ``process_group`` those of this process.
        bias (Tensor or array, default None): as in ``rank_embeddings``.
        similarity (str, default "dot"): as in ``rank_embeddings``.

    >>> from torchrankmetrics import rank_triples
    >>> entities, relations = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]]), torch.ones(1, 2)
    >>> score = EmbeddingScorer(lambda h, r: entities[h] * relations[r], entities)
    >>> rank_triples(score, None, [[0, 0, 2], [2, 0, 1]], None, progress=False).ranks
    Ranks(optimistic=[1, 2], pessimistic=[2, 2], num_candidates=[3, 3])
    """

    def __init__(
        self,
        queries: Callable[..., Tensor],
        candidates: Tensor | Array | Candidates,
        *,
        bias: Tensor | Array | None = None,
        similarity: str = "dot",
    ) -> None:
        self.candidates = read_candidates(candidates, bias, similarity)
        self.queries, self.similarity = queries, similarity

    def __call__(self, *ids: Tensor) -> Tensor:
        """Compute the scores (B, N) of all candidates, float64."""
        queries = self.embed(ids, some=False)
        scores = all_scores(queries, self.candidates, self.similarity)
        return SIMILARITIES[self.similarity].shown(scores).to(queries.device)

    def embed(self, ids: tuple[Tensor, ...], *, some: bool = True) -> Tensor:
        """Embed queries (B, d), given as columns of ids (B,); ``some`` as in ``check_embeddings``."""
        queries = read_scores(self.queries(*ids), "queries", "embeddings (B, d)")
        check_embeddings(queries, self.candidates.embeddings, some=some)
        if len(queries) != len(ids[0]):
            raise ValueError(
                f"queries must return (B, d) = ({len(ids[0])}, d), got {tuple(queries.shape)}"
            )
        return queries


class LoopOptions(NamedTuple):
    """Options of an evaluation, see ``rank_triples``."""

    candidates: Integers | None = None
    batch_size: int | None = None
    backend: str = "auto"
    higher_is_better: bool = True
    progress: bool = True
    top_k: int | None = None
    shard: Shard = Shard()
    num_entities: int | None = None  # of the known triples, if their user gave it


class QuerySide:
    """The unique queries of one side, and the ranking tasks of each, from the query (n, k) and entity (n,) of each."""

    def __init__(
        self,
        name: TaskSide | None,
        score: Any,
        queries: Tensor,
        own: Tensor,
        known: Callable[..., Any] | None,
        options: LoopOptions,
    ) -> None:
        self.name, self.score, self.own, self.known, self.options = name, score, own, known, options
        for option, number in (("batch_size", options.batch_size), ("top_k", options.top_k)):
            if number is not None:
                check_int(option, number, 1)
        self.queries, self.row = unique_rows(queries)
        self.order = self.row.argsort(stable=True)
        numbers = torch.bincount(self.row, minlength=len(self.queries))
        self.border = [0, *numbers.cumsum(0).tolist()]
        self.is_embedded = isinstance(score, EmbeddingScorer)
        self.best = None
        if options.top_k is not None:
            self.best = BestCandidates(options.top_k, self._original)
        if self.is_embedded and not options.higher_is_better:
            raise ValueError(
                "higher_is_better must be True with an EmbeddingScorer, which negates l2 and l1 "
                "itself"
            )

    def part(self, queries: Tensor) -> "QuerySide":
        """Select some of the queries, by their indices (b,), and their tasks."""
        part = copy.copy(self)
        tasks = [self.order[self.border[i] : self.border[i + 1]] for i in queries.tolist()]
        part.queries, part.order = self.queries[queries], torch.cat(tasks)
        part.border = [0, *accumulate(map(len, tasks))]
        place = torch.zeros_like(self.row[: len(self.queries)])
        place[queries] = torch.arange(len(queries), device=place.device)
        part.row = place[self.row]
        return part

    def _original(self, scores: Tensor) -> Tensor:
        """Turn scores, higher is better, back into the scores of the model."""
        if self.is_embedded:
            return SIMILARITIES[self.score.similarity].shown(scores)
        if self.options.higher_is_better:
            return scores
        return -scores if scores.is_floating_point() else ~scores

    def _embedded_at_once(self) -> int:
        """Return the number of queries of a batch of embeddings."""
        if self.best is None:
            return _QUERIES_EMBEDDED
        candidates = self.score.candidates.embeddings
        return min(_QUERIES_EMBEDDED, _most(len(candidates), candidates.device))

    @torch.no_grad()
    def rank(self, group: Tensor, bar: Any) -> RankTable:
        """Rank the tasks batch after batch, with a progress bar; rows are in the order of the tasks (n,)."""
        tables, first, device, queries = [], 0, group.device, len(self.queries)
        fixed = self.options.batch_size or (self._embedded_at_once() if self.is_embedded else None)
        # seconds per query, and the size
        size, grows, best = fixed or FIRST, fixed is None, (math.inf, FIRST)
        while first < queries:
            last, begin = min(first + size, queries), time.perf_counter()
            try:
                table, num_columns, itemsize = self._rank_batch(first, last, group)
            except (RuntimeError, MemoryError) as error:
                if last - first == 1 or not _is_out_of_memory(error):
                    raise
                size, grows = max(1, (last - first) // 2), False
                continue
            tables.append(table)
            bar.update(last - first)
            first = last
            if grows and not self.options.shard.is_whole:
                # processes that share the candidates need the same batches, so their sizes do not
                # depend on time
                size, grows = _most(num_columns, device), False
            elif grows:
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                seconds, most = time.perf_counter() - begin, _fitting(num_columns, itemsize, device)
                if size >= most:
                    size, grows = most, False
                elif seconds > _SHORT and seconds / size > _FALLS * best[0]:
                    size, grows = best[1], False
                else:
                    best, size = (seconds / size, size), min(2 * size, most)
        rows = RankTable.concatenate(tables).rows
        return RankTable(rows[self.order.argsort()] if len(rows) else rows)

    def _add_best(
        self, given: Tensor, target: tuple[Tensor, Tensor], excluded: Excluded, num_columns: int
    ) -> None:
        """Add the best candidates of a batch, from its scores or the embeddings of its queries."""
        assert self.best is not None
        out, correct = cells_of((len(given), num_columns), target, excluded)
        if self.is_embedded:
            how = self.score.candidates, self.score.similarity, self.options.backend
            given = best_scores(given, *how, out, self.best.k)
        self.best.add(given, out, correct)

    def _scores(self, ids: tuple[Tensor, ...]) -> Tensor:
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

    def _rank_batch(self, first: int, last: int, group: Tensor) -> tuple[RankTable, int, int]:
        """Rank the tasks of some queries; also return the number of scores of a query, and their size in bytes."""
        options, ids, score = self.options, self.queries[first:last].unbind(1), self.score
        tasks = self.order[self.border[first] : self.border[last]]
        target = self.row[tasks] - first, self.own[tasks]
        slices = None if self.known is None else self.known(*ids)
        with options.shard.joining() as shard:
            if self.is_embedded:
                given = score.embed(ids, some=shard.is_whole)
                shard.size = len(score.candidates)
                shard.settings |= score.candidates.settings(given)
            else:
                given = self._scores(ids)
                shard.size = given.shape[1]
        if options.candidates is None and shard.total != (
            number := options.num_entities or shard.total
        ):
            others = f", or ignore other columns by candidates=range({number})" * (
                number < shard.total
            )
            remedy = f"correct num_entities of KnownTriples{others}"
            raise ValueError(
                f"scores must have num_entities={number} columns as known, got {shard.total}; "
                f"{remedy}"
            )
        excluded = Excluded(
            slices=slices, columns=excluded_by(options.candidates, shard.total, given.device)
        )
        if self.is_embedded:
            how = score.candidates, target, excluded, shard, score.similarity, options.backend
            ranks = rank_by_tiles(given, *how, by_query=False)
        elif shard.is_whole:
            ranks = rank_dense(given, target, excluded, by_query=False, backend=options.backend)
        else:
            given = given.detach()
            true_of = partial(at, given)
            ranks = rank_chunks(
                [given], true_of, target, excluded, given, shard, options.backend, by_query=False
            )
        if self.best is not None:
            self._add_best(given, target, excluded, shard.total)
        table = RankTable.from_ranks(ranks, side=self.name, group=group[tasks], sample_id=tasks)
        return table, shard.largest, given.element_size()


def sides_of(
    scorers: tuple[Callable[..., Scores] | None, ...],
    tasks: Tensor,
    known: Any,
    options: LoopOptions,
    score_hrt: Callable[[Tensor], Scores] | None = None,
    num_entities: int | None = None,
    kind: Any = KnownTriples,
) -> list[QuerySide]:
    """Queries of the sides that have a scorer (tails, heads) of tasks (n, 3 or more); errors as ``rank_triples``."""
    if known is not None and not isinstance(known, kind):
        name = kind.__name__
        raise TypeError(
            f"known must be {name} or None, got {type(known).__name__}; pass {name}(*splits)"
        )
    if (score_hrt is None) == (scorers == (None, None)):
        raise ValueError(
            "pass score_tails, score_heads or both, or score_hrt alone; the others must be None"
        )
    if score_hrt is not None:
        number = known.num_entities if num_entities is None and known is not None else num_entities
        if number is None:
            raise ValueError("num_entities is needed with score_hrt if known is None")
        scorers = both_sides(score_hrt, number)
    sides, options = [], options._replace(num_entities=getattr(known, "_given", None))
    for side, score in zip(reversed(ENTITY_SIDES), scorers, strict=True):
        if score is not None:
            takes = "two (B,) tensors of ids -> scores (B, N), an EmbeddingScorer or None"
            check_function(f"score_{side}s", score, takes)
            look_up = None if known is None else getattr(known, f"{side}s")
            sides.append(QuerySide(side, score, *split_facts(tasks, side), look_up, options))
    _warn_of_unknown(sides[0], kind.__name__)
    return sides


def rank_sides(sides: Sequence[QuerySide], group: Tensor) -> RankTable:
    """Rank the tasks of all sides, one side after the other; ``group`` has the group of each task of a side."""
    total, progress = sum(len(side.queries) for side in sides), sides[0].options.progress
    with tqdm(total=total, desc="ranking", unit="query", disable=None if progress else True) as bar:
        table = RankTable.concatenate([side.rank(group, bar) for side in sides])
    warn_of_distances(table, sides[0].options.higher_is_better)
    return table


def _warn_of_unknown(side: QuerySide, known: str) -> None:
    """Warn if evaluated triples or facts are not among the known ones, so that the filter lacks a split."""
    slices = None if side.known is None else side.known(*side.queries.unbind(1))
    if (
        slices is not None
        and len(slices.columns)
        and (lost := int((~slices.contain(side.row, side.own)).sum()))
    ):
        warn(
            f"{lost} of {len(side.own)} evaluated triples are not in known: other true triples of "
            f"their split count as wrong candidates; pass known={known}(train, valid, test)"
        )


def warn_of_distances(table: RankTable, higher_is_better: bool) -> None:
    """Warn if the mean rank is so far worse than random that the order of the scores must be reversed."""
    if found := far_below_chance(table.rows.cpu().numpy()):
        remedy = (
            "distances? Then pass"
            if higher_is_better
            else "scores, higher is better? Then leave out"
        )
        warn(f"{found}: are these {remedy} higher_is_better=False")


def _fitting(num_columns: int, itemsize: int, device: torch.device) -> int:
    """Return how many queries to score at once, at most: bounded by scores per batch and by the memory of a GPU."""
    number = _most(num_columns, device)
    if device.type == "cuda":
        number = min(
            number, torch.cuda.mem_get_info(device)[0] // (_SHARE * num_columns * itemsize)
        )
    return max(1, number)


def _most(num_columns: int, device: torch.device) -> int:
    return max(1, (_SCORES_CPU if device.type == "cpu" else _SCORES_ACCELERATOR) // num_columns)


def _is_out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()  # of the CUDA, ROCm and CPU allocators
    return (
        isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text
    )
