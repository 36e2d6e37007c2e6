"""Do intervals cover and tests reject as often as they say? Simulated for every one, and exact where ranks count as hits.

    python -m benchmarks.calibration [--draws 2000] [--workers 2] [--json PATH]     simulate, and print the tables
    python -m benchmarks.calibration --report                                       write them into docs/comparing.md

Three populations of pairs of ranks among 14,505 candidates, 50,000 pairs each. The tasks of a pair share their
difficulty (correlation 0.7 of normal scores, put through the quantiles of the population):

- good: 92 % at rank 1, the rest 1 + exp(3 + 2 z), z normal: a mean rank near 10 that a few tasks in a thousand make up;
- ordinary: 14 % at rank 1, 39 % near it (geometric), the rest exp(6 + 1.5 z): like a DistMult on FB15k-237;
- bad: N Beta(0.6, 1): hardly better than chance, reciprocal ranks made up by the one task in a hundred that is hit.

"equal": the two models are exchanged at random on every task. "unequal": the second has its normal scores shifted by
0.15. Tasks are drawn with replacement, the truth is the value on the whole population. Intervals are of level 95 %,
tests at 5 %. What is simulated goes through `RankCollection.confidence_intervals` and `compare`, warnings counted.
"""

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import optimize, special, stats
from tqdm import tqdm

from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, compare, evaluate
from torchrankmetrics.theory.definitions import hits_at
from torchrankmetrics.theory.inference.intervals import normal_interval
from torchrankmetrics.theory.inference.shares import clopper_pearson, share_difference
from torchrankmetrics.theory.inference.testing import mcnemar_p_value
from torchrankmetrics.theory.inference.units import units_of

NUM_CANDIDATES, POOL = 14_505, 50_000
POPULATIONS, SIZES = ("good", "ordinary", "bad"), (30, 100, 500)
MEANS, SPREADS, HITS = ("mr", "mrr", "gmr"), ("median_rank", "rank_std", "rank_mad"), (1, 10)
LEVEL, RESAMPLES, PERMUTATIONS, RUNS = 0.95, 499, 999, 3
RESULTS = Path(__file__).parent / "results" / "calibration.json"
PAGE = Path(__file__).parents[1] / "docs" / "comparing.md"
BEGIN, END = "<!-- begin: python -m benchmarks.calibration --report -->\n", "<!-- end -->\n"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--report", action="store_true", help="simulate nothing, write the committed results into docs")
    given = parser.parse_args()
    if given.report:
        PAGE.write_text(replaced(PAGE.read_text(), tables(json.loads(RESULTS.read_text()))))
        return
    results = simulated(given.draws, given.workers)
    print(tables(results))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def simulated(draws: int, workers: int) -> Row:
    """All cells: what is simulated, and what is exact."""
    cells = [(name, size, draws) for size in sorted(SIZES, reverse=True) for name in POPULATIONS]
    with ProcessPoolExecutor(workers) as pool:
        parts = list(tqdm(pool.map(cell, *zip(*cells, strict=True)), total=len(cells)))
    rows = [row for part in parts for row in part]
    error = math.sqrt(LEVEL * (1 - LEVEL) / draws)
    return {"draws": draws, "level": LEVEL, "error": error, "rows": sorted(rows, key=_place)}


def _place(row: Row) -> tuple[Any, ...]:
    return row["kind"], row["metric"], row["method"], POPULATIONS.index(row["population"]), row["size"]


