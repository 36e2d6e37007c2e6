"""Values of metrics from ranks and counts, and what ties give."""

import math

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.sample import RankSample, RankType
from torchrankmetrics.definitions.sums import panel_means
from torchrankmetrics.definitions.tasks import MEDIAN_RANK, RankDefinition, aggregate, weighted_mean
from torchrankmetrics.definitions.transforms import apply_transform, known
from torchrankmetrics.queries.definitions import Definition, QueryDefinition
from torchrankmetrics.queries.means import query_value
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.validation import shown


def has_expected(definition: Definition) -> bool:
    """Whether the expectation over tie orders is known: means of f, and the geometric means."""
    return definition.is_mean_of_f or definition.is_geometric_mean


def value_over_tie_orders(definition: RankDefinition, sample: RankSample) -> float:
    """Expectation of the metric over independent uniform orders within each tie block {optimistic..pessimistic}.

    A mean of f averages f over each block; GMR and IGMR are the product of the block means of r^(+-v_i).

    Raises:
        ValueError: for a metric whose expectation over tie orders is not known.

    >>> from torchrankmetrics.definitions.tasks import MEAN_RECIPROCAL_RANK
    >>> tied = RankSample(np.array([1]), np.array([2]), None)  # 1 or 1/2
    >>> value_over_tie_orders(MEAN_RECIPROCAL_RANK, tied)
    0.75
    """
    if not has_expected(definition):
        raise ValueError(
            f"rank_type='expected' is known for means of a transform, GMR and IGMR, not for {shown(definition.name)}; "
            "use 'realistic', 'optimistic' or 'pessimistic'"
        )
    if definition.uses_candidates:
        mean = known(definition.f).block_means(sample.optimistic, sample.pessimistic, sample.known_candidates)
        return float((sample.mass * mean).sum() / sample.total)
    blocks = sample.tie_blocks
    if definition.is_geometric_mean:
        s = known(definition.g).direction * blocks.weight / sample.total
        unit = np.where(s > 0, blocks.optimistic, blocks.pessimistic)  # (rank / unit)^s >= 1: nothing cancels
        excess = panel_means(
            lambda rank, block: np.expm1(s[block] * np.log(rank / unit[block])), blocks.optimistic, blocks.pessimistic
        )
        return float(np.exp((blocks.count * (np.log1p(excess) + s * np.log(unit))).sum()))
    mean = known(definition.f).block_means(blocks.optimistic, blocks.pessimistic)
    return float((blocks.count * blocks.weight * mean).sum() / sample.total)


def base_value(definition: Definition, sample: RankSample | QuerySample, rank_type: RankType = "realistic") -> float:
    """Value of the metric on the tasks or queries of a sample that have one; NaN without any (a count is 0).

    Raises:
        ValueError: if the rank type is not defined for the metric, or f or g is not finite.

    >>> from torchrankmetrics.definitions.tasks import MEAN_RECIPROCAL_RANK
    >>> ranks = np.array([1, 2, 4])
    >>> round(base_value(MEAN_RECIPROCAL_RANK, RankSample(ranks, ranks, None)), 4)
    0.5833
    """
    definition, sample = on_first_ranks(definition, sample)
    if isinstance(definition, QueryDefinition):
        assert isinstance(sample, QuerySample)
        return query_value(definition, sample, rank_type)
    assert isinstance(sample, RankSample)
    if definition.aggregation == "count":
        return float(sample.num_tasks)
    sample = sample.at_least(definition.min_candidates)
    if sample.num_tasks == 0:
        return math.nan
    if definition.aggregation == "tie_rate":
        return sample.tie_mass / sample.total
    if rank_type == "expected":
        return value_over_tie_orders(definition, sample)
    p, a = definition.exponents
    if abs(p) != 1 and p != 0 and a == 1 / p:
        histogram = sample.histogram(rank_type)
        return _power_mean(p, histogram.rank, histogram.mass)
    return float(apply_transform(definition.g, aggregate_of(definition, sample, rank_type), "g")[0])


def on_first_ranks(
    definition: Definition, sample: RankSample | QuerySample
) -> tuple[Definition, RankSample | QuerySample]:
    """The median over queries of first ranks as a median rank, whose entries are queries; others as they are."""
    if isinstance(definition, QueryDefinition) and not definition.is_mean_of_f:
        assert isinstance(sample, QuerySample)
        return MEDIAN_RANK, sample.first_ranks
    return definition, sample


def aggregate_of(definition: RankDefinition, sample: RankSample, rank_type: RankType) -> FloatArray:
    """Aggregate f over the ranks of a rank type other than "expected", (1,) float64: the value before g."""
    histogram = sample.histogram(rank_type, by_candidates=definition.uses_candidates)
    x = apply_transform(definition.f, histogram.rank, num_candidates=histogram.num_candidates)
    return aggregate(definition, x, histogram.mass).reshape(1)


def _power_mean(p: float, rank: FloatArray, mass: FloatArray) -> float:
    """(sum v r^p)^(1/p) relative to its dominating rank: finite for every p, exact near p = 0."""
    scale = rank.max() if p > 0 else rank.min()
    exponent = p * np.log(rank / scale)  # all <= 0
    if exponent.min() > -0.5:
        return float(scale * math.exp(math.log1p(weighted_mean(np.expm1(exponent), mass)) / p))
    return float(scale * weighted_mean(np.exp(exponent), mass) ** (1 / p))
