"""Two models, or several runs of each, on the same tasks: the interval and the test that serve the metric."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import IDENTITY, RankDefinition
from torchrankmetrics.theory.inference.bootstrap import percentile_interval, percentile_support, replicate_values
from torchrankmetrics.theory.inference.differences import Difference, paired_difference, paired_shares
from torchrankmetrics.theory.inference.intervals import mean_limits
from torchrankmetrics.theory.inference.seeds import SeedSplit, seeded_difference
from torchrankmetrics.theory.inference.units import Units, is_mean, is_share, task_values, units_of
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.transforms import apply_transform, transform_slopes


@dataclass(frozen=True, eq=False)
class PairedRuns:
    """Runs of A and then of B on the same tasks, entry by entry.

    Attributes:
        definition, rank_type: the metric.
        samples: one per run.
        num_a: how many of them are of A.
        keys: (m,) int64, what is drawn together; None: every task is on its own.
    """

    definition: RankDefinition
    rank_type: RankType
    samples: Sequence[RankSample]
    num_a: int
    keys: IntArray | None

    def difference(
        self, level: float, resamples: int, permutations: int, seed: int
    ) -> tuple[Difference, SeedSplit | None]:
        """Interval and test of the difference of the base values, and the split of its variance with several runs.

        Args:
            level: of confidence.
            resamples: of the bootstrap, for metrics that are no mean of f.
            permutations: of the sign-flip test, for the others.
            seed: of both.

        Raises:
            ValueError: for several runs of a metric that is no mean of f, and for fewer than two tasks or clusters.
        """
        if not is_mean(self.definition, self.rank_type):
            return self._by_bootstrap(level, resamples, seed), None
        if len(self.samples) > 2:
            result = seeded_difference(self.units, self.num_a, self._elementwise, level)
            return Difference(result.low, result.high, result.p_value, "t over seeds and tasks"), result.split
        return self._by_flips(level, permutations, seed), None

    @cached_property
    def values(self) -> FloatArray:
        """What each task adds to the mean of each run, (m, runs)."""
        return np.stack([task_values(self.definition, sample, self.rank_type) for sample in self.samples], 1)

    @cached_property
    def units(self) -> Units:
        """Tasks or clusters as independent units, with the sums of every run."""
        sample = self.samples[0]
        return units_of(self.values, sample.weight, sample.count, self.keys)

    def _elementwise(self, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        flat, g = means.ravel(), self.definition.g
        return apply_transform(g, flat, "g").reshape(means.shape), transform_slopes(g, flat).reshape(means.shape)

    def _by_flips(self, level: float, permutations: int, seed: int) -> Difference:
        values, sample = self.values, self.samples[0]
        d = sample.weight * (values[:, 0] - values[:, 1])
        if self.keys is not None:
            _, index = np.unique(self.keys, return_inverse=True)
            d = np.bincount(index, d * sample.count).astype(np.float64)
        if is_share(self.definition):
            return paired_shares(self.units, d, level, permutations, seed)
        limits = mean_limits(self.definition, sample)
        if self.definition.g != IDENTITY and not np.isfinite(limits).all():  # g need not be defined beyond what f gives
            limits = float(values.min()), float(values.max())
        return paired_difference(self.units, d, self.definition.g, limits, level, permutations, seed)

    def _by_bootstrap(self, level: float, resamples: int, seed: int) -> Difference:
        if len(self.samples) > 2:
            raise ValueError(
                f"{self.definition.name!r} over several seeds has no variance formula: compare single runs, or a mean "
                "of f"
            )
        support = min(percentile_support(self.definition, sample, self.keys) for sample in self.samples)
        # equal seeds draw equal tasks: the pairs stay together
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        first, second = (
            replicate_values(self.definition, sample, self.rank_type, resamples, seed, keys) for sample in self.samples
        )
        low, high = percentile_interval(first - second, level)[1:]
        return Difference(low, high, None, "bootstrap interval only", None, support)
