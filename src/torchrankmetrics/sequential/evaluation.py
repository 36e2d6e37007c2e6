"""`SequentialEvaluation`: which ranking tasks to rank next, and when to stop."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.metrics.registry import MetricLike
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.tasks import Exclude, Target
from torchrankmetrics.sequential.sequences import Hypothesis
from torchrankmetrics.sequential.testing import Ranked, SequentialResult, SequentialTest
from torchrankmetrics.table.blocks import Preds, TaskFacts, make_block
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide, check_int, is_int

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup


class SequentialEvaluation:
    """Test which of two models is better, or estimate the metric of one, from as few queries as necessary.

    ``batches`` yields tasks in a random order; ``update`` adds their ranks and tests the hypothesis. The test is
    anytime-valid: the answer differs from the answer of all tasks with probability at most alpha, however often it is
    tested, for models that do not depend on the order. A model that was selected on the same order depends on it a
    little (docs/sequential.md). Queries are drawn without replacement, in proportion to their number of tasks; bounds
    come from betting.

    Args:
        query (integers or int): (n,) integers, the query of each task; tasks of one query are ranked together. Or n:
            one query per task.
        baseline (RankTable, default None): ranks of the other model, whose sample ids are the indices of the tasks; a
            sample of the tasks is used as far as it covers this order. None: the hypothesis is about one model.
        metric (str, RankDefinition or RankMetric, default "mrr"): a mean of f over tasks, in its base view: a name, a
            ``RankDefinition`` or a ``RankMetric``. f must be bounded, as it is for "mrr", "hits@10" and "auc".
        alpha (float, default 0.05): largest probability of a wrong answer.
        threshold (float, default None): test whether the value, or with ``baseline`` the difference, is at least this;
            None with ``baseline``: test whether the model is better.
        half_width (float, default None): stop when the interval of the value, or of the difference, has at most this
            half width.
        seed (int, default 0): random seed of the order.
        num_candidates (int, default None): largest number of candidates of a task, for an f that is bounded only by it,
            such as "mr"; None: of ``baseline``, if it has all tasks.
        process_group (ProcessGroup, default None): processes that share the work and call ``update`` equally often.
            None: this process only.

    Raises:
        TypeError, ValueError: for invalid options, unbounded metrics, and a baseline with other tasks.

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
        hypothesis = Hypothesis(metric, alpha, other is not None, threshold, half_width, most)
        self._test = SequentialTest(own, hypothesis, other, seed, process_group)

    @property
    def is_over(self) -> bool:
        """Whether it is decided, or the ranks of the other model end."""
        return self._test.is_over

    @property
    def decision(self) -> SequentialResult:
        """The result so far."""
        return self._test.decision

    def batches(self, batch_size: int, *, complete: bool = False) -> Iterator[Tensor]:
        """Yield indices (m,) int64 of the tasks to rank next, until it is decided; call ``update`` with their ranks.

        Args:
            batch_size (int): queries of a batch, sharded over the processes; each process gets at least one.
            complete (bool, default False): if the answer is True, continue to all tasks, so that they can be the next
                baseline.
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
            target (Tensor, list or tuple, default None): as in ``rank_scores``.
            sample_id (integers): (tasks,) integers, the indices that ``batches`` returned.
            exclude (Tensor, list or tuple, default None): as in ``rank_scores``.
            side (str, default None): "head", "tail" or "relation".
            group (integers, default None): (tasks,) integers, or one.
            backend (str, default "auto"): as in ``rank_scores``.

        Raises:
            TypeError, ValueError, IndexError: as ``RankMetric.update``; and if sample ids are not indices of tasks, or
                the tasks of the other model have other candidates, sides or groups.
        """
        facts = TaskFacts(side, group, sample_id=sample_id)
        rows = make_block(preds, target, exclude, facts, backend=backend)
        self._test.add(rows)
