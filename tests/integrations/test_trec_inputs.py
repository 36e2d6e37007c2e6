"""What users pass as qrels and runs: lists, ids of other types, headers, frames, fractions."""

import importlib
import importlib.util
import json
from collections import namedtuple

import numpy as np
import pytest
import torch

from torchrankmetrics import RankMetricWarning, compare, evaluate
from torchrankmetrics.integrations.trec import evaluate_run, rank_run, read_qrels, read_run
from torchrankmetrics.ranking import ranks_of_lists

METRICS = ["rr", "ap", "ndcg@3", "recall@2", "precision@2"]
QRELS = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1}}
RUN = {"q1": {"b": 3.0, "a": 2.0, "c": 1.0}, "q2": {"b": 9.0}}
VALUES = evaluate_run(QRELS, RUN, METRICS)


# identical ids


def test_documents_with_the_id_of_their_query_are_left_out_on_request():
    """BEIR's default: the query itself, which is in the collection, is not an answer."""
    run = {"q1": RUN["q1"] | {"q1": 10.0}, "q2": RUN["q2"]}
    assert evaluate_run(QRELS, run, METRICS, ignore_identical_ids=True) == VALUES
    left = rank_run(QRELS, run, ignore_identical_ids=True)
    assert torch.equal(left.rows, rank_run(QRELS, RUN).rows)
    kept = evaluate_run(QRELS, run, "rr", ignore_identical_ids=False)
    assert kept == {"rr": (1 / 3 + 1) / 2}
    with pytest.warns(RankMetricWarning, match="1 queries have a document with their own id.*'q1'"):
        assert evaluate_run(QRELS, run, "rr") == kept


# lists of ids


@pytest.mark.parametrize(
    "run",
    [
        {"q1": ["b", "a", "c"], "q2": ["b"]},
        {"q1": ("b", "a", "c"), "q2": ("b",)},
        {"q1": np.array(["b", "a", "c"]), "q2": np.array(["b"])},
        {"q1": [("b", 3.0), ("a", 2.0), ("c", 1.0)], "q2": [["b", 9]]},
        {"q1": ["b", "a", "b", "c", "a"], "q2": ["b", "b"]},
        {"q1": [("b", 3.0), ("a", 2.0), ("b", 0.5), ("c", 1.0)], "q2": [("b", 9.0)]},
        {"q1": [{"corpus_id": x, "score": s} for x, s in RUN["q1"].items()], "q2": ["b"]},
    ],
)
@pytest.mark.parametrize(
    "qrels",
    [
        {"q1": ["a", "d"], "q2": ["b"]},
        {"q1": {"a", "d"}, "q2": {"b"}},
        {"q1": frozenset("ad"), "q2": ("b", "b")},
        {"q1": [("a", 1), ("d", 1.0)], "q2": ["b"]},
    ],
)
def test_lists_have_the_values_of_dicts(qrels, run):
    assert evaluate_run(qrels, run, METRICS) == VALUES


@pytest.mark.parametrize("number", [None, 30], ids=str)
def test_lists_of_numbers_have_the_values_of_ranks_of_lists(number):
    generator = np.random.default_rng(0)
    lists = [generator.permutation(30)[:size].tolist() for size in (5, 1, 12, 30)]
    relevant = [{3: 1, 7: 2, 29: 1}, {1: 1}, {4: 3}, {0: 1, 5: 0.5}]
    qrels, run = ({f"q{i}": one for i, one in enumerate(all_)} for all_ in (relevant, lists))
    ranks = ranks_of_lists(lists, relevant, number)
    names = ["ndcg@5", "ap@5", "recall@5", "rr@5"]
    ours = evaluate_run(qrels, run, names, num_candidates=number, rank_types="pessimistic")
    assert ours == evaluate(ranks, metrics=names, rank_types="pessimistic")


def test_json_files_may_hold_lists(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"q1": ["b", "a", "c"], "q2": [["b", 9.0]]}))
    assert evaluate_run({"q1": ["a", "d"], "q2": ["b"]}, path, METRICS) == VALUES


# ids


