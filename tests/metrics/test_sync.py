"""The value of one process, for any number of processes and any way the data fell on them, after one gather."""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import distributed as dist
from torch.utils.data import DistributedSampler
from torchmetrics import MetricCollection

import torchrankmetrics as trm
from bits import bits
from sharding import (
    EMPTY,
    HEAD,
    STORAGES,
    TAIL,
    Shard,
    collection,
    of_one_process,
    one_by_one,
    quiet,
    shardings,
    update,
)
from torchrankmetrics import MeanRank, MeanReciprocalRank, RankCollection, RankDefinition, RankMetric, Ranks
from worker_pool import WorkerPool

COLLECTIVES = ("barrier", "all_gather", "all_reduce", "all_gather_into_tensor", "all_gather_object", "broadcast")


def job_values(shard: Shard, storage: str, macro: bool) -> list[dict[str, str]]:
    """Values of the collection, of its members one by one, and of a plain collection, on this process."""
    metrics, plain = collection(storage, macro=macro), MetricCollection({"mr": MeanRank(), "mrr": MeanReciprocalRank()})
    with quiet():
        update(metrics, *shard)
        update(plain, *shard)
        together, alone = bits(metrics.compute()), one_by_one(metrics)
        assert together == bits(metrics.compute())
        assert metrics.table().num_tasks == 5
        return [together, alone, together | bits(plain.compute())]


@pytest.mark.parametrize("storage", STORAGES)
def test_any_sharding_has_the_bits_of_one_process(pool: WorkerPool, storage: str) -> None:
    """Processes without data gather as often; drawn shardings have a replaced gather below."""
    for shards in ([[HEAD], [TAIL]], [[], [], [], [HEAD, TAIL]], [[TAIL], [], [HEAD]]):
        expected = of_one_process([HEAD, TAIL])
        for found in pool.run(job_values, [(shard, storage, False) for shard in shards]):
            assert found == [expected] * 3


@settings(max_examples=40, deadline=None)
@given(drawn=shardings(max_size=6), storage=st.sampled_from(STORAGES))
def test_any_sharding_has_the_bits_of_one_process_with_a_gather_of_ones_own(
    drawn: tuple[Shard, list[Shard]], storage: str
) -> None:
    """Many draws, no processes: the replaced gather hands each the rows of all."""
    whole, shards = drawn
    macro = bool(whole)
    everybody: list[torch.Tensor] = []
    handed: list[torch.Tensor] = []

    def gather(rows: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
        handed.append(rows)
        return everybody

    for shard in shards:
        single = collection(storage, names=["mr"])
        with quiet():
            update(single, *shard)
        everybody.append(single["mr"].rows.as_one(torch.device("cpu")))
    metrics = collection(storage, macro=macro, dist_sync_fn=gather, distributed_available_fn=lambda: True)
    with quiet():
        update(metrics, *shards[-1])
        assert bits(metrics.compute()) == of_one_process(whole, macro=macro)
        assert len(handed) == 1
        for member in metrics.values(copy_state=False):
            member.compute()
    assert all(rows.dtype == torch.int64 and rows.ndim == 2 and rows.shape[1] == 10 for rows in handed)  # no votes


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the collectives that are called inside."""
    calls: Counter[str] = Counter()

    def counting(name: str, original: Any) -> Any:
        return lambda *args, **kwargs: calls.update([name]) or original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name in COLLECTIVES:
            patch.setattr(dist, name, counting(name, getattr(dist, name)))
        yield calls


def job_calls(shard: Shard, storage: str) -> dict[str, dict[str, int]]:
    forty = [f"hits_at_{k}" for k in range(1, 41)]
    metrics, found = collection(storage, forty), {}

    def count(name: str, *calls: Any) -> None:
        with counted() as collectives:
            for call in calls:
                call()
        found[name] = dict(collectives)

    for name, one in {"forty": metrics, "metric": MeanReciprocalRank(storage=storage)}.items():
        update(one, *shard)
        count(name, one.compute)
    count("table and summary", metrics.table, metrics.summary)
    update(metrics, *shard, EMPTY)
    count("one by one", *(member.compute for member in metrics.values(copy_state=False)))  # as Lightning computes them
    update(metrics, EMPTY)
    metrics.table()
    count("after table", metrics.compute)
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_one_gather_for_any_number_of_metrics(pool: WorkerPool, storage: str) -> None:
    one_gather = {"barrier": 1, "all_gather": 2}
    expected = dict.fromkeys(("forty", "metric", "one by one"), one_gather)
    expected |= {"table and summary": {}, "after table": {}}  # the rows have not changed on any process
    assert pool.run(job_calls, [([HEAD, TAIL], storage), ([], storage)]) == [expected] * 2


def job_of_a_sampler(samples: int, named: bool, epochs: int) -> tuple[list[float], list[str]]:
    """The MRR where only sample 0 has rank 1, assigned by torch's padding sampler; and the warnings of all epochs."""
    data, metric = range(samples), MeanReciprocalRank()
    values = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(epochs):
            share = torch.tensor(list(DistributedSampler(data, shuffle=False)))
            ranks = Ranks(torch.where(share == 0, 1, 2), None, 9)
            metric.update(ranks, sample_id=share if named else None)
            values.append(metric.compute().item())
            metric.reset()
    return values, [str(one.message) for one in caught if issubclass(one.category, trm.RankMetricWarning)]


@pytest.mark.parametrize("samples", [11, 12])
def test_tasks_without_ids_are_warned_of_once(pool: WorkerPool, samples: int) -> None:
    right = (1 + (samples - 1) / 2) / samples
    for values, reported in pool.run(job_of_a_sampler, [(samples, True, 2)] * 2):
        assert values == pytest.approx([right] * 2)
        assert not reported
    (values, reported), (_, reported_by_the_second) = pool.run(job_of_a_sampler, [(samples, False, 2)] * 2)
    assert (values == pytest.approx([right] * 2)) == (samples == 12)  # 11 samples are padded: the hit counts twice
    assert len(reported) == 1
    assert "ranking tasks from 2 processes have no sample_id" in reported[0]
    assert not reported_by_the_second
    assert pool.run(job_of_a_sampler, [(samples, False, 2)])[0][1] == []


def test_an_error_in_compute_restores_the_rows_of_the_process() -> None:
    """torchmetrics leaves the rows of all processes; f is not finite at rank 3."""
    broken = RankDefinition("broken", f=lambda r: 1 / (r - 3), higher_is_better=True, optimum=-0.5)
    metric = RankMetric(broken, distributed_available_fn=lambda: True, dist_sync_fn=lambda x, group=None: [x, x])
    metric.update(Ranks([1, 3], None, 9), sample_id=[0, 1])
    with pytest.raises(ValueError, match="finite"):
        metric.compute()
    metric.update(Ranks([2], None, 9), sample_id=[2])
    assert sum(map(len, metric.rows)) == 3


def test_a_checkpoint_has_the_rows_that_compute_uses() -> None:
    """A second collection takes the members of the first."""
    first = RankCollection(["mrr", "mr"])
    first.persistent(True)
    second = RankCollection([first["mrr"], first["mr"]])
    second.update(Ranks([1, 2], None, 9))
    assert len(first.state_dict()["rows"]) == 2
