"""What torchmetrics requires of a metric, and what users type and read.

The tests run on metrics of every kind and on the collection.
"""

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import BootStrapper, MetricTracker, MinMaxMetric, Running

import torchrankmetrics as trm
from bits import bits
from public_metrics import METRIC_CLASSES, every_kind, every_metric, expected, scores
from torchrankmetrics import (
    HitsAtK,
    MeanRank,
    RankCollection,
    RankMetric,
    RankMetricWarning,
    Ranks,
    evaluate,
)
from torchrankmetrics.metrics import buffer


@every_kind
def test_before_any_update_the_value_is_nan_with_a_warning(make: Callable[..., Any]) -> None:
    metric = make()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        result = metric.compute()
    assert all(
        value.isnan() for value in (result.values() if isinstance(result, dict) else [result])
    )


@every_kind
def test_forward_is_update_and_compute_of_the_batch(make: Callable[..., Any]) -> None:
    metric = make()
    for seed in (1, 2):
        assert list(bits(metric(*scores(seed))).items()) == list(expected(make, seed).items())
    assert bits(metric) == expected(make, 1, 2)
    members = metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
    assert [bits(member._forward_cache)[""] for member in members] == list(
        expected(make, 2).values()
    )
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
def test_rows_that_inference_mode_stores_are_ordinary_tensors(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning evaluates under it on NCCL; test_fuzz_state.py draws values inside and outside."""
    monkeypatch.setattr(buffer, "_COMPACT_FROM", 3)  # counts are merged often
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
    assert {tuple(map(type, pair)) for pair in drawn} == {(pyplot.Figure, pyplot.Axes)}
    pyplot.close("all")


@every_metric
def test_differences_and_multiples_are_of_the_values(make: Callable[..., RankMetric]) -> None:
    one, other = make(), trm.MeanReciprocalRank()
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
def test_a_plain_collection_passes_each_metric_its_keywords(compute_groups: bool) -> None:
    """Next to foreign metrics; other calls are in test_host_scripts.py."""
    accuracy = MulticlassAccuracy(12)
    members = {
        "h10": HitsAtK(10),
        "mr": MeanRank(side="head"),
        "set": RankCollection(["mrr"]),
        "acc": accuracy.clone(),
    }
    plain = MetricCollection(members, compute_groups=compute_groups)
    for seed in (1, 2, 3):
        preds, target = scores(seed)
        plain.update(preds=preds, target=target, side="head")
        accuracy.update(preds, target)
    found = plain.compute()
    assert found.pop("acc") == accuracy.compute()
    assert bits(found) == expected(
        lambda: RankCollection({"h10": "hits@10", "mr": "mr", "set_mrr": "mrr"}), 1, 2, 3
    )


PREDS, TARGET = scores(1)


@every_kind
def test_update_and_forward_take_the_keywords_of_the_host(make: Callable[..., Any]) -> None:
    metric, other = make(), make()
    metric.update(preds=PREDS, target=TARGET)
    other(target=TARGET, preds=PREDS)
    assert bits(metric) == bits(other) == expected(make, 1)


@every_kind
def test_keywords_that_do_not_fit_name_the_right_one(make: Callable[..., Any]) -> None:
    metric = make()
    name = type(metric).__name__
    for call in (metric.update, metric):
        for keywords, message in {
            "sampleid": "unexpected keyword argument 'sampleid'; "
            "did you mean 'sample_id' instead of 'sampleid'?",
            "scores": "unexpected keyword argument 'scores'; "
            "did you mean 'preds' instead of 'scores'?",
            "wheels": "unexpected keyword argument 'wheels'; it takes preds, target, exclude,",
        }.items():
            with pytest.raises(TypeError) as raised:
                call(PREDS, TARGET, **{keywords: PREDS})
            assert str(raised.value).startswith(f"{name}.update() got an {message}")
        with pytest.raises(
            TypeError, match=rf"^{name}.update\(\) missing a required .*'preds'; it takes preds"
        ):
            call(target=TARGET)
        with pytest.raises(TypeError, match=rf"^{name}.update\(\) too many positional arguments"):
            call(PREDS, TARGET, None)
    members = metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
    assert all(member.update_count == 0 and not member.rows for member in members)


def test_a_collection_is_made_like_one_of_the_host() -> None:
    several = RankCollection(
        MeanRank(), HitsAtK(1), HitsAtK(10), "mrr", prefix="val/", compute_groups=False
    )
    assert list(several.keys()) == ["val/mr", "val/hits_at_1", "val/hits_at_10", "val/mrr"]
    grouped = RankCollection(
        [MeanRank(), RankCollection(["mrr", "amri"])], compute_groups=[["mr"], ["mrr"]]
    )
    grouped.update(PREDS, TARGET)
    assert bits(grouped) == expected(lambda: RankCollection(["mr", "mrr", "amri"]), 1)
    assert grouped.compute_groups == {0: ["mr", "mrr", "amri"]}


@pytest.mark.parametrize("kind", METRIC_CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["higher_is_better", "plot_lower_bound", "plot_upper_bound"])
def test_constants_on_the_class_are_those_of_its_metrics(name: str, kind: type[RankMetric]) -> None:
    required = {
        argument: 3
        for argument, one in inspect.signature(kind).parameters.items()
        if one.default is one.empty
    }
    metric = kind(**required)
    on_class = getattr(kind, name)
    assert on_class is None or isinstance(on_class, bool | float)
    assert on_class == getattr(metric, name)


BOUNDS = {
    "mr first_mr hmr gmr median_rank power_mean_rank_minus_2 power_mean_rank_inf": (1, None),
    "mrr hits_at_3 imr igmr inverse_median_rank p_mr ndcg recall_at_3": (0, 1),
    "normalized_mrr dcg": (0, None),
    "amri": (-1, 1),
    "adjusted_gmr": (None, 1),
    # plots would call a bound of rank_std the best value
    "amr z_mrr rank_std tie_rate": (None, None),
}


@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
@pytest.mark.parametrize(
    ("name", "bounds"), [(name, two) for names, two in BOUNDS.items() for name in names.split()]
)
def test_bounds_hold_and_are_reached_or_approached(
    name: str, bounds: tuple[float | None, float | None]
) -> None:
    metric = RankMetric(name)
    low, high = metric.plot_lower_bound, metric.plot_upper_bound
    assert (low, high) == bounds
    numbers = []
    for n in (2, 9, 10**7):
        for ranks in ([1, 1, 1], [n, n, n], [1, n, n], [1, 1, n], [2, n // 2, 1]):
            numbers += evaluate(Ranks(ranks, None, n), metrics=[metric.clone()]).values()
    assert low is None or low <= min(numbers) <= low + 0.1  # 1 / H_N falls slowly
    assert high is None or high - 0.1 <= max(numbers) <= high


def test_a_share_of_the_expectation_is_at_least_zero_in_both_directions() -> None:
    gap = trm.RankDefinition("gap", f=lambda r: r - 1)
    assert [gap.higher_is_better, *RankMetric(gap, view="normalized").measure.bounds] == [
        False,
        0,
        None,
    ]


def test_evaluate_of_scores_is_the_metric_without_state() -> None:
    exclude = torch.rand(PREDS.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    names = ["mr", "z_mrr", "tail.amri"]
    about = {"side": "tail", "weight": [1.0, 2, 3, 4, 5, 6, 7], "group": [0, 0, 1, 1, 2, 2, 2]}
    metrics = RankCollection(names)
    metrics.update(PREDS, TARGET, exclude=exclude, **about)
    expected = {key: value.item() for key, value in metrics.compute().items()}
    for form in (Tensor.clone, Tensor.numpy, Tensor.tolist):
        assert (
            evaluate(form(PREDS), form(TARGET), names, exclude=exclude.numpy(), **about) == expected
        )
        assert evaluate(scores=form(PREDS), target=form(TARGET), metrics=["mr"]) == evaluate(
            PREDS, TARGET, ["mr"]
        )
    assert (
        evaluate(trm.rank_scores(PREDS, TARGET, exclude=exclude), metrics=names, **about)
        == expected
    )


@pytest.mark.parametrize(
    "make", [MeanRank, lambda: MeanRank(storage="counts"), lambda: RankCollection(["mr"])]
)
def test_an_id_that_repeats_within_an_update_warns_once_and_counts_once(
    make: Callable[[], Any],
) -> None:
    metric = make()
    metric.update(Ranks([1, 2, 9], None, 9), sample_id=[4, 3, 5])
    # another update may repeat: a padded sampler does
    metric.update(Ranks([1], None, 9), sample_id=[4])
    for _ in range(2):
        bits(metric)
    metric.update(Ranks([3, 3, 3], None, 9), sample_id=[7, 6, 7])
    with pytest.warns(RankMetricWarning, match="sample_id repeats within one update") as reported:
        found = bits(metric)
    assert len(reported) == 1
    once = make()
    once.update(Ranks([1, 2, 9, 3, 3], None, 9))
    assert found == bits(once)
    if isinstance(metric, RankCollection):
        metric.reset()
        metric.update(Ranks([1, 2], None, 9), sample_id=[0, 0])
        with pytest.warns(RankMetricWarning) as reported:
            table = metric.table()
        assert len(reported) == 2  # repeats, and differences
        assert evaluate(table, metrics=["mr"]) == {"mr": 1}  # nothing of it is left in the table


PAIRS = (torch.tensor([0, 1]), torch.tensor([1, 0]))


@pytest.mark.parametrize("strategy", ["multinomial", "poisson"])
@pytest.mark.parametrize(
    "keywords",
    [
        *(
            {"exclude": PAIRS},
            {"exclude": torch.tensor([False, True, False])},
            {"target": PAIRS},
            {"group": [0, 1]},
        ),
        *(
            {"weight": np.array([1.0, 2.0])},
            {"group": torch.tensor([0, 1]), "preds": Ranks([1, 2], None, 3)},
            {"sample_id": torch.tensor([0, 1])},
        ),
    ],
)
@pytest.mark.parametrize(
    "make", [MeanRank, lambda: MeanRank() - 1.0, lambda: MinMaxMetric(MeanRank())]
)
def test_a_boot_strapper_raises_for_states_it_cannot_resample(
    make: Callable[[], Any], keywords: dict[str, Any], strategy: str
) -> None:
    torch.manual_seed(0)
    two = {
        "preds": torch.tensor([[0.1, 0.5, 0.2], [0.3, 0.2, 0.9]]),
        "target": torch.tensor([2, 2]),
    }
    two = {} if "preds" in keywords else two
    wrapped = BootStrapper(make(), num_bootstraps=8, sampling_strategy=strategy)
    for one in (wrapped, wrapped.clone(), pickle.loads(pickle.dumps(wrapped))):
        with pytest.raises(ValueError, match="cannot be resampled by BootStrapper"):
            one.update(**{**two, **keywords})
        assert all(not getattr(metric, "rows", []) for metric in one.metrics)
    RankCollection(["mr"]).update(**{**two, **keywords})  # by itself it is taken
    MeanRank().clone().update(**{**two, **keywords})


def test_a_boot_strapper_has_the_standard_error_of_the_mean() -> None:
    torch.manual_seed(0)
    wrapped = BootStrapper(MeanRank(), num_bootstraps=400, sampling_strategy="multinomial")
    scores = torch.rand(200, 50)
    wrapped.update(scores, torch.zeros(200, dtype=torch.int64))
    ranks = 1 + (scores > scores[:, :1]).sum(1).double()
    assert wrapped.compute()["std"].item() == pytest.approx(ranks.std().item() / 200**0.5, rel=0.15)
