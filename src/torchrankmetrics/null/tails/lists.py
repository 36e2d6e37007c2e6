"""Distributions of one summand that are lists of values with their masses."""

import math
from collections.abc import Sequence

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.transforms import (
    EQUAL,
    KnownTransform,
    are_apart,
    check_evaluations,
    rank_table,
)
from torchrankmetrics.null.tails.values import MOST_DISTANCES, SINGLE, Cells, RankValues

Atoms = tuple[FloatArray, FloatArray]  # ascending values and their probabilities
# of a list; longer ones are condensed
_MOST_ATOMS = 2048
_GROWTH = 1 / 256


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
        self.best = self.x[self.first[:-1]]
        self.worst = self.x[self.first[1:] - 1]

    @property
    def most_atoms(self) -> IntArray:
        """Number of atoms of each distribution, at most."""
        return self.num_values

    def at_few_candidates(self) -> "tuple[ListedValues, None]":
        """Return all lists: lists for other N cannot be interpolated from them."""
        return self, None

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
        return apart if len(apart) <= MOST_DISTANCES else np.empty(0)


Values = RankValues | ListedValues


def _descending(values: FloatArray, mass: FloatArray) -> Atoms:
    """Descending values, those that agree as the best of them, with probabilities of sum 1."""
    x = values[::-1]
    mass = mass[::-1] / mass.sum()
    largest = float(np.abs(x).max())
    new = np.r_[True, are_apart(x[1:], x[:-1], largest)]
    starts = np.flatnonzero(new)
    last = np.r_[starts[1:], len(x)] - 1
    drifts = x[starts] - x[last] > 4 * (EQUAL[0] * np.abs(x[starts]) + EQUAL[1] * largest)
    starts = np.flatnonzero(new | np.repeat(drifts, last - starts + 1))
    x = x[starts]
    mass = np.add.reduceat(mass, starts)
    if len(x) <= _MOST_ATOMS:
        return x, mass
    steps = math.ceil(math.log(len(x) / SINGLE) / _GROWTH)
    far = SINGLE * np.exp(_GROWTH * np.arange(steps))
    starts = np.unique(np.r_[np.arange(SINGLE), np.rint(far[far < len(x)]).astype(np.int64)])
    total = np.add.reduceat(mass, starts)
    return np.add.reduceat(mass * x, starts) / total, total


def values_of(f: KnownTransform, sign: int, N: IntArray) -> Values:
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
