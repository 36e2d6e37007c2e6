"""Null moments of sets of real size: against a second, independent way; and what they cost."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.null.expectation.power import power_mean, power_mean_by_gauss

mpmath.mp.dps = 50


def filtered_counts(distinct, low, high, tasks, seed=0):
    """Candidate counts of the shape of a filtered benchmark: so many distinct ones between two ends."""
    random = np.random.default_rng(seed)
    inner = random.choice(np.arange(low + 1, high), distinct - 2, replace=False)
    values = np.r_[low, high, inner]
    return CandidateCounts.of(np.r_[values, random.choice(values, tasks - distinct)])


FB15K237 = filtered_counts(319, 10178, 14541, 40932)
WN18RR = filtered_counts(107, 40434, 40943, 6268)
METRICS = [
    d.INVERSE_MEAN_RANK,
    d.HARMONIC_MEAN_RANK,
    d.GEOMETRIC_MEAN_RANK,
    d.INVERSE_GEOMETRIC_MEAN_RANK,
    d.RANK_VARIANCE,
]
METRICS += [d.power_mean_rank(p) for p in (-3, -2, -0.5, 0.1, 0.5, 0.9, 1.1, 2, 3, math.inf, -math.inf)]


def close(a, b, mean, variance):
    assert a.mean == pytest.approx(b.mean, rel=mean, abs=0)
    assert a.variance == pytest.approx(b.variance, rel=variance, abs=0)


@pytest.mark.parametrize("p", [-0.7, -0.5, 0.45, 0.5, 0.9, 0.99, 1.01, 1.1, 2, 2.5])
@pytest.mark.parametrize("counts", [FB15K237, WN18RR], ids=["fb", "wn"])
def test_laplace_and_gauss_agree(p, counts):
    metric = d.power_mean_rank(p)
    close(power_mean(metric, counts), power_mean_by_gauss(metric, counts), 1e-12, 1e-10)


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
    assert DEFAULT_EXPECTATION.moments(d.power_mean_rank(0.5), counts).mean == pytest.approx(float(mean), rel=1e-13)


@pytest.mark.parametrize(("n", "N"), [(41, 1000), (801, 14541), (6267, 40943)])
def test_odd_median_of_equal_counts(n, N):
    """P(median > x) is a binomial tail."""
    tail = binom.cdf(n // 2, n, np.arange(N) / N)
    mean = tail.sum()
    variance = ((2 * (np.arange(N) - mean) + 1) * tail).sum() + mean**2
    result = DEFAULT_EXPECTATION.moments(d.MEDIAN_RANK, [N] * n)
    assert result.mean == pytest.approx(mean, rel=1e-11)
    assert result.variance == pytest.approx(variance, rel=1e-9)
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
    result = DEFAULT_EXPECTATION.moments(d.MEDIAN_RANK, [N] * n)
    assert result.mean == pytest.approx(sum(means) / 2, rel=1e-11)
    assert result.variance == pytest.approx(sum(variances) / 2 - (square - gap**2) / 4, rel=1e-9)


def test_standard_deviation_routes_meet(monkeypatch):
    """By its first moments and by the double integral, where both are good."""
    from torchrankmetrics.null.expectation import variance as standard_deviation

    counts = filtered_counts(40, 300, 500, 700)
    by_moments = standard_deviation.rank_standard_deviation(d.RANK_STANDARD_DEVIATION, counts)
    monkeypatch.setattr(standard_deviation, "_CONCENTRATED", 0.0)
    close(by_moments, standard_deviation.rank_standard_deviation(d.RANK_STANDARD_DEVIATION, counts), 1e-10, 1e-6)


def test_standard_deviation_of_two_tasks():
    """|r_1 - r_2| / 2: (N^2 - 1) / (6 N) on average; wider than any enumeration."""
    N = 20_000
    result = DEFAULT_EXPECTATION.moments(d.RANK_STANDARD_DEVIATION, [N, N])
    mean = (N * N - 1) / (6 * N)
    assert result.mean == pytest.approx(mean, rel=1e-6)
    assert result.variance == pytest.approx((N * N - 1) / 24 - mean**2, rel=1e-5)


def test_weights_with_many_values():
    """Weights that differ in the 13th digit take the route of general weights and give what equal weights give."""
    weights = np.where(np.arange(2000) % 2, 1.0, 1.0 + 1e-13)
    N = np.random.default_rng(0).choice([900, 950, 1000], 2000)
    for metric in METRICS[:4] + [d.power_mean_rank(2), d.power_mean_rank(0.5), d.RANK_STANDARD_DEVIATION]:
        close(DEFAULT_EXPECTATION.moments(metric, N, weights), DEFAULT_EXPECTATION.moments(metric, N), 1e-11, 1e-9)


# one task, and few tasks with many candidates, against 50 digits


def rank_moments(N):
    """Mean and variance of r uniform on 1..N."""
    return mpmath.mpf(N + 1) / 2, mpmath.mpf(N - 1) * (N + 1) / 12


def inverse_moments(N):
    """Mean and variance of 1/r."""
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
        total += mpmath.bernoulli(2 * k) / mpmath.factorial(2 * k) * mpmath.ff(s, 2 * k - 1) * N ** (s - 2 * k + 1)
    return total / N


def check_digits(got, mean, variance, mean_digits=3e-14, variance_digits=1e-13):
    assert abs(got.mean / mean - 1) <= mean_digits
    assert abs(got.variance / variance - 1) <= variance_digits


OF_THE_RANK = [d.MEAN_RANK, d.HARMONIC_MEAN_RANK, d.GEOMETRIC_MEAN_RANK, d.MEDIAN_RANK]
OF_THE_RANK += [d.power_mean_rank(p) for p in (-3, -2, -1.5, -0.5, 0.5, 0.9, 1.01, 1.5, 2, 3, math.inf, -math.inf)]
OF_ITS_INVERSE = [d.MEAN_RECIPROCAL_RANK, d.INVERSE_MEAN_RANK, d.INVERSE_GEOMETRIC_MEAN_RANK, d.INVERSE_MEDIAN_RANK]


@pytest.mark.parametrize(
    ("metric", "exact"),
    [*((one, rank_moments) for one in OF_THE_RANK), *((one, inverse_moments) for one in OF_ITS_INVERSE)],
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
        got = DEFAULT_EXPECTATION.moments(metric, CandidateCounts.of(counts, count=np.full(len(counts), n)))
        check_digits(got, mean, square - mean**2)


@pytest.mark.parametrize("n", [1, 3, 1000])
@pytest.mark.parametrize("metric", [d.GEOMETRIC_MEAN_RANK, d.INVERSE_GEOMETRIC_MEAN_RANK], ids=lambda one: one.name)
def test_a_constant_scorer_has_the_null_mean_at_any_number_of_candidates(metric, n):
    for N in (10, 10**6, 10**9, 2**61):
        counts = np.full(n, N)
        constant = metric.value(RankSample(np.ones_like(counts), counts, counts), "expected")
        assert constant == pytest.approx(DEFAULT_EXPECTATION.moments(metric, counts).mean, rel=3e-14)
