"""Anytime-valid tests, and the random order in which queries are ranked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.inference.pairing import check_same_tasks
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.shards import Communicator
from torchrankmetrics.sequential.hypothesis import Hypothesis
from torchrankmetrics.sequential.result import SequentialResult
from torchrankmetrics.sequential.sequences import Drawn, betting_interval
from torchrankmetrics.table.columns import ABSENT, SIDE_BITS, WIDTH, Columns, Rows, without_flag
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int, shown

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup


class QueryOrder:
    """Queries drawn without replacement, each in proportion to its tasks among those left, and their tasks in a row.

    Args:
        query: (n,) int64, the query of each task.
        seed: of the order; it depends on nothing else.

    Attributes:
        queries: (Q,) int64, the place of each drawn query among the sorted, distinct ones.
        tasks: (n,) int64, indices of the tasks, query after query.
        border: (Q + 1,) int64, where the tasks of each drawn query begin, and the last ones end.
    """

    def __init__(self, query: IntArray, seed: int) -> None:
        _, of_task, number = np.unique(query, return_inverse=True, return_counts=True)
        # exponential races: the smallest of independent exponentials is drawn in proportion to its rate
        self.queries = np.argsort(np.random.default_rng(seed).exponential(size=len(number)) / number, kind="stable")
        place = np.empty(len(number), dtype=np.int64)
        place[self.queries] = np.arange(len(number))
        self.tasks = np.argsort(place[of_task], kind="stable")
        self.border = np.concatenate([np.zeros(1, np.int64), np.cumsum(number[self.queries])])

    def __len__(self) -> int:
        return len(self.queries)

    def of(self, first: int, last: int) -> IntArray:
        """Tasks of the drawn queries from ``first`` up to ``last``, which is not among them."""
        return self.tasks[self.border[first] : self.border[last]]

    def sizes(self, last: int) -> FloatArray:
        """Number of tasks of each of the first drawn queries."""
        return np.diff(self.border[: last + 1]).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Ranked:
    """Rows of the tasks that are ranked.

    Attributes:
        rows: (n, 10) int64, zeros for the others.
        there: (n,) bool, which are ranked.
    """

    rows: Rows
    there: npt.NDArray[np.bool_]

    @classmethod
    def none(cls, size: int) -> "Ranked":
        """None of so many tasks."""
        return cls(np.zeros((size, WIDTH), dtype=np.int64), np.zeros(size, dtype=bool))

    @classmethod
    def of(cls, table: RankTable, size: int, begin: Mapping[int, int] | None = None) -> "Ranked":
        """Find the tasks of a model that ``baseline`` holds.

        Args:
            table: all tasks, or a sample that is marked as one.
            size: n.
            begin: where the tasks of each side begin, by its code; None: sample ids are the indices.

        Raises:
            TypeError, ValueError: if these are not the tasks.
        """
        if not isinstance(table, RankTable):
            raise TypeError(f"baseline must be a RankTable, got {type(table).__name__}")
        rows = table.compact().rows.cpu().numpy()
        columns = Columns(rows)
        if (columns.sample_id == ABSENT).any():
            raise ValueError("baseline must have a sample_id for every task")
        index = columns.sample_id
        if begin is not None:
            if not set(columns.side.tolist()) <= set(begin):
                raise ValueError(f"baseline has tasks of sides that are not ranked here: {shown(table)}")
            index = index + np.array([begin.get(code, 0) for code in range(max(begin) + 1)])[columns.side]
            ends = sorted([*begin.values(), size])[1:]
            last = np.array([min(end for end in ends if end > begin[code]) for code in columns.side.tolist()])
        else:
            last = np.full(len(index), size)
        if ((columns.sample_id < 0) | (index >= last)).any():
            raise ValueError(f"baseline has tasks that are none here: sample ids must be indices of the {size} tasks")
        found = cls.none(size)
        found.put(index, rows)
        if not (table.is_partial or not len(table) or found.there.all()):
            raise ValueError(
                f"baseline lacks {int((~found.there).sum())} of {size} tasks, and is not marked as a sample"
            )
        return found

    @property
    def most_candidates(self) -> int | None:
        """The most candidates of a task; None while some tasks are not ranked."""
        return int(Columns(self.rows).num_candidates.max()) if self.there.all() else None

    def put(self, index: IntArray, rows: Rows) -> None:
        """Keep rows (m, 10) of tasks (m,)."""
        self.rows[index], self.there[index] = without_flag(rows, fault.PARTIAL), True

    def table(self) -> RankTable:
        """The ranked tasks in the order of their indices, marked as a sample unless they are all."""
        rows = self.rows[self.there]
        if not self.there.all():
            Columns(rows).side_and_flags |= fault.PARTIAL << SIDE_BITS
        return RankTable(torch.from_numpy(rows))


class SequentialTest:
    """A hypothesis, the tasks drawn to test it, and their ranks so far.

    Args:
        query: (n,) int64, the query of each task.
        hypothesis: the hypothesis.
        baseline: ranks of the other model; None: the hypothesis is about one model.
        seed: of the order.
        process_group: the processes that share the work; None: this one alone.
        extends: whether the other model ranks the queries that ``baseline`` lacks.
    """

    def __init__(
        self,
        query: IntArray,
        hypothesis: Hypothesis,
        baseline: Ranked | None,
        seed: int,
        process_group: "ProcessGroup | None",
        extends: bool = False,
    ) -> None:
        self.order = QueryOrder(query, check_int("seed", seed, 0))
        self.ranked, self.baseline, self.hypothesis = Ranked.none(len(query)), baseline, hypothesis
        self._communicator, self._extends = None if process_group is None else Communicator(process_group), extends
        self._values: FloatArray = np.empty(0)  # of the drawn queries, in [0, 1]
        self._is_decided = False

    @property
    def num_queries(self) -> int:
        """Number of queries that were drawn and ranked, by both models if there are two."""
        return len(self._values)

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or the ranks of the other model end."""
        if self._is_decided or self.baseline is None or self._extends:
            return self._is_decided
        following = self.order.of(self.num_queries, self.num_queries + 1)
        return not self.baseline.there[following].all()

    def rounds(self, batch_size: int, complete: bool = False) -> Iterator[list[int]]:
        """Yield indices of drawn queries that this process ranks next: at least one, even if it was ranked before."""
        first, rank, size = self.num_queries, 0, 1
        if self._communicator is not None:
            rank, size = self._communicator.rank, len(self._communicator)
        while first < len(self.order):  # a loader may ask ahead of the updates
            if self.is_over and not (complete and self.hypothesis.answer(self._drawn)):
                break
            last = min(first + batch_size, len(self.order))
            yield list(range(first, last))[rank::size] or [first]
            first = last

    def add(self, index: Tensor, rows: Tensor) -> None:
        """Take rows (m, 10) of the tasks of these indices (m,) from every process, and look."""
        task, found = self._gathered(index, rows)
        if self.baseline is not None:
            both = self.baseline.there[task]
            check_same_tasks(self.baseline.rows[task[both]], found[both], "baseline", "the new ranks")
        new = ~self.ranked.there[task]  # rows that were tested stay
        self.ranked.put(task[new], found[new])
        self._advance()

    def add_baseline(self, index: Tensor, rows: Tensor) -> None:
        """Add rows of the other model."""
        assert self.baseline is not None
        self.baseline.put(*self._gathered(index, rows))

    def _gathered(self, index: Tensor, rows: Tensor) -> tuple[IntArray, Rows]:
        """Indices and rows of all processes, in the order of the tasks: every process goes on with the same bits."""
        block = torch.cat([rows, index.to(rows.device)[:, None]], 1)
        rows_of_all = (block if self._communicator is None else self._communicator.gather(block)).cpu().numpy()
        task, first = np.unique(rows_of_all[:, WIDTH], return_index=True)
        found = without_flag(rows_of_all[first, :WIDTH], fault.REPEATED)
        fault.raise_faults(Columns(found).flags)
        total = len(self.ranked.there)
        if len(task) and not 0 <= task[0] <= task[-1] < total:
            wrong = task[0] if task[0] < 0 else task[-1]
            found_id = "none" if wrong == ABSENT else wrong
            raise ValueError(f"sample_id must hold the indices of tasks, from 0 to {total - 1}; got {found_id}")
        self.hypothesis.values(found)  # raises for invalid values
        return task, found

    def _advance(self) -> None:
        there = self.ranked.there if self.baseline is None else self.ranked.there & self.baseline.there
        begin, missing = self.num_queries, np.flatnonzero(~there[self.order.tasks])
        end = len(self.order)
        if len(missing):
            end = int(np.searchsorted(self.order.border, missing[0], side="right")) - 1
        if end == begin:
            return
        tasks, border = self.order.of(begin, end), self.order.border[begin : end + 1]
        values = self.hypothesis.values(self.ranked.rows[tasks])
        if self.baseline is not None:
            values = values - self.hypothesis.values(self.baseline.rows[tasks])
        low, width = self.hypothesis.range
        means = np.add.reduceat((values - low) / width, border[:-1] - border[0]) / np.diff(border)
        self._values = np.concatenate([self._values, np.clip(means, 0, 1)])
        self._is_decided = self._is_decided or end == len(self.order) or self.hypothesis.is_answered(self._drawn)

    @property
    def _drawn(self) -> Drawn:
        """The queries ranked so far, on the scale of [0, 1]."""
        return Drawn(self._values, self.order.sizes(self.num_queries), float(len(self.ranked.there)))

    @property
    def decision(self) -> SequentialResult:
        """The result so far."""
        hypothesis, drawn = self.hypothesis, self._drawn
        if self.num_queries == len(self.order):
            estimate = low = high = self._exact()
            answer = hypothesis.answer_of(estimate)
        else:
            least, width = hypothesis.range
            low, high = (least + width * end for end in betting_interval(drawn, hypothesis.alpha))
            estimate, answer = least + width * drawn.estimate, hypothesis.answer(drawn)
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
            table=self.ranked.table(),
            baseline=None if self.baseline is None else self.baseline.table(),
        )

    def _exact(self) -> float:
        """The value, or the difference, of all tasks, to the last bit what ``evaluate`` gives."""
        models = [self.ranked] if self.baseline is None else [self.ranked, self.baseline]
        values = [self.hypothesis.measure.base(Analysis([model.table().rows])) for model in models]
        return values[0] if len(values) == 1 else values[0] - values[1]
