"""The law of S for any f: the moment generating function of one summand is a sum over 1..N.

Tasks of one weight share their sums; tasks of many weights stand for more of them, as far as a line is followed.
"""

import math
from bisect import bisect_left

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray
from torchrankmetrics.theory.definitions import Transform
from torchrankmetrics.theory.quadrature.panels import TABLED_RANKS
from torchrankmetrics.theory.tails.condensed import FEWEST_TURNS, Shared, by_weight, condense
from torchrankmetrics.theory.tails.lattice import MOST_WEIGHTS, common_span
from torchrankmetrics.theory.tails.laws import MOST_GROUPS, Atoms, ComplexArray, Line, RankRanges, SumLaw
from torchrankmetrics.theory.tails.prefix import Rules, TasksOfOneWeight, prefix_sums, running_maximum
from torchrankmetrics.theory.transforms import apply_transform, known

_MOST_RANGES = 1 << 14  # groups of tasks that may be taken one by one
_MOST_WEIGHTS = 4096  # distinct ones, up to which all are taken where it matters
_NARROWER = 0.5  # of its range, which a law that need not reach beyond a value has at most
_DISPERSE = 30.0  # n times the variance of log v, beyond which distinct weights do not come into step again


class TransformSumLaw(SumLaw):
    """S = sum of sign v f(r) for any f; one that is not a power or a logarithm must be smooth beyond 2^16."""

    def __init__(self, f: Transform, counts: CandidateCounts, sign: int, cap: float = math.inf) -> None:
        self._f, self._sign, self._counts, self._cap = f, sign, counts, cap
        self._smooth = known(f).smooth
        N, index = np.unique(counts.num_candidates, return_inverse=True)
        self._table = self._values(np.arange(1.0, min(int(N[-1]), TABLED_RANKS) + 1))
        last = self._values(N.astype(np.float64))
        self._bend = self._last_before_bend(int(N[-1]))
        top, multiplicity = running_maximum(self._table, N, last)
        bottom = -running_maximum(-self._table, N, -last)[0]
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
            self._tops[key] = running_maximum(self._table, N, self._values(N.astype(np.float64)))[0]
        return TasksOfOneWeight(
            shared, self._tops[key], self._values, self._smooth, self._range, self._rules, self._bend
        )
