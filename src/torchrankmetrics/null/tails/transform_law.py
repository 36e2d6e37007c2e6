"""Distributions of sums of transformed ranks, with condensed atoms."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.definitions.sums import PANEL_NODES, SMALL_RANKS, TABLED_RANKS, panel_rule
from torchrankmetrics.definitions.transforms import Transform, apply_transform, known, rank_table
from torchrankmetrics.null.tails.laws import (
    MOST_GROUPS,
    MOST_WEIGHTS,
    Atoms,
    ComplexArray,
    Line,
    RankRanges,
    SumLaw,
    common_span,
)

_FEWEST_WEIGHTS = 10  # nodes between a weight and its double, and three more for every four radians
_CANDIDATES = 12  # nodes in an octave of N
_EXACT = 64  # distinct weights up to which each is taken as it is
_RADIANS = 30.0  # between the ends of a range of weights
_MOST_SHARED = 2048  # weights that are left; more would take longer than they are worth
FEWEST_TURNS = 60.0  # radians that the term of the largest weight turns where octaves of weights do


@dataclass(frozen=True)
class Shared:
    """Tasks of one weight.

    Attributes:
        weight: v of one task.
        num_candidates: (u,) int64, ascending.
        count: (u,) float64; not integers if condensed.
        condensed: whether these stand for tasks of other weights.
    """

    weight: float
    num_candidates: IntArray
    count: FloatArray
    condensed: bool = False


def by_weight(counts: CandidateCounts) -> list[Shared]:
    """The tasks of every weight, as they are."""
    order = np.argsort(counts.weight, kind="stable")
    weight, first = np.unique(counts.weight[order], return_index=True)
    parts = np.split(order, first[1:])
    return [
        Shared(v, counts.num_candidates[part], counts.count[part].astype(np.float64))
        for v, part in zip(weight.tolist(), parts, strict=True)
    ]


def condense(counts: CandidateCounts, reach: float, smooth: bool) -> list[Shared] | None:
    """Tasks of few weights in place of tasks of many; None if K turns too fast between them.

    Args:
        counts: the tasks.
        reach: how many radians the term of the largest weight turns.
        smooth: whether K is smooth in N beyond the small ones too.
    """
    if len(np.unique(counts.weight)) <= _EXACT:
        return by_weight(counts)
    bins = _bins(counts.weight, reach)
    result = []
    for one in np.unique(bins):
        chosen = bins == one
        part = CandidateCounts(counts.num_candidates[chosen], counts.weight[chosen], counts.count[chosen])
        turns = reach * float(part.weight.max() - part.weight.min()) / float(counts.weight.max())
        order = math.ceil(_FEWEST_WEIGHTS + 0.75 * turns)
        if len(np.unique(part.weight)) <= order:
            result += by_weight(part)
            continue
        log_v = np.log(part.weight)
        nodes = _chebyshev(float(log_v.min()), float(log_v.max()), order)
        N, index = np.unique(part.num_candidates, return_inverse=True)
        shares = part.count[:, None] * _lagrange(nodes, log_v)
        count = np.array([np.bincount(index, share, len(N)) for share in shares.T])
        if smooth:
            N, count = _fewer_candidates(N, count)
        result += [Shared(float(v), N, c, True) for v, c in zip(np.exp(nodes), count, strict=True)]
    return result if len(result) <= _MOST_SHARED else None


def _bins(weight: FloatArray, reach: float) -> IntArray:
    """Bins of weights, none wider than an octave, in each of which the terms turn by 30 radians at most."""
    ends = [float(weight.max())]
    while ends[-1] >= weight.min():
        turns = reach * ends[-1] / ends[0]
        ends.append(ends[-1] * (1 - min(0.5, _RADIANS / turns)))
    return np.searchsorted(-np.array(ends), -weight, side="right")


def _fewer_candidates(N: IntArray, count: FloatArray) -> tuple[IntArray, FloatArray]:
    """Octaves of N by nodes: (u,) int64 and (rows, u) in, (w,) and (rows, w) out."""
    octave = np.where(N > SMALL_RANKS, np.ceil(np.log2(N / SMALL_RANKS)), 0)
    new_N, new_count = [], []
    for one in np.unique(octave):
        part, share = N[octave == one], count[:, octave == one]
        if one > 0 and len(part) > 2 * _CANDIDATES:
            nodes = np.unique(np.rint(np.exp(_chebyshev(np.log(part[0]), np.log(part[-1]), _CANDIDATES))))
            share = share @ _lagrange(np.log(nodes), np.log(part))
            part = nodes.astype(np.int64)
        new_N.append(part)
        new_count.append(share)
    return np.concatenate(new_N), np.concatenate(new_count, axis=1)


def _chebyshev(low: float, high: float, order: int) -> FloatArray:
    """Chebyshev points of [low, high], ascending, its ends among them."""
    nodes: FloatArray = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * np.arange(order) / (order - 1))
    return nodes


def _lagrange(nodes: FloatArray, x: FloatArray) -> FloatArray:
    """Values of the Lagrange polynomials of the nodes at x: (points, nodes), rows of sum 1."""
    scale = 4 / (nodes[-1] - nodes[0])
    gaps = scale * (nodes[:, None] - nodes)
    np.fill_diagonal(gaps, 1.0)
    barycentric = 1 / gaps.prod(axis=1)
    distance = x[:, None] - nodes
    at_node = distance == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = barycentric / distance
        result: FloatArray = terms / terms.sum(axis=1, keepdims=True)
    hit = at_node.any(axis=1)
    result[hit] = at_node[hit]
    return result


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


_MOST_RANGES = 1 << 14  # groups of tasks that may be taken one by one
_MOST_WEIGHTS = 4096  # distinct ones, up to which all are taken where it matters
_NARROWER = 0.5  # of its range, which a law that need not reach beyond a value has at most
_RESOLVED = 1e-10  # relative error of a panel's sums
_MOST_PANELS = 1 << 13
_MOST_VALUES = 1 << 12  # of f, up to which the ranks of each are counted
_DISPERSE = 30.0  # n times the variance of log v, beyond which distinct weights do not come into step again


class TransformSumLaw(SumLaw):
    """S = sum of sign v f(r) for any f.

    Of a user-defined f with few values the ranks of each are counted. Of others, ranks beyond 2^16 are summed by
    panels, which are halved until they give the sums of f and f^2 over all ranks: jumps of f are at ends of panels.
    """

    def __init__(self, f: Transform, counts: CandidateCounts, sign: int, cap: float = math.inf) -> None:
        self._f, self._sign, self._counts, self._cap = f, sign, counts, cap
        f = known(f)
        self._smooth = f.smooth
        N, index = np.unique(counts.num_candidates, return_inverse=True)
        table = rank_table(f, min(int(N[-1]), TABLED_RANKS if f.smooth else f.constant_from))
        table = np.minimum(sign * table, cap)
        last = self._values(N.astype(np.float64))
        top, multiplicity = running_maximum(table, N, last)
        bottom = -running_maximum(-table, N, -last)[0]
        self._table = table if f.smooth else None
        self._best = dict(zip(N.tolist(), top.tolist(), strict=True))
        values = np.unique(table)
        few_values = not f.smooth and len(values) <= _MOST_VALUES
        self._counted = _counted_values(table, values, N) if few_values else None
        self._ends = np.zeros(1, dtype=np.int64)
        if self._counted is None:
            self._ends = self._smooth_ends(int(N[-1])) if f.smooth else self._resolving_ends(table, N)
        share = counts.weight * counts.count
        self._bottom = bottom[index]
        self.highest, self.lowest = float(share @ top[index]), float(share @ self._bottom)
        self.log_top = float(counts.count @ (np.log(multiplicity) - np.log(N))[index])
        weights = np.unique(counts.weight[(bottom < top)[index]])
        steps = np.diff(np.unique(np.append(values, last)))
        few = len(weights) <= MOST_WEIGHTS and cap == math.inf  # a capped table may look like a lattice that f is not
        self.span = common_span(np.multiply.outer(weights, steps).ravel()) if few else None
        self.decays = False
        spread = counts.num_tasks * np.cov(np.log(counts.weight), fweights=counts.count, ddof=0)
        self.disperse = bool(spread > _DISPERSE)
        self._range = float(top.max() - bottom.min())
        self._turns = float(counts.weight.max()) * self._range
        self._parts: dict[int, list[TasksOfOneWeight] | None] = {}
        self._all: list[TasksOfOneWeight] = []
        self._rules: Rules = {}
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

    def by_ranges(self) -> tuple[Transform, RankRanges, int] | None:
        """See ``SumLaw``."""
        N, weight, count = self._counts.num_candidates, self._counts.weight, self._counts.count
        if not self._smooth or len(N) > _MOST_RANGES:
            return None
        return self._f, RankRanges(np.ones_like(N), N, weight, count), self._sign

    def cumulants(self, t: float) -> tuple[float, float]:
        """See ``SumLaw``."""
        mean = variance = 0.0
        for part in self._parts_up_to(t) or self._exact_parts():
            for anchor, c, stop, x, weights in part.scaled(t, t):
                mass = weights * np.exp(t * part.v * x)
                total = prefix_sums(mass, stop)
                first = prefix_sums(mass * x, stop) / total
                second = prefix_sums(mass * x * x, stop) / total
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

    def _smooth_ends(self, N: int) -> IntArray:
        """Ends of panels for a smooth f: each of the small ranks, panels that double, and the bend."""
        doubled = SMALL_RANKS * 2 ** np.arange(1, max(1, math.ceil(math.log2(N / SMALL_RANKS))), dtype=np.int64)
        return np.unique(np.r_[np.arange(SMALL_RANKS + 1), doubled, self._last_before_bend(N)])

    def _resolving_ends(self, table: FloatArray, N: IntArray) -> IntArray:
        """Ends of panels whose rule gives the sums of f and f^2 that the table has: each of the first 2^16 ranks.

        Raises:
            ValueError: if f jumps so often beyond them that there are too many panels.
        """
        head = min(len(table), TABLED_RANKS)
        ends = np.unique(np.r_[head, N[(head < N) & (len(table) > N)], len(table)])
        while len(ends) > 1:
            length = np.diff(ends)
            nodes, weights, size = panel_rule(ends[:-1] + 1, length)
            values, starts = self._values(nodes), np.cumsum(size) - size
            wrong = np.zeros(len(length), dtype=bool)
            for power in (1, 2):
                exact = np.add.reduceat(table**power, ends[:-1])
                scale = np.add.reduceat(np.abs(table) ** power, ends[:-1])
                wrong |= np.abs(np.add.reduceat(weights * values**power, starts) - exact) > _RESOLVED * scale
            if not (wrong := wrong & (length > PANEL_NODES)).any():
                break
            if len(ends) > _MOST_PANELS:
                raise ValueError(
                    f"num_candidates must be at most {TABLED_RANKS:,} for the p-value of a user-defined f that jumps "
                    f"at so many ranks, got {N[-1]:,}; use another view"
                )
            ends = np.sort(np.r_[ends, (ends[:-1] + length // 2)[wrong]])
        return np.union1d(np.arange(head), ends)

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

    def _parts_up_to(self, reach: float) -> list[TasksOfOneWeight] | None:
        """Tasks by weight, condensed for |t| <= reach; None if that is too far for as many weights as there are."""
        if self._all:
            return self._all
        level = max(0, math.ceil(math.log2(max(reach * self._turns, 1.0) / FEWEST_TURNS)))
        if level not in self._parts:
            shared = condense(self._counts, FEWEST_TURNS * 2.0**level, self._smooth and self._cap == math.inf)
            self._parts[level] = None if shared is None else [self._part(one) for one in shared]
        return self._parts[level]

    def _exact_parts(self) -> list[TasksOfOneWeight]:
        return [self._part(one) for one in by_weight(self._counts)]

    def _part(self, shared: Shared) -> TasksOfOneWeight:
        N, key = shared.num_candidates, shared.num_candidates.tobytes()
        if key not in self._tops:
            if self._table is None:
                self._tops[key] = np.array([self._best[n] for n in N.tolist()])
            else:
                self._tops[key] = running_maximum(self._table, N, self._values(N.astype(np.float64)))[0]
        part = TasksOfOneWeight(shared, self._tops[key], self._values, self._range, self._rules, self._ends)
        if self._counted is not None:
            weights, values, stop = self._counted
            part.fixed_rule = weights, values, stop[np.searchsorted(list(self._best), N)]
        return part


def _counted_values(table: FloatArray, values: FloatArray, N: IntArray) -> Rule:
    """How many of the ranks 1..N have each of the few values, these values, and where each N ends."""
    code = np.searchsorted(values, table)
    before, rows = 0, []
    for n in N.tolist():
        count = np.bincount(code[before:n], minlength=len(values)).astype(np.float64)
        count[code[-1]] += n - max(before, min(n, len(code)))  # f is constant beyond
        rows.append(count)
        before = n
    segment, value = np.nonzero(rows)
    stop = np.searchsorted(segment, np.arange(1, len(N) + 1))
    return np.array(rows)[segment, value], values[value], stop
