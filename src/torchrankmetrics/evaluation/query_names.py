"""Names of metrics of queries: those of information retrieval, recommendation and image-text retrieval."""

import re
from collections.abc import Callable

from torchrankmetrics.theory.queries import definitions as queries
from torchrankmetrics.theory.queries.definitions import QueryDefinition

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
    "mrr": "rr",
    "reciprocal_rank": "rr",
    "mean_reciprocal_rank": "rr",
    "first_reciprocal_rank": "rr",
    "map": "ap",
    "average_precision": "ap",
    "mean_average_precision": "ap",
    "normalized_dcg": "ndcg",
    "r_prec": "r_precision",
    "rprec": "r_precision",
    "rprecision": "r_precision",
}
OF_TASKS = ("mrr", "mean_reciprocal_rank")


def parse_query_metric(text: str) -> QueryDefinition | None:
    """Read the name of a metric of queries, ``word``, ``word@k`` or ``word_at_k``; None if it is none.

    Raises:
        ValueError: for ``r@k``, which has two meanings, for a metric without the k that it needs, and for k below 1.

    >>> [parse_query_metric(name).name for name in ("hr@10", "map", "mrr@10", "p@5")]
    ['success_at_10', 'ap', 'rr_at_10', 'precision_at_5']
    """
    word, k = text, None
    if match := re.fullmatch(r"(.+?)(?:@|_at_)(\d+)", text):
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
            raise ValueError(f"{text!r} needs a number of first places: {word}_at_10, for example")
        return WHOLE.get(word)
    return CUT[word](k) if word in CUT else None
