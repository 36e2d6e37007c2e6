"""Metrics that add f(r) up over the answers of a query: recall, precision, R-precision, nDCG, AUC, and any mean of f.

By chance they are linear statistics of sampling without replacement: with mean and variance of f over 1..N and the
divisor d of the sum, E = m mean / d and V = m variance (N - m) / (N - 1) / d^2. For recall and precision the law is
the hypergeometric one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.kinds import AUC, AtMost
from torchrankmetrics.theory.queries.gains import Cut, Discount, place_means
from torchrankmetrics.theory.queries.kind import QueryKind
from torchrankmetrics.theory.queries.laws import hit_law, rank_sum_law
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.tails.listed import Law
from torchrankmetrics.theory.transforms import KnownTransform


@dataclass(frozen=True)
class MeanOf(QueryKind):
    """(1/m) sum of f(r_i)."""

    f: KnownTransform

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``: every answer of a block has the block's mean of f."""
        N = sample.num_candidates[sample.query]
        means, used = np.full(len(N), np.nan), self.f.min_candidates <= N
        means[used] = place_means(self.f, *(x[used] for x in (sample.optimistic, sample.pessimistic, N)))
        return np.asarray(sample.sums(sample.answers * means) / self.divisor(sample.num_answers))

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return self.f, 1 / float(self.divisor(np.ones(1, dtype=np.int64))[0])

    def law(self, N: int, m: int, most: int) -> Law | None:
        """See ``QueryKind``: of hits it is hypergeometric."""
        if isinstance(self.f, AtMost):
            return hit_law(N, m, self.f.k, float(self.divisor(np.array([m]))[0]), most)
        return super().law(N, m, most)

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        """See ``QueryKind``."""
        return np.asarray(self.f.min_candidates <= N)

    def divisor(self, m: IntArray) -> FloatArray:
        """What the sum over m answers is divided by."""
        return m.astype(np.float64)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``."""
        mean, variance = np.full(len(N), np.nan), np.zeros(len(N))
        used = self.has_value(N, m)
        distinct, index = np.unique(N[used], return_inverse=True)
        if len(distinct):
            mean[used], variance[used] = (moment[index] for moment in self.f.null_moments(distinct))
        share = m / self.divisor(m)  # 1 for a mean
        scale = share**2 * ((N - m) / (np.maximum(N - 1, 1) * m.astype(np.float64)))
        return share * mean, scale * variance


@dataclass(frozen=True)
class Precision(MeanOf):
    """#{r_i <= k} / k, also where k > N."""

    f: AtMost

    def divisor(self, m: IntArray) -> FloatArray:
        """See ``MeanOf``."""
        return np.full(len(m), float(self.f.k))


@dataclass(frozen=True)
class NormalizedDCG(MeanOf):
    """Sum of the discounts of the answers up to k, over that of the perfect ranking."""

    f: Discount | Cut

    def divisor(self, m: IntArray) -> FloatArray:
        """See ``MeanOf``."""
        first = np.ones_like(m)
        return m * place_means(self.f, first, m)


@dataclass(frozen=True)
class RPrecision(QueryKind):
    """#{r_i <= m} / m."""

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``."""
        inside = np.clip(sample.num_answers[sample.query] - sample.optimistic + 1, 0, sample.size) / sample.size
        return np.asarray(sample.sums(sample.answers * inside) / sample.num_answers)

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return AtMost(1), 1.0

    def law(self, N: int, m: int, most: int) -> Law:
        """See ``QueryKind``."""
        return hit_law(N, m, m, m, most)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``: hypergeometric."""
        share, rest = m / N, (N - m) / N
        return share, share * rest * ((N - m) / (np.maximum(N - 1, 1) * m.astype(np.float64)))


@dataclass(frozen=True)
class AreaUnderCurve(QueryKind):
    """The share of pairs of an answer and another candidate in the right order; none where all are answers.

    1 - sum of (r_(i) - i) / (m (N - m)), ties at half credit; by chance Mann and Whitney's statistic (1947,
    doi:10.1214/aoms/1177730491).
    """

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        """See ``QueryKind``: none where all are answers."""
        return np.asarray(m < N)

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``."""
        N, m = sample.num_candidates, sample.num_answers
        after = m[sample.query] - sample.before - sample.answers
        below = N[sample.query] - sample.pessimistic - after  # other candidates behind the block
        pairs = sample.sums(sample.answers.astype(np.float64) * (2 * below + sample.size - sample.answers))
        return _where_some_are_false(pairs, 2.0 * m * (N - m))

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return AUC, 1.0

    def law(self, N: int, m: int, most: int) -> Law | None:
        """See ``QueryKind``."""
        return rank_sum_law(N, m, most)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``."""
        x = N.astype(np.float64)
        variance = _where_some_are_false(x + 1, 12.0 * m * (x - m))
        return np.where(m < N, 0.5, np.nan), np.where(m < N, variance, 0.0)


def _where_some_are_false(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.asarray(np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0))
