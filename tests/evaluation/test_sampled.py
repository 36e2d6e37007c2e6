"""Metrics of sampled protocols from full ranks, and bounds the other way: by exact laws and by simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from torchrankmetrics import RankCollection, RankMetric, Ranks, evaluate, sampled_hits_at
from torchrankmetrics.inference import full_bounds, sampled_metric
from torchrankmetrics.theory.sampled_means import sampled_law

EXACT = {"mrr": lambda s, m: Fraction(1, s), "mr": lambda s, m: Fraction(s), "auc": lambda s, m: Fraction(m + 1 - s, m)}


def law(r, N, m, replaced):
    """Law of the sampled rank in Fractions."""
    if replaced:
        p = Fraction(r - 1, N - 1)
        return {x + 1: math.comb(m, x) * p**x * (1 - p) ** (m - x) for x in range(m + 1)}
    m = min(m, N - 1)
    return {x + 1: Fraction(math.comb(r - 1, x) * math.comb(N - r, m - x), math.comb(N - 1, m)) for x in range(m + 1)}


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("N", "m"), [(2, 1), (5, 2), (9, 8), (9, 20), (40, 7)])
def test_sampled_metric_is_the_exact_expectation(name, N, m, replaced):
    definition = sampled_metric(name, m, with_replacement=replaced)
    drawn = m if replaced else min(m, N - 1)
    expected = [
        float(sum(p * EXACT[name](s, drawn) for s, p in law(r, N, m, replaced).items())) for r in range(1, N + 1)
    ]
    given = definition.f_at(N)(torch.arange(1, N + 1, dtype=torch.float64))
    assert given.tolist() == pytest.approx(expected, rel=1e-12)
    # by chance a sampled rank is uniform on 1, ..., m + 1
    if not replaced:
        uniform = float(sum(EXACT[name](s, drawn) for s in range(1, drawn + 2))) / (drawn + 1)
        assert RankMetric(definition).moments([N]).mean == pytest.approx(uniform, rel=1e-12)


def test_half_ranks_are_read_as_either_and_hits_as_they_were():
    one, three, two = (
        evaluate(Ranks(*given, 30), metrics=[sampled_metric("mrr", 5)])
        for given in (([2], None), ([3], None), ([2], [3]))
    )
    key = "sampled_mrr_5"
    assert two[key] == pytest.approx((one[key] + three[key]) / 2)
    assert sampled_metric("hits@10", 50) == sampled_hits_at(10, 50)
    with pytest.raises(ValueError, match="mean of f"):
        sampled_metric("gmr", 50)
    with pytest.raises(ValueError, match="num_negatives"):
        sampled_metric("mrr", 0)


def test_simulated_protocols_agree():
    rng, N, m = np.random.default_rng(0), 500, 40
    full = np.clip(rng.geometric(0.02, 20_000), 1, N)
    drawn = 1 + rng.hypergeometric(full - 1, N - full, m)
    expected = evaluate(full, N, [sampled_metric("mrr", m)])[f"sampled_mrr_{m}"]
    assert (1 / drawn).mean() == pytest.approx(expected, abs=4 * (1 / drawn).std() / math.sqrt(20_000))


@pytest.mark.parametrize(("N", "m", "r"), [(14505, 500, 300), (40943, 100, 5), (1_000_000, 1000, 400)])
def test_law_of_large_samples(N, m, r):
    """Against exact ratios of neighbours: p(x + 1) / p(x) is a fraction of small products."""
    given = sampled_law(np.array([[float(r)]]), np.array([[float(N)]]), np.array([[float(m)]]))[0]
    assert given.sum() == pytest.approx(1, rel=1e-12)
    x = np.arange(min(m, r - 1, 12))
    ratio = (r - 1 - x) * (m - x) / ((x + 1) * (N - r - m + x + 1))
    assert given[x + 1] / given[x] == pytest.approx(ratio, rel=1e-11)


@pytest.mark.parametrize("metric", ["mr", "mrr", "hits@1", "hits@10", "auc", "hmr"])
def test_bounds_hold_the_full_value(metric):
    rng, N, m, n = np.random.default_rng(1), 300, 30, 2000
    for shape in (
        lambda: np.clip(rng.geometric(0.05, n), 1, N),
        lambda: rng.integers(1, N + 1, n),
        lambda: np.where(rng.random(n) < 0.6, 1, 200),
    ):
        full = shape()
        drawn = 1 + rng.hypergeometric(full - 1, N - full, m)
        found = full_bounds(Ranks(drawn, None, m + 1), metric, num_candidates=N)
        truth = next(iter(evaluate(full, N, [metric]).values()))
        assert found.low - 1e-9 <= truth <= found.high + 1e-9
        assert found.num_negatives == m


def test_bounds_are_those_of_the_whole_linear_program():
    """Columns are priced, not thinned: the program over every rank and no band of its own has the same ends."""
    rng, N, m, n = np.random.default_rng(2), 120, 9, 800
    full = np.clip(rng.geometric(0.08, n), 1, N)
    drawn = 1 + rng.hypergeometric(full - 1, N - full, m)
    found = full_bounds(Ranks(drawn, None, m + 1), "mrr", num_candidates=N)
    below = np.array([np.cumsum([float(p) for p in law(r, N, m, False).values()])[:m] for r in range(1, N + 1)]).T
    band = math.sqrt(math.log(2 * math.e / 0.05) / (2 * n))
    observed = np.cumsum(np.bincount(drawn - 1, minlength=m + 1))[:m] / n
    for sign, end in ((1, found.low), (-1, found.high)):
        exact = linprog(
            sign / np.arange(1, N + 1),
            np.r_[below, -below],
            np.r_[observed + band, band - observed],
            np.ones((1, N)),
            [1],
        )
        assert end == pytest.approx(sign * exact.fun, abs=2e-6)


def test_bounds_of_ties_take_the_worse_and_the_better_ranks():
    rng = np.random.default_rng(3)
    better, tied, _ = rng.multivariate_hypergeometric([2, 5, 92], 20, size=500).T  # full ranks 3 to 8 of 100
    low, high = 1 + better, 1 + better + tied
    both = full_bounds(Ranks(low, high, 21), "mrr", num_candidates=100)
    best, worst = (full_bounds(Ranks(part, None, 21), "mrr", num_candidates=100) for part in (low, high))
    assert both.low <= worst.low <= 1 / 8
    assert both.high >= best.high >= 1 / 3


def test_what_is_wrong_is_told():
    with pytest.raises(ValueError, match="no full ranks agree"):  # all in the middle: no mixture is as narrow
        full_bounds(Ranks(np.full(100_000, 26), None, 51), num_candidates=1000)
    with pytest.raises(ValueError, match="same number of negatives"):
        full_bounds(Ranks([1, 2], None, [5, 6]), num_candidates=1000)
    with pytest.raises(ValueError, match="num_candidates must be above"):
        full_bounds(Ranks([1, 2], None, 6), num_candidates=5)
    weighted = RankCollection()
    weighted.update(Ranks([1, 2], None, 6), weight=torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="equal weight"):
        full_bounds(weighted, num_candidates=50)
    with pytest.raises(ValueError, match="mean of f"):
        full_bounds(Ranks([1, 2], None, 6), "median_rank", num_candidates=50)


@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("metric", ["mrr", "mr", "auc", "hits@10"])
def test_an_expected_sampled_metric_is_found_by_its_name(metric, with_replacement):
    definition = sampled_metric(metric, 50, with_replacement=with_replacement)
    assert evaluate([1, 3, 40], 1001, [definition.name]) == evaluate([1, 3, 40], 1001, [definition])


@pytest.mark.parametrize("name", ["sampled_median_rank_5", "sampled_mrr_0", "sampled_hits_at_10_5", "sampled_ap_10"])
def test_what_has_no_such_expectation_has_no_such_name(name):
    with pytest.raises(ValueError, match=r"expectation among|num_negatives|unknown metric"):
        evaluate([1, 3, 40], 1001, [name])
