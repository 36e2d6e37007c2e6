"""Hypotheses about a metric of all ranking tasks, on the scale of single tasks."""

import math
from dataclasses import dataclass

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import KnownTransform, apply_transform, known
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import MetricLike, as_measure
from torchrankmetrics.sequential.sequences import Drawn, betting_interval, side_of
from torchrankmetrics.table.columns import Columns, Rows, weights
from torchrankmetrics.validation import check_int, one_number, shown

_TABLED = 1 << 22
_WORK = "use a mean of f that is bounded, such as 'mrr', 'hits@10' or 'auc'"


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis about a mean or the difference of two: it is above a threshold, or known to within a width.

    Attributes:
        measure: a mean of f over tasks.
        limits: lowest and highest f.
        alpha: probability of a wrong answer, at most.
        paired: whether it is about the difference from another model.
        threshold: for the value or the difference; None with ``paired``: 0, in the direction of the metric.
        half_width: half the width of an interval that is narrow enough; None: a threshold is tested.
    """

    measure: Measure
    limits: tuple[float, float]
    alpha: float
    paired: bool
    threshold: float | None
    half_width: float | None

    @classmethod
    def of(
        cls,
        metric: MetricLike,
        alpha: float,
        paired: bool,
        threshold: float | None,
        half_width: float | None,
        num_candidates: int | None,
    ) -> "Hypothesis":
        """Check the arguments of ``SequentialEvaluation``."""
        level = one_number(alpha)
        if level is None or not 0 < level < 1:
            raise ValueError(f"alpha must be in (0, 1), for example 0.05; got {shown(alpha)}")
        threshold, half_width = _finite("threshold", threshold), _finite("half_width", half_width)
        if threshold is not None and half_width is not None:
            raise ValueError("threshold and half_width must not both be given")
        if half_width is not None and half_width <= 0:
            raise ValueError(f"half_width must be above 0, got {shown(half_width)}")
        if not paired and threshold is None and half_width is None:
            raise ValueError("one of baseline, threshold and half_width must be given")
        measure = _measure_of(metric)
        limits = limits_of(measure.definition.of_tasks, num_candidates, measure.key)
        low, high = (limits[0] - limits[1], limits[1] - limits[0]) if paired else limits
        if threshold is not None and not low <= threshold <= high:
            what = "differences of " if paired else "values of "
            raise ValueError(
                f"threshold must lie in [{low:g}, {high:g}], as {what}{measure.key!r} do; got {shown(threshold)}"
            )
        if paired and threshold is None and half_width is None and measure.higher_is_better is None:
            raise ValueError(f"{measure.key!r} has no direction, so that none is better: pass threshold or half_width")
        return cls(measure, limits, float(level), paired, threshold, half_width)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest value of the metric or difference, and the width of its range."""
        width = self.limits[1] - self.limits[0]
        return (-width, 2 * width) if self.paired else (self.limits[0], width)

    def values(self, rows: Rows) -> FloatArray:
        """Values f (m,) of the tasks of rows (m, 10).

        Raises:
            ValueError: for weights, and for values that are undefined or out of the limits.
        """
        columns = Columns(rows)
        if (weights(rows) != 1).any():
            raise ValueError("tasks must have no weights: the tested mean weighs all tasks the same")
        definition, (low, high) = self.measure.definition.of_tasks, self.limits
        assert definition is not None
        if (columns.num_candidates < definition.min_candidates).any():
            raise ValueError(
                f"{self.measure.key!r} has no value for tasks of fewer than {definition.min_candidates} candidates: "
                "remove them first"
            )
        values = definition.unit_values(RankSample(*columns.ranks.T), self.measure.rank_type)
        slack = 1e-9 * (high - low)
        if len(values) and (values.min() < low - slack or values.max() > high + slack):
            raise ValueError(
                f"values of {self.measure.key!r} lie between {values.min():g} and {values.max():g}, outside of "
                f"[{low:g}, {high:g}]: pass the largest number of candidates of any task as num_candidates"
            )
        return np.clip(values, low, high)

    def is_answered(self, drawn: Drawn) -> bool:
        """Whether the queries drawn so far, on the scale of [0, 1], decide it."""
        if self.half_width is None:
            return self.answer(drawn) is not None
        low, high = betting_interval(drawn, self.alpha)
        return bool((high - low) * self.range[1] <= 2 * self.half_width)

    def answer(self, drawn: Drawn) -> bool | None:
        """Whether the model is better, or reaches the threshold; None: undecided, or without a threshold."""
        low, width = self.range
        side = 0 if self.half_width is not None else side_of(drawn, ((self.threshold or 0) - low) / width, self.alpha)
        return None if side == 0 else (side > 0) == self._wants_more

    def answer_of(self, exact: float) -> bool | None:
        """Return the answer for the exact value or difference."""
        if self.half_width is not None or self.threshold is not None:
            return None if self.threshold is None else exact >= self.threshold
        return exact > 0 if self._wants_more else exact < 0

    @property
    def _wants_more(self) -> bool:
        return self.threshold is not None or bool(self.measure.higher_is_better)


def limits_of(definition: RankDefinition | None, num_candidates: int | None, key: str) -> tuple[float, float]:
    """Lowest and highest value of the f of a metric on all ranks among so many candidates; None: any number.

    Raises:
        TypeError, ValueError: if it is not bounded, or num_candidates is not a positive integer.
    """
    assert definition is not None
    f = known(definition.f)
    if num_candidates is not None:
        num_candidates = check_int("num_candidates", num_candidates, 1, 1 << 62)
    if f.is_share or (f.uses_candidates and f.smooth):
        return 0.0, 1.0  # hits, and the share of candidates below
    if f.uses_candidates:
        raise ValueError(f"{key!r} has no known bounds, because its f depends on the number of candidates: {_WORK}")
    ends = _ends(f, num_candidates)
    if ends is None or not np.isfinite(ends).all():
        raise ValueError(
            f"{key!r} is not bounded: {_WORK}; or pass num_candidates, the largest number of candidates of any task"
        )
    low, high = float(ends.min()), float(ends.max())
    if low == high:
        raise ValueError(f"{key!r} has the value {low:g} for every rank, so that nothing can be tested")
    return low, high


def _ends(f: KnownTransform, num_candidates: int | None) -> FloatArray | None:
    if f.smooth and (num_candidates is not None or f.has_limit):
        return f.values(np.array([1.0, math.inf if num_candidates is None else num_candidates]))
    if num_candidates is None or num_candidates > _TABLED:
        return None
    return apply_transform(f, np.arange(2, 2 * num_candidates + 1) / 2.0)  # realistic ranks are halves, too


def _finite(name: str, value: float | None) -> float | None:
    number = one_number(value)
    if value is not None and (number is None or not math.isfinite(number)):
        raise ValueError(f"{name} must be a finite number or None, got {shown(value)}")
    return number


def _measure_of(metric: MetricLike) -> Measure:
    measure = as_measure(metric)
    definition = measure.definition.of_tasks
    if definition is None or not definition.is_mean_of_f:
        raise ValueError(f"{measure.key!r} is not a mean over tasks: {_WORK}")
    if (measure.view, measure.average) != ("base", "micro"):
        raise ValueError(
            f"{measure.key!r} must be requested in its base view and micro average, {definition.name!r}: which of two "
            "models is better on the same tasks is the same in every view"
        )
    if measure.side != "both":
        raise ValueError(f"{measure.key!r} is of one side: pass tasks of that side only, and {definition.name!r}")
    return measure