@pytest.mark.parametrize(
    "qrels",
    [{"0": {"11": 1}, "1": {"12": 1}}, {0: {" 11": 1}, "1 ": {"12\n": 1}}],
    ids=["text", "numbers"],
)
def test_ids_are_compared_as_stripped_text(qrels):
    run = {0: {10: 2.0, 11: 1.0}, np.int64(1): {np.int32(12): 1.0}}
    assert evaluate_run(qrels, run, "rr", ignore_identical_ids=True) == {"rr": 0.75}


def test_numbers_of_candidates_may_have_ids_of_both_types():
    run = {0: {10: 2.0, 11: 1.0}, np.int64(1): {np.int32(12): 1.0}}
    sizes = {"0": 20, 1: 30}
    table = rank_run({0: [11], 1: [12]}, run, num_candidates=sizes)
    assert table.ranks.num_candidates.tolist() == [20, 30]


def test_ids_that_never_match_warn():
    """Floats become "10.0", which no id of the run is."""
    with pytest.warns(RankMetricWarning, match=r"no relevant document.*'10\.0' in qrels and '10'"):
        assert evaluate_run({"q": {10.0: 1}}, {"q": {10: 1.0}}, "rr")["rr"] < 1e-15


# files with a header


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("qid pid rank", ["q1 b 1", "q1 a 2", "q1 c 3", "q2 b 1"]),
        ("qid\tpid\trank", ["q1\tb\t1", "q1\ta\t2", "q1\tc\t3", "q2\tb\t1"]),
        ("query-id corpus-id score", ["q1 b 3", "q1 a 2", "q1 c 1", "q2 b 9"]),
        ("rank qid docno score", ["9 q1 b 3", "8 q1 a 2", "7 q1 c 1", "1 q2 b 9"]),
        ("user_id:token\titem_id:token\tscore:float",
         ["q1\tb\t3", "q1\ta\t2", "q1\tc\t1", "q2\tb\t9"]),
        ("qid Q0 docno rank score tag", ["q1 Q0 b 9 3 x", "q1 Q0 a 8 2 x", "q2 Q0 b 1 1 x"]),
    ],
)  # fmt: skip
def test_names_of_columns_decide_how_a_file_is_read(tmp_path, header, lines):
    path = tmp_path / "run.txt"
    path.write_text("\n".join([header, *lines]) + "\n")
    assert evaluate_run(QRELS, path, METRICS) == VALUES


def test_a_line_of_trec_is_read_by_its_score_not_by_its_rank(tmp_path):
    path = tmp_path / "run.txt"
    path.write_text("q1 Q0 b 7 3.0 x\nq1 Q0 a 1 2.0 x\nq1 Q0 c 2 1.0 x\nq2 Q0 b 1 9 x\n")
    assert evaluate_run(QRELS, path, METRICS) == VALUES


# frames and records


def frames(columns):
    """The frames of the libraries that are installed."""
    makers = {"pandas": "DataFrame", "pyarrow": "table", "polars": "DataFrame"}
    for module, maker in makers.items():
        if importlib.util.find_spec(module):
            yield getattr(importlib.import_module(module), maker)(columns)


@pytest.mark.parametrize(
    ("query", "document"),
    [("user_id", "item_id"), ("query_id", "doc_id"), ("user", "item"), ("qid", "docno")],
)
@pytest.mark.parametrize(("value", "numbers"), [("score", [3.0, 2, 1, 9]), ("rank", [1, 2, 3, 1])])
def test_frames_and_records_are_read_by_the_names_of_columns(query, document, value, numbers):
    run = {query: ["q1", "q1", "q1", "q2"], document: ["b", "a", "c", "b"], value: numbers}
    qrels = {query: ["q1", "q1", "q2"], document: ["a", "d", "b"], "rating": [1.0, 1.0, 1.0]}
    rows = [dict(zip(run, row, strict=True)) for row in zip(*run.values(), strict=True)]
    record = namedtuple("record", run)
    forms = [rows, [record(**row) for row in rows], *frames(run)]
    for form in forms:
        assert evaluate_run(QRELS, form, METRICS) == VALUES
    for form in frames(qrels):
        assert evaluate_run(form, RUN, METRICS) == VALUES


@pytest.mark.parametrize("frame", frames({"user_id": [1, 1, 2], "item_id": [5, 6, 5]}))
def test_interactions_without_a_rating_are_relevant(frame):
    assert read_qrels(frame) == {"1": {"5": 1, "6": 1}, "2": {"5": 1}}


