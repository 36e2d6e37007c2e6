"""Coverage of confidence intervals and size of tests: simulated, and exact for hits.

python -m benchmarks.calibration [--draws 2000] [--workers 2] [--json PATH]     write the tables to
PATH.md too

Three populations of pairs of ranks among 14,505 candidates, 50,000 pairs each. The two ranks of a
pair have normal scores with correlation 0.7, mapped to the quantiles of the population:

- good: 92% at rank 1, the rest 1 + exp(3 + 2 z), z normal: a mean rank near 13 with a long tail;
- ordinary: 14% at rank 1, 39% near it (geometric), the rest exp(6 + 1.5 z): a mean rank near 550;
- bad: N Beta(0.6, 1): hardly better than random ranking.

"equal": the two models are exchanged at random on every task. "unequal": the normal scores of the
second model are shifted by 0.15. Tasks are drawn with replacement; the true value is that of the
whole population. Intervals have level 95%, tests 5%. The first samples of every cell are compared
with `RankCollection.confidence_intervals` and `compare`.

Weighted hits: samples of 10 to 300 independent tasks with seven shares of hits from 2% to 98%, and
weights that are equal, exponential, Pareto, or one over the size of a group (macro).

Dependent tasks: two exchangeable models on both sides of triples. The logarithms of ranks are
normal, with an effect of model and triple that both sides share; `compare` and intervals with the
default `cluster="auto"` and with `cluster=None`.

Other shapes: one model ranks every target 30th, the other one first in a query of 30 and last in
the others: the same mean reciprocal rank up to 0.0001, which is tested.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import parser_of, write_json
from scipy import optimize, special, stats
from tqdm import tqdm

from torchrankmetrics import (
    RankCollection,
    RankMetricWarning,
    Ranks,
    RankTable,
    compare,
    evaluate,
)
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.inference.clusters import Clusters
from torchrankmetrics.inference.flips import SignFlipTest
from torchrankmetrics.inference.intervals import LEAST_EFFECTIVE_TASKS
from torchrankmetrics.inference.standard_errors import (
    estimate,
    interval_through,
    redraws,
    share_effective_tasks,
    share_interval,
    studentized_interval,
    units_of,
)
from torchrankmetrics.inference.testing import (
    SeededModels,
    clopper_pearson,
    share_difference,
    share_difference_p_value,
)
from torchrankmetrics.metrics.names import parse_name

NUM_CANDIDATES, POOL = 14_505, 50_000
POPULATIONS, SIZES = ("good", "ordinary", "bad"), (30, 100, 500)
# f and g
MEANS = {
    "mr": (np.positive, np.positive),
    "mrr": (np.reciprocal, np.positive),
    "gmr": (np.log, np.exp),
}
SPREADS, HITS = ("median_rank", "rank_std"), (1, 10)
LEVEL, RESAMPLES, PERMUTATIONS, RUNS, CHECKED = 0.95, 499, 999, 3, 3
RESULTS = Path(__file__).parent / "results" / "calibration.json"
KEYS = ("kind", "metric", "method", "population", "size")
Row = dict[str, Any]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    results = simulated(given.draws, given.workers)
    print(tables(results))
    write_json(given.json, results)
    if given.json:
        given.json.with_suffix(".md").write_text(tables(results), encoding="utf-8")


def simulated(draws: int, workers: int) -> Row:
    """All cells: what is simulated, and what is exact."""
    cells = [(name, size, draws) for size in sorted(SIZES, reverse=True) for name in POPULATIONS]
    with ProcessPoolExecutor(workers) as pool:
        parts = list(tqdm(pool.map(cell, *zip(*cells, strict=True)), total=len(cells)))
        more = [(kind, size, draws) for kind in WEIGHTS for size in WEIGHTED_SIZES]
        weighted_rows = list(tqdm(pool.map(weighted, *zip(*more, strict=True)), total=len(more)))
        pairs = [(effect, size, draws // 10) for effect in EFFECTS for size in SIZES]
        dependent_rows = list(
            tqdm(pool.map(dependent, *zip(*pairs, strict=True)), total=len(pairs))
        )
    rows = [row for part in parts for row in part]
    return {
        "draws": draws,
        "confidence_level": LEVEL,
        "error": math.sqrt(LEVEL * (1 - LEVEL) / draws),
        "rows": sorted(rows, key=_place),
        "weighted": [row for part in weighted_rows for row in part],
        "dependent": [row for part in dependent_rows for row in part],
        "shapes": [shapes(size, draws // 4) for size in SHAPE_SIZES],
    }


def macro_weights(size: int) -> np.ndarray:
    """Weights of groups of 1, 2, 4, ... tasks, of which the last has the rest."""
    sizes = [1 << i for i in range(int(math.log2(size + 1)))]
    sizes[-1] += size - sum(sizes)
    return np.repeat(1 / np.array(sizes), sizes)


WEIGHTS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "equal": lambda rng, size: np.ones(size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "Pareto, exponent 2.5": lambda rng, size: 1 + rng.pareto(2.5, size=size),
    "Pareto, exponent 1.5": lambda rng, size: 1 + rng.pareto(1.5, size=size),
    "macro, groups of 1, 2, 4, ...": lambda rng, size: macro_weights(size),
}
WEIGHTED_SIZES, SHARES = (10, 30, 100, 300), (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)


def weighted(kind: str, size: int, draws: int) -> list[Row]:
    """Coverage of intervals of weighted hits, for each share of hits."""
    rng, ones, found = np.random.default_rng([size, *map(ord, kind)]), np.ones(size, np.int64), []
    for share in SHARES:
        covered = warned = 0
        for _ in range(draws):
            hit = (rng.random(size) < share).astype(np.float64)
            units = units_of(hit, WEIGHTS[kind](rng, size), ones)
            low, high = share_interval(units, LEVEL)
            covered += low - 1e-12 <= share <= high + 1e-12
            effective = share_effective_tasks(units, 0.0)
            warned += effective < LEAST_EFFECTIVE_TASKS
        about = {"weights": kind, "size": size, "share": share}
        found.append(
            about | {"draws": draws, "coverage": covered / draws, "warned": warned / draws}
        )
    return found


EFFECTS, DEPENDENT = (0.0, 1.0, 4.0), ("mrr", "mr", "hits@10")


def triples(rng: np.random.Generator, size: int, effect: float) -> RankTable:
    """Ranks of both sides of triples; ``effect``: their shared variance divided by the rest."""
    own, shared = rng.normal(size=(2, size)), rng.normal(size=size)
    score = math.sqrt(1 / (1 + effect)) * own + math.sqrt(effect / (1 + effect)) * shared
    rank = np.clip(np.ceil(np.exp(2 + 1.5 * score)), 1, NUM_CANDIDATES).astype(np.int64)
    ids = np.arange(size)
    return RankTable.concatenate(
        [
            RankTable.from_ranks(Ranks(one, None, NUM_CANDIDATES), side=side, sample_id=ids)
            for one, side in zip(rank, ("head", "tail"), strict=True)
        ]
    )


def dependent(effect: float, size: int, draws: int) -> list[Row]:
    """Size of tests and coverage of intervals of dependent tasks."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([int(effect), size])
    many = triples(np.random.default_rng(1), 1_000_000, 0.0)
    truth = evaluate(many, metrics=list(DEPENDENT))
    rejected: dict[Any, list[list[bool]]] = {"auto": [], None: []}
    covered: dict[Any, list[list[bool]]] = {"auto": [], None: []}
    for draw in range(draws):
        a, b = (triples(rng, size, effect) for _ in range(2))
        for cluster in rejected:
            test, _ = quietly(
                partial(compare, a, b, DEPENDENT, cluster=cluster, permutations=999, seed=draw)
            )
            rejected[cluster].append([row.p_value <= 1 - LEVEL + 1e-12 for row in test.rows])
            rows, _ = quietly(partial(a.confidence_intervals, DEPENDENT, LEVEL, cluster=cluster))
            covered[cluster].append([row.low <= truth[row.metric] <= row.high for row in rows.rows])
    return [
        {
            "effect": effect,
            "size": size,
            "metric": metric,
            "cluster": cluster,
            "draws": draws,
            "rejected": float(np.mean(rejected[cluster], 0)[i]),
            "coverage": float(np.mean(covered[cluster], 0)[i]),
        }
        for cluster in rejected
        for i, metric in enumerate(DEPENDENT)
    ]


