"""What goes wrong on one process: bad input, death, a compute that never comes."""

import os

import pytest
import torch
from torch import distributed as dist

from bits import bits
from sharding import HEAD, collection, of_one_process, update
from torchrankmetrics import MeanReciprocalRank
from worker_pool import WorkerError, WorkerPool


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


def job_dies(rank: int, single: bool) -> tuple[str, dict[str, str]]:
    metrics = collection(names=["mrr", "mr"])
    update(metrics, HEAD)
    if rank == 1:
        os._exit(1)
    try:
        if single:
            next(iter(metrics.values(copy_state=False))).compute()
        else:
            metrics.compute()
    except RuntimeError as error:
        message = str(error)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return message, bits(metrics.compute())


@pytest.mark.parametrize("single", [False, True], ids=["collection", "single member"])
def test_a_process_that_dies_is_an_error_of_torch_and_rows_stay(single: bool) -> None:
    pool = WorkerPool(2, collective_timeout=5)
    message, after = pool.run(job_dies, [(0, single), (1, single)], dies=1)[0]
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
