"""The value of one process, for any number of processes and any sharding.

Any order of updates, computes and copies gives this value.
"""

import pickle
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
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import sharding
import torchrankmetrics as trm
from bits import bits
from sharding import (
    EMPTY,
    HEAD,
    MORE,
    STORAGES,
    TAIL,
    Shard,
    batch,
    collection,
    of_one_process,
    update,
)
from torchrankmetrics import (
    MeanRank,
    MeanReciprocalRank,
    RankCollection,
    RankDefinition,
    RankMetric,
    Ranks,
)
from worker_pool import WorkerPool

COLLECTIVES = (
    "barrier",
    "all_gather",
    "all_reduce",
    "all_gather_into_tensor",
    "all_gather_object",
    "broadcast",
)


def job_values(shard: Shard, storage: str, taken: bool) -> list[dict[str, str]]:
    """Values of the collection, of each member, and of a plain collection, on this process."""
    metrics, plain = (
        collection(storage),
        MetricCollection({"mr": MeanRank(), "mrr": MeanReciprocalRank()}),
    )
    with sharding.quiet():
        update(metrics, *shard)
        update(plain, *shard)
        if taken:
            metrics.items()  # as another collection that takes the members
        together, alone = bits(metrics.compute()), sharding.one_by_one(metrics)
        assert together == bits(metrics.compute())
        assert metrics.table().num_tasks == 5
        return [together, alone, together | bits(plain.compute())]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("shards", "taken"),
    [
        ([[HEAD], [TAIL]], False),
        ([[TAIL], [], [HEAD]], False),
        ([[TAIL], [], [HEAD]], True),
        ([[], [], [], [HEAD, TAIL]], False),
    ],
    ids=["two", "three", "three, members taken", "four"],
)
def test_any_sharding_has_the_bits_of_one_process(
    shards: list[Shard], taken: bool, pool: WorkerPool, storage: str
) -> None:
    """Processes without data gather as often; drawn shardings have a replaced gather below."""
    expected = of_one_process([HEAD, TAIL])
    for found in pool.run(job_values, [(shard, storage, taken) for shard in shards]):
        assert found == [expected] * 3


