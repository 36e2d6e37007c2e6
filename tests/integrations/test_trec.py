"""Qrels and runs as in pytrec_eval, ranx, torchmetrics; values that cut lists leave open raise."""

import gc
import gzip
import json
import random
import warnings
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

import reference_queries
from torchrankmetrics import RankMetricWarning, compare, evaluate
from torchrankmetrics.integrations.trec import evaluate_run, rank_run, read_qrels, read_run

N, DEPTH = 300, 60
OURS = [
    "ap_at_60",
    "rr_at_60",
    "precision_at_10",
    "recall_at_30",
    "success_at_5",
    "ndcg_at_10",
    "ap_at_10",
]
OURS += ["r_precision"]
PYTREC = [
    "map",
    "recip_rank",
    "P_10",
    "recall_30",
    "success_5",
    "ndcg_cut_10",
    "map_cut_10",
    "Rprec",
]
RANX = ["map", "mrr", "precision@10", "recall@30", "hit_rate@5", "ndcg@10", "map@10", "r-precision"]
PYTREC, RANX = (dict(zip(theirs, OURS, strict=True)) for theirs in (PYTREC, RANX))
RANX["mrr@10"] = "rr_at_10"


def trec_eval(qrels, run, **options):
    """The values of each query by pytrec_eval."""
    peer = pytest.importorskip("pytrec_eval", reason="needs pip install pytrec-eval-terrier")
    measures = {
        "map",
        "recip_rank",
        "P.10",
        "recall.30",
        "success.5",
        "ndcg_cut.10,60",
        "map_cut.10",
        "Rprec",
        "ndcg",
    }
    return peer.RelevanceEvaluator(qrels, measures, **options).evaluate(run).values()


def retrieved(seed=0, queries=40, ties=False):
    """Qrels and a run of lists of 60 of 300 documents, most of the relevant ones in them."""
    rng = random.Random(seed)
    documents = [f"d{i}" for i in range(N)]
    qrels, run = {}, {}
    for number in range(queries):
        answers = rng.sample(documents, rng.randint(1, 9))
        qrels[f"q{number}"] = dict.fromkeys(answers, 1) | {"other": 0}
        scores = {name: rng.random() + 0.6 * (name in answers) for name in documents}
        listed = sorted(documents, key=scores.__getitem__, reverse=True)[:DEPTH]
        rng.shuffle(listed)
        run[f"q{number}"] = {
            name: round(scores[name], 1) if ties else scores[name] for name in listed
        }
    return qrels, run


@pytest.mark.parametrize("depth", [DEPTH, 7])
def test_without_num_candidates_values_are_those_of_trec_eval(depth):
    """Documents that the lists lack contribute nothing.

    This includes short and missing lists, and metrics without a cut-off.
    """
    qrels, run = retrieved(4)
    run = {query: dict(list(found.items())[:depth]) for query, found in list(run.items())[:-1]}
    names = PYTREC | {"map": "ap", "recip_rank": "rr", "ndcg": "ndcg"}
    theirs = trec_eval(qrels, run)
    with pytest.warns(RankMetricWarning, match="1 queries have no list in run"):
        ours = evaluate_run(qrels, run, list(names.values()))
    for name, key in names.items():
        assert ours[key] == pytest.approx(
            sum(query[name] for query in theirs) / len(qrels), abs=1e-12
        ), name
    with pytest.warns(RankMetricWarning, match="no list"):
        table = rank_run(qrels, run)
    for name in ("ndcg_at_10", "ndcg"):
        assert evaluate(table, metrics=[name])[name] == pytest.approx(ours[name], abs=1e-12)


