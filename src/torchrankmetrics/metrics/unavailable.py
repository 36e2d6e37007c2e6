"""Metrics of other tools that are not available here, and why: for error messages and the docs."""

import re
from typing import NamedTuple


class Unavailable(NamedTuple):
    """Metrics that are not available for one reason."""

    names: str  # as their tools write them
    pattern: str  # of names in lower case, without a cut-off at the end
    reason: str  # the end of the sentence "it ..."


UNAVAILABLE = (
    Unavailable(
        "bpref, hole@k, judged@k",
        r"bpref|holes?|judged",
        "depends on which documents have a judgment, not on ranks alone; ir_measures has bpref and "
        "judged@k",
    ),
    Unavailable(
        "infAP, infNDCG",
        r"x?inf_?ap|inf_?ndcg|stat_?ap",
        "estimates a metric from sampled judgments; trec_eval's sample_eval has it",
    ),
    Unavailable(
        "ERR, nERR, INST, TBG",
        r"n?err(?:_ia)?|ia_err|insq|inst|tbg",
        "models a reader who stops at a satisfying document; ir_measures has it",
    ),
    Unavailable(
        "alpha-nDCG, intent-aware metrics, subtopic recall",
        r"(?:alpha|a|ia)_?(?:n?dcg|p|ap)|nrbp|st_?rec(?:all)?",
        "needs the subtopics of a query; ir_measures has it",
    ),
    Unavailable(
        "coverage, novelty, diversity, serendipity, Gini, popularity, personalization",
        r"(?:item_?|catalog_?|user_?|category_?)?coverage|(?:intra_?list_?)?(?:diversity|ild)"
        r"|novelty|miuf|serendipity|gini(?:_?index)?|(?:average_?|avg_?)?(?:rec_?)?popularity|arp"
        r"|tail_?percentage|personalization|(?:shannon_?)?entropy",
        "depends on the recommended items or their popularity, not on ranks",
    ),
    Unavailable(
        "RMSE, MAE, log loss",
        r"r?mse|mae|r2|log_?loss",
        "compares predicted with true ratings, not ranks",
    ),
    Unavailable(
        "RBO, Kendall's tau, Spearman's rho",
        r"rbo(?:_ext)?|kendall(?:_?s?_?tau)?|tau(?:_ap)?|spearman(?:_?s?_?rho)?|footrule",
        "compares two rankings with each other; scipy.stats and ranx have such measures",
    ),
    Unavailable(
        "nAUC",
        r"n_?auc(?:_.*)?",
        "measures the confidence of a model per query, as MTEB does, not a ranking",
    ),
    Unavailable(
        "NCRR",
        r"ncrr",
        "is the sum of 1/r over its best value: QueryDefinition('ncrr', f=..., divisor=...) "
        "defines it",
    ),
    Unavailable(
        "GMAP and other aggregates than the mean",
        r"gm_?(?:map|ap|bpref|ndcg)|gmap"
        r"|(?:median|std|min|max|worst)_(?:map|ap|ndcg|rr|recall|precision)",
        "is another aggregate than the mean over queries: RankTable.query_values returns the value "
        "of every query",
    ),
    Unavailable(
        "MAP@R",
        r"map(?:@|_at_|_)?r|mean_average_precision_at_r",
        "is average precision within the first m places of a query with m relevant items; "
        "pytorch-metric-learning has it",
    ),
    Unavailable(
        "iprec, 11pt_avg, set_P, set_recall, set_F",
        r"iprec(?:_at_recall)?.*|11pt_?avg|set_(?:p|recall|f|map|relative_p)|relative_p|utility",
        "interpolates precision or depends on where a list ends; pytrec_eval has it",
    ),
    Unavailable(
        "num_ret, num_rel, num_rel_ret, num_q",
        r"num_(?:ret|rel|rel_ret|q|nonrel_judged_ret)",
        "counts documents or queries",
    ),
    Unavailable(
        "F-beta for beta other than 1",
        r"f_?(?:0_?[.p]?5|2|beta)(?:_?score|_?measure)?",
        "is not available; f1_at_<k>, precision_at_<k> and recall_at_<k> are",
    ),
    Unavailable(
        "CG, IDCG, nCG",
        r"n?cg|idcg",
        "is not available; dcg and ndcg are",
    ),
    Unavailable(
        "hits@10_50",
        r"(?:h|hits?)(?:@|_at_|_)?\d+[_(]\d+\)?",
        "is the expected hits@10 among 50 sampled candidates; for ranks among samples use "
        "Ranks.from_negatives, for ranks among all a RankDefinition with WithCandidates",
    ),
)


def reason_for(text: str) -> str | None:
    """Return why a metric of another tool is not available; None if it is not in the list.

    Args:
        text (str): a name in lower case, with a cut-off or without.
    """
    for one in UNAVAILABLE:
        if re.fullmatch(rf"(?:{one.pattern})(?:(?:@|_at_|_cut_|_)?(?:\d+|k))?", text):
            return one.reason
    return None
