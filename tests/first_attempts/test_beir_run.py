"""A run of BEIR: its qrels and results are dicts of dicts; values against trec_eval. Grades above 1 are not covered."""

import numpy as np
import pytest

from torchrankmetrics import compare, evaluate
from torchrankmetrics.integrations.trec import evaluate_run, rank_run

_rng = np.random.default_rng(0)
CORPUS = {f"d{number}": {"title": "", "text": ""} for number in range(300)}
QRELS = {f"q{number}": dict.fromkeys(_rng.choice(list(CORPUS), 3, replace=False).tolist(), 1) for number in range(25)}


def results_of(skill):
    """The 100 best documents of each query, as a retriever of BEIR returns them."""
    run = {}
    for query, relevant in QRELS.items():
        scores = {document: float(_rng.normal() + skill * (document in relevant)) for document in CORPUS}
        run[query] = dict(sorted(scores.items(), key=lambda item: -item[1])[:100])
    return run


RESULTS = results_of(1.5)


@pytest.mark.parametrize(
    "names",
    [["NDCG@10", "MAP@100", "Recall@100", "P@10"], ["ndcg_cut_10", "map_cut_100", "recall_100", "P_10"]],
    ids=["BEIR", "trec_eval"],
)
def test_values_equal_those_of_trec_eval(names):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    values = evaluate_run(QRELS, RESULTS, names, num_candidates=len(CORPUS))
    evaluator = pytrec_eval.RelevanceEvaluator(QRELS, {"ndcg_cut.10", "map_cut.100", "recall.100", "P.10"})
    queries = evaluator.evaluate(RESULTS).values()
    theirs = [
        np.mean([query[name] for query in queries]) for name in ("ndcg_cut_10", "map_cut_100", "recall_100", "P_10")
    ]
    assert list(values.values()) == pytest.approx(theirs)


def test_two_retrievers_are_compared_on_the_same_queries():
    runs = {"bm25": RESULTS, "dense": results_of(3.0)}
    tables = {name: rank_run(QRELS, run, num_candidates=len(CORPUS)) for name, run in runs.items()}
    ndcg = [evaluate_run(QRELS, run, ["ndcg@10"], num_candidates=300)["ndcg_at_10"] for run in runs.values()]
    row = compare(tables, ["ndcg@10"]).rows[0]
    assert abs(row.difference) == pytest.approx(ndcg[1] - ndcg[0])


def test_errors_name_the_right_spelling():
    with pytest.raises(ValueError, match="num_candidates"):
        evaluate_run(QRELS, RESULTS, ["adjusted_ndcg@10"])
    with pytest.raises(ValueError, match=r"len\(corpus\)"):
        evaluate_run(QRELS, RESULTS, ["ndcg@10"], num_candidates=CORPUS)
    with pytest.raises(TypeError, match=r"evaluate_run\(qrels, run, metrics, num_candidates=...\)"):
        evaluate(QRELS, RESULTS, metrics=["ndcg@10"])
