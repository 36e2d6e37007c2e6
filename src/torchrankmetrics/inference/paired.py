"""Paired differences of two models: tests and intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import RankSample, RankType, Sample
from torchrankmetrics.definitions.tasks import IDENTITY, RankDefinition
from torchrankmetrics.definitions.transforms import Transform, apply_transform, known, transform_slopes
from torchrankmetrics.inference.seeds import SeedSplit, seeded_difference, smooth_of
from torchrankmetrics.inference.shares import share_difference, share_difference_p_value
from torchrankmetrics.inference.standard_errors import (
    percentile_effective_tasks,
    percentile_interval,
    replicate_values,
)
from torchrankmetrics.inference.testing import sign_flips
from torchrankmetrics.inference.units import Units, effective_tasks_of, units_of
from torchrankmetrics.validation import shown

_ROUNDING = 1e-12  # of a level of confidence


@dataclass(frozen=True)
class Difference:
    """What the tasks tell of g(mean of A) - g(mean of B).

    Attributes:
        low, high: ends of the interval; it holds 0 where p is above 1 - level.
        p_value: of "no difference"; None without a test.
        test: what gave it.
        permutations: number of random flips behind it; None if it is exact.
        effective_tasks: number of tasks or clusters that the error rests on, ``effective_tasks_of``; infinite if none
            is needed.
        bounded: False if no difference at all could be rejected on an end: that end is what is possible.
    """

    low: float
    high: float
    p_value: float | None
    test: str
    permutations: int | None = None
    effective_tasks: float = math.inf
    bounded: bool = True


def paired_difference(
    units: Units,
    differences: FloatArray,
    g: Transform,
    limits: tuple[float, float],
    level: float,
    permutations: int,
    seed: int,
) -> Difference:
    """Compare g(mean) of two models by the sign-flip test, and invert it.

    A difference is tested at the means (a, b) = (A - t, B + t) that have it, by flipping the signs of
    g'(a) (f^A - a) - g'(b) (f^B - b): linear in sums that are flipped once. At a = b these are differences f^A - f^B,
    and the test is that of ``sign_flips``.

    Args:
        units: f of A and of B over tasks or clusters (k = 2).
        differences: (u,) float64, w (f^A - f^B) summed over every unit.
        g: post-transform of the metric.
        limits: smallest and largest possible mean of f.
        level: of confidence.
        permutations: number of random flips.
        seed: of the flips.

    Raises:
        ValueError: if there are fewer than two units, or torch cannot differentiate g.
    """
    units.require_two()
    line = _Line(units, differences, g, limits, permutations, seed)
    p_value = line.flips.p_value(np.eye(3)[0])
    alpha = 1 - level + _ROUNDING  # p = 1 - level is rejected, whatever its rounding
    (one, first), (other, second) = (line.end(direction, alpha, p_value <= alpha) for direction in (1.0, -1.0))
    low, high = min(one, other), max(one, other)
    if p_value > alpha:  # an end may be 0 itself, but for its rounding
        slack = 1e-12 * (high - low)
        low, high = low if low < -slack else 0.0, high if high > slack else 0.0
    influence = units.influence @ line.slopes(*line.means)
    scale = float(np.abs(units.sums).max()) / units.total
    effective_tasks = effective_tasks_of(influence, units.count) if np.abs(influence).max() > 1e-13 * scale else 0.0
    drawn = None if line.flips.exhaustive else permutations
    return Difference(low, high, p_value, "sign-flip permutation", drawn, effective_tasks, first & second)


def paired_difference_p_value(
    units: Units,
    differences: FloatArray,
    g: Transform,
    limits: tuple[float, float],
    null: float,
    permutations: int,
    seed: int,
) -> float:
    """Two-sided p-value of "g(mean of A) - g(mean of B) is ``null``": the test that ``paired_difference`` inverts.

    ``null`` is in the units of the metric, all else as in ``paired_difference``. A null beyond what is possible is
    tested as the furthest that is possible, so that p is not too small.

    Raises:
        ValueError: if there are fewer than two units.
    """
    units.require_two()
    return _Line(units, differences, g, limits, permutations, seed).p_value(null)


def paired_shares(units: Units, differences: FloatArray, level: float, permutations: int, seed: int) -> Difference:
    """Compare two shares of hits by ``share_difference``; where tasks are weighted or clustered, by sign flips too.

    A difference is rejected where both tests reject it: the interval is the wider of both, p the larger. Sign flips
    alone miss too often where few tasks or clusters are discordant.

    Args:
        units: hits of A and of B over tasks or clusters (k = 2).
        differences: as in ``paired_difference``.
        level: of confidence.
        permutations: number of random flips.
        seed: of the flips.

    Raises:
        ValueError: if there are fewer than two units.
    """
    units.require_two()
    one = _Discordance.of(units, differences)
    # p = 1 - level is rejected, whatever its rounding
    low, high = share_difference(one.only_a, one.only_b, one.num_tasks, level - _ROUNDING)
    p_value = share_difference_p_value(one.only_a, one.only_b, one.num_tasks, 0.0)
    if one.alike:
        return Difference(low, high, p_value, "exact McNemar")
    flipped = paired_difference(units, differences, IDENTITY, (0.0, 1.0), level, permutations, seed)
    assert flipped.p_value is not None
    return replace(
        flipped,
        low=min(low, flipped.low),
        high=max(high, flipped.high),
        p_value=max(p_value, flipped.p_value),
        effective_tasks=flipped.effective_tasks if units.clustered and one.error > 0 else math.inf,
    )


def paired_shares_p_value(units: Units, differences: FloatArray, null: float, permutations: int, seed: int) -> float:
    """Two-sided p-value of "the difference of the shares is ``null``", as the interval of ``paired_shares`` has it.

    ``null`` is in [-1, 1], all else as in ``paired_shares``.

    Raises:
        ValueError: if there are fewer than two units.
    """
    units.require_two()
    one = _Discordance.of(units, differences)
    p_value = share_difference_p_value(one.only_a, one.only_b, one.num_tasks, null)
    if one.alike:
        return p_value
    flipped = paired_difference_p_value(units, differences, IDENTITY, (0.0, 1.0), null, permutations, seed)
    return max(p_value, flipped)


class _Discordance(NamedTuple):
    """Tasks that just one model hits, among so many; effective numbers where tasks are weighted or clustered."""

    only_a: float
    only_b: float
    num_tasks: float
    error: float
    alike: bool

    @classmethod
    def of(cls, units: Units, differences: FloatArray) -> "_Discordance":
        if not units.clustered and np.ptp(units.weight) == 0 and not (units.sums / units.weight[:, None] % 1).any():
            only_a, only_b = (int(units.count[s * differences > 0].sum()) for s in (1, -1))
            return cls(only_a, only_b, units.size, 0.0, alike=True)
        # so many tasks of equal weight, each on its own, would have this error
        discordant = float(units.count @ np.abs(differences)) / units.total
        difference = float(units.mean[0] - units.mean[1])
        error = float(np.array([1.0, -1.0]) @ units.covariance @ np.array([1.0, -1.0]))
        n = (discordant - difference**2) / error if error > 0 else units.effective
        n = min(max(n, 1.0), float(units.size)) if not units.clustered else max(n, 1.0)
        parts = ((discordant + difference) / 2 * n, (discordant - difference) / 2 * n)
        return cls(max(parts[0], 0.0), max(parts[1], 0.0), n, error, alike=False)


class _Line:
    """Pairs of means (a, b) = (A - t, B + t) on the line through the observed ones, and the test of each."""

    def __init__(
        self,
        units: Units,
        differences: FloatArray,
        g: Transform,
        limits: tuple[float, float],
        permutations: int,
        seed: int,
    ) -> None:
        self.g, self.limits, self._straight = g, limits, known(g).is_identity
        self.means = float(units.mean[0]), float(units.mean[1])
        # with g the identity nothing asks for the second column
        centered = np.zeros_like(differences) if self._straight else units.sums[:, 1] - units.weight * units.mean[1]
        columns = np.repeat(np.stack([differences, centered, units.weight], 1), units.count, axis=0)
        self.flips = sign_flips(columns, permutations, seed)

    def end(self, direction: float, alpha: float, differs: bool) -> tuple[float, bool]:
        """Value of g(a) - g(b) furthest from the observed one that is not rejected, t of one sign; if some other is.

        Where "no difference" is rejected (``differs``) the end is on the side of the observed value: further out, where
        slopes of g become large, a test of few tasks may not reject again.
        """

        def beyond(t: float) -> float:
            """How much further one could go with the slopes at t."""
            slopes = self.slopes(*self._pair(direction * t))
            # the mean of g'(a) (f^A - a) - g'(b) (f^B - b), with t taken out
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

    def p_value(self, null: float) -> float:
        """Two-sided p of "g(a) - g(b) is null", at the pair of means on the line that has it."""
        t = (self.means[0] - self.means[1] - null) / 2
        if not self._straight:
            reach = self.limits[1] - self.limits[0]

            def gap(t: float) -> float:
                ga, gb = apply_transform(self.g, np.array(self._pair(t)), "g").tolist()
                return float(ga - gb - null)

            ends = gap(-reach), gap(reach)
            if ends[0] * ends[1] > 0:  # not possible: the end that is nearer
                t = math.copysign(reach, abs(ends[0]) - abs(ends[1]))
            else:
                t = float(brentq(gap, -reach, reach, xtol=1e-300, rtol=1e-14))
        slopes = self.slopes(*self._pair(t))
        moved = t * float(slopes[0] - slopes[1]) - slopes[0] * (self.means[0] - self.means[1])
        return self.flips.p_value(np.array([slopes[0], slopes.sum(), moved]))

    def slopes(self, a: float, b: float) -> FloatArray:
        """Slopes of g(a) - g(b) in a and in b, (2,) float64."""
        signs = np.array([1.0, -1.0])
        return signs if self._straight else signs * transform_slopes(self.g, np.array([a, b]))

    def _pair(self, t: float) -> tuple[float, float]:
        (a, b), (low, high) = self.means, self.limits
        return min(max(a - t, low), high), min(max(b + t, low), high)


@dataclass(frozen=True, eq=False)
class PairedRuns:
    """Runs of A and then of B on the same tasks, entry by entry.

    Attributes:
        definition, rank_type: the metric.
        samples: one per run.
        num_a: how many of them are of A.
        keys: (m,) int64, what is drawn together; None: every task is on its own.
    """

    definition: Definition
    rank_type: RankType
    samples: Sequence[Sample]
    num_a: int
    keys: IntArray | None

    def difference(
        self, level: float, n_resamples: int, permutations: int, seed: int
    ) -> tuple[Difference, SeedSplit | None]:
        """Interval and test of the difference of the base values, and the split of its variance with several runs.

        Args:
            level: of confidence.
            n_resamples: of the bootstrap, for metrics that are no mean of f.
            permutations: of the sign-flip test, for the others.
            seed: of both.

        Raises:
            ValueError: for several runs of a metric that is no mean of f, and for fewer than two tasks or clusters.
        """
        if not self.definition.is_function_of_mean(self.rank_type):
            return self._by_bootstrap(level, n_resamples, seed), None
        if len(self.samples) > 2:
            result = seeded_difference(self.units, self.num_a, smooth_of(self.definition), level)
            bounded = math.isfinite(result.low)
            found = Difference(result.low, result.high, result.p_value, "t over seeds and tasks", bounded=bounded)
            return found, result.split
        return self._by_flips(level, permutations, seed), None

    def p_value_of(self, null: float, n_resamples: int, permutations: int, seed: int) -> float:
        """Two-sided p-value of "the difference of the base values is ``null``", by the test that gives the interval.

        ``null`` is in the units of the base value, all else as in ``difference``.

        Raises:
            ValueError: as ``difference``.
        """
        if not self.definition.is_function_of_mean(self.rank_type):
            draws = self._replicates(n_resamples, seed)
            beyond = min(int((draws <= null).sum()), int((draws >= null).sum()))
            return min(2 * (1 + beyond) / (1 + len(draws)), 1.0)
        if len(self.samples) > 2:
            return seeded_difference(self.units, self.num_a, smooth_of(self.definition), 0.5).p_value_of(null)
        if self.definition.is_share:
            return paired_shares_p_value(self.units, self.flipped, null, permutations, seed)
        return paired_difference_p_value(
            self.units, self.flipped, self.definition.g, self._limits, null, permutations, seed
        )

    @cached_property
    def values(self) -> FloatArray:
        """What each task adds to the mean of each run, (m, runs)."""
        return np.stack([self.definition.unit_values(sample, self.rank_type) for sample in self.samples], 1)

    @cached_property
    def units(self) -> Units:
        """Tasks or clusters as independent units, with the sums of every run."""
        sample = self.samples[0]
        return units_of(self.values, sample.weight, sample.count, self.keys)

    @cached_property
    def flipped(self) -> FloatArray:
        """What changes its sign: w (f^A - f^B) of every task or cluster."""
        values, sample = self.values, self.samples[0]
        d = sample.weight * (values[:, 0] - values[:, 1])
        if self.keys is None:
            return d
        _, index = np.unique(self.keys, return_inverse=True)
        return np.bincount(index, d * sample.count).astype(np.float64)

    @cached_property
    def _limits(self) -> tuple[float, float]:
        limits = self.definition.mean_limits(self.samples[0])
        # g need not be defined beyond what f gives
        if not self.definition.is_mean_of_f and not np.isfinite(limits).all():
            limits = float(self.values.min()), float(self.values.max())
        return limits

    def _by_flips(self, level: float, permutations: int, seed: int) -> Difference:
        if self.definition.is_share:
            return paired_shares(self.units, self.flipped, level, permutations, seed)
        return paired_difference(self.units, self.flipped, self.definition.g, self._limits, level, permutations, seed)

    def _by_bootstrap(self, level: float, n_resamples: int, seed: int) -> Difference:
        draws = self._replicates(n_resamples, seed)
        effective_tasks = min(percentile_effective_tasks(*one, self.keys) for one in self._of_tasks)
        low, high = percentile_interval(draws, level)[1:]
        return Difference(low, high, None, "bootstrap interval only", None, effective_tasks)

    def _replicates(self, n_resamples: int, seed: int) -> FloatArray:
        if len(self.samples) > 2:
            raise ValueError(
                f"{shown(self.definition.name)} over several seeds has no variance formula: compare single runs, or a "
                "mean of f"
            )
        # equal seeds draw equal tasks: the pairs stay together
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        first, second = (replicate_values(*one, self.rank_type, n_resamples, seed, keys) for one in self._of_tasks)
        return first - second

    @property
    def _of_tasks(self) -> list[tuple[RankDefinition, RankSample]]:
        """A metric without a formula, on ranks of tasks or first ranks of queries."""
        return [self.definition.as_tasks(sample) for sample in self.samples]
