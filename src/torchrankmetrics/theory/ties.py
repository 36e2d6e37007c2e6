"""The expected rank type: the expectation of a metric over independent uniform orders of the tied candidates.

McSherry and Najork 2008 (doi:10.1007/978-3-540-78646-7_38) for means of f; the same independence makes GMR a product.
It keeps the null mean exactly, so a constant scorer has adjusted index 0.
"""

import numpy as np

from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.quadrature.panels import panel_means
from torchrankmetrics.theory.queries.definitions import Definition
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.transforms import known


def has_expected(definition: Definition) -> bool:
    """Whether the expectation over tie orders is known: means of f, and the geometric means."""
    return definition.is_mean_of_f or definition.is_geometric_mean


def value_over_tie_orders(definition: RankDefinition, sample: RankSample) -> float:
    """Expectation of the metric over independent uniform orders within each tie block {optimistic..pessimistic}.

    A mean of f averages f over each block; GMR and IGMR are the product of the block means of r^(+-v_i).

    Raises:
        ValueError: for a metric whose expectation over tie orders is not known.

    >>> from torchrankmetrics.theory.definitions import MEAN_RECIPROCAL_RANK
    >>> tied = RankSample(np.array([1]), np.array([2]), None)  # 1 or 1/2
    >>> value_over_tie_orders(MEAN_RECIPROCAL_RANK, tied)
    0.75
    """
    if not has_expected(definition):
        raise ValueError(
            f"rank_type='expected' is known for means of a transform, GMR and IGMR, not for {definition.name!r}; "
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
