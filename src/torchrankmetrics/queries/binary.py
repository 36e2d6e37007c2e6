"""Query metrics of binary relevance that are not sums over the relevant items."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, zeta

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.sums import panel_means
from torchrankmetrics.definitions.tasks import MEAN_AUC, MEAN_RANK, RankDefinition
from torchrankmetrics.definitions.transforms import AtMost, KnownTransform, Power, with_limits
from torchrankmetrics.null.hypergeometric import log_miss
from torchrankmetrics.null.tails.lists import Atoms
from torchrankmetrics.queries.kind import (
    QueryKind,
    SumOf,
    hit_distribution,
    moments_by_candidates,
    place_means,
    task_metric,
    up_to,
)
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.validation import MOST_CANDIDATES

_TABLED = 1 << 10
_NEGLIGIBLE = 60.0  # P(X > x) <= exp(-t x / b): e^-60 is negligible relative to P(X <= x)
_MOST_STEPS = 1 << 13  # of the recurrence of the rank sum


@dataclass(frozen=True)
class _Reciprocal(QueryKind):
    k: int | None = None

    @property
    def f(self) -> KnownTransform:
        return up_to(Power(-1), self.k)

    def as_task(self) -> RankDefinition:
        return task_metric(self.f)


@dataclass(frozen=True)
class AveragePrecisionKind(_Reciprocal):
    """Sum of i / r_(i) over the relevant items with r_(i) <= k, over m, as in trec_eval.

    If capped, over min(m, k).
    """

    is_capped: bool = False

    def _number(self, m: IntArray) -> IntArray:
        return np.minimum(m, self.k) if self.is_capped and self.k is not None else m

    def values(self, sample: QuerySample) -> FloatArray:
        # McSherry and Najork 2008 (doi:10.1007/978-3-540-78646-7_38), section 3: a relevant item of
        # a block has t - 1 others, spread evenly over its other places
        o = sample.optimistic
        b = sample.size
        t = sample.answers
        n = b if self.k is None else np.clip(self.k - o + 1, 0, b)
        first = sample.before + 1.0
        long = n > 1
        share = np.where(n > 0, first / o, 0.0)
        if long.any():
            low = o[long]
            start = first[long]
            slope = (t[long] - 1) / (b[long] - 1)
            share[long] = panel_means(
                lambda r, i: (start[i] + (r - low[i]) * slope[i]) / r, low, low + n[long] - 1
            )
        share = with_limits(self.f, share, o, sample.num_candidates[sample.query])
        return np.asarray(sample.sums(t * (share * (n / b))) / self._number(sample.num_relevant))

    def log_best(self, N: int, m: int, gain: FloatArray | None = None) -> float:
        top = m if self.k is None else min(self.k, m)  # places that all have relevant items
        log_orders = np.log(m - np.arange(top)) - np.log(N - np.arange(top))
        return float(log_orders.sum())

    def optimum(self, N: IntArray, m: IntArray) -> FloatArray:
        return (m if self.k is None else np.minimum(m, self.k)) / self._number(m)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = self._moments_over_m(N, m)
        factor = m / self._number(m)
        return factor * mean, factor**2 * variance

    def _moments_over_m(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        T = N if self.k is None else np.minimum(N, self.k)
        H, H2 = harmonic(T)
        n = N.astype(np.float64)
        x = m.astype(np.float64)
        mean = H / n + (x - 1) / np.maximum(n - 1, 1) * ((T - H) / n)
        c = np.minimum((x - 1) / np.maximum(n - 2, 1), 1.0)
        linear = (n - x) / (np.maximum(n - 1, 1) * x) * _variance_of_one(n, T, H, H2, c)
        share = (x - 1) / x * (n - x) * (n - x - 1) / (2 * np.maximum((n - 2) * (n - 3), 1))
        of_pairs = np.where(N > 3, share * _pair_variance(n, T, H, H2), 0.0)
        return mean, np.maximum(linear + of_pairs, 0.0)


def _variance_of_one(
    n: FloatArray, T: IntArray, H: FloatArray, H2: FloatArray, c: FloatArray
) -> FloatArray:
    """Variance over r = 1..N of the part of one relevant item.

    The part is g(r) = [r <= T] ((1 - c) / r + c (1 + H_T - H_r)). Both summands decrease in r, so
    their covariance is positive.
    """
    mean_u = H / n
    mean_w = (2 * T - H) / n
    u = H2 / n - mean_u**2
    uw = (H + (H**2 - H2) / 2) / n - mean_u * mean_w
    w = (5 * T - 3 * H - H**2) / n - mean_w**2
    return (1 - c) ** 2 * u + 2 * c * (1 - c) * uw + c**2 * w


def _pair_variance(n: FloatArray, T: IntArray, H: FloatArray, H2: FloatArray) -> FloatArray:
    """Mean square over pairs of places of h without its linear part; 0 for N <= 3."""
    pairs = np.maximum(n * (n - 1) / 2, 1)
    alone = (5 * T - 5 * H - 2 * H**2 + 2 * H2) / n - (2 * (T - H) / n) ** 2
    rest = (H - H2) / pairs - ((T - H) / pairs) ** 2 - 2 * alone / np.maximum((n - 1) * (n - 2), 1)
    return np.maximum(rest, 0.0)


def harmonic(T: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sums of 1/r and of 1/r^2 over 1..T, (u,) int64 in.

    Sums of small T are from a table, because their differences must be exact.
    """
    r = np.arange(1, _TABLED + 1, dtype=np.longdouble)
    table, squares = (np.r_[0.0, np.cumsum(1 / r**p).astype(np.float64)] for p in (1, 2))
    x = T.astype(np.float64)
    near = T <= _TABLED
    at = np.minimum(T, _TABLED)
    return (
        np.where(near, table[at], digamma(x + 1) + np.euler_gamma),
        np.where(near, squares[at], np.pi**2 / 6 - zeta(2, x + 1)),
    )


