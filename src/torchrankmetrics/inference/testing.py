"""Permutation tests, corrections for several comparisons, and equivalence tests."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray

_CELLS = 1 << 21


@dataclass(frozen=True, eq=False)
class SignFlips:
    """Sums of k columns under the flips of a sign-flip test: enough to test any combination of the columns.

    Attributes:
        sums: (b, k) float64, one row per flip.
        observed: (k,) float64, the sums without flips.
        size: (k,) float64, sums of absolute values, the scale of rounding.
        exhaustive: whether the flips are all that tell the first column apart, and not drawn at random.
    """

    sums: FloatArray
    observed: FloatArray
    size: FloatArray
    exhaustive: bool

    def p_value(self, line: FloatArray) -> float:
        """Two-sided p-value in (0, 1] of "the mean of columns @ line is zero"; line is (k,) float64."""
        # a flip that gives the observed sum counts whatever the order of summation
        bar = abs(float(self.observed @ line)) - 1e-12 * float(self.size @ np.abs(line))
        reached = int((np.abs(self.sums @ line) >= bar).sum())
        return reached / len(self.sums) if self.exhaustive else (1 + reached) / (1 + len(self.sums))

    def furthest(self, line: FloatArray, move: float, alpha: float) -> float:
        """Largest t >= 0 at which p of "the mean of columns @ line + t move weight is zero" is above alpha.

        The last column are the weights (> 0), and columns @ line sum to zero: what is tested grows as t alone does.
        A flip reaches it up to a t of its own, so the answer is one of these, or infinity.
        """
        total, sums = float(self.observed[-1]), np.sign(move) * (self.sums @ line)
        apart, along = abs(move) * (total - self.sums[:, -1]), abs(move) * (total + self.sums[:, -1])
        with np.errstate(divide="ignore", invalid="ignore"):
            until = np.maximum(sums / apart, -sums / along)
        # no flip, or all at once: reached by any t
        until[np.minimum(apart, along) <= 1e-12 * abs(move) * total] = np.inf
        number = len(until)
        rank = math.floor(alpha * number) + 1 if self.exhaustive else math.floor(alpha * (number + 1))
        return max(float(np.partition(until, number - rank)[number - rank]), 0.0)


def sign_flips(columns: FloatArray, permutations: int = 9999, seed: int = 0) -> SignFlips:
    """Flip the signs of units, the same for all columns of a unit.

    d_i = v_i (f(r_i^A) - f(r_i^B)) is the share of task i in the difference of two means of f, and the statistic is
    Student's t. Flips leave the sum of d^2 as it is, and t grows with |sum d| at fixed sum of d^2, so the order of
    |sum d| is that of |t|, and the studentised p-value is counted from sums. All flips are taken if they are no more
    than ``permutations`` + 1; else p = (1 + number at least as large) / (1 + permutations), never 0. Exact where d is
    symmetric (models exchangeable on each task), else asymptotic, thanks to the studentising.

    Units where the first column is zero do not change its p-value: they are flipped apart, so that it is the same with
    and without them.

    Args:
        columns: (u, k) float64, one row per independent task, or sums over clusters.
        permutations: number of random flips.
        seed: of the random flips.

    Source: Janssen 1997 (doi:10.1016/S0167-7152(97)00043-6); Phipson and Smyth 2010 (doi:10.2202/1544-6115.1585).

    >>> sign_flips(np.array([[1.0], [2.0], [3.0], [4.0]])).p_value(np.ones(1))
    0.125
    """
    moved = columns[:, 0] != 0
    if _affordable(len(columns), permutations):
        moved[:] = True
    first, rest = columns[moved], columns[~moved]
    exhaustive = _affordable(len(first), permutations)
    if exhaustive:
        sums = (1 - 2 * ((np.arange(2 ** len(first))[:, None] >> np.arange(len(first))) & 1)) @ first
    else:
        sums = _random_sums(first, permutations, np.random.default_rng(seed))
    if rest.any():
        if exhaustive:  # every flip of the first part with many of the rest
            sums = np.tile(sums, (-(-(permutations + 1) // len(sums)), 1))
        sums = sums + _random_sums(rest, len(sums), np.random.default_rng([seed, 1]))
    return SignFlips(sums, columns.sum(0), np.abs(columns).sum(0), exhaustive)


def _affordable(units: int, permutations: int) -> bool:
    return units < 60 and 2**units <= permutations + 1


def _random_sums(columns: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    # eight signs are one random byte: the 256 sums of each eight units are added up once
    eights = np.pad(columns, ((0, -len(columns) % 8), (0, 0))).reshape(-1, 8, columns.shape[1])
    signs = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)
    tables = [(eights[:, :, j] @ signs.T).ravel() for j in range(columns.shape[1])]
    place = 256 * np.arange(len(eights))
    used = np.flatnonzero(columns.any(0))
    sums = np.zeros((size, columns.shape[1]))
    step = max(1, _CELLS // len(eights))
    for start in range(0, size, step):
        cells = place + rng.integers(0, 256, (min(step, size - start), len(eights)), dtype=np.uint8)
        for j in used:
            sums[start : start + step, j] = tables[j][cells].sum(1)
    return sums


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Adjust p-values for being several, by Holm's step-down: the family-wise error stays below the level.

    All of an array are one family: metrics, pairs of models and data sets may be its axes.

    Args:
        p_values: of any shape, in [0, 1]; NaN: not tested, and not counted.

    Returns:
        float64 of the same shape, none below what was given.

    Raises:
        ValueError: if one is not in [0, 1].

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
    """Adjust the sign-flip tests of several mean differences for being several, by step-down max-T.

    All differences of a task, or cluster, change sign together, so that the flips know how they depend on each other,
    and dependent ones pay less than by Holm. Statistic: |sum d| over the root of the sum of d^2, which orders flips and
    differences as Student's t does; a difference made by few tasks of a long tail pays more beside others than alone.
    The family-wise error stays below the level whichever of the differences are zero, in the limit of many tasks; with
    few where the vector of differences is symmetric.

    Args:
        columns: (u, k) float64, one row per independent task, or sums over clusters.
        lines: (k, m) float64, each difference as a combination of the columns.
        permutations: number of random flips; all are taken if they are no more than that and one.
        seed: of the random flips.

    Returns:
        (m,) float64 in (0, 1]; 1 for a difference that is zero on every task.

    Source: Westfall and Young 1993 (ISBN 0-471-55761-7); Romano and Wolf 2005 (doi:10.1198/016214504000000539).

    >>> d = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [4.0, 3.0], [0.5, -1.0]])
    >>> max_t_p_values(d, np.eye(2)).tolist()
    [0.0625, 0.1875]
    """
    flips = sign_flips(columns, permutations, seed)
    each = columns @ lines
    # a difference that is rounding alone is zero
    each[np.abs(each) <= 1e-13 * (np.abs(columns) @ np.abs(lines))] = 0.0
    norm = np.sqrt((each**2).sum(0))
    used = norm > 0
    norm = np.where(used, norm, 1.0)
    observed = np.where(used, np.abs(each.sum(0)) / norm, 0.0)
    statistics = np.where(used, np.abs(flips.sums @ lines) / norm, 0.0)
    # a flip that gives the observed sum counts whatever the order of summation
    bar = np.where(used, observed - 1e-12 * (flips.size @ np.abs(lines)) / norm, 0.0)
    every = flips.exhaustive and len(flips.sums) == 2 ** len(columns)
    order = np.argsort(-observed, kind="stable")
    largest, adjusted = np.zeros(len(statistics)), np.ones(len(observed))
    for j in order[::-1]:  # against the largest of itself and of those that are less clear
        np.maximum(largest, statistics[:, j], out=largest)
        reached = int((largest >= bar[j]).sum())
        adjusted[j] = reached / len(largest) if every else (1 + reached) / (1 + len(largest))
    adjusted[order] = np.maximum.accumulate(adjusted[order])
    return adjusted


@dataclass(frozen=True)
class OneSided:
    """p-values of the two hypotheses that a difference lies beyond a margin.

    Attributes:
        below: in (0, 1], of "the difference is -margin or lower"; small: it is above.
        above: in (0, 1], of "the difference is margin or higher"; small: it is below.
    """

    below: float
    above: float

    @property
    def equivalent(self) -> float:
        """p-value of "the difference is not within the margin": the larger of the two.

        Source: Schuirmann 1987 (doi:10.1007/BF01068419).
        """
        return max(self.below, self.above)


def one_sided(difference: float, margin: float, at_lower: float, at_upper: float) -> OneSided:
    """Halve two-sided p-values of the differences -margin and margin, on the side where the observed one lies.

    Args:
        difference: observed.
        margin: > 0.
        at_lower: two-sided p-value of "the difference is -margin".
        at_upper: of "the difference is margin".

    >>> one_sided(0.0, 0.1, 0.04, 0.06).equivalent
    0.03
    """
    below = at_lower / 2 if difference > -margin else 1 - at_lower / 2
    above = at_upper / 2 if difference < margin else 1 - at_upper / 2
    return OneSided(below, above)
