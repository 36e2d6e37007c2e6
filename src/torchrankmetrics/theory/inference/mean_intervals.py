"""Confidence intervals of a metric as an estimate: what it would be on other tasks of the same kind."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, norm
from scipy.stats import t as student

from torchrankmetrics.theory.definitions import Transform
from torchrankmetrics.theory.inference.units import Units, effective_tasks_of
from torchrankmetrics.theory.queries.definitions import Definition, QueryDefinition
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.transforms import apply_transform, known, transform_slopes
from torchrankmetrics.theory.views import value_bounds

_FEW = 3 + 1e-9  # hits or misses; a sum of weights may round to either side of 3


@dataclass(frozen=True)
class Estimate:
    """The standard error of a metric and the ends of its confidence interval, in the units of the metric.

    ``effective_tasks`` is the number of tasks or clusters that the error rests on, infinite where the interval does not
    need one; see ``effective_tasks_of``.
    """

    standard_error: float
    low: float
    high: float
    effective_tasks: float = math.inf


def normal_interval(definition: Definition, units: Units, level: float, limits: tuple[float, float]) -> Estimate:
    """Interval of a metric g(mean of f) from the normal approximation to the mean of f.

    The standard error is sqrt(n/(n-1) sum of v^2 (f - M)^2), the jackknife's over clusters where units are clusters,
    times |g'| (delta method); the interval is that of the mean with its ends put through g. Hits use Wilson's.

    Args:
        definition: a metric with ``is_mean``.
        units: its f over tasks or clusters (k = 1).
        level: of confidence, in (0, 1).
        limits: smallest and largest possible mean of f.

    Raises:
        ValueError: if there are fewer than two units.
    """
    error = math.sqrt(float(units.covariance[0, 0]))
    ends = share_interval(units, level) if definition.is_share else skewed_normal(units, level)
    return interval_through(definition.g, units, error, ends, limits, effective_tasks_of_mean(definition, units))


def effective_tasks_of_mean(definition: Definition, units: Units) -> float:
    """``effective_tasks_of`` the mean of f; infinite for Wilson's of single tasks, and for shares without spread."""
    spread = np.abs(units.influence[:, 0])
    scale = float(np.abs(units.sums).max(initial=0.0)) / units.total
    effective_tasks = (
        effective_tasks_of(units.influence[:, 0], units.count) if spread.max(initial=0.0) > 1e-13 * scale else 0.0
    )
    return math.inf if definition.is_share and (not units.clustered or effective_tasks == 0) else effective_tasks


def interval_through(
    g: Transform,
    units: Units,
    error: float,
    ends: tuple[float, float],
    limits: tuple[float, float],
    effective_tasks: float,
) -> Estimate:
    """Put the interval of a mean through a monotone g, its error by the delta method, its ends cut to what is possible.

    Args:
        g: the post-transform of the metric.
        units: f over tasks or clusters (k = 1).
        error: the standard error of its mean.
        ends: the ends of the interval of the mean.
        limits: smallest and largest possible mean.
        effective_tasks: of the error.

    Raises:
        ValueError: if torch cannot differentiate g, or g is not finite at an end.
    """
    ends = (max(ends[0], limits[0]), min(ends[1], limits[1]))
    if known(g).is_identity:
        return Estimate(error, *ends, effective_tasks)
    low, high = sorted(apply_transform(g, np.array(ends), "g").tolist())
    return Estimate(error * abs(float(transform_slopes(g, units.mean)[0])), low, high, effective_tasks)


