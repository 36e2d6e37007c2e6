"""Models over data sets: averages, mean ranks, and the difference of two models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.transforms import apply_transform
from torchrankmetrics.inference.across import MeanRanks, mean_ranks
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.datasets import critical_difference, differences as draw_differences
from torchrankmetrics.rendering import Cell, Column, Rendered, Styled, Tabular
from torchrankmetrics.study.cells import Measured
from torchrankmetrics.study.runs import DataSet, Read
from torchrankmetrics.study.tables import StudyTable
from torchrankmetrics.validation import shown

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure


@dataclass(frozen=True)
class Average:
    """A model over data sets, each of which counts once.

    Attributes:
        value: mean over the data sets.
        low, high: its interval with the data sets as the sample; NaN for fewer than two.
        mean_rank: of its value among the models of a data set, 1 for the best.
        best: on how many data sets no model is better.
        won: on how many it is told apart from every other model.
        beyond_chance: on how many all its runs are better than a random ranking, one family over the table; None where
            the metric has no p-value.
        num_datasets: on how many it has a value.
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
    """Models over data sets: ``averages["amri", "model"].value``; print it to read what is comparable."""

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    rows: Mapping[tuple[str, str], Average]
    notes: tuple[str, ...]

    def __getitem__(self, place: tuple[str, str]) -> Average:
        """Row of a (metric, model)."""
        if place not in self.rows:
            raise KeyError(f"{shown(place)} is not there; there are {', '.join(map(str, self.rows))}")
        return self.rows[place]

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        columns = [
            Column("metric", key=True),
            Column("model", key=True),
            Column("mean", audience="programs"),
            Column("low", audience="programs"),
            Column("high", audience="programs"),
            Column("interval", "mean over data sets", audience="people"),
            Column("mean_rank", "mean rank", digits=2),
            Column("best"),
            Column("won"),
            Column("beyond_chance", "beyond chance"),
            Column("datasets", "of data sets"),
        ]
        lines: list[list[Cell]] = []
        for one in self.measures:
            mine = {model: self.rows[one.key, model] for model in self.models}
            top = (max if one.higher_is_better else min)(row.value for row in mine.values())
            for model, row in mine.items():
                digits = 3 if abs(row.value) < 10 else 1
                text = f"{row.value:.{digits}f}"
                text += "" if math.isnan(row.low) else f" [{row.low:.{digits}f}, {row.high:.{digits}f}]"
                numbers = (row.value, row.low, row.high, Styled(row.value, text, bold=row.value == top))
                counts = (row.mean_rank, row.best, row.won, row.beyond_chance, row.num_datasets)
                lines.append([one.key, model, *numbers, *counts])
        return Tabular(columns, lines, self.notes)


def averages(table: StudyTable, datasets: Sequence[DataSet]) -> Averages:
    """Average a table over its data sets.

    Raises:
        ValueError: for a metric without a direction, and if no data set has values of all models.
    """
    rows: dict[tuple[str, str], Average] = {}
    told: dict[Measure, dict[str, set[str]] | None] = {}
    notes = [
        "Every data set counts once. Intervals: data sets as the sample (Student's t), for other data sets of the "
        "kind. best: no model has a better value; won: told apart from every other model, one family over the table; "
        "beyond chance: all runs better than a random ranking (Holm)."
    ]
    for one in table.measures:
        if one.higher_is_better is None:
            raise ValueError(f"{one.key!r} has no direction, so that no model is best by it: choose another metric")
        chosen, left_out = complete(table, one)
        values = {(m, d): value_of(table, one, m, d) for m in table.models for d in chosen}
        base = replace(one, view="base")  # the p-value is the same in all views
        if base not in told:
            told[base] = _beyond_chance(base, datasets, 1 - table.confidence_level)
        above = told[base]
        for model in table.models:
            mine = np.array([values[model, d] for d in chosen])
            better = [sum(_ahead(one, values[m, d], values[model, d]) for m in table.models) for d in chosen]
            equal = [sum(values[m, d] == values[model, d] for m in table.models) for d in chosen]
            ranks = [1 + b + (e - 1) / 2 for b, e in zip(better, equal, strict=True)]
            low, high = _interval(mine, table.confidence_level, one.bounds)
            rows[one.key, model] = Average(
                value=float(mine.mean()),
                low=low,
                high=high,
                mean_rank=float(np.mean(ranks)),
                best=sum(b == 0 for b in better),
                won=sum(table.cells[one.key, model, d].rank == (1, 1) for d in chosen) if len(table.models) > 1 else 0,
                beyond_chance=None if above is None else sum(model in above[d] for d in chosen),
                num_datasets=len(chosen),
            )
        notes.append(f"{one.key}: {comparability(one, table, chosen)}")
        if left_out:
            notes.append(f"{one.key}: without {', '.join(left_out)}, where a model has no value.")
    return Averages(table.measures, table.models, rows, tuple(notes))


