"""Models over several datasets: averages, mean ranks, and the difference of two models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import rankdata, t as student

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.inference.standard_errors import student_interval
from torchrankmetrics.inference.testing import MeanRanks, holm, mean_ranks
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.datasets import critical_difference, differences as draw_differences
from torchrankmetrics.rendering import ROW, Cell, Column, Rendered, Styled, Tabular, paper_name
from torchrankmetrics.study.cells import DatasetResult
from torchrankmetrics.study.tables import StudyTable
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure


class Average(NamedTuple):
    """A model over datasets of equal weight.

    Attributes:
        value: mean over the datasets.
        low, high: ends of its interval with the datasets as the sample; NaN for fewer than two.
        mean_rank: mean of its rank among the models of a dataset, 1 for the best.
        best: number of datasets on which no model has a better value.
        won: number of datasets on which it is significantly better than every other model.
        beyond_chance: number of datasets on which it is significantly better than random ranking; None for metrics
            without a p-value.
        num_datasets: number of datasets on which all models have a value.
    """

    value: float
    low: float
    high: float
    mean_rank: float
    best: int
    won: int
    beyond_chance: int | None
    num_datasets: int


@dataclass(frozen=True, eq=False)
class Averages(Rendered):
    """Models over datasets: ``averages["amri", "model"].value``; the notes state what is comparable."""

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    rows: Mapping[tuple[str, str], Average]
    notes: tuple[str, ...]

    def __getitem__(self, place: tuple[str, str]) -> Average:
        """Row of a (metric, model)."""
        if place not in self.rows:
            raise KeyError(f"{shorten(place)} is missing; available: {', '.join(map(str, self.rows))}")
        return self.rows[place]

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        columns = [
            Column("metric", key=True),
            Column("model", key=True),
            *(Column(name, audience="programs") for name in ("mean", "low", "high")),
            Column("interval", "mean over datasets", audience="people", metric=ROW),
            Column("mean_rank", "mean rank", digits=2),
            Column("best"),
            Column("won"),
            Column("beyond_chance", "better than random"),
            Column("datasets"),
        ]
        lines: list[list[Cell]] = []
        for one in self.measures:
            top = (max if one.higher_is_better else min)(self.rows[one.key, model].value for model in self.models)
            for model in self.models:
                value, low, high, *counts = self.rows[one.key, model]
                printed = Styled(value, low, high, digits=3 if abs(value) < 10 else 1, bold=value == top)
                lines.append([one.key, model, value, low, high, printed, *counts])
        return Tabular(columns, lines, self.notes)


def averages(table: StudyTable) -> Averages:
    """Average a table over its datasets; ValueError as ``_complete``."""
    rows: dict[tuple[str, str], Average] = {}
    rate = f"{100 * (1 - table.confidence_level):.3g}%"
    notes = [
        "Every dataset has the same weight. Intervals: Student's t with the datasets as the sample. best: number of "
        f"datasets on which no model has a better value; won: significantly better than every other model; better than "
        f"random: all runs are significantly better than random ranking (Holm's method, family-wise error rate {rate})."
    ]
    for one in table.measures:
        chosen, values, left_out = _complete(table, one)
        ranks = rankdata(-values if one.higher_is_better else values, axis=1)
        leading = values == (values.max if one.higher_is_better else values.min)(1, keepdims=True)
        for i, model in enumerate(table.models):
            cells = [table.cells[one.key, model, data] for data in chosen]
            tested = [c.is_better_than_random for c in cells if c.is_better_than_random is not None]
            rows[one.key, model] = Average(
                *_interval(values[:, i], table.confidence_level, one.bounds),
                mean_rank=float(ranks[:, i].mean()),
                best=int(leading[:, i].sum()),
                won=sum(c.rank == (1, 1) for c in cells) if len(table.models) > 1 else 0,
                beyond_chance=sum(tested) if tested else None,
                num_datasets=len(chosen),
            )
        notes.append(f"{paper_name(one.key)}: {_comparability(one, table, chosen)}")
        if left_out:
            notes.append(f"{paper_name(one.key)}: without {', '.join(left_out)}, where a model has no value.")
    return Averages(table.measures, table.models, rows, tuple(notes))


def _complete(table: StudyTable, one: Measure) -> tuple[list[str], FloatArray, list[str]]:
    """Datasets on which every model has a value, these values (datasets, models), and the other datasets.

    Raises:
        ValueError: if there are none, and for a metric without a direction.
    """
    if one.higher_is_better is None:
        raise ValueError(f"{one.key!r} has no direction, so that no model is best by it: choose another metric")
    values = {data: [table.value(one.key, model, data) for model in table.models] for data in table.datasets}
    chosen = [data for data, row in values.items() if not np.isnan(row).any()]
    if not chosen:
        raise ValueError(
            f"no dataset has {one.key!r} of all models: {', '.join(table.models)}; make a study of models that share "
            "datasets"
        )
    return chosen, np.array([values[data] for data in chosen]), [data for data in values if data not in chosen]


def _comparability(one: Measure, table: StudyTable, chosen: Sequence[str]) -> str:
    """Meaning of an average of the measure over datasets, see docs/comparable.md."""
    if one.view == "z_score":
        return "not comparable between datasets: z grows with the number of tasks."
    if one.view != "adjusted_index":
        known = [table.results[one.key, data].chance for data in chosen]
        chances = sorted(value for value in known if not math.isnan(value))
        ends = dict.fromkeys(f"{value:.3g}" for value in (*chances[:1], *chances[-1:]))
        spread = f" (random ranking: {' to '.join(ends)})" if ends else ""
        return f"not comparable between datasets: the value depends on the number of candidates{spread}."
    if one.definition.name in ("auc", "mr"):
        weight = "weigh the same" if one.definition.name == "auc" else "weigh by their numbers of candidates"
        return f"comparable if candidates are sampled uniformly; the tasks of a dataset {weight}."
    return "0 is random ranking and 1 is perfect on every dataset; other values decrease with the number of candidates."


def _interval(
    values: FloatArray, confidence_level: float, bounds: tuple[float | None, float | None]
) -> tuple[float, float, float]:
    """Mean with its Student's interval, cut to possible values."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, math.nan, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    low, high = student_interval(mean, error, len(values) - 1, confidence_level)
    least, most = bounds
    return mean, low if least is None else max(low, least), high if most is None else min(high, most)


