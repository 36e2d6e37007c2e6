"""Permutation tests, corrections for several comparisons, and equivalence tests."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SignFlips:
    """Sums of k columns under the flips of a sign-flip test, which can test any combination of the columns.

    Attributes:
        sums: (b, k) float64, one row per flip.
        observed: (k,) float64, the sums without flips.
        size: (k,) float64, sums of absolute values, the scale of rounding.
        exhaustive: whether the flips are all that change the first column, instead of random ones.
    """

    sums: FloatArray
    observed: FloatArray
    size: FloatArray
    exhaustive: bool

    def p_value(self, line: FloatArray) -> float:
        """Two-sided p-value in (0, 1] of a zero mean of columns @ line; line is (k,) float64."""
        # a flip with the observed sum counts, whatever the rounding
        bar = abs(float(self.observed @ line)) - 1e-12 * float(self.size @ np.abs(line))
        return self.share(np.abs(self.sums @ line) >= bar)

    def share(self, reached: npt.NDArray[np.bool_]) -> float:
        """Share of the flips (b,) that reach the observed sum, which counts as a flip that does."""
        sampled = not self.exhaustive
        return float((sampled + reached.sum()) / (sampled + len(reached)))

    def furthest(self, line: FloatArray, move: float, alpha: float) -> float:
        """Largest t >= 0 with p above alpha for a zero mean of columns @ line + t move weight.

        The last column contains the weights (> 0), and columns @ line sums to zero: the observed sum grows with t only.
        Each flip reaches it up to its own t, so the result is one of these, or infinity.
        """
        total, sums = float(self.observed[-1]), np.sign(move) * (self.sums @ line)
        apart, along = abs(move) * (total - self.sums[:, -1]), abs(move) * (total + self.sums[:, -1])
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.maximum(sums / apart, -sums / along)
        # no flip, or all flips: reached by any t
        until[np.minimum(apart, along) <= 1e-12 * abs(move) * total] = np.inf
        number = len(until)
        rank = math.floor(alpha * number) + 1 if self.exhaustive else math.floor(alpha * (number + 1))
        return max(float(np.partition(until, number - rank)[number - rank]), 0.0)


def sign_flips(columns: FloatArray, permutations: int = 9999, seed: int = 0) -> SignFlips:
    """Flip the signs of units, the same for all columns of a unit.

    d_i = v_i (f(r_i^A) - f(r_i^B)) is the term of task i in the difference of two means of f, and the statistic is
    Student's t. Flips do not change the sum of d^2, and t grows with |sum d| for a fixed sum of d^2. Therefore the
    studentized p-value is computed from sums. All flips are used if their number is at most ``permutations`` + 1; else
    p = (1 + number at least as large) / (1 + permutations). Exact if d is symmetric (models exchangeable on each
    task), else asymptotic.

    Random flips are drawn from a random subgroup: unit i has a random number x_i, and flip h changes the sign of unit i
    if h and x_i have an odd number of common bits. The flips are pairwise independent, so that p has at most the error
    that it has with flips from the whole group, and a fast Walsh-Hadamard transform computes all sums at once.

    Units with zero in the first column do not change its p-value: their numbers are drawn separately, so that the
    p-value is the same without them.

    Args:
        columns: (u, k) float64, one row per independent task, or sums over clusters.
        permutations: number of random flips.
        seed: random seed.

    Source: Janssen 1997 (doi:10.1016/S0167-7152(97)00043-6); Phipson and Smyth 2010 (doi:10.2202/1544-6115.1585);
    Koning and Hemerik 2024 (doi:10.1093/biomet/asad050), for subgroups.

    >>> sign_flips(np.array([[1.0], [2.0], [3.0], [4.0]])).p_value(np.ones(1))
    0.125
    """
    moved = columns[:, 0] != 0
    if _is_small(len(columns), permutations):
        moved[:] = True
    number = int(moved.sum())
    exhaustive = _is_small(number, permutations)
    flips = 1 << (number if exhaustive and moved.all() else permutations.bit_length())
    rng = np.random.default_rng(seed)
    unit = np.empty(len(columns), dtype=np.int64)
    unit[moved] = 1 << np.arange(number) if exhaustive else _spread(number, flips, rng)
    unit[~moved] = _spread(len(columns) - number, flips, np.random.default_rng([seed, 1]))
    sums = np.stack([np.bincount(unit, column, minlength=flips) for column in columns.T], 1).astype(np.float64)
    half = 1
    while half < flips:
        even, odd = np.moveaxis(sums.reshape(-1, 2, half, columns.shape[1]), 1, 0)
        sums = np.stack([even + odd, even - odd], 1)
        half *= 2
    sums = sums.reshape(flips, -1)
    if not exhaustive:  # the first flip changes nothing
        sums = sums[1 + rng.permutation(flips - 1)[:permutations]]
    return SignFlips(sums, columns.sum(0), np.abs(columns).sum(0), exhaustive)


def _is_small(units: int, permutations: int) -> bool:
    return units < 60 and 2**units <= permutations + 1


def _spread(units: int, size: int, rng: np.random.Generator) -> IntArray:
    """Draw random numbers below ``size`` for units, as different as possible."""
    return rng.permutation(max(units, size))[:units] % size


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Adjust p-values for multiple testing by Holm's step-down method, which controls the family-wise error rate.

    All entries of an array are one family; its axes may be metrics, pairs of models and datasets.

    Args:
        p_values (array-like): of any shape, in [0, 1]; NaN is not tested and not counted.

    Returns:
        float64 of the same shape.

    Raises:
        ValueError: if a value is not in [0, 1].

    Source: Holm 1979 (https://www.jstor.org/stable/4615733).

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, dtype=np.float64)
    tested = ~np.isnan(given)
    p = given[tested]
    if (wrong := (p < 0) | (p > 1)).any():
        raise ValueError(f"p_values must be in [0, 1], got {p[wrong][0]}")
    order = np.argsort(p, kind="stable")
    adjusted = given.copy()
    stepped = np.empty_like(p)
    stepped[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    adjusted[tested] = stepped
    return adjusted


def max_t_p_values(columns: FloatArray, lines: FloatArray, permutations: int = 9999, seed: int = 0) -> FloatArray:
    """Adjust the sign-flip tests of several mean differences by step-down max-T.

    All differences of a task or cluster change sign together. Therefore the flips contain the dependence of the tests,
    and the adjustment is smaller than Holm's. The statistic |sum d| / sqrt(sum d^2) orders flips and differences as
    Student's t does. The family-wise error rate is controlled for many tasks, and for few if the vector of differences
    is symmetric.

    Args:
        columns: (u, k) float64, one row per independent task, or sums over clusters.
        lines: (k, m) float64, each difference as a combination of the columns.
        permutations: number of random flips, as in ``sign_flips``.
        seed: random seed.

    Returns:
        (m,) float64 in (0, 1]; 1 for a difference that is zero on every task.

    Source: Westfall and Young 1993 (ISBN 0-471-55761-7); Romano and Wolf 2005 (doi:10.1198/016214504000000539).

    >>> d = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [4.0, 3.0], [0.5, -1.0]])
    >>> max_t_p_values(d, np.eye(2)).tolist()
    [0.0625, 0.1875]
    """
    flips = sign_flips(columns, permutations, seed)
    each = columns @ lines
    # differences up to rounding are zero
    each[np.abs(each) <= 1e-13 * (np.abs(columns) @ np.abs(lines))] = 0.0
    norm = np.sqrt((each**2).sum(0))
    used = norm > 0
    norm = np.where(used, norm, 1.0)
    observed = np.where(used, np.abs(each.sum(0)) / norm, 0.0)
    statistics = np.where(used, np.abs(flips.sums @ lines) / norm, 0.0)
    # a flip with the observed sum counts, whatever the rounding
    bar = np.where(used, observed - 1e-12 * (flips.size @ np.abs(lines)) / norm, 0.0)
    order = np.argsort(-observed, kind="stable")
    largest, adjusted = np.zeros(len(statistics)), np.ones(len(observed))
    for j in order[::-1]:  # against the largest of itself and of less significant ones
        np.maximum(largest, statistics[:, j], out=largest)
        adjusted[j] = flips.share(largest >= bar[j])
    adjusted[order] = np.maximum.accumulate(adjusted[order])
    return adjusted


def one_sided(difference: float, margin: float, at_lower: float, at_upper: float) -> tuple[float, float]:
    """Halve two-sided p-values of the differences -margin and margin, on the side of the observed difference.

    Args:
        difference: observed.
        margin: > 0.
        at_lower: two-sided p-value of the difference -margin.
        at_upper: two-sided p-value of the difference margin.

    Returns:
        p-values of "the difference is -margin or lower" and of "the difference is margin or higher".

    >>> one_sided(0.0, 0.1, 0.04, 0.06)
    (0.02, 0.03)
    """
    below = at_lower / 2 if difference > -margin else 1 - at_lower / 2
    above = at_upper / 2 if difference < margin else 1 - at_upper / 2
    return below, above
