"""Samples of ranking tasks: candidate counts, ranks, weights and multiplicities; averages."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from torchrankmetrics.errors import RankMetricError
from torchrankmetrics.validation import MOST_CANDIDATES, shorten

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
_TABLE_PER_VALUE = 16
_FAINT = 2.0**-500


@dataclass(frozen=True)
class Moments:
    """Null moments of a metric: mean and variance under random ranking.

    Every rank is uniform on {1..N_i}, independently.

    Attributes:
        mean (float): E of the metric.
        variance (float): V >= 0; exactly zero where the metric cannot vary.
        optimum (float, default None): the best value, if it depends on the counts.

    >>> from torchrankmetrics import RankMetric
    >>> moments = RankMetric("mr").moments([3, 5])  # of Moments(mean, variance)
    >>> moments.mean, moments.variance
    (2.5, 0.6666666666666666)
    """

    mean: float
    variance: float
    optimum: float | None = field(default=None, repr=False)

    @classmethod
    def of(cls, provider: Any, definition: Any, counts: "CandidateCounts | Sample") -> "Moments":
        """Return the moments of an ``ExpectationProvider``; TypeError or ValueError if invalid."""
        found = provider.moments(definition, counts)
        if not isinstance(found, Moments):
            raise TypeError(
                f"moments of the provider {shorten(provider)} must return Moments(mean, variance), "
                f"from torchrankmetrics.definitions; got {shorten(found)}"
            )
        if found.variance < 0:
            raise ValueError(
                f"moments of the provider {shorten(provider)} must have a variance of at least 0, "
                f"got {found.variance}"
            )
        return cls(float(found.mean), float(found.variance), found.optimum)


@dataclass(frozen=True, eq=False)
class CandidateCounts:
    """Distinct (N, weight) pairs and how many tasks have each; equal ones have equal hashes."""

    num_candidates: IntArray  # ascending
    weight: FloatArray  # of one task; (count * weight).sum() is 1
    count: IntArray

    def __post_init__(self) -> None:
        for array in (self.num_candidates, self.weight, self.count):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.num_candidates, self.weight, self.count)  # read-only again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CandidateCounts) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def of(
        cls,
        num_candidates: Any,
        weight: npt.ArrayLike | None = None,
        count: npt.ArrayLike | None = None,
    ) -> Self:
        """Compress per-task candidate counts."""
        if isinstance(num_candidates, cls):
            if weight is not None or count is not None:
                raise ValueError(
                    "weight and count are already part of the given CandidateCounts; pass them as "
                    "None"
                )
            return num_candidates
        N = integers(num_candidates, "num_candidates")
        if (wrong := (N < 1) | (N > MOST_CANDIDATES)).any():
            bounds = "at least 1 (the target counts) and below 2^62"
            raise ValueError(f"num_candidates must be {bounds}, got {N[wrong][0]}")
        c = np.ones_like(N) if count is None else integers(count, "count")
        w = None if weight is None else weights_of(weight)
        for name, other in (("count", c), ("weight", w)):
            if other is not None and other.shape != N.shape:
                raise ValueError(
                    f"{name} must have one entry per task, shape {N.shape}; got shape {other.shape}"
                )
        if (total := c.sum(dtype=np.float64)) >= 1 << 63 or (c < 0).any():
            got = f"the least {c.min()} and the sum {total:.4g}"
            raise ValueError(
                f"count must sum to less than 2^63, without negative numbers; got {got}"
            )
        used = c > 0 if w is None else (c > 0) & (w > 0)
        return cls.compressed(N[used], None if w is None else w[used], c[used])

    @classmethod
    def compressed(
        cls, num_candidates: IntArray, weight: FloatArray | None, count: IntArray
    ) -> Self:
        """Compress as ``of`` valid columns with positive weights and counts, (m,) each."""
        if not len(num_candidates):
            raise ValueError("num_candidates is empty: no task has a positive weight")
        if weight is None or weight[weight.argmin()] == weight[weight.argmax()]:
            unique, tallied = sum_by_value(num_candidates, count)
            c = tallied.astype(np.int64)
            return cls(unique, np.full(unique.size, 1.0 / int(c.sum())), c)
        (unique, w), c = distinct_rows((num_candidates, in_range(weight)), count)
        return cls(unique, w / (w * c).sum(), c)

    def at_least(self, min_candidates: int) -> "CandidateCounts":
        """The tasks with so many candidates or more, their weights again of sum 1; maybe none."""
        if (
            min_candidates <= 1
            or (first := int(np.searchsorted(self.num_candidates, min_candidates))) == 0
        ):
            return self
        N = self.num_candidates[first:]
        weight = self.weight[first:]
        count = self.count[first:]
        return CandidateCounts(N, weight / (weight * count).sum(), count)

    def at_random(self, random: np.random.Generator) -> "RankSample":
        """Return ranking tasks with these counts and random ranks."""
        N = np.repeat(self.num_candidates, self.count)
        ranks = random.integers(1, N, endpoint=True)
        return RankSample(ranks, ranks, N, np.repeat(self.weight, self.count), np.ones_like(N))

    @cached_property
    def num_tasks(self) -> int:
        """Number n of tasks."""
        return int(self.count.sum())

    @cached_property
    def digest(self) -> bytes:
        """Hash of the content: equal counts and weights share cached moments, epoch after epoch."""
        return hashlib.sha256(
            b"".join(x.tobytes() for x in (self.num_candidates, self.weight, self.count))
        ).digest()


def in_range(weight: FloatArray) -> FloatArray:
    """Scale weights (m,) > 0 by a power of two if sums or squares of them may overflow or round."""
    if not len(weight) or (
        weight[weight.argmin()] > _FAINT and weight[weight.argmax()] < 1 / _FAINT
    ):
        return weight
    return by_power_of_two(weight, weight.max())


def by_power_of_two(weight: FloatArray, largest: npt.ArrayLike) -> FloatArray:
    """Divide weights by the power of two next to ``largest``: exact, and none becomes zero."""
    return np.maximum(np.ldexp(weight, -np.frexp(largest)[1]), _FAINT**2)


def sum_by_value(values: IntArray, mass: npt.NDArray[Any]) -> tuple[IntArray, FloatArray]:
    """Find the distinct values, ascending, and the mass of each, added in the order given."""
    if len(values) and values.max() <= _TABLE_PER_VALUE * len(values):
        # cheaper than a sort, and the same sums
        table: npt.NDArray[Any] = np.bincount(values, mass)
        distinct = np.flatnonzero(table > 0).astype(np.int64)
        return distinct, table[distinct]
    distinct, index = np.unique(values, return_inverse=True)
    return distinct, np.bincount(index, mass, minlength=len(distinct)).astype(np.float64)


def distinct_rows(columns: tuple[Any, ...], count: IntArray) -> tuple[tuple[Any, ...], IntArray]:
    """Find the distinct rows of several columns, the first sorted first, and sums of counts."""
    order = np.argsort(columns[-1])  # equal rows may come in any order: faster than lexsort
    for column in columns[-2::-1]:
        order = order[np.argsort(column[order], kind="stable")]
    columns = tuple(column[order] for column in columns)
    first = np.flatnonzero(changes(*columns))
    if len(order):
        count = np.add.reduceat(count[order], first)
    return tuple(column[first] for column in columns), count


def changes(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a row differs from the row before; the first one does."""
    new = np.zeros(len(columns[0]), dtype=bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new


def integers(values: npt.ArrayLike, name: str) -> IntArray:
    """Read integers (n,), or one, as int64."""
    if isinstance(values, str):
        raise TypeError(f"{name} must be integers, got the str {shorten(values)}")
    given = array = np.atleast_1d(np.asarray(values))
    if given.ndim != 1:
        raise ValueError(
            f"{name} must be one-dimensional, one entry per task; got shape {given.shape}"
        )
    # integers that fit in no type come as floats or objects
    if given.size and given.dtype.kind not in "iu":
        array = np.asarray(values, dtype=object).ravel()
        if not all(type(value) is int for value in array):
            raise TypeError(f"{name} must be integers, got dtype {given.dtype}")
    if array.size and not -(1 << 63) <= array.min() <= array.max() < 1 << 63:
        raise ValueError(f"{name} must fit in int64, got {max(array.min(), array.max(), key=abs)}")
    return array.astype(np.int64)


def weights_of(values: npt.ArrayLike) -> FloatArray:
    """Read weights (n,), or one, as float64."""
    try:
        w = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"weight must contain numbers, got {type(values).__name__}: {error}"
        ) from error
    if (wrong := ~(np.isfinite(w) & (w >= 0))).any():
        raise ValueError(f"weight must be finite and not negative, got {w[wrong][0]}")
    return w


