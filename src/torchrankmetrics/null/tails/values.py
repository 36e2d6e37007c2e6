"""Distributions of one summand: values of a transform at uniform ranks, in cells of ranks."""

import math
from typing import NamedTuple

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import (
    KnownTransform,
    apply_transform,
    range_moments,
)

# places from the best one that are cells of their own; growth of the others
SINGLE = 64
_GROWTH = 1 / 16
_ATOMS = 300  # about so many has a distribution among tens of thousands of candidates
# of N for each factor e; N up to which all are nodes
_NODES = 8
_SMALL_N = 32
_LARGEST_JUMPS = 64  # of an irregular f, at which cells end
MOST_DISTANCES = 1 << 12  # of successive values that may have a common divisor


class Cells(NamedTuple):
    """Neighboring places of each distribution, the best ones first."""

    first: IntArray  # (D + 1,) the cells of distribution d are first[d]:first[d + 1]
    begin: IntArray  # places begin..end - 1, from 0
    end: IntArray
    mass: FloatArray
    mean: FloatArray
    deviation: FloatArray  # standard deviation inside the cell


class RankValues:
    """Values sign f(r) that never increase with r, for r uniform on {1..N}, of several N."""

    def __init__(
        self, f: KnownTransform, sign: int, N: IntArray, table: FloatArray | None = None
    ) -> None:
        self.f = f
        self.sign = sign
        self.N = N
        self.table = table
        self.jumps = f.jumps(int(N.max()))
        every = np.arange(len(N))
        self.best = self.at(every, 0 * N)
        self.worst = self.at(every, N - 1)

    @property
    def most_atoms(self) -> IntArray:
        """Number of atoms of each distribution, about."""
        return self.num_values if self.is_exact else np.minimum(self.N, _ATOMS)

    def at_few_candidates(self) -> "tuple[RankValues, tuple[FloatArray, FloatArray] | None]":
        """The values for few N, and log N of all and of these; None: these are all N."""
        steps = math.ceil(_NODES * math.log(self.N[-1] / self.N[0])) + _NODES
        nodes = np.rint(np.geomspace(self.N[0], self.N[-1], steps)).astype(np.int64)
        # a step function changes with N up to its last jump
        exact = _SMALL_N if self.jumps is None else 4 * int(self.jumps.max(initial=_SMALL_N))
        nodes = np.unique(np.r_[self.N[exact >= self.N], nodes])
        if len(nodes) >= len(self.N):
            return self, None
        return RankValues(self.f, self.sign, nodes, self.table), (np.log(self.N), np.log(nodes))

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
            low = np.where(reached, middle + 1, low)
            high = np.where(reached, high, middle)
        return np.asarray(np.minimum(low, self.N[which]))

    def falls(self) -> bool:
        """Whether no rank has a better value than the one before it."""
        if self.table is not None:
            return bool((self.sign * np.diff(self.table) <= 0).all())
        places = (
            np.array([0, int(self.N.max()) - 1]) if self.jumps is None else np.r_[0, self.jumps]
        )
        return bool((np.diff(self.at(places, places)) <= 0).all())

    def cells(self, single: int = SINGLE) -> Cells:
        """Cells that end at the same ranks for every N, the first ``single`` ranks one by one."""
        ends = self._ends(int(self.N.max()), single)
        number = np.searchsorted(ends, self.N)
        first = np.r_[0, np.cumsum(number)]
        which = np.repeat(np.arange(len(self.N)), number)
        index = np.arange(first[-1]) - first[which]
        begin = ends[index]
        end = np.minimum(ends[index + 1], self.N[which])
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
        elif most <= MOST_DISTANCES:
            places = np.arange(most)
        else:
            return np.empty(0)
        return np.abs(np.diff(self.at(places, places)))
