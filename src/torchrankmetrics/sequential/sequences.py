"""Confidence sequences: anytime-valid bounds of the mean of a finite population; hypotheses.

Units are drawn without replacement, each with the odds of its size among those that are left, and
the mean of the values is weighted by size. The derivations are in docs/mathematics.md, "Sequential
evaluation".
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import apply_transform, as_transform
from torchrankmetrics.inference.intervals import check_confidence_level
from torchrankmetrics.inference.standard_errors import bisected
from torchrankmetrics.metrics.names import MetricLike, as_measure
from torchrankmetrics.table.columns import Columns, Rows, weights
from torchrankmetrics.validation import check_int, one_number, shorten

# fractions of the capital that are bet in parallel: one of them is nearly optimal for any
# detectable difference
FRACTIONS = 0.9 * 0.5 ** np.arange(8.0)
_ZERO = 1e-9  # tolerance for rounded sums
_STEPS = 24
_MAX_ENUMERATED = 1 << 22  # candidates whose f is computed rank by rank to find its bounds
_USE_BOUNDED = "use a mean of f that is bounded, such as 'mrr', 'hits@10' or 'auc'"


@dataclass(frozen=True, eq=False)
class Drawn:
    """The units drawn so far: means (t,) in [0, 1], sizes (t,), and the sum of all sizes."""

    values: FloatArray
    sizes: FloatArray
    total: float

    @cached_property
    def seen(self) -> FloatArray:
        """(t + 1,) sums of size times value before each draw and after the last."""
        return np.concatenate([np.zeros(1), np.cumsum(self.sizes * self.values)])

    @cached_property
    def left(self) -> FloatArray:
        """(t + 1,) sizes that are left before each draw and after the last."""
        return np.asarray(self.total - np.concatenate([np.zeros(1), np.cumsum(self.sizes)]))

    @property
    def certain(self) -> tuple[float, float]:
        """Bounds of the mean for any values of the units not drawn, widened by rounding errors."""
        seen = float(self.seen[-1])
        most = float(self.seen[-1] + self.left[-1])
        return max(0.0, seen / self.total - _ZERO), min(1.0, most / self.total + _ZERO)

    @property
    def estimate(self) -> float:
        """Mean of Des Raj's unbiased estimates, weighted by precision; NaN without any draw.

        Source: Des Raj 1956 (doi:10.1080/01621459.1956.10501326).
        """
        if not len(self.values):
            return math.nan
        each = (self.seen[:-1] + self.values * self.left[:-1]) / self.total
        precision = (self.total / self.left[:-1]) ** 2
        return float((precision * each).sum() / precision.sum())


def log_capital(drawn: Drawn, mean: float, *, above: bool, bar: float = -math.inf) -> FloatArray:
    """Logarithm of the capital after each draw of a bet against "the mean is ``mean``", from 1.

    It is -inf where it is certainly below ``bar``.

    If the bet is wrong, the capital ever reaches 1 / alpha with probability at most alpha (arXiv
    2010.09686, and 2305.06884 for draws in proportion to a size). It is monotone in ``mean``.
    """
    values = drawn.values
    seen = drawn.seen[:-1]
    left = drawn.left[:-1]
    if not above:  # the complement
        values = 1 - values
        seen = drawn.total - drawn.left[:-1] - seen
        mean = 1 - mean
    expected = (drawn.total * mean - seen) / left  # of the next value, if the mean is that
    gain = values / np.maximum(expected, _ZERO) - 1
    logs = np.log1p(FRACTIONS[:, None] * gain).cumsum(axis=1)
    capital = np.full(len(values), -np.inf)
    near = logs.max(axis=0) >= bar - _ZERO  # the capital is a mean, at most the largest
    capital[near] = np.logaddexp.reduce(logs[:, near], axis=0) - math.log(len(FRACTIONS))
    # more was seen than this mean allows
    capital[np.logical_or.accumulate(expected < -_ZERO)] = np.inf
    return capital


def side_of(drawn: Drawn, mean: float, alpha: float) -> int:
    """Return 1 if the mean of all is above ``mean``, -1 if it is below, 0 while undecided."""
    bar = math.log(2 / alpha)
    not_above = log_capital(drawn, mean, above=True, bar=bar) >= bar
    not_below = log_capital(drawn, mean, above=False, bar=bar) >= bar
    first = int(np.append(not_above, True).argmax())
    other = int(np.append(not_below, True).argmax())
    if first != other:
        return 1 if first < other else -1
    low, high = drawn.certain
    return int(low > mean) - int(high < mean)


def betting_interval(drawn: Drawn, alpha: float) -> tuple[float, float]:
    """Return the means that no bet has refuted so far: an anytime-valid interval of 1 - alpha."""
    low, high = drawn.certain
    bar = math.log(2 / alpha)

    def refuted(above: bool, mean: float) -> bool:
        return bool((log_capital(drawn, mean, above=above, bar=bar) >= bar).any())

    ends = [
        bisected(partial(refuted, True), low, high, _STEPS),
        bisected(partial(refuted, False), high, low, _STEPS),
    ]
    return min(ends), max(ends)


class HypothesisOptions(NamedTuple):
    """What users choose of a hypothesis."""

    metric: MetricLike
    alpha: float
    threshold: Any
    half_width: Any


class Hypothesis:
    """A mean of f, or the difference of two, is above a threshold, or known to a half width."""

    def __init__(self, options: HypothesisOptions, paired: bool, num_candidates: Any) -> None:
        self.alpha = float(check_confidence_level(options.alpha, "alpha", 0.05))
        self.threshold = _finite("threshold", options.threshold)
        self.half_width = _finite("half_width", options.half_width)
        if self.threshold is not None and self.half_width is not None:
            raise ValueError("threshold and half_width must not both be given")
        if self.half_width is not None and self.half_width <= 0:
            raise ValueError(f"half_width must be above 0, got {shorten(options.half_width)}")
        is_better = self.threshold is None and self.half_width is None
        if is_better and not paired:
            raise ValueError("one of baseline, threshold and half_width must be given")

        self.measure = as_measure(options.metric)
        self._definition = self._mean_of_tasks()
        self._limits = _limits(self._definition, num_candidates, self.measure.key)
        low, high = self._limits
        self.width = high - low
        self.low = low
        if paired:  # differences
            self.low = low - high
            self.width = 2 * (high - low)
        self._check_threshold(paired)
        if is_better and self.measure.higher_is_better is None:
            raise ValueError(
                f"{self.measure.key!r} has no direction, so that none is better: pass threshold or "
                "half_width"
            )
        self._larger_is_true = self.threshold is not None or bool(self.measure.higher_is_better)

    def _mean_of_tasks(self) -> RankDefinition:
        """The definition of the metric; ValueError unless it is a mean over all tasks."""
        measure = self.measure
        definition = measure.definition.of_tasks
        if definition is None or not definition.is_mean_of_f:
            raise ValueError(f"{measure.key!r} is not a mean over tasks: {_USE_BOUNDED}")
        if (measure.view, measure.average, measure.side) != ("base", "micro", "both"):
            raise ValueError(
                f"{measure.key!r} must be requested in its base view and micro average, and not of "
                f"one side: use {definition.name!r}, with tasks of that side only; in every view "
                "the same model is better"
            )
        return definition

    def _check_threshold(self, paired: bool) -> None:
        high = self.low + self.width
        if self.threshold is not None and not self.low <= self.threshold <= high:
            what = "differences" if paired else "values"
            raise ValueError(
                f"threshold must lie in [{self.low:g}, {high:g}], as {what} of "
                f"{self.measure.key!r} do; got {shorten(self.threshold)}"
            )

    def values(self, rows: Rows) -> FloatArray:
        """Values f (m,) of the tasks of rows (m, 10); ValueError for weights and invalid values."""
        columns = Columns(rows)
        low, high = self._limits
        least = self._definition.min_candidates
        if (weights(rows) != 1).any():
            raise ValueError(
                "tasks must have no weights: the tested mean weighs all tasks the same"
            )
        if (columns.num_candidates < least).any():
            raise ValueError(
                f"{self.measure.key!r} has no value for fewer than {least} candidates: remove "
                "these tasks"
            )
        values = self._definition.unit_values(RankSample(*columns.ranks.T), self.measure.rank_type)
        slack = 1e-9 * (high - low)
        if len(values) and (values.min() < low - slack or values.max() > high + slack):
            raise ValueError(
                f"values of {self.measure.key!r} lie between {values.min():g} and "
                f"{values.max():g}, outside of [{low:g}, {high:g}]: pass the largest number of "
                "candidates of any task as num_candidates"
            )
        return np.clip(values, low, high)

    def is_answered(self, drawn: Drawn) -> bool:
        """Whether the queries drawn so far, on the scale of [0, 1], decide it."""
        if self.half_width is None:
            return self.answer(drawn) is not None
        low, high = betting_interval(drawn, self.alpha)
        return bool((high - low) * self.width <= 2 * self.half_width)

    def answer(self, drawn: Drawn) -> bool | None:
        """Whether the model is better or reaches the threshold; None: undecided or no threshold."""
        if self.half_width is not None:
            return None
        scaled_threshold = ((self.threshold or 0) - self.low) / self.width
        side = side_of(drawn, scaled_threshold, self.alpha)
        return None if side == 0 else (side > 0) == self._larger_is_true

    def exact_answer(self, value: float) -> bool | None:
        """Return the answer for the exact value or difference."""
        if self.half_width is not None:
            return None
        reached = value > 0 if self.threshold is None else value >= self.threshold
        return reached if self._larger_is_true else value < 0


def _finite(name: str, given: Any) -> float | None:
    number = one_number(given)
    if given is not None and (number is None or not math.isfinite(number)):
        raise ValueError(f"{name} must be a finite number or None, got {shorten(given)}")
    return number


def _limits(
    definition: RankDefinition, num_candidates: int | None, key: str
) -> tuple[float, float]:
    """Lowest and highest f of a metric on all ranks among so many candidates; None: any number."""
    f = as_transform(definition.f)
    N = num_candidates
    if N is not None:
        N = check_int("num_candidates", N, 1, 1 << 62)
    if f.is_share or (f.uses_candidates and f.smooth):
        return 0.0, 1.0  # hits, and the share of candidates below
    if f.uses_candidates:
        raise ValueError(
            f"{key!r} has no known bounds, because its f depends on num_candidates: {_USE_BOUNDED}"
        )
    ends = np.array([math.inf])
    if f.smooth and (N is not None or f.has_limit):  # monotone
        ends = f.values(np.array([1.0, N or math.inf]))
    elif N is not None and N <= _MAX_ENUMERATED:
        ends = apply_transform(f, np.arange(2, 2 * N + 1) / 2.0)  # realistic ranks are halves, too
    if not np.isfinite(ends).all():
        raise ValueError(
            f"{key!r} is not bounded: {_USE_BOUNDED}; or pass num_candidates, the largest number "
            "of candidates of any task"
        )
    low = float(ends.min())
    high = float(ends.max())
    if low == high:
        raise ValueError(
            f"{key!r} has the value {low:g} for every rank, so that nothing can be tested"
        )
    return low, high
