"""Standard errors and intervals of metrics, from influences of independent tasks or clusters."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.stats import chi2, t as student

from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import (
    FloatArray,
    IntArray,
    RankSample,
    RankType,
    Sample,
    weighted_mean,
)
from torchrankmetrics.definitions.tasks import RankDefinition, aggregate
from torchrankmetrics.definitions.transforms import apply_transform, as_transform, transform_slopes
from torchrankmetrics.inference.clusters import Clusters
from torchrankmetrics.metrics.measure import Measure, affine_view
from torchrankmetrics.validation import shorten

Method = Literal["normal", "bootstrap"]
METHODS: tuple[Method, ...] = get_args(Method)
_FEW = 3 + 1e-9  # hits or misses, with the rounding of a sum of weights
_CELLS = 1 << 22  # of a block of resamples


@dataclass(frozen=True, eq=False)
class Units:
    """Independent tasks or clusters, with k weighted means over them; u distinct ones."""

    weight: FloatArray  # (u,) sum of the weights w in a unit
    sums: FloatArray  # (u, k) sums of w f
    count: IntArray  # (u,) number of equal units of an entry
    clustered: bool = False  # whether a unit may contain several tasks

    @property
    def size(self) -> int:
        """Number of units."""
        return int(self.count.sum())

    def require_two(self) -> None:
        """Raise a ValueError if there are fewer than two units, which have no standard error."""
        if self.size < 2:
            raise ValueError(
                "an interval or a standard error needs at least 2 independent tasks or clusters, "
                f"got {self.size}"
            )

    @cached_property
    def total(self) -> float:
        """Sum W of all weights."""
        return float((self.count * self.weight).sum())  # a dot product would start threads

    @cached_property
    def mean(self) -> FloatArray:
        """(k,) means, sum of w f over W."""
        return np.asarray(self.count @ self.sums / self.total, dtype=np.float64)

    @cached_property
    def influence(self) -> FloatArray:
        """(u, k) influences, sums of v (f - M); of clusters by the jackknife, over 1 - share."""
        plain = (self.sums - self.weight[:, None] * self.mean) / self.total
        return (
            plain / (1 - self.weight[:, None] / self.total)
            if self.clustered and self.size > 1
            else plain
        )

    @property
    def factor(self) -> float:
        """Variance over the sum of squared influences: n / (n - 1), or (n - 1) / n (jackknife)."""
        self.require_two()
        return (self.size - 1) / self.size if self.clustered else self.size / (self.size - 1)

    @cached_property
    def covariance(self) -> FloatArray:
        """(k, k) covariance of the means."""
        square = self.influence.T @ (self.count[:, None] * self.influence)
        return np.asarray(self.factor * square, dtype=np.float64)

    @cached_property
    def effective(self) -> float:
        """Effective number of units: W^2 over the sum of squared weights."""
        return self.total**2 / float((self.count * self.weight**2).sum())

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the first variance: n - 1 of tasks, Satterthwaite's of clusters."""
        if not self.clustered:
            return self.size - 1
        square = self.influence[:, 0] ** 2
        total = float((self.count * square).sum())
        spread = float((self.count * square**2).sum()) - total**2 / self.size
        estimate = 2 * total**2 / spread if spread > 0 else math.inf
        return min(max(estimate, 1.0), self.size - 1)

    @property
    def is_binary(self) -> bool:
        """Whether units are single tasks of equal weight, which count 0 or 1."""
        return self.is_equal and not (self.sums / self.weight[:, None] % 1).any()

    @property
    def is_equal(self) -> bool:
        """Whether units are single tasks of equal weight."""
        return not (self.clustered or np.ptp(self.weight))

    @property
    def weighted_tasks(self) -> float:
        """Effective number of units for the variance of a share: n over the weights' kurtosis."""
        square = (self.weight / self.weight.max()) ** 2
        return float((self.count * square).sum()) ** 2 / float((self.count * square**2).sum())

    def columns(self, index: list[int]) -> "Units":
        """The same units with some of the means."""
        return replace(self, sums=self.sums[:, index])

    @cached_property
    def difference(self) -> FloatArray:
        """(u,) sums of w (f^A - f^B) of the first two means; 0 if it is rounding."""
        first = self.sums[:, 0]
        second = self.sums[:, 1]
        difference = first - second
        difference[np.abs(difference) <= 1e-13 * (np.abs(first) + np.abs(second))] = 0.0
        return difference

    def discordant(self, a: int, b: int) -> tuple[int, int, int]:
        """Numbers of binary units that only a hits, that only b hits, and of all."""
        difference = self.sums[:, a] - self.sums[:, b]
        only_a, only_b = (int(self.count[sign * difference > 0].sum()) for sign in (1, -1))
        return only_a, only_b, self.size

    def effective_tasks(self, influence: FloatArray) -> float:
        """Effective number of units for an error: n over the kurtosis of influences (u,), or 0."""
        largest = float(np.abs(influence).max(initial=0.0))
        if not largest > 1e-13 * (float(np.abs(self.sums).max(initial=0.0)) / self.total):
            return 0.0
        square = (influence / largest) ** 2
        return float((self.count * square).sum()) ** 2 / float((self.count * square**2).sum())


