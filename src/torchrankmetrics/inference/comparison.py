"""Results of comparisons: paired differences with intervals, p-values, and their print."""

from __future__ import annotations  # help() shows the names of types

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import overload

from torchrankmetrics.inference.clusters import SampleSize
from torchrankmetrics.inference.intervals import row_of
from torchrankmetrics.inference.testing import SeedSplit
from torchrankmetrics.rendering import ROW, Column, Rendered, Tabular, paper_name
from torchrankmetrics.validation import shorten, truncate

_VALUES = ("value_a", "value_b", "difference", "low", "high")
# of the columns in printed tables, for two models without names and for named ones
_HEADINGS = {"value_a": "a", "value_b": "b", "difference": "a - b"}
_HEADINGS_OF_NAMED = {"value_a": "value A", "value_b": "value B", "difference": "A - B"}


@dataclass(frozen=True)
class Comparison(Rendered):
    """Difference a - b of a metric on the same tasks.

    Attributes:
        metric (str): canonical key.
        value_a, value_b, difference (float): values of both models, with several seeds their means,
            and value_a - value_b.
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
            another test. A p-value below 1 / (permutations + 1) is an upper bound.
        effective_tasks (float): effective number of tasks or clusters, as in ``Interval``.
        bounded (bool): False if one end is the limit of the values: the test rejects no difference
            on that side.
        models (tuple): names of the two models, if they have names.
        higher_is_better (bool): direction of the metric; None without one.

    >>> from torchrankmetrics import Ranks, compare
    >>> a = Ranks([1, 2, 1, 3, 1, 2, 1, 1] * 20, None, 9)
    >>> b = Ranks([2, 3, 1, 5, 2, 2, 1, 4] * 20, None, 9)
    >>> result = compare(a, b, "mrr")
    >>> round(result.difference, 4), result.better
    (0.2563, 'a')
    >>> result.low > 0
    True
    """

    metric: str
    value_a: float
    value_b: float
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
    higher_is_better: bool | None = None

    @property
    def size(self) -> SampleSize:
        """Number of tasks or queries, and of their clusters."""
        return SampleSize(self.num_tasks, self.unit, self.num_clusters, self.effective_clusters)

    @property
    def is_significant(self) -> bool:
        """Whether p_adjusted is at most 1 - confidence_level; without one, whether 0 is outside."""
        if self.p_adjusted is None:
            return not self.low <= 0 <= self.high
        return self.p_adjusted <= 1 - self.confidence_level + 1e-12

    @property
    def better(self) -> str | None:
        """Name of the significantly better model, "a" or "b" without names; None if neither is."""
        if self.higher_is_better is None or not self.is_significant:
            return None
        first, second = self.models or ("a", "b")
        return first if (self.difference > 0) == self.higher_is_better else second

    @property
    def direction(self) -> str:
        """The better model in words, as "a is better: lower MR"; "" without a direction."""
        if self.higher_is_better is None:
            return ""
        end = "higher" if self.higher_is_better else "lower"
        name = paper_name(self.metric)
        if self.better is None:
            return f"not significantly different; {end} {name} is better"
        return f"{self.better} is better: {end} {name}"

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
        """Standard error of p due to random flips; 0 if exact or a bound, None without p."""
        if self.p_value is None:
            return None
        if self.permutations is None or self._is_bound:
            return 0.0
        return math.sqrt(self.p_value * (1 - self.p_value) / self.permutations)

    @property
    def _is_bound(self) -> bool:
        """Whether p is below the smallest one of random flips."""
        if self.p_value is None or self.permutations is None:
            return False
        return self.p_value * (self.permutations + 1) < 1 - 1e-9

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        return Comparisons((self,)).tabular()

    @property
    def _p_text(self) -> str:
        """The p-value, its error, the adjusted one, and the test."""
        if self.p_value is None:
            return f"no p-value ({self.test})"
        text = f"p = {self.p_value:.2g}"
        test = self.test
        if self.permutations is not None:
            test += f", {self.permutations} flips"
            if self._is_bound:
                text = f"p < {self.p_value:.2g}"
            elif self.p_value * (self.permutations + 1) < 1.5:  # the error cannot be estimated
                text = f"p < 1/{self.permutations}"
            else:
                text += f" ± {self.monte_carlo_error:.1g}"
        if self.p_adjusted not in (None, self.p_value):
            text += f", by {self.correction} {self.p_adjusted:.2g}"
        return f"{text} ({test})"

    @property
    def _seeds_text(self) -> str:
        """Shares of the variance components, with several seeds."""
        if (split := self.seeds) is None:
            return ""
        total = split.total or 1.0
        seeds = 100 * split.seeds / total
        tasks = 100 * split.tasks / total
        return (
            f"; {' and '.join(map(str, split.num_seeds))} seeds: {seeds:.0f}% of the variance is "
            f"training seeds, {tasks:.0f}% test tasks, {100 - seeds - tasks:.0f}% both"
        )

    def __str__(self) -> str:
        direction = self.direction and f"; {self.direction}"
        return (
            f"{self.label}: {self.value_a:.4f} - {self.value_b:.4f} = {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * self.confidence_level:g}%, "
            f"{self._p_text}; {self.size}"
            f"{direction}{self._seeds_text}"
        )


