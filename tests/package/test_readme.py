"""The first page: each block runs alone in an empty folder, and prints what stands behind it."""

import re
import warnings
from pathlib import Path

import pytest

from scripts import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_run_when_copied_alone(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    shown = re.findall(r"^print\(.*\)(?:  |\n)# (.*)$", block, re.MULTILINE)
    assert len(shown) == len(re.findall(r"^print", block, re.MULTILINE)) > 0
    assert [line for line in capsys.readouterr().out.splitlines() if line] == shown