def units_of(
    values: FloatArray, weight: FloatArray, count: IntArray, clusters: Clusters | None = None
) -> Units:
    """Collect values f of tasks, (m,) or (m, k), into units: the tasks, or clusters of them.

    Clusters of one task each are independent tasks.
    """
    values = values[:, None] if values.ndim == 1 else values
    if clusters is None:
        return Units(weight, weight[:, None] * values, count)
    index, number = clusters.units(count)
    if number.sum() == count.sum():
        return Units(weight, weight[:, None] * values, count)
    mass = weight * (count / number[index])
    sums = np.stack([np.bincount(index, mass * column) for column in values.T], 1)
    of_cluster = np.bincount(index, mass)
    return Units(of_cluster.astype(np.float64), sums.astype(np.float64), number, clustered=True)


class Estimate(NamedTuple):
    """Standard error and confidence interval of a metric, in its units, as in ``Interval``."""

    standard_error: float
    low: float
    high: float
    effective_tasks: float = math.inf

    def in_view(self, measure: Measure, sample: Sample) -> "Estimate":
        """Put error and interval of a base value into the view; null moments have no error."""
        if measure.view == "base" or math.isnan(self.low):
            return self
        in_view, slope = affine_view(measure.definition, measure.view, measure.moments(sample))
        low, high = sorted(map(in_view, (self.low, self.high)))
        return Estimate(self.standard_error * abs(slope), low, high, self.effective_tasks)


