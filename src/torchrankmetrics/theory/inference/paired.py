"""Two models, or several runs of each, on the same tasks: the interval and the test that serve the metric."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.bootstrap import (
    percentile_effective_tasks,
    percentile_interval,
    replicate_values,
)
from torchrankmetrics.theory.inference.differences import (
    Difference,
    paired_difference,
    paired_difference_p_value,
    paired_shares,
    paired_shares_p_value,
)
from torchrankmetrics.theory.inference.mean_intervals import mean_limits
from torchrankmetrics.theory.inference.seeds import SeedSplit, seeded_difference, smooth_of
from torchrankmetrics.theory.inference.units import Units, is_mean, task_values, units_of
from torchrankmetrics.theory.queries.definitions import Definition
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.values import on_first_ranks


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
    samples: Sequence[RankSample] | Sequence[QuerySample]
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
        if not is_mean(self.definition, self.rank_type):
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
        if not is_mean(self.definition, self.rank_type):
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
        return np.stack([task_values(self.definition, sample, self.rank_type) for sample in self.samples], 1)

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
        limits = mean_limits(self.definition, self.samples[0])
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
        definition, samples = self._of_tasks
        effective_tasks = min(percentile_effective_tasks(definition, sample, self.keys) for sample in samples)
        low, high = percentile_interval(draws, level)[1:]
        return Difference(low, high, None, "bootstrap interval only", None, effective_tasks)

    def _replicates(self, n_resamples: int, seed: int) -> FloatArray:
        if len(self.samples) > 2:
            raise ValueError(
                f"{self.definition.name!r} over several seeds has no variance formula: compare single runs, or a mean "
                "of f"
            )
        # equal seeds draw equal tasks: the pairs stay together
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        definition, samples = self._of_tasks
        first, second = (
            replicate_values(definition, sample, self.rank_type, n_resamples, seed, keys) for sample in samples
        )
        return first - second

    @property
    def _of_tasks(self) -> tuple[RankDefinition, list[RankSample]]:
        """A metric without a formula, on ranks of tasks or first ranks of queries."""
        definitions, samples = zip(*(on_first_ranks(self.definition, sample) for sample in self.samples), strict=True)
        assert isinstance(definitions[0], RankDefinition)
        return definitions[0], [sample for sample in samples if isinstance(sample, RankSample)]
