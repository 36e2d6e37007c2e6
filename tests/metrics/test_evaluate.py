"""evaluate, tables, summaries, user-defined metrics, warnings."""

import json
import math

import numpy as np
import pytest
import torch

import torchrankmetrics as trm
from torchrankmetrics import (
    MeanRank,
    RankCollection,
    RankDefinition,
    RankMetricWarning,
    Ranks,
    compare,
    evaluate,
)
from torchrankmetrics.definitions import WithCandidates
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import Runs
from torchrankmetrics.null import MonteCarloExpectation
from torchrankmetrics.rendering import Rendered, paper_name


def test_arrays_in_numbers_out():
    assert evaluate([1, 3], 9, ["mr", "amri"]) == {"mr": 2, "amri": 0.75}
    assert evaluate([1.5, 3], metrics=["mr", "hits@1"]) == {"mr": 2.25, "hits_at_1": 0}
    assert evaluate(torch.tensor([1, 3]), torch.tensor([9, 9])) == evaluate([1, 3], 9)
    assert list(evaluate([1, 3])) == ["mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10"]
    assert list(evaluate([1, 3], 9, ["mrr"], views=["base", "z_score"])) == ["mrr", "z_mrr"]
    both = evaluate(
        Ranks([1], [3], 9), metrics=["optimistic_mr", "mr", "pessimistic_mr", "tie_rate"]
    )
    assert both == {"optimistic_mr": 1, "mr": 2, "pessimistic_mr": 3, "tie_rate": 1}
    assert evaluate([1, 3, 5], 9, [MeanRank(average="macro")], group=[0, 0, 1]) == {"macro_mr": 3.5}
    # not float32
    assert evaluate([1, 3], 9, ["mr"], weight=[0.1, 0.3])["mr"] == pytest.approx(2.5, abs=1e-15)
    assert evaluate([33554432.5], 10**9, ["mr"]) == {"mr": 33554432.5}
    with pytest.warns(RankMetricWarning, match="0 ranking tasks were given"):
        values = evaluate([], 9, ["mr", "count"])
    assert math.isnan(values["mr"])
    assert values["count"] == 0


def test_sides_without_tasks_are_nan_with_a_warning():
    ranks = Ranks([1, 2, 5], None, 9)
    table = trm.RankTable.from_ranks(ranks, side="tail")
    collection = RankCollection(["head_mrr"])
    collection.update(ranks, side="tail")
    metric = trm.RankMetric("head_mrr")
    metric.update(ranks, side="tail")
    for compute in (
        lambda: evaluate(table, metrics=["mrr"], sides=["head"])["head_mrr"],
        lambda: collection.compute()["head_mrr"],
        metric.compute,
        lambda: collection.confidence_intervals()["head_mrr"].value,
    ):
        text = "0 ranking tasks have side head, .* the tasks have side tail"
        with pytest.warns(RankMetricWarning, match=text):
            assert np.isnan(compute())


def test_summary_has_the_values_of_compute_by_side():
    collection = RankCollection(
        ["mrr", "amri", "rank_std", "expected_mr"], sides=["both", "head", "tail"]
    )
    assert str(collection.summary()).endswith("no ranking tasks yet")
    collection.update(Ranks([1, 2], [1, 4], 9), side="head")
    collection.update(Ranks([1, 1, 3], None, 5), side="tail")
    summary = collection.summary()
    rows = {(row.side, row.metric): row for row in summary.rows}
    assert list(rows)[:5] == [
        ("head", name) for name in ("mrr", "mr", "rank_std", "expected_mr")
    ] + [("tail", "mrr")]
    values = collection.compute()
    assert rows["both", "mrr"].base == values["mrr"]
    assert rows["tail", "mr"].index == values["tail_amri"]
    assert rows["head", "expected_mr"].base == values["head_expected_mr"]
    z = evaluate(collection.table(), metrics=["head.zmrr"])["head_z_mrr"]
    assert rows["head", "mrr"].z == z
    assert math.isnan(rows["both", "rank_std"].index)
    text = str(summary)
    assert "5 ranks among 5 to 9 candidates" in text
    assert "20.0% of the targets share their score" in text


