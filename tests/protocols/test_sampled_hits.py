"""Expected hits among sampled negatives: every subset enumerated, SciPy's laws, and the formula of ULTRA and NBFNet."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, hypergeom

from torchrankmetrics import RankMetric, Ranks, RankTable, evaluate
from torchrankmetrics.theory.sampled_hits import sampled_hits_at


def value(definition, ranks, rank_type="realistic", view="base"):
    metric = RankMetric(definition, rank_type=rank_type, view=view)
    metric.update(ranks)
    return metric.compute().item()


@pytest.mark.parametrize(("k", "m"), [(1, 1), (1, 3), (2, 3), (3, 3), (2, 6)])
@pytest.mark.parametrize("scores", [[2.0, 5, 4, 1, 0, 3, 1], [2.0, 2, 2, 1, 4, 2, 5], [9.0, 0, 0, 0, 0, 0, 0]])
def test_it_is_the_mean_of_sampled_hits_over_every_subset(scores, k, m):
    full = Ranks.from_negatives(torch.tensor(scores[:1]), torch.tensor([scores[1:]], dtype=torch.float32))
    drawn = torch.tensor(list(itertools.combinations(scores[1:], m)), dtype=torch.float32)
    sampled = Ranks.from_negatives(torch.full((len(drawn),), scores[0]), drawn)
    for rank_type in ("optimistic", "pessimistic", "expected"):
        (mean,) = evaluate(sampled, metrics=[f"hits@{k}"], rank_types=[rank_type]).values()
        assert value(sampled_hits_at(k, m), full, rank_type) == pytest.approx(mean, abs=1e-14)


@pytest.mark.parametrize("n", [2, 11, 60, 5000, 1 << 20])
@pytest.mark.parametrize(("k", "m"), [(1, 1), (10, 50), (10, 49), (50, 50)])
def test_it_is_the_law_of_scipy(n, k, m):
    ranks = np.unique(np.linspace(1, n, 40).astype(int))
    x, N = torch.from_numpy(ranks).double(), torch.full((len(ranks),), n).double()
    without = sampled_hits_at(k, m).f(x, N)
    expected = hypergeom.cdf(k - 1, n - 1, ranks - 1, min(m, n - 1))
    np.testing.assert_allclose(without.numpy(), expected, rtol=1e-9, atol=1e-13)
    again = sampled_hits_at(k, m, with_replacement=True).f(x, N)
    np.testing.assert_allclose(again.numpy(), binom.cdf(k - 1, m, (ranks - 1) / (n - 1)), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("m", [49, 50])
def test_with_replacement_it_is_the_number_of_ultra_and_nbfnet(m):
    """hits@10_50 there: 49 and 50 negatives, binomial, from the share of false positives of pessimistic ranks."""
    low, high, count = torch.tensor([[1, 5, 30, 200], [1, 9, 30, 400], [90, 600, 31, 1000]])
    rate = (high - 1).double() / (count - 1)
    score = sum(math.comb(m, i) * rate**i * (1 - rate) ** (m - i) for i in range(10)).mean().item()
    definition = sampled_hits_at(10, m, with_replacement=True)
    assert value(definition, Ranks(low, high, count), "pessimistic") == pytest.approx(score, rel=1e-13)
    assert value(definition, Ranks(low, high, count), "pessimistic") != pytest.approx(
        value(sampled_hits_at(10, m), Ranks(low, high, count), "pessimistic"), abs=1e-5
    )


@pytest.mark.parametrize(("k", "m", "n"), [(10, 50, 200), (3, 5, 4), (2, 30, 20)])
def test_by_chance_it_is_the_mean_of_a_uniform_rank_among_the_sampled(k, m, n):
    candidates = min(m, n - 1) + 1
    moments = RankMetric(sampled_hits_at(k, m)).moments([n])
    assert moments.mean == pytest.approx(min(k, candidates) / candidates, rel=1e-12)


def test_it_has_every_view_and_drops_when_ranks_do():
    definition = sampled_hits_at(2, 5)
    values = [value(definition, Ranks([r], None, 12)) for r in range(1, 13)]
    assert values[:2] == pytest.approx([1, 1], abs=1e-15)
    assert values[1:] == sorted(values[1:], reverse=True)
    assert values[-1] == pytest.approx(0, abs=1e-15)
    assert value(definition, Ranks([1, 1], None, 12), view="adjusted_index") == 1
    constant = Ranks([1] * 4, [12] * 4, 12)
    assert value(definition, constant, "expected", "adjusted_index") == pytest.approx(0, abs=1e-12)
    assert value(definition, Ranks([3], [4], 12)) == pytest.approx((values[2] + values[3]) / 2)
    assert RankTable.from_ranks(constant).num_tasks == 4


@pytest.mark.parametrize(
    ("k", "m", "error", "message"),
    [
        (0, 5, ValueError, "k must be an int of at least 1"),
        (6, 5, ValueError, "all ranks are hits; got 6"),
        (2.0, 5, TypeError, "k must be an int"),
        (2, True, TypeError, "num_negatives must be an int"),
    ],
)
def test_bad_numbers_are_named(k, m, error, message):
    with pytest.raises(error, match=message):
        sampled_hits_at(k, m)
