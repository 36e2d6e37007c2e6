"""Metrics of queries by definition: on one list of ranks, over all outcomes and orders of ties.

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


def recall_cap(ranks, N, k):
    return Fraction(sum(r <= k for r in ranks), min(len(ranks), k))


def f1(ranks, N, k):
    """The harmonic mean of precision and recall."""
    p, r = precision(ranks, N, k), recall(ranks, N, k)
    return 2 * p * r / (p + r) if p else Fraction(0)


def ap_cap(ranks, N, k):
    return ap(ranks, N, k) * len(ranks) / min(len(ranks), k)


def fall_out(ranks, N, k):
    """Share of the other candidates among the first k, counted one by one; None without others."""
    others = set(range(1, N + 1)) - set(ranks)
    return Fraction(sum(r <= k for r in others), len(others)) if others else None


def ndcg(ranks, N, k=None):
    top = N if k is None else k
    ideal = math.fsum(gain(i) for i in range(1, min(len(ranks), top) + 1))
    return math.fsum(gain(r) for r in ranks if r <= top) / ideal


def r_precision(ranks, N, k=None):
    return recall(ranks, N, len(ranks))


def auc(ranks, N, k=None):
    """The share of pairs in the right order, counted pair by pair; None without a pair."""
    others = set(range(1, N + 1)) - set(ranks)
    return (
        Fraction(sum(r < x for r in ranks for x in others), len(ranks) * len(others))
        if others
        else None
    )


def outcomes(N, m):
    """The equally likely places of m answers among N candidates."""
    return list(itertools.combinations(range(1, N + 1), m))


def orders(blocks):
    """The equally likely ranks of the answers of blocks, under all tie orders.

    A block is (first place, last place, answers).
    """
    choices = [itertools.combinations(range(low, high + 1), t) for low, high, t in blocks]
    return [sorted(itertools.chain(*chosen)) for chosen in itertools.product(*choices)]


def moments(values):
    """Mean and variance of equally likely outcomes: exact for Fractions."""
    mean = sum(values) / len(values)
    return mean, sum((x - mean) ** 2 for x in values) / len(values)


def places(row, answers, excluded):
    """(first, last, answers) of each tie block with answers, and N; answers are never excluded."""
    candidates = [j for j in range(len(row)) if j in answers or j not in excluded]
    blocks = []
    for score in sorted({row[j] for j in answers}, reverse=True):
        above = sum(1 for j in candidates if row[j] > score)
        tied = sum(1 for j in candidates if row[j] == score)
        blocks.append((above + 1, above + tied, sum(1 for j in answers if row[j] == score)))
    return blocks, len(candidates)


def value(metric, k, row, answers, excluded=(), rank_type="expected"):
    """Value of one query: mean over all possible places of its answers; NaN if there is none."""
    blocks, N = places(row, answers, excluded)
    if rank_type == "optimistic":  # the answers of a block are the first of it
        blocks = [(low, low + number - 1, number) for low, _, number in blocks]
    elif rank_type == "pessimistic":
        blocks = [(high - number + 1, high, number) for _, high, number in blocks]
    found = [metric(ranks, N, k) for ranks in orders(blocks)]
    return math.nan if None in found else math.fsum(found) / len(found)


def first_mr(ranks, N, k=None):
    return Fraction(min(ranks))


NAMES = {
    "recall_at_2": (recall, 2),
    "precision_at_3": (precision, 3),
    "success_at_1": (success, 1),
    "rr": (rr, None),
    "rr_at_2": (rr, 2),
    "ap": (ap, None),
    "ap_at_2": (ap, 2),
    "recall_cap_at_2": (recall_cap, 2),
    "f1_at_2": (f1, 2),
    "ap_cap_at_2": (ap_cap, 2),
    "fall_out_at_2": (fall_out, 2),
    "ndcg": (ndcg, None),
    "ndcg_at_3": (ndcg, 3),
    "r_precision": (r_precision, None),
    "query_auc": (auc, None),
    "first_mr": (first_mr, None),
}


def mean(key, queries, rank_type="expected"):
    """Weighted mean over (row, answers, excluded, weight), without queries that have no value."""
    found = [
        (weight, value(*NAMES[key], *query, rank_type=rank_type)) for *query, weight in queries
    ]
    found = [(weight, x) for weight, x in found if not math.isnan(x)]
    return (
        math.fsum(w * x for w, x in found) / math.fsum(w for w, _ in found) if found else math.nan
    )
