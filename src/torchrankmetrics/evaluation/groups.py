"""What measures say of every group of an analysis: of all groups at once where that is known, else group by group."""

from collections.abc import Hashable
from functools import cached_property

import numpy as np

from torchrankmetrics.evaluation.analysis import Analysis, Side, sample_of
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.table.columns import used
from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.exact import ExactExpectation
from torchrankmetrics.theory.groups import GroupedSample
from torchrankmetrics.theory.views import apply_view_to_each


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
        definition = measure.definition
        if not isinstance(definition, RankDefinition) or not len(self.ids):
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
        return None if moments is None else apply_view_to_each(definition, measure.view, base, *moments)

    @cached_property
    def _parts(self) -> list[Analysis]:
        return [part for _, part in self.analysis.by_group()]
