"""Tasks of one weight: the moment generating function of every summand by one rule for sums over 1..N.

exp(t v f(r)) turns by |t| v |f(a) - f(b)| radians between a and b. Each panel of the rule may hold a few radians only,
so the further a line is followed, the finer the rule.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.quadrature.panels import PANEL_NODES, panel_rule
from torchrankmetrics.theory.tails.condensed import Shared
from torchrankmetrics.theory.tails.laws import ComplexArray, Line

RADIANS = 8.0  # what the nodes of a panel resolve to rounding
_EXPONENT = 500.0  # sums over 1..N for several N share one scale while their largest terms are this close
_ONE_BRANCH = 2.0  # radians that a term may turn about its mean where its logarithm is multiplied by no integer

ArrayFunction = Callable[[FloatArray], FloatArray]
Rule = tuple[FloatArray, FloatArray, IntArray]  # weights, values of f, and how many of them each N has
Rules = dict[tuple[bytes, int], Rule]


class TasksOfOneWeight:
    """Their weight v, their N, how many there are of each, and the rules for sums over 1..N."""

    def __init__(
        self,
        shared: Shared,
        top: FloatArray,
        values: ArrayFunction,
        width: float,
        rules: Rules,
        ends: IntArray,
    ) -> None:
        self.v, self._N, self._c = shared.weight, shared.num_candidates, shared.count
        self._condensed = shared.condensed
        self._top, self._values, self._width = top, values, width
        self._rules, self._key, self._ends = rules, shared.num_candidates.tobytes(), ends
        self.fixed_rule: Rule | None = None

    def scaled(self, t: float, reach: float) -> Iterator[tuple[float, FloatArray, IntArray, FloatArray, FloatArray]]:
        """Yield (anchor, counts, stops, values - anchor, weights) of N whose sums of exp(t v x) share a scale."""
        weights, x, stop = self._rule(reach)
        cluster = np.floor(t * self.v * (self._top[-1] - self._top) / _EXPONENT)
        for index in np.unique(cluster):
            members = cluster == index
            anchor, end = float(self._top[members].max()), int(stop[members][-1])
            yield anchor, self._c[members], stop[members], x[:end] - anchor, weights[:end]

    def lines(self, t0: float, reach: float, step: float, size: int) -> Iterator[Line]:
        """Yield functions that give the share of K(t0 + i (y + step j)) of one set of N each."""
        for anchor, c, stop, x, weights in self.scaled(t0, reach):
            top = self.v * anchor * float(c.sum())
            yield _line(top, c, stop, self.v * x, weights, t0, step, size, self._condensed)

    def num_nodes(self, reach: float) -> int:
        """Number of nodes of the rule."""
        return len(self._rule(reach)[0])

    def _rule(self, reach: float) -> Rule:
        if self.fixed_rule is not None:
            return self.fixed_rule
        turns = reach * self.v * self._width
        level = math.ceil(math.log(turns, 4)) if turns > 1 else 0
        if (self._key, level) not in self._rules:
            ends = self._panels(4.0**level / max(self._width, 1e-300))
            nodes, weights, _ = panel_rule(ends[:-1] + 1, np.diff(ends))
            stop = np.searchsorted(nodes, self._N + 0.5)  # the nodes ascend, and panels end at every N
            self._rules[self._key, level] = weights, self._values(nodes), stop
        return self._rules[self._key, level]

    def _panels(self, frequency: float) -> IntArray:
        """Ends of panels, 0 and every N among them, that hold at most ``RADIANS`` each unless they are short."""
        ends = np.unique(np.r_[self._ends[self._ends < self._N[-1]], self._N])
        while True:
            turned = frequency * np.abs(np.diff(self._values(np.maximum(ends, 1).astype(np.float64))))
            coarse = np.flatnonzero((turned > RADIANS) & (np.diff(ends) > PANEL_NODES))
            if not len(coarse):
                return ends
            pieces = np.minimum(np.ceil(turned[coarse] / RADIANS), 64)[:, None]
            share = np.minimum(np.arange(1, 65), pieces) / pieces
            cuts = ends[coarse][:, None] + np.diff(ends)[coarse][:, None] * share
            ends = np.unique(np.r_[ends, np.floor(cuts).astype(np.int64).ravel()])


def _line(
    top: float,
    c: FloatArray,
    stop: IntArray,
    x: FloatArray,
    weights: FloatArray,
    t0: float,
    step: float,
    size: int,
    condensed: bool,
) -> Line:
    """K along a line for the tasks of one weight; ``top`` is the sum of their anchors, ``x`` lies below the anchor.

    For condensed counts, that are no integers, the logarithm is that about the mean, NaN if it has two values.
    """
    N = prefix_sums(weights, stop)
    log_N = float(c @ np.log(N))
    mass = weights * np.exp(t0 * x)
    mean = prefix_sums(mass * x, stop) / prefix_sums(mass, stop) if condensed else None
    turns = np.exp(1j * np.multiply.outer(step * np.arange(size), x))

    def evaluate_line(offset: float) -> ComplexArray:
        start, y = mass * np.exp(1j * offset * x), offset + step * np.arange(size)
        at_once = len(stop) == 1 and mean is None
        sums = (turns @ start)[:, None] if at_once else prefix_sums(turns * start, stop)
        drift = (t0 + 1j * y) * top
        if mean is None:
            result: ComplexArray = drift + np.log(sums) @ c - log_N
        else:
            logarithm = np.log(sums * np.exp(-1j * np.multiply.outer(y, mean)))
            logarithm[np.abs(logarithm.imag) > _ONE_BRANCH] = complex(math.nan, math.nan)
            result = drift + logarithm @ c + 1j * y * float(c @ mean) - log_N
        return result

    return evaluate_line


def prefix_sums(terms: npt.NDArray[Any], stop: IntArray) -> npt.NDArray[Any]:
    """Sums of terms (..., nodes) over the first ``stop`` nodes, for every stop."""
    sums: npt.NDArray[Any] = np.add.reduceat(terms, _starts(stop), axis=-1).cumsum(axis=-1)
    return sums


def _starts(stop: IntArray) -> IntArray:
    starts = np.zeros_like(stop)
    starts[1:] = stop[:-1]
    return starts


def running_maximum(table: FloatArray, N: IntArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
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
