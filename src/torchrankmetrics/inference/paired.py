"""Paired differences of two models: tests and the intervals that invert them."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import IDENTITY, Transform, apply_transform, known, transform_slopes
from torchrankmetrics.inference.comparison import Comparison
from torchrankmetrics.inference.pairing import paired_source
from torchrankmetrics.inference.standard_errors import (
    percentile_effective_tasks,
    percentile_interval,
    replicate_values,
)
from torchrankmetrics.inference.testing import sign_flips
from torchrankmetrics.inference.units import Units, effective_tasks_of, units_of
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.views import apply_view, view_slope
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.inference.seeds import SeededEstimate, SeedSplit

_ROUNDING = 1e-12  # of a confidence level
Draws = tuple[int, int, int]
"""Bootstrap resamples of metrics that are not a function of a mean, flips of the sign-flip test, random seed."""


@dataclass(frozen=True)
class Difference:
    """Interval and test of the difference of two base values.

    Attributes:
        low, high: ends of the interval; it contains 0 exactly if p is above 1 - level.
        p_value: of the hypothesis of no difference; None without a test.
        test: name of the test.
        permutations: number of random flips; None if the p-value is exact.
        effective_tasks: see ``effective_tasks_of``; infinite if the method does not depend on it.
        bounded: False if the test rejects no difference on one side; that end is the limit of possible values.
        seeds: variance components, with several runs.
    """

    low: float
    high: float
    p_value: float | None
    test: str
    permutations: int | None = None
    effective_tasks: float = math.inf
    bounded: bool = True
    seeds: "SeedSplit | None" = None


class SignFlipTest:
    """Sign-flip test of g(mean of A) - g(mean of B), with the interval that inverts it.

    A difference is tested at the means (a, b) = (A - t, B + t) that have it, by flips of the signs of
    g'(a) (f^A - a) - g'(b) (f^B - b), which are linear in sums that are flipped once. At a = b these are differences
    f^A - f^B, and the test is that of ``sign_flips``.

    Args:
        units: f of A and of B over tasks or clusters (k = 2).
        differences: (u,) float64, w (f^A - f^B) summed over every unit.
        g: post-transform of the metric.
        limits: smallest and largest possible mean of f.
        permutations: number of random flips.
        seed: random seed of the flips.

    Raises:
        ValueError: if there are fewer than two units, or torch cannot differentiate g.
    """

    def __init__(
        self,
        units: Units,
        differences: FloatArray,
        g: Transform,
        limits: tuple[float, float],
        permutations: int,
        seed: int,
    ) -> None:
        units.require_two()
        self.units, self.g, self.limits, self.permutations = units, g, limits, permutations
        self._straight = known(g).is_identity
        self.means = float(units.mean[0]), float(units.mean[1])
        # if g is the identity the second column is not used
        centered = np.zeros_like(differences) if self._straight else units.sums[:, 1] - units.weight * units.mean[1]
        columns = np.repeat(np.stack([differences, centered, units.weight], 1), units.count, axis=0)
        self.flips = sign_flips(columns, permutations, seed)

    def difference(self, level: float) -> Difference:
        """Test the hypothesis of no difference, and invert the test at a confidence level."""
        p_value = self.flips.p_value(np.eye(3)[0])
        alpha = 1 - level + _ROUNDING  # p = 1 - level is rejected, whatever its rounding
        (one, first), (other, second) = (self._end(direction, alpha, p_value <= alpha) for direction in (1.0, -1.0))
        low, high = min(one, other), max(one, other)
        if p_value > alpha:  # an end may be 0 up to rounding
            slack = 1e-12 * (high - low) if high - low < math.inf else 0.0
            low, high = low if low < -slack else 0.0, high if high > slack else 0.0
        influence = self.units.influence @ self._slopes(*self.means)
        scale = float(np.abs(self.units.sums).max()) / self.units.total
        varies = np.abs(influence).max() > 1e-13 * scale
        effective_tasks = effective_tasks_of(influence, self.units.count) if varies else 0.0
        drawn = None if self.flips.exhaustive else self.permutations
        return Difference(low, high, p_value, "sign-flip permutation", drawn, effective_tasks, first & second)

    def p_value(self, null: float) -> float:
        """Two-sided p-value of the hypothesis that the difference is ``null``, in units of the metric.

        A ``null`` beyond the possible values is tested as the nearest possible one, so that p is not too small.
        """
        t = (self.means[0] - self.means[1] - null) / 2
        if not self._straight:
            reach = self.limits[1] - self.limits[0]

            def gap(t: float) -> float:
                ga, gb = apply_transform(self.g, np.array(self._pair(t)), "g").tolist()
                return float(ga - gb - null)

            ends = gap(-reach), gap(reach)
            if ends[0] * ends[1] > 0:  # not possible: the nearer end
                t = math.copysign(reach, abs(ends[0]) - abs(ends[1]))
            else:
                t = float(brentq(gap, -reach, reach, xtol=1e-300, rtol=1e-14))
        slopes = self._slopes(*self._pair(t))
        moved = t * float(slopes[0] - slopes[1]) - slopes[0] * (self.means[0] - self.means[1])
        return self.flips.p_value(np.array([slopes[0], slopes.sum(), moved]))

    def _end(self, direction: float, alpha: float, differs: bool) -> tuple[float, bool]:
        """Value of g(a) - g(b) furthest from the observed one that is not rejected, for one sign of t; is it bounded.

        If the hypothesis of no difference is rejected (``differs``), the end is on the side of the observed value:
        further out, where slopes of g become large, a test of few tasks may not reject again.
        """

        def beyond(t: float) -> float:
            """Distance by which the end is beyond t, with the slopes at t."""
            slopes = self._slopes(*self._pair(direction * t))
            # the mean of g'(a) (f^A - a) - g'(b) (f^B - b), without t
            line = np.array([slopes[0], slopes.sum(), -slopes[0] * (self.means[0] - self.means[1])])
            return self.flips.furthest(line, direction * float(slopes[0] - slopes[1]), alpha) - t

        t = beyond(0.0)
        equal = direction * (self.means[0] - self.means[1]) / 2
        if not self._straight and differs and equal > 0:
            t = float(brentq(lambda t: min(beyond(t), equal), 0.0, equal, xtol=1e-300, rtol=1e-11))
        elif not self._straight and 0 < t < math.inf:
            inside, gap = 0.0, beyond(t)
            while 0 < gap < math.inf:
                inside, t = t, 2 * t
                gap = beyond(t)
            t = math.inf if gap > 0 else float(brentq(beyond, inside, t, xtol=1e-300, rtol=1e-11))
        if self._straight:
            low, high = self.limits
            end = self.means[0] - self.means[1] - 2 * direction * t
            return min(max(end, low - high), high - low), t < math.inf
        ga, gb = apply_transform(self.g, np.array(self._pair(direction * t)), "g").tolist()
        return ga - gb, t < math.inf

    def _slopes(self, a: float, b: float) -> FloatArray:
        """Slopes of g(a) - g(b) in a and in b, (2,) float64."""
        signs = np.array([1.0, -1.0])
        return signs if self._straight else signs * transform_slopes(self.g, np.array([a, b]))

    def _pair(self, t: float) -> tuple[float, float]:
        (a, b), (low, high) = self.means, self.limits
        return min(max(a - t, low), high), min(max(b + t, low), high)


class PairedMeasure:
    """A measure of two models, or of several runs of each, on the same tasks.

    Args:
        measure: the compared measure.
        rows_a, rows_b: of every run of each model, in one order of tasks.
        keys: cluster of each task; None: every task is independent.
        draws: random draws of the tests, the same for each.

    Attributes:
        used: (m,) int64, index of a row of each measured task or query.
        a, b: values of the two models in the view of the measure; of several runs their mean.
        slope: derivative of the view by the base value.
        num_tasks: number of ranking tasks on which both were measured.

    Raises:
        ValueError: without tasks on the side of the measure.
    """

    def __init__(
        self,
        measure: Measure,
        rows_a: list[Rows],
        rows_b: list[Rows],
        keys: IntArray | None,
        draws: Draws = (2000, 9999, 0),
    ) -> None:
        self.measure, self.definition, self.rank_type = measure, measure.definition, measure.rank_type
        self.samples, self.used = self.definition.sample(
            paired_source([*rows_a, *rows_b]), measure.side, measure.average
        )
        if not len(self.used):
            side = "" if measure.side == "both" else f" of side {measure.side!r}"
            raise ValueError(f"no tasks{side} to compare {shorten(self.definition.name)} on")
        self.draws = draws
        self.num_a, self.keys = len(rows_a), None if keys is None else keys[self.used]
        self.num_tasks = self.samples[0].num_tasks
        values = [self.definition.value(sample, self.rank_type) for sample in self.samples]
        self.slope = 1.0
        if measure.view != "base":
            moments = measure.moments(self.samples[0])
            values = [apply_view(self.definition, measure.view, value, moments) for value in values]
            self.slope = view_slope(self.definition, measure.view, moments)
        self.a, self.b = float(np.mean(values[: self.num_a])), float(np.mean(values[self.num_a :]))

    def comparison(self, level: float) -> Comparison:
        """Compare the two models at a confidence level, in the view of the measure.

        Raises:
            ValueError: for several runs of a metric that is not a function of a mean, and for fewer than two tasks or
                clusters.
        """
        found, slope, split = self._difference(level), self.slope, None
        if found.seeds is not None:
            parts = {part: getattr(found.seeds, part) * slope**2 for part in ("seeds", "tasks", "interaction")}
            split = replace(found.seeds, **parts)
        ends = found.low * slope, found.high * slope
        low, high = ends if math.isnan(slope) else sorted(ends)
        return Comparison(
            metric=self.measure.key,
            a=self.a,
            b=self.b,
            difference=self.a - self.b,
            low=low,
            high=high,
            confidence_level=level,
            p_value=found.p_value,
            p_adjusted=None,
            test=found.test,
            num_tasks=self.num_tasks,
            num_clusters=None if self.keys is None else self.units.size,
            effective_clusters=None if self.keys is None else self.units.effective,
            seeds=split,
            permutations=found.permutations,
            effective_tasks=found.effective_tasks,
            bounded=found.bounded,
        )

    def _difference(self, level: float) -> Difference:
        """Interval and test of the difference of the base values."""
        if not self.definition.is_function_of_mean(self.rank_type):
            effective_tasks = min(percentile_effective_tasks(*one, self.keys) for one in self._as_tasks)
            low, high = percentile_interval(self._replicates, level)[1:]
            return Difference(low, high, None, "bootstrap interval only", None, effective_tasks)
        if len(self.samples) > 2:
            found = self._seeded(level)
            bounded = math.isfinite(found.low)
            name, p_value = "t over seeds and tasks", found.p_value_of(0.0)
            return Difference(found.low, found.high, p_value, name, bounded=bounded, seeds=found.split)
        if self.definition.is_share:
            return self._share_difference(level)
        return self._sign_flips.difference(level)

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of the hypothesis that the difference is ``null``, in the view of the measure.

        The test is the one that ``comparison`` inverts, with the same errors.
        """
        null /= self.slope
        if not self.definition.is_function_of_mean(self.rank_type):
            values = self._replicates
            beyond = min(int((values <= null).sum()), int((values >= null).sum()))
            return min(2 * (1 + beyond) / (1 + len(values)), 1.0)
        if len(self.samples) > 2:
            return self._seeded(0.5).p_value_of(null)
        if not self.definition.is_share:
            return self._sign_flips.p_value(null)
        from torchrankmetrics.inference.shares import share_difference_p_value

        self.units.require_two()
        only_a, only_b, size, error = self._discordant
        p_value = share_difference_p_value(only_a, only_b, size, null)
        return p_value if error is None else max(p_value, self._sign_flips.p_value(null))

    def _share_difference(self, level: float) -> Difference:
        """Compare two shares of hits by ``share_difference``; if tasks are weighted or clustered, by sign flips too.

        A difference is rejected if both tests reject it: the interval is the wider of both, p the larger. Sign flips
        alone reject too often if few tasks or clusters are discordant.
        """
        from torchrankmetrics.inference.shares import share_difference, share_difference_p_value

        self.units.require_two()
        only_a, only_b, size, error = self._discordant
        # p = 1 - level is rejected, whatever its rounding
        low, high = share_difference(only_a, only_b, size, level - _ROUNDING)
        p_value = share_difference_p_value(only_a, only_b, size, 0.0)
        if error is None:
            return Difference(low, high, p_value, "exact McNemar")
        flipped = self._sign_flips.difference(level)
        assert flipped.p_value is not None
        return replace(
            flipped,
            low=min(low, flipped.low),
            high=max(high, flipped.high),
            p_value=max(p_value, flipped.p_value),
            effective_tasks=flipped.effective_tasks if self.units.clustered and error > 0 else math.inf,
        )

    @cached_property
    def values(self) -> FloatArray:
        """Values f of each task for each run, (m, runs)."""
        return np.stack([self.definition.unit_values(sample, self.rank_type) for sample in self.samples], 1)

    @cached_property
    def units(self) -> Units:
        """Tasks or clusters as independent units, with the sums of every run."""
        sample = self.samples[0]
        return units_of(self.values, sample.weight, sample.count, self.keys)

    @cached_property
    def flipped(self) -> FloatArray:
        """Terms of the sign-flip test: w (f^A - f^B) of every task or cluster."""
        values, sample = self.values, self.samples[0]
        d: FloatArray = sample.weight * (values[:, 0] - values[:, 1])
        if self.keys is None:
            return d
        _, index = np.unique(self.keys, return_inverse=True)
        return np.bincount(index, d * sample.count).astype(np.float64)

    @property
    def _discordant(self) -> tuple[float, float, float, float | None]:
        """Numbers of tasks that only A hits, that only B hits, and of all tasks; squared error of the difference.

        For weighted or clustered tasks these are the effective numbers; else the error is None.
        """
        units, differences = self.units, self.flipped
        if not units.clustered and np.ptp(units.weight) == 0 and not (units.sums / units.weight[:, None] % 1).any():
            only_a, only_b = (int(units.count[s * differences > 0].sum()) for s in (1, -1))
            return only_a, only_b, units.size, None
        # number of independent tasks of equal weight with the same standard error
        discordant = float((units.count * np.abs(differences)).sum()) / units.total
        difference = float(units.mean[0] - units.mean[1])
        error = float(np.array([1.0, -1.0]) @ units.covariance @ np.array([1.0, -1.0]))
        n = (discordant - difference**2) / error if error > 0 else units.effective
        n = min(max(n, 1.0), float(units.size)) if not units.clustered else max(n, 1.0)
        parts = ((discordant + difference) / 2 * n, (discordant - difference) / 2 * n)
        return max(parts[0], 0.0), max(parts[1], 0.0), n, error

    @cached_property
    def _sign_flips(self) -> SignFlipTest:
        _, permutations, seed = self.draws
        if self.definition.is_share:
            return SignFlipTest(self.units, self.flipped, IDENTITY, (0.0, 1.0), permutations, seed)
        limits = self.definition.mean_limits(self.samples[0])
        # g may be undefined outside of the observed values of f
        if not self.definition.is_mean_of_f and not np.isfinite(limits).all():
            limits = float(self.values.min()), float(self.values.max())
        return SignFlipTest(self.units, self.flipped, self.definition.g, limits, permutations, seed)

    def _seeded(self, level: float) -> "SeededEstimate":
        from torchrankmetrics.inference.seeds import SeededModels

        sizes = self.num_a, len(self.samples) - self.num_a
        return SeededModels(self.units, sizes, self.definition.g).difference(0, 1, level)

    @cached_property
    def _replicates(self) -> FloatArray:
        """Differences of the base values on resampled tasks, (resamples,)."""
        n_resamples, _, seed = self.draws
        if len(self.samples) > 2:
            raise ValueError(
                f"{shorten(self.definition.name)} over several seeds has no variance formula: compare single runs, or "
                "a mean of f"
            )
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        (definition, first), (_, second) = self._as_tasks
        values = replicate_values(definition, [first, second], self.rank_type, n_resamples, seed, keys)
        return np.asarray(values[0] - values[1])

    @property
    def _as_tasks(self) -> list[tuple[RankDefinition, RankSample]]:
        return [self.definition.as_tasks(sample) for sample in self.samples]
