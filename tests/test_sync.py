"""The value of one process, for any number of processes and any way the data fell on them, after one gather."""

import functools
import os
import pickle
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import distributed as dist
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from distributed import WorkerError, WorkerPool
from torchrankmetrics import (
    AdjustedMeanReciprocalRank,
    MeanRank,
    MeanReciprocalRank,
    RankCollection,
    RankMetricWarning,
    Ranks,
)

STORAGES = ("ranks", "counts")
NAMES = ("mrr", "mr", "hits_at_1", "hits_at_3", "amri", "amr", "adjusted_mrr", "z_mrr", "adjusted_hits_at_3", "z_mr")
NAMES += ("gmr", "hmr", "imr", "median_rank", "rank_std", "rank_mad", "tie_rate", "count", "optimistic_mr")
NAMES += ("pessimistic_mrr", "expected_mrr", "head_mrr", "tail_amri")
COLLECTIVES = ("barrier", "all_gather", "all_reduce", "all_gather_into_tensor", "all_gather_object", "broadcast")

Batch = dict[str, Any]  # the arguments of one update, as plain data
Shard = list[Batch]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(4)
    yield pool
    pool.close()


# ---------------------------------------------------------------------------------------------------- data and oracle


def batch(tasks: list[tuple[int, ...]], side: str | None = None, **columns: Any) -> Batch:
    """Tasks as (optimistic, pessimistic, num_candidates); columns as lists."""
    return {"tasks": tasks, "side": side, **columns}


def update(metric: Any, one: Batch) -> None:
    optimistic, pessimistic, num_candidates = (
        torch.tensor([task[i] for task in one["tasks"]], dtype=torch.int64) for i in range(3)
    )
    columns = {name: torch.tensor(one[name]) for name in ("group", "weight", "sample_id") if name in one}
    metric.update(Ranks(optimistic, pessimistic, num_candidates), side=one["side"], **columns)


def collection(storage: str = "ranks", names: Any = NAMES, macro: bool = False, **kwargs: Any) -> RankCollection:
    metrics = RankCollection(list(names), storage=storage, **kwargs)
    if macro:
        metrics.add_metrics({"macro_mrr": MeanReciprocalRank(average="macro", **kwargs)})
    return metrics


def bits(values: dict[str, torch.Tensor]) -> dict[str, str]:
    assert all(value.dtype == torch.float64 and value.ndim == 0 for value in values.values())
    return {key: value.item().hex() for key, value in values.items()}


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@functools.cache
def alone(names: tuple[str, ...], macro: bool) -> RankCollection:
    return collection(names=names, macro=macro)


def of_one_process(batches: Shard, names: Any = NAMES, macro: bool = False) -> dict[str, str]:
    metrics = alone(tuple(names), macro)
    metrics.reset()
    with quiet():
        for one in batches:
            update(metrics, one)
        return bits(metrics.compute())


HEAD = batch([(1, 1, 9), (2, 4, 12), (7, 7, 7)], "head")
TAIL = batch([(3, 3, 9), (5, 6, 30)], "tail")
MORE = batch([(2, 2, 14), (1, 3, 3), (4, 4, 9)], "tail")


@st.composite
def shardings(draw: st.DrawFn, max_size: int = 4) -> tuple[Shard, list[Shard]]:
    """Tasks in one batch per side, and the same tasks spread over processes in batches, some of them repeated."""
    size = draw(st.integers(1, max_size))
    number = draw(st.integers(0, 12))
    tasks, columns = [], []
    named = draw(st.booleans())
    for index in range(number):
        candidates = draw(st.integers(1, 40))
        low = draw(st.integers(1, candidates))
        tasks.append((low, draw(st.integers(low, candidates)), candidates))
        weight = draw(st.sampled_from([0.1, 1.0, 2.5, 1 / 3]))
        columns.append({"group": draw(st.integers(-3, 3)), "weight": weight, "sample_id": index})
    sides = [draw(st.sampled_from(["head", "tail"])) for _ in range(number)]

    def as_batches(indices: list[int]) -> Shard:
        found = []
        for side in ("head", "tail"):
            chosen = [i for i in indices if sides[i] == side]
            names = ("group", "weight", "sample_id") if named else ("group", "weight")
            if chosen:
                found.append(
                    batch([tasks[i] for i in chosen], side, **{n: [columns[i][n] for i in chosen] for n in names})
                )
        return found

    shards: list[Shard] = [[] for _ in range(size)]
    places = [draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=2 if named else 1)) for _ in range(number)]
    for rank in range(size):
        mine = [i for i in range(number) for place in places[i] if place == rank]  # twice the same place: a repeat, too
        mine = draw(st.permutations(mine))
        cut = draw(st.integers(0, len(mine)))
        shards[rank] = as_batches(list(mine[:cut])) + as_batches(list(mine[cut:]))
    return as_batches(list(range(number))), shards


