"""Paired tests and Holm's adjustment against enumeration in Fractions, and their level by simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats
from scipy.stats import t as student

from flips import sign_flip_p_value
from fuzzing import cases
from torchrankmetrics import Ranks
from torchrankmetrics.inference import clustered_p_value
from torchrankmetrics.inference.testing import holm, mean_ranks, share_difference_p_value


@pytest.mark.parametrize("differences", [[1, 2, 3, 4, -2], [3, 0, 1, 1, 1, -1], [5], [0, 0], [1, 1, 1, 1, 1, 1, 1, -6]])
def test_sign_flip_is_the_studentised_test_enumerated(differences):
    """All flips in Fractions, ordered by Student's t squared with the variance of each flip."""

    def t_squared(values):
        total = sum(values, Fraction(0))
        spread = sum(x**2 for x in values) - total**2 / len(values)
        return total**2 / spread if spread else math.inf if total else 0

    flips = list(itertools.product(*((x, -x) for x in map(Fraction, differences))))
    expected = Fraction(sum(t_squared(flip) >= t_squared(flips[0]) for flip in flips), len(flips))
    assert sign_flip_p_value(np.array(differences, dtype=np.float64)) == pytest.approx(float(expected))


@pytest.mark.parametrize("n", [40, 5000])
def test_random_flips_vary_as_much_as_stated(n):
    """With fewer and with more tasks than flips, around the p-value of a normal sum."""
    values = np.random.default_rng(n).standard_t(4, n)
    values += 2 * math.sqrt((values**2).sum()) / n - values.mean()
    drawn = np.array([sign_flip_p_value(values, 999, seed) for seed in range(200)])
    p = drawn.mean()
    assert p == pytest.approx(math.erfc(values.sum() / math.sqrt(2 * (values**2).sum())), abs=0.01)
    assert drawn.std() <= 1.1 * math.sqrt(p * (1 - p) / 999)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 1), (3, 9), (12, 4), (7, 7)])
def test_mcnemar_is_a_binomial_tail_on_both_sides(only_a, only_b):
    n = only_a + only_b
    distribution = [Fraction(math.comb(n, k), 2**n) for k in range(n + 1)]
    expected = sum(p for p in distribution if p <= distribution[only_a])
    assert share_difference_p_value(only_a, only_b, n + 30, 0.0) == pytest.approx(float(expected))


def test_holm_is_closed_testing_with_bonferroni():
    p = [0.011, 0.2, 0.013, 0.04, 0.9]
    subsets = [s for size in range(1, 6) for s in itertools.combinations(range(5), size)]
    for i, adjusted in enumerate(holm(p)):
        assert adjusted == pytest.approx(max(min(1, len(s) * min(p[j] for j in s)) for s in subsets if i in s))


def test_holm_accepts_a_family_of_any_shape_and_skips_nan():
    p = np.random.default_rng(0).random((3, 2, 4)) ** 4
    np.testing.assert_array_equal(holm(p).ravel(), holm(p.ravel()))
    some = np.append(p.ravel(), np.nan)
    np.testing.assert_array_equal(holm(some)[:-1], holm(p.ravel()))
    assert np.isnan(holm(some)[-1])
    for wrong in ([0.5, 1.5], [-0.1]):
        with pytest.raises(ValueError, match=r"p_values must be in \[0, 1\], got"):
            holm(wrong)
    assert holm([]).shape == (0,)


def test_mean_ranks_of_demsars_example():
    """Demsar 2006, section 3.2.2: the mean ranks of four classifiers over 14 data sets differ by Friedman's test."""
    rows = "4 3 2 1|1 2 3 4|4 1 2 3|4 1 3 2|4 2 3 1|1 2.5 4 2.5|3 2 4 1|2.5 2.5 4 1|4 3 2 1|2.5 2.5 2.5 2.5|4 2.5 1 2.5"
    rows += "|3 2 4 1|4 1 2 3|3 1 4 2"
    found = mean_ranks([list(map(float, row.split())) for row in rows.split("|")], higher_is_better=False)
    assert found.mean == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)
    with pytest.raises(ValueError, match=r"without NaN; got \(2, 2\) with 1 NaN"):
        mean_ranks([[1.0, math.nan], [1.0, 2.0]])


@given(st.integers(2, 9), st.integers(2, 6), st.integers(0, 2**32 - 1), st.booleans())
@cases(25, 500)
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


RANKS, QUERY, ANSWER = [1, 2, 1, 3, 2, 2], [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3]


def jackknife(x, key):
    """Variance of the mean of x, one cluster left out at a time."""
    left = [x[np.array(key) != one].mean() for one in sorted(set(key))]
    return (len(left) - 1) / len(left) * sum((mean - x.mean()) ** 2 for mean in left)


def test_it_is_students_t_of_the_mean_with_clustered_errors():
    centred = np.array([1 / r for r in RANKS]) - np.mean([1 / k for k in range(1, 10)])
    ranks, by_query = Ranks(RANKS, None, 9), jackknife(centred, QUERY)
    # two degrees of freedom: three clusters of equal weight
    assert clustered_p_value(ranks, "mrr", cluster=QUERY) == pytest.approx(
        student.sf(centred.mean() / math.sqrt(by_query), 2), rel=1e-9
    )
    both = by_query + jackknife(centred, ANSWER) - jackknife(centred, range(6))  # no two tasks share both
    assert both > by_query
    assert clustered_p_value(ranks, "mrr", cluster=QUERY, second_cluster=ANSWER) == pytest.approx(
        student.sf(centred.mean() / math.sqrt(both), 2), rel=1e-9
    )


def test_metrics_that_are_not_means_of_f_and_one_cluster_raise():
    for metric in ("count", "median_rank", "ndcg", "rank_std"):
        with pytest.raises(ValueError, match=r"metric must be a function of a mean of f .*, got"):
            clustered_p_value(Ranks(RANKS, None, 9), metric, cluster=QUERY)
    with pytest.raises(ValueError, match="at least 2"):
        clustered_p_value(Ranks(RANKS, None, 9), "mrr", cluster=[0] * 6)
