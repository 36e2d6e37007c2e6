"""Distributions of one summand: values of a transform at uniform ranks, or lists of values with their masses."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import (
    EQUAL,
    KnownTransform,
    apply_transform,
    are_apart,
    check_evaluations,
    range_moments,
    rank_table,
)

Atoms = tuple[FloatArray, FloatArray]  # ascending values and their probabilities
# places from the best one that are cells of their own; growth of the others
_SINGLE, _GROWTH = 64, 1 / 16
_LARGEST_JUMPS = 64  # of an irregular f, at which cells end
_MOST_ATOMS, _LIST_GROWTH = 2048, 1 / 256  # of a list; longer ones are condensed
_MOST_DISTANCES = 1 << 12  # of successive values that may have a common divisor


class Cells(NamedTuple):
    """Neighboring places of each distribution, the best ones first."""

    first: IntArray  # (D + 1,) the cells of distribution d are first[d]:first[d + 1]
    begin: IntArray  # places begin..end - 1, from 0
    end: IntArray
    mass: FloatArray
    mean: FloatArray
    deviation: FloatArray  # standard deviation inside the cell


class RankValues:
    """Values sign f(r), best at r = 1 and never better at r + 1, for r uniform on {1..N}, of several N."""

    def __init__(
        self, f: KnownTransform, sign: int, N: IntArray, table: FloatArray | None = None
    ) -> None:
        self.f, self.sign, self.N, self.table = f, sign, N, table
        self.jumps = f.jumps(int(N.max()))
        every = np.arange(len(N))
        self.best, self.worst = self.at(every, 0 * N), self.at(every, N - 1)

    def resized(self, N: IntArray) -> "RankValues":
        """The values for other N."""
        return RankValues(self.f, self.sign, N, self.table)

    def at(self, which: IntArray, place: IntArray) -> FloatArray:
        """Values at places from 0, of any shape."""
        if self.table is not None:
            return self.sign * self.table[np.minimum(place, len(self.table) - 1)]
        ranks = (place + 1).astype(np.float64)
        return self.sign * apply_transform(self.f, ranks.ravel()).reshape(ranks.shape)

    def mass_before(self, which: IntArray, place: IntArray) -> FloatArray:
        """Probability of the places before the given ones."""
        return np.asarray(place / self.N[which])

    def num_reaching(self, which: int, least: FloatArray) -> IntArray:
        """Number of places with a value of at least ``least``, by bisection."""
        low, high = np.zeros((2, len(least)), dtype=np.int64) + [[0], [self.N[which]]]
        while (low < high).any():
            middle = low + (high - low) // 2
            reached = (self.at(low, middle) >= least) & (low < high)
            low, high = np.where(reached, middle + 1, low), np.where(reached, high, middle)
        return np.asarray(np.minimum(low, self.N[which]))

    def falls(self) -> bool:
        """Whether no rank has a better value than the one before it."""
        if self.table is not None:
            return bool((self.sign * np.diff(self.table) <= 0).all())
        places = (
            np.array([0, int(self.N.max()) - 1]) if self.jumps is None else np.r_[0, self.jumps]
        )
        return bool((np.diff(self.at(places, places)) <= 0).all())

    def cells(self, single: int = _SINGLE) -> Cells:
        """Cells with ends at the same ranks for every N; the first ``single`` ranks are cells of their own."""
        ends = self._ends(int(self.N.max()), single)
        number = np.searchsorted(ends, self.N)
        first = np.r_[0, np.cumsum(number)]
        which = np.repeat(np.arange(len(self.N)), number)
        index = np.arange(first[-1]) - first[which]
        begin, end = ends[index], np.minimum(ends[index + 1], self.N[which])
        mean, deviation = self._moments(begin, end)
        return Cells(first, begin, end, (end - begin) / self.N[which], mean, deviation)

    def _ends(self, most: int, single: int) -> IntArray:
        if self.jumps is not None:
            return np.unique(np.r_[0, self.jumps, most])
        steps = math.ceil(math.log(max(most / single, 1)) / _GROWTH)
        far = np.rint(single * np.exp(_GROWTH * np.arange(1, steps))).astype(np.int64)
        ends = [np.arange(min(single, most) + 1), far[far < most], np.array([most])]
        if self.table is not None and most > single:
            change = np.abs(np.diff(self.table[:most]))
            largest = min(_LARGEST_JUMPS, len(change))
            ends.append(np.argpartition(-change, largest - 1)[:largest] + 1)
            ends.append(np.array([min(len(self.table) - 1, most)]))
        return np.unique(np.concatenate(ends))

    def _moments(self, begin: IntArray, end: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the values in cells."""
        size = end - begin
        if self.jumps is not None:
            return self.at(begin, begin), np.zeros(len(begin))
        if self.table is not None:
            last = len(self.table)
            mean, square = range_moments(
                self.table, np.minimum(begin, last - 1), np.minimum(end, last)
            )
            return self.sign * mean, np.sqrt(square)
        # the rule of Gauss and Lobatto with three nodes for sums over integers
        share = np.where(size > 1, (size + 1) / (6 * np.maximum(size - 1.0, 1.0)), 0.5)
        nodes = np.stack([begin + 1.0, (begin + 1 + end) / 2, end])
        x = self.sign * apply_transform(self.f, nodes.ravel()).reshape(3, -1)
        mean = x[1] + share * (x[0] - x[1] + x[2] - x[1])
        square = share * (x[0] - mean) ** 2 + share * (x[2] - mean) ** 2
        square += (1 - 2 * share) * (x[1] - mean) ** 2
        return mean, np.sqrt(np.where(size > 1, np.maximum(square, 0.0), 0.0))

    @property
    def is_exact(self) -> bool:
        """Whether all values in a cell are equal."""
        return self.jumps is not None

    @property
    def num_values(self) -> IntArray:
        """Number of different values of each distribution, at most."""
        if self.jumps is None:
            return self.N
        return np.searchsorted(self.jumps, self.N) + 1

    def distances(self) -> FloatArray:
        """Distances between successive values; empty if they are too many."""
        if self.f.is_identity:
            return np.ones(1)
        most = int(self.N.max())
        if self.jumps is not None:
            places = np.r_[0, self.jumps]
        elif most <= _MOST_DISTANCES:
            places = np.arange(most)
        else:
            return np.empty(0)
        return np.abs(np.diff(self.at(places, places)))


