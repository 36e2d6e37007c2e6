"""RankCollection: one store of rows for all metrics, through everything a user does with a collection."""

import copy
import io
import math
import pickle

import pytest
import torch
from torchmetrics import MetricCollection, MetricTracker
from torchmetrics.classification import MulticlassAccuracy

from torchrankmetrics import (
    AdjustedMeanRankIndex,
    HitsAtK,
    KnownTriples,
    MeanRank,
    MeanReciprocalRank,
    RankCollection,
    RankCount,
    RankDefinition,
    RankMetric,
    RankMetricWarning,
    Ranks,
    RankTable,
    evaluate,
    rank_scores,
)
from torchrankmetrics.metrics import metric as metric_module

NAMES = ["mrr", "mr", "hits_at_1", "amri", "z_mrr", "optimistic_mr", "count", "tie_rate"]


def batch(seed, n=6, candidates=9):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 5, (n, candidates), generator=generator).float()
    return scores, torch.randint(0, candidates, (n,), generator=generator)


def filled(*seeds, metrics=NAMES, **options):
    collection = RankCollection(metrics, **options)
    for seed in seeds:
        collection.update(*batch(seed))
    return collection


def numbers(metric):
    return {key: value.item() for key, value in metric.compute().items()}


# ---- one store


def test_members_hold_one_list_and_every_task_once():
    collection = filled(0, 1, 2)
    lists = {id(member.rows) for member in collection.values(copy_state=False)}
    assert len(lists) == 1
    assert [len(block) for block in collection["mrr"].rows] == [6, 6, 6]
    assert collection.compute()["count"] == 18


def test_values_are_those_of_single_metrics():
    collection = filled(0, 1)
    singles = {
        "mrr": MeanReciprocalRank(),
        "mr": MeanRank(),
        "hits_at_1": HitsAtK(1),
        "amri": AdjustedMeanRankIndex(),
        "z_mrr": MeanReciprocalRank(view="z_score"),
        "optimistic_mr": MeanRank(rank_type="optimistic"),
    }
    for key, metric in singles.items():
        for seed in (0, 1):
            metric.update(*batch(seed))
        assert metric.compute() == collection.compute()[key]


class Halved(MeanReciprocalRank):
    def compute(self):
        return super().compute() / 2


def test_members_that_compute_or_synchronise_otherwise_go_their_own_way():
    def twice(rows, group=None):
        return [rows, rows]

    members = {"halved": Halved(), "mrr": MeanReciprocalRank(), "count": RankCount()}
    doubled = RankCount(dist_sync_fn=twice, distributed_available_fn=lambda: True)
    collection = RankCollection(members | {"doubled": doubled, "alone": RankCount(sync_on_compute=False)})
    collection.update(*batch(0))
    values = collection.compute()
    assert values["halved"] == values["mrr"] / 2
    assert [int(values[key]) for key in ("count", "doubled", "alone")] == [6, 12, 6]


def test_values_are_independent_tensors():
    values = filled(0).compute()
    before = {key: value.item() for key, value in values.items()}
    values["mrr"].add_(1)
    assert {key: value.item() for key, value in values.items()} == before | {"mrr": before["mrr"] + 1}


def test_items_and_indexing_copy_no_rows():
    collection = filled(0, 1)
    blocks = [id(block) for block in collection._leader.rows]
    for member in (*collection.values(), *dict(collection.items()).values(), collection["mr"]):
        assert [id(block) for block in member.rows] == blocks
    before = collection["mr"].compute()
    collection.update(*batch(2))  # goes to all members again
    assert len({id(member.rows) for member in collection.values(copy_state=False)}) == 1
    assert collection["mr"].compute() != before
    assert numbers(collection) == numbers(filled(0, 1, 2))


def test_a_member_read_while_updates_go_on_follows():
    collection = filled(0)
    member = collection["tie_rate"]
    collection.update(*batch(1))
    assert member.compute() == collection.compute()["tie_rate"]


