"""What torchmetrics asks of a metric: every public metric and the collection, inside inference mode and outside."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection

from bits import bits
from public_metrics import DEVICES, every_kind, every_metric, expected, scores
from torchrankmetrics import MeanRank, RankCollection, RankMetric, Ranks

pytestmark = pytest.mark.usefixtures("both_modes")


@every_metric
@pytest.mark.parametrize("name", ["higher_is_better", "is_differentiable", "full_state_update", "plot_lower_bound"])
def test_constants_cannot_be_reassigned(make: Callable[..., RankMetric], name: str) -> None:
    metric = make()
    assert metric.is_differentiable is False
    assert metric.higher_is_better in (True, False, None)
    with pytest.raises(RuntimeError, match="Can't change const"):
        setattr(metric, name, None)


@every_kind
def test_before_any_update_the_value_is_nan_with_a_warning(make: Callable[..., Any]) -> None:
    metric = make()
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        result = metric.compute()
    for key, value in result.items() if isinstance(result, dict) else [(metric.key, result)]:
        assert value == 0 if key == "count" else value.isnan()


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
@pytest.mark.parametrize("updated", [False, True])
@pytest.mark.parametrize(
    "copied",
    [lambda m: m.clone(), copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["clone", "deep", "pickle"],
)
def test_copies_are_equal_and_apart(make: Callable[..., Any], copied: Callable[[Any], Any], updated: bool) -> None:
    metric = make()
    before = (1,) if updated else ()
    for seed in before:
        metric.update(*scores(seed))
    other = copied(metric)
    other.update(*scores(2))
    metric.update(*scores(3))
    assert bits(metric) == expected(make, *before, 3)
    assert bits(other) == expected(make, *before, 2)


@every_metric
def test_hash_tells_instances_and_states_apart(make: Callable[..., RankMetric]) -> None:
    one, other = make(), make()
    hashes = {hash(one), hash(other)}
    one.update(*scores(1))
    other.update(*scores(1))
    assert len(hashes | {hash(one), hash(other)}) == 4


@every_kind
def test_state_dict_is_empty_unless_persistent(make: Callable[..., Any]) -> None:
    metric = make()
    metric.update(*scores(1))
    assert metric.state_dict() == {}
    metric.persistent(True)
    saved = nn.ModuleDict({"metric": metric}).state_dict()
    assert list(saved) == ["metric.rows"]  # once, whatever the number of members
    holder = nn.ModuleDict({"metric": make()})
    assert str(holder.load_state_dict(saved)) == "<All keys matched successfully>"
    loaded = holder["metric"]
    assert bits(loaded) == expected(make, 1)
    loaded.update(*scores(2))
    assert bits(loaded) == expected(make, 1, 2)
    assert bits(metric) == expected(make, 1)


@every_metric
def test_merge_state_is_update_with_both(make: Callable[..., RankMetric]) -> None:
    one, other = make(), make()
    one.update(*scores(1))
    one.compute()
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


CASTS: list[Callable[[Any], Any]] = [
    lambda m: m.half(),
    lambda m: m.to(torch.bfloat16),
    lambda m: m.double(),
    lambda m: m.type(torch.float16),
    lambda m: m.set_dtype(torch.bfloat16),
    lambda m: nn.Sequential(m, nn.Linear(1, 1)).bfloat16(),
    lambda m: nn.Sequential(m, nn.Linear(1, 1)).half(),
    lambda m: nn.Sequential(m, nn.Linear(1, 1)).to(torch.bfloat16),
    lambda m: nn.Sequential(m, nn.Linear(1, 1)).type(torch.float16),
]


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("make", [MeanRank, lambda: RankCollection(["mr", "amri"])], ids=["metric", "collection"])
def test_casts_leave_values_exact(make: Callable[[], Any], cast: Callable[[Any], Any]) -> None:
    ranks = Ranks(torch.tensor([1005, 1004, 1007]), None, 2049)  # bfloat16 has no integer between 1004 and 1008
    metric, exact = make(), make()
    exact.update(ranks)
    cast(metric)
    metric.update(ranks)
    cast(metric)
    assert bits(metric) == bits(exact)


@every_kind
@pytest.mark.parametrize("device", DEVICES)
def test_moves_between_devices_keep_the_rows(make: Callable[..., Any], device: str) -> None:
    metric = make()
    metric.update(*scores(1))
    moved = metric.to(device)
    assert moved is metric
    metric.update(*scores(2, device))
    results = metric.compute()
    for value in results.values() if isinstance(results, dict) else [results]:
        assert value.device.type == device
    metric.to("cpu")
    assert bits(metric) == expected(make, 1, 2)


@pytest.mark.parametrize("device", DEVICES)
def test_moves_keep_one_list(device: str) -> None:
    metrics = RankCollection()
    metrics.update(*scores(1))
    nn.ModuleList([metrics]).to(device)
    lists = {id(member.rows) for member in metrics.values(copy_state=False)}
    assert len(lists) == 1
    for member in metrics.values(copy_state=False):
        member.to(device)  # as Lightning does with each metric that is logged
    assert {id(member.rows) for member in metrics.values(copy_state=False)} == lists


@pytest.mark.parametrize("device", DEVICES)
def test_compute_on_cpu_keeps_rows_there(device: str) -> None:
    metrics = RankCollection(compute_on_cpu=True).to(device)
    metrics.update(*scores(1, device))
    metrics.to(device)
    first = next(iter(metrics.values(copy_state=False)))
    assert {block.device.type for block in first.rows} == {"cpu"}
    assert {value.device.type for value in metrics.compute().values()} == {device}


def _pyplot() -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


@every_metric
def test_plot_returns_figure_and_axes(make: Callable[..., RankMetric]) -> None:
    pyplot = _pyplot()
    metric = make()
    metric.update(*scores(1))
    for figure, axes in (metric.plot(), metric.plot([metric.compute(), metric.compute()])):
        assert isinstance(figure, pyplot.Figure)
        assert isinstance(axes, pyplot.Axes)
    pyplot.close("all")


def test_a_collection_plots_each_member_or_all_together() -> None:
    pyplot = _pyplot()
    metrics = RankCollection(["mrr", "mr"])
    metrics.update(*scores(1))
    assert all(isinstance(axes, pyplot.Axes) for _, axes in metrics.plot())
    figure, axes = metrics.plot(together=True)
    assert isinstance(figure, pyplot.Figure)
    assert isinstance(axes, pyplot.Axes)
    pyplot.close("all")
