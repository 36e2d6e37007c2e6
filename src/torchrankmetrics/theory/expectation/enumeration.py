"""Null moments of any metric from all rank vectors, where there are at most 2,000,000 of them."""

import math

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.outcomes import metric_values, outcome_moments
from torchrankmetrics.theory.expectation.provider import strategy
from torchrankmetrics.theory.transforms import apply_transform

LIMIT = 2_000_000
_BLOCK = 1 << 20


@strategy(lambda definition: definition.has_null)
def enumeration(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Moments over all rank vectors, equally likely; None if the product of the N_i exceeds ``LIMIT``.

    Serves every definition whose value is a function of ranks and weights, the weighted median and the MAD included.
    """
    N, count = counts.num_candidates, counts.count
    free = N > 1
    if (count[free] * np.log(N[free])).sum() > math.log(LIMIT) + 1e-9:
        return None
    # tasks with one candidate all have rank 1: one entry with their common weight is the same weighted sample
    size = np.repeat(N[free], count[free])
    weight = np.repeat(counts.weight[free], count[free])
    fixed = float((counts.weight[~free] * count[~free]).sum())
    if fixed:
        size, weight = np.append(size, 1), np.append(weight, fixed)
    tables = {n: apply_transform(definition.f_at(n), np.arange(1, n + 1, dtype=np.float64)) for n in size.tolist()}
    total = math.prod(size.tolist())
    values = np.empty(total)
    block = max(1, _BLOCK // len(size))
    for begin in range(0, total, block):
        number = np.arange(begin, min(begin + block, total))
        index = np.unravel_index(number, size.tolist())
        transformed = np.stack([tables[n][i] for n, i in zip(size.tolist(), index, strict=True)])
        values[begin : begin + block] = metric_values(definition, transformed, weight)
    return outcome_moments(values, ddof=0)
