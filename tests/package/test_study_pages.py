"""The page on studies says what was measured, and the example of sixty tables runs, in small."""

import json
import os
import sys
from pathlib import Path

import pytest
from benchmarks import study_marks

from scripts import EXAMPLES, ROOT, load_script
from torchrankmetrics.study import verify


def test_the_table_of_marks_is_that_of_the_results() -> None:
    results = json.loads(study_marks.RESULTS.read_text())
    assert study_marks.table(results) in (ROOT / "docs" / "study.md").read_text()
    assert all(row["false discoveries"] < 0.05 for row in results["rows"])


def test_a_draw_counts_false_discoveries_and_coverage() -> None:
    row = study_marks.cell(1, study_marks.CELLS.index(("ordinary", 1, "two best")))
    assert row["false discoveries"] in (0, 1)
    assert 0 <= row["power"] <= 1
    assert 0.5 < row["coverage"] <= 1


def test_the_example_trains_and_writes_a_page_that_can_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pykeen", reason="its graphs come with PyKEEN: pip install 'torchrankmetrics[dev]'")
    pytest.importorskip("matplotlib", reason="its page has figures")
    example = load_script(EXAMPLES / "study.py")
    if os.environ.get("HYPOTHESIS_PROFILE") != "explore":  # all tasks of its three graphs take most of a minute
        found = example.graphs([])
        few = {name: [part[:1000] for part in found[name][:2]] + [found[name][2][:40]] for name in ("kinships", "umls")}
        monkeypatch.setattr(example, "graphs", lambda folders: few)
    options = ["--seeds", "1", "--epochs", "1", "--dim", "8", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["study.py", *options])
    example.main()
    number = len(example.graphs([]))
    assert f"RankStudy({5 * number} tables: 5 models x {number} data sets)" in capsys.readouterr().out
    assert verify(tmp_path / "report.html", tmp_path / "runs")