@dataclass(frozen=True, eq=False)
class Ranking(Rendered):
    """Mean ranks of models over datasets, with the smallest significant difference."""

    metric: str
    models: tuple[str, ...]
    ranks: MeanRanks
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the critical difference, see ``plots.critical_difference``."""
        return critical_difference(self.models, self.ranks, ax=ax)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        found = self.ranks
        rows = [
            (model, mean, "".join(chr(97 + g) for g, clique in enumerate(found.cliques) if i in clique))
            for i, (model, mean) in enumerate(zip(self.models, found.mean, strict=True))
        ]
        rows.sort(key=lambda row: row[1])
        notes = [
            f"Mean ranks by {paper_name(self.metric)} over {found.num_datasets} datasets, 1 is best. Friedman: "
            f"p = {found.p_value:.2g}. Nemenyi: models that share a letter (less than {found.critical_difference:.2f} "
            f"apart) are not significantly different at {100 * (1 - found.confidence_level):.3g}%."
        ]
        if self.left_out:
            notes.append(f"Without {', '.join(self.left_out)}, where a model has no value.")
        columns = [Column("model", key=True), Column("mean_rank", "mean rank", digits=2), Column("group")]
        return Tabular(columns, rows, notes)


def ranking(table: StudyTable) -> Ranking:
    """Rank the models of a table on every dataset by its first metric; ValueError for less than 2 x 2 values."""
    one = table.measures[0]
    chosen, values, left_out = _complete(table, one)
    if len(chosen) < 2 or len(table.models) < 2:
        raise ValueError(
            "mean ranks need at least 2 models and 2 datasets with values of all of them, got "
            f"{len(table.models)} and {len(chosen)}"
        )
    ranks = mean_ranks(values, higher_is_better=bool(one.higher_is_better), confidence_level=table.confidence_level)
    return Ranking(one.key, table.models, ranks, tuple(left_out))


_HERE = "these datasets"


class DatasetDifference(NamedTuple):
    """Difference a - b on a dataset; ``p_adjusted``: one family over the datasets."""

    dataset: str
    difference: float
    low: float
    high: float
    standard_error: float
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, eq=False)
class Differences(Rendered):
    """Difference of two models over datasets.

    Attributes:
        a, b, metric: names.
        rows: one per dataset.
        here: mean over these datasets, for other test tasks (and seeds); the datasets are fixed.
        confidence_level: of the intervals.
        higher_is_better: direction of the metric.
        left_out: datasets on which the two cannot be compared.
    """

    a: str
    b: str
    metric: str
    rows: tuple[DatasetDifference, ...]
    here: DatasetDifference
    confidence_level: float
    higher_is_better: bool
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the differences and their mean, see ``plots.differences``."""
        ends = {row.dataset: (row.difference, row.low, row.high) for row in self.rows}
        mean = {_HERE: (self.here.difference, self.here.low, self.here.high)}
        better = f"{'right' if self.higher_is_better else 'left'} is better for {self.a}"
        return draw_differences(ends, mean, f"{paper_name(self.metric)}: {self.a} − {self.b} ({better})", ax=ax)

    @property
    def about(self) -> str:
        """Caption: the difference, its interval, and its direction."""
        direction = "positive" if self.higher_is_better else "negative"
        what = f"{paper_name(self.metric)} of {self.a} minus {self.b} with {100 * self.confidence_level:g}% intervals"
        return f"{what}; {direction} differences are better for {self.a}."

    def __getitem__(self, dataset: str) -> DatasetDifference:
        """Row of a dataset."""
        rows = {row.dataset: row for row in self.rows}
        if dataset not in rows:
            raise KeyError(f"{shorten(dataset)} is missing; available: {', '.join(rows)}")
        return rows[dataset]

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        values = (Column(name, name, metric=self.metric) for name in ("difference", "low", "high"))
        columns = [Column("dataset", key=True), *values, Column("p"), Column("p_adjusted")]
        rows = [(*row[:4], *row[5:]) for row in (*self.rows, self.here)]
        notes = [
            f"{self.about} p_adjusted: Holm's method over the datasets.",
            f"{_HERE}: mean over the datasets with equal weights, for other tasks (and seeds) of the same datasets.",
        ]
        if self.left_out:
            notes.append(f"not compared on {', '.join(self.left_out)}.")
        return Tabular(columns, rows, notes)