def estimate(
    definition: Definition,
    sample: Sample,
    rank_type: RankType,
    level: float,
    method: Method = "normal",
    clusters: Clusters | None = None,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Interval of the base value of a metric; ``clusters`` of the entries of the sample."""
    if sample.num_tasks == 0:
        return Estimate(math.nan, math.nan, math.nan)
    if not definition.is_function_of_mean(rank_type):
        of_tasks, ranks = definition.as_tasks(sample)
        effective_tasks = percentile_effective_tasks(of_tasks, ranks, clusters)
        (values,) = replicate_values(of_tasks, [ranks], rank_type, n_resamples, seed, clusters)
        return Estimate(float(values.std(ddof=1)), *percentiles(values, level), effective_tasks)
    units = units_of(
        definition.unit_values(sample, rank_type), sample.weight, sample.count, clusters
    )
    error = math.sqrt(float(units.covariance[0, 0]))
    if definition.is_share:  # whatever the method: no resample of a sample without hits has one
        ends = error, *share_interval(units, level)
    elif method == "normal":
        ends = error, *skewed_normal(units, level)
    else:
        ends = studentized_interval(units, level, n_resamples, seed)
    return interval_through(definition, units, ends, definition.mean_limits(sample))


def interval_through(
    definition: Definition,
    units: Units,
    of_mean: tuple[float, float, float],
    limits: tuple[float, float],
) -> Estimate:
    """Transform the standard error and ends of a mean by a monotone g, within its limits."""
    error, low, high = of_mean
    low = max(low, limits[0])
    high = min(high, limits[1])
    effective_tasks = units.effective_tasks(units.influence[:, 0])
    if definition.is_share:
        effective_tasks = share_effective_tasks(units, effective_tasks)
    if not as_transform(definition.g).is_identity:
        low, high = sorted(apply_transform(definition.g, np.array([low, high]), "g").tolist())
        error *= abs(float(transform_slopes(definition.g, units.mean)[0]))
    return Estimate(error, low, high, effective_tasks)


def skewed_normal(units: Units, level: float) -> tuple[float, float]:
    """Interval of a mean with Hall's correction for skewness (1992, J. R. Statist. Soc. B 54).

    Ranks have long tails.

    With T = (M - mu) / se and a = sum u^3 / (sum u^2)^1.5 over the influences u, T + a T^2 / 3 +
    a^2 T^3 / 27 + a / 6 is inverted at Student's quantiles.
    """
    u = units.influence[:, 0]
    mean = float(units.mean[0])
    error = math.sqrt(float(units.covariance[0, 0]))
    if error == 0:
        return mean, mean
    a = float((units.count * u**3).sum()) / float((units.count * u**2).sum()) ** 1.5
    x = float(student.ppf((1 + level) / 2, units.freedom))

    def corrected(y: float) -> float:
        return y if abs(a) < 1e-6 else 3 / a * (float(np.cbrt(1 + a * (y - a / 6))) - 1)

    return mean - error * corrected(x), mean - error * corrected(-x)


def share_effective_tasks(units: Units, of_influences: float) -> float:
    """Effective number of units for the interval of a share: infinite for equal single tasks.

    Of weighted tasks it depends on the weights only, of clusters on their influences.
    """
    if units.is_equal or (units.clustered and of_influences == 0):
        return math.inf
    return of_influences if units.clustered else units.weighted_tasks


def share_interval(units: Units, level: float) -> tuple[float, float]:
    """Wilson's interval of a share; an end of at most 3 hits or misses is Poisson's, if wider.

    The sample size is p (1 - p) over the squared error, of single tasks at most their effective
    number. The quantile is Student's with the degrees of freedom of the weights (n - 1 for equal
    ones) or of the clusters: with the normal one 10 tasks are covered by 91.9% for p = 0.31.
    """
    # Brown, Cai and DasGupta 2001 (doi:10.1214/ss/1009213286), section 4.1.1
    p = min(max(float(units.mean[0]), 0.0), 1.0)
    influence = units.influence[:, 0]
    is_certain = units.effective_tasks(influence) == 0  # hits only, or misses only
    if is_certain and abs(p - round(p)) < 1e-9:  # a sum of weights may miss 1
        p = float(round(p))
    square = float((units.count * influence**2).sum())
    freedom = max(units.weighted_tasks - 1, 1.0)
    if units.clustered:  # the jackknife's error
        square *= units.factor
        freedom = units.freedom
    # without variance the sample size is the effective number of units
    n = units.effective if is_certain else p * (1 - p) / square
    if not units.clustered:
        n = min(n, units.effective)
    quantile = student.ppf((1 + level) / 2, freedom)
    low, high = wilson(p, n, float(quantile))
    hits = p * n
    misses = (1 - p) * n
    if 0 < hits <= _FEW:
        low = min(low, float(chi2.ppf(1 - level, 2 * hits)) / 2 / n)
    if 0 < misses <= _FEW:
        high = max(high, 1 - float(chi2.ppf(1 - level, 2 * misses)) / 2 / n)
    return low, high


def wilson(p: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's interval of a share p of n tasks at the quantile z.

    The source is doi:10.1080/01621459.1927.10502953.
    """
    center = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return (center - half) / scale, (center + half) / scale


def redraws(count: IntArray, n_resamples: int, seed: int) -> Iterator[FloatArray]:
    """Yield blocks (b, u) of the number of draws of u entries with ``count`` (u,) equal units."""
    rng = np.random.default_rng(seed)
    u = len(count)
    n = int(count.sum())
    step = max(1, _CELLS // max(u, n))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        if n == u:
            cells = rng.integers(0, u, (size, u)) + u * np.arange(size)[:, None]
            yield np.bincount(cells.ravel(), minlength=size * u).reshape(size, u).astype(np.float64)
        else:
            yield rng.multinomial(n, count / n, size=size).astype(np.float64)


def studentized_interval(
    units: Units, level: float, n_resamples: int, seed: int
) -> tuple[float, float, float]:
    """Standard error and ends of the bootstrap-t interval of a mean M: M - q se.

    q are the quantiles of (M* - M) / se*.
    """
    # Efron and Tibshirani 1993, section 12.5 (doi:10.1201/9780429246593)
    mean = float(units.mean[0])
    weight = units.weight
    centered = units.sums[:, 0] - weight * mean
    columns = np.stack([weight, centered, weight**2, weight * centered, centered**2], 1)

    error = float(_ratio_and_error(columns, units.count[None].astype(np.float64), units.size)[1][0])
    if error == 0:
        return 0.0, mean, mean
    draws = redraws(units.count, n_resamples, seed)
    ratios = np.concatenate([_ratio_and_error(columns, one, units.size)[0] for one in draws])
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], method="nearest").tolist()
    return error, mean - high * error, mean - low * error


