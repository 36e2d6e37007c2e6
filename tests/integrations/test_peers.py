"""Other tools on the same qrels and runs: a table of tools, versions, metrics, data, tolerances.

Optional: pip install pytrec-eval-terrier ir-measures ranx beir sentence-transformers
llama-index-core cornac torch-geometric. Tools that are not installed are skipped.
"""

import importlib.metadata
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from torchrankmetrics import evaluate
from torchrankmetrics.integrations.trec import evaluate_run
from torchrankmetrics.ranking import ranks_of_lists

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
DOCUMENTS = [f"d{i}" for i in range(60)]
K = 10


def labels(rng, levels):
    """Labels of 3 to 14 documents, so that some queries have more than K."""
    return {name: rng.choice(levels) for name in rng.sample(DOCUMENTS, rng.randint(3, 14))}


def data(kind):
    """Qrels and a run of 60 queries."""
    rng = random.Random(kind)
    levels = [1, 2, 3] if kind == "graded" else [1]
    qrels, run = {}, {}
    for number in range(60):
        query = f"d{number}" if kind == "identical" else f"q{number}"
        qrels[query] = labels(rng, levels) | {"unknown": 1}
        scores = {name: rng.random() + 0.5 * (name in qrels[query]) for name in DOCUMENTS}
        size = {"short": rng.randint(1, 7), "full": 60}.get(kind, 30)
        listed = sorted(DOCUMENTS, key=scores.__getitem__, reverse=True)[:size]
        rng.shuffle(listed)
        digits = 1 if kind == "ties" else 17
        run[query] = {name: round(scores[name], digits) for name in listed}
        if kind == "full":
            del qrels[query]["unknown"]
        if kind == "empty" and number % 7 == 0:
            qrels[query] = dict.fromkeys(qrels[query], 0)
    return qrels, run


def ordered(run):
    """The ids of every list, best first."""
    return {
        query: sorted(found, key=found.__getitem__, reverse=True) for query, found in run.items()
    }


def mean(values):
    values = list(values)
    return {key: float(np.mean([one[key] for one in values])) for key in values[0]}


def pytrec_eval(qrels, run):
    import pytrec_eval as peer

    measures = {"map", "recip_rank", "Rprec", "ndcg", "bpref"}
    measures |= {f"{name}.{K}" for name in ("P", "recall", "success", "ndcg_cut", "map_cut")}
    return mean(peer.RelevanceEvaluator(qrels, measures).evaluate(run).values())


def ir_measures(qrels, run):
    import ir_measures as peer

    names = [f"nDCG@{K}", f"AP@{K}", "AP", f"RR@{K}", f"P@{K}", f"R@{K}", f"Success@{K}", "Rprec"]
    found = peer.calc_aggregate([peer.parse_measure(name) for name in names], qrels, run)
    return {str(measure): value for measure, value in found.items()}


def ranx(qrels, run):
    import ranx as peer

    names = [
        f"{name}@{K}" for name in ("ndcg", "map", "mrr", "precision", "recall", "hit_rate", "f1")
    ]
    names += ["ndcg_burges", "r-precision"]
    return peer.evaluate(peer.Qrels(qrels), peer.Run(run), names)


def beir(qrels, run):
    from beir.retrieval.custom_metrics import mrr, recall_cap, top_k_accuracy
    from beir.retrieval.evaluation import EvaluateRetrieval

    copied = {query: dict(found) for query, found in run.items()}
    found = EvaluateRetrieval.evaluate(qrels, copied, [K])  # drops identical ids
    for function in (mrr, recall_cap, top_k_accuracy):
        found = *found, function(qrels, copied, [K])
    return {key: value for part in found for key, value in part.items()}


def sentence_transformers(qrels, run):
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    relevant = {query: set(found) for query, found in qrels.items()}
    cut = {f"{name}_at_k": [K] for name in ("mrr", "ndcg", "accuracy", "precision_recall", "map")}
    evaluator = InformationRetrievalEvaluator(
        {query: query for query in qrels},
        {name: name for name in [*DOCUMENTS, "unknown"]},
        relevant,
        **cut,
    )
    hits = [
        [{"corpus_id": name, "score": score} for name, score in run[query].items()]
        for query in evaluator.queries_ids
    ]
    return {name: found[K] for name, found in evaluator.compute_metrics(hits).items()}


