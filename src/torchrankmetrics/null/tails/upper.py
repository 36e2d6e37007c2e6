"""Upper tails of sums: convolution, grids, and the bounds that choose between methods."""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import fft

from torchrankmetrics.definitions.candidates import FloatArray, IntArray, distinct_rows
from torchrankmetrics.definitions.sums import PANEL_NODES, SMALL_RANKS, panel_rule
from torchrankmetrics.definitions.transforms import Transform, apply_transform
from torchrankmetrics.null.tails.inversion import alias_period, away_from_pole, log_tail_by_inversion
from torchrankmetrics.null.tails.laws import MOST_GROUPS, MOST_WEIGHTS, Atoms, ComplexArray, Line, RankRanges, SumLaw
from torchrankmetrics.null.tails.transform_law import RADIANS

_MOST_POINTS = 1 << 18  # in the supports of all summands together
_MOST_ATOMS = 1 << 18  # in either half of the sum
_MOST_PAIRS = 1 << 22  # formed at once
_MANY = 1 << 14  # atoms, from where on those of negligible mass are dropped
_DROPPED = 1e-9  # tilted mass that may be dropped in all
_LEAST_ACCURACY = 1e-6  # of a tail, beside the mass that was dropped
_EQUAL = 1e-13  # sums whose relative distance is smaller are one atom
_ONE_BY_ONE = 64  # tasks that are convolved one after the other; more are squared


@dataclass(frozen=True)
class _Partial:
    """Sums of some of the shortfalls, ascending, their tilted mass, and a bound on the mass that was dropped."""

    shortfall: FloatArray
    mass: FloatArray
    dropped: float = 0.0


class _TooManyAtomsError(Exception):
    pass


def log_tail_by_convolution(law: SumLaw, s: float, t0: float, most: int | None = None) -> float | None:
    """Log P(S >= s) by convolution, no less and at most 1e-6 more; None where the atoms are too many.

    Args:
        law: the law of S.
        s: an observed value, a little below an atom that is to count.
        t0: tilt, 0 <= t0; best where K'(t0) = s.
        most: atoms in a half of the sum, by an estimate; None: as many as there is room for.
    """
    groups = law.atoms(_MOST_POINTS)
    if groups is None:
        return None
    short = law.highest - s
    tilted = [_tilt(group, t0, short) for group in groups]
    if _expected_atoms(groups, tilted) > (30 * _MOST_ATOMS if most is None else most):
        return None
    negligible = _DROPPED / sum(group.count for group in groups)
    halves = [_Partial(np.zeros(1), np.ones(1)), _Partial(np.zeros(1), np.ones(1))]
    try:
        for group, (base, _) in zip(groups, tilted, strict=True):
            smaller = int(len(halves[1].mass) < len(halves[0].mass))
            for side in (0, 1):
                tasks = (group.count + (side == smaller)) // 2
                halves[side] = _add(halves[side], base, tasks, short, negligible)
    except _TooManyAtomsError:
        return None
    log_tail = _log_tail_of_pairs(halves[0], halves[1], short, t0)
    # what was dropped weighs no more than the same mass at s itself
    dropped = sum(half.dropped for half in halves)
    if dropped > _LEAST_ACCURACY * math.exp(min(log_tail, 0.0)):
        return None
    if dropped > 0:
        log_tail = float(np.logaddexp(log_tail, math.log(dropped)))
    log_factors = sum(group.count * log_factor for group, (_, log_factor) in zip(groups, tilted, strict=True))
    return min(0.0, log_tail + log_factors + t0 * short)


def _tilt(group: Atoms, t0: float, short: float) -> tuple[_Partial, float]:
    """Tilted probabilities of one shortfall, up to ``short``, and log E exp(-t0 D)."""
    mass = group.probability * np.exp(-t0 * group.shortfall)
    total = float(mass.sum())
    near = group.shortfall <= short
    return _Partial(group.shortfall[near], mass[near] / total), math.log(total)


