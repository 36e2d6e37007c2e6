"""Null moments by exact distributions, slow and plain: Fractions, 50 digits, no library code.

A metric is a pair (kind, p): ("power", p) is (sum v r^p)^(1/p), ("inverse", p) its reciprocal, p =
0 the geometric mean and p = +-inf the extremes; ("hits", k); ("variance", 0.5) is the standard
deviation, ("median", -1) the inverse median.
"""

import itertools
import math
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
    return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mpmath.mpf(x)


def value(kind, p, ranks, v):
    """The metric of one outcome, from its definition."""
    if kind == "inverse":
        return 1 / value("power", p, ranks, v)
    if kind == "hits":
        return number(
            sum((share for r, share in zip(ranks, v, strict=True) if r <= p), Fraction(0))
        )
    if kind == "median":
        return number(median(ranks, v)) ** p
    if kind == "mad":
        center = median(ranks, v)
        return number(median([abs(r - center) for r in ranks], v)) / (
            mpmath.sqrt(2) * mpmath.erfinv(mpmath.mpf(1) / 2)
        )
    if kind == "variance":
        mean = sum(share * r for r, share in zip(ranks, v, strict=True))
        return number(
            sum(share * (r - mean) ** 2 for r, share in zip(ranks, v, strict=True))
        ) ** number(p)
    if p == INF:
        return mpmath.mpf(max(ranks))
    if p == -INF:
        return mpmath.mpf(min(ranks))
    if p == 0:
        return mpmath.exp(
            sum(number(share) * mpmath.log(r) for r, share in zip(ranks, v, strict=True))
        )
    return sum(number(share) * mpmath.mpf(r) ** p for r, share in zip(ranks, v, strict=True)) ** (
        1 / mpmath.mpf(p)
    )


def moments(distribution):
    """Mean and variance of a distribution given as (value, probability) pairs."""
    distribution = [(number(x), number(q)) for x, q in distribution]
    mean = sum(x * q for x, q in distribution)
    return mean, sum((x - mean) ** 2 * q for x, q in distribution)


def enumerated(kind, p, N, weights=None):
    N, v = shares(N, weights)
    outcomes = list(itertools.product(*(range(1, n + 1) for n in N)))
    return moments([(value(kind, p, ranks, v), Fraction(1, len(outcomes))) for ranks in outcomes])


def convolved(statistic, g, N, weights=None):
    """Moments of g(sum v_i f(r_i)) by the exact distribution; ``statistic(r, v)`` is hashable."""
    N, v = shares(N, weights)
    distribution = _added(
        [[statistic(r, share) for r in range(1, n + 1)] for n, share in zip(N, v, strict=True)]
    )
    return moments(
        [(g(*state), Fraction(ways, math.prod(N))) for state, ways in distribution.items()]
    )


def _added(steps):
    """Number of ways to every sum of one tuple of each list."""
    distribution = {tuple(0 for _ in steps[0][0]): 1}
    for choices in steps:
        before, distribution = distribution, {}
        for state, step in itertools.product(before, choices):
            key = tuple(a + b for a, b in zip(state, step, strict=True))
            distribution[key] = distribution.get(key, 0) + before[state]
    return distribution


def sum_distribution(N, weights, f):
    """Number of ways to every sum of w_i f(r_i), r_i in 1..N_i.

    Sums and ways are exact, for f with rational values.
    """
    steps = [
        [(Fraction(w) * f(r),) for r in range(1, n + 1)] for n, w in zip(N, weights, strict=True)
    ]
    return {total: ways for (total,), ways in _added(steps).items()}


def upper_tails(distribution, larger_is_better):
    """(sum, P(at least as good)) of every sum, the best first."""
    total, ways = sum(distribution.values()), 0
    for x in sorted(distribution, reverse=larger_is_better):
        ways += distribution[x]
        yield x, Fraction(ways, total)
