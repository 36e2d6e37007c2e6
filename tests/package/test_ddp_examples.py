"""The distributed examples, through the launchers of Lightning and of torch."""

from pathlib import Path

import pytest

from scripts import EXAMPLES, fork_script

pytestmark = pytest.mark.slow

EQUAL = "values equal the values of one process: True"


def test_plain_loop_under_torchrun(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    output = fork_script(*launcher, EXAMPLES / "ddp_plain.py", cwd=tmp_path)
    assert "45 test triples on 2 processes, 23 of them here" in output
    assert EQUAL in output


def test_lightning_on_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", reason="needs the extra 'examples'")
    pytest.importorskip("pykeen", reason="needs the extra 'examples'")
    output = fork_script(EXAMPLES / "lightning_ddp.py", "--epochs", "1", cwd=tmp_path)
    assert "201 test triples on 2 processes" in output  # an odd number: one of them is padding
    assert EQUAL in output