def test_sides():
    collection = RankCollection(["mr", "count"], sides=["both", "head", "tail"])
    collection.update(Ranks([1, 2], None, 9), side="head")
    values = collection.compute()  # no tail yet: NaN, and no error
    assert math.isnan(values.pop("tail_mr"))
    assert values == {"mr": 1.5, "count": 2, "head_mr": 1.5, "head_count": 2, "tail_count": 0}
    collection.update(Ranks([6], None, 9), side="tail")
    # both is the union of the tasks, not the mean of the sides
    assert numbers(collection) == {
        **{"mr": 3, "count": 3, "head_mr": 1.5, "head_count": 2, "tail_mr": 6, "tail_count": 1}
    }


# ---- what torchmetrics offers


def test_forward_gives_the_batch_and_keeps_it():
    collection = RankCollection(NAMES, prefix="val/")
    for seed in range(3):
        values = collection(*batch(seed))
        alone = filled(seed, prefix="val/")
        assert {key: value.item() for key, value in values.items()} == numbers(alone)
        assert list(values) == list(collection.keys())
        for key, member in collection.items():
            assert member._forward_cache == values[key]
    assert numbers(collection) == numbers(filled(0, 1, 2, prefix="val/"))


def test_reset_forgets_and_starts_again():
    collection = filled(0, 1)
    held = collection._leader.rows
    collection.reset()
    assert len(held) == 2  # the list that others may hold is left alone
    assert all(not member.rows and member.update_count == 0 for member in collection.values())
    with pytest.warns(UserWarning, match="before the ``update``"):
        assert collection.compute()["mr"].isnan()
    collection.update(*batch(2))
    assert numbers(collection) == numbers(filled(2))


def test_members_reset_one_by_one_as_lightning_does():
    collection = filled(0, 1)
    for member in collection.values(copy_state=False):
        member.reset()
    collection.update(*batch(2))
    collection.update(*batch(3))
    assert numbers(collection) == numbers(filled(2, 3))


def through_state_dict(collection):
    collection.persistent(True)
    file = io.BytesIO()
    torch.save(collection.state_dict(), file)
    file.seek(0)
    other = RankCollection(NAMES)
    other.load_state_dict(torch.load(file))
    return other


@pytest.mark.parametrize(
    "copied",
    [
        lambda c: c.clone(),
        copy.deepcopy,
        lambda c: pickle.loads(pickle.dumps(c)),
        through_state_dict,
    ],
    ids=["clone", "deepcopy", "pickle", "state_dict"],
)
@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_copies_have_the_values_and_one_store_of_their_own(copied, storage):
    collection = filled(0, 1, storage=storage)
    other = copied(collection)
    assert numbers(other) == numbers(collection)
    other.update(*batch(2))
    assert len({id(member.rows) for member in other.values(copy_state=False)}) == 1
    assert numbers(other) == numbers(filled(0, 1, 2))
    assert numbers(collection) == numbers(filled(0, 1))


def test_rows_are_in_the_state_dict_once_and_only_if_persistent():
    collection = filled(0, 1)
    assert collection.state_dict() == {}
    collection.persistent(True)
    assert {key: tuple(value.shape) for key, value in collection.state_dict().items()} == {"rows": (12, 8)}
    empty = RankCollection(NAMES)
    empty.persistent(True)
    assert tuple(empty.state_dict()["rows"].shape) == (0, 8)
    parent = torch.nn.ModuleDict({"model": torch.nn.Linear(2, 2), "metrics": collection})
    twin = torch.nn.ModuleDict({"model": torch.nn.Linear(2, 2), "metrics": RankCollection(NAMES)})
    twin.load_state_dict(parent.state_dict(), strict=True)
    assert numbers(twin["metrics"]) == numbers(collection)


