"""Brute force for metrics of queries: plain loops over raw scores and over all orders of ties, from the definitions."""

import itertools
import math


def places(row, answers, excluded):
    """(first, last, answers) of every tie block that holds answers, and N; answers are never excluded."""
    candidates = [j for j in range(len(row)) if j in answers or j not in excluded]
    blocks = []
    for score in sorted({row[j] for j in answers}, reverse=True):
        above = sum(1 for j in candidates if row[j] > score)
        tied = sum(1 for j in candidates if row[j] == score)
        blocks.append((above + 1, above + tied, sum(1 for j in answers if row[j] == score)))
    return blocks, len(candidates)


def value(name, k, row, answers, excluded=(), rank_type="expected"):
    """Value of one query: the mean over all choices of places that its answers may have; NaN where there is none."""
    blocks, N = places(row, answers, excluded)
    choices = []
    for low, high, number in blocks:
        inside = list(itertools.combinations(range(low, high + 1), number))
        one = {"expected": inside, "optimistic": inside[:1], "pessimistic": inside[-1:]}[rank_type]
        choices.append(one)
    found = [METRICS[name](sorted(sum(choice, ())), N, k) for choice in itertools.product(*choices)]
    return math.fsum(found) / len(found)


def _gain(rank):
    return 1 / math.log2(1 + rank)


def _auc(ranks, N, _):
    m = len(ranks)
    return 1 - sum(r - i - 1 for i, r in enumerate(ranks)) / (m * (N - m)) if m < N else math.nan


METRICS = {
    "recall": lambda ranks, N, k: sum(r <= k for r in ranks) / len(ranks),
    "precision": lambda ranks, N, k: sum(r <= k for r in ranks) / k,
    "success": lambda ranks, N, k: float(ranks[0] <= k),
    "rr": lambda ranks, N, k: 1 / ranks[0] if k is None or ranks[0] <= k else 0.0,
    "ap": lambda ranks, N, k: sum((i + 1) / r for i, r in enumerate(ranks) if k is None or r <= k) / len(ranks),
    "ndcg": lambda ranks, N, k: (
        sum(_gain(r) for r in ranks if k is None or r <= k)
        / sum(_gain(i + 1) for i in range(min(len(ranks), N if k is None else k)))
    ),
    "r_precision": lambda ranks, N, k: sum(r <= len(ranks) for r in ranks) / len(ranks),
    "query_auc": _auc,
    "first_mr": lambda ranks, N, k: float(ranks[0]),
}
NAMES = {
    "recall_at_2": ("recall", 2),
    "precision_at_3": ("precision", 3),
    "success_at_1": ("success", 1),
    "rr": ("rr", None),
    "rr_at_2": ("rr", 2),
    "ap": ("ap", None),
    "ap_at_2": ("ap", 2),
    "ndcg": ("ndcg", None),
    "ndcg_at_3": ("ndcg", 3),
    "r_precision": ("r_precision", None),
    "query_auc": ("query_auc", None),
    "first_mr": ("first_mr", None),
}


def mean(key, queries, rank_type="expected"):
    """Weighted mean of a metric over (row, answers, excluded, weight), those without a value left out."""
    found = [(weight, value(*NAMES[key], *query, rank_type=rank_type)) for *query, weight in queries]
    found = [(weight, x) for weight, x in found if not math.isnan(x)]
    return math.fsum(w * x for w, x in found) / math.fsum(w for w, _ in found) if found else math.nan
