"""P(S >= s) by inverting the moment generating function along a vertical line right of the origin.

P = 1/(2 pi) * integral of exp(K(t) - t s) / t over t = t0 + i y; on a lattice of span d, 1/t becomes
d / (1 - exp(-d t)) and |y| <= pi / d. The saddlepoint K'(t0) = s makes the integrand a bump with no cancellation
(Daniels 1954, doi:10.1214/aoms/1177728652), and the trapezoidal rule converges geometrically on it.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy.optimize import brentq

from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.tails.laws import ComplexArray, SumLaw

_BLOCK = 64
_SHORT = 1024  # nodes of a line
_NEGLIGIBLE = 1e-8  # what may be left out at its far end while it is short
_SMALL = 1e-5  # the same for a longer line, as few tasks make it
_WHOLE = 4096  # nodes up to which a line is followed to its end where the integrand may rise again
_AGREEMENT = 1e-7  # of two steps of integration, one half the other
_LEAST_AGREEMENT = 1e-3  # without which there is no answer
_LEVELS = 6  # times that the step is halved
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


def log_tail_by_inversion(law: SumLaw, s: float) -> float:
    """Log P(S >= s) for s between the mean and the top of S; on a lattice s must be one of its points.

    An atom at s without a known lattice counts half: pass an s that lies just below it.

    Raises:
        ArithmeticError: if the integral does not converge; no case is known.
    """
    t0 = _away_from_pole(law, s)
    width = math.sqrt(law.cumulants(t0)[1])
    spread = t0 * width
    period = math.inf if law.span is None else 2 * math.pi / law.span
    step = 2 * math.pi / (width * (16 + 36 / spread)) if width > 0 else math.inf
    if math.isfinite(period):
        step = period / (2 * max(16, math.ceil(period / (2 * step))))
    integrand = _Integrand(law, s, t0, period / 2, step * _MOST_NODES)
    total, end = _sum_along(integrand, step, 0.0)
    total *= step
    for _ in range(_LEVELS):
        finer = (total + step * _sum_along(integrand, step, step / 2, end)[0]) / 2
        step, change, total = step / 2, abs(finer - total), finer
        if change <= _AGREEMENT * total:
            break
    if not change <= _LEAST_AGREEMENT * total:
        raise ArithmeticError(
            f"P(S >= {s!r}) could not be inverted: steps of integration do not agree, {change=}, {total=}"
        )
    return min(0.0, integrand.top + math.log(total / math.pi))


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


class _Integrand:
    """exp(K(t) - t s - top) / t along t = t0 + i y, or with its lattice factor; ``top`` keeps it of order 1 / t0.

    It ends at half the period of a lattice, and before it at ``cut``, towards which it is tapered: one that has not
    decayed by then tells of atoms too fine to matter.
    """

    def __init__(self, law: SumLaw, s: float, t0: float, half_period: float, cut: float) -> None:
        self._law, self._s, self._t0 = law, s, t0
        self._half_period, self._cut = half_period, cut
        self.end = min(half_period, cut)
        self.decays = law.decays
        self.top = _log_size(law, t0, s)

    def blocks(self, step: float, offset: float) -> Iterator[tuple[FloatArray, ComplexArray]]:
        """Yield the grid offset + step j, block by block, and the integrand there, its ends counted half."""
        line = self._law.line(self._t0, step, _BLOCK)
        while True:
            y: FloatArray = offset + step * np.arange(_BLOCK, dtype=np.float64)
            t = self._t0 + 1j * y
            pole = t if self._law.span is None else -np.expm1(-self._law.span * t) / self._law.span
            value: ComplexArray = np.exp(line(offset) - t * self._s - self.top) / pole
            value[(y == 0) | (np.abs(y - self._half_period) < step / 4)] *= 0.5
            if self._cut < self._half_period:
                value *= np.cos(np.pi * np.clip(y / self._cut - 0.5, 0, 0.5)) ** 2
            yield y, value
            offset += step * _BLOCK


def _sum_along(integrand: _Integrand, step: float, offset: float, end: float | None = None) -> tuple[float, float]:
    """Sum of the integrand over the grid y = offset + step j <= end; without an end, to where it is negligible."""
    last = integrand.end if end is None else end
    whole = end is not None or (last <= _WHOLE * step and not integrand.decays)
    total = 0.0
    for y, value in integrand.blocks(step, offset):
        total += float(value.real[y < last + step / 4].sum())
        reached = float(y[-1]) + step
        if reached > last + step / 4:
            break
        left_out = float(np.abs(value).max()) * reached / step  # at most, should the integrand fall like a power
        if not whole and left_out < (_NEGLIGIBLE if reached < _SHORT * step else _SMALL) * abs(total):
            return total, reached - step / 2
    return total, last