def _place(row: Row) -> tuple[Any, ...]:
    return (
        row["kind"],
        row["metric"],
        row["method"],
        POPULATIONS.index(row["population"]),
        row["size"],
    )


def population(name: str, equal: bool) -> np.ndarray:
    """Pairs of ranks, (50,000, 2) int64."""
    rng = np.random.default_rng([POPULATIONS.index(name), 7])
    shared, own = rng.normal(size=(POOL, 1)), rng.normal(size=(POOL, 2))
    scores = (
        math.sqrt(0.7) * shared + math.sqrt(0.3) * own + (0.0 if equal else np.array([0.0, 0.15]))
    )
    ranks = quantile(name, special.ndtr(scores))
    if equal:
        ranks = np.where(rng.random((POOL, 1)) < 0.5, ranks, ranks[:, ::-1])
        ranks = np.concatenate([ranks, ranks[:, ::-1]])
    return ranks


def quantile(name: str, u: np.ndarray) -> np.ndarray:
    """Ranks at the quantiles u of a population, int64."""

    def within(low: float, high: float) -> np.ndarray:
        return np.clip((u - low) / (high - low), 1e-9, 1 - 1e-9)

    if name == "good":
        rank = np.where(u < 0.92, 1.0, 1 + np.exp(3 + 2 * special.ndtri(within(0.92, 1))))
    elif name == "ordinary":
        near = 1 + np.ceil(np.log1p(-within(0.14, 0.53)) / math.log(0.9))
        rank = np.where(
            u < 0.14,
            1.0,
            np.where(u < 0.53, near, np.exp(6 + 1.5 * special.ndtri(within(0.53, 1)))),
        )
    else:
        rank = np.ceil(NUM_CANDIDATES * special.betaincinv(0.6, 1.0, u))
    return np.clip(np.floor(rank), 1, NUM_CANDIDATES).astype(np.int64)


