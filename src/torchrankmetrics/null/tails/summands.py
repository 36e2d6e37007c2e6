"""What is summed: groups of c independent summands v x, with x = f(r) or -f(r) of a random rank r, or x from a list.

Many groups are interpolated between few weights and N by Lagrange: in effect the groups at these
nodes are drawn a number of times that need not be an integer. The difference of two orders of
interpolation counts as their error.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.definitions.sums import panel_rule
from torchrankmetrics.definitions.transforms import (
    AtMost,
    KnownTransform,
    apply_transform,
    check_evaluations,
    range_moments,
    rank_table,
)
from torchrankmetrics.null.tails.transform import Transform

Atoms = tuple[FloatArray, FloatArray]  # ascending values and their probabilities
# width of a cell beyond _SINGLE per rank above it, for so many tasks at most
_RATIO, _FEW = 1 / 64, 20
# ranks of a range, and atoms of a list at most, that are cells of their own
_SINGLE, _SINGLE_ATOMS = 128, 2048
# such atoms of all lists; groups of a list up to which none is interpolated
_CELLS, _PER_LIST = 1 << 12, 10
_MOST_STEPS = 1 << 12  # distances of values that may have a common divisor
# jumps up to which f is constant between them; jumps of another f at which cells end
_STEPS, _LARGEST = 512, 64
# groups up to which none is interpolated, and those of steps, whose transforms are cheap
_MANY = 1024, 4096
_KEPT = 128  # groups with the largest weight x range, which are not interpolated
_SMALL, _NODES_OF_N = 32, 10  # N up to which all are nodes; nodes for each further factor e
_NODES_OF_V, _MOST_OF_V = 64, 256  # nodes of weights for each factor e, and at most
_PLACES = 1 << 11  # nodes of weights and N that take little time
_ORDERS = 8, 6  # of interpolation


class RankValues:
    """A transform at integer ranks: of closed form, a table, or lists of values with masses that follow one another."""

    def __init__(
        self,
        f: KnownTransform | FloatArray,
        starts: IntArray | None = None,
        mass: FloatArray | None = None,
    ) -> None:
        self._f, self.starts, self.mass = (
            f,
            np.empty(0, dtype=int) if starts is None else starts,
            mass,
        )
        self.is_identity = isinstance(f, KnownTransform) and f.is_identity
        self.is_step, self.jumps = (
            isinstance(f, AtMost),
            np.array([f.k] if isinstance(f, AtMost) else [], dtype=int),
        )
        if isinstance(f, np.ndarray):
            change = np.abs(np.diff(f))
            change[self.starts[1:] - 1] = 0.0
            self.jumps = np.flatnonzero(change) + 1
            self.is_step = len(self.jumps) <= _STEPS
            if not self.is_step:
                self.jumps = np.append(np.argpartition(-change, _LARGEST)[:_LARGEST] + 1, len(f))

    def __call__(self, ranks: IntArray | FloatArray) -> FloatArray:
        """Values at ranks, of the same shape."""
        if isinstance(self._f, np.ndarray):
            return self._f[np.minimum(ranks, len(self._f)).astype(np.int64) - 1]
        return apply_transform(self._f, ranks.ravel().astype(np.float64)).reshape(ranks.shape)

    def total(self, begin: IntArray, end: IntArray) -> FloatArray:
        """Mass of the ranks begin + 1..end, of the same shape."""
        if self.mass is None:
            return (end - begin).astype(np.float64)
        ends = np.stack([begin, end], axis=-1).ravel()
        return np.where(
            begin < end,
            np.add.reduceat(np.append(self.mass, 0.0), ends)[::2].reshape(begin.shape),
            0.0,
        )

    def stops(self, low: IntArray, begin: IntArray, N: IntArray, ratio: float) -> IntArray:
        """Ascending boundaries, (groups, m), of cells of the ranks begin + 1..N; they widen from the rank low on."""
        most = int((N - low).max())
        single = (
            _SINGLE
            if self.mass is None
            else int(np.clip(_CELLS // len(low), _SINGLE, _SINGLE_ATOMS))
        )
        offsets = np.array([0, most])
        if not self.is_step:
            far = np.arange(math.ceil(math.log(max(most / single, 1)) / ratio))
            offsets = np.r_[
                np.arange(min(single, most) + 1),
                np.rint(single * np.exp(ratio * far)).astype(int),
                most,
            ]
        stop = np.concatenate([low[:, None] + offsets, np.tile(self.jumps, (len(low), 1))], axis=1)
        if self.mass is not None:
            stop = np.concatenate([stop, N[:, None] - offsets], axis=1)
        return np.sort(stop.clip(begin[:, None], N[:, None]), axis=1)

    def cells(self, begin: IntArray, end: IntArray) -> FloatArray:
        """Size, mean, standard deviation and skewness of f in the cells of ranks begin + 1..end, (4, m)."""
        first, last = self(begin + 1), self(end)
        if isinstance(self._f, np.ndarray) and self.mass is None:
            most, size = len(self._f), (end - begin).astype(np.float64)
            mean, variance = range_moments(
                self._f, np.minimum(begin, most - 1), np.minimum(end, most)
            )
        else:
            nodes, weights, number = panel_rule(
                begin + 1, end - begin, 4 if self.mass is None else len(self.mass)
            )
            if self.mass is not None:
                weights = self.mass[nodes.astype(int) - 1]
            start, apart = np.cumsum(number) - number, self(nodes) - np.repeat(first, number)
            size = np.add.reduceat(weights, start)
            mean, square = (np.add.reduceat(weights * apart**k, start) / size for k in (1, 2))
            mean, variance = first + mean, square - mean**2
        deviation = np.sqrt(np.where(first == last, 0.0, np.maximum(variance, 0.0)))
        # an estimate: of two values, the mean is half of it from their middle, in standard
        # deviations
        skewness = np.abs(first + last - 2 * mean) / np.maximum(deviation, 1e-99)
        return np.stack([size, mean, deviation, skewness])


class Summands:
    """Groups of c independent summands v x with x = sign f(r), r from {low + 1..N} by mass, for an f monotone there."""

    def __init__(
        self, f: RankValues, sign: int, low: IntArray, N: IntArray, v: FloatArray, c: FloatArray
    ) -> None:
        self.f, self.sign, self.low, self.N, self.v, self.c, self.num = (
            f,
            sign,
            low,
            N,
            v,
            c,
            float(c.sum()),
        )
        ends = sign * f(np.stack([low + 1, N]))
        self.falls = bool((ends[0] >= ends[1]).all())
        self.ends = ends if self.falls else ends[::-1]  # largest and least x
        self.num_listed = len(N) * (len(f.jumps) + 1) if f.is_step else int((N - low).sum())
        self.width = v * (self.ends[0] - self.ends[1])
        self.top, self.bottom = (v * c * self.ends).sum(axis=1).tolist()
        # groups that are narrowed from both sides, and not interpolated
        self.widest = np.arange(len(N))
        if len(N) > max(_MANY[f.is_step], _PER_LIST * len(f.starts)):
            self.widest = np.argpartition(self.width, -_KEPT)[-_KEPT:]

    @cached_property
    def transform(self) -> Transform:
        """The transform of the sum, of near N and near weights as one if they are many."""
        groups = np.stack([self.v, self.low, self.N, self.c, 0.0 * self.c])
        if len(self.widest) < len(self.N):
            groups = np.concatenate([groups[:, self.widest], self._interpolated()], axis=1)
        # groups of the same v and low share cells, in the order of N
        groups = groups[:, np.lexsort(groups[2::-1])]
        in_row = np.r_[False, (np.diff(groups[:2]) == 0).all(axis=0)]
        first = np.flatnonzero(~in_row | (np.diff(groups[2], prepend=0) != 0))
        c, doubt = np.add.reduceat(groups[3:], first, axis=1)
        v, in_row, (low, N) = groups[0, first], in_row[first], groups[1:3, first].astype(np.int64)
        begin, ratio = (
            np.where(in_row, np.r_[0, N[:-1]], low),
            _RATIO if self.num <= _FEW else 4 * _RATIO,
        )
        stop = self.f.stops(low, begin, N, ratio)
        group, cell = np.nonzero(np.diff(stop))
        cells = self.f.cells(stop[group, cell], stop[group, cell + 1])
        cells[1] *= self.sign
        return Transform(cells, group, np.cumsum(~in_row) - 1, v, c, doubt)

    def _interpolated(self) -> FloatArray:
        """Groups in place of those that are not widest, (5, m): v, low, N, c and its possible error."""
        rest = np.delete(np.arange(len(self.N)), self.widest)
        v, c, width = self.v[rest], self.c[rest], self.width[rest]
        sizes, first, size = np.unique(self.N[rest], return_index=True, return_inverse=True)
        nodes, low = sizes, self.low[rest][first]
        if not low.any():
            spaced = np.geomspace(
                sizes[0], sizes[-1], math.ceil(10 + _NODES_OF_N * math.log(sizes[-1] / sizes[0]))
            )
            near = np.add.outer(
                self.f.jumps * self.f.is_step, np.arange(_ORDERS[0] + 1) - _ORDERS[0] // 2
            ).ravel()
            nodes = np.r_[np.arange(_SMALL), np.rint(spaced).astype(np.int64), near]
            nodes = np.unique(nodes.clip(sizes[0], sizes[-1]))
            nodes, low = (sizes, low) if len(sizes) <= len(nodes) else (nodes, 0 * nodes)
        # an even scale of large weights, logarithmic for smaller ones
        least, scale = v.min(), v.min() + (width.max() / max((width / v).max(), 1e-300) or v.max())
        y = np.log1p((v - least) / scale)
        y_nodes = np.unique(y)
        most = int(
            np.clip(
                _NODES_OF_V * y_nodes[-1],
                min(max(_PLACES // len(nodes), 10), _MOST_OF_V),
                _MOST_OF_V,
            )
        )
        if len(y_nodes) > most:
            y_nodes = np.linspace(0.0, y_nodes[-1], most)
        of_each = csr_array((c, (size, np.arange(len(c)))))
        numbers, less = (
            (
                _onto_nodes(np.log(sizes), np.log(nodes), order).T
                @ (of_each @ _onto_nodes(y, y_nodes, order))
            ).toarray()
            for order in _ORDERS
        )
        i, j = np.nonzero(numbers)
        weights = least + scale * np.expm1(y_nodes)
        return np.stack([weights[j], low[i], nodes[i], numbers[i, j], (numbers - less)[i, j]])

    def distances(self) -> FloatArray:
        """Distances between successive values v x; empty if they are too many."""
        low, N, steps, v = int(self.low.min()), int(self.N.max()), np.ones(1), np.unique(self.v)
        if not self.f.is_identity:
            ranks = (
                self.f.jumps
                if self.f.is_step
                else np.arange(low + 1, N if N - low <= _MOST_STEPS else 0)
            )
            ranks = np.setdiff1d(ranks, self.f.starts)
            steps = np.unique(np.abs(self.f(ranks + 1) - self.f(ranks)))
        return (
            np.multiply.outer(steps, v).ravel()
            if len(steps) * len(v) <= _MOST_STEPS
            else np.empty(0)
        )

    def atoms(self, group: int) -> tuple[FloatArray, FloatArray]:
        """Values of v (best - x) of a group and their masses."""
        low, N = self.low[group], self.N[group]
        jumps = self.f.jumps if self.f.is_step else np.arange(low, N)
        stop = np.r_[low, jumps[(jumps > low) & (jumps < N)], N]
        return self.v[group] * (self.ends[0, group] - self.sign * self.f(stop[1:])), self.f.total(
            stop[:-1], stop[1:]
        )

    def narrowed(self, s: float, slack: float) -> tuple[float, float, "Summands"]:
        """Leave out cells of ranks that reach s by themselves, and cells that rule it out.

        P(S >= s) is exp(first) + exp(second) P(third >= s).
        """
        log_reached, log_open, rest, some = -math.inf, 0.0, self, self.widest
        v, groups, ratio = (
            self.v[some, None],
            np.arange(len(some)),
            _RATIO if self.num <= _FEW else 2 * _RATIO,
        )
        for _ in range(6):
            largest, short, over = rest.width.max(), rest.top + slack - s, s - slack - rest.bottom
            if short < 0 or over <= 0 or largest < min(short, over):
                break
            all_low, all_N, low, N = (
                rest.low.copy(),
                rest.N.copy(),
                rest.low[some, None],
                rest.N[some, None],
            )
            # of others only ranks that rule it out
            if len(some) < len(all_N) and rest.falls and not self.low.any():
                [stop] = self.f.stops(
                    low[:1, 0] * 0, low[:1, 0] * 0, all_N.max(keepdims=True), ratio
                )
                x = self.sign * self.f(stop[:-1] + 1)
                all_N = np.minimum(
                    all_N, stop[np.searchsorted(-x, short / self.v - rest.ends[0], side="right")]
                )
            stop = self.f.stops(low[:, 0], low[:, 0], N[:, 0], ratio)
            x = self.sign * self.f(np.stack([stop[:, :-1] + 1, stop[:, 1:]]).clip(low + 1, N))
            best, worst = v * (x if rest.falls else x[::-1]) - v * rest.ends[:, some, None]
            # numbers of cells
            possible, alone = (best >= -short).sum(axis=1), (worst >= over).sum(axis=1)
            a, b = (alone, possible) if rest.falls else (x.shape[2] - possible, x.shape[2] - alone)
            all_low[some], all_N[some] = stop[groups, a], stop[groups, b]
            if (all_N - all_low >= rest.N - rest.low).all():
                break
            first, last = (low[:, 0], stop[groups, a]) if rest.falls else (stop[groups, b], N[:, 0])
            size = self.f.total(rest.low, rest.N)
            left = (self.c[some] * np.log1p(-self.f.total(first, last) / size[some])).sum()
            log_reached = float(np.logaddexp(log_reached, log_open + np.log(-np.expm1(left))))
            log_open += float((self.c * np.log(self.f.total(all_low, all_N) / size)).sum())
            if log_open == -math.inf:
                break
            rest = Summands(self.f, self.sign, all_low, all_N, self.v, self.c)
            rest.widest = some
        return log_reached, log_open, rest


def _onto_nodes(y: FloatArray, nodes: FloatArray, order: int) -> csr_array:
    """Shares (m, nodes) with which values at nodes count if those at y are interpolated between the nearest ones."""
    order = min(order, len(nodes))
    near = np.lib.stride_tricks.sliding_window_view(nodes, order)
    # barycentric weights
    scale = 1 / np.prod(near[:, :, None] - near[:, None] + np.eye(order), axis=2)
    scale /= np.abs(scale).max(axis=1, keepdims=True)
    first = np.clip(np.searchsorted(nodes, y) - order // 2, 0, len(nodes) - order)
    apart = y[:, None] - near[first]
    share = scale[first] / np.where(apart == 0, 1e-300, apart)  # a node counts alone
    share /= share.sum(axis=1, keepdims=True)
    column = first[:, None] + np.arange(order)
    return csr_array(
        (share.ravel(), column.ravel(), order * np.arange(len(y) + 1)), shape=(len(y), len(nodes))
    )


def rank_summands(
    f: KnownTransform, sign: int, N: IntArray, v: FloatArray, c: FloatArray
) -> Summands:
    """Sums of sign v f(r), or of sign v f(r, N)."""
    if not f.uses_candidates:
        table = (
            None
            if f.smooth or isinstance(f, AtMost)
            else rank_table(f, min(int(N.max()), f.constant_from))
        )
        change = np.empty(0) if table is None else np.diff(table)
        if (change <= 0).all() or (change >= 0).all():
            return Summands(
                RankValues(f if table is None else table), sign, np.zeros_like(N), N, v, c
            )
    sizes, size = np.unique(N, return_inverse=True)
    check_evaluations(f, sizes)
    at = (
        (f.at(n) if f.uses_candidates else f).values(np.arange(1.0, n + 1)) for n in sizes.tolist()
    )
    return listed_summands(
        [(np.sort(sign * values), np.ones(len(values))) for values in at], size, v, c
    )


def listed_summands(lists: Sequence[Atoms], of: IntArray, v: FloatArray, c: FloatArray) -> Summands:
    """Sums of v x, where x is from list ``of`` (groups,) of ascending values and their masses."""
    values, mass = (
        np.concatenate([one[::-1] for one in column]) for column in zip(*lists, strict=True)
    )
    ends = np.cumsum([len(x) for x, _ in lists])
    starts = np.r_[0, ends[:-1]]
    return Summands(RankValues(values, starts, mass), 1, starts[of], ends[of], v, c)
