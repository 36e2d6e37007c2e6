"""Transforms of ranks and of aggregates in torch, and their closed forms on NumPy arrays."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import digamma, zeta
from torch import Tensor

from torchrankmetrics.definitions.sample import NEVER, FloatArray, IntArray
from torchrankmetrics.definitions.sums import panel_means, panel_ratio, prefix_rule
from torchrankmetrics.validation import shorten

Transform = Callable[[Tensor], Tensor]
_BLOCK = 1 << 14
_MOST_RANKS = 1 << 24  # of a user-defined f: a table of them takes 128 MiB
_MOST_VALUES = 10**9  # of f(r, N), for all distinct N together
_MOST_JUMPS = 512  # of a step function
# values are equal if they differ by less than this share of them, or of the largest value
EQUAL = 1e-9, 4e-15


class KnownTransform:
    """A transform and its closed forms; the methods here serve any transform."""

    __call__: Callable[..., Tensor]
    exponent: float = math.nan  # p of x -> x^p; NaN for others
    direction: int = 0  # 1 if it increases for x > 0, -1 if it decreases; 0: unknown
    # what rounding costs the inverse next to a relative error: absolute, and as a share of the
    # range
    inverse_error: ClassVar[tuple[float, float]] = (0.0, 1e-12)
    # monotone, and smooth on panels of ranks that double; others: rank by rank
    smooth: ClassVar[bool] = False
    constant_from: int = 1 << 62  # rank from which on all values are equal
    is_share: ClassVar[bool] = False  # its mean is a share of tasks
    has_limit: ClassVar[bool] = True  # its formula is valid at infinity too
    uses_candidates: ClassVar[bool] = False
    min_candidates: int = 1  # the fewest candidates with which a task has a value
    # moments among N candidates do not depend on the other N of a call, to the last bit
    closed_moments: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether x -> x."""
        return self.exponent == 1

    def at(self, num_candidates: int) -> "KnownTransform":
        """The transform of ranks among so many candidates."""
        return self

    def values(self, x: FloatArray) -> FloatArray:
        """Values (m,) at x (m,), infinities and NaN among them."""
        return np.asarray(self(torch.from_numpy(x.copy())).to(torch.float64))

    def inverse(self, value: float, low: float, high: float) -> float:
        """Return the x that has this value; without a closed form it is searched in [low, high]."""
        from scipy.optimize import brentq

        def gap(x: float) -> float:
            return float(self.values(np.array([x]))[0]) - value

        if gap(low) * gap(high) >= 0:
            return low if abs(gap(low)) < abs(gap(high)) else high
        return float(brentq(gap, low, high, xtol=1e-15 * max(abs(low), abs(high)), rtol=1e-14))

    def jumps(self, num_ranks: int) -> IntArray | None:
        """Ranks r < num_ranks with f(r) != f(r + 1), ascending; None: f is not a step function."""
        if self.smooth or self.uses_candidates:
            return None
        return _jumps_of_table(self, min(num_ranks, self.constant_from))

    def by_rank(self, num_candidates: IntArray) -> "tuple[KnownTransform, FloatArray] | None":
        """A transform h of ranks and factors a (u,) with f(r, N) = a h(r) + constant; else None."""
        return None if self.uses_candidates else (self, np.ones(len(num_candidates)))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance >= 0 of f(r), r uniform on {1..N}, for ascending N, (u,): (u,) each."""
        if not self.smooth:
            return range_moments(rank_table(self, int(N[-1])), np.zeros_like(N), N)
        rule = prefix_rule(
            N.tobytes(), panel_ratio(1.0 if math.isnan(self.exponent) else self.exponent)
        )
        values = apply_transform(self, rule.nodes)
        return rule.means(values), rule.variances(values)

    def block_means(
        self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None
    ) -> FloatArray:
        """Mean of f over {low..high} for each block: (b,) int64 >= 1 each in, (b,) float64 out."""
        if self.smooth:
            return panel_means(lambda rank, _: apply_transform(self, rank), low, high)
        return range_moments(rank_table(self, int(high.max())), low - 1, high)[0]


@dataclass(frozen=True)
class Custom(KnownTransform):
    """A user-defined function."""

    function: Transform
    has_limit = False
    closed_moments = True

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)


RankTransform = Transform | KnownTransform


def as_transform(f: RankTransform) -> KnownTransform:
    """Return the transform with what is known of it: exponent, steps, moments."""
    return f if isinstance(f, KnownTransform) else Custom(f)


def apply_transform(
    f: RankTransform, x: FloatArray, name: str = "f", num_candidates: IntArray | None = None
) -> FloatArray:
    """Apply a transform in blocks of fixed size: the same bits for any number of threads."""
    f = as_transform(f)
    columns = [x]
    if f.is_identity:
        return x
    if f.uses_candidates:
        if num_candidates is None:
            raise ValueError(
                f"{name} depends on the number of candidates: num_candidates is needed"
            )
        columns.append(num_candidates.astype(np.float64))
    result = np.empty(len(x))
    for begin in range(0, len(x), _BLOCK):
        # copies: functions of users may write in place, such as r[r > 10] = 10
        blocks = [torch.from_numpy(column[begin : begin + _BLOCK].copy()) for column in columns]
        value = f(*blocks)
        size = blocks[0].shape
        if value.shape != size:
            raise ValueError(
                f"{name} must keep the shape of its input, {tuple(size)}; got {tuple(value.shape)}"
            )
        result[begin : begin + _BLOCK] = value.to(torch.float64).numpy()
    if not np.isfinite(result).all():
        bad = float(x[~np.isfinite(result)][0])
        raise ValueError(f"{name} must be finite on every rank >= 1; at rank {bad:g} it is not")
    return result


def with_limits(
    f: RankTransform, values: FloatArray, rank: npt.NDArray[Any], N: IntArray | None
) -> FloatArray:
    """Values of f, with its limit, if it is finite, for items that were not retrieved."""
    is_far = rank > NEVER
    if N is not None:
        is_far &= N < 1
    f = as_transform(f)
    if not is_far.any() or not f.has_limit or f.uses_candidates:
        return values
    limit = float(f(torch.tensor(math.inf, dtype=torch.float64, device="cpu")))
    return np.where(is_far, limit, values) if math.isfinite(limit) else values


def transform_slopes(g: Transform, x: FloatArray) -> FloatArray:
    """Derivative of a transform, elementwise: (m,) float64 in, (m,) float64 out."""
    with torch.inference_mode(False), torch.enable_grad():
        point = torch.tensor(x, dtype=torch.float64, device="cpu", requires_grad=True)
        value = g(point)
        if not value.requires_grad:
            raise ValueError(
                "g must be of differentiable torch operations for an error estimate, got "
                f"{shorten(g)}"
            )
        return np.asarray(torch.autograd.grad(value.sum(), point)[0])


def rank_table(f: KnownTransform, num_ranks: int) -> FloatArray:
    """Values of f at the ranks 1..num_ranks, float64; ValueError if there are more than 2^24."""
    if num_ranks > _MOST_RANKS:
        raise _too_many(f, f"at most {_MOST_RANKS:,}", f"{num_ranks:,}")
    return apply_transform(f, np.arange(1.0, num_ranks + 1))


def are_apart(a: FloatArray, b: FloatArray, largest: float) -> npt.NDArray[np.bool_]:
    """Whether values differ by more than rounding; ``largest`` is the largest of all in size."""
    return np.abs(a - b) > EQUAL[0] * np.maximum(np.abs(a), np.abs(b)) + EQUAL[1] * largest


@lru_cache(maxsize=16)
def _jumps_of_table(f: KnownTransform, num_ranks: int) -> IntArray | None:
    table = rank_table(f, num_ranks)
    found = np.flatnonzero(are_apart(table[1:], table[:-1], float(np.abs(table).max()))) + 1
    if len(found) > _MOST_JUMPS:
        return None
    # values may also drift by steps that are too small to see
    starts = np.r_[0, found]
    spread = np.maximum.reduceat(table, starts) - np.minimum.reduceat(table, starts)
    drifts = spread > 4 * (EQUAL[0] * np.abs(table[starts]) + EQUAL[1] * np.abs(table).max())
    return None if drifts.any() else found


def check_evaluations(f: KnownTransform, num_candidates: IntArray) -> None:
    """Check that f(r, N) is affordable at all ranks for these distinct N."""
    if (total := float(num_candidates.sum(dtype=np.float64))) > _MOST_VALUES:
        got = f"{len(num_candidates):,} distinct counts with a sum of {total:,.0f}"
        raise _too_many(f, f"distinct counts with a sum of at most {_MOST_VALUES:,}", got)


def _too_many(f: KnownTransform, most: str, got: str) -> ValueError:
    function = getattr(f, "function", f)
    return ValueError(
        f"num_candidates must be {most}, to sum the user-defined "
        f"f={getattr(function, '__qualname__', function)!s:.80} over all ranks; got {got}. Use a "
        "metric of the package, or rank_type='realistic' and "
        "expectation=MonteCarloExpectation(samples=10_000, seed=0)"
    )


class _RangeMoments:
    """Means of ranges of values, and sums of squares around them, block after block.

    Chan et al. 1983 (doi:10.1080/00031305.1983.10483115).
    """

    def __init__(self, number: int) -> None:
        self.count, self.total, self.mean, self.square = np.zeros((4, number))

    def add(self, ranges: IntArray, size: int, total: FloatArray, square: FloatArray) -> None:
        """Add to each of some ranges a block of so many values, by its sum and sum of squares."""
        before = self.count[ranges]
        self.count[ranges] += size
        apart = total / size - self.mean[ranges]
        self.total[ranges] += total
        self.mean[ranges] += apart * (size / self.count[ranges])
        self.square[ranges] += square + apart**2 * (before * size / self.count[ranges])


def range_moments(
    values: FloatArray, start: IntArray, stop: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of many values[start:stop], from blocks of 1, 2, 4, ... values."""
    start = start.copy()
    stop = stop.copy()
    size = 1  # of the blocks whose sums are in ``values``
    squares = np.zeros_like(values)
    moments = _RangeMoments(len(start))
    while (left := np.flatnonzero(start < stop)).size:
        odd = left[start[left] % 2 == 1]
        moments.add(odd, size, values[start[odd]], squares[start[odd]])
        start[odd] += 1
        odd = left[(stop[left] % 2 == 1) & (start[left] < stop[left])]
        stop[odd] -= 1
        moments.add(odd, size, values[stop[odd]], squares[stop[odd]])
        values, squares = _join_pairs(values, squares, size)
        size = 2 * size
        start = start // 2
        stop = stop // 2
    return moments.total / moments.count, moments.square / moments.count


