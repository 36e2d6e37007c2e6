"""Paired difference of a measure of two models: its interval and its test."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.inference.comparison import Comparison
from torchrankmetrics.inference.flips import ROUNDING, SignFlipTest
from torchrankmetrics.inference.pairing import PairedSource
from torchrankmetrics.inference.seeds import SeededEstimate, SeededModels
from torchrankmetrics.inference.standard_errors import (
    Units,
    percentile_effective_tasks,
    percentiles,
    replicate_values,
    units_of,
)
from torchrankmetrics.inference.testing import share_difference, share_difference_p_value
from torchrankmetrics.metrics.measure import Measure, apply_view, view_slope
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import shorten

Draws = tuple[int, int, int]
"""Bootstrap resamples of metrics that are not a function of a mean, flips of the sign-flip test, random seed."""


class PairedMeasure:
    """A measure of two models, or of several runs of each, on the same tasks: rows ``used`` (m,), values in a view."""

    def __init__(
        self, measure: Measure, rows_a: list[Rows], rows_b: list[Rows], keys: IntArray | None, draws: Draws
    ) -> None:
        self.measure, self.definition, self.rank_type = measure, measure.definition, measure.rank_type
        self.n_resamples, self.permutations, self.seed = draws
        self.samples, self.used = self.definition.sample(
            PairedSource([*rows_a, *rows_b]), measure.side, measure.average
        )
        if not len(self.used):
            side = "" if measure.side == "both" else f" of side {measure.side!r}"
            raise ValueError(f"no tasks{side} to compare {shorten(self.definition.name)} on")
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
        """Compare the two models at a confidence level, in the view of the measure."""
        low, high, p_value, test, about = self._tested(level)
        low, high = sorted((low * self.slope, high * self.slope))
        if self.keys is not None:
            about |= {"num_clusters": self.units.size, "effective_clusters": self.units.effective}
        about["unit"] = "queries" if self.definition.of_tasks is None else "tasks"
        values = self.a, self.b, self.a - self.b, low, high
        return Comparison(self.measure.key, *values, level, p_value, None, test, self.num_tasks, **about)

    def _tested(self, level: float) -> tuple[float, float, float | None, str, dict[str, Any]]:
        """Ends of the interval of the base difference, p-value, name of the test, and further fields of the result."""
        if not self.definition.is_function_of_mean(self.rank_type):
            effective_tasks = min(percentile_effective_tasks(*one, self.keys) for one in self._as_tasks)
            ends = percentiles(self._replicates, level)
            return *ends, None, "bootstrap interval only", {"effective_tasks": effective_tasks}
        if len(self.samples) > 2:
            found = self._seeded(level)
            parts = {part: getattr(found.split, part) * self.slope**2 for part in ("seeds", "tasks", "interaction")}
            about = {"bounded": math.isfinite(found.low), "seeds": replace(found.split, **parts)}
            return found.low, found.high, found.p_value_of(0.0), "t over seeds and tasks", about
        self.units.require_two()
        low, high, p_value, depends = math.inf, -math.inf, 0.0, True
        if self.definition.is_share:
            # Sign flips alone reject too often if few tasks or clusters are discordant. A difference is rejected if
            # both tests reject it: the interval is the wider of both, p the larger.
            only_a, only_b, size, error = self._discordant
            low, high = share_difference(only_a, only_b, size, level - ROUNDING)
            p_value = share_difference_p_value(only_a, only_b, size, 0.0)
            if error is None:
                return low, high, p_value, "exact McNemar", {}
            depends = self.units.clustered and error > 0
        flips = self._sign_flips
        low_of_flips, high_of_flips, p_of_flips, bounded = flips.difference(level)
        about = {"permutations": None if flips.flips.exhaustive else self.permutations, "bounded": bounded}
        about["effective_tasks"] = flips.effective_tasks if depends else math.inf
        ends = min(low, low_of_flips), max(high, high_of_flips)
        return *ends, max(p_value, p_of_flips), "sign-flip permutation", about

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of "the difference is ``null``", in the view, by the test that ``comparison`` inverts."""
        null /= self.slope
        if not self.definition.is_function_of_mean(self.rank_type):
            values = self._replicates
            beyond = min(int((values <= null).sum()), int((values >= null).sum()))
            return min(2 * (1 + beyond) / (1 + len(values)), 1.0)
        if len(self.samples) > 2:
            return self._seeded(0.5).p_value_of(null)
        if not self.definition.is_share:
            return self._sign_flips.p_value(null)
        only_a, only_b, size, error = self._discordant
        p_value = share_difference_p_value(only_a, only_b, size, null)
        return p_value if error is None else max(p_value, self._sign_flips.p_value(null))

    @cached_property
    def values(self) -> FloatArray:
        """Values f of each task for each run, (m, runs)."""
        return np.stack([self.definition.unit_values(sample, self.rank_type) for sample in self.samples], 1)

    @cached_property
    def units(self) -> Units:
        """Tasks or clusters as independent units, with the sums of every run."""
        return units_of(self.values, self.samples[0].weight, self.samples[0].count, self.keys)

    @cached_property
    def flipped(self) -> FloatArray:
        """Terms of the sign-flip test: w (f^A - f^B) of every task or cluster."""
        d: FloatArray = self.samples[0].weight * (self.values[:, 0] - self.values[:, 1])
        if self.keys is None:
            return d
        _, index = np.unique(self.keys, return_inverse=True)
        return np.bincount(index, d * self.samples[0].count).astype(np.float64)

    @property
    def _discordant(self) -> tuple[float, float, float, float | None]:
        """Numbers of tasks that only A hits, that only B hits, and of all tasks; squared error of the difference.

        For weighted or clustered tasks these are the effective numbers; else the error is None.
        """
        units = self.units
        if units.is_binary:
            return *units.discordant(0, 1), None
        # number of independent tasks of equal weight with the same standard error
        discordant = float((units.count * np.abs(self.flipped)).sum()) / units.total
        difference = float(units.mean[0] - units.mean[1])
        error = float(np.array([1.0, -1.0]) @ units.covariance @ np.array([1.0, -1.0]))
        n = max((discordant - difference**2) / error if error > 0 else units.effective, 1.0)
        n = n if units.clustered else min(n, float(units.size))
        only_a, only_b = (max((discordant + sign * difference) / 2 * n, 0.0) for sign in (1, -1))
        return only_a, only_b, n, error

    @cached_property
    def _sign_flips(self) -> SignFlipTest:
        limits = self.definition.mean_limits(self.samples[0])
        # g may be undefined outside of the observed values of f
        if not self.definition.is_mean_of_f and not np.isfinite(limits).all():
            limits = float(self.values.min()), float(self.values.max())
        return SignFlipTest(self.units, self.flipped, self.definition.g, limits, self.permutations, self.seed)

    def _seeded(self, level: float) -> SeededEstimate:
        sizes = self.num_a, len(self.samples) - self.num_a
        return SeededModels(self.units, sizes, self.definition.g).difference(0, 1, level)

    @cached_property
    def _replicates(self) -> FloatArray:
        """Differences of the base values on resampled tasks, (resamples,)."""
        if len(self.samples) > 2:
            raise ValueError(
                f"{shorten(self.definition.name)} over several seeds has no variance formula: compare single runs, or "
                "a mean of f"
            )
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        (definition, first), (_, second) = self._as_tasks
        values = replicate_values(definition, [first, second], self.rank_type, self.n_resamples, self.seed, keys)
        return np.asarray(values[0] - values[1])

    @property
    def _as_tasks(self) -> list[tuple[RankDefinition, RankSample]]:
        return [self.definition.as_tasks(sample) for sample in self.samples]
