"""P(S >= s) by inverting the moment generating function along a vertical line right of the origin.

P = 1/(2 pi) * integral of exp(K(t) - t s) / t over t = t0 + i y; on a lattice of span d, 1/t becomes
d / (1 - exp(-d t)) and |y| <= pi / d. The saddlepoint K'(t0) = s makes the integrand a bump with no cancellation
(Daniels 1954, doi:10.1214/aoms/1177728652), and the trapezoidal rule converges geometrically on it.

A line that must end at |y| = 2 pi / d before the integrand is negligible cannot tell values closer than d apart. There
1/t becomes the transform of the least function above exp(-t0 x) [x >= 0] that such a line can see: the result is a
bound, and right if S is a lattice of span d (Graham and Vaaler 1981, doi:10.1090/S0002-9947-1981-0607121-1).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.null.tails.laws import ComplexArray, SumLaw

_BLOCK = 64
_TERMS = 1 << 16  # exponentials prepared for a block at most
_WATCHED = 1 << 22  # terms that are spent on a line before an integrand counts as gone for good
_MOST_TERMS = 1 << 26
_MOST_NODES = 1 << 20
_NEGLIGIBLE = 1e-12  # integrand on the further half of a line that may end, beside the integral
_ATOMS = 3.0  # times the integrand at its end, beside the whole: mass that may still be in atoms
_ALIAS = 32.0  # -log of what the trapezoidal rule may add


def saddlepoint(law: SumLaw, s: float) -> float:
    """The t0 > 0 with K'(t0) = s, for s between the mean and the top of S; a little above 0 if s is the mean."""
    high = 1 / math.sqrt(law.cumulants(0.0)[1])
    low, limit = 1e-3 * high, 1e15 * high
    if law.cumulants(low)[0] >= s:
        return low
    while law.cumulants(high)[0] < s and high < limit:
        low, high = high, 2 * high
    if law.cumulants(high)[0] <= s:
        return high
    return float(brentq(lambda t: law.cumulants(t)[0] - s, low, high, rtol=1e-6))


def away_from_pole(law: SumLaw, s: float) -> float:
    """The saddlepoint; where it is near the pole at 0, a point further right whose integrand is hardly larger."""
    t0 = saddlepoint(law, s)
    further = 1 / math.sqrt(law.cumulants(0.0)[1])
    least = _log_size(law, t0, s)
    while further > t0 and _log_size(law, further, s) > least + 1:
        further /= 2
    return max(t0, further)


def alias_period(law: SumLaw, s: float, t0: float) -> float:
    """Period that S may be wrapped to: what falls on it from afar weighs less than exp(-32), by Chernoff's bound.

    The trapezoidal rule of step 2 pi / period sums over all S + k period instead of S.
    """
    top = _log_size(law, t0, s)
    unit = max(1 / math.sqrt(law.cumulants(0.0)[1]), t0)
    width = math.sqrt(law.cumulants(t0)[1])
    tilts = [1 / width] if width > 0 else []
    above = below = math.inf
    for tilt in (unit, *tilts):
        for further in (tilt * 2.0**k for k in range(-3, 7)):
            above = min(above, (_log_size(law, t0 + further, s) - top + _ALIAS) / further)
            if further < t0:
                below = min(below, (_log_size(law, t0 - further, s) - top + _ALIAS) / further)
    below = min(below, (_ALIAS - top) / t0)
    return max(min(above, 1.001 * (law.highest - s)), below)  # nothing lies beyond the top


def log_tail_by_inversion(law: SumLaw, s: float, t0: float | None = None, *, below: bool = False) -> float:
    """Log P(S >= s) for s between the mean and the top of S; on a lattice s must be one of its points.

    Where the line is too long to be followed to its end, a bound: from above, or from below on demand.

    Args:
        law: the law of S.
        s: a value.
        t0: where the line stands; None: at the saddlepoint.
        below: whether a bound is to err to the smaller side.
    """
    t0 = away_from_pole(law, s) if t0 is None else t0
    step = 2 * math.pi / alias_period(law, s, t0)
    nodes = math.inf
    if law.span is not None:
        nodes = max(1, math.ceil(math.pi / law.span / step))
        if nodes <= _MOST_NODES:
            step = math.pi / law.span / nodes
    line = _follow(law, s, t0, step, nodes)
    y: FloatArray = step * np.arange(len(line.factor), dtype=np.float64)
    kernel = _kernel(law.span, t0, y)
    kernel[0] /= 2
    if len(y) > nodes:
        kernel[-1] /= 2
    total = step / math.pi * float((line.factor * kernel).real.sum())
    if line.further > 0:
        # what is left may be atoms: all of their mass counts, or as many of all values as the line cannot tell apart
        total += _ATOMS * line.further * (-1 if below else 1)
        kernel = _bound_kernel(t0, step, len(y), below)
        kernel[0] /= 2
        bound = step / math.pi * float((line.factor * kernel).real.sum())
        total = max(total, bound) if below else min(total, bound)
    if total <= 0:
        return -math.inf
    return min(0.0, _log_size(law, t0, s) + math.log(total))


