"""The distributed examples, through the launchers of Lightning and of torch."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EQUAL = "values equal those of one process: True"


def run(tmp_path: Path, *command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_plain_loop_under_torchrun(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    output = run(tmp_path, *launcher, str(EXAMPLES / "ddp_plain.py"))
    assert "45 test triples on 2 processes, 23 of them here" in output
    assert EQUAL in output


def test_lightning_on_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", reason="needs the extra 'examples'")
    pytest.importorskip("pykeen", reason="needs the extra 'examples'")
    output = run(tmp_path, sys.executable, str(EXAMPLES / "lightning_ddp.py"), "--epochs", "1")
    assert "201 test triples on 2 processes" in output  # an odd number: one of them is padding
    assert EQUAL in output