@dataclass(frozen=True)
class RPrecisionKind(QueryKind):
    """#{r_i <= m} / m."""

    def as_task(self) -> RankDefinition:
        return task_metric(AtMost(1))

    def values(self, sample: QuerySample) -> FloatArray:
        inside = (
            np.clip(sample.num_relevant[sample.query] - sample.optimistic + 1, 0, sample.size)
            / sample.size
        )
        return np.asarray(sample.sums(sample.answers * inside) / sample.num_relevant)

    def distribution(self, N: int, m: int, most: int, gain: FloatArray | None = None) -> Atoms:
        return hit_distribution(N, m, m, m, most)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        # hypergeometric
        share = m / N
        rest = (N - m) / N
        return share, share * rest * ((N - m) / (np.maximum(N - 1, 1) * m.astype(np.float64)))


@dataclass(frozen=True)
class FallOut(QueryKind):
    """#{other candidates within the first k} / (N - m).

    Undefined if all candidates are relevant.
    """

    k: int
    uses_candidates = True

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        return np.asarray(m < N)

    def values(self, sample: QuerySample) -> FloatArray:
        N = sample.num_candidates
        m = sample.num_relevant
        hits = SumOf(AtMost(self.k), divisor=1).values(sample)
        return np.asarray((np.minimum(self.k, N) - hits) / np.where(m < N, N - m, np.nan))

    def distribution(
        self, N: int, m: int, most: int, gain: FloatArray | None = None
    ) -> Atoms | None:
        hits, probability = hit_distribution(N, m, self.k, 1, most)
        return (min(self.k, N) - hits[::-1]) / (N - m), probability[::-1]

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        n = N.astype(np.float64)
        top = np.minimum(N, self.k)
        share = top / n
        others = np.where(m < N, n - m, np.nan)
        variance = share * ((n - top) / n) * (m / np.maximum(n - 1, 1)) / others  # hypergeometric
        return np.where(m < N, share, np.nan), np.where(m < N, variance, 0.0)


