"""Metrics by group of ranking tasks: values and null moments of all groups at once."""

import gc
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray, IntArray, distinct_rows, in_range, tally
from torchrankmetrics.definitions.sample import RankSample, RankType
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import apply_transform, known
from torchrankmetrics.metrics.analysis import Analysis, Side, sample_of
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.summary import sampled_notes
from torchrankmetrics.metrics.views import offset_and_scale
from torchrankmetrics.null.expectation.exact import ExactExpectation
from torchrankmetrics.rendering import Column, Rendered, Tabular
from torchrankmetrics.rendering.tabular import Names, name_of
from torchrankmetrics.table.columns import used
from torchrankmetrics.validation import check_choice


@dataclass(frozen=True, eq=False)
class GroupedSample:
    """A sample of ranks, and the group of each entry.

    Attributes:
        sample: of all groups.
        group: (m,) int64, ascending, from 0 to below ``size``; a group may have no entry.
        size: how many groups there are.
    """

    sample: RankSample
    group: IntArray
    size: int
    _histograms: dict[tuple[RankType, bool], "_Histograms"] = field(default_factory=dict, init=False)

    @cached_property
    def num_tasks(self) -> IntArray:
        """Number of tasks of each group, (size,) int64."""
        return Runs(self.group, self.size).whole_sums(self.sample.count)

    @cached_property
    def scales_weights(self) -> bool:
        """Whether some weights are so large or small that a group alone would scale its own."""
        return in_range(self.sample.weight) is not self.sample.weight

    def base_values(self, definition: RankDefinition, rank_type: RankType) -> FloatArray | None:
        """Base value of each group, (size,), NaN where it has no tasks; None: it has to be asked group by group.

        Raises:
            ValueError: if f or g is not finite.
        """
        p, a = definition.exponents
        power_mean = abs(p) != 1 and p != 0 and a == 1 / p
        if definition.aggregation != "mean" or rank_type == "expected" or power_mean or self.scales_weights:
            return None
        histogram = self._histogram(rank_type, definition.uses_candidates)
        x = apply_transform(definition.f, histogram.rank, num_candidates=histogram.num_candidates)
        means = histogram.runs.sums(histogram.mass * x) / histogram.total
        values = np.full(self.size, np.nan)
        values[histogram.runs.present] = apply_transform(definition.g, means, "g")
        return values

    def moments(self, definition: RankDefinition) -> tuple[FloatArray, FloatArray] | None:
        """Null mean and variance of each group, (size,) twice; None: they have to be asked group by group."""
        f = known(definition.f)
        if not (definition.is_mean_of_f and definition.has_null and f.closed_moments) or self.scales_weights:
            return None
        counts = self._candidate_counts
        found = np.zeros((2, self.size))
        mean, variance = (part[counts.index] for part in f.null_moments(counts.distinct))
        found[0, counts.runs.present] = counts.runs.sums(counts.share * mean)
        found[1, counts.runs.present] = counts.runs.sums(counts.share * counts.weight * variance)
        return found[0], found[1]

    def _histogram(self, rank_type: RankType, by_candidates: bool) -> "_Histograms":
        key = (rank_type, by_candidates)
        if key not in self._histograms:
            self._histograms[key] = self._count_ranks(*key)
        return self._histograms[key]

    def _count_ranks(self, rank_type: RankType, by_candidates: bool) -> "_Histograms":
        sample, num_candidates, mass = self.sample, None, self.sample.mass
        ranks = {"optimistic": 2 * sample.optimistic, "pessimistic": 2 * sample.pessimistic}
        doubled = ranks.get(rank_type, sample.optimistic + sample.pessimistic)
        if by_candidates:
            columns = (self.group, doubled, sample.known_candidates, sample.weight)
            (group, doubled, num_candidates, weight), count = distinct_rows(columns, sample.count)
            mass = np.asarray(weight * count, dtype=np.float64)
        else:
            group, doubled, mass = _tally(self.group, doubled, mass)
        runs = Runs(group, self.size)
        return _Histograms(runs, doubled / 2.0, mass, runs.sums(mass), num_candidates)

    @cached_property
    def _candidate_counts(self) -> "_Counts":
        """What ``CandidateCounts`` of each group has."""
        N, weight, count = self.sample.known_candidates, self.sample.weight, self.sample.count
        if weight.min() == weight.max():
            group, N, tasks = _tally(self.group, N, count)
            runs, count = Runs(group, self.size), tasks.astype(np.int64)
            weight = 1.0 / self.num_tasks[group]
        else:
            (group, N, weight), count = distinct_rows((self.group, N, weight), count)
            runs = Runs(group, self.size)
            alike = np.zeros(self.size, dtype=bool)
            alike[runs.present] = runs.over(np.minimum, weight) == runs.over(np.maximum, weight)
            total = np.zeros(self.size)
            total[runs.present] = runs.sums(weight * count)
            weight = np.where(alike[group], 1.0 / self.num_tasks[group], weight / total[group])
        distinct, _ = tally(N, np.ones(len(N)))
        return _Counts(runs, distinct, np.searchsorted(distinct, N), weight, count * weight)