RankType = Literal["realistic", "optimistic", "pessimistic", "expected"]
RANK_TYPES: tuple[RankType, ...] = get_args(RankType)
NEVER = 1 << 50  # without N, items at ranks above this one were not retrieved


class UnknownCandidatesError(RankMetricError):
    """Raised for values that depend on numbers of candidates that are unknown."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "num_candidates is needed for every view except 'base', and for metrics that depend "
            "on it; without it only base values such as mrr, hits@10 and ndcg@10 are known. Pass "
            "num_candidates= (to a file, a column num_candidates), the number of filtered "
            "candidates of every task, or of documents in the collection"
        )


class Sample:
    """Ranking tasks or queries with weights; equal ones are one entry with a count."""

    weight: FloatArray
    count: IntArray

    @property
    def elsewhere(self) -> "Sample | None":
        """The sample with other ranks of items not retrieved, if candidate counts are unknown."""
        return None

    def value_of(self, name: str, compute: Callable[[Any], float]) -> float:
        """Value of a metric; an error if it depends on ranks of items that were not retrieved."""
        value = compute(self)
        other = value if self.elsewhere is None else compute(self.elsewhere)
        if abs(value - other) > 1e-12 * max(1.0, abs(value)):
            raise UnknownCandidatesError(
                f"{name!r} depends on the ranks of relevant items that were not retrieved. Pass "
                "num_candidates=, the number of all items; or use a cut-off, 'rr', 'ap' or 'ndcg'"
            )
        return value

    @cached_property
    def num_tasks(self) -> int:
        """Number n of tasks or queries."""
        return int(self.count.sum())


class RankSample(Sample):
    """Ranks with weights and multiplicities; intermediate values of several metrics are cached."""

    def __init__(
        self,
        optimistic: IntArray,
        pessimistic: IntArray,
        num_candidates: IntArray | None,
        weight: FloatArray | None = None,
        count: IntArray | None = None,
    ) -> None:
        weight = np.ones(len(optimistic)) if weight is None else weight
        count = np.ones(len(optimistic), dtype=np.int64) if count is None else count
        common = len(weight) == 0 or weight[weight.argmin()] > 0
        used: slice | npt.NDArray[np.bool_] = slice(None) if common else weight > 0  # no copies
        self.optimistic = optimistic[used]
        self.pessimistic = pessimistic[used]
        self.num_candidates = num_candidates[used] if num_candidates is not None else None
        self.weight = in_range(weight[used])
        self.count = count[used]
        self.mass = self.weight * self.count
        self._histograms: dict[
            tuple[RankType, bool], tuple[FloatArray, FloatArray, IntArray | None]
        ] = {}

    @cached_property
    def total(self) -> float:
        """Sum W of the weights of all tasks."""
        return float(self.mass.sum())

    @cached_property
    def elsewhere(self) -> "RankSample | None":
        """The sample with other ranks of items not retrieved, if candidate counts are unknown."""
        if self.num_candidates is not None or not (far := self.optimistic > NEVER).any():
            return None
        low = self.optimistic * (1 + far)
        high = self.pessimistic * (1 + far)
        return RankSample(low, high, None, self.weight, self.count)

    def doubled(self, rank_type: RankType) -> IntArray:
        """Twice the ranks of the entries, (m,) int64."""
        low = self.pessimistic if rank_type == "pessimistic" else self.optimistic
        return low + (self.optimistic if rank_type == "optimistic" else self.pessimistic)

    def rank(self, rank_type: RankType) -> FloatArray:
        """Ranks of the entries, (m,) float64."""
        return self.doubled(rank_type) / 2.0

    def histogram(
        self, rank_type: RankType, by_candidates: bool
    ) -> tuple[FloatArray, FloatArray, IntArray | None]:
        """Distinct ranks, ascending, with the total weight of their tasks, for sums of metrics."""
        key = (rank_type, by_candidates)
        if key not in self._histograms:
            doubled = self.doubled(rank_type)
            N = None
            if by_candidates:
                columns = (doubled, self.known_candidates, self.weight)
                (doubled, N, weight), count = distinct_rows(columns, self.count)
                mass: FloatArray = weight * count
            else:  # integers are tallied without a sort
                doubled, mass = sum_by_value(doubled, self.mass)
            self._histograms[key] = doubled / 2.0, mass, N
        return self._histograms[key]

    @cached_property
    def tie_blocks(self) -> "RankSample":
        """The sample without candidate counts, equal ranks and weights as one entry."""
        (low, high, weight), count = distinct_rows(
            (self.optimistic, self.pessimistic, self.weight), self.count
        )
        return RankSample(low, high, None, weight, count)

    @property
    def tie_mass(self) -> float:
        """Total weight of the tasks whose target shares its score."""
        return float(self.mass[self.pessimistic > self.optimistic].sum())

    @cached_property
    def candidate_counts(self) -> CandidateCounts:
        """The candidate counts of the tasks, for expectations."""
        return CandidateCounts.compressed(self.known_candidates, self.weight, self.count)

    @property
    def known_candidates(self) -> IntArray:
        """The number of candidates of every entry, (m,) int64."""
        if self.num_candidates is None:
            raise UnknownCandidatesError
        return self.num_candidates


def weighted_mean(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of x (m,) or of the columns of x (m, outcomes), weighted by mass (m,) > 0."""
    if x.ndim == 1:  # the bits of a dot product would depend on the number of threads
        return np.asarray((mass * x).sum() / mass.sum())
    return np.asarray(mass @ x / mass.sum())


