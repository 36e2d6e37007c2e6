"""The README: its blocks run alone in an empty folder and print the text below them."""

import re
from pathlib import Path

import pytest

from scripts import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$\n\n```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("block", "shown"), BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_run_when_copied_alone(
    block: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == shown


def test_the_first_screen_has_one_short_block_and_its_table() -> None:
    assert len(README.splitlines()) <= 120
    assert len(BLOCKS) == README.count("```python") > 0
    assert len(BLOCKS[0][0].splitlines()) <= 12
    assert README.index("pip install .") < README.index(BLOCKS[0][0]) < README.index("## ")
    assert README.index("## Contributing") < README.index("<!-- test command -->") < README.index("-m pytest")