def test_two_metrics_that_load_one_state_dict_stay_apart():
    metric = MeanRank()
    metric.persistent(True)
    metric.update(*batch(0))
    state = metric.state_dict()
    first, second = MeanRank(), MeanRank()
    first.load_state_dict(state)
    second.load_state_dict(state)
    first.update(*batch(1))
    assert second.compute() == metric.compute()
    assert len(state["rows"]) == 1


def test_merge_state():
    collection, other = filled(0), filled(1, 2)
    collection.compute()
    collection.merge_state(other)
    assert numbers(collection) == numbers(filled(0, 1, 2))
    assert numbers(other) == numbers(filled(1, 2))
    assert collection["mr"].update_count == 3
    collection.update(*batch(3))
    assert numbers(collection) == numbers(filled(0, 1, 2, 3))
    empty = RankCollection(NAMES)
    empty.merge_state(RankCollection(NAMES))
    with pytest.warns(UserWarning, match="before the ``update``"):
        empty.compute()
    metric = MeanRank()
    metric.update(*batch(0))
    more = MeanRank()
    more.update(*batch(1))
    metric.compute()
    metric.merge_state(more)
    assert metric.compute() == filled(0, 1).compute()["mr"]


@pytest.mark.parametrize("prepare", ["nothing", "used", "reset", "read"])
def test_in_a_plain_collection_beside_foreign_metrics(prepare):
    ours = RankCollection(NAMES, prefix="rank/")
    if prepare in ("used", "reset"):
        ours.update(*batch(7))
        ours.reset()
    if prepare == "used":
        ours.update(*batch(7))
        ours.reset()
    both = MetricCollection([ours, MulticlassAccuracy(num_classes=9, average="micro")])
    if prepare == "reset":
        ours.reset()
    if prepare == "read":
        with pytest.warns(UserWarning, match="before the ``update``"):
            ours.compute()
    foreign = MulticlassAccuracy(num_classes=9, average="micro")
    for seed in range(3):
        both.update(*batch(seed))
        foreign.update(*batch(seed))
    want = numbers(filled(0, 1, 2, prefix="rank/"))
    got = {key: value.item() for key, value in both.compute().items()}
    assert got == {**want, "MulticlassAccuracy": foreign.compute().item()}
    both.reset()
    both.update(*batch(3))
    assert both.compute()["rank/count"] == 6


def test_tracker():
    tracker = MetricTracker(RankCollection(["mrr", "mr", "amri"]))
    values = []
    for seed in range(3):
        tracker.increment()
        tracker.update(*batch(seed))
        values.append({key: value.item() for key, value in tracker.compute().items()})
        assert values[-1] == numbers(filled(seed, metrics=["mrr", "mr", "amri"]))
    best = {key: (min if key == "mr" else max)(value[key] for value in values) for key in values[0]}
    assert tracker.best_metric() == pytest.approx(best)


def test_added_metrics_see_the_rows_so_far():
    collection = filled(0, metrics=["mrr"])
    collection.add_metrics(["mr", "amri"], "hits@1")
    collection.update(*batch(1))
    assert numbers(collection) == numbers(filled(0, 1, metrics=["mrr", "mr", "amri", "hits@1"]))


# ---- storage


def test_counts_are_compacted_in_place_and_bounded(monkeypatch):
    monkeypatch.setattr(metric_module, "_COMPACT_FROM", 32)
    counts, ranks = RankCollection(NAMES, storage="counts"), RankCollection(NAMES)
    distinct, most = set(), 0
    for seed in range(60):
        scores, target = batch(seed)
        for collection in (counts, ranks):
            collection.update(scores, target)
        found = rank_scores(scores, target)
        distinct |= set(zip(found.optimistic.tolist(), found.pessimistic.tolist(), strict=True))
        rows = counts._leader.rows
        assert all(member.rows is rows for member in counts.values(copy_state=False))
        most = max(most, sum(len(block) for block in rows))
    assert most <= len(distinct) + max(32, 2 * len(distinct)) < 60 * 6
    assert numbers(counts) == numbers(ranks)
    assert counts.table().rows.equal(ranks.table().rows)
    counts.reset()
    counts.update(*batch(0))
    assert numbers(counts) == numbers(filled(0))


