"""Several differences on the same tasks: one family of sign-flip tests, by the largest statistic of every flip."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.inference.testing import sign_flips


def max_t_p_values(columns: FloatArray, lines: FloatArray, permutations: int = 9999, seed: int = 0) -> FloatArray:
    """Adjust the sign-flip tests of several mean differences for being several, by step-down max-T.

    All differences of a task, or cluster, change sign together, so that the flips know how they depend on each other,
    and dependent ones pay less than by Holm. Statistic: |sum d| over the root of the sum of d^2, which orders flips and
    differences as Student's t does; a difference made by few tasks of a long tail pays more beside others than alone.
    The family-wise error stays below the level whichever of the differences are zero, in the limit of many tasks; with
    few where the vector of differences is symmetric.

    Args:
        columns: (u, k) float64, one row per independent task, or sums over clusters.
        lines: (k, m) float64, each difference as a combination of the columns.
        permutations: number of random flips; all are taken if they are no more than that and one.
        seed: of the random flips.

    Returns:
        (m,) float64 in (0, 1]; 1 for a difference that is zero on every task.

    Source: Westfall and Young 1993 (ISBN 0-471-55761-7); Romano and Wolf 2005 (doi:10.1198/016214504000000539).

    >>> d = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [4.0, 3.0], [0.5, -1.0]])
    >>> max_t_p_values(d, np.eye(2)).tolist()
    [0.0625, 0.125]
    """
    flips = sign_flips(columns, permutations, seed)
    each = columns @ lines
    # a difference that is rounding alone is zero
    each[np.abs(each) <= 1e-13 * (np.abs(columns) @ np.abs(lines))] = 0.0
    norm = np.sqrt((each**2).sum(0))
    used = norm > 0
    norm = np.where(used, norm, 1.0)
    observed = np.where(used, np.abs(each.sum(0)) / norm, 0.0)
    statistics = np.where(used, np.abs(flips.sums @ lines) / norm, 0.0)
    # a flip that gives the observed sum counts whatever the order of summation
    bar = np.where(used, observed - 1e-12 * (flips.size @ np.abs(lines)) / norm, 0.0)
    every = flips.exhaustive and len(flips.sums) == 2 ** len(columns)
    order = np.argsort(-observed, kind="stable")
    largest, adjusted = np.zeros(len(statistics)), np.ones(len(observed))
    for j in order[::-1]:  # against the largest of itself and of those that are less clear
        np.maximum(largest, statistics[:, j], out=largest)
        reached = int((largest >= bar[j]).sum())
        adjusted[j] = reached / len(largest) if every else (1 + reached) / (1 + len(largest))
    adjusted[order] = np.maximum.accumulate(adjusted[order])
    return adjusted
