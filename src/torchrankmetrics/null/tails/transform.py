"""Cumulants and Fourier transform of sums of independent summands whose values are in cells.

A cell counts as two atoms, its mean plus and minus its standard deviation: moments up to the third
order are kept.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.fft import next_fast_len, rfft

from torchrankmetrics.definitions.sample import FloatArray, IntArray

ComplexArray = npt.NDArray[np.complex128]
_WIDE = 0.1  # phase within a cell from which on it is uniform instead of two atoms
_TAPS = 12  # points of a grid over which an atom is spread: the error of a transform is about 1e-11
_BLOCK = 1 << 12  # atoms that are spread at a time
# times the difference of two orders of interpolation: an error was up to 26 times as large
_DOUBT = 32


class Transform:
    """Cumulants and Fourier transform of the sum of c independent summands v x of each group, tilted by exp(t x).

    The values x of a group are in its cells (4, m) and in those of the groups before it in its row,
    of one weight v: size, mean, standard deviation and skewness. c is not integer if groups are
    interpolated; doubt is its error.
    """

    def __init__(
        self,
        cells: FloatArray,
        group: IntArray,
        row: IntArray,
        v: FloatArray,
        c: FloatArray,
        doubt: FloatArray,
    ) -> None:
        self.v, self.c, self.doubt = v, c, doubt
        size, mean, deviation, skewness = cells
        atoms = 1 + (deviation > 0)
        cell = np.repeat(np.arange(len(atoms)), atoms)
        self.group, self.is_listed = group[cell], not deviation.any()
        self.starts = np.searchsorted(self.group, np.arange(len(c)))
        self.apart = v[self.group] * deviation[cell] * np.where(np.diff(cell, prepend=-1), -1, 1)
        x = v[self.group] * mean[cell] + self.apart
        self.mass, self.skewness = (size / atoms)[cell], skewness[cell]
        self.rows = np.flatnonzero(np.diff(row, prepend=-1))
        self.best, worst = (
            end.reduceat(x, self.starts[self.rows])[row] for end in (np.maximum, np.minimum)
        )
        self.x, self.width = x - self.best[self.group], self.best - worst

    def along_rows(self, sums: npt.NDArray[np.inexact]) -> None:
        """Add to the sums of each group (groups, ...) those of the groups before it in its row."""
        if len(self.rows) < len(self.c):
            for row in np.split(sums, self.rows[1:]):
                np.cumsum(row, axis=0, out=row)

    def cumulants(self, t: float) -> FloatArray:
        """K(t), its first two derivatives, and the possible error of K."""
        anchor = 0.0 * self.width if t >= 0 else -self.width
        y = self.x - anchor[self.group]
        e = self.mass * np.exp(t * y)
        rough = np.minimum(np.abs(t * self.apart), 1e60)  # its powers must not overflow
        off = e * (rough * rough * rough) * (rough / 30 + self.skewness / 6)  # ** would be slow
        terms = np.stack([self.mass, off, e, e * y, e * y * y])
        sums = np.add.reduceat(terms, self.starts, axis=1)
        self.along_rows(sums.T)
        total, error, k0, k1, k2 = sums
        mean, variance, anchor = (
            k1 / k0,
            np.maximum(k2 / k0 - (k1 / k0) ** 2, 0.0),
            anchor + self.best,
        )
        parts = np.stack([np.log(k0 / total) + t * anchor, anchor + mean, variance])
        error = np.abs(self.c) * (error / k0)
        doubt = _DOUBT * abs((parts[0] * self.doubt).sum())  # BLAS would start threads
        return np.asarray([*(parts * self.c).sum(axis=1), error.sum() + doubt])

    def log_transform(
        self, t: float, step: float, number: int, *, on_grid: bool = False
    ) -> ComplexArray:
        """Logarithm of the Fourier transform of the distribution tilted by t, and its possible error: (2, number).

        Up to multiples of 2 pi i, at the frequencies step j, j < number. ``on_grid``: values are
        multiples of 2 pi / step / (2 number - 1) but for rounding.
        """
        # a wide cell is the integral of exp(z x) instead of two atoms: its ends, divided by z
        z, half, groups = t + 1j * step * np.arange(number), math.sqrt(3) * self.apart, len(self.c)
        wide = np.abs(half) * abs(complex(t, step * number)) > _WIDE
        x = np.where(wide, self.x + half - self.apart, self.x)
        e = self.mass * np.exp(np.minimum(t * x, 600.0))
        whole = np.bincount(
            self.group, np.where(wide & (t * np.abs(half) > 1e-5), e / (t * half), e), groups
        )
        place, x = self.group + groups * wide, step / (2 * math.pi) * x
        found = _fourier(
            x, np.where(wide, e / half, e), place, groups * (1 + int(wide.any())), number, on_grid
        )
        if wide.any():
            found = found[:groups] + found[groups:] * (1 / z)  # complex division is slow
        found[:, 0] = whole
        self.along_rows(found)
        found *= 1 / found[:, :1]
        counts = np.stack([self.c, self.doubt])
        shift = (counts * self.best).sum(axis=1)
        if not self.doubt.any():  # the logarithm of a product takes as long as that of a number
            order = np.argsort(self.c, kind="stable")
            c, begin = np.unique(self.c[order], return_index=True)
            counts, found = np.stack([c, 0 * c]), np.multiply.reduceat(found[order], begin, axis=0)
        # NumPy's complex logarithm takes three times as long
        logs = np.log(np.maximum(np.abs(found), 1e-300)) + 1j * np.angle(found)
        # continuous, as numbers need not be integers
        logs.imag[:, 1:] -= 2 * math.pi * np.rint(np.diff(logs.imag) / (2 * math.pi)).cumsum(axis=1)
        sums = (counts[:, :, None] * logs).sum(axis=1)
        sums.imag += np.multiply.outer(shift, z.imag)
        return np.asarray(sums)

    def saddlepoint(self, s: float, bottom: float) -> tuple[float, FloatArray | None]:
        """About the t > 0 with K'(t) = s, by Newton steps in a bracket; cumulants at t, or None if they are unknown."""
        mean, var = self.cumulants(0.0)[1:3]
        low, high = 1e-6 / math.sqrt(var) if var > 0 else 1.0, math.inf
        if s <= mean or var == 0 or mean <= bottom:  # the interpolated mean may be off
            return low, self.cumulants(low)
        t = 0.0
        for _ in range(100):
            # Newton's step for log(K' - bottom), which is nearly linear where few large values
            # matter
            above = mean - bottom
            far, limit = above * math.log((s - bottom) / above), min(high, 4 * t or math.inf)
            # the quotient may overflow
            step = t + far / var if abs(far) < limit * var else math.inf
            t = step if low < step < limit else max(low, min(2 * t, (low + high) / 2))
            found = self.cumulants(t)
            mean, var = found[1:3]
            # the exponent of the bound exp(K(t) - t s) of P(S >= s)
            is_known = found[3] <= max(t * s - found[0], 1.0)
            if abs(mean - s) < 0.2 * math.sqrt(var) or (mean < s and not is_known):
                break
            low, high = (t, high) if mean < s else (low, t)
        return float(t), found if is_known else None


