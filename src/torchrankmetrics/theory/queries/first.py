"""Metrics of the first relevant item, by the distribution of the minimum of t places among b.

P(X > x) = C(b - x, t) / C(b, t) and P(X = x) = P(X > x - 1) t / (b - x + 1): inside the first block of a query, and by
chance with b = N and t = m.
"""

from dataclasses import dataclass

import numpy as np

from torchrankmetrics.theory.candidates import MOST_CANDIDATES, FloatArray, IntArray
from torchrankmetrics.theory.kinds import IDENTITY, AtMost, Power
from torchrankmetrics.theory.quadrature.panels import panel_means
from torchrankmetrics.theory.queries.first_place import log_miss
from torchrankmetrics.theory.queries.gains import Cut, place_means
from torchrankmetrics.theory.queries.kind import QueryKind
from torchrankmetrics.theory.queries.laws import first_law, first_places, success_law
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.tails.lattice import common_span
from torchrankmetrics.theory.tails.listed import Law
from torchrankmetrics.theory.transforms import KnownTransform

_NEGLIGIBLE = 60.0  # P(X > x) <= exp(-t x / b): e^-60 is nothing beside P(X <= x)


@dataclass(frozen=True)
class Success(QueryKind):
    """[r_(1) <= k]."""

    k: int
    is_share = True

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``."""
        o, b, t = _first_blocks(sample)
        return _within(b, t, np.clip(self.k - o + 1, 0, b))

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``."""
        top = np.minimum(self.k, N)
        hit = _within(N, m, top)
        miss = np.where(m == 1, (N - top) / N, np.exp(log_miss(N, m, top)))
        return hit, hit * miss

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return AtMost(self.k), 1.0

    def law(self, N: int, m: int, most: int) -> Law:
        """See ``QueryKind``."""
        return success_law(N, m, self.k)


@dataclass(frozen=True)
class FirstReciprocal(QueryKind):
    """1 / r_(1), or 0 where r_(1) > k."""

    k: int | None = None

    @property
    def f(self) -> KnownTransform:
        """The transform of the first rank."""
        return Power(-1) if self.k is None else Cut(Power(-1), self.k)

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``."""
        o, b, t = _first_blocks(sample)
        one = (t == 1) | (t == b)  # the place is uniform, or known
        result = np.empty(len(o))
        result[one] = place_means(self.f, o[one], np.where(t == b, o, o + b - 1)[one])
        result[~one] = self._means(o[~one], b[~one], t[~one])
        return result

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``; squares are added about the mean, so that nothing cancels."""
        mean, variance = np.empty(len(N)), np.zeros(len(N))
        one = m == 1
        distinct, index = np.unique(N[one], return_inverse=True)
        if len(distinct):
            mean[one], variance[one] = (moment[index] for moment in self.f.null_moments(distinct))
        N, m = N[~one], m[~one]
        center = self._means(np.ones_like(N), N, m)
        top = self._top(np.ones_like(N), N, m)
        near = self._sums(np.ones_like(N), N, m, top, center)
        mean[~one] = center
        variance[~one] = np.where(m == N, 0.0, near + np.exp(log_miss(N, m, top)) * center**2)
        return mean, variance

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return self.f, 1.0

    def law(self, N: int, m: int, most: int) -> Law:
        """See ``QueryKind``."""
        return first_law(N, m, self.k, most)

    def _means(self, o: IntArray, b: IntArray, t: IntArray) -> FloatArray:
        return self._sums(o, b, t, self._top(o, b, t))

    def _top(self, o: IntArray, b: IntArray, t: IntArray) -> IntArray:
        """The last place in the block that matters."""
        enough = np.minimum(np.ceil(_NEGLIGIBLE * b / t), MOST_CANDIDATES).astype(np.int64) + 1
        top = np.minimum(b - t + 1, enough)
        return top if self.k is None else np.clip(self.k - o + 1, 0, top)

    def _sums(
        self, o: IntArray, b: IntArray, t: IntArray, top: IntArray, center: FloatArray | None = None
    ) -> FloatArray:
        """Sum over x = 1..top of P(X = x) / (o - 1 + x), or of P(X = x) (1 / (o - 1 + x) - center)^2."""
        some = top > 0
        sums = np.zeros(len(o))
        o, b, t, top = o[some], b[some], t[some], top[some]
        c = None if center is None else center[some]

        def terms(x: FloatArray, i: IntArray) -> FloatArray:
            law = np.exp(log_miss(b[i], t[i], x - 1)) * (t[i] / (b[i] - x + 1))
            value = 1 / (o[i] - 1 + x)
            return law * (value if c is None else (value - c[i]) ** 2)

        sums[some] = panel_means(terms, np.ones_like(top), top) * top
        return sums


@dataclass(frozen=True)
class FirstRank(QueryKind):
    """r_(1)."""

    def values(self, sample: QuerySample) -> FloatArray:
        """See ``QueryKind``: E of the least of t places among b is (b + 1) / (t + 1)."""
        o, b, t = _first_blocks(sample)
        return (o - 1) + (b + 1) / (t + 1)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``QueryKind``."""
        n, x = N.astype(np.float64), m.astype(np.float64)
        return (n + 1) / (x + 1), x / (x + 1) * ((n - x) / (x + 1)) * ((n + 1) / (x + 2))

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """See ``QueryKind``."""
        return IDENTITY, 1.0

    def law(self, N: int, m: int, most: int) -> Law:
        """See ``QueryKind``."""
        place, probability = first_places(N, m, N - m + 1, most)
        return Law(place, probability, common_span(np.diff(place)))


def _first_blocks(sample: QuerySample) -> tuple[IntArray, IntArray, IntArray]:
    """First place, size and answers of the first block of every query."""
    first = sample.starts[:-1]
    return sample.optimistic[first], sample.size[first], sample.answers[first]


def _within(b: IntArray, t: IntArray, x: IntArray) -> FloatArray:
    """P(X <= x)."""
    return np.where(t == 1, x / b, -np.expm1(log_miss(b, t, x)))
