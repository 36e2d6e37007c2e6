"""The law of S for any f: the moment generating function of one summand is a sum over 1..N.

Tasks of one weight share their sums; tasks of many weights stand for more of them, as far as a line is followed.
"""

import math
from bisect import bisect_left

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.theory.definitions import Transform
from torchrankmetrics.theory.quadrature.panels import PANEL_NODES, SMALL_RANKS, TABLED_RANKS, panel_rule
from torchrankmetrics.theory.tails.condensed import FEWEST_TURNS, Shared, by_weight, condense
from torchrankmetrics.theory.tails.lattice import MOST_WEIGHTS, common_span
from torchrankmetrics.theory.tails.laws import MOST_GROUPS, Atoms, ComplexArray, Line, RankRanges, SumLaw
from torchrankmetrics.theory.tails.prefix import Rule, Rules, TasksOfOneWeight, prefix_sums, running_maximum
from torchrankmetrics.theory.transforms import apply_transform, known, rank_table

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