def llama_index(qrels, run):
    from llama_index.core.evaluation.retrieval import metrics as peer

    made = [peer.HitRate(), peer.MRR(), peer.Recall(), peer.AveragePrecision(), peer.Precision()]
    return mean(
        {
            one.metric_name: one.compute(
                expected_ids=list(qrels[query]), retrieved_ids=ids[:K]
            ).score
            for one in made
        }
        for query, ids in ordered(run).items()
    )


def cornac(qrels, run):
    from cornac.metrics import AUC, MAP, MRR, NDCG, FMeasure, HitRatio, Precision, Recall

    metrics = [AUC(), MAP(), MRR(), NDCG(K), FMeasure(K), HitRatio(K), Precision(K), Recall(K)]
    values = []
    for query, found in run.items():
        scores = np.array([found[name] for name in DOCUMENTS])
        arguments = {
            "gt_pos": np.array([DOCUMENTS.index(name) for name in qrels[query]]),
            "pd_rank": np.argsort(-scores),
            "pd_scores": scores,
            "item_indices": np.arange(len(DOCUMENTS)),
        }
        values.append({one.name: one.compute(**arguments) for one in metrics})
    return mean(values)


def torchmetrics(qrels, run):
    from torchmetrics import retrieval as peer

    made = {
        "nDCG": peer.RetrievalNormalizedDCG(top_k=K),
        "MRR": peer.RetrievalMRR(top_k=K),
        "MAP": peer.RetrievalMAP(),
        "Precision": peer.RetrievalPrecision(top_k=K),
        "Recall": peer.RetrievalRecall(top_k=K),
        "HitRate": peer.RetrievalHitRate(top_k=K),
        "FallOut": peer.RetrievalFallOut(top_k=K),
        "RPrecision": peer.RetrievalRPrecision(),
        "AUROC": peer.RetrievalAUROC(),
    }
    rows = [(i, run[q][d], qrels[q].get(d, 0)) for i, q in enumerate(run) for d in run[q]]
    index, score, label = map(torch.tensor, zip(*rows, strict=True))
    return {
        key: metric(score.double(), label, indexes=index).item() for key, metric in made.items()
    }


def pyg(qrels, run):
    from torch_geometric import metrics as peer

    names = {name: i for i, name in enumerate([*DOCUMENTS, "unknown"])}
    top = torch.tensor([[names[name] for name in ids[:K]] for ids in ordered(run).values()])
    pairs = [(row, names[name]) for row, query in enumerate(run) for name in qrels[query]]
    found = {}
    for name in ("Precision", "Recall", "F1", "MAP", "NDCG", "MRR", "HitRatio"):
        metric = getattr(peer, f"LinkPred{name}")(k=K)
        metric.update(top, torch.tensor(pairs).T)
        found[name] = metric.compute().item()
    return found


class Peer(NamedTuple):
    """A tool that computes the same values: {its name: the name here}, on kinds of data."""

    distribution: str
    version: str
    call: Callable[[Any, Any], dict[str, float]]
    names: dict[str, str]
    data: tuple[str, ...]
    tolerance: float