def _kernel(span: float | None, t0: float, y: FloatArray) -> ComplexArray:
    """What the integrand is multiplied by at t = t0 + i y: 1 / t, or its periodic form on a lattice."""
    t = t0 + 1j * y
    return np.asarray(1 / t if span is None else span / -np.expm1(-span * t), dtype=np.complex128)


def _log_size(law: SumLaw, t: float, s: float) -> float:
    """K(t) - t s."""
    return float(law.line(t, 0.0, 1)(0.0)[0].real) - t * s


@dataclass(frozen=True)
class _Followed:
    """The factor exp(K(t) - t s) / exp(K(t0) - t0 s) at t = t0 + i step j, and how large it may be further on."""

    factor: ComplexArray
    further: float = 0.0


def _follow(law: SumLaw, s: float, t0: float, step: float, nodes: float) -> _Followed:
    """Walk up a line: to half the period of a lattice, or until the integrand is gone, or as far as we can."""
    top = _log_size(law, t0, s)
    blocks: list[ComplexArray] = []
    largest: list[tuple[float, float]] = []  # where a block ends, and the largest of the integrand in it
    done, spent, integral, size = 0, 0, 0.0, _BLOCK
    evaluate: Callable[[float], ComplexArray] | None = None
    while True:
        effort = law.effort(t0 + step * (done + size))
        wanted = max(_BLOCK, min(done, _TERMS // max(1, effort)))
        if wanted >= 2 * size:
            size, evaluate = wanted, None
        if evaluate is None:
            evaluate = law.line(t0, step, size)
        y = step * (done + np.arange(size))
        factor: ComplexArray = np.exp(evaluate(step * done) - (t0 + 1j * y) * s - top)
        known = np.isfinite(factor)
        if not known.all():
            factor = factor[: int(np.argmin(known))]
        blocks.append(factor)
        done += len(factor)
        spent += size * effort
        if done > nodes:
            return _Followed(np.concatenate(blocks)[: int(nodes) + 1])
        if len(factor):
            integral += float((factor / (t0 + 1j * y[: len(factor)])).real.sum())
            largest.append((done, float(np.abs(factor).max())))
        left = max((height for end, height in largest if end > done / 2), default=1.0)
        gone = left < _NEGLIGIBLE * step * abs(integral)
        if len(factor) < size and not (gone and law.disperse) and law.take_all():
            return _follow(law, s, t0, step, nodes)
        if len(factor) < size:  # further on K is not at hand
            return _Followed(np.concatenate(blocks), 0.0 if gone and law.disperse else left if law.disperse else 1.0)
        if gone and (law.decays or spent >= _WATCHED):
            return _Followed(np.concatenate(blocks))
        if spent >= _MOST_TERMS or done >= _MOST_NODES:
            return _Followed(np.concatenate(blocks), 0.0 if gone else left)


def _bound_kernel(t0: float, step: float, nodes: int, below: bool) -> ComplexArray:
    """D times the transform of the extremal function for exp(-t0 x) [x >= 0] on |y| < 2 pi / d = nodes * step.

    The function is exact at x = j d. The one from below is less by (sin(pi x / d) / (pi x / d))^2.
    """
    d = 2 * math.pi / (nodes * step)
    share: FloatArray = np.arange(nodes) / nodes
    decay = math.exp(-t0 * d)
    turn = np.exp(-2j * math.pi * share)
    rest = -np.expm1(-t0 * d - 2j * math.pi * share)  # 1 - decay * turn
    values = 1 / rest
    slopes = t0 * d * decay * (1 / -math.expm1(-t0 * d) - turn / rest)
    kernel: ComplexArray = d * ((1 - share) * (values - below) + slopes / (2j * math.pi))
    return kernel
