"""Metrics of one query: their protocol, transforms of ranks, and sums over the relevant items."""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.definitions.sample import NEVER, FloatArray, IntArray, changes
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.definitions.transforms import KnownTransform, apply_transform, with_limits
from torchrankmetrics.null.tails.lists import Atoms
from torchrankmetrics.queries.sample import QuerySample

Divisor = Callable[[IntArray], npt.NDArray[Any]]
"""Numbers m of relevant items, (Q,) int64, to the divisors of a sum over them, (Q,), above 0."""
_ENUMERATED = 1 << 12  # choices of the places of the relevant items
_FAR = 40.0  # standard deviations of a count of hits, beyond which its probability is neglected
_LEAST = 1e-300  # least probability of an atom


class QueryKind:
    """A metric of one query, to be averaged over queries: ``QueryDefinition(name, kind=...)``.

    A subclass overrides ``values`` and ``null_moments``. The other methods have defaults that are
    right for every metric. A block of tied candidates is in random order.

    >>> import numpy as np
    >>> from torchrankmetrics import Ranks, RankMetric
    >>> from torchrankmetrics.queries import QueryDefinition, QueryKind
    >>> class NumRelevant(QueryKind):
    ...     limits = 1.0, None
    ...     def values(self, sample):
    ...         return np.float64(sample.num_relevant)
    ...     def null_moments(self, N, m):
    ...         return np.float64(m), np.zeros(len(m))
    ...
    >>> metric = RankMetric(QueryDefinition("num_relevant", kind=NumRelevant()))
    >>> metric(Ranks([1, 2], None, 9, filtered=True), query=[0, 0])
    tensor(2., dtype=torch.float64)
    """

    is_share: ClassVar[bool] = False  # of queries
    uses_candidates: ClassVar[bool] = False  # whether the value depends on the number of candidates
    counts_empty: ClassVar[bool] = True  # whether 0 is a value of queries without a relevant item
    is_graded: bool = False  # whether it depends on the gains of the relevant items
    # of values; None: no bound, or an unknown one
    limits: tuple[float | None, float | None] = 0.0, 1.0

    def values(self, sample: QuerySample) -> FloatArray:
        """Return the expected value over orders of ties, (Q,) float64; NaN if undefined."""
        raise NotImplementedError

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        """Return whether the metric is defined for N candidates and m relevant items, (u,) bool."""
        return np.ones(len(N), dtype=bool)

    def moments(self, sample: QuerySample) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return null mean, variance >= 0 and best value of every query, (Q,) float64 each."""
        N = sample.known_candidates
        m = sample.num_relevant
        order = np.lexsort((m, N))
        N = N[order]
        m = m[order]
        new = changes(N, m)
        index = np.empty(len(N), dtype=np.int64)
        index[order] = np.cumsum(new) - 1
        mean, variance, best = (
            part[index] for part in _cached_moments(self, N[new].tobytes(), m[new].tobytes())
        )
        return mean, variance, best

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return null mean and variance >= 0, (u,) float64 twice, for sorted N and m, (u,)."""
        raise NotImplementedError

    def optimum(self, N: IntArray, m: IntArray) -> FloatArray:
        """Return the value of the ranking that starts with the m relevant items, (u,) float64."""
        return self.values(QuerySample.tied(m, m, N))

    def as_task(self) -> RankDefinition | None:
        """Return a metric of ranking tasks that is proportional to this one with one relevant item.

        The factor is positive and the same for all queries and numbers of candidates, and the label
        of the relevant item is 1. None: no such metric is known.
        """
        return None

    def distribution(
        self, N: int, m: int, most: int, gain: FloatArray | None = None
    ) -> Atoms | None:
        """Return the null distribution of one query: ascending values and their probabilities.

        Of more than ``most`` values, those next to each other are one at the best of them.

        None if it is unavailable, here if there are too many choices of places, of items with gains
        (m,), to list.
        """
        few = min(m, N - m)
        if 2**few > _ENUMERATED or math.comb(N, few) > min(_ENUMERATED, most):
            return None
        if gain is not None and math.perm(N, m) > _ENUMERATED:
            return None
        choose = itertools.combinations if gain is None else itertools.permutations
        ranks = np.array(list(choose(range(1, N + 1), m)), dtype=np.int64)
        gains = None if gain is None else np.tile(gain, (len(ranks), 1))
        values, count = np.unique(
            self.values(QuerySample.ranked(ranks, N, gains)), return_counts=True
        )
        return values, count / len(ranks)

    def log_best(self, N: int, m: int, gain: FloatArray | None = None) -> float | None:
        """Return the logarithm of the probability of the best value; None, as here: unknown."""
        return None


