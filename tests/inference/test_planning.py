"""Sample sizes against published tables, and against the power of `compare` in simulations."""

import numpy as np
import pytest

from torchrankmetrics import compare
from torchrankmetrics.inference import detectable_difference, sample_size

UNIT = np.array([1.0, -1.0]) / np.sqrt(2)  # standard deviation 1


@pytest.mark.parametrize(
    ("effect", "power", "size"),
    # G*Power 3.1 (doi:10.3758/BF03193146), two-sided t-test of matched pairs at 5%
    [(0.2, 0.8, 199), (0.5, 0.8, 34), (0.8, 0.8, 15), (0.2, 0.95, 327), (0.5, 0.95, 54)],
)
def test_sizes_are_those_of_published_tables(effect, power, size):
    assert sample_size(UNIT, difference=effect, power=power) == size
    assert sample_size(UNIT, difference=-effect, power=power) == size
    assert detectable_difference(UNIT, size, power=power) <= effect
    assert detectable_difference(UNIT, size - 1, power=power) > effect


@pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")
def test_compare_has_the_planned_power():
    """Skewed differences of queries; the standard error of a power of 80% (300 samples) is 2.3%."""
    rng = np.random.default_rng(0)

    def differences(n):
        return (rng.exponential(size=n) - 1) * 0.3 + 0.06

    n = sample_size(differences(2000), difference=0.06)
    rejected = 0
    for _ in range(300):
        a = dict(enumerate(rng.random(n)))
        b = {query: x - d for (query, x), d in zip(a.items(), differences(n), strict=True)}
        rejected += compare(a, b, permutations=399).p_value <= 0.05
    assert rejected / 300 == pytest.approx(0.8, abs=0.08)


def test_values_may_be_a_dict_and_the_pilot_is_the_default_size():
    values = dict(enumerate([0.1, -0.3, 0.5, 0.0, 0.2]))
    assert detectable_difference(values) == detectable_difference(list(values.values()), 5)
    assert detectable_difference(values, 50) > detectable_difference(values, 500)
    assert sample_size(values, difference=0.1) < sample_size(
        values, difference=0.1, confidence_level=0.99
    )


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([0.1], {}, "values must be at least 2 finite differences"),
        ([[0.1, 0.2]], {}, r"got shape \(1, 2\)"),
        ([0.1, float("nan")], {}, "finite"),
        ([0.1, 0.1], {}, "values must differ"),
        ([0.1, 0.2], {"difference": 0}, "difference must be a finite number, not 0; got 0"),
        ([0.1, 0.2], {"power": 1.5}, "power must be in"),
        ([0.1, 0.2], {"confidence_level": 95}, "confidence_level must be in"),
    ],
)
def test_bad_arguments_raise(values, options, message):
    with pytest.raises(ValueError, match=message):
        sample_size(values, **{"difference": 0.1} | options)


def test_a_power_below_the_size_of_the_test_raises():
    with pytest.raises(ValueError, match=r"power must be above 1 - confidence_level = 0\.05"):
        detectable_difference(UNIT, power=0.04)
    with pytest.raises(ValueError, match="size must be an int of at least 2"):
        detectable_difference(UNIT, 1)
