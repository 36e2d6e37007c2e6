"""The committed results of the benchmark of a foundation model agree with each other and with the datasets."""

import json
from fractions import Fraction

import numpy as np
import pytest

from scripts import ROOT
from torchrankmetrics.datasets import candidate_counts
from torchrankmetrics.definitions import MEAN_RECIPROCAL_RANK, hits_at
from torchrankmetrics.null import ExactExpectation

pytest.importorskip("numba", reason="the benchmark sums with it: pip install 'torchrankmetrics[fast]'")
from benchmarks import foundation

RESULTS = ROOT / "benchmarks" / "results"
ROWS = json.loads((RESULTS / "foundation.json").read_text())
ACROSS = json.loads((RESULTS / "foundation_across.json").read_text())
GRAPHS = {row["graph"]: row for row in json.loads((RESULTS / "foundation_graphs.json").read_text())}


def test_every_graph_has_all_checkpoints_and_known_candidate_counts() -> None:
    """The counts that are shipped, made from the triples, are those of the tables, made by a model's run."""
    assert {(row["graph"], row["checkpoint"]) for row in ROWS} == {(g, c) for g in GRAPHS for c in ("3g", "4g", "50g")}
    for row in ROWS:
        counts = candidate_counts(foundation.graph_names()[row["graph"]])
        assert counts.num_tasks == row["tasks"]
        assert counts.num_candidates[-1] == row["max_candidates"]
        mean = Fraction(int((counts.num_candidates * counts.count).sum()), counts.num_tasks)
        assert row["mean_candidates"] == pytest.approx(float(mean), rel=1e-12)
        for definition in (MEAN_RECIPROCAL_RANK, hits_at(10)):
            chance = ExactExpectation().moments(definition, counts).mean
            assert row[f"chance_{definition.name}"] == pytest.approx(chance, rel=1e-12)
            index = (row[definition.name] - chance) / (1 - chance)
            assert row[f"adjusted_{definition.name}"] == pytest.approx(index, abs=1e-12)


def test_averages_over_graphs_are_those_of_the_rows() -> None:
    assert {row["metric"] for row in ACROSS["rows"]} == {*foundation.AVERAGED}
    for row in ACROSS["rows"]:
        mine = [one[row["metric"]] for one in ROWS if one["checkpoint"] == row["checkpoint"]]
        assert row["mean"] == pytest.approx(np.mean(mine), rel=1e-12)
        half = 2.03451530 * np.std(mine, ddof=1) / np.sqrt(34)  # Student's t, 33 degrees of freedom, 97.5%
        assert (row["low"], row["high"]) == pytest.approx((row["mean"] - half, row["mean"] + half), rel=1e-6)
