"""The audit on the command line: what is imported, what is printed, and the exit code."""

import json
import sys
from pathlib import Path

import pytest

from scripts import forked
from torchrankmetrics.cli import main

EVALUATORS = """
from torchrankmetrics import rank_scores

def ranks(scores, target, exclude):
    return rank_scores(scores, target, exclude=exclude).realistic

class Faulty:
    @staticmethod
    def ranks(scores, target, exclude):
        better = scores > scores.gather(1, target[:, None])
        return 1 + (better if exclude is None else better & ~exclude).sum(1)
"""
FEW = ("--max-candidates", "100000")


@pytest.fixture
def name(tmp_path, monkeypatch):
    """A module in the working folder, under a name that no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"evaluators_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(EVALUATORS)
    return module


def test_failed_checks_exit_with_1_and_print_both_numbers(name, capsys):
    assert main(["audit", f"{name}:Faulty.ranks", "-f", "json", *FEW]) == 1
    records = {record["check"]: record for record in json.loads(capsys.readouterr().out)["rows"]}
    assert {check for check, record in records.items() if record["status"] == "failed"} == {
        "nan_truth",
        "nan_candidates",
        "all_nan",
    }
    found = records["nan_truth"]
    assert (found["case"], found["got"], found["expected"]) == ("scores [[nan, 0.5]], target [0]", 1.0, 2.0)


def test_the_command_finds_modules_of_the_working_folder(name, tmp_path):
    script = Path(sys.executable).with_name("torchrankmetrics")
    result = forked(script, "audit", f"{name}:ranks", "--ties", "realistic", "--pairs", *FEW, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "0 of 26 checks failed; ties: realistic" in result.stdout
    assert "nan_truth" in result.stdout