def cell(name: str, size: int, draws: int) -> list[Row]:
    """Every interval and test for samples of one size from one population."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([POPULATIONS.index(name), size])
    pairs = {kind: population(name, kind == "equal") for kind in ("equal", "unequal")}
    about = {"population": name, "size": size}
    rows = [about | row for row in intervals(pairs["unequal"][:, 0], size, draws, rng)]
    for kind, pool in pairs.items():
        rows += [about | row for row in comparisons(pool, kind, size, draws, rng)]
    rows += [about | row for row in seeded(name, size, draws)]
    for k in HITS:
        rows += [
            about | {"metric": f"hits_at_{k}"} | row
            for row in exact_hits(pairs["unequal"][:, 0] <= k, size)
        ]
        for kind, pool in pairs.items():
            rows += [
                about | {"metric": f"hits_at_{k}"} | row
                for row in exact_differences(pool <= k, kind, size)
            ]
    return rows


def intervals(pool: np.ndarray, size: int, draws: int, rng: np.random.Generator) -> Iterator[Row]:
    """Intervals of one model."""
    ranks = pool[rng.integers(0, len(pool), (draws, size))].astype(np.float64)
    truth = evaluate(pool, NUM_CANDIDATES, [*MEANS, *SPREADS])
    resampled = np.concatenate(list(redraws(np.ones(size, dtype=np.int64), RESAMPLES, 0)))
    for key, (f, g) in MEANS.items():
        x, limits = f(ranks), np.sort(f(np.array([1.0, NUM_CANDIDATES])))
        for method, ends in (("normal", skewed(x)), ("bootstrap", studentized(x, resampled))):
            low, high = g(np.clip(ends, limits[0], limits[1]))
            warned = effective_tasks(x) < LEAST_EFFECTIVE_TASKS
            check(ranks, key, method, low, high, warned)
            yield tally("interval", key, method, low, high, truth[key], warned)
    square = (ranks - ranks.mean(1, keepdims=True)) ** 2
    total = resampled @ ranks.T / size
    spread = np.sqrt(np.maximum(resampled @ (ranks**2).T / size - total**2, 0))
    for key, values, few in (
        ("median_rank", medians(ranks, resampled), np.full(draws, size < LEAST_EFFECTIVE_TASKS)),
        ("rank_std", spread, effective_tasks(square) < LEAST_EFFECTIVE_TASKS),
    ):
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        check(ranks, key, "bootstrap", low, high, few)
        yield tally("interval", key, "bootstrap", low, high, truth[key], few)


def skewed(x: np.ndarray) -> np.ndarray:
    """Hall's interval of the means of samples (draws, size): (2, draws)."""
    size = x.shape[1]
    mean, u = x.mean(1), x - x.mean(1, keepdims=True)
    square = (u**2).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        a = (u**3).sum(1) / square**1.5
        y = np.array([1, -1])[:, None] * stats.t.ppf((1 + LEVEL) / 2, size - 1)
        moved = np.where(np.abs(a) < 1e-6, y, 3 / a * (np.cbrt(1 + a * (y - a / 6)) - 1))
    return np.asarray(mean - np.sqrt(square / (size - 1) / size) * np.where(square > 0, moved, 0))