def complete(table: StudyTable, one: Measure) -> tuple[list[str], list[str]]:
    """Data sets on which every model has a value, and the others.

    Raises:
        ValueError: if there are none.
    """
    chosen = [d for d in table.datasets if all(not math.isnan(value_of(table, one, m, d)) for m in table.models)]
    if not chosen:
        raise ValueError(
            f"no data set has {one.key!r} of all models: {', '.join(table.models)}; make a study of those models that "
            "share data sets"
        )
    return chosen, [d for d in table.datasets if d not in chosen]


def comparability(one: Measure, table: StudyTable, chosen: Sequence[str]) -> str:
    """What an average of the measure over data sets means, see docs/comparable.md."""
    if one.view == "z_score":
        return "not comparable: z is evidence against chance, and grows with the number of tasks."
    chances = [table.chance[one.key, d] for d in chosen if not math.isnan(table.chance[one.key, d])]
    if one.view != "adjusted_index":
        spread = f", by chance from {min(chances):.3g} to {max(chances):.3g}" if chances else ""
        return f"not comparable: its value depends on the number of candidates{spread}."
    if one.definition.name == "auc":
        return "keeps its value where candidates are drawn uniformly; all tasks of a data set weigh the same."
    if one.definition.name == "mr":
        return "keeps its value where candidates are drawn uniformly; tasks weigh as they have candidates."
    return "0 is chance and 1 perfect everywhere; between, it falls with the number of uniformly drawn candidates."


def value_of(table: StudyTable, one: Measure, model: str, data: str) -> float:
    """Value of a cell, NaN where it is missing."""
    cell = table.cells.get((one.key, model, data))
    return math.nan if cell is None else cell.value


def _ahead(one: Measure, a: float, b: float) -> bool:
    return a > b if one.higher_is_better else a < b


def _interval(
    values: FloatArray, confidence_level: float, bounds: tuple[float | None, float | None]
) -> tuple[float, float]:
    """Student's interval of a mean, cut to what is possible."""
    if len(values) < 2:
        return math.nan, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    half = float(student.ppf((1 + confidence_level) / 2, len(values) - 1)) * error
    low, high = float(values.mean()) - half, float(values.mean()) + half
    return (low if bounds[0] is None else max(low, bounds[0])), (high if bounds[1] is None else min(high, bounds[1]))


def _beyond_chance(one: Measure, datasets: Sequence[DataSet], alpha: float) -> dict[str, set[str]] | None:
    """The models of each data set whose runs are all better than chance; None if the metric has no p-value."""
    p_value, z_score = replace(one, rank_type="pessimistic").seen_as("p_value", "z_score")
    if p_value is None or z_score is None:
        return None
    runs = [(data.name, read) for data in datasets for read in data.reads]
    bounds = []
    for _, read in runs:
        bound = _tail_bound(z_score, read)
        if not bound * len(runs) <= alpha:  # exact tails are slow: they are asked where bounds do not settle the matter
            bound = p_value.value_or_nan(read.analysis)
        bounds.append(1.0 if math.isnan(bound) else bound)
    adjusted = holm(bounds)
    below = {(name, read.run.model) for (name, read), p in zip(runs, adjusted, strict=True) if p > alpha}
    return {data.name: {m for m in data.models if (data.name, m) not in below} for data in datasets}


