"""Null moments of power means (of IMR, HMR, the quadratic mean and others) and their inverses."""

import math
from functools import lru_cache
from itertools import accumulate, repeat

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy.special import gammaln, poch, rgamma

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray, IntArray, Moments
from torchrankmetrics.definitions.sums import PrefixRule, panel_ratio, prefix_rule
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import known
from torchrankmetrics.null.expectation.provider import unavailable

_CUMULANTS = 20  # known of each sum
# up to this value of t v r^p / mu the cumulants give log E exp(-t v r^p / mu) to all digits
_SERIES = 0.25
_ROWS = 32  # values of t at a time
_BLOCK = 1 << 19
_SIGNS = (-1.0) ** np.arange(_CUMULANTS + 1)
_FACTORIALS = np.array([math.factorial(j) for j in range(_CUMULANTS + 1)], dtype=np.float64)


def power_mean(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of (sum of v_i r_i^p)^a for |p| <= 3 and -20 <= a <= 2.5, by an integral over the Laplace transform."""
    p, a = known(definition.f).exponent, known(definition.g).exponent
    if counts.num_candidates[-1] == 1:
        return Moments(1.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):  # in terms that are not selected
        S = _PowerSum(counts, p)
        first, second = _relative_moments(S, a)
    scale = math.exp(a * S.log_mean)
    return Moments(scale * (1 + first), scale**2 * max(second - 2 * first - first**2, 0.0))


def _relative_moments(S: "_PowerSum", a: float) -> tuple[float, float]:
    """E[(S / mu)^a] - 1 and E[(S / mu)^(2a)] - 1."""
    exponents = np.array([a, 2 * a])
    order = max(2, math.floor(2 * a + 0.3) + 1)  # so that t^(order - 1 - 2a) is integrable at zero
    taylor = _SIGNS / _FACTORIALS * moments_of(S.cumulants)  # of E exp(-t (S / mu - 1))
    head = taylor[2:order]  # subtracted under the integral and added again through Gamma functions
    step = min(0.21, 0.7 / math.sqrt(2 * abs(a)))
    spread = float(S.cumulants[2])
    lowest = order - exponents.max()
    u = math.log(max(1.0, lowest)) + (math.log(1e-18) - max(math.log(spread), 0.0)) / lowest
    log_gamma = gammaln(-exponents)[:, None]
    sums = np.zeros(2)
    end = math.log((100 + 100 * abs(a)) / S.smallest)  # beyond, exp(-t S / mu) is nothing for any S
    while u < end:
        t = np.exp(u + step * np.arange(_ROWS))
        excess, log_phi = S.log_laplace(t)
        weight = -exponents[:, None] * np.log(t) - log_gamma
        early = (t * S.largest[-1] <= _SERIES) & (t * t * spread <= _SERIES)
        tail = polyval(np.where(early, t, 0.0), taylor[order:])
        subtracted = polyval(t, head) * t**2 if order > 2 else np.zeros_like(t)
        direct = np.exp(weight - t) * (np.expm1(np.minimum(excess, 1.0)) - subtracted)
        near = np.where(early, np.exp(weight - t + order * np.log(t)) * tail, direct)
        far = np.exp(weight + log_phi) - np.exp(weight - t) * (1 + subtracted)
        terms = step * np.where(excess < 1, near, far)
        sums += terms.sum(1)
        last = np.abs(terms[:, -1])
        if t[-1] > 2 + 2 * abs(a) and (last <= 1e-18 * np.abs(sums)).all() and log_phi[-1] < -40:
            break
        u += step * _ROWS
    known = np.array([sum(b * poch(-e, k) for k, b in enumerate(head, 2)) for e in exponents])
    first, second = known + np.sign(rgamma(-exponents)) * sums
    return float(first), float(second)


class _PowerSum:
    """S = sum of v_i r_i^p relative to its mean mu, over distinct (N, v) sorted by the largest value of v r^p / mu."""

    def __init__(self, counts: CandidateCounts, p: float) -> None:
        self._p = p
        N, index = np.unique(counts.num_candidates, return_inverse=True)
        (mean, excess), scale, kappa = (
            part[..., index] for part in _rank_cumulants(N.tobytes(), p)
        )
        share = counts.count * counts.weight
        total, total_excess = float((share * mean).sum()), float((share * excess).sum())
        self.log_mean = math.log1p(total_excess) if abs(total_excess) < 0.5 else math.log(total)
        unit, at_top = counts.weight / total, counts.num_candidates.astype(np.float64) ** p
        self.smallest = float((counts.count * unit * np.minimum(at_top, 1.0)).sum())
        order = np.argsort(unit * np.maximum(at_top, 1.0), kind="stable")
        self.largest = (unit * np.maximum(at_top, 1.0))[order]
        self._N, self._count, self._unit = (
            counts.num_candidates[order],
            counts.count[order],
            unit[order],
        )
        own = (counts.count * kappa * (unit * scale) ** np.arange(_CUMULANTS + 1)[:, None])[
            :, order
        ]
        self.cumulants = own.sum(1)
        # of all pairs before one: coefficients of log E exp(-t (S / mu - 1)), and means
        before = (
            np.cumsum(own, axis=1, dtype=np.longdouble).astype(np.float64)
            * (_SIGNS / _FACTORIALS)[:, None]
        )
        self._series = np.concatenate([np.zeros((_CUMULANTS + 1, 1)), before], axis=1)
        self._mean_before = np.append(0.0, np.cumsum(self._count * self._unit * mean[order]))

    def log_laplace(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lambda(t) = log E exp(-t (S / mu - 1)) and log E exp(-t S / mu) for ascending t, each (len(t),)."""
        # pairs summed by cumulants
        small = np.searchsorted(self.largest, _SERIES / t, side="right")
        excess = polyval(t, self._series[2:, small], tensor=False) * t**2
        log_phi = excess - t * self._mean_before[small]
        begin = int(small.min())
        N, unit = self._N[begin:], self._unit[begin:]  # the others, by quadrature over their ranks
        count = np.where(np.arange(begin, len(self._N)) >= small[:, None], self._count[begin:], 0)
        for part in _groups(N, unit) if len(N) else ():
            rows = np.flatnonzero(count[:, part].any(1))
            if len(rows):
                each = (self._pairs(N[part], unit[part], t[rows]) * count[rows][:, part]).sum(-1)
                excess[rows] += each[0]
                log_phi[rows] += each[1]
        return excess, log_phi

    def _pairs(self, N: IntArray, unit: FloatArray, t: FloatArray) -> FloatArray:
        """Lambda and log phi of pairs of one weight, N ascending, or of one N: (2, len(t), pairs)."""
        if self._p == 1:
            return _uniform(N.astype(np.float64), t[:, None] * unit)
        if unit[0] == unit[-1] and len(np.unique(unit)) == 1:
            return _powers(prefix_rule(N.tobytes(), panel_ratio(self._p)), self._p, t * unit[0])
        s = (t[:, None] * unit).ravel()
        rule = prefix_rule(N[:1].tobytes(), panel_ratio(self._p))
        return _powers(rule, self._p, s).reshape(2, len(t), len(unit))


@lru_cache(maxsize=32)
def _rank_cumulants(upper: bytes, p: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E[r^p] and E[r^p - 1], a scale, and cumulants 2..20 of (r^p - 1) / scale: (2, u), (u,), (21, u)."""
    N = np.frombuffer(upper, dtype=np.int64)
    means, scale = np.zeros((2, len(N))), np.ones(len(N))
    kappa = np.zeros((_CUMULANTS + 1, len(N)))
    # N of one size together: moments of small N around the mean of large ones would lose their
    # digits
    size = np.log2(N).astype(np.int64) // 2
    for group in np.unique(size):
        part = size == group
        rule = prefix_rule(N[part].tobytes(), panel_ratio(p))
        # both means: r^p - 1 preserves the digits of small |p|, r^p the digits of negative p
        excess = np.expm1(p * np.log(rule.nodes))
        scale[part] = largest = max(float(np.abs(excess).max()), 1e-300)
        values = excess / largest
        values -= rule.means(values)[-1]
        powers = accumulate(repeat(values, _CUMULANTS), np.multiply, initial=np.ones_like(values))
        kappa[:, part] = cumulants_of(np.stack([rule.means(power) for power in powers]))
        kappa[1, part], kappa[2, part] = 0.0, rule.variances(values)
        means[:, part] = rule.means(rule.nodes**p), rule.means(excess)
    kappa[:, N == 1] = 0.0
    return means, scale, kappa


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
    """Split pairs into groups that one quadrature rule serves: of one weight, or of one N, whichever are fewer."""
    weights, sizes = np.unique(unit, return_inverse=True), np.unique(N, return_inverse=True)
    label = (weights if len(weights[0]) <= len(sizes[0]) else sizes)[1]
    order = np.lexsort((N, label))
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)


def _uniform(N: FloatArray, s: FloatArray) -> FloatArray:
    """Lambda and log phi of r uniform on {1..N} at s: closed forms, (2, *s.shape)."""
    excess = _log_sinhc(s * N / 2) - _log_sinhc(s / 2)
    with np.errstate(divide="ignore"):
        far = -s + np.log(-np.expm1(-s * N)) - np.log(-np.expm1(-s)) - np.log(N)
    return np.stack(
        [np.where(N == 1, 0.0, excess), np.where(s * N < 1, excess - s * (N + 1) / 2, far)]
    )


def _powers(rule: PrefixRule, p: float, s: FloatArray) -> FloatArray:
    """Lambda and log phi of r^p at s, for every N of the rule: (2, len(s), u)."""
    x = rule.nodes**p
    mean = rule.means(x)
    result = np.zeros((2, len(s), len(mean)))
    block = max(1, _BLOCK // len(x))
    for begin in range(0, len(s), block):
        part = s[begin : begin + block, None]
        y, linear = part * x, part * mean
        lam, log_phi = result[0, begin : begin + block], result[1, begin : begin + block]
        near = linear < 0.5
        if near.any():
            # here max y >= 1/4: E[e^-y - 1 + y] is smaller than y by at most two or three digits
            bend = rule.means(np.expm1(-y) + y)
            lam[near] = (bend + _log1p_minus(np.maximum(bend - linear, -0.5)))[near]
            log_phi[near] = (lam - linear)[near]
        if not near.all():
            with np.errstate(divide="ignore"):
                far = np.maximum(np.log(rule.means(np.exp(-y))), -745.0)
            lam[~near] = (far + linear)[~near]
            log_phi[~near] = far[~near]
    result[0][:, rule.upper == 1] = 0.0
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
_MEAN_TOLERANCE, _VARIANCE_TOLERANCE = 1e-12, 1e-10


def power_mean_by_gauss(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of (sum of v_i r_i^p)^a for |p| <= 3 by Gauss rules with 8 and 10 nodes, from 20 cumulants of the sum."""
    p, a = known(definition.f).exponent, known(definition.g).exponent
    S = _PowerSum(counts, p)
    spread = math.sqrt(S.cumulants[2])
    kappa = (S.cumulants / spread ** np.arange(_CUMULANTS + 1))[:_CUMULANTS]
    kappa[2] = 0.0  # E exp(u Z - u^2 / 2) generates the Hermite moments
    moments, scale, found = moments_of(kappa), math.exp(a * S.log_mean), []
    for nodes in (_NODES - 2, _NODES):
        rule = _gauss_hermite(moments, nodes)
        if rule is not None and spread * rule[0].min() > -1:
            value = np.expm1(a * np.log1p(spread * rule[0]))
            mean = rule[1] @ value
            found.append(
                Moments(
                    float(scale * (1 + mean)), float(scale**2 * (rule[1] @ (value - mean) ** 2))
                )
            )
    if len(found) == 2:
        coarse, fine = found
        close = abs(coarse.mean - fine.mean) <= _MEAN_TOLERANCE * fine.mean
        if close and abs(coarse.variance - fine.variance) <= _VARIANCE_TOLERANCE * fine.variance:
            return fine
    raise unavailable(
        definition, "has no moments of stated accuracy for so few tasks with so many candidates"
    )


def _gauss_hermite(moments: FloatArray, nodes: int) -> tuple[FloatArray, FloatArray] | None:
    """Nodes and weights of the Gauss rule with these Hermite moments; None if rounding has spoilt them."""
    size = 2 * nodes
    alpha, beta = np.zeros(nodes), np.zeros(nodes)
    before, now = np.zeros(size), moments[:size].copy()
    alpha[0], beta[0] = now[1], now[0]
    for k in range(1, nodes):
        after = np.zeros(size)
        for j in range(k, size - k):
            after[j] = now[j + 1] - alpha[k - 1] * now[j] - beta[k - 1] * before[j] + j * now[j - 1]
        if not after[k] > 0:
            return None
        alpha[k] = after[k + 1] / after[k] - now[k] / now[k - 1]
        beta[k] = after[k] / now[k - 1]
        before, now = now, after
    off = np.sqrt(beta[1:])
    root, vector = np.linalg.eigh(np.diag(alpha) + np.diag(off, 1) + np.diag(off, -1))
    return root, vector[0] ** 2
