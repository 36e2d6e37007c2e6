"""Metrics by group of ranking tasks: values and null moments of all groups at once."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import Side
from torchrankmetrics.definitions.sample import (
    FloatArray,
    IntArray,
    RankSample,
    RankType,
    distinct_rows,
    in_range,
    sum_by_value,
)
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import apply_transform, as_transform
from torchrankmetrics.metrics.analysis import Analysis, sample_of
from torchrankmetrics.metrics.measure import Measure, by_name, offset_and_scale
from torchrankmetrics.metrics.summary import sampled_notes
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION, ExactExpectation
from torchrankmetrics.rendering import Column, Rendered, Tabular
from torchrankmetrics.rendering.tabular import Names, name_of
from torchrankmetrics.table.columns import used, weights
from torchrankmetrics.validation import check_choice


class Runs:
    """Runs of entries of one group; groups (m,) ascend."""

    def __init__(self, group: IntArray) -> None:
        first = np.diff(group, prepend=group[:1] - 1) != 0
        self.starts = np.flatnonzero(first)
        self.present = group[self.starts]
        # a zero before each run: reduceat adds pairwise all but the first, and a sum adds all to
        # zero
        self._places = np.arange(1, len(group) + 1) + np.cumsum(first) - 1
        self._zeros = self.starts + np.arange(len(self.starts))

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum the values (m,) of each run, to the bits of their ``sum()`` alone."""
        padded = np.zeros(len(values) + len(self.starts))
        padded[self._places] = values
        return np.add.reduceat(padded, self._zeros) if len(values) else padded


def _sum_by_group(
    group: IntArray, values: IntArray, mass: npt.NDArray[Any]
) -> tuple[IntArray, IntArray, FloatArray]:
    """Find the distinct pairs of group and value, in order, and the mass of each.

    The masses of a pair are added in the order given.
    """
    span = int(values.max(initial=0)) + 1
    if span > 1 << 31:  # too large for one integer with a group
        known_values, index = np.unique(values, return_inverse=True)
        group, index, total = _sum_by_group(group, index, mass)
        return group, known_values[index], total
    pair, total = sum_by_value(group * span + values, mass)
    return pair // span, pair % span, total


class Groups:
    """The groups of an analysis, by ascending id.

    Samples, histograms and values are computed once.
    """

    def __init__(self, analysis: Analysis) -> None:
        order = np.argsort(analysis.group, kind="stable")
        self.rows = analysis.task_rows.T[:, order].T
        self.ids, self.index = np.unique(analysis.group[order], return_inverse=True)
        self.analysis = analysis
        self._all = sample_of(self.rows)
        self.num_tasks = np.bincount(self.index, self._all.count).astype(np.int64)  # of each group
        weight = weights(self.rows)
        # else ``RankSample`` would scale a group alone differently
        self._in_range = in_range(weight) is weight
        self._once = functools.cache(lambda method, *arguments: method(*arguments))

    def values(self, measure: Measure) -> FloatArray:
        """Value of a measure in each group, (g,).

        NaN where it is undefined or has no expectation.
        """
        found = self._at_once(measure)
        if found is not None:
            return found
        return np.array([measure.value_or_nan(part) for part in self._parts])

    @functools.cached_property
    def _parts(self) -> list[Analysis]:
        return [part for _, part in self.analysis.by_group()]

    def _at_once(self, measure: Measure) -> FloatArray | None:
        """Values of all groups; None if each group must be computed separately."""
        definition = measure.definition.of_tasks
        if definition is None or not len(self.ids) or not self._in_range:
            return None
        base: FloatArray | None = self._once(
            self._base, definition, measure.rank_type, measure.side
        )
        if base is None or measure.view == "base":
            return base
        closed = (
            definition.is_mean_of_f
            and definition.has_null
            and as_transform(definition.f).closed_moments
        )
        if (
            not closed
            or type(measure.expectation) is not ExactExpectation
            or measure.view == "p_value"
        ):
            return None
        mean, variance = self._once(self._moments, definition, measure.side)
        offset, scale = offset_and_scale(
            definition, measure.view, mean, variance, definition.optimum
        )
        with np.errstate(all="ignore"):
            return np.where(scale == 0, math.nan, (base - offset) / scale + 0.0)

    def _sample(self, side: Side, min_candidates: int) -> tuple[RankSample, IntArray]:
        """Tasks of a side with at least so many candidates, and their groups, from 0.

        Tasks are sorted by group.
        """
        selected = used(self.rows, side, min_candidates)
        if selected.all():
            return self._all, self.index
        return sample_of(self.rows.T[:, selected].T), self.index[selected]

    def _base(
        self, definition: RankDefinition, rank_type: RankType, side: Side
    ) -> FloatArray | None:
        """Base value of each group, NaN without tasks.

        None if each group must be computed separately.
        """
        if definition.aggregation != "mean" or rank_type == "expected" or definition.is_power_mean:
            return None
        key = side, definition.min_candidates, rank_type, definition.uses_candidates
        runs, rank, mass, num_candidates = self._once(self._histogram, *key)
        x = apply_transform(definition.f, rank, num_candidates=num_candidates)
        means = runs.sums(mass * x) / runs.sums(mass)
        return self._spread(runs, apply_transform(definition.g, means, "g"), math.nan)

    def _moments(self, definition: RankDefinition, side: Side) -> tuple[FloatArray, FloatArray]:
        """Null mean and variance of each group."""
        runs, distinct, index, weight, count = self._once(
            self._counts, side, definition.min_candidates
        )
        mean, variance = (part[index] for part in as_transform(definition.f).null_moments(distinct))
        share = count * weight
        total_mean = self._spread(runs, runs.sums(share * mean), 0.0)
        return total_mean, self._spread(runs, runs.sums(share * weight * variance), 0.0)

    def _spread(self, runs: Runs, values: FloatArray, fill: float) -> FloatArray:
        """Values of all groups from values of the groups that have entries."""
        found = np.full(len(self.ids), fill)
        found[runs.present] = values
        return found

    def _histogram(
        self, side: Side, min_candidates: int, rank_type: RankType, by_candidates: bool
    ) -> tuple[Runs, FloatArray, FloatArray, IntArray | None]:
        """``RankSample.histogram`` of each group, group after group."""
        sample, group = self._once(self._sample, side, min_candidates)
        doubled = sample.doubled(rank_type)
        if not by_candidates:
            group, doubled, mass = _sum_by_group(group, doubled, sample.mass)
            return Runs(group), doubled / 2.0, mass, None
        columns = (group, doubled, sample.known_candidates, sample.weight)
        (group, doubled, num_candidates, weight), count = distinct_rows(columns, sample.count)
        mass = np.asarray(weight * count, dtype=np.float64)
        return Runs(group), doubled / 2.0, mass, num_candidates

    def _counts(
        self, side: Side, min_candidates: int
    ) -> tuple[Runs, IntArray, npt.NDArray[np.intp], FloatArray, IntArray]:
        """Counts of each group: runs, distinct N, index into them, weight and number of tasks."""
        sample, group = self._once(self._sample, side, min_candidates)
        N = sample.known_candidates
        weight = sample.weight
        num_tasks = np.bincount(group, sample.count)
        if len(weight) and weight.min() == weight.max():
            group, N, tasks = _sum_by_group(group, N, sample.count)
            runs = Runs(group)
            weight = 1.0 / num_tasks[group]
            count = tasks.astype(np.int64)
        else:
            (group, N, weight), count = distinct_rows((group, N, weight), sample.count)
            runs = Runs(group)
            alike = np.minimum.reduceat(weight, runs.starts) == np.maximum.reduceat(
                weight, runs.starts
            )
            total = self._spread(
                runs, np.where(alike, math.nan, runs.sums(weight * count)), math.nan
            )[group]
            weight = np.where(np.isnan(total), 1.0 / num_tasks[group], weight / total)
        distinct, index = np.unique(N, return_inverse=True)
        return runs, distinct, index, weight, count


