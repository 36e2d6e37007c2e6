"""Stateful fuzzer: all that programs do with a collection, against a plain list of tasks."""

import copy
import io
import pickle
from fractions import Fraction

import hypothesis.strategies as st
import pytest
import torch
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

import reference
import reference_ranks
from fuzzing import cases
from reference import Task
from torchrankmetrics import RankCollection, Ranks, RankTable, evaluate
from torchrankmetrics.metrics import buffer as buffer_module

NAMES = ["mr", "mrr", "hits_at_3", "median_rank", "gmr", "rank_variance", "tie_rate", "count"]
SIDES = [None, "head", "tail"]
N = 6


def true_row(sample):
    """The task that an id stands for: the same each time it comes."""
    return [(sample * 7 + 3 * j) % 5 for j in range(N)], sample % N, sample % 3 + 1, sample % 4


class CollectionMachine(RuleBasedStateMachine):
    """Collections of both storages beside lists of (side, id or None, task)."""

    stored = Bundle("held")

    @initialize(target=stored, storage=st.sampled_from(["ranks", "counts"]))
    def begin(self, storage):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(buffer_module, "_COMPACT_FROM", 4)
        return self.fresh(storage)

    @rule(target=stored, storage=st.sampled_from(["ranks", "counts"]))
    def another(self, storage):
        return self.fresh(storage)

    def fresh(self, storage):
        return {"metric": RankCollection(NAMES, storage=storage), "tasks": []}

    @rule(
        one=stored,
        samples=st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True),
        side=st.sampled_from(SIDES),
        named=st.booleans(),
        inside=st.booleans(),
        how=st.sampled_from(["update", "forward", "ranks", "table"]),
        zeros=st.lists(st.booleans(), min_size=5, max_size=5),
    )
    def see(self, one, samples, side, named, inside, how, zeros):
        rows, columns, weights, groups = zip(*map(true_row, samples), strict=True)
        weights = [
            0 if zero and i else weight
            for i, (weight, zero) in enumerate(zip(weights, zeros, strict=False))
        ]
        scores, target = torch.tensor(rows).float(), torch.tensor(columns)
        known = {"side": side, "weight": weights, "group": torch.tensor(groups)}
        known["sample_id"] = samples if named else None
        lines = [
            reference_ranks.rank(row, column)[:3] for row, column in zip(rows, columns, strict=True)
        ]
        new = [
            (side, sample if named else None, Task(*line, Fraction(weight), group))
            for sample, line, weight, group in zip(samples, lines, weights, groups, strict=True)
        ]
        low, high, count = zip(*lines, strict=True)
        with torch.inference_mode(inside):
            if how == "update":
                one["metric"].update(scores, target, **known)
            elif how == "ranks":
                one["metric"].update(Ranks(low, high, count), **known)
            elif how == "table":
                one["metric"].update(RankTable.from_ranks(Ranks(low, high, count), **known))
            else:
                self.compare(one["metric"](scores, target, **known), new)
        one["tasks"] += new

    @rule(one=stored, bad=st.sampled_from(["target", "weight", "shape", "side"]))
    def is_refused(self, one, bad):
        target, options = (
            torch.tensor([N if bad == "target" else 0]),
            {"weight": [-1.0]} if bad == "weight" else {},
        )
        scores = torch.zeros(2 if bad == "shape" else 1, N)
        with pytest.raises((IndexError, ValueError)):
            one["metric"].update(scores, target, side="left" if bad == "side" else None, **options)

    @rule(one=stored)
    def reset(self, one):
        one["metric"].reset()
        one["tasks"] = []

    @rule(
        target=stored,
        one=stored,
        how=st.sampled_from(["clone", "deepcopy", "pickle", "checkpoint"]),
    )
    def copy(self, one, how):
        metric = one["metric"]
        if how == "checkpoint":
            file, storage = io.BytesIO(), metric._first.storage
            metric.persistent(True)
            torch.save(metric.state_dict(), file)
            metric.persistent(False)
            file.seek(0)
            other = RankCollection(NAMES, storage=storage)
            other.load_state_dict(torch.load(file, weights_only=True))
        else:
            ways = {"clone": RankCollection.clone, "deepcopy": copy.deepcopy}
            other = ways.get(how, lambda m: pickle.loads(pickle.dumps(m)))(metric)
        return self.checked(other, list(one["tasks"]))

    @rule(one=stored, other=stored)
    def merge(self, one, other):
        if one is not other:
            one["metric"].merge_state(other["metric"])
            one["tasks"] += other["tasks"]
            self.checked(**one)

    @rule(target=stored, one=stored)
    def begin_with_its_table(self, one):
        metric = RankCollection(NAMES)
        table = one["metric"].table()
        metric.update(RankTable.from_numpy(table.to_numpy()))
        table.rows.zero_()  # it is ours
        return self.checked(metric, list(one["tasks"]))

    @rule(one=stored, inside=st.booleans())
    def compute(self, one, inside):
        if one["tasks"]:
            with torch.inference_mode(inside):
                self.checked(**one)
                table = one["metric"].table()
                assert (
                    evaluate(table, metrics=NAMES)["count"]
                    == one["metric"].compute()["count"].item()
                )

    def checked(self, metric, tasks):
        if tasks:
            self.compare(metric.compute(), tasks)
        return {"metric": metric, "tasks": tasks}

    def compare(self, values, tasks):
        """With what the papers say of the tasks: none of weight zero, one of each named."""
        used, seen = [], set()
        for side, sample, task in tasks:
            if task.weight and (sample is None or (side, sample) not in seen):
                used.append(task)
                seen.add((side, sample) if sample is not None else None)
        for name in NAMES:
            assert values[name].item() == pytest.approx(
                reference.value(name, used), rel=1e-12, abs=1e-12
            ), name

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()


TestCollection = CollectionMachine.TestCase
TestCollection.settings = cases(20, 1_000, steps=25)
