"""Committed results of benchmarks: tables, claims, agreement with the datasets."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from scripts import ROOT, fork_script, load_script
from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.datasets import candidate_counts
from torchrankmetrics.definitions import MEAN_RECIPROCAL_RANK, hits_at
from torchrankmetrics.null import ExactExpectation
from torchrankmetrics.study import RankStudy

calibration = load_script(ROOT / "benchmarks" / "calibration.py")
RESULTS = json.loads(calibration.RESULTS.read_text())
FOUNDATION = ROOT / "benchmarks" / "results" / "foundation"
GRAPHS = json.loads(FOUNDATION.with_suffix(".json").read_text())
ACROSS = json.loads(FOUNDATION.with_name("foundation_across.json").read_text())["rows"]


def test_the_tables_are_of_the_results():
    assert calibration.RESULTS.with_suffix(".md").read_text() == calibration.tables(RESULTS)


def test_low_coverage_is_warned_of():
    """Coverage below 93% or size above 6%, by more than simulation error: most draws warn."""
    for row in RESULTS["rows"]:
        slack = 0.0 if row["kind"].startswith("exact") else 2 * RESULTS["error"]
        # the page advises against intervals of the standard deviation
        if row["metric"] != "rank_std" and row["method"] not in ("clopper-pearson", "mid-p"):
            assert row["coverage"] >= 0.93 - slack or row["warned"] > 0.5, row
        if row["kind"] in ("equal", "seeds", "exact equal"):
            assert row["rejected"] <= 0.06 + slack, row
        assert row.get("disagreed", 0) == 0 or row["kind"] == "seeds", row


def test_weighted_and_dependent_tasks_are_covered_or_warned_of():
    for row in RESULTS["weighted"]:
        slack = 2 * math.sqrt(0.05 * 0.95 / row["draws"])
        assert row["coverage"] >= 0.93 - slack or row["warned"] > 0.5, row
    for row in RESULTS["dependent"]:
        slack = 2 * math.sqrt(0.05 * 0.95 / row["draws"])
        if row["cluster"] == "auto":
            assert row["rejected"] <= 0.06 + slack, row
            assert row["coverage"] >= 0.93 - slack or row["metric"] == "mr", row
    largest = max(row["rejected"] for row in RESULTS["dependent"] if row["cluster"] is None)
    assert largest > 0.15
    assert len(calibration.weighted("exponential", 10, 2)) == len(calibration.SHARES)
    assert calibration.dependent(1.0, 30, 1)[0].keys() == RESULTS["dependent"][0].keys()
    assert calibration.shapes(20, 20)["rejected"] > 0.1


def test_a_few_draws_agree_with_the_library():
    rows = calibration.cell("ordinary", 30, 4)
    assert {row["kind"] for row in rows} == {row["kind"] for row in RESULTS["rows"]}
    ranks = np.tile(np.arange(1.0, 21), (3, 1))
    low, high = calibration.skewed(ranks)
    calibration.check(ranks, "mr", "normal", low, high, np.zeros(3, bool))
    with pytest.raises(AssertionError, match="mr by normal"):
        calibration.check(ranks, "mr", "normal", low, high * 1.01, np.zeros(3, bool))


@pytest.fixture(scope="module")
def foundation() -> Any:
    pytest.importorskip(
        "numba", reason="the benchmark sums with it: pip install 'torchrankmetrics[fast]'"
    )
    from benchmarks import foundation

    return foundation


def test_every_graph_has_all_checkpoints_and_known_candidate_counts(foundation: Any) -> None:
    """Shipped counts, from the triples, are the counts of the tables, from a model's run."""
    graphs = json.loads(FOUNDATION.with_name("foundation_graphs.json").read_text())
    expected = {(row["graph"], checkpoint) for row in graphs for checkpoint in ("3g", "4g", "50g")}
    assert {(row["graph"], row["checkpoint"]) for row in GRAPHS} == expected
    for row in GRAPHS:
        counts = candidate_counts(foundation.graph_names()[row["graph"]])
        assert counts.num_tasks == row["tasks"]
        assert counts.num_candidates[-1] == row["max_candidates"]
        mean = Fraction(int((counts.num_candidates * counts.count).sum()), counts.num_tasks)
        assert row["mean_candidates"] == pytest.approx(float(mean), rel=1e-12)
        for definition in (MEAN_RECIPROCAL_RANK, hits_at(10)):
            expected = ExactExpectation().moments(definition, counts).mean
            assert row[f"random_{definition.name}"] == pytest.approx(expected, rel=1e-12)
            index = (row[definition.name] - expected) / (1 - expected)
            assert row[f"adjusted_{definition.name}"] == pytest.approx(index, abs=1e-12)


def test_averages_over_graphs_are_those_of_the_rows(foundation: Any) -> None:
    assert {row["metric"] for row in ACROSS} == {*foundation.AVERAGED}
    for row in ACROSS:
        mine = [one[row["metric"]] for one in GRAPHS if one["checkpoint"] == row["checkpoint"]]
        assert row["mean"] == pytest.approx(np.mean(mine), rel=1e-12)
        # Student's t, 33 degrees of freedom, 97.5%
        half = 2.03451530 * np.std(mine, ddof=1) / np.sqrt(34)
        assert (row["low"], row["high"]) == pytest.approx(
            (row["mean"] - half, row["mean"] + half), rel=1e-6
        )


def test_tables_give_a_row_each(foundation: Any) -> None:
    study, sides = RankStudy(), ("head", "tail")
    tables = [RankTable.from_ranks(Ranks(np.arange(1, 5), None, 20), side=side) for side in sides]
    for checkpoint in ("3g", "4g"):
        study.add(RankTable.concatenate(tables), model=checkpoint, dataset="small")
    rows = foundation.values(study)
    assert [(row["graph"], row["checkpoint"], row["tasks"]) for row in rows] == [
        ("small", "3g", 8),
        ("small", "4g", 8),
    ]
    assert rows[0].keys() == GRAPHS[0].keys()


def test_one_command_compares_with_other_libraries() -> None:
    assert "--full" in fork_script("-m", "benchmarks", "--help")
