"""The example with Dask runs, and the pages show the measurements that are committed."""

import json

import pytest

from scripts import EXAMPLES, ROOT, forked, load_script

RESULTS = ROOT / "benchmarks" / "results"


def test_partitions_on_two_workers_of_dask_give_the_values_of_one_process():
    pytest.importorskip("dask.bag", reason="needs the extra 'examples'")
    pytest.importorskip("pyarrow", reason="needs the extra 'examples'")
    forks = {"DASK_MULTIPROCESSING__CONTEXT": "fork"}  # its default starts each worker anew, which takes seconds
    result = forked(EXAMPLES / "offline_dask.py", "--partitions", "3", cwd=ROOT, environment=forks)
    assert result.returncode == 0, result.stderr
    output = result.stdout
    assert "150 ranks of 3 files in" in output
    assert "values equal those of one process: True" in output


def test_the_page_of_offline_evaluation_shows_what_was_measured():
    results = json.loads((RESULTS / "offline.json").read_text())
    offline = load_script(ROOT / "benchmarks" / "offline.py")
    assert offline.table(results) in (ROOT / "docs" / "offline.md").read_text()
    assert results["machine"]["ranks"] == 100_000_000
    assert all(row["peak_gib"] < 2 for row in results["rows"])
