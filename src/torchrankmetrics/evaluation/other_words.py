"""Words of other fields that are no names here: the name that is meant, or why there is none."""

import re

_PAGE = "docs/coming_from.md translates the words of other fields"
_CUT = r"(?:(?:@|_at_|_cut_|_)?(?:\d+|k))?"
_OF_HOSTS = {
    "mrr": "rr",
    "map": "ap",
    "hitrate": "success_at_<k>",
    "hitratio": "success_at_<k>",
    "precision": "precision_at_<k>",
    "recall": "recall_at_<k>",
    "normalizeddcg": "ndcg",
    "ndcg": "ndcg",
    "rprecision": "r_precision",
    "auroc": "query_auc",
}
_TOLD = {
    r"d?cg|i?dcg|n?err|rbp": "is not computed here, where an answer is true or not; ndcg is, ir_measures has others",
    r"bpref|inf_?ap|inf_?ndcg": "asks which documents were judged, not at which ranks answers are; ir_measures has it",
    r"f1|f_?(?:1_)?(?:score|measure)|fall_?out": "is not computed here; precision_at_<k> and recall_at_<k> are",
    r"(?:item_|catalog_)?coverage|diversity|novelty|serendipity": "is of the items that are shown, not of ranks",
    r"g_?auc": "is query_auc here, the AUC of every query; weight= of update weighs queries",
    r"pr_?auc|au_?pr|auprc": "is ap here, the average precision of every query",
    r"r_?sum|mean_recall": "is a sum of several metrics: add success_at_1, success_at_5 and success_at_10",
}


def told_of(text: str) -> str | None:
    """What to say of a word, lower case with underscores, that other libraries know; None if it is none of theirs.

    >>> told_of("filtered_mrr")
    "; what is filtered is said by exclude= of update, not by a name: ask for 'mrr'"
    """
    if match := re.fullmatch(r"(?:filtered|filt|raw|unfiltered)_(.+)", text):
        return f"; what is filtered is said by exclude= of update, not by a name: ask for {match[1]!r}"
    if (match := re.fullmatch(r"(?:retrieval|link_?pred)_?(\w+)", text)) and match[1] in _OF_HOSTS:
        return f": it is {_OF_HOSTS[match[1]]!r} here; {_PAGE}"
    for words, said in _TOLD.items():
        if re.fullmatch(f"(?:{words}){_CUT}", text):
            return f": it {said}; {_PAGE}"
    return None
