"""Several threads update one metric, as a loader that ranks in the background does: no task is lost."""

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torchmetrics import MetricCollection

from torchrankmetrics import MeanRank, RankCollection, RankCount, Ranks
from torchrankmetrics.metrics import state as state_module

THREADS, UPDATES, TASKS = 8, 60, 64


@pytest.fixture(autouse=True)
def _often_merged_and_switched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(state_module, "_COMPACT_FROM", 1 << 10)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("storage", ["ranks", "counts"])
@pytest.mark.parametrize(
    "make",
    [
        RankCount,
        lambda **kw: RankCollection(["count", "mr"], **kw),
        # explicit groups: several first updates at once fail inside torchmetrics, which then looks for groups
        lambda **kw: MetricCollection(
            {"count": RankCount(**kw), "mr": MeanRank(**kw)}, compute_groups=[["count", "mr"]]
        ),
    ],
    ids=["metric", "collection", "plain collection"],
)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used and copied"])
def test_threads_lose_no_task(make: Callable[..., Any], storage: str, used: bool) -> None:
    metric = make(storage=storage)
    expected = THREADS * UPDATES * TASKS
    if used:
        for _ in range(2):
            metric.reset()
            metric(Ranks([1] * TASKS, None, 9))
        expected += TASKS
        metric = pickle.loads(pickle.dumps(metric.clone()))

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(UPDATES):
            metric.update(Ranks(torch.randint(1, 1000, (TASKS,), generator=generator), None, 1000))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = metric.compute()
    assert (found["count"] if isinstance(found, dict) else found) == expected
