"""Sums S of independent summands v x, such as f(r) for a uniform rank r: cumulants and Fourier transform.

Ranks are grouped in cells that all N share. A cell counts as two atoms, its mean plus and minus its standard deviation,
so that the moments of S up to the third order in the width of a cell are kept.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import FloatArray, IntArray
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
Groups = tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray]  # segment, v, c, largest and smallest x
RATIO = 1 / 64  # relative width of a cell of ranks beyond _SINGLE
_WIDE = 0.1  # phase within a cell from which on it is uniform instead of two atoms
_BLOCK = 1 << 15  # terms of sums over cells that are in memory at a time
_SINGLE = 128  # ranks that are cells of their own
_NODES = 4  # of the Gauss rule in a cell
_STEPS = 512  # an f with at most this many jumps is constant between them
_ROWS, _COUNTS = 96, 1000  # distinct weights and N; more are condensed
_CELLS = 1 << 16  # more weights are used where cells are so few
_FEW = 20  # tasks with narrower cells
_NARROWED, _ROUNDS = 128, 6  # groups whose ranges are narrowed in any case, and how often


class RankValues:
    """A transform at integer ranks, tabulated unless it has a closed form."""

    def __init__(self, f: KnownTransform, most: int) -> None:
        self._f, self.is_identity = f, f.is_identity
        self.table: FloatArray | None = None
        self.jumps: IntArray = np.empty(0, dtype=np.int64)
        self.is_step, self.is_monotone = isinstance(f, AtMost), True
        if isinstance(f, AtMost):
            self.jumps = np.array([f.k])
        elif not f.smooth:
            self.table = rank_table(f, min(most, f.constant_from))
            change = np.diff(self.table)
            self.jumps = np.flatnonzero(change) + 1
            self.is_step = len(self.jumps) <= _STEPS
            self.is_monotone = bool((change <= 0).all() or (change >= 0).all())
            if not self.is_step:
                self.jumps = np.argpartition(-np.abs(change), _ROWS)[:_ROWS] + 1

    def __call__(self, ranks: IntArray | FloatArray) -> FloatArray:
        """Values at ranks (m,)."""
        if self.table is None:
            return apply_transform(self._f, ranks.astype(np.float64))
        return self.table[np.minimum(ranks, len(self.table)).astype(np.int64) - 1]

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
        else:
            nodes, weights, number = np.arange(1.0, most + 1), np.ones(most), np.diff(stop)
        return stop, _cells(self(nodes), weights, np.cumsum(number) - number)


def _cells(values: FloatArray, mass: FloatArray, begin: IntArray) -> FloatArray:
    """Size, mean and standard deviation of cells that begin at some of the values, (3, cells)."""
    first, size = values[begin], np.add.reduceat(mass, begin)
    apart = values - np.repeat(first, np.diff(np.r_[begin, len(values)]))
    mean, square = (np.add.reduceat(mass * apart**k, begin) / size for k in (1, 2))
    return np.stack([size, first + mean, np.sqrt(np.maximum(square - mean**2, 0.0))])


class Summands:
    """Groups of c independent summands v x, each x with ascending values and their masses; v > 0.

    Values are in cells of a size, mean and deviation. Each group has its own segment of cells; or a segment includes
    the cells before it, and each group leaves out its ``low`` first cells.
    """

    moved = 0.0  # how far an atom was moved because its weight was condensed
    skewness = 1.0  # bound of that of a cell

    def __init__(self, lists: Sequence[Atoms], v: FloatArray, c: FloatArray) -> None:
        self.lists, self.given = lists, v
        most = max(4 * _STEPS, _CELLS // len({id(one) for one in lists}))
        distinct = {id(one): _cells_of_values(*one, most) for one in lists}
        cells = [distinct[id(one)] for one in lists]
        length = np.array([one.shape[1] for one in cells])
        best, worst = (np.array([x[end] for x, _ in lists]) for end in (-1, 0))
        self.num_listed = sum(len(x) for x, _ in lists)  # number of values that ``atoms`` of all groups list
        groups = np.arange(len(lists)), v, c, best, worst
        self._group(np.concatenate(cells, axis=1), np.cumsum(length) - length, groups)

    def _group(self, cells: FloatArray, starts: IntArray, groups: Groups, low: IntArray | None = None) -> None:
        self.size, self.mean, self.deviation = cells
        self.segment, self.v, self.c, self.best, self.worst = groups
        self.starts, self.low, self.shift = starts, low, 0.0
        if low is None:  # v (x - best) is in the cells
            length = np.diff(np.r_[starts, len(self.size)])
            v, best = np.repeat(self.v, length), np.repeat(self.best, length)
            self.mean, self.deviation = v * (self.mean - best), v * self.deviation
            self.shift = self.total(self.v * self.best)
            self.worst, self.best, self.v = self.v * (self.worst - self.best), 0.0 * self.best, np.ones(len(self.v))
        self.top, self.bottom = (self.shift + self.total(self.v * end) for end in (self.best, self.worst))
        self.weights, self.level = np.unique(self.v, return_inverse=True)
        self.is_listed, self.num = not self.deviation.any(), float(self.c.sum())

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        x, mass = self.lists[group]
        return self.given[group] * (x[-1] - x), mass

    def negated(self) -> "Summands":
        """The distribution of -S."""
        turned = {id(one): (-one[0][::-1], one[1][::-1]) for one in self.lists}
        return Summands([turned[id(one)] for one in self.lists], self.given, self.c)

    def condensed(self) -> "Summands":
        """Fewer groups, if they are many; the caller corrects the first cumulants."""
        return self

    def narrowed(self, s: float, slack: float) -> tuple[float, float, "Summands"]:
        """P(S >= s) is exp(first) + exp(second) P(third >= s)."""
        short = self.top - s + slack
        if any(len(x) > 1 and v * (x[-1] - x[-2]) <= short for (x, _), v in zip(self.lists, self.given, strict=True)):
            return -math.inf, 0.0, self
        return self.total(np.log([mass[-1] / mass.sum() for _, mass in self.lists])), -math.inf, self

    def total(self, of_each: FloatArray) -> float:
        """Sum over all summands of a number of each group (groups,); BLAS would start threads."""
        return float((of_each * self.c).sum())

    def cells_of(self, group: int) -> slice:
        """Cells of a group."""
        segment = int(self.segment[group])
        end = int(self.starts[segment + 1]) if segment + 1 < len(self.starts) else len(self.size)
        return slice(int(self.starts[segment] if self.low is None else self.low[group]), end)

    def _rows(self, t: float, *, share: bool) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Row of each group: rows share sums over cells; weight, largest x and sizes of cells of each row.

        If ``share``, weights share a row if they differ by two percent, or by little as exponents.
        """
        best, key = self.best if t >= 0 else self.worst, self.level
        if share and len(self.weights) > _ROWS:
            y = 20 * abs(t) * self.v * float((self.best - self.worst).max())
            key = np.rint(np.where(y < 20, y, 20 + 50 * np.log(np.maximum(y / 20, 1)))).astype(np.int64)
        scale = np.rint(t * self.v * best / 300.0)  # sums that share a row must share a scale
        code = key + (key.max() + 1) * (scale - scale.min()).astype(np.int64)
        if self.low is not None and self.low.any():
            code = self.low + (self.low.max() + 1) * code
        if code.max() < len(code):  # without sorting
            used = np.bincount(code) > 0
            row = (np.cumsum(used) - 1)[code]
        else:
            row = np.unique(code, return_inverse=True)[1]
        low = np.zeros(row.max() + 1, dtype=np.int64)
        if self.low is not None:
            low[row] = self.low
        anchor = np.full(len(low), -np.inf if t >= 0 else np.inf)
        (np.maximum if t >= 0 else np.minimum).at(anchor, row, best)
        size = np.where(np.arange(len(self.size)) < low[:, None], 0.0, self.size)
        return row, np.bincount(row, self.v) / np.bincount(row), anchor, size

    def _sums(self, terms: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums over the cells of each segment: (..., cells) in, (..., segments) out."""
        sums = np.add.reduceat(terms, self.starts, axis=-1)
        return sums if self.low is None else sums.cumsum(axis=-1)

    @cached_property
    def at_zero(self) -> FloatArray:
        """Cumulants at 0."""
        return self.cumulants(0.0)

    def cumulants(self, t: float) -> FloatArray:
        """K(t), its first three derivatives, and the possible error of K because of the cells; by Taylor's theorem."""
        row, weight, anchor, size = self._rows(t, share=True)
        u = t * weight
        terms, mass = np.zeros((5, *size.shape)), self._sums(size)[row, self.segment]
        for sign in (0,) if self.is_listed else (-1, 1):
            y = self.mean + sign * self.deviation - anchor[:, None]
            e = size * np.exp(np.minimum(u[:, None] * y, 0.0)) * (0.5 if sign else 1.0)
            if sign:
                rough = np.minimum(np.abs(u[:, None]) * self.deviation, 1e60)  # its powers must not overflow
                terms[4] += e * (rough**4 / 30 + rough**3 * (self.skewness / 6))
            for power in range(4):
                terms[power] += e
                e *= y
        *k, off = (self._sums(one)[row, self.segment] for one in terms)
        k1, k2, k3 = (one / k[0] for one in k[1:])
        var, third = k2 - k1**2, k3 - 3 * k1 * k2 + 2 * k1**3
        d, v = t * self.v - u[row], self.v
        logs = np.log(k[0] / mass) + t * v * anchor[row] + k1 * d + var * d**2 / 2 + third * d**3 / 6
        first = v * (anchor[row] + k1 + var * d + third * d**2 / 2)
        parts = logs, first, v**2 * np.maximum(var + third * d, 0.0), v**3 * third, off / k[0]
        return np.asarray((np.array(parts) * self.c).sum(axis=1) + np.array([t * self.shift, self.shift, 0, 0, 0]))

    def log_transform(self, t: float, first: float, step: float, number: int) -> ComplexArray:
        """Logarithm, up to multiples of 2 pi i, of the Fourier transform of the distribution tilted by t.

        At the frequencies first + step j, j < number.
        """
        row, weight, anchor, size = self._rows(t, share=False)
        half = math.sqrt(3) * weight[:, None] * self.deviation  # of a uniform distribution
        wide = half * abs(complex(t, first + step * number)) > _WIDE
        block = min(number, max(1, _BLOCK // size.size))
        theta = np.asarray(first + step * np.arange(-(-number // block) * block))
        terms, turns, mass = [], [], np.zeros((len(anchor), len(self.starts)))
        for sign in (0,) if self.is_listed else (-1, 1):
            x = weight[:, None] * (self.mean + sign * self.deviation - anchor[:, None])
            e = at_mass = size * np.exp(np.minimum(t * x, 0.0)) * (0.5 if sign else 1.0)
            if wide.any():  # a wide cell is the integral of exp(z x): its ends, divided by z
                end = x + sign * (half - half / math.sqrt(3))
                # an end may be beyond the largest x of its row; cells that a group leaves out must not overflow
                at_end = size * np.exp(np.minimum(t * end, 600.0)) * sign / np.where(wide, 2 * half, 1.0)
                at_mass = np.where(wide & (half * t > _WIDE), at_end / t, e)
                x, e = np.where(wide, end, x), np.where(wide, at_end, e)
            mass += self._sums(at_mass)
            terms.append((e * np.exp(1j * (first - step) * x))[:, None])
            turns.append(np.exp(1j * (step * np.arange(1, block + 1))[:, None] * x[:, None]))
        # the logarithm of a product takes as long as that of a number; a product that underflows is negligible
        order = np.argsort(self.c, kind="stable")
        number_of_each, begin = np.unique(self.c[order], return_index=True)
        row_of_each, segment_of_each = row[order], self.segment[order]
        mass = mass[row_of_each, segment_of_each, None]
        result = np.empty(len(theta), dtype=np.complex128)
        for j in range(0, len(theta), block):
            parts = [term * turn for term, turn in zip(terms, turns, strict=True)]
            terms = [part[:, -1:] for part in parts]
            both = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            if wide.any():
                both = both * np.where(wide[:, None], 1 / (t + 1j * theta[j : j + block, None]), 1.0)
            products = np.multiply.reduceat(self._sums(both)[row_of_each, :, segment_of_each] / mass, begin, axis=0)
            result[j : j + block] = (number_of_each[:, None] * np.log(products)).sum(axis=0)
        shift = self.shift + self.total(self.v * anchor[row])
        return (result + 1j * theta * shift)[:number]

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
            t = step if low < step < limit else min(2 * t, (low + high) / 2)
        return float(t)


class RankSummands(Summands):
    """Summands v x with x = sign f(r), r uniform on {low + 1..N}, for a monotone f."""

    skewness = RATIO

    def __init__(self, f: RankValues, sign: int, low: IntArray, N: IntArray, v: FloatArray, c: FloatArray) -> None:
        self.f, self.sign, self.first, self.N, self.given = f, sign, low, N, v
        ends = sign * f(np.r_[low + 1, N]).reshape(2, -1)
        self.falls = bool((ends[0] >= ends[1]).all())
        self.range = best, worst = ends if self.falls else ends[::-1]
        if f.is_step and len(N) * (len(f.jumps) + 1) <= _CELLS:  # a few atoms for each group
            self.stop, cells = f.cells(N.max(keepdims=True), 1.0)
            size = np.minimum(self.stop[1:], N[:, None]) - np.maximum(self.stop[:-1], low[:, None])
            group, cell = np.nonzero(size > 0)
            starts = np.searchsorted(group, np.arange(len(N)))
            cells = np.stack([size[group, cell].astype(np.float64), *cells[1:, cell]])
            segment, first = np.arange(len(N)), None
        else:
            ends = np.r_[N, low]
            if low.any():  # narrow ranges
                ranges = (low, N) if len(N) <= _FEW else (low.min(), N.max())
                ends = np.r_[ends, np.rint(np.linspace(ranges[0], ranges[1], _SINGLE)).astype(np.int64).ravel()]
            self.stop, cells = f.cells(np.unique(ends[ends > 0]), RATIO if c.sum() <= _FEW else 2 * RATIO)
            ends, segment = np.unique(np.searchsorted(self.stop, N), return_inverse=True)
            cells, starts, first = cells[:, : ends[-1]], np.r_[0, ends[:-1]], np.searchsorted(self.stop, low)
        cells[1] *= sign
        self._group(cells, starts, (segment.ravel(), v, c, best, worst), first)
        self.num_listed = len(self.size) * len(N) if self.is_listed else int((N - low).sum())

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        if not self.is_listed:
            x = self.sign * self.f(np.arange(self.first[group] + 1, self.N[group] + 1))
            return self.v[group] * (self.best[group] - x), np.ones(len(x))
        cells = self.cells_of(group)
        return self.v[group] * (self.best[group] - self.mean[cells]), self.size[cells]

    def negated(self) -> Summands:
        """The distribution of -S."""
        return RankSummands(self.f, -self.sign, self.first, self.N, self.given, self.c)

    def narrowed(self, s: float, slack: float) -> tuple[float, float, Summands]:
        """Leave out cells of ranks that reach s by themselves, and cells that rule it out.

        P(S >= s) is exp(first) + exp(second) P(third >= s).
        """
        log_reached, log_open, rest = -math.inf, 0.0, self
        for turn in range(_ROUNDS):
            if s > rest.top + slack or s <= rest.bottom + slack:
                break
            # positions are ranks counted from the best one; ends of cells are their best and worst values
            ends = self.sign * self.f(np.r_[rest.stop[:-1] + 1, rest.stop[1:]]).reshape(2, -1)
            stop, low, high, last = rest.stop, rest.first, rest.N, rest.stop[-1]
            if not rest.falls:
                stop, low, high, ends = last - stop[::-1], last - high, last - low, ends[::-1, ::-1]
            possible, alone = (
                np.clip(stop[np.searchsorted(-x, (total + slack - s) / self.given - end, side="right")], low, high)
                for x, end, total in zip(ends, rest.range, (rest.top, rest.bottom), strict=True)
            )
            if (possible - alone >= (high - low) * (0.9 if turn and len(low) > _NARROWED else 1.0)).all():
                break
            left = float(self.c @ np.log1p(-(alone - low) / (high - low)))
            log_reached = float(np.logaddexp(log_reached, log_open + log_complement(left)))
            log_open += float(self.c @ np.log((possible - alone) / (high - low)))
            if log_open == -math.inf:
                return log_reached, log_open, self
            low, high = (alone, possible) if rest.falls else (last - possible, last - alone)
            rest = RankSummands(self.f, self.sign, low, high, self.given, self.c)
        if len(self.c) > _NARROWED and rest.top - rest.bottom > 0.5 * (self.top - self.bottom):
            return -math.inf, 0.0, self
        return log_reached, log_open, rest

    def condensed(self) -> Summands:
        """Near N and near weights as one, if they are many; the caller corrects the first cumulants."""
        rows = _STEPS if self.low is None else max(_ROWS, _CELLS // len(self.size))
        weights, sizes = (np.unique(x, return_inverse=True)[0] for x in (self.given, self.N))  # by sorting: faster
        many = len(weights) > rows or len(sizes) > _COUNTS
        if not many or (self.low is None and len(self.c) <= 4 * _STEPS):
            return self
        spread = float(((self.best - self.worst) * self.v / self.given).max())
        y = self.given * spread / (0.25 * math.sqrt(self.at_zero[2]) + 1e-300)  # beyond 1 a single task matters
        weight = _binned(np.where(y < 1, 2 * np.sqrt(y), y + 1), self.first, rows)
        size = _binned(np.log(self.N), 0 * self.N, _COUNTS)
        _, first, index = np.unique(weight * (size.max() + 1) + size, return_index=True, return_inverse=True)
        v = np.bincount(weight, self.c * self.given) / np.bincount(weight, self.c)
        N = np.rint(np.bincount(size, self.c) / np.bincount(size, self.c / self.N)).astype(np.int64)
        c: FloatArray = np.bincount(index, self.c).astype(np.float64)
        few = RankSummands(self.f, self.sign, self.first[first], N[size[first]], v[weight[first]], c)
        few.moved = float(np.abs(self.given - v[weight]).max()) * spread if self.is_listed else 0.0
        return few


def _binned(x: FloatArray, group: IntArray, most: int) -> IntArray:
    """Index of the bin of each x: equal x, or else bins of equal width, in each group; about so many at most."""
    places, bins = np.unique(x, return_inverse=True)
    groups, group = np.unique(group, return_inverse=True)
    width = (places[-1] - places[0]) / (16 * most)
    while True:
        keys, index = np.unique(group * (bins.max() + 1) + bins, return_inverse=True)
        if len(keys) <= most + len(groups):
            return index
        bins, width = np.rint((x - places[0]) / width).astype(np.int64), 1.5 * width


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
        functions = {n: RankValues(f.at(n), n) for n in np.unique(N).tolist()}
    else:
        shared = RankValues(f, int(N.max()))
        if shared.is_monotone:
            return RankSummands(shared, sign, np.zeros_like(N), N, v, c)
        functions = dict.fromkeys(np.unique(N).tolist(), shared)
    lists = {n: merged(sign * values(np.arange(1, n + 1)), np.full(n, 1 / n)) for n, values in functions.items()}
    return Summands([lists[n] for n in N.tolist()], v, c)


def log_complement(log_q: float) -> float:
    """Log(1 - q) from log q."""
    if log_q >= 0:
        return -math.inf
    return math.log1p(-math.exp(log_q)) if log_q < -0.7 else math.log(-math.expm1(log_q))


def merged(x: FloatArray, mass: FloatArray) -> Atoms:
    """Ascending values, those equal up to rounding as one, with their masses."""
    order = np.argsort(x, kind="stable")
    x, mass = x[order], mass[order]
    first = np.flatnonzero(np.r_[True, np.diff(x) > 1e-13 * np.abs(x[1:])])
    return x[first], np.add.reduceat(mass, first)
