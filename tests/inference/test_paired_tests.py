"""Paired tests and Holm's adjustment against enumeration in Fractions, and their level by simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from flips import sign_flip_p_value
from torchrankmetrics.inference.testing import holm, share_difference_p_value


@pytest.mark.parametrize("differences", [[1, 2, 3, 4, -2], [3, 0, 1, 1, 1, -1], [5], [0, 0], [1, 1, 1, 1, 1, 1, 1, -6]])
def test_sign_flip_is_the_studentised_test_enumerated(differences):
    """All flips in Fractions, ordered by Student's t squared with the variance of each flip."""

    def t_squared(values):
        n, total = len(values), sum(values, Fraction(0))
        spread = sum(x**2 for x in values) - total**2 / n
        if spread == 0:
            return math.inf if total else 0
        return total**2 / spread

    values = [Fraction(x) for x in differences]
    flips = [
        [s * x for s, x in zip(signs, values, strict=True)] for signs in itertools.product((1, -1), repeat=len(values))
    ]
    expected = Fraction(sum(t_squared(flip) >= t_squared(values) for flip in flips), len(flips))
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
