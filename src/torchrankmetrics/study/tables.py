"""StudyTable: models by datasets with intervals and marks of significance."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self, get_args

from torchrankmetrics.inference.intervals import LEAST_EFFECTIVE_TASKS
from torchrankmetrics.inference.testing import holm, one_sided
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.datasets import intervals_by_dataset
from torchrankmetrics.rendering import Cell as Entry, Column, Rendered, Styled, Tabular, paper_name
from torchrankmetrics.study.cells import Cell, DatasetResult
from torchrankmetrics.study.runs import Facts
from torchrankmetrics.validation import check_choice, one_number, shorten

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure

EQUAL, RANDOM, WITHIN = "†", "‡", "≈"
_STARS = (0.05, 0.01, 0.001)
Rows = Literal["models", "datasets"]
Results = Mapping[tuple[str, str], DatasetResult]


@dataclass(frozen=True, eq=False)
class StudyTable(Rendered):
    """Models by datasets: printed with a column per dataset, in machine formats (CSV, JSON, pandas) a row per cell.

    Attributes:
        measures: its metrics.
        models, datasets: names.
        cells: by (key of the metric, model, dataset), without missing ones.
        results: tests of each (key of the metric, dataset), and its value under random ranking.
        facts: by dataset.
        warnings: by dataset.
        confidence_level: of the intervals; 1 - confidence_level is the family-wise error rate of the marks.
        cluster: unit of the intervals and tests.
        margin: difference that does not matter, in units of the metrics; None: not tested.
        rows: rows of printed tables, "models" or "datasets".
        intervals: whether printed tables have intervals.
        baseline, baseline_name, stars: see ``marked``.
    """

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    results: Results
    facts: Mapping[str, Facts]
    warnings: Mapping[str, Sequence[str]]
    confidence_level: float
    cluster: str | None
    margin: float | None
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
        cell = self.cells.get((metric, model, dataset))
        return math.nan if cell is None else cell.value

    def with_layout(self, *, rows: Rows | None = None, intervals: bool | None = None) -> "StudyTable":
        """Return the same table, printed with datasets as rows, or without intervals."""
        chosen = self.rows if rows is None else check_choice("rows", rows, get_args(Rows))
        return replace(self, rows=chosen, intervals=self.intervals if intervals is None else intervals)

    def marked(self, baseline: str | None = None, stars: bool = False, name: str | None = None) -> Self:
        """Return the table with stars for models that differ significantly from a baseline (default: from the best)."""
        if baseline is not None:
            check_choice("baseline", baseline, self.models)
        return replace(self, baseline=baseline, stars=stars, baseline_name=name or baseline)

    def only(self, measures: Sequence[Measure], models: Sequence[str] | None = None) -> "StudyTable":
        """Return the part with some metrics and models, with the marks of the whole table."""
        return replace(self, measures=tuple(measures), models=self.models if models is None else tuple(models))

    def plot(self, metric: str | None = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw a metric (its key; default: the first one), see ``plots.intervals_by_dataset``."""
        key = check_choice("metric", metric or self.measures[0].key, [one.key for one in self.measures])
        cells = {
            data: {m: (c.value, c.low, c.high) for m in self.models if (c := self.cell(m, data, key)) is not None}
            for data in self.datasets
        }
        chance = {data: self.results[key, data].chance for data in self.datasets}
        known = {data: value for data, value in chance.items() if not math.isnan(value)}
        return intervals_by_dataset(cells, paper_name(key), chance=known, ax=ax)

    def tabular(self) -> Tabular:
        """Columns, cells and notes of printed tables."""
        by_model, several = self.rows == "models", len(self.measures) > 1
        outer, inner = (self.models, self.datasets) if by_model else (self.datasets, self.models)
        columns = [Column("model" if by_model else "dataset", key=True)]
        for name in inner if by_model else [*inner, "chance"]:
            for one in self.measures:
                heading = paper_name(one.key) if several else name
                above = name if several else ""
                columns.append(Column(f"{name} {one.key}", heading, above, digits=3, metric=one.key))
        stars = {place: cell.p_best for place, cell in self.cells.items()}
        if self.baseline is not None:
            stars = self._against_baseline()
        lines: list[list[Entry]] = []
        for name in outer:
            places = [(name, other) if by_model else (other, name) for other in inner]
            line = [self._entry(one, model, data, stars) for model, data in places for one in self.measures]
            lines.append([name, *line, *([] if by_model else (self._chance(one, name) for one in self.measures))])
        if by_model:
            lines.append(["chance", *(self._chance(one, data) for data in self.datasets for one in self.measures)])
        return Tabular(columns, lines, self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Legend, then facts and warnings of the datasets."""
        about = []
        for data in self.datasets:
            about.append("; ".join([f"{data}: {self.facts[data]}", *self.warnings[data]]) + ".")
        return (*self.legend, *about, *self.doubts)

    @property
    def legend(self) -> tuple[str, ...]:
        """Sentences that explain intervals, bold print and marks."""
        keys = {one.key for one in self.measures}
        cells = [cell for (key, model, _), cell in self.cells.items() if key in keys and model in self.models]
        several = max((len(cell.seeds) for cell in self.cells.values()), default=1) > 1
        rate = f"family-wise error rate {100 * (1 - self.confidence_level):.3g}%"
        number, found = self.num_tests, []
        if self.intervals:
            over = "tasks and training seeds" if several else "test tasks"
            unit = "" if self.cluster is None else f", clustered by {self.cluster}"
            values = "Means over seeds" if several else "Values"
            found.append(f"{values} with {100 * self.confidence_level:g}% intervals over {over}{unit}.")
        elif several:
            found.append("Means over seeds.")
        if number and self.baseline is None and not self.stars:
            found.append(
                "Bold: best of its dataset. "
                f"{EQUAL}: not significantly different from the best ({rate}, {number} pairwise comparisons)."
            )
        elif number:
            other = self.baseline_name or "the best"
            number = number if self.baseline is None else len(self._against_baseline())
            levels = ", ".join(f"{level:g}" for level in _STARS)
            test = f"p ≤ {levels}, adjusted by Holm's method for" if self.stars else f"{rate},"
            marks = "*, **, ***" if self.stars else "*"
            found.append(
                f"Bold: best of its dataset. {marks}: significantly different from {other} ({test} {number} "
                "pairwise comparisons)."
            )
        elif any(cell.best for cell in cells):
            found.append("Bold: best of its dataset.")
        if any(cell.is_better_than_random is False for cell in cells):
            found.append(f"{RANDOM}: not significantly better than random ranking ({rate} for each metric).")
        if self.margin is not None:
            tests = sum(len(one.tested) for one in self.results.values() if one.models is not None)
            found.append(f"{WITHIN}: no other model is better by {self.margin:g} or more ({rate}, {tests} models).")
        return tuple(found)

    @property
    def num_tests(self) -> int:
        """Number of pairs of models in the family of the marks."""
        return sum(len(one.pairs) for one in self.results.values())

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons why models are not compared, and intervals that rest on too few tasks."""
        found = [
            f"{key} on {data}: not compared, as {one.remark}."
            for (key, data), one in self.results.items()
            if one.remark
        ]
        few = [
            f"{m} on {data} ({key})"
            for (key, m, data), cell in self.cells.items()
            if cell.effective_tasks < LEAST_EFFECTIVE_TASKS
        ]
        if few:
            listed = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
            least = f"{LEAST_EFFECTIVE_TASKS:g}"
            found.append(f"Intervals from fewer than {least} effective tasks may miss the true value: {listed}.")
        return tuple(found)

    @property
    def random_cells(self) -> Iterator[str]:
        """Cells that are not significantly better than random ranking, in words."""
        for (key, model, data), cell in self.cells.items():
            if cell.is_better_than_random is False:
                chance = self.results[key, data].chance
                yield (
                    f"{model} on {data}: {paper_name(key)} {cell.value:.3f} is not significantly better than random "
                    f"ranking ({chance:.3f})"
                )

    def records(self) -> Tabular:
        """A row per model, dataset and metric, with all numbers."""
        text = (
            "model dataset metric value low high standard_error num_seeds seed_share best p_best rank_low rank_high "
            "better_than_random chance num_tasks min_candidates max_candidates tie_rate"
        )
        names = [*text.split(), *(["p_within"] if self.margin is not None else [])]
        lines = [
            (model, data, one.key, *self._record(one.key, model, data))
            for data in self.datasets
            for one in self.measures
            for model in self.models
        ]
        return Tabular.named(names, lines, self.notes, keys=3)

    def _record(self, key: str, model: str, data: str) -> tuple[Entry, ...]:
        cell, facts = self.cells.get((key, model, data)), self.facts[data]
        sizes = facts.tasks, facts.fewest or None, facts.most or None
        known: tuple[Entry, ...] = (self.results[key, data].chance, *sizes, facts.tie_rates.get(model))
        if self.margin is not None:
            known += (None if cell is None else cell.p_within,)
        if cell is None:
            return (None,) * 11 + known
        better = cell.is_better_than_random
        values = (cell.value, cell.low, cell.high, cell.standard_error, len(cell.seeds), cell.seed_share)
        ranks = cell.rank or (None, None)
        return (*values, int(cell.best), cell.p_best, *ranks, None if better is None else int(better), *known)

    def _entry(self, one: Measure, model: str, data: str, stars: Mapping[tuple[str, str, str], float]) -> Entry:
        cell, alpha = self.cells.get((one.key, model, data)), 1 - self.confidence_level
        if cell is None:
            return None
        ends = (cell.low, cell.high) if self.intervals else (math.nan, math.nan)
        if self.baseline is None and not self.stars:
            mark = EQUAL * (not cell.best and cell.p_best > alpha)
        else:
            p = stars.get((one.key, model, data), math.nan)
            mark = "*" * (sum(p <= level for level in _STARS) if self.stars else int(p <= alpha))
        mark += RANDOM * (cell.is_better_than_random is False) + WITHIN * (cell.p_within <= alpha + 1e-12)
        return Styled(cell.value, *ends, digits=self._digits(one, data), bold=cell.best, mark=mark)

    def _chance(self, one: Measure, data: str) -> Entry:
        return Styled(self.results[one.key, data].chance, digits=self._digits(one, data))

    def _digits(self, one: Measure, data: str) -> int:
        values = [abs(cell.value) for (key, _, name), cell in self.cells.items() if (key, name) == (one.key, data)]
        largest = max((value for value in values if math.isfinite(value)), default=0.0)
        return 3 if largest < 10 else 2 if largest < 100 else 1

    def _against_baseline(self) -> dict[tuple[str, str, str], float]:
        """P-values of the other models against the baseline, one family, by (metric, model, dataset)."""
        found = {
            (key, b if a == self.baseline else a, data): values[-1]
            for (key, data), one in self.results.items()
            for (a, b), values in one.pairs.items()
            if self.baseline in (a, b)
        }
        return dict(zip(found, holm(list(found.values())).tolist(), strict=True))


def check_margin(margin: float | None) -> float | None:
    """Validate a margin: None, or a number above 0."""
    if margin is None:
        return None
    number = one_number(margin)
    if number is None:
        raise TypeError(f"margin must be a number or None, got {shorten(margin)} of type {type(margin).__name__}")
    if not 0 < number < math.inf:
        raise ValueError(f"margin must be above 0 and finite, in the units of the metrics; got {margin}")
    return float(number)


def study_table(
    measures: Sequence[Measure],
    models: Sequence[str],
    results: Results,
    p_random: Mapping[tuple[str, str], Mapping[str, Sequence[float]]],
    facts: Mapping[str, Facts],
    warnings: Mapping[str, Sequence[str]],
    *,
    confidence_level: float,
    cluster: str | None,
    margin: float | None,
) -> StudyTable:
    """Collect the cells of all datasets, and test all pairs of models as one family."""
    alpha = 1 - confidence_level
    adjusted = iter(holm([values[-1] for one in results.values() for values in one.pairs.values()]).tolist())
    p_pairs = {place: {pair: next(adjusted) for pair in one.pairs} for place, one in results.items()}
    directions = {measure.key: measure.higher_is_better for measure in measures}
    cells = {}
    for (key, data), one in results.items():
        for model, cell in _ranked(one, p_pairs[key, data], directions[key], alpha).items():
            cells[key, model, data] = cell
    for key in directions:
        runs = [(key, m, d, p) for (k, d), found in p_random.items() if k == key for m, ps in found.items() for p in ps]
        for (_, m, d, _), p in zip(runs, holm([p for *_, p in runs]).tolist(), strict=True):
            cell = cells[key, m, d]
            if not math.isnan(cell.value):
                better = p <= alpha and cell.is_better_than_random is not False
                cells[key, m, d] = replace(cell, is_better_than_random=better)
    if margin is not None:
        for place, p in _p_within(results, directions, margin).items():
            cells[place] = replace(cells[place], p_within=p)
    return StudyTable(
        measures=tuple(measures),
        models=tuple(models),
        datasets=tuple(facts),
        cells=cells,
        results=results,
        facts=facts,
        warnings=warnings,
        confidence_level=confidence_level,
        cluster=cluster,
        margin=margin,
    )


def _ranked(
    one: DatasetResult, adjusted: Mapping[tuple[str, str], float], higher: bool | None, alpha: float
) -> dict[str, Cell]:
    """The cells of a dataset with the best ones, tests against them, and the ranks that remain possible."""
    cells = dict(one.cells)
    comparable = one.tested if len(one.tested) > 1 else tuple(cells)
    values = {name: cells[name].value for name in comparable if not math.isnan(cells[name].value)}
    if higher is None or len(values) < 2:
        return cells
    top = (max if higher else min)(values.values())
    best = [name for name, value in values.items() if value == top]
    cells |= {name: replace(cells[name], best=True) for name in best}
    if not one.pairs:
        return cells
    behind: dict[str, int] = dict.fromkeys(one.tested, 0)
    ahead = dict(behind)
    for pair, p in adjusted.items():
        if p <= alpha:
            a, b = pair if (cells[pair[0]].value > cells[pair[1]].value) == higher else pair[::-1]
            ahead[a] += 1
            behind[b] += 1
    for name in one.tested:
        p_best = next((p for pair, p in adjusted.items() if set(pair) == {name, best[0]}), 1.0)
        rank = (1 + behind[name], len(one.tested) - ahead[name])
        cells[name] = replace(cells[name], p_best=1.0 if name in best else p_best, rank=rank)
    return cells


def _p_within(
    results: Results, directions: Mapping[str, bool | None], margin: float
) -> dict[tuple[str, str, str], float]:
    """P-values of "some other model is better by the margin or more", by (metric, model, dataset).

    The largest p-value over the other models counts, whichever of them is the best (an intersection-union test);
    Holm's method makes all cells one family.

    Source: Berger 1982 (doi:10.1080/00401706.1982.10487790); Schuirmann 1987 (doi:10.1007/BF01068419).
    """
    found = {}
    for (key, data), one in results.items():
        if one.models is None or not one.slope or math.isnan(one.slope):
            continue
        sign = 1 if directions[key] else -1
        values = one.models.value * one.slope * sign  # up to a constant, higher is better
        for i, model in enumerate(one.tested):
            found[key, model, data] = max(
                one_sided(float(values[i] - values[j]), margin, one.p_value(i, j, -sign * margin), 1.0)[0]
                for j in range(len(one.tested))
                if j != i
            )
    known = {place: p for place, p in found.items() if not math.isnan(p)}
    return dict(zip(known, holm(list(known.values())).tolist(), strict=True)) if known else {}