def test_an_error_names_the_columns_that_were_found():
    message = r"run needs the columns query_id \(or user_id\).* found who, item_id, score"
    for frame in frames({"who": ["q1"], "item_id": ["b"], "score": [1.0]}):
        with pytest.raises(ValueError, match=message):
            read_run(frame)
    with pytest.raises(ValueError, match=r"found user, item$"):
        read_run([{"user": 1, "item": 2}])


@pytest.mark.parametrize(
    "frame", frames({"user_id": ["q1", "q1"], "item_id": ["b", "c"], "score": [1.0, None]})
)
def test_a_missing_value_of_a_frame_is_an_error(frame):
    with pytest.raises(ValueError, match="run, row 1: score must be a number"):
        read_run(frame)


# labels


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan")], ids=str)
def test_a_missing_id_is_an_error(missing):
    for qrels in ({"q1": ["a", missing]}, {"q1": {missing: 1}}, {missing: ["a"]}):
        with pytest.raises(ValueError, match=r"an id is missing .*drop such rows"):
            evaluate_run(qrels, RUN, "rr")
    records = [{"query_id": "q1", "doc_id": name, "score": 1.0} for name in ("a", missing)]
    with pytest.raises(ValueError, match="run, record 1: an id is missing"):
        evaluate_run(QRELS, records, "rr")
    assert read_qrels({"nan": ["None"]}) == {"nan": {"None": 1.0}}  # text


def test_distances_warn():
    ids = [f"d{i}" for i in range(50)]
    qrels = {f"q{i}": [f"d{i}"] for i in range(50)}
    distances = {q: {d: float(d not in own) for d in ids} for q, own in qrels.items()}
    with pytest.warns(RankMetricWarning, match=r"in the lists of run .*negate the scores"):
        rank_run(qrels, distances)


def test_labels_are_numbers_as_in_matrices():
    """Half stars and judgments of language models: gains of nDCG, a threshold for the others."""
    qrels = {"q": {"a": 0.5, "b": 2.5, "c": 0, "d": -1}}
    run = {"q": ["a", "b", "c", "d"]}
    names = ["ndcg", "recall@1_rel_0p5", "recall@1_rel_2p5", "dcg"]
    scores, labels = torch.tensor([[4.0, 3, 2, 1]]), torch.tensor([[0.5, 2.5, 0, 0]])
    assert evaluate_run(qrels, run, names) == evaluate(scores, labels, names)
    table = rank_run(qrels, run)
    assert evaluate(table, metrics=["ndcg"])["ndcg"] == evaluate_run(qrels, run, "ndcg")["ndcg"]


def test_fractions_in_files(tmp_path):
    path = tmp_path / "qrels.tsv"
    path.write_text("query-id\tcorpus-id\tscore\nq\ta\t0.5\nq\tb\t2.5\n")
    assert read_qrels(path) == {"q": {"a": 0.5, "b": 2.5}}


def test_swapped_arguments_warn():
    with pytest.warns(RankMetricWarning, match="are the two arguments swapped"):
        evaluate_run({"q": {"a": 0.25, "b": 1.5}}, {"q": {"a": 1, "c": 0}}, "ndcg")


def test_negative_labels_of_matrices_name_exclude():
    with pytest.raises(ValueError, match=r"labels of at least 0, got -100\.0.*exclude="):
        evaluate(torch.rand(1, 3), torch.tensor([[1.0, 0, -100]]), ["ndcg"])


# names of metrics


def test_mrr_of_a_run_is_rr():
    for name, key in {"mrr": "rr", "z_mrr": "z_rr", "MRR@2": "rr_at_2"}.items():
        options = {"num_candidates": 50} if name == "z_mrr" else {}
        rr = evaluate_run(QRELS, RUN, name.lower().replace("mrr", "rr"), **options)
        if name == "MRR@2":
            assert evaluate_run(QRELS, RUN, name) == rr
            continue
        with pytest.warns(RankMetricWarning, match="'mrr' of a run is 'rr'"):
            assert evaluate_run(QRELS, RUN, name, **options) == rr
        assert list(rr) == [key]
    with pytest.warns(RankMetricWarning, match="'mrr' of a run is 'rr'"):
        assert evaluate_run(QRELS, RUN, {"mine": "mrr"}) == {"mine": VALUES["rr"]}
    with pytest.warns(RankMetricWarning, match="relevant items of one query"):
        assert evaluate(rank_run(QRELS, RUN), metrics="mrr") == {"mrr": pytest.approx(0.5)}


