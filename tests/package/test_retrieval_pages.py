"""The examples of retrieval and recommendation run, and their page shows the measurements that are committed."""

import json

from scripts import EXAMPLES, ROOT, fork_script
from torchrankmetrics.integrations.trec import read_qrels, read_run


def test_dense_retrieval_in_chunks_reports_ties_in_bfloat16():
    output = fork_script(EXAMPLES / "dense_retrieval.py", "--queries", "40", "--passages", "5000")
    single, half, product = output.split("passages, bfloat16")
    for part in (single, half, product):
        assert "40 queries:" in part
        assert all(f"all   {name}" in part for name in ("rr_at_10", "ndcg_at_10", "recall_at_100", "ap", "mrr"))
    assert "share their score" in product
    assert "share their score" not in single + half


def test_runs_and_embeddings_in_one_table(tmp_path):
    output = fork_script(EXAMPLES / "beir_run.py", "--queries", "30", "--documents", "400", "--folder", str(tmp_path))
    assert [line.split()[0] for line in output.splitlines()[3:7]] == ["bm25", "rerank", "embeddings", "chance"]
    assert "generated: 60 tasks among 400 candidates" in output
    assert "not compared" not in output
    assert r"\toprule" in output
    assert len(read_qrels(tmp_path / "qrels" / "test.tsv")) == len(read_run(tmp_path / "bm25.run.gz")) == 30


def test_images_and_captions_in_both_directions():
    lines = fork_script(EXAMPLES / "image_text.py", "--images", "60").splitlines()
    of = {tuple(line.split()[:2]): line.split()[2] for line in lines[2:] if "_at_" in line}
    assert {side for side, _ in of} == {"tail", "head", "both"}
    assert "600 ranks among 60 to 300 candidates" in lines
    assert "360 queries:" in lines[-1]


def test_leave_one_out_among_unseen_items():
    output = fork_script(EXAMPLES / "recommendation.py", "--users", "200", "--items", "120")
    assert output.count("200 ranks among 101 to 101 candidates") == 2  # 20 clicks, one of them held out
    assert "200 queries" in output.splitlines()[-1]
    assert output.count("success_at_10") == 2
    several = fork_script(EXAMPLES / "recommendation.py", "--users", "200", "--items", "120", "--held", "3")
    assert several.count("600 ranks among 103 to 103 candidates") == 2
    assert "200 queries" in several.splitlines()[-1]


def test_complex_queries_by_pattern():
    output = fork_script(EXAMPLES / "complex_queries.py", "--entities", "60", "--queries", "20")
    assert "'macro_mrr'" in output
    assert [line.split()[0] for line in output.splitlines()[-3:]] == ["1p", "2p", "2i"]


def test_the_collection_is_faster_than_its_peers():
    results = json.loads((ROOT / "benchmarks" / "results" / "retrieval.json").read_text())
    ours, *peers = results["rows"]
    assert ours["role"] == "ours"
    assert len(peers) == 4
    assert all(ours["best"] < peer["best"] for peer in peers)