@pytest.mark.filterwarnings("ignore:relevant items of one query")
def test_values_without_a_limit_need_num_candidates():
    qrels, run = (
        {"q": {"a": 1, "b": 1}, "p": {"c": 1}},
        {"q": {"a": 2.0, "c": 1.0}, "p": {"a": 2.0}},
    )
    table, other = rank_run(qrels, run), rank_run(qrels, {"q": {"b": 1.0}, "p": {"c": 1.0}})
    for name in ("mr", "gmr", "rank_std", "optimistic_mr", "pessimistic_mr", "first_mr"):
        for call in (
            partial(evaluate_run, qrels, run, name),
            partial(evaluate, table, metrics=name),
        ):
            with pytest.raises(
                ValueError, match=r"depends on the ranks .* not retrieved. Pass num_candidates="
            ):
                call()
    with pytest.raises(ValueError, match="'first_mr' depends on"):
        compare(table, other, "first_mr")
    assert evaluate(other, metrics=["median_rank", "mrr"]) == {
        "median_rank": 1.0,
        "mrr": pytest.approx(2 / 3),
    }


@pytest.mark.parametrize("adjusted", ["z_ap", "adjusted_recall@1", "p_rr", "query_auc"])
def test_values_against_random_ranking_need_num_candidates(adjusted):
    qrels, run = (
        {"q": {"a": 1, "b": 1}, "p": {"c": 1}},
        {"q": {"a": 2.0, "c": 1.0}, "p": {"a": 2.0}},
    )
    with pytest.raises(ValueError, match="num_candidates is needed"):
        evaluate_run(qrels, run, adjusted)


@pytest.mark.parametrize("seed", range(6))
def test_ties_in_the_order_of_trec_eval_have_its_values(seed):
    """trec_eval breaks ties by descending name; its value is between optimistic and pessimistic."""
    qrels, run = retrieved(seed, queries=4, ties=True)
    theirs = trec_eval(qrels, run)
    order = {
        query: sorted(sorted(found, reverse=True), key=lambda name: -found[name])
        for query, found in run.items()
    }
    broken = {
        query: {name: -float(place) for place, name in enumerate(names)}
        for query, names in order.items()
    }
    forms = (run, "pessimistic"), (run, "optimistic"), (broken, "realistic")
    found = (
        evaluate_run(qrels, lists, list(PYTREC.values()), rank_types=kind) for lists, kind in forms
    )
    low, high, ours = (one.values() for one in found)
    for name, worst, best, value in zip(PYTREC, low, high, ours, strict=True):
        assert value == pytest.approx(np.mean([query[name] for query in theirs]), abs=1e-12), name
        assert worst - 1e-12 <= value <= best + 1e-12, name


@pytest.mark.filterwarnings("ignore")  # Numba's, of ranx
def test_ranx_agrees_without_ties_and_its_objects_are_accepted():
    peer = pytest.importorskip("ranx", reason="needs pip install ranx")
    dicts = retrieved(0)
    relevant = {
        query: {name: label for name, label in found.items() if label}
        for query, found in dicts[0].items()
    }
    qrels, run = peer.Qrels(relevant), peer.Run(dicts[1])
    theirs = peer.evaluate(qrels, run, list(RANX))
    ours = evaluate_run(*dicts, list(RANX.values()), num_candidates=N)
    for name, key in RANX.items():
        assert ours[key] == pytest.approx(float(theirs[name]), abs=1e-12), name
    assert evaluate_run(qrels, run, list(RANX.values()), num_candidates=N) == ours


@pytest.mark.parametrize("rank_type", ["expected", "optimistic", "pessimistic"])
def test_documents_outside_the_list_are_one_tie_below_it(rank_type):
    """Against all orders of ties, the documents that no list holds with one score below all."""
    qrels = {"a": {"x": 1, "y": 1, "z": 1}, "b": {"x": 1}}
    run = {"a": {"x": 0.5, "u": 0.5, "v": 0.9}, "b": {"v": 2.0, "x": 1.0}}
    names = ["x", "y", "z", "u", "v", "w", "t"]
    scores = {query: [run[query].get(name, -1.0) for name in names] for query in "ab"}
    queries = [(scores[query], [names.index(x) for x in qrels[query]], ()) for query in "ab"]
    table = rank_run(qrels, run, num_candidates=7)
    assert rank_run(qrels, run, num_candidates={"a": 7, "b": 7}).rows.equal(table.rows)
    for name, (word, k) in reference_queries.NAMES.items():
        expected = [
            reference_queries.value(word, k, *query, rank_type=rank_type) for query in queries
        ]
        assert evaluate(table, metrics={"x": f"{rank_type}_{name}"})["x"] == pytest.approx(
            np.mean(expected), abs=1e-12
        )


