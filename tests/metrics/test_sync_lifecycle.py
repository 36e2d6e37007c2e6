"""Updates, computes and copies on several processes, in any order: what a process does alone neither hangs nor lies."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from bits import bits
from sharding import EMPTY, HEAD, MORE, STORAGES, TAIL, Shard, batch, collection, of_one_process, one_by_one, update
from torchrankmetrics import MeanRank, MeanReciprocalRank, RankCollection, Ranks
from worker_pool import WorkerPool


def job_life(shard: Shard, later: Shard, storage: str, inside: bool) -> dict[str, dict[str, str]]:
    """What happens between updates and computes, seen from one process, some of it inside inference mode."""
    found = {}
    metrics = collection(storage)
    with torch.inference_mode(inside):
        update(metrics, *shard)
        found["first"] = bits(metrics.compute())
        found["first members"] = one_by_one(metrics)
    found["again"] = bits(metrics.compute())
    update(metrics, *later)
    with torch.inference_mode(inside):
        found["later"] = bits(metrics.compute())
        found["members"] = one_by_one(metrics)
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
    ids=["first process", "second process, inference mode", "both"],
)
def test_computes_between_updates_copies_and_merges_have_the_bits_of_one_process(
    pool: WorkerPool, storage: str, later: tuple[Shard, Shard], inside: bool
) -> None:
    first, then = of_one_process([HEAD, TAIL]), of_one_process([HEAD, TAIL, MORE])
    for found in pool.run(job_life, [([HEAD], later[0], storage, inside), ([TAIL], later[1], storage, inside)]):
        for name in ("first", "first members", "again", "reset", "before merge"):
            assert found.pop(name) == first, name
        assert found == dict.fromkeys(found, then)


def refused(*calls: Callable[[], Any]) -> list[bool]:
    """Whether each raises torchmetrics' own error."""
    found = []
    for call in calls:
        try:
            call()
        except TorchMetricsUserError:
            found.append(True)
        else:
            found.append(False)
    return found


def job_sync_unsync(shard: Shard) -> dict[str, Any]:
    metric = MeanReciprocalRank()
    update(metric, *shard)
    own = metric.rows
    metric.sync()
    synced = int(sum(len(block) for block in metric.rows))
    refusals = refused(metric.sync, lambda: update(metric, MORE), lambda: metric.forward(Ranks([1], None, 3)))
    metric.unsync()
    assert metric.rows is own
    refusals += refused(metric.unsync)

    metrics = collection()
    update(metrics, *shard)
    first, *others = metrics.values(copy_state=False)
    first.sync()
    values = bits({member.key: member.compute() for member in others})
    refusals += refused(lambda: update(metrics, MORE))
    first.unsync()
    return {"synced": synced, "refusals": refusals, "others": values, "after": bits(metrics.compute())}


def test_a_synced_metric_rejects_updates_and_unsync_gives_its_own_rows_back(pool: WorkerPool) -> None:
    expected = of_one_process([HEAD, TAIL])
    for found in pool.run(job_sync_unsync, [([HEAD],), ([TAIL],), ([],)]):
        assert found["synced"] == 5
        assert found["refusals"] == [True] * 5
        assert found["others"] == {key: value for key, value in expected.items() if key != "mrr"}
        assert found["after"] == expected


BATCHES = [HEAD, TAIL, MORE]  # one per process
PROCESSES = [(0,), (1,), (2,)]


def job_groups(rank: int) -> dict[str, list[dict[str, str]]]:
    """Values computed together and one by one, of collections within a pair of the processes, beside it, and both."""
    pair = dist.new_group([0, 2])
    within, beside, world = collection(process_group=pair), RankCollection([MeanRank(process_group=pair)]), MeanRank()
    beside.add_metrics(MeanReciprocalRank(sync_on_compute=False))
    both = RankCollection([world])
    if rank != 1:
        both.add_metrics({"pair_mr": MeanRank(process_group=pair)})
    requested = {"both": both} if rank == 1 else {"within": within, "beside": beside, "both": both}
    for metrics in requested.values():
        update(metrics, BATCHES[rank])
    return {name: [bits(metrics.compute()), one_by_one(metrics)] for name, metrics in requested.items()}


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
