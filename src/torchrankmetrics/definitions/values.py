"""`ValueDefinition`: a metric whose values of single queries are given instead of computed from ranks."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.protocol import Average, Bounds, Found, MetricDefinition, SampleSource, Side, View
from torchrankmetrics.definitions.sample import RankType, Sample

if TYPE_CHECKING:
    from torchrankmetrics.null.expectation.provider import ExpectationProvider


@dataclass(frozen=True, eq=False)
class ValueSample(Sample):
    """Values of queries of equal weight, (Q,) float64."""

    values: FloatArray
    weight: FloatArray = field(init=False)
    count: IntArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", np.ones(len(self.values)))
        object.__setattr__(self, "count", np.ones(len(self.values), dtype=np.int64))


@dataclass(frozen=True)
class ValueDefinition(MetricDefinition[ValueSample]):
    """The mean of given values of queries; only its base value is defined."""

    name: str
    higher_is_better: bool | None = True
    is_share: bool = False
    aggregation = "mean"
    is_mean_of_f = True
    has_expected = has_p_value = has_null = uses_candidates = has_optimum = False

    def sample(self, rows: SampleSource[Found, Any], side: Side, average: Average) -> Found:
        return rows.sample(side, average, 1)

    def value(self, sample: ValueSample, rank_type: RankType = "realistic") -> float:
        return math.fsum(sample.values) / len(sample.values)

    def unit_values(self, sample: ValueSample, rank_type: RankType) -> FloatArray:
        return sample.values

    def mean_limits(self, sample: ValueSample) -> tuple[float, float]:
        return (0.0, 1.0) if self.is_share else (-math.inf, math.inf)

    def is_function_of_mean(self, rank_type: RankType = "realistic") -> bool:
        return True

    def canonical_rank_type(self, rank_type: RankType) -> RankType:
        return "realistic"

    def has_expectation(self, expectation: "ExpectationProvider") -> bool:
        return False

    def _bounds(self, view: View) -> Bounds:
        return None, None

    def _has_no_ranks(self, *arguments: Any, **options: Any) -> NoReturn:
        raise ValueError(f"{self.name!r} has values of queries, not ranks")

    null_moments = moments_of_counts = log_p_value = as_tasks = best = _has_no_ranks