@dataclass(frozen=True, eq=False)
class _Histograms:
    runs: "Runs"
    rank: FloatArray
    mass: FloatArray
    total: FloatArray
    num_candidates: IntArray | None


@dataclass(frozen=True, eq=False)
class _Counts:
    runs: "Runs"
    distinct: IntArray
    index: IntArray
    weight: FloatArray
    share: FloatArray


class Runs:
    """Runs of entries of one group.

    Args:
        group: (m,) int64, ascending, from 0.
        size: more than the largest.

    Attributes:
        present: the groups that have entries, ascending: what sums are given for.
    """

    def __init__(self, group: IntArray, size: int) -> None:
        first = np.ones(len(group), dtype=bool)
        first[1:] = group[1:] != group[:-1]
        self.size = size
        self.starts = np.flatnonzero(first)
        self.present = group[self.starts]
        # a zero before each run: reduceat adds pairwise all but the first, and a sum adds all to zero
        self._places = np.arange(1, len(group) + 1) + np.cumsum(first) - 1
        self._zeros = self.starts + np.arange(len(self.starts))

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum the values (m,) of each run, to the bits of their ``sum()`` alone."""
        padded = np.zeros(len(values) + len(self.starts))
        padded[self._places] = values
        return self.over(np.add, padded, self._zeros)

    def whole_sums(self, values: IntArray) -> IntArray:
        """Sum integers (m,) of every group, also of those without entries, (size,)."""
        found = np.zeros(self.size, dtype=np.int64)
        found[self.present] = np.add.reduceat(values, self.starts) if len(values) else 0
        return found

    def over(self, function: np.ufunc, values: FloatArray, starts: IntArray | None = None) -> FloatArray:
        """Reduce the values of each run."""
        if not len(values):
            return np.zeros(0)
        return np.asarray(function.reduceat(values, self.starts if starts is None else starts))


def _tally(group: IntArray, values: IntArray, mass: npt.NDArray[Any]) -> tuple[IntArray, IntArray, FloatArray]:
    """Distinct pairs of group and value, in order, and the mass of each, added in the order given."""
    span = int(values.max(initial=0)) + 1
    if len(group) and span <= (1 << 62) // (int(group[-1]) + 1):
        order = np.argsort(group * span + values, kind="stable")
    else:  # the pair does not fit in one integer
        order = np.lexsort((values, group))
    group, values, mass = group[order], values[order], mass[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (group[1:] != group[:-1]) | (values[1:] != values[:-1])
    return group[first], values[first], np.bincount(np.cumsum(first) - 1, mass).astype(np.float64)


class Groups:
    """The groups of an analysis, by ascending id.

    Attributes:
        ids: (g,) int64.

    Raises:
        ValueError: if a task has no group.
    """

    def __init__(self, analysis: Analysis) -> None:
        group = analysis.group
        order = np.argsort(group, kind="stable")
        self.rows = analysis.rows.T[:, order].T
        group = group[order]
        first = np.diff(group, prepend=group[:1] - 1) != 0
        self.ids, self.index = group[first], np.cumsum(first) - 1
        self.analysis = analysis
        self._samples: dict[tuple[Side, int], GroupedSample] = {}
        self._base: dict[Hashable, FloatArray | None] = {}
        self._moments: dict[Hashable, tuple[FloatArray, FloatArray] | None] = {}

    @property
    def num_tasks(self) -> IntArray:
        """Number of tasks of each group, (g,) int64."""
        return self.sample("both", 1).num_tasks

    def sample(self, side: Side, min_candidates: int) -> GroupedSample:
        """The tasks of a side with so many candidates or more, group after group."""
        key = (side, min_candidates)
        if key not in self._samples:
            kept = used(self.rows, side, min_candidates)
            whole: tuple[Side, int] = ("both", 1)
            if key != whole and kept.all():
                self._samples[key] = self.sample(*whole)
            else:
                self._samples[key] = GroupedSample(sample_of(self.rows.T[:, kept].T), self.index[kept], len(self.ids))
        return self._samples[key]

    def values(self, measure: Measure) -> FloatArray:
        """Value of a measure in each group, (g,); NaN where it is undefined or nobody can tell chance."""
        found = self._at_once(measure)
        return np.array([measure.value_or_nan(part) for part in self._parts]) if found is None else found

    def _at_once(self, measure: Measure) -> FloatArray | None:
        definition = measure.definition.of_tasks
        if definition is None or not len(self.ids):
            return None
        sample = self.sample(measure.side, definition.min_candidates)
        key = (definition, measure.rank_type, measure.side)
        if key not in self._base:
            self._base[key] = sample.base_values(definition, measure.rank_type)
        base = self._base[key]
        if base is None or measure.view == "base":
            return base
        if type(measure.expectation) is not ExactExpectation or measure.view == "p_value":
            return None
        if (definition, measure.side) not in self._moments:
            self._moments[definition, measure.side] = sample.moments(definition)
        moments = self._moments[definition, measure.side]
        if moments is None:
            return None
        offset, scale = offset_and_scale(definition, measure.view, *moments, definition.optimum)
        with np.errstate(all="ignore"):
            return np.where(scale == 0, math.nan, (base - offset) / scale + 0.0)

    @cached_property
    def _parts(self) -> list[Analysis]:
        return [part for _, part in self.analysis.by_group()]


Cell = int | float | str


@dataclass(frozen=True)
class Breakdown(Rendered):
    """One row per group: group (its name or id), count, and base value, adjusted index and z-score of every metric.

    Attributes:
        columns: names of the columns.
        rows: cells in the order of the columns; NaN where a value has no meaning in its group.
        notes: what a reader must know, printed below the table.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> list[Cell]:
        """Cells of one column, one per group."""
        index = self._index(column)
        return [row[index] for row in self.rows]

    def sort(self, column: str, *, descending: bool = False) -> "Breakdown":
        """Order the rows by a column, NaN last; equal ones keep their order.

        Raises:
            ValueError: if there is no such column.
        """
        index = self._index(column)
        missing = [row for row in self.rows if _is_nan(row[index])]
        there: list[Any] = [row for row in self.rows if not _is_nan(row[index])]
        there.sort(key=lambda row: row[index], reverse=descending)
        return replace(self, rows=(*there, *missing))

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        columns = [Column(name, key=i == 0, metric=name if i > 1 else "") for i, name in enumerate(self.columns)]
        return Tabular(columns, self.rows, self.notes)

    def _index(self, column: str) -> int:
        return self.columns.index(check_choice("column", column, self.columns))


