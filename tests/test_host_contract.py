"""What torchmetrics asks of a metric: every public metric and the collection, inside inference mode and outside."""

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import BootStrapper, MetricTracker, MinMaxMetric, Running

import torchrankmetrics
from torchrankmetrics import HitsAtK, MeanRank, MeanReciprocalRank, RankCollection, RankDefinition, RankMetric, Ranks


def _gain(rank: Tensor) -> Tensor:
    return 1 / torch.log2(1 + rank)


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "k": (3,),
    "p": (2.5,),
    "definition": (RankDefinition("dcg", f=_gain),),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def _public_metrics() -> Iterator[Callable[..., RankMetric]]:
    for name in torchrankmetrics.__all__:
        found = getattr(torchrankmetrics, name)
        if isinstance(found, type) and issubclass(found, RankMetric):
            first = next(iter(inspect.signature(found).parameters))
            yield pytest.param(lambda found=found, first=first, **kw: found(*_ARGUMENTS.get(first, ()), **kw), id=name)


METRICS = list(_public_metrics())
every_metric = pytest.mark.parametrize("make", METRICS)
every_kind = pytest.mark.parametrize("make", [*METRICS, pytest.param(RankCollection, id="RankCollection")])


@pytest.fixture(autouse=True, params=[False, True], ids=["ordinary", "inference"])
def _mode(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.inference_mode(request.param):
        yield


def scores(seed: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 9, (7, 12), generator=generator).float()
    return values.to(device), torch.randint(0, 12, (7,), generator=generator).to(device)


def values_of(metric: Any) -> list[str]:
    """Bits of the value, or of all values."""
    result = metric.compute() if isinstance(metric, Metric | MetricCollection) else metric
    result = list(result.values()) if isinstance(result, dict) else [result]
    assert all(value.dtype == torch.float64 and value.ndim == 0 for value in result)
    return [value.item().hex() for value in result]


def expected(make: Callable[..., Any], *seeds: int) -> list[str]:
    metric = make()
    for seed in seeds:
        metric.update(*scores(seed))
    return values_of(metric)


@every_metric
@pytest.mark.parametrize("name", ["higher_is_better", "is_differentiable", "full_state_update", "plot_lower_bound"])
def test_constants_cannot_be_reassigned(make: Callable[..., RankMetric], name: str) -> None:
    metric = make()
    assert metric.is_differentiable is False
    assert metric.higher_is_better in (True, False, None)
    with pytest.raises(RuntimeError, match="Can't change const"):
        setattr(metric, name, None)


@every_kind
def test_forward_is_update_and_compute_of_the_batch(make: Callable[..., Any]) -> None:
    metric = make()
    for seed in (1, 2):
        value = metric(*scores(seed))
        assert values_of(value) == expected(make, seed)
    assert values_of(metric) == expected(make, 1, 2)
    members = metric.values(copy_state=False) if isinstance(metric, MetricCollection) else [metric]
    assert [member._forward_cache.item().hex() for member in members] == expected(make, 2)
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
    assert values_of(metric) == expected(make, *before, 3)
    assert values_of(other) == expected(make, *before, 2)


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
    assert values_of(loaded) == expected(make, 1)
    loaded.update(*scores(2))
    assert values_of(loaded) == expected(make, 1, 2)
    assert values_of(metric) == expected(make, 1)


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
    assert values_of(metric) == values_of(exact)


@every_kind
@pytest.mark.parametrize("device", DEVICES)
def test_device_moves(make: Callable[..., Any], device: str) -> None:
    metric = make()
    metric.update(*scores(1))
    moved = metric.to(device)
    assert moved is metric
    metric.update(*scores(2, device))
    results = metric.compute()
    for value in results.values() if isinstance(results, dict) else [results]:
        assert value.device.type == device
    metric.to("cpu")
    assert values_of(metric) == expected(make, 1, 2)


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


@every_metric
def test_arithmetic(make: Callable[..., RankMetric]) -> None:
    one, other = make(), MeanReciprocalRank()
    difference, scaled = one - other, abs(2 * one)
    difference.update(*scores(1))
    a, b = (float.fromhex(values_of(metric)[0]) for metric in (one, other))
    assert difference.compute().item() == a - b
    assert scaled.compute().item() == abs(2 * a)
    difference.reset()
    assert not one.rows


@every_metric
def test_min_max(make: Callable[..., RankMetric]) -> None:
    wrapped = MinMaxMetric(make())
    seen = []
    for seed in (1, 2, 3):
        wrapped.update(*scores(seed))
        result = wrapped.compute()
        seen.append(result["raw"].item())
    assert result["min"].item() == pytest.approx(min(seen))
    assert result["max"].item() == pytest.approx(max(seen))


@pytest.mark.parametrize("make", [MeanRank, MeanReciprocalRank, lambda: HitsAtK(3)])
def test_boot_strapper(make: Callable[[], RankMetric]) -> None:
    torch.manual_seed(0)
    wrapped = BootStrapper(make(), num_bootstraps=30, raw=True)
    wrapped.update(*scores(1))
    raw = wrapped.compute()["raw"]
    assert raw.dtype == torch.float64
    value = float.fromhex(expected(make, 1)[0])
    assert raw.min() <= value <= raw.max()
    assert len(raw.unique()) > 3


@every_metric
def test_running_window(make: Callable[..., RankMetric]) -> None:
    wrapped = Running(make(), window=2)
    for seed in (1, 2, 3):
        wrapped.update(*scores(seed))
    assert values_of(wrapped.compute()) == expected(make, 2, 3)


def test_tracker_of_one_metric_finds_the_best_step() -> None:
    for make, better in ((MeanRank, min), (MeanReciprocalRank, max)):
        tracker = MetricTracker(make(), maximize=None)  # torchmetrics 1.6 would take True
        values = []
        for seed in (1, 2, 3):
            tracker.increment()
            tracker.update(*scores(seed))
            values.append(tracker.compute().item())
        best, step = tracker.best_metric(return_step=True)
        assert best == better(values)
        assert step == values.index(best)


def test_tracker_of_a_collection_finds_the_best_steps() -> None:
    make = lambda: RankCollection(["mr", "mrr", "z_mrr"], prefix="val/")  # noqa: E731
    tracker = MetricTracker(make(), maximize=None)  # torchmetrics 1.6 would take True
    found: dict[str, list[float]] = {}
    for seed in (1, 2, 3):
        tracker.increment()
        tracker.update(*scores(seed))
        for key, value in tracker.compute().items():
            found.setdefault(key, []).append(value.item())
    best, step = tracker.best_metric(return_step=True)
    assert list(found) == list(make().keys()) == ["val/mr", "val/mrr", "val/z_mrr"]
    for key, values in found.items():
        assert best[key] == (min if key == "val/mr" else max)(values)
        assert step[key] == values.index(best[key])


def test_add_metrics_sees_the_rows_so_far() -> None:
    metrics = RankCollection(["mrr"])
    metrics.update(*scores(1))
    metrics.add_metrics("mr")
    metrics.update(*scores(2))
    assert values_of(metrics) == expected(lambda: RankCollection(["mrr", "mr"]), 1, 2)


@pytest.mark.parametrize("compute_groups", [True, False])
def test_in_a_plain_collection_beside_foreign_metrics(compute_groups: bool) -> None:
    alone = {"h1": HitsAtK(1), "h10": HitsAtK(10), "mr": MeanRank(side="head"), "acc": MulticlassAccuracy(12)}
    plain = MetricCollection({**alone, "set": RankCollection(["mrr", "mr"])}, compute_groups=compute_groups)
    for seed in (1, 2, 3):
        plain.update(*scores(seed), side="head")
    found = plain.compute()
    for key, make in {"h1": lambda: HitsAtK(1), "h10": lambda: HitsAtK(10), "mr": MeanRank}.items():
        assert found[key].item().hex() == expected(make, 1, 2, 3)[0]
    nested = {key.removeprefix("set_"): value for key, value in found.items() if key.startswith("set_")}
    assert values_of(nested) == expected(lambda: RankCollection(["mrr", "mr"]), 1, 2, 3)
    accuracy = MulticlassAccuracy(12)
    for seed in (1, 2, 3):
        accuracy.update(*scores(seed))
    assert found["acc"] == accuracy.compute()
    plain.reset()
    plain.update(*scores(4), side="head")
    assert plain.compute()["h10"].item().hex() == expected(lambda: HitsAtK(10), 4)[0]


def test_equal_first_batches_merge_nothing_that_differs() -> None:
    for metrics in (
        MetricCollection({"h1": HitsAtK(1), "h10": HitsAtK(10)}),
        RankCollection(["hits_at_1", "hits_at_10"]),
    ):
        metrics.update(Ranks(torch.tensor([1, 1]), None, 50))
        assert [value.item() for value in metrics.compute().values()] == [1.0, 1.0]
        metrics.update(Ranks(torch.tensor([5, 50]), None, 50))
        assert [value.item() for value in metrics.compute().values()] == [0.5, 0.75]


def test_members_of_a_plain_collection_gather_apart_from_it() -> None:
    plain = MetricCollection([RankCollection(["mrr", "mr"])])
    clone = plain.clone(prefix="test_")
    plain.update(*scores(1))
    clone.update(*scores(2))
    assert values_of(plain) == expected(lambda: RankCollection(["mrr", "mr"]), 1)
    assert values_of(clone) == expected(lambda: RankCollection(["mrr", "mr"]), 2)


@every_metric
def test_plot_returns_figure_and_axes(make: Callable[..., RankMetric], monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = _pyplot()
    metric = make()
    metric.update(*scores(1))
    for figure, axes in (metric.plot(), metric.plot([metric.compute(), metric.compute()])):
        assert isinstance(figure, pyplot.Figure)
        assert isinstance(axes, pyplot.Axes)
    pyplot.close("all")


def test_plot_of_a_collection() -> None:
    pyplot = _pyplot()
    metrics = RankCollection(["mrr", "mr"])
    metrics.update(*scores(1))
    assert all(isinstance(axes, pyplot.Axes) for _, axes in metrics.plot())
    figure, axes = metrics.plot(together=True)
    assert isinstance(figure, pyplot.Figure)
    assert isinstance(axes, pyplot.Axes)
    pyplot.close("all")


def _pyplot() -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


@every_metric
def test_before_any_update_the_value_is_nan_with_a_warning(make: Callable[..., RankMetric]) -> None:
    metric = make()
    assert not metric.update_called
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        value = metric.compute()
    assert value.isnan() or value == 0  # a count of no tasks is 0


@every_metric
def test_merge_state_is_update_with_both(make: Callable[..., RankMetric]) -> None:
    one, other = make(), make()
    one.update(*scores(1))
    one.compute()
    other.update(*scores(2))
    one.merge_state(other)
    assert values_of(one) == expected(make, 1, 2)
    one.merge_state({"rows": other.rows})
    assert values_of(one) == expected(make, 1, 2, 2)
    assert one.update_count == 3
    assert values_of(other) == expected(make, 2)
