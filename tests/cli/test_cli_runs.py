"""report and compare of retrieval runs: the numbers of the library, from the files of the field."""

import gzip
import json
import random

import pytest

from command_line import records
from torchrankmetrics import compare
from torchrankmetrics.cli import main
from torchrankmetrics.integrations.trec import evaluate_run, rank_run


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Judgments of BEIR, a run of TREC and a JSON one, of 30 queries; and options that name them."""
    rng = random.Random(0)
    documents = [f"d{i}" for i in range(300)]
    qrels = {f"q{i}": dict.fromkeys(rng.sample(documents, 3), 1) for i in range(30)}
    runs = []
    for skill in (1.0, 3.0, 3.2):
        scores = {
            query: {name: rng.gauss(skill * (name in of), 1.0) for name in documents} for query, of in qrels.items()
        }
        runs.append({query: dict(sorted(of.items(), key=lambda item: -item[1])[:50]) for query, of in scores.items()})
    lines = [f"{query}\t{name}\t1" for query, of in qrels.items() for name in of]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    trec = "\n".join(f"{query} Q0 {name} 1 {x!r} bm25" for query, of in runs[0].items() for name, x in of.items())
    (tmp_path / "bm25.gz").write_bytes(gzip.compress(trec.encode()))
    for name, run in zip(("dense", "rerank"), runs[1:], strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    return ["--qrels", "test.tsv", "--run", "bm25.gz", "--run", "dense.json"]


def test_report_has_the_values_of_the_library(files, capsys):
    got = records(capsys, "report", *files)
    for file in ("bm25.gz", "dense.json"):
        expected = evaluate_run("test.tsv", file)
        assert {row["metric"]: row["value"] for row in got if row["file"] == file} == expected
    options = ["--num-candidates", "300", "-m", "ap@50,adjusted_rr@50", "--confidence-level", "0.9"]
    for row in records(capsys, "report", *files[:4], *options):
        (value,) = evaluate_run("test.tsv", "bm25.gz", row["metric"], num_candidates=300).values()
        assert row["value"] == value
        assert row["low"] < value < row["high"]


def test_compare_has_the_numbers_of_the_library(files, capsys):
    (row,) = records(capsys, "compare", *files)
    tables = {name: rank_run("test.tsv", name) for name in ("bm25.gz", "dense.json", "rerank.json")}
    expected = compare(*list(tables.values())[:2], "ndcg@10")
    assert (row["difference"], row["low"], row["p"]) == (expected.difference, expected.low, expected.p_value)
    rows = records(capsys, "compare", *files, "--run", "rerank.json", "-m", "recall@5,ap@50", "--baseline", "best")
    expected = compare(tables, ["recall@5", "ap@50"], baseline="best")
    assert [(row["model_a"], row["model_b"]) for row in rows] == [row.models for row in expected.rows]
    assert [row["p_adjusted"] for row in rows] == [row.p_adjusted for row in expected.rows]
    assert main(["compare", *files, "--fail-if", "worse"]) == 1
