"""Confidence sequences: anytime-valid bounds of the mean of a finite population from a part of it.

Units are drawn without replacement, each with the odds of its size among those that are left, and the mean
of the values is weighted by size. The derivations are in docs/mathematics.md, "Sequential evaluation".
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray

# fractions of the capital that are bet in parallel: one of them is nearly optimal for any detectable difference
FRACTIONS = 0.9 * 0.5 ** np.arange(8.0)
_ZERO = 1e-9  # tolerance for rounded sums
_STEPS = 24


@dataclass(frozen=True, eq=False)
class Drawn:
    """The units drawn so far, in their order.

    Args:
        values: (t,) float64 in [0, 1], the mean of each unit.
        sizes: (t,) float64 > 0, its weight in the mean of all, and the odds with which it is drawn.
        total: of the sizes of all units of the population.
    """

    values: FloatArray
    sizes: FloatArray
    total: float

    @cached_property
    def seen(self) -> FloatArray:
        """(t + 1,) sums of size times value before each draw and after the last."""
        return np.concatenate([np.zeros(1), np.cumsum(self.sizes * self.values)])

    @cached_property
    def left(self) -> FloatArray:
        """(t + 1,) sizes that are left before each draw and after the last."""
        left: FloatArray = self.total - np.concatenate([np.zeros(1), np.cumsum(self.sizes)])
        return left

    @property
    def certain(self) -> tuple[float, float]:
        """Bounds of the mean for any values of the units not drawn, widened by rounding errors."""
        seen, left = float(self.seen[-1]), float(self.left[-1])
        return max(0.0, seen / self.total - _ZERO), min(1.0, (seen + left) / self.total + _ZERO)

    @property
    def estimate(self) -> float:
        """Mean of Des Raj's unbiased estimates, one per draw, weighted by precision; NaN before the first draw.

        Source: Des Raj 1956 (doi:10.1080/01621459.1956.10501326).
        """
        if not len(self.values):
            return math.nan
        each = (self.seen[:-1] + self.values * self.left[:-1]) / self.total
        precision = (self.total / self.left[:-1]) ** 2
        return float((precision * each).sum() / precision.sum())


def log_capital(drawn: Drawn, mean: float, *, above: bool) -> FloatArray:
    """Logarithm of the capital after each draw of a bet against "the mean is ``mean``", starting with capital 1.

    The bet is that the mean is above (or below) it. If it is not, the capital ever reaches 1 / alpha with probability
    at most alpha. The capital never increases (decreases) in ``mean``.

    Source: Waudby-Smith and Ramdas 2024 (arXiv 2010.09686) for draws without replacement of equal sizes; Shekhar et al.
    2023 (arXiv 2305.06884) for draws in proportion to a size.
    """
    values, seen, left = drawn.values, drawn.seen[:-1], drawn.left[:-1]
    if not above:  # the complement
        values, seen, mean = 1 - values, drawn.total - drawn.left[:-1] - seen, 1 - mean
    expected = (drawn.total * mean - seen) / left  # of the next value, if the mean is that
    gain = values / np.maximum(expected, _ZERO) - 1
    logs = np.log1p(FRACTIONS[:, None] * gain).cumsum(axis=1)
    capital: FloatArray = np.logaddexp.reduce(logs, axis=0) - math.log(len(FRACTIONS))
    capital[np.logical_or.accumulate(expected < -_ZERO)] = np.inf  # more was seen than this mean allows
    return capital


def side_of(drawn: Drawn, mean: float, alpha: float) -> int:
    """Return 1 if the mean of all is above ``mean``, -1 if it is below, 0 while undecided.

    With a test after each draw, the answer is wrong with probability at most alpha; if the mean of all is ``mean``
    itself, every answer except 0 is wrong.
    """
    if not 0 <= mean <= 1 or not len(drawn.values):
        return int(mean < 0) - int(mean > 1)
    bar = math.log(2 / alpha)
    refuted = [log_capital(drawn, mean, above=above) >= bar for above in (True, False)]
    first = [int(at.argmax()) if at.any() else len(at) for at in refuted]
    if first[0] != first[1]:
        return 1 if first[0] < first[1] else -1
    low, high = drawn.certain
    return int(low > mean) - int(high < mean)


def betting_interval(drawn: Drawn, alpha: float) -> tuple[float, float]:
    """Return the means that no bet has refuted at any draw so far: an anytime-valid interval of level 1 - alpha."""
    low, high = drawn.certain
    if not len(drawn.values):
        return low, high
    bar = math.log(2 / alpha)
    ends = []
    for above in (True, False):
        out, inside = (low, high) if above else (high, low)
        for _ in range(_STEPS):
            middle = (out + inside) / 2
            refuted = log_capital(drawn, middle, above=above).max() >= bar
            out, inside = (middle, inside) if refuted else (out, middle)
        ends.append(out)  # refuted, or the end of what is possible
    return min(ends), max(ends)
