"""Sums of groups of independent values v x: cumulants and the saddlepoint."""

import math
from typing import NamedTuple

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.null.tails.interpolation import interpolated
from torchrankmetrics.null.tails.lists import Values

_MOST_ATOMS = 1 << 20  # of all groups; more groups are interpolated
_PRECISION = 1e-6  # of the saddlepoint, in standard deviations of the sum
_MOST_STEPS = 100
# highest over lowest frequency, their number, and frequencies x atoms
_HIGHEST = 30.0
_FREQUENCIES = (8, 512)
_FREQUENCY_ATOMS = 1 << 21


class Cumulants(NamedTuple):
    """Log M(t), mean, variance, skewness and excess kurtosis of the tilted sum."""

    log_m: float
    mean: float
    variance: float
    skewness: float
    kurtosis: float

    @property
    def deviation(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @property
    def second_term(self) -> float:
        """Numerator of the second term of the saddlepoint formula."""
        return self.kurtosis / 8 - 5 * self.skewness**2 / 24

    @property
    def correction(self) -> float:
        """Size of the parts of the second term, relative to p."""
        return abs(self.kurtosis) / 8 + 5 * self.skewness**2 / 24


class Summands:
    """Groups of c independent summands v x, with x of the distribution ``which`` of some values.

    The values of a cell count as two, one standard deviation below and above their mean.
    """

    def __init__(
        self,
        values: Values,
        which: IntArray,
        v: FloatArray,
        c: FloatArray,
        single: int | None = None,
    ) -> None:
        self.best = v * values.best[which]
        self.worst = v * values.worst[which]
        self.top = float(c @ self.best)
        self.bottom = float(c @ self.worst)
        self.num = float(c.sum())
        num_atoms = float(values.most_atoms[which].sum(dtype=np.float64))
        self.is_interpolated = single is None and num_atoms > _MOST_ATOMS
        if self.is_interpolated:
            values, which, v, c = interpolated(values, which, v, c)
        self.values = values
        self.which = which
        self.v = v
        self.c = c
        self.cells = values.cells() if single is None else values.cells(single)
        self._set_atoms()

    def _set_atoms(self) -> None:
        cells = self.cells
        number = 1 + (cells.deviation > 0)
        cell = np.repeat(np.arange(len(number)), number)
        side = np.where(np.diff(cell, prepend=-1) == 0, 1.0, -1.0) * (number[cell] - 1)
        x = cells.mean[cell] + side * cells.deviation[cell]
        log_q = np.log(cells.mass[cell] / number[cell])
        first = np.r_[0, np.cumsum(number)][cells.first]

        length = np.diff(first)[self.which]
        self.starts = np.cumsum(length) - length
        self.group = np.repeat(np.arange(len(length)), length)
        index = np.arange(len(self.group)) - (self.starts - first[self.which])[self.group]
        self.cell = cell[index]
        self.log_q = log_q[index]
        self.excluded = np.zeros(len(self.c))
        self.mean = 0.0
        self._center(self.v[self.group] * x[index])

    def _center(self, x: FloatArray) -> None:
        """Keep the values of atoms about their mean, so that nothing cancels near it."""
        mean = np.add.reduceat(np.exp(self.log_q) * x, self.starts)
        self.x = x - mean[self.group]
        self.mean += float(self.c @ mean)

    def exclude_alone(self, s: float) -> float:
        """Exclude cells whose values reach s even if all other summands have their worst value.

        From here on the distributions are conditional on no summand being in these cells. Return
        the logarithm of the probability of this condition.
        """
        of_cell = np.repeat(np.arange(len(self.cells.first) - 1), np.diff(self.cells.first))
        worst_in_cell = self.values.at(of_cell, self.cells.end - 1)
        short = s - self.bottom + self.v * self.values.worst[self.which]
        is_alone = self.v[self.group] * worst_in_cell[self.cell] >= short[self.group]
        if self.is_interpolated or not is_alone.any():
            return 0.0
        mass = np.where(is_alone, np.exp(self.log_q), 0.0)
        self.excluded = np.add.reduceat(mass, self.starts)
        log_open = np.log1p(-self.excluded)
        x = self.x
        self.log_q = np.where(is_alone, -np.inf, self.log_q - log_open[self.group])
        self._center(x)
        return float(self.c @ log_open)

    def in_single_places(self) -> "Summands":
        """The sum with every place as a cell of its own."""
        most = int(self.values.num_values.max())
        return Summands(self.values, self.which, self.v, self.c, most)

    @property
    def largest(self) -> float:
        """Largest possible sum."""
        first = np.maximum.reduceat(
            np.where(self.log_q > -np.inf, -self.cell, -self.cell.max()), self.starts
        )
        return float(self.c @ (self.v * self.values.at(self.which, self.cells.begin[-first])))

    def tilted(self, t: float) -> tuple[FloatArray, FloatArray]:
        """Log E exp(t x) of each group, x about its mean, and tilted probabilities of the atoms."""
        y = self.log_q + t * self.x
        most = np.maximum.reduceat(y, self.starts)
        p = np.exp(y - most[self.group])
        total = np.add.reduceat(p, self.starts)
        return most + np.log(total), p / total[self.group]

    def cumulants(self, t: float) -> Cumulants:
        """Cumulants of the sum tilted by t, about its mean without tilt."""
        log_m, p = self.tilted(t)
        mean = np.add.reduceat(p * self.x, self.starts)
        apart = self.x - mean[self.group]
        moments = [np.add.reduceat(p * apart**k, self.starts) for k in (2, 3, 4)]
        variance = max(float(self.c @ moments[0]), 0.0)
        scale = max(variance, 1e-150)
        skewness = float(self.c @ moments[1]) / scale**1.5
        kurtosis = float(self.c @ (moments[2] - 3 * moments[0] ** 2)) / scale**2
        return Cumulants(float(self.c @ log_m), float(self.c @ mean), variance, skewness, kurtosis)

    def roughness(self, t: float, lowest: float) -> float:
        """Largest transform of the tilted sum at high frequencies: 0 of a density, 1 of a lattice.

        Frequencies are multiplied by the standard deviation, and matter in inverse proportion.
        """
        _, p = self.tilted(t)
        deviation = self.cumulants(t).deviation
        number = int(np.clip(_FREQUENCY_ATOMS // len(self.x), *_FREQUENCIES))
        largest = 0.0
        for frequency in np.geomspace(lowest, _HIGHEST * lowest, number).tolist():
            phase = self.x * (frequency / deviation)
            real = np.add.reduceat(p * np.cos(phase), self.starts)
            imaginary = np.add.reduceat(p * np.sin(phase), self.starts)
            size = np.maximum(real**2 + imaginary**2, 1e-300)
            weight = min(1.0, max(abs(t) * deviation, 1.0) / frequency)
            largest = max(largest, weight * math.exp(float(self.c @ np.log(size)) / 2))
        return largest

    def saddlepoint(self, s: float) -> float:
        """Find t with the tilted mean s, by Newton's method between bounds; s is about the mean."""
        low = -math.inf
        high = math.inf
        t = 0.0
        for _ in range(_MOST_STEPS):
            found = self.cumulants(t)
            if abs(found.mean - s) <= _PRECISION * found.deviation:
                break
            if found.mean < s:
                low = t
            else:
                high = t
            is_beyond = found.variance == 0 and math.isinf(low if found.mean > s else high)
            following = self._step(t, s, found, low, high)
            if following == t or is_beyond:  # s may be beyond all atoms
                break
            t = following
        return t

    def _step(self, t: float, s: float, found: Cumulants, low: float, high: float) -> float:
        step = t + (s - found.mean) / max(found.variance, 1e-300)
        if low < step < high and (t == 0 or abs(step) <= 4 * abs(t)):
            return step
        if math.isfinite(low) and math.isfinite(high):
            return (low + high) / 2
        if t == 0:
            return math.copysign(1 / float(self.x.max() - self.x.min()), s - found.mean)
        return 2 * t
