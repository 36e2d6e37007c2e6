"""Mean ranks and Friedman's test, against SciPy and a paper."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from fuzzing import cases
from torchrankmetrics.inference.testing import mean_ranks


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


def test_nan_raises():
    with pytest.raises(ValueError, match=r"without NaN; got \(2, 2\) with 1 NaN"):
        mean_ranks([[1.0, math.nan], [1.0, 2.0]])
