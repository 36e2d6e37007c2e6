"""Coverage of confidence intervals: how often they hold the truth when a real rank vector is the population.

    python -m benchmarks.interval_coverage TABLE.npz... [--samples 1000] [--tasks 200 2000] [--clusters 100 500]

TABLE.npz is a `RankTable` saved after an evaluation; with the query as group, clustered intervals are covered too.
Tasks (or queries, with all their answers) are drawn with replacement; the truth is the value on the whole table.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from torchrankmetrics import RankCollection, Ranks, RankTable

METRICS = ["mr", "mrr", "hits@1", "hits@10", "gmr", "amri"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--tasks", type=int, nargs="*", default=[200, 2000])
    parser.add_argument("--clusters", type=int, nargs="*", default=[100, 500])
    parser.add_argument("--confidence-level", type=float, default=0.95)
    parser.add_argument("--method", choices=("normal", "bootstrap"), default="normal")
    args = parser.parse_args()
    error = math.sqrt(args.confidence_level * (1 - args.confidence_level) / args.samples)
    print(
        f"level {args.confidence_level}, {args.method}, {args.samples} samples: standard error of coverage {error:.4f}"
    )
    for path in args.tables:
        table = RankTable.load(path)
        for size in args.tasks:
            report(path.stem, f"{size} tasks", table, size, False, args)
        if table.has_groups():
            for size in args.clusters:
                report(path.stem, f"{size} queries", table, size, True, args)


def report(name: str, size: str, table: RankTable, number: int, clustered: bool, args: argparse.Namespace) -> None:
    covered, effective = coverage(table, number, clustered, args.samples, args.confidence_level, args.method)
    shares = "  ".join(f"{key} {share:.3f}" for key, share in covered.items())
    print(
        f"{name:20} {size:12} {shares}" + (f"  (as good as {effective:.0f} of equal size, median)" if clustered else "")
    )


def coverage(
    table: RankTable, number: int, clustered: bool, samples: int, confidence_level: float = 0.95, method: str = "normal"
) -> tuple[dict[str, float], float]:
    """Share of samples whose interval holds the value of the whole table, by metric; median of effective clusters."""
    ranks = table.ranks
    arrays = [x.numpy() for x in (ranks.optimistic, ranks.pessimistic, ranks.num_candidates)]
    optimistic, pessimistic, counts = (np.repeat(x, table.count.numpy()) for x in arrays)
    population = RankCollection(METRICS)
    population.update(Ranks(torch.tensor(optimistic), torch.tensor(pessimistic), torch.tensor(counts)))
    truth = {key: float(value) for key, value in population.compute().items()}
    group = np.repeat(table.group.numpy(), table.count.numpy()) if clustered else np.arange(len(optimistic))
    order = np.argsort(group, kind="stable")
    _, first, sizes = np.unique(group[order], return_index=True, return_counts=True)
    generator = np.random.default_rng(0)
    covered, effective = dict.fromkeys(truth, 0), []
    for _ in tqdm(range(samples), leave=False):
        drawn = generator.integers(0, len(first), number)
        index = np.concatenate([order[first[i] : first[i] + sizes[i]] for i in drawn])
        clusters = torch.tensor(np.repeat(np.arange(number), sizes[drawn]))
        sample = RankCollection(METRICS)
        chosen = Ranks(*(torch.tensor(x[index]) for x in (optimistic, pessimistic, counts)))
        sample.update(chosen, group=clusters)
        found = sample.confidence_intervals(confidence_level, method, cluster="group" if clustered else None)
        for key, value in truth.items():
            covered[key] += found[key].low <= value <= found[key].high
        effective.append(found.effective_clusters or 0.0)
    return {key: count / samples for key, count in covered.items()}, float(np.median(effective))


if __name__ == "__main__":
    main()