def studentized(x: np.ndarray, resampled: np.ndarray) -> np.ndarray:
    """Bootstrap-t interval of the means of samples: (2, draws)."""
    size = x.shape[1]
    mean, u = x.mean(1), x - x.mean(1, keepdims=True)
    moved = resampled @ u.T / size
    spread = np.sqrt(np.maximum(resampled @ (u**2).T - size * moved**2, 0) / (size - 1) / size)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(moved / spread, nan=0.0, posinf=np.inf, neginf=-np.inf)
    ends = np.quantile(ratio, [(1 + LEVEL) / 2, (1 - LEVEL) / 2], axis=0, method="nearest")
    error = u.std(1, ddof=1) / math.sqrt(size)
    return np.asarray(np.where(error > 0, mean - ends * np.where(error > 0, error, 1), mean))


def medians(ranks: np.ndarray, resampled: np.ndarray) -> np.ndarray:
    """Medians of resamples (resamples, draws)."""
    half, out = ranks.shape[1] / 2, []
    for sample in ranks:
        order = np.argsort(sample)
        reached = resampled[:, order].cumsum(1)
        places = [(reached >= bar).argmax(1) for bar in (half, half + 0.5)]
        out.append(sum(sample[order][place] for place in places) / 2)
    return np.stack(out, 1)


def effective_tasks(x: np.ndarray) -> np.ndarray:
    """Number of tasks that the error of the means of samples rests on, (draws,)."""
    square = (x - x.mean(1, keepdims=True)) ** 2
    square[np.ptp(x, axis=1) == 0] = 0
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(square.sum(1) ** 2 / (square**2).sum(1))


def check(
    ranks: np.ndarray, key: str, method: Any, low: np.ndarray, high: np.ndarray, warned: np.ndarray
) -> None:
    """Fail if the library returns another interval or warning for the first samples.

    If the library draws other resamples, the comparison uses the library's resamples.
    """
    for i in range(CHECKED):
        rank = ranks[i].astype(np.int64)
        if method == "normal":
            collection = RankCollection([key])
            collection.update(Ranks(rank, None, NUM_CANDIDATES))
            found, told = quietly(partial(collection.confidence_intervals, LEVEL))
            row = found[key]
        else:
            definition, sample = (
                parse_name(key).definition,
                RankSample(rank, rank, np.full_like(rank, NUM_CANDIDATES)),
            )
            # a key of its own for every task keeps equal ranks apart, as here
            clusters = Clusters(np.arange(len(rank)), np.ones_like(rank))
            values, ones = definition.unit_values(sample, "realistic"), np.ones(len(rank))
            if key in MEANS:
                units = units_of(values, ones, ones.astype(np.int64))
                _, *ends = studentized_interval(units, LEVEL, RESAMPLES, 0)
                limits = definition.mean_limits(sample)
                row = interval_through(definition, units, (0.0, ends[0], ends[1]), limits)
                told = row.effective_tasks < LEAST_EFFECTIVE_TASKS
            else:
                row = estimate(
                    definition, sample, "realistic", LEVEL, "bootstrap", clusters, RESAMPLES, 0
                )
                told = row.effective_tasks < LEAST_EFFECTIVE_TASKS
        if told != warned[i] or not np.allclose((row.low, row.high), (low[i], high[i]), rtol=1e-6):
            raise AssertionError(
                f"{key} by {method}: {row} and {low[i]}, {high[i]}, warned {told} and {warned[i]}"
            )