# ---------------------------------------------------------------------------------------------------- what is computed


def job_values(shard: Shard, storage: str, macro: bool) -> list[dict[str, str]]:
    """Values of the collection, of its members one by one, and of the table's tasks, on this process."""
    metrics = collection(storage, macro=macro)
    with quiet():
        for one in shard:
            update(metrics, one)
        together = bits(metrics.compute())
        one_by_one = bits({str(key): member.compute() for key, member in metrics.items(copy_state=False)})
        assert together == bits(metrics.compute())
        return [together, one_by_one, {"tasks": str(metrics.table().num_tasks)}]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@example(drawn=([HEAD, TAIL], [[], [], [], [HEAD, TAIL]]), storage="ranks")
@example(drawn=([], [[], []]), storage="counts")
@given(drawn=shardings(), storage=st.sampled_from(STORAGES))
def test_any_sharding_has_the_bits_of_one_process(
    pool: WorkerPool, drawn: tuple[Shard, list[Shard]], storage: str
) -> None:
    whole, shards = drawn
    macro = bool(whole) and all("group" in one for one in whole)
    expected = of_one_process(whole, macro=macro)
    tasks = {"tasks": str(sum(len(one["tasks"]) for one in whole))}
    for together, one_by_one, counted in pool.run(job_values, [(shard, storage, macro) for shard in shards]):
        assert together == expected
        assert one_by_one == expected
        assert counted == tasks


