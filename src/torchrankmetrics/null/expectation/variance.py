"""Null moments of the variance and the standard deviation of ranks."""

import math

import numpy as np
from scipy.special import factorial, rgamma

from torchrankmetrics.definitions.sample import CandidateCounts, FloatArray, IntArray, Moments
from torchrankmetrics.definitions.sums import PrefixRule, prefix_rule
from torchrankmetrics.definitions.tasks import RANK_VARIANCE, RankDefinition
from torchrankmetrics.null.expectation.power import cumulants_of, moments_of
from torchrankmetrics.null.expectation.provider import unavailable


def rank_variance(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of sum v_i (r_i - mean)^2.

    They follow from mean mu, variance s2 and fourth moment m4 of the ranks.
    """
    N = counts.num_candidates.astype(np.float64)
    v = counts.weight
    c = counts.count
    mu = (N + 1) / 2
    s2 = (N - 1) * (N + 1) / 12
    m4 = (N - 1) * (N + 1) * (3 * N * N - 7) / 240
    offset = (mu - (c * v * mu).sum()) ** 2
    own = v * (1 - v)

    mean = float((c * own * s2).sum() + (c * v * offset).sum())
    if counts.num_tasks == 1:
        return Moments(0.0, 0.0)
    if N[-1] == 1:  # every rank is 1
        return Moments(mean, 0.0)
    crossed = (c * v * v * s2).sum() ** 2 - (c * v**4 * s2**2).sum()
    variance = (c * own**2 * (m4 - s2**2)).sum() + 2 * crossed + 4 * (c * s2 * v * v * offset).sum()
    return Moments(mean, float(max(variance, 0.0)))


_CONCENTRATED = 1e-3  # squared coefficient of variation of V up to which its moments suffice
_STEP = 0.25
_EARLY = 0.003  # t * (coefficient of variation) up to which E exp(-t V) is its Taylor polynomial
_BLOCK = 1 << 19  # values in memory at a time
_WORK = 5e7  # evaluations of exp at most
_WEIGHTS = 256  # distinct weights at most, each with its own quadrature rule


def rank_standard_deviation(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Moments of sqrt(sum v_i (r_i - mean)^2); an error if the integral does not settle."""
    variance = rank_variance(RANK_VARIANCE, counts)
    if variance.variance == 0.0:
        return Moments(math.sqrt(variance.mean), 0.0)
    moments = _relative_central_moments(counts, variance.mean)
    if moments[2] <= _CONCENTRATED:
        first = _from_moments(moments)
    else:
        first = _from_integral(definition, counts, variance.mean, moments)
    return Moments(math.sqrt(variance.mean) * (1 + first), -variance.mean * first * (2 + first))


def _from_moments(moments: FloatArray) -> float:
    """E[sqrt(1 + x)] - 1 of a nearly normal x; its moments 5 and 6 to their leading order."""
    _, _, m2, m3, m4 = moments.tolist()
    m5 = 10 * m2 * m3
    m6 = 15 * m2**3
    return float(-m2 / 8 + m3 / 16 - 5 * m4 / 128 + 7 * m5 / 256 - 21 * m6 / 1024)


def _relative_central_moments(counts: CandidateCounts, mean: float) -> FloatArray:
    """E[(V / E V - 1)^k], k = 0..4.

    V = sum v y^2 - B^2 with B = sum v y, for ranks y that are centered and in units of sqrt(E V).
    With a normal Z, exp(e^2 B^2) = E exp(sqrt(2) e B Z). So E exp(-e^2 V) is the mean over Z of a
    product over the ranks of E exp(-e^2 v y^2 + sqrt(2) e v y Z). The coefficients of this series
    in e are polynomials in Z, so five Gauss-Hermite nodes are exact.
    """
    v = counts.weight
    raw = _moments_of_ranks(counts, math.sqrt(mean))
    square = float((counts.count * v * v * (raw[2] - raw[1] ** 2)).sum())  # E B^2

    moments = np.zeros(9)
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    for z, weight in zip(nodes, weights / weights.sum(), strict=True):
        kappa = (counts.count * cumulants_of(_exponential_series(z, v) * raw)).sum(1)
        kappa[1] = 0.0
        kappa[2] = 2 * (z * z - 1) * square  # of V - E V, as sum v E y^2 = E V + E B^2
        moments += weight * moments_of(kappa)
    order = np.arange(5)
    scale = (-1.0) ** order * factorial(order) / factorial(2 * order)
    return np.asarray(scale * moments[::2])


def _moments_of_ranks(counts: CandidateCounts, unit: float) -> FloatArray:
    """Moments 0..8 of the ranks around their common mean, in units, (9, pairs)."""
    N, index = np.unique(counts.num_candidates, return_inverse=True)
    rule = prefix_rule(N.tobytes())
    y = (rule.nodes - _mean_rank(counts)) / unit
    return np.stack([rule.means(y**k) for k in range(9)])[:, index]


def _exponential_series(z: float, v: FloatArray) -> FloatArray:
    """Coefficients of e^k y^k / k! in exp(-e^2 v y^2 + sqrt(2) e v y z), k = 0..8: (9, len(v))."""
    series = [np.ones_like(v), math.sqrt(2) * z * v]
    for k in range(2, 9):
        series.append(math.sqrt(2) * z * v * series[-1] - 2 * (k - 1) * v * series[-2])
    return np.stack(series)


def _mean_rank(counts: CandidateCounts) -> float:
    return float((counts.count * counts.weight * (counts.num_candidates + 1) / 2).sum())


def _from_integral(
    definition: RankDefinition, counts: CandidateCounts, mean: float, m: FloatArray
) -> float:
    """E[sqrt(V / E V)] - 1 by the integral over t; its far end is summed as a geometric series."""
    if len(np.unique(counts.weight)) > _WEIGHTS:
        raise unavailable(
            definition,
            f"has no exact expectation for few tasks that carry more than {_WEIGHTS} weights",
        )
    point = math.log(_EARLY / math.sqrt(m[2]))
    total = _early_part(point, m)
    slope = before = math.nan
    work = 0.0
    while True:
        point += _STEP
        t = math.exp(point)
        log_phi, cost = _log_laplace(counts, t / mean)
        work += cost
        total += _STEP * t**-0.5 * _difference(log_phi, t)
        last_slope = slope
        slope = (before - log_phi) / _STEP
        before = log_phi
        if t <= 60:
            continue
        rest = _late_part(t, log_phi, slope)
        error = rest * min(1.0, abs(slope - last_slope) / _STEP)
        tolerance = 1e-7 if work > _WORK else 1e-11
        if error <= tolerance * abs(total):
            return float(rgamma(-0.5) * (total + rest))
        if work > _WORK:
            raise unavailable(
                definition, "has no expectation of stated accuracy for these few tasks"
            )


def _early_part(end: float, m: FloatArray) -> float:
    """The integral over log t up to ``end``, where E exp(-t V) is its Taylor polynomial."""
    t = np.exp(end + _STEP * np.arange(-200, 1))
    series = m[2] * t**2 / 2 - m[3] * t**3 / 6 + m[4] * t**4 / 24
    return float((_STEP * t**-0.5 * np.exp(-t) * series).sum())


def _late_part(t: float, log_phi: float, slope: float) -> float:
    """The integral over log t beyond ``t``, as a geometric series from the slope of log phi."""
    ratio = math.exp(-(slope + 0.5) * _STEP)
    return float(_STEP * t**-0.5 * math.exp(log_phi) * ratio / (1 - ratio))


def _difference(log_phi: float, t: float) -> float:
    """Compute exp(log_phi) - exp(-t) without cancellation."""
    excess = log_phi + t
    if excess < 1:
        return math.exp(-t) * math.expm1(excess)
    return math.exp(log_phi) - math.exp(-t)


def _log_laplace(counts: CandidateCounts, s: float) -> tuple[float, float]:
    """Log E exp(-s V), and how many exponentials it took.

    E exp(-s V) is sqrt(s / pi) times the integral over c of the product of E exp(-s v (r - c)^2).
    """
    c = _centers(counts, s)
    log_product = np.zeros_like(c)
    cost = 0.0
    for weight in np.unique(counts.weight):
        part = counts.weight == weight
        width = 1 / math.sqrt(2 * s * weight)  # of the Gaussians: panels must not be much longer
        rule = _rule_for_width(counts.num_candidates[part], width)
        log_product += _log_product(rule, c, s * weight, counts.count[part])
        cost += len(c) * len(rule.nodes)
    top = log_product.max()
    log_integral = top + np.log(np.exp(log_product - top).sum() * _center_step(s))
    return float(log_integral + 0.5 * math.log(s / math.pi)), cost


def _log_product(rule: PrefixRule, c: FloatArray, scale: float, count: IntArray) -> FloatArray:
    """Log of the product of E exp(-scale (r - c)^2) over all tasks of the rule, for each center."""
    result = np.empty_like(c)
    block = max(1, _BLOCK // len(rule.nodes))
    for begin in range(0, len(c), block):
        distance = rule.nodes - c[begin : begin + block, None]
        with np.errstate(divide="ignore"):
            log_mean = np.log(rule.means(np.exp(-scale * distance**2)))
        result[begin : begin + block] = log_mean @ count
    return result


def _centers(counts: CandidateCounts, s: float) -> FloatArray:
    """The grid of centers c of the trapezoidal rule for ``_log_laplace``."""
    N = counts.num_candidates.astype(np.float64)
    v = counts.weight
    spread = math.sqrt(float((counts.count * v * v * (N * N - 1) / 12).sum()) + 0.5 / s)
    center = _mean_rank(counts)
    reach = 9.5 / math.sqrt(2 * s)
    low = max(center - 9.5 * spread, 1 - reach)
    high = min(center + 9.5 * spread, N[-1] + reach)
    step = _center_step(s)
    return np.asarray(low + step * np.arange(int((high - low) / step) + 2))


def _center_step(s: float) -> float:
    return 0.55 / math.sqrt(2 * s)


def _rule_for_width(N: IntArray, width: float) -> PrefixRule:
    """The rule for sums over 1..N of functions that bend on the scale of ``width``."""
    halvings = max(0, math.ceil(math.log2(max(1.0, N[-1] / (6 * width)))))
    return prefix_rule(N.tobytes(), 2.0 ** (0.5**halvings))