def test_summary_takes_each_metric_with_its_own_rank_type_and_average():
    collection = RankCollection(
        {
            "a": trm.RankMetric(RankDefinition("x"), rank_type="expected"),
            "b": "hmr",
            "c": MeanRank(average="macro"),
        }
    )
    collection.update(Ranks([1, 2, 3], [1, 2, 9], 9), group=[0, 0, 1])
    values = collection.compute()
    rows = {row.metric: row.base for row in collection.summary().rows}
    assert rows == {"expected_x": values["a"], "hmr": values["b"], "macro_mr": values["c"]}
    assert values["c"] == 0.5 * 1.5 + 0.5 * 6


def test_nan_scores_rank_last_with_one_warning():
    collection = RankCollection(["mr", "mrr"])
    scores = torch.tensor([[float("nan"), 0.1, 0.2], [0.5, float("nan"), 0.2], [0.5, 0.1, 0.2]])
    collection.update(scores, torch.zeros(3, dtype=torch.int64))
    with pytest.warns(RankMetricWarning, match="2 of 3 ranking tasks have NaN scores") as warned:
        assert collection.compute()["mr"] == (3 + 2 + 1) / 3
    assert len(warned) == 1
    collection.compute()  # an error if it warned again
    assert "2 ranking tasks have NaN scores" in str(collection.summary())


def test_an_inverted_mask_is_a_warning_once():
    scores, target = torch.rand(6, 9, generator=torch.Generator().manual_seed(0)), torch.arange(6)
    inverted = torch.ones(6, 9, dtype=torch.bool)
    collection = RankCollection(["mrr", "hits@1", "mr"])
    collection.update(scores, target, exclude=inverted)
    with pytest.warns(
        RankMetricWarning, match=r"has one candidate.*True marks candidates to skip"
    ) as warned:
        assert collection.compute()["mrr"] == 1
    assert len(warned) == 1
    with pytest.warns(RankMetricWarning, match="has one candidate"):
        evaluate(scores, target, metrics=["mrr"], exclude=inverted)


def test_scores_that_are_distances_are_a_warning_of_compute():
    distances = torch.cdist(
        points := torch.rand(60, 4, generator=torch.Generator().manual_seed(0)), points
    )
    texts = set()
    for epoch in range(2):
        metric = MeanRank()
        metric.update(distances[epoch:], torch.arange(epoch, 60))
        with pytest.warns(
            RankMetricWarning, match=r"far worse than random ranking: .*pass -distances"
        ) as warned:
            metric.compute()
        texts.add(str(warned[0].message))
    assert len(texts) == 1  # Python shows it once, not in every epoch


@pytest.mark.parametrize("zero", [{"weight": 0}, {"gain": 0}])
def test_weights_of_zero_are_a_warning(zero):
    with pytest.warns(RankMetricWarning, match="every ranking task has the weight 0 or the gain 0"):
        assert math.isnan(evaluate([1, 2], 9, ["mrr"], **zero)["mrr"])


def test_messages_do_not_show_the_code_of_unknown_numbers_of_candidates():
    with pytest.raises(ValueError, match="optimistic 2, pessimistic 1, num_candidates unknown"):
        Ranks([2], [1])
    assert repr(Ranks([3])) == "Ranks(optimistic=[3], pessimistic=[3])"
    with pytest.raises(ValueError, match="has 0 negatives"):
        Ranks([3]).full_rank_estimate(100)


def collected(shift=0):
    collection = RankCollection(["mrr", "mr", "hits@3"])
    ids = torch.arange(40)
    collection.update(
        Ranks((ids * 7 + shift) % 11 + 1, None, 30), side="tail", group=ids % 3, sample_id=ids
    )
    return collection