# ---- what else it gives


def test_table_is_sorted_distinct_and_counted():
    collection = RankCollection(["mr"])
    for order in ([3, 1, 3], [1, 3]):
        collection.update(Ranks(order, None, 9), side="tail")
    table = collection.table()
    assert isinstance(table, RankTable)
    assert table.ranks.optimistic.tolist() == [1, 3]
    assert table.count.tolist() == [2, 3]
    assert table.num_tasks == 5
    assert evaluate(table, metrics=["mr", "tail_mr"]) == {"mr": 2.2, "tail_mr": 2.2}
    assert len(RankCollection(["mr"]).table()) == 0


def test_summary():
    collection = RankCollection(["mrr", "amri", "rank_std", "expected_mr"], sides=["both", "head", "tail"])
    assert str(collection.summary()).endswith("no ranking tasks yet")
    collection.update(Ranks([1, 2], [1, 4], 9), side="head")
    collection.update(Ranks([1, 1, 3], None, 5), side="tail")
    summary = collection.summary()
    rows = {(row.side, row.metric): row for row in summary.rows}
    assert list(rows)[:5] == [("head", name) for name in ("mrr", "mr", "rank_std", "expected_mr")] + [("tail", "mrr")]
    values = collection.compute()
    assert rows["both", "mrr"].base == values["mrr"]
    assert rows["tail", "mr"].index == values["tail_amri"]
    assert rows["head", "expected_mr"].base == values["head_expected_mr"]
    z = evaluate(collection.table(), metrics=["head.zmrr"])["head_z_mrr"]
    assert rows["head", "mrr"].z == z
    assert math.isnan(rows["both", "rank_std"].index)
    text = str(summary)
    assert "5 ranks among 5 to 9 candidates" in text
    assert "20.0 % of the true candidates share their score" in text


def test_summary_takes_each_metric_with_its_own_rank_type_and_average():
    collection = RankCollection(
        {"a": RankMetric(RankDefinition("x"), rank_type="expected"), "b": "hmr", "c": MeanRank(average="macro")}
    )
    collection.update(Ranks([1, 2, 3], [1, 2, 9], 9), group=[0, 0, 1])
    values = collection.compute()
    rows = {row.metric: row.base for row in collection.summary().rows}
    assert rows == {"expected_x": values["a"], "hmr": values["b"], "macro_mr": values["c"]}
    assert values["c"] == 0.5 * 1.5 + 0.5 * 6


def test_evaluate():
    assert evaluate([1, 3], 9, ["mr", "amri"]) == {"mr": 2, "amri": 0.75}
    assert evaluate([1.5, 3], metrics=["mr", "hits@1"]) == {"mr": 2.25, "hits_at_1": 0}
    assert evaluate(torch.tensor([1, 3]), torch.tensor([9, 9])) == evaluate([1, 3], 9)
    assert list(evaluate([1, 3])) == ["mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10"]
    assert list(evaluate([1, 3], 9, ["mrr"], views=["base", "z_score"])) == ["mrr", "z_mrr"]
    both = evaluate(Ranks([1], [3], 9), metrics=["optimistic_mr", "mr", "pessimistic_mr", "tie_rate"])
    assert both == {"optimistic_mr": 1, "mr": 2, "pessimistic_mr": 3, "tie_rate": 1}
    assert evaluate([1, 3, 5], 9, [MeanRank(average="macro")], group=[0, 0, 1]) == {"mr": 3.5}
    assert evaluate([1, 3], 9, ["mr"], weight=[0.1, 0.3])["mr"] == pytest.approx(2.5, abs=1e-15)  # not float32
    assert evaluate([33554432.5], 10**9, ["mr"]) == {"mr": 33554432.5}
    values = evaluate([], 9, ["mr", "count"])
    assert math.isnan(values["mr"])
    assert values["count"] == 0