@dataclass(frozen=True)
class AreaUnderCurve(QueryKind):
    """Share of pairs of a relevant and another item in the right order, ties half.

    This is the statistic of Mann and Whitney.
    """

    uses_candidates = True
    counts_empty = False

    def as_task(self) -> RankDefinition:
        return MEAN_AUC

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        return np.asarray(m < N)

    def values(self, sample: QuerySample) -> FloatArray:
        N = sample.num_candidates
        m = sample.num_relevant
        after = m[sample.query] - sample.before - sample.answers
        below = N[sample.query] - sample.pessimistic - after  # other candidates behind the block
        pairs = sample.sums(
            sample.answers.astype(np.float64) * (2 * below + sample.size - sample.answers)
        )
        return np.asarray(pairs / np.where(m < N, 2.0 * m * (N - m), np.nan))

    def distribution(
        self, N: int, m: int, most: int, gain: FloatArray | None = None
    ) -> Atoms | None:
        return _rank_sum_distribution(N, m) if 0 < m * (N - m) <= min(_MOST_STEPS, most) else None

    def log_best(self, N: int, m: int, gain: FloatArray | None = None) -> float:
        few = np.arange(min(m, N - m))
        return float((np.log(1 + few) - np.log(N - few)).sum())

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        n = N.astype(np.float64)
        return np.where(m < N, 0.5, np.nan), (n + 1) / np.where(m < N, 12.0 * m * (n - m), np.inf)


@functools.lru_cache(maxsize=512)
def _rank_sum_distribution(N: int, m: int) -> Atoms:
    """Null distribution of AUC, u / (m n).

    Mann and Whitney 1947 (doi:10.1214/aoms/1177730491), section 4.
    """
    # P(u; m, n) = m/N P(u; m - 1, n) + n/N P(u - m; m, n - 1): which of them has the last place
    n = N - m
    rows = [np.ones(1)] * (n + 1)
    for i in range(1, m + 1):
        new = [np.ones(1)]
        for j in range(1, n + 1):
            new.append(np.append(i / (i + j) * rows[j], np.zeros(j)))
            new[j][i:] += j / (i + j) * new[j - 1]
        rows = new
    return np.arange(m * n + 1) / (m * n), rows[n]


@dataclass(frozen=True)
class Success(QueryKind):
    """[r_(1) <= k]."""

    f: AtMost
    is_share = True

    def as_task(self) -> RankDefinition:
        return task_metric(self.f)

    def values(self, sample: QuerySample) -> FloatArray:
        o, b, t = _first_blocks(sample)
        return _within(b, t, np.clip(self.f.k - o + 1, 0, b))

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        top = np.minimum(self.f.k, N)
        hit = _within(N, m, top)
        miss = np.where(m == 1, (N - top) / N, np.exp(log_miss(N, m, top)))
        return hit, hit * miss

    def distribution(self, N: int, m: int, most: int, gain: FloatArray | None = None) -> Atoms:
        log_no_hit = float(log_miss(N, m, min(self.f.k, N)))
        probability = np.array([math.exp(log_no_hit), -math.expm1(log_no_hit)])
        return np.flatnonzero(probability).astype(np.float64), probability[probability > 0]