def weighted_median(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Lower weighted median; the midpoint if the weight up to it is half, to 1e-12 of the total."""
    if x.ndim > 1 or (x[1:] < x[:-1]).any():  # a histogram comes in order
        order = np.argsort(x, axis=0, kind="stable")
        x = np.take_along_axis(x, order, 0)
        mass = mass[order]
    cumulative = np.cumsum(mass, axis=0)
    half = cumulative[-1] / 2
    slack = 1e-12 * cumulative[-1]
    column = tuple(np.arange(size) for size in x.shape[1:])
    lower = np.argmax(cumulative >= half - slack, axis=0)
    upper = np.argmax(cumulative > half + slack, axis=0)
    return np.asarray((x[(lower, *column)] + x[(upper, *column)]) / 2)


def power_mean(p: float, rank: FloatArray, mass: FloatArray) -> float:
    """(sum v r^p)^(1/p) relative to its dominating rank: finite for every p, exact near p = 0."""
    scale = rank.max() if p > 0 else rank.min()
    exponent = p * np.log(rank / scale)  # all <= 0
    if exponent.min() > -0.5:
        return float(scale * math.exp(math.log1p(weighted_mean(np.expm1(exponent), mass)) / p))
    return float(scale * weighted_mean(np.exp(exponent), mass) ** (1 / p))