class ListedValues:
    """Lists of values with masses; values that agree up to rounding are one."""

    is_exact = True

    def __init__(self, lists: Sequence[Atoms]) -> None:
        merged = [_descending(values, mass) for values, mass in lists]
        self.num_values = np.array([len(x) for x, _ in merged])
        self.first = np.r_[0, np.cumsum(self.num_values)]
        self.x = np.concatenate([x for x, _ in merged])
        self.mass = np.concatenate([mass for _, mass in merged])
        self.before = np.concatenate([np.r_[0.0, np.cumsum(mass)] for _, mass in merged])
        self.best, self.worst = self.x[self.first[:-1]], self.x[self.first[1:] - 1]

    def at(self, which: IntArray, place: IntArray) -> FloatArray:
        """Values at places from 0."""
        return np.asarray(self.x[self.first[which] + place])

    def mass_before(self, which: IntArray, place: IntArray) -> FloatArray:
        """Probability of the places before the given ones."""
        # every list has one entry more here
        return np.asarray(self.before[self.first[which] + which + place])

    def num_reaching(self, which: int, least: FloatArray) -> IntArray:
        """Number of places with a value of at least ``least``."""
        x = self.x[self.first[which] : self.first[which + 1]]
        return np.searchsorted(-x, -least, side="right")

    def cells(self, single: int = 0) -> Cells:
        """Every value as a cell of its own."""
        place = np.arange(len(self.x)) - np.repeat(self.first[:-1], self.num_values)
        return Cells(self.first, place, place + 1, self.mass, self.x, np.zeros(len(place)))

    def distances(self) -> FloatArray:
        """Distances between successive values; empty if they are too many."""
        apart = np.abs(np.diff(self.x))
        apart[self.first[1:-1] - 1] = 0.0
        apart = np.unique(apart)
        return apart if len(apart) <= _MOST_DISTANCES else np.empty(0)


def _descending(values: FloatArray, mass: FloatArray) -> Atoms:
    """Descending values, those that agree as the best of them, with probabilities of sum 1."""
    x, mass = values[::-1], mass[::-1] / mass.sum()
    largest = float(np.abs(x).max())
    new = np.r_[True, are_apart(x[1:], x[:-1], largest)]
    starts = np.flatnonzero(new)
    last = np.r_[starts[1:], len(x)] - 1
    drifts = x[starts] - x[last] > 4 * (EQUAL[0] * np.abs(x[starts]) + EQUAL[1] * largest)
    starts = np.flatnonzero(new | np.repeat(drifts, last - starts + 1))
    x, mass = x[starts], np.add.reduceat(mass, starts)
    if len(x) <= _MOST_ATOMS:
        return x, mass
    steps = math.ceil(math.log(len(x) / _SINGLE) / _LIST_GROWTH)
    far = _SINGLE * np.exp(_LIST_GROWTH * np.arange(steps))
    starts = np.unique(np.r_[np.arange(_SINGLE), np.rint(far[far < len(x)]).astype(np.int64)])
    total = np.add.reduceat(mass, starts)
    return np.add.reduceat(mass * x, starts) / total, total


def values_of(f: KnownTransform, sign: int, N: IntArray) -> RankValues | ListedValues:
    """Distributions of sign f(r, N) for r uniform on {1..N}, one for each of the ascending N."""
    if not f.uses_candidates:
        is_known = f.smooth or f.jumps(int(N[-1])) is not None
        table = None if is_known else rank_table(f, min(int(N[-1]), f.constant_from))
        values = RankValues(f, sign, N, table)
        if values.falls():
            return values
    check_evaluations(f, N)
    lists = []
    for n in N.tolist():
        at_ranks = (f.at(n) if f.uses_candidates else f).values(np.arange(1.0, n + 1))
        lists.append((np.sort(sign * at_ranks), np.full(n, 1 / n)))
    return ListedValues(lists)