def population(name: str, equal: bool) -> np.ndarray:
    """Pairs of ranks, (50,000, 2) int64."""
    rng = np.random.default_rng([POPULATIONS.index(name), 7])
    shared, own = rng.normal(size=(POOL, 1)), rng.normal(size=(POOL, 2))
    scores = math.sqrt(0.7) * shared + math.sqrt(0.3) * own + (0.0 if equal else np.array([0.0, 0.15]))
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
        rank = np.where(u < 0.14, 1.0, np.where(u < 0.53, near, np.exp(6 + 1.5 * special.ndtri(within(0.53, 1)))))
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
    rows += [about | row for row in seeded(pairs["equal"], size, draws // 4, rng)]
    for k in HITS:
        rows += [about | {"metric": f"hits_at_{k}"} | row for row in exact_hits(pairs["unequal"][:, 0] <= k, size)]
        for kind, pool in pairs.items():
            rows += [about | {"metric": f"hits_at_{k}"} | row for row in exact_differences(pool <= k, kind, size)]
    return rows


class Tally:
    """How often intervals hold the truth, miss below and above, are warned of; how often tests reject."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool, bool, bool, bool]] = []

    def add(self, low: float, high: float, truth: float, warned: bool, p_value: float | None = None) -> None:
        disagree = p_value is not None and (p_value <= 1 - LEVEL + 1e-12) == (low <= 0 <= high)
        self.seen.append((truth < low, truth > high, warned, p_value is not None and p_value <= 0.05, disagree))

    def row(self, kind: str, metric: str, method: str) -> Row:
        seen = np.array(self.seen)
        below, above, warned, rejected, disagreed = seen.mean(0).tolist()
        calm = ~seen[:, 2]
        covered = ~(seen[:, 0] | seen[:, 1])
        return {
            "kind": kind,
            "metric": metric,
            "method": method,
            "coverage": 1 - below - above,
            "truth_below": below,
            "truth_above": above,
            "warned": warned,
            "coverage_unwarned": float(covered[calm].mean()) if calm.any() else None,
            "rejected": rejected,
            "disagreed": disagreed,
        }


def intervals(pool: np.ndarray, size: int, draws: int, rng: np.random.Generator) -> Iterator[Row]:
    """Intervals of one model."""
    truth = evaluate(pool, NUM_CANDIDATES, [*MEANS, *SPREADS])
    tallies = {("normal", key): Tally() for key in MEANS} | {("bootstrap", key): Tally() for key in (*MEANS, *SPREADS)}
    for draw in range(draws):
        ranks = pool[rng.integers(0, len(pool), size)]
        for method, keys in (("normal", MEANS), ("bootstrap", MEANS + SPREADS)):
            if method == "bootstrap" and draw % 4:
                continue  # a quarter of the draws for what resamples
            collection = RankCollection(list(keys))
            collection.update(Ranks(ranks, None, NUM_CANDIDATES))
            found, _ = quietly(lambda: collection.confidence_intervals(LEVEL, method, resamples=RESAMPLES, seed=draw))
            for key in keys:
                tallies[method, key].add(found[key].low, found[key].high, truth[key], found[key].support < 5)
    for (method, key), tally in tallies.items():
        yield tally.row("interval", key, method)


def comparisons(pool: np.ndarray, kind: str, size: int, draws: int, rng: np.random.Generator) -> Iterator[Row]:
    """Intervals and tests of two models."""
    values = [evaluate(pool[:, i], NUM_CANDIDATES, [*MEANS]) for i in (0, 1)]
    tallies = {key: Tally() for key in MEANS}
    for draw in range(draws):
        a, b = (Ranks(x, None, NUM_CANDIDATES) for x in pool[rng.integers(0, len(pool), size)].T.copy())
        for key, tally in tallies.items():
            found, told = quietly(lambda: compare(a, b, key, permutations=PERMUTATIONS, seed=draw))
            tally.add(found.low, found.high, values[0][key] - values[1][key], told, found.p_value)
    for key, tally in tallies.items():
        yield tally.row(kind, key, "sign-flip")


def seeded(pool: np.ndarray, size: int, draws: int, rng: np.random.Generator) -> Iterator[Row]:
    """Three runs of either model, without a difference between models or runs."""
    tallies = {key: Tally() for key in MEANS}
    for draw in range(draws):
        runs = [pool[rng.integers(0, len(pool), size)] for _ in range(RUNS)]
        a, b = ([Ranks(run[:, i].copy(), None, NUM_CANDIDATES) for run in runs] for i in (0, 1))
        for key, tally in tallies.items():
            found, told = quietly(lambda: compare(a, b, key, resamples=RESAMPLES, seed=draw))
            tally.add(found.low, found.high, 0.0, told, found.p_value)
    for key, tally in tallies.items():
        yield tally.row("seeds", key, "t")


def quietly(ask: Callable[[], Any]) -> tuple[Any, bool]:
    """What is asked, and whether it warned."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RankMetricWarning)
        return ask(), bool(told)


def exact_hits(hit: np.ndarray, size: int) -> Iterator[Row]:
    """Coverage of intervals of one share by the binomial law: ours, and two others."""
    share = float(hit.mean())
    mass = stats.binom.pmf(np.arange(size + 1), size, share)
    for method, ends in (("wilson", wilson), ("clopper-pearson", clopper_pearson), ("mid-p", mid_p)):
        covered = [low <= share <= high for low, high in (ends(k, size, LEVEL) for k in range(size + 1))]
        yield {"kind": "exact interval", "method": method, "share": share, "coverage": float(mass @ covered)}


def wilson(hits: int, size: int, level: float) -> tuple[float, float]:
    """Our interval of hits."""
    count = np.array([hits, size - hits])
    units = units_of(np.array([1.0, 0.0])[count > 0], np.ones(2)[count > 0], count[count > 0])
    found = normal_interval(hits_at(1), units, level, (0.0, 1.0))
    return found.low, found.high


def mid_p(hits: int, size: int, level: float) -> tuple[float, float]:
    """Clopper and Pearson's interval with half of the atom in the tail."""
    tail = (1 - level) / 2

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
        if mass < 1e-7:
            continue
        law = stats.binom.pmf(np.arange(m + 1), m, only[0] / discordant if discordant else 0.5)
        null = stats.binom.pmf(np.arange(m + 1), m, 0.5)
        for k in np.flatnonzero(law > 1e-7).tolist():
            low, high = share_difference(k, m - k, size, LEVEL)
            p = mcnemar_p_value(k, m - k)
            part = mass * law[k]
            seen += part
            covered += part * (low <= truth <= high)
            rejected += part * (p <= 0.05)
            mid += part * (p - null[k] <= 0.05)
    yield {
        "kind": f"exact {kind}",
        "method": "tango and mcnemar",
        "share": discordant,
        "coverage": covered / seen,
        "rejected": rejected / seen,
        "rejected_mid_p": mid / seen,
    }


def replaced(page: str, new: str) -> str:
    """The page with what stands between the marks replaced."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + new + END + rest.split(END, 1)[1]


def tables(results: Row) -> str:
    """Markdown: coverage of intervals, of differences with sizes, and what is exact."""
    rows = results["rows"]
    error, quarter = 100 * results["error"], 200 * results["error"]
    out = [
        f"Coverage of 95 % intervals in %, {results['draws']:,} samples a cell (standard error {error:.1f}; a quarter of "
        f"them, {quarter:.1f}, for the bootstrap), and in brackets how often the warning came, in %:",
        "",
        _table("metric, method", rows, "interval", lambda r: f"{r['metric']}, {r['method']}", _covered),
        "Differences: coverage where the models differ (warned), then size at 5 % where they are exchangeable:",
        "",
        _table("metric", rows, "unequal", lambda r: r["metric"], lambda r: _covered(r) + f"; {_size(r, rows, 'equal')}"),
        f"Size at 5 % of three runs against three, no run or model better ({results['draws'] // 4:,} samples, standard "
        f"error {quarter:.1f}):",
        "",
        _table("metric", rows, "seeds", lambda r: r["metric"], lambda r: f"{100 * r['rejected']:.1f}"),
        "Hits, exact by the binomial law: coverage of Wilson's interval (ours), Clopper and Pearson's, mid-p:",
        "",
        _table("metric", rows, "exact interval", lambda r: r["metric"], lambda r: _exact(r, rows), "wilson"),
        "Hits of two models, exact: coverage where they differ; size at 5 % where not, of McNemar's exact test (ours) "
        "and with mid-p:",
        "",
        _table("metric", rows, "exact unequal", lambda r: r["metric"], lambda r: _paired(r, rows)),
    ]
    return "\n".join(out)


def _covered(row: Row) -> str:
    warned = f" ({100 * row['warned']:.0f})" if row["warned"] >= 0.005 else ""
    return f"{100 * row['coverage']:.1f}{warned}"


def _same(row: Row, rows: list[Row], kind: str) -> list[Row]:
    keys = ("metric", "population", "size")
    return [other for other in rows if other["kind"] == kind and all(other[key] == row[key] for key in keys)]


def _size(row: Row, rows: list[Row], kind: str) -> str:
    (other,) = _same(row, rows, kind)
    return f"{100 * other['rejected']:.1f}"


def _exact(row: Row, rows: list[Row]) -> str:
    found = {other["method"]: other["coverage"] for other in _same(row, rows, "exact interval")}
    return ", ".join(f"{100 * found[method]:.1f}" for method in ("wilson", "clopper-pearson", "mid-p"))


def _paired(row: Row, rows: list[Row]) -> str:
    (other,) = _same(row, rows, "exact equal")
    return f"{100 * row['coverage']:.1f}; {100 * other['rejected']:.1f}, {100 * other['rejected_mid_p']:.1f}"


def _table(
    head: str,
    rows: list[Row],
    kind: str,
    label: Callable[[Row], str],
    text: Callable[[Row], str],
    method: str | None = None,
) -> str:
    chosen = [row for row in rows if row["kind"] == kind and method in (None, row["method"])]
    columns = [(name, size) for name in POPULATIONS for size in SIZES]
    lines = [
        f"| {head} | " + " | ".join(f"{name} {size}" for name, size in columns) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for name in dict.fromkeys(map(label, chosen)):
        cells = {(row["population"], row["size"]): text(row) for row in chosen if label(row) == name}
        lines.append(f"| {name} | " + " | ".join(cells[column] for column in columns) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