@pytest.mark.filterwarnings("ignore:relevant items of one query")
@pytest.mark.parametrize("name", ["ap", "rr", "query_auc", "adjusted_mr", "ndcg", "recall@61"])
def test_values_that_the_lists_leave_open_raise(name):
    qrels, run = retrieved(ties=True)
    with pytest.raises(ValueError, match=r"has 60 documents.*pessimistic_.*Without num_candidates"):
        evaluate_run(qrels, run, [name], num_candidates=N)


@pytest.mark.filterwarnings("ignore:relevant items of one query")
def test_values_that_the_lists_decide_are_returned():
    qrels, run = retrieved(ties=True)
    known = [
        "recall@60",
        "ap@60",
        "ndcg@10",
        "hits@10",
        "z_ap@60",
        "p_recall@10",
        "pessimistic_ap",
        "optimistic_mr",
    ]
    assert len(evaluate_run(qrels, run, known, num_candidates=N)) == len(known)
    for query, found in run.items():  # lists with all answers tell everything
        found |= {name: -1.0 for name in qrels[query] if name not in found}
    assert len(evaluate_run(qrels, run, ["ap", "mr", "ndcg", "query_auc"], num_candidates=N)) == 4


@pytest.mark.parametrize("threshold", [1, 2])
def test_labels_are_gains_and_a_threshold_is_that_of_trec_eval(threshold):
    qrels, run = retrieved(7)
    rng = random.Random(7)
    qrels = {query: {name: rng.randint(-1, 3) for name in found} for query, found in qrels.items()}
    qrels = {query: found for query, found in qrels.items() if max(found.values()) >= threshold}
    theirs = trec_eval(qrels, run, relevance_level=threshold)
    names = PYTREC | {"map": "ap", "recip_rank": "rr", "ndcg_cut_60": "ndcg_at_60"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "relevant items of one query")
        ours = evaluate_run(qrels, run, list(names.values()), relevance_threshold=threshold)
    for name, value in zip(names, ours.values(), strict=True):
        assert value == pytest.approx(np.mean([query[name] for query in theirs]), abs=1e-12), name
    table = rank_run(qrels, run)
    assert evaluate(table, metrics=["ndcg@10"])["ndcg_at_10"] == pytest.approx(
        ours["ndcg_at_10"], abs=1e-12
    )


def test_missing_queries_warn():
    qrels, run = {"q": {"a": 1}, "p": {"b": 1}, "o": {"c": 0}}, {"q": {"a": 2.0}, "x": {"a": 1.0}}
    message = (
        "1 queries have no list in run and count as queries where nothing was retrieved, as in "
        "trec_eval -c; to leave out queries that run lacks, as BEIR does, drop them from qrels; "
        "the first is 'p'"
    )
    with pytest.warns(RankMetricWarning, match=message):
        table = rank_run(qrels, run, num_candidates=9)
    assert table.ranks.pessimistic.tolist() == [9, 1, 0]
    assert table.query.tolist() == [1, 2, 0]


def test_integer_ids_of_queries_are_numbered_as_text():
    qrels = {2: [7], 10: [8]}
    found = rank_run(qrels, {2: [7], 10: [9]}).query_values("rr")
    names = sorted(map(str, qrels))
    assert {names[i]: value for i, value in found.items()} == {"10": 0.0, "2": 1.0}


def test_without_queries_that_the_run_lacks_values_are_means_over_results_of_pytrec_eval():
    qrels, run = retrieved(4)
    run = dict(list(run.items())[:-3])
    values = [query["ndcg"] for query in trec_eval(qrels, run)]
    common = {query: qrels[query] for query in run}
    assert evaluate_run(common, run, "ndcg") == {"ndcg": pytest.approx(np.mean(values), abs=1e-12)}


