"""docs/deciding.md shows what benchmarks/decided.py has measured, and its naive ways are what they are said to be."""

import json

import numpy as np
import pytest

from scripts import ROOT, load_script
from torchrankmetrics.theory.inference.sequences import Drawn, side_of

decided = load_script(ROOT / "benchmarks" / "decided.py")


def test_the_page_shows_the_committed_results():
    page = (ROOT / "docs" / "deciding.md").read_text()
    results = json.loads(decided.RESULTS.read_text())
    assert decided.reported(page, results) == page, "differ: run python -m benchmarks.decided --report"
    assert all(row["bets"] <= 100 * decided.ALPHA for row in results["errors"])
    assert all(row["bets"] <= row["Bernstein"] for row in results["shares"])


@pytest.mark.parametrize("shift", [0.0, 0.06, -0.06])
def test_bets_of_the_benchmark_are_those_of_the_library(shift):
    rng = np.random.default_rng(0)
    d = rng.normal(0, 0.2, 300)
    for drawn in decided.orders((d - d.mean() + shift).clip(-1, 1), 5):
        end, side = decided.by_bets(drawn)
        n = len(drawn.values)
        looks = [side_of(Drawn(drawn.values[:i], drawn.sizes[:i], float(n)), 0.5, decided.ALPHA) for i in range(1, n)]
        first = next((i for i, found in enumerate(looks, 1) if found), n)
        assert (end, side) == (first, looks[first - 1] if first < n else 0)


def test_one_t_test_is_that_of_scipy_and_many_find_more():
    d = np.random.default_rng(1).normal(0, 0.3, 1000).clip(-1, 1)
    d -= d.mean()
    found = {way: [decided.WAYS[way](drawn)[1] for drawn in decided.orders(d, 60)] for way in ("t-tests", "fixed 20 %")}
    assert np.count_nonzero(found["t-tests"]) > 3 + np.count_nonzero(found["fixed 20 %"])
    for drawn, side in zip(decided.orders(d, 60), found["fixed 20 %"], strict=True):
        p = decided.stats.ttest_1samp(drawn.values[:200], 0.5).pvalue
        assert (side != 0) == (p < 0.05)