def tally(
    kind: str,
    metric: str,
    method: str,
    low: np.ndarray,
    high: np.ndarray,
    truth: float,
    warned: np.ndarray,
    p_value: np.ndarray | None = None,
) -> Row:
    """Shares of intervals that hold or miss the truth or are warned of; of tests that reject."""
    slack = 1e-12 * abs(truth)  # a truth that the sample attains to the last digit
    below, above = truth < low - slack, truth > high + slack
    calm = ~warned
    row = {
        "kind": kind,
        "metric": metric,
        "method": method,
        "coverage": 1 - float((below | above).mean()),
        "truth_below": float(below.mean()),
        "truth_above": float(above.mean()),
        "warned": float(warned.mean()),
        "coverage_unwarned": 1 - float((below | above)[calm].mean()) if calm.any() else None,
    }
    if p_value is not None:
        rejected = p_value <= 1 - LEVEL + 1e-12
        row["rejected"] = float(rejected.mean())
        row["disagreed"] = float((rejected == ((low <= 0) & (high >= 0))).mean())
    return row


def comparisons(
    pool: np.ndarray, kind: str, size: int, draws: int, rng: np.random.Generator
) -> Iterator[Row]:
    """Intervals and tests of two models."""
    drawn = pool[rng.integers(0, len(pool), (draws, size))]
    ones, counts = np.ones(size), np.ones(size, dtype=np.int64)
    for key, (f, _) in MEANS.items():
        definition = parse_name(key).definition
        limits = np.sort(f(np.array([1.0, NUM_CANDIDATES])))
        truth = np.subtract(*(evaluate(pool[:, i], NUM_CANDIDATES, [key])[key] for i in (0, 1)))
        found = []
        for draw, pairs in enumerate(drawn):
            x = f(pairs.astype(np.float64))
            units = units_of(x, ones, counts)
            test = SignFlipTest(units, definition.g, (limits[0], limits[1]), PERMUTATIONS, draw)
            lower, upper, p, bounded = test.difference(LEVEL)
            warns = test.effective_tasks < LEAST_EFFECTIVE_TASKS or not bounded
            if draw < CHECKED:
                a, b = (Ranks(pairs[:, i].copy(), None, NUM_CANDIDATES) for i in (0, 1))
                same, told = quietly(
                    partial(compare, a, b, key, permutations=PERMUTATIONS, seed=draw)
                )
                if told != warns or not np.allclose(
                    (same.low, same.high, same.p_value), (lower, upper, p), rtol=1e-6
                ):
                    raise AssertionError(f"{key}: {same} and {(lower, upper, p)}")
            found.append((lower, upper, p, warns))
        low, high, p_value, warned = np.array(found).T
        yield tally(kind, key, "sign-flip", low, high, float(truth), warned.astype(bool), p_value)


def seeded(name: str, size: int, draws: int) -> Iterator[Row]:
    """Three runs of either model on the same tasks, all six exchangeable on every task."""
    rng = np.random.default_rng([POPULATIONS.index(name), size, 1])
    ones, counts = np.ones(size), np.ones(size, dtype=np.int64)
    for key, (f, _) in MEANS.items():
        found = []
        for _ in range(draws):
            shared, own = rng.normal(size=(size, 1)), rng.normal(size=(size, 2 * RUNS))
            x = f(
                quantile(name, special.ndtr(math.sqrt(0.7) * shared + math.sqrt(0.3) * own)).astype(
                    np.float64
                )
            )
            g = parse_name(key).definition.g
            one = SeededModels(units_of(x, ones, counts), (RUNS, RUNS), g).estimate(LEVEL, 0, 1)
            found.append((one.low, one.high, one.p_value_of(0.0)))
        low, high, p_value = np.array(found).T
        yield tally("seeds", key, "t", low, high, 0.0, np.zeros(draws, dtype=bool), p_value)


