"""What goes wrong on one process: bad input, death, a compute that never comes."""

import torch

from bits import bits
from sharding import HEAD, collection, of_one_process, update
from worker_pool import WorkerPool


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
