"""Average precision: values under ties, and both moments by chance in closed form.

The m answers X_1..X_m are drawn without replacement, and m AP = sum of a(X_i) + sum over pairs of h(X_i, X_j) with
a(r) = [r <= k] / r and h(q, r) = a(max(q, r)). The orthogonal decomposition of such statistics (Bloznelis and Götze
2001, doi:10.1214/aos/1009210694) leaves sums of positive terms: nothing cancels as E[AP^2] - E[AP]^2 does.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, polygamma

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.kinds import Power
from torchrankmetrics.theory.quadrature.panels import panel_means
from torchrankmetrics.theory.queries.gains import Cut
from torchrankmetrics.theory.queries.kind import QueryKind
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.transforms import KnownTransform

_TABLED = 1 << 10


@dataclass(frozen=True)
class AveragePrecision(QueryKind):
    """(1/m) sum of i / r_(i) over the answers with r_(i) <= k: divided by m with a cut too, as trec_eval does."""

    k: int | None = None

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``: a place i of a block holds an answer with t - 1 others spread over the rest of it.

        Source: McSherry and Najork 2008 (doi:10.1007/978-3-540-78646-7_38), section 3.
        """
        o, b, t = sample.optimistic, sample.size, sample.answers
        n = b if self.k is None else np.clip(self.k - o + 1, 0, b)
        first = sample.before + 1.0
        share = np.where(n > 0, first / o, 0.0)
        long = n > 1
        if long.any():
            low, start = o[long], first[long]
            slope = (t[long] - 1) / (b[long] - 1)
            share[long] = panel_means(lambda r, i: (start[i] + (r - low[i]) * slope[i]) / r, low, low + n[long] - 1)
        return np.asarray(sample.sums(t * (share * (n / b))) / sample.num_answers)

    def optimum(self, N: IntArray, m: IntArray) -> FloatArray:
        """See ``QueryKind``."""
        return np.ones(len(m)) if self.k is None else np.minimum(m, self.k) / m

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return (Power(-1) if self.k is None else Cut(Power(-1), self.k)), 1.0

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``."""
        T = N if self.k is None else np.minimum(N, self.k)
        H, H2 = harmonic(T)
        n, x = N.astype(np.float64), m.astype(np.float64)
        mean = H / n + (x - 1) / np.maximum(n - 1, 1) * ((T - H) / n)
        linear = (n - x) / (np.maximum(n - 1, 1) * x) * _linear_variance(n, x, T, H, H2)
        pairs = (
            (x - 1) / x * (n - x) * (n - x - 1) / (2 * np.maximum((n - 2) * (n - 3), 1)) * _pair_variance(n, T, H, H2)
        )
        return mean, np.maximum(linear + np.where(N > 3, pairs, 0.0), 0.0)


def _linear_variance(n: FloatArray, m: FloatArray, T: IntArray, H: FloatArray, H2: FloatArray) -> FloatArray:
    """Variance over r = 1..N of the share of one answer, g(r) = [r <= T] ((1 - c) / r + c (1 + H_T - H_r)).

    c = (m - 1) / (N - 2) <= 1 while m < N. Both parts decrease in r: their covariance is positive.
    """
    c = np.minimum((m - 1) / np.maximum(n - 2, 1), 1.0)
    mean_u, mean_w = H / n, (2 * T - H) / n
    u = H2 / n - mean_u**2
    uw = (H + (H**2 - H2) / 2) / n - mean_u * mean_w
    w = (5 * T - 3 * H - H**2) / n - mean_w**2
    return np.asarray((1 - c) ** 2 * u + 2 * c * (1 - c) * uw + c**2 * w)


def _pair_variance(n: FloatArray, T: IntArray, H: FloatArray, H2: FloatArray) -> FloatArray:
    """Mean square over the pairs of places of what h has beside its linear part; 0 for N <= 3."""
    pairs = np.maximum(n * (n - 1) / 2, 1)
    alone = (5 * T - 5 * H - 2 * H**2 + 2 * H2) / n - (2 * (T - H) / n) ** 2
    rest = (H - H2) / pairs - ((T - H) / pairs) ** 2 - 2 * alone / np.maximum((n - 1) * (n - 2), 1)
    return np.maximum(rest, 0.0)


def harmonic(T: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sums of 1/r and of 1/r^2 over 1..T: (u,) int64 in; small T from a table, whose differences must be exact."""
    r = np.arange(1, _TABLED + 1, dtype=np.longdouble)
    table, squares = (np.r_[0.0, np.cumsum(1 / r**p).astype(np.float64)] for p in (1, 2))
    x = T.astype(np.float64)
    near, at = T <= _TABLED, np.minimum(T, _TABLED)
    return (
        np.where(near, table[at], digamma(x + 1) + np.euler_gamma),
        np.where(near, squares[at], np.pi**2 / 6 - polygamma(1, x + 1)),
    )