def quietly(ask: Callable[[], Any]) -> tuple[Any, bool]:
    """What is asked, and whether it warned."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RankMetricWarning)
        return ask(), bool(told)


def exact_hits(hit: np.ndarray, size: int) -> Iterator[Row]:
    """Coverage of intervals of one share by the binomial law: ours, and two others."""
    share = float(hit.mean())
    mass = stats.binom.pmf(np.arange(size + 1), size, share)
    for method, ends in (
        ("wilson", wilson),
        ("clopper-pearson", clopper_pearson),
        ("mid-p", mid_p),
    ):
        covered = [
            low <= share <= high for low, high in (ends(k, size, LEVEL) for k in range(size + 1))
        ]
        yield {
            "kind": "exact interval",
            "method": method,
            "share": share,
            "coverage": float(mass @ covered),
        }


def wilson(hits: int, size: int, confidence_level: float) -> tuple[float, float]:
    """Our interval of hits."""
    count = np.array([hits, size - hits])
    units = units_of(np.array([1.0, 0.0])[count > 0], np.ones(2)[count > 0], count[count > 0])
    low, high = share_interval(units, confidence_level)
    return max(low, 0.0), min(high, 1.0)


def mid_p(hits: int, size: int, confidence_level: float) -> tuple[float, float]:
    """Clopper and Pearson's interval with half of the atom in the tail."""
    tail = (1 - confidence_level) / 2

    def above(p: float) -> float:
        return float(stats.binom.sf(hits, size, p) + stats.binom.pmf(hits, size, p) / 2)

    low = optimize.brentq(lambda p: above(p) - tail, 0, 1) if hits > 0 else 0.0
    high = optimize.brentq(lambda p: above(p) - 1 + tail, 0, 1) if hits < size else 1.0
    return low, high


def exact_differences(hit: np.ndarray, kind: str, size: int) -> Iterator[Row]:
    """Coverage of the interval of two shares and size of McNemar's tests, by the trinomial law."""
    only = [float((hit[:, i] & ~hit[:, 1 - i]).mean()) for i in (0, 1)]
    truth, discordant = only[0] - only[1], sum(only)
    covered = rejected = mid = seen = 0.0
    for m in range(size + 1):
        mass = stats.binom.pmf(m, size, discordant)
        if mass < 1e-6:
            continue
        law = stats.binom.pmf(np.arange(m + 1), m, only[0] / discordant if discordant else 0.5)
        null = stats.binom.pmf(np.arange(m + 1), m, 0.5)
        for k in np.flatnonzero(law > 1e-6).tolist():
            low, high, p = _outcome(k, m - k, size)
            part = mass * law[k]
            seen += part
            covered += part * (low <= truth <= high)
            rejected += part * (p <= 0.05)
            # half of the atom on either side, which is one atom where k = m / 2
            mid += part * (p - (null[k] if 2 * k != m else null[k] / 2) <= 0.05)
    yield {
        "kind": f"exact {kind}",
        "method": "tango and mcnemar",
        "share": discordant,
        "coverage": covered / seen,
        "rejected": rejected / seen,
        "rejected_mid_p": mid / seen,
    }


@cache
def _outcome(only_a: int, only_b: int, size: int) -> tuple[float, float, float]:
    if only_a < only_b:  # the mirror image
        low, high, p = _outcome(only_b, only_a, size)
        return -high, -low, p
    return *share_difference(only_a, only_b, size, LEVEL), share_difference_p_value(
        only_a, only_b, size, 0.0
    )


SHAPE_SIZES = (20, 100, 1000)


def shapes(size: int, draws: int) -> Row:
    """Size of the test of two models of equal MRR, of which one has rare large values."""
    rng, rejected = np.random.default_rng(size), 0
    always = Ranks(np.full(size, 30), None, NUM_CANDIDATES)
    for draw in range(draws):
        rank = np.where(rng.random(size) < 1 / 30, 1, NUM_CANDIDATES)
        rare = Ranks(rank, None, NUM_CANDIDATES)
        test, _ = quietly(partial(compare, always, rare, "mrr", permutations=999, seed=draw))
        rejected += test.p_value <= 1 - LEVEL + 1e-12
    return {"size": size, "draws": draws, "rejected": rejected / draws}


