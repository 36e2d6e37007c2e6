"""Sums S of independent summands v x, such as f(r) for a uniform rank r: cumulants and Fourier transform.

Ranks are grouped in cells that all N share. A cell counts as two atoms, its mean plus and minus its standard deviation,
so that the moments of S up to the third order in the width of a cell are kept. Transforms are evaluated by FFT. Sums
over many weights or N are interpolated between few of them, by Lagrange: in effect the groups at these nodes are drawn
a number of times that need not be an integer. The difference of two orders of interpolation counts as their error.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import next_fast_len, rfft
from scipy.sparse import csr_array

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
_RATIO = 1 / 64  # relative width of a cell of ranks beyond _SINGLE
_WIDE = 0.1  # phase within a cell from which on it is uniform instead of two atoms
_TAPS = 12  # points of a grid over which an atom is spread: the error of a transform is about 1e-11
_BLOCK = 1 << 12  # atoms that are spread at a time
_SINGLE = 128  # ranks that are cells of their own
_NODES = 4  # of the Gauss rule in a cell
MOST_STEPS = 1 << 12  # products of steps and weights that may have a common divisor; distinct steps of f
_STEPS = 512  # an f with at most this many jumps is constant between them
_ROWS, _PLACES = 256, 1 << 11  # distinct weights, and transforms; more are condensed
_KEPT = 128  # groups with the largest weight x range, which are not condensed
_MANY = 512, 4096  # groups up to which none is condensed, and those of steps, whose transforms are cheap
_SMALL, _FEW_JUMPS = 32, 8  # N up to which all are nodes; jumps of f at which nodes are separate
_NODES_OF_V, _NODES_OF_N = 16, 10  # of interpolation, the latter for each factor e
_CELLS = 1 << 16  # atoms of all groups that need no condensing
_FEW = 20  # tasks with narrower cells
_ALL_NARROWED, _LOWS = 1024, 32  # of more groups only _KEPT are narrowed, if more lower ends of ranges would differ
_ROUNDS = 6  # how often ranges are narrowed
_DOUBT = 32  # times the difference of two orders: an error was up to 26 times as large, at strong tilts


class RankValues:
    """A transform at integer ranks, tabulated unless it has a closed form."""

    def __init__(self, f: KnownTransform, most: int) -> None:
        self._f = f
        self.table: FloatArray | None = None
        self.jumps: IntArray = np.empty(0, dtype=np.int64)
        self.steps: FloatArray = np.ones(int(f.is_identity or isinstance(f, AtMost)))
        self.is_step, self.is_monotone = isinstance(f, AtMost), True
        if isinstance(f, AtMost):
            self.jumps = np.array([f.k])
        elif not f.smooth:
            self.table = rank_table(f, min(most, f.constant_from))
            change = np.diff(self.table)
            self.jumps = np.flatnonzero(change) + 1
            self.is_step = len(self.jumps) <= _STEPS
            self.is_monotone = bool((change <= 0).all() or (change >= 0).all())
            if len(np.unique(np.abs(change[: 2 * MOST_STEPS]))) <= MOST_STEPS:  # else the sort of all is slow
                self.steps = np.unique(np.abs(change))
            if not self.is_step:
                self.jumps = np.argpartition(-np.abs(change), _ROWS)[:_ROWS] + 1

    def __call__(self, ranks: IntArray | FloatArray) -> FloatArray:
        """Values at ranks (m,)."""
        if self.table is None:
            return apply_transform(self._f, ranks.astype(np.float64))
        return self.table[np.minimum(ranks, len(self.table)).astype(np.int64) - 1]

    def stops(self, ends: IntArray, ratio: float) -> IntArray:
        """Boundaries of cells of ranks, ``ends`` among them."""
        most = int(ends.max())
        if not self.is_step:
            far = np.arange(math.ceil(math.log(max(most / _SINGLE, 1)) / ratio))
            ends = np.r_[ends, np.arange(_SINGLE) + 1, np.rint(_SINGLE * np.exp(ratio * far)).astype(np.int64)]
        stop = np.unique(np.r_[0, ends, self.jumps])
        return stop[stop <= most]

    def cells(self, ends: IntArray, ratio: float) -> tuple[IntArray, FloatArray]:
        """Boundaries of cells of ranks; size, mean, standard deviation and skewness of each cell, (4, m)."""
        stop = self.stops(ends, ratio)
        if self.table is None or self.is_step:
            nodes, weights, number = panel_rule(stop[:-1] + 1, np.diff(stop), 1 if self.is_step else _NODES)
            return stop, _cells(self(nodes), weights, np.cumsum(number) - number)
        values = self.table[: stop[-1]]
        if len(values) < stop[-1]:
            values = np.pad(values, (0, stop[-1] - len(values)), "edge")
        return stop, _cells(values, np.ones(stop[-1]), stop[:-1])


def _cells(values: FloatArray, mass: FloatArray, begin: IntArray) -> FloatArray:
    """Size, mean, standard deviation and skewness of cells that begin at some of the values, (4, cells)."""
    first, size = values[begin], np.add.reduceat(mass, begin)
    apart = values - np.repeat(first, np.diff(np.r_[begin, len(values)]))
    terms = mass.copy()
    mean, square, cube = (np.add.reduceat(np.multiply(terms, apart, out=terms), begin) / size for _ in range(3))
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    skewness = np.abs(cube - 3 * mean * square + 2 * mean**3) / np.maximum(deviation, 1e-99) ** 3
    return np.stack([size, first + mean, deviation, skewness])


class Summands:
    """Groups of c independent summands v x, each x with ascending values and their masses; v > 0.

    Values are in cells of a size, mean, deviation and skewness. Each group has its own segment of cells; or a segment
    includes the cells before it, and each group leaves out its ``low`` first cells. A cell counts as two atoms,
    ``apart`` from its mean.
    """

    doubt: FloatArray | None = None  # possible error of c
    other: "Summands | None" = None  # further summands
    steps: FloatArray = np.empty(0)  # between values x, if they are known for all groups

    def __init__(self, lists: Sequence[Atoms], v: FloatArray, c: FloatArray) -> None:
        self.lists, self.given, self.c, self.num = lists, v, c, float(c.sum())
        most = max(4 * _STEPS, _CELLS // len({id(one) for one in lists}))
        distinct = {id(one): _cells_of_values(*one, most) for one in lists}
        cells = [distinct[id(one)] for one in lists]
        length = np.array([one.shape[1] for one in cells])
        self.range = np.array([(x[-1], x[0]) for x, _ in lists]).T
        self.num_listed = sum(len(x) for x, _ in lists)  # number of values that ``atoms`` of all groups list
        self.top, self.bottom = self.total(v * self.range).tolist()
        self._divide(np.concatenate(cells, axis=1), np.cumsum(length) - length, np.arange(len(lists)))
        self.few: Summands = self  # whose cumulants and transforms are evaluated

    def _divide(self, cells: FloatArray, starts: IntArray, segment: IntArray, low: IntArray | None = None) -> None:
        size, mean, deviation, skewness = cells
        self.segment, self.v, self.shift = segment, self.given, np.zeros(2)
        self.best, self.worst = self.range
        if low is None:  # v (x - best) is in the cells
            v, best = (np.repeat(x, np.diff(np.r_[starts, len(size)])) for x in (self.v, self.best))
            mean, deviation = v * (mean - best), v * deviation
            self.shift = self._totals(self.v * self.best)
            self.worst, self.best, self.v = self.v * (self.worst - self.best), 0.0 * self.best, np.ones(len(self.v))
        atoms = 1 + (deviation > 0)
        begin, cell = np.cumsum(atoms) - atoms, np.repeat(np.arange(len(atoms)), atoms)
        self.apart = deviation[cell] * (2 * (np.arange(len(cell)) - begin[cell]) - 1)
        self.x, self.mass, self.skewness = mean[cell] + self.apart, (size / atoms)[cell], skewness[cell]
        self.low = None if low is None else np.r_[begin, len(cell)][low]
        self.level = np.unique(self.v, return_inverse=True)[1]
        self.starts, self.is_listed = begin[starts], not deviation.any()
        self.places = len({*zip(0 * segment if low is None else low, self.level, segment, strict=True)})  # transforms

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        x, mass = self.lists[group]
        return self.given[group] * (x[-1] - x), mass

    def negated(self) -> "Summands":
        """The distribution of -S."""
        turned = {id(one): (-one[0][::-1], one[1][::-1]) for one in self.lists}
        return Summands([turned[id(one)] for one in self.lists], self.given, self.c)

    def narrowed(self, s: float, slack: float) -> tuple[float, float, "Summands"]:
        """P(S >= s) is exp(first) + exp(second) P(third >= s)."""
        others = [v * (x[-1] - x[-2]) for (x, _), v in zip(self.lists, self.given, strict=True) if len(x) > 1]
        if min(others, default=math.inf) <= self.top - s + slack:
            return -math.inf, 0.0, self
        return self.total(np.log([mass[-1] / mass.sum() for _, mass in self.lists])), -math.inf, self

    def total(self, of_each: npt.NDArray[Any]) -> Any:
        """Sums over all summands of numbers of each group (..., groups); BLAS would start threads."""
        return (of_each * self.c).sum(axis=-1)

    def _totals(self, of_each: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums over all summands of numbers of each group (..., groups), and their possible error: (..., 2)."""
        doubt = 0.0 * self.c if self.doubt is None else self.doubt
        return np.stack([self.total(of_each), (of_each * doubt).sum(axis=-1)], axis=-1)

    def part(self, groups: IntArray) -> "Summands":
        """Some of the groups."""
        return Summands([self.lists[group] for group in groups], self.given[groups], self.c[groups])

    def atoms_of(self, group: int) -> slice:
        """Atoms of a group."""
        segment = int(self.segment[group])
        end = int(self.starts[segment + 1]) if segment + 1 < len(self.starts) else len(self.x)
        return slice(int(self.starts[segment] if self.low is None else self.low[group]), end)

    def _rows(self, t: float) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Row of each group: rows share sums over atoms; weight, largest x and masses of atoms of each row."""
        best = self.best if t >= 0 else self.worst
        scale = np.rint(t * self.v * best / 300.0)  # sums that share a row must share a scale
        low: IntArray = np.zeros(len(self.v), dtype=np.int64) if self.low is None else self.low
        code = self.level + (self.level.max() + 1) * ((scale - scale.min()).astype(np.int64) * (low.max() + 1) + low)
        _, first, row = np.unique(code, return_index=True, return_inverse=True)
        anchor = np.full(len(first), -np.inf if t >= 0 else np.inf)
        (np.maximum if t >= 0 else np.minimum).at(anchor, row, best)
        return row, self.v[first], anchor, np.where(np.arange(len(self.x)) < low[first, None], 0.0, self.mass)

    def _sums(self, terms: FloatArray) -> FloatArray:
        """Sums over the atoms of each segment: (..., atoms) in, (..., segments) out."""
        sums = np.add.reduceat(terms, self.starts, axis=-1)
        return sums if self.low is None else sums.cumsum(axis=-1)

    @cached_property
    def at_zero(self) -> FloatArray:
        """Cumulants at 0."""
        return self.cumulants(0.0)

    def expected(self, t: float) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
        """Expected number and value of each atom of the tilted distribution, for units of groups that share atoms.

        Also the first atom of each unit, and the unit of each group.
        """
        row, weight, anchor, mass = self._rows(t)
        x = weight[:, None] * (self.x - anchor[:, None])
        e, number = mass * np.exp(np.minimum(t * x, 0.0)), np.zeros((len(x), len(self.starts)))
        np.add.at(number, (row, self.segment), np.maximum(self.c, 0.0) / self._sums(e)[row, self.segment])
        if self.low is not None:  # groups have the atoms of the segments before theirs, too
            number = number[:, ::-1].cumsum(axis=1)[:, ::-1]
        e *= np.repeat(number, np.diff(np.r_[self.starts, len(self.x)]), axis=1)
        starts, unit = (self.starts, self.segment) if self.low is None else (np.arange(len(x)) * len(self.x), row)
        return e.ravel(), x.ravel(), starts, unit

    def cumulants(self, t: float) -> FloatArray:
        """K(t), its first three derivatives, and the possible error of K."""
        row, weight, anchor, mass = self._rows(t)
        u = t * weight[:, None]
        y = self.x - anchor[:, None]
        e = mass * np.exp(np.minimum(u * y, 0.0))
        rough = np.minimum(np.abs(u * self.apart), 1e60)  # its powers must not overflow
        off = self._sums(e * (rough * rough * rough) * (rough / 30 + self.skewness / 6))  # ** would be slow
        k = []
        for _ in range(4):
            k.append(self._sums(e)[row, self.segment])
            e *= y
        v, (k1, k2, k3) = self.v, (one / k[0] for one in k[1:])
        logs = np.log(k[0] / self._sums(mass)[row, self.segment]) + t * v * anchor[row]
        parts = logs, v * (anchor[row] + k1), v**2 * np.maximum(k2 - k1**2, 0.0), v**3 * (k3 - 3 * k1 * k2 + 2 * k1**3)
        sums, doubt = (self._totals(np.array(parts)) + np.multiply.outer([t, 1, 0, 0], self.shift)).T
        all_sums = np.append(sums, (np.abs(self.c) * (off[row, self.segment] / k[0])).sum() + _DOUBT * abs(doubt[0]))
        return all_sums if self.other is None else all_sums + self.other.cumulants(t)

    def log_transform(self, t: float, step: float, number: int, *, on_grid: bool = False) -> npt.NDArray[Any]:
        """Logarithm of the Fourier transform of the distribution tilted by t, and its possible error: (number, 2).

        Up to multiples of 2 pi i, at the frequencies step j, j < number. ``on_grid``: values are multiples of
        2 pi / step / (2 number - 1).
        """
        row, weight, anchor, mass = self._rows(t)
        at, atom = np.nonzero(mass)
        # a place is a transform that groups need: of a row up to a segment, or of a segment alone
        needed, group = np.unique(row * len(self.starts) + self.segment, return_inverse=True)
        code = at * len(self.starts) + np.searchsorted(self.starts, atom, side="right") - 1
        place, places = np.searchsorted(needed, code), len(needed)
        first = np.append(needed, -1)[place]
        used = first == code if self.low is None else first // len(self.starts) == at
        at, atom, place = at[used], atom[used], place[used]
        x, apart = weight[at] * (self.x[atom] - anchor[at]), weight[at] * self.apart[atom]
        # a wide cell is the integral of exp(z x) instead of two atoms: its ends, divided by z
        z, half = t + 1j * step * np.arange(number), math.sqrt(3) * apart
        wide = abs(half) * abs(complex(t, step * number)) > _WIDE
        x = np.where(wide, x + half - apart, x)
        e = mass[at, atom] * np.exp(np.minimum(t * x, 600.0))  # atoms of other groups must not overflow
        in_all = np.bincount(place, np.where(wide & (t * abs(half) > 1e-5), e / (t * half), e), places)
        x, e, place = step / (2 * math.pi) * x, np.where(wide, e / half, e), place + places * wide
        found = _fourier(x, e, place, places * (1 + int(wide.any())), number, on_grid)
        if wide.any():
            found = found[:places] + found[places:] * (1 / z)  # complex division is slow
        found[:, 0] = in_all
        if self.low is not None:
            for of_row in np.split(found, np.flatnonzero(np.diff(needed // len(self.starts))) + 1):
                np.cumsum(of_row, axis=0, out=of_row)
        found *= 1 / found[:, :1]
        theta, shift = z.imag[:, None], self.shift + self._totals(self.v * anchor[row])
        if self.doubt is None:  # the logarithm of a product takes as long as that of a number
            order = np.argsort(self.c, kind="stable")
            c, begin = np.unique(self.c[order], return_index=True)
            logs = (c[:, None] * _log(np.multiply.reduceat(found[group[order]], begin, axis=0))).sum(axis=0)
            return np.asarray(np.stack([logs, 0.0 * z], axis=1) + 1j * theta * shift)
        logs = _log(found)[group]  # continuous, as numbers are not integers
        logs.imag[:, 1:] -= 2 * math.pi * np.rint(np.diff(logs.imag) / (2 * math.pi)).cumsum(axis=1)
        others = 0.0 if self.other is None else self.other.log_transform(t, step, number)
        return np.asarray(self._totals(logs.T) + 1j * theta * shift + others)

    def saddlepoint(self, s: float) -> tuple[float, FloatArray]:
        """The t > 0 with K'(t) = s, by Newton steps within a bracket, approximately; and the cumulants at t."""
        mean, var = self.at_zero[1:3]
        low, high = 1e-6 / math.sqrt(var) if var > 0 else 1.0, math.inf
        if s <= mean or var == 0 or mean <= self.bottom:  # the interpolated mean may be off
            return low, self.cumulants(low)
        t = 0.0
        for _ in range(100):
            # Newton's step for log(K' - bottom), which is nearly linear where few large values matter
            above = mean - self.bottom
            far, limit = above * math.log((s - self.bottom) / above), min(high, 4 * t or math.inf)
            step = t + far / var if abs(far) < limit * var else math.inf  # the quotient may overflow
            t = step if low < step < limit else max(low, min(2 * t, (low + high) / 2))
            found = self.cumulants(t)
            mean, var = found[1:3]
            if abs(mean - s) < 0.2 * math.sqrt(var) or is_unknown(t, s, found):
                break
            low, high = (t, high) if mean < s else (low, t)
        return float(t), found


