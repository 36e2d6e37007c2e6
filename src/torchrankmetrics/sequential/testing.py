"""`SequentialEvaluation`, anytime-valid tests, their results, and the random order of queries."""

from __future__ import annotations  # help() shows the names of types

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.inference.pairing import check_same_tasks
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.names import MetricLike
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.shards import Communicator
from torchrankmetrics.ranking.tasks import Exclude, Target
from torchrankmetrics.sequential.sequences import (
    Drawn,
    Hypothesis,
    HypothesisOptions,
    betting_interval,
)
from torchrankmetrics.table.blocks import Preds, make_block
from torchrankmetrics.table.columns import (
    ABSENT,
    SIDE_BITS,
    WIDTH,
    Columns,
    Rows,
    is_empty_query,
    raise_faults,
    without_flag,
)
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.table.task_facts import TaskFacts
from torchrankmetrics.validation import TaskSide, check_int, is_int, shorten

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup


@dataclass(frozen=True, eq=False)
class SequentialResult:
    """Estimate and interval of a metric over the test set, from the tasks ranked so far.

    ``alpha`` bounds the probability, over the random order of these tasks, that this comparison has
    a wrong answer, however often it was tested; several comparisons have alpha each. The result
    does not apply to other tasks.

    Attributes:
        metric (str): canonical key.
        answer (bool): whether the model is better than the ``baseline``, or its value (with
            ``baseline`` its difference) is at least ``threshold``; None while undecided, and for
            ``half_width``.
        is_decided (bool): whether the hypothesis is decided.
        estimate (float): of the value, or of the difference from ``baseline``; biased by stopping,
            unless it is exact.
        low, high (float): anytime-valid interval with confidence level 1 - alpha; both are the
            exact value at the end.
        alpha, threshold, half_width (float): as passed.
        num_tasks, total_tasks, num_queries, total_queries (int): number that was ranked, and of
            all.
        table (RankTable): the ranks; a sample, and marked as one, unless all tasks are ranked.
        baseline (RankTable): the ranks of the other model, including new ones; None: the hypothesis
            is about one model.
        higher_is_better (bool): direction of the metric; None without one.

    >>> import torch
    >>> from torchrankmetrics import Ranks
    >>> from torchrankmetrics.sequential import SequentialEvaluation
    >>> until = SequentialEvaluation(1000, metric="hits@1", threshold=0.5)
    >>> for tasks in until.batches(50):
    ...     until.update(Ranks(torch.ones_like(tasks), None, 20), sample_id=tasks)
    ...
    >>> result = until.decision
    >>> result.answer, result.num_tasks, result.total_tasks
    (True, 50, 1000)
    """

    metric: str
    answer: bool | None
    is_decided: bool
    estimate: float
    low: float
    high: float
    alpha: float
    threshold: float | None
    half_width: float | None
    num_tasks: int
    total_tasks: int
    num_queries: int
    total_queries: int
    table: RankTable
    baseline: RankTable | None
    higher_is_better: bool | None = None

    @property
    def is_exact(self) -> bool:
        """Whether all tasks were ranked."""
        return self.num_tasks == self.total_tasks

    def values(self) -> dict[str, float]:
        """Return values to log.

        Keys: ``[partial_][difference_]<metric>[_low, _high]`` and ``decided_share_<metric>``.

        A value of a sample has the prefix ``partial_``; the share is the one of the queries that
        were ranked.
        """
        key = self.metric if self.baseline is None else f"difference_{self.metric}"
        found = {key: self.estimate}
        if not self.is_exact:
            key = f"partial_{key}"
            found = {key: self.estimate, f"{key}_low": self.low, f"{key}_high": self.high}
        return {**found, f"decided_share_{self.metric}": self.num_queries / self.total_queries}

    def __str__(self) -> str:
        sign = "+" if self.baseline is not None else ""
        known = self.metric
        if sign:
            ends = {True: " (higher is better)", False: " (lower is better)", None: ""}
            known = f"difference of {self.metric}{ends[self.higher_is_better]}"
        known += " unknown" if math.isnan(self.estimate) else f" {self.estimate:{sign}.4f}"
        words = "better" if self.answer else "not better"
        if not self.is_decided:
            words = "not decided"
        elif self.half_width is not None:
            words = f"to within {self.half_width:g}"
        elif self.threshold is not None:
            words = f"{'at least' if self.answer else 'below'} {self.threshold:g}"
        elif self.is_exact and self.estimate == 0:
            words = "equal"
        if self.is_exact:
            tasks = f"after all {self.total_tasks} tasks; about these tasks only"
            return f"{known}: {words}, exactly, {tasks}"
        if not math.isnan(self.estimate):
            known += f" [{self.low:{sign}.4f}, {self.high:{sign}.4f}]"
        return (
            f"{known}: {words} after {self.num_tasks} of {self.total_tasks} tasks "
            f"({self.num_queries} of {self.total_queries} queries); alpha {self.alpha:g} for this "
            "comparison, about these tasks only"
        )