def task_metric(f: KnownTransform) -> RankDefinition:
    """The mean of f over ranking tasks, for ``as_task``; the query metric sets the direction."""
    return RankDefinition("task", f=f, optimum=None, higher_is_better=True)


@functools.lru_cache(maxsize=512)
def _cached_moments(kind: QueryKind, *pairs: bytes) -> tuple[FloatArray, FloatArray, FloatArray]:
    N, m = (np.frombuffer(part, dtype=np.int64) for part in pairs)
    return (*kind.null_moments(N, m), kind.optimum(N, m)) if len(N) else (np.empty(0),) * 3


@dataclass(frozen=True)
class Discount(KnownTransform):
    """r -> 1 / log2(1 + r).

    The common variant of Järvelin and Kekäläinen 2002 (doi:10.1145/582415.582418).
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
        share = top[index] / N
        rest = (N - top[index]) / N
        return share * mean, share * (variance + rest * mean**2)

    def block_means(
        self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None
    ) -> FloatArray:
        inside = np.clip(self.k - low + 1, 0, high - low + 1)
        means = np.zeros(len(low))
        overlaps = inside > 0
        means[overlaps] = self.f.block_means(low[overlaps], (low + inside - 1)[overlaps])
        return means * (inside / (high - low + 1))


def up_to(f: KnownTransform, k: int | None) -> KnownTransform:
    """The transform, 0 beyond k."""
    return f if k is None else Cut(f, k)


def place_means(f: KnownTransform, low: IntArray, high: IntArray, N: IntArray) -> FloatArray:
    """Mean of f over the places {low..high} of each block, (b,).

    Most blocks are one place, where the mean is f itself.
    """
    means = apply_transform(f, low.astype(np.float64), num_candidates=N)
    several = low < high
    if several.any():
        means[several] = f.block_means(low[several], high[several], N[several])
    return with_limits(f, means, low, N)


def moments_by_candidates(f: KnownTransform, N: IntArray) -> tuple[FloatArray, FloatArray]:
    """Null mean and variance of f of one rank, (u,) float64 twice, for (u,) int64 in any order."""
    distinct, index = np.unique(N, return_inverse=True)
    mean, variance = (
        _cached_null_moments(f, distinct.tobytes()) if len(N) else (np.empty(0), np.empty(0))
    )
    return mean[index], variance[index]


@functools.lru_cache(maxsize=64)
def _cached_null_moments(f: KnownTransform, N: bytes) -> tuple[FloatArray, FloatArray]:
    return f.null_moments(np.frombuffer(N, dtype=np.int64))


@dataclass(frozen=True)
class Capped:
    """m -> min(m, k), the divisor of metrics whose best value is 1 with any number m."""

    k: int
    limits: ClassVar[tuple[float, float]] = 0.0, 1.0

    def __call__(self, m: IntArray) -> IntArray:
        return np.minimum(m, self.k)


@dataclass(frozen=True)
class HalfSum:
    """m -> (m + k) / 2, the divisor of F1.

    With h hits among k places 2 P R / (P + R) is 2 h / (m + k).
    """

    k: int
    limits: ClassVar[tuple[float, float]] = 0.0, 1.0

    def __call__(self, m: IntArray) -> FloatArray:
        return (m + self.k) / 2


@dataclass(frozen=True)
class SumOf(QueryKind):
    """Sum of gain times f(r_i) over the relevant items, over a divisor.

    The divisor is their number m, the best value of the sum, a number or a function of m.

    Gains are 1, labels or 2^label - 1 (Burges et al. 2005, doi:10.1145/1102351.1102363), relative
    to the largest of their query: so equal gains have the value of binary relevance bit for bit.
    """

    f: KnownTransform
    # a number, or a function of the number m of relevant items; None: m
    divisor: "int | Literal['best'] | Divisor | None" = None
    is_graded: bool = False
    is_exponential: bool = False

    def __post_init__(self) -> None:
        has_no_top = self.is_graded and self.divisor != "best"
        limits: Any = (None, None)
        if callable(self.divisor):
            limits = getattr(self.divisor, "limits", limits)
        elif self.divisor or self.f.is_share:
            limits = (0.0, None if has_no_top else 1.0)
        vars(self).update(uses_candidates=self.f.uses_candidates, limits=limits)

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        # N may be unknown
        return np.asarray((self.f.min_candidates <= N) | (self.f.min_candidates == 1))

    def values(self, sample: QuerySample) -> FloatArray:
        """Every relevant item of a block has the block's mean of f."""
        sample = self._own(sample)
        answers = sample.answers.astype(np.float64)
        if sample.gain is not None:
            answers *= self._relative(sample.gain, _largest(sample)[sample.query])
        means = self._means(
            sample.optimistic, sample.pessimistic, sample.num_candidates[sample.query]
        )
        return self._divided(sample.sums(answers * means), sample)

    def moments(self, sample: QuerySample) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of a linear permutation statistic: Hoeffding 1951 (doi:10.1214/aoms/1177729545)."""
        sample = self._own(sample)
        N = sample.known_candidates
        m = sample.num_relevant
        mean, variance = self._moments_of_f(N, m)
        total, apart = self._sums_of_gains(sample)
        best = self._best(sample)
        free = np.maximum(N - 1, 1)
        share = self._divided(total, sample, best)
        spread = (N - m) / (free * m.astype(np.float64)) + N * apart / (free * total**2)
        return share * mean, share**2 * spread * variance, self._divided(best, sample, best)

    def as_task(self) -> RankDefinition:
        return task_metric(self.f)

    def distribution(
        self, N: int, m: int, most: int, gain: FloatArray | None = None
    ) -> Atoms | None:
        jumps = None if self.divisor == "best" or gain is not None else self.f.jumps(N)
        if jumps is None or len(jumps) != 1:
            return super().distribution(N, m, most, gain)
        inside, outside = self.f.values(np.array([1.0, jumps[0] + 1.0])).tolist()
        hits, probability = hit_distribution(N, m, int(jumps[0]), 1.0, most)
        values = (hits * inside + (m - hits) * outside) / float(self._number(np.array([m]))[0])
        return (values, probability) if inside > outside else (values[::-1], probability[::-1])

    def log_best(self, N: int, m: int, gain: FloatArray | None = None) -> float | None:
        """Logarithm of the probability of the largest gains on the first places.

        Known if f falls or rises strictly there and is constant behind.
        """
        places = min(m, self.f.constant_from - 1)
        steps = np.diff(self.f.values(np.arange(1.0, min(places + 1, N) + 1)))
        is_strict = (steps < 0).all() or (steps > 0).all()
        if not is_strict or not (self.f.smooth or places == self.f.constant_from - 1):
            return None
        _, number = np.unique(np.ones(m) if gain is None else -gain, return_counts=True)
        before = np.cumsum(number) - number
        on_top = np.clip(places - before, 0, number)  # items of each gain
        orders = sum(
            _log_orders(n, k) for n, k in zip(number.tolist(), on_top.tolist(), strict=True)
        )
        return orders + _log_orders(N - places, m - places) - _log_orders(N, m)

    def _own(self, sample: QuerySample) -> QuerySample:
        return sample if self.is_graded or sample.gain is None else replace(sample, gain=None)

    def _means(self, low: IntArray, high: IntArray, N: IntArray) -> FloatArray:
        """Mean of f over places; NaN where it is undefined."""
        means = np.full(len(N), np.nan)
        defined = self.has_value(N, N)
        used = slice(None) if defined.all() else defined  # no copies
        means[used] = place_means(self.f, low[used], high[used], N[used])
        if self.is_graded:  # a logarithmic discount does not vanish there
            means[(N < 1) & (low > NEVER)] = 0.0
        return means

    def _relative(self, gain: FloatArray, largest: FloatArray) -> FloatArray:
        """Gains of labels, as shares of the gain of the largest label of the query."""
        if not self.is_exponential:
            return gain / largest
        power = np.exp2(-largest)
        return np.asarray((np.exp2(gain - largest) - power) / (1 - power))  # no power overflows

    def _moments_of_f(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """Null mean and variance of f of one rank; NaN and 0 where the metric is undefined."""
        mean = np.full(len(N), np.nan)
        variance = np.zeros(len(N))
        used = self.has_value(N, m)
        mean[used], variance[used] = moments_by_candidates(self.f, N[used])
        return mean, variance

    def _sums_of_gains(self, sample: QuerySample) -> tuple[FloatArray, FloatArray]:
        """Sum of the relative gains of every query, and of their squared deviations."""
        starts, query, gain, number = sample.levels
        gain = self._relative(gain, _largest(sample)[query])
        total = np.add.reduceat(gain * number, starts)
        mean = (total / sample.num_relevant)[query]
        return total, np.add.reduceat(number * (gain - mean) ** 2, starts)

    def _best(self, sample: QuerySample) -> FloatArray:
        """Sum of relative gains for the ranking by descending gain."""
        starts, query, gain, number = sample.levels
        last = np.cumsum(number)
        last -= (last - number)[starts][query]  # places of a level in this ranking
        means = self._means(last - number + 1, last, sample.num_candidates[query])
        terms = self._relative(gain, _largest(sample)[query]) * (number * means)
        return np.asarray(np.add.reduceat(terms, starts))

    def _divided(
        self, sums: FloatArray, sample: QuerySample, best: FloatArray | None = None
    ) -> FloatArray:
        """The metric, from sums of relative gains."""
        if self.divisor == "best":
            return sums / (self._best(sample) if best is None else best)
        return np.asarray(sums * _largest(sample) / self._number(sample.num_relevant))

    def _number(self, m: IntArray) -> npt.NDArray[Any]:
        """The divisor of queries with m relevant items each, unless it is the best value."""
        if callable(self.divisor):
            number = np.broadcast_to(np.asarray(self.divisor(m), dtype=np.float64), m.shape)
            if not (number > 0).all():
                raise ValueError("divisor must return numbers above 0 for every m of at least 1")
            return number
        return m if self.divisor is None else np.full(len(m), self.divisor)


def _log_orders(n: int, k: int) -> float:
    """Logarithm of the number of orders of k of n items."""
    return float(np.log(n - np.arange(k, dtype=np.float64)).sum())


def _largest(sample: QuerySample) -> FloatArray:
    """The largest gain of every query."""
    starts, _, gain, _ = sample.levels
    return gain[starts]


def hit_distribution(N: int, m: int, k: int, divisor: float, most: int) -> Atoms:
    """Null distribution of #{relevant items within the first k} / divisor, hypergeometric.

    Values and probabilities as ``QueryKind.distribution``.
    """
    k = min(k, N)
    low = max(0, m + k - N)
    high = min(m, k)
    center = m * k / N
    width = _FAR * (1 + math.sqrt(center * (1 - k / N)))
    first = max(low, math.floor(center - width))
    last = min(high, math.ceil(center + width))
    j = np.arange(first, last, dtype=np.float64)
    # ratios P(j + 1) / P(j) are exact to rounding for any size
    log_p = np.r_[0.0, np.cumsum(np.log((k - j) * (m - j)) - np.log((j + 1) * (N - k - m + j + 1)))]
    probability = np.exp(log_p - log_p.max())
    probability /= probability.sum()
    hits = np.arange(first, last + 1)
    if last < high:  # the best value is an atom, however unlikely
        hits = np.r_[hits, high]
        probability = np.r_[probability, _LEAST]
    probability = np.maximum(probability, _LEAST)  # clamp what underflows float64
    return _merged(hits / divisor, probability, most)


def _merged(values: FloatArray, probability: FloatArray, most: int) -> Atoms:
    """At most ``most`` atoms, from ascending values: neighbors are one atom at the best of them."""
    if len(values) <= most:
        return values, probability
    end = np.unique(np.linspace(0, len(values) - 1, most).astype(np.int64))
    return values[end], np.add.reduceat(probability, np.r_[0, end[:-1] + 1])
