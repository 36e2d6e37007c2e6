"""How far answers of one query depend on each other under the null, and what that does to the variance of a mean.

In filtered evaluation the q true answers of one query are ranked against the same M negatives, N = M + 1 candidates
each. If all M + q scores are exchangeable, corr(f(r_i), f(r_j)) = 1 / (N + 1) for every f, so that the variance of
their sum is q (1 + (q - 1) / (N + 1)) times that of one. Unfiltered, no two share a rank: the correlation is negative.
"""

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import IDENTITY, RankDefinition
from torchrankmetrics.theory.expectation.means import transform_moments


def variance_inflation(cluster_sizes: npt.ArrayLike, num_candidates: npt.ArrayLike) -> FloatArray:
    """Variance of the mean of f over q answers of one query, as a multiple of that of q independent ranks.

    1 + (q - 1) / (N + 1), at least 1; the same for every f. It multiplies a null variance; its root divides a z-score.

    Args:
        cluster_sizes: q >= 1, the number of answers of each query that are ranking tasks.
        num_candidates: N >= 1, candidates of each of these tasks, filtered; broadcast against ``cluster_sizes``.

    Raises:
        TypeError: if one of them is not made of integers.
        ValueError: if one of them is below 1, or their shapes do not broadcast.

    Source: exchangeability of M + q scores; derived and checked by enumeration in this project.

    >>> variance_inflation([6, 300], [12, 14000]).round(2).tolist()
    [1.38, 1.02]
    """
    q, N = _at_least_one(cluster_sizes, "cluster_sizes"), _at_least_one(num_candidates, "num_candidates")
    try:
        q, N = np.broadcast_arrays(q, N)
    except ValueError:
        raise ValueError(
            f"cluster_sizes and num_candidates must broadcast, got shapes {q.shape} and {N.shape}"
        ) from None
    return 1 + (q - 1) / (N + 1.0)


def clustered_variance(
    definition: RankDefinition, cluster_sizes: npt.ArrayLike, num_candidates: npt.ArrayLike
) -> float:
    """Null variance of a mean of f over all tasks, equally weighted, where answers of a query share their negatives.

    Sum over queries of q (1 + (q - 1) / (N + 1)) Var f(r) / n^2 with n the number of tasks; queries are independent.

    Args:
        definition: a plain mean of f, such as MR, MRR or hits at k.
        cluster_sizes: as for ``variance_inflation``.
        num_candidates: as for ``variance_inflation``.

    Raises:
        TypeError: as ``variance_inflation``.
        ValueError: as ``variance_inflation``, or if the metric is no plain mean of f.

    >>> from torchrankmetrics.theory.definitions import MEAN_RANK
    >>> clustered_variance(MEAN_RANK, [1, 1], [3, 3])  # two queries of one answer: 2 / 3 / 2
    0.3333333333333333
    """
    if definition.aggregation != "mean" or definition.g != IDENTITY:
        raise ValueError(f"definition must be a plain mean of f, such as mrr; got {definition.name!r}")
    factor = variance_inflation(cluster_sizes, num_candidates)
    q = np.broadcast_to(_at_least_one(cluster_sizes, "cluster_sizes"), factor.shape).ravel()
    N = np.broadcast_to(_at_least_one(num_candidates, "num_candidates"), factor.shape).ravel()
    if not len(q):
        raise ValueError("cluster_sizes is empty: there is no task to take a variance over")
    unique, index = np.unique(N, return_inverse=True)
    single = transform_moments(definition.f, unique)[1][index]
    return float((q * factor.ravel() * single).sum()) / int(q.sum()) ** 2


def _at_least_one(values: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.size and array.min() < 1:
        raise ValueError(f"{name} must be at least 1, got {array.min()}")
    return array.astype(np.int64)
