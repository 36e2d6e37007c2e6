"""Tests of paired shares, of several training runs, and against random ranking; Holm's."""

from __future__ import annotations  # help() shows the names of types

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from torchrankmetrics.definitions.sample import FloatArray, RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import (
    Transform,
    apply_transform,
    as_transform,
    transform_slopes,
)
from torchrankmetrics.inference.clusters import Cluster, Clusters
from torchrankmetrics.inference.pairing import Evaluation, check_evaluation, paired_rows
from torchrankmetrics.inference.standard_errors import Units, bisected, student_interval, units_of
from torchrankmetrics.metrics.analysis import sample_of
from torchrankmetrics.metrics.names import MetricLike, as_measure
from torchrankmetrics.table.columns import Rows, used
from torchrankmetrics.validation import shorten


def share_difference(
    only_a: float, only_b: float, num_tasks: float, level: float
) -> tuple[float, float]:
    """Interval of the difference of two paired shares: the wider of two methods.

    One is Tango's, the other Clopper and Pearson's of the discordant tasks.
    """
    # Tango 1998, Statist. Med. 17; Clopper and Pearson's agrees with McNemar's exact p
    score = tango(only_a, only_b, num_tasks, level)
    discordant = only_a + only_b
    low, high = clopper_pearson(only_a, discordant, level) if discordant else (0.5, 0.5)
    low, high = ((2 * end - 1) * discordant / num_tasks for end in (low, high))
    return min(score[0], low), max(score[1], high)


def share_difference_p_value(only_a: float, only_b: float, num_tasks: float, null: float) -> float:
    """Two-sided p of a difference ``null`` of paired shares: McNemar's, or Tango's if larger."""
    score = 2 * float(stats.norm.sf(_score(only_a, only_b, num_tasks, null)))
    discordant = only_a + only_b
    if discordant == 0:
        return max(score, 1.0 if null == 0 else 0.0)
    share = (null * num_tasks / discordant + 1) / 2
    # tails of the beta distributions whose quantiles are the ends of Clopper and Pearson's interval
    upper = float(stats.beta.cdf(share, only_a, only_b + 1)) if only_a > 0 else float(share >= 0)
    lower = float(stats.beta.sf(share, only_a + 1, only_b)) if only_b > 0 else float(share <= 1)
    return min(max(score, 2 * min(upper, lower)), 1.0)


def clopper_pearson(hits: float, size: float, level: float) -> tuple[float, float]:
    """Exact interval of a share: each end has a tail probability of (1 - level) / 2."""
    tail = (1 - level) / 2
    low = float(stats.beta.ppf(tail, hits, size - hits + 1)) if hits > 0 else 0.0
    return low, float(stats.beta.ppf(1 - tail, hits + 1, size - hits)) if hits < size else 1.0


def tango(only_a: float, only_b: float, n: float, level: float) -> tuple[float, float]:
    """Tango's score interval of the difference of two paired shares."""
    z = float(stats.norm.ppf((1 + level) / 2))
    start = (only_a - only_b) / n

    def is_rejected(delta: float) -> bool:
        return _score(only_a, only_b, n, delta) > z

    return bisected(is_rejected, -1.0, start, 50), bisected(is_rejected, 1.0, start, 50)


