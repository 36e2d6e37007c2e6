"""Standard errors and confidence intervals of metrics."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.stats import chi2, norm, t as student

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import RankSample, RankType, Sample, weighted_mean
from torchrankmetrics.definitions.tasks import RankDefinition, aggregate
from torchrankmetrics.definitions.transforms import Transform, apply_transform, known, transform_slopes
from torchrankmetrics.inference.units import Units, effective_tasks_of, units_of
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.views import apply_view, view_slope
from torchrankmetrics.validation import shorten

_FEW = 3 + 1e-9  # hits or misses, with the rounding of a sum of weights


@dataclass(frozen=True)
class Estimate:
    """Standard error and confidence interval of a metric, in its units; ``effective_tasks`` as in ``Interval``."""

    standard_error: float
    low: float
    high: float
    effective_tasks: float = math.inf

    def in_view(self, measure: Measure, sample: Sample) -> "Estimate":
        """Put error and interval of a base value into the view of a measure; null moments have no error."""
        if measure.view == "base" or math.isnan(self.low):
            return self
        moments = measure.moments(sample)
        low, high = (apply_view(measure.definition, measure.view, end, moments) for end in (self.low, self.high))
        error = self.standard_error * abs(view_slope(measure.definition, measure.view, moments))
        return replace(self, standard_error=error, low=min(low, high), high=max(low, high))


def normal_interval(definition: Definition, units: Units, level: float, limits: tuple[float, float]) -> Estimate:
    """Interval of a metric g(mean of f) from the normal approximation to the mean of f.

    The standard error is sqrt(n/(n-1) sum of v^2 (f - M)^2), for clusters the jackknife's, times |g'| (delta method);
    the ends are g of the ends for the mean. Hits use Wilson's interval.

    Args:
        definition: a metric with ``is_function_of_mean``.
        units: its f over tasks or clusters (k = 1).
        level: confidence level, in (0, 1).
        limits: smallest and largest possible mean of f.
    """
    error = math.sqrt(float(units.covariance[0, 0]))
    ends = share_interval(units, level) if definition.is_share else skewed_normal(units, level)
    return interval_through(definition.g, units, error, ends, limits, effective_tasks_of_mean(definition, units))


def effective_tasks_of_mean(definition: Definition, units: Units) -> float:
    """``effective_tasks_of`` the mean of f; infinite for shares of single tasks, and for shares without variance."""
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
    """Transform the interval of a mean by a monotone g, and its error by the delta method.

    Args:
        g: post-transform of the metric.
        units: f over tasks or clusters (k = 1).
        error: standard error of the mean.
        ends: interval of the mean.
        limits: smallest and largest possible mean.
        effective_tasks: of the error.
    """
    ends = (max(ends[0], limits[0]), min(ends[1], limits[1]))
    if known(g).is_identity:
        return Estimate(error, *ends, effective_tasks)
    low, high = sorted(apply_transform(g, np.array(ends), "g").tolist())
    return Estimate(error * abs(float(transform_slopes(g, units.mean)[0])), low, high, effective_tasks)


def skewed_normal(units: Units, level: float) -> tuple[float, float]:
    """Interval of a mean with Hall's correction for skewness, because ranks have long tails.

    With T = (M - mu) / se and a = sum u^3 / (sum u^2)^1.5 over the influences u, T + a T^2 / 3 + a^2 T^3 / 27 + a / 6
    is normal to second order and monotone; it is inverted at Student's quantiles.

    Source: Hall 1992 (J. R. Statist. Soc. B 54, 221-228).
    """
    u, mean = units.influence[:, 0], float(units.mean[0])
    error = math.sqrt(float(units.covariance[0, 0]))
    if error == 0:
        return mean, mean
    a = float((units.count * u**3).sum()) / float((units.count * u**2).sum()) ** 1.5
    x = float(student.ppf((1 + level) / 2, degrees_of_freedom(units)))

    def corrected(y: float) -> float:
        return y if abs(a) < 1e-6 else 3 / a * (float(np.cbrt(1 + a * (y - a / 6))) - 1)

    return mean - error * corrected(x), mean - error * corrected(-x)


def share_interval(units: Units, level: float) -> tuple[float, float]:
    """Wilson's interval of a share; with at most 3 hits or misses that end is Poisson's, if it is wider.

    Source: Brown, Cai and DasGupta 2001 (doi:10.1214/ss/1009213286), section 4.1.1: for a share near 0.18 / n, Wilson's
    interval covers 83.8%.
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
    """Wilson's interval of a share, with the effective number of tasks n = p (1 - p) / squared error.

    For clusters the error is the jackknife's and the quantile Student's.

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
    square = float((units.count * units.influence[:, 0] ** 2).sum()) * (units.factor if units.clustered else 1.0)
    z = float(student.ppf((1 + level) / 2, degrees_of_freedom(units)) if units.clustered else norm.ppf((1 + level) / 2))
    # without variance the sample size is the effective number of units
    return p, p * (1 - p) / square if square > 0 else units.effective, z


def degrees_of_freedom(units: Units) -> float:
    """Degrees of freedom of the variance: n - 1 for tasks; Satterthwaite's for clusters, from fourth powers."""
    if not units.clustered:
        return units.size - 1
    square = units.influence[:, 0] ** 2
    spread = float((square**2).sum() - square.sum() ** 2 / units.size)
    estimate = 2 * float(square.sum()) ** 2 / spread if spread > 0 else math.inf
    return min(max(estimate, 1.0), units.size - 1)


