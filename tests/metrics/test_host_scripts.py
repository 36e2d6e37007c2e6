"""Random programs on collections: whatever is called in whatever order, every metric has the bits it has alone."""

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankCount, RankMetric
from torchrankmetrics.metrics import state as state_module

Batch = tuple[Tensor, Tensor]


class HostRanks(Metric):
    """Mean rank as one writes it on torchmetrics: a list of all ranks."""

    full_state_update = False
    ranks: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("ranks", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, target: Tensor) -> None:
        self.ranks.append((scores > scores.gather(1, target[:, None])).sum(1) + 1)

    def compute(self) -> Tensor:
        return torch.cat(self.ranks).double().mean() if self.ranks else torch.tensor(torch.nan)


class HostSum(Metric):
    """The number of tasks as one writes it on torchmetrics: a sum."""

    full_state_update = True
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, scores: Tensor, target: Tensor) -> None:
        self.total += len(target)

    def compute(self) -> Tensor:
        return self.total


# the first by name is ours: a refused batch then changes none of the others
MEMBERS: dict[str, Callable[..., Metric]] = {
    "a_mrr": MeanReciprocalRank,
    "count": RankCount,
    "host_ranks": HostRanks,
    "host_sum": HostSum,
    "mr": MeanRank,
}
NESTED: dict[str, Callable[..., Metric]] = {
    "set_hits_at_2": lambda **kw: HitsAtK(2, **kw),
    "set_z_mr": lambda **kw: MeanRank(view="z_score", **kw),
}
ADDED: dict[str, Callable[..., Metric]] = {
    "hits_at_1": lambda **kw: HitsAtK(1, **kw),
    "late_count": RankCount,
    "z_mrr": lambda **kw: MeanReciprocalRank(view="z_score", **kw),
}
EXPLICIT = [["a_mrr", "count", "mr"], ["set_hits_at_2", "set_z_mr"], ["host_ranks"], ["host_sum"]]


def made(make: Callable[..., Metric], storage: str) -> Metric:
    return make() if make in (HostRanks, HostSum) else make(storage=storage)


class Scripts(RuleBasedStateMachine):
    """A collection, and beside it each of its metrics alone."""

    kind: ClassVar[str]
    seeds: ClassVar[Any]

    @initialize(storage=st.sampled_from(["ranks", "counts"]))
    def build(self, storage: str) -> None:
        self.compaction = mock.patch.object(state_module, "_COMPACT_FROM", 8)
        self.compaction.start()
        self.storage = storage
        self.seeds = itertools.count()
        self.is_updated = False
        self.waiting = dict(ADDED)
        members: dict[str, Any] = {key: made(make, storage) for key, make in MEMBERS.items()}
        members["set"] = RankCollection(["hits_at_2", "z_mr"], storage=storage)
        groups: Any = {"groups": True, "no groups": False, "explicit groups": EXPLICIT}[self.kind]
        self.collection = MetricCollection(members, compute_groups=groups)
        self.alone = {key: made(make, storage) for key, make in (MEMBERS | NESTED).items()}

    def teardown(self) -> None:
        if hasattr(self, "compaction"):
            self.compaction.stop()

    def batch(self, size: int) -> Batch:
        generator = torch.Generator().manual_seed(next(self.seeds))
        scores = torch.stack([torch.randperm(7, generator=generator) for _ in range(size)]).float()
        return scores, torch.randint(0, 7, (size,), generator=generator)

    def check(self, values: dict[str, Tensor], metrics: dict[str, Metric]) -> None:
        assert set(values) == set(metrics)
        for key, metric in metrics.items():
            assert values[key].double().item().hex() == metric.compute().double().item().hex(), key

    @rule(size=st.integers(1, 5))
    def update(self, size: int) -> None:
        batch = self.batch(size)
        self.is_updated = True
        self.collection.update(*batch)
        for metric in self.alone.values():
            metric.update(*batch)

    @rule(size=st.integers(1, 5))
    def forward(self, size: int) -> None:
        batch = self.batch(size)
        self.is_updated = True
        values = self.collection(*batch)
        of_batch = {key: metric.clone() for key, metric in self.alone.items()}
        for key, metric in self.alone.items():
            of_batch[key].reset()
            of_batch[key].update(*batch)
            metric.update(*batch)
        self.check(values, of_batch)

    @rule(through_forward=st.booleans())
    def refused(self, through_forward: bool) -> None:
        scores, target = self.batch(2)
        with pytest.raises(IndexError, match="target"):
            (self.collection if through_forward else self.collection.update)(scores, target + 7)

    @rule()
    def compute(self) -> None:
        self.check(self.collection.compute(), self.alone)

    @rule()
    def reset(self) -> None:
        self.is_updated = False
        self.collection.reset()
        for metric in self.alone.values():
            metric.reset()

    @rule(
        how=st.sampled_from([lambda c: c.clone(), copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]),
        swap=st.booleans(),
    )
    def copy(self, how: Callable[[Any], Any], swap: bool) -> None:
        other = how(self.collection)
        if swap:
            self.collection, other = other, self.collection
        other(*self.batch(2))  # what happens to one is not seen by the other
        other.reset()

    @rule(how=st.sampled_from(["items", "values", "index", "by reference"]))
    def read(self, how: str) -> None:
        if how == "values":
            members = dict(zip(self.collection.keys(), self.collection.values(), strict=True))
        elif how == "index":
            members = {key: self.collection[key] for key in self.alone}
        else:
            members = dict(self.collection.items(copy_state=how == "items"))
        if self.is_updated:
            self.check({key: member.compute() for key, member in members.items()}, self.alone)

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0, 2))
    def add_metrics(self, choice: int) -> None:
        key = sorted(self.waiting)[choice % len(self.waiting)]
        make = self.waiting.pop(key)
        self.collection.add_metrics({key: made(make, self.storage)})
        self.alone[key] = made(make, self.storage)

    @invariant()
    def rows_are_bounded(self) -> None:
        if hasattr(self, "alone") and self.storage == "counts":
            for metric in self.collection._modules.values():  # which ties nothing
                if isinstance(metric, RankMetric):  # 7 distinct rows, as many again before they are merged, one update
                    assert sum(map(len, metric.rows)) <= 7 + 8 + 5


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
@pytest.mark.filterwarnings("ignore:.*is undefined")
@pytest.mark.parametrize("kind", ["groups", "no groups", "explicit groups"])
def test_any_program_gives_each_metric_the_bits_it_has_alone(kind: str) -> None:
    machine = type("Machine", (Scripts,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=20, deadline=None))