RESULTS = {
    "summary": lambda: collected().summary(),
    "breakdown": lambda: collected().breakdown(),
    "intervals": lambda: collected().confidence_intervals(),
    "comparison": lambda: compare(collected(), collected(2), "mrr"),
    "pairs": lambda: compare(
        {"x": collected(), "y": collected(2), "z": collected(5)}, ["mrr", "hits@3"]
    ),
    "one pair": lambda: compare({"x": collected(), "y": collected(2)}, "mrr")["mrr", "y", "x"],
    "comparisons": lambda: compare(collected(), collected(2), ["mrr", "hits@3"]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_every_form(name):
    result = RESULTS[name]()
    assert isinstance(result, Rendered)
    rows = json.loads(result.to_json())
    frame = result.to_pandas()
    assert len(rows) == len(frame) == len(getattr(result, "rows", [result]))
    assert list(rows[0]) == list(frame.columns) == result.to_csv().splitlines()[0].split(",")
    first = str(next(iter(rows[0].values())))
    for text in (result._repr_html_(), result.to_latex(), result.to_markdown(), result.to_text()):
        assert first.replace("_", r"\_") in text or first in text or paper_name(first) in text
    assert r"\toprule" in result.to_latex()


def test_a_table_answers_like_a_collection_of_it():
    collection = collected()
    table = collection.table()
    names = ["mrr", "mr", "hits@3"]
    assert table.summary(names) == collection.summary()
    assert str(table.breakdown(names, {0: "a", 1: "b", 2: "c"})) == str(
        collection.breakdown(names={0: "a", 1: "b", 2: "c"})
    )
    intervals = table.confidence_intervals(names, 0.9, cluster="sample_id")
    assert intervals == collection.confidence_intervals(0.9, cluster="sample_id")
    assert [row.metric for row in table.confidence_intervals().rows][:2] == ["mrr", "mr"]
    with pytest.raises(ValueError, match="unknown metric 'mmr'"):
        table.summary("mmr")


SQUARE = RankDefinition(
    "square_share", f=WithCandidates(lambda r, n: ((n - r) / (n - 1)) ** 2, min_candidates=2)
)
CUBES = RankDefinition("cube", f=lambda r: r**-3.0)
METRICS = ["mrr", "mr", "hits@3", "gmr"]


def filled(metrics=METRICS, weights="any", **options):
    """Groups of 1 to 400 tasks, some of them on one side only, and one task among one candidate."""
    random = np.random.default_rng(0)
    sizes = np.r_[1, 1, 2, 3, 7, 8, 9, 17, 129, 400]
    group = np.repeat(random.permutation(len(sizes)) * 5 - 7, sizes)
    N = random.integers(2, 3000, len(group))
    low = np.ceil(random.random(len(group)) ** 2 * N).astype(int).clip(1)
    high = np.minimum(
        low + random.integers(0, 3, len(group)) * (random.random(len(group)) < 0.3), N
    )
    weight = {"equal": np.ones(len(group)), "any": random.random(len(group)) + 0.1}
    weight |= {"tiny": weight["any"] * 1e-200, "by group": (group % 3 + 0.7).astype(float)}
    collection = RankCollection(metrics, **options)
    for side, part in (("head", group % 2 == 0), ("tail", slice(None))):
        ranks = Ranks(low[part], high[part], N[part])
        collection.update(ranks, side=side, group=group[part], weight=weight[weights][part])
    collection.update(Ranks([1], None, 1), side="tail", group=70)
    return collection


OF_TYPES = [
    ("equal", ["realistic", "pessimistic"]),
    ("by group", ["optimistic"]),
    ("tiny", ["realistic"]),
]


@pytest.mark.parametrize(("weights", "rank_types"), [*OF_TYPES, ("any", ["expected"])])
def test_a_row_has_the_bits_of_the_group_alone(weights, rank_types):
    options = {"rank_types": rank_types, "sides": ["both", "head"]}
    names = [
        "mrr",
        "mr",
        "auc",
        "gmr",
        *(["hits@1", "hits@10", "imr"] if rank_types != ["expected"] else []),
    ]
    own = [trm.RankMetric(one, rank_type=rank_types[0]) for one in (SQUARE, CUBES)]
    collection = filled([*names, *own], weights, **options)
    breakdown, table = collection.breakdown(), collection.table()
    assert breakdown["group"] == [*range(-7, 39, 5), 70]
    views = ["base", "adjusted_index", "z_score"]
    in_views = [
        trm.RankMetric(one, view=view, rank_type=rank_types[0])
        for one in (SQUARE, CUBES)
        for view in views
    ]
    members = {f"m{i}": one for i, one in enumerate(in_views)}
    for i, group in enumerate(breakdown["group"][:-1]):
        alone = table.select(group=group)
        expected = evaluate(alone, metrics=names, views=views, **options)
        for member, value in zip(
            members.values(), evaluate(alone, metrics=members).values(), strict=True
        ):
            expected[member.key] = value
        assert breakdown["count"][i] == alone.num_tasks
        assert sorted(expected) == sorted(breakdown.columns[2:])
        for key, value in expected.items():
            np.testing.assert_array_equal(breakdown[key][i], value, err_msg=key)


def test_means_are_broken_down_without_a_call_per_group(monkeypatch):
    collection = filled(["mrr", "mr", "hits@1", "hits@10", "auc"])
    expected = collection.breakdown()
    monkeypatch.setattr(Analysis, "by_group", lambda self: pytest.fail("group by group"))
    assert str(collection.breakdown()) == str(expected)
    estimated = filled(["mrr"], expectation=MonteCarloExpectation(100, seed=0))
    # its moments have no other way
    with pytest.raises(pytest.fail.Exception, match="group by group"):
        estimated.breakdown()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 15, 128, 129, 1000, 5000])
