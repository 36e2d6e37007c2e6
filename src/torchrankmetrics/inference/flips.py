"""Sign-flip tests of paired differences, the intervals that invert them, and max-T."""

import math
import sys

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import norm

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import (
    Transform,
    apply_transform,
    as_transform,
    transform_slopes,
)
from torchrankmetrics.inference.standard_errors import Units

ROUNDING = 1e-12  # of a confidence level: p = 1 - level is rejected, whatever its rounding
_TAIL = 1 / (4 * float(norm.sf(math.sqrt(2))))  # 3.18, see SignFlips.p_value


class SignFlips:
    """Sums of k columns (u, k) of independent tasks or clusters under flips of their signs, (b, k).

    Flips do not change the sum of squares, so that Student's t orders them as the sum does (Janssen
    1997). If there are more flips than ``permutations``, random ones from a subgroup are used
    (doi:10.1093/biomet/asad050): flip h changes the sign of unit i, with a random number x_i, if h
    and x_i have an odd number of common bits. A fast Walsh-Hadamard transform computes all sums at
    once. Units with zero in the first column have other random numbers, so that its p-value is the
    same without them.
    """

    def __init__(self, columns: FloatArray, permutations: int = 9999, seed: int = 0) -> None:
        self.observed = columns.sum(0)
        self.size = np.abs(columns).sum(0)  # the scale of rounding
        self.number = len(columns)
        self.squares = columns.T @ columns
        least = (permutations + 1).bit_length()  # units with more flips than permutations
        moved = (columns[:, 0] != 0) | (len(columns) < least)
        number = int(moved.sum())
        self.exhaustive = number < least
        flips = 1 << (number if self.exhaustive and moved.all() else permutations.bit_length())
        rng = np.random.default_rng(seed)
        unit = np.empty(len(columns), dtype=np.int64)
        unit[moved] = 1 << np.arange(number) if self.exhaustive else _spread(number, flips, rng)
        unit[~moved] = _spread(len(columns) - number, flips, np.random.default_rng([seed, 1]))
        sums = np.stack(
            [np.bincount(unit, column, minlength=flips) for column in columns.T], 1
        ).astype(np.float64)
        half = 1
        while half < flips:
            even, odd = np.moveaxis(sums.reshape(-1, 2, half, columns.shape[1]), 1, 0)
            sums = np.stack([even + odd, even - odd], 1)
            half *= 2
        sums = sums.reshape(flips, -1)
        # the first flip changes nothing
        self.sums = sums if self.exhaustive else sums[1 + rng.permutation(flips - 1)[:permutations]]

    def p_value(self, line: FloatArray) -> float:
        """Two-sided p-value in (0, 1] of a zero mean of columns @ line; line is (k,) float64.

        Below the smallest p-value of random flips, 1 / (number + 1), it is the upper bound of
        Bentkus and Dzindzalieta 2015 (doi:10.3150/14-BEJ603): a sum of terms with random signs is
        at most 3.18 times as often beyond t standard deviations as a normal variable.
        """
        total = abs(float(self.observed @ line))
        # a flip with the observed sum counts, whatever the rounding
        bar = total - 1e-12 * float(self.size @ np.abs(line))
        p_value = self.share(np.abs(self.sums @ line) >= bar)
        if self.exhaustive or p_value > 1.5 / (1 + len(self.sums)):
            return p_value
        square = max(float(line @ self.squares @ line), total**2 / self.number)
        bound = 2 * _TAIL * float(norm.sf(total / math.sqrt(square)))
        return min(p_value, max(bound, sys.float_info.min))

    def share(self, reached: npt.NDArray[np.bool_]) -> float:
        """Share of the flips (b,) that reach the observed sum, which counts as a flip that does."""
        sampled = not self.exhaustive
        return float((sampled + reached.sum()) / (sampled + len(reached)))

    def furthest(self, line: FloatArray, move: float, alpha: float) -> float:
        """Largest t >= 0 with p above alpha for a zero mean of columns @ line + t move weight."""
        # the last column contains the weights (> 0), and columns @ line sums to zero: the observed
        # sum grows with t only, and each flip reaches it up to its own t
        total = float(self.observed[-1])
        sums = np.sign(move) * (self.sums @ line)
        apart = abs(move) * (total - self.sums[:, -1])
        along = abs(move) * (total + self.sums[:, -1])
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.maximum(sums / apart, -sums / along)
        # no flip, or all flips: reached by any t
        until[np.minimum(apart, along) <= 1e-12 * abs(move) * total] = np.inf
        number = len(until)
        rank = (
            math.floor(alpha * number) + 1 if self.exhaustive else math.floor(alpha * (number + 1))
        )
        return max(float(np.partition(until, number - rank)[number - rank]), 0.0)


def _spread(units: int, size: int, rng: np.random.Generator) -> IntArray:
    """Draw random numbers below ``size`` for units, as different as possible."""
    return rng.permutation(max(units, size))[:units] % size


