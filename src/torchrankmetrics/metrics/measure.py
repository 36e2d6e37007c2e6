"""`Measure`: a metric in a view, and its value from an analysis."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, get_args

import numpy as np

from torchrankmetrics.definitions.protocol import (
    VIEWS,
    Average,
    Definition,
    EmptyQueries,
    Side,
    View,
)
from torchrankmetrics.definitions.sample import (
    RANK_TYPES,
    FloatArray,
    Moments,
    RankType,
    Sample,
    UnknownCandidatesError,
)
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.warnings import warn_of_competition
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION, ExactExpectation
from torchrankmetrics.null.expectation.provider import (
    ExpectationProvider,
    ExpectationUnavailableError,
    check_provider,
    unavailable,
)
from torchrankmetrics.validation import check_choice, shorten

SIDES: tuple[Side, ...] = get_args(Side)
AVERAGES: tuple[Average, ...] = get_args(Average)
# prefixes of keys; the mean rank has its own names
VIEW_PREFIXES: dict[View, str] = {
    "base": "",
    "normalized": "normalized_",
    "adjusted_index": "adjusted_",
    "z_score": "z_",
    "p_value": "p_",
}
_OWN_WORDS: dict[tuple[str, View], str] = {
    ("mr", "normalized"): "amr",
    ("mr", "adjusted_index"): "amri",
}

Number = TypeVar("Number", float, FloatArray)


def offset_and_scale(
    definition: Definition, view: View, mean: Number, variance: Number, best: float | None
) -> tuple[Number | float, Number]:
    """Return the offset and the divisor of an affine view, for one value or many.

    The divisor is 0 without variance.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 3; z of a decreasing metric has PyKEEN's
        sign.
    """
    if view == "normalized":
        return 0.0, mean
    if view == "adjusted_index":
        assert best is not None
        return mean, (best - mean) * (variance != 0)
    return mean, np.sqrt(variance) * (1 if definition.higher_is_better else -1)


def affine_view(
    definition: Definition, view: View, moments: Moments
) -> tuple[Callable[[float], float], float]:
    """Return the map of base values into a view, and its slope, the factor of errors.

    Both are NaN if the view is undefined.
    """
    if view == "base":
        return float, 1.0
    offset, scale = offset_and_scale(
        definition, view, moments.mean, moments.variance, definition.best(moments)
    )
    if scale == 0:
        return lambda value: math.nan, math.nan
    # + 0.0 turns -0.0 into 0.0
    return lambda value: (float(value) - offset) / float(scale) + 0.0, float(1 / scale)


@dataclass(frozen=True)
class Measure:
    """A metric with its view, rank type, side, average and expectation."""

    definition: Definition
    view: View = "base"
    rank_type: RankType = "realistic"
    side: Side = "both"
    average: Average = "micro"
    expectation: ExpectationProvider = None  # type: ignore[assignment]  # None: exact
    empty_queries: EmptyQueries | None = None  # None: skip them with a warning

    def __post_init__(self) -> None:
        if self.expectation is None:
            object.__setattr__(self, "expectation", DEFAULT_EXPECTATION)
        elif not isinstance(self.expectation, ExactExpectation):
            check_provider(self.expectation)
        check_choice("view", self.view, VIEWS)
        check_choice("rank_type", self.rank_type, RANK_TYPES)
        check_choice("side", self.side, SIDES)
        check_choice("average", self.average, AVERAGES)
        if self.empty_queries is not None:
            check_choice("empty_queries", self.empty_queries, get_args(EmptyQueries))
        if why := self.definition.why_undefined(self.view, self.rank_type):
            raise ValueError(why)
        if self.view not in ("base", "p_value") and not self.definition.has_expectation(
            self.expectation
        ):
            raise unavailable(
                self.definition,
                f"has no moments from expectation={shorten(self.expectation)}",
                "use view='base', or expectation=None for exact moments",
            )
        object.__setattr__(self, "rank_type", self.definition.canonical_rank_type(self.rank_type))

    @property
    def key(self) -> str:
        """Canonical key, ``[side_][rank_type_][macro_][view_]name``.

        Examples: ``mrr``, ``tail_z_mrr``, ``macro_amri``.
        """
        usual = self.definition.canonical_rank_type("realistic")
        parts = [(self.side, "both"), (self.rank_type, usual), (self.average, "micro")]
        name = VIEW_PREFIXES[self.view] + self.definition.name
        name = _OWN_WORDS.get((self.definition.name, self.view), name)
        return "_".join([*(part for part, unwritten in parts if part != unwritten), name])

    @property
    def higher_is_better(self) -> bool | None:
        """Direction of the value in the view; None for dispersion, counts and the tie rate."""
        return self.definition.direction(self.view)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Lowest and highest value for any ranks; None: no bound, or an unknown one."""
        return self.definition.bounds(self.view)

    @property
    def is_estimate(self) -> bool:
        """Whether the value is an estimate with an error and a mean over seeds.

        p-values and counts are not estimates.
        """
        return self.view != "p_value" and self.definition.aggregation != "count"

    def sample(self, rows: Any) -> Any:
        """The tasks or queries of the side on which the metric is defined, weighted by the average.

        ``rows`` are an ``Analysis``, or several runs.
        """
        return self.definition.sample(rows, self.side, self.average, self.empty_queries)

    def base(self, analysis: Analysis) -> float:
        """Base value, NaN without tasks.

        It is computed once for all measures that differ in view or expectation alone.
        """
        key = self.definition, self.rank_type, self.side, self.average, self.empty_queries
        return analysis.once(
            key, lambda: self.definition.value(self.sample(analysis), self.rank_type)
        )

    def value(self, analysis: Analysis) -> float:
        """Value in the view, NaN without tasks.

        It is also NaN, with one warning per analysis, for zero variance under the null.
        """
        value = self.base(analysis)
        if analysis.has_queries and self.definition.of_tasks is not None:
            warn_of_competition(analysis, self.definition.name, self.key, self.side)
        if not math.isnan(value):
            value = self._in_view(value, analysis)
        if math.isnan(value) and self.definition.has_tasks(analysis, self.side, self.average):
            analysis.warn_once(
                "undefined",
                f"{self.key} is undefined (NaN): under random ranking its value is a constant, for "
                "example because every task has a single candidate, or k is not below any number "
                "of candidates",
            )
        return value

    def log_p_value(self, analysis: Analysis) -> tuple[float, float]:
        """Natural logarithm of the p-value, and the error of the p-value.

        The logarithm is finite where the p-value underflows to 0.

        The error is the standard error of a simulated p-value, else an estimate. Both are NaN where
        the value is.
        """
        if math.isnan(self.base(analysis)):
            return math.nan, math.nan
        key = self.definition, self.side, self.average, self.empty_queries
        return analysis.once(key, lambda: self.definition.log_p_value(self.sample(analysis)))

    def _in_view(self, base: float, analysis: Analysis) -> float:
        if self.view == "base":
            return base
        if self.view == "p_value":
            return math.exp(self.log_p_value(analysis)[0])
        return affine_view(self.definition, self.view, self.moments(self.sample(analysis)))[0](base)

    def moments(self, sample: Sample) -> Moments:
        """Mean and variance of the base value under random ranking."""
        return self.definition.null_moments(sample, self.expectation)

    def with_views(self, *views: View) -> "Iterator[Measure | None]":
        """Yield the metric in other views.

        None for a view that is undefined or has no expectation.
        """
        for view in views:
            try:
                yield replace(self, view=view)
            except ValueError:
                yield None

    def value_or_nan(self, analysis: Analysis) -> float:
        """Value in the view, for tables.

        NaN without a warning where it is undefined or has no expectation.
        """
        try:
            base = self.base(analysis)
            return base if math.isnan(base) else self._in_view(base, analysis)
        except (ExpectationUnavailableError, UnknownCandidatesError):
            return math.nan