def turned(row: Comparison) -> Comparison:
    """Return a comparison as b - a."""
    models = row.models and (row.models[1], row.models[0])
    seeds = row.seeds and replace(row.seeds, num_seeds=row.seeds.num_seeds[::-1])
    row = replace(row, value_a=row.value_b, value_b=row.value_a, models=models, seeds=seeds)
    return replace(row, difference=-row.difference, low=-row.high, high=-row.low)


def _direction(rows: Sequence[Comparison]) -> str:
    """Which metrics are better if they are higher, and which if they are lower."""
    parts = []
    for end, higher in (("higher", True), ("lower", False)):
        chosen = [one.metric for one in rows if one.higher_is_better is higher]
        if chosen:
            parts.append(f"{end} is better: {', '.join(dict.fromkeys(chosen))}")
    return "; ".join(parts)


@dataclass(frozen=True)
class _ComparisonTable(Rendered):
    rows: tuple[Comparison, ...]

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        named = any(one.models is not None for one in self.rows)
        headings = _HEADINGS_OF_NAMED if named else _HEADINGS
        columns = [Column("metric", key=True)]
        if named:
            columns += [Column("model_a", "A", key=True), Column("model_b", "B", key=True)]
        columns += [Column(name, headings.get(name), metric=ROW) for name in _VALUES]
        columns += map(Column, ("p", "p_adjusted", "better", "test"))
        fields = (*_VALUES, "p_value", "p_adjusted", "better", "test")
        read = attrgetter(*fields)
        cells = [(one.metric, *(one.models or ()), *read(one)) for one in self.rows]
        return Tabular(columns, cells, (self._note,))

    @property
    def _note(self) -> str:
        first = self.rows[0]
        sizes = ", ".join(dict.fromkeys(str(one.size) for one in self.rows))
        parts = [f"{sizes}, intervals at {100 * first.confidence_level:g}%"]
        if any(one.models is not None for one in self.rows):
            parts.append(f"p_adjusted by {first.correction}")
        return "; ".join(filter(None, [*parts, _direction(self.rows)]))


@dataclass(frozen=True)
class Comparisons(_ComparisonTable):
    """One ``Comparison`` per metric, ``result["mrr"]``; p-values adjusted for their number.

    Attributes:
        rows (tuple): in the order of the metrics.

    >>> from torchrankmetrics import Ranks, compare
    >>> a = Ranks([1, 2, 1, 3, 1, 2, 1, 1] * 20, None, 9)
    >>> b = Ranks([2, 3, 1, 5, 2, 2, 1, 4] * 20, None, 9)
    >>> results = compare(a, b, ["mrr", "hits@1"])
    >>> results["hits_at_1"].difference
    0.375
    """

    def __getitem__(self, key: str) -> Comparison:
        return row_of(self.rows, key)

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