Cell = int | float | str


@dataclass(frozen=True)
class Breakdown(Rendered):
    """One row per group: group (its name or id), count, and three values of every metric.

    The values are base value, adjusted index and z-score.

    Attributes:
        columns: names of the columns.
        rows: cells in the order of the columns; NaN where a value has no meaning in its group.
        notes: remarks printed below the table.

    >>> import torch
    >>> from torchrankmetrics import Ranks, RankTable
    >>> table = RankTable.from_ranks(Ranks([1, 2, 1, 3], None, 9), group=torch.tensor([0, 0, 1, 1]))
    >>> print(table.breakdown(["mrr"], names=["born_in", "capital_of"]))
    group       count     mrr  adjusted_mrr   z_mrr
    ----------  -----  ------  ------------  ------
    born_in         2  0.7500        0.6354  2.2917
    capital_of      2  0.6667        0.5139  1.8534
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
            ValueError: if the column is missing.
        """
        index = self._index(column)
        present = [row for row in self.rows if row[index] == row[index]]  # NaN differs from itself
        missing = [row for row in self.rows if row[index] != row[index]]
        present.sort(key=lambda row: row[index], reverse=descending)
        return replace(self, rows=(*present, *missing))

    def tabular(self) -> Tabular:
        """The table, before it is written."""
        group, count, *metrics = self.columns
        values = [Column(name, metric=name) for name in metrics]
        return Tabular([Column(group, key=True), Column(count), *values], self.rows, self.notes)

    def _index(self, column: str) -> int:
        return self.columns.index(check_choice("column", column, self.columns))


def _tabulated(measure: Measure, adjustable: bool) -> list[Measure]:
    """Base value, which does not depend on the expectation, adjusted index and z-score."""
    measure = replace(measure, average="micro")
    if not adjustable:
        return [measure]
    base, *adjusted = measure.with_views("base", "adjusted_index", "z_score")
    assert base is not None
    return [replace(base, expectation=DEFAULT_EXPECTATION), *filter(None, adjusted)]


def break_down(analysis: Analysis, measures: Mapping[str, Measure], names: Names) -> Breakdown:
    """Tabulate metrics by group; within a group micro and macro are the same."""
    adjustable = analysis.sample().num_candidates is not None
    columns = by_name(
        (key, view)
        for key, measure in measures.items()
        if measure.definition.name != "count"
        for view in _tabulated(measure, adjustable)
    )
    groups = Groups(analysis)
    labels = [name_of(group, names) for group in groups.ids.tolist()]
    values = (groups.values(measure).tolist() for measure in columns.values())
    rows = tuple(zip(labels, groups.num_tasks.tolist(), *values, strict=True))
    return Breakdown(("group", "count", *columns), rows, tuple(sampled_notes(analysis)))
