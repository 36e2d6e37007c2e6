"""Null moments of power means (of IMR, HMR, the quadratic mean and others) and their inverses."""

import math
from functools import lru_cache
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy.special import gammaln, poch, rgamma

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray, IntArray, Moments
from torchrankmetrics.definitions.sums import PrefixRule, panel_ratio, prefix_rule
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import as_transform
from torchrankmetrics.null.expectation.provider import unavailable

_CUMULANTS = 20  # number of cumulants that are computed for each sum
# up to this value of t v r^p / mu the cumulants give log E exp(-t v r^p / mu) to all digits
_SERIES = 0.25
_ROWS = 32  # values of t at a time
_BLOCK = 1 << 19
_ORDERS = np.arange(_CUMULANTS + 1)
_SIGNS = (-1.0) ** _ORDERS
_FACTORIALS = np.array([math.factorial(j) for j in range(_CUMULANTS + 1)], dtype=np.float64)


def power_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of (sum of v_i r_i^p)^a for |p| <= 3 and -20 <= a <= 2.5, by a Laplace transform."""
    p = as_transform(definition.f).exponent
    a = as_transform(definition.g).exponent
    if counts.num_candidates[-1] == 1:
        return Moments(1.0, 0.0)

    with np.errstate(over="ignore", invalid="ignore"):  # in terms that are not selected
        S = _PowerSum(counts, p)
        first, second = _LaplaceIntegral(S, a).moments()

    scale = math.exp(a * S.log_mean)
    variance = max(second - 2 * first - first**2, 0.0)
    return Moments(scale * (1 + first), scale**2 * variance)


class _LaplaceIntegral:
    """E[(S / mu)^e] - 1 for e = a and e = 2a, by the trapezoidal rule for an integral over log t.

    The integrand is t^-e (E exp(-t S / mu) - e^-t (1 + head)) / Gamma(-e). The integral of
    t^-e e^-t / Gamma(-e) is 1, which is subtracted. The head, the Taylor series of
    E exp(-t (S / mu - 1)) from order 2 to below ``_order``, makes the integrand integrable at
    t = 0; the integral of the head is a sum of ratios of Gamma functions and is added again.
    """

    def __init__(self, S: "_PowerSum", a: float) -> None:
        self._sum = S
        self._exponents = np.array([a, 2 * a])
        self._order = max(2, math.floor(2 * a + 0.3) + 1)
        taylor = _SIGNS / _FACTORIALS * moments_of(S.cumulants)
        self._head = taylor[2 : self._order]
        self._rest = taylor[self._order :]
        self._log_gamma = gammaln(-self._exponents)[:, None]
        self._spread = float(S.cumulants[2])
        self._step = min(0.21, 0.7 / math.sqrt(2 * abs(a)))
        self._far = 2 + 2 * abs(a)  # from here on the terms decrease
        # beyond the end exp(-t S / mu) vanishes for every possible S
        self._end = math.log((100 + 100 * abs(a)) / S.smallest)

    def moments(self) -> tuple[float, float]:
        sums = np.zeros(2)
        u = self._start()
        while u < self._end:
            t = np.exp(u + self._step * np.arange(_ROWS))
            excess, log_phi = self._sum.log_laplace(t)
            terms = self._terms(t, excess, log_phi)
            sums += terms.sum(1)
            is_small = (np.abs(terms[:, -1]) <= 1e-18 * np.abs(sums)).all()
            if is_small and t[-1] > self._far and log_phi[-1] < -40:
                break
            u += self._step * _ROWS

        first, second = self._integral_of_head() + np.sign(rgamma(-self._exponents)) * sums
        return float(first), float(second)

    def _start(self) -> float:
        """Log of the t below which the integrand is negligible."""
        lowest = self._order - self._exponents.max()
        size = math.log(1e-18) - max(math.log(self._spread), 0.0)
        return float(math.log(max(1.0, lowest)) + size / lowest)

    def _terms(self, t: FloatArray, excess: FloatArray, log_phi: FloatArray) -> FloatArray:
        """Terms of the trapezoidal rule at ascending t, (2, len(t)); arguments as log_laplace."""
        weight = -self._exponents[:, None] * np.log(t) - self._log_gamma
        head = polyval(t, self._head) * t**2 if len(self._head) else np.zeros_like(t)

        # the rest of the Taylor series where its terms are small
        early = (t * self._sum.largest[-1] <= _SERIES) & (t * t * self._spread <= _SERIES)
        rest = polyval(np.where(early, t, 0.0), self._rest)
        by_series = np.exp(weight - t + self._order * np.log(t)) * rest

        # beyond it, differences that keep their digits
        direct = np.exp(weight - t) * (np.expm1(np.minimum(excess, 1.0)) - head)
        far = np.exp(weight + log_phi) - np.exp(weight - t) * (1 + head)
        near = np.where(early, by_series, direct)
        return np.asarray(self._step * np.where(excess < 1, near, far))

    def _integral_of_head(self) -> FloatArray:
        result = np.zeros(len(self._exponents))
        for k, coefficient in enumerate(self._head, 2):
            result += coefficient * poch(-self._exponents, k)
        return result


class _PowerSum:
    """S = sum of v_i r_i^p relative to its mean mu, by its cumulants and its Laplace transform.

    Lambda(t) = log E exp(-t (S / mu - 1)), and log phi(t) = log E exp(-t S / mu). Pairs (N, v) are
    sorted by the largest v r^p / mu.
    """

    def __init__(self, counts: CandidateCounts, p: float) -> None:
        self._p = p
        N, index = np.unique(counts.num_candidates, return_inverse=True)
        of_ranks = _rank_cumulants(N.tobytes(), p)
        mean, excess = of_ranks.means[:, index]
        share = counts.count * counts.weight
        total = float((share * mean).sum())
        self.log_mean = _log_mean(total, float((share * excess).sum()))

        unit = counts.weight / total
        at_top = counts.num_candidates.astype(np.float64) ** p
        largest = unit * np.maximum(at_top, 1.0)
        order = np.argsort(largest, kind="stable")
        self.smallest = float((counts.count * unit * np.minimum(at_top, 1.0)).sum())
        self.largest = largest[order]
        self._N = counts.num_candidates[order]
        self._count = counts.count[order]
        self._unit = unit[order]

        own = of_ranks.cumulants_of_sums(index, counts.count, unit)[:, order]
        self.cumulants = own.sum(1)
        self._series = _series_before(own)
        self._mean_before = np.append(0.0, np.cumsum(self._count * self._unit * mean[order]))

    def log_laplace(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lambda and log phi at ascending t, (len(t),) each."""
        # the first pairs by their cumulants
        small = np.searchsorted(self.largest, _SERIES / t, side="right")
        excess = polyval(t, self._series[2:, small], tensor=False) * t**2
        log_phi = excess - t * self._mean_before[small]

        # the others by quadrature over their ranks
        begin = int(small.min())
        N = self._N[begin:]
        unit = self._unit[begin:]
        is_large = np.arange(begin, len(self._N)) >= small[:, None]
        count = np.where(is_large, self._count[begin:], 0)
        for part in _groups(N, unit):
            rows = np.flatnonzero(count[:, part].any(1))
            if len(rows):
                each = (self._pairs(N[part], unit[part], t[rows]) * count[rows][:, part]).sum(-1)
                excess[rows] += each[0]
                log_phi[rows] += each[1]
        return excess, log_phi

    def _pairs(self, N: IntArray, unit: FloatArray, t: FloatArray) -> FloatArray:
        """Lambda and log phi of pairs of one weight, N ascending, or of one N: (2, t, pairs)."""
        if self._p == 1:
            return _uniform(N.astype(np.float64), t[:, None] * unit)
        if unit[0] == unit[-1] and len(np.unique(unit)) == 1:
            return _powers(prefix_rule(N.tobytes(), panel_ratio(self._p)), self._p, t * unit[0])
        s = (t[:, None] * unit).ravel()
        rule = prefix_rule(N[:1].tobytes(), panel_ratio(self._p))
        return _powers(rule, self._p, s).reshape(2, len(t), len(unit))


