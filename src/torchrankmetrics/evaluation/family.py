"""Several models on the same tasks: every pair, or one against the others, as one family of tests."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from torchrankmetrics.evaluation.comparison import Comparison, PairwiseComparisons
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.models import PairedMeasure, paired_measure
from torchrankmetrics.table.columns import Rows, used
from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.multiple import max_t_p_values
from torchrankmetrics.theory.inference.testing import holm
from torchrankmetrics.theory.inference.units import is_mean

BEST = "best"


class Family:
    """Models and measures whose differences are tested together.

    Args:
        rows: of every run of each model, in one order of tasks.
        keys: cluster of each task; None: each on its own.
        measures: what is compared.
        baseline: None: all pairs; the name of a model: it against each other one; "best": the best one of each metric.

    Raises:
        ValueError: if there are fewer than two models, no model of that name, or a metric has no best.
    """

    def __init__(
        self,
        rows: Mapping[str, list[Rows]],
        keys: IntArray | None,
        measures: Sequence[Measure],
        baseline: str | None,
    ) -> None:
        self.rows, self.keys, self.measures, self.baseline = dict(rows), keys, measures, baseline
        if baseline not in (None, BEST, *self.rows):
            known = ", ".join(map(repr, self.rows))
            raise ValueError(f"baseline must be None, 'best' or one of the models {known}; got {baseline!r}")
        if baseline == BEST and BEST not in self.rows:
            for measure in measures:
                if measure.higher_is_better is None:
                    raise ValueError(
                        f"{measure.key!r} has no direction, so that no model is the best: use baseline=None"
                    )

    @property
    def flips(self) -> bool:
        """Whether every difference is tested by sign flips of tasks; else Holm corrects what tests there are."""
        single = all(len(runs) == 1 for runs in self.rows.values())
        of_tasks = all(isinstance(measure.definition, RankDefinition) for measure in self.measures)
        return single and of_tasks and all(is_mean(one.definition, one.rank_type) for one in self.measures)

    @property
    def size(self) -> int:
        """Number of differences in the family."""
        return len(self.measures) * len(self._tested)

    @property
    def _tested(self) -> list[tuple[str, str]]:
        """Pairs in the family: which model is the best is seen in the data, so all that it may be are tested."""
        if self.baseline is None or self.baseline not in self.rows:
            return list(itertools.combinations(self.rows, 2))
        return [(self.baseline, other) for other in self.rows if other != self.baseline]

    def compare(self, one: Callable[[PairedMeasure], Comparison], permutations: int, seed: int) -> PairwiseComparisons:
        """Compare every pair by a function of it, and adjust the p-values."""
        found: list[Comparison] = []
        for measure, (first, second) in itertools.product(self.measures, self._tested):
            rows = [*self.rows[first], *self.rows[second]]
            pair = paired_measure(measure, rows, len(self.rows[first]), self.keys)
            found.append(dataclasses.replace(one(pair), models=(first, second)))
        plain = np.array([np.nan if row.p_value is None else row.p_value for row in found])
        correction = "max-T" if self.flips else "Holm"
        adjusted = self._max_t(permutations, seed) if self.flips else holm(plain)
        found = [
            dataclasses.replace(row, p_adjusted=None if np.isnan(p) else float(max(p, q)), correction=correction)
            for row, p, q in zip(found, plain, adjusted, strict=True)
        ]
        if self.baseline == BEST and BEST not in self.rows:
            found = [row for measure in self.measures for row in self._of_best(measure, found)]
        return PairwiseComparisons(tuple(found), tuple(self.rows))

    def _max_t(self, permutations: int, seed: int) -> FloatArray:
        """Adjusted p-values: flips of all differences from the first model, of which every pair is a combination."""
        reference, *others = self.rows
        tasks = len(self.rows[reference][0])
        units = np.arange(tasks) if self.keys is None else np.unique(self.keys, return_inverse=True)[1]
        columns = np.zeros((int(units.max()) + 1, len(self.measures) * len(others)))
        lines = np.zeros((columns.shape[1], self.size))
        for m, measure in enumerate(self.measures):
            counted = used(self.rows[reference][0], measure.side, measure.definition.min_candidates)
            first = m * len(others)
            for i, other in enumerate(others):
                rows = [*self.rows[other], *self.rows[reference]]
                flipped = paired_measure(measure, rows, 1, self.keys).runs.flipped
                columns[np.unique(units[counted]), first + i] = flipped
            place = {other: first + i for i, other in enumerate(others)}
            for j, pair in enumerate(self._tested, start=m * len(self._tested)):
                for model, sign in zip(pair, (1.0, -1.0), strict=True):
                    if model in place:
                        lines[place[model], j] = sign
        return max_t_p_values(columns, lines, permutations, seed)

    def _of_best(self, measure: Measure, rows: list[Comparison]) -> list[Comparison]:
        own = [row for row in rows if row.metric == measure.key]
        values = {model: value for row in own for model, value in zip(row.models or (), (row.a, row.b), strict=True)}
        best = (max if measure.higher_is_better else min)(values, key=values.__getitem__)
        with_it = [row for row in own if row.models is not None and best in row.models]
        return [row.turned() if row.models is not None and row.models[1] == best else row for row in with_it]


def named_models(models: Mapping[Any, Any]) -> dict[str, Any]:
    """Models by their names.

    Raises:
        ValueError: if there are fewer than two, or one has an empty name.
    """
    named = {str(name): model for name, model in models.items()}
    if len(named) < 2 or "" in named:
        raise ValueError(f"models must be at least two, by name; got {', '.join(map(repr, named)) or 'none'}")
    return named