def skewed_normal(units: Units, level: float) -> tuple[float, float]:
    """Interval of a mean with Hall's correction for skewness: ranks have long tails, and the plain one misses above.

    With T = (M - mu) / se and a = sum u^3 / (sum u^2)^1.5 over the influences u, T + a T^2 / 3 + a^2 T^3 / 27 + a / 6
    is normal to second order and monotone; it is inverted at Student's quantiles.

    Source: Hall 1992 (J. R. Statist. Soc. B 54, 221-228).
    """
    u, mean = units.influence[:, 0], float(units.mean[0])
    error = math.sqrt(float(units.covariance[0, 0]))
    if error == 0:
        return mean, mean
    a = float(units.count @ u**3) / float(units.count @ u**2) ** 1.5
    x = float(student.ppf((1 + level) / 2, degrees_of_freedom(units)))

    def corrected(y: float) -> float:
        return y if abs(a) < 1e-6 else 3 / a * (float(np.cbrt(1 + a * (y - a / 6))) - 1)

    return mean - error * corrected(x), mean - error * corrected(-x)


def share_interval(units: Units, level: float) -> tuple[float, float]:
    """Wilson's interval of a share; at most 3 hits or misses have Poisson's end, as Wilson's is too near there.

    Source: Brown, Cai and DasGupta 2001 (doi:10.1214/ss/1009213286), section 4.1.1: of a share near 0.18 / n the plain
    one covers 83.8 %.
    """
    p, n, _ = _share(units, level)
    low, high = wilson(units, level)
    few, many = p * n, (1 - p) * n
    if 0 < few <= _FEW:
        low = min(low, float(chi2.ppf(1 - level, 2 * few)) / 2 / n)
    if 0 < many <= _FEW:
        high = max(high, 1 - float(chi2.ppf(1 - level, 2 * many)) / 2 / n)
    return low, high


def wilson(units: Units, level: float) -> tuple[float, float]:
    """Wilson's interval of a share, with the effective number of tasks of weighted or clustered ones.

    n is p (1 - p) over the squared error: the number of tasks if they are independent and weigh the same. Clusters
    take the jackknife's error and Student's quantile, as their number is what is small.

    Source: Wilson 1927 (doi:10.1080/01621459.1927.10502953).
    """
    return wilson_ends(*_share(units, level))


def wilson_ends(p: float, n: float, z: float) -> tuple[float, float]:
    """Ends of Wilson's interval of a share p of n tasks, at the quantile z."""
    center, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (center - half) / scale, (center + half) / scale


def _share(units: Units, level: float) -> tuple[float, float, float]:
    """The share, the effective number of tasks, and the quantile."""
    p = min(max(float(units.mean[0]), 0.0), 1.0)
    square = float(units.count @ units.influence[:, 0] ** 2) * (units.factor if units.clustered else 1.0)
    z = float(student.ppf((1 + level) / 2, degrees_of_freedom(units)) if units.clustered else norm.ppf((1 + level) / 2))
    # without any spread the effective number of units is all that is known
    return p, p * (1 - p) / square if square > 0 else units.effective, z


def degrees_of_freedom(units: Units) -> float:
    """Degrees of freedom of the variance: n - 1 for tasks; Satterthwaite's for clusters, from fourth powers."""
    if not units.clustered:
        return units.size - 1
    square = units.influence[:, 0] ** 2
    spread = float(square @ square - square.sum() ** 2 / units.size)
    estimate = 2 * float(square.sum()) ** 2 / spread if spread > 0 else math.inf
    return min(max(estimate, 1.0), units.size - 1)


def mean_limits(definition: Definition, sample: RankSample | QuerySample) -> tuple[float, float]:
    """Smallest and largest possible mean of f: shares 0 and 1; powers, log and AUC at ranks 1 and N; else infinite."""
    if definition.is_share:
        return 0.0, 1.0
    if isinstance(definition, QueryDefinition):
        low, high = value_bounds(definition, "base")
        return -math.inf if low is None else low, math.inf if high is None else high
    assert isinstance(sample, RankSample)
    f, N = definition.f, sample.num_candidates
    if N is None or not known(f).smooth:
        return -math.inf, math.inf
    ends = [apply_transform(f, r.astype(np.float64), num_candidates=N) for r in (np.ones_like(N), N)]
    low, high = sorted(float((sample.mass * x).sum() / sample.total) for x in ends)
    return low, high
