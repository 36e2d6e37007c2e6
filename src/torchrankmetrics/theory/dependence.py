"""Test answers of one query share their negatives: how far their ranks are from independent under the null."""

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import CandidateCounts, Moments, integers
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.transforms import known


def variance_inflation(
    definition: RankDefinition, num_candidates: npt.ArrayLike, query: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> float:
    """Null variance of a mean of f with shared queries over the one for independent tasks, at least 1.

    In filtered evaluation two answers of a query have corr(f(r_i), f(r_j)) = 1 / (N + 1) for every f, as each is ranked
    among the same N - 1 negatives: a query with q answers of equal weight inflates its part by 1 + (q - 1) / (N + 1).
    Derivation: docs/mathematics.md, "Shared queries".

    Args:
        definition: a mean of f: MR, MRR, hits at k and their like.
        num_candidates: (n,) integers N_i >= 1, equal for the answers of a query, as filtered counts are.
        query: (n,) integers: which query a task belongs to; another for each side.
        weight: (n,) weights w_i >= 0; None: equal.

    Raises:
        TypeError: if counts or queries are not integers.
        ValueError: for another kind of metric, shapes that differ, and answers of a query with different counts.

    >>> from torchrankmetrics.theory.definitions import MEAN_RECIPROCAL_RANK
    >>> round(variance_inflation(MEAN_RECIPROCAL_RANK, [12] * 6, [7] * 6), 3)
    1.385
    """
    if not definition.is_mean_of_f:
        raise ValueError(f"the inflation is known for means of f (MR, MRR, hits at k), not for {definition.name!r}")
    keys, N = integers(query, "query"), integers(num_candidates, "num_candidates")
    if keys.shape != N.shape:
        raise ValueError(f"num_candidates and query must be (n,), one per task; got {N.shape} and {keys.shape}")
    w = np.ones(len(N)) if weight is None else np.asarray(weight, dtype=np.float64)
    CandidateCounts.of(N, w)  # refuses what is no count and no weight
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    of_query = N[first][index]
    if (of_query != N).any():
        at = int(np.flatnonzero(of_query != N)[0])
        raise ValueError(
            "num_candidates must be equal for the answers of a query, as filtered counts are; "
            f"tasks {first[index[at]]} and {at} of query {keys[at]} have {of_query[at]} and {N[at]}"
        )
    unique, place = np.unique(N[first], return_inverse=True)
    variance = known(definition.f).null_moments(unique)[1][place]
    alone, together = np.bincount(index, w**2), np.bincount(index, w) ** 2
    independent = float(variance @ alone)
    if independent == 0:
        return 1.0
    return 1 + float((variance / (N[first] + 1.0)) @ (together - alone)) / independent


class InflatedExpectation:
    """Null moments with the variance times a factor, for z-scores that allow for shared queries.

    z-scores fall by the root of the factor; means, and so the indices, stay; p-values take the tasks as independent
    whatever is given here.

    Args:
        inflation: at least 1, for example from ``variance_inflation``; it holds for the metric, the side and the tasks
            that it was computed for.
        expectation: what gives the moments; None: exact.

    Raises:
        ValueError: if the factor is below 1 or not finite.

    >>> from torchrankmetrics.theory.definitions import MEAN_RANK
    >>> InflatedExpectation(1.5).moments(MEAN_RANK, [3, 5])
    Moments(mean=2.5, variance=1.0)
    """

    def __init__(self, inflation: float, expectation: ExpectationProvider | None = None) -> None:
        if not 1 <= inflation < np.inf:
            raise ValueError(f"inflation must be finite and at least 1, got {inflation}")
        self.inflation = float(inflation)
        self.expectation = DEFAULT_EXPECTATION if expectation is None else expectation

    def moments(
        self, definition: RankDefinition, counts: npt.ArrayLike | CandidateCounts, weight: npt.ArrayLike | None = None
    ) -> Moments:
        """See ``ExpectationProvider.moments``."""
        moments = self.expectation.moments(definition, counts, weight)
        return Moments(moments.mean, moments.variance * self.inflation)

    def answers(self, definition: RankDefinition) -> bool:
        """See ``ExpectationProvider.answers``."""
        return self.expectation.answers(definition)
