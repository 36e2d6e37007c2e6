"""Shared queries against every order of all scores of small filtered rankings, in Fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from torchrankmetrics.theory import definitions as d
from torchrankmetrics.theory.dependence import clustered_variance, variance_inflation

FUNCTIONS = [
    (d.MEAN_RANK, lambda r: Fraction(r)),
    (d.MEAN_RECIPROCAL_RANK, lambda r: Fraction(1, r)),
    (d.hits_at(2), lambda r: Fraction(int(r <= 2))),
]


def variance_of_sum(f, q, negatives):
    """Var of f(r_1) + ... + f(r_q) over all placings of q answers among negatives, filtered."""
    first = second = count = Fraction(0)
    for places in itertools.permutations(range(negatives + q), q):
        total = sum(f(1 + sum(x not in places for x in range(p))) for p in places)
        first, second, count = first + total, second + total * total, count + 1
    return second / count - (first / count) ** 2


@pytest.mark.parametrize(("definition", "f"), FUNCTIONS, ids=lambda x: getattr(x, "name", ""))
@pytest.mark.parametrize(("q", "negatives"), [(1, 4), (2, 3), (3, 2), (3, 4), (4, 1), (2, 0)])
def test_inflation_by_enumeration(definition, f, q, negatives):
    single = variance_of_sum(f, 1, negatives)
    together = variance_of_sum(f, q, negatives)
    inflation = float(variance_inflation(q, negatives + 1))
    assert inflation * float(q * single) == pytest.approx(float(together), rel=1e-14)
    assert clustered_variance(definition, [q], [negatives + 1]) == pytest.approx(
        float(together) / q**2, rel=1e-13, abs=1e-16
    )


@pytest.mark.parametrize(("definition", "f"), FUNCTIONS, ids=lambda x: getattr(x, "name", ""))
def test_queries_add_up(definition, f):
    clusters = [(2, 3), (1, 5), (3, 2)]
    exact = sum(variance_of_sum(f, q, negatives) for q, negatives in clusters) / 36
    q, negatives = np.array(clusters).T
    assert clustered_variance(definition, q, negatives + 1) == pytest.approx(float(exact), rel=1e-13)


def test_one_answer_per_query_is_independence():
    assert (variance_inflation(np.ones(5, int), [1, 2, 3, 10, 10**8]) == 1).all()
    assert clustered_variance(d.MEAN_RANK, np.ones(4, int), 7) == pytest.approx(48 / 12 / 4)


@pytest.mark.parametrize(
    ("q", "N", "error", "message"),
    [
        ([0], [3], ValueError, "cluster_sizes must be at least 1"),
        ([2], [0], ValueError, "num_candidates must be at least 1"),
        ([1.5], [3], TypeError, "cluster_sizes must be integers"),
        ([1, 2], [3, 4, 5], ValueError, "broadcast"),
        ([], [], ValueError, "empty"),
    ],
)
def test_bad_input(q, N, error, message):
    with pytest.raises(error, match=message):
        clustered_variance(d.MEAN_RANK, q, N)


def test_only_plain_means():
    with pytest.raises(ValueError, match="gmr"):
        clustered_variance(d.GEOMETRIC_MEAN_RANK, [2], [5])
    assert math.isclose(clustered_variance(d.hits_at(9), [2, 3], [5, 6]), 0.0)
