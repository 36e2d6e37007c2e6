"""Null moments of every metric: time and error beside PyKEEN's expected_value and variance, in one run.

    python benchmarks/expectation.py [--samples 200] [--slow] [--json FILE]

Times are CPU seconds. Small sets have an exact reference by enumeration. Large sets have the shape of filtered
FB15k-237 and WN18RR counts, drawn at random; there PyKEEN's numbers are compared with ours. PyKEEN simulates where it
has no closed form (--samples).
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from torchrankmetrics.theory import definitions as d
from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.expectation.enumeration import enumeration
from torchrankmetrics.theory.expectation.exact import STRATEGIES, ExactExpectation

METRICS = {
    "arithmetic_mean_rank": d.MEAN_RANK,
    "inverse_harmonic_mean_rank": d.MEAN_RECIPROCAL_RANK,
    "hits_at_10": d.hits_at(10),
    "inverse_arithmetic_mean_rank": d.INVERSE_MEAN_RANK,
    "harmonic_mean_rank": d.HARMONIC_MEAN_RANK,
    "geometric_mean_rank": d.GEOMETRIC_MEAN_RANK,
    "inverse_geometric_mean_rank": d.INVERSE_GEOMETRIC_MEAN_RANK,
    "median_rank": d.MEDIAN_RANK,
    "inverse_median_rank": d.INVERSE_MEDIAN_RANK,
    "standard_deviation": d.RANK_STANDARD_DEVIATION,
    "variance": d.RANK_VARIANCE,
    None: d.power_mean_rank(2),
}


def timed(function: Callable[[], object]) -> tuple[object, float]:
    start = time.process_time()
    return function(), time.process_time() - start


def sets() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def shape(distinct: int, low: int, high: int, tasks: int) -> np.ndarray:
        values = np.r_[low, high, random.choice(np.arange(low + 1, high), distinct - 2, replace=False)]
        return np.r_[values, random.choice(values, tasks - distinct)]

    return {
        "small, odd": np.array([9, 4, 12, 7, 3]),
        "small, even": np.array([9, 4, 12, 7, 3, 5]),
        "like FB15k-237": shape(319, 10178, 14541, 40932),
        "like WN18RR": shape(107, 40434, 40943, 6268),
    }


def pykeen_moments(name: str, N: np.ndarray, samples: int) -> Moments | None:
    from pykeen.metrics.ranking import HitsAtK, rank_based_metric_resolver

    metric = HitsAtK(k=10) if name == "hits_at_10" else rank_based_metric_resolver.make(name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Moments(
                float(metric.expected_value(N, num_samples=samples)),
                float(metric.variance(N, num_samples=samples)),
            )
    except (NotImplementedError, ValueError, RuntimeError):
        return None


def errors(result: Moments, reference: Moments) -> list[float]:
    return [abs(result.mean / reference.mean - 1), abs(result.variance / reference.variance - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200, help="PyKEEN's Monte Carlo samples where it has no formula")
    parser.add_argument("--slow", action="store_true", help="also what takes PyKEEN minutes")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(
        f"{'set':16s}{'metric':20s}{'ours s':>8s}{'err E':>9s}{'err V':>9s}{'PyKEEN s':>10s}{'err E':>9s}{'err V':>9s}"
    )
    for label, N in sets().items():
        counts = CandidateCounts.of(N)
        for name, metric in METRICS.items():
            ours, seconds = timed(lambda m=metric, c=counts: ExactExpectation().moments(m, c))
            exact = enumeration(metric, counts)
            reference = exact or ours
            quadrature = ours
            if exact:  # what the strategies give on their own, without the enumeration that serves small sets
                direct = (s(metric, counts) for s in STRATEGIES if s is not enumeration)
                quadrature = next(result for result in direct if result is not None)
            row = {"set": label, "metric": metric.name, "seconds": seconds}
            row["error"] = errors(quadrature, exact) if exact else None
            slow = "geometric" in (name or "") or name in (
                "inverse_arithmetic_mean_rank", "harmonic_mean_rank", "standard_deviation", "variance"
            )  # fmt: skip
            theirs, row["pykeen_seconds"] = None, None
            if name and (arguments.slow or exact or not slow):
                theirs, row["pykeen_seconds"] = timed(lambda n=name, N=N: pykeen_moments(n, N, arguments.samples))
            row["pykeen_error"] = errors(theirs, reference) if theirs else None
            rows.append(row)
            print(format_row(row))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def format_row(row: dict) -> str:
    own = "".join(f"{e:9.1e}" for e in row["error"]) if row["error"] else f"{'':>18s}"
    theirs = "".join(f"{e:9.1e}" for e in row["pykeen_error"]) if row["pykeen_error"] else ""
    seconds = f"{row['pykeen_seconds']:10.3f}" if row["pykeen_seconds"] is not None else f"{'-':>10s}"
    return f"{row['set']:16s}{row['metric']:20s}{row['seconds']:8.3f}{own}{seconds}{theirs}"


if __name__ == "__main__":
    main()
