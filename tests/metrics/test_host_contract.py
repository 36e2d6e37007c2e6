"""What torchmetrics requires of a metric, for a metric of every kind and the collection."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import MetricTracker, MinMaxMetric, Running

from bits import bits
from public_metrics import every_kind, every_metric, expected, scores
from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankMetric, Ranks
from torchrankmetrics.metrics import state


@every_kind
def test_before_any_update_the_value_is_nan_with_a_warning(make: Callable[..., Any]) -> None:
    metric = make()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        result = metric.compute()
    assert all(value.isnan() for value in (result.values() if isinstance(result, dict) else [result]))


@every_kind
def test_forward_is_update_and_compute_of_the_batch(make: Callable[..., Any]) -> None:
    metric = make()
    for seed in (1, 2):
        value = metric(*scores(seed))
        assert list(bits(value).items()) == list(expected(make, seed).items())
    assert bits(metric) == expected(make, 1, 2)
    members = metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
    assert [bits(member._forward_cache)[""] for member in members] == list(expected(make, 2).values())
    assert all(member.update_count == 2 for member in members)
    metric.reset()
    assert all(member.update_count == 0 and not member.rows for member in members)


@every_kind
def test_state_dict_is_empty_unless_persistent(make: Callable[..., Any]) -> None:
    metric = make()
    metric.update(*scores(1))
    assert metric.state_dict() == {}
    metric.persistent(True)
    saved = nn.ModuleDict({"metric": metric}).state_dict()
    assert list(saved) == ["metric.rows"]  # once, whatever the number of members
    parent = nn.ModuleDict({"metric": make()})
    assert str(parent.load_state_dict(saved)) == "<All keys matched successfully>"
    loaded = parent["metric"]
    assert bits(loaded) == expected(make, 1)
    loaded.update(*scores(2))
    assert bits(loaded) == expected(make, 1, 2)
    assert bits(metric) == expected(make, 1)


@every_metric
def test_merge_state_is_update_with_both(make: Callable[..., RankMetric]) -> None:
    one, other = make(), make()
    one.update(*scores(1))
    one.compute()  # no cached value remains
    other.update(*scores(2))
    one.merge_state(other)
    assert bits(one) == expected(make, 1, 2)
    one.merge_state({"rows": other.rows})
    assert bits(one) == expected(make, 1, 2, 2)
    assert one.update_count == 3
    assert bits(other) == expected(make, 2)


def test_added_metrics_see_the_rows_so_far() -> None:
    metrics = RankCollection(["mrr"])
    metrics.update(*scores(1))
    metrics.add_metrics(["mr", "amri"], "hits@1")
    metrics.update(*scores(2))
    assert bits(metrics) == expected(lambda: RankCollection(["mrr", "mr", "amri", "hits@1"]), 1, 2)


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_rows_that_inference_mode_stores_are_ordinary_tensors(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning evaluates under it on NCCL; values inside and outside are drawn in test_fuzz_state.py."""
    monkeypatch.setattr(state, "_COMPACT_FROM", 3)  # counts are merged often
    metric = RankCollection(["mrr", "z_mrr", "median_rank"], storage=storage, compute_on_cpu=True)
    ranks = Ranks([1, 4, 2], None, 9)
    with torch.inference_mode():
        metric.update(*scores(1))
        metric.update(ranks, group=[0, 1, 1], weight=torch.ones(3), sample_id=torch.arange(3))
        metric(*scores(2))
        metric.to("cpu")
        metric.compute()
    rows = next(iter(metric.values(copy_state=False))).rows
    assert rows
    assert not any(block.is_inference() for block in rows)


def test_a_metric_plots_its_value_and_a_collection_each_member_or_all_together() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    metric, metrics = MeanRank(), RankCollection(["mrr", "mr"])
    for one in (metric, metrics):
        one.update(*scores(1))
    drawn = [metric.plot(), metric.plot([metric.compute(), metric.compute()])]
    drawn += [*metrics.plot(), metrics.plot(together=True)]
    for figure, axes in drawn:
        assert isinstance(figure, pyplot.Figure)
        assert isinstance(axes, pyplot.Axes)
    pyplot.close("all")


@every_metric
def test_differences_and_multiples_are_of_the_values(make: Callable[..., RankMetric]) -> None:
    one, other = make(), MeanReciprocalRank()
    difference, scaled = one - other, abs(2 * one)
    difference.update(*scores(1))
    a, b = (metric.compute().item() for metric in (one, other))
    assert difference.compute().item() == a - b
    assert scaled.compute().item() == abs(2 * a)
    difference.reset()
    assert not one.rows


@every_metric
def test_min_max_and_running_windows_are_of_the_updates(make: Callable[..., RankMetric]) -> None:
    extremes, window = MinMaxMetric(make()), Running(make(), window=2)
    seen = []
    for seed in (1, 2, 3):
        extremes.update(*scores(seed))
        window.update(*scores(seed))
        result = extremes.compute()
        seen.append(result["raw"].item())
    assert result["min"].item() == pytest.approx(min(seen))
    assert result["max"].item() == pytest.approx(max(seen))
    assert bits(window.compute()) == expected(make, 2, 3)


def test_a_tracker_finds_the_best_steps() -> None:
    make = lambda: RankCollection(["mr", "mrr", "z_mrr"], prefix="val/")  # noqa: E731
    several, one = MetricTracker(make()), MetricTracker(MeanRank())
    found: dict[str, list[float]] = {}
    for seed in (1, 2, 3):
        for tracker in (several, one):
            tracker.increment()
            tracker.update(*scores(seed))
        assert bits(several.compute()) == expected(make, seed)
        for key, value in several.compute().items():
            found.setdefault(key, []).append(value.item())
    best, step = several.best_metric(return_step=True)
    assert list(found) == list(make().keys()) == ["val/mr", "val/mrr", "val/z_mrr"]
    for key, values in found.items():
        assert best[key] == (min if key == "val/mr" else max)(values)
        assert step[key] == values.index(best[key])
    assert one.best_metric(return_step=True) == (best["val/mr"], step["val/mr"])


@pytest.mark.parametrize("compute_groups", [True, False])
def test_in_a_plain_collection_next_to_foreign_metrics(compute_groups: bool) -> None:
    alone = {"h1": HitsAtK(1), "h10": HitsAtK(10), "mr": MeanRank(side="head"), "acc": MulticlassAccuracy(12)}
    plain = MetricCollection({**alone, "set": RankCollection(["mrr", "mr"])}, compute_groups=compute_groups)
    accuracy = MulticlassAccuracy(12)
    for seed in (1, 2, 3):
        preds, target = scores(seed)
        plain.update(preds=preds, target=target, side="head")
        accuracy.update(preds, target)
    found = plain.compute()
    for key, make in {"h1": lambda: HitsAtK(1), "h10": lambda: HitsAtK(10), "mr": MeanRank}.items():
        assert bits(found[key]) == expected(make, 1, 2, 3)
    nested = {key.removeprefix("set_"): value for key, value in found.items() if key.startswith("set_")}
    assert bits(nested) == expected(lambda: RankCollection(["mrr", "mr"]), 1, 2, 3)
    assert found["acc"] == accuracy.compute()
    plain.reset()
    plain.update(*scores(4), side="head")
    assert bits(plain.compute()["h10"]) == expected(lambda: HitsAtK(10), 4)
