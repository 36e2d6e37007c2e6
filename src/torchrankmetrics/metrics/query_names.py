"""Names of query metrics in retrieval, recommendation and image-text retrieval."""

import re
from collections.abc import Callable

from torchrankmetrics.queries import definitions as queries
from torchrankmetrics.queries.definitions import QueryDefinition
from torchrankmetrics.validation import shown

CUT: dict[str, Callable[[int], QueryDefinition]] = {
    "recall": queries.recall_at,
    "precision": queries.precision_at,
    "success": queries.success_at,
    "rr": queries.first_reciprocal_rank,
    "ap": queries.average_precision,
    "ndcg": queries.normalized_dcg,
}
WHOLE: dict[str, QueryDefinition] = {
    definition.name: definition
    for definition in (
        queries.first_reciprocal_rank(),
        queries.average_precision(),
        queries.normalized_dcg(),
        queries.R_PRECISION,
        queries.QUERY_AUC,
        queries.FIRST_MEAN_RANK,
        queries.FIRST_MEDIAN_RANK,
    )
}
# words of the field; without a cut "mrr" is the mean over answers, a metric of tasks
SYNONYMS = {
    "p": "precision",
    "prec": "precision",
    "hr": "success",
    "hit": "success",
    "hit_rate": "success",
    "hit_ratio": "success",
    "hitrate": "success",
    "s": "success",
    "accuracy": "success",
    "acc": "success",
    "top": "success",
    "mrr": "rr",
    "reciprocal_rank": "rr",
    "mean_reciprocal_rank": "rr",
    "first_reciprocal_rank": "rr",
    "recip_rank": "rr",
    "arhr": "rr",
    "map": "ap",
    "average_precision": "ap",
    "mean_average_precision": "ap",
    "normalized_dcg": "ndcg",
    "normalized_discounted_cumulative_gain": "ndcg",
    "r_prec": "r_precision",
    "rprec": "r_precision",
    "rprecision": "r_precision",
    "meanr": "first_mr",
    "first_mean_rank": "first_mr",
    "mean_first_rank": "first_mr",
    "medr": "first_median_rank",
    "median_first_rank": "first_median_rank",
}
OF_TASKS = ("mrr", "mean_reciprocal_rank")


# metrics of tasks whose names retrieval uses for a metric of queries
_OF_QUERIES = {"mr": "first_mr", "mrr": "rr", "median_rank": "first_median_rank", "auc": "query_auc"}


def query_counterpart(name: str) -> str | None:
    """Name the metric of queries that retrieval calls by the name of a metric of tasks; None for other metrics.

    >>> query_counterpart("mrr"), query_counterpart("hits_at_10"), query_counterpart("gmr")
    ('rr', 'success_at_10', None)
    """
    hits = name.removeprefix("hits_at_")
    return f"success_at_{hits}" if hits != name else _OF_QUERIES.get(name)


def parse_query_metric(text: str) -> QueryDefinition | None:
    """Read the name of a metric of queries, ``word`` or ``word@k``, whose sign may be any; None if it is none.

    Raises:
        ValueError: for ``r@k``, which has two meanings, for a metric without the k that it needs, and for k below 1.

    >>> [parse_query_metric(name).name for name in ("hr@10", "map", "mrr@10", "p_5", "top1_accuracy", "ndcg_cut_10")]
    ['success_at_10', 'ap', 'rr_at_10', 'precision_at_5', 'success_at_1', 'ndcg_at_10']
    """
    word, k = text, None
    if match := re.fullmatch(r"(.+?)(?:@|_at_|_cut_|_)?(\d+)", re.sub(r"^(top_?\d+)_acc(uracy)?$", r"\1", text)):
        word, k = match[1], int(match[2])
    elif word in OF_TASKS:
        return None
    if word == "r" and k is not None:
        raise ValueError(
            f"'r@{k}' has two meanings: recall_at_{k}, the share of the answers among the first {k}, and "
            f"success_at_{k}, whether one of them is there (R@{k} of image-text retrieval); name one of them"
        )
    word = SYNONYMS.get(word, word)
    if k is None:
        if word in CUT and word not in WHOLE:
            raise ValueError(needs_a_number(text, f"{word}_at_10"))
        return WHOLE.get(word)
    return CUT[word](k) if word in CUT else None


def needs_a_number(name: str, example: str) -> str:
    """What is told where the number of first places is missing."""
    return f"{shown(name)} needs a number of first places: {example}, for example"
