"""Simulation toward the tail: ranks from the tilted distributions, the last summand exactly."""

import math

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.null.tails.fourier import log_of_rest
from torchrankmetrics.null.tails.summands import Summands

_DRAWN = 1 << 22  # ranks, or numbers of values, that are drawn in all
_DRAWS = 1 << 11, 1 << 17  # of the sum, at least and at most
_BLOCK = 1 << 18  # ranks in memory


def num_draws(sums: Summands) -> int:
    """Number of draws of the sum, 0 if even the fewest are too expensive."""
    if sums.is_interpolated:
        return 0
    draws = int(_DRAWN // max(float(_costs(sums).sum()), 1.0))
    return 0 if draws < _DRAWS[0] else min(draws, _DRAWS[1])


def _costs(sums: Summands) -> FloatArray:
    """How many ranks are drawn for each group, or numbers of ranks in its cells."""
    each = sums.c / 4 if sums.values.is_exact else sums.c
    return np.minimum(each, _num_cells(sums) / 2)


def _num_cells(sums: Summands) -> FloatArray:
    return np.diff(sums.cells.first)[sums.which].astype(np.float64)


def simulated_tail(sums: Summands, s: float, t: float) -> tuple[float, float]:
    """Log P(S >= s) and its relative standard error."""
    draws = _TiltedDraws(sums, t, num_draws(sums) if sums.num > 1 else 1)
    last = int(np.argmax(sums.best - sums.worst))
    number = sums.c.astype(np.int64)
    number[last] -= 1
    is_counted = number > 2 * _num_cells(sums)
    for group in np.flatnonzero(number).tolist():
        if is_counted[group]:
            draws.add_numbers(group, int(number[group]))
        else:
            draws.add_ranks(group, int(number[group]))

    logs = draws.log_weight + _log_rest(sums, last, (s - draws.total) / sums.v[last], t >= 0)
    most = float(logs.max())
    if most == -math.inf:
        return -math.inf, 1.0
    shares = np.exp(logs - most)
    mean = float(shares.mean())
    log_p = most + math.log(mean)
    error = float(shares.std()) / math.sqrt(len(logs)) / mean
    if t >= 0:
        return log_p, error
    return log_of_rest(log_p), error * math.exp(log_p - log_of_rest(log_p))


def _log_rest(sums: Summands, last: int, least: FloatArray, reaches: bool) -> FloatArray:
    """Log of the probability that a value of a group is at least ``least``, or below."""
    reaching = sums.values.num_reaching(int(sums.which[last]), least)
    excluded = sums.excluded[last]
    mass = sums.values.mass_before(sums.which[last], reaching) - excluded
    mass = np.clip(mass / (1 - excluded), 0.0, 1.0)
    return np.asarray(np.log(mass if reaches else 1 - mass))


class _TiltedDraws:
    """Draws of a sum, and the logarithm of the true over the tilted probability of each."""

    def __init__(self, sums: Summands, t: float, size: int) -> None:
        self.random = np.random.default_rng(0)
        self.sums = sums
        self.p = sums.tilted(t)[1]
        self.total = np.zeros(size)
        self.log_weight = np.zeros(size)

    def _cells(self, group: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """The cells of a group, their tilted probabilities, and the log ratios of the true ones."""
        sums = self.sums
        which = sums.which[group]
        cells = np.arange(sums.cells.first[which], sums.cells.first[which + 1])
        begin = sums.starts[group]
        end = sums.starts[group + 1] if group + 1 < len(sums.starts) else len(sums.x)
        p = np.bincount(sums.cell[begin:end] - cells[0], self.p[begin:end], len(cells))
        p = np.maximum(p / p.sum(), 1e-300)
        true = sums.cells.mass[cells] / (1 - sums.excluded[group])
        return cells, p, np.log(true) - np.log(p)

    def add_numbers(self, group: int, number: int) -> None:
        """Add many summands: their numbers in each cell, and a normal variable for their places."""
        cells, p, log_ratio = self._cells(group)
        x = self.sums.v[group] * self.sums.cells.mean[cells]
        square = (self.sums.v[group] * self.sums.cells.deviation[cells]) ** 2
        rows = max(1, _BLOCK // len(cells))
        for begin in range(0, len(self.total), rows):
            part = slice(begin, min(begin + rows, len(self.total)))
            counts = self.random.multinomial(number, p, part.stop - begin)
            inside = self.random.standard_normal(len(counts)) * np.sqrt(counts @ square)
            self.total[part] += counts @ x + inside
            self.log_weight[part] += counts @ log_ratio

    def add_ranks(self, group: int, number: int) -> None:
        """Add summands: a cell of each, and a place in it."""
        cells, p, log_ratio = self._cells(group)
        below = np.cumsum(p)
        rows = max(1, _BLOCK // len(self.total))
        for begin in range(0, number, rows):
            shape = min(rows, number - begin), len(self.total)
            uniform = self.random.random(shape) * below[-1]
            index = np.minimum(np.searchsorted(below, uniform, side="right"), len(cells) - 1)
            self.log_weight += log_ratio[index].sum(axis=0)
            self.total += self.sums.v[group] * self._values(group, cells[index]).sum(axis=0)

    def _values(self, group: int, cell: IntArray) -> FloatArray:
        """Values at random places of cells."""
        cells = self.sums.cells
        if self.sums.values.is_exact:
            return cells.mean[cell]
        length = cells.end[cell] - cells.begin[cell]
        inside = (self.random.random(cell.shape) * length).astype(np.int64)
        place = cells.begin[cell] + np.minimum(inside, length - 1)
        return self.sums.values.at(self.sums.which[group], place)


def num_outcomes(sums: Summands) -> float:
    """Number of choices of a value for each summand."""
    if sums.is_interpolated:
        return math.inf
    number = sums.values.num_values[sums.which].astype(np.float64)
    return math.exp(min(float(sums.c @ np.log(number)), 700.0))


def listed_tail(sums: Summands, s: float) -> float:
    """Log P(S >= s) from a list of all sums."""
    total = np.zeros(1)
    log_p = np.zeros(1)
    for group, number in enumerate(sums.c.astype(np.int64).tolist()):
        which = sums.which[group]
        first = sums.cells.first[which]
        end = sums.cells.first[which + 1]
        x = sums.v[group] * sums.cells.mean[first:end]
        log_mass = np.log(sums.cells.mass[first:end])
        for _ in range(number):
            total = np.add.outer(total, x).ravel()
            log_p = np.add.outer(log_p, log_mass).ravel()
    log_p = log_p[total >= s]
    most = float(log_p.max(initial=-math.inf))
    return most + math.log(float(np.exp(log_p - most).sum())) if len(log_p) else -math.inf