def test_sums_of_runs_have_the_bits_of_each_sum_alone(size):
    values = np.random.default_rng(size).lognormal(0, 3, 3 * size + 2)
    group = np.repeat([0, 2, 3, 4], [size, 1, 2 * size, 1])
    runs = Runs(group)
    assert runs.present.tolist() == [0, 2, 3, 4]
    assert runs.sums(values).tolist() == [values[group == i].sum() for i in (0, 2, 3, 4)]


def test_groups_far_apart_and_enormous_ranks_do_not_collide():
    metric = RankCollection(["mr"])
    large = 1 << 60
    metric.update(Ranks([large, 1, large, 2], None, large), group=[-(1 << 62), 1 << 62, 5, 5])
    assert metric.breakdown()["mr"] == [float(large), (large + 2) / 2, 1.0]


def test_the_breakdown_of_a_side_without_rows_is_nan():
    metric = RankCollection(["head_mrr"])
    metric.update(Ranks([1, 3], None, 9), side="tail", group=[0, 1])
    assert np.isnan([metric.breakdown()[f"head_{name}"] for name in ("mrr", "z_mrr")]).all()


def test_columns_are_the_base_metrics_with_their_index_and_z():
    def columns(metrics, **options):
        return " ".join(filled(metrics, **options).breakdown().columns)

    assert (
        columns(["mrr", "z_mrr", "count", "tie_rate"])
        == "group count mrr adjusted_mrr z_mrr tie_rate"
    )
    assert columns(["amri"]) == "group count mr amri z_mr"
    assert columns({"mine": trm.HitsAtK(3, side="tail")}) == (
        "group count tail_hits_at_3 tail_adjusted_hits_at_3 tail_z_hits_at_3"
    )
    # within a group there is one average only
    macro = {"mrr": trm.MeanReciprocalRank(), "macro": trm.MeanReciprocalRank(average="macro")}
    assert columns(macro) == "group count mrr adjusted_mrr z_mrr"
    # no exact expectation: the base value alone, unless somebody estimates it
    square = RankDefinition("square", f=lambda r: r.double() ** 2, higher_is_better=False)
    assert columns([trm.RankMetric(square)]).startswith("group count square")
    assert "z_mrr" in columns(["mrr"], expectation=MonteCarloExpectation(100, seed=0))


def test_sort_puts_nan_last_and_changes_no_original():
    breakdown = filled().breakdown()
    groups = breakdown["group"]
    assert breakdown.sort("mrr")["mrr"] == sorted(breakdown["mrr"])
    assert breakdown.sort("group", descending=True)["group"] == groups[::-1]
    for descending in (False, True):
        assert breakdown.sort("z_mrr", descending=descending)["group"][-1] == 70  # NaN
    assert breakdown["group"] == groups == sorted(groups)
    with pytest.raises(
        ValueError, match=r"column must be one of 'group', 'count', 'mrr', .*; got 'mrrr'"
    ):
        breakdown.sort("mrrr")