class FirstReciprocal(_Reciprocal):
    """1 / r_(1), or 0 where r_(1) > k."""

    def values(self, sample: QuerySample) -> FloatArray:
        o, b, t = _first_blocks(sample)
        one = (t == 1) | (t == b)  # the place is uniform, or known
        result = np.empty(len(o))
        result[one] = place_means(
            self.f, o[one], np.where(t == b, o, o + b - 1)[one], sample.num_candidates[one]
        )
        result[~one] = self._sums(o[~one], b[~one], t[~one])
        return with_limits(self.f, result, o, sample.num_candidates)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        mean = np.empty(len(N))
        variance = np.zeros(len(N))
        one = m == 1
        mean[one], variance[one] = moments_by_candidates(self.f, N[one])
        N = N[~one]
        m = m[~one]
        blocks = np.ones_like(N), N, m
        mean[~one] = center = self._sums(*blocks)
        # squares about the mean: nothing cancels
        beyond = np.exp(log_miss(N, m, self._top(*blocks)))
        variance[~one] = np.where(m == N, 0.0, self._sums(*blocks, center) + beyond * center**2)
        return mean, variance

    def distribution(self, N: int, m: int, most: int, gain: FloatArray | None = None) -> Atoms:
        last = N - m + 1 if self.k is None else min(self.k, N - m + 1)
        place, probability = _first_places(N, m, last, most)
        values = 1.0 / place[::-1]
        probability = probability[::-1]
        if last < N - m + 1 and (beyond := math.exp(log_miss(N, m, last))):
            values = np.r_[0.0, values]
            probability = np.r_[beyond, probability]
        return values, probability

    def _top(self, o: IntArray, b: IntArray, t: IntArray) -> IntArray:
        """The last place in the block that matters."""
        enough = np.minimum(np.ceil(_NEGLIGIBLE * b / t), MOST_CANDIDATES).astype(np.int64) + 1
        top = np.minimum(b - t + 1, enough)
        return top if self.k is None else np.clip(self.k - o + 1, 0, top)

    def _sums(
        self, o: IntArray, b: IntArray, t: IntArray, center: FloatArray | None = None
    ) -> FloatArray:
        """Sum over x = 1..top of P(X = x) / (o - 1 + x).

        With a center it is the sum of P(X = x) (1 / (o - 1 + x) - center)^2.
        """

        def terms(x: FloatArray, i: IntArray) -> FloatArray:
            i = some[i]
            probability = np.exp(log_miss(b[i], t[i], x - 1)) * (t[i] / (b[i] - x + 1))
            value = 1 / (o[i] - 1 + x)
            return probability * (value if center is None else (value - center[i]) ** 2)

        top = self._top(o, b, t)
        sums = np.zeros(len(o))
        some = np.flatnonzero(top)
        sums[some] = panel_means(terms, np.ones_like(some), top[some]) * top[some]
        return sums


@dataclass(frozen=True)
class FirstRank(QueryKind):
    """r_(1)."""

    limits = 1.0, None

    def as_task(self) -> RankDefinition:
        return MEAN_RANK

    def values(self, sample: QuerySample) -> FloatArray:
        o, b, t = _first_blocks(sample)
        return (o - 1) + (b + 1) / (t + 1)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        n = N.astype(np.float64)
        x = m.astype(np.float64)
        return (n + 1) / (x + 1), x / (x + 1) * ((n - x) / (x + 1)) * ((n + 1) / (x + 2))

    def distribution(self, N: int, m: int, most: int, gain: FloatArray | None = None) -> Atoms:
        return _first_places(N, m, N - m + 1, most)


def _first_blocks(sample: QuerySample) -> tuple[IntArray, IntArray, IntArray]:
    """First place, size and number of relevant items of the first block of every query."""
    first = sample.starts[:-1]
    return sample.optimistic[first], sample.size[first], sample.answers[first]


def _within(b: IntArray, t: IntArray, x: IntArray) -> FloatArray:
    """P(X <= x)."""
    return np.where(t == 1, x / b, -np.expm1(log_miss(b, t, x)))


def _first_places(N: int, m: int, last: int, most: int) -> Atoms:
    """First ranks 1..last that are possible, ascending, and their probabilities.

    Far ranks share an atom at the best of them.
    """
    near = min(last, most // 2)
    x = np.arange(1, near + 1)
    if near < last:
        x = np.unique(np.r_[x, np.geomspace(near, last, most - near).astype(np.int64)])
    log_beyond = log_miss(N, m, np.r_[x - 1, last])
    probability = np.exp(log_beyond[:-1]) * -np.expm1(np.diff(log_beyond))
    possible = probability > 0
    return x[possible].astype(np.float64), probability[possible]