# values of queries


def test_values_of_queries_have_their_ids_and_compare_joins_them():
    queries = {f"q{i}": [f"d{i}", f"d{i + 1}"] for i in range(60)}
    generator = np.random.default_rng(1)
    runs = [
        {q: generator.permutation([*ids, "x", "y", "z"]).tolist() for q, ids in queries.items()}
        for _ in range(2)
    ]
    names = ["rr", "ndcg@3"]
    a, b = (evaluate_run(queries, run, names, per_query=True) for run in runs)
    assert list(a) == sorted(queries)
    for key, mean in evaluate_run(queries, runs[0], ["rr", "ndcg@3"]).items():
        assert np.mean([values[key] for values in a.values()]) == pytest.approx(mean, rel=1e-12)
    first = runs[0]["q0"].index("d0"), runs[0]["q0"].index("d1")
    assert a["q0"]["rr"] == 1 / (1 + min(first))
    found = compare(a, b, "NDCG@3")
    tables = [rank_run(queries, run) for run in runs]
    expected = compare(*tables, "ndcg@3")
    assert found.metric == "ndcg_at_3"
    assert found.difference == pytest.approx(expected.difference, rel=1e-12)
    assert found.p_value == pytest.approx(expected.p_value, abs=0.02)
    several = compare({"a": a, "b": b}, "rr")
    assert several.rows[0].difference == pytest.approx(a_minus_b(a, b, "rr"), rel=1e-12)
    with pytest.raises(ValueError, match=r"with the metric 'ap'; got rr, ndcg_at_3"):
        compare(a, b, "ap")


def test_queries_without_a_relevant_document_count_as_0():
    qrels, run = QRELS | {"q0": {"a": 0}, "q3": {}}, RUN | {"q0": {"a": 1.0}}
    with pytest.warns(RankMetricWarning, match="2 queries have no relevant document.* count as 0"):
        values = evaluate_run(qrels, run, "rr", per_query=True)
    assert values == {"q0": {"rr": 0}, "q1": {"rr": 0.5}, "q2": {"rr": 1.0}, "q3": {"rr": 0}}
    with pytest.raises(ValueError, match="relevant"):
        evaluate_run(qrels, run, "rr", empty_queries="error")


@pytest.mark.parametrize(
    "number", [9, {"q0": 7, "q1": 8, "q2": 9, "q3": 9}], ids=["one number", "a number per query"]
)
def test_adjusted_values_are_those_of_the_queries_with_a_relevant_document(number):
    qrels, run = QRELS | {"q0": {"a": 0}, "q3": {}}, RUN | {"q0": {"a": 1.0}}
    with pytest.warns(RankMetricWarning, match="count as 0"):
        found = evaluate_run(qrels, run, ["rr", "adjusted_rr"], num_candidates=number)
    skipped = evaluate_run(
        qrels, run, ["rr", "adjusted_rr"], num_candidates=number, empty_queries="skip"
    )
    assert found["rr"] == skipped["rr"] / 2 == 0.375
    assert found["adjusted_rr"] == pytest.approx(skipped["adjusted_rr"])


def a_minus_b(a, b, key):
    return np.mean([a[query][key] - b[query][key] for query in a])


def test_runs_of_different_qrels_are_not_compared():
    """The sample ids depend on the relevant documents, not on their number or order."""
    tables = [
        rank_run(qrels, RUN)
        for qrels in (
            QRELS,
            {"q2": ["b"], "q1": ["d", "a"]},
            {"q1": ["a", "c"], "q2": ["b"]},
            {"q1": ["a"], "q2": ["b", "d"]},
        )
    ]
    assert torch.equal(tables[0].sample_id, tables[1].sample_id)
    for other in tables[2:]:
        with pytest.raises(ValueError, match="not of the same tasks"):
            compare(tables[0], other, "rr")
    assert tables[0].sample_id.max() < 2**53  # pandas reads ids of some rows as floats


def test_values_of_queries_are_of_base_metrics_of_queries():
    with pytest.raises(ValueError, match="metric of queries in its base view, got 'z_rr'"):
        evaluate_run(QRELS, RUN, "z_rr", num_candidates=50, per_query=True)
