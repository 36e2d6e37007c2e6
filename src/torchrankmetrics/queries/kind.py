"""The protocol of query metrics, and discounts of ranks."""

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import KnownTransform, apply_transform
from torchrankmetrics.null.tails.distribution import Atoms
from torchrankmetrics.queries.sample import QuerySample

_ENUMERATED = 1 << 12  # choices of the places of the relevant items


@dataclass(frozen=True)
class QueryKind:
    """A metric of one query; ``QueryDefinition`` averages over queries.

    Under random ranking the places of the m relevant items are a uniform m-subset of 1..N. A block of ties is a small
    query under random ranking, so a constant scorer has the null mean.

    Attributes:
        is_share: its mean is a share of queries.
        uses_candidates: whether the value depends on the number of candidates.
        is_graded: the value depends on the gains of the relevant items.
        limits: lowest and highest value; None: no bound, or an unknown one.
    """

    is_share: ClassVar[bool] = False
    uses_candidates: ClassVar[bool] = False
    is_graded: ClassVar[bool] = False

    @property
    def limits(self) -> tuple[float | None, float | None]:
        return 0.0, 1.0

    def values(self, sample: QuerySample) -> FloatArray:
        """Expectation over the orders of tied candidates, (Q,) float64; NaN where the metric is undefined."""
        raise NotImplementedError

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        """Whether the metric is defined with m relevant items among N candidates, (u,) bool."""
        return np.ones(len(N), dtype=bool)

    def moments(self, sample: QuerySample) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Null mean, variance >= 0 and best value of every query, (Q,) float64 each; here from N and m alone."""
        (N, m), index = _distinct(sample.known_candidates, sample.num_answers)
        mean, variance, best = (part[index] for part in _cached_moments(self, N.tobytes(), m.tobytes()))
        return mean, variance, best

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """Null mean and variance >= 0, (u,) float64 twice, for (u,) int64 twice, sorted by N, then m."""
        raise NotImplementedError

    def optimum(self, N: IntArray, m: IntArray) -> FloatArray:
        """Value of the ranking whose first m candidates are the relevant items, (u,) float64."""
        return self.values(QuerySample.tied(m, m, N))

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """The f and s for which a query with one relevant item at rank r has the value s f(r)."""
        raise NotImplementedError

    def distribution(self, N: int, m: int, most: int, gain: FloatArray | None = None) -> Atoms | None:
        """Null distribution of one query with about ``most`` atoms, rounded to the better side if it has more.

        None if it is unavailable: here, if there are too many choices of places to list. ``gain`` (m,) is of the
        relevant items; None: all are 1.
        """
        few = min(m, N - m)
        if 2**few > _ENUMERATED or math.comb(N, few) > min(_ENUMERATED, most):
            return None
        chosen: Iterable[tuple[int, ...]] = itertools.combinations(range(1, N + 1), m)
        if gain is not None:
            if math.perm(N, m) > _ENUMERATED:
                return None
            chosen = itertools.permutations(range(1, N + 1), m)
        ranks = np.array(list(chosen), dtype=np.int64)
        gains = None if gain is None else np.tile(gain, (len(ranks), 1))
        values, count = np.unique(self.values(QuerySample.ranked(ranks, N, gains)), return_counts=True)
        return values, count / len(ranks)


def _distinct(N: IntArray, m: IntArray) -> tuple[tuple[IntArray, IntArray], IntArray]:
    """The distinct pairs, sorted by N, then m, and the index of the pair of every query."""
    order = np.lexsort((m, N))
    N, m = N[order], m[order]
    new = np.r_[np.ones(min(1, len(N)), dtype=bool), (N[1:] != N[:-1]) | (m[1:] != m[:-1])]
    index = np.empty(len(N), dtype=np.int64)
    index[order] = np.cumsum(new) - 1
    return (N[new], m[new]), index


@functools.lru_cache(maxsize=512)
def _cached_moments(kind: QueryKind, *pairs: bytes) -> tuple[FloatArray, FloatArray, FloatArray]:
    N, m = (np.frombuffer(part, dtype=np.int64) for part in pairs)
    if not len(N):
        return np.empty(0), np.empty(0), np.empty(0)
    return *kind.null_moments(N, m), kind.optimum(N, m)


@dataclass(frozen=True)
class Discount(KnownTransform):
    """r -> 1 / log2(1 + r).

    Source: Järvelin and Kekäläinen 2002 (doi:10.1145/582415.582418), with the logarithm shifted as is common since.
    """

    smooth = True

    def __call__(self, x: Tensor) -> Tensor:
        return (1 + x).log2().reciprocal()


@dataclass(frozen=True)
class Persistence(KnownTransform):
    """r -> (1 - p) p^(r - 1)."""

    p: float
    smooth = True

    def __call__(self, x: Tensor) -> Tensor:
        return (1 - self.p) * self.p ** (x - 1)


@dataclass(frozen=True)
class Cut(KnownTransform):
    """r -> f(r) if r <= k else 0."""

    f: KnownTransform
    k: int

    @property
    def constant_from(self) -> int:  # type: ignore[override]
        return self.k + 1

    def __call__(self, x: Tensor) -> Tensor:
        return torch.where(x <= self.k, self.f(x), torch.zeros_like(x))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        """The moments over 1..min(k, N), and zeros."""
        top, index = np.unique(np.minimum(N, self.k), return_inverse=True)
        mean, variance = (moment[index] for moment in self.f.null_moments(top))
        share, rest = top[index] / N, (N - top[index]) / N
        return share * mean, share * (variance + rest * mean**2)

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
        inside = np.clip(self.k - low + 1, 0, high - low + 1)
        overlaps = inside > 0
        means = np.zeros(len(low))
        means[overlaps] = self.f.block_means(low[overlaps], (low + inside - 1)[overlaps])
        return means * (inside / (high - low + 1))


def place_means(f: KnownTransform, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
    """Mean of f over the places {low..high} of each block, (b,); most blocks are one place, where it is f itself."""
    means = np.empty(len(low))
    single = low == high
    several = ~single
    N = (None, None) if num_candidates is None else (num_candidates[single], num_candidates[several])
    means[single] = apply_transform(f, low[single].astype(np.float64), num_candidates=N[0])
    if several.any():
        means[several] = f.block_means(low[several], high[several], N[1])
    return means
