"""`SequentialEvaluation`: which ranking tasks to rank next, and when to stop."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.metrics.registry import MetricLike
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.exclude import Exclude
from torchrankmetrics.ranking.tasks import Target
from torchrankmetrics.ranking.tolerance import Tolerance
from torchrankmetrics.sequential.hypothesis import Question
from torchrankmetrics.sequential.result import SequentialResult
from torchrankmetrics.sequential.testing import Looks, Ranked
from torchrankmetrics.table.blocks import Preds, make_block
from torchrankmetrics.table.columns import Columns
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide, check_int, is_int

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup


class SequentialEvaluation:
    """Decide which of two models is better, or how good one is, from as few queries as it takes.

    ``batches`` gives tasks in a random order, ``update`` takes their ranks and looks; both go on until it is decided.
    However often one looks, an answer differs from that of all tasks with probability alpha at most, for models that do
    not depend on the order; the best so far, chosen on it, depends on it a little (docs/sequential.md). Queries are
    drawn without replacement, each with the odds of its number of tasks, and bounded by betting.

    Args:
        query: (n,) integers, the query of each task; tasks of one query are ranked together. Or n: each is its own.
        baseline: ranks of the other model, whose sample ids are the indices of the tasks; a sample serves as far as it
            goes in this order. None: the question is about one model.
        metric: a mean of f over tasks, in its base view: a name, a ``RankDefinition`` or a ``RankMetric``. f must be
            bounded, as that of "mrr", "hits@10" and "auc" is.
        alpha: probability of a wrong answer to this one question, at most.
        threshold: whether the value, or beside ``baseline`` the difference, is so much; None there: whether the model
            is better.
        half_width: half the width of an interval for the value, or the difference, that is narrow enough.
        seed: of the order, which is that of all models of a training run.
        num_candidates: the most that a task has, for an f that is bounded on its candidates only, as that of "mr" is;
            None: as many as in ``baseline``, if that has all tasks.
        process_group: the processes that share the work, each of which updates equally often. None: this one alone.

    Raises:
        TypeError, ValueError: for bad options, metrics that no part of the tasks can bound, and other tasks.

    >>> from torchrankmetrics import Ranks
    >>> until = SequentialEvaluation(1000, metric="hits@1", threshold=0.5)
    >>> for tasks in until.batches(50):
    ...     until.update(Ranks(torch.ones_like(tasks), None, 20), sample_id=tasks)
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
        process_group: "ProcessGroup | None" = None,
    ) -> None:
        own = np.arange(query) if is_int(query) else as_ids(query, "query").cpu().numpy()
        if own.ndim != 1 or not len(own):
            raise ValueError(f"query must be (n,) with n > 0, or n > 0; got {query if is_int(query) else own.shape}")
        other = None if baseline is None else Ranked.of(baseline, len(own))
        most = other.most_candidates if num_candidates is None and other is not None else num_candidates
        question = Question.of(metric, alpha, other is not None, threshold, half_width, most)
        self._looks = Looks(own, question, other, seed, process_group)

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or cannot be, as the ranks of the other model end here."""
        return self._looks.is_over

    @property
    def decision(self) -> SequentialResult:
        """What is known now."""
        return self._looks.decision

    def batches(self, batch_size: int, *, complete: bool = False) -> Iterator[Tensor]:
        """Give indices (m,) int64 of the tasks to rank next, until it is decided; update with their ranks in between.

        Args:
            batch_size: queries of a batch, dealt over the processes; each gets at least one, if need be again.
            complete: go on to all tasks where the answer is True: the next model meets the ranks of this one.
        """
        draws = self._looks.draws
        for places in self._looks.rounds(check_int("batch_size", batch_size, 1), complete):
            yield torch.from_numpy(np.concatenate([draws.of(place, place + 1) for place in places]))

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
        tolerance: float | Tolerance = 0.0,
    ) -> None:
        """Take the ranks of some tasks, and look; with a process group every process sees those of all.

        Args:
            preds: as in ``RankMetric.update``, like what follows.
            target: as there.
            sample_id: (tasks,) integers, the indices of the tasks.
            exclude: as there.
            side: as there.
            group: as there.
            backend: as there.
            tolerance: as there.

        Raises:
            TypeError, ValueError, IndexError: as there; and if sample ids are no indices of tasks, or the tasks of the
                other model have other candidates, sides or groups.
        """
        rows = make_block(
            preds,
            target,
            exclude,
            side=side,
            group=group,
            sample_id=sample_id,
            backend=backend,
            tolerance=tolerance,
        )
        self._looks.add(Columns(rows).sample_id, rows)
