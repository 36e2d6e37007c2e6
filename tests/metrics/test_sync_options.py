"""The options of torchmetrics that decide who gathers, from whom, and when."""

import torch
from torch import distributed as dist

from bits import bits
from sharding import HEAD, MORE, TAIL, batch, collection, of_one_process, one_by_one, update
from torchrankmetrics import MeanRank, MeanReciprocalRank, RankCollection, Ranks
from worker_pool import WorkerPool

BATCHES = [HEAD, TAIL, MORE]  # one per process
PROCESSES = [(0,), (1,), (2,)]


def job_alone_and_on_cpu(rank: int) -> list[dict[str, str]]:
    alone, on_cpu = collection(sync_on_compute=False), collection(compute_on_cpu=True)
    for metrics in (alone, on_cpu):
        update(metrics, BATCHES[rank])
    return [bits(alone.compute()), bits(on_cpu.compute())]


def test_sync_on_compute_false_gives_the_values_of_this_process(pool: WorkerPool) -> None:
    every = of_one_process(BATCHES)
    for rank, (alone, on_cpu) in enumerate(pool.run(job_alone_and_on_cpu, PROCESSES)):
        assert alone == of_one_process([BATCHES[rank]])
        assert on_cpu == every


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