@settings(max_examples=40, deadline=None)
@given(drawn=shardings(max_size=6), storage=st.sampled_from(STORAGES))
def test_any_sharding_with_a_gather_of_ones_own(drawn: tuple[Shard, list[Shard]], storage: str) -> None:
    """Many draws, no processes: the replaced gather hands each the rows of all."""
    whole, shards = drawn
    macro = bool(whole)
    everybody: list[torch.Tensor] = []
    handed: list[torch.Tensor] = []

    def gather(rows: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
        handed.append(rows)
        return everybody

    for shard in shards:
        alone = collection(storage, names=["mr"])
        with quiet():
            for one in shard:
                update(alone, one)
        everybody.append(alone["mr"]._local_rows())
    metrics = collection(storage, macro=macro, dist_sync_fn=gather, distributed_available_fn=lambda: True)
    with quiet():
        for one in shards[-1]:
            update(metrics, one)
        assert bits(metrics.compute()) == of_one_process(whole, macro=macro)
        assert len(handed) == 1
        for member in metrics.values(copy_state=False):
            member.compute()
    assert all(rows.dtype == torch.int64 and rows.ndim == 2 and rows.shape[1] == 8 for rows in handed)  # no votes


# ------------------------------------------------------------------------------------------------- what it costs


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the collectives that are called inside."""
    calls: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in COLLECTIVES}

    def wrap(name: str) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return originals[name](*args, **kwargs)

        return wrapped

    for name in COLLECTIVES:
        setattr(dist, name, wrap(name))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def job_calls(shard: Shard, storage: str) -> dict[str, dict[str, int]]:
    forty = [f"hits_at_{k}" for k in range(1, 41)]
    found: dict[str, dict[str, int]] = {}
    for name, metrics in {
        "one": collection(storage, ["mrr"]),
        "forty": collection(storage, forty),
        "metric": MeanReciprocalRank(storage=storage),
    }.items():
        for one in shard:
            update(metrics, one)
        with counted() as calls:
            metrics.compute()
        found[name] = dict(calls)
    metrics = collection(storage, forty)
    for one in shard:
        update(metrics, one)
    with counted() as calls:
        for member in metrics.values(copy_state=False):
            member.compute()
    found["one by one"] = dict(calls)
    for name in ("table", "summary"):
        with counted() as calls:
            getattr(metrics, name)()
        found[name] = dict(calls)
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_one_gather_for_any_number_of_metrics(pool: WorkerPool, storage: str) -> None:
    one_gather = {"barrier": 1, "all_gather": 2}
    for found in pool.run(job_calls, [([HEAD, TAIL], storage), ([], storage)]):
        for name in ("one", "forty", "metric", "table", "summary"):
            assert found[name] == one_gather, name
        # as Lightning asks: each member also asks with one integer whether the last gather is still right
        assert found["one by one"] == {**one_gather, "all_reduce": 40}


# ------------------------------------------------------------------------------------------ the life of a metric


def job_life(shard: Shard, later: Shard, storage: str) -> dict[str, dict[str, str]]:
    """What happens between updates and computes, seen from one process."""
    found = {}
    metrics = collection(storage)
    for one in shard:
        update(metrics, one)
    found["first"] = bits(metrics.compute())
    found["again"] = bits(metrics.compute())
    for one in later:
        update(metrics, one)
    found["later"] = bits(metrics.compute())
    copy, other = metrics.clone(), pickle.loads(pickle.dumps(metrics))
    found["clone"], found["pickle"] = bits(copy.compute()), bits(other.compute())
    metrics.reset()
    for one in shard:
        update(metrics, one)
    found["reset"] = bits(metrics.compute())

    merged, incoming = collection(storage), collection(storage)
    for one in shard:
        update(merged, one)
    found["before merge"] = bits(merged.compute())
    for one in later:
        update(incoming, one)
    merged.merge_state(incoming)
    found["merged"] = bits(merged.compute())
    return found


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    "later",
    [([MORE], []), ([], [MORE]), ([batch(MORE["tasks"][:1], "tail")], [batch(MORE["tasks"][1:], "tail")])],
    ids=["first process", "second process", "both"],
)
def test_compute_update_compute(pool: WorkerPool, storage: str, later: tuple[Shard, Shard]) -> None:
    first, then = of_one_process([HEAD, TAIL]), of_one_process([HEAD, TAIL, MORE])
    for found in pool.run(job_life, [([HEAD], later[0], storage), ([TAIL], later[1], storage)]):
        for name in ("first", "again", "reset", "before merge"):
            assert found[name] == first, name
        for name in ("later", "clone", "pickle", "merged"):
            assert found[name] == then, name


def job_update_between_members(updates: bool, resets: bool) -> list[dict[str, str]]:
    metrics = collection(names=["mrr", "mr", "hits_at_3"])
    update(metrics, HEAD)
    members = list(metrics.values(copy_state=False))
    found = [members[0].compute(), members[1].compute()]
    if updates:
        update(metrics, MORE)
    found += [member.compute() for member in members]
    if resets:
        metrics.reset()
        update(metrics, TAIL)
    found += [member.compute() for member in members]
    return [bits({str(i): value}) for i, value in enumerate(found)]


def test_an_update_on_one_process_between_two_members(pool: WorkerPool) -> None:
    """One process alone must neither gather (a hang) nor reuse (a stale value)."""
    names = ["mrr", "mr", "hits_at_3"]
    stages = [[HEAD, HEAD], [HEAD, MORE, HEAD], [HEAD, MORE, TAIL]]
    before, then, last = (list(of_one_process(stage, names=names).values()) for stage in stages)
    expected = [*before[:2], *then, *last]
    for found in pool.run(job_update_between_members, [(True, False), (False, True)]):
        assert [next(iter(value.values())) for value in found] == expected


def job_sync_unsync(shard: Shard) -> dict[str, Any]:
    metric = MeanReciprocalRank()
    for one in shard:
        update(metric, one)
    own = metric.rows
    metric.sync()
    synced = int(sum(len(block) for block in metric.rows))
    errors = []
    for call in (metric.sync, lambda: update(metric, MORE), lambda: metric.forward(Ranks([1], None, 3))):
        try:
            call()
        except TorchMetricsUserError as error:
            errors.append(str(error))
    metric.unsync()
    assert metric.rows is own
    try:
        metric.unsync()
    except TorchMetricsUserError as error:
        errors.append(str(error))

    metrics = collection()
    for one in shard:
        update(metrics, one)
    first = next(iter(metrics.values(copy_state=False)))
    first.sync()
    others = bits({str(key): member.compute() for key, member in list(metrics.items(copy_state=False))[1:]})
    try:
        update(metrics, MORE)
    except TorchMetricsUserError as error:
        errors.append(str(error))
    first.unsync()
    return {"synced": synced, "errors": errors, "others": others, "after": bits(metrics.compute())}


def test_sync_and_unsync(pool: WorkerPool) -> None:
    expected = of_one_process([HEAD, TAIL])
    for found in pool.run(job_sync_unsync, [([HEAD],), ([TAIL],), ([],)]):
        assert found["synced"] == 5
        assert len(found["errors"]) == 5
        assert found["others"] == {key: value for key, value in expected.items() if key != "mrr"}
        assert found["after"] == expected


# ------------------------------------------------------------------------------------------------ options of the host


def job_options(rank: int) -> dict[str, Any]:
    shard = [HEAD, TAIL, MORE][rank]
    found: dict[str, Any] = {}
    alone = collection(sync_on_compute=False)
    update(alone, shard)
    found["alone"] = bits(alone.compute())

    on_cpu = collection(compute_on_cpu=True)
    update(on_cpu, shard)
    found["on cpu"] = bits(on_cpu.compute())

    pair = dist.new_group([0, 2])
    if rank != 1:
        grouped = collection(process_group=pair)
        update(grouped, shard)
        found["pair"] = bits(grouped.compute())
        found["pair one by one"] = bits({str(k): m.compute() for k, m in grouped.items(copy_state=False)})
        mixed = RankCollection([MeanRank(process_group=pair)])
        mixed.add_metrics(MeanReciprocalRank(sync_on_compute=False))
        update(mixed, shard)
        found["mixed"] = bits(mixed.compute())
        found["mixed one by one"] = bits({str(k): m.compute() for k, m in mixed.items(copy_state=False)})
    world_and_pair = RankCollection([MeanRank()])
    if rank != 1:
        world_and_pair.add_metrics({"pair_mr": MeanRank(process_group=pair)})
    update(world_and_pair, shard)
    found["world and pair"] = bits(world_and_pair.compute())
    found["world and pair one by one"] = bits({str(k): m.compute() for k, m in world_and_pair.items(copy_state=False)})

    handed = []

    def gather(rows: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
        handed.append(tuple(rows.shape))
        return gather_all_tensors(rows, group)

    custom = collection(dist_sync_fn=gather)
    update(custom, shard)
    found["custom"] = bits(custom.compute())
    found["handed"] = handed

    step = collection(dist_sync_on_step=True)
    found["step"] = bits(step.forward(Ranks(torch.tensor([rank + 1]), None, 9), side="head"))
    metric = MeanRank(dist_sync_on_step=True)
    found["metric step"] = bits({"mr": metric(Ranks(torch.tensor([rank + 1]), None, 9))})
    found["after steps"] = bits({"mr": metric.compute()})
    return found


def test_options_of_torchmetrics(pool: WorkerPool) -> None:
    shards = [HEAD, TAIL, MORE]
    every, pair = of_one_process(shards), of_one_process([HEAD, MORE])
    steps = of_one_process([batch([(1, 1, 9), (2, 2, 9), (3, 3, 9)], "head")])
    for rank, found in enumerate(pool.run(job_options, [(0,), (1,), (2,)])):
        own = of_one_process([shards[rank]])
        assert found["alone"] == own
        assert found["on cpu"] == every
        assert found["custom"] == every
        assert found["handed"] == [(len(shards[rank]["tasks"]), 8)]
        assert found["step"] == steps
        assert found["metric step"] == {"mr": steps["mr"]}
        assert found["after steps"] == {"mr": steps["mr"]}
        assert found["world and pair"]["mr"] == every["mr"]
        assert found["world and pair one by one"] == found["world and pair"]
        if rank != 1:
            assert found["pair"] == found["pair one by one"] == pair
            assert found["mixed"] == found["mixed one by one"] == {"mr": pair["mr"], "mrr": own["mrr"]}
            assert found["world and pair"]["pair_mr"] == pair["mr"]


def job_repeats(ranks: list[int]) -> tuple[list[str], float]:
    metric = AdjustedMeanReciprocalRank()
    metric.update(Ranks(torch.tensor(ranks), None, 9), sample_id=torch.arange(len(ranks)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = metric.compute().item()
    return [str(entry.message) for entry in caught if entry.category is RankMetricWarning], value


def test_repeats_that_differ_are_told(pool: WorkerPool) -> None:
    expected = AdjustedMeanReciprocalRank()
    expected.update(Ranks(torch.tensor([1, 2, 3, 5]), None, 9))
    for messages, value in pool.run(job_repeats, [([1, 4, 3, 5],), ([1, 2, 6],)]):
        assert len(messages) == 1
        assert messages[0].startswith("2 repeated (side, sample_id) came with different ranks")
        assert value == expected.compute().item()
    for messages, value in pool.run(job_repeats, [([1, 2, 3, 5],), ([1, 2, 3],)]):
        assert messages == []
        assert value == expected.compute().item()


def test_padding_of_eleven_samples_on_two_processes(pool: WorkerPool) -> None:
    """torch's DistributedSampler gives both processes six samples: the first one counts twice without its id."""
    ranks = [3, 1, 8, 2, 9, 7, 4, 6, 5, 2, 3]
    shards = [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 0]]
    expected = np.mean([1 / rank for rank in ranks])
    for with_id in (True, False):
        arguments = [
            ([{**batch([(ranks[i], ranks[i], 9) for i in shard]), **({"sample_id": shard} if with_id else {})}],)
            for shard in shards
        ]
        for value in pool.run(job_mrr, arguments):
            assert (abs(value - expected) < 1e-12) == with_id


