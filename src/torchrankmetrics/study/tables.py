"""Models by data sets as a table: the best, its equals, margins, chance, and facts of the data sets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.inference.intervals import LEAST_EFFECTIVE_TASKS
from torchrankmetrics.inference.testing import holm, one_sided
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.plots.datasets import intervals_by_dataset
from torchrankmetrics.rendering import Cell as Written, Column, Rendered, Styled, Tabular
from torchrankmetrics.study.cells import Cell, Joint, Measured
from torchrankmetrics.study.runs import DataSet
from torchrankmetrics.table.columns import Columns
from torchrankmetrics.validation import check_choice, one_number, shown

if TYPE_CHECKING:
    from torchrankmetrics.plots.canvas import Axes, Figure
    from torchrankmetrics.study.rank_study import RankStudy


@dataclass(frozen=True)
class Facts:
    """Facts of a data set.

    Attributes:
        num_tasks: ranking tasks of its reference run.
        candidates: their smallest and largest number.
        sides: that occur.
        tie_rates: share of tasks in which the true candidate shares its score, by model, mean over seeds.
        warnings: what is wrong, or other than one would think.
    """

    num_tasks: int
    candidates: tuple[int, int]
    sides: tuple[str, ...]
    tie_rates: Mapping[str, float]
    warnings: tuple[str, ...]

    @property
    def words(self) -> str:
        """All of it in a line."""
        low, high = self.candidates
        among = f"{low}" if low == high else f"{low} to {high}"
        ties = sorted(100 * rate for rate in self.tie_rates.values())
        tied = f"{ties[0]:.1f} to {ties[-1]:.1f} %" if ties[-1] - ties[0] >= 0.05 else f"{ties[-1]:.1f} %"
        return "; ".join([f"{self.num_tasks} tasks among {among} candidates, {tied} ties", *self.warnings])


def facts_of(dataset: DataSet, seeds: Sequence[str]) -> Facts:
    """Look at all runs of a data set."""
    sample = dataset.reference.analysis.sample()
    counts = sample.candidate_counts.num_candidates
    rates, warnings = {}, list(dataset.misaligned)
    for model, reads in dataset.models.items():
        samples = [read.analysis.sample() for read in reads]
        rates[model] = sum(one.tie_mass / one.total for one in samples) / len(samples)
        there = [read.run.seed for read in reads]
        if lacking := [seed for seed in seeds if seed not in there]:
            warnings.append(f"{model} lacks seed {', '.join(lacking)}")
        nan = sum(read.analysis.num_nan for read in reads)
        if nan:
            warnings.append(f"{model} has NaN scores in {nan} tasks, which never help")
        sampled = sum(read.analysis.num_sampled for read in reads)
        if sampled:
            warnings.append(
                f"{model} was ranked among sampled candidates in {sampled} tasks: only mr and auc carry over"
            )
        for note in dict.fromkeys(note for read in reads for note in read.notes if "NaN" not in note):
            warnings.append(f"{model}: {note}")
        low = sum(int(Columns(read.analysis.rows).num_candidates.max()) == 1 for read in reads)
        if low:
            warnings.append(f"{model} has tasks of a single candidate only")
    low, high = int(counts[0]), int(counts[-1])
    sides = tuple(map(str, dataset.reference.analysis.sides))
    return Facts(sample.num_tasks, (low, high), sides, rates, tuple(warnings))


def check_margin(margin: float | None) -> float | None:
    """Refuse what is no margin.

    Raises:
        TypeError, ValueError: unless it is None, or a number above 0.
    """
    if margin is None:
        return None
    number = one_number(margin)
    if number is None:
        raise TypeError(f"margin must be a number or None, got {shown(margin)} of type {type(margin).__name__}")
    if not 0 < number < math.inf:
        raise ValueError(f"margin must be above 0 and finite, in the units of the metrics; got {margin}")
    return float(number)


def p_within(
    found: Mapping[tuple[str, str], Measured], measures: Mapping[str, Measure], margin: float
) -> dict[tuple[str, str, str], float]:
    """Test of every model "some other of the data set is better by the margin or more", by (metric, model, data set).

    It is rejected where that is rejected for each of the others, whichever of them is the best in truth (an
    intersection-union test); Holm's correction makes all cells one family.

    Args:
        found: by (metric, data set).
        measures: by metric.
        margin: > 0, in the units of the metrics in their views.

    Source: Berger 1982 (doi:10.1080/00401706.1982.10487790); Schuirmann 1987 (doi:10.1007/BF01068419).
    """
    p_values = {
        (key, model, data): _p_of(one.joint, i, len(one.tested), bool(measures[key].higher_is_better), margin)
        for (key, data), one in found.items()
        if one.joint is not None
        for i, model in enumerate(one.tested)
    }
    known = {place: p for place, p in p_values.items() if not math.isnan(p)}
    return dict(zip(known, holm(np.array(list(known.values()))).tolist(), strict=True)) if known else {}


def _p_of(joint: Joint, model: int, number: int, higher: bool, margin: float) -> float:
    """The largest of the p-values of "the other is better by the margin or more"."""
    if not joint.slope or math.isnan(joint.slope):
        return math.nan
    sign = 1 if higher else -1
    values = joint.models.value * joint.slope * sign  # up to a constant, higher is better
    found = []
    for other in range(number):
        if other != model:
            lead = float(values[model] - values[other])
            found.append(one_sided(lead, margin, joint.p_value(model, other, -sign * margin), 1.0).below)
    return max(found)


MARK, WITHIN = "†", "≈"
Rows = Literal["models", "datasets"]


@dataclass(frozen=True, eq=False)
class StudyTable(Rendered):
    """Models by data sets: for people a column per data set, for programs (CSV, JSON, pandas) a row per cell.

    Attributes:
        measures: what is told.
        models, datasets: names.
        cells: by (key of the measure, model, data set); those that are missing are not there.
        chance: value by chance, by (key, data set); NaN where nobody can tell.
        facts: what must be known of each data set.
        confidence_level: of the intervals, and of the family.
        cluster: what was drawn together.
        num_tests: pairs of models in the family.
        rows: what is a row for people, "models" or "datasets".
        intervals: whether people see intervals.
        margin: what counts as no difference, in the units of the metrics; None: nothing was asked of it.
        num_within: models that were tested against it.
        remarks: what is not compared, and why.
    """

    measures: tuple[Measure, ...]
    models: tuple[str, ...]
    datasets: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    chance: Mapping[tuple[str, str], float]
    facts: Mapping[str, Facts]
    confidence_level: float
    cluster: str | None
    num_tests: int
    rows: Rows = "models"
    intervals: bool = True
    margin: float | None = None
    num_within: int = 0
    remarks: tuple[str, ...] = ()

    def cell(self, model: str, dataset: str, metric: str | None = None) -> Cell | None:
        """A cell; None if it is missing.

        Args:
            model: name.
            dataset: name.
            metric: key of a measure; None: the first.
        """
        return self.cells.get((metric or self.measures[0].key, model, dataset))

    def shown(self, *, rows: Rows | None = None, intervals: bool | None = None) -> "StudyTable":
        """The same table, written otherwise: data sets as rows, or values without their intervals."""
        return replace(self, rows=rows or self.rows, intervals=self.intervals if intervals is None else intervals)

    def only(self, measures: Sequence[Measure], models: Sequence[str] | None = None) -> "StudyTable":
        """The part that is of some measures (and models), with the marks of the whole family."""
        keys, kept = {one.key for one in measures}, self.models if models is None else tuple(models)
        cells = {place: cell for place, cell in self.cells.items() if place[0] in keys and place[1] in kept}
        return replace(self, measures=tuple(measures), models=kept, cells=cells)

    def plot(self, metric: str | None = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Draw a metric, the first if none is said, by its key: see ``plots.intervals_by_dataset``."""
        key = check_choice("metric", metric or self.measures[0].key, [one.key for one in self.measures])
        cells = {
            data: {m: (c.value, c.low, c.high) for m in self.models if (c := self.cell(m, data, key)) is not None}
            for data in self.datasets
        }
        chance = {data: self.chance[key, data] for data in self.datasets if not math.isnan(self.chance[key, data])}
        return intervals_by_dataset(cells, key, chance=chance, ax=ax)

    def tabular(self) -> Tabular:
        """The table as people read it."""
        several = len(self.measures) > 1
        names = self.datasets if self.rows == "models" else self.models
        others = self.models if self.rows == "models" else self.datasets
        chance = [] if self.rows == "models" else ["chance"]
        columns = [Column("model" if self.rows == "models" else "dataset", key=True)]
        for name in [*names, *chance]:
            for one in self.measures:
                heading = one.key if several else name
                columns.append(Column(f"{name} {one.key}", heading, above=name if several else ""))
        lines: list[list[Written]] = []
        for other in others:
            pairs = [(name, other) if self.rows == "models" else (other, name) for name in names]
            line = [self._written(one, model, data) for data, model in pairs for one in self.measures]
            if chance:
                line += [self._chance(one, other) for one in self.measures]
            lines.append([other, *line])
        if not chance:
            lines.append(["chance", *(self._chance(one, name) for name in names for one in self.measures)])
        return Tabular(columns, lines, self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands below the table: how to read it, then what is particular about its data sets."""
        about = (f"{name}: {self.facts[name].words}." for name in self.datasets)
        return (*self.how_to_read, *about, *self.remarks, *self.doubtful)

    @property
    def how_to_read(self) -> tuple[str, ...]:
        """What the intervals, the bold and the mark say."""
        several = max((len(cell.seeds) for cell in self.cells.values()), default=1) > 1
        told = []
        if self.intervals:
            of = "tasks and training seeds" if several else "test tasks"
            drawn = "" if self.cluster is None else f", drawn together by {self.cluster}"
            values = "Means over seeds" if several else "Values"
            told.append(f"{values} with {100 * self.confidence_level:g} % intervals of {of}{drawn}.")
        elif several:
            told.append("Means over seeds.")
        if self.num_tests:
            told.append(
                f"Bold: best of its data set. {MARK}: cannot be told from it; all {self.num_tests} pairs of models are "
                f"one family with an error of {100 * (1 - self.confidence_level):.3g} %."
            )
        if self.margin is not None:
            told.append(
                f"{WITHIN}: shown that no other model is better by {self.margin:g} or more; the {self.num_within} "
                f"tests are one family with an error of {100 * (1 - self.confidence_level):.3g} %."
            )
        return tuple(told)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Which intervals may well miss."""
        few = [
            f"{m} on {data} ({key})"
            for (key, m, data), cell in self.cells.items()
            if cell.effective_tasks < LEAST_EFFECTIVE_TASKS
        ]
        if not few:
            return ()
        listed = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
        return (f"Intervals rest on fewer than {LEAST_EFFECTIVE_TASKS:g} tasks and may well miss: {listed}.",)

    def records(self) -> Tabular:
        """A row per model, data set and metric, with all that is known of it: what programs get."""
        text = (
            "model dataset metric value low high standard_error num_seeds seed_share best p_best rank_low rank_high "
            "chance num_tasks min_candidates max_candidates tie_rate"
        )
        names = [*text.split(), *(["p_within"] if self.margin is not None else [])]
        lines = []
        for data in self.datasets:
            for one in self.measures:
                for model in self.models:
                    lines.append((model, data, one.key, *self._record(one.key, model, data)))
        return Tabular.named(names, lines, self.notes, keys=3)

    def _record(self, key: str, model: str, data: str) -> tuple[Written, ...]:
        cell, facts = self.cells.get((key, model, data)), self.facts[data]
        known: tuple[Written, ...] = (
            self.chance[key, data],
            facts.num_tasks,
            *facts.candidates,
            facts.tie_rates.get(model),
        )
        if self.margin is not None:
            known += (None if cell is None else cell.p_within,)
        if cell is None:
            return (None,) * 10 + known
        rank = cell.rank or (None, None)
        values = (cell.value, cell.low, cell.high, cell.standard_error, len(cell.seeds), cell.seed_share)
        return (*values, int(cell.best), cell.p_best, *rank, *known)

    def _written(self, one: Measure, model: str, data: str) -> Written:
        cell = self.cells.get((one.key, model, data))
        if cell is None:
            return None
        digits = self._digits(one, data)
        text = "-" if math.isnan(cell.value) else f"{cell.value:.{digits}f}"
        if self.intervals and not math.isnan(cell.low):
            text += f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
        equal = not cell.best and cell.p_best > 1 - self.confidence_level
        within = cell.p_within <= 1 - self.confidence_level + 1e-12
        return Styled(cell.value, text, bold=cell.best, mark=MARK * equal + WITHIN * within)

    def _chance(self, one: Measure, data: str) -> Written:
        value = self.chance[one.key, data]
        return None if math.isnan(value) else Styled(value, f"{value:.{self._digits(one, data)}f}")

    def _digits(self, one: Measure, data: str) -> int:
        """Behind the point: three of a share, fewer of what is large."""
        values = [abs(cell.value) for (key, _, name), cell in self.cells.items() if (key, name) == (one.key, data)]
        largest = max((value for value in values if math.isfinite(value)), default=0.0)
        return 3 if largest < 10 else 2 if largest < 100 else 1


def study_table(
    study: "RankStudy",
    measures: Sequence[Measure],
    found: Mapping[tuple[str, str], Measured],
    confidence_level: float,
    cluster: str | None,
    margin: float | None,
) -> StudyTable:
    """Put the cells of all data sets together, and test all pairs of models as one family."""
    adjusted = holm(np.concatenate([one.p_values for one in found.values()]))
    ends = np.cumsum([len(one.pairs) for one in found.values()])
    family = dict(zip(found, np.split(adjusted, ends[:-1]), strict=True))
    directions = {measure.key: measure.higher_is_better for measure in measures}
    cells = {}
    for (key, data), one in found.items():
        for model, cell in _marked(one, family[key, data], directions[key], confidence_level).items():
            cells[key, model, data] = cell
    within = {} if margin is None else p_within(found, {measure.key: measure for measure in measures}, margin)
    cells |= {place: replace(cells[place], p_within=p) for place, p in within.items()}
    remarks = [f"{key} on {data}: not compared, as {one.remark}." for (key, data), one in found.items() if one.remark]
    return StudyTable(
        measures=tuple(measures),
        models=tuple(study.models),
        datasets=tuple(study.datasets),
        cells=cells,
        chance={place: one.chance for place, one in found.items()},
        facts={name: facts_of(study.dataset(name), study.seeds) for name in study.datasets},
        confidence_level=confidence_level,
        cluster=cluster,
        num_tests=len(adjusted),
        margin=margin,
        num_within=len(within),
        remarks=tuple(remarks),
    )


def _marked(one: Measured, adjusted: FloatArray, higher: bool | None, confidence_level: float) -> dict[str, Cell]:
    """The cells of a data set with the best of them, what cannot be told from it, and the ranks that are possible."""
    cells = dict(one.cells)
    comparable = one.tested if len(one.tested) > 1 else tuple(cells)
    values = {name: cells[name].value for name in comparable if not math.isnan(cells[name].value)}
    if higher is None or len(values) < 2:
        return cells
    top = (max if higher else min)(values.values())
    best = [name for name, value in values.items() if value == top]
    for name in best:
        cells[name] = replace(cells[name], best=True)
    if not one.pairs:
        return cells
    k = len(one.tested)
    p, better = np.ones((k, k)), np.zeros((k, k), dtype=bool)
    for (a, b), value in zip(one.pairs, adjusted, strict=True):
        p[a, b] = p[b, a] = value
        if value <= 1 - confidence_level:
            ahead = (cells[one.tested[a]].value > cells[one.tested[b]].value) == higher
            better[(a, b) if ahead else (b, a)] = True
    first = one.tested.index(best[0])
    for i, name in enumerate(one.tested):
        rank = (1 + int(better[:, i].sum()), k - int(better[i].sum()))
        cells[name] = replace(cells[name], p_best=1.0 if name in best else float(p[first, i]), rank=rank)
    return cells
