"""Null moments of every metric: time and error beside PyKEEN's expected_value and variance, in one run.

    python -m benchmarks.expectation [--samples 200] [--slow] [--json FILE]

Times are CPU seconds. Small sets have an exact reference by enumeration. Large sets have the shape of filtered
FB15k-237 and WN18RR counts, drawn at random; there PyKEEN's numbers are compared with ours. PyKEEN simulates where it
has no closed form (--samples).
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from benchmarks.pages import parser_of, write_json

from torchrankmetrics.theory import definitions as d
from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.expectation.enumeration import enumeration
from torchrankmetrics.theory.expectation.exact import STRATEGIES, ExactExpectation

METRICS = [  # with PyKEEN's key, None where it has no such metric
    (d.MEAN_RANK, "arithmetic_mean_rank"),
    (d.MEAN_RECIPROCAL_RANK, "inverse_harmonic_mean_rank"),
    (d.hits_at(10), "hits_at_10"),
    (d.INVERSE_MEAN_RANK, "inverse_arithmetic_mean_rank"),
    (d.HARMONIC_MEAN_RANK, "harmonic_mean_rank"),
    (d.GEOMETRIC_MEAN_RANK, "geometric_mean_rank"),
    (d.INVERSE_GEOMETRIC_MEAN_RANK, "inverse_geometric_mean_rank"),
    (d.MEDIAN_RANK, "median_rank"),
    (d.INVERSE_MEDIAN_RANK, "inverse_median_rank"),
    (d.RANK_STANDARD_DEVIATION, "standard_deviation"),
    (d.RANK_VARIANCE, "variance"),
    (d.power_mean_rank(2), None),
]
# for --slow: what takes PyKEEN minutes where there are many tasks
SLOW = {
    "inverse_arithmetic_mean_rank",
    "harmonic_mean_rank",
    "geometric_mean_rank",
    "inverse_geometric_mean_rank",
    "standard_deviation",
    "variance",
}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


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


def measured(definition: d.RankDefinition, key: str | None, N: np.ndarray, slow: bool, samples: int) -> dict[str, Any]:
    """One metric on one set: our time and errors, and PyKEEN's where it has the metric."""
    counts = CandidateCounts.of(N)
    ours, seconds = timed(lambda: ExactExpectation().moments(definition, counts))
    exact = enumeration(definition, counts)
    row = {"metric": definition.name, "seconds": seconds, "error": None, "pykeen_seconds": None, "pykeen_error": None}
    if exact:  # what the strategies give on their own, without the enumeration that serves small sets
        direct = (strategy(definition, counts) for strategy in STRATEGIES if strategy is not enumeration)
        row["error"] = errors(next(result for result in direct if result is not None), exact)
    if key and (slow or exact or key not in SLOW):
        theirs, row["pykeen_seconds"] = timed(lambda: pykeen_moments(key, N, samples))
        row["pykeen_error"] = errors(theirs, exact or ours) if theirs else None
    return row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=200, help="PyKEEN's Monte Carlo samples where it has no formula")
    parser.add_argument("--slow", action="store_true", help="also what takes PyKEEN minutes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print(
        f"{'set':16s}{'metric':20s}{'ours s':>8s}{'err E':>9s}{'err V':>9s}{'PyKEEN s':>10s}{'err E':>9s}{'err V':>9s}"
    )
    for label, N in sets().items():
        for definition, key in METRICS:
            rows.append({"set": label, **measured(definition, key, N, given.slow, given.samples)})
            print(format_row(rows[-1]))
    write_json(given.json, rows)


def format_row(row: dict[str, Any]) -> str:
    own = "".join(f"{e:9.1e}" for e in row["error"]) if row["error"] else f"{'':>18s}"
    theirs = "".join(f"{e:9.1e}" for e in row["pykeen_error"]) if row["pykeen_error"] else ""
    seconds = f"{row['pykeen_seconds']:10.3f}" if row["pykeen_seconds"] is not None else f"{'-':>10s}"
    return f"{row['set']:16s}{row['metric']:20s}{row['seconds']:8.3f}{own}{seconds}{theirs}"


if __name__ == "__main__":
    main()