_CELLS = 1 << 22


def redraws(count: IntArray, n_resamples: int, seed: int) -> Iterator[FloatArray]:
    """Draw bootstrap samples of units, with ``count`` (u,) int64 equal units per entry.

    Yields:
        blocks (b, u) float64 of the number of draws of each entry, ``n_resamples`` rows in total.
    """
    rng = np.random.default_rng(seed)
    u, n = len(count), int(count.sum())
    step = max(1, _CELLS // max(u, n))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        if n == u:
            cells = rng.integers(0, u, (size, u)) + u * np.arange(size)[:, None]
            yield np.bincount(cells.ravel(), minlength=size * u).reshape(size, u).astype(np.float64)
        else:
            yield rng.multinomial(n, count / n, size=size).astype(np.float64)


def studentised_interval(units: Units, level: float, n_resamples: int, seed: int) -> tuple[float, float, float]:
    """Standard error and ends of the bootstrap-t interval of a weighted mean, which is correct to second order.

    The ends are M - q se with q the quantiles of (M* - M) / se*; se is linearized in the sample and in each resample.

    Args:
        units: f over tasks or clusters (k = 1).
        level: confidence level, in (0, 1).
        n_resamples: number of bootstrap samples.
        seed: random seed.

    Source: Efron and Tibshirani 1993, section 12.5 (doi:10.1201/9780429246593).
    """
    units.require_two()
    mean, weight = float(units.mean[0]), units.weight
    centered = units.sums[:, 0] - weight * mean
    columns = np.stack([weight, centered, weight**2, weight * centered, centered**2], 1)

    def shift_and_error(draws: FloatArray) -> tuple[FloatArray, FloatArray]:
        total, first, ww, wc, cc = (draws @ columns).T
        moved = first / total
        square = cc - 2 * moved * wc + moved**2 * ww
        return moved, np.sqrt(np.maximum(square, 0) * units.size / (units.size - 1)) / total

    error = float(shift_and_error(units.count[None].astype(np.float64))[1][0])
    if error == 0:
        return 0.0, mean, mean
    ratios = []
    for draws in redraws(units.count, n_resamples, seed):
        moved, spread = shift_and_error(draws)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(np.nan_to_num(moved / spread, nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = np.quantile(np.concatenate(ratios), [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return error, mean - float(high) * error, mean - float(low) * error


def percentile_interval(replicates: FloatArray, level: float) -> tuple[float, float, float]:
    """Standard error and ends of the percentile interval, from values (resamples,) of a metric on resamples."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(replicates.std(ddof=1)), float(low), float(high)


def percentile_effective_tasks(definition: RankDefinition, sample: RankSample, cluster: IntArray | None) -> float:
    """Effective number of tasks or clusters of a metric without a formula; for quantiles all tasks or clusters.

    Raises:
        ValueError: if there are fewer than two tasks or clusters, or the metric is an extreme: resamples contain no
            values beyond the sample, so that the bootstrap is inconsistent.

    Source: Bickel and Freedman 1981 (doi:10.1214/aos/1176345637), on extremes.
    """
    if definition.is_extreme:
        raise ValueError(
            f"{shorten(definition.name)} has no interval, because a sample contains no ranks beyond its extreme. Use "
            "a finite power mean such as 'power_mean_rank_4', a share such as 'hits_at_100', or 'median_rank'"
        )
    x = apply_transform(definition.f, sample.rank("realistic"), num_candidates=sample.num_candidates)
    if definition.aggregation == "variance":
        x = (x - weighted_mean(x, sample.mass)) ** 2
    units = units_of(x, sample.weight, sample.count, cluster)
    units.require_two()
    if definition.aggregation in ("median", "mad"):
        return float(units.size)
    return effective_tasks_of(units.influence[:, 0], units.count)


def replicate_values(
    definition: RankDefinition,
    samples: Sequence[RankSample],
    rank_type: RankType,
    n_resamples: int,
    seed: int,
    cluster: IntArray | None = None,
) -> FloatArray:
    """Values of any metric on resampled tasks or clusters, (samples, resamples) float64.

    Args:
        definition: the metric.
        samples: ranks of models on the same tasks, which are resampled together; or of one model.
        rank_type: of the metric.
        n_resamples: number of bootstrap samples.
        seed: random seed.
        cluster: (m,) int64 keys, one per entry of the samples; None, for one model: every task is drawn by itself.
    """
    N = samples[0].known_candidates if definition.uses_candidates else None
    if cluster is None:  # equal tasks are one entry
        samples = [samples[0].tie_blocks if N is None else samples[0]]
        drawn, unit, times = samples[0].count, np.arange(len(samples[0].count)), np.ones_like(samples[0].count)
    else:
        times = samples[0].count
        key, unit = np.unique(cluster, return_inverse=True)
        drawn = np.ones(len(key), dtype=np.int64)
    weight, columns = samples[0].weight, []
    for one in samples if rank_type != "expected" else ():
        x = apply_transform(definition.f, one.rank(rank_type), num_candidates=N)
        order = np.argsort(x)  # once, not in each median
        columns.append((x[order], unit[order], (weight * times)[order]))
    values: list[list[float]] = []
    for draws in redraws(drawn, n_resamples, seed):
        for row in draws:
            if rank_type != "expected":
                values.append([float(aggregate(definition, x, mass * row[unit])) for x, unit, mass in columns])
                continue
            count = row[unit].astype(np.int64) * times
            redrawn = [RankSample(x.optimistic, x.pessimistic, N, weight * (count > 0), count) for x in samples]
            values.append([definition.value(one, rank_type) for one in redrawn])
    result = np.array(values).T
    return result if rank_type == "expected" else np.stack([apply_transform(definition.g, one, "g") for one in result])


Method = Literal["normal", "bootstrap"]
METHODS: tuple[Method, ...] = get_args(Method)


def estimate(
    definition: Definition,
    sample: Sample,
    rank_type: RankType,
    level: float,
    method: Method,
    cluster: IntArray | None,
    n_resamples: int,
    seed: int,
) -> Estimate:
    """Interval of the base value of a metric on a sample."""
    if sample.num_tasks == 0:
        return Estimate(math.nan, math.nan, math.nan)
    if not definition.is_function_of_mean(rank_type):
        of_tasks, ranks = definition.as_tasks(sample)
        effective_tasks = percentile_effective_tasks(of_tasks, ranks, cluster)
        (replicates,) = replicate_values(of_tasks, [ranks], rank_type, n_resamples, seed, cluster)
        return Estimate(*percentile_interval(replicates, level), effective_tasks)
    units = units_of(definition.unit_values(sample, rank_type), sample.weight, sample.count, cluster)
    limits = definition.mean_limits(sample)
    if method == "normal" or definition.is_share:  # no resample of a sample without hits has one
        return normal_interval(definition, units, level, limits)
    error, low, high = studentised_interval(units, level, n_resamples, seed)
    return interval_through(definition.g, units, error, (low, high), limits, effective_tasks_of_mean(definition, units))
