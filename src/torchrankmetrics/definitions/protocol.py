"""`MetricDefinition`: common to metrics of ranking tasks and of queries; given values."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, Moments, RankSample, RankType, Sample
from torchrankmetrics.definitions.transforms import IDENTITY, Transform
from torchrankmetrics.validation import TaskSide, shorten

if TYPE_CHECKING:
    from torchrankmetrics.definitions.tasks import RankDefinition
    from torchrankmetrics.null.expectation.provider import ExpectationProvider

View = Literal["base", "normalized", "adjusted_index", "z_score", "p_value"]
VIEWS: tuple[View, ...] = get_args(View)
Side = Literal["both", TaskSide]
Average = Literal["micro", "macro"]
EmptyQueries = Literal["skip", "zero", "error"]
"""How metrics of queries treat queries without a relevant item."""
Bounds = tuple[float | None, float | None]


class MetricDefinition:
    """A metric of a sample of rows: value, null moments, p-value, values of tasks or queries."""

    name: str
    aggregation: str
    higher_is_better: bool | None  # None for dispersion, counts and the tie rate
    is_mean_of_f: bool  # whether the value is a mean over tasks or queries
    is_share: bool  # of tasks or queries
    has_expected: bool  # whether the expectation over tie orders is known
    has_p_value: bool
    g: Transform = IDENTITY  # of the mean
    has_null: bool = True  # whether the candidate counts determine the null distribution
    uses_candidates: bool = True
    has_optimum: bool = True
    limits: Bounds = (None, None)  # of base values
    lowest_index: float | None = None  # bound of the adjusted index
    # the definition itself if its mean is over ranking tasks
    of_tasks: "RankDefinition | None" = None
    # whether each entry of a sample is one row, instead of the rows of a query
    entries_are_rows: bool = True

    def sample(
        self, rows: Any, side: Side, average: Average, empty_queries: EmptyQueries | None = None
    ) -> Any:
        """Read the tasks or queries of a side on which the metric is defined.

        ``rows`` are an ``Analysis`` or several runs.
        """
        raise NotImplementedError

    def has_tasks(self, rows: Any, side: Side, average: Average) -> bool:
        """Whether ``rows`` have ranking tasks, or queries with relevant items, of a side."""
        return bool(rows.sample(side, average).num_tasks)

    def value(self, sample: Any, rank_type: RankType = "realistic") -> float:
        """Base value of a sample, NaN if it is empty (a count is 0); by ``Sample.value_of``."""
        raise NotImplementedError

    def unit_values(self, sample: Any, rank_type: RankType) -> FloatArray:
        """Values whose mean ``g`` transforms, one per entry; requires ``is_function_of_mean``."""
        raise NotImplementedError

    def null_moments(self, sample: Any, expectation: "ExpectationProvider") -> Moments:
        """Mean and variance of the base value under random ranking."""
        raise NotImplementedError

    def moments_of_counts(
        self,
        num_candidates: Any,
        num_relevant: Any,
        weight: Any,
        expectation: "ExpectationProvider",
    ) -> Moments:
        """Mean and variance under random ranking, from these columns of tasks or queries alone."""
        raise NotImplementedError

    def log_p_value(self, sample: Any) -> tuple[float, float]:
        """Logarithm of the p-value from pessimistic ranks, and the error of a simulated p-value.

        The logarithm is natural; the error is a standard error of the p-value.
        """
        raise NotImplementedError

    def as_tasks(self, sample: Any) -> "tuple[RankDefinition, RankSample]":
        """Return a definition of ranking tasks and ranks that give the same value as the sample."""
        raise NotImplementedError

    def mean_limits(self, sample: Any) -> tuple[float, float]:
        """Smallest and largest possible mean of ``unit_values``; infinite if unknown."""
        if self.is_share:
            return 0.0, 1.0
        low, high = self.limits
        low = -math.inf if low is None else low
        high = math.inf if high is None else high
        return low, high

    def is_function_of_mean(self, rank_type: RankType = "realistic") -> bool:
        """Whether the value is a monotone function of a mean; its standard error has a formula."""
        return self.is_mean_of_f

    def canonical_rank_type(self, rank_type: RankType) -> RankType:
        """Return the rank type that keys name, of several that have equal values."""
        return rank_type

    def has_expectation(self, expectation: "ExpectationProvider") -> bool:
        """Whether null moments are available from a provider."""
        return expectation.supports(self)

    def best(self, moments: Moments) -> float | None:
        """Best value, None without one."""
        return moments.optimum

    def at_threshold(self, relevance_threshold: float) -> "Definition":
        """The metric with another smallest relevant label; ValueError for metrics of tasks."""
        raise ValueError(
            "relevance_threshold is for query metrics, such as 'rr' and 'success_at_10': "
            f"{shorten(self.name)} averages over ranking tasks, one for every item with a label "
            "above 0"
        )

    def has_view(self, view: View) -> bool:
        """Whether a view is defined; all but base need a null, a direction and a best value."""
        directed = view == "normalized" or self.higher_is_better is not None
        best = view != "adjusted_index" or self.has_optimum
        return view == "base" or (self.has_null and directed and best)

    def direction(self, view: View) -> bool | None:
        """Whether a higher value of the view is better; None for dispersion and counts."""
        if view in ("adjusted_index", "z_score"):
            return True
        return False if view == "p_value" else self.higher_is_better

    def bounds(self, view: View) -> Bounds:
        """Lowest and highest value for any ranks and candidate counts; None: none is known."""
        if view == "p_value":
            return 0.0, 1.0
        if view == "z_score" or self.higher_is_better is None:
            return None, None
        if view == "adjusted_index":
            return self.lowest_index, 1.0
        low, high = self.limits
        if view == "normalized":  # M / E: of the bounds only zero stays
            return 0.0 if low == 0 else None, None
        return low, high

    def why_undefined(self, view: View, rank_type: RankType) -> str | None:
        """Return why a view or rank type is undefined and what to use instead; else None."""
        if not self.has_view(view):
            instead = " or ".join(repr(known) for known in VIEWS if self.has_view(known))
            lacks = "expectation" if not self.has_null else "best value"
            return (
                f"view={view!r} has no meaning for {shorten(self.name)}: it has no {lacks}; use "
                f"{instead}"
            )
        if rank_type == "expected" and not self.has_expected:
            return (
                "rank_type='expected' is known for means of a transform, GMR and IGMR, not for "
                f"{shorten(self.name)}; use 'realistic', 'optimistic' or 'pessimistic'"
            )
        if view == "p_value" and not self.has_p_value:
            return (
                f"view='p_value' is not known for {shorten(self.name)}: it is not a function of a "
                "mean of f"
            )
        return None


Definition = MetricDefinition


class ValueSample(Sample):
    """Values of queries of equal weight, (Q,) float64."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.weight = np.ones(len(values))
        self.count = np.ones(len(values), dtype=np.int64)


@dataclass(frozen=True)
class ValueDefinition(MetricDefinition):
    """The mean of a ``column`` of given values of queries; only its base value is defined."""

    name: str
    higher_is_better: bool | None = True
    is_share: bool = False
    column: int = 0
    aggregation = "mean"
    is_mean_of_f = True
    has_expected = has_p_value = has_null = uses_candidates = has_optimum = False

    def sample(
        self, rows: Any, side: Side, average: Average, empty_queries: EmptyQueries | None = None
    ) -> Any:
        return rows.value_sample(self.column)

    def has_tasks(self, rows: Any, side: Side, average: Average) -> bool:
        return bool(self.sample(rows, side, average).num_tasks)

    def value(self, sample: ValueSample, rank_type: RankType = "realistic") -> float:
        return math.fsum(sample.values) / len(sample.values)

    def unit_values(self, sample: ValueSample, rank_type: RankType) -> FloatArray:
        return sample.values
