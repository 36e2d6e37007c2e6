"""The candidate counts of ranking tasks, compressed to distinct (N, weight) pairs; and the moments they give."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from torchrankmetrics.validation import shorten

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
MOST_CANDIDATES = (1 << 62) - 1  # sums of two ranks, and of a rank and one, stay inside int64
_TABLE_PER_VALUE = 16
_FAINT = 2.0**-500


@dataclass(frozen=True)
class Moments:
    """Null moments of a metric: mean and variance when every rank is uniform on {1..N_i}, independently.

    Attributes:
        mean (float): E of the metric.
        variance (float): V >= 0; exactly zero where the metric cannot vary.
        optimum (float, default None): the best value, if it depends on the counts.
    """

    mean: float
    variance: float
    optimum: float | None = field(default=None, repr=False)


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
    def of(cls, num_candidates: Any, weight: npt.ArrayLike | None = None, count: npt.ArrayLike | None = None) -> Self:
        """Compress per-task candidate counts."""
        if isinstance(num_candidates, cls):
            if weight is not None or count is not None:
                raise ValueError("weight and count are already part of the given CandidateCounts; pass them as None")
            return num_candidates
        N = integers(num_candidates, "num_candidates")
        if (wrong := (N < 1) | (N > MOST_CANDIDATES)).any():
            bounds = "at least 1 (the true candidate counts) and below 2^62"
            raise ValueError(f"num_candidates must be {bounds}, got {N[wrong][0]}")
        c = np.ones_like(N) if count is None else integers(count, "count")
        w = None if weight is None else weights_of(weight)
        for name, other in (("count", c), ("weight", w)):
            if other is not None and other.shape != N.shape:
                raise ValueError(f"{name} must have one entry per task, shape {N.shape}; got shape {other.shape}")
        if (total := c.sum(dtype=np.float64)) >= 1 << 63 or (c < 0).any():
            got = f"the least {c.min()} and the sum {total:.4g}"
            raise ValueError(f"count must sum to less than 2^63, without negative numbers; got {got}")
        used = c > 0 if w is None else (c > 0) & (w > 0)
        if not used.any():
            raise ValueError("num_candidates is empty: no task has a positive weight")
        N, c = N[used], c[used]
        if w is None or (w := w[used]).min() == w.max():
            unique, tallied = sum_by_value(N, c)
            c = tallied.astype(np.int64)
            return cls(unique, np.full(unique.size, 1.0 / int(c.sum())), c)
        (unique, w), c = distinct_rows((N, in_range(w)), c)
        return cls(unique, w / (w * c).sum(), c)

    def at_least(self, min_candidates: int) -> "CandidateCounts":
        """The tasks with so many candidates or more, their weights again of sum 1; maybe none."""
        if min_candidates <= 1 or (first := int(np.searchsorted(self.num_candidates, min_candidates))) == 0:
            return self
        N, weight, count = self.num_candidates[first:], self.weight[first:], self.count[first:]
        return CandidateCounts(N, weight / (weight * count).sum(), count)

    @cached_property
    def num_tasks(self) -> int:
        """Number n of tasks."""
        return int(self.count.sum())

    @cached_property
    def digest(self) -> bytes:
        """Hash of the content: equal counts and weights share cached moments, epoch after epoch."""
        return hashlib.sha256(b"".join(x.tobytes() for x in (self.num_candidates, self.weight, self.count))).digest()


def in_range(weight: FloatArray) -> FloatArray:
    """Scale weights (m,) > 0 by a power of two where sums or squares of them may overflow or round; else give them."""
    if not len(weight) or (weight[weight.argmin()] > _FAINT and weight[weight.argmax()] < 1 / _FAINT):
        return weight
    return by_power_of_two(weight, weight.max())


def by_power_of_two(weight: FloatArray, largest: npt.ArrayLike) -> FloatArray:
    """Divide weights by the power of two next to ``largest``: no digit is lost, and none becomes zero."""
    return np.maximum(np.ldexp(weight, -np.frexp(largest)[1]), _FAINT**2)


def sum_by_value(values: IntArray, mass: npt.NDArray[Any]) -> tuple[IntArray, FloatArray]:
    """Find the distinct values, ascending, and the mass of each, added in the order given."""
    if len(values) and values.max() <= _TABLE_PER_VALUE * len(values):
        table = np.bincount(values, mass).astype(np.float64)  # cheaper than a sort, and the same sums
        distinct = np.flatnonzero(table).astype(np.int64)
        return distinct, table[distinct]
    distinct, index = np.unique(values, return_inverse=True)
    return distinct, np.bincount(index, mass, minlength=len(distinct)).astype(np.float64)


def distinct_rows(
    columns: tuple[npt.NDArray[Any], ...], count: IntArray
) -> tuple[tuple[npt.NDArray[Any], ...], IntArray]:
    """Find the distinct rows of several columns, sorted by the first one first, and the sum of the counts of each."""
    order = np.lexsort(columns[::-1])
    columns = tuple(column[order] for column in columns)
    first = np.flatnonzero(changes(*columns))
    return tuple(column[first] for column in columns), np.add.reduceat(count[order], first) if len(order) else count


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
        raise ValueError(f"{name} must be one-dimensional, one entry per task; got shape {given.shape}")
    if given.size and given.dtype.kind not in "iu":  # integers that fit in no type come as floats or objects
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
        raise TypeError(f"weight must hold numbers, got {type(values).__name__}: {error}") from error
    if (wrong := ~(np.isfinite(w) & (w >= 0))).any():
        raise ValueError(f"weight must be finite and not negative, got {w[wrong][0]}")
    return w
