"""Results of `compare`: differences with intervals and p-values, and how they are printed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from torchrankmetrics.inference.intervals import in_clusters
from torchrankmetrics.rendering import ROW, Column, Rendered, Tabular
from torchrankmetrics.validation import shorten, truncate

if TYPE_CHECKING:
    from torchrankmetrics.inference.seeds import SeedSplit


@dataclass(frozen=True)
class Comparison(Rendered):
    """Difference a - b of a metric on the same tasks.

    Attributes:
        metric (str): canonical key.
        a (float): value of the first model; with several seeds, their mean.
        b (float): value of the second model.
        difference (float): a - b.
        low (float): lower end of its confidence interval.
        high (float): upper end.
        confidence_level (float): in (0, 1).
        p_value (float): two-sided, of the hypothesis of no difference; None for metrics without a test, such as the
            median.
        p_adjusted (float): adjusted for all metrics and pairs of models of the call.
        test (str): name of the test.
        num_tasks (int): number of ranking tasks on which both models were compared.
        num_clusters (int): number of their clusters; None: every task is independent.
        effective_clusters (float): number of clusters of equal weight with the same information.
        seeds (SeedSplit): variance components, with several seeds.
        permutations (int): number of random flips of the permutation test; None: the p-value is exact or
            of another test.
        effective_tasks (float): effective number of tasks or clusters for the standard error,
            infinite if the method does not depend on it; below 5 the interval misses more often than its confidence
            level states.
        models (tuple): names of the two models, if they have names.
        correction (str): method of p_adjusted, "Holm" or "max-T".
        bounded (bool): False if the test rejects no difference on one side: that end is the limit of
            possible values.
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
    seeds: "SeedSplit | None" = None
    permutations: int | None = None
    effective_tasks: float = math.inf
    bounded: bool = True
    models: tuple[str, str] | None = None
    correction: str = "Holm"

    @property
    def label(self) -> str:
        """The metric, and the models if they have names."""
        return self.metric if self.models is None else f"{self.metric}, {self.models[0]} - {self.models[1]}"

    def turned(self) -> "Comparison":
        """Return the comparison as b - a."""
        split = self.seeds and replace(self.seeds, num_seeds=self.seeds.num_seeds[::-1])
        return replace(
            self,
            a=self.b,
            b=self.a,
            difference=-self.difference,
            low=-self.high,
            high=-self.low,
            models=None if self.models is None else (self.models[1], self.models[0]),
            seeds=split,
        )

    @property
    def monte_carlo_error(self) -> float | None:
        """Standard error of the p-value due to random flips; 0 if it is exact, None without a p-value."""
        if self.p_value is None or self.permutations is None:
            return None if self.p_value is None else 0.0
        return math.sqrt(self.p_value * (1 - self.p_value) / self.permutations)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        return _tabular([self])

    def __str__(self) -> str:
        p, test = "no p-value", self.test
        if self.p_value is not None:
            floor = self.permutations is not None and self.p_value * (self.permutations + 1) < 1.5
            p = f"p < 1/{self.permutations}" if floor else f"p = {self.p_value:.2g}"
        if self.permutations is not None:
            test += f", {self.permutations} flips"
            # no random flip reached the observed sum: the error cannot be estimated
            p += "" if floor else f" ± {self.monte_carlo_error:.1g}"
        if self.p_value is not None and self.p_adjusted is not None and self.p_adjusted != self.p_value:
            p += f", by {self.correction} {self.p_adjusted:.2g}"
        clusters = "" if self.num_clusters is None else in_clusters(self.num_clusters, self.effective_clusters)
        text = (
            f"{self.label}: {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * self.confidence_level:g}%, {p} ({test}); "
            f"{self.num_tasks} tasks{clusters}"
        )
        if self.seeds is not None:
            split = self.seeds
            shares = [100 * part / split.total if split.total else 0.0 for part in (split.seeds, split.tasks)]
            text += (
                f"; {split.num_seeds[0]} and {split.num_seeds[1]} seeds: {shares[0]:.0f} % of the variance is training "
                f"seeds, {shares[1]:.0f} % test tasks, {100 - sum(shares):.0f} % both"
            )
        return text


@dataclass(frozen=True)
class Comparisons(Rendered):
    """One ``Comparison`` per metric, ``result["mrr"]``; p-values are adjusted for the number of metrics.

    Args:
        rows (tuple): one ``Comparison`` per metric.
    """

    rows: tuple[Comparison, ...]

    def __getitem__(self, key: str) -> Comparison:
        for row in self.rows:
            if row.metric == key:
                return row
        raise KeyError(f"{shorten(key)} was not compared; there are {', '.join(row.metric for row in self.rows)}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        return _tabular(self.rows)


@dataclass(frozen=True)
class PairwiseComparisons(Rendered):
    """Comparisons of several models: one per metric and pair, with p-values adjusted for their number.

    ``result["mrr"]`` has the comparisons of a metric, ``result["mrr", "a", "b"]`` the one of two models, as a - b.

    Attributes:
        rows (tuple): ordered by metric.
        models (tuple): names in input order.
    """

    rows: tuple[Comparison, ...]
    models: tuple[str, ...]

    @overload
    def __getitem__(self, key: str) -> "PairwiseComparisons": ...
    @overload
    def __getitem__(self, key: tuple[str, str, str]) -> Comparison: ...
    def __getitem__(self, key: str | tuple[str, str, str]) -> "Comparison | PairwiseComparisons":
        metric, *pair = (key,) if isinstance(key, str) else key
        rows = tuple(row for row in self.rows if row.metric == metric)
        if not rows:
            known = ", ".join(dict.fromkeys(row.metric for row in self.rows))
            raise KeyError(f"{shorten(metric)} was not compared; there are {known}")
        if not pair:
            return replace(self, rows=rows)
        for row in rows:
            if row.models is not None and set(row.models) == set(pair):
                return row if row.models == tuple(pair) else row.turned()
        raise KeyError(
            f"{' and '.join(map(shorten, pair))} were not compared; there are {', '.join(map(truncate, self.models))}"
        )

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        return _tabular(self.rows)


def _tabular(rows: Sequence[Comparison]) -> Tabular:
    named = any(one.models is not None for one in rows)
    columns = (
        Column("metric", key=True),
        *((Column("model_a", "A", key=True), Column("model_b", "B", key=True)) if named else ()),
        *(Column(name, metric=ROW) for name in ("a", "b")),
        Column("difference", "a - b", metric=ROW),
        *(Column(name, metric=ROW) for name in ("low", "high")),
        *(Column(name) for name in ("p", "p_adjusted", "test")),
    )
    cells = [
        (one.metric, *(one.models or ()), one.a, one.b, one.difference, one.low, one.high)
        + (one.p_value, one.p_adjusted, one.test)
        for one in rows
    ]
    notes = []
    for first in rows[:1]:
        clusters = "" if first.num_clusters is None else in_clusters(first.num_clusters, first.effective_clusters)
        adjusted = f"; p_adjusted by {first.correction}" if named else ""
        notes = [f"{first.num_tasks} tasks{clusters}, intervals at {100 * first.confidence_level:g}%{adjusted}"]
    return Tabular(columns, cells, notes)