def _tail_bound(z_score: Measure, read: Read) -> float:
    """What the p-value is at most, by inequalities that need no approximation.

    Source: Cantelli 1928; for means of a bounded f Bernstein 1946 (Boucheron, Lugosi and Massart 2013, corollary 2.11).
    """
    z = z_score.value_or_nan(read.analysis)
    if not z > 0:
        return 1.0
    sample, definition = z_score.sample(read.analysis), z_score.definition.of_tasks
    bound = 1 / (1 + z * z)
    if definition is None or not isinstance(sample, RankSample):
        return bound
    low, high = definition.mean_limits(sample)
    if definition.is_mean_of_f and math.isfinite(low) and math.isfinite(high):
        N = sample.known_candidates
        first, last = (apply_transform(definition.f, r, num_candidates=N) for r in (np.ones(len(N)), N.astype(float)))
        step = float((np.abs(first - last) * sample.weight).max() / sample.total)
        spread = math.sqrt(z_score.moments(sample).variance)
        bound = min(bound, math.exp(-(z**2) / 2 / (1 + step * z / spread / 3)))
    return bound


@dataclass(frozen=True, eq=False)
class Ranking(Rendered):
    """Mean ranks of models over data sets, with the difference that they must have to be told apart."""

    metric: str
    models: tuple[str, ...]
    ranks: MeanRanks
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the critical difference, see ``plots.critical_difference``."""
        return critical_difference(self.models, self.ranks, ax=ax)

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        order = sorted(range(len(self.models)), key=lambda i: self.ranks.mean[i])
        groups = [
            "".join(chr(97 + g) for g, clique in enumerate(self.ranks.cliques) if i in clique)
            for i in range(len(self.models))
        ]
        lines = [(self.models[i], self.ranks.mean[i], groups[i]) for i in order]
        found = self.ranks
        confidence_level, apart = f"{100 * (1 - found.confidence_level):.3g} %", f"{found.critical_difference:.2f}"
        notes = [
            f"Mean ranks by {self.metric} over {found.num_datasets} data sets, 1 is best. Friedman: p = "
            f"{found.p_value:.2g}; Nemenyi: models less than {apart} apart share a letter, as they are not told "
            f"apart at {confidence_level}. How large a difference is on a data set is not looked at."
        ]
        if self.left_out:
            notes.append(f"Without {', '.join(self.left_out)}, where a model has no value.")
        columns = [Column("model", key=True), Column("mean_rank", "mean rank", digits=2), Column("group")]
        return Tabular(columns, lines, tuple(notes))


def ranking(table: StudyTable) -> Ranking:
    """Rank the models of a table on every data set by its first measure.

    Raises:
        ValueError: for a metric without a direction, and for fewer than two models or data sets.
    """
    one = table.measures[0]
    if one.higher_is_better is None:
        raise ValueError(f"{one.key!r} has no direction, so that no model is best by it: choose another metric")
    chosen, left_out = complete(table, one)
    if len(chosen) < 2 or len(table.models) < 2:
        raise ValueError(
            "mean ranks need at least 2 models and 2 data sets with values of all of them, got "
            f"{len(table.models)} and {len(chosen)}"
        )
    values = [[value_of(table, one, m, d) for m in table.models] for d in chosen]
    ranks = mean_ranks(values, higher_is_better=one.higher_is_better, confidence_level=table.confidence_level)
    return Ranking(one.key, table.models, ranks, tuple(left_out))


_ROUNDING = 1e-12  # of a difference, as a share of the values
HERE = "these data sets"


@dataclass(frozen=True)
class DataSetDifference:
    """Difference a - b on a data set; p_adjusted: one family over the data sets."""

    dataset: str
    difference: float
    low: float
    high: float
    standard_error: float
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, eq=False)
class Differences(Rendered):
    """Two models over data sets.

    Attributes:
        a, b, metric: what was subtracted.
        rows: a data set each.
        here: mean over these data sets, for other tasks (and seeds) of them: they are not the sample.
        confidence_level: of the intervals.
        higher_is_better: direction of the metric.
        left_out: data sets where the two cannot be compared.
    """

    a: str
    b: str
    metric: str
    rows: tuple[DataSetDifference, ...]
    here: DataSetDifference
    confidence_level: float
    higher_is_better: bool
    left_out: tuple[str, ...]

    def plot(self, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw the differences and their averages, see ``plots.differences``."""
        ends = {row.dataset: (row.difference, row.low, row.high) for row in (*self.rows, self.here)}
        averages = {self.here.dataset: ends.pop(self.here.dataset)}
        label = f"{self.metric}: {self.a} less {self.b} ({self._better} is better for {self.a})"
        return draw_differences(ends, averages, label, ax=ax)

    @property
    def about(self) -> str:
        """What was subtracted, and which direction is better for whom."""
        what = f"{self.metric} of {self.a} less that of {self.b}"
        return f"{what}, {100 * self.confidence_level:g} % intervals; {self._better} of 0 is better for {self.a}."

    @property
    def _better(self) -> str:
        return "right" if self.higher_is_better else "left"

    def __getitem__(self, dataset: str) -> DataSetDifference:
        """Row of a data set."""
        for row in self.rows:
            if row.dataset == dataset:
                return row
        raise KeyError(f"{shown(dataset)} is not there; there are {', '.join(row.dataset for row in self.rows)}")

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        names = ("dataset", "difference", "low", "high", "p", "p_adjusted")
        columns = [Column(name, key=name == "dataset") for name in names]
        lines: list[list[Cell]] = [
            [r.dataset, r.difference, r.low, r.high, r.p_value, r.p_adjusted] for r in (*self.rows, self.here)
        ]
        notes = [
            f"{self.about} p_adjusted: one family over the data sets (Holm).",
            f"{HERE}: each counts once; generalises to other tasks (and seeds) on these data sets.",
        ]
        if self.left_out:
            notes.append(f"not compared on {', '.join(self.left_out)}.")
        return Tabular(columns, lines, tuple(notes))


