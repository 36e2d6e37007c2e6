"""Every metric's null moments against enumeration and convolution in Fractions."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from exact_distributions import convolved, enumerated, number
from torchrankmetrics.datasets.precomputed import PrecomputedExpectation
from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION, ExactExpectation, strategies
from torchrankmetrics.null.expectation.provider import (
    ExpectationProvider,
    ExpectationUnavailableError,
    MonteCarloExpectation,
    enumeration,
)
from torchrankmetrics.null.expectation.variance import rank_standard_deviation


def definition(kind, p):
    """The library's definition of a metric of exact_distributions."""
    p = float(p)
    if kind == "power":
        return d.power_mean_rank(p)
    if kind == "inverse":
        if p == 0:
            return d.INVERSE_GEOMETRIC_MEAN_RANK
        if math.isinf(p):
            extreme = d.power_mean_rank(p)
            return d.RankDefinition("inverse", aggregation=extreme.aggregation, g=d.Power(-1))
        return d.RankDefinition("inverse", f=d.Power(p), g=d.Power(-1 / p))
    if kind == "hits":
        return d.hits_at(int(p))
    return {
        ("variance", 1.0): d.RANK_VARIANCE,
        ("variance", 0.5): d.RANK_STANDARD_DEVIATION,
        ("median", 1.0): d.MEDIAN_RANK,
        ("median", -1.0): d.INVERSE_MEDIAN_RANK,
        ("mad", 1.0): d.RANK_MEDIAN_ABSOLUTE_DEVIATION,
    }[kind, p]


def tolerance(kind, p):
    """Relative tolerances for mean and variance of the distributions that the library states."""
    return {"median": (1e-11, 1e-9), "variance": (1e-12, 1e-10) if float(p) == 1 else (1e-8, 1e-6)}.get(
        kind, (1e-12, 1e-10)
    )


def check(result, mean, variance, tolerances=(1e-12, 1e-10)):
    assert result.mean == pytest.approx(float(mean), rel=tolerances[0], abs=0)
    # what mpmath's 50 digits leave of a variance that is 0
    assert result.variance == pytest.approx(float(variance), rel=tolerances[1], abs=1e-60)


KINDS = [("power", p) for p in (-2, -1, -0.5, -0.1, 0, 0.01, 0.5, 0.99, 1, 1.01, 2, math.inf, -math.inf)]
KINDS += [("inverse", p) for p in (-2, -0.7, 0, 0.3, 1, 2)]
KINDS += [("hits", 2), ("variance", 1), ("variance", 0.5), ("median", 1), ("median", -1), ("mad", 1)]


@settings(deadline=None, max_examples=60)
@given(
    kind_p=st.sampled_from(KINDS),
    tasks=st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 0.5, 1, 2, 3])), min_size=1, max_size=4),
    weighted=st.booleans(),
)
def test_live_enumeration(kind_p, tasks, weighted):
    N = [n for n, _ in tasks]
    weights = [w for _, w in tasks] if weighted and any(w for _, w in tasks) else None
    check(DEFAULT_EXPECTATION.moments(definition(*kind_p), N, weights), *enumerated(*kind_p, N, weights))


MIXED = [8, 6, 5, 4, 8, 6, 2, 3, 8, 1]
TEN_TASKS = [(MIXED, None), ([6, 5, 4, 3, 6, 5, 4, 3, 9, 9], [1, 2, 1, 2, 3, 1, 1, 1, 0.5, 2])]


@pytest.mark.parametrize(("N", "weights"), TEN_TASKS, ids=["equal", "weighted"])
def test_means_and_dispersion_of_ten_tasks_by_convolution(N, weights):
    for kind, p in (("inverse", 1), ("power", 2)):
        exact = convolved(
            lambda r, v, p=p: (v * Fraction(r) ** p,),
            lambda s, p=p, kind=kind: number(s) ** ((1 if kind == "power" else -1) / mpmath.mpf(p)),
            N,
            weights,
        )
        check(DEFAULT_EXPECTATION.moments(definition(kind, p), N, weights), *exact)
    for p in (1, 0.5):
        exact = convolved(lambda r, v: (v * r, v * r * r), lambda a, b, p=p: number(b - a * a) ** p, N, weights)
        check(DEFAULT_EXPECTATION.moments(definition("variance", p), N, weights), *exact, tolerance("variance", p))


@pytest.mark.parametrize("kind_p", KINDS, ids=str)
def test_invariances(kind_p):
    metric = definition(*kind_p)
    N, w = np.array([3, 5, 5, 2, 4, 3]), np.array([1.0, 2.0, 2.0, 0.5, 3.0, 1.0])
    order = np.random.default_rng(0).permutation(6)
    expected = DEFAULT_EXPECTATION.moments(metric, N, w)
    for other in (
        CandidateCounts.of(N[order], w[order]),
        CandidateCounts.of(N, 7 * w),
        CandidateCounts.of([3, 5, 2, 4], [1.0, 2.0, 0.5, 3.0], count=[2, 2, 1, 1]),
        CandidateCounts.of(np.append(N, 4), np.append(w, 0.0)),
        CandidateCounts.of(N.astype(np.int32), w.astype(np.float32)),
    ):
        result = ExactExpectation().moments(metric, other)
        check(result, expected.mean, expected.variance, (1e-13, 1e-13))
    # the variance is exactly zero for constants alone
    assert DEFAULT_EXPECTATION.moments(metric, [1] * 49).variance == 0
    assert DEFAULT_EXPECTATION.moments(metric, [1] * 4, [1, 2, 3, 0.1]).variance == 0
    if kind_p[0] not in ("hits", "mad"):
        assert DEFAULT_EXPECTATION.moments(metric, [7, 6, 9, 8]).variance > 0


