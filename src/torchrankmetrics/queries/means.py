"""Means of a metric over queries: null moments and optimum."""

import math

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray, Moments, distinct_rows, in_range
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.null.expectation.order_statistics import median_of_first_ranks
from torchrankmetrics.null.expectation.provider import ExpectationUnavailableError
from torchrankmetrics.queries.definitions import QueryDefinition
from torchrankmetrics.queries.sample import QuerySample, query_rank_type
from torchrankmetrics.validation import shown


def query_value(definition: QueryDefinition, sample: QuerySample, rank_type: RankType = "expected") -> float:
    """Average a metric over the queries that have a value, sum of c w v / sum of c w; NaN without any.

    Raises:
        ValueError: for an unknown rank type.
    """
    values = query_values(definition, sample, rank_type)
    return _weighted(sample, _has_value(definition, sample), values)


def query_values(definition: QueryDefinition, sample: QuerySample, rank_type: RankType = "expected") -> FloatArray:
    """Value of every query, (Q,) float64, NaN where there is none; realistic means expected here."""
    return definition.values(sample, query_rank_type(rank_type))


def query_moments(definition: QueryDefinition, sample: QuerySample) -> Moments:
    """Mean, variance and best value of the average under random ranking, which depend on N, m and the weights alone.

    Queries are independent: E = sum of c w E_q / sum of c w, V = sum of c w^2 V_q / (sum of c w)^2.
    """
    used = _has_value(definition, sample)
    if not used.any():
        return Moments(math.nan, 0.0, math.nan)
    if not definition.is_mean_of_f:
        weight = sample.weight[used]
        if weight.min() != weight.max():
            raise ExpectationUnavailableError(
                f"{shown(definition.name)} has no exact expectation for queries of different weights: use view='base'"
            )
        (N, m), count = distinct_rows((sample.num_candidates[used], sample.num_answers[used]), sample.count[used])
        return Moments(*median_of_first_ranks(N, m, count), 1.0)
    mean, variance = definition.moments(sample.num_candidates, sample.num_answers)
    share = in_range(sample.weight[used])
    share /= math.fsum((share * sample.count[used]).tolist())
    optimum = definition.optimum(sample.num_candidates, sample.num_answers)
    squared = _sum(share * share * sample.count[used], variance[used])
    return Moments(_weighted(sample, used, mean), squared, _weighted(sample, used, optimum))


def _has_value(definition: QueryDefinition, sample: QuerySample) -> npt.NDArray[np.bool_]:
    """The queries of positive weight that have a value."""
    return definition.has_value(sample.num_candidates, sample.num_answers) & (sample.weight > 0)


def _weighted(sample: QuerySample, used: npt.NDArray[np.bool_], x: FloatArray) -> float:
    if not used.any():
        return math.nan
    mass = in_range(sample.weight[used]) * sample.count[used]
    return _sum(mass, x[used]) / math.fsum(mass.tolist())


def _sum(mass: FloatArray, x: FloatArray) -> float:
    """Sum of products, to the last bit that of any order."""
    return math.fsum((mass * x).tolist())
