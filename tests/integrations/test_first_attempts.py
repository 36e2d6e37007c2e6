"""First attempts of users of each field: the error names the right call, and that call works."""

import numpy as np
import pytest
import torch

from torchrankmetrics import (
    KnownTriples,
    MeanRank,
    RankCollection,
    RankMetricWarning,
    Ranks,
    adjust,
    compare,
    evaluate,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.integrations.pyg import ranks_of_predictions
from torchrankmetrics.integrations.trec import evaluate_run, rank_run
from torchrankmetrics.kg import rank_alignment

SCORES = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.8, 0.2, 0.5, 0.4], [0.1, 0.6, 0.2, 0.3]])
TARGET = torch.tensor([1, 2, 3])  # ranks 1, 2, 2


def updated(*args, metrics=("mrr", "hits@1"), **kwargs):
    collection = RankCollection(list(metrics))
    collection.update(*args, **kwargs)
    return {key: value.item() for key, value in collection.compute().items()}


MASK = torch.zeros(3, 4, dtype=torch.bool).index_put_(
    (torch.tensor(1), torch.tensor(0)), torch.tensor(True)
)
OGB = {"y_pred_pos": torch.tensor([2.0, 0.5]), "y_pred_neg": torch.tensor([[1.0, 0.0], [0.4, 0.9]])}
QRELS, RUN = (
    {"q1": {"d1": 1}, "q2": {"d4": 1}},
    {"q1": {"d1": 3.2, "d2": 1.0}, "q2": {"d5": 8.1, "d4": 7.7}},
)
RELEVANT = torch.nn.functional.one_hot(TARGET, 4)
A, B = Ranks([1, 2, 1, 3, 1, 2], None, 50), Ranks([4, 2, 3, 9, 5, 8], None, 50)
POINTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
PAIRS = torch.arange(60)[:, None].repeat(1, 2)
ATTEMPTS = {
    "mask": (
        lambda: updated(SCORES, TARGET, mask=MASK),
        "mask'; did you mean 'exclude'.* True marks",
    ),
    "filter": (
        lambda: updated(SCORES, TARGET, filter=MASK),
        "filter'; did you mean 'exclude'.* True marks",
    ),
    "filters": (
        lambda: updated(SCORES, TARGET, filters=MASK),
        "filters'; did you mean 'exclude'.* True marks",
    ),
    "mask of ranks": (
        lambda: rank_scores(SCORES, TARGET, mask=MASK),
        r"rank_scores\(\).*did you mean 'exclude'",
    ),
    "filter of values": (
        lambda: evaluate(SCORES, TARGET, filter=MASK),
        r"evaluate\(\).*did you mean 'exclude'",
    ),
    "ranks": (lambda: updated(torch.tensor([1, 2, 2])), r"Ranks\(ranks, None, num_candidates\)"),
    "arrays of ranks": (
        lambda: updated(np.array([1, 2, 2]), TARGET),
        r"Ranks\(ranks, None, num_candidates\)",
    ),
    "number": (
        lambda: updated(torch.tensor([1, 2]), num_candidates=4),
        r"Ranks\(ranks, None, num_candidates\)",
    ),
    "ranks of scores": (lambda: Ranks(SCORES, None, 4), "become ranks by rank_scores"),
    "one row": (lambda: evaluate(SCORES[0], 4), r"evaluate\(scores\[None\], \[target\], metrics"),
    "lists": (lambda: updated(SCORES.tolist(), TARGET), r"got list: pass torch.tensor\(preds\)"),
    "OGB": (lambda: updated(OGB), r"got dict: a dict of OGB.* Ranks.from_negatives\(preds\)"),
    "OGB by keyword": (lambda: updated(**OGB), r"Ranks.from_negatives\(dict of y_pred_pos"),
    "word for a number": (lambda: evaluate([1, 2], "104"), "got the str '104'"),
    "dataset": (
        lambda: evaluate([1, 2], "fb15k237"),
        "got the str 'fb15k237'; .*adjust.* PrecomputedExpectation take",
    ),
    "word in ranks": (
        lambda: Ranks([1, 2], None, "104"),
        "num_candidates must .*, got the str '104'",
    ),
    "word in moments": (
        lambda: MeanRank().moments("104"),
        "num_candidates must .*, got the str '104'",
    ),
    "word in adjust": (lambda: adjust(0.3, "mrr", "104"), "'104'.*: pass an int"),
    "runs": (
        lambda: updated(QRELS, RUN),
        r"dicts of dicts are qrels and runs.*trec\.rank_run\(qrels, run\)",
    ),
    "ranks of runs": (
        lambda: rank_scores(QRELS, RUN),
        r"dicts of dicts are qrels and runs.*trec\.rank_run",
    ),
    "values of runs": (lambda: evaluate(QRELS, RUN), r"trec\.evaluate_run\(qrels, run"),
    "names": (lambda: updated(["d1", "d2"], ["d1"]), "names are not scores.*trec"),
    "k": (lambda: evaluate(SCORES, TARGET, k=10), "a cut is part of a name"),
    "top_k": (
        lambda: evaluate(SCORES, TARGET, top_k=10),
        r"is part of a name: .*rank_triples, .* top_k=",
    ),
    "labels": (
        lambda: updated(SCORES, 2 * RELEVANT),
        r"two dimensions.* got .* target\.float\(\) if these are labels",
    ),
    "two labels": (
        lambda: updated(SCORES[:2], RELEVANT[:2]),
        r"two dimensions.* target\.float\(\) if these are labels",
    ),
    "bool lists": (
        lambda: updated(SCORES, RELEVANT.bool().tolist()),
        r"got \[False, True.*labels \(B, N\)",
    ),
    "pairs": (
        lambda: updated(SCORES, torch.tensor([[0, 1], [1, 2], [2, 3]])),
        r"two dimensions.*tuple\(target\.T\) if every row is a pair",
    ),
    "column": (
        lambda: updated(SCORES, TARGET[:, None]),
        r"two dimensions.*target\.tolist\(\) if these are the columns",
    ),
    "dict of targets": (
        lambda: updated(SCORES, {0: 1}),
        r"one entry per row .*pass \[target\[row\] for row in rows\]",
    ),
    "dict of excluded": (
        lambda: updated(SCORES, TARGET, exclude={0: [2]}),
        r"pass \[exclude\[row\] for row in rows\]",
    ),
    "scores": (
        lambda: updated(scores=SCORES, target=TARGET),
        "did you mean 'preds' instead of 'scores'",
    ),
    "direction": (
        lambda: updated(-SCORES, TARGET, higher_is_better=False),
        "better: pass the negative of distances",
    ),
    "metric of alignment": (
        lambda: rank_alignment(PAIRS, POINTS, POINTS, metric="l2"),
        "did you mean 'similarity'",
    ),
    "distance": (
        lambda: rank_embeddings(POINTS, POINTS, PAIRS[:, 0], distance="l2"),
        "did you mean 'similarity'",
    ),
    "metrics": (
        lambda: compare(A, B, metrics=["mrr"]),
        r"compare\(\).*'metrics'; did you mean 'metric'",
    ),
    "metric": (
        lambda: evaluate(A, metric="mrr"),
        r"evaluate\(\).*'metric'; did you mean 'metrics'",
    ),
    "runs of documents": (
        lambda: compare({"a": RUN, "b": RUN}, "ndcg@10"),
        r"'a' must be .*rank_run\(qrels, run\)",
    ),
    "values of pytrec_eval": (
        lambda: compare(QRELS, RUN, "ndcg_cut_10"),
        r"one value per query, \{query: value\}",
    ),
    "three models": (lambda: compare(A, B, A, "mrr"), r"more than two models as a dict: compare\("),
    "no model": (lambda: compare(object(), [2, 2, 4]), "a must be .*"),
    "relevance_level": (
        lambda: evaluate_run(QRELS, RUN, relevance_level=2),
        "did you mean 'relevance_threshold'",
    ),
    "corpus_size": (lambda: rank_run(QRELS, RUN, corpus_size=60), "did you mean 'num_candidates'"),
    "set of names": (lambda: evaluate_run(QRELS, RUN, {"map"}), "got set: pass a list"),
    "p-value": (lambda: evaluate(A, metrics="mrr_pvalue"), "write 'p_mrr'"),
    "several cuts": (
        lambda: evaluate(A, metrics="hits@1,3"),
        r"pass a list: \['hits@1', 'hits@3'\]",
    ),
    # the call fits
    "permutations": (lambda: compare(A, B, permutations="many"), "^permutations must be an int"),
}


