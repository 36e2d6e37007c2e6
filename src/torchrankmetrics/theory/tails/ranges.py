"""The law of S where every rank is uniform on a range of its own: what is left of a law near one end of its support.

P(S >= s) asks nothing of ranks that miss s by themselves, whatever the others do, and nothing more of ranks that reach
it by themselves. What is left spans as far as s is from an end of the support: a short line tells its values apart.
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import FloatArray, IntArray, distinct_rows
from torchrankmetrics.theory.definitions import Transform
from torchrankmetrics.theory.quadrature.panels import PANEL_NODES, SMALL_RANKS, panel_rule
from torchrankmetrics.theory.tails.laws import MOST_GROUPS, Atoms, ComplexArray, Line, RankRanges, SumLaw
from torchrankmetrics.theory.tails.prefix import RADIANS
from torchrankmetrics.theory.transforms import apply_transform

_STRIDE = 8  # points of a line taken at once; the next ones cost a multiplication
_NODES = 1 << 16  # at once
_MULTIPLICATION = 4  # how many are worth an exponential


class RangeSumLaw(SumLaw):
    """S = sum of sign v f(r), r uniform on {low..high}; f is monotone, and smooth on panels of ranks that double."""

    def __init__(self, f: Transform, ranges: RankRanges, sign: int) -> None:
        (low, high, weight), count = distinct_rows((ranges.low, ranges.high, ranges.weight), ranges.count)
        self.ranges = RankRanges(low, high, weight, count)
        self._f, self._sign = f, sign
        ends = np.stack([self._values(self.ranges.low), self._values(self.ranges.high)])
        self._best = ends.max(axis=0)  # of one task of each group
        self._falls = bool((ends[0] >= ends[1]).all())  # whether the lowest rank is the best
        self.width: FloatArray = np.ptp(ends, axis=0)
        self.lowest, self.highest = float(count @ ends.min(axis=0)), float(count @ self._best)
        self.log_top = -float(count @ np.log(self.ranges.size))
        self.span, self.decays, self.disperse = None, False, False
        self._rules: dict[int, tuple[FloatArray, FloatArray, IntArray]] = {}

    def negated(self) -> "RangeSumLaw":
        """The law of -S."""
        return RangeSumLaw(self._f, self.ranges, -self._sign)

    def within(self, short: float) -> tuple[float, "RangeSumLaw"]:
        """Log P(no summand falls short of its best value by more than ``short``), and the law of S given that."""
        low, high = self.ranges.low, self.ranges.high
        near, far = (low, high + 1) if self._falls else (high, low - 1)  # near is within; far is not, were it a rank
        while (np.abs(far - near) > 1).any():
            middle = near + (far - near) // 2 if self._falls else near - (near - far) // 2
            inside = self._best - self._values(middle) <= short
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        kept = replace(self.ranges, high=near) if self._falls else replace(self.ranges, low=near)
        size, lost = self.ranges.size, self.ranges.size - kept.size
        log_share = np.where(lost < kept.size, np.log1p(-lost / size), np.log(kept.size / size))
        return float(self.ranges.count @ log_share), RangeSumLaw(self._f, kept, self._sign)

    def effort(self, reach: float) -> int:
        """See ``SumLaw``."""
        return len(self._rule(reach)[0]) // _MULTIPLICATION + 1

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        shortfall, weights, starts = self._rule(t)
        mass = weights * np.exp(-t * shortfall)
        total = np.add.reduceat(mass, starts)
        first = np.add.reduceat(mass * shortfall, starts) / total
        second = np.add.reduceat(mass * shortfall**2, starts) / total
        count = self.ranges.count
        return self.highest - float(count @ first), float(count @ np.maximum(second - first**2, 0.0))

    def line(self, t0: float, step: float, size: int) -> Line:
        """See ``SumLaw``."""
        log_size = float(self.ranges.count @ np.log(self.ranges.size))

        def evaluate_line(offset: float) -> ComplexArray:
            shortfall, weights, starts = self._rule(t0 + offset + step * size)
            mass = weights * np.exp(-t0 * shortfall)
            first_group = np.searchsorted(starts, np.arange(0, len(shortfall), _NODES))
            total = np.zeros(size, dtype=np.complex128)
            for begin, end in zip(first_group.tolist(), [*first_group[1:].tolist(), len(starts)], strict=True):
                if begin == end:
                    continue
                nodes = slice(int(starts[begin]), int(starts[end]) if end < len(starts) else None)
                sums = _sums_along(shortfall[nodes], mass[nodes], starts[begin:end] - starts[begin], offset, step, size)
                total += np.log(sums) @ self.ranges.count[begin:end]
            return (t0 + 1j * (offset + step * np.arange(size))) * self.highest + total - log_size

        return evaluate_line

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        low, high, count = self.ranges.low, self.ranges.high, self.ranges.count
        if len(low) > MOST_GROUPS or self.ranges.size.sum() > most:
            return None
        result = []
        for group in range(len(low)):
            ranks = np.arange(low[group], high[group] + 1)[:: 1 if self._falls else -1]
            values = self._values(ranks, np.full(len(ranks), self.ranges.weight[group]))
            if len(values) > 1:
                result.append(Atoms(values[0] - values, np.full(len(values), 1 / len(values)), int(count[group])))
        return result

    def _values(self, rank: npt.NDArray[np.number], weight: FloatArray | None = None) -> FloatArray:
        """Sign v f at a rank of every group, or of the groups of these weights."""
        f = apply_transform(self._f, rank.astype(np.float64))
        return self._sign * (self.ranges.weight if weight is None else weight) * f

    def _rule(self, reach: float) -> tuple[FloatArray, FloatArray, IntArray]:
        """Shortfalls at the nodes of the groups, their weights, and where a group starts."""
        turns = reach * float(self.width.max())
        level = math.ceil(math.log(turns, 4)) if turns > 1 else 0
        if level not in self._rules:
            start, length, group = self._panels(4.0**level / max(float(self.width.max()), 1e-300))
            nodes, weights, size = panel_rule(start, length)
            group = np.repeat(group, size)
            shortfall = self._best[group] - self._values(nodes, self.ranges.weight[group])
            first = np.flatnonzero(np.r_[True, np.diff(group) > 0])
            self._rules[level] = np.maximum(shortfall, 0.0), weights, first
        return self._rules[level]

    def _panels(self, frequency: float) -> tuple[IntArray, IntArray, IntArray]:
        """Start, length and group of panels, by group: octaves, halved until each holds ``RADIANS`` at most.

        They lie on the same grid for all groups, so that few lengths differ.
        """
        low, stop, weight = self.ranges.low, self.ranges.high + 1, self.ranges.weight
        octaves = np.arange(int(low.min()).bit_length() - 1, int(stop.max() - 1).bit_length(), dtype=np.int64)
        cell, group = (x.ravel() for x in np.meshgrid(2**octaves, np.arange(len(low)), indexing="ij"))
        size, done = cell, []
        while len(cell):
            begin, end = np.maximum(cell, low[group]), np.minimum(cell + size, stop[group])
            some = begin < end
            begin, end, cell, size, group = begin[some], end[some], cell[some], size[some], group[some]
            values = (self._values(x, weight[group]) for x in (begin, end - 1))
            turned = frequency * np.abs(np.subtract(*values))
            coarse = (end - begin > PANEL_NODES) & ((turned > RADIANS) | (begin <= SMALL_RANKS))
            done.append(np.stack([begin, end - begin, group])[:, ~coarse])
            half, group = size[coarse] // 2, np.tile(group[coarse], 2)
            cell, size = np.r_[cell[coarse], cell[coarse] + half], np.r_[half, half]
        panels = np.concatenate(done, axis=1)
        start, length, group = panels[:, np.lexsort((panels[0], panels[2]))]
        return start, length, group


def _sums_along(
    shortfall: FloatArray, mass: FloatArray, starts: IntArray, offset: float, step: float, size: int
) -> ComplexArray:
    """Sums over groups of nodes of mass exp(-i y D) at y = offset + step j: (size, groups)."""
    stride = min(_STRIDE, size)
    sums = np.empty((math.ceil(size / stride) * stride, len(starts)), dtype=np.complex128)
    terms = mass * np.exp(np.multiply.outer(-1j * (offset + step * np.arange(stride)), shortfall))
    hop = np.exp(-1j * stride * step * shortfall)
    for row in range(0, len(sums), stride):
        sums[row : row + stride] = np.add.reduceat(terms, starts, axis=1)
        terms *= hop
    return sums[:size]