def _join_pairs(
    values: FloatArray, squares: FloatArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """Sums, and sums of squares, of pairs of neighboring blocks of so many values."""
    even = len(values) // 2 * 2
    first = values[:even:2]
    second = values[1:even:2]
    joined = squares[:even:2] + squares[1:even:2] + (first - second) ** 2 / (2 * size)
    return first + second, joined


@dataclass(frozen=True)
class Power(KnownTransform):
    """x -> x^p; the identity at p = 1.

    Args:
        p (float): exponent, not 0.

    >>> import torch
    >>> from torchrankmetrics.definitions import Power
    >>> Power(-1)(torch.tensor([1.0, 2.0, 4.0]))
    tensor([1.0000, 0.5000, 0.2500])
    """

    p: float
    smooth = True
    inverse_error = 0.0, 0.0

    def __call__(self, x: Tensor) -> Tensor:
        if self.p == 1:
            return x
        return x.reciprocal() if self.p == -1 else x.pow(self.p)

    def __post_init__(self) -> None:
        vars(self).update(
            exponent=float(self.p), direction=int(np.sign(self.p)), closed_moments=abs(self.p) == 1
        )

    def inverse(self, value: float, low: float, high: float) -> float:
        return float(value ** (1 / self.p))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        x = N.astype(np.float64)
        if self.p == 1:
            return (x + 1) / 2, (x - 1) * (x + 1) / 12
        if self.p == -1:
            mean = (digamma(x + 1) + np.euler_gamma) / x
            second = (np.pi**2 / 6 - zeta(2, x + 1)) / x
            return np.where(N == 1, 1.0, mean), np.where(N == 1, 0.0, second - mean**2)
        return super().null_moments(N)

    def block_means(
        self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None
    ) -> FloatArray:
        return np.asarray((low + high) / 2.0) if self.p == 1 else super().block_means(low, high)


@dataclass(frozen=True)
class Log(KnownTransform):
    """x -> log x (natural).

    >>> import torch
    >>> from torchrankmetrics.definitions import Log
    >>> Log()(torch.tensor([1.0, 2.0]))
    tensor([0.0000, 0.6931])
    """

    smooth = True

    def __call__(self, x: Tensor) -> Tensor:
        return x.log()


@dataclass(frozen=True)
class Exponential(KnownTransform):
    """x -> exp(sign x).

    Args:
        sign (int, default 1): 1 or -1.

    >>> import torch
    >>> from torchrankmetrics.definitions import Exponential
    >>> Exponential(-1)(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.3679])
    """

    sign: Literal[1, -1] = 1
    inverse_error = 1e-14, 0.0  # a relative error of a value is an absolute one of its logarithm

    def __post_init__(self) -> None:
        vars(self).update(direction=self.sign)

    def __call__(self, x: Tensor) -> Tensor:
        return (self.sign * x).exp()

    def inverse(self, value: float, low: float, high: float) -> float:
        return float(self.sign * math.log(value))


@dataclass(frozen=True)
class AtMost(KnownTransform):
    """r -> 1 if r <= k else 0.

    Args:
        k (int): number of first places that count.

    >>> import torch
    >>> from torchrankmetrics.definitions import AtMost
    >>> AtMost(2)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([1., 1., 0.])
    """

    k: int
    is_share = True
    closed_moments = True

    def __call__(self, x: Tensor) -> Tensor:
        return (x <= self.k).to(x.dtype)

    def jumps(self, num_ranks: int) -> IntArray:
        return np.arange(self.k, self.k + 1 if self.k < num_ranks else self.k)

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        hit = np.minimum(self.k, N)
        x = N.astype(np.float64)
        return hit / x, (hit / x) * ((N - hit) / x)

    def block_means(
        self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None
    ) -> FloatArray:
        return np.asarray(np.clip(self.k - low + 1, 0, high - low + 1) / (high - low + 1))


@dataclass(frozen=True)
class WithCandidates(KnownTransform):
    """(r, N) -> function(r, N): a transform of ranks and of numbers of candidates.

    Moments and p-values cost the sum of the distinct N, each tabulated by itself; ``AUC`` has
    closed forms.

    Args:
        function (callable): ranks and candidate counts, float64 tensors of one shape, to a finite
            one of it.
        min_candidates (int, default 1): fewest candidates with which a task has a value; others
            have the weight 0.

    >>> from torchrankmetrics import RankDefinition, evaluate
    >>> from torchrankmetrics.definitions import WithCandidates
    >>> share = WithCandidates(lambda r, N: (r - 1) / N)
    >>> evaluate([1, 6], num_candidates=10, metrics=[RankDefinition("share_above", f=share)])
    {'share_above': 0.25}
    """

    function: Callable[[Tensor, Tensor], Tensor]
    min_candidates: int = 1
    uses_candidates = closed_moments = True
    has_limit = False

    def __call__(self, x: Tensor, num_candidates: Tensor) -> Tensor:
        return self.function(x, num_candidates)

    def at(self, num_candidates: int) -> KnownTransform:
        """The transform of ranks for one number of candidates."""
        return Custom(lambda x: self.function(x, torch.full_like(x, num_candidates)))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        check_evaluations(self, N)
        moments = [self.at(n).null_moments(N[i : i + 1]) for i, n in enumerate(N.tolist())]
        mean, variance = np.concatenate(moments, axis=1)
        return mean, variance

    def block_means(
        self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None
    ) -> FloatArray:
        assert num_candidates is not None
        means = np.empty(len(low))
        check_evaluations(self, distinct := np.unique(num_candidates))
        for n in distinct.tolist():
            part = num_candidates == n
            means[part] = self.at(n).block_means(low[part], high[part])
        return means


class _ShareBelow(WithCandidates):
    """(r, N) -> (N - r) / (N - 1), a straight line in r."""

    smooth = True

    def by_rank(self, num_candidates: IntArray) -> tuple[KnownTransform, FloatArray]:
        return IDENTITY, -1 / np.maximum(num_candidates - 1.0, 1.0)

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        x = N.astype(np.float64)
        return np.full(len(N), 0.5), np.where(N == 1, 0.0, (x + 1) / (12 * np.maximum(x - 1, 1)))

    def block_means(
        self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None
    ) -> FloatArray:
        return apply_transform(self, (low + high) / 2.0, num_candidates=num_candidates)


def _share_below(r: Tensor, num_candidates: Tensor) -> Tensor:
    return (num_candidates - r) / (num_candidates - 1).clamp(min=1)


IDENTITY = Power(1)
AUC = _ShareBelow(_share_below, min_candidates=2)