def _ratio_and_error(
    columns: FloatArray, draws: FloatArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """Studentized means and standard errors of resamples (draws, units) of columns (units, 5)."""
    total, first, ww, wc, cc = (draws @ columns).T
    moved = first / total
    square = cc - 2 * moved * wc + moved**2 * ww
    error = np.sqrt(np.maximum(square, 0) * size / (size - 1)) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(moved / error, nan=0.0, posinf=np.inf, neginf=-np.inf), error


def student_interval(
    value: float, error: float, freedom: float, level: float
) -> tuple[float, float]:
    """Student's interval of a value with a standard error."""
    half = float(student.ppf((1 + level) / 2, freedom)) * error
    return value - half, value + half


def bisected(refuted: Callable[[float], bool], out: float, inside: float, steps: int) -> float:
    """Return the refuted value nearest to one ``inside`` an interval by bisection, or ``out``."""
    for _ in range(steps):
        middle = (out + inside) / 2
        out, inside = (middle, inside) if refuted(middle) else (out, middle)
    return out


def percentiles(values: FloatArray, level: float) -> tuple[float, float]:
    """Ends of the percentile interval, from values (resamples,) on resamples."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return low, high


def percentile_effective_tasks(
    definition: RankDefinition, sample: RankSample, clusters: Clusters | None
) -> float:
    """Effective number of tasks or clusters of a metric without a formula; of quantiles all."""
    # the bootstrap is inconsistent (Bickel and Freedman 1981, doi:10.1214/aos/1176345637)
    if definition.is_extreme:
        raise ValueError(
            f"{shorten(definition.name)} has no interval, because a sample contains no ranks "
            "beyond its extreme. Use a finite power mean such as 'power_mean_rank_4', a share "
            "such as 'hits_at_100', or 'median_rank'"
        )
    x = apply_transform(
        definition.f, sample.rank("realistic"), num_candidates=sample.num_candidates
    )
    if definition.aggregation == "variance":
        x = (x - weighted_mean(x, sample.mass)) ** 2
    units = units_of(x, sample.weight, sample.count, clusters)
    units.require_two()
    is_quantile = definition.aggregation in ("median", "mad")
    return float(units.size) if is_quantile else units.effective_tasks(units.influence[:, 0])


def replicate_values(
    definition: RankDefinition,
    samples: Sequence[RankSample],
    rank_type: RankType,
    n_resamples: int,
    seed: int,
    clusters: Clusters | None = None,
) -> FloatArray:
    """Values of any metric on resampled tasks or clusters, (samples, resamples) float64."""
    if clusters is None and len(samples) == 1 and not definition.uses_candidates:
        samples = [samples[0].tie_blocks]
    count = samples[0].count
    unit, drawn = _units_to_draw(count, clusters)
    times = count // drawn[unit]
    numbers = itertools.chain.from_iterable(redraws(drawn, n_resamples, seed))
    if rank_type == "expected":
        found = [
            _expected(definition, samples, number[unit].astype(np.int64) * times)
            for number in numbers
        ]
        return np.array(found).T

    mass = samples[0].weight * times
    columns = [_sorted_entries(definition, one, rank_type, unit, mass) for one in samples]
    found = [_aggregates(definition, columns, number) for number in numbers]
    return np.stack([apply_transform(definition.g, one, "g") for one in np.array(found).T])


def _units_to_draw(count: IntArray, clusters: Clusters | None) -> tuple[IntArray, IntArray]:
    """Unit of each entry (m,), and the number of equal units (u,); without clusters each task."""
    if clusters is None:
        return np.arange(len(count)), count
    return clusters.units(count)


def _sorted_entries(
    definition: RankDefinition,
    sample: RankSample,
    rank_type: RankType,
    unit: IntArray,
    mass: FloatArray,
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Entries (f, unit, mass), sorted by f once instead of in each median."""
    N = sample.known_candidates if definition.uses_candidates else None
    x = apply_transform(definition.f, sample.rank(rank_type), num_candidates=N)
    order = np.argsort(x)
    return x[order], unit[order], mass[order]


def _aggregates(
    definition: RankDefinition,
    columns: Sequence[tuple[FloatArray, IntArray, FloatArray]],
    number: FloatArray,
) -> list[float]:
    """Aggregate f of each sample, of entries (f, unit, mass), with the draws of each unit."""
    return [float(aggregate(definition, x, mass * number[unit])) for x, unit, mass in columns]


def _expected(
    definition: RankDefinition, samples: Sequence[RankSample], count: IntArray
) -> list[float]:
    """Expected values over tie orders of samples, with other numbers of tasks in their entries."""
    N = samples[0].known_candidates if definition.uses_candidates else None
    weight = samples[0].weight * (count > 0)
    redrawn = [RankSample(one.optimistic, one.pessimistic, N, weight, count) for one in samples]
    return [definition.value(one, "expected") for one in redrawn]
