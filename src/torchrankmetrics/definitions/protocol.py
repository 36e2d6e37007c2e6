"""`MetricDefinition`: what metrics of ranking tasks and metrics of queries both provide."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray, Moments
from torchrankmetrics.definitions.kinds import IDENTITY
from torchrankmetrics.definitions.sample import RankSample, RankType, Sample
from torchrankmetrics.definitions.transforms import Transform
from torchrankmetrics.validation import TaskSide, shorten

if TYPE_CHECKING:
    from torchrankmetrics.definitions.tasks import RankDefinition
    from torchrankmetrics.null.expectation.provider import ExpectationProvider
    from torchrankmetrics.queries.definitions import QueryDefinition

View = Literal["base", "normalized", "adjusted_index", "z_score", "p_value"]
VIEWS: tuple[View, ...] = ("base", "normalized", "adjusted_index", "z_score", "p_value")
Side = Literal["both", TaskSide]
Average = Literal["micro", "macro"]
Bounds = tuple[float | None, float | None]
OfTasks = TypeVar("OfTasks", covariant=True)
OfQueries = TypeVar("OfQueries", covariant=True)
Found = TypeVar("Found")
Own = TypeVar("Own", bound=Sample)


class SampleSource(Protocol[OfTasks, OfQueries]):
    """Rows that can be read as ranking tasks and as queries."""

    def sample(self, side: Side, average: Average, min_candidates: int) -> OfTasks:
        """Read the ranking tasks with at least ``min_candidates`` candidates."""

    def query_sample(self, definition: "QueryDefinition", side: Side, average: Average) -> OfQueries:
        """Read the queries on which a query metric is defined."""


class MetricDefinition(ABC, Generic[Own]):
    """A metric of a sample of rows: its value, null moments, p-value, and the values of single tasks or queries."""

    name: str
    aggregation: str
    higher_is_better: bool | None
    is_mean_of_f: bool
    is_share: bool
    has_expected: bool
    has_p_value: bool
    g: Transform = IDENTITY
    has_null: bool = True
    uses_candidates: bool = True
    is_estimate: bool = True
    has_optimum: bool = True
    of_tasks: "RankDefinition | None" = None
    entries_are_rows: bool = True

    @abstractmethod
    def sample(self, rows: SampleSource[Found, Found], side: Side, average: Average) -> Found:
        """Read the tasks or queries of a side on which the metric is defined."""

    @abstractmethod
    def value(self, sample: Own, rank_type: RankType = "realistic") -> float:
        """Base value of a sample, NaN without tasks or queries (a count is 0)."""

    @abstractmethod
    def null_moments(self, sample: Own, expectation: "ExpectationProvider") -> Moments:
        """Mean and variance of the base value under random ranking."""

    @abstractmethod
    def moments_of_counts(
        self,
        num_candidates: npt.ArrayLike,
        num_answers: npt.ArrayLike,
        weight: npt.ArrayLike | None,
        expectation: "ExpectationProvider",
    ) -> Moments:
        """Mean and variance under random ranking of tasks or queries of which only these columns are known."""

    @abstractmethod
    def log_p_value(self, sample: Own) -> tuple[float, float]:
        """Natural logarithm of the p-value from pessimistic ranks, and the standard error of a simulated p-value."""

    @abstractmethod
    def unit_values(self, sample: Own, rank_type: RankType) -> FloatArray:
        """Values whose mean ``g`` transforms, one per entry of a sample; requires ``is_function_of_mean``."""

    @abstractmethod
    def mean_limits(self, sample: Own) -> tuple[float, float]:
        """Smallest and largest possible mean of ``unit_values``; infinite if unknown."""

    @abstractmethod
    def is_function_of_mean(self, rank_type: RankType = "realistic") -> bool:
        """Whether the value is a monotone function of a mean, so that its standard error has a formula."""

    @abstractmethod
    def as_tasks(self, sample: Own) -> "tuple[RankDefinition, RankSample]":
        """Return a definition of ranking tasks and ranks that give the same value as the sample."""

    @abstractmethod
    def canonical_rank_type(self, rank_type: RankType) -> RankType:
        """Return the one of several rank types with equal values that is used and written in keys."""

    @abstractmethod
    def has_expectation(self, expectation: "ExpectationProvider") -> bool:
        """Whether null moments are available from a provider."""

    @abstractmethod
    def best(self, moments: Moments) -> float | None:
        """Best value, None without one."""

    @abstractmethod
    def _bounds(self, view: View) -> Bounds:
        """Bounds of the base value, M / E or the adjusted index."""

    def at_threshold(self, relevance_threshold: float) -> "Definition":
        """The metric with another smallest label of a relevant item; ValueError for metrics of ranking tasks."""
        raise ValueError(
            f"relevance_threshold is for query metrics, such as 'rr' and 'success_at_10': {shorten(self.name)} "
            "averages over ranking tasks, one for every item with a label above 0"
        )

    def has_view(self, view: View) -> bool:
        """Whether a view is defined: base always, the others if the metric has a null, a direction and a best value."""
        if view == "base":
            return True
        if view == "adjusted_index" and not self.has_optimum:
            return False
        return self.has_null and (view == "normalized" or self.higher_is_better is not None)

    def direction(self, view: View) -> bool | None:
        """Whether a higher value of the view is better; None for dispersion, counts and the tie rate."""
        if view in ("adjusted_index", "z_score"):
            return True
        return False if view == "p_value" else self.higher_is_better

    def bounds(self, view: View) -> Bounds:
        """Lowest and highest value for any ranks and candidate counts; None: no bound, or an unknown one."""
        if view == "p_value":
            return 0.0, 1.0
        if view == "z_score" or self.higher_is_better is None:
            return None, None
        return self._bounds(view)

    def why_undefined(self, view: View, rank_type: RankType) -> str | None:
        """Return why a view or rank type is undefined and what to use instead; None if it is defined."""
        if not self.has_view(view):
            instead = " or ".join(repr(known) for known in VIEWS if self.has_view(known))
            lacks = "expectation" if not self.has_null else "best value"
            return f"view={view!r} has no meaning for {shorten(self.name)}: it has no {lacks}; use {instead}"
        if rank_type == "expected" and not self.has_expected:
            return f"rank_type='expected' {self._only_means}"
        if view == "p_value" and not self.has_p_value:
            return f"view='p_value' is not known for {shorten(self.name)}: it is not a function of a mean of f"
        return None

    @property
    def _only_means(self) -> str:
        return (
            f"is known for means of a transform, GMR and IGMR, not for {shorten(self.name)}; "
            "use 'realistic', 'optimistic' or 'pessimistic'"
        )


Definition = MetricDefinition[Any]
