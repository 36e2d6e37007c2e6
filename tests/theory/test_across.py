"""Families of pairs and mean ranks, against other programs, papers and exact laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from torchrankmetrics.theory.inference.across import mean_ranks
from torchrankmetrics.theory.inference.simultaneous import PairwiseTests, simultaneous_p_values


def block(covariance, values):
    """All pairs of models with normal values."""
    k = len(values)
    pairs = tuple((a, b) for a in range(k) for b in range(a + 1, k))
    spread = [math.sqrt(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b]) for a, b in pairs]
    z = [(values[a] - values[b]) / s if s else 0.0 for (a, b), s in zip(pairs, spread, strict=True)]
    return PairwiseTests(covariance, pairs, tuple(float(2 * stats.norm.sf(abs(one))) for one in z))


@pytest.mark.parametrize("k", [3, 5])
def test_all_pairs_of_independent_models_are_tukeys(k):
    """The largest of all differences is a studentised range; infinite degrees of freedom."""
    values = np.linspace(0, 3.0, k)
    (p,) = simultaneous_p_values([block(np.eye(k), values)])
    exact = stats.studentized_range.sf(values[-1] - values[0], k, np.inf)
    assert p.min() == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


def test_blocks_are_independent_families():
    """Two models on each of seven data sets: Sidak's correction of the smallest."""
    blocks = [block(np.eye(2), np.array([0.0, 1.5 + 0.1 * i])) for i in range(7)]
    p = simultaneous_p_values(blocks)
    exact = 1 - (1 - blocks[-1].p_values[0]) ** 7
    assert p[-1][0] == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))
    # step-down: the largest is one alone
    assert p[0][0] >= blocks[0].p_values[0]


def test_models_that_move_together_need_no_correction():
    """Two equal models and a third: the pairs with the third are one test."""
    covariance = np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])
    one = block(covariance, np.array([2.8, 2.8, 0.0]))
    (p,) = simultaneous_p_values([one])
    assert p[0] == 1
    assert p[1:] == pytest.approx(one.p_values[1:], abs=0.004)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_adjusted_p_values_are_between_the_given_and_holms(k, datasets, seed):
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(datasets):
        root = rng.normal(size=(k, k))
        blocks.append(block(root @ root.T, 2 * rng.normal(size=k)))
    adjusted = np.concatenate(simultaneous_p_values(blocks, draws=2000))
    given_p = np.concatenate([one.p_values for one in blocks])
    order = np.argsort(given_p, kind="stable")
    assert (adjusted >= given_p).all()
    assert (np.diff(adjusted[order]) >= 0).all()
    steps = np.maximum.accumulate(given_p[order] * np.arange(len(order), 0, -1))
    assert (adjusted[order] <= np.minimum(steps, 1) + 4 * np.sqrt(np.minimum(steps, 1) / 2000) + 0.003).all()


def test_without_pairs_there_is_nothing_to_adjust():
    assert simultaneous_p_values([]) == []
    assert [len(p) for p in simultaneous_p_values([PairwiseTests(np.eye(2), (), ())])] == [0]


def test_mean_ranks_of_demsars_example():
    """Demsar 2006, section 3.2.2: the mean ranks of four classifiers over 14 data sets differ by Friedman's test."""
    ranks = np.array(
        """4 3 2 1|1 2 3 4|4 1 2 3|4 1 3 2|4 2 3 1|1 2.5 4 2.5|3 2 4 1|2.5 2.5 4 1|4 3 2 1|2.5 2.5 2.5 2.5|4 2.5 1 2.5
        |3 2 4 1|4 1 2 3|3 1 4 2""".replace("\n", "")
        .replace("|", " ")
        .split(),
        dtype=np.float64,
    ).reshape(14, 4)
    found = mean_ranks(ranks, higher_is_better=False)
    assert found.mean == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)


@given(st.integers(2, 9), st.integers(2, 6), st.integers(0, 2**32 - 1), st.booleans())
def test_friedmans_statistic_is_that_of_scipy(datasets, models, seed, higher):
    values = np.random.default_rng(seed).integers(0, 5, (datasets, max(models, 3))).astype(float)
    found = mean_ranks(values, higher_is_better=higher)
    if any(len(set(row)) > 1 for row in values):
        theirs = stats.friedmanchisquare(*values.T)
        assert (found.statistic, found.p_value) == pytest.approx((theirs.statistic, theirs.pvalue), nan_ok=True)
    for clique in found.cliques:
        means = [found.mean[i] for i in clique]
        assert max(means) - min(means) <= found.critical_difference + 1e-12
        assert len(clique) > 1


def test_mean_ranks_refuse_gaps():
    with pytest.raises(ValueError, match=r"no NaN among them; got \(2, 2\) with 1 NaN"):
        mean_ranks([[1.0, math.nan], [1.0, 2.0]])