def test_names_replace_the_ids_of_groups():
    collection = RankCollection(["mrr"])
    collection.update(Ranks([1, 2], None, 3), group=torch.tensor([2, 0]))
    assert collection.breakdown(names=["a", "b", "c"])["group"] == ["a", "c"]
    assert collection.breakdown(names={2: "treaties", 0: "aidenemy", 8: "unused"})["group"] == [
        "aidenemy",
        "treaties",
    ]
    with pytest.raises(ValueError, match="group -7 has none"):
        filled().breakdown(names=["a"] * 100)
    with pytest.raises(TypeError, match=r"names must be a dict .* got the string 'abc'"):
        collection.breakdown(names="abc")
    collection.update(Ranks([1], None, 3))
    with pytest.raises(ValueError, match="every task needs a group: pass group= to every update"):
        collection.breakdown()


def test_a_function_that_writes_in_place_changes_no_other_metric():
    def capped(rank):
        rank[rank > 10] = 10
        return rank

    metrics = [RankDefinition("capped_mr", f=capped), "mr"]
    for order in (metrics, metrics[::-1]):
        assert evaluate([3, 70, 5, 20], 100, order) == {"capped_mr": 7.0, "mr": 24.5}


def test_two_metrics_with_one_key_and_different_options_are_an_error():
    half = RankDefinition("half", f=lambda r: r / 2)
    other = RankDefinition("half", f=lambda r: r / 4)
    skip, zero = (trm.RankMetric("rr", empty_queries=value) for value in ("skip", "zero"))
    for metrics in ([half, other], [skip, zero]):
        with pytest.raises(ValueError, match="two metrics have the key"):
            evaluate([1, 2], 9, metrics)
        with pytest.raises(ValueError, match="two metrics have the key"):
            compare({"a": Ranks([1, 2], None, 9), "b": Ranks([2, 3], None, 9)}, metrics)
        with pytest.raises(ValueError, match="two metrics have the key"):
            compare(Ranks([1, 2], None, 9), Ranks([2, 3], None, 9), metrics)
    collection = RankCollection({"skip": skip, "zero": zero})
    collection.update(torch.tensor([[1.0, 0], [1, 0]]), [[0], []], group=torch.tensor([0, 0]))
    assert {key: value.item() for key, value in collection.compute().items()} == {
        "skip": 1.0,
        "zero": 0.5,
    }
    assert [(row.metric, row.base) for row in collection.summary().rows] == [
        ("rr", 1.0),
        ("rr (zero)", 0.5),
    ]
    breakdown = collection.breakdown()
    assert (breakdown["rr"], breakdown["rr (zero)"]) == ([1.0], [0.5])


@pytest.mark.parametrize("names", [["a", "b"], {0: "a"}], ids=["list", "dict"])
def test_every_group_that_occurs_needs_a_name(names):
    collection = RankCollection(["mrr"])
    collection.update(Ranks([1, 2], None, 3), group=torch.tensor([2, 0]))
    with pytest.raises(
        ValueError, match="names must have a name for every group that occurs; group 2 has none"
    ):
        collection.breakdown(names=names)


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_groups_that_a_process_never_saw():
    """A replaced gather returns two other processes: one with another group, one without data."""
    other = trm.RankTable.from_ranks(Ranks([2, 2], None, 4), group=torch.tensor([1, 9]))
    parts = [other.rows, torch.empty(0, 10, dtype=torch.int64)]
    options = {
        "dist_sync_fn": lambda x, group=None: [x, *parts],
        "distributed_available_fn": lambda: True,
    }
    collection = RankCollection(["mrr"], **options)
    collection.update(Ranks([1, 1, 4], None, 4), group=torch.tensor([1, 1, 3]))
    breakdown = collection.breakdown()
    assert breakdown["group"] == [1, 3, 9]
    assert breakdown["count"] == [3, 1, 1]
    assert breakdown["mrr"] == pytest.approx([2.5 / 3, 0.25, 0.5], rel=1e-15)
    assert len(collection._first.rows[0]) == 3  # its own rows are back
