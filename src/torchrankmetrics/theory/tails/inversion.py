"""P(S >= s) by inverting the moment generating function along a vertical line right of the origin.

P = 1/(2 pi) * integral of exp(K(t) - t s) / t over t = t0 + i y; on a lattice of span d, 1/t becomes
d / (1 - exp(-d t)) and |y| <= pi / d. The saddlepoint K'(t0) = s makes the integrand a bump with no cancellation
(Daniels 1954, doi:10.1214/aoms/1177728652), and the trapezoidal rule converges geometrically on it.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.tails.laws import ComplexArray, Line, SumLaw

_BLOCK = 256
_NEGLIGIBLE = 1e-8  # what is left out, should the integrand fall like a power
_AGREEMENT = 1e-8
_LEVELS = 6
_MOST_NODES = 1 << 16


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


def log_upper_tail(law: SumLaw, s: float) -> float:
    """Log P(S >= s) for s between the mean and the top of S; on a lattice s must be one of its points.

    An atom at s without a known lattice counts half: pass an s that lies just below it.
    """
    t0 = _away_from_pole(law, s)
    width = math.sqrt(law.cumulants(t0)[1])
    spread = t0 * width
    period = math.inf if law.span is None else 2 * math.pi / law.span
    step = 2 * math.pi / (width * (16 + 36 / spread)) if width > 0 else math.inf
    if math.isfinite(period):
        step = period / (2 * max(16, math.ceil(period / (2 * step))))
    top = _log_size(law, t0, s)
    cut = step * _MOST_NODES
    total = step * _sum_along(law, s, t0, step, 0.0, top, cut)
    for _ in range(_LEVELS):
        finer = (total + step * _sum_along(law, s, t0, step, step / 2, top, cut)) / 2
        step, change, total = step / 2, abs(finer - total), finer
        if change <= _AGREEMENT * abs(total):
            break
    return min(0.0, top + math.log(total / math.pi))


def _away_from_pole(law: SumLaw, s: float) -> float:
    """The saddlepoint; where it is near the pole at 0, a point further right whose integrand is hardly larger."""
    t0 = saddlepoint(law, s)
    further = 1 / math.sqrt(law.cumulants(0.0)[1])
    least = _log_size(law, t0, s)
    while further > t0 and _log_size(law, further, s) > least + 1:
        further /= 2
    return max(t0, further)


def _log_size(law: SumLaw, t0: float, s: float) -> float:
    """K(t0) - t0 s."""
    return float(law.line(t0, 0.0, 1)(0.0)[0].real) - t0 * s


def _sum_along(law: SumLaw, s: float, t0: float, step: float, offset: float, top: float, cut: float) -> float:
    """Sum of the integrand over y = offset + step j >= 0, the ends of the half line counted half."""
    end = math.inf if law.span is None else math.pi / law.span
    size = _BLOCK if math.isinf(end) else min(_BLOCK, int(end / step) + 1)
    line = law.line(t0, step, size)
    total, y0 = 0.0, offset
    while y0 < min(end + step / 4, cut):
        y = y0 + step * np.arange(size)
        value = _integrand(law, line, s, t0 + 1j * y, top) * _taper(y / cut)
        weight = np.where(y > end + step / 4, 0.0, np.where((y == 0) | (np.abs(y - end) < step / 4), 0.5, 1.0))
        total += float((weight * value.real).sum())
        y0 += step * size
        if np.abs(value).max() * y0 < _NEGLIGIBLE * step * abs(total):
            break
    return total


def _integrand(law: SumLaw, line: Line, s: float, t: npt.NDArray[Any], top: float) -> ComplexArray:
    pole: npt.NDArray[Any] = t if law.span is None else -np.expm1(-law.span * t) / law.span
    value: ComplexArray = np.exp(line(float(t[0].imag)) - t * s - top) / pole
    return value


def _taper(x: npt.NDArray[Any]) -> FloatArray:
    """1 up to one half, then down to 0 at 1: an integrand that does not decay tells of atoms too fine to matter."""
    result: FloatArray = np.where(x < 0.5, 1.0, np.cos(np.pi * np.clip(x - 0.5, 0, 0.5)) ** 2)
    return result