def break_down(analysis: Analysis, measures: Iterable[Measure], names: Names) -> Breakdown:
    """Tabulate metrics by group; within a group micro and macro are the same.

    Raises:
        ValueError: if a task has no group, or a group has no name.
    """
    columns: dict[str, Measure] = {}
    for measure in measures:
        if measure.definition.name != "count":
            seen = replace(measure, average="micro").seen_as("base", "adjusted_index", "z_score")
            columns |= {view.key: view for view in seen if view is not None and view.key not in columns}
    groups = Groups(analysis)
    ids: list[Cell] = groups.ids.tolist()
    cells: list[list[Cell]] = [ids if names is None else [name_of(group, names) for group in groups.ids.tolist()]]
    cells.append(groups.num_tasks.tolist())
    cells += [groups.values(measure).tolist() for measure in columns.values()]
    return Breakdown(("group", "count", *columns), _rows(cells), tuple(sampled_notes(analysis)))


def _rows(cells: list[list[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows of columns. A million of them would set off the search for cycles often, and hold none."""
    searching = gc.isenabled()
    gc.disable()
    try:
        return tuple(zip(*cells, strict=True))
    finally:
        if searching:
            gc.enable()


def _is_nan(cell: object) -> bool:
    return isinstance(cell, float) and math.isnan(cell)