@settings(max_examples=40, deadline=None)
@given(drawn=sharding.shardings(max_size=6), storage=st.sampled_from(STORAGES))
def test_any_sharding_has_the_bits_of_one_process_with_a_gather_of_ones_own(
    drawn: tuple[Shard, list[Shard]], storage: str
) -> None:
    """Many draws, no processes: the replaced gather hands each the rows of all."""
    whole, shards = drawn
    macro = bool(whole)
    everybody: list[torch.Tensor] = []

    class Gather(list[torch.Tensor]):  # as a list, not hashable
        def __call__(self, rows: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
            self.append(rows)
            return everybody

    handed = Gather()
    for shard in shards:
        single = collection(storage, names=["mr"])
        with sharding.quiet():
            update(single, *shard)
        everybody.append(single["mr"].rows.as_one(torch.device("cpu")))
    metrics = collection(
        storage, macro=macro, dist_sync_fn=handed, distributed_available_fn=lambda: True
    )
    with sharding.quiet():
        update(metrics, *shards[-1])
        assert bits(metrics.compute()) == of_one_process(whole, macro=macro)
        assert len(handed) == 1
        for member in metrics.values(copy_state=False):
            member.compute()
    # no votes
    assert all(
        rows.dtype == torch.int64 and rows.ndim == 2 and rows.shape[1] == 10 for rows in handed
    )


@contextmanager
def counted() -> Iterator[Counter[str]]:
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
    # as Lightning computes them
    count("one by one", *(member.compute for member in metrics.values(copy_state=False)))
    update(metrics, EMPTY)
    metrics.table()
    count("after table", metrics.compute)
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_one_gather_for_any_number_of_metrics(pool: WorkerPool, storage: str) -> None:
    one_gather = {"barrier": 1, "all_gather": 2}
    expected = dict.fromkeys(("forty", "metric", "one by one"), one_gather)
    # the rows have not changed on any process
    expected |= {"table and summary": {}, "after table": {}}
    assert pool.run(job_calls, [([HEAD, TAIL], storage), ([], storage)]) == [expected] * 2


def job_of_a_sampler(samples: int, named: bool, epochs: int) -> tuple[list[float], list[str]]:
    """The MRR if only sample 0 has rank 1; and the warnings of all epochs.

    The padding sampler of torch assigns the samples.
    """
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
    return values, [
        str(one.message) for one in caught if issubclass(one.category, trm.RankMetricWarning)
    ]


@pytest.mark.parametrize("samples", [11, 12])
def test_tasks_without_ids_are_warned_of_once(pool: WorkerPool, samples: int) -> None:
    right = (1 + (samples - 1) / 2) / samples
    for values, reported in pool.run(job_of_a_sampler, [(samples, True, 2)] * 2):
        assert values == pytest.approx([right] * 2)
        assert not reported
    (values, reported), (_, reported_by_the_second) = pool.run(
        job_of_a_sampler, [(samples, False, 2)] * 2
    )
    # 11 samples are padded: the hit counts twice
    assert (values == pytest.approx([right] * 2)) == (samples == 12)
    assert len(reported) == 1
    assert "ranking tasks from 2 processes have no sample_id" in reported[0]
    assert not reported_by_the_second
    assert pool.run(job_of_a_sampler, [(samples, False, 2)])[0][1] == []


def test_an_error_in_compute_restores_the_rows_of_the_process() -> None:
    """torchmetrics leaves the rows of all processes; f is not finite at rank 3."""
    broken = RankDefinition("broken", f=lambda r: 1 / (r - 3), higher_is_better=True, optimum=-0.5)
    metric = RankMetric(
        broken, distributed_available_fn=lambda: True, dist_sync_fn=lambda x, group=None: [x, x]
    )
    metric.update(Ranks([1, 3], None, 9), sample_id=[0, 1])
    with pytest.raises(ValueError, match="finite"):
        metric.compute()
    metric.update(Ranks([2], None, 9), sample_id=[2])
    assert sum(map(len, metric.rows)) == 3


def test_a_checkpoint_has_the_rows_that_compute_uses() -> None:
    first = RankCollection(["mrr", "mr"])
    first.persistent(True)
    second = RankCollection([first["mrr"], first["mr"]])
    second.update(Ranks([1, 2], None, 9))
    assert len(first.state_dict()["rows"]) == 2


def job_life(shard: Shard, later: Shard, storage: str, inside: bool) -> dict[str, dict[str, str]]:
    """Events between updates and computes on one process, some of them in inference mode."""
    found = {}
    metrics = collection(storage)
    with torch.inference_mode(inside):
        update(metrics, *shard)
        found["first"] = bits(metrics.compute())
        found["first members"] = sharding.one_by_one(metrics)
    found["again"] = bits(metrics.compute())
    update(metrics, *later)
    with torch.inference_mode(inside):
        found["later"] = bits(metrics.compute())
        found["members"] = sharding.one_by_one(metrics)
    copy, other = metrics.clone(), pickle.loads(pickle.dumps(metrics))
    found["clone"], found["pickle"] = bits(copy.compute()), bits(other.compute())
    metrics.reset()
    update(metrics, *shard)
    found["reset"] = bits(metrics.compute())

    merged, incoming = collection(storage), collection(storage)
    update(merged, *shard)
    found["before merge"] = bits(merged.compute())
    update(incoming, *later)
    merged.merge_state(incoming)
    found["merged"] = bits(merged.compute())
    return found


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("later", "inside"),
    [
        (([MORE], [EMPTY]), False),
        (([EMPTY], [MORE]), True),  # what Lightning does on NCCL
        (([batch(MORE["tasks"][:1], "tail")], [batch(MORE["tasks"][1:], "tail")]), False),
    ],
)
def test_computes_between_updates_copies_and_merges_have_the_bits_of_one_process(
    pool: WorkerPool, storage: str, later: tuple[Shard, Shard], inside: bool
) -> None:
    if inside and torch.__version__.startswith("2.4."):
        pytest.skip("torch 2.4 cannot gather under inference mode")
    first, then = of_one_process([HEAD, TAIL]), of_one_process([HEAD, TAIL, MORE])
    for found in pool.run(
        job_life, [([HEAD], later[0], storage, inside), ([TAIL], later[1], storage, inside)]
    ):
        for name in ("first", "first members", "again", "reset", "before merge"):
            assert found.pop(name) == first, name
        assert found == dict.fromkeys(found, then)


