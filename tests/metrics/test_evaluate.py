"""evaluate, tables, summaries, user-defined metrics, warnings."""

import json
import math

import pytest
import torch

import torchrankmetrics as trm
from torchrankmetrics import MeanRank, RankCollection, RankDefinition, RankMetricWarning, Ranks, compare, evaluate
from torchrankmetrics.rendering import Rendered, paper_name


def test_arrays_in_numbers_out():
    assert evaluate([1, 3], 9, ["mr", "amri"]) == {"mr": 2, "amri": 0.75}
    assert evaluate([1.5, 3], metrics=["mr", "hits@1"]) == {"mr": 2.25, "hits_at_1": 0}
    assert evaluate(torch.tensor([1, 3]), torch.tensor([9, 9])) == evaluate([1, 3], 9)
    assert list(evaluate([1, 3])) == ["mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10"]
    assert list(evaluate([1, 3], 9, ["mrr"], views=["base", "z_score"])) == ["mrr", "z_mrr"]
    both = evaluate(Ranks([1], [3], 9), metrics=["optimistic_mr", "mr", "pessimistic_mr", "tie_rate"])
    assert both == {"optimistic_mr": 1, "mr": 2, "pessimistic_mr": 3, "tie_rate": 1}
    assert evaluate([1, 3, 5], 9, [MeanRank(average="macro")], group=[0, 0, 1]) == {"macro_mr": 3.5}
    assert evaluate([1, 3], 9, ["mr"], weight=[0.1, 0.3])["mr"] == pytest.approx(2.5, abs=1e-15)  # not float32
    assert evaluate([33554432.5], 10**9, ["mr"]) == {"mr": 33554432.5}
    values = evaluate([], 9, ["mr", "count"])
    assert math.isnan(values["mr"])
    assert values["count"] == 0


def test_summary_has_the_values_of_compute_by_side():
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
    assert "20.0% of the true candidates share their score" in text


def test_summary_takes_each_metric_with_its_own_rank_type_and_average():
    collection = RankCollection(
        {"a": trm.RankMetric(RankDefinition("x"), rank_type="expected"), "b": "hmr", "c": MeanRank(average="macro")}
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
    with pytest.warns(RankMetricWarning, match=r"has one candidate.*True marks candidates to skip") as warned:
        assert collection.compute()["mrr"] == 1
    assert len(warned) == 1
    with pytest.warns(RankMetricWarning, match="has one candidate"):
        evaluate(scores, target, metrics=["mrr"], exclude=inverted)


def test_scores_that_are_distances_are_a_warning_of_compute():
    distances = torch.cdist(points := torch.rand(60, 4, generator=torch.Generator().manual_seed(0)), points)
    texts = set()
    for epoch in range(2):
        metric = MeanRank()
        metric.update(distances[epoch:], torch.arange(epoch, 60))
        with pytest.warns(RankMetricWarning, match=r"far worse than chance: .*pass -distances") as warned:
            metric.compute()
        texts.add(str(warned[0].message))
    assert len(texts) == 1  # Python shows it once, not in every epoch


def test_weights_of_zero_are_a_warning():
    for zero in ({"weight": 0}, {"gain": 0}):
        with pytest.warns(RankMetricWarning, match="every ranking task has the weight 0 or the gain 0"):
            assert math.isnan(evaluate([1, 2], 9, ["mrr"], **zero)["mrr"])


def test_messages_do_not_show_the_code_of_unknown_numbers_of_candidates():
    with pytest.raises(ValueError, match="pessimistic=0, num_candidates=unknown"):
        Ranks([0])
    assert repr(Ranks([3])) == "Ranks(optimistic=[3], pessimistic=[3])"
    with pytest.raises(ValueError, match="has 0 negatives"):
        Ranks([3]).full_rank_estimate(100)


def collected(shift=0):
    collection = RankCollection(["mrr", "mr", "hits@3"])
    ids = torch.arange(40)
    collection.update(Ranks((ids * 7 + shift) % 11 + 1, None, 30), side="tail", group=ids % 3, sample_id=ids)
    return collection


RESULTS = {
    "summary": lambda: collected().summary(),
    "breakdown": lambda: collected().breakdown(),
    "intervals": lambda: collected().confidence_intervals(),
    "comparison": lambda: compare(collected(), collected(2), "mrr"),
    "pairs": lambda: compare({"x": collected(), "y": collected(2), "z": collected(5)}, ["mrr", "hits@3"]),
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
    assert str(table.breakdown(names, {0: "a", 1: "b", 2: "c"})) == str(collection.breakdown({0: "a", 1: "b", 2: "c"}))
    assert table.confidence_intervals(names, 0.9, cluster="sample_id") == collection.confidence_intervals(
        0.9, cluster="sample_id"
    )
    assert [row.metric for row in table.confidence_intervals().rows][:2] == ["mrr", "mr"]
    with pytest.raises(ValueError, match="unknown metric 'mmr'"):
        table.summary("mmr")
