"""Test of two models, or of runs of each, on the same tasks, and the interval that inverts it."""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.inference.clusters import Clusters, entry_clusters
from torchrankmetrics.inference.comparison import Comparison
from torchrankmetrics.inference.flips import ROUNDING, SignFlipTest
from torchrankmetrics.inference.sources import PairedSource, sample_size
from torchrankmetrics.inference.standard_errors import (
    Units,
    percentile_effective_tasks,
    percentiles,
    replicate_values,
    units_of,
)
from torchrankmetrics.inference.testing import (
    SeededEstimate,
    SeededModels,
    SeedSplit,
    share_difference,
    share_difference_p_value,
)
from torchrankmetrics.metrics.measure import Measure, affine_view
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import shorten

# names of tests
SIGN_FLIPS = "sign-flip permutation"
MCNEMAR = "exact McNemar"
T_OVER_BOTH = "t over seeds and tasks"
T_OVER_TASKS = "t over tasks"


class Draws(NamedTuple):
    """Number of bootstrap samples, number of flips of the sign-flip test, and random seed."""

    n_resamples: int = 2000
    permutations: int = 9999
    seed: int = 0


DEFAULT_DRAWS = Draws()


class Tested(NamedTuple):
    """Interval and test of a difference, as in ``Comparison``; p is NaN without a test."""

    low: float
    high: float
    p_value: float
    test: str
    permutations: int | None = None
    bounded: bool = True
    effective_tasks: float = math.inf
    seeds: SeedSplit | None = None

    def scaled(self, slope: float) -> "Tested":
        """The interval and the variances in a view."""
        low, high = sorted((self.low * slope, self.high * slope))
        seeds = None if self.seeds is None else self.seeds.scaled(slope)
        return self._replace(low=low, high=high, seeds=seeds)


