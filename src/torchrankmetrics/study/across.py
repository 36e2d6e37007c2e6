"""Models over several datasets of equal weight: averages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.stats import rankdata, sem

from torchrankmetrics.definitions.sample import FloatArray
from torchrankmetrics.inference.standard_errors import student_interval
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.rendering import ROW, Cell, Column, Rendered, Styled, Tabular, paper_name
from torchrankmetrics.study.tables import StudyTable
from torchrankmetrics.validation import shorten

Row = TypeVar("Row")
_LEGEND = (
    "Every dataset has the same weight. Intervals: Student's t with the datasets as the sample. "
    "best: number of datasets on which no model has a better value; won: significantly better "
    "than every other model; better than random: all runs are significantly better than random "
    "ranking"
)


def row_at(rows: Mapping[Any, Row], key: object) -> Row:
    """Return the row of a key; KeyError with the available ones."""
    if key not in rows:
        raise KeyError(f"{shorten(key)} is missing; available: {', '.join(map(str, rows))}")
    return rows[key]


class Average(NamedTuple):
    """A model over datasets of equal weight.

    Attributes:
        value, low, high: mean over the datasets with its interval; NaN ends for fewer than two.
        mean_rank: mean of its rank among the models of a dataset, 1 for the best.
        best, won, better_than_random: numbers of datasets on which no model has a better value, on
            which it is significantly better than every other model, and than random ranking (None
            for metrics without a p-value).
        num_datasets: number of datasets on which all models have a value of the same tasks.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy
    >>> study = RankStudy()
    >>> for dataset in ("nations", "kinships"):
    ...     for model, ranks in {"a": [1, 2, 1, 4] * 30, "b": [3, 2, 5, 4] * 30}.items():
    ...         study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset=dataset)
    ...
    >>> average = study.summary(["mrr"])["mrr", "a"]
    >>> average.mean_rank, average.num_datasets
    (1.0, 2)
    """

    value: float
    low: float
    high: float
    mean_rank: float
    best: int
    won: int
    better_than_random: int | None
    num_datasets: int


@dataclass(frozen=True, eq=False)
class Averages(Rendered):
    """Models over datasets: ``averages["amri", "model"].value``; see the notes for comparability.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy
    >>> study = RankStudy()
    >>> for dataset in ("nations", "kinships"):
    ...     for model, ranks in {"a": [1, 2, 1, 4] * 30, "b": [3, 2, 5, 4] * 30}.items():
    ...         study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset=dataset)
    ...
    >>> averages = study.summary(["mrr"])
    >>> averages["mrr", "a"].value
    0.6875
    """

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    rows: Mapping[tuple[str, str], Average]
    notes: tuple[str, ...]

    def __getitem__(self, place: tuple[str, str]) -> Average:
        """Row of a (metric, model)."""
        return row_at(self.rows, place)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        columns = [Column("metric", key=True), Column("model", key=True)]
        columns += [Column(name, audience="programs") for name in ("mean", "low", "high")]
        columns += [
            Column("interval", "mean over datasets", audience="people", metric=ROW),
            Column("mean_rank", "mean rank", digits=2),
            Column("best"),
            Column("won"),
            Column("better_than_random", "better than random"),
            Column("datasets"),
        ]
        lines: list[list[Cell]] = []
        for one in self.measures:
            best_of = max if one.higher_is_better else min
            top = best_of(self.rows[one.key, model].value for model in self.models)
            for model in self.models:
                value, low, high, *counts = self.rows[one.key, model]
                printed = _printed(value, low, high, is_best=value == top)
                lines.append([one.key, model, value, low, high, printed, *counts])
        return Tabular(columns, lines, self.notes)


def _printed(value: float, low: float, high: float, is_best: bool) -> Styled:
    return Styled(value, low, high, digits=3 if abs(value) < 10 else 1, bold=is_best)


def averages(table: StudyTable) -> Averages:
    """Average a table over its datasets; ValueError without any, or for no better direction."""
    rows: dict[tuple[str, str], Average] = {}
    notes = [
        f"{_LEGEND} (Holm's method, family-wise error rate "
        f"{100 * (1 - table.confidence_level):.3g}%)."
    ]
    for one in table.measures:
        chosen, values, left_out = complete_values(table, one)
        for model, average in _averages_of(table, one, chosen, values).items():
            rows[one.key, model] = average
        end = "higher" if one.higher_is_better else "lower"
        name = f"{paper_name(one.key)} ({end} is better)"
        notes.append(f"{name}: {_comparability(one, table, chosen)}")
        notes += [f"{paper_name(one.key)}: without {text}." for text in with_reasons(left_out)]
    return Averages(table.measures, table.models, rows, tuple(notes))


def _averages_of(
    table: StudyTable, one: Measure, chosen: Sequence[str], values: FloatArray
) -> dict[str, Average]:
    """Average the values (datasets, models) of every model."""
    falling = -values if one.higher_is_better else values
    ranks = rankdata(falling, axis=1)
    leading = falling == falling.min(1, keepdims=True)
    found = {}
    for i, model in enumerate(table.models):
        cells = [table.cells[one.key, model, data] for data in chosen]
        standing = _Standing(float(ranks[:, i].mean()), int(leading[:, i].sum()), cells)
        found[model] = _average(one, values[:, i], standing, table.confidence_level)
    return found


class _Standing(NamedTuple):
    """Mean rank of a model over datasets, number on which it is best, and its cells."""

    mean_rank: float
    best: int
    cells: list[Any]


def _average(one: Measure, values: FloatArray, standing: _Standing, level: float) -> Average:
    """Average values of a model (datasets,), with an interval within the bounds of the measure."""
    mean = float(values.mean())
    error = float(sem(values)) if len(values) > 1 else math.nan
    low, high = student_interval(mean, error, len(values) - 1, level)
    bottom, top = one.bounds
    low = low if bottom is None else max(low, bottom)
    high = high if top is None else min(high, top)
    won = sum(cell.rank == (1, 1) for cell in standing.cells)
    random = [cell.is_better_than_random for cell in standing.cells]
    tested = [is_better for is_better in random if is_better is not None]
    beyond = sum(tested) if tested else None
    return Average(mean, low, high, standing.mean_rank, standing.best, won, beyond, len(values))


def complete_values(
    table: StudyTable, one: Measure
) -> tuple[list[str], FloatArray, dict[str, str]]:
    """Datasets with values of all models on the same tasks, and these values (datasets, models).

    The third result is the reason why each other dataset is left out.
    """
    if one.higher_is_better is None:
        raise ValueError(
            f"{one.key!r} has no direction, so that no model is best by it: choose another metric"
        )
    rows = {}
    left_out = {}
    for data in table.datasets:
        values = [table.value(one.key, model, data) for model in table.models]
        comparable = table.results[one.key, data].comparable
        others = [model for model in table.models if model not in comparable]
        if np.isnan(values).any():
            left_out[data] = "a model has no value"
        elif others:
            left_out[data] = (
                "these models are not on the same tasks as the others: "
                f"{', '.join(others)} (the notes of RankStudy.table give the reason)"
            )
        else:
            rows[data] = values
    if not rows:
        raise ValueError(
            f"no dataset has {one.key!r} of all models on the same tasks: make a study of models "
            f"that share them; left out: {'; '.join(with_reasons(left_out))}"
        )
    return list(rows), np.array(list(rows.values())), left_out


def with_reasons(left_out: Mapping[str, str]) -> list[str]:
    """Datasets that are left out, listed by reason."""
    datasets: dict[str, list[str]] = {}
    for data, reason in left_out.items():
        datasets.setdefault(reason, []).append(data)
    return [f"{', '.join(names)}, where {reason}" for reason, names in datasets.items()]


def _comparability(one: Measure, table: StudyTable, chosen: Sequence[str]) -> str:
    """Meaning of an average of the measure over datasets, see docs/comparable.md."""
    if one.view == "z_score":
        return "not comparable between datasets: z grows with the number of tasks."
    if one.view != "adjusted_index":
        values = [table.results[one.key, data].random_value for data in chosen]
        known = [value for value in values if not math.isnan(value)]
        ends = dict.fromkeys(f"{end(known):.3g}" for end in (min, max) if known)
        spread = f" (random ranking: {' to '.join(ends)})" if ends else ""
        return (
            "not comparable between datasets: the value depends on the number of "
            f"candidates{spread}."
        )
    if one.definition.name in ("auc", "mr"):
        weight = (
            "weigh the same"
            if one.definition.name == "auc"
            else "weigh by their numbers of candidates"
        )
        return f"comparable if candidates are sampled uniformly; the tasks of a dataset {weight}."
    return (
        "0 is random ranking and 1 is perfect on every dataset; other values decrease with the "
        "number of candidates."
    )
