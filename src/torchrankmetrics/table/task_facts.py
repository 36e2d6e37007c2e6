"""`TaskFacts`: facts of ranking tasks apart from their ranks."""

from __future__ import annotations  # help() shows the names of types

from typing import Any, NamedTuple

from torch import Tensor

from torchrankmetrics.ranking.arrays import Integers, Numbers, as_tensor
from torchrankmetrics.validation import TaskSide, one_number


class TaskFacts(NamedTuple):
    """Facts of the ranking tasks of one update, apart from their ranks; None: not given.

    ``RankMetric.update``, ``RankCollection.update``, ``evaluate`` and ``RankTable.from_ranks`` take
    them as keywords of these names, and check them.

    Args:
        side (str, default None): "head", "tail" or "relation", the predicted side of all tasks.
        group (integers, default None): (tasks,) or one: ids of groups, for macro averages and
            breakdowns.
        weight (numbers, default None): (tasks,) or one, at least 0: weights in averages; tasks of
            weight 0 are dropped.
        sample_id (integers, default None): (tasks,): index in the dataset; repeats of (side,
            sample id) count once.
        query (integers, default None): (tasks,) or one, at least 0: tasks of one query are its
            relevant items.
        gain (numbers, default None): (tasks,) or one, at least 0: relevance labels; 0 drops the
            task.

    >>> import torch
    >>> from torchrankmetrics import Ranks, RankTable, TaskFacts, evaluate
    >>> weight = torch.tensor([1, 1, 2])
    >>> facts = TaskFacts(side="tail", group=torch.tensor([0, 0, 1]), weight=weight)
    >>> ranks = Ranks(torch.tensor([1, 3, 2]), None, 14)
    >>> RankTable.from_ranks(ranks, **facts._asdict())
    RankTable(3 tasks, sides: tail)
    >>> evaluate(ranks, metrics=["mr"], average="macro", **facts._asdict())
    {'macro_mr': 2.0}
    """

    side: TaskSide | None = None
    group: Integers | None = None
    weight: Numbers | None = None
    sample_id: Integers | None = None
    query: Integers | None = None
    gain: Numbers | None = None


NO_FACTS = TaskFacts()


def facts_of_rows(facts: TaskFacts, index: Tensor, preds: Tensor, *names: str) -> TaskFacts:
    """Read named facts of rows of scores (B, ...), for tasks in the rows of an index (tasks,)."""
    read: dict[str, Any] = {}
    for name in names:
        values = getattr(facts, name)
        if values is None or _is_one(values):
            continue
        tensor = as_tensor(values, name)
        if tensor.shape != preds.shape[:1]:
            raise ValueError(
                f"{name} must be {tuple(preds.shape[:1])}, one entry per row of preds "
                f"{tuple(preds.shape)}; got {tuple(tensor.shape)}"
            )
        read[name] = tensor.to(index.device)[index]
    return facts._replace(**read)


def shared_facts(facts: TaskFacts) -> TaskFacts:
    """Keep the side, and facts that are one number for all tasks."""
    shared = {}
    for name in ("group", "weight", "query"):
        value = getattr(facts, name)
        if value is not None and _is_one(value):
            shared[name] = value
    return TaskFacts(facts.side, **shared)


def _is_one(values: Integers | Numbers) -> bool:
    """Whether a fact is one number for all tasks."""
    return values.ndim == 0 if isinstance(values, Tensor) else one_number(values) is not None
