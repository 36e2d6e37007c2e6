"""Null moments by exact distributions, slow and plain: Fractions and 50 digits, nothing from the library.

A metric is a pair (kind, p): ("power", p) is (sum v r^p)^(1/p), ("inverse", p) its reciprocal, p = 0 the geometric mean
and p = +-inf the extremes; ("hits", k); ("variance", 0.5) is the standard deviation, ("median", -1) the inverse median.
"""

import itertools
from fractions import Fraction

import mpmath

from reference import median

mpmath.mp.dps = 50
INF = float("inf")


def shares(N, weights=None):
    """Tasks of positive weight with their shares v_i, as Fractions."""
    w = [Fraction(1)] * len(N) if weights is None else [Fraction(x) for x in weights]
    kept = [(n, x) for n, x in zip(N, w, strict=True) if x > 0]
    total = sum(x for _, x in kept)
    return [n for n, _ in kept], [x / total for _, x in kept]


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
