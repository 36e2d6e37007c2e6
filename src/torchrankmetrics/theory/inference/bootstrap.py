"""Bootstrap over independent units: studentised for means of f and their differences, by percentiles for the rest."""

from collections.abc import Callable, Iterator

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.units import Units
from torchrankmetrics.theory.sample import RankSample, RankType, TieBlocks
from torchrankmetrics.theory.values import base_value

# k means of f in each of b resamples (b, k) -> metric (b,) and its slopes (b, k)
SmoothFunction = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
_CELLS = 1 << 22


def redraws(count: IntArray, resamples: int, seed: int) -> Iterator[FloatArray]:
    """Draw as many units as there are, with replacement.

    Args:
        count: (u,) int64, how many equal units an entry stands for.
        resamples: how many draws.
        seed: of the draws.

    Yields:
        blocks (b, u) float64 of how often each entry came, ``resamples`` rows in all.
    """
    rng = np.random.default_rng(seed)
    u, n = len(count), int(count.sum())
    step = max(1, _CELLS // max(u, n))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        if n == u:
            cells = rng.integers(0, u, (size, u)) + u * np.arange(size)[:, None]
            yield np.bincount(cells.ravel(), minlength=size * u).reshape(size, u).astype(np.float64)
        else:
            yield rng.multinomial(n, count / n, size=size).astype(np.float64)


def studentised_interval(
    units: Units, smooth: SmoothFunction, level: float, resamples: int, seed: int
) -> tuple[float, float, float]:
    """Standard error and ends of the bootstrap-t interval of a smooth function of k weighted means.

    The ends are theta - q se with q the quantiles of (theta* - theta) / se*, se by the delta method in the sample and
    in each resample: right to second order, which long-tailed ranks need.

    Args:
        units: f over tasks or clusters.
        smooth: the metric and its slopes as a function of the k means.
        level: of confidence, in (0, 1).
        resamples: number of bootstrap samples.
        seed: of the bootstrap.

    Raises:
        ValueError: if there are fewer than two units.

    Source: Efron and Tibshirani 1993, section 12.5 (doi:10.1201/9780429246593).
    """
    units.require_two()
    centered = units.sums - units.weight[:, None] * units.mean
    z = np.column_stack([units.weight, centered])
    k = z.shape[1]
    products = (z[:, :, None] * z[:, None, :]).reshape(len(z), k * k)

    def value_and_error(draws: FloatArray) -> tuple[FloatArray, FloatArray]:
        sums = draws @ z
        moved = sums[:, 1:] / sums[:, :1]
        value, slope = smooth(units.mean + moved)
        line = np.column_stack([-(slope * moved).sum(1), slope])
        square = np.einsum("bi,bij,bj->b", line, (draws @ products).reshape(-1, k, k), line)
        return value, np.sqrt(np.maximum(square, 0) * units.size / (units.size - 1)) / sums[:, 0]

    theta, error = (float(x[0]) for x in value_and_error(units.count[None].astype(np.float64)))
    if error == 0:
        return 0.0, theta, theta
    ratios = []
    for draws in redraws(units.count, resamples, seed):
        value, spread = value_and_error(draws)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(np.nan_to_num((value - theta) / spread, nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = np.quantile(np.concatenate(ratios), [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return error, theta - float(high) * error, theta - float(low) * error


def percentile_interval(replicates: FloatArray, level: float) -> tuple[float, float, float]:
    """Standard error and ends of the percentile interval, from values (resamples,) of a metric on resamples."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(replicates.std(ddof=1)), float(low), float(high)


def mean_replicates(units: Units, resamples: int, seed: int) -> FloatArray:
    """Weighted means of resampled units, (resamples, k) float64."""
    draws = redraws(units.count, resamples, seed)
    return np.concatenate([block @ units.sums / (block @ units.weight)[:, None] for block in draws])


def replicate_values(
    definition: RankDefinition,
    sample: RankSample,
    rank_type: RankType,
    resamples: int,
    seed: int,
    cluster: IntArray | None = None,
) -> FloatArray:
    """Values of any metric on resampled tasks or clusters, (resamples,) float64.

    Args:
        definition: the metric.
        sample: the ranks.
        rank_type: of the metric.
        resamples: number of bootstrap samples.
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
    for draws in redraws(drawn, resamples, seed):
        for row in draws.astype(np.int64):
            count = row[unit] * times
            kept = count > 0
            redrawn = RankSample(low[kept], high[kept], None if N is None else N[kept], weight[kept], count[kept])
            values.append(base_value(definition, redrawn, rank_type))
    return np.array(values)
