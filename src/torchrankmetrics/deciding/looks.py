"""Looks: ranks of drawn queries come in, from one process or several, until what was asked is known."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.checks import check_int
from torchrankmetrics.deciding.decision import SequentialResult
from torchrankmetrics.deciding.draws import Draws
from torchrankmetrics.deciding.question import Question
from torchrankmetrics.deciding.ranked import Ranked
from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.pairing import check_same_tasks
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.parallel.peers import Peers
from torchrankmetrics.table.columns import ABSENT, WIDTH, Columns, Rows, without_flag
from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.inference.sequences import Drawn, betting_interval

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup


class Looks:
    """A question, the tasks drawn for it, and their ranks so far.

    Args:
        query: (n,) int64, the query of each task.
        question: what is asked.
        baseline: ranks of the other model; None: the question is about one.
        seed: of the order.
        process_group: the processes that share the work; None: this one alone.
        extends: whether ``baseline`` gets more ranks where it ends.
    """

    def __init__(
        self,
        query: IntArray,
        question: Question,
        baseline: Ranked | None,
        seed: int,
        process_group: "ProcessGroup | None",
        extends: bool = False,
    ) -> None:
        self.draws = Draws(query, check_int("seed", seed, 0))
        self.ranked, self.baseline, self.question = Ranked.none(len(query)), baseline, question
        self._peers, self._extends = None if process_group is None else Peers(process_group), extends
        self._values: FloatArray = np.empty(0)  # of the drawn queries, in [0, 1]
        self._is_decided = False

    @property
    def num_queries(self) -> int:
        """How many queries were drawn and ranked, by both models if there are two."""
        return len(self._values)

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or cannot be, as the ranks of the other model end here."""
        if self._is_decided or self.baseline is None or self._extends:
            return self._is_decided
        following = self.draws.of(self.num_queries, self.num_queries + 1)
        return not self.baseline.there[following].all()

    def rounds(self, batch_size: int, complete: bool = False) -> Iterator[list[int]]:
        """Places among the draws of queries for this process to rank next; at least one, if need be again."""
        first, rank, size = self.num_queries, 0, 1
        if self._peers is not None:
            rank, size = self._peers.rank, len(self._peers)
        while first < len(self.draws):  # a loader may ask ahead of the updates
            if self.is_over and not (complete and self.question.answer(self._drawn)):
                break
            last = min(first + batch_size, len(self.draws))
            yield list(range(first, last))[rank::size] or [first]
            first = last

    def add(self, index: Tensor, rows: Tensor) -> None:
        """Take rows (m, 9) of the tasks of these indices (m,) from every process, and look."""
        task, found = self._gathered(index, rows)
        if self.baseline is not None:
            both = self.baseline.there[task]
            check_same_tasks(self.baseline.rows[task[both]], found[both], "baseline", "the new ranks")
        new = ~self.ranked.there[task]  # what was looked at stays
        self.ranked.put(task[new], found[new])
        self._look()

    def add_against(self, index: Tensor, rows: Tensor) -> None:
        """Take more rows of the other model."""
        assert self.baseline is not None
        self.baseline.put(*self._gathered(index, rows))

    def _gathered(self, index: Tensor, rows: Tensor) -> tuple[IntArray, Rows]:
        """Indices and rows of all processes, in the order of the tasks: every process goes on with the same bits."""
        block = torch.cat([rows, index.to(rows.device)[:, None]], 1)
        rows_of_all = (block if self._peers is None else self._peers.join(block)).cpu().numpy()
        task, first = np.unique(rows_of_all[:, WIDTH], return_index=True)
        found = without_flag(rows_of_all[first, :WIDTH], fault.REPEATED)
        fault.raise_faults(Columns(found).flags)
        total = len(self.ranked.there)
        if len(task) and not 0 <= task[0] <= task[-1] < total:
            wrong = task[0] if task[0] < 0 else task[-1]
            told = "none" if wrong == ABSENT else wrong
            raise ValueError(f"sample_id must hold the indices of tasks, from 0 to {total - 1}; got {told}")
        self.question.values(found)  # raises for those that are none
        return task, found

    def _look(self) -> None:
        there = self.ranked.there if self.baseline is None else self.ranked.there & self.baseline.there
        begin, missing = self.num_queries, np.flatnonzero(~there[self.draws.tasks])
        end = len(self.draws)
        if len(missing):
            end = int(np.searchsorted(self.draws.border, missing[0], side="right")) - 1
        if end == begin:
            return
        tasks, border = self.draws.of(begin, end), self.draws.border[begin : end + 1]
        values = self.question.values(self.ranked.rows[tasks])
        if self.baseline is not None:
            values = values - self.question.values(self.baseline.rows[tasks])
        low, width = self.question.range
        means = np.add.reduceat((values - low) / width, border[:-1] - border[0]) / np.diff(border)
        self._values = np.concatenate([self._values, np.clip(means, 0, 1)])
        self._is_decided = self._is_decided or end == len(self.draws) or self.question.is_answered(self._drawn)

    @property
    def _drawn(self) -> Drawn:
        """The queries ranked so far, on the scale of [0, 1]."""
        return Drawn(self._values, self.draws.sizes(self.num_queries), float(len(self.ranked.there)))

    @property
    def decision(self) -> SequentialResult:
        """What is known now."""
        question, drawn = self.question, self._drawn
        if self.num_queries == len(self.draws):
            estimate = low = high = self._exact()
            answer = question.answer_of(estimate)
        else:
            least, width = question.range
            low, high = (least + width * end for end in betting_interval(drawn, question.alpha))
            estimate, answer = least + width * drawn.estimate, question.answer(drawn)
        return SequentialResult(
            metric=question.measure.key,
            answer=answer,
            is_decided=self._is_decided,
            estimate=estimate,
            low=low,
            high=high,
            alpha=question.alpha,
            threshold=question.threshold,
            half_width=question.half_width,
            num_tasks=int(self.draws.border[self.num_queries]),
            total_tasks=len(self.ranked.there),
            num_queries=self.num_queries,
            total_queries=len(self.draws),
            table=self.ranked.table(),
            baseline=None if self.baseline is None else self.baseline.table(),
        )

    def _exact(self) -> float:
        """The value, or the difference, of all tasks, to the last bit what ``evaluate`` gives."""
        models = [self.ranked] if self.baseline is None else [self.ranked, self.baseline]
        values = [self.question.measure.base(Analysis([model.table().rows])) for model in models]
        return values[0] if len(values) == 1 else values[0] - values[1]
