"""The law of S for any f: the moment generating function of one summand is a sum over 1..N, by a rule fine enough.

exp(t v f(r)) turns by |t| v |f(a) - f(b)| radians between a and b. Each panel of the rule may hold a few radians only,
so the further a line is followed, the finer the rule.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.theory.definitions import Transform
from torchrankmetrics.theory.quadrature.panels import PANEL_NODES, SMALL_RANKS, TABLED_RANKS, panel_rule
from torchrankmetrics.theory.tails.condensed import FEWEST_TURNS, Shared, by_weight, condense
from torchrankmetrics.theory.tails.lattice import MOST_WEIGHTS, common_span
from torchrankmetrics.theory.tails.laws import MOST_GROUPS, Atoms, ComplexArray, Line, SumLaw
from torchrankmetrics.theory.transforms import apply_transform, known

_RADIANS = 8.0  # what the nodes of a panel resolve to rounding
_EXPONENT = 500.0  # sums over 1..N for several N share one scale while their largest terms are this close

_ONE_BRANCH = 2.0  # radians that a term may turn about its mean where its logarithm is multiplied by no integer
_MOST_WEIGHTS = 4096  # distinct ones, up to which all are taken where it matters
_NARROWER = 0.5  # of its range, which a law that need not reach beyond a value has at most
_DISPERSE = 30.0  # n times the variance of log v, beyond which distinct weights do not come into step again

ArrayFunction = Callable[[FloatArray], FloatArray]
_Rules = dict[tuple[bytes, int], tuple[FloatArray, FloatArray, IntArray]]


class TransformSumLaw(SumLaw):
    """S = sum of sign v f(r) for any f; one that is not a power or a logarithm must be smooth beyond 2^16."""

    def __init__(self, f: Transform, counts: CandidateCounts, sign: int, cap: float = math.inf) -> None:
        self._f, self._sign, self._counts, self._cap = f, sign, counts, cap
        self._smooth = known(f).smooth
        N, index = np.unique(counts.num_candidates, return_inverse=True)
        self._table = self._values(np.arange(1.0, min(int(N[-1]), TABLED_RANKS) + 1))
        last = self._values(N.astype(np.float64))
        self._bend = self._last_before_bend(int(N[-1]))
        top, multiplicity = _running_maximum(self._table, N, last)
        bottom = -_running_maximum(-self._table, N, -last)[0]
        share = counts.weight * counts.count
        self._bottom = bottom[index]
        self.highest, self.lowest = float(share @ top[index]), float(share @ self._bottom)
        self.log_top = float(counts.count @ (np.log(multiplicity) - np.log(N))[index])
        weights = np.unique(counts.weight[(bottom < top)[index]])
        steps = np.diff(np.unique(np.append(self._table, last)))
        few = len(weights) <= MOST_WEIGHTS and cap == math.inf  # a capped table may look like a lattice that f is not
        self.span = common_span(np.multiply.outer(weights, steps).ravel()) if few else None
        self.decays = False
        spread = counts.num_tasks * np.cov(np.log(counts.weight), fweights=counts.count, ddof=0)
        self.disperse = bool(spread > _DISPERSE)
        self._range = float(top.max() - bottom.min())
        self._turns = float(counts.weight.max()) * self._range
        self._parts: dict[int, list[_Part] | None] = {}
        self._all: list[_Part] = []
        self._rules: _Rules = {}
        self._tops: dict[bytes, FloatArray] = {}

    def reaching(self, s: float, slack: float) -> "TransformSumLaw":
        """See ``SumLaw``: fewer nodes where few good ranks make the spread of S.

        A summand that reaches s by itself, the others at their lowest, goes no further than twice that.
        """
        room = s - self.lowest
        if not self._smooth or self.span is not None or not 4 * slack < room < math.inf:
            return self
        cap = float((self._bottom + 2 * room / self._counts.weight).max())
        if not cap - self._bottom.min() < _NARROWER * self._range:
            return self
        return TransformSumLaw(self._f, self._counts, self._sign, cap)

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        mean = variance = 0.0
        for part in self._parts_up_to(t) or self._exact_parts():
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
        prepared: dict[float, list[Line]] = {}

        def evaluate_line(offset: float) -> ComplexArray:
            reach = self._rounded(t0 + offset + step * size)
            parts = self._parts_up_to(reach)
            if parts is None:
                if offset > 0:
                    return np.full(size, complex(math.nan, math.nan))
                parts = self._exact_parts()
            if reach not in prepared:
                prepared.clear()
                prepared[reach] = [line for part in parts for line in part.lines(t0, reach, step, size)]
            total = np.zeros(size, dtype=np.complex128)
            for line in prepared[reach]:
                total += line(offset)
            return total

        return evaluate_line

    def effort(self, reach: float) -> int:
        """See ``SumLaw``."""
        reach = self._rounded(reach)
        return sum(part.num_nodes(reach) for part in self._parts_up_to(reach) or [])

    def take_all(self) -> bool:
        """See ``SumLaw``."""
        if self._all or len(np.unique(self._counts.weight)) > _MOST_WEIGHTS:
            return False
        self._all = [self._part(one) for one in by_weight(self._counts)]
        return True

    def atoms(self, most: int) -> list[Atoms] | None:
        """See ``SumLaw``."""
        N, weight, count = self._counts.num_candidates, self._counts.weight, self._counts.count
        if len(N) > MOST_GROUPS or N.sum() > most:
            return None
        values = self._values(np.arange(1.0, N.max() + 1))
        result = []
        for one, v, c in zip(N.tolist(), weight.tolist(), count.tolist(), strict=True):
            support, multiplicity = np.unique(values[:one], return_counts=True)
            if len(support) > 1:
                result.append(Atoms(v * (support[-1] - support[::-1]), multiplicity[::-1] / one, int(c)))
        return result

    def _values(self, ranks: FloatArray) -> FloatArray:
        return np.minimum(self._sign * apply_transform(self._f, ranks), self._cap)

    def _last_before_bend(self, N: int) -> int:
        """The rank after which a capped f, which is monotone, begins to vary or ceases to; 0 without a cap."""
        if self._cap == math.inf:
            return 0

        def capped(rank: int) -> bool:
            return bool(self._values(np.array([float(rank)]))[0] == self._cap)

        return bisect_left(range(1, N + 1), True, key=lambda rank: capped(rank) != capped(1))

    def _rounded(self, reach: float) -> float:
        """The reach that rules are made for: few different ones, from one radian on."""
        return 4.0 ** max(0, math.ceil(math.log(max(reach * self._turns, 1.0), 4))) / max(self._turns, 1e-300)

    def _parts_up_to(self, reach: float) -> "list[_Part] | None":
        """Tasks by weight, condensed for |t| <= reach; None if that is too far for as many weights as there are."""
        if self._all:
            return self._all
        level = max(0, math.ceil(math.log2(max(reach * self._turns, 1.0) / FEWEST_TURNS)))
        if level not in self._parts:
            shared = condense(self._counts, FEWEST_TURNS * 2.0**level, self._smooth and self._cap == math.inf)
            self._parts[level] = None if shared is None else [self._part(one) for one in shared]
        return self._parts[level]

    def _exact_parts(self) -> "list[_Part]":
        return [self._part(one) for one in by_weight(self._counts)]

    def _part(self, shared: Shared) -> "_Part":
        N, key = shared.num_candidates, shared.num_candidates.tobytes()
        if key not in self._tops:
            self._tops[key] = _running_maximum(self._table, N, self._values(N.astype(np.float64)))[0]
        return _Part(shared, self._tops[key], self._values, self._smooth, self._range, self._rules, self._bend)


class _Part:
    """The tasks of one weight v: their N, how many there are of each, and the rules for sums over 1..N."""

    def __init__(
        self,
        shared: Shared,
        top: FloatArray,
        values: ArrayFunction,
        smooth: bool,
        width: float,
        rules: _Rules,
        bend: int,
    ) -> None:
        self.v, self._N, self._c = shared.weight, shared.num_candidates, shared.count
        self._condensed = shared.condensed
        self._top, self._values, self._smooth, self._width = top, values, smooth, width
        self._rules, self._key, self._bend = rules, shared.num_candidates.tobytes(), bend

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
            make = _condensed_line if self._condensed else _line
            yield make(self.v * anchor * float(c.sum()), c, stop, self.v * x, weights, t0, step, size)

    def num_nodes(self, reach: float) -> int:
        """Number of nodes of the rule."""
        return len(self._rule(reach)[0])

    def _rule(self, reach: float) -> tuple[FloatArray, FloatArray, IntArray]:
        turns = reach * self.v * self._width
        level = math.ceil(math.log(turns, 4)) if turns > 1 else 0
        if (self._key, level) not in self._rules:
            ends = self._panels(4.0**level / max(self._width, 1e-300))
            nodes, weights, _ = panel_rule(ends[:-1] + 1, np.diff(ends))
            stop = np.searchsorted(nodes, self._N + 0.5)  # the nodes ascend, and panels end at every N
            self._rules[self._key, level] = weights, self._values(nodes), stop
        return self._rules[self._key, level]

    def _panels(self, frequency: float) -> IntArray:
        """Ends of panels, 0 and every N among them, that hold at most ``_RADIANS`` each unless they are short."""
        head = min(SMALL_RANKS if self._smooth else TABLED_RANKS, int(self._N[-1]))
        doubled = head * 2 ** np.arange(1, max(1, math.ceil(math.log2(self._N[-1] / head))), dtype=np.int64)
        ends = np.unique(np.r_[np.arange(head + 1), doubled, self._N, min(self._bend, int(self._N[-1]))])
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
    N = _prefix_sums(weights, stop)
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


def _condensed_line(
    top: float, c: FloatArray, stop: IntArray, x: FloatArray, weights: FloatArray, t0: float, step: float, size: int
) -> Line:
    """As ``_line``, for counts that are no integers: the logarithm is that about the mean, NaN if it has two values."""
    N = _prefix_sums(weights, stop)
    log_N = float(c @ np.log(N))
    mass = weights * np.exp(t0 * x)
    mean = _prefix_sums(mass * x, stop) / _prefix_sums(mass, stop)
    turns = np.exp(1j * np.multiply.outer(step * np.arange(size), x))

    def evaluate_line(offset: float) -> ComplexArray:
        y = offset + step * np.arange(size)
        sums = _prefix_sums(turns * (mass * np.exp(1j * offset * x)), stop)
        logarithm = np.log(sums * np.exp(-1j * np.multiply.outer(y, mean)))
        logarithm[np.abs(logarithm.imag) > _ONE_BRANCH] = complex(math.nan, math.nan)
        result: ComplexArray = (t0 + 1j * y) * top + logarithm @ c + 1j * y * float(c @ mean) - log_N
        return result

    return evaluate_line


def _prefix_sums(terms: npt.NDArray[Any], stop: IntArray) -> npt.NDArray[Any]:
    """Sums of terms (..., nodes) over the first ``stop`` nodes, for every stop."""
    sums: npt.NDArray[Any] = np.add.reduceat(terms, _starts(stop), axis=-1).cumsum(axis=-1)
    return sums


def _starts(stop: IntArray) -> IntArray:
    starts = np.zeros_like(stop)
    starts[1:] = stop[:-1]
    return starts


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
