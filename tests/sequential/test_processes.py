"""Evaluations that end early in several processes: all stop at the same batch, with the bits of one."""

import math

import pytest
import torch

from checkpoints import TRIPLES, Model, decide, full
from torchrankmetrics.sequential import SequentialEvaluation
from worker_pool import WorkerPool


def job(several):
    group = torch.distributed.group.WORLD if several else None
    strong, weak = Model(2.0, seed=1), Model(1.0)
    results = []
    for options in ({"baseline": full(weak)}, {"score_baseline": weak.both}, {"half_width": 0.07}):
        strong.requested = []
        found = decide(strong, process_group=group, batch_size=5, **options)
        results.append((found.answer, found.estimate, found.low, found.high, found.num_queries))
        results.append((found.table.rows.tolist(), len(strong.requested)))
    if several:
        of_the_first = torch.distributed.new_group([0])
        if torch.distributed.get_rank() == 1:
            with pytest.raises(ValueError, match="a group that this process is part of"):
                SequentialEvaluation(len(TRIPLES), threshold=0.2, process_group=of_the_first)
    until = SequentialEvaluation(len(TRIPLES), threshold=0.2, process_group=group)
    for tasks in until.batches(3):  # of which some have none for some processes
        h, r, t = TRIPLES[tasks].T
        until.update(strong.noise[0, h, r], t, sample_id=tasks)
    results.append((until.decision.estimate, until.decision.num_tasks))
    return results


def test_every_process_stops_at_the_same_batch_with_the_bits_of_one():
    alone, workers = job(False), WorkerPool(2)
    try:
        together = workers.run(job, [(True,), (True,)])
    finally:
        workers.close()
    for process in together:
        for mine, expected in zip(process, alone, strict=True):
            assert mine[0] == expected[0]
            assert mine[1:] == expected[1:] or isinstance(mine[0], list)  # there the number of queries is its own
    for i in (1, 3, 5):
        shared, whole = [process[i][1] for process in together], alone[i][1]
        assert sum(shared) >= whole
        assert max(shared) <= 3 * math.ceil(whole / 5)  # of batches of five
