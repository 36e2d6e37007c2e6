"""StudyTable: models by datasets with intervals and marks of significance."""

from __future__ import annotations  # help() shows the names of types

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from torchrankmetrics.inference.intervals import LEAST_EFFECTIVE_TASKS
from torchrankmetrics.inference.testing import holm
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.rendering import Cell as Entry, Column, Rendered, Styled, Tabular, paper_name
from torchrankmetrics.study.cells import Cell, DatasetResult
from torchrankmetrics.study.figures import intervals_by_dataset
from torchrankmetrics.study.runs import Facts
from torchrankmetrics.validation import check_choice

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure

EQUAL = "†"
RANDOM = "‡"
_STARS = (0.05, 0.01, 0.001)
_RECORD = (
    "model dataset metric value low high standard_error num_seeds seed_share best p_best rank_low "
    "rank_high better_than_random random_value num_tasks min_candidates max_candidates tie_rate"
)
Rows = Literal["models", "datasets"]
Pair = tuple[str, str]
Results = Mapping[Pair, DatasetResult]  # by key of the metric and dataset
Place = tuple[str, str, str]  # key of the metric, model and dataset


@dataclass(frozen=True, eq=False)
class StudyTable(Rendered):
    """Models by datasets: printed with a column per dataset, for programs with a row per cell.

    Attributes:
        measures, models, datasets: metrics and names.
        cells: by (key of the metric, model, dataset), without missing ones.
        results: tests of each (key of the metric, dataset), and its value under random ranking.
        facts, warnings: by dataset.
        confidence_level: of the intervals; 1 - confidence_level is the family-wise error rate of
            the marks.
        cluster: unit of the intervals and tests.
        rows, intervals: whether rows of printed tables are "models" or "datasets", and whether they
            have intervals.
        baseline, baseline_name, stars: see ``marked``.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy
    >>> study = RankStudy()
    >>> for model, ranks in {"a": [1, 2, 1, 4] * 30, "b": [3, 2, 5, 4] * 30}.items():
    ...     study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset="toy")
    ...
    >>> table = study.table("mrr")
    >>> table.value("mrr", "a", "toy")
    0.6875
    """

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    cells: dict[Place, Cell]
    results: Results
    facts: Mapping[str, Facts]
    warnings: Mapping[str, Sequence[str]]
    confidence_level: float
    cluster: str | None
    rows: Rows = "models"
    intervals: bool = True
    baseline: str | None = None
    baseline_name: str | None = None
    stars: bool = False

    def cell(self, model: str, dataset: str, metric: str | None = None) -> Cell | None:
        """Return a cell of a metric, of the first one by default; None if it is missing."""
        return self.cells.get((metric or self.measures[0].key, model, dataset))

    def value(self, metric: str, model: str, dataset: str) -> float:
        """Value of a cell; NaN if it is missing."""
        cell = self.cell(model, dataset, metric)
        return math.nan if cell is None else cell.value

    def with_layout(self, *, rows: Rows | None = None, intervals: bool | None = None) -> Self:
        """Return the same table, printed with datasets as rows, or without intervals."""
        chosen = self.rows if rows is None else check_choice("rows", rows, get_args(Rows))
        return replace(
            self, rows=chosen, intervals=self.intervals if intervals is None else intervals
        )

    def marked(
        self, baseline: str | None = None, stars: bool = False, name: str | None = None
    ) -> Self:
        """Return the table with stars for significant differences from a baseline or the best."""
        if baseline is not None:
            check_choice("baseline", baseline, self.models)
        return replace(self, baseline=baseline, stars=stars, baseline_name=name or baseline)

    def only(self, measures: Sequence[Measure], models: Sequence[str] | None = None) -> Self:
        """Return the part with some metrics and models, with the marks of the whole table."""
        return replace(
            self, measures=tuple(measures), models=self.models if models is None else tuple(models)
        )

    def plot(self, metric: str | None = None, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw a metric (its key; default: the first one), see ``study.intervals_by_dataset``."""
        key = check_choice(
            "metric", metric or self.measures[0].key, [one.key for one in self.measures]
        )
        cells: dict[str, dict[str, tuple[float, float, float]]] = {}
        for data in self.datasets:
            found = {model: self.cell(model, data, key) for model in self.models}
            cells[data] = {
                model: (cell.value, cell.low, cell.high) for model, cell in found.items() if cell
            }
        values = {data: self.results[key, data].random_value for data in self.datasets}
        random_values = {data: value for data, value in values.items() if not math.isnan(value)}
        return intervals_by_dataset(cells, paper_name(key), random_values=random_values, ax=ax)

    def tabular(self) -> Tabular:
        """Columns, cells and notes of printed tables."""
        by_model = self.rows == "models"
        names: Any = [*self.models, None], self.datasets  # without a model: random ranking
        outer, inner = names if by_model else names[::-1]
        columns = [Column("model" if by_model else "dataset", key=True), *self._columns(inner)]
        lines: list[Sequence[Entry]] = []
        for name in outer:
            places = [(name, other) for other in inner]
            if not by_model:
                places = [place[::-1] for place in places]
            cells = [self._entry(one, *place) for place in places for one in self.measures]
            lines.append([name or "random ranking", *cells])
        return Tabular(columns, lines, self.notes)

    def _columns(self, names: Sequence[str | None]) -> list[Column]:
        """A column for each name and metric, with the name above if there are several metrics."""
        found = []
        several = len(self.measures) > 1
        for name, one in product(names, self.measures):
            title = name or "random ranking"
            heading = paper_name(one.key) if several else title
            above = title if several else ""
            found.append(Column(f"{title} {one.key}", heading, above, digits=3, metric=one.key))
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """Legend, then facts and warnings of the datasets."""
        about = []
        for data in self.datasets:
            facts = f"{data}: {self.facts[data]}"
            about.append("; ".join([facts, *self.sizes(data), *self.warnings[data]]) + ".")
        return (*self.legend, *about, *self.doubts)

    def sizes(self, dataset: str) -> list[str]:
        """Numbers of queries and of clusters in the intervals and tests of a dataset."""
        found = [str(self.results[one.key, dataset].size) for one in self.measures]
        plain = f"{self.facts[dataset].tasks} tasks"
        facts = str(self.facts[dataset])
        return [size for size in dict.fromkeys(found) if size not in (plain, facts)]

    @property
    def _directions(self) -> str:
        """Metrics with the better direction of their values."""
        ends = {True: " (higher is better)", False: " (lower is better)", None: ""}
        names = [f"{paper_name(one.key)}{ends[one.higher_is_better]}" for one in self.measures]
        word = "Metrics" if len(names) > 1 else "Metric"
        return f"{word}: {', '.join(names)}."

    @property
    def legend(self) -> tuple[str, ...]:
        """Sentences that explain intervals, bold print and marks."""
        keys = {one.key for one in self.measures}
        cells = [
            cell
            for (key, model, _), cell in self.cells.items()
            if key in keys and model in self.models
        ]
        found = [self._directions, *self._about_intervals()]
        if self.num_tests:
            found.append(f"Bold: best of its dataset. {self._about_marks()}")
        elif any(cell.best for cell in cells):
            found.append("Bold: best of its dataset.")
        if any(cell.is_better_than_random is False for cell in cells):
            found.append(
                f"{RANDOM}: not significantly better than random ranking ({self._error_rate} for "
                "each metric)."
            )
        return tuple(found)

    @property
    def _error_rate(self) -> str:
        return f"family-wise error rate {100 * (1 - self.confidence_level):.3g}%"

    def _about_intervals(self) -> list[str]:
        """The source of variation of the printed values."""
        several = max((len(cell.seeds) for cell in self.cells.values()), default=1) > 1
        if not self.intervals:
            return ["Means over seeds."] if several else []
        values = "Means over seeds" if several else "Values"
        over = "tasks and training seeds" if several else "test tasks"
        unit = "" if self.cluster in (None, "auto") else f", clustered by {self.cluster}"
        level = f"{100 * self.confidence_level:g}%"
        return [f"{values} with {level} intervals over {over}{unit}."]

    def _about_marks(self) -> str:
        """The tests that the marks show."""
        number = self.num_tests if self.baseline is None else len(self._p_baseline)
        mark = "*:"
        test = f"{self._error_rate},"
        if self.stars:
            mark = "*, **, ***:"
            test = f"p ≤ {', '.join(map(str, _STARS))}, adjusted by Holm's method for"
        elif self.baseline is None:
            mark = f"{EQUAL}: not"
        return (
            f"{mark} significantly different from {self.baseline_name or 'the best'} ({test} "
            f"{number} pairwise comparisons; {' or '.join(self._tests)})."
        )

    @property
    def _tests(self) -> list[str]:
        """Names of the tests of pairs."""
        pairs = [one for result in self.results.values() for one in result.pairs.values()]
        return sorted({pair.test for pair in pairs})

    @property
    def num_tests(self) -> int:
        """Number of pairs of models in the family of the marks."""
        return len(_pairs(self.results))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons why models are not compared, and intervals that rest on too few tasks."""
        results = self.results.items()
        remarks = [
            f"{key} on {data}: not compared, as {one.remark}."
            for (key, data), one in results
            if one.remark
        ]
        few = [
            place
            for place, cell in self.cells.items()
            if cell.effective_tasks < LEAST_EFFECTIVE_TASKS
        ]
        if few:
            listed = ", ".join(f"{model} on {data} ({key})" for key, model, data in few[:5])
            if len(few) > 5:
                listed += f" and {len(few) - 5} more"
            least = f"Intervals from fewer than {LEAST_EFFECTIVE_TASKS:g} effective tasks"
            remarks.append(f"{least} may miss the true value: {listed}.")
        return tuple(remarks)

    def records(self) -> Tabular:
        """A row per model, dataset and metric, with all numbers."""
        lines = []
        for data, one, model in product(self.facts, self.measures, self.models):
            facts = self.facts[data]
            cell = self.cell(model, data, one.key)
            values: list[Entry] = [None] * 11
            if cell is not None:
                values = [
                    cell.value,
                    cell.low,
                    cell.high,
                    cell.standard_error,
                    len(cell.seeds),
                    cell.seed_share,
                ]
                better = (
                    None if cell.is_better_than_random is None else int(cell.is_better_than_random)
                )
                values += [int(cell.best), cell.p_best, *(cell.rank or (None, None)), better]
            about = (
                self.results[one.key, data].random_value,
                facts.tasks,
                facts.fewest or None,
                facts.most or None,
            )
            lines.append([model, data, one.key, *values, *about, facts.tie_rates.get(model)])
        return Tabular.named(_RECORD.split(), lines, self.notes, keys=3)

    def _entry(self, one: Measure, model: str | None, data: str) -> Entry:
        """A printed cell; without a model that of random ranking."""
        digits = self._digits(one, data)
        if model is None:
            return Styled(self.results[one.key, data].random_value, digits=digits)
        cell = self.cell(model, data, one.key)
        if cell is None:
            return None
        ends = (cell.low, cell.high) if self.intervals else (math.nan, math.nan)
        mark = self._mark(cell, (one.key, model, data))
        return Styled(cell.value, *ends, digits=digits, bold=cell.best, mark=mark)

    def _digits(self, one: Measure, data: str) -> int:
        """Decimal places of the values of a metric on a dataset."""
        place = (one.key, data)
        cells = [cell for (key, _, name), cell in self.cells.items() if (key, name) == place]
        values = [abs(cell.value) for cell in cells if math.isfinite(cell.value)]
        largest = max(values, default=0.0)
        if largest < 10:
            return 3
        return 2 if largest < 100 else 1

    def _mark(self, cell: Cell, place: Place) -> str:
        """Marks of the tests against the other models, and against random ranking."""
        alpha = 1 - self.confidence_level
        p = cell.p_best if self.baseline is None else self._p_baseline.get(place, math.nan)
        mark = ""
        if self.stars:
            mark = "*" * sum(p <= level for level in _STARS)
        elif self.baseline is not None:
            mark = "*" if p <= alpha else ""
        elif not cell.best and p > alpha:
            mark = EQUAL
        return mark + RANDOM if cell.is_better_than_random is False else mark

    @cached_property
    def _p_baseline(self) -> dict[Place, float]:
        """P-values of models against the baseline, one family, by (metric, model, dataset)."""
        pairs = _pairs(self.results).items()
        own = self.baseline
        return _holm(
            {(key, _other(own, a, b), data): p for (key, data, a, b), p in pairs if own in (a, b)}
        )


def _pairs(results: Results) -> dict[tuple[str, str, str, str], float]:
    """P-values of all pairs of models by (metric, dataset, a, b)."""
    return {
        (*place, *pair): found.p_value
        for place, one in results.items()
        for pair, found in one.pairs.items()
    }


def _holm(p: Mapping[Any, float]) -> dict[Any, float]:
    """Adjusted p-values of one family, by key."""
    return dict(zip(p, holm(list(p.values())).tolist(), strict=True))


def marked_cells(
    measures: Sequence[Measure],
    results: Results,
    p_random: Mapping[str, Mapping[Place, float]],
    alpha: float,
) -> dict[Place, Cell]:
    """Test all pairs of models as one family, and the runs of each metric against random."""
    p_pairs = _holm(_pairs(results))
    directions = {one.key: one.higher_is_better for one in measures}
    better = _better_than_random(p_random, alpha)
    cells: dict[Place, Cell] = {}
    for (key, data), one in results.items():
        adjusted = {pair: p_pairs[key, data, *pair] for pair in one.pairs}
        for model, cell in _ranked(one, adjusted, directions[key], alpha).items():
            known = None if math.isnan(cell.value) else better.get((key, model, data))
            cells[key, model, data] = replace(cell, is_better_than_random=known)
    return cells


def _better_than_random(
    p_random: Mapping[str, Mapping[Place, float]], alpha: float
) -> dict[Place, bool]:
    """Whether all runs of a model are significantly better, by (metric, model, dataset)."""
    better: dict[Place, bool] = {}
    for key, runs in p_random.items():
        for (model, _, data), p in _holm(runs).items():
            better[key, model, data] = p <= alpha and better.get((key, model, data), True)
    return better


def _ranked(
    one: DatasetResult, adjusted: Mapping[Pair, float], higher: bool | None, alpha: float
) -> dict[str, Cell]:
    """The cells of a dataset with the best ones, tests against them, and possible ranks."""
    cells = dict(one.cells)
    values = {
        name: cells[name].value for name in one.comparable if not math.isnan(cells[name].value)
    }
    if higher is None or len(values) < 2:
        return cells
    top = (max if higher else min)(values.values())
    best = [name for name, value in values.items() if value == top]
    cells |= {name: replace(cells[name], best=True) for name in best}
    for name in one.tested if one.pairs else ():
        p = _against_others(adjusted, name)
        ahead = [
            (cells[name].value > cells[other].value) == higher for other in p if p[other] <= alpha
        ]
        rank = 1 + ahead.count(False), len(one.tested) - ahead.count(True)
        cells[name] = replace(cells[name], p_best=1.0 if name in best else p[best[0]], rank=rank)
    return cells


def _against_others(adjusted: Mapping[Pair, float], name: str) -> dict[str, float]:
    """P-values of a model against each of the others."""
    return {_other(name, a, b): p for (a, b), p in adjusted.items() if name in (a, b)}


def _other(name: str | None, a: str, b: str) -> str:
    return b if a == name else a
