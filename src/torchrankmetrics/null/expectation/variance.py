"""Null moments of the variance and the standard deviation of ranks."""

import math
from functools import lru_cache

import numpy as np
from scipy.special import rgamma

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, Moments
from torchrankmetrics.definitions.sums import prefix_rule
from torchrankmetrics.definitions.tasks import RANK_VARIANCE, RankDefinition
from torchrankmetrics.null.expectation.provider import unavailable


def rank_variance(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of sum v_i (r_i - mean)^2.

    With mu, s2, m4 the mean, variance and fourth central moment of U{1..N}:
    E = sum (v - v^2) s2 + sum v (mu - mu_bar)^2 and
    V = sum (v - v^2)^2 (m4 - s2^2) + 2 [(sum v^2 s2)^2 - sum v^4 s2^2] + 4 sum s2 v^2 (mu - mu_bar)^2.
    """
    N, v, c = counts.num_candidates.astype(np.float64), counts.weight, counts.count
    mu, s2 = (N + 1) / 2, (N - 1) * (N + 1) / 12
    m4 = (N - 1) * (N + 1) * (3 * N * N - 7) / 240
    offset = (mu - (c * v * mu).sum()) ** 2
    own = v * (1 - v)
    mean = (c * own * s2).sum() + (c * v * offset).sum()
    crossed = (c * v * v * s2).sum() ** 2 - (c * v**4 * s2**2).sum()
    variance = (c * own**2 * (m4 - s2**2)).sum() + 2 * crossed + 4 * (c * s2 * v * v * offset).sum()
    if counts.num_tasks == 1 or N[-1] == 1:  # a single rank, or every rank fixed: the value is a constant
        return Moments(float(mean) if counts.num_tasks > 1 else 0.0, 0.0)
    return Moments(float(mean), float(max(variance, 0.0)))


_CONCENTRATED = 1e-3  # squared coefficient of variation of V up to which its moments suffice
_STEP = 0.25
_EARLY = 0.003  # t * (coefficient of variation) up to which E exp(-t V) is its Taylor polynomial
_WORK = 5e7  # evaluations of exp at most
_WEIGHTS = 256  # distinct weights at most, each with its own quadrature rule


def rank_standard_deviation(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of sqrt(sum v_i (r_i - mean)^2).

    Raises:
        ExpectationUnavailableError: if the integral does not settle, or the weights are too many.
    """
    variance = rank_variance(RANK_VARIANCE, counts)
    if variance.variance == 0.0:
        return Moments(math.sqrt(variance.mean), 0.0)
    moments = _relative_central_moments(counts, variance.mean)
    if moments[2] <= _CONCENTRATED:
        first = _from_moments(moments)
    else:
        first = _from_integral(definition, counts, variance.mean, moments)
    return Moments(math.sqrt(variance.mean) * (1 + first), -variance.mean * first * (2 + first))


def _from_moments(m: FloatArray) -> float:
    """E[sqrt(1 + x)] - 1 from E[x^2], E[x^3], E[x^4] of nearly normal x; the fifth and sixth to their leading order."""
    fifth, sixth = 10 * m[2] * m[3], 15 * m[2] ** 3
    return float(-m[2] / 8 + m[3] / 16 - 5 * m[4] / 128 + 7 * fifth / 256 - 21 * sixth / 1024)


def _relative_central_moments(counts: CandidateCounts, mean: float) -> FloatArray:
    """E[(V / E V - 1)^k], k = 0..4, from the joint cumulants of A = sum v y^2 and B = sum v y, V = A - B^2."""
    N, index = np.unique(counts.num_candidates, return_inverse=True)
    v, count = counts.weight, counts.count
    center = float((count * v * (counts.num_candidates + 1) / 2).sum())
    rule = prefix_rule(N.tobytes())
    y = (rule.nodes - center) / math.sqrt(mean)
    raw = np.stack([rule.means(y**k) for k in range(9)])
    kappa = _joint_cumulants(raw)
    total = {ij: float((count * v ** sum(ij) * kappa[ij][index]).sum()) for ij in kappa}
    total[1, 0] = total[0, 1] = 0.0
    M = _joint_moments(total)
    moments = np.ones(5)
    for k in range(1, 5):
        moments[k] = sum(
            math.factorial(k)
            / (math.factorial(i) * math.factorial(j) * math.factorial(k - i - j))
            * (-1) ** j
            * M[i, 2 * j]
            * M[0, 2] ** (k - i - j)
            for i in range(k + 1)
            for j in range(k + 1 - i)
        )
    return moments


_Table = dict[tuple[int, int], FloatArray]


def _indices() -> list[tuple[int, int]]:
    """(i, j) of A^i B^j up to degree 8 in y, lower ones first."""
    return sorted(((i, j) for i in range(5) for j in range(9) if 0 < 2 * i + j <= 8), key=lambda ij: (sum(ij), ij))


@lru_cache(maxsize=1)
def _recursion() -> dict[tuple[int, int], list[tuple[float, tuple[int, int], tuple[int, int]]]]:
    """Moment (i, j) = cumulant (i, j) + sum of coefficient * cumulant * moment, by splitting off the last factor."""
    terms = {}
    for i, j in _indices():
        di, dj = (1, 0) if i else (0, 1)
        terms[i, j] = [
            (float(math.comb(i - di, k - di) * math.comb(j - dj, m - dj)), (k, m), (i - k, j - m))
            for k in range(di, i + 1)
            for m in range(dj, j + 1)
            if (k, m) != (i, j)
        ]
    return terms


def _joint_cumulants(raw: FloatArray) -> _Table:
    """Joint cumulants of (y^2, y) from the raw moments of y, (9, u)."""
    kappa: _Table = {}
    for (i, j), terms in _recursion().items():
        kappa[i, j] = raw[2 * i + j] - sum(c * kappa[a] * raw[2 * b[0] + b[1]] for c, a, b in terms)
    return kappa


def _joint_moments(kappa: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    moments = {(0, 0): 1.0}
    for ij, terms in _recursion().items():
        moments[ij] = kappa[ij] + sum(c * kappa[a] * moments[b] for c, a, b in terms)
    return moments


def _from_integral(definition: RankDefinition, counts: CandidateCounts, mean: float, m: FloatArray) -> float:
    """E[sqrt(V / E V)] - 1 by the integral over t; the far end is summed as a geometric series."""
    if len(np.unique(counts.weight)) > _WEIGHTS:
        raise unavailable(definition, f"has no exact expectation for few tasks that carry more than {_WEIGHTS} weights")
    early = _EARLY / math.sqrt(m[2])
    u = math.log(early) + _STEP * np.arange(-200, 1)
    t = np.exp(u)
    total = float((_STEP * t**-0.5 * np.exp(-t) * (m[2] * t**2 / 2 - m[3] * t**3 / 6 + m[4] * t**4 / 24)).sum())
    point, slope, before, work = u[-1], math.nan, math.nan, 0.0
    while True:
        point += _STEP
        t = math.exp(point)
        log_phi, cost = _log_laplace(counts, t / mean)
        work += cost
        excess = log_phi + t
        core = math.exp(-t) * math.expm1(excess) if excess < 1 else math.exp(log_phi) - math.exp(-t)
        total += _STEP * t**-0.5 * core
        new_slope = (before - log_phi) / _STEP
        if t > 60:
            ratio = math.exp(-(new_slope + 0.5) * _STEP)
            rest = _STEP * t**-0.5 * math.exp(log_phi) * ratio / (1 - ratio)
            error = rest * min(1.0, abs(new_slope - slope) / _STEP)
            if error <= 1e-11 * abs(total):
                return float(rgamma(-0.5) * (total + rest))
            if work > _WORK:
                if error <= 1e-7 * abs(total):
                    return float(rgamma(-0.5) * (total + rest))
                raise unavailable(definition, "has no expectation of stated accuracy for these few tasks")
        before, slope = log_phi, new_slope


def _log_laplace(counts: CandidateCounts, s: float) -> tuple[float, float]:
    """Log E exp(-s V), and how many exponentials it took."""
    N, v, count = counts.num_candidates.astype(np.float64), counts.weight, counts.count
    center = float((count * v * (N + 1) / 2).sum())
    spread = math.sqrt(float((count * v * v * (N * N - 1) / 12).sum()) + 0.5 / s)
    reach = 9.5 / math.sqrt(2 * s)
    low, high = max(center - 9.5 * spread, 1 - reach), min(center + 9.5 * spread, N[-1] + reach)
    step = 0.55 / math.sqrt(2 * s)
    c = low + step * np.arange(int((high - low) / step) + 2)
    log_product = np.zeros_like(c)
    cost = 0.0
    for weight in np.unique(v):
        part = v == weight
        width = 1 / math.sqrt(2 * s * weight)  # of the Gaussians: panels must not be much longer
        halvings = max(0, math.ceil(math.log2(max(1.0, N[part][-1] / (6 * width)))))
        rule = prefix_rule(counts.num_candidates[part].tobytes(), 2.0 ** (0.5**halvings))
        block = max(1, (1 << 19) // len(rule.nodes))
        for begin in range(0, len(c), block):
            distance = rule.nodes - c[begin : begin + block, None]
            with np.errstate(divide="ignore"):
                log_mean = np.log(rule.means(np.exp(-s * weight * distance**2)))
            log_product[begin : begin + block] += log_mean @ count[part]
        cost += len(c) * len(rule.nodes)
    top = log_product.max()
    return float(top + np.log(np.exp(log_product - top).sum() * step) + 0.5 * math.log(s / math.pi)), cost