class RankSummands(Summands):
    """Summands v x with x = sign f(r), r uniform on {low + 1..N}, for a monotone f."""

    def __init__(self, f: RankValues, sign: int, low: IntArray, N: IntArray, v: FloatArray, c: FloatArray) -> None:
        self.f, self.sign, self.first, self.N, self.given, self.c = f, sign, low, N, v, c
        self.steps, self.num = f.steps, float(c.sum())
        ends = sign * f(np.r_[low + 1, N]).reshape(2, -1)
        self.falls = bool((ends[0] >= ends[1]).all())
        self.range = ends if self.falls else ends[::-1]
        self.top, self.bottom = self.total(v * self.range).tolist()
        self.num_listed = len(N) * (len(f.jumps) + 1) if f.is_step else int((N - low).sum())

    @cached_property
    def few(self) -> Summands:  # type: ignore[override]
        """The groups whose cumulants and transforms are evaluated: near N and near weights as one, if they are many."""
        f, N, low, ratio = self.f, self.N, self.first, _RATIO if self.num <= _FEW else 4 * _RATIO
        if self.doubt is None and len(N) > _MANY[f.is_step] and (condensed := self._condensed()) is not None:
            return condensed
        is_own = len(np.unique(self.given + 1j * low)) == len(N)
        ends = self._ends() if not f.is_step else N.max(keepdims=True) if is_own else np.r_[N, low]
        stop, cells = f.cells(np.unique(ends[ends > 0]), ratio)
        cells[1] *= self.sign
        if is_own:  # cells of each group, as groups share none
            size = np.minimum(stop[1:], N[:, None]) - np.maximum(stop[:-1], low[:, None])
            group, cell = np.nonzero(size > 0)
            cells = np.stack([size[group, cell].astype(np.float64), *cells[1:, cell]])
            self._divide(cells, np.searchsorted(group, np.arange(len(N))), np.arange(len(N)))
        else:
            ends, segment = np.unique(np.searchsorted(stop, N), return_inverse=True)
            self._divide(cells[:, : ends[-1]], np.r_[0, ends[:-1]], segment, np.searchsorted(stop, low))
        return self

    def _ends(self) -> IntArray:
        """Ranks between cells."""
        low, N = self.first, self.N
        if not low.any():
            return N
        first, last = (low, N) if len(N) <= _FEW else (low.min(keepdims=True), N.max(keepdims=True))
        between = np.linspace(first, last, _SINGLE // 4 if len(N) > 1 else _SINGLE)  # the ranges may be narrow
        return np.concatenate([N, low, np.rint(between).astype(np.int64).ravel()])

    def _condensed(self) -> Summands | None:
        """Groups in place of many between which those are interpolated; None if there are few weights and N."""
        levels, counts = len(np.unique(self.given)), len(np.unique(self.N))
        large = (self.first > 0) & (len(np.unique(self.first)) > _LOWS)
        if (levels <= _ROWS and levels * counts <= _PLACES) or large.sum() > _KEPT:
            return None
        spread = np.subtract(*self.range)
        large[np.argpartition(self.given * spread, -_KEPT)[-_KEPT:]] = True
        large &= spread > 0
        between = ~large & (spread > 0)
        if not large.any():  # all ranges are single ranks
            return None
        few = alone = self.part(np.flatnonzero(large))
        if between.any():
            few = self._interpolated(between, spread)
            few.other, few.places = alone, few.places + _KEPT
        few.top, few.bottom = self.top, self.bottom
        few.shift[0] += float((self.given * self.range[0] * self.c)[spread == 0].sum())
        return few

    def _interpolated(self, between: npt.NDArray[np.bool_], spread: FloatArray) -> Summands:
        """Groups that are drawn in place of others, each a number of times that need not be an integer."""
        f, sign = self.f, self.sign
        middle = np.array([np.median(self.N[between])]).astype(np.int64)
        one = RankSummands(f, sign, 0 * middle, middle, np.ones(1), np.ones(1)).few
        widths = self.given * np.where(between, spread, 0.0)
        largest, deviation = widths.max(), math.sqrt(self.total(widths**2))
        reach = largest / deviation * (one.top - one.bottom) / math.sqrt(one.at_zero[2])
        offset = largest / spread[between].max()
        ends = self.N[between].min(), self.N.max()
        spaced = np.geomspace(*ends, math.ceil(10 + _NODES_OF_N * math.log(ends[1] / ends[0])))
        shared = np.unique(np.r_[ends[0] : _SINGLE if f.is_step else _SMALL, np.rint(spaced).astype(np.int64)])
        jumps = f.jumps if f.is_step and len(f.jumps) <= _FEW_JUMPS else f.jumps[:0]
        kind = self.first * (_FEW_JUMPS + 1) + np.searchsorted(jumps, self.N)  # transforms are smooth in N within one
        parts = []
        kinds = np.unique(kind[between]).tolist()
        for one_kind in kinds:
            at = between & (kind == one_kind)
            low, v, N, c = int(self.first[at][0]), self.given[at], self.N[at], self.c[at]
            sizes, size = np.unique(N, return_inverse=True)
            nodes = np.r_[sizes[0], shared[(shared > sizes[0]) & (shared < sizes[-1])], sizes[-1:]]
            nodes, weights = sizes if len(sizes) <= len(nodes) else nodes, np.unique(v)
            least = weights[0] + offset
            extent = math.log1p((weights[-1] - weights[0]) / least)
            most = extent * max(2 * _NODES_OF_V * (1 + reach), _ROWS * 8 / len(nodes))
            if len(weights) > max(most, 10):
                share = np.linspace(0, 1, int(np.clip(most, 10, max(_ROWS / len(kinds), 10))))
                weights = weights[0] + least * np.expm1(extent * share)
            y, each = np.log(sizes - low), np.arange(len(sizes))
            numbers, less = np.zeros((2, len(nodes), len(weights)))
            for order, found in ((8, numbers), (6, less)):
                of_size = _onto_nodes(y, np.log(nodes - low), each, np.ones(len(y)), order)
                found += np.asarray(csr_array(of_size) @ _onto_nodes(v, weights, size, c, order).T)
            i, j = np.nonzero(numbers)
            parts.append(np.stack([np.full(len(i), low), nodes[i], weights[j], numbers[i, j], (numbers - less)[i, j]]))
        lows, N, v, c, doubt = np.concatenate(parts, axis=1)
        nearby = RankSummands(f, sign, lows.astype(np.int64), N.astype(np.int64), v, c)
        nearby.doubt = doubt
        return nearby.few

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        if self.f.is_step:
            atoms = self.few.atoms_of(group)
            return self.few.v[group] * (self.few.best[group] - self.few.x[atoms]), self.few.mass[atoms]
        x = self.sign * self.f(np.arange(self.first[group] + 1, self.N[group] + 1))
        return self.given[group] * (self.range[0][group] - x), np.ones(len(x))

    def part(self, groups: IntArray) -> Summands:
        """Some of the groups."""
        low, N, v, c = self.first[groups], self.N[groups], self.given[groups], self.c[groups]
        return RankSummands(self.f, self.sign, low, N, v, c).few

    def negated(self) -> Summands:
        """The distribution of -S."""
        return RankSummands(self.f, -self.sign, self.first, self.N, self.given, self.c)

    def narrowed(self, s: float, slack: float) -> tuple[float, float, Summands]:
        """Leave out cells of ranks that reach s by themselves, and cells that rule it out.

        P(S >= s) is exp(first) + exp(second) P(third >= s).
        """
        log_reached, log_open, rest = -math.inf, 0.0, self
        widths = self.given * np.subtract(*self.range)
        for _ in range(_ROUNDS):
            largest = (self.given * np.subtract(*rest.range)).max()
            short, over = rest.top + slack - s, s - slack - rest.bottom
            if short < 0 or over <= 0 or largest < min(short, over):
                break
            # positions are ranks counted from the best one; ends of cells are their best and worst values
            low, high, ends = rest.first, rest.N, rest._ends()
            stop = self.f.stops(np.unique(ends[ends > 0]), _RATIO if self.num <= _FEW else 2 * _RATIO)
            x, last = self.sign * self.f(np.r_[stop[:-1] + 1, stop[1:]]).reshape(2, -1), stop[-1]
            if not rest.falls:
                stop, low, high, x = last - stop[::-1], last - high, last - low, x[::-1, ::-1]
            possible, alone = (
                np.clip(stop[np.searchsorted(-values, (total + slack - s) / self.given - end, side="right")], low, high)
                for values, end, total in zip(x, rest.range, (rest.top, rest.bottom), strict=True)
            )
            if len(low) > _ALL_NARROWED and len(np.unique(alone if rest.falls else possible)) > _LOWS:
                others = widths <= np.partition(widths, -_KEPT)[-_KEPT]
                alone[others], possible[others] = low[others], high[others]
            if (possible - alone >= high - low).all():
                break
            left = float(self.c @ np.log1p(-(alone - low) / (high - low)))
            log_reached = float(np.logaddexp(log_reached, log_open + log_complement(left)))
            log_open += float(self.c @ np.log((possible - alone) / (high - low)))
            if log_open == -math.inf:
                return log_reached, log_open, self
            low, high = (alone, possible) if rest.falls else (last - possible, last - alone)
            rest = RankSummands(self.f, self.sign, low, high, self.given, self.c)
        return log_reached, log_open, rest


def _fourier(x: FloatArray, mass: FloatArray, place: IntArray, places: int, number: int, on_grid: bool) -> ComplexArray:
    """Sums of mass exp(2 pi i j x) of each place, j < number, by FFT: (places, number).

    Each mass is spread over a grid by the kernel of Barnett, Magland and af Klinteberg 2019 (doi:10.1137/18M120885X);
    its own transform is found in the same way.
    """
    taps, size = (1, 2 * number - 1) if on_grid else (_TAPS, next_fast_len(4 * number, real=True))
    x, mass, place = np.r_[-x * size, 0.0], np.r_[mass, 1.0], np.r_[place, places]
    first = np.ceil(x - taps / 2)
    apart, start = (first - x) * (2 / taps), first.astype(np.int64) % size + (size + taps) * place
    grid, j = np.zeros((places + 1, size + taps)), np.arange(taps)[:, None]
    for i in range(0, len(x), _BLOCK):  # arrays in the cache
        kernel = apart[i : i + _BLOCK] + j * (2 / taps)
        kernel = np.ones_like(kernel) if on_grid else np.exp(2.3 * taps * (np.sqrt(np.abs(1 - kernel * kernel)) - 1))
        np.add.at(grid.ravel(), (start[i : i + _BLOCK] + j).ravel(), (mass[i : i + _BLOCK] * kernel).ravel())
    grid[:, :taps] += grid[:, size:]
    found = rfft(grid[:, :size], axis=1)[:, :number]
    return np.asarray(found[:-1] * (1 / found[-1].real))


def _log(z: ComplexArray) -> ComplexArray:
    """Logarithm; NumPy's takes three times as long."""
    return np.asarray(np.log(np.abs(z)) + 1j * np.angle(z))


def _onto_nodes(y: FloatArray, nodes: FloatArray, column: IntArray, c: FloatArray, order: int) -> FloatArray:
    """Numbers (nodes, columns) with which values at nodes count, if c values at y are interpolated by Lagrange."""
    found, order = np.zeros((len(nodes), column.max() + 1)), min(order, len(nodes))
    near = np.lib.stride_tricks.sliding_window_view(nodes, order).T
    scale = np.prod(near[:, None] - near + np.eye(order)[:, :, None], axis=1)
    for i in range(0, len(y), _BLOCK):
        first = np.clip(np.searchsorted(nodes, y[i : i + _BLOCK]) - order // 2, 0, len(nodes) - order)
        apart, left, right = y[i : i + _BLOCK] - near[:, first], 1.0, 1.0
        product = c[i : i + _BLOCK] / scale[:, first]
        for j in range(order):  # all factors but that of the node itself
            product[j] *= left
            product[-1 - j] *= right
            left, right = left * apart[j], right * apart[-1 - j]
        index = (first + np.arange(order)[:, None]) * found.shape[1] + column[i : i + _BLOCK]
        np.add.at(found.ravel(), index.ravel(), product.ravel())
    return found


def _cells_of_values(x: FloatArray, mass: FloatArray, most: int) -> FloatArray:
    """About so many cells of values at most, (4, cells); fewer values are cells of their own."""
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


def is_unknown(t: float, s: float, cumulants: FloatArray) -> bool:
    """Whether the possible error of K(t) exceeds the exponent of the bound exp(K(t) - t s) of P(S >= s)."""
    return bool(cumulants[4] > max(t * s - cumulants[0], 1.0))


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
