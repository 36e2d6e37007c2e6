"""Transforms of ranks with closed forms: powers, logarithm, hits, shares of candidates, user-defined f(r, N)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from scipy.special import digamma, polygamma
from torch import Tensor

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import Custom, KnownTransform, apply_transform, check_evaluations


@dataclass(frozen=True)
class Power(KnownTransform):
    """x -> x^p; the identity at p = 1.

    Args:
        p (float): exponent, not 0.

    >>> Power(-1)(torch.tensor([4.0], dtype=torch.float64)).item()
    0.25
    """

    p: float
    smooth = True
    inverse_error = 0.0, 0.0

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        if self.p == 1:
            return x
        return x.reciprocal() if self.p == -1 else x.pow(self.p)

    @cached_property
    def exponent(self) -> float:  # type: ignore[override]
        return float(self.p)

    @cached_property
    def direction(self) -> int:  # type: ignore[override]
        return (self.p > 0) - (self.p < 0)

    @cached_property
    def closed_moments(self) -> bool:  # type: ignore[override]
        return abs(self.p) == 1

    def inverse(self, value: float, low: float, high: float) -> float:
        return float(value ** (1 / self.p))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of r^p for r uniform on 1..N; closed forms for p = 1 and p = -1."""
        x = N.astype(np.float64)
        if self.p == 1:
            return (x + 1) / 2, (x - 1) * (x + 1) / 12
        if self.p == -1:
            mean = (digamma(x + 1) + np.euler_gamma) / x
            second = (np.pi**2 / 6 - polygamma(1, x + 1)) / x
            return np.where(N == 1, 1.0, mean), np.where(N == 1, 0.0, second - mean**2)
        return super().null_moments(N)

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
        return np.asarray((low + high) / 2.0) if self.p == 1 else super().block_means(low, high)


@dataclass(frozen=True)
class Log(KnownTransform):
    """x -> log x (natural).

    >>> Log()(torch.ones(1, dtype=torch.float64)).item()
    0.0
    """

    smooth = True

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        return x.log()


@dataclass(frozen=True)
class Exponential(KnownTransform):
    """x -> exp(sign x).

    Args:
        sign (int, default 1): 1 or -1.

    >>> Exponential(-1)(torch.zeros(1, dtype=torch.float64)).item()
    1.0
    """

    sign: Literal[1, -1] = 1
    inverse_error = 1e-14, 0.0  # a relative error of a value is an absolute one of its logarithm

    @cached_property
    def direction(self) -> int:  # type: ignore[override]
        return self.sign

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        return (self.sign * x).exp()

    def inverse(self, value: float, low: float, high: float) -> float:
        return float(self.sign * math.log(value))


@dataclass(frozen=True)
class AtMost(KnownTransform):
    """r -> 1 if r <= k else 0.

    Args:
        k (int): number of first places that count.

    >>> AtMost(2)(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).tolist()
    [1.0, 1.0, 0.0]
    """

    k: int
    is_share = True
    closed_moments = True

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        return (x <= self.k).to(x.dtype)

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        hit, x = np.minimum(self.k, N), N.astype(np.float64)
        return hit / x, (hit / x) * ((N - hit) / x)

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
        return np.asarray(np.clip(self.k - low + 1, 0, high - low + 1) / (high - low + 1))


@dataclass(frozen=True)
class WithCandidates(KnownTransform):
    """(r, N) -> function(r, N): a transform of ranks that depends on the number of candidates of the task too.

    Moments and p-values cost the sum of the distinct N, each tabulated by itself; ``AUC`` has closed forms.

    Args:
        function (callable): ranks and candidate counts, float64 tensors of one shape, in; a finite float64 tensor of it
            out.
        min_candidates (int, default 1): the fewest candidates with which a task has a value; tasks with fewer are left
            out, from the metric and from its expectation, as if their weight were zero.

    >>> from torchrankmetrics.definitions.tasks import RankDefinition
    >>> top = WithCandidates(lambda r, n: (r <= 0.01 * n).double(), min_candidates=100)
    >>> RankDefinition("top_percent", f=top).optimum
    1.0
    """

    function: Callable[[Tensor, Tensor], Tensor]
    min_candidates: int = 1
    uses_candidates = True
    closed_moments = True
    has_limit = False

    def __call__(self, x: Tensor, num_candidates: Tensor) -> Tensor:
        """Apply elementwise."""
        return self.function(x, num_candidates)

    def at(self, num_candidates: int) -> KnownTransform:
        """The transform of ranks for one number of candidates."""
        return Custom(lambda x: self.function(x, torch.full_like(x, num_candidates)))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        check_evaluations(self, N)
        moments = [self.at(n).null_moments(N[i : i + 1]) for i, n in enumerate(N.tolist())]
        mean, variance = np.concatenate(moments, axis=1)
        return mean, variance

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
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

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        """The moments of r, scaled."""
        x = N.astype(np.float64)
        return np.full(len(N), 0.5), np.where(N == 1, 0.0, (x + 1) / (12 * np.maximum(x - 1, 1)))

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
        return apply_transform(self, (low + high) / 2.0, num_candidates=num_candidates)


def _share_below(r: Tensor, num_candidates: Tensor) -> Tensor:
    return (num_candidates - r) / (num_candidates - 1).clamp(min=1)


IDENTITY = Power(1)
AUC = _ShareBelow(_share_below, min_candidates=2)