def _log_mean(total: float, total_excess: float) -> float:
    """Log of the mean of the sum; of a mean near 1 its excess over 1 has more digits."""
    if abs(total_excess) < 0.5:
        return math.log1p(total_excess)
    return math.log(total)


def _series_before(own: FloatArray) -> FloatArray:
    """Taylor coefficients of log E exp(-t (S / mu - 1)) of all earlier pairs, (21, u + 1)."""
    running = np.cumsum(own, axis=1, dtype=np.longdouble).astype(np.float64)
    before = running * (_SIGNS / _FACTORIALS)[:, None]
    return np.concatenate([np.zeros((_CUMULANTS + 1, 1)), before], axis=1)


class _RankCumulants(NamedTuple):
    """Of r uniform on {1..N} for u values of N."""

    means: FloatArray  # (2, u): E[r^p] and E[r^p - 1]
    scale: FloatArray  # (u,)
    kappa: FloatArray  # (21, u): cumulants 2..20 of (r^p - 1) / scale

    def cumulants_of_sums(self, index: IntArray, count: IntArray, unit: FloatArray) -> FloatArray:
        """Cumulants 2..20 of sums of ``count`` values of unit * r^p, for N at an index: (21, u)."""
        scale = unit * self.scale[index]
        return np.asarray(count * self.kappa[:, index] * scale ** _ORDERS[:, None])


