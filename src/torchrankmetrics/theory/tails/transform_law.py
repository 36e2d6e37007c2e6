"""The law of S for any f: the moment generating function of one summand is a sum over 1..N, by a rule fine enough.

exp(t v f(r)) turns by |t| v |f(a) - f(b)| radians between a and b. Each panel of the rule may hold a few radians only,
so the further a line is followed, the finer the rule.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.theory.definitions import Log, Power, Transform
from torchrankmetrics.theory.quadrature.panels import PANEL_NODES, SMALL_RANKS, TABLED_RANKS, panel_rule
from torchrankmetrics.theory.tails.lattice import common_span
from torchrankmetrics.theory.tails.laws import Atoms, ComplexArray, Line
from torchrankmetrics.theory.transforms import apply_transform

_RADIANS = 8.0  # what the nodes of a panel resolve to rounding
_EXPONENT = 500.0  # sums over 1..N for several N share one scale while their largest terms are this close

ArrayFunction = Callable[[FloatArray], FloatArray]


class TransformSumLaw:
    """S = sum of sign v f(r) for any f; one that is not a power or a logarithm must be smooth beyond 2^16."""

    def __init__(self, f: Transform, counts: CandidateCounts, sign: int) -> None:
        self._f, self._sign = f, sign
        self.lowest = self.highest = self.log_top = 0.0
        self._parts: list[_Part] = []
        steps = []
        for v in np.unique(counts.weight):
            chosen = counts.weight == v
            N, c = counts.num_candidates[chosen], counts.count[chosen].astype(np.float64)
            table = self._values(np.arange(1.0, min(int(N[-1]), TABLED_RANKS) + 1))
            last = self._values(N.astype(np.float64))
            top, multiplicity = _running_maximum(table, N, last)
            bottom = -_running_maximum(-table, N, -last)[0]
            self.lowest += float(v * (c @ bottom))
            self.highest += float(v * (c @ top))
            self.log_top += float(c @ (np.log(multiplicity) - np.log(N)))
            steps.append(v * np.diff(np.unique(np.append(table, last))))
            self._parts.append(_Part(float(v), N, c, top, self._values, isinstance(f, Power | Log)))
        self.span = common_span(np.concatenate(steps))
        self.decays = False

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        mean = variance = 0.0
        for part in self._parts:
            for anchor, c, stop, x, weights in part.scaled(t, t):
                mass = weights * np.exp(t * part.v * x)
                total = _prefix_sums(mass, stop)
                first = _prefix_sums(mass * x, stop) / total
                second = _prefix_sums(mass * x * x, stop) / total
                mean += part.v * float(c @ (anchor + first))
                variance += part.v**2 * float(c @ np.maximum(second - first**2, 0.0))
        return mean, variance

    def line(self, t0: float, step: float, size: int) -> Line:
        """See ``SumLaw``; on a regular grid exp(i y v x) costs a multiplication, not an exponential."""
        prepared: dict[int, list[Line]] = {}

        def evaluate_line(offset: float) -> ComplexArray:
            reach = math.hypot(t0, offset + step * size)
            level = max(0, math.ceil(math.log(reach / t0, 4)))
            if level not in prepared:
                prepared.clear()
                prepared[level] = [line for part in self._parts for line in part.lines(t0, t0 * 4.0**level, step, size)]
            shares = np.array([line(offset) for line in prepared[level]])
            total: ComplexArray = shares.sum(axis=0)
            return total

        return evaluate_line

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        if sum(int(part.N.sum()) for part in self._parts) > most:
            return None
        result = []
        for part in self._parts:
            values = self._values(np.arange(1.0, part.N[-1] + 1))
            for N, count in zip(part.N.tolist(), part.c.tolist(), strict=True):
                support, multiplicity = np.unique(values[:N], return_counts=True)
                if len(support) > 1:
                    result.append(Atoms(part.v * (support[-1] - support[::-1]), multiplicity[::-1] / N, int(count)))
        return result

    def _values(self, ranks: FloatArray) -> FloatArray:
        return self._sign * apply_transform(self._f, ranks)


class _Part:
    """The tasks of one weight v: their N, how many there are of each, and the rules for sums over 1..N."""

    def __init__(
        self, v: float, N: IntArray, c: FloatArray, top: FloatArray, values: ArrayFunction, smooth: bool
    ) -> None:
        self.v, self.N, self.c = v, N, c
        self._top, self._values, self._smooth = top, values, smooth
        self._rules: dict[int, tuple[FloatArray, FloatArray, IntArray]] = {}

    def scaled(self, t: float, reach: float) -> Iterator[tuple[float, FloatArray, IntArray, FloatArray, FloatArray]]:
        """Yield (anchor, counts, stops, values - anchor, weights) of N whose sums of exp(t v x) share a scale."""
        weights, x, stop = self._rule(reach)
        cluster = np.floor(t * self.v * (self._top[-1] - self._top) / _EXPONENT)
        for index in np.unique(cluster):
            members = cluster == index
            anchor, end = float(self._top[members].max()), int(stop[members][-1])
            yield anchor, self.c[members], stop[members], x[:end] - anchor, weights[:end]

    def lines(self, t0: float, reach: float, step: float, size: int) -> Iterator[Line]:
        """Yield functions that give the share of K(t0 + i (y + step j)) of one set of N each."""
        for anchor, c, stop, x, weights in self.scaled(t0, reach):
            yield _line(self.v * anchor * float(c.sum()), c, stop, self.v * x, weights, t0, step, size)

    def _rule(self, reach: float) -> tuple[FloatArray, FloatArray, IntArray]:
        level = math.ceil(math.log(reach * self.v, 4)) if reach * self.v > 1 else 0
        if level not in self._rules:
            ends = self._panels(4.0**level)
            nodes, weights, _ = panel_rule(ends[:-1] + 1, np.diff(ends))
            stop = np.searchsorted(nodes, self.N + 0.5)  # the nodes ascend, and panels end at every N
            self._rules[level] = weights, self._values(nodes), stop
        return self._rules[level]

    def _panels(self, frequency: float) -> IntArray:
        """Ends of panels, 0 and every N among them, that hold at most ``_RADIANS`` each unless they are short."""
        head = min(SMALL_RANKS if self._smooth else TABLED_RANKS, int(self.N[-1]))
        doubled = head * 2 ** np.arange(1, max(1, math.ceil(math.log2(self.N[-1] / head))), dtype=np.int64)
        ends = np.unique(np.r_[np.arange(head + 1), doubled, self.N])
        while True:
            turned = frequency * np.abs(np.diff(self._values(np.maximum(ends, 1).astype(np.float64))))
            coarse = np.flatnonzero((turned > _RADIANS) & (np.diff(ends) > PANEL_NODES))
            if not len(coarse):
                return ends
            pieces = np.minimum(np.ceil(turned[coarse] / _RADIANS), 64)[:, None]
            share = np.minimum(np.arange(1, 65), pieces) / pieces
            cuts = ends[coarse][:, None] + np.diff(ends)[coarse][:, None] * share
            ends = np.unique(np.r_[ends, np.floor(cuts).astype(np.int64).ravel()])


def _line(
    top: float, c: FloatArray, stop: IntArray, x: FloatArray, weights: FloatArray, t0: float, step: float, size: int
) -> Line:
    """K along a line for the tasks of one weight; ``top`` is the sum of their anchors, ``x`` lies below the anchor."""
    N = np.add.reduceat(weights, np.r_[0, stop[:-1]]).cumsum()
    log_N = float(c @ np.log(N))
    mass = weights * np.exp(t0 * x)
    turns = np.exp(1j * np.multiply.outer(step * np.arange(size), x))

    def evaluate_line(offset: float) -> ComplexArray:
        start = mass * np.exp(1j * offset * x)
        sums = (turns @ start)[:, None] if len(stop) == 1 else _prefix_sums(turns * start, stop)
        t = t0 + 1j * (offset + step * np.arange(size))
        logarithm: ComplexArray = np.log(sums) @ c
        return t * top + logarithm - log_N

    return evaluate_line


def _prefix_sums(terms: npt.NDArray[Any], stop: IntArray) -> npt.NDArray[Any]:
    """Sums of terms (..., nodes) over the first ``stop`` nodes, for every stop."""
    sums: npt.NDArray[Any] = np.add.reduceat(terms, np.r_[0, stop[:-1]], axis=-1).cumsum(axis=-1)
    return sums


def _running_maximum(table: FloatArray, N: IntArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Largest of f over 1..N and how many ranks attain it, from a table of the first ranks and f(N)."""
    highest = np.maximum.accumulate(table)
    record = np.r_[True, table[1:] > highest[:-1]]
    equal = np.cumsum(table == highest)
    multiplicity = equal - np.maximum.accumulate(np.where(record, equal - 1, 0))
    at = np.minimum(N, len(table)) - 1
    top, count = highest[at], multiplicity[at].astype(np.float64)
    beyond = len(table) < N
    higher, level = beyond & (last > top), beyond & (last == top)
    count = np.where(higher, 1.0, np.where(level, count + N - len(table), count))
    return np.where(higher, last, top), count