def _fourier(
    x: FloatArray, mass: FloatArray, place: IntArray, places: int, number: int, on_grid: bool
) -> ComplexArray:
    """Sums of mass exp(2 pi i j x) of each place, j < number, by FFT: (places, number).

    Masses are spread by the kernel of Barnett et al. 2019 (doi:10.1137/18M120885X), whose transform
    is found alike.
    """
    taps, size = (1, 2 * number - 1) if on_grid else (_TAPS, next_fast_len(4 * number, real=True))
    x, mass, place = np.r_[-x * size, 0.0], np.r_[mass, 1.0], np.r_[place, places]
    first = np.ceil(x - taps / 2)
    apart, start = (first - x) * (2 / taps), first.astype(np.int64) % size + (size + taps) * place
    grid, j = np.zeros((places + 1, size + taps)), np.arange(taps)[:, None]
    for i in range(0, len(x), _BLOCK):  # arrays in the cache
        kernel = apart[i : i + _BLOCK] + j * (2 / taps)
        kernel = (
            np.ones_like(kernel)
            if on_grid
            else np.exp(2.3 * taps * (np.sqrt(np.abs(1 - kernel * kernel)) - 1))
        )
        np.add.at(
            grid.ravel(),
            (start[i : i + _BLOCK] + j).ravel(),
            (mass[i : i + _BLOCK] * kernel).ravel(),
        )
    grid[:, :taps] += grid[:, size:]
    found = rfft(grid[:, :size], axis=1)[:, :number]
    return np.asarray(found[:-1] * (1 / found[-1].real))
