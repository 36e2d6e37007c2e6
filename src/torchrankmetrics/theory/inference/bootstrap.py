"""Bootstrap over independent units: studentised for means of f, by percentiles for all else."""

from collections.abc import Iterator

import numpy as np

from torchrankmetrics.theory.aggregation import weighted_mean
from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.units import Units, effective_tasks_of, units_of
from torchrankmetrics.theory.sample import RankSample, RankType, TieBlocks
from torchrankmetrics.theory.transforms import apply_transform
from torchrankmetrics.theory.values import base_value

_CELLS = 1 << 22


def redraws(count: IntArray, n_resamples: int, seed: int) -> Iterator[FloatArray]:
    """Draw as many units as there are, with replacement.

    Args:
        count: (u,) int64, how many equal units an entry stands for.
        n_resamples: how many draws.
        seed: of the draws.

    Yields:
        blocks (b, u) float64 of how often each entry came, ``n_resamples`` rows in all.
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
    """Standard error and ends of the bootstrap-t interval of a weighted mean.

    The ends are M - q se with q the quantiles of (M* - M) / se*, se by linearisation in the sample and in each
    resample: right to second order, which long-tailed ranks need.

    Args:
        units: f over tasks or clusters (k = 1).
        level: of confidence, in (0, 1).
        n_resamples: number of bootstrap samples.
        seed: of the bootstrap.

    Raises:
        ValueError: if there are fewer than two units.

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
    """Number of tasks or clusters that the error of a metric without a formula rests on, see ``effective_tasks_of``.

    Quantiles know no outliers: all tasks or clusters support them.

    Raises:
        ValueError: if there are fewer than two tasks or clusters, or the metric is an extreme: no resample goes beyond
            the sample, so that no number of tasks makes its interval right.

    Source: Bickel and Freedman 1981 (doi:10.1214/aos/1176345637), on extremes.
    """
    if definition.is_extreme:
        raise ValueError(
            f"{definition.name!r} has no interval: the extreme of a sample says nothing of ranks beyond it. Ask for a "
            "finite power mean such as 'power_mean_rank_4', a share such as 'hits_at_100', or 'median_rank'"
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
    sample: RankSample,
    rank_type: RankType,
    n_resamples: int,
    seed: int,
    cluster: IntArray | None = None,
) -> FloatArray:
    """Values of any metric on resampled tasks or clusters, (resamples,) float64.

    Args:
        definition: the metric.
        sample: the ranks.
        rank_type: of the metric.
        n_resamples: number of bootstrap samples.
        seed: of the bootstrap.
        cluster: (m,) int64 keys, one per entry of the sample; None: every task is drawn by itself.

    Raises:
        ValueError: if the rank type is not defined for the metric.
    """
    N = sample.known_candidates if definition.uses_candidates else None
    if cluster is None:  # equal tasks need no telling apart
        entries: TieBlocks | RankSample = sample.tie_blocks if N is None else sample
        drawn, unit, times = entries.count, np.arange(len(entries.count)), np.ones_like(entries.count)
    else:
        entries, times = sample, sample.count
        key, unit = np.unique(cluster, return_inverse=True)
        drawn = np.ones(len(key), dtype=np.int64)
    low, high, weight = entries.optimistic, entries.pessimistic, entries.weight
    values = []
    for draws in redraws(drawn, n_resamples, seed):
        for row in draws.astype(np.int64):
            count = row[unit] * times
            kept = count > 0
            redrawn = RankSample(low[kept], high[kept], None if N is None else N[kept], weight[kept], count[kept])
            values.append(base_value(definition, redrawn, rank_type))
    return np.array(values)