@lru_cache(maxsize=32)
def _rank_cumulants(upper: bytes, p: float) -> _RankCumulants:
    N = np.frombuffer(upper, dtype=np.int64)
    means = np.zeros((2, len(N)))
    scale = np.ones(len(N))
    kappa = np.zeros((_CUMULANTS + 1, len(N)))
    # N of one size together: moments of small N around the mean of large ones would lose their
    # digits
    size = np.log2(N).astype(np.int64) // 2
    for group in np.unique(size):
        part = size == group
        rule = prefix_rule(N[part].tobytes(), panel_ratio(p))
        # both means: r^p - 1 preserves the digits of small |p|, r^p the digits of negative p
        excess = np.expm1(p * np.log(rule.nodes))
        largest = max(float(np.abs(excess).max()), 1e-300)
        scale[part] = largest
        kappa[:, part] = _cumulants_by_rule(rule, excess / largest)
        means[0, part] = rule.means(rule.nodes**p)
        means[1, part] = rule.means(excess)
    kappa[:, N == 1] = 0.0
    return _RankCumulants(means, scale, kappa)


def _cumulants_by_rule(rule: PrefixRule, values: FloatArray) -> FloatArray:
    """Cumulants 2..20 of values at the nodes of the rule, for each of its N: (21, u)."""
    centered = values - rule.means(values)[-1]
    powers = accumulate(repeat(centered, _CUMULANTS), np.multiply, initial=np.ones_like(values))
    kappa = cumulants_of(np.stack([rule.means(power) for power in powers]))
    kappa[1] = 0.0
    kappa[2] = rule.variances(centered)
    return kappa


def cumulants_of(moments: FloatArray) -> FloatArray:
    """Cumulants from moments, both by order in rows; order 0 is zero."""
    kappa = np.zeros_like(moments)
    for j in range(1, len(moments)):
        kappa[j] = moments[j] - sum(
            math.comb(j - 1, i - 1) * kappa[i] * moments[j - i] for i in range(1, j)
        )
    return kappa


def moments_of(kappa: FloatArray) -> FloatArray:
    """Moments from cumulants, both by order in rows."""
    moments = np.zeros_like(kappa)
    moments[0] = 1.0
    for j in range(1, len(kappa)):
        moments[j] = sum(
            math.comb(j - 1, i - 1) * kappa[i] * moments[j - i] for i in range(1, j + 1)
        )
    return moments


def _groups(N: IntArray, unit: FloatArray) -> list[IntArray]:
    """Split pairs into groups of one weight, or of one N, whichever are fewer.

    One rule serves each group.
    """
    if len(N) == 0:
        return []
    weights, by_weight = np.unique(unit, return_inverse=True)
    sizes, by_size = np.unique(N, return_inverse=True)
    label = by_weight if len(weights) <= len(sizes) else by_size
    order = np.lexsort((N, label))
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)


def _uniform(N: FloatArray, s: FloatArray) -> FloatArray:
    """Lambda and log phi of r uniform on {1..N} at s: closed forms, (2, *s.shape)."""
    excess = _log_sinhc(s * N / 2) - _log_sinhc(s / 2)
    near = excess - s * (N + 1) / 2
    with np.errstate(divide="ignore"):
        far = -s + np.log(-np.expm1(-s * N)) - np.log(-np.expm1(-s)) - np.log(N)
    log_phi = np.where(s * N < 1, near, far)
    return np.stack([np.where(N == 1, 0.0, excess), log_phi])


