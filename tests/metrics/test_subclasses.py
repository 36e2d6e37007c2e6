"""Metrics that users subclass: what they override or add works as in torchmetrics, or raises."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from torchmetrics.wrappers import MetricTracker, Running

from torchrankmetrics import MeanRank, MeanReciprocalRank, RankCollection, RankMetric, Ranks
from torchrankmetrics.errors import RankMetricWarning
from worker_pool import WorkerPool


class Percent(MeanReciprocalRank):
    def compute(self) -> Tensor:
        return 100 * super().compute()


class BothSides(MeanRank):
    """Ranks of one call are of both sides; an empty call is skipped."""

    def update(  # type: ignore[override]
        self, head: list[int], tail: list[int] | None = None
    ) -> None:
        for side in (head, tail):
            if side:
                super().update(Ranks(side, None, 9))


class Counting(MeanReciprocalRank):
    """A sum, a maximum and a list of its own; an update without ranks changes only these."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("seen", torch.tensor(0), dist_reduce_fx="sum", persistent=True)
        self.add_state("largest", torch.tensor(0), dist_reduce_fx="max")
        self.add_state("sizes", [], dist_reduce_fx="cat")

    def update(self, ranks: list[int]) -> None:  # type: ignore[override]
        self.seen += len(ranks)
        self.largest = torch.maximum(self.largest, torch.tensor(max(ranks, default=0)))
        self.sizes.append(torch.tensor([len(ranks)]))
        if ranks:
            super().update(Ranks(ranks, None, 99))

    def compute(self) -> dict[str, Tensor]:  # type: ignore[override]
        sizes = self.sizes if isinstance(self.sizes, list) else [self.sizes]
        return {
            "mrr": super().compute(),
            "seen": self.seen,
            "largest": self.largest,
            "calls": torch.tensor(sum(map(len, sizes))),
        }


def plain(found: Any) -> Any:
    """Values as numbers."""
    if isinstance(found, dict):
        return {key: value.item() for key, value in found.items()}
    return found.item()


MAKERS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda metric: metric,
    "plain collection": lambda metric: MetricCollection({"one": metric, "mr": MeanRank()}),
    "without groups": lambda metric: MetricCollection({"one": metric}, compute_groups=False),
    "rank collection": lambda metric: RankCollection({"one": metric, "mr": "mr"}),
    "running": lambda metric: Running(metric, window=3),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_forward_is_the_overridden_compute_of_the_batch(make: Callable[[Any], Any]) -> None:
    metric = make(Percent())
    for ranks, expected in (([1], 100), ([2], 50), ([4], 25)):
        found = metric(Ranks(ranks, None, 9))
        assert (found["one"] if isinstance(found, dict) else found) == expected
    found = metric.compute()
    total = found["one"] if isinstance(found, dict) else found
    assert total.item() == pytest.approx(175 / 3)


def test_a_tracker_steps_with_the_overridden_compute() -> None:
    tracker = MetricTracker(Percent())
    for rank in (1, 2):
        tracker.increment()
        assert tracker(Ranks([rank], None, 9)) == 100 / rank
    assert tracker.compute_all().tolist() == [100, 50]


@pytest.mark.parametrize(
    "make",
    [
        lambda metric: metric,
        lambda metric: MetricCollection({"one": metric}),
        lambda metric: Running(metric, window=9),
    ],
)
def test_forward_is_compute_of_all_that_an_update_added(make: Callable[[Any], Any]) -> None:
    metric = make(BothSides())
    for head, tail, expected in (([1, 2], [9], 4), ([5], [], 5), ([3], [5], 4)):
        found = metric(head, tail)
        assert (found["one"] if isinstance(found, dict) else found) == expected
    found = metric.compute()
    assert (found["one"] if isinstance(found, dict) else found).item() == pytest.approx(25 / 6)


