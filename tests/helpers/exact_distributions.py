"""Null moments by exact distributions, slow and plain: Fractions and 50 digits, nothing from the library.

A metric is a pair (kind, p): ("power", p) is (sum v r^p)^(1/p), ("inverse", p) its reciprocal, p = 0 the geometric mean
and p = +-inf the extremes; ("hits", k); ("variance", 0.5) is the standard deviation, ("median", -1) the inverse median.
"""

import itertools
from fractions import Fraction

import mpmath

mpmath.mp.dps = 50
INF = float("inf")


def shares(N, weights=None):
    """Tasks of positive weight with their shares v_i, as Fractions."""
    w = [Fraction(1)] * len(N) if weights is None else [Fraction(x) for x in weights]
    kept = [(n, x) for n, x in zip(N, w, strict=True) if x > 0]
    total = sum(x for _, x in kept)
    return [n for n, _ in kept], [x / total for _, x in kept]


def median(values, v):
    """Lower weighted median; midpoint where the cumulative weight is exactly one half."""
    cumulative = Fraction(0)
    pairs = sorted(zip(values, v, strict=True))
    for i, (x, share) in enumerate(pairs):
        cumulative += share
        if cumulative == Fraction(1, 2):
            return Fraction(x + pairs[i + 1][0]) / 2
        if cumulative > Fraction(1, 2):
            return Fraction(x)
    raise AssertionError


def number(x):
    """A Fraction as a 50-digit number."""
    return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mpmath.mpf(x)


def value(kind, p, ranks, v):
    """The metric of one outcome, from its definition."""
    if kind == "inverse":
        return 1 / value("power", p, ranks, v)
    if kind == "hits":
        return number(sum((share for r, share in zip(ranks, v, strict=True) if r <= p), Fraction(0)))
    if kind == "median":
        return number(median(ranks, v)) ** p
    if kind == "mad":
        center = median(ranks, v)
        return number(median([abs(r - center) for r in ranks], v)) / (mpmath.sqrt(2) * mpmath.erfinv(mpmath.mpf(1) / 2))
    if kind == "variance":
        mean = sum(share * r for r, share in zip(ranks, v, strict=True))
        return number(sum(share * (r - mean) ** 2 for r, share in zip(ranks, v, strict=True))) ** number(p)
    if p == INF:
        return mpmath.mpf(max(ranks))
    if p == -INF:
        return mpmath.mpf(min(ranks))
    if p == 0:
        return mpmath.exp(sum(number(share) * mpmath.log(r) for r, share in zip(ranks, v, strict=True)))
    return sum(number(share) * mpmath.mpf(r) ** p for r, share in zip(ranks, v, strict=True)) ** (1 / mpmath.mpf(p))


def moments(distribution):
    """Mean and variance of a distribution given as (value, probability) pairs."""
    distribution = [(number(x), number(q)) for x, q in distribution]
    mean = sum(x * q for x, q in distribution)
    return mean, sum((x - mean) ** 2 * q for x, q in distribution)


def enumerated(kind, p, N, weights=None):
    """Moments over all rank vectors."""
    N, v = shares(N, weights)
    outcomes = list(itertools.product(*(range(1, n + 1) for n in N)))
    return moments([(value(kind, p, ranks, v), Fraction(1, len(outcomes))) for ranks in outcomes])


def convolved(statistic, g, N, weights=None):
    """Moments of g(sum v_i f(r_i)) through the exact distribution of the sum; ``statistic(r, v)`` is hashable."""
    N, v = shares(N, weights)
    distribution = {}
    for n, share in zip(N, v, strict=True):
        steps = [statistic(r, share) for r in range(1, n + 1)]
        new = {}
        for step in steps:
            for state, ways in (distribution or {tuple(0 for _ in step): 1}).items():
                key = tuple(a + b for a, b in zip(state, step, strict=True))
                new[key] = new.get(key, 0) + ways
        distribution = new
    total = 1
    for n in N:
        total *= n
    return moments([(g(*state), Fraction(ways, total)) for state, ways in distribution.items()])


def median_distribution(N, p=1):
    """Moments of the median (p = 1) or its inverse (p = -1) (equal weights) from the distribution of the middle two."""
    n, top = len(N), max(N)
    low, high = (n + 1) // 2, n // 2 + 1

    def counts(probability):
        """Law of the pair (#{r <= x}, #{r <= y}) from (P(r <= x), P(x < r <= y)) per task."""
        distribution = {(0, 0): Fraction(1)}
        for a, b in probability:
            new = {}
            for (i, j), q in distribution.items():
                for key, step in (((i + 1, j + 1), a), ((i, j + 1), b), ((i, j), 1 - a - b)):
                    if step:
                        new[key] = new.get(key, Fraction(0)) + q * step
            distribution = new
        return distribution

    def cdf(n_i, x):
        return Fraction(min(x, n_i), n_i)

    joint = {}  # P(X_low <= x, X_high <= y)
    for x in range(0, top + 1):
        for y in range(x, top + 1):
            distribution = counts([(cdf(k, x), cdf(k, y) - cdf(k, x)) for k in N])
            joint[x, y] = sum((q for (i, j), q in distribution.items() if i >= low and j >= high), Fraction(0))

    def box(x, y):
        return joint[min(x, y), y]

    distribution = []
    for x in range(1, top + 1):
        for y in range(x, top + 1):
            q = box(x, y) - box(x - 1, y) - box(x, y - 1) + box(x - 1, y - 1) if y > x else box(x, x) - box(x - 1, x)
            distribution.append((number(Fraction(x + y, 2)) ** p, q))
    return moments(distribution)


def sum_distribution(N, weights, f):
    """Number of ways to every sum of w_i f(r_i), r_i in 1..N_i: sums and ways exact, for f with rational values."""
    distribution = {Fraction(0): 1}
    for n, w in zip(N, weights, strict=True):
        new = {}
        for r in range(1, n + 1):
            step = Fraction(w) * f(r)
            for total, ways in distribution.items():
                new[total + step] = new.get(total + step, 0) + ways
        distribution = new
    return distribution


def upper_tails(distribution, larger_is_better):
    """(sum, P(at least as good)) of every sum, the best first."""
    total, ways = sum(distribution.values()), 0
    for x in sorted(distribution, reverse=larger_is_better):
        ways += distribution[x]
        yield x, Fraction(ways, total)
