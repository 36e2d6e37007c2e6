"""Sums S of independent summands v x, such as f(r) for a uniform rank r: cumulants and Fourier transform.

Ranks are grouped in cells that all N share. A cell counts as two atoms, its mean plus and minus its standard deviation,
so that the moments of S up to the third order in the width of a cell are kept.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.kinds import AtMost
from torchrankmetrics.definitions.sums import gauss_rule
from torchrankmetrics.definitions.transforms import KnownTransform, apply_transform, check_evaluations, rank_table

ComplexArray = npt.NDArray[np.complex128]
Atoms = tuple[FloatArray, FloatArray]  # ascending values and their masses
RATIO = 1 / 64  # relative width of a cell of ranks beyond _SINGLE
_SINGLE = 128  # ranks that are cells of their own
_NODES = 4  # of the Gauss rule in a cell
_STEPS = 512  # an f with at most this many jumps is constant between them
_COUNTS = 400  # distinct N that are used as they are; more are condensed
_WEIGHTS = 96  # distinct weights, likewise
_FEW = 20  # tasks with narrower cells


class RankValues:
    """A transform at integer ranks, times a sign; tabulated unless it has a closed form."""

    def __init__(self, f: KnownTransform, sign: int, most: int) -> None:
        self._f, self.sign, self.is_identity = f, sign, f.is_identity
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
                self.jumps = np.argsort(-np.abs(change))[:_STEPS] + 1

    def __call__(self, ranks: IntArray) -> FloatArray:
        """Values at ranks (m,)."""
        if self.table is not None:
            return np.asarray(self.sign * self.table[np.minimum(ranks, len(self.table)) - 1])
        values: FloatArray = self.sign * apply_transform(self._f, ranks.astype(np.float64))
        return values

    def cells(self, ends: IntArray, ratio: float) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Boundaries of cells of ranks, ``ends`` among them; size, mean and standard deviation of each cell."""
        most = int(ends.max())
        if not self.is_step:
            far = np.arange(math.ceil(math.log(max(most / _SINGLE, 1)) / ratio))
            ends = np.r_[ends, np.arange(_SINGLE) + 1, np.rint(_SINGLE * np.exp(ratio * far)).astype(np.int64)]
        stop = np.unique(np.r_[0, ends, self.jumps])
        stop = stop[stop <= most]
        length = np.diff(stop)
        size, first = length.astype(np.float64), self(stop[:-1] + 1)
        if self.is_step:
            return stop, size, first, np.zeros(len(first))
        if self.table is None:
            number = np.minimum(length, _NODES)
            begin = np.cumsum(number) - number
            nodes: FloatArray = np.repeat(stop[:-1] + 1.0 - begin, number) + np.arange(int(number.sum()))
            weights, long = np.ones(len(nodes)), length > _NODES
            if long.any():
                distinct, index = np.unique(length[long], return_inverse=True)
                x, a = gauss_rule(distinct, _NODES)
                place = begin[long][:, None] + np.arange(_NODES)
                nodes[place], weights[place] = (stop[:-1] + 1)[long][:, None] + x[index], a[index]
            values = self.sign * apply_transform(self._f, nodes)
        else:
            last = min(most, len(self.table))  # f is constant from here on
            number, begin = np.diff(np.minimum(stop, last)), np.minimum(stop[:-1], last - 1)
            values, weights = self.sign * self.table[:last], np.ones(last)
        apart = values - np.repeat(first, number)
        mean, square = (np.add.reduceat(weights * apart**k, begin) / size for k in (1, 2))
        flat = number == 0
        mean[flat], square[flat] = 0.0, 0.0
        return stop, size, first + mean, np.sqrt(np.maximum(square - mean**2, 0.0))


