"""Hypotheses about a metric of all ranking tasks, on the scale of single tasks."""

import math

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import apply_transform, known
from torchrankmetrics.metrics.registry import MetricLike, as_measure
from torchrankmetrics.sequential.sequences import Drawn, betting_interval, side_of
from torchrankmetrics.table.columns import Columns, Rows, weights
from torchrankmetrics.validation import check_int, one_number, shorten

_MAX_ENUMERATED = 1 << 22  # candidates whose f is computed rank by rank to find its bounds
_USE_BOUNDED = "use a mean of f that is bounded, such as 'mrr', 'hits@10' or 'auc'"


class Hypothesis:
    """A mean of f over tasks, or the difference of two, is above a threshold, or known to within a half width.

    Args:
        metric, alpha, threshold, half_width, num_candidates: as in ``SequentialEvaluation``.
        paired: whether it is about the difference from another model.

    Attributes:
        low, width: lowest value of the metric or difference, and the width of its range.
    """

    def __init__(
        self,
        metric: MetricLike,
        alpha: float,
        paired: bool,
        threshold: float | None,
        half_width: float | None,
        num_candidates: int | None,
    ) -> None:
        level = one_number(alpha)
        if level is None or not 0 < level < 1:
            raise ValueError(f"alpha must be in (0, 1), for example 0.05; got {shorten(alpha)}")
        for name, value in (("threshold", threshold), ("half_width", half_width)):
            number = one_number(value)
            if value is not None and (number is None or not math.isfinite(number)):
                raise ValueError(f"{name} must be a finite number or None, got {shorten(value)}")
        self.alpha, self.threshold, self.half_width = float(level), one_number(threshold), one_number(half_width)
        if self.threshold is not None and self.half_width is not None:
            raise ValueError("threshold and half_width must not both be given")
        if self.half_width is not None and self.half_width <= 0:
            raise ValueError(f"half_width must be above 0, got {shorten(half_width)}")
        if not paired and self.threshold is None and self.half_width is None:
            raise ValueError("one of baseline, threshold and half_width must be given")
        self.measure = measure = as_measure(metric)
        definition = measure.definition.of_tasks
        if definition is None or not definition.is_mean_of_f:
            raise ValueError(f"{measure.key!r} is not a mean over tasks: {_USE_BOUNDED}")
        if (measure.view, measure.average) != ("base", "micro"):
            raise ValueError(
                f"{measure.key!r} must be requested in its base view and micro average, {definition.name!r}: which of "
                "two models is better on the same tasks is the same in every view"
            )
        if measure.side != "both":
            raise ValueError(f"{measure.key!r} is of one side: pass tasks of that side only, and {definition.name!r}")
        self._definition, self._limits = definition, _limits(definition, num_candidates, measure.key)
        width = self._limits[1] - self._limits[0]
        self.low, self.width = (-width, 2 * width) if paired else (self._limits[0], width)
        if self.threshold is not None and not self.low <= self.threshold <= (width if paired else self._limits[1]):
            what, high = ("differences", width) if paired else ("values", self._limits[1])
            raise ValueError(
                f"threshold must lie in [{self.low:g}, {high:g}], as {what} of {measure.key!r} do; "
                f"got {shorten(threshold)}"
            )
        if self.threshold is None and self.half_width is None and measure.higher_is_better is None:
            raise ValueError(f"{measure.key!r} has no direction, so that none is better: pass threshold or half_width")
        self._larger_is_true = self.threshold is not None or bool(measure.higher_is_better)

    def values(self, rows: Rows) -> FloatArray:
        """Values f (m,) of the tasks of rows (m, 10).

        Raises:
            ValueError: for weights, and for values that are undefined or out of the limits.
        """
        columns, (low, high) = Columns(rows), self._limits
        if (weights(rows) != 1).any():
            raise ValueError("tasks must have no weights: the tested mean weighs all tasks the same")
        if (columns.num_candidates < self._definition.min_candidates).any():
            raise ValueError(
                f"{self.measure.key!r} has no value for tasks of fewer than {self._definition.min_candidates} "
                "candidates: remove them first"
            )
        values = self._definition.unit_values(RankSample(*columns.ranks.T), self.measure.rank_type)
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
        return bool((high - low) * self.width <= 2 * self.half_width)

    def answer(self, drawn: Drawn) -> bool | None:
        """Whether the model is better, or reaches the threshold; None: undecided, or without a threshold."""
        if self.half_width is not None:
            return None
        side = side_of(drawn, ((self.threshold or 0) - self.low) / self.width, self.alpha)
        return None if side == 0 else (side > 0) == self._larger_is_true

    def exact_answer(self, value: float) -> bool | None:
        """Return the answer for the exact value or difference."""
        if self.half_width is not None:
            return None
        if self.threshold is not None:
            return value >= self.threshold
        return value > 0 if self._larger_is_true else value < 0


def _limits(definition: RankDefinition, num_candidates: int | None, key: str) -> tuple[float, float]:
    """Lowest and highest f of a metric on all ranks among so many candidates; None: any number of candidates."""
    f = known(definition.f)
    if num_candidates is not None:
        num_candidates = check_int("num_candidates", num_candidates, 1, 1 << 62)
    if f.is_share or (f.uses_candidates and f.smooth):
        return 0.0, 1.0  # hits, and the share of candidates below
    if f.uses_candidates:
        raise ValueError(
            f"{key!r} has no known bounds, because its f depends on the number of candidates: {_USE_BOUNDED}"
        )
    ends = np.array([math.inf])
    if f.smooth and (num_candidates is not None or f.has_limit):  # monotone
        ends = f.values(np.array([1.0, num_candidates or math.inf]))
    elif num_candidates is not None and num_candidates <= _MAX_ENUMERATED:
        ends = apply_transform(f, np.arange(2, 2 * num_candidates + 1) / 2.0)  # realistic ranks are halves, too
    if not np.isfinite(ends).all():
        raise ValueError(
            f"{key!r} is not bounded: {_USE_BOUNDED}; or pass num_candidates, the largest number of candidates of any "
            "task"
        )
    low, high = float(ends.min()), float(ends.max())
    if low == high:
        raise ValueError(f"{key!r} has the value {low:g} for every rank, so that nothing can be tested")
    return low, high