LISTS = ("plain", "short", "strings")
TREC = {"P_10": "precision@10", "recall_10": "recall@10", "success_10": "success@10", "map": "ap"}
TREC |= {
    "ndcg_cut_10": "ndcg@10",
    "map_cut_10": "ap@10",
    "recip_rank": "rr",
    "Rprec": "r_precision",
}
IR = {"nDCG@10": "ndcg@10", "AP@10": "ap@10", "AP": "ap", "RR@10": "rr@10", "P@10": "precision@10"}
IR |= {"R@10": "recall@10", "Success@10": "success@10", "Rprec": "r_precision"}
RANX = {"ndcg@10": "ndcg@10", "map@10": "ap@10", "mrr@10": "rr@10", "precision@10": "precision@10"}
RANX |= {"recall@10": "recall@10", "hit_rate@10": "success@10", "f1@10": "f1@10"}
RANX |= {"ndcg_burges": "ndcg_exp", "r-precision": "r_precision"}
BEIR = {"NDCG@10": "ndcg@10", "MAP@10": "ap@10", "Recall@10": "recall@10", "P@10": "precision@10"}
BEIR |= {"MRR@10": "rr@10", "R_cap@10": "recall_cap@10", "Accuracy@10": "success@10"}
SBERT = {"accuracy@k": "success@10", "precision@k": "precision@10", "recall@k": "recall@10"}
SBERT |= {"ndcg@k": "ndcg@10", "mrr@k": "rr@10", "map@k": "ap_cap@10"}
LLAMA = {"hit_rate": "success@10", "mrr": "rr@10", "recall": "recall@10", "ap": "ap@10"}
CORNAC = {
    "AUC": "query_auc",
    "MAP": "ap",
    "MRR": "rr",
    "F1@10": "f1@10",
    "HitRatio@10": "success@10",
}
CORNAC |= {"NDCG@10": "ndcg@10", "Precision@10": "precision@10", "Recall@10": "recall@10"}
TORCH = {"nDCG": "ndcg@10", "MRR": "rr@10", "MAP": "ap", "Precision": "precision@10"}
TORCH |= {"Recall": "recall@10", "HitRate": "success@10", "FallOut": "fall_out@10"}
TORCH |= {"RPrecision": "r_precision", "AUROC": "query_auc"}
PYG = {"Precision": "precision@10", "Recall": "recall@10", "F1": "f1@10", "MAP": "ap_cap@10"}
PYG |= {"NDCG": "ndcg@10", "MRR": "rr@10", "HitRatio": "success@10"}
PEERS = [
    Peer("pytrec_eval-terrier", "0.5.11", pytrec_eval, TREC, (*LISTS, "graded", "empty"), 1e-12),
    Peer("ir_measures", "0.4.3", ir_measures, IR, (*LISTS, "graded", "empty"), 1e-12),
    Peer("ranx", "0.3.21", ranx, RANX, (*LISTS, "graded"), 1e-12),
    Peer("beir", "2.2.0", beir, BEIR, (*LISTS, "identical"), 1e-5),
    Peer("sentence-transformers", "6.2.0", sentence_transformers, SBERT, LISTS, 1e-12),
    Peer("llama-index-core", "0.14.25", llama_index, LLAMA, LISTS, 1e-12),
    Peer("cornac", "3.0.1", cornac, CORNAC, ("full",), 1e-12),
    Peer("torchmetrics", "1.9.0", torchmetrics, TORCH, ("full",), 1e-6),
    Peer("torch-geometric", "2.8.1", pyg, PYG, ("plain",), 1e-6),
]
CASES = [(peer, kind) for peer in PEERS for kind in peer.data]


def require(peer):
    """Skip a tool that is not installed, or in another version than the table says."""
    try:
        version = importlib.metadata.version(peer.distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs pip install {peer.distribution}")
    if version != peer.version:
        pytest.skip(f"the table is about {peer.distribution} {peer.version}, got {version}")


@pytest.mark.parametrize(
    ("peer", "kind"), CASES, ids=[f"{peer.distribution}-{kind}" for peer, kind in CASES]
)
def test_values_are_those_of_the_tool(peer, kind):
    require(peer)
    qrels, run = data(kind)
    theirs = peer.call(qrels, run)
    options = {"ignore_identical_ids": True} if kind == "identical" else {}
    if kind == "full":
        options["num_candidates"] = len(DOCUMENTS)
    ours = evaluate_run(qrels, run, list(peer.names.values()), **options)
    for name, value in zip(peer.names, ours.values(), strict=True):
        assert value == pytest.approx(theirs[name], abs=peer.tolerance), name
    if kind == "strings":  # the same values from ids of another type
        numbers = [{q: {int(d[1:]): x for d, x in found.items() if d != "unknown"}
                    for q, found in one.items()} for one in (qrels, run)]  # fmt: skip
        again = evaluate_run(*numbers, "rr@10")
        assert again["rr_at_10"] == pytest.approx(ours.get("rr_at_10", again["rr_at_10"]))


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.distribution)
def test_with_ties_the_tool_has_one_of_the_orders(peer):
    """Its value is between the pessimistic and the optimistic; ours is the mean over all orders."""
    require(peer)
    if peer.data == ("full",):
        pytest.skip("scores all documents")
    qrels, run = data("ties")
    theirs, names = peer.call(qrels, run), list(peer.names.values())
    found = evaluate_run(qrels, run, names, rank_types=["pessimistic", "expected", "optimistic"])
    values = list(found.values())
    for i, name in enumerate(peer.names):
        worst, ours, best = values[3 * i : 3 * i + 3]
        assert worst - peer.tolerance <= theirs[name] <= best + peer.tolerance, name
        assert worst <= ours <= best