def tables(results: Row) -> str:
    """Write two Markdown tables: coverage of intervals; coverage and test size of differences."""
    rows = results["rows"]
    error = 100 * results["error"]
    out = [
        f"Coverage of 95% intervals in %, {results['draws']:,} samples per cell (standard error "
        f"{error:.1f}), in brackets the share of samples with a warning in %:",
        "",
        _table(
            "metric, method", rows, "interval", lambda r: f"{r['metric']}, {r['method']}", _covered
        ),
        "Differences of two models: coverage (warned); size of the 5% test if both models are "
        "exchangeable:",
        "",
        _table(
            "metric",
            rows,
            "unequal",
            lambda r: r["metric"],
            lambda r: _covered(r) + f"; {_size(r, rows, 'equal')}",
        ),
        "Weighted hits: the lowest coverage in % over seven shares of hits from 2% to 98% (share "
        f"of samples with a warning); {results['weighted'][0]['draws']} samples per share:",
        "",
        _weighted_table(results["weighted"]),
        "Both sides of triples, two exchangeable models: size of the 5% test in %; coverage of the "
        f"interval of one model in %; {results['dependent'][0]['draws']} samples per cell "
        "(standard error of either 1.5):",
        "",
        _dependent_table(results["dependent"]),
        "Equal MRR and other shapes, size of the 5% test in %: "
        + ", ".join(
            f"{100 * row['rejected']:.0f} for n = {row['size']}" for row in results["shapes"]
        )
        + ".",
        "",
    ]
    return "\n".join(out)


def _weighted_table(rows: list[Row]) -> str:
    lines = [
        "| weights | " + " | ".join(f"n = {size}" for size in WEIGHTED_SIZES) + " |",
        "|---|" + "--:|" * len(WEIGHTED_SIZES),
    ]
    for kind in WEIGHTS:
        cells = []
        for size in WEIGHTED_SIZES:
            own = [row for row in rows if (row["weights"], row["size"]) == (kind, size)]
            warned = max(row["warned"] for row in own)
            cells.append(_covered({"coverage": min(r["coverage"] for r in own), "warned": warned}))
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _dependent_table(rows: list[Row]) -> str:
    columns = [(effect, size) for effect in EFFECTS for size in SIZES]
    lines = [
        "| metric, cluster | "
        + " | ".join(f"effect {effect:g}, {size} triples" for effect, size in columns)
        + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for cluster, metric in product(("auto", None), DEPENDENT):
        cells = {
            (
                row["effect"],
                row["size"],
            ): f"{100 * row['rejected']:.1f}; {100 * row['coverage']:.1f}"
            for row in rows
            if (row["cluster"], row["metric"]) == (cluster, metric)
        }
        lines.append(f"| {metric}, {cluster} | " + " | ".join(cells[c] for c in columns) + " |")
    return "\n".join(lines) + "\n"


def _covered(row: Row) -> str:
    warned = f" ({100 * row['warned']:.0f})" if row["warned"] >= 0.005 else ""
    return f"{100 * row['coverage']:.1f}{warned}"


def _same(row: Row, rows: list[Row], kind: str) -> list[Row]:
    keys = ("metric", "population", "size")
    return [
        other
        for other in rows
        if other["kind"] == kind and all(other[key] == row[key] for key in keys)
    ]


def _size(row: Row, rows: list[Row], kind: str) -> str:
    (other,) = _same(row, rows, kind)
    return f"{100 * other['rejected']:.1f}"


def _table(
    head: str,
    rows: list[Row],
    kind: str,
    label: Callable[[Row], str],
    text: Callable[[Row], str],
) -> str:
    chosen = [row for row in rows if row["kind"] == kind]
    columns = [(name, size) for name in POPULATIONS for size in SIZES]
    lines = [
        f"| {head} | " + " | ".join(f"{name} {size}" for name, size in columns) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for name in dict.fromkeys(map(label, chosen)):
        cells = {
            (row["population"], row["size"]): text(row) for row in chosen if label(row) == name
        }
        lines.append(f"| {name} | " + " | ".join(cells[column] for column in columns) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
