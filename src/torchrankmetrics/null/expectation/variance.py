"""Null moments of the variance and the standard deviation of ranks."""

import math

import numpy as np
from scipy.special import factorial, rgamma

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray, Moments
from torchrankmetrics.definitions.sums import prefix_rule
from torchrankmetrics.definitions.tasks import RANK_VARIANCE, RankDefinition
from torchrankmetrics.null.expectation.power import cumulants_of, moments_of
from torchrankmetrics.null.expectation.provider import unavailable


def rank_variance(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of sum v_i (r_i - mean)^2, from mean mu, variance s2 and fourth central moment m4 of each rank."""
    N, v, c = counts.num_candidates.astype(np.float64), counts.weight, counts.count
    mu, s2 = (N + 1) / 2, (N - 1) * (N + 1) / 12
    m4 = (N - 1) * (N + 1) * (3 * N * N - 7) / 240
    offset = (mu - (c * v * mu).sum()) ** 2
    own = v * (1 - v)
    mean = (c * own * s2).sum() + (c * v * offset).sum()
    crossed = (c * v * v * s2).sum() ** 2 - (c * v**4 * s2**2).sum()
    variance = (c * own**2 * (m4 - s2**2)).sum() + 2 * crossed + 4 * (c * s2 * v * v * offset).sum()
    # a single rank, or every rank fixed: the value is a constant
    if counts.num_tasks == 1 or N[-1] == 1:
        return Moments(float(mean) if counts.num_tasks > 1 else 0.0, 0.0)
    return Moments(float(mean), float(max(variance, 0.0)))


_CONCENTRATED = 1e-3  # squared coefficient of variation of V up to which its moments suffice
_STEP = 0.25
_EARLY = 0.003  # t * (coefficient of variation) up to which E exp(-t V) is its Taylor polynomial
_WORK = 5e7  # evaluations of exp at most
_WEIGHTS = 256  # distinct weights at most, each with its own quadrature rule


def rank_standard_deviation(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of sqrt(sum v_i (r_i - mean)^2); an error if the integral does not settle."""
    variance = rank_variance(RANK_VARIANCE, counts)
    if variance.variance == 0.0:
        return Moments(math.sqrt(variance.mean), 0.0)
    moments = _relative_central_moments(counts, variance.mean)
    # E[sqrt(1 + x)] - 1 of nearly normal x; moments 5 and 6 to their leading order
    if moments[2] <= _CONCENTRATED:
        _, _, m2, m3, m4 = moments.tolist()
        first = (
            -m2 / 8 + m3 / 16 - 5 * m4 / 128 + 7 * (10 * m2 * m3) / 256 - 21 * (15 * m2**3) / 1024
        )
    else:
        first = _from_integral(definition, counts, variance.mean, moments)
    return Moments(math.sqrt(variance.mean) * (1 + first), -variance.mean * first * (2 + first))


def _relative_central_moments(counts: CandidateCounts, mean: float) -> FloatArray:
    """E[(V / E V - 1)^k], k = 0..4."""
    # for ranks y centered and in units of sqrt(E V), and a normal Z, E exp(-e^2 V) = E_Z of the
    # product of E exp(-e^2 v y^2 + sqrt(2) e v y Z); its coefficients are polynomials in Z: five
    # Gauss-Hermite nodes are exact
    N, index = np.unique(counts.num_candidates, return_inverse=True)
    v, count = counts.weight, counts.count
    center = float((count * v * (counts.num_candidates + 1) / 2).sum())
    rule = prefix_rule(N.tobytes())
    y = (rule.nodes - center) / math.sqrt(mean)
    raw = np.stack([rule.means(y**k) for k in range(9)])[:, index]
    square = float((count * v * v * (raw[2] - raw[1] ** 2)).sum())  # E B^2
    moments = np.zeros(9)
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    for z, weight in zip(nodes, weights / weights.sum(), strict=True):
        coefficient = [np.ones_like(v), math.sqrt(2) * z * v]  # of e^k y^k / k!
        for k in range(2, 9):
            coefficient.append(
                math.sqrt(2) * z * v * coefficient[-1] - 2 * (k - 1) * v * coefficient[-2]
            )
        kappa = (count * cumulants_of(np.stack(coefficient) * raw)).sum(1)
        kappa[1], kappa[2] = 0.0, 2 * (z * z - 1) * square  # of V - E V
        moments += weight * moments_of(kappa)
    order = np.arange(5)
    return np.asarray((-1.0) ** order * factorial(order) / factorial(2 * order) * moments[::2])


def _from_integral(
    definition: RankDefinition, counts: CandidateCounts, mean: float, m: FloatArray
) -> float:
    """E[sqrt(V / E V)] - 1 by the integral over t; the far end is summed as a geometric series."""
    if len(np.unique(counts.weight)) > _WEIGHTS:
        raise unavailable(
            definition,
            f"has no exact expectation for few tasks that carry more than {_WEIGHTS} weights",
        )
    early = _EARLY / math.sqrt(m[2])
    u = math.log(early) + _STEP * np.arange(-200, 1)
    t = np.exp(u)
    total = float(
        (
            _STEP * t**-0.5 * np.exp(-t) * (m[2] * t**2 / 2 - m[3] * t**3 / 6 + m[4] * t**4 / 24)
        ).sum()
    )
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
            if error <= (1e-7 if work > _WORK else 1e-11) * abs(total):
                return float(rgamma(-0.5) * (total + rest))
            if work > _WORK:
                raise unavailable(
                    definition, "has no expectation of stated accuracy for these few tasks"
                )
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
    return float(
        top + np.log(np.exp(log_product - top).sum() * step) + 0.5 * math.log(s / math.pi)
    ), cost
