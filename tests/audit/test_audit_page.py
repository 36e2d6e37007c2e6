"""The committed table is of the results, and the installed evaluators give these results."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from scripts import ROOT, load_script
from torchrankmetrics.audit import CHECKS, audit

script = load_script(ROOT / "benchmarks" / "audit.py")
RESULTS = script.load()
ROWS = {row["name"]: row for row in RESULTS["rows"]}
PEERS = {name: (distribution, make) for name, distribution, make, _, _ in script.PEERS}


def test_the_table_is_of_the_results():
    assert script.RESULTS.with_suffix(".md").read_text(encoding="utf-8") == script.tables(RESULTS)


def test_every_evaluator_has_results_or_is_left_out_by_name():
    missing = {gone["name"] for gone in RESULTS["left_out"]}
    assert set(PEERS) | {"torchrankmetrics"} == set(ROWS) | missing
    for row in ROWS.values():
        assert [check["check"] for check in row["checks"]] == list(CHECKS)


def test_ours_passes_every_check():
    assert {check["status"] for check in ROWS["torchrankmetrics"]["checks"]} == {"passed", "skipped"}


@pytest.mark.parametrize("name", ["PyKEEN", "torchmetrics", "PyG", "scikit-learn"])
def test_results_are_those_of_the_installed_evaluator(name):
    distribution, make = PEERS[name]
    try:
        installed = f"{distribution} {version(distribution)}"
    except PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    if installed != ROWS[name]["package"]:
        pytest.skip(f"the results are of {ROWS[name]['package']}, installed is {installed}")
    report = audit(make(), max_candidates=100_000).to_dict()
    assert report["ties"] == ROWS[name]["ties"]
    for now, then in zip(report["checks"], ROWS[name]["checks"], strict=True):
        if now["check"] != "float_counters":  # of which the results have the case of 2^24 candidates, too
            for key in ("check", "status", "case", "quantity"):
                assert now[key] == then[key]


def test_a_package_that_is_missing_is_named(monkeypatch):
    def absent():
        raise ImportError("no module")

    monkeypatch.setattr(script, "PEERS", (("Absent", "no-such-distribution-here", absent, "", None),))
    found = script.results(["Absent"])
    assert [row["name"] for row in found["rows"]] == ["torchrankmetrics"]  # as it was
    assert [gone["name"] for gone in found["left_out"]] == ["Absent"]
    assert "Not audited: Absent (no-such-distribution-here is not installed)." in script.tables(found)
