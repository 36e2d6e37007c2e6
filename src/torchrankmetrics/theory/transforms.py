"""Transforms of ranks and of aggregates, written in torch: each knows what has a closed form for it, on NumPy arrays.

A user's function is a ``Custom`` transform: everything works with it, by sums in place of closed forms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.quadrature.adaptive import smooth_sums
from torchrankmetrics.theory.quadrature.panels import TABLED_RANKS, panel_means
from torchrankmetrics.theory.quadrature.prefix import panel_ratio, prefix_rule

Transform = Callable[[Tensor], Tensor]
_BLOCK = 1 << 14


class KnownTransform:
    """What is asked of a transform; the answers here hold for any that is smooth beyond rank 2^16.

    Attributes:
        exponent: p of x -> x^p; NaN for others.
        direction: 1 if it increases for x > 0, -1 if it decreases; 0: to be found out.
        inverse_error: what rounding costs the inverse beside a relative error: absolute, and as a share of the range.
        smooth: monotone, and smooth on panels of ranks that double.
        is_share: its mean is a share of tasks.
        has_limit: its formula holds at infinity too.
        uses_candidates: whether it depends on the number of candidates.
        min_candidates: the fewest candidates with which a task has a value.
        closed_moments: null moments among N candidates do not depend, to the last bit, on what other N are asked for.
    """

    __call__: Callable[..., Tensor]
    exponent: float = math.nan
    direction: int = 0
    inverse_error: ClassVar[tuple[float, float]] = (0.0, 1e-12)
    smooth: ClassVar[bool] = False
    is_share: ClassVar[bool] = False
    has_limit: ClassVar[bool] = True
    uses_candidates: ClassVar[bool] = False
    min_candidates: int = 1
    closed_moments: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether it gives what it gets."""
        return self.exponent == 1

    def at(self, num_candidates: int) -> "KnownTransform":
        """The transform of ranks among so many candidates."""
        return self

    def values(self, x: FloatArray) -> FloatArray:
        """Values (m,) at x (m,), infinities and NaN among them."""
        result: FloatArray = self(torch.from_numpy(x)).to(torch.float64).numpy()
        return result

    def inverse(self, value: float, low: float, high: float) -> float:
        """The x that has this value; where there is no closed form, sought in [low, high]."""
        gaps: Callable[[float], float] = lambda x: float(self.values(np.array([x]))[0]) - value  # noqa: E731
        if gaps(low) * gaps(high) >= 0:
            return low if abs(gaps(low)) < abs(gaps(high)) else high
        return float(brentq(gaps, low, high, xtol=1e-15 * max(abs(low), abs(high)), rtol=1e-14))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance >= 0 of f(r), r uniform on {1..N}: (u,) int64, ascending, in, (u,) float64 each out.

        The variance of a constant is exactly zero.

        Raises:
            ValueError: if f is not finite, or changes the shape.

        Source: Hoyt et al. 2022 (arXiv 2203.07544), appendix, for ranks, reciprocal ranks and hits.
        """
        if not self.smooth:
            return _tabled_moments(self, N)
        rule = prefix_rule(N.tobytes(), panel_ratio(1.0 if math.isnan(self.exponent) else self.exponent))
        values = apply_transform(self, rule.nodes)
        return rule.means(values), rule.variances(values)

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
        """Mean of f over {low..high} for each block: (b,) int64 >= 1 twice or thrice in, (b,) float64 out."""
        if self.smooth:
            return panel_means(lambda rank, _: apply_transform(self, rank), low, high)
        center = float(apply_transform(self, np.ones(1))[0])
        mean: FloatArray = center + _centered_sums(self, center, low, high + 1)[0] / (high - low + 1)
        return mean


@dataclass(frozen=True)
class Custom(KnownTransform):
    """A user's function, of which nothing is known."""

    function: Transform
    has_limit = False

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        return self.function(x)


RankTransform = Transform | KnownTransform


def known(f: RankTransform) -> KnownTransform:
    """The transform with what is known of it."""
    return f if isinstance(f, KnownTransform) else Custom(f)


