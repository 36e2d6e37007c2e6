"""The quickstart of the README trains, evaluates and logs on a real graph."""

import csv
import re
from pathlib import Path

import pytest

from scripts import EXAMPLES, ROOT, fork_script

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
pytest.importorskip("pytorch_lightning", reason="the quickstart needs the extra 'examples'")
pytest.importorskip("pykeen", reason="the quickstart reads the graphs that come with pykeen")


def rows(output: str) -> dict[tuple[str, str], list[str]]:
    found = re.findall(r"^(head|tail|both)\s+(\w+)\s+(\S+)\s+(\S+)\s+(\S+)$", output, flags=re.MULTILINE)
    return {(side, metric): values for side, metric, *values in found}


def test_kinships_reaches_mrr_and_logs(tmp_path: Path) -> None:
    table = rows(fork_script(EXAMPLES / "quickstart.py", "--logs", tmp_path, cwd=tmp_path))
    assert {side for side, _ in table} == {"head", "tail", "both"}
    assert float(table["both", "mrr"][0]) >= 0.8
    assert 0 < float(table["both", "mrr"][1]) < float(table["both", "mrr"][0])
    # the README shows three of the rows; another machine gives other last digits
    shown = rows(README.read_text().partition("```text\nkinships:")[2].partition("```")[0])
    assert len(shown) == 3
    for key, (base, index, _) in shown.items():
        assert float(base) == pytest.approx(float(table[key][0]), rel=0.1)
        assert float(index) == pytest.approx(float(table[key][1]), rel=0.1)
    files = list(tmp_path.rglob("metrics.csv"))
    assert files, "no CSV log"
    logged: dict[str, float] = {}
    for line in csv.DictReader(files[0].open()):
        logged |= {key: float(value) for key, value in line.items() if value}
    assert logged["test/mrr"] == pytest.approx(float(table["both", "mrr"][0]), abs=5e-5)
    assert logged["test/tail_mrr"] == pytest.approx(float(table["tail", "mrr"][0]), abs=5e-5)
    assert 0 < logged["val/adjusted_mrr"] <= 1
    assert list(tmp_path.rglob("events.out.tfevents.*")), "no TensorBoard log"