def test_forward_of_an_update_that_adds_nothing_is_nan_and_changes_nothing() -> None:
    metric = BothSides()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metric([], []).isnan()
        metric([4])
        value = metric.compute()
        assert metric([]).isnan()
        assert metric.compute() == value == 4
    assert metric.update_count == 3


def test_a_collection_that_overrides_update_or_compute_has_them_in_forward() -> None:
    class Own(RankCollection):
        def update(self, *parts: list[int]) -> None:  # type: ignore[override]
            for ranks in parts:
                super().update(Ranks(ranks, None, 9))

        def compute(self) -> dict[str, Tensor]:
            return {key: -value for key, value in super().compute().items()}

    metrics = Own(["mr", "count"])
    assert plain(metrics([1], [2, 6])) == {"mr": -3, "count": -3}
    # Lightning logs values of members
    assert plain({key: one._forward_cache for key, one in metrics.items()}) == {"mr": 3, "count": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics()["mr"].isnan()
    assert plain(metrics.compute()) == {"mr": -3, "count": -3}
    assert metrics([8]) != metrics.compute()


@pytest.mark.parametrize("table", ["summary", "breakdown", "confidence_intervals"])
def test_tables_leave_out_an_overridden_compute_with_a_warning(table: str) -> None:
    metrics = RankCollection({"percent": Percent(), "mr": "mr"})
    metrics.update(Ranks([1, 4, 2] * 4, None, 9), group=[0, 1, 2] * 4)
    with pytest.warns(RankMetricWarning, match="1 of 2 metrics .* are left out: percent"):
        text = str(getattr(metrics, table)())
    assert "percent" not in text
    assert "mrr" not in text
    assert "mr" in text


@pytest.mark.parametrize("fails", ["update", "compute"])
@pytest.mark.parametrize("storage", ["ranks", "counts"])
@pytest.mark.parametrize("kind", [MeanRank, RankCollection])
def test_an_error_in_forward_restores_rows_and_states(kind: Any, storage: str, fails: str) -> None:
    class Failing(kind):  # type: ignore[misc]
        broken = False

        def update(self, *args: Any, **kwargs: Any) -> None:
            super().update(*args, **kwargs)
            if self.broken and fails == "update":
                raise KeyboardInterrupt

        def compute(self) -> Any:
            if self.broken and fails == "compute":
                raise KeyboardInterrupt
            return super().compute()

    metric = Failing(*([["mr"]] if kind is RankCollection else []), storage=storage)
    metric(Ranks([2], None, 9))
    before = metric.compute()
    metric.broken = True
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            metric(Ranks([9], None, 9))
    metric.broken = False
    assert metric.compute() == before
    metric(Ranks([4], None, 9))
    found = metric.compute()
    assert (found["mr"] if isinstance(found, dict) else found) == 3


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_forward_of_a_synced_metric_raises_even_if_its_update_skips_the_batch() -> None:
    metric = BothSides()
    metric([3])
    metric.sync(lambda x, group=None: [x, x], distributed_available=lambda: True)
    with pytest.raises(TorchMetricsUserError, match="synced metric"):
        metric([])
    metric.unsync()
    assert sum(map(len, metric.rows)) == 1


class Negated(MeanRank):
    def update(self, preds: Tensor, *args: Any, **kwargs: Any) -> None:
        super().update(-preds, *args, **kwargs)


class Logged(MeanRank):
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize(("kind", "method"), [(Negated, "update"), (Logged, "forward")])
def test_a_rank_collection_rejects_a_metric_whose_own_update_it_would_not_call(
    kind: type[RankMetric], method: str
) -> None:
    metrics = RankCollection(["mrr"])
    message = f"{kind.__name__} overrides '{method}'; transform the scores before the collection"
    for add in (metrics.add_metrics, RankCollection, lambda one: RankCollection(["mrr", one])):
        with pytest.raises(ValueError, match=message):
            add({"own": kind()} if add is metrics.add_metrics else kind())
    assert list(metrics.keys()) == ["mrr"]
    distances, target = torch.tensor([[0.1, 0.5], [0.3, 0.2]]), torch.tensor([0, 1])
    assert MetricCollection([Negated()])(distances, target)["Negated"] == 1


ADDED = [[1, 3], [], [4, 2, 2]]
TOTAL = {"mrr": (1 + 1 / 3 + 1 / 4 + 1) / 5, "seen": 5, "largest": 4, "calls": 3}


def counted(*batches: list[int], **kwargs: Any) -> Counting:
    metric = Counting(**kwargs)
    for ranks in batches:
        metric.update(ranks)
    return metric


@pytest.mark.parametrize("dist_sync_on_step", [False, True])
def test_added_states_are_of_the_batch_in_forward_and_of_all_in_compute(
    dist_sync_on_step: bool,
) -> None:
    metric = Counting(dist_sync_on_step=dist_sync_on_step)
    found = [plain(metric(ranks)) for ranks in ADDED]
    assert [one["seen"] for one in found] == [2, 0, 3]
    assert [one["largest"] for one in found] == [3, 0, 4]
    assert [one["calls"] for one in found] == [1, 1, 1]
    assert plain(metric.compute()) == pytest.approx(TOTAL)
    # rows stay, so a cached value must not
    metric.update([])
    assert plain(metric.compute())["calls"] == 4
    metric.reset()
    assert (metric.seen, metric.sizes, metric.rows) == (0, [], [])


def test_added_states_are_merged() -> None:
    one, other = counted(ADDED[0], ADDED[1]), counted(ADDED[2])
    one.compute()
    one.merge_state(other)
    assert plain(one.compute()) == pytest.approx(TOTAL)
    assert plain(other.compute())["seen"] == 3
    one.merge_state(dict(other.metric_state))
    assert plain(one.compute())["seen"] == 8
    before = plain(one.compute())
    for incoming in ({"rows": other.rows}, other.metric_state | {"seen": torch.zeros(2, 3, 4, 5)}):
        bad = incoming if "seen" not in incoming else incoming | {"sizes": 3}
        with pytest.raises((ValueError, TypeError)):
            one.merge_state(bad)
        assert plain(one.compute()) == before


def test_added_states_are_copied_saved_and_loaded() -> None:
    metric = counted(*ADDED)
    for twin in (metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert plain(twin.compute()) == pytest.approx(TOTAL)
        twin.update([1])
        assert plain(twin.compute())["seen"] == 6
    loaded = Counting()
    loaded.load_state_dict(metric.state_dict())
    assert loaded.seen == 5
    assert plain(metric.compute()) == pytest.approx(TOTAL)


def test_added_states_run_in_windows_and_groups() -> None:
    window = Running(Counting(), window=2)
    for ranks in ADDED:
        window.update(ranks)
    found = plain(window.compute())
    # torchmetrics' Running refers to a list state of any metric, and clears it
    expected = plain(counted(*ADDED[1:]).compute()) | {"calls": 0}
    assert found == pytest.approx(expected)
    groups = MetricCollection({"a": Counting(), "b": Counting()})
    for ranks in ADDED:
        groups.update(ranks)
    assert len(groups.compute_groups) == 1
    assert plain(groups.compute()) == pytest.approx(
        {f"{name}_{key}": value for name in "ab" for key, value in TOTAL.items()}
    )


class AllReductions:
    """States of every reduction, for a metric of torchmetrics and for one of this package."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("sum", "mean", "max", "min"):
            zero = torch.tensor(0.0)
            self.add_state(name, zero, dist_reduce_fx=name)  # type: ignore[attr-defined]
        self.add_state("listed", [], dist_reduce_fx="cat")  # type: ignore[attr-defined]

    def update(self, number: int) -> None:
        value = torch.tensor(float(number))
        for name in ("sum", "mean"):
            setattr(self, name, getattr(self, name) + value)
        self.max = torch.maximum(self.max, value)  # type: ignore[has-type]
        self.min = torch.minimum(self.min, value)  # type: ignore[has-type]
        self.listed.append(value)  # type: ignore[attr-defined]
        if isinstance(self, MeanRank):
            MeanRank.update(self, Ranks([number], None, 9))


class OfTheHost(AllReductions, Metric):
    full_state_update = False

    def compute(self) -> Tensor:
        return self.sum  # type: ignore[attr-defined, no-any-return]


class OfThisPackage(AllReductions, MeanRank):
    pass


def test_added_states_have_the_values_that_torchmetrics_gives_them() -> None:
    found = []
    for kind in (OfTheHost, OfThisPackage):
        metric, other = kind(), kind()
        states = []
        for number in (4, 2, 7):
            metric(number)
            states.append({name: str(getattr(metric, name)) for name in ("sum", "mean", "listed")})
        metric.update(3)
        other.update(8)
        metric.merge_state(other)
        names = ("sum", "mean", "max", "min", "listed")
        states.append({name: str(getattr(metric, name)) for name in names})
        found.append(states)
    assert found[0] == found[1]


def test_states_of_a_metric_with_gradients_have_none() -> None:
    class Loss(MeanRank):
        def __init__(self) -> None:
            super().__init__()
            self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")

        def update(self, preds: Tensor, target: Tensor) -> None:  # type: ignore[override]
            self.total += preds.sum()
            super().update(preds, target)

    metric = Loss()
    metric.update(torch.ones(2, 3, requires_grad=True), torch.tensor([0, 1]))
    assert not metric.total.requires_grad


def test_an_update_that_reads_earlier_states_declares_a_full_update() -> None:
    """As in torchmetrics; update is then called twice: with all states, and with the batch's."""

    class Delta(MeanRank):
        full_state_update = True

        def __init__(self) -> None:
            super().__init__()
            self.add_state("previous", torch.tensor(0), dist_reduce_fx="max")
            self.add_state("steps", torch.tensor(0), dist_reduce_fx="sum")

        def update(self, rank: int) -> None:  # type: ignore[override]
            self.steps += rank - self.previous
            self.previous = torch.tensor(rank)
            super().update(Ranks([rank], None, 9))

    metric = Delta()
    assert [metric(rank).item() for rank in (2, 5, 6)] == [2, 5, 6]
    assert (metric.steps, metric.update_count, metric.compute().item()) == (6, 3, 13 / 3)


def test_an_overridden_update_that_fails_is_not_counted() -> None:
    metric = BothSides()
    with pytest.raises(ValueError, match="ranks"):
        metric.update([0])
    assert metric.update_count == 0
    metric.update([3], [4])
    assert metric.update_count == 1


def job_added_states(batches: list[list[int]], on_step: bool) -> Any:
    metric = Counting(dist_sync_on_step=on_step)
    steps = [plain(metric(ranks)) for ranks in batches]
    found = plain(metric.compute())
    metric.sync()
    synced = metric.seen.item()
    metric.unsync()
    return steps, found, synced, metric.seen.item()


@pytest.mark.filterwarnings("ignore:ranking tasks from")
@pytest.mark.parametrize("on_step", [False, True])
def test_added_states_are_synchronized(pool: WorkerPool, on_step: bool) -> None:
    shards = [[[1, 3], []], [[4, 2, 2], []]]
    results = pool.run(job_added_states, [(shard, on_step) for shard in shards])
    for shard, (steps, found, synced, own) in zip(shards, results, strict=True):
        assert found == pytest.approx(TOTAL | {"calls": 4})
        assert (synced, own) == (5, sum(map(len, shard)))
        first = TOTAL | {"calls": 2} if on_step else plain(counted(shard[0]).compute())
        assert steps[0] == pytest.approx(first)
