"""A nightly job: tonight's ranks against the last release, exit codes and JSON; values against plain NumPy."""

import json

import numpy as np
import pytest

from torchrankmetrics import Ranks, RankTable

pytest.importorskip("typer")
NIGHT, RELEASE, WORSE = (np.random.default_rng(0).integers(1, top, 300) for top in (40, 42, 100))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command in a folder with the ranks of three models; return exit code, stdout and stderr."""
    from torchrankmetrics.cli import main

    monkeypatch.chdir(tmp_path)
    for name, ranks in (("night", NIGHT), ("release", RELEASE), ("worse", WORSE)):
        RankTable.from_ranks(Ranks(ranks, None, 100), sample_id=range(300)).save(f"{name}.npz")

    def command(line):
        code = main(line.split())
        return code, *capsys.readouterr()

    return command


def test_a_gate_fails_only_for_a_worse_model(run):
    assert run("compare night.npz release.npz -m mrr --fail-if worse")[0] == 0
    code, _, message = run("compare worse.npz release.npz -m mrr --fail-if worse")
    assert code == 1
    assert "mrr" in message
    assert run("compare release.npz worse.npz -m mrr --fail-if not-better")[0] == 0
    assert run("compare night.npz release.npz -m mrr --margin 0.0001 --fail-if not-equivalent")[0] == 1


def test_a_gate_on_values(run):
    mrr = (1 / NIGHT).mean()
    assert run(f"report night.npz -m mrr --fail-under mrr={mrr - 0.001}")[0] == 0
    assert run(f"report night.npz -m mrr --fail-under mrr={mrr + 0.001}")[0] == 1


def test_json_for_the_log(run):
    code, output, _ = run("compare night.npz worse.npz -m mrr --format json --fail-if worse")
    found = json.loads(output)
    assert (code, found["tasks"], len(found["files"])) == (0, 300, 2)
    (row,) = found["rows"]
    assert row["difference"] == pytest.approx((1 / NIGHT).mean() - (1 / WORSE).mean())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("compare night.npz release.npz --fail-if worst", "worse"),
        ("compare night.npz release.npz --fail-if not-equivalent", "--margin"),
        ("compare night.npz missing.npz --fail-if worse", "missing.npz"),
        ("report night.npz --fail-under mrr", "mrr"),
    ],
)
def test_invalid_options_are_not_a_failed_gate(run, line, message):
    code, _, error = run(line)
    assert code == 2
    assert message in error