def test_monte_carlo_estimates_and_repeats():
    N, weights = [12, 12, 12, 12, 9], [1, 2, 1, 1, 3.0]
    provider = MonteCarloExpectation(samples=40_000, seed=3)
    assert isinstance(provider, ExpectationProvider)
    for metric in (d.RANK_MEDIAN_ABSOLUTE_DEVIATION, d.MEDIAN_RANK, d.INVERSE_MEAN_RANK, d.RANK_STANDARD_DEVIATION):
        exact = DEFAULT_EXPECTATION.moments(metric, N, weights)
        estimate = provider.moments(metric, N, weights)
        assert abs(estimate.mean - exact.mean) < 4 * math.sqrt(exact.variance / 40_000)
        assert estimate.variance == pytest.approx(exact.variance, rel=0.05)
        assert estimate == MonteCarloExpectation(40_000, 3).moments(metric, N, weights)
        assert estimate != MonteCarloExpectation(40_000, 4).moments(metric, N, weights)
    # many tasks: only a few rank vectors fit in memory at once
    assert provider.moments(d.MEAN_RANK, [3] * 300).mean == pytest.approx(2, abs=1e-3)
    assert MonteCarloExpectation(10).moments(d.MEDIAN_RANK, [1, 1, 1]).variance == 0


def test_precomputed_ignores_the_tasks_at_hand():
    stored = PrecomputedExpectation([5, 3, 9], weight=[1, 2, 1], count=[2, 1, 1])
    assert isinstance(stored, ExpectationProvider)
    for metric in (d.MEAN_RECIPROCAL_RANK, d.RANK_MEDIAN_ABSOLUTE_DEVIATION):
        expected = DEFAULT_EXPECTATION.moments(metric, [5, 5, 3, 9], [1, 1, 2, 1])
        assert stored.moments(metric, [2]) == stored.moments(metric, [100] * 50, [2.0] * 50) == expected
    sampled = PrecomputedExpectation([5, 3], provider=MonteCarloExpectation(50, 1))
    assert sampled.moments(d.MEAN_RANK, [9]) == MonteCarloExpectation(50, 1).moments(d.MEAN_RANK, [5, 3])
    with pytest.raises(ValueError, match="num_candidates"):
        PrecomputedExpectation([0])


@pytest.mark.parametrize("metric", [d.RANK_COUNT, d.TIE_RATE])
@pytest.mark.parametrize("provider", [ExactExpectation(), MonteCarloExpectation(10), PrecomputedExpectation([4])])
def test_no_null(metric, provider):
    assert not provider.answers(metric)
    with pytest.raises(ExpectationUnavailableError, match="no null"):
        provider.moments(metric, [3])


@pytest.mark.parametrize(
    ("metric", "weights"),
    [(d.RANK_MEDIAN_ABSOLUTE_DEVIATION, None), (d.MEDIAN_RANK, [1.0, 2.0] * 10), (d.power_mean_rank(-40), None)],
)
def test_an_unavailable_expectation_raises_with_the_remedy(metric, weights):
    with pytest.raises(ExpectationUnavailableError, match=r"2,000,000.*MonteCarloExpectation"):
        DEFAULT_EXPECTATION.moments(metric, [50] * 20, weights)
    assert DEFAULT_EXPECTATION.answers(metric)


@pytest.mark.parametrize(
    ("counts", "weights", "error"),
    [([], None, ValueError), ([0, 3], None, ValueError), ([3], [-1.0], ValueError), ([3], [math.nan], ValueError),
     ([3, 4], [1.0], ValueError), ([3.5], None, TypeError), ([3], [0.0], ValueError),
     (CandidateCounts.of([3]), [1.0], ValueError)],
)  # fmt: skip
def test_bad_counts(counts, weights, error):
    with pytest.raises(error):
        DEFAULT_EXPECTATION.moments(d.MEAN_RANK, counts, weights)


# products small enough for exact distributions, but computed by quadrature: strategies without enumeration
POWERS = [-3, -2, -1, -0.7, -0.5, -0.1, -0.01, 0.01, 0.1, 0.3, 0.4, 0.5, 0.9, 0.99, 1.01, 1.1, 1.5, 2, 3]


@pytest.mark.parametrize(
    ("N", "weights"),
    [
        ([3, 5, 2, 7, 8, 9, 4], None),
        ([2] * 16, None),
        ([4, 9, 5, 5], [1, 2, 0.5, 0.5]),
        ([6] * 6, None),
        ([90, 70], None),
    ],
)
def test_quadrature_of_powers(N, weights):
    for p, sign in itertools.product(POWERS, (1, -1)):
        metric, counts = d.RankDefinition("m", f=d.Power(p), g=d.Power(sign / p)), CandidateCounts.of(N, weights)
        expected = enumeration(metric, counts)
        try:
            result = next(one for one in strategies(metric) if one is not enumeration)(metric, counts)
        except ExpectationUnavailableError:
            assert abs(p) < 0.4  # the Gauss rule raises for a few wide distributions of few tasks
            continue
        check(result, expected.mean, expected.variance, (2e-13 if abs(p) > 0.09 else 1e-12, 1e-10))


@pytest.mark.parametrize(
    ("N", "weights"),
    [([30, 20, 9], None), ([6] * 6, None), ([2] * 16, None), ([2] * 12 + [1] * 5, [1] * 8 + [3] * 9), ([90, 70], None)],
)
def test_integral_of_the_standard_deviation(N, weights):
    counts = CandidateCounts.of(N, weights)
    result, expected = (f(d.RANK_STANDARD_DEVIATION, counts) for f in (rank_standard_deviation, enumeration))
    check(result, expected.mean, expected.variance, (1e-8, 1e-6))
