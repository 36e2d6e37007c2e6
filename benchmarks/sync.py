"""What ``compute`` of 20 metrics costs on two processes: collectives and time, next to a plain ``MetricCollection``.

    python -m benchmarks.sync [--tasks 100000] [--metrics 20] [--repeats 5]

Ways: a ``RankCollection``, its members one by one (as Lightning's ``log_dict`` asks), the same ``RankMetric`` objects
in a plain ``MetricCollection``, and there metrics as one would write them on torchmetrics alone, with three list
states. Every gather of torchmetrics is one barrier and two calls of ``all_gather``: of the shapes, and of the data.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from torchrankmetrics import HitsAtK, RankCollection, Ranks

COLLECTIVES = ("barrier", "all_gather")
CANDIDATES = 14541


class PlainHits(Metric):
    """Hits at k on torchmetrics alone: optimistic and pessimistic ranks and candidate counts as list states."""

    full_state_update = False

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        for name in ("optimistic", "pessimistic", "num_candidates"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, ranks: Ranks) -> None:
        """Keep the ranks."""
        self.optimistic.append(ranks.optimistic)
        self.pessimistic.append(ranks.pessimistic)
        self.num_candidates.append(ranks.num_candidates)

    def compute(self) -> Tensor:
        """Share of realistic ranks up to k."""
        realistic = (dim_zero_cat(self.optimistic) + dim_zero_cat(self.pessimistic)) / 2
        return (realistic <= self.k).double().mean()


def members_one_by_one(metrics: RankCollection) -> dict[str, Tensor]:
    """Compute as Lightning does with a collection that is logged."""
    return {str(key): member.compute() for key, member in metrics.items(copy_state=False)}


def ways(number: int) -> dict[str, tuple[Any, Callable[[Any], dict[str, Tensor]]]]:
    """Name -> (collection, how its values are asked for)."""
    ks = range(1, number + 1)
    names = [f"hits_at_{k}" for k in ks]
    return {
        "RankCollection": (RankCollection(names), lambda metrics: metrics.compute()),
        "RankCollection, member by member": (RankCollection(names), members_one_by_one),
        "plain collection of RankMetric": (
            MetricCollection({name: HitsAtK(k) for name, k in zip(names, ks, strict=True)}),
            lambda metrics: metrics.compute(),
        ),
        "plain collection, 3 states each": (
            MetricCollection({name: PlainHits(k) for name, k in zip(names, ks, strict=True)}),
            lambda metrics: metrics.compute(),
        ),
    }


def measure(rank: int, store: str, tasks: int, number: int, repeats: int) -> None:
    """Run all ways on one process; the first prints."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    calls: Counter[str] = Counter()
    for name in COLLECTIVES:
        setattr(distributed, name, _counted(name, getattr(distributed, name), calls))
    generator = torch.Generator().manual_seed(rank)
    batches = [torch.randint(1, CANDIDATES + 1, (size,), generator=generator) for size in [1024] * (tasks // 2048)]
    reference: dict[str, Tensor] = {}
    if rank == 0:
        print(f"{number} metrics, 2 processes, {2 * 1024 * len(batches)} tasks, median of {repeats}")
        print(f"{'':34}{'barriers':>9}{'all_gather':>12}{'ms':>9}")
    for name, (metrics, compute) in ways(number).items():
        times = []
        for _ in range(repeats):
            metrics.reset()
            for batch in batches:
                metrics.update(Ranks(batch, None, CANDIDATES))
            distributed.barrier()
            calls.clear()
            start = time.perf_counter()
            values = compute(metrics)
            times.append(time.perf_counter() - start)
        reference = reference or values
        assert all(abs(values[key] - value) < 1e-12 for key, value in reference.items())
        if rank == 0:
            row = "".join(f"{calls[call]:>{width}}" for call, width in zip(COLLECTIVES, (9, 12), strict=True))
            print(f"{name:34}{row}{1000 * statistics.median(times):>9.1f}")
    distributed.destroy_process_group()


def _counted(name: str, original: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return original(*args, **kwargs)

    return wrapped


def main() -> None:
    """Start two processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--metrics", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store").as_uri()
        torch.multiprocessing.spawn(measure, (store, args.tasks, args.metrics, args.repeats), nprocs=2)


if __name__ == "__main__":
    main()