ONE, LISTED = {"q": {"a": 1}}, {"q": {"a": 1.0}}


@pytest.mark.parametrize(
    ("qrels", "run", "number", "error", "message"),
    [
        (
            ONE,
            {"q1": {"a": 1.0}},
            5,
            ValueError,
            "no query in common: 'q' is in qrels, 'q1' in run",
        ),
        (ONE, {"q": {"a": float("nan")}}, 5, ValueError, "query 'q': score must be a number"),
        (ONE, {"q": {"a": "high"}}, 5, ValueError, "score must be a number, got 'high'"),
        ({"q": {"a": float("inf")}}, LISTED, 5, ValueError, "relevance must be a finite number"),
        (
            ONE | {"p": {"a": 1}},
            {"q": {"b": 1.0, "c": 2.0}, "p": {"a": 1}},
            2,
            ValueError,
            "2 in its list and 1 relevant documents outside, got 2",
        ),
        ({"q": 1}, LISTED, 5, TypeError, "qrels of query 'q' must be a dict.*got int"),
        ({"q": "a"}, LISTED, 5, TypeError, "qrels of query 'q' must be a dict.*got str"),
        (ONE, {"q": {"a", "b"}}, 5, TypeError, "is a set, which has no order"),
        (ONE, {"q": [("a", 1, 2)]}, 5, ValueError, r"expected an id or a pair.*\('a', 1, 2\)"),
        (ONE, {"q": {"a": 1, " a": 2}}, 5, ValueError, "the document 'a' twice"),
        (ONE, {"q": {"a": 1}, "q ": {}}, 5, ValueError, "run has the query 'q' twice"),
        (ONE, [("q", "a")], 5, TypeError, "run must be a dict of query.*got tuple"),
        (ONE, 3, 5, TypeError, "run must be a dict of query.*got int"),
        (ONE, LISTED, {"p": 3}, ValueError, "num_candidates must be an int.*'q'"),
    ],
)
def test_bad_qrels_and_runs_raise(qrels, run, number, error, message):
    with pytest.raises(error, match=message):
        rank_run(qrels, run, num_candidates=number)