def job_mrr(shard: Shard) -> float:
    metric = MeanReciprocalRank()
    for one in shard:
        update(metric, one)
    return metric.compute().item()


# --------------------------------------------------------------------------------------------------- inference mode


def job_inference(shard: Shard, later: Shard, storage: str) -> list[dict[str, str]]:
    """What Lightning does on NCCL: update and compute inside, then life goes on outside."""
    found = []
    metrics = collection(storage)
    with torch.inference_mode():
        for one in shard:
            update(metrics, one)
        found.append(bits(metrics.compute()))
        found.append(bits({str(key): member.compute() for key, member in metrics.items(copy_state=False)}))
    found.append(bits(metrics.compute()))
    for one in later:
        update(metrics, one)
    for inside in (True, False):
        with torch.inference_mode() if inside else nullcontext():
            found.append(bits(metrics.compute()))
            found.append(bits(pickle.loads(pickle.dumps(metrics)).compute()))
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_inside_inference_mode(pool: WorkerPool, storage: str) -> None:
    first, then = of_one_process([HEAD, TAIL]), of_one_process([HEAD, TAIL, MORE])
    for found in pool.run(job_inference, [([HEAD], [], storage), ([TAIL], [MORE], storage)]):
        assert found == [first] * 3 + [then] * 4