def differences(a: str, b: str, one: Measure, found: Mapping[str, Measured], confidence_level: float) -> Differences:
    """Subtract two models on every data set, and average.

    Raises:
        ValueError: if they can be compared nowhere, or the metric has no direction or no error.
    """
    pairs: dict[str, _Pair] = {}
    for name, part in found.items():
        if a in part.tested and b in part.tested and part.pairs:
            i, j = part.tested.index(a), part.tested.index(b)
            place = part.pairs.index((min(i, j), max(i, j)))
            (value, error, freedom), (low, high) = part.differences[place].tolist(), part.ends[place].tolist()
            turned = (value, low, high) if i < j else (-value, -high, -low)
            pairs[name] = _Pair(*turned, error, freedom, float(part.p_values[place]))
    if not pairs:
        raise ValueError(
            f"{shown(a)} and {shown(b)} can be compared by {one.key!r} on no dataset: it takes a mean over tasks that "
            "has a direction, and runs of both on the same tasks"
        )
    adjusted = holm([pair.p_value for pair in pairs.values()]).tolist()
    rows = [
        DataSetDifference(name, pair.value, pair.low, pair.high, pair.error, pair.p_value, p)
        for (name, pair), p in zip(pairs.items(), adjusted, strict=True)
    ]
    here = _mean_here(list(pairs.values()), confidence_level)
    left_out = tuple(name for name in found if name not in pairs)
    return Differences(
        a=a,
        b=b,
        metric=one.key,
        rows=tuple(rows),
        here=here,
        confidence_level=confidence_level,
        higher_is_better=bool(one.higher_is_better),
        left_out=left_out,
    )


class _Pair(NamedTuple):
    """Difference of two models on a data set."""

    value: float
    low: float
    high: float
    error: float
    freedom: float
    p_value: float


def _mean_here(pairs: list[_Pair], confidence_level: float) -> DataSetDifference:
    """Mean over data sets that are no sample: their errors add up, with Welch-Satterthwaite degrees of freedom.

    Where no data set has any spread t would be sure: p is that of the surest data set, by Bonferroni over all of them.
    """
    values = [pair.value for pair in pairs]
    mean = float(np.mean(values))
    variance = sum(pair.error**2 for pair in pairs)
    error = math.sqrt(variance) / len(pairs)
    if error == 0:
        surest = min(1.0, len(pairs) * min(pair.p_value for pair in pairs))
        p_value = 1.0 if abs(mean) <= _ROUNDING * max(map(abs, values)) else surest
        return DataSetDifference(HERE, mean, mean, mean, 0.0, p_value, math.nan)
    freedom = variance**2 / sum(pair.error**4 / pair.freedom for pair in pairs)
    half = float(student.ppf((1 + confidence_level) / 2, freedom)) * error
    p_value = float(2 * student.sf(abs(mean) / error, freedom))
    return DataSetDifference(HERE, mean, mean - half, mean + half, error, p_value, math.nan)