def test_a_users_definition_gives_base_index_and_z_with_no_other_line():
    dcg = RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
    metrics = [RankMetric(dcg, view=view) for view in ("base", "normalized", "adjusted_index", "z_score")]
    collection = RankCollection(metrics)
    assert list(collection.keys()) == ["dcg", "normalized_dcg", "adjusted_dcg", "z_dcg"]
    assert [collection.mode(key) for key in collection] == ["max"] * 4
    ranks, N = [1, 3, 2, 7], [7, 7, 4, 9]
    collection.update(Ranks(ranks, None, N))
    value = sum(1 / math.log2(1 + r) for r in ranks) / 4
    means = [sum(1 / math.log2(1 + r) for r in range(1, n + 1)) / n for n in N]
    squares = [sum(1 / math.log2(1 + r) ** 2 for r in range(1, n + 1)) / n for n in N]
    E, V = sum(means) / 4, sum(s - m * m for s, m in zip(squares, means, strict=True)) / 16
    want = {
        "dcg": value,
        "normalized_dcg": value / E,
        "adjusted_dcg": (value - E) / (1 - E),
        "z_dcg": (value - E) / math.sqrt(V),
    }
    assert numbers(collection) == pytest.approx(want, rel=1e-13)


def test_what_a_definition_does_not_say_is_derived_or_left_out():
    given = RankDefinition("x", f=lambda r: 2 / r, optimum=2.0)
    assert (given.optimum, given.higher_is_better) == (2.0, True)
    views = ["base", "normalized", "adjusted_index", "z_score"]
    open_ended = RankDefinition("x", f=lambda r: -r, optimum=None, higher_is_better=True)
    for definition, allowed in ((given, views), (open_ended, ["base", "normalized", "z_score"])):
        for view in views:
            if view in allowed:
                RankMetric(definition, view=view)
            else:
                with pytest.raises(ValueError, match=f"view='{view}' has no meaning for 'x': it has no best value"):
                    RankMetric(definition, view=view)


# ---- the promises of the issue


def test_nan_scores_rank_last_and_are_told_once():
    collection = RankCollection(["mr", "mrr"])
    scores = torch.tensor([[float("nan"), 0.1, 0.2], [0.5, float("nan"), 0.2], [0.5, 0.1, 0.2]])
    collection.update(scores, torch.zeros(3, dtype=torch.int64))
    with pytest.warns(RankMetricWarning, match="2 of 3 ranking tasks have NaN scores") as told:
        assert collection.compute()["mr"] == (3 + 2 + 1) / 3
    assert len(told) == 1
    collection.compute()  # an error if it warned again
    assert "2 ranking tasks have NaN scores" in str(collection.summary())


def test_negative_scores_with_the_first_one_true_give_mrr_one():
    metric = MeanReciprocalRank()
    metric.update(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([0]))
    assert metric.compute() == 1


def test_changing_the_test_triples_moves_no_validation_rank():
    generator = torch.Generator().manual_seed(0)
    triples = torch.randint(0, 6, (60, 3), generator=generator)
    train, valid, test = triples.split([30, 15, 15])
    scores = torch.rand(15, 6, generator=generator)

    def validate(*splits):
        collection = RankCollection(["mr", "mrr", "amri"])
        exclude = KnownTriples(*splits, num_entities=6).tails(valid[:, 0], valid[:, 1])
        collection.update(scores, valid[:, 2], exclude=exclude)
        return collection.table().rows, numbers(collection)

    rows, values = validate(train, valid)
    leaked, other = validate(train, valid, test), validate(train, valid, test.flip(1))
    assert not leaked[0].equal(other[0])  # the filter that knows the test triples does move the ranks
    test.copy_(test.flip(1))
    again, same = validate(train, valid)
    assert again.equal(rows)
    assert same == values
