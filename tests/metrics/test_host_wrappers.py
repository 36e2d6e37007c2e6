"""Inside what torchmetrics wraps around metrics: arithmetic, windows, bootstraps, trackers, plain collections."""

from collections.abc import Callable

import pytest
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import BootStrapper, MetricTracker, MinMaxMetric, Running

from bits import bits
from public_metrics import every_metric, expected, scores
from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankMetric, Ranks


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


def test_boot_strapper_spreads_around_the_value() -> None:
    torch.manual_seed(0)
    wrapped = BootStrapper(HitsAtK(3), num_bootstraps=30, raw=True)
    wrapped.update(*scores(1))
    raw = wrapped.compute()["raw"]
    assert raw.dtype == torch.float64
    value = float.fromhex(expected(lambda: HitsAtK(3), 1)[""])
    assert raw.min() <= value <= raw.max()
    assert len(raw.unique()) > 3


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


@pytest.mark.parametrize("before", ["nothing", "used and reset", "reset inside", "read"])
def test_a_plain_collection_takes_one_that_had_a_life_before(before: str) -> None:
    make = lambda: RankCollection(["mrr", "mr", "count"], prefix="rank/")  # noqa: E731
    ours = make()
    if before in ("used and reset", "reset inside"):
        ours.update(*scores(7))
        ours.reset()
    plain = MetricCollection([ours, MulticlassAccuracy(12)])
    if before == "reset inside":
        ours.reset()
    if before == "read":
        with pytest.warns(UserWarning, match="before the ``update``"):
            ours.compute()
    for seed in (1, 2, 3):
        plain.update(*scores(seed))
    found = plain.compute()
    assert found.pop("MulticlassAccuracy") > 0
    assert bits(found) == expected(make, 1, 2, 3)
    plain.reset()
    plain.update(*scores(4))
    assert plain.compute()["rank/count"] == 7


def test_equal_first_batches_merge_nothing_that_differs() -> None:
    for metrics in (
        MetricCollection({"h1": HitsAtK(1), "h10": HitsAtK(10)}),
        RankCollection(["hits_at_1", "hits_at_10"]),
    ):
        metrics.update(Ranks(torch.tensor([1, 1]), None, 50))
        assert [value.item() for value in metrics.compute().values()] == [1.0, 1.0]
        metrics.update(Ranks(torch.tensor([5, 50]), None, 50))
        assert [value.item() for value in metrics.compute().values()] == [0.5, 0.75]


def test_a_clone_of_a_plain_collection_is_updated_apart() -> None:
    plain = MetricCollection([RankCollection(["mrr", "mr"])])
    clone = plain.clone(prefix="test_")
    plain.update(*scores(1))
    clone.update(*scores(2))
    assert bits(plain) == expected(lambda: RankCollection(["mrr", "mr"]), 1)
    assert bits(clone) == expected(lambda: RankCollection(["mrr", "mr"], prefix="test_"), 2)
