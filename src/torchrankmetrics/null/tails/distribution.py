"""Sums S of independent summands v x, such as f(r) for a uniform rank r: cumulants and Fourier transform.

Ranks are grouped in cells that all N share. A cell counts as two atoms, its mean plus and minus its standard deviation,
so that the moments of S up to the third order in the width of a cell are kept.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.sums import panel_rule
from torchrankmetrics.definitions.transforms import (
    AtMost,
    KnownTransform,
    apply_transform,
    check_evaluations,
    rank_table,
)

ComplexArray = npt.NDArray[np.complex128]
Atoms = tuple[FloatArray, FloatArray]  # ascending values and their masses
RATIO = 1 / 64  # relative width of a cell of ranks beyond _SINGLE
_WIDE = 0.1  # phase within a cell from which on it is uniform instead of two atoms
_BLOCK = 1 << 15  # terms of sums over cells that are in memory at a time
_SINGLE = 128  # ranks that are cells of their own
_NODES = 4  # of the Gauss rule in a cell
_STEPS = 512  # an f with at most this many jumps is constant between them
_ROWS, _COUNTS = 96, 400  # distinct weights and N; more are condensed
_CELLS = 1 << 16  # more weights are used where cells are so few
_FEW = 20  # tasks with narrower cells
_LISTED, _INTERVALS = 1 << 20, 1 << 14  # ranks of a task that are listed; intervals of more ranks


class RankValues:
    """A transform at integer ranks, times a sign; tabulated unless it has a closed form."""

    def __init__(self, f: KnownTransform, sign: int, most: int) -> None:
        self._f, self._sign, self.is_identity = f, sign, f.is_identity
        self.table: FloatArray | None = None
        self.jumps: IntArray = np.empty(0, dtype=np.int64)
        self.is_step, self.is_monotone = isinstance(f, AtMost), True
        if isinstance(f, AtMost):
            self.jumps = np.array([f.k])
        elif not f.smooth:
            self.table = sign * rank_table(f, min(most, f.constant_from))
            change = np.diff(self.table)
            self.jumps = np.flatnonzero(change) + 1
            self.is_step = len(self.jumps) <= _STEPS
            self.is_monotone = bool((change <= 0).all() or (change >= 0).all())
            if not self.is_step:
                self.jumps = np.argpartition(-np.abs(change), _ROWS)[:_ROWS] + 1

    def __call__(self, ranks: IntArray | FloatArray) -> FloatArray:
        """Values at ranks (m,)."""
        if self.table is not None:
            return self.table[np.minimum(ranks, len(self.table)).astype(np.int64) - 1]
        values: FloatArray = self._sign * apply_transform(self._f, ranks.astype(np.float64))
        return values

    def cells(self, ends: IntArray, ratio: float) -> tuple[IntArray, FloatArray]:
        """Boundaries of cells of ranks, ``ends`` among them; size, mean and standard deviation of each cell, (3, m)."""
        most = int(ends.max())
        if not self.is_step:
            far = np.arange(math.ceil(math.log(max(most / _SINGLE, 1)) / ratio))
            ends = np.r_[ends, np.arange(_SINGLE) + 1, np.rint(_SINGLE * np.exp(ratio * far)).astype(np.int64)]
        stop = np.unique(np.r_[0, ends, self.jumps])
        stop = stop[stop <= most]
        if self.table is None or self.is_step:
            nodes, weights, number = panel_rule(stop[:-1] + 1, np.diff(stop), 1 if self.is_step else _NODES)
            return stop, _cells(self(nodes), weights, np.cumsum(number) - number)
        values = self.table if len(self.table) == most else self(np.arange(1, most + 1))
        return stop, _cells(values, None, stop[:-1])


def _cells(values: FloatArray, mass: FloatArray | None, begin: IntArray) -> FloatArray:
    """Size, mean and standard deviation of cells that begin at some of the values, (3, cells)."""
    first, length = values[begin], np.diff(np.r_[begin, len(values)])
    size = length.astype(np.float64) if mass is None else np.add.reduceat(mass, begin)
    apart = values - np.repeat(first, length)
    weighted = apart if mass is None else mass * apart
    mean, square = np.add.reduceat(weighted, begin) / size, np.add.reduceat(weighted * apart, begin) / size
    return np.stack([size, first + mean, np.sqrt(np.maximum(square - mean**2, 0.0))])


class Summands:
    """Groups of c independent summands v x, x in the cells of a segment and, if shared, of the segments before it.

    ``cells`` are size, mean and deviation; ``starts`` the first cells of segments; ``groups`` segment, v, c, best and
    worst x; ``skewness`` bounds that of a cell.
    """

    is_negated = False
    moved = 0.0  # how far an atom was moved because its weight was condensed

    def __init__(
        self,
        cells: FloatArray,
        starts: IntArray,
        groups: tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray],
        shared: bool,
        skewness: float,
    ) -> None:
        self.size, self.mean, self.deviation = cells
        self.segment, self.v, self.c, self.best, self.worst = groups
        self.starts, self.shared, self.skewness, self.shift = starts, shared, skewness, 0.0
        self.low: IntArray = np.zeros(len(self.v), dtype=np.int64)  # first cells that a group leaves out
        if not shared:  # v (x - best) is in the cells
            length = np.diff(np.r_[starts, len(self.size)])
            v, best = np.repeat(self.v, length), np.repeat(self.best, length)
            self.mean, self.deviation = v * (self.mean - best), v * self.deviation
            self.shift = float(self.c @ (self.v * self.best))
            self.worst, self.best, self.v = self.v * (self.worst - self.best), 0.0 * self.best, np.ones(len(self.v))
        self.top, self.bottom = (self.shift + float(self.c @ (self.v * end)) for end in (self.best, self.worst))
        self.is_listed, self.num = not self.deviation.any(), float(self.c.sum())

    @cached_property
    def at_zero(self) -> FloatArray:
        """Cumulants at 0."""
        return self.cumulants(0.0)

    def negated(self) -> "Summands":
        """The distribution of -S."""
        other = copy(self)
        other.mean, other.best, other.worst, other.shift = -self.mean, -self.worst, -self.best, -self.shift
        other.top, other.bottom, other.is_negated = -self.bottom, -self.top, not self.is_negated
        other.__dict__.pop("at_zero", None)
        return other

    @cached_property
    def lengths(self) -> IntArray:
        """Number of values of a summand of each group."""
        return np.asarray(np.diff(np.r_[self.starts, len(self.size)]))

    def cells_of(self, group: int) -> slice:
        """Cells of a group."""
        segment = int(self.segment[group])
        end = int(self.starts[segment + 1]) if segment + 1 < len(self.starts) else len(self.size)
        return slice(int(self.low[group] if self.shared else self.starts[segment]), end)

    def _rows(self, t: float, *, share: bool) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Row of each group: rows share sums over cells; weight, largest x and sizes of cells of each row.

        If ``share``, weights share a row if they differ by two percent, or by little as exponents.
        """
        best, key = self.best if t >= 0 else self.worst, self.v
        if share and len(np.unique(key)) > _ROWS:
            y = 20 * np.abs(t) * self.v * float((self.best - self.worst).max())
            key = np.rint(np.where(y < 20, y, 20 + 50 * np.log(np.maximum(y / 20, 1))))
        scale = np.rint(t * self.v * best / 300.0)  # sums that share a row must share a scale
        key = key + 1j * (scale * (self.low.max() + 1) + self.low)
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        row = row.ravel()
        anchor = np.full(len(first), -np.inf if t >= 0 else np.inf)
        (np.maximum if t >= 0 else np.minimum).at(anchor, row, best)
        size = np.where(np.arange(len(self.size)) < self.low[first, None], 0.0, self.size)
        return row, np.bincount(row, self.v) / np.bincount(row), anchor, size

    def _sums(self, terms: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums over the cells of each segment: (..., cells) in, (..., segments) out."""
        sums = np.add.reduceat(terms, self.starts, axis=-1)
        return sums.cumsum(axis=-1) if self.shared else sums

    def cumulants(self, t: float) -> FloatArray:
        """K(t), its first three derivatives, and the possible error of K because of the cells; by Taylor's theorem."""
        row, weight, anchor, size = self._rows(t, share=True)
        u = t * weight
        k, off = np.zeros((4, len(row))), np.zeros(len(row))
        mass = self._sums(size)[row, self.segment]
        for sign in (0,) if self.is_listed else (-1, 1):
            y = self.mean + sign * self.deviation - anchor[:, None]
            e = size * np.exp(np.minimum(u[:, None] * y, 0.0)) * (0.5 if sign else 1.0)
            if sign:
                rough = np.minimum(np.abs(u[:, None]) * self.deviation, 1e60)  # its powers must not overflow
                off += self._sums(e * (rough**4 / 30 + rough**3 * (self.skewness / 6)))[row, self.segment]
            for power in range(4):
                k[power] += self._sums(e)[row, self.segment]
                e *= y
        k[0] = np.where(k[0] > 1e-280, k[0], np.nan)  # an underflow: t is too large
        k1, k2, k3 = k[1:] / k[0]
        var, third = k2 - k1**2, k3 - 3 * k1 * k2 + 2 * k1**3
        d, v = t * self.v - u[row], self.v
        logs = np.log(k[0] / mass) + t * v * anchor[row] + k1 * d + var * d**2 / 2 + third * d**3 / 6
        first = v * (anchor[row] + k1 + var * d + third * d**2 / 2)
        parts = logs, first, v**2 * np.maximum(var + third * d, 0.0), v**3 * third, off / k[0]
        return np.asarray(np.array(parts) @ self.c + np.array([t * self.shift, self.shift, 0.0, 0.0, 0.0]))

    def log_transform(self, t: float, first: float, step: float, number: int) -> ComplexArray:
        """Logarithm, up to multiples of 2 pi i, of the Fourier transform of the distribution tilted by t.

        At the frequencies first + step j, j < number.
        """
        row, weight, anchor, size = self._rows(t, share=False)
        half = math.sqrt(3) * weight[:, None] * self.deviation  # of a uniform distribution
        wide = half * abs(complex(t, first + step * number)) > _WIDE
        block = min(number, max(1, _BLOCK // size.size))
        theta = np.asarray(first + step * np.arange(-(-number // block) * block))
        terms, mass = [], np.zeros((len(anchor), len(self.starts)))
        for sign in (0,) if self.is_listed else (-1, 1):
            x = weight[:, None] * (self.mean + sign * self.deviation - anchor[:, None])
            e = at_mass = size * np.exp(np.minimum(t * x, 0.0)) * (0.5 if sign else 1.0)
            if wide.any():  # a wide cell is the integral of exp(z x): its ends, divided by z
                end = x + sign * (half - half / math.sqrt(3))
                at_end = size * np.exp(np.minimum(t * end, 0.0)) * sign / np.where(wide, 2 * half, 1.0)
                at_mass = np.where(wide & (half * t > _WIDE), at_end / t, e)
                x, e = np.where(wide, end, x), np.where(wide, at_end, e)
            mass += self._sums(at_mass)
            turns = np.exp(1j * (step * np.arange(block))[:, None] * x[:, None])
            terms.append(((e * np.exp(1j * first * x))[:, None], turns, np.exp(1j * step * block * x)[:, None]))
        result = np.empty(len(theta), dtype=np.complex128)
        for j in range(0, len(theta), block):
            both = sum(term * turn if block > 1 else term for term, turn, _ in terms)
            if wide.any():
                both *= np.where(wide[:, None], 1 / (t + 1j * theta[j : j + block, None]), 1.0)
            with np.errstate(divide="ignore"):
                result[j : j + block] = self.c @ np.log(self._sums(both)[row, :, self.segment])
            for term, _, ahead in terms:
                term *= ahead
        shift = self.shift + float(self.c @ (self.v * anchor[row]))
        return (result - self.c @ np.log(mass[row, self.segment]) + 1j * theta * shift)[:number]

    def saddlepoint(self, s: float) -> float:
        """The t > 0 with K'(t) = s, by Newton steps within a bracket; the result is approximate."""
        mean, var = self.at_zero[1:3]
        low, high = 1e-6 / math.sqrt(var) if var > 0 else 1.0, math.inf
        if s <= mean or var == 0:
            return low
        t = max((s - mean) / var, low)
        for _ in range(100):
            mean, var = self.cumulants(t)[1:3]
            if abs(mean - s) < 0.1 * math.sqrt(var):
                break
            low, high = (t, high) if mean < s else (low, t)
            limit = min(high, 4 * t)
            step = t + (s - mean) / var if abs(s - mean) < limit * var else math.inf  # the quotient may overflow
            t = step if low < step < limit else 2 * t if high == math.inf else (low + high) / 2
        return float(t)

    def intervals(self, group: int, short: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Intervals of shortfalls v (best - x) of a group: lower ends, upper ends, masses."""
        cells = self.cells_of(group)
        d = self.v[group] * (self.best[group] - self.mean[cells])
        return d, d, self.size[cells]

    def tilted(self, group: int, t: float) -> FloatArray:
        """Masses of the cells of a group, tilted by t, up to a factor."""
        cells = self.cells_of(group)
        y = t * self.v[group] * (self.mean[cells] - self.best[group])
        return np.asarray(self.size[cells] * np.exp(np.minimum(y, 0.0)))

    def log_best(self, short: float) -> float | None:
        """Log-probability of the largest sum; None if other sums may be within ``short`` of it."""
        return None

    def condensed(self) -> "Summands":
        """Fewer groups, if they are many; the caller corrects the first cumulants."""
        return self


class RankSummands(Summands):
    """Summands v f(r), r uniform on {low + 1..N}, for a monotone f."""

    def __init__(self, values: RankValues, low: IntArray, N: IntArray, v: FloatArray, c: FloatArray) -> None:
        self.values, self.first, self.N, self.given = values, low, N, v
        ends = values(np.r_[low + 1, N]).reshape(2, -1)
        shared = not values.is_step or len(N) * (len(values.jumps) + 1) > _CELLS
        if shared:
            fine = 4 if c.sum() <= _FEW else 1 if c.sum() <= _SINGLE else 0.5
            self.stop, cells = values.cells(np.unique(np.r_[low[low > 0], N]), RATIO / fine)
            last, segment = np.unique(np.searchsorted(self.stop, N), return_inverse=True)
            starts = np.r_[0, last[:-1]]
        else:  # a few atoms for each group
            stop, cells = values.cells(np.array([N.max()]), 1.0)
            size = np.maximum(np.minimum(stop[1:], N[:, None]) - stop[:-1], 0)
            group, cell = np.nonzero(size)
            starts, segment = np.searchsorted(group, np.arange(len(N))), np.arange(len(N))
            cells = np.stack([size[group, cell].astype(np.float64), *cells[1:, cell]])
        super().__init__(cells, starts, (segment.ravel(), v, c, ends.max(axis=0), ends.min(axis=0)), shared, RATIO)
        if shared:
            self.low, self.lengths = np.searchsorted(self.stop, low), N - low

    def intervals(self, group: int, short: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of N ranks, or the cells if f has few values."""
        if self.is_listed:
            return super().intervals(group, short)
        N, (first, last) = int(self.N[group]), self.values(np.array([1, self.N[group]]))
        sign = -1 if self.is_negated else 1

        def shortfall(place: IntArray) -> FloatArray:
            ranks = place if sign * first >= sign * last else N + 1 - place
            return np.asarray(self.v[group] * (self.best[group] - sign * self.values(ranks)))

        if N * len(self.c) <= _LISTED:
            d = shortfall(np.arange(1, N + 1))
            return d, d, np.ones(N)
        cut = bisect_right(range(1, N + 1), short, key=lambda place: shortfall(np.array([place]))[0])
        far = np.geomspace(_SINGLE, N, _INTERVALS // len(self.c) + _SINGLE).astype(np.int64)
        stop = np.unique(np.r_[np.arange(_SINGLE), cut, np.minimum(far, N), N])
        return shortfall(stop[:-1] + 1), shortfall(stop[1:]), np.diff(stop).astype(np.float64)

    def log_best(self, short: float) -> float | None:
        """Log-probability of rank 1 in all tasks; None if other sums may be within ``short`` of it."""
        several = self.N > 1
        first, second = self.values(np.array([1, 2]))
        is_alone = not self.is_negated and (self.given[several] * (first - second) > short).all()
        return -float(self.c @ np.log(self.N)) if is_alone else None

    def without_large(self, s: float, slack: float, coarse: bool) -> tuple[float, Summands]:
        """Leave out ranks that reach s by themselves, or many of them; log-probability that there are none."""
        ends = self.values(np.maximum(self.stop, 1)) if self.shared else np.zeros(1)
        if ends[0] <= ends[-1] or self.is_negated:
            return 0.0, self
        alone = self.stop[np.searchsorted(-ends[1:], -((s - slack - self.bottom) / self.v + self.worst), side="right")]
        if coarse:  # few distinct ranges, which share cells
            alone = np.where(alone > 0, np.exp2(np.floor(4 * np.log2(np.maximum(alone, 1))) / 4).astype(np.int64), 0)
        alone = np.minimum(alone, self.N - 1)
        log_open = float(self.c @ np.log1p(-alone / self.N))
        return log_open, RankSummands(self.values, alone, self.N, self.given, self.c) if alone.any() else self

    def condensed(self) -> Summands:
        """Near N and near weights as one, if they are many; the caller corrects the first cumulants."""
        rows = max(_ROWS, _CELLS // len(self.size)) if self.shared else _STEPS
        many = len(np.unique(self.given)) > rows or len(np.unique(self.N)) > _COUNTS
        if not many or (not self.shared and len(self.c) <= 4 * _STEPS):
            return self
        spread = float(((self.best - self.worst) * self.v / self.given).max())
        y = self.given * spread / (0.25 * math.sqrt(self.at_zero[2]) + 1e-300)  # beyond 1 a single task matters
        weight = _binned(np.where(y < 1, 2 * np.sqrt(y), y + 1), self.first, rows)
        size = _binned(np.log(self.N), 0 * self.N, _COUNTS)
        _, first, index = np.unique(weight + 1j * size, return_index=True, return_inverse=True)
        v = np.bincount(weight, self.c * self.given) / np.bincount(weight, self.c)
        N = np.rint(np.bincount(size, self.c) / np.bincount(size, self.c / self.N)).astype(np.int64)
        c: FloatArray = np.bincount(index.ravel(), self.c).astype(np.float64)
        few: Summands = RankSummands(self.values, self.first[first], N[size[first]], v[weight[first]], c)
        few.moved = float(np.abs(self.given - v[weight]).max()) * spread if self.is_listed else 0.0
        return few.negated() if self.is_negated else few


def _binned(x: FloatArray, group: IntArray, most: int) -> IntArray:
    """Index of the bin of each x: equal x, or else bins of equal width, in each group; about so many at most."""
    bins, width = np.unique(x, return_inverse=True)[1].ravel(), 1e-3
    while True:
        key, index = np.unique(group + 1j * bins, return_inverse=True)
        if len(key) <= most + len(np.unique(group)):
            return index.ravel()
        bins, width = np.rint(x / width), 1.5 * width


class ListedSummands(Summands):
    """Summands v x, each x with ascending values and their masses."""

    def __init__(self, lists: Sequence[Atoms], v: FloatArray, c: FloatArray) -> None:
        self.lists, self.given = lists, v
        most = max(4 * _STEPS, _CELLS // len({id(one) for one in lists}))
        distinct = {id(one): _cells_of_values(*one, most) for one in lists}
        cells = [distinct[id(one)] for one in lists]
        length = np.array([one.shape[1] for one in cells])
        best, worst = (np.array([x[end] for x, _ in lists]) for end in (-1, 0))
        groups = np.arange(len(lists)), v, c, best, worst
        super().__init__(np.concatenate(cells, axis=1), np.cumsum(length) - length, groups, False, 1.0)

    def log_best(self, short: float) -> float | None:
        """Log-probability of the largest value of all; None if other sums may be within ``short`` of it."""
        gaps = [x[-1] - x[-2] if len(x) > 1 else math.inf for x, _ in self.lists]
        if self.is_negated or not (self.given * np.array(gaps) > short).all():
            return None
        return float(self.c @ np.log([mass[-1] / mass.sum() for _, mass in self.lists]))

    def intervals(self, group: int, short: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of all values."""
        x, mass = self.lists[group]
        d = self.given[group] * (x - x[0] if self.is_negated else x[-1] - x)
        return d, d, mass


def _cells_of_values(x: FloatArray, mass: FloatArray, most: int) -> FloatArray:
    """About so many cells of values at most, (3, cells); fewer values are cells of their own."""
    begin = np.arange(len(x))
    if len(x) > most:
        share = np.linspace(0, 1, most // 3)[:-1]
        wide = np.searchsorted(x, x[0] + share * (x[-1] - x[0]))
        often = np.searchsorted(np.cumsum(mass), share * mass.sum())
        begin = np.unique(np.r_[0, wide, often, begin[-_SINGLE:]])
    return _cells(x, mass, begin)


def rank_summands(f: KnownTransform, sign: int, N: IntArray, v: FloatArray, c: FloatArray) -> Summands:
    """Sums of sign v f(r), or of sign v f(r, N)."""
    if f.uses_candidates:
        check_evaluations(f, np.unique(N))
        functions = {n: RankValues(f.at(n), sign, n) for n in np.unique(N).tolist()}
    else:
        shared = RankValues(f, sign, int(N.max()))
        if shared.is_monotone:
            return RankSummands(shared, np.zeros_like(N), N, v, c)
        functions = dict.fromkeys(np.unique(N).tolist(), shared)
    lists = {}
    for n, values in functions.items():
        x, number = np.unique(values(np.arange(1, n + 1)), return_counts=True)
        lists[n] = x, number.astype(np.float64)
    return ListedSummands([lists[n] for n in N.tolist()], v, c)
