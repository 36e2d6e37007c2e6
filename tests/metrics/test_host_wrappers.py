"""Inside what torchmetrics wraps around metrics: arithmetic, windows, bootstraps, trackers, plain collections."""

from collections.abc import Callable

import pytest
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import MetricTracker, MinMaxMetric, Running

from bits import bits
from public_metrics import every_metric, expected, scores
from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankMetric


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