# ------------------------------------------------------------------------------------------------------- faults


def job_bad_input(bad: bool) -> tuple[str, dict[str, str], int]:
    metrics = collection(names=["mrr", "mr"])
    update(metrics, HEAD)
    error = ""
    if bad:
        try:
            metrics.update(torch.zeros(2, 3), torch.tensor([0, 7]))
        except IndexError as raised:
            error = str(raised)
    return error, bits(metrics.compute()), next(iter(metrics.values(copy_state=False))).update_count


def test_bad_input_on_one_process_leaves_its_state(pool: WorkerPool) -> None:
    expected = of_one_process([HEAD, HEAD], names=["mrr", "mr"])
    found = pool.run(job_bad_input, [(True,), (False,)])
    assert "target" in found[0][0]
    assert [(values, count) for _, values, count in found] == [(expected, 1)] * 2


def job_dies(rank: int, one_by_one: bool) -> tuple[str, dict[str, str]]:
    metrics = collection(names=["mrr", "mr"])
    update(metrics, HEAD)
    if rank == 1:
        os._exit(1)
    try:
        if one_by_one:
            next(iter(metrics.values(copy_state=False))).compute()
        else:
            metrics.compute()
    except RuntimeError as error:
        message = str(error)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return message, bits(metrics.compute())


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_process_that_dies_is_an_error_of_torch(one_by_one: bool) -> None:
    pool = WorkerPool(2, collective_timeout=5)
    message, after = pool.run(job_dies, [(0, one_by_one), (1, one_by_one)], dies=1)[0]
    pool.close()
    assert message
    assert after == of_one_process([HEAD], names=["mrr", "mr"])  # the state is as it was


def job_never_computes(rank: int) -> str:
    metric = MeanReciprocalRank()
    update(metric, HEAD)
    if rank == 0:
        try:
            metric.compute()
        except RuntimeError as error:
            assert not metric._is_synced
            assert len(metric.rows) == 1
            raise RuntimeError(f"torch said: {error}") from None
    return ""


def test_a_process_that_never_computes_is_an_error_of_torch() -> None:
    pool = WorkerPool(2, collective_timeout=2)
    with pytest.raises(WorkerError, match="torch said: "):
        pool.run(job_never_computes, [(0,), (1,)])
    pool.close()
