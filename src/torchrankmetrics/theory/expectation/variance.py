"""Null moments of the population variance of ranks, in closed form."""

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.definitions import IDENTITY, RankDefinition
from torchrankmetrics.theory.expectation.provider import strategy


@strategy(lambda definition: definition.aggregation == "variance" and definition.f == definition.g == IDENTITY)
def rank_variance(definition: RankDefinition, counts: CandidateCounts) -> Moments:
    """Exact moments of sum v_i (r_i - mean)^2.

    With mu, s2, m4 the mean, variance and fourth central moment of U{1..N}:
    E = sum (v - v^2) s2 + sum v (mu - mu_bar)^2 and
    V = sum (v - v^2)^2 (m4 - s2^2) + 2 [(sum v^2 s2)^2 - sum v^4 s2^2] + 4 sum s2 v^2 (mu - mu_bar)^2.
    """
    N, v, c = counts.num_candidates.astype(np.float64), counts.weight, counts.count
    mu, s2 = (N + 1) / 2, (N - 1) * (N + 1) / 12
    m4 = (N - 1) * (N + 1) * (3 * N * N - 7) / 240
    offset = (mu - (c * v * mu).sum()) ** 2
    own = v * (1 - v)
    mean = (c * own * s2).sum() + (c * v * offset).sum()
    crossed = (c * v * v * s2).sum() ** 2 - (c * v**4 * s2**2).sum()
    variance = (c * own**2 * (m4 - s2**2)).sum() + 2 * crossed + 4 * (c * s2 * v * v * offset).sum()
    if counts.num_tasks == 1 or N[-1] == 1:  # a single rank, or every rank fixed: the value is a constant
        return Moments(float(mean) if counts.num_tasks > 1 else 0.0, 0.0)
    return Moments(float(mean), float(max(variance, 0.0)))
