"""Results of `compare`: differences with intervals and p-values, and how they are printed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from torchrankmetrics.definitions.candidates import IntArray
from torchrankmetrics.inference.intervals import in_clusters
from torchrankmetrics.inference.paired import PairedRuns
from torchrankmetrics.inference.pairing import PairedSource
from torchrankmetrics.inference.seeds import SeedSplit
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.views import apply_view, view_slope
from torchrankmetrics.rendering import ROW, Column, Rendered, Tabular
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import shortened, shown


@dataclass(frozen=True)
class Comparison(Rendered):
    """Difference a - b of a metric on the same tasks; ``print`` tells it in a line.

    Attributes:
        metric: canonical key.
        a: value of the first model; with several seeds, their mean.
        b: value of the second.
        difference: a - b.
        low: lower end of its confidence interval.
        high: upper end.
        confidence_level: in (0, 1).
        p_value: two-sided, of "no difference"; None for metrics without a test (the median and its kin).
        p_adjusted: corrected for all that was asked for together: metrics, and pairs of models.
        test: what gave the p-value.
        num_tasks: ranking tasks that both models were compared on.
        num_clusters: independent clusters of them; None: every task on its own.
        effective_clusters: number of clusters of equal size that would be worth as much.
        seeds: variance by source, with several seeds.
        permutations: number of random flips behind the p-value; None: it is exact, or of no permutation test.
        effective_tasks: number of tasks or clusters that the error of the difference rests on, infinite where none is
            needed; below 5 the interval misses more often than it says.
        models: names of the two, if they have some.
        correction: how p_adjusted was, "Holm" or "max-T".
        bounded: False if an end of the interval is only what is possible, as no difference there could be rejected.
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

    @property
    def label(self) -> str:
        """The metric, and the models if they have names."""
        return self.metric if self.models is None else f"{self.metric}, {self.models[0]} - {self.models[1]}"

    def turned(self) -> "Comparison":
        """The same comparison as b - a."""
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
        """Standard error of the p-value from drawing flips at random; 0 if it is exact, None without a p-value."""
        if self.p_value is None or self.permutations is None:
            return None if self.p_value is None else 0.0
        return math.sqrt(self.p_value * (1 - self.p_value) / self.permutations)

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        return _tabular([self])

    def __str__(self) -> str:
        p, test = "no p-value", self.test
        if self.p_value is not None:
            floor = self.permutations is not None and self.p_value * (self.permutations + 1) < 1.5
            p = f"p < 1/{self.permutations}" if floor else f"p = {self.p_value:.2g}"
        if self.permutations is not None:
            test += f", {self.permutations} flips"
            # at the floor nothing was reached, and the error would be made up
            p += "" if floor else f" ± {self.monte_carlo_error:.1g}"
        if self.p_value is not None and self.p_adjusted is not None and self.p_adjusted != self.p_value:
            p += f", by {self.correction} {self.p_adjusted:.2g}"
        clusters = "" if self.num_clusters is None else in_clusters(self.num_clusters, self.effective_clusters)
        text = (
            f"{self.label}: {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}] at {100 * self.confidence_level:g} %, {p} ({test}); "
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
    """One ``Comparison`` per metric, with p-values adjusted for their number: read ``result["mrr"]``, or print."""

    rows: tuple[Comparison, ...]

    def __getitem__(self, key: str) -> Comparison:
        for row in self.rows:
            if row.metric == key:
                return row
        raise KeyError(f"{shown(key)} was not compared; there are {', '.join(row.metric for row in self.rows)}")

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        return _tabular(self.rows)


@dataclass(frozen=True)
class PairwiseComparisons(Rendered):
    """Comparisons of several models: one per metric and pair, with p-values adjusted for their number; ``print`` it.

    ``result["mrr"]`` has those of a metric, ``result["mrr", "a", "b"]`` the one of two models, as a - b.

    Attributes:
        rows: metric by metric.
        models: their names, in the order given.
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
            raise KeyError(f"{shown(metric)} was not compared; there are {known}")
        if not pair:
            return replace(self, rows=rows)
        for row in rows:
            if row.models is not None and set(row.models) == set(pair):
                return row if row.models == tuple(pair) else row.turned()
        raise KeyError(
            f"{' and '.join(map(shown, pair))} were not compared; there are {', '.join(map(shortened, self.models))}"
        )

    def tabular(self) -> Tabular:
        """The table, before it is written."""
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
        notes = [f"{first.num_tasks} tasks{clusters}, intervals at {100 * first.confidence_level:g} %{adjusted}"]
    return Tabular(columns, cells, notes)


@dataclass(frozen=True, eq=False)
class PairedMeasure:
    """Values of two models in the view of a measure, and the runs behind them.

    Attributes:
        measure: what is compared.
        runs: the runs of A and of B on the same tasks.
        used: (m,) int64, a row of each task or query that was measured.
        a, b: value of either model; of several runs their mean.
        slope: of the view: what an error of the base value is multiplied by.
    """

    measure: Measure
    runs: PairedRuns
    used: IntArray
    a: float
    b: float
    slope: float

    @property
    def difference(self) -> float:
        """A - b."""
        return self.a - self.b

    @property
    def num_tasks(self) -> int:
        """Ranking tasks that both were measured on."""
        return self.runs.samples[0].num_tasks


def paired_measure(measure: Measure, rows: list[Rows], num_a: int, keys: IntArray | None) -> PairedMeasure:
    """Measure two models on rows of the same tasks.

    Args:
        measure: what is asked.
        rows: of every run, in one order of tasks, the runs of A first.
        num_a: how many runs are of A.
        keys: cluster of each task; None: each on its own.

    Raises:
        ValueError: without tasks on the side that is asked for.
    """
    samples, used = measure.definition.sample(PairedSource(rows), measure.side, measure.average)
    if not len(used):
        side = "" if measure.side == "both" else f" of side {measure.side!r}"
        raise ValueError(f"no tasks{side} to compare {shown(measure.definition.name)} on")
    values = [measure.definition.value(sample, measure.rank_type) for sample in samples]
    slope = 1.0
    if measure.view != "base":
        moments = measure.moments(samples[0])
        values = [apply_view(measure.definition, measure.view, value, moments) for value in values]
        slope = view_slope(measure.definition, measure.view, moments)
    runs = PairedRuns(measure.definition, measure.rank_type, samples, num_a, None if keys is None else keys[used])
    return PairedMeasure(measure, runs, used, float(np.mean(values[:num_a])), float(np.mean(values[num_a:])), slope)