def apply_transform(
    f: RankTransform, x: FloatArray, name: str = "f", num_candidates: IntArray | None = None
) -> FloatArray:
    """Apply a transform elementwise, in blocks of fixed size: the same bits for any number of threads.

    Args:
        f: a transform.
        x: (m,) float64, ranks or what became of them.
        name: what errors call the transform.
        num_candidates: (m,) int64, for a transform that depends on them; others do not look.

    Returns:
        (m,) float64, finite; ``x`` itself for the identity.

    Raises:
        ValueError: if the transform changes the shape, gives a value that is not finite, or lacks candidate counts.
    """
    f = known(f)
    if f.is_identity:
        return _finite(x, x, name)
    result = np.empty(len(x))
    for begin in range(0, len(x), _BLOCK):
        block = torch.from_numpy(x[begin : begin + _BLOCK])
        if f.uses_candidates:
            if num_candidates is None:
                raise ValueError(f"{name} depends on the number of candidates: num_candidates is needed")
            value = f(block, torch.from_numpy(num_candidates[begin : begin + _BLOCK].astype(np.float64)))
        else:
            value = f(block)
        if value.shape != block.shape:
            raise ValueError(f"{name} must keep the shape of its input, {tuple(block.shape)}; got {tuple(value.shape)}")
        result[begin : begin + _BLOCK] = value.to(torch.float64).numpy()
    return _finite(result, x, name)


def transform_slopes(g: Transform, x: FloatArray) -> FloatArray:
    """Derivative of a transform, elementwise: (m,) float64 in, (m,) float64 out.

    Raises:
        ValueError: if torch cannot differentiate the transform.
    """
    with torch.inference_mode(False), torch.enable_grad():
        point = torch.tensor(x, dtype=torch.float64, device="cpu", requires_grad=True)
        value = g(point)
        if not value.requires_grad:
            raise ValueError(f"g must be made of differentiable torch operations for an error estimate, got {g!r}")
        (slope,) = torch.autograd.grad(value.sum(), point)
    result: FloatArray = slope.numpy()
    return result


def _finite(result: FloatArray, x: FloatArray, name: str) -> FloatArray:
    if not np.isfinite(result).all():
        bad = float(x[~np.isfinite(result)][0])
        raise ValueError(f"{name} must be finite on every rank >= 1; at rank {bad:g} it is not")
    return result


def _tabled_moments(f: KnownTransform, N: IntArray) -> tuple[FloatArray, FloatArray]:
    """Moments of any f: a table of the first ranks, beyond it Gauss panels that are halved until they agree."""
    top = min(int(N[-1]), TABLED_RANKS)
    table = apply_transform(f, np.arange(1, top + 1, dtype=np.float64))
    center = float(table.mean())
    ends = np.append(np.minimum(N, top), top)
    first = np.cumsum(table - center, dtype=np.longdouble)[ends - 1].astype(np.float64)
    second = np.cumsum((table - center) ** 2, dtype=np.longdouble)[ends - 1].astype(np.float64)
    beyond = top < N
    if beyond.any():
        edges = np.r_[top, N[beyond]] + 1
        more = _centered_sums(f, center, edges[:-1], edges[1:])
        first[:-1][beyond] = first[-1] + np.cumsum(more[0])
        second[:-1][beyond] = second[-1] + np.cumsum(more[1])
    shift = first[:-1] / N
    variance = np.maximum(second[:-1] / N - shift**2, 0.0)
    constant = np.array([np.ptp(table[: min(n, top)]) == 0 for n in N])  # zero variance must be exactly zero
    return center + shift, np.where(constant & ~beyond, 0.0, variance)


def _centered_sums(f: KnownTransform, center: float, start: IntArray, stop: IntArray) -> FloatArray:
    """Sums of f - center and of its square over the integers of each run [start, stop): (2, runs)."""

    def centered_powers(x: FloatArray) -> FloatArray:
        value = apply_transform(f, x) - center
        return np.stack([value, value**2])

    return smooth_sums(centered_powers, start, stop)
