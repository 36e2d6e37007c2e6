"""Paired difference of a measure of two models: its interval and its test, and how the results are printed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.inference.flips import ROUNDING, SignFlipTest
from torchrankmetrics.inference.intervals import in_clusters, row_of
from torchrankmetrics.inference.pairing import PairedSource
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
from torchrankmetrics.rendering import ROW, Column, Rendered, Tabular
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import shorten, truncate

_VALUES = ("a", "b", "difference", "low", "high")


@dataclass(frozen=True)
class Comparison(Rendered):
    """Difference a - b of a metric on the same tasks.

    Attributes:
        metric (str): canonical key.
        a, b, difference (float): values of both models, with several seeds their means, and a - b.
        low, high, confidence_level (float): the interval of the difference, and its level in (0,
            1).
        p_value (float): two-sided, of no difference; None for metrics without a test, such as the
            median.
        p_adjusted, correction (float, str): adjusted for all metrics and pairs of the call, by
            "Holm" or "max-T".
        test (str): name of the test.
        num_tasks, unit (int, str): number of "tasks" or "queries" on which both models were
            compared.
        num_clusters (int): number of their clusters; None: every task is independent.
        effective_clusters (float): number of clusters of equal weight with the same information.
        seeds (SeedSplit): variance components, with several seeds.
        permutations (int): number of random flips of the permutation test; None: p is exact or of
            another test.
        effective_tasks (float): effective number of tasks or clusters, as in ``Interval``.
        bounded (bool): False if one end is the limit of the values: the test rejects no difference
            on that side.
        models (tuple): names of the two models, if they have names.
    """

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    confidence_level: float
    p_value: float | None
    p_adjusted: float | None
    test: str
    num_tasks: int
    num_clusters: int | None = None
    effective_clusters: float | None = None
    seeds: SeedSplit | None = None
    permutations: int | None = None
    effective_tasks: float = math.inf
    bounded: bool = True
    models: tuple[str, str] | None = None
    correction: str = "Holm"
    unit: str = "tasks"

    @property
    def label(self) -> str:
        """The metric, and the models if they have names."""
        return (
            self.metric
            if self.models is None
            else f"{self.metric}, {self.models[0]} - {self.models[1]}"
        )

    @property
    def interval_level(self) -> float:
        """Confidence level of the interval."""
        return self.confidence_level

    @property
    def monte_carlo_error(self) -> float | None:
        """Standard error of the p-value due to random flips; 0 if it is exact, None without a p-value."""
        if self.p_value is None:
            return None
        return (
            math.sqrt(self.p_value * (1 - self.p_value) / self.permutations)
            if self.permutations
            else 0.0
        )

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        return Comparisons((self,)).tabular()

    def __str__(self) -> str:
        p, test = "no p-value" if self.p_value is None else f"p = {self.p_value:.2g}", self.test
        if self.p_value is not None and self.permutations is not None:
            test += f", {self.permutations} flips"
            # if no random flip reached the observed sum, the error cannot be estimated
            floor = self.p_value * (self.permutations + 1) < 1.5
            p = f"p < 1/{self.permutations}" if floor else f"{p} ± {self.monte_carlo_error:.1g}"
        if self.p_adjusted not in (None, self.p_value):
            p += f", by {self.correction} {self.p_adjusted:.2g}"
        text = (
            f"{self.label}: {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} [{self.low:+.4f}, "
            f"{self.high:+.4f}] at {100 * self.confidence_level:g}%, {p} ({test}); "
            f"{self.num_tasks} {self.unit}{in_clusters(self.num_clusters, self.effective_clusters)}"
        )
        if (split := self.seeds) is None:
            return text
        shares = [
            100 * part / split.total if split.total else 0.0 for part in (split.seeds, split.tasks)
        ]
        return (
            f"{text}; {' and '.join(map(str, split.num_seeds))} seeds: {shares[0]:.0f}% of the "
            f"variance is training seeds, {shares[1]:.0f}% test tasks, {100 - sum(shares):.0f}% "
            "both"
        )


def turned(row: Comparison) -> Comparison:
    """Return a comparison as b - a."""
    models = row.models and (row.models[1], row.models[0])
    seeds = row.seeds and replace(row.seeds, num_seeds=row.seeds.num_seeds[::-1])
    row = replace(row, a=row.b, b=row.a, models=models, seeds=seeds)
    return replace(row, difference=-row.difference, low=-row.high, high=-row.low)


@dataclass(frozen=True)
class _ComparisonTable(Rendered):
    rows: tuple[Comparison, ...]

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        first, named = self.rows[0], any(one.models is not None for one in self.rows)
        columns = (
            Column("metric", key=True),
            *(
                (Column("model_a", "A", key=True), Column("model_b", "B", key=True))
                if named
                else ()
            ),
            *(
                Column(name, "a - b" if name == "difference" else None, metric=ROW)
                for name in _VALUES
            ),
            *(Column(name) for name in ("p", "p_adjusted", "test")),
        )
        fields = (*_VALUES, "p_value", "p_adjusted", "test")
        cells = [
            (one.metric, *(one.models or ()), *(getattr(one, name) for name in fields))
            for one in self.rows
        ]
        size = f"{first.num_tasks} {first.unit}{in_clusters(first.num_clusters, first.effective_clusters)}"
        adjusted = f"; p_adjusted by {first.correction}" if named else ""
        return Tabular(
            columns, cells, (f"{size}, intervals at {100 * first.confidence_level:g}%{adjusted}",)
        )


@dataclass(frozen=True)
class Comparisons(_ComparisonTable):
    """One ``Comparison`` per metric, ``result["mrr"]``; p-values are adjusted for the number of metrics.

    Attributes:
        rows (tuple): in the order of the metrics.
    """

    def __getitem__(self, key: str) -> Comparison:
        return row_of(self.rows, key)

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


@dataclass(frozen=True)
class PairwiseComparisons(_ComparisonTable):
    """Comparisons of several models: one per metric and pair, with p-values adjusted for their number.

    ``result["mrr"]`` has the comparisons of a metric, ``result["mrr", "a", "b"]`` the one of two
    models, as a - b.

    Attributes:
        rows (tuple): ordered by metric.
        models (tuple): names in input order.
    """

    models: tuple[str, ...]

    @overload
    def __getitem__(self, key: str) -> "PairwiseComparisons": ...
    @overload
    def __getitem__(self, key: tuple[str, str, str]) -> Comparison: ...
    def __getitem__(self, key: str | tuple[str, str, str]) -> "Comparison | PairwiseComparisons":
        metric, *pair = (key,) if isinstance(key, str) else key
        first = row_of(self.rows, metric)
        rows = tuple(row for row in self.rows if row.metric == first.metric)
        if not pair:
            return replace(self, rows=rows)
        for row in rows:
            if set(row.models or ()) == set(pair):
                return row if row.models == tuple(pair) else turned(row)
        raise KeyError(
            f"{' and '.join(map(shorten, pair))} are not both among "
            f"{', '.join(map(truncate, self.models))}"
        )


@dataclass(frozen=True, kw_only=True)
class Equivalence(Comparison):
    """Difference a - b of a metric on the same tasks, compared with a margin.

    Attributes:
        metric, a, b, difference, p_value, p_adjusted, test, num_tasks, unit (float, str, int): as
            in ``Comparison``.
        num_clusters, effective_clusters, effective_tasks, permutations, bounded (float, int, bool):
            likewise.
        seeds, models, correction (SeedSplit, tuple, str): likewise.
        low, high, interval_level (float): interval of two one-sided tests, and its level 2
            confidence_level - 1.
        margin, confidence_level (float): largest difference that does not matter, > 0; level of the
            tests, in (0, 1).
        p_equivalent, p_not_worse, p_not_better (float): of the hypotheses that the absolute
            difference is at least the margin, that a is worse than b by the margin or more, and
            that a is better by the margin or more.
    """

    margin: float
    p_equivalent: float
    p_not_worse: float
    p_not_better: float

    @property
    def interval_level(self) -> float:
        """Confidence level of the interval of two one-sided tests."""
        return 2 * self.confidence_level - 1

    @property
    def equivalent(self) -> bool:
        """Whether the models are equal within the margin, at the confidence level."""
        return self.p_equivalent <= 1 - self.confidence_level + 1e-12

    @property
    def not_inferior(self) -> bool:
        """Whether a is not worse than b by the margin, at the confidence level."""
        return self.p_not_worse <= 1 - self.confidence_level + 1e-12

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        return equivalences([self])

    def __str__(self) -> str:
        verdict = "a is not inferior" if self.not_inferior else "not shown to be equivalent"
        return (
            f"{self.metric}: {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * self.interval_level:g}%, margin "
            f"{self.margin:g}: {'equivalent' if self.equivalent else verdict} (p = "
            f"{self.p_equivalent:.2g}; a not worse: p = {self.p_not_worse:.2g}; {self.test}); "
            f"{self.num_tasks} {self.unit}"
        )


def equivalences(found: Sequence[Equivalence]) -> Tabular:
    """Build a table with a row per metric, for the same models and margin."""
    first, names = found[0], ("metric", *_VALUES, "p_equivalent", "p_not_worse")
    headings = {
        "difference": "a - b",
        "p_equivalent": "p equivalent",
        "p_not_worse": "p a not worse",
    }
    columns = [
        Column(name, headings.get(name), key=name == "metric")
        for name in (*names, "equivalent", "test")
    ]
    verdicts = [("yes" if one.equivalent else "not shown", one.test) for one in found]
    rows = [
        (*(getattr(one, name) for name in names), *last)
        for one, last in zip(found, verdicts, strict=True)
    ]
    levels = (
        f"tests at {100 * first.confidence_level:g}%, intervals at {100 * first.interval_level:g}%"
    )
    return Tabular(
        columns, rows, (f"{first.num_tasks} {first.unit}, margin {first.margin:g}, {levels}",)
    )


Draws = tuple[int, int, int]
"""Bootstrap resamples of metrics that are not a function of a mean, flips of the sign-flip test, random seed."""


class PairedMeasure:
    """A measure of two models, or of several runs of each, on the same tasks: rows ``used`` (m,), values in a view."""

    def __init__(
        self,
        measure: Measure,
        rows_a: list[Rows],
        rows_b: list[Rows],
        keys: IntArray | None,
        draws: Draws,
    ) -> None:
        self.measure, self.definition, self.rank_type = (
            measure,
            measure.definition,
            measure.rank_type,
        )
        self.n_resamples, self.permutations, self.seed = draws
        source = PairedSource([*rows_a, *rows_b])
        self.samples, self.used = measure.sample(source)
        if not len(self.used):
            side = "" if measure.side == "both" else f" of side {measure.side!r}"
            raise ValueError(f"no tasks{side} to compare {shorten(self.definition.name)} on")
        self.num_a, self.keys = len(rows_a), None if keys is None else keys[self.used]
        self.num_tasks = self.samples[0].num_tasks
        values = [self.definition.value(sample, self.rank_type) for sample in self.samples]
        self.slope = 1.0
        if measure.view != "base":
            in_view, self.slope = affine_view(
                self.definition, measure.view, measure.moments(self.samples[0])
            )
            values = list(map(in_view, values))
        self.a, self.b = float(np.mean(values[: self.num_a])), float(np.mean(values[self.num_a :]))

    def comparison(self, level: float) -> Comparison:
        """Compare the two models at a confidence level, in the view of the measure."""
        low, high, p_value, test, about = self._tested(level)
        low, high = sorted((low * self.slope, high * self.slope))
        if self.keys is not None:
            about |= {"num_clusters": self.units.size, "effective_clusters": self.units.effective}
        about["unit"] = "queries" if self.definition.of_tasks is None else "tasks"
        values = self.a, self.b, self.a - self.b, low, high
        return Comparison(
            self.measure.key, *values, level, p_value, None, test, self.num_tasks, **about
        )

    def _tested(self, level: float) -> tuple[float, float, float | None, str, dict[str, Any]]:
        """Ends of the interval of the base difference, p-value, name of the test, and further fields of the result."""
        if not self.definition.is_function_of_mean(self.rank_type):
            of_tasks = map(self.definition.as_tasks, self.samples)
            effective_tasks = min(percentile_effective_tasks(*one, self.keys) for one in of_tasks)
            ends = percentiles(self._replicates, level)
            return *ends, None, "bootstrap interval only", {"effective_tasks": effective_tasks}
        if len(self.samples) > 2:
            found = self._seeded(level)
            parts = {
                part: getattr(found.split, part) * self.slope**2
                for part in ("seeds", "tasks", "interaction")
            }
            about = {"bounded": math.isfinite(found.low), "seeds": replace(found.split, **parts)}
            return found.low, found.high, found.p_value_of(0.0), "t over seeds and tasks", about
        self.units.require_two()
        low, high, p_value, depends = math.inf, -math.inf, 0.0, True
        if self.definition.is_share:
            # Sign flips alone reject too often if few tasks or clusters are discordant. A
            # difference is rejected if both tests reject it: the interval is the wider of both, p
            # the larger.
            only_a, only_b, size, error = self._discordant
            low, high = share_difference(only_a, only_b, size, level - ROUNDING)
            p_value = share_difference_p_value(only_a, only_b, size, 0.0)
            if error is None:
                return low, high, p_value, "exact McNemar", {}
            depends = self.units.clustered and error > 0
        flips = self._sign_flips
        low_of_flips, high_of_flips, p_of_flips, bounded = flips.difference(level)
        about = {
            "permutations": None if flips.flips.exhaustive else self.permutations,
            "bounded": bounded,
        }
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
        return np.stack(
            [self.definition.unit_values(sample, self.rank_type) for sample in self.samples], 1
        )

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
        """Numbers of tasks that only A hits, that only B hits, and of all; a squared error if they are effective."""
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
        return SignFlipTest(
            self.units, self.flipped, self.definition.g, limits, self.permutations, self.seed
        )

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
        keys = np.arange(len(self.samples[0].weight)) if self.keys is None else self.keys
        (definition, first), (_, second) = map(self.definition.as_tasks, self.samples)
        values = replicate_values(
            definition, [first, second], self.rank_type, self.n_resamples, self.seed, keys
        )
        return np.asarray(values[0] - values[1])