def test_padded_matrices_have_the_values_of_flat_lists_of_torchmetrics():
    """Lists of different lengths in one matrix, with the padding in exclude."""
    require(PEERS[7])
    rng = np.random.default_rng(0)
    length = rng.integers(4, 20, 50)
    padding = np.arange(20) >= length[:, None]
    scores = np.where(padding, 0.0, rng.random((50, 20)) + 0.1)
    label = (rng.random((50, 20)) < 0.3) & ~padding
    label[:, 0] = True
    qrels = {q: {f"d{j}": int(x) for j, x in enumerate(row[:n])}
             for q, (row, n) in enumerate(zip(label, length, strict=True))}  # fmt: skip
    run = {q: {f"d{j}": x for j, x in enumerate(row[:n])}
           for q, (row, n) in enumerate(zip(scores.tolist(), length, strict=True))}  # fmt: skip
    names = {name: ours for name, ours in TORCH.items() if name not in ("FallOut", "AUROC")}
    theirs = torchmetrics(qrels, run)
    ours = evaluate(scores, label, list(names.values()), exclude=padding)
    for name, value in zip(names, ours.values(), strict=True):
        assert value == pytest.approx(theirs[name], abs=1e-6), name


# one list of four documents, of which the first and the third are relevant, and a third relevant
# document that was not retrieved
BY_HAND = {
    "RecBole map@2, recommenders map_at_k, Transformers4Rec avg_precision_at": ("ap_cap@2", 1 / 2),
    "RecBole map@4, lenskit AveragePrecision": ("ap_cap@4", (1 + 2 / 3) / 3),
    "RecTools MAP(2)": ("ap@2", 1 / 3),
    "lenskit Recall(2)": ("recall_cap@2", 1 / 2),
    "RecBole recall@2, LightGCN, recommenders": ("recall@2", 1 / 3),
    "RecBole precision@3": ("precision@3", 2 / 3),
    "RecBole mrr@2": ("rr@2", 1),
    "RecBole ndcg@3, LightGCN": ("ndcg@3", (1 + 1 / 2) / (1 + 1 / np.log2(3) + 1 / 2)),
    "recommenders, F1@3 of precision 2/3 and recall 2/3": ("f1@3", 2 / 3),
}


@pytest.mark.parametrize(("name", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_values_of_tools_that_were_read_and_not_run(name, expected):
    (value,) = evaluate_run({"u": ["a", "b", "c"]}, {"u": ["a", "x", "b", "y"]}, name).values()
    assert value == pytest.approx(expected, rel=1e-12)


def test_mrr_of_allrank_is_that_of_the_largest_label():
    qrels, run = {"q": {"a": 1, "b": 2}}, {"q": ["a", "b"]}
    assert evaluate_run(qrels, run, "rr", relevance_threshold=2) == {"rr_rel_2": 0.5}


def test_precision_of_llama_index_over_short_lists_divides_by_their_length():
    require(PEERS[5])
    qrels, run = data("short")
    ids = [list(one) for one in ordered(run).values()]
    by_hand = [len({*qrels[q]} & {*one}) / len(one) for q, one in zip(qrels, ids, strict=True)]
    assert llama_index(qrels, run)["precision"] == pytest.approx(np.mean(by_hand))
    assert evaluate_run(qrels, run, "precision@10")["precision_at_10"] < np.mean(by_hand)


def test_lists_of_a_vector_index_have_the_values_of_the_run():
    qrels, run = data("plain")
    number = {name: i for i, name in enumerate([*DOCUMENTS, "unknown"])}
    lists = [[number[name] for name in ids] for ids in ordered(run).values()]
    relevant = [{number[name]: x for name, x in qrels[q].items()} for q in run]
    names = list(SBERT.values())
    expected = evaluate_run(qrels, run, names)
    assert evaluate(ranks_of_lists(lists, relevant), metrics=names) == pytest.approx(expected)