def _score(only_a: float, only_b: float, n: float, delta: float) -> float:
    """Absolute value of Tango's score statistic for the difference delta."""
    # q: maximum-likelihood share of tasks that only B hits, given the difference delta
    b = (2 * n - only_a + only_b) * delta - only_a - only_b
    q = (math.sqrt(max(b * b + 8 * n * only_b * delta * (1 - delta), 0.0)) - b) / (4 * n)
    variance = n * (2 * q + delta - delta * delta)
    gap = n * abs((only_a - only_b) / n - delta)
    if variance > 0:
        return gap / math.sqrt(variance)
    return math.inf if gap > 0 else 0.0


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Adjust p-values for multiple testing by Holm's step-down method.

    It controls the family-wise error rate.

    Args:
        p_values (array-like): of any shape, in [0, 1], one family; NaN is not tested and not
            counted.

    Returns:
        float64 of the same shape.

    Source: Holm 1979 (https://www.jstor.org/stable/4615733).

    >>> from torchrankmetrics.inference import holm
    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(given)
    p = given[tested]
    if (wrong := (p < 0) | (p > 1)).any():
        raise ValueError(f"p_values must be in [0, 1], got {p[wrong][0]}")
    order = np.argsort(p, kind="stable")
    adjusted = given.copy()
    stepped = np.empty_like(p)
    stepped[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    adjusted[tested] = stepped
    return adjusted


@dataclass(frozen=True)
class SeedSplit:
    """Components of the variance of a model's mean value, or of a difference of two models."""

    seeds: float  # between training seeds
    tasks: float  # between ranking tasks
    interaction: float  # of single runs on single tasks; more seeds or more tasks decrease it
    num_seeds: tuple[int, ...]  # number of runs of each model

    def scaled(self, slope: float) -> SeedSplit:
        """The variances of a value times ``slope``."""
        square = slope**2
        return SeedSplit(
            self.seeds * square, self.tasks * square, self.interaction * square, self.num_seeds
        )

    @property
    def total(self) -> float:
        """Variance of the value or the difference."""
        return self.seeds + self.tasks + self.interaction

    @property
    def seed_share(self) -> float:
        """Share of the variance between seeds, in [0, 1]; NaN without any variance."""
        return self.seeds / self.total if self.total > 0 else math.nan


class SeededEstimate(NamedTuple):
    """A value or a difference over seeds and tasks with its interval and its degrees of freedom."""

    value: float
    standard_error: float
    freedom: float
    low: float
    high: float
    split: SeedSplit
    rounding: float  # an error up to this counts as zero
    least: float  # then p is at least this, the smallest p of a sign-flip test

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of the hypothesis that the value is ``null``, by Student's t."""
        if self.standard_error <= self.rounding:
            return 1.0 if abs(self.value - null) <= self.rounding else self.least
        return float(2 * stats.t.sf(abs(self.value - null) / self.standard_error, self.freedom))


class SeededModels:
    """Means over the runs of models on the same tasks, with variances from seeds and tasks.

    Moments of the two-way layout seeds x tasks (doi:10.1214/07-AOAS122), Student's t with
    Welch-Satterthwaite degrees of freedom. ``units`` has a column per run, the ``sizes`` runs of
    each model next to each other.
    """

    def __init__(self, units: Units, sizes: tuple[int, ...], g: Transform) -> None:
        self.units = units
        self.sizes = sizes
        values = apply_transform(g, units.mean, "g")
        influence = units.influence * transform_slopes(g, units.mean)
        value = []
        means = []
        self.between = []
        self.interaction = []
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            model = slice(end - size, end)
            value.append(float(values[model].mean()))
            means.append(influence[:, model].mean(1))
            own = influence[:, model] - means[-1][:, None]
            squares = float((units.count * (own**2).sum(1)).sum())
            degrees = max(size - 1, 1)  # both components of a single run are 0
            self.between.append(float(values[model].var(ddof=min(size - 1, 1))) / size)
            self.interaction.append(units.factor * squares / degrees / size)
        self.value: FloatArray = np.array(value)
        self.influence = np.stack(means, 1)

    def estimate(self, level: float, *models: int) -> SeededEstimate:
        """Value of one model, or difference of two; the interval is for new seeds and new tasks.

        If either of two has a single run, only tasks are regarded as random.
        """
        value = float(np.subtract.reduce(self.value[list(models)]))
        split = self._split(models)
        error = math.sqrt(split.total)
        rounding = 1e-12 * max(abs(float(self.value[i])) for i in models)
        least = max(2.0 ** (1 - self.units.size), sys.float_info.min)
        if error <= rounding:
            value = value if abs(value) > rounding else 0.0
            half = math.inf if value and len(models) > 1 and least > 1 - level else 0.0
            none = SeedSplit(0.0, 0.0, 0.0, split.num_seeds)
            return SeededEstimate(
                value, 0.0, math.inf, value - half, value + half, none, rounding, least
            )
        known = models if min(split.num_seeds) > 1 else ()
        parts = [(self.between[i], self.sizes[i] - 1) for i in known]
        parts.append((split.tasks, self.units.size - 1))
        freedom = _satterthwaite(parts)
        ends = student_interval(value, error, freedom, level)
        return SeededEstimate(value, error, freedom, *ends, split, rounding, least)

    def _split(self, models: Sequence[int]) -> SeedSplit:
        """Variance of a value or difference by its sources: seeds, tasks and their interaction."""
        influence = np.subtract.reduce(self.influence.T[list(models)])
        sizes = tuple(self.sizes[i] for i in models)
        known = models if min(sizes) > 1 else ()
        of_tasks = self.units.factor * float((self.units.count * influence**2).sum())
        interaction = sum(self.interaction[i] for i in known)
        # the variance between runs and the variance between tasks both contain the interaction once
        seeds = sum(max(self.between[i] - self.interaction[i], 0.0) for i in known)
        return SeedSplit(seeds, max(of_tasks - interaction, 0.0), interaction, sizes)


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of variances, each with its own; the last is of the tasks."""
    squares = sum(variance**2 / freedom for variance, freedom in parts)
    # without variance between runs and between tasks only the interaction remains
    if not squares > 0:
        return float(parts[-1][1])
    return sum(variance for variance, _ in parts) ** 2 / squares


def clustered_p_value(
    evaluation: Evaluation,
    metric: MetricLike = "mrr",
    *,
    cluster: Cluster,
    second_cluster: Cluster | None = None,
) -> float:
    """Test whether a model is better than random ranking, for dependent tasks in clusters.

    One-sided: Student's t of the mean of f of pessimistic ranks minus its mean under random
    ranking, with a cluster-robust variance (for two kinds of clusters Cameron, Gelbach and Miller
    2011, doi:10.1198/jbes.2010.07136). Tasks of one cluster may depend in any way. With few
    clusters, or unequal ones, the test rejects too often.

    Args:
        evaluation (Ranks, RankTable or RankCollection): ranks of the model.
        metric (str, RankDefinition or RankMetric, default "mrr"): a function of a mean of f that
            has a direction.
        cluster (str or integers): "group", "sample_id" or int64 keys aligned with the tasks, as in
            ``compare``.
        second_cluster (str or integers, default None): second keys (for example queries and
            targets); tasks that share either key may depend.

    Returns:
        The p-value, a float in (0, 1].

    Raises:
        TypeError, ValueError: for other metrics, invalid keys, and fewer than two clusters.

    >>> from torchrankmetrics.inference import clustered_p_value
    >>> from torchrankmetrics import Ranks
    >>> ranks = Ranks([1, 2, 1, 3, 2, 2], None, 9)
    >>> round(clustered_p_value(ranks, "mrr", cluster=[0, 0, 1, 1, 2, 2]), 4)
    0.0238
    """
    measure = as_measure(metric)
    definition = measure.definition.of_tasks
    if definition is None or not definition.has_p_value or not definition.is_function_of_mean():
        raise ValueError(
            "metric must be a function of a mean over tasks with a direction, got "
            f"{shorten(measure.key)}"
        )
    check_evaluation(evaluation, "evaluation")
    kinds = _kinds(cluster, second_cluster)
    rows, clusters = _clusters_of_kinds(evaluation, kinds)
    measured = np.flatnonzero(used(rows, measure.side, definition.min_candidates))
    sample = sample_of(rows[measured], measure.average)
    centered, direction = _centered(definition, sample)
    units = [
        units_of(centered, sample.weight, sample.count, one.take(measured)) for one in clusters
    ]
    return _student_p_value(units, direction, len(kinds))


def _student_p_value(units: Sequence[Units], direction: float, num_kinds: int) -> float:
    """One-sided p-value of a mean of 0, with the variance of units of each kind of clusters."""
    variance = _clustered_variance([float(one.covariance[0, 0]) for one in units])
    if variance <= 0:
        return 1.0
    statistic = direction * float(units[0].mean[0]) / math.sqrt(variance)
    p_value = stats.t.sf(statistic, min(one.freedom for one in units[:num_kinds]))
    return max(float(p_value), math.ulp(0.0))


def _kinds(cluster: Cluster, second_cluster: Cluster | None) -> list[Cluster]:
    """One or two kinds of clusters, checked."""
    kinds = [cluster] if second_cluster is None else [cluster, second_cluster]
    for kind in kinds:
        if kind is None or (isinstance(kind, str) and kind not in ("group", "sample_id")):
            raise ValueError(
                f"cluster must be 'group', 'sample_id' or integers, got {shorten(kind)}"
            )
    return kinds


def _clustered_variance(variances: list[float]) -> float:
    """Variance for one kind of clusters, or by inclusion-exclusion for two and intersections."""
    first, *others = variances
    if not others:
        return first
    return max(first, first + others[0] - others[1])


def _clusters_of_kinds(
    evaluation: Evaluation, kinds: Sequence[Cluster]
) -> tuple[Rows, list[Clusters]]:
    """Rows of an evaluation with their clusters of each kind, and of two kinds intersections."""
    found = [paired_rows([evaluation], ["evaluation"], kind) for kind in kinds]
    rows = found[0][0][0]
    clusters = [one for _, one in found if one is not None]
    if len(clusters) == 2:
        keys = np.stack([one.key for one in clusters], 1)
        both = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        clusters.append(clusters[0]._replace(key=both))
    return rows, clusters


def _centered(definition: RankDefinition, sample: RankSample) -> tuple[FloatArray, float]:
    """Center f of each entry (m,) at its null mean; and 1.0 if f is largest at rank 1, or -1.0."""
    number, index = np.unique(sample.known_candidates, return_inverse=True)
    most = number.max()
    first, last = apply_transform(
        definition.f, np.array([1.0, float(most)]), num_candidates=np.full(2, most)
    )
    means = as_transform(definition.f).null_moments(number)[0]
    direction = 1.0 if first >= last else -1.0
    return definition.unit_values(sample, "pessimistic") - means[index], direction