class QueryOrder:
    """Queries drawn without replacement, with odds in proportion to their numbers of tasks."""

    def __init__(self, query: IntArray, seed: int) -> None:
        _, of_task, number = np.unique(query, return_inverse=True, return_counts=True)
        # indices of the sorted, distinct queries in this order, by an exponential race: the
        # smallest of independent exponentials is drawn in proportion to its rate
        waiting = np.random.default_rng(seed).exponential(size=len(number)) / number
        self.queries = np.argsort(waiting, kind="stable")
        place = np.empty(len(number), dtype=np.int64)
        place[self.queries] = np.arange(len(number))
        # query after query, which begin and end at the borders
        self.tasks = np.argsort(place[of_task], kind="stable")
        self.border = np.concatenate([np.zeros(1, np.int64), np.cumsum(number[self.queries])])

    def __len__(self) -> int:
        return len(self.queries)

    def of(self, first: int, last: int) -> IntArray:
        """Tasks of the drawn queries from ``first`` up to ``last``, exclusive."""
        return self.tasks[self.border[first] : self.border[last]]


class Ranked:
    """Rows (n, 10) of the tasks of one model, side after side, and which of them are ranked.

    A ``table`` has the ranks of ``baseline``: of all tasks, or of a sample that is marked as one.
    """

    def __init__(self, size: int, sides: Sequence[int], table: RankTable | None = None) -> None:
        self.rows: Rows = np.zeros((size, WIDTH), dtype=np.int64)
        self.there = np.zeros(size, dtype=bool)
        self.sides = list(sides)
        if table is None:
            return
        if not isinstance(table, RankTable):
            raise TypeError(f"baseline must be a RankTable, got {type(table).__name__}")
        rows = table.compact().rows.cpu().numpy()
        rows = rows[~is_empty_query(rows)]
        self.put(self.index(rows, "sample_id of baseline"), rows)
        if len(table) and not (table.is_partial or self.there.all()):
            lacking = int((~self.there).sum())
            raise ValueError(
                f"baseline lacks {lacking} of {size} tasks, and is not marked as a sample"
            )

    def index(self, rows: Rows, name: str) -> IntArray:
        """Indices (m,) of the tasks of rows (m, 10)."""
        ids = Columns(rows).sample_id
        side = Columns(rows).side
        number = len(self.there) // max(len(self.sides), 1)
        if (wrong := ids[(ids < 0) | (ids >= number)]).size:
            got = "none" if wrong[0] == ABSENT else wrong[0]
            raise ValueError(
                f"{name} must contain the indices of tasks, from 0 to {number - 1}; got {got}"
            )
        if not self.sides:
            return ids
        if not np.isin(side, self.sides).all():
            found = shorten(np.unique(side).tolist())
            raise ValueError(f"baseline has tasks of sides that are not ranked here: {found}")
        return np.asarray(ids + number * (side[:, None] == self.sides).argmax(1))

    @property
    def most_candidates(self) -> int | None:
        """The most candidates of a task; None while some tasks are not ranked."""
        return int(Columns(self.rows).num_candidates.max()) if self.there.all() else None

    def put(self, index: IntArray, rows: Rows) -> None:
        """Store rows (m, 10) of tasks (m,)."""
        self.rows[index] = without_flag(rows, fault.PARTIAL)
        self.there[index] = True

    def table(self) -> RankTable:
        """Ranks in the order of the indices, marked as a sample unless they are all."""
        rows = self.rows[self.there]
        if not self.there.all():
            Columns(rows).side_and_flags |= fault.PARTIAL << SIDE_BITS
        return RankTable(torch.from_numpy(rows))


