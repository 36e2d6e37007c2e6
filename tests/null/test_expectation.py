"""Null moments of every metric against enumeration and convolution in Fractions.

Moments of large sets are compared with a second way.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom

from exact_distributions import convolved, enumerated, number
from torchrankmetrics.datasets.precomputed import PrecomputedExpectation
from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.definitions.sample import CandidateCounts, RankSample
from torchrankmetrics.null.expectation.exact import (
    DEFAULT_EXPECTATION,
    ExactExpectation,
    strategies,
)
from torchrankmetrics.null.expectation.power import power_mean, power_mean_by_gauss
from torchrankmetrics.null.expectation.provider import (
    ExpectationProvider,
    ExpectationUnavailableError,
    MonteCarloExpectation,
    enumeration,
)
from torchrankmetrics.null.expectation.variance import rank_standard_deviation

# the library's definitions of the metrics of exact_distributions
POWERS = (-2, -1, -0.5, -0.1, 0, 0.01, 0.5, 0.99, 1, 1.01, 2, math.inf, -math.inf)
DEFINITIONS = {("power", p): d.power_mean_rank(p) for p in POWERS} | {
    ("inverse", 0): d.INVERSE_GEOMETRIC_MEAN_RANK
}
for p in (-2, -0.7, 0.3, 1, 2):
    DEFINITIONS["inverse", p] = d.RankDefinition("inverse", f=d.Power(p), g=d.Power(-1 / p))
DEFINITIONS |= {("variance", 1): d.RANK_VARIANCE, ("variance", 0.5): d.RANK_STANDARD_DEVIATION}
DEFINITIONS |= {("median", 1): d.MEDIAN_RANK, ("median", -1): d.INVERSE_MEDIAN_RANK}
DEFINITIONS |= {("mad", 1): d.RANK_MEDIAN_ABSOLUTE_DEVIATION, ("hits", 2): d.hits_at(2)}


def check(result, mean, variance, tolerances=(1e-12, 1e-10)):
    assert result.mean == pytest.approx(float(mean), rel=tolerances[0], abs=0)
    # what mpmath's 50 digits leave of a variance that is 0
    assert result.variance == pytest.approx(float(variance), rel=tolerances[1], abs=1e-60)


@settings(deadline=None, max_examples=60)
@given(
    kind_p=st.sampled_from(list(DEFINITIONS)),
    tasks=st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([0, 0.5, 1, 2, 3])), min_size=1, max_size=4
    ),
    weighted=st.booleans(),
)
def test_live_enumeration(kind_p, tasks, weighted):
    N = [n for n, _ in tasks]
    weights = [w for _, w in tasks] if weighted and any(w for _, w in tasks) else None
    check(
        DEFAULT_EXPECTATION.moments(DEFINITIONS[kind_p], N, weights),
        *enumerated(*kind_p, N, weights),
    )


@pytest.mark.parametrize(
    ("N", "weights"),
    [
        ([8, 6, 5, 4, 8, 6, 2, 3, 8, 1], None),
        ([6, 5, 4, 3, 6, 5, 4, 3, 9, 9], [1, 2, 1, 2, 3, 1, 1, 1, 0.5, 2]),
    ],
)
def test_means_and_dispersion_of_ten_tasks_by_convolution(N, weights):
    for metric, moments_of, g, tolerances in (
        (("inverse", 1), lambda r, v: (v * r,), lambda s: 1 / number(s), (1e-12, 1e-10)),
        (("power", 2), lambda r, v: (v * r * r,), lambda s: mpmath.sqrt(number(s)), (1e-12, 1e-10)),
        (("variance", 1), lambda r, v: (v * r, v * r * r), lambda a, b: b - a * a, (1e-12, 1e-10)),
        (
            ("variance", 0.5),
            lambda r, v: (v * r, v * r * r),
            lambda a, b: mpmath.sqrt(number(b - a * a)),
            (1e-8, 1e-6),
        ),
    ):
        got = DEFAULT_EXPECTATION.moments(DEFINITIONS[metric], N, weights)
        check(got, *convolved(moments_of, g, N, weights), tolerances)


@pytest.mark.parametrize("kind_p", DEFINITIONS, ids=str)
def test_invariances(kind_p):
    metric = DEFINITIONS[kind_p]
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
        check(
            ExactExpectation().moments(metric, other),
            expected.mean,
            expected.variance,
            (1e-13, 1e-13),
        )
    # the variance is exactly zero for constants alone
    assert DEFAULT_EXPECTATION.moments(metric, [1] * 49).variance == 0
    assert DEFAULT_EXPECTATION.moments(metric, [1] * 4, [1, 2, 3, 0.1]).variance == 0
    if kind_p[0] not in ("hits", "mad"):
        assert DEFAULT_EXPECTATION.moments(metric, [7, 6, 9, 8]).variance > 0


@pytest.mark.parametrize(
    "metric",
    [
        d.RANK_MEDIAN_ABSOLUTE_DEVIATION,
        d.MEDIAN_RANK,
        d.INVERSE_MEAN_RANK,
        d.RANK_STANDARD_DEVIATION,
    ],
    ids=lambda metric: metric.name,
)
def test_monte_carlo_estimates_and_repeats(metric):
    N, weights = [12, 12, 12, 12, 9], [1, 2, 1, 1, 3.0]
    provider = MonteCarloExpectation(samples=40_000, seed=3)
    exact = DEFAULT_EXPECTATION.moments(metric, N, weights)
    estimate = provider.moments(metric, N, weights)
    assert abs(estimate.mean - exact.mean) < 4 * math.sqrt(exact.variance / 40_000)
    assert estimate.variance == pytest.approx(exact.variance, rel=0.05)
    assert estimate == MonteCarloExpectation(40_000, 3).moments(metric, N, weights)
    assert estimate != MonteCarloExpectation(40_000, 4).moments(metric, N, weights)


def test_monte_carlo_of_many_tasks_and_of_constant_ranks():
    provider = MonteCarloExpectation(samples=40_000, seed=3)
    assert isinstance(provider, ExpectationProvider)
    # many tasks: only a few rank vectors fit in memory at once
    assert provider.moments(d.MEAN_RANK, [3] * 300).mean == pytest.approx(2, abs=1e-3)
    assert MonteCarloExpectation(10).moments(d.MEDIAN_RANK, [1, 1, 1]).variance == 0


@pytest.mark.parametrize(
    "metric",
    [d.MEAN_RECIPROCAL_RANK, d.RANK_MEDIAN_ABSOLUTE_DEVIATION],
    ids=lambda metric: metric.name,
)
def test_precomputed_ignores_the_tasks_at_hand(metric):
    stored = PrecomputedExpectation([5, 3, 9], weight=[1, 2, 1], count=[2, 1, 1])
    expected = DEFAULT_EXPECTATION.moments(metric, [5, 5, 3, 9], [1, 1, 2, 1])
    assert stored.moments(metric, [2]) == stored.moments(metric, [100] * 50, [2.0] * 50) == expected


def test_precomputed_takes_any_provider_and_checks_its_numbers():
    stored = PrecomputedExpectation([5, 3, 9], weight=[1, 2, 1], count=[2, 1, 1])
    assert isinstance(stored, ExpectationProvider)
    sampled = PrecomputedExpectation([5, 3], provider=MonteCarloExpectation(50, 1))
    assert sampled.moments(d.MEAN_RANK, [9]) == MonteCarloExpectation(50, 1).moments(
        d.MEAN_RANK, [5, 3]
    )
    with pytest.raises(ValueError, match="num_candidates"):
        PrecomputedExpectation([0])


@pytest.mark.parametrize(
    "provider", [ExactExpectation(), MonteCarloExpectation(10), PrecomputedExpectation([4])]
)
@pytest.mark.parametrize("metric", [d.RANK_COUNT, d.TIE_RATE], ids=lambda metric: metric.name)
def test_no_null(metric, provider):
    assert not provider.supports(metric)
    with pytest.raises(ExpectationUnavailableError, match="no null"):
        provider.moments(metric, [3])


@pytest.mark.parametrize(
    ("metric", "weights"),
    [
        (d.RANK_MEDIAN_ABSOLUTE_DEVIATION, None),
        (d.MEDIAN_RANK, [1.0, 2.0] * 10),
        (d.power_mean_rank(-40), None),
    ],
)
def test_an_unavailable_expectation_raises_with_the_remedy(metric, weights):
    with pytest.raises(ExpectationUnavailableError, match=r"2,000,000.*MonteCarloExpectation"):
        DEFAULT_EXPECTATION.moments(metric, [50] * 20, weights)
    assert DEFAULT_EXPECTATION.supports(metric)


@pytest.mark.parametrize(
    ("counts", "weights", "error"),
    [([], None, ValueError), ([0, 3], None, ValueError), ([3], [-1.0], ValueError),
     ([3], [math.nan], ValueError),
     ([3, 4], [1.0], ValueError), ([3.5], None, TypeError), ([3], [0.0], ValueError),
     (CandidateCounts.of([3]), [1.0], ValueError)],
)  # fmt: skip
def test_bad_counts(counts, weights, error):
    with pytest.raises(error):
        DEFAULT_EXPECTATION.moments(d.MEAN_RANK, counts, weights)


SETS = [([2] * 16, None), ([6] * 6, None), ([90, 70], None)]


@pytest.mark.parametrize(
    ("N", "weights"), [*SETS, ([3, 5, 2, 7, 8, 9, 4], None), ([4, 9, 5, 5], [1, 2, 0.5, 0.5])]
)
def test_quadrature_of_powers(N, weights):
    """Quadrature of products that are small enough for exact distributions, not enumerated."""
    powers = (
        -3,
        -2,
        -1,
        -0.7,
        -0.5,
        -0.1,
        -0.01,
        0.01,
        0.1,
        0.3,
        0.4,
        0.5,
        0.9,
        0.99,
        1.01,
        1.1,
        1.5,
        2,
        3,
    )
    for p, sign in itertools.product(powers, (1, -1)):
        metric, counts = (
            d.RankDefinition("m", f=d.Power(p), g=d.Power(sign / p)),
            CandidateCounts.of(N, weights),
        )
        expected = enumeration(metric, counts)
        try:
            result = next(one for one in strategies(metric) if one is not enumeration)(
                metric, counts
            )
        except ExpectationUnavailableError:
            assert abs(p) < 0.4  # the Gauss rule raises for a few wide distributions of few tasks
            continue
        check(result, expected.mean, expected.variance, (2e-13 if abs(p) > 0.09 else 1e-12, 1e-10))


@pytest.mark.parametrize(
    ("N", "weights"), [*SETS, ([30, 20, 9], None), ([2] * 12 + [1] * 5, [1] * 8 + [3] * 9)]
)
def test_integral_of_the_standard_deviation(N, weights):
    counts = CandidateCounts.of(N, weights)
    result, expected = (
        f(d.RANK_STANDARD_DEVIATION, counts) for f in (rank_standard_deviation, enumeration)
    )
    check(result, expected.mean, expected.variance, (1e-8, 1e-6))


def filtered_counts(distinct, low, high, tasks, seed=0):
    """Candidate counts like a filtered benchmark: so many distinct ones between two ends."""
    random = np.random.default_rng(seed)
    inner = random.choice(np.arange(low + 1, high), distinct - 2, replace=False)
    values = np.r_[low, high, inner]
    return CandidateCounts.of(np.r_[values, random.choice(values, tasks - distinct)])


FB15K237 = filtered_counts(319, 10178, 14541, 40932)
WN18RR = filtered_counts(107, 40434, 40943, 6268)


@pytest.mark.parametrize("p", [-0.7, -0.5, 0.45, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 2.5])
@pytest.mark.parametrize("counts", [FB15K237, WN18RR], ids=["fb", "wn"])
def test_laplace_and_gauss_agree(p, counts):
    metric = d.power_mean_rank(p)
    gauss = power_mean_by_gauss(metric, counts)
    check(power_mean(metric, counts), gauss.mean, gauss.variance)


def test_half_power_is_a_polynomial():
    """M_(1/2) = (sum v sqrt r)^2: its mean needs two moments of sqrt r, added exactly."""
    counts = FB15K237
    sums = {}
    for n in counts.num_candidates:
        root = np.sqrt(np.arange(1, n + 1, dtype=np.longdouble))
        sums[int(n)] = (root.mean(), (root**2).mean())
    first, second = (np.array([sums[int(n)][k] for n in counts.num_candidates]) for k in (0, 1))
    share = counts.count * counts.weight
    mean = (share * first).sum() ** 2 + (share * counts.weight * (second - first**2)).sum()
    assert DEFAULT_EXPECTATION.moments(d.power_mean_rank(0.5), counts).mean == pytest.approx(
        float(mean), rel=1e-13
    )


@pytest.mark.parametrize(("n", "N"), [(41, 1000), (801, 14541), (6267, 40943)])
def test_odd_median_of_equal_counts(n, N):
    """P(median > x) is a binomial tail."""
    tail = binom.cdf(n // 2, n, np.arange(N) / N)
    mean = tail.sum()
    variance = ((2 * (np.arange(N) - mean) + 1) * tail).sum() + mean**2
    check(DEFAULT_EXPECTATION.moments(d.MEDIAN_RANK, [N] * n), mean, variance, (1e-11, 1e-9))
    step = -1 / (np.arange(1, N) * np.arange(2, N + 1.0))
    assert DEFAULT_EXPECTATION.moments(d.INVERSE_MEDIAN_RANK, [N] * n).mean == pytest.approx(
        1 + (step * tail[1:]).sum(), rel=1e-11
    )


@pytest.mark.parametrize(("n", "N"), [(100, 2000), (400, 500)])
def test_even_median_of_equal_counts(n, N):
    """E gap^2 = sum over x, y of P(B_x = n/2 = B_y), all pairs one by one."""
    m = n // 2
    x, y = np.meshgrid(np.arange(1, N), np.arange(1, N), indexing="ij")
    x, y = x[x <= y], y[x <= y]
    joint = (1 - (y - x) / N) ** n * binom.pmf(m, n, x / (N - (y - x)))
    gap = joint[x == y].sum()
    square = 2 * joint.sum() - gap
    variances, means = [], []
    for j in (m, m + 1):
        tail = binom.cdf(j - 1, n, np.arange(N) / N)
        means.append(tail.sum())
        variances.append(((2 * (np.arange(N) - tail.sum()) + 1) * tail).sum() + tail.sum() ** 2)
    assert means[1] - means[0] == pytest.approx(gap, rel=1e-9)
    variance = sum(variances) / 2 - (square - gap**2) / 4
    check(
        DEFAULT_EXPECTATION.moments(d.MEDIAN_RANK, [N] * n), sum(means) / 2, variance, (1e-11, 1e-9)
    )


def test_standard_deviation_routes_meet(monkeypatch):
    counts = filtered_counts(40, 300, 500, 700)
    by_moments = rank_standard_deviation(d.RANK_STANDARD_DEVIATION, counts)
    monkeypatch.setattr("torchrankmetrics.null.expectation.variance._CONCENTRATED", 0.0)
    by_integral = rank_standard_deviation(d.RANK_STANDARD_DEVIATION, counts)
    check(by_integral, by_moments.mean, by_moments.variance, (1e-10, 1e-6))


def test_standard_deviation_of_two_tasks():
    """|r_1 - r_2| / 2: (N^2 - 1) / (6 N) on average; wider than any enumeration."""
    N = 20_000
    mean = (N * N - 1) / (6 * N)
    got = DEFAULT_EXPECTATION.moments(d.RANK_STANDARD_DEVIATION, [N, N])
    check(got, mean, (N * N - 1) / 24 - mean**2, (1e-6, 1e-5))


def test_weights_with_many_values():
    """Weights that differ in the 13th digit, by the general route, give values of equal weights."""
    weights = np.where(np.arange(2000) % 2, 1.0, 1.0 + 1e-13)
    N = np.random.default_rng(0).choice([900, 950, 1000], 2000)
    for metric in (
        *(
            d.INVERSE_MEAN_RANK,
            d.HARMONIC_MEAN_RANK,
            d.GEOMETRIC_MEAN_RANK,
            d.INVERSE_GEOMETRIC_MEAN_RANK,
        ),
        *(d.power_mean_rank(2), d.power_mean_rank(0.5), d.RANK_STANDARD_DEVIATION),
    ):
        equal = DEFAULT_EXPECTATION.moments(metric, N)
        check(
            DEFAULT_EXPECTATION.moments(metric, N, weights),
            equal.mean,
            equal.variance,
            (1e-11, 1e-9),
        )


def rank_moments(N):
    return mpmath.mpf(N + 1) / 2, mpmath.mpf(N - 1) * (N + 1) / 12


def inverse_moments(N):
    harmonic, squares = mpmath.harmonic(N), mpmath.pi**2 / 6 - mpmath.psi(1, mpmath.mpf(N) + 1)
    return harmonic / N, squares / N - (harmonic / N) ** 2


def mean_power(N, s):
    """E[r^s] by Euler and Maclaurin, or by H_N / N at s = -1."""
    if N <= 200:
        return mpmath.fsum(mpmath.mpf(r) ** s for r in range(1, N + 1)) / N
    if s == -1:
        return inverse_moments(N)[0]
    N = mpmath.mpf(N)
    total = mpmath.zeta(-s) + N ** (s + 1) / (s + 1) + N**s / 2
    for k in range(1, 25):
        total += (
            mpmath.bernoulli(2 * k)
            / mpmath.factorial(2 * k)
            * mpmath.ff(s, 2 * k - 1)
            * N ** (s - 2 * k + 1)
        )
    return total / N


def check_digits(got, mean, variance):
    assert abs(got.mean / mean - 1) <= 3e-14
    assert abs(got.variance / variance - 1) <= 1e-13


OF_THE_RANK = [d.MEAN_RANK, d.HARMONIC_MEAN_RANK, d.GEOMETRIC_MEAN_RANK, d.MEDIAN_RANK]
OF_THE_RANK += [
    d.power_mean_rank(p)
    for p in (-3, -2, -1.5, -0.5, 0.5, 0.9, 1.01, 1.5, 2, 3, math.inf, -math.inf)
]
OF_ITS_INVERSE = [
    d.MEAN_RECIPROCAL_RANK,
    d.INVERSE_MEAN_RANK,
    d.INVERSE_GEOMETRIC_MEAN_RANK,
    d.INVERSE_MEDIAN_RANK,
]


@pytest.mark.parametrize(
    ("metric", "exact"),
    [
        *((one, rank_moments) for one in OF_THE_RANK),
        *((one, inverse_moments) for one in OF_ITS_INVERSE),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_one_task_has_the_moments_of_its_rank_or_its_inverse(metric, exact):
    for N in (2, 3, 64, 65, 1000, 14541, 10**6, 10**9, 10**12, 2**53, 2**61):
        check_digits(DEFAULT_EXPECTATION.moments(metric, [N]), *exact(N))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 20, 50, 10**5])
@pytest.mark.parametrize("counts", [[2], [64], [14541], [10**9], [2**61], [2, 10**9]], ids=str)
def test_geometric_means_of_few_tasks_with_many_candidates(counts, n):
    share = mpmath.mpf(1) / (n * len(counts))
    for metric, s in ((d.GEOMETRIC_MEAN_RANK, share), (d.INVERSE_GEOMETRIC_MEAN_RANK, -share)):
        mean, square = (mpmath.fprod(mean_power(N, k * s) ** n for N in counts) for k in (1, 2))
        got = DEFAULT_EXPECTATION.moments(
            metric, CandidateCounts.of(counts, count=np.full(len(counts), n))
        )
        check_digits(got, mean, square - mean**2)


@pytest.mark.parametrize("N", [10, 10**6, 10**9, 2**61])
@pytest.mark.parametrize("n", [1, 3, 1000])
@pytest.mark.parametrize(
    "metric", [d.GEOMETRIC_MEAN_RANK, d.INVERSE_GEOMETRIC_MEAN_RANK], ids=lambda one: one.name
)
def test_a_constant_scorer_has_the_null_mean_at_any_number_of_candidates(N, metric, n):
    counts = np.full(n, N)
    constant = metric.value(RankSample(np.ones_like(counts), counts, counts), "expected")
    assert constant == pytest.approx(DEFAULT_EXPECTATION.moments(metric, counts).mean, rel=3e-14)