class SignFlipTest:
    """Sign-flip test of g(mean of A) - g(mean of B), with the interval that inverts it.

    A difference is tested at the means (a, b) = (A - t, B + t) that have it, by flips of the signs
    of g'(a) (f^A - a) - g'(b) (f^B - b), which are linear in sums of ``units`` (k = 2) that are
    flipped once. ``limits`` are those of the mean of f, and ``flips`` their number and the seed.
    """

    def __init__(
        self, units: Units, g: Transform, limits: tuple[float, float], *flips: int
    ) -> None:
        self.g = g
        self.limits = limits
        self._straight = as_transform(g).is_identity
        self.means = float(units.mean[0]), float(units.mean[1])
        centered = units.sums[:, 1] - units.weight * units.mean[1]
        terms = np.stack([units.difference, centered, units.weight], 1)
        columns = np.repeat(terms, units.count, axis=0)
        self.flips = SignFlips(columns, *flips)
        self.effective_tasks = units.effective_tasks(units.influence @ self._slopes(*self.means))

    def difference(self, level: float) -> tuple[float, float, float, bool]:
        """Ends of the interval, p-value of no difference, and whether the ends are bounded."""
        p_value = self.flips.p_value(np.eye(3)[0])
        alpha = 1 - level + ROUNDING
        (one, first), (other, second) = (
            self._end(direction, alpha, p_value <= alpha) for direction in (1.0, -1.0)
        )
        low = min(one, other)
        high = max(one, other)
        if p_value > alpha:  # an end may be 0 up to rounding
            slack = 1e-12 * (high - low) if high - low < math.inf else 0.0
            low = low if low < -slack else 0.0
            high = high if high > slack else 0.0
        return low, high, p_value, first & second

    def p_value(self, null: float) -> float:
        """Two-sided p-value of the difference ``null``, or of the nearest possible one."""
        t = (self.means[0] - self.means[1] - null) / 2
        if not self._straight:
            reach = self.limits[1] - self.limits[0]
            first, last = (self._at(end) - null for end in (-reach, reach))
            t = math.copysign(reach, abs(first) - abs(last))  # of a difference that is not possible
            if first * last <= 0:
                t = float(
                    brentq(lambda t: self._at(t) - null, -reach, reach, xtol=1e-300, rtol=1e-14)
                )
        slopes = self._slopes(*self._pair(t))
        moved = t * float(slopes[0] - slopes[1]) - slopes[0] * (self.means[0] - self.means[1])
        return self.flips.p_value(np.array([slopes[0], slopes.sum(), moved]))

    def _end(self, direction: float, alpha: float, differs: bool) -> tuple[float, bool]:
        """Value of g(a) - g(b) furthest from the observed one that is not rejected; if bounded."""

        # distance by which the end is beyond t, with the slopes at t
        def beyond(t: float) -> float:
            slopes = self._slopes(*self._pair(direction * t))
            # the mean of g'(a) (f^A - a) - g'(b) (f^B - b), without t
            line = np.array([slopes[0], slopes.sum(), -slopes[0] * (self.means[0] - self.means[1])])
            return self.flips.furthest(line, direction * float(slopes[0] - slopes[1]), alpha) - t

        t = beyond(0.0)
        if self._straight:
            low, high = self.limits
            end = self.means[0] - self.means[1] - 2 * direction * t
            return min(max(end, low - high), high - low), t < math.inf
        equal = direction * (self.means[0] - self.means[1]) / 2
        # beyond 0, where slopes of g become large, a test of few tasks may not reject again
        if differs and equal > 0:
            t = float(brentq(lambda t: min(beyond(t), equal), 0.0, equal, xtol=1e-300, rtol=1e-11))
        elif 0 < t < math.inf:
            inside = 0.0
            gap = beyond(t)
            while 0 < gap < math.inf:
                inside = t
                t = 2 * t
                gap = beyond(t)
            t = math.inf if gap > 0 else float(brentq(beyond, inside, t, xtol=1e-300, rtol=1e-11))
        return self._at(direction * t), t < math.inf

    def _slopes(self, a: float, b: float) -> FloatArray:
        """Slopes of g(a) - g(b) in a and in b, (2,) float64."""
        return np.array([1.0, -1.0]) * transform_slopes(self.g, np.array([a, b]))

    def _pair(self, t: float) -> tuple[float, float]:
        (a, b) = self.means
        (low, high) = self.limits
        return min(max(a - t, low), high), min(max(b + t, low), high)

    def _at(self, t: float) -> float:
        ga, gb = apply_transform(self.g, np.array(self._pair(t)), "g").tolist()
        return float(ga - gb)


def max_t_p_values(
    columns: FloatArray, lines: FloatArray, permutations: int = 9999, seed: int = 0
) -> FloatArray:
    """Adjust the sign-flip tests of several mean differences by step-down max-T.

    The method is doi:10.1198/016214504000000539.

    The differences are ``columns`` (u, k) @ ``lines`` (k, m). All differences of a unit change sign
    together, so that the flips contain their dependence. A difference that is zero on every task
    has p = 1.
    """
    flips = SignFlips(columns, permutations, seed)
    each = columns @ lines
    # differences up to rounding are zero
    each[np.abs(each) <= 1e-13 * (np.abs(columns) @ np.abs(lines))] = 0.0
    norm = np.sqrt((each**2).sum(0))
    norm[norm == 0] = np.inf  # statistics are 0
    observed = np.abs(each.sum(0)) / norm
    statistics = np.abs(flips.sums @ lines) / norm
    # a flip with the observed sum counts, whatever the rounding
    bar = observed - 1e-12 * (flips.size @ np.abs(lines)) / norm
    order = np.argsort(-observed, kind="stable")
    largest = np.zeros(len(statistics))
    adjusted = np.ones(len(observed))
    for j in order[::-1]:  # against the largest of itself and of less significant ones
        np.maximum(largest, statistics[:, j], out=largest)
        adjusted[j] = flips.share(largest >= bar[j])
    adjusted[order] = np.maximum.accumulate(adjusted[order])
    return adjusted