@dataclass(frozen=True)
class PairwiseComparisons(_ComparisonTable):
    """Comparisons of several models: one per metric and pair, with adjusted p-values.

    ``result["mrr"]`` has the comparisons of a metric, ``result["mrr", "a", "b"]`` the one of two
    models, as a - b.

    Attributes:
        rows (tuple): ordered by metric.
        models (tuple): names in input order.

    >>> from torchrankmetrics import Ranks, compare
    >>> ranks = {"a": [1, 2, 1, 3, 1], "b": [2, 3, 1, 5, 2], "c": [4, 3, 2, 5, 3]}
    >>> models = {name: Ranks(listed * 30, None, 9) for name, listed in ranks.items()}
    >>> results = compare(models, "mrr")
    >>> results["mrr", "a", "b"].better
    'a'
    """

    models: tuple[str, ...]

    @overload
    def __getitem__(self, key: str) -> PairwiseComparisons: ...
    @overload
    def __getitem__(self, key: tuple[str, str, str]) -> Comparison: ...
    def __getitem__(self, key: str | tuple[str, str, str]) -> Comparison | PairwiseComparisons:
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
        metric (str): canonical key.
        value_a, value_b, difference (float): values of both models, and value_a - value_b.
        p_value, p_adjusted (float): two-sided, of no difference; of one metric both are the same.
        test (str): name of the test.
        num_tasks, unit (int, str): number of "tasks" or "queries".
        num_clusters, effective_clusters, effective_tasks (int, float): number of clusters, and
            effective numbers.
        higher_is_better (bool): direction of the metric; None without one.
        permutations (int): number of random flips; None: p is exact or of another test.
        bounded (bool): False if one end is the limit of the values.
        seeds, models, correction (SeedSplit, tuple, str): variance components, names of the models,
            and method of p_adjusted.
        low, high, interval_level (float): interval of two one-sided tests, and its level 2
            confidence_level - 1.
        margin, confidence_level (float): largest difference that does not matter, > 0; level of the
            tests, in (0, 1).
        p_equivalent, p_not_worse, p_not_better (float): of the hypotheses that the absolute
            difference is at least the margin, that a is worse than b by the margin or more, and
            that a is better by the margin or more.

    >>> from torchrankmetrics import Ranks
    >>> from torchrankmetrics.inference import equivalence
    >>> a = Ranks([1, 2, 1, 3, 1, 2] * 50, None, 9)
    >>> b = Ranks([1, 2, 1, 3, 2, 1] * 50, None, 9)
    >>> result = equivalence(a, b, "mrr", margin=0.1)
    >>> result.equivalent
    True
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
            f"{self.metric}: {self.value_a:.4f} - {self.value_b:.4f} = {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * self.interval_level:g}%, margin "
            f"{self.margin:g}: {'equivalent' if self.equivalent else verdict} (p = "
            f"{self.p_equivalent:.2g}; a not worse: p = {self.p_not_worse:.2g}; {self.test}); "
            f"{self.size}; {_direction([self])}"
        )


def equivalences(found: Sequence[Equivalence]) -> Tabular:
    """Build a table with a row per metric, for the same models and margin."""
    first = found[0]
    names = ("metric", *_VALUES, "p_equivalent", "p_not_worse")
    headings = {
        **_HEADINGS,
        "p_equivalent": "p equivalent",
        "p_not_worse": "p a not worse",
    }
    columns = [
        Column(name, headings.get(name), key=name == "metric")
        for name in (*names, "equivalent", "test")
    ]
    read = attrgetter(*names)
    rows = []
    for one in found:
        verdict = "yes" if one.equivalent else "not shown"
        rows.append((*read(one), verdict, one.test))
    levels = (
        f"tests at {100 * first.confidence_level:g}%, intervals at {100 * first.interval_level:g}%"
    )
    return Tabular(
        columns, rows, (f"{first.size}, margin {first.margin:g}, {levels}; {_direction(found)}",)
    )
