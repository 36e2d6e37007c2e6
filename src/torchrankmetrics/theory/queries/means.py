"""The mean of a metric over queries, what it is by chance, and its best value, over the same queries and weights."""

import math
from dataclasses import dataclass

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, Moments, in_range
from torchrankmetrics.theory.queries.definitions import QueryDefinition
from torchrankmetrics.theory.queries.sample import QueryRankType, QuerySample


@dataclass(frozen=True)
class QueryMean:
    """A metric over queries beside chance.

    Attributes:
        value: sum of c w v / sum of c w over the queries that have a value; NaN without any.
        moments: mean and variance of the value by chance, queries being independent.
        optimum: the value if all queries had their answers first.
        num_queries: how many have a value.
    """

    value: float
    moments: Moments
    optimum: float
    num_queries: int


def query_mean(definition: QueryDefinition, sample: QuerySample, rank_type: QueryRankType = "expected") -> QueryMean:
    """Average a metric over queries, with weight w each and c of a kind.

    E = sum of c w E_q / sum of c w, V = sum of c w^2 V_q / (sum of c w)^2. The order of the queries plays no part.

    Raises:
        ValueError: for an unknown rank type.
    """
    values = definition.values(sample, rank_type)
    used = ~np.isnan(values) & (sample.weight > 0)
    if not used.any():
        return QueryMean(math.nan, Moments(math.nan, 0.0), math.nan, 0)
    N, m, count = sample.num_candidates[used], sample.num_answers[used], sample.counts[used]
    weight = in_range(sample.weight[used])
    mass = weight * count
    mean, variance = definition.moments(N, m)
    total = math.fsum(mass.tolist())
    moments = Moments(_sum(mass, mean) / total, _sum(mass * (weight / total), variance) / total)
    optimum = _sum(mass, definition.optimum(N, m)) / total
    return QueryMean(_sum(mass, values[used]) / total, moments, optimum, int(count.sum()))


def _sum(mass: FloatArray, x: FloatArray) -> float:
    """Sum of products, to the last bit that of any order."""
    return math.fsum((mass * x).tolist())
