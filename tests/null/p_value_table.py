"""Accuracy and time of p-values against independent results.

Enumeration of all ranks, binomials in 60 digits and integer convolution: log p minus its exact value, over at least 500
cells; simulations of a million outcomes, over 420 cells; and the CPU time of cases of realistic sizes on one thread.

Run: python tests/null/p_value_table.py --json tests/null/p_value_table.json
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import torch

from torchrankmetrics.definitions import GEOMETRIC_MEAN_RANK, MEAN_RANK, MEAN_RECIPROCAL_RANK, RankDefinition, hits_at
from torchrankmetrics.null import log_p_value
from torchrankmetrics.null.p_values import p_value_bracket

DCG = RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
STEPS = RankDefinition("steps", f=lambda r: (r <= 1).double() + 0.5 * (r <= 10).double() + 0.3 * (r <= 100).double())
METRICS = (MEAN_RECIPROCAL_RANK, MEAN_RANK, GEOMETRIC_MEAN_RANK, hits_at(1), hits_at(10), DCG, STEPS)
Cell = tuple[str, float, float]  # name, log p, exact log p
_DRAWS, _FIRST, _BLOCK = 1_000_000, 100_000, 1000


def log_of(p: Fraction) -> float:
    """Natural logarithm; digits of p near 1 are kept."""
    return math.log1p(-float(1 - p)) if p > Fraction(1, 2) else math.log(p.numerator) - math.log(p.denominator)


def enumerated(random: np.random.Generator) -> Iterator[Cell]:
    """Up to 5 tasks, equal and unequal weights."""
    for n, most in ((1, 400), (2, 60), (3, 30), (4, 14), (5, 9)):
        for definition, kind in itertools.product(METRICS, ("equal", "two", "random")):
            N = random.integers(2, most, n)
            w = {"equal": np.ones(n), "two": 1.0 + np.arange(n) % 2, "random": random.random(n) + 0.1}[kind]
            v = w / w.sum()
            sums = np.zeros(1)
            for size, weight in zip(N.tolist(), v.tolist(), strict=True):
                f = definition.f(torch.arange(1, size + 1, dtype=torch.float64)).double().numpy()
                sums = np.add.outer(sums, weight * f).ravel()
            sign = 1 if definition.f is not MEAN_RANK.f and definition is not GEOMETRIC_MEAN_RANK else -1
            for s in random.choice(sums, 3):
                exact = Fraction(int((sign * sums >= sign * s - 1e-10).sum()), math.prod(N.tolist()))
                value = float(definition.g(torch.tensor(s, dtype=torch.float64)))
                yield f"{definition.name} {kind} n={n}", log_p_value(definition, value, N, w), log_of(exact)


def binomial() -> Iterator[Cell]:
    """Hits by the binomial distribution in 60 digits."""
    mpmath.mp.dps = 60
    for n, (N, k) in itertools.product(
        (1, 10, 60, 200, 2000), ((11, 10), (50, 10), (1000, 3), (14541, 10), (100000, 1))
    ):
        for share in (0.0, 0.001, 0.01, 0.1, 0.3, 0.7, 1.0):
            hits = min(n, max(1, round(n * (k / N + share * (1 - k / N)))))
            p = mpmath.mpf(k) / N
            term = mpmath.binomial(n, hits) * p**hits * (1 - p) ** (n - hits)
            total = term
            for j in range(hits + 1, n + 1):
                term *= mpmath.mpf(n - j + 1) / j * p / (1 - p)
                total += term
            yield f"hits_at_{k} n={n} N={N}", log_p_value(hits_at(k), hits / n, [N] * n), float(mpmath.log(total))


def convolved() -> Iterator[Cell]:
    """The mean rank by convolution of integers."""
    for n, N in ((2, 500), (5, 200), (10, 100), (15, 60), (30, 50), (60, 40), (200, 20)):
        ways = [1]
        for _ in range(n):
            sums = [0, *itertools.accumulate(ways)]
            ways = [sums[min(j + 1, len(ways))] - sums[max(0, j - N + 1)] for j in range(len(ways) + N - 1)]
        at_most = list(itertools.accumulate(ways))
        for u in sorted(
            {0, 1, 5, 50, *(round(len(ways) * x) for x in (0.02, 0.1, 0.3, 0.5, 0.8))} & set(range(len(ways)))
        ):
            exact = log_of(Fraction(at_most[u], N**n))
            yield f"mr n={n} N={N}", log_p_value(MEAN_RANK, (u + n) / n, [N] * n), exact


def simulated(random: np.random.Generator) -> Iterator[tuple[str, float, float, float, float]]:
    """Name, ends of log p, and a share of 1e6 simulated outcomes with its standard error.

    The values to reach are quantiles of other outcomes.
    """
    for n, least, most in ((3, 1000, 10**5), (30, 20, 14_541), (60, 10**5, 10**6), (301, 20, 14_541), (1000, 20, 3000)):
        N = np.rint(np.exp(random.uniform(math.log(least), math.log(most), n))).astype(np.int64)
        group = random.integers(0, max(2, n // 10), n)
        weights = {"equal": np.ones(n), "macro": 1 / np.bincount(group)[group], "random": random.exponential(size=n)}
        v = np.stack([w / w.sum() for w in weights.values()], axis=1)
        tables = [d.f(torch.arange(1, most + 1, dtype=torch.float64)).double().numpy() for d in METRICS]
        means = np.empty((len(METRICS), _DRAWS + _FIRST, len(weights)))
        for begin in range(0, _DRAWS + _FIRST, _BLOCK):
            index = (random.random((min(_BLOCK, _DRAWS + _FIRST - begin), n)) * N).astype(np.int32)
            for table, some in zip(tables, means, strict=True):
                some[begin : begin + len(index)] = table[index] @ v
        for definition, some in zip(METRICS, means, strict=True):
            for (kind, w), sums in zip(weights.items(), some.T, strict=True):
                sign = -1 if definition in (MEAN_RANK, GEOMETRIC_MEAN_RANK) else 1
                for share in (0.9, 0.3, 0.02, 0.001):
                    s = sign * float(np.quantile(sign * sums[:_FIRST], 1 - share, method="lower"))
                    reached = float((sign * sums[_FIRST:] >= sign * s - 1e-10 * abs(s)).mean())
                    value = float(definition.g(torch.tensor(s, dtype=torch.float64)))
                    low, high = p_value_bracket(definition, value, N, w)
                    error = math.sqrt(reached * (1 - reached) / _DRAWS)
                    yield f"{definition.name} {kind} n={n}", low, high, reached, error


def seconds(random: np.random.Generator) -> Iterator[tuple[str, float]]:
    """CPU time of cases of realistic sizes."""
    counts = np.unique(np.rint(np.exp(random.uniform(math.log(20), math.log(14541), 340))).astype(int))[:319]
    far = random.integers(10**6, 2_500_000, 19_500)
    groups = 1 / np.bincount(group := random.integers(0, 74, 40_000) ** 2 // 74)[group]
    for name, N, weight in (
        ("100 tasks", random.choice(counts, 100), None),
        ("40,000 tasks, 319 N", random.choice(counts, 40_000), None),
        ("40,000 tasks, macro weights", random.choice(counts, 40_000), groups),
        ("2,000 random weights", random.choice(counts, 2000), random.exponential(size=2000)),
        ("20,000 random weights", random.choice(counts, 20_000), random.exponential(size=20_000)),
        ("1.2M tasks, 19,500 N", random.choice(far, 1_200_000), None),
    ):
        for definition in (MEAN_RECIPROCAL_RANK, MEAN_RANK, GEOMETRIC_MEAN_RANK, hits_at(10)):
            ranks = np.ceil(N * random.random(len(N)) ** 1.2)
            mean = np.average(definition.f(torch.from_numpy(ranks)).numpy(), weights=weight)
            value = float(definition.g(torch.tensor(mean, dtype=torch.float64)))
            times = []
            for _ in range(3):
                begin = time.process_time()
                log_p_value(definition, value, N, weight)
                times.append(time.process_time() - begin)
            yield f"{definition.name}: {name}", sorted(times)[1]


def main() -> None:
    """Print the largest errors and the times, and write all cells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    cells = {"enumeration": [*enumerated(random)], "binomial": [*binomial()], "integers": [*convolved()]}
    for name, some in cells.items():
        errors = np.expm1([got - exact for _, got, exact in some])
        print(f"{name}: {len(some)} cells, relative error of p from {errors.min():.1e} to {errors.max():.1e}")
    outcomes = [*simulated(random)]
    low, high, share, error = np.array([cell[1:] for cell in outcomes if cell[-1] > 0]).T
    z, width = (np.exp(high) - share) / error, np.expm1(high - low)
    print(f"simulation: {len(outcomes)} cells, from {z.min():.1f} to {z.max():.1f} standard errors,", end=" ")
    print(
        f"chi-square {np.mean(z**2):.2f} a cell, widest bracket {width.max():.1e}, {np.mean(width < 0.01):.0%} below 1%"
    )
    times = dict(seconds(random))
    for name, second in times.items():
        print(f"{name}: {1000 * second:.0f} ms")
    if options.json:
        options.json.write_text(json.dumps({"log_p": cells, "simulated": outcomes, "seconds": times}, indent=0) + "\n")


if __name__ == "__main__":
    main()