def job_sync_unsync(shard: Shard) -> dict[str, Any]:
    metric = MeanReciprocalRank()
    update(metric, *shard)
    own = metric.rows
    metric.sync()
    synced = int(sum(len(block) for block in metric.rows))
    for call in (
        metric.sync,
        lambda: update(metric, MORE),
        lambda: metric.forward(Ranks([1], None, 3)),
    ):
        with pytest.raises(TorchMetricsUserError):
            call()
    metric.unsync()
    assert metric.rows is own
    with pytest.raises(TorchMetricsUserError):
        metric.unsync()

    metrics = collection()
    update(metrics, *shard)
    first, *others = metrics.values(copy_state=False)
    first.sync()
    values = bits({member.key: member.compute() for member in others})
    with pytest.raises(TorchMetricsUserError):
        update(metrics, MORE)
    first.unsync()
    return {"synced": synced, "others": values, "after": bits(metrics.compute())}


def test_a_synced_metric_rejects_updates_and_unsync_gives_its_own_rows_back(
    pool: WorkerPool,
) -> None:
    expected = of_one_process([HEAD, TAIL])
    for found in pool.run(job_sync_unsync, [([HEAD],), ([TAIL],), ([],)]):
        assert found["synced"] == 5
        assert found["others"] == {key: value for key, value in expected.items() if key != "mrr"}
        assert found["after"] == expected


BATCHES = [HEAD, TAIL, MORE]  # one per process
PROCESSES = [(0,), (1,), (2,)]


def job_groups(rank: int) -> dict[str, list[dict[str, str]]]:
    """Values of collections within a pair of the processes, beside it, and both.

    They are computed together and one by one.
    """
    pair = dist.new_group([0, 2])
    within, beside, world = (
        collection(process_group=pair),
        RankCollection([MeanRank(process_group=pair)]),
        MeanRank(),
    )
    beside.add_metrics(MeanReciprocalRank(sync_on_compute=False))
    both = RankCollection([world])
    if rank != 1:
        both.add_metrics({"pair_mr": MeanRank(process_group=pair)})
    requested = {"both": both} if rank == 1 else {"within": within, "beside": beside, "both": both}
    for metrics in requested.values():
        update(metrics, BATCHES[rank])
    return {
        name: [bits(metrics.compute()), sharding.one_by_one(metrics)]
        for name, metrics in requested.items()
    }


def test_each_member_gathers_from_its_own_process_group(pool: WorkerPool) -> None:
    every, pair = of_one_process(BATCHES), of_one_process([HEAD, MORE])
    for rank, found in enumerate(pool.run(job_groups, PROCESSES)):
        if rank == 1:
            assert found == {"both": [{"mr": every["mr"]}] * 2}
            continue
        own = of_one_process([BATCHES[rank]])
        assert found["within"] == [pair] * 2
        assert found["beside"] == [{"mr": pair["mr"], "mrr": own["mrr"]}] * 2
        assert found["both"] == [{"mr": every["mr"], "pair_mr": pair["mr"]}] * 2


def job_steps(rank: int) -> list[dict[str, str]]:
    ranks = Ranks(torch.tensor([rank + 1]), None, 9)
    step = collection(dist_sync_on_step=True).forward(ranks, side="head")
    metric = MeanRank(dist_sync_on_step=True)
    return [bits(step), bits({"mr": metric(ranks)}), bits({"mr": metric.compute()})]


def test_dist_sync_on_step_gives_the_values_of_every_process_in_forward(pool: WorkerPool) -> None:
    every = of_one_process([batch([(1, 1, 9), (2, 2, 9), (3, 3, 9)], "head")])
    for step, metric_step, after in pool.run(job_steps, PROCESSES):
        assert step == every
        assert metric_step == after == {"mr": every["mr"]}


def job_steps_of_members(rank: int) -> list[dict[str, str]]:
    """Of members that synchronize in forward, and of others, in both orders."""
    found = []
    for names in (("each", "all"), ("all", "each")):
        options = {"each": False, "all": True}
        metrics = RankCollection(
            {name: MeanRank(dist_sync_on_step=options[name]) for name in names}
        )
        step = bits(metrics(Ranks([rank + 1], None, 9), sample_id=[rank]))
        caches = {key: one._forward_cache for key, one in metrics.items(copy_state=False)}
        assert bits(caches) == step
        found += [step, bits(metrics.compute())]
    return found


def test_forward_synchronizes_each_member_by_its_own_options(pool: WorkerPool) -> None:
    for rank, found in enumerate(pool.run(job_steps_of_members, [(0,), (1,)])):
        own, both = float(rank + 1).hex(), (1.5).hex()
        step, total = {"each": own, "all": both}, {"each": both, "all": both}
        assert found == [step, total, step, total]