class PairTest:
    """Test of g(mean of f of A) - g(mean of f of B), one run each: sign flips, McNemar's test.

    ``units`` (k = 2) are tasks or clusters with both runs, ``limits`` those of the mean of f.
    """

    def __init__(
        self,
        units: Units,
        definition: Definition,
        limits: tuple[float, float],
        draws: Draws,
    ) -> None:
        units.require_two()
        self.units = units
        self.definition = definition
        self.limits = limits
        self.draws = draws

    def tested(self, level: float) -> Tested:
        """Interval of a confidence level, and test of no difference."""
        if not self.definition.is_share:
            return self._by_flips(level)
        only_a, only_b, size, error = self._discordant
        low, high = share_difference(only_a, only_b, size, level - ROUNDING)
        p_value = share_difference_p_value(only_a, only_b, size, 0.0)
        if error is None:
            return Tested(low, high, p_value, MCNEMAR)
        # Sign flips alone reject too often if few tasks or clusters are discordant. A difference is
        # rejected if both tests reject it: the interval is the wider of both, p the larger.
        flips = self._by_flips(level)
        depends = self.units.clustered and error > 0
        return flips._replace(
            low=min(low, flips.low),
            high=max(high, flips.high),
            p_value=max(p_value, flips.p_value),
            effective_tasks=flips.effective_tasks if depends else math.inf,
        )

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of the hypothesis that the difference is ``null``."""
        if not self.definition.is_share:
            return self._sign_flips.p_value(null)
        only_a, only_b, size, error = self._discordant
        p_value = share_difference_p_value(only_a, only_b, size, null)
        return p_value if error is None else max(p_value, self._sign_flips.p_value(null))

    def _by_flips(self, level: float) -> Tested:
        flips = self._sign_flips
        low, high, p_value, bounded = flips.difference(level)
        permutations = None if flips.flips.exhaustive else self.draws.permutations
        return Tested(low, high, p_value, SIGN_FLIPS, permutations, bounded, flips.effective_tasks)

    @cached_property
    def _sign_flips(self) -> SignFlipTest:
        draws = self.draws
        return SignFlipTest(
            self.units, self.definition.g, self.limits, draws.permutations, draws.seed
        )

    @cached_property
    def _discordant(self) -> tuple[float, float, float, float | None]:
        """Numbers of tasks that only A hits, only B hits, and of all, which may be effective ones.

        Then the last result is the squared error, else None.
        """
        units = self.units
        if units.is_binary:
            return *units.discordant(0, 1), None
        # number of independent tasks of equal weight with the same standard error
        discordant = float((units.count * np.abs(units.difference)).sum()) / units.total
        difference = float(units.mean[0] - units.mean[1])
        contrast = np.array([1.0, -1.0])
        error = float(contrast @ units.covariance @ contrast)
        n = units.effective
        if error > 0:
            n = (discordant - difference**2) / error
        n = max(n, 1.0)
        if not units.clustered:
            n = min(n, units.effective)
        only_a, only_b = (max((discordant + sign * difference) / 2 * n, 0.0) for sign in (1, -1))
        return only_a, only_b, n, error


class PairedMeasure:
    """A measure of two models, or of runs of each, on the same tasks: rows ``used`` (m,)."""

    def __init__(
        self,
        measure: Measure,
        rows_a: list[Rows],
        rows_b: list[Rows],
        clusters: Clusters | None,
        draws: Draws,
    ) -> None:
        self.measure = measure
        self.draws = draws
        self.definition = measure.definition
        self.rank_type = measure.rank_type
        source = PairedSource([*rows_a, *rows_b])
        self.samples, self.used = measure.sample(source)
        if not len(self.used):
            side = "" if measure.side == "both" else f" of side {measure.side!r}"
            raise ValueError(f"no tasks{side} to compare {shorten(self.definition.name)} on")
        self.num_a = len(rows_a)
        self.clusters = entry_clusters(clusters, source.rows, self.used, self.definition)
        self.num_tasks = self.samples[0].num_tasks
        values = [self.definition.value(sample, self.rank_type) for sample in self.samples]
        self.slope = 1.0
        if measure.view != "base":
            moments = measure.moments(self.samples[0])
            in_view, self.slope = affine_view(self.definition, measure.view, moments)
            values = list(map(in_view, values))
        self.a = float(np.mean(values[: self.num_a]))
        self.b = float(np.mean(values[self.num_a :]))

    def comparison(self, level: float) -> Comparison:
        """Compare the two models at a confidence level, in the view of the measure."""
        found = self._tested(level).scaled(self.slope)
        tested = found._asdict()
        if math.isnan(found.p_value):
            tested["p_value"] = None
        unit = "queries" if self.definition.of_tasks is None else "tasks"
        size = sample_size(self.units, self.num_tasks, unit)
        return Comparison(
            self.measure.key,
            self.a,
            self.b,
            self.a - self.b,
            p_adjusted=None,
            confidence_level=level,
            num_tasks=size.number,
            num_clusters=size.num_clusters,
            effective_clusters=size.effective_clusters,
            unit=size.unit,
            higher_is_better=self.measure.higher_is_better,
            **tested,
        )

    def _tested(self, level: float) -> Tested:
        """Test of the base difference."""
        if not self.definition.is_function_of_mean(self.rank_type):
            low, high = percentiles(self._replicates, level)
            of_tasks = map(self.definition.as_tasks, self.samples)
            effective = [percentile_effective_tasks(*one, self.clusters) for one in of_tasks]
            name = "bootstrap interval only"
            return Tested(low, high, math.nan, name, effective_tasks=min(effective))
        if len(self.samples) == 2:
            return self.pair.tested(level)
        found = self._seeded(level)
        return Tested(
            found.low,
            found.high,
            found.p_value_of(0.0),
            T_OVER_BOTH,
            bounded=math.isfinite(found.low),
            seeds=found.split,
        )

    def p_value_of(self, null: float) -> float:
        """Two-sided p-value of "the difference is ``null``", in the view, as in ``comparison``."""
        null /= self.slope
        if not self.definition.is_function_of_mean(self.rank_type):
            values = self._replicates
            beyond = min(int((values <= null).sum()), int((values >= null).sum()))
            return min(2 * (1 + beyond) / (1 + len(values)), 1.0)
        if len(self.samples) > 2:
            return self._seeded(0.5).p_value_of(null)
        return self.pair.p_value_of(null)

    @cached_property
    def values(self) -> FloatArray:
        """Values f of each task for each run, (m, runs)."""
        return np.stack(
            [self.definition.unit_values(sample, self.rank_type) for sample in self.samples], 1
        )

    @cached_property
    def units(self) -> Units:
        """Tasks or clusters as independent units, with the sums of every run."""
        first = self.samples[0]
        return units_of(self.values, first.weight, first.count, self.clusters)

    def differences_of(self, index: IntArray, number: IntArray) -> FloatArray:
        """Sums of w (f^A - f^B) of clusters (u,), by the cluster of each row (n,).

        ``number`` (u,) is the number of equal clusters.
        """
        first = self.samples[0]
        own = index[self.used]
        mass = first.weight * (first.count / number[own])
        terms = mass[:, None] * self.values[:, :2]
        sums = np.stack([np.bincount(own, term, len(number)) for term in terms.T], 1)
        return Units(np.ones(len(number)), sums.astype(np.float64), number).difference

    @cached_property
    def pair(self) -> PairTest:
        """Test of single runs."""
        limits = mean_limits(self.definition, self.samples[0], self.values)
        return PairTest(self.units, self.definition, limits, self.draws)

    def _seeded(self, level: float) -> SeededEstimate:
        sizes = self.num_a, len(self.samples) - self.num_a
        return SeededModels(self.units, sizes, self.definition.g).estimate(level, 0, 1)

    @cached_property
    def _replicates(self) -> FloatArray:
        """Differences of the base values on resampled tasks, (resamples,)."""
        if len(self.samples) > 2:
            raise ValueError(
                f"{shorten(self.definition.name)} over several seeds has no variance formula: "
                "compare single runs, or a mean of f"
            )
        (definition, first), (_, second) = map(self.definition.as_tasks, self.samples)
        values = replicate_values(
            definition,
            [first, second],
            self.rank_type,
            self.draws.n_resamples,
            self.draws.seed,
            self.clusters,
        )
        return np.asarray(values[0] - values[1])


def mean_limits(definition: Definition, sample: object, values: FloatArray) -> tuple[float, float]:
    """Limits of the mean of f; where g may be undefined outside of the observed values, those."""
    limits = definition.mean_limits(sample)
    if definition.is_mean_of_f or np.isfinite(limits).all():
        return limits
    return float(values.min()), float(values.max())
