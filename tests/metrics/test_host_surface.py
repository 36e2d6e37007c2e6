"""What a torchmetrics user types and reads: keywords, constants of classes, names, docstrings, warnings, devices."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.wrappers import BootStrapper

import torchrankmetrics as trm
from bits import bits
from public_metrics import METRIC_CLASSES, every_kind, expected, scores
from torchrankmetrics import HitsAtK, MeanRank, RankCollection, RankMetric, RankMetricWarning, Ranks, evaluate

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
            "sampleid": "unexpected keyword argument 'sampleid'; did you mean 'sample_id'?",
            "scores": "unexpected keyword argument 'scores'; did you mean 'preds'?",
            "wheels": "unexpected keyword argument 'wheels'; it takes preds, target, exclude,",
        }.items():
            with pytest.raises(TypeError) as raised:
                call(PREDS, TARGET, **{keywords: PREDS})
            assert str(raised.value).startswith(f"{name}.update() got an {message}")
        with pytest.raises(TypeError, match=rf"^{name}.update\(\) missing a required .*'preds'; it takes preds"):
            call(target=TARGET)
        with pytest.raises(TypeError, match=rf"^{name}.update\(\) too many positional arguments"):
            call(PREDS, TARGET, None)
    members = metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
    assert all(member.update_count == 0 and not member.rows for member in members)


def test_a_collection_is_made_like_one_of_the_host() -> None:
    several = RankCollection(MeanRank(), HitsAtK(1), HitsAtK(10), "mrr", prefix="val/", compute_groups=False)
    assert list(several.keys()) == ["val/mr", "val/hits_at_1", "val/hits_at_10", "val/mrr"]
    grouped = RankCollection([MeanRank(), RankCollection(["mrr", "amri"])], compute_groups=[["mr"], ["mrr"]])
    grouped.update(PREDS, TARGET)
    assert bits(grouped) == expected(lambda: RankCollection(["mr", "mrr", "amri"]), 1)
    assert grouped.compute_groups == {0: ["mr", "mrr", "amri"]}


@pytest.mark.parametrize("kind", METRIC_CLASSES, ids=lambda kind: kind.__name__)
def test_constants_on_the_class_are_those_of_its_metrics(kind: type[RankMetric]) -> None:
    required = {name: 3 for name, one in inspect.signature(kind).parameters.items() if one.default is one.empty}
    metric = kind(**required)
    for name in ("higher_is_better", "plot_lower_bound", "plot_upper_bound"):
        on_class = getattr(kind, name)
        assert on_class is None or isinstance(on_class, bool | float)
        assert on_class == getattr(metric, name)


BOUNDS = {
    "mr first_mr hmr gmr median_rank power_mean_rank_minus_2 power_mean_rank_inf": (1, None),
    "mrr hits_at_3 imr igmr inverse_median_rank p_mr ndcg recall_at_3": (0, 1),
    "normalized_mrr dcg": (0, None),
    "amri": (-1, 1),
    "adjusted_gmr": (None, 1),
    "amr z_mrr rank_std tie_rate": (None, None),  # plots would call a bound of rank_std the best value
}


@pytest.mark.parametrize(("name", "bounds"), [(name, two) for names, two in BOUNDS.items() for name in names.split()])
def test_bounds_hold_and_are_reached_or_approached(name: str, bounds: tuple[float | None, float | None]) -> None:
    metric = RankMetric(name)
    low, high = metric.plot_lower_bound, metric.plot_upper_bound
    assert (low, high) == bounds
    numbers = []
    for n in (2, 9, 10**7):
        for ranks in ([1, 1, 1], [n, n, n], [1, n, n], [1, 1, n], [2, n // 2, 1]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RankMetricWarning)
                numbers += evaluate(Ranks([max(rank, 1) for rank in ranks], None, n), metrics=[metric.clone()]).values()
    assert low is None or min(numbers) == pytest.approx(low, abs=0.1)  # 1 / H_N falls slowly
    assert high is None or max(numbers) == pytest.approx(high, abs=0.1)
    assert low is None or min(numbers) >= low
    assert high is None or max(numbers) <= high


def test_evaluate_of_scores_is_the_metric_without_state() -> None:
    exclude = torch.rand(PREDS.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    names = ["mr", "z_mrr", "tail.amri"]
    about = {"side": "tail", "weight": [1.0, 2, 3, 4, 5, 6, 7], "group": [0, 0, 1, 1, 2, 2, 2]}
    metrics = RankCollection(names)
    metrics.update(PREDS, TARGET, exclude=exclude, **about)
    expected = {key: value.item() for key, value in metrics.compute().items()}
    for form in (Tensor.clone, Tensor.numpy, Tensor.tolist):
        assert evaluate(form(PREDS), form(TARGET), names, exclude=exclude.numpy(), **about) == expected
        assert evaluate(scores=form(PREDS), target=form(TARGET), metrics=["mr"]) == evaluate(PREDS, TARGET, ["mr"])
    assert evaluate(trm.rank_scores(PREDS, TARGET, exclude=exclude), metrics=names, **about) == expected


@pytest.mark.parametrize("make", [MeanRank, lambda: MeanRank(storage="counts"), lambda: RankCollection(["mr"])])
def test_an_id_that_repeats_within_an_update_warns_once_and_counts_once(make: Callable[[], Any]) -> None:
    metric = make()
    metric.update(Ranks([1, 2, 9], None, 9), sample_id=[4, 3, 5])
    metric.update(Ranks([1], None, 9), sample_id=[4])  # another update may repeat: a padded sampler does
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


PAIRS = torch.tensor([[0, 1], [1, 0]])  # any two drawn rows of it are pairs again


@pytest.mark.parametrize("strategy", ["multinomial", "poisson"])
@pytest.mark.parametrize(
    "keywords",
    [
        {"exclude": PAIRS},
        {"exclude": torch.tensor([False, True, False])},
        {"target": PAIRS},
        {"group": [0, 1]},
        {"weight": np.array([1.0, 2.0])},
        {"group": torch.tensor([0, 1]), "preds": Ranks([1, 2], None, 3)},
    ],
)
def test_a_boot_strapper_raises_for_states_it_cannot_resample(keywords: dict[str, Any], strategy: str) -> None:
    torch.manual_seed(0)
    two = {"preds": torch.tensor([[0.1, 0.5, 0.2], [0.3, 0.2, 0.9]]), "target": torch.tensor([2, 2])}
    if isinstance(keywords.get("preds"), Ranks):
        two = {}
    for make in (MeanRank, lambda: MeanRank() - 1.0):
        wrapped = BootStrapper(make(), num_bootstraps=8, sampling_strategy=strategy)
        with pytest.raises(ValueError, match="cannot be resampled by BootStrapper"):
            wrapped.update(**{**two, **keywords})
        assert all(not getattr(metric, "rows", []) for metric in wrapped.metrics)
    RankCollection(["mr"]).update(**{**two, **keywords})  # by itself it is taken