def _expected_atoms(groups: list[Atoms], tilted: list[tuple[_Partial, float]]) -> float:
    """About how many atoms a half of the sum has: multisets in all, or those of tilted mass if these are fewer."""
    log_all = log_likely = 0.0
    for group, (base, _) in zip(groups, tilted, strict=True):
        half, kinds = group.count / 2, len(base.mass)
        log_all += math.lgamma(half + kinds) - math.lgamma(half + 1) - math.lgamma(kinds)
        log_likely += float(np.log1p(6 * np.sqrt(half * np.sort(base.mass)[:-1])).sum())
    return math.exp(min(log_all, log_likely, 700.0))


def _add(half: _Partial, base: _Partial, count: int, short: float, negligible: float) -> _Partial:
    """Convolve ``count`` more tasks into a half."""
    if count <= _ONE_BY_ONE:
        for _ in range(count):
            half = _convolve(half, base, short, negligible)
        return half
    while count:
        if count & 1:
            half = _convolve(half, base, short, negligible)
        count >>= 1
        if count:
            base = _convolve(base, base, short, negligible)
    return half


def _convolve(a: _Partial, b: _Partial, short: float, negligible: float) -> _Partial:
    if len(a.mass) * len(b.mass) <= _MOST_PAIRS:
        shortfall = np.add.outer(a.shortfall, b.shortfall).ravel()
        mass = np.multiply.outer(a.mass, b.mass).ravel()
    else:
        shortfall, mass = _near_pairs(a, b, short)
    kept = shortfall <= short
    dropped = a.dropped + b.dropped
    if len(mass) > _MANY:
        small = mass < negligible / len(mass)
        dropped += float(mass[small & kept].sum())
        kept &= ~small
    shortfall, mass = shortfall[kept], mass[kept]
    if not len(mass):
        return _Partial(np.zeros(1), np.zeros(1), dropped)
    order = np.argsort(shortfall, kind="stable")
    shortfall, mass = shortfall[order], mass[order]
    first = np.flatnonzero(np.r_[True, np.diff(shortfall) > _EQUAL * shortfall[1:]])
    if len(first) > _MOST_ATOMS:
        raise _TooManyAtomsError
    return _Partial(shortfall[first], np.add.reduceat(mass, first), dropped)


def _near_pairs(a: _Partial, b: _Partial, short: float) -> tuple[FloatArray, FloatArray]:
    """Sums and masses of the pairs that fall short by no more than ``short``, where all pairs are too many."""
    partners = np.searchsorted(b.shortfall, short - a.shortfall, side="right")
    total = int(partners.sum())
    if total > _MOST_PAIRS:
        raise _TooManyAtomsError
    left = np.repeat(np.arange(len(a.mass)), partners)
    right = np.arange(total) - np.repeat(np.cumsum(partners) - partners, partners)
    return a.shortfall[left] + b.shortfall[right], a.mass[left] * b.mass[right]


def _log_tail_of_pairs(a: _Partial, b: _Partial, short: float, t0: float) -> float:
    """Log of the sum of the masses times exp(-t0 (short - x - y)) over the pairs with x + y <= short."""
    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a.mass) + t0 * (a.shortfall - short), np.log(b.mass) + t0 * b.shortfall
    log_sum = np.append(-np.inf, np.logaddexp.accumulate(log_b))
    log_terms = log_a + log_sum[np.searchsorted(b.shortfall, short - a.shortfall, side="right")]
    largest = float(log_terms.max())
    return largest + math.log(float(np.exp(log_terms - largest).sum())) if largest > -math.inf else largest


_MOST_SUPPORT = 1 << 18
_MOST_WORK = 1 << 23  # points of the lattice times laws of one summand