class Summands:
    """Groups of c independent summands v x with x in cells, of which groups may share segments."""

    def __init__(
        self,
        cells: tuple[FloatArray, FloatArray, FloatArray],
        starts: IntArray,
        group: tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray],
        *,
        nested: bool,
        skewness: float = RATIO,
    ) -> None:
        """Args: size, mean and deviation of cells; first cells of segments; segment, v, c, best and worst of groups.

        If ``nested``, a segment includes the cells of the segments before it; else each group has its own segment, and
        S is ``shift`` plus the sum. ``skewness`` bounds the skewness of a cell.
        """
        self.size, self.mean, self.deviation = cells
        self.starts, self.nested, self.skewness, self.shift = starts, nested, skewness, 0.0
        self.segment, self.v, self.c, self.best, self.worst = group
        if not nested:  # one segment per group: v (x - best) is in the cells
            length = np.diff(np.r_[starts, len(self.size)])
            v, best = np.repeat(self.v, length), np.repeat(self.best, length)
            self.mean, self.deviation = v * (self.mean - best), v * self.deviation
            self.shift = float(self.c @ (self.v * self.best))
            self.worst, self.best, self.v = self.v * (self.worst - self.best), 0.0 * self.best, np.ones(len(self.v))
        self.mass = self._sums(self.size[None])[0][self.segment]
        self.top, self.bottom = (float(self.c @ (self.v * end)) for end in (self.best, self.worst))
        self.is_listed = not self.deviation.any()
        self.num = float(self.c.sum())
        distinct, self.weight = np.unique(self.v, return_inverse=True)
        if len(distinct) > _WEIGHTS:  # weights within one percent share the sums over cells
            self.weight = np.unique(np.rint(np.log(self.v) / 0.01), return_inverse=True)[1]

    def _sums(self, terms: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums over the cells of each segment: (rows, cells) in, (rows, segments) out."""
        sums = np.add.reduceat(terms, self.starts, axis=1)
        return sums.cumsum(axis=1) if self.nested else sums

    def cells_of(self, group: int) -> slice:
        """Cells of a group."""
        segment = int(self.segment[group])
        end = int(self.starts[segment + 1]) if segment + 1 < len(self.starts) else len(self.size)
        return slice(0 if self.nested else int(self.starts[segment]), end)

    def cumulants(self, t: float) -> FloatArray:
        """K(t), its first three derivatives, and the possible error of K because of the cells; by Taylor's theorem."""
        best = self.best if t >= 0 else self.worst
        scale = np.rint(t * self.v * best / 300.0)  # sums that share a row must share a scale
        row = np.unique(self.weight + 1j * scale, return_inverse=True)[1].ravel()
        u = t * np.bincount(row, self.v) / np.bincount(row)
        anchor = np.full(len(u), -np.inf if t >= 0 else np.inf)
        (np.maximum if t >= 0 else np.minimum).at(anchor, row, best)
        k, off = np.zeros((4, len(row))), np.zeros(len(row))
        for sign in (0,) if self.is_listed else (-1, 1):
            y = self.mean + sign * self.deviation - anchor[:, None]
            e = self.size * (0.5 if sign else 1.0) * np.exp(np.minimum(u[:, None] * y, 0.0))
            ey = e * y
            eyy = ey * y
            k += self._sums(np.concatenate([e, ey, eyy, eyy * y])).reshape(4, len(u), -1)[:, row, self.segment]
            if sign:
                rough = np.abs(u[:, None]) * self.deviation
                off += self._sums(e * (rough**4 / 30 + rough**3 * (self.skewness / 6)))[row, self.segment]
        k1, k2, k3 = k[1:] / k[0]
        var, third = k2 - k1**2, k3 - 3 * k1 * k2 + 2 * k1**3
        d, v = t * self.v - u[row], self.v
        logs = np.log(k[0] / self.mass) + t * v * anchor[row] + k1 * d + var * d**2 / 2 + third * d**3 / 6
        first = v * (anchor[row] + k1 + var * d + third * d**2 / 2)
        parts = [logs, first, v**2 * np.maximum(var + third * d, 0.0), v**3 * third, off / k[0]]
        return np.asarray(np.array(parts) @ self.c)

    def log_transform(
        self, t: float, first: float, step: float, number: int, some: IntArray | None = None
    ) -> ComplexArray:
        """Logarithm, up to multiples of 2 pi i, of the Fourier transform of the distribution tilted by t.

        At the frequencies first + step j, j < number; of the sum over ``some`` groups only, unless that is None.
        """
        v, best, c, segment = (a if some is None else a[some] for a in (self.v, self.best, self.c, self.segment))
        key, row = np.unique(v + 1j * np.rint(t * v * best / 300.0), return_inverse=True)
        row, weight = row.ravel(), key.real[:, None]
        anchor = np.full(len(key), -np.inf)
        np.maximum.at(anchor, row, best)
        terms, turns, mass = [], [], 0.0
        for sign in (0,) if self.is_listed else (-1, 1):
            x = weight * (self.mean + sign * self.deviation - anchor[:, None])
            e = self.size * (0.5 if sign else 1.0) * np.exp(np.minimum(t * x, 0.0))
            mass = mass + self._sums(e)[row, segment]
            terms.append(e * np.exp(1j * first * x))
            turns.append(np.exp(1j * step * x))
        result = np.empty(number, dtype=np.complex128)
        with np.errstate(divide="ignore"):
            for j in range(number):
                sums = self._sums(terms[0] if len(terms) == 1 else terms[0] + terms[1])[row, segment]
                result[j] = np.log(sums / mass) @ c
                for term, turn in zip(terms, turns, strict=True):
                    term *= turn
        return result + 1j * (first + step * np.arange(number)) * float(c @ (v * anchor[row]))

    def saddlepoint(self, s: float) -> float:
        """The t >= 0 with K'(t) = s, by Newton steps within a bracket; the result is approximate."""
        mean, var = self.cumulants(0.0)[1:3]
        if s <= mean or var == 0:
            return 0.0
        low, high, t = 0.0, math.inf, (s - mean) / var
        for _ in range(100):
            mean, var = self.cumulants(t)[1:3]
            if abs(mean - s) < 0.02 * math.sqrt(var):
                break
            low, high = (t, high) if mean < s else (low, t)
            step = t + (s - mean) / var if var > 0 else math.inf
            t = step if low < step < min(high, 4 * t) else 2 * t if high == math.inf else (low + high) / 2
        return float(t)

    @property
    def num_listed(self) -> int:
        """Number of values that ``atoms`` of all groups list."""
        return sum(cells.stop - cells.start for cells in map(self.cells_of, range(len(self.c))))

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        return self.two_atoms(group)

    def two_atoms(self, group: int) -> Atoms:
        """The same with two values for each cell."""
        cells = self.cells_of(group)
        d = self.v[group] * (self.best[group] - self.mean[cells])
        if self.is_listed:
            return d, self.size[cells]
        apart = self.v[group] * self.deviation[cells]
        return np.concatenate([d - apart, d + apart]), np.tile(self.size[cells] / 2, 2)

    def condensed(self, most: int) -> "Summands":
        """At most so many groups; the caller corrects the first cumulants."""
        return self

    def negated(self) -> "Summands":
        """The distribution of -S."""
        raise NotImplementedError


class RankSummands(Summands):
    """Summands v f(r), r uniform on {low + 1..N}, for a monotone f; groups share cells unless some low > 0."""

    def __init__(self, values: RankValues, low: IntArray, N: IntArray, v: FloatArray, c: FloatArray) -> None:
        self.values, self.low, self.N, self.weight_of = values, low, N, v
        nested, ends = not low.any(), np.r_[low, N]
        if not nested and not values.is_step and len(N) <= _COUNTS:
            ends = np.r_[ends, np.rint(np.linspace(low.min(), N.max(), 129)[1:]).astype(np.int64)]
        stop, size, mean, deviation = values.cells(np.unique(ends[ends > 0]), RATIO if c.sum() <= _FEW else 2 * RATIO)
        edges = values(np.r_[low + 1, N]).reshape(2, -1)
        first, last = np.searchsorted(stop, low), np.searchsorted(stop, N)
        if nested:
            ends, segment = np.unique(last, return_inverse=True)
            cells, starts = (size[: ends[-1]], mean[: ends[-1]], deviation[: ends[-1]]), np.r_[0, ends[:-1]]
        else:
            starts, segment = np.cumsum(last - first) - (last - first), np.arange(len(N))
            index = np.arange(int((last - first).sum())) + np.repeat(first - starts, last - first)
            cells = size[index], mean[index], deviation[index]
        super().__init__(cells, starts, (segment.ravel(), v, c, edges.max(axis=0), edges.min(axis=0)), nested=nested)

    @property
    def num_listed(self) -> int:
        """Number of values that ``atoms`` of all groups list."""
        return super().num_listed if self.is_listed else int((self.N - self.low).sum())

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        if self.is_listed:
            return super().atoms(group)
        x = self.weight_of[group] * self.values(np.arange(self.low[group] + 1, self.N[group] + 1))
        return x.max() - x, np.ones(len(x))

    def negated(self) -> Summands:
        """The distribution of -S."""
        values = RankValues.__new__(RankValues)
        values.__dict__ |= self.values.__dict__ | {"sign": -self.values.sign}
        return RankSummands(values, self.low, self.N, self.weight_of, self.c)

    def condensed(self, most: int) -> Summands:
        """At most so many groups, with near N and near weights as one; the caller corrects the first cumulants."""
        if not self.nested or len(self.c) <= most:
            return self
        spread = float((self.best - self.worst).max())
        y = self.v * spread / (0.25 * math.sqrt(self.cumulants(0.0)[2]) + 1e-300)  # beyond 1 a single task matters
        root, width = np.sqrt(np.minimum(y, 1.0)), 0.02
        while True:  # the distributions of light groups matter little beyond their third cumulants
            weight = np.rint(np.where(y < 1, 2 * (root - 1), y - 1) / width).astype(np.int64)
            size = np.rint(np.log(self.N) * np.maximum(root, 1 / 12) / (0.4 * width)).astype(np.int64)
            key, index = np.unique((weight << 32) + size, return_inverse=True)
            if len(key) <= most:
                break
            width *= 1.5
        index = index.ravel()
        c: FloatArray = np.bincount(index, self.c).astype(np.float64)
        N = np.maximum(np.rint(c / np.bincount(index, self.c / self.N)), 1).astype(np.int64)
        shared = np.unique(weight, return_inverse=True)[
            1
        ].ravel()  # one weight for all N: the sums over cells are shared
        v = (np.bincount(shared, self.c * self.v) / np.bincount(shared, self.c))[shared]
        first = np.zeros(len(key), dtype=np.int64)
        first[index] = np.arange(len(index))
        return RankSummands(self.values, np.zeros_like(N), N, v[first], c)


class ListedSummands(Summands):
    """Summands v x, each x with ascending values and their masses."""

    def __init__(self, lists: Sequence[Atoms], v: FloatArray, c: FloatArray) -> None:
        self.lists, self.given = lists, (v, c)
        distinct = {id(one): _cells_of_values(*one) for one in lists}
        cells = [distinct[id(one)] for one in lists]
        length = np.array([one.shape[1] for one in cells])
        best, worst = (np.array([x[end] for x, _ in lists]) for end in (-1, 0))
        size, mean, deviation = np.concatenate(cells, axis=1)
        group = np.arange(len(lists)), v, c, best, worst
        super().__init__((size, mean, deviation), np.cumsum(length) - length, group, nested=False, skewness=1.0)

    def atoms(self, group: int) -> Atoms:
        """Values of v (best - x) of a group and their masses."""
        x, mass = self.lists[group]
        return self.given[0][group] * (x[-1] - x), mass

    @property
    def num_listed(self) -> int:
        """Number of values that ``atoms`` of all groups list."""
        return sum(len(x) for x, _ in self.lists)

    def negated(self) -> Summands:
        """The distribution of -S."""
        turned = {id(one): (-one[0][::-1], one[1][::-1]) for one in self.lists}
        return ListedSummands([turned[id(one)] for one in self.lists], *self.given)


def _cells_of_values(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Size, mean and standard deviation of cells of values, (3, cells); few values are cells of their own."""
    if len(x) <= 4 * _STEPS:
        return np.stack([mass, x, 0 * x])
    wide = np.linspace(x[0], x[-1], _STEPS)[1:-1]
    often = np.interp(np.linspace(0, mass.sum(), _STEPS)[1:-1], np.cumsum(mass), np.arange(len(x)))
    alone = np.arange(_SINGLE)
    begin = np.unique(np.r_[alone, np.searchsorted(x, wide), often.astype(np.int64), len(x) - 1 - alone])
    size, first = np.add.reduceat(mass, begin), x[begin]
    apart = x - np.repeat(first, np.diff(np.r_[begin, len(x)]))
    mean, square = (np.add.reduceat(mass * apart**k, begin) / size for k in (1, 2))
    return np.stack([size, first + mean, np.sqrt(np.maximum(square - mean**2, 0.0))])


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
    lists = {n: merged(values(np.arange(1, n + 1)), np.full(n, 1 / n)) for n, values in functions.items()}
    return ListedSummands([lists[n] for n in N.tolist()], v, c)


def merged(x: FloatArray, mass: FloatArray) -> Atoms:
    """Ascending values, those equal up to rounding as one, with their masses."""
    order = np.argsort(x, kind="stable")
    x, mass = x[order], mass[order]
    first = np.flatnonzero(np.r_[True, np.diff(x) > 1e-13 * np.abs(x[1:])])
    return x[first], np.add.reduceat(mass, first)