def differences(
    a: str, b: str, one: Measure, results: Mapping[str, DatasetResult], confidence_level: float
) -> Differences:
    """Subtract two models on every dataset, and average; ValueError if they cannot be compared on any."""
    pairs = {name: result.pairs[a, b] for name, result in results.items() if (a, b) in result.pairs}
    for name, result in results.items():
        if (b, a) in result.pairs:
            value, low, high, *rest = result.pairs[b, a]
            pairs[name] = (-value, -high, -low, *rest)
    if not pairs:
        raise ValueError(
            f"{shorten(a)} and {shorten(b)} can be compared by {one.key!r} on no dataset: the metric must be a mean "
            "over tasks with a direction, and both need runs on the same tasks"
        )
    adjusted = holm([pair[-1] for pair in pairs.values()]).tolist()
    rows = [
        DatasetDifference(name, value, low, high, error, p, p_adjusted)
        for (name, (value, low, high, error, _, p)), p_adjusted in zip(pairs.items(), adjusted, strict=True)
    ]
    mean = DatasetDifference(_HERE, *_mean_of(list(pairs.values()), confidence_level), math.nan)
    left_out = tuple(name for name in results if name not in pairs)
    return Differences(a, b, one.key, tuple(rows), mean, confidence_level, bool(one.higher_is_better), left_out)


def _mean_of(pairs: list[tuple[float, ...]], confidence_level: float) -> tuple[float, float, float, float, float]:
    """Mean over fixed datasets, its interval, error and p: variances add up, Welch-Satterthwaite degrees of freedom.

    If no dataset has any spread, p is the smallest p-value of a dataset, by Bonferroni over all of them.
    """
    values, _, _, errors, freedoms, p_values = zip(*pairs, strict=True)
    mean, variance = float(np.mean(values)), sum(error**2 for error in errors)
    error = math.sqrt(variance) / len(pairs)
    if error == 0:
        is_zero = abs(mean) <= 1e-12 * max(map(abs, values))  # up to rounding
        return mean, mean, mean, 0.0, 1.0 if is_zero else min(1.0, len(pairs) * min(p_values))
    freedom = variance**2 / sum(error**4 / own for error, own in zip(errors, freedoms, strict=True))
    ends = student_interval(mean, error, freedom, confidence_level)
    return mean, *ends, error, float(2 * student.sf(abs(mean) / error, freedom))