def log_tail_on_grid(law: SumLaw, s: float, t0: float) -> float | None:
    """Log P(S >= s) for a point s of the lattice, to ten digits; None where the lattice is too fine or not known.

    Under the tilt t0 S stays near s: it is wrapped to a period, which adds less than exp(-32) of the result.
    """
    if law.span is None:
        return None
    points = alias_period(law, s, t0) / law.span + 2
    if points > _MOST_WORK:
        return None
    groups = law.atoms(_MOST_SUPPORT)
    if groups is None or points * len(groups) > _MOST_WORK:
        return None
    size = fft.next_fast_len(math.ceil(points), real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    log_factor = 0.0
    for group in groups:
        mass = group.probability * np.exp(-t0 * group.shortfall)
        total = float(mass.sum())
        log_factor += group.count * math.log(total)
        place = np.rint(group.shortfall / law.span).astype(np.int64) % size
        spectrum *= fft.rfft(np.bincount(place, mass / total, size)) ** group.count
    tilted = np.maximum(fft.irfft(spectrum, size), 0.0)
    short = round((law.highest - s) / law.span)
    beyond = np.arange(size)
    tail = float((tilted[(short - beyond) % size] * np.exp(-t0 * law.span * beyond)).sum())
    return min(0.0, log_factor + t0 * short * law.span + math.log(tail))


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


_ROUNDS = 4  # of both; each narrows less than the one before
_FEW_GROUPS = 16  # groups of tasks that are taken one by one wherever anything is left out
_SOME = 512  # groups that are where their widest range becomes much narrower; more only if sums cannot be shared
_NARROWER = 0.5
_IMPOSSIBLE = -60.0  # log of a probability that is as good as none where a smaller value is sought


@dataclass(frozen=True)
class Narrowed:
    """P(S >= s) = exp(log_reached) + exp(log_open) P(law >= s).

    Attributes:
        log_reached: log of the probability that a summand reaches s by itself.
        log_open: log of the probability that the law is needed; -inf: it is not.
        law: of S where it is.
    """

    log_reached: float
    log_open: float
    law: RangeSumLaw

    def log_tail(self, log_rest: float) -> float:
        """Log P(S >= s), given log P(law >= s)."""
        high, low = sorted((self.log_reached, self.log_open + log_rest), reverse=True)
        return min(0.0, high + math.log1p(math.exp(low - high))) if low > -math.inf else high


def narrowed(law: RangeSumLaw, s: float, rounding: float, *, below: bool = False) -> Narrowed | None:
    """Leave out of a law what does not matter to P(S >= s); None where that is nothing, or many groups remain wide.

    Args:
        law: the law of S.
        s: a value between the ends of its support.
        rounding: no atom that matters is as close to s.
        below: whether it is enough to know that P(S >= s) is next to nothing.
    """
    width = float(law.width.max())
    result = Narrowed(-math.inf, 0.0, law)
    for _ in range(_ROUNDS):
        before = result.law.ranges.size.sum()
        for narrow in (_not_by_itself, _not_too_short):
            result = narrow(result, s)
            if s > result.law.highest + rounding:
                return Narrowed(result.log_reached, -math.inf, result.law)
            if s <= result.law.lowest + rounding:
                return Narrowed(result.log_tail(0.0), -math.inf, result.law)
        if result.law.ranges.size.sum() == before:
            break
    if below and result.log_tail(0.0) < _IMPOSSIBLE:
        return Narrowed(-math.inf, -math.inf, result.law)
    if result.law.ranges.size.sum() == law.ranges.size.sum():
        return None
    groups, weights = len(result.law.ranges.count), len(np.unique(result.law.ranges.weight))
    if groups <= _FEW_GROUPS:
        return result
    narrower = float(result.law.width.max()) <= _NARROWER * width
    return result if narrower and (groups <= _SOME or weights > MOST_WEIGHTS) else None


def _not_by_itself(state: Narrowed, s: float) -> Narrowed:
    log_none, negated = state.law.negated().within(s - state.law.lowest)
    if log_none == 0:
        return state
    log_some = math.log(-math.expm1(log_none))
    reached = Narrowed(state.log_reached, state.log_open, state.law).log_tail(log_some)
    return Narrowed(reached, state.log_open + log_none, negated.negated())


def _not_too_short(state: Narrowed, s: float) -> Narrowed:
    log_all, law = state.law.within(state.law.highest - s)
    return Narrowed(state.log_reached, state.log_open + log_all, law)


_COARSE = 1e-4  # a lattice whose span is this share of the range is inverted with a few thousand nodes at most
_FEW = 1 << 14  # atoms that are convolved in a moment


def log_upper_tail(law: SumLaw, negated: SumLaw, s: float, slack: float) -> float:
    """Log P(S >= s).

    Args:
        law: the law of S.
        negated: the law of -S; below the mean, P(S >= s) is 1 - P(-S > -s), which loses no digits.
        s: any real number or infinity.
        slack: s reaches an atom of S this far above it; at most a quarter of a lattice's span.
    """
    if law.span is not None:
        slack = min(slack, law.span / 4)
    if s > law.highest + slack:
        return -math.inf
    if law.lowest == law.highest:
        return 0.0
    if s >= law.highest - slack:
        return law.log_top
    if s <= law.lowest + slack:
        return 0.0
    if law.span is None:
        if s > law.cumulants(0.0)[0]:
            return _log_tail_off_atoms(law, s - slack, slack)
        return _log_complement(_log_tail_off_atoms(negated, slack - s, slack, below=True))
    below_top = math.floor((law.highest - s + slack) / law.span)
    if below_top == 0:
        return law.log_top
    point = law.highest - below_top * law.span
    if point > law.cumulants(0.0)[0]:
        return _log_tail_above_mean(law, point, law.span / 4)
    worse = point - law.span
    if worse < law.lowest + law.span / 2:
        return _log_complement(negated.log_top)
    return _log_complement(_log_tail_above_mean(negated, -worse, law.span / 4, below=True))


def _log_tail_off_atoms(law: SumLaw, s: float, slack: float, *, below: bool = False) -> float:
    """Log P(S >= s) for s above the mean and no atom within ``slack`` of it that matters; there is no lattice."""
    ranges = law.by_ranges()
    left = None if ranges is None else narrowed(RangeSumLaw(*ranges), s, slack / 8, below=below)
    if left is None:
        return _log_tail_above_mean(law.reaching(s, slack), s, 0.0, below=below)
    if left.log_open == -math.inf:
        return left.log_reached
    if s > left.law.cumulants(0.0)[0]:
        return left.log_tail(_log_tail_above_mean(left.law, s, 0.0, below=below))
    log_missed = _log_tail_above_mean(left.law.negated(), -s, 0.0, below=not below)
    return left.log_tail(_log_complement(log_missed))


def _log_tail_above_mean(law: SumLaw, s: float, slack: float, *, below: bool = False) -> float:
    """Log P(S >= s) for s above the mean; on a lattice s is one of its points, found within ``slack``.

    Where it cannot be had to all digits it errs to the larger side, or to the smaller one on demand.
    """
    if law.span is not None and law.decays:
        return log_tail_by_inversion(law, s, below=below)
    t0 = away_from_pole(law, s)
    exact = log_tail_by_convolution(law, s - slack, t0, _FEW)
    if exact is None:
        exact = log_tail_on_grid(law, s, t0)
    if exact is None and (law.span is None or law.span < _COARSE * (law.highest - law.lowest)):
        exact = log_tail_by_convolution(law, s - slack, t0)
    if exact is not None:
        return exact
    return log_tail_by_inversion(law, s, t0, below=below)


def _log_complement(log_q: float) -> float:
    """Log(1 - q) from log q."""
    if log_q == -math.inf:
        return 0.0
    if log_q >= 0:
        return -math.inf
    return math.log1p(-math.exp(log_q)) if log_q < -0.7 else math.log(-math.expm1(log_q))
