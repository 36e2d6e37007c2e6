"""Metrics of a query from their definitions, on one ordered list of ranks, and all that chance can do with few.

Slow and plain: Fractions where the metric has them, nothing from the library.
"""

import itertools
import math
from fractions import Fraction


def gain(rank):
    return 1 / math.log2(1 + rank)


def success(ranks, N, k):
    return Fraction(min(ranks) <= k)


def recall(ranks, N, k):
    return Fraction(sum(r <= k for r in ranks), len(ranks))


def precision(ranks, N, k):
    return Fraction(sum(r <= k for r in ranks), k)


def rr(ranks, N, k=None):
    return Fraction(1, min(ranks)) if k is None or min(ranks) <= k else Fraction(0)


def ap(ranks, N, k=None):
    hits = (Fraction(i, r) for i, r in enumerate(sorted(ranks), 1) if k is None or r <= k)
    return sum(hits, Fraction(0)) / len(ranks)


def ndcg(ranks, N, k=None):
    top = N if k is None else k
    ideal = math.fsum(gain(i) for i in range(1, min(len(ranks), top) + 1))
    return math.fsum(gain(r) for r in ranks if r <= top) / ideal


def r_precision(ranks, N):
    return recall(ranks, N, len(ranks))


def auc(ranks, N):
    """The share of pairs in the right order, counted pair by pair; None without a pair."""
    others = set(range(1, N + 1)) - set(ranks)
    return Fraction(sum(r < x for r in ranks for x in others), len(ranks) * len(others)) if others else None


def outcomes(N, m):
    """The equally likely places of m answers among N candidates."""
    return list(itertools.combinations(range(1, N + 1), m))


def orders(blocks):
    """The equally likely ranks of the answers of blocks (first place, last place, answers), under all tie orders."""
    choices = [itertools.combinations(range(low, high + 1), t) for low, high, t in blocks]
    return [sorted(itertools.chain(*chosen)) for chosen in itertools.product(*choices)]


def moments(values):
    """Mean and variance of equally likely outcomes: exact for Fractions."""
    mean = sum(values) / len(values)
    return mean, sum((x - mean) ** 2 for x in values) / len(values)