class Measured(Protocol):
    """An object with a measure, such as a ``RankMetric``."""

    measure: Measure


def measure_of(entry: object) -> Measure | None:
    """Return the measure of an entry that is or has one; None for others."""
    measure = entry if isinstance(entry, Measure) else getattr(entry, "measure", None)
    if not isinstance(measure, Measure):
        return None
    if isinstance(entry, type):
        raise TypeError(
            f"a metric must be an instance, such as {entry.__name__}(...), got the class"
        )
    return measure


def by_key(measures: Iterable[Measure]) -> dict[str, Measure]:
    """Measures by key, each once; ValueError if different ones have the same key."""
    found: dict[str, Measure] = {}
    for one in measures:
        if found.setdefault(one.key, one) != one:
            raise ValueError(
                f"two metrics have the key {shorten(one.key)} and different options: pass one of "
                "them, or a RankCollection with a dict {key: metric}"
            )
    return found


def by_name(measures: Iterable[tuple[str, Measure]]) -> dict[str, Measure]:
    """Measures of members of a collection by key, each once.

    Of different ones with the same key, later ones have the key of their member in brackets.
    """
    found: dict[str, Measure] = {}
    for member, one in measures:
        if one not in found.values():
            found[f"{one.key} ({member})" if one.key in found else one.key] = one
    return found
