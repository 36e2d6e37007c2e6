"""Moments of queries by chance: all outcomes of small queries, 50 digits for large ones, and what draws average to."""

import mpmath
import numpy as np
import pytest

import reference_queries as exact
from query_metrics import METRICS, every_metric
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.significance import random_subsets

LARGE = [(2, 1), (3, 2), (4, 2), (10, 3), (300, 299), (2_000, 1), (54_321, 2), (10**6, 1_000)]
LARGE += [(10**7, m) for m in (1, 3, 60_000, 5 * 10**6, 10**7 - 1)]


@every_metric
def test_moments_are_those_of_all_outcomes(definition, value):
    pairs = [(N, m) for N in range(1, 10) for m in range(1, N + 1)]
    means, variances = definition.moments(*np.array(pairs).T)
    for (N, m), mean, variance in zip(pairs, means, variances, strict=True):
        values = [value(ranks, N) for ranks in exact.outcomes(N, m)]
        if values[0] is None:
            assert np.isnan(mean)
            assert variance == 0
            continue
        want_mean, want = exact.moments(values)
        assert mean == pytest.approx(float(want_mean), rel=2e-15)
        if len(set(values)) == 1:
            assert variance == 0  # exactly: views are undefined there
        else:
            assert variance == pytest.approx(float(want), rel=2e-14)


def precise_average_precision(N, m, k):
    """E and V of AP to 50 digits, from the raw second moment: E J_r C_r J_s C_s summed over r <= s.

    J_r: place r holds an answer; C_r: answers up to it. p_j = m .. (m - j + 1) / N .. (N - j + 1) is the probability
    that j given places do. What cancels, up to 30 digits, is why the library does not do it.
    """
    with mpmath.workdps(110):
        N, m = mpmath.mpf(N), mpmath.mpf(m)
        T = N if k is None else min(mpmath.mpf(k), N)
        H, H2 = mpmath.harmonic(T), mpmath.zeta(2) - mpmath.psi(1, T + 1)
        p = [mpmath.mpf(1)]
        for i in range(4):
            p.append(p[-1] * (m - i) / (N - i) if i < N else mpmath.mpf(0))
        mean = p[1] * H + p[2] * (T - H)
        same = p[1] * H2 + 3 * p[2] * (H - H2) + p[3] * (T - 3 * H + 2 * H2)
        harmonic_over = (H * H - H2) / 2  # sum of H_(s-1) / s
        pairs = (2 * p[2] - 4 * p[3] + 2 * p[4]) * harmonic_over + (3 * p[3] - 2 * p[4]) * (T - H)
        pairs += (p[3] - p[4]) * (T * H - T - harmonic_over) + p[4] * (T * (T + 1) / 2 - 2 * T + H)
        return mean / m, (same + 2 * pairs - mean**2) / m**2


@pytest.mark.parametrize("k", [None, 1, 2, 100, 30_000])
def test_moments_of_average_precision_agree_with_50_digits(k):
    for N, m in LARGE:
        (mean,), (variance,) = d.average_precision(k).moments([N], [m])
        want_mean, want = precise_average_precision(N, m, k)
        assert mean == pytest.approx(float(want_mean), rel=1e-14)
        assert variance == pytest.approx(float(want), rel=2e-14, abs=0), (N, m)


@pytest.mark.parametrize("k", [None, 7, 5_000])
@pytest.mark.parametrize(("N", "m"), [(2_000, 2), (10**5, 3), (10**5, 700), (300_000, 150_000), (10**5, 10**5 - 3)])
def test_moments_of_the_first_hit_are_the_sums_over_every_place(N, m, k):
    r = np.arange(1, N - m + 2, dtype=np.longdouble)
    hazard = m / (N - r + 1)
    beyond = np.r_[np.longdouble(1), np.cumprod(1 - hazard)]
    distribution = beyond[:-1] * hazard
    for definition, value in (
        (d.first_reciprocal_rank(k), np.where(r <= (k or N), 1 / r, 0)),
        (d.success_at(k or N), np.where(r <= (k or N), 1.0, 0.0).astype(np.longdouble)),
    ):
        (mean,), (variance,) = definition.moments([N], [m])
        want = (distribution * value).sum()
        assert mean == pytest.approx(float(want), rel=1e-14)
        assert variance == pytest.approx(float((distribution * (value - want) ** 2).sum()), rel=1e-11, abs=1e-30)


@pytest.mark.parametrize("k", [None, 100])
def test_moments_of_ndcg_are_the_sums_over_every_place(k):
    N, m = 200_000, 12
    r = np.arange(1, N + 1, dtype=np.longdouble)
    gain = np.where(r <= (k or N), 1 / np.log2(1 + r), 0)
    ideal = (1 / np.log2(1 + r[: min(m, k or m)])).sum()
    (mean,), (variance,) = d.normalized_dcg(k).moments([N], [m])
    assert mean == pytest.approx(float(m * gain.mean() / ideal), rel=1e-14)
    spread = ((gain - gain.mean()) ** 2).mean()
    assert variance == pytest.approx(float(m * spread * (N - m) / (N - 1) / ideal**2), rel=1e-13)


def test_as_many_candidates_as_there_can_be():
    N = np.array([(1 << 62) - 1])
    for definition, _ in METRICS:
        if definition.name != "root":  # a function of which nothing is known is summed as far as it must
            (mean,), (variance,) = definition.moments(N, [3])
            assert np.isfinite(mean)
            assert variance > 0
    (mean,), _ = d.first_reciprocal_rank().moments(N, [1])
    assert mean == pytest.approx((62 * np.log(2) + np.euler_gamma) / 2**62, rel=1e-12)


@pytest.mark.parametrize(("N", "m"), [(6, 2), (6, 5), (7, 1), (400, 3), (30, 12)])
def test_random_subsets_are_uniform(N, m):
    rows = 30_000
    ranks = random_subsets(np.random.default_rng(1), N, m, rows)
    assert (np.diff(ranks, axis=1) > 0).all()
    seen = np.bincount(ranks.ravel(), minlength=N + 1)[1:]
    assert np.abs(seen - rows * m / N).max() < 5 * np.sqrt(rows * m / N * (1 - m / N)) + 1e-9