def _powers(rule: PrefixRule, p: float, s: FloatArray) -> FloatArray:
    """Lambda and log phi of r^p at s, for every N of the rule: (2, len(s), u)."""
    x = rule.nodes**p
    mean = rule.means(x)
    result = np.zeros((2, len(s), len(mean)))
    block = max(1, _BLOCK // len(x))
    for begin in range(0, len(s), block):
        part = s[begin : begin + block, None]
        result[:, begin : begin + block] = _by_rule(rule, part * x, part * mean)
    result[0][:, rule.upper == 1] = 0.0
    return result


def _by_rule(rule: PrefixRule, y: FloatArray, mean: FloatArray) -> FloatArray:
    """Lambda and log phi, (2, rows, u), of y = s r^p, (rows, nodes), with its means, (rows, u)."""
    lam, log_phi = result = np.empty((2, *mean.shape))
    near = mean < 0.5
    if near.any():
        # here max y >= 1/4: E[e^-y - 1 + y] is smaller than y by at most two or three digits
        bend = rule.means(np.expm1(-y) + y)
        lam[near] = (bend + _log1p_minus(np.maximum(bend - mean, -0.5)))[near]
        log_phi[near] = (lam - mean)[near]
    if not near.all():
        with np.errstate(divide="ignore"):
            far = np.maximum(np.log(rule.means(np.exp(-y))), -745.0)
        lam[~near] = (far + mean)[~near]
        log_phi[~near] = far[~near]
    return result


def _log1p_minus(x: FloatArray) -> FloatArray:
    """Log(1 + x) - x without cancellation."""
    small = np.clip(x, -0.1, 0.1)
    series = small**2 * polyval(small, [(-1) ** (k + 1) / k for k in range(2, 19)])
    return np.asarray(np.where(np.abs(x) < 0.1, series, np.log1p(x) - x))


def _log_sinhc(x: FloatArray) -> FloatArray:
    """Log(sinh(x) / x) for x >= 0: Taylor series of sinh to 1/2, beyond it from exp(-2x)."""
    z = np.minimum(x, 0.5) ** 2
    series = np.log1p(z * polyval(z, [1 / math.factorial(2 * k + 1) for k in range(1, 10)]))
    large = np.maximum(x, 0.5)
    return np.asarray(
        np.where(x < 0.5, series, large - np.log(2 * large) + np.log1p(-np.exp(-2 * large)))
    )


_NODES = _CUMULANTS // 2
_MEAN_TOLERANCE = 1e-12
_VARIANCE_TOLERANCE = 1e-10


def power_mean_by_gauss(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of (sum of v_i r_i^p)^a for |p| <= 3 by Gauss rules from 19 cumulants of the sum."""
    a = as_transform(definition.g).exponent
    S = _PowerSum(counts, as_transform(definition.f).exponent)
    spread = math.sqrt(S.cumulants[2])
    kappa = (S.cumulants / spread**_ORDERS)[:_CUMULANTS]
    kappa[2] = 0.0  # E exp(u Z - u^2 / 2) generates the Hermite moments
    moments = moments_of(kappa)

    coarse = _moments_by_rule(_gauss_hermite(moments, _NODES - 2), spread, a)
    fine = _moments_by_rule(_gauss_hermite(moments, _NODES), spread, a)
    if coarse is None or fine is None or not _agree(coarse, fine):
        raise unavailable(
            definition, "has no moments of stated accuracy for so few tasks with so many candidates"
        )
    scale = math.exp(a * S.log_mean)
    return Moments(float(scale * (1 + fine.mean)), float(scale**2 * fine.variance))


def _moments_by_rule(
    rule: tuple[FloatArray, FloatArray] | None, spread: float, a: float
) -> Moments | None:
    """Moments of (S / mu)^a - 1 by a Gauss rule.

    None without a rule, or if S is negative at a node.
    """
    if rule is None:
        return None
    nodes, weights = rule
    if spread * nodes.min() <= -1:
        return None
    value = np.expm1(a * np.log1p(spread * nodes))
    mean = float(weights @ value)
    return Moments(mean, float(weights @ (value - mean) ** 2))


def _agree(coarse: Moments, fine: Moments) -> bool:
    mean_error = abs(coarse.mean - fine.mean)
    variance_error = abs(coarse.variance - fine.variance)
    return (
        mean_error <= _MEAN_TOLERANCE * (1 + fine.mean)
        and variance_error <= _VARIANCE_TOLERANCE * fine.variance
    )


def _gauss_hermite(moments: FloatArray, nodes: int) -> tuple[FloatArray, FloatArray] | None:
    """Nodes and weights of the Gauss rule with these Hermite moments.

    None if the moments are too inexact.
    """
    size = 2 * nodes
    alpha = np.zeros(nodes)
    beta = np.zeros(nodes)
    before = np.zeros(size)
    now = moments[:size].copy()
    alpha[0] = now[1]
    beta[0] = now[0]
    for k in range(1, nodes):
        after = np.zeros(size)
        for j in range(k, size - k):
            after[j] = now[j + 1] - alpha[k - 1] * now[j] - beta[k - 1] * before[j] + j * now[j - 1]
        if not after[k] > 0:
            return None
        alpha[k] = after[k + 1] / after[k] - now[k] / now[k - 1]
        beta[k] = after[k] / now[k - 1]
        before = now
        now = after
    off = np.sqrt(beta[1:])
    root, vector = np.linalg.eigh(np.diag(alpha) + np.diag(off, 1) + np.diag(off, -1))
    return root, vector[0] ** 2
