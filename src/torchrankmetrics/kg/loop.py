"""The evaluation loop over unique queries of one side, and the choice of the batch size."""

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.kg.answers import Best, SideAnswers
from torchrankmetrics.kg.known_triples import excluded_by
from torchrankmetrics.kg.scorers import EmbeddingScorer, score_queries
from torchrankmetrics.ranking.accumulator import rank_shard
from torchrankmetrics.ranking.arrays import Integers, unique_rows
from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.scores import rank_dense
from torchrankmetrics.ranking.shards import ShardSpec
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide

FIRST = 16
_RUNS = 2  # batches of a size, the faster of which counts: the first ones warm up
_FALLS = 0.95
_SHORT = 0.03  # seconds: a batch of less may be mostly the price of its calls, and cannot have filled much memory


class BatchSize:
    """A number of queries: 16, then as many as a short time is enough for, doubled while the time of each falls.

    Where the leap brings nothing, it doubles from 16 on.

    Args:
        fixed: the number for all batches; None: it grows.
        device: where the queries are scored; on what is neither a CPU nor CUDA nothing is timed, and it grows at once.
    """

    def __init__(self, fixed: int | None, device: torch.device) -> None:
        self.size = fixed or FIRST
        self._grows, self._device = fixed is None, device
        self._seconds: list[float] = []  # per query, of this size
        self._best: tuple[float, int] | None = None
        self._leap: int | None = None  # the size after 16; 0: that was a mistake

    @contextmanager
    def timed(self, queries: int) -> Iterator[None]:
        """Take the time of a batch of so many queries."""
        if not self._grows:
            yield
            return
        self._wait()
        begin = time.perf_counter()
        yield
        self._wait()
        if queries == self.size:  # the last one may be smaller
            self._seconds.append((time.perf_counter() - begin) / queries)

    def grow(self, bound: Callable[[], int]) -> None:
        """Choose the next size, up to a bound, which is asked for only while the size grows."""
        if not self._grows:
            return
        most = bound()
        if self._device.type not in ("cpu", "cuda"):
            self.fix(most)
        elif self.size > most:
            self._leap = most if self.size == self._leap else self._leap
            self.size, self._seconds = most, []
        elif self._seconds:
            self._choose(min(self._seconds), most)

    def _choose(self, time_now: float, most: int) -> None:
        if self._leap is None and self._best is None:
            leap = most if most * time_now <= _SHORT else int(_SHORT / time_now)
            if leap >= 2 * self.size:
                self._best, self._leap = (time_now, self.size), leap
                self.size, self._seconds = leap, []
                return
        if len(self._seconds) < _RUNS:
            return
        if self._best is None or time_now <= _FALLS * self._best[0]:
            self._best = time_now, self.size
            self.size, self._seconds = min(2 * self.size, most), []
            self._grows = self.size > self._best[1]
        elif self.size == self._leap:
            self.size, self._best, self._seconds, self._leap = self._best[1], None, [], 0
        else:
            self.fix(self._best[1])

    def fix(self, size: int) -> None:
        """Keep a size from now on."""
        self.size, self._grows = size, False

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


_SCORES_CPU, _SCORES_ACCELERATOR = 1 << 22, 1 << 28
_SHARE = 8
_QUERIES_EXACT = 2048  # no matrix of their scores exists


class QuerySide:
    """The unique queries of one side, (Q, k) ids, and the tasks of each; scored and filtered by their k columns."""

    higher_is_better = True
    best: Best | None = None
    tolerance: float | Tolerance = 0.0
    shards = ShardSpec()

    def __init__(
        self, name: TaskSide | None, score: Callable[..., Any], queries: Tensor, own: Tensor, known: Any
    ) -> None:
        self.name, self.score, self.own, self.known = name, score, own, known
        self.queries, self.row = unique_rows(queries)
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
        self, relation: Tensor, candidates: Integers | None, batch_size: int | None, backend: str, bar: Any
    ) -> RankTable:
        """Rank the tasks in their order, batch after batch; ``relation`` holds their groups."""
        tables, first = [], 0
        fixed = batch_size or (_QUERIES_EXACT if self.is_exact else None)
        shared = self.shards.process_group is not None
        # processes that share the candidates take the same batches, which no clock can tell them
        batch = BatchSize(fixed or (FIRST if shared else None), relation.device)
        while first < len(self.queries):
            last = min(first + batch.size, len(self.queries))
            try:
                with batch.timed(last - first):
                    table, num_columns, itemsize = self._rank_batch(first, last, relation, candidates, backend)
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
        self, first: int, last: int, relation: Tensor, candidates: Integers | None, backend: str
    ) -> tuple[RankTable, int, int]:
        """Ranks of some queries; and for the next batch how many scores a query has, of how many bytes."""
        ids = self.queries[first:last].unbind(1)
        tasks = self.order[self.border[first] : self.border[last]]
        target = self.row[tasks] - first, self.own[tasks]
        excluded = Excluded(slices=None if self.known is None else self.known(*ids))
        if isinstance(self.score, EmbeddingScorer) and self.is_exact:
            scorer, alone = self.score, self.shards.process_group is None
            with self.shards.joining() as joining:
                queries, joining.size = scorer.embed(ids, some=alone), len(scorer.candidates)
            shard = joining.shard
            excluded = excluded._replace(columns=excluded_by(candidates, shard.total, target[1].device))
            ranks = scorer.rank(queries, target, excluded, backend, shard)
            table = RankTable.from_ranks(ranks, side=self.name, group=relation[tasks], sample_id=tasks)
            return table, shard.total, 0
        with self.shards.joining() as joining:
            scores = score_queries(self.score, ids, self.name, self.higher_is_better)
            joining.size = scores.shape[1]
        shard = joining.shard
        excluded = excluded._replace(columns=excluded_by(candidates, shard.total, scores.device))
        compared: dict[str, Any] = {"backend": backend, "tolerance": self.tolerance}
        if shard.is_whole:
            ranks = rank_dense(scores, target, excluded, by_query=False, **compared)
        else:
            ranks = rank_shard(scores, target, excluded, shard, **compared)
        if self.best is not None:
            self.best.keep(scores, target, excluded)
        table = RankTable.from_ranks(ranks, side=self.name, group=relation[tasks], sample_id=tasks)
        return table, shard.largest, scores.element_size()


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