QRELS, RUN = (
    {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": 1}},
    {"q1": {"d2": 3.5, "d1": 2.5}, "q2": {"d1": 0.001}},
)


FORMATS = {
    "TREC": ("q1 0 d1 2\r\nq1 0 d2 0\r\nq2 0 d1 1\r\n",
             "q1 Q0 d2 1 3.5 x\nq1 Q0 d1 2 2.5 x\nq2 Q0 d1 1 1e-3 x"),
    "BEIR": ("\ufeffquery-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td1\t1\n",
             "qid docno score\nq1 d2 3.5\nq1 d1 2.5\nq2 d1 0.001\n"),
    "JSON": (json.dumps(QRELS), json.dumps(RUN, indent=2)),
    "JSON lines": ('{"q1": {"d1": 2, "d2": 0}}\n{"q2": {"d1": 1}}',
                   '{"q1": {"d2": 3.5}}\n{"q1": {"d1": 2.5}}\n{"q2": {"d1": 0.001}}\n'),
}  # fmt: skip


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("form", FORMATS)
def test_files_of_other_formats_are_read(tmp_path, form, compress):
    (qrels, run), paths = FORMATS[form], (tmp_path / "qrels", tmp_path / "run")
    for path, text in zip(paths, (qrels, run), strict=True):
        path.write_bytes(gzip.compress(text.encode(), mtime=0) if compress else text.encode())
    assert (read_qrels(paths[0]), read_run(str(paths[1]))) == (QRELS, RUN)
    assert evaluate_run(*paths, "rr") == {"rr": 0.75}


def test_objects_of_other_libraries_are_read():
    """As ir_measures, PyTerrier, MTEB and ranx return them."""
    qrel = namedtuple("Qrel", ["query_id", "doc_id", "relevance", "iteration"])
    scored = namedtuple("ScoredDoc", ["query_id", "doc_id", "score"])
    qrels = [
        (query, name, label) for query, found in QRELS.items() for name, label in found.items()
    ]
    run = [(query, name, score) for query, found in RUN.items() for name, score in found.items()]
    assert read_qrels(qrel(*row, "0") for row in qrels) == QRELS
    assert read_run([scored(*row) for row in run]) == RUN
    pandas = pytest.importorskip("pandas")
    assert read_qrels(pandas.DataFrame(qrels, columns=["qid", "docno", "label"])) == QRELS
    assert read_run(pandas.DataFrame(run, columns=["query_id", "doc_id", "score"])) == RUN
    assert (
        read_qrels(
            [dict(zip(("query-id", "corpus-id", "score"), row, strict=True)) for row in qrels]
        )
        == QRELS
    )
    with pytest.raises(ValueError, match=r"record 0: relevance must be a finite number, got 'x'"):
        read_qrels([qrel("q", "d", "x", "0")])
    with pytest.raises(ValueError, match="record 1: document 'd' of query 'q' is there already"):
        read_run([scored("q", "d", 0.5), scored("q", "d", 0.7)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"q Q0 d 1 nan x\n", "line 1: score must be a number, got 'nan'"),
        (b"q d 3.5\n", "line 1: 3 fields instead of 6; a file of 3 columns begins with a header"),
        (b'{"q": {"d": 1}}\n{"p": {"d": }}', "line 2: Expecting value"),
        (b'{"q": {"d": 1}}\n{"p": {"d": 1\n', "line 2: Expecting ',' delimiter"),
        (b'{"q": 1}', "line 1: expected {query: {document: number}}, got"),
        (b'["q"]', "line 1: expected {query: {document: number}}"),
        (b"query document score\nq d\n", "line 2: 2 fields instead of 3"),
        (b"who what score\nq d 1\n", "run needs the columns .* found who, what, score"),
        (b"\n", "is empty: write a line"),
        (b"q Q0 d 1 1 x\nq Q0 d 2 2 x\n", "line 2: document 'd' of query 'q' is there already"),
        (gzip.compress(b"q Q0 d 1 3.5 x\n", mtime=0)[:-9], "run.gz is a damaged gzip file"),
        (b"q Q0 \xff 1 3.5 x\n", "run.gz is not UTF-8 text"),
        (b"q Q0 d 1 1_0 x\n", "line 1: score must be a number, got '1_0'"),
        (b'{"q": {"d": "1_0"}}', "line 1: score must be a number, got '1_0'"),
        (b'{"q": {"d": 1, "d": 2}}', "line 1 on: 'd' occurs twice in one object"),
        (b'{"q": {"d": 1},\n "q": {"e": 2}}', "line 1 on: 'q' occurs twice in one object"),
        (b'{"p": {"d": 1}}\n{"q": {"d": 1, "d": 2}}', "line 2 on: 'd' occurs twice"),
        (b'{"q": {"d": 1' + b"0" * 400 + b"}}", "line 1: score must be a number"),
        (b'{"q": ' + b"[" * 100_000, "line 1 on: brackets are nested too deeply"),
        (b'{"q":\n' + b"[" * 100_000, "line 1 on: brackets are nested too deeply"),
    ],
)
def test_bad_files_raise(tmp_path, content, message):
    (tmp_path / "run.gz").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_run(tmp_path / "run.gz")


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (
            read_qrels,
            "q Q0 d 1 3.5 x\n",
            "line 1: 6 fields instead of 4; are qrels and run swapped",
        ),
        (read_run, "q 0 d 1\n", "line 1: 4 fields instead of 6; are qrels and run swapped"),
    ],
)
def test_swapped_files_are_named(tmp_path, read, content, message):
    (tmp_path / "file").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "file")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_files_are_closed(tmp_path, compress):
    (tmp_path / "run").write_bytes(compress(b"q Q0 d 1 3.5 x\n"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert read_run(tmp_path / "run") == {"q": {"d": 3.5}}
        gc.collect()
    assert not caught
