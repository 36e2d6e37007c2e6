"""Random programs on plain collections: whatever is called in any order, every metric has the bits it has alone."""

import copy
import itertools
import pickle
from unittest import mock

import pytest
import torch
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from torchmetrics import Metric, MetricCollection

from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankCount, RankMetric
from torchrankmetrics.metrics import state as state_module


class HostRanks(Metric):
    """Mean rank as one writes it on torchmetrics: a list of all ranks."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("ranks", [], dist_reduce_fx="cat")

    def update(self, scores, target):
        self.ranks.append((scores > scores.gather(1, target[:, None])).sum(1) + 1)

    def compute(self):
        return torch.cat(self.ranks).double().mean() if self.ranks else torch.tensor(torch.nan)


# the first by name is ours: a refused batch then changes none of the others
MEMBERS = {
    "a_mrr": MeanReciprocalRank,
    "count": RankCount,
    "host_ranks": lambda storage: HostRanks(),
    "mr": MeanRank,
    "set_hits_at_2": lambda **options: HitsAtK(2, **options),
    "set_z_mr": lambda **options: MeanRank(view="z_score", **options),
    "z_mrr": lambda **options: MeanReciprocalRank(view="z_score", **options),
}
GROUPS = [["a_mrr", "count", "mr"], ["set_hits_at_2", "set_z_mr"], ["host_ranks"]]


class Scripts(RuleBasedStateMachine):
    """A collection, and next to it each of its metrics alone."""

    @initialize(storage=st.sampled_from(["ranks", "counts"]), groups=st.sampled_from([True, False, GROUPS]))
    def build(self, storage, groups):
        self.compaction = mock.patch.object(state_module, "_COMPACT_FROM", 8)
        self.compaction.start()
        self.storage, self.seeds, self.is_updated = storage, itertools.count(), False
        self.alone = {key: make(storage=storage) for key, make in MEMBERS.items() if key != "z_mrr"}
        members = {key: metric.clone() for key, metric in self.alone.items() if not key.startswith("set")}
        members["set"] = RankCollection(["hits_at_2", "z_mr"], storage=storage)
        self.collection = MetricCollection(members, compute_groups=groups)

    def teardown(self):
        if hasattr(self, "compaction"):
            self.compaction.stop()

    def batch(self, size):
        generator = torch.Generator().manual_seed(next(self.seeds))
        scores = torch.stack([torch.randperm(7, generator=generator) for _ in range(size)]).float()
        return scores, torch.randint(0, 7, (size,), generator=generator)

    def check(self, values, metrics):
        assert set(values) == set(metrics)
        for key, metric in metrics.items():
            assert values[key].double().item().hex() == metric.compute().double().item().hex(), key

    @rule(size=st.integers(1, 5), forward=st.booleans())
    def update(self, size, forward):
        batch = self.batch(size)
        self.is_updated = True
        of_batch = {key: metric.clone() for key, metric in self.alone.items()}
        for metric in of_batch.values():
            metric.reset()
        for metric in (*self.alone.values(), *of_batch.values()):
            metric.update(*batch)
        if forward:
            self.check(self.collection(*batch), of_batch)
        else:
            self.collection.update(*batch)

    @rule(through_forward=st.booleans())
    def refused(self, through_forward):
        scores, target = self.batch(2)
        with pytest.raises(IndexError, match="target"):
            (self.collection if through_forward else self.collection.update)(scores, target + 7)

    @rule()
    def compute(self):
        self.check(self.collection.compute(), self.alone)

    @rule()
    def reset(self):
        self.is_updated = False
        for metric in (self.collection, *self.alone.values()):
            metric.reset()

    @rule(
        how=st.sampled_from([lambda c: c.clone(), copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]),
        swap=st.booleans(),
    )
    def copy(self, how, swap):
        other = how(self.collection)
        if swap:
            self.collection, other = other, self.collection
        other(*self.batch(2))  # what happens to one is not seen by the other
        other.reset()

    @rule(how=st.sampled_from(["items", "values", "index", "by reference"]))
    def read(self, how):
        if how == "values":
            members = dict(zip(self.collection.keys(), self.collection.values(), strict=True))
        elif how == "index":
            members = {key: self.collection[key] for key in self.alone}
        else:
            members = dict(self.collection.items(copy_state=how == "items"))
        if self.is_updated:
            self.check({key: member.compute() for key, member in members.items()}, self.alone)

    @rule()
    def add_metrics(self):
        if "z_mrr" not in self.alone:
            self.collection.add_metrics({"z_mrr": MEMBERS["z_mrr"](storage=self.storage)})
            self.alone["z_mrr"] = MEMBERS["z_mrr"](storage=self.storage)

    @invariant()
    def rows_are_bounded(self):
        if hasattr(self, "alone") and self.storage == "counts":
            for metric in self.collection._modules.values():  # which ties nothing
                if isinstance(metric, RankMetric):  # 7 distinct rows, as many again before they are merged, one update
                    assert sum(map(len, metric.rows)) <= 7 + 8 + 5


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
@pytest.mark.filterwarnings("ignore:.*is undefined")
def test_any_program_gives_each_metric_the_bits_it_has_alone():
    run_state_machine_as_test(Scripts, settings=settings(max_examples=40, stateful_step_count=20, deadline=None))