@pytest.mark.parametrize(("call", "message"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_the_error_of_a_first_attempt_names_the_right_call(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.filterwarnings("ignore:relevant items of one query")
def test_calls_that_errors_name_work():
    expected = updated(SCORES, TARGET)
    assert updated(SCORES, TARGET, exclude=MASK) == pytest.approx(
        {"mrr": 5 / 6, "hits_at_1": 2 / 3}
    )
    assert updated(Ranks(np.array([1, 2, 2]), None, 4)) == expected
    known = KnownTriples(np.array([[0, 0, 1], [0, 0, 2], [1, 0, 2], [2, 0, 3]]), num_entities=4)
    assert (
        updated(SCORES, TARGET, exclude=known.tails(torch.arange(3), torch.zeros(3).long()))
        == expected
    )
    assert updated(Ranks.from_negatives(OGB)) == evaluate(OGB, metrics=["mrr", "hits@1"])
    values = {"rr_at_10": 0.75, "success_at_1": 0.5}
    assert evaluate_run(QRELS, RUN, ["recip_rank@10", "S@1"], num_candidates=9) == values
    assert evaluate_run(QRELS, RUN, ["map_cut.10", "AP(rel=1)@9"]) == {
        "ap_at_10": 0.75,
        "ap_at_9": 0.75,
    }
    assert updated(rank_run(QRELS, RUN, num_candidates=9), metrics=["mrr@10", "hr@1"]) == values
    assert updated(SCORES, TARGET, exclude=[[0], [], [1, 2]]) == pytest.approx(
        {"mrr": 5 / 6, "hits_at_1": 2 / 3}
    )
    assert updated(SCORES, [[1], {2}, [3]], metrics=["HR@1", "NDCG@4"])["success_at_1"] == 1 / 3
    assert updated(SCORES, RELEVANT > 0) == updated(SCORES, 2.0 * RELEVANT) == expected
    assert updated(SCORES, TARGET[:, None].squeeze(1)) == expected
    ragged = Ranks.from_negatives([1.0, 0.5], [[0.9, 2], [], [0.6, 0.7, 0.1]][::2])
    assert (ragged.pessimistic.tolist(), ragged.num_candidates.tolist()) == ([2, 3], [3, 4])
    lists, edges = torch.tensor([[1, 3], [0, 2], [1, 3]]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    assert updated(ranks_of_predictions(lists, edges, num_dst_nodes=4)) == expected


def test_distances_are_a_warning_that_names_the_line_of_the_call():
    other, target = POINTS + 0.1, PAIRS[:, 0]
    distances = torch.cdist(POINTS, other)
    with pytest.warns(
        RankMetricWarning, match=r"are the scores distances.* pass -distances"
    ) as warned:
        evaluate(distances, target, metrics=["mrr"])
    assert warned[0].filename == __file__
    collection = RankCollection(["mrr"])
    for scores, hint in ((distances, True), (-distances, False)):
        collection.reset()
        collection.update(scores, target)
        assert ("are the scores distances?" in str(collection.summary())) == hint
    hits = evaluate(rank_embeddings(POINTS, other, target, similarity="l2"), metrics=["hits@1"])[
        "hits_at_1"
    ]
    assert evaluate(-distances, target, metrics=["hits@1"])["hits_at_1"] == hits
    table = rank_alignment(PAIRS, POINTS, other, similarity="l2")
    assert evaluate(table, metrics=["hits@1"], sides=["tail"]) == {"tail_hits_at_1": hits}
    with pytest.warns(RankMetricWarning, match=r"'mrr' .*may be too narrow") as warned:
        assert compare(A, B, metric=["mrr"]).rows[0].difference > 0
    assert warned[0].filename == __file__