class SequentialTest:
    """A hypothesis, the tasks drawn to test it, and their ranks so far, of all processes."""

    def __init__(
        self,
        query: IntArray,
        options: HypothesisOptions,
        num_candidates: int | None,
        baseline: RankTable | None,
        seed: int,
        process_group: Any,
        sides: Sequence[int] = (),
        extends: bool = False,  # whether the other model ranks the queries that ``baseline`` lacks
    ) -> None:
        self.order = QueryOrder(query, check_int("seed", seed, 0))
        self.ranked = Ranked(len(query), sides)
        self.baseline = None
        if baseline is not None or extends:
            self.baseline = Ranked(len(query), sides, baseline)
            if num_candidates is None:
                num_candidates = self.baseline.most_candidates
        self.hypothesis = Hypothesis(options, self.baseline is not None, num_candidates)
        self._communicator = Communicator(process_group)
        self._extends = extends
        self._drawn = self._draw(np.empty(0))
        self._is_decided = False

    def _draw(self, values: FloatArray) -> Drawn:
        """The first queries with their values on the scale of [0, 1]."""
        sizes = np.diff(self.order.border[: len(values) + 1]).astype(np.float64)
        return Drawn(values, sizes, float(len(self.ranked.there)))

    @property
    def num_queries(self) -> int:
        """Number of queries that were drawn and ranked, by both models if there are two."""
        return len(self._drawn.values)

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or the ranks of the other model end."""
        if self._is_decided or self.baseline is None or self._extends:
            return self._is_decided
        return not self.baseline.there[self.order.of(self.num_queries, self.num_queries + 1)].all()

    def rounds(self, batch_size: int, complete: bool = False) -> Iterator[list[int]]:
        """Yield indices of drawn queries that this process ranks next: at least one each time."""
        first = self.num_queries
        group = self._communicator
        while first < len(self.order):  # a loader may request batches ahead of the updates
            if self.is_over and not (complete and self.hypothesis.answer(self._drawn)):
                break
            last = min(first + batch_size, len(self.order))
            yield list(range(first, last))[group.rank :: len(group.names)] or [first]
            first = last

    def add(self, rows: Tensor) -> None:
        """Add rows (m, 10) of every process, and test."""
        task, found = self.gathered(rows)
        if self.baseline is not None:
            both = self.baseline.there[task]
            of_other = self.baseline.rows[task[both]]
            check_same_tasks(of_other, found[both], "baseline", "the new ranks")
        new = ~self.ranked.there[task]  # rows that were tested stay
        self.ranked.put(task[new], found[new])

        end = self._num_complete()
        if end == self.num_queries:
            return
        means = self._scaled_means(self.num_queries, end)
        self._drawn = self._draw(np.concatenate([self._drawn.values, means]))
        if end == len(self.order) or self.hypothesis.is_answered(self._drawn):
            self._is_decided = True

    def _num_complete(self) -> int:
        """How many queries, in the order drawn, have all their ranks, of both models if two."""
        there = self.ranked.there
        if self.baseline is not None:
            there = there & self.baseline.there
        begin = self.num_queries
        in_order = there[self.order.of(begin, len(self.order))]
        first_missing = np.append(in_order, False).argmin() + self.order.border[begin]
        return int(np.searchsorted(self.order.border, first_missing, side="right")) - 1

    def _scaled_means(self, begin: int, end: int) -> FloatArray:
        """The mean value of each of these queries, of differences of two models, in [0, 1]."""
        tasks = self.order.of(begin, end)
        values = self.hypothesis.values(self.ranked.rows[tasks])
        if self.baseline is not None:
            values = values - self.hypothesis.values(self.baseline.rows[tasks])
        scaled = (values - self.hypothesis.low) / self.hypothesis.width
        border = self.order.border[begin : end + 1]
        means = np.add.reduceat(scaled, border[:-1] - border[0]) / np.diff(border)
        return np.clip(means, 0, 1)

    def gathered(self, rows: Tensor) -> tuple[IntArray, Rows]:
        """Indices and rows of all processes in the order of the tasks: the same bits on each."""
        found = without_flag(self._communicator.gather(rows).cpu().numpy(), fault.REPEATED)
        raise_faults(Columns(found).flags)
        task, first = np.unique(self.ranked.index(found, "sample_id"), return_index=True)
        self.hypothesis.values(found[first])  # raises for invalid values
        return task, found[first]

    @property
    def decision(self) -> SequentialResult:
        """The result so far."""
        hypothesis = self.hypothesis
        table = self.ranked.table()
        baseline = None if self.baseline is None else self.baseline.table()
        if self.num_queries == len(self.order):
            estimate = self._exact_value(table, baseline)
            low = high = estimate
            answer = hypothesis.exact_answer(estimate)
        else:
            low, high = self._unscaled(betting_interval(self._drawn, hypothesis.alpha))
            (estimate,) = self._unscaled([self._drawn.estimate])
            answer = hypothesis.answer(self._drawn)
        return SequentialResult(
            metric=hypothesis.measure.key,
            answer=answer,
            is_decided=self._is_decided,
            estimate=estimate,
            low=low,
            high=high,
            alpha=hypothesis.alpha,
            threshold=hypothesis.threshold,
            half_width=hypothesis.half_width,
            num_tasks=int(self.order.border[self.num_queries]),
            total_tasks=len(self.ranked.there),
            num_queries=self.num_queries,
            total_queries=len(self.order),
            table=table,
            baseline=baseline,
            higher_is_better=hypothesis.measure.higher_is_better,
        )

    def _exact_value(self, table: RankTable, baseline: RankTable | None) -> float:
        """The value or difference of all tasks, to the last bit the one of ``evaluate``."""
        measure = self.hypothesis.measure
        value = measure.base(Analysis([table.rows]))
        return value if baseline is None else value - measure.base(Analysis([baseline.rows]))

    def _unscaled(self, values: Iterable[float]) -> list[float]:
        return [self.hypothesis.low + self.hypothesis.width * value for value in values]


class SequentialEvaluation:
    """Test which of two models is better, or estimate the metric of one, from few queries.

    ``batches`` yields tasks in a random order; ``update`` adds their ranks and tests the
    hypothesis. The test is anytime-valid: the answer differs from the answer of all tasks with
    probability at most alpha, however often it is tested, for models that do not depend on the
    order. Queries are drawn without replacement, in proportion to their number
    of tasks; bounds come from betting.

    Args:
        query (integers or int): (n,) integers, the query of each task; tasks of one query are
            ranked together. Or n: one query per task.
        baseline (RankTable, default None): ranks of the other model, whose sample ids are the
            indices of the tasks; a sample of the tasks is used as far as it covers this order.
            None: the hypothesis is about one model.
        metric (str, RankDefinition or RankMetric, default "mrr"): a mean of f over tasks, in its
            base view. f must be bounded, as it is for "mrr", "hits@10" and "auc".
        alpha (float, default 0.05): largest probability of a wrong answer.
        threshold (float, default None): test whether the value, or with ``baseline`` the
            difference, is at least this; None with ``baseline``: test whether the model is better.
        half_width (float, default None): stop when the interval has at most this half width.
        seed (int, default 0): random seed of the order.
        num_candidates (int, default None): largest number of candidates of a task, for an f that is
            bounded only by it, such as "mr"; None: of ``baseline``, if it has all tasks.
        process_group (ProcessGroup, default None): processes that share the work and call
            ``update`` equally often.

    Raises:
        TypeError, ValueError: for invalid options, unbounded metrics, and a baseline with other
            tasks.

    >>> import torch
    >>> from torchrankmetrics.sequential import SequentialEvaluation
    >>> from torchrankmetrics import Ranks
    >>> until = SequentialEvaluation(1000, metric="hits@1", threshold=0.5)
    >>> for tasks in until.batches(50):
    ...     until.update(Ranks(torch.ones_like(tasks), None, 20), sample_id=tasks)
    ...
    >>> until.decision.answer, until.decision.num_tasks, until.decision.total_tasks
    (True, 50, 1000)
    """

    def __init__(
        self,
        query: Integers | int,
        *,
        baseline: RankTable | None = None,
        metric: MetricLike = "mrr",
        alpha: float = 0.05,
        threshold: float | None = None,
        half_width: float | None = None,
        seed: int = 0,
        num_candidates: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        own = np.arange(query) if is_int(query) else as_ids(query, "query").cpu().numpy()
        if own.ndim != 1 or not len(own):
            raise ValueError(
                "query must be (n,) with n > 0, or n > 0; got "
                f"{query if is_int(query) else own.shape}"
            )
        options = HypothesisOptions(metric, alpha, threshold, half_width)
        self._test = SequentialTest(own, options, num_candidates, baseline, seed, process_group)

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or the ranks of the other model end."""
        return self._test.is_over

    @property
    def decision(self) -> SequentialResult:
        """The result so far."""
        return self._test.decision

    def batches(self, batch_size: int, *, complete: bool = False) -> Iterator[Tensor]:
        """Yield indices (m,) int64 of the tasks to rank next, for ``update``, until it is decided.

        Args:
            batch_size (int): queries of a batch, sharded over the processes; each process gets at
                least one.
            complete (bool, default False): if the answer is True, continue to all tasks, so that
                they can be the next baseline.
        """
        order = self._test.order
        for places in self._test.rounds(check_int("batch_size", batch_size, 1), complete):
            yield torch.from_numpy(np.concatenate([order.of(place, place + 1) for place in places]))

    def update(
        self,
        preds: Preds,
        target: Target | None = None,
        *,
        sample_id: Integers | None = None,
        exclude: Exclude = None,
        side: TaskSide | None = None,
        group: Integers | None = None,
        backend: str = "auto",
    ) -> None:
        """Add the ranks of some tasks, of all processes, and test the hypothesis.

        Args:
            preds (Tensor, Ranks or RankTable): (B, N) scores or ranks, as in ``RankMetric.update``.
            target (Tensor, list or tuple, default None): the targets of each row, in every form of
                ``rank_scores``.
            sample_id (integers): (tasks,) integers, the indices that ``batches`` returned.
            exclude (Tensor, list or tuple, default None): known positives to exclude, in every form
                of ``rank_scores``.
            side (str, default None): "head", "tail" or "relation".
            group (integers, default None): (tasks,) integers, or one.
            backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.

        Raises:
            TypeError, ValueError, IndexError: as ``RankMetric.update``; and if sample ids are not
                indices of tasks, or the tasks of the other model have other candidates, sides or
                groups.
        """
        facts = TaskFacts(side, group, sample_id=sample_id)
        rows = make_block(preds, target, exclude, facts, backend=backend)
        self._test.add(rows[Columns(rows).flags & fault.EMPTY == 0])
