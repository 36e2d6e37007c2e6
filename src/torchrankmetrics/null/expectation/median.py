"""Null moments of the median rank, from Poisson binomial distributions."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from torchrankmetrics.definitions.candidates import CandidateCounts, FloatArray, IntArray, Moments
from torchrankmetrics.definitions.sums import PANEL_NODES, gauss_rule
from torchrankmetrics.definitions.tasks import IDENTITY, MEDIAN_RANK, RankDefinition
from torchrankmetrics.definitions.transforms import known
from torchrankmetrics.null.adaptive import smooth_sums
from torchrankmetrics.null.expectation.provider import strategy, unavailable
from torchrankmetrics.null.subsets import log_miss

_POLE = 4.0  # weight of the pole at z = 0 against the saddle: keeps s a few standard deviations away from it
_ALIAS = 40.0
_CAP = 40.0  # largest |s|
_FOURIER_BLOCK = 1 << 20


def upper_and_lower_tail(p: FloatArray, q: FloatArray, count: IntArray, j: int) -> tuple[FloatArray, FloatArray]:
    """P(B >= j) and P(B < j) where B is the sum of count[u] variables Bernoulli(p[row, u]), for each row.

    Args:
        p: (rows, u) float64 in [0, 1].
        q: (rows, u) float64, 1 - p, given apart so that neither loses digits.
        count: (u,) int64.
        j: any integer.

    Returns:
        two arrays (rows,) float64.
    """
    needed, free = _without_certain(q, count, j)
    p, q = np.where(q == 0, 0.5, p), np.where(q == 0, 0.5, q)  # the certain ones do not count any more
    size = free.sum(1)
    mean = (free * p).sum(1)
    upper = needed > mean
    # the smaller of the two is computed: P(B < j) is an upper tail of the number of failures
    a, b = np.where(upper[:, None], p, q), np.where(upper[:, None], q, p)
    least = np.where(upper, needed, size - needed + 1)
    small = _upper_tail(a, b, free, least)
    small = np.where(needed <= 0, 0.0, np.where(needed > size, 0.0, small))
    sure_upper = np.where(needed <= 0, False, upper | (needed > size))
    return np.where(sure_upper, small, 1 - small), np.where(sure_upper, 1 - small, small)


def point_probability(p: FloatArray, q: FloatArray, count: IntArray, j: int) -> FloatArray:
    """P(B = j), (rows,) float64; arguments as for ``upper_and_lower_tail``."""
    needed, free = _without_certain(q, count, j)
    p, q = np.where(q == 0, 0.5, p), np.where(q == 0, 0.5, q)
    possible = (needed >= 0) & (needed <= free.sum(1))
    return np.where(possible, _contour(p, q, free, np.clip(needed, 0, free.sum(1)), pole=False), 0.0)


def _without_certain(q: FloatArray, count: IntArray, j: int) -> tuple[IntArray, IntArray]:
    """How many successes the uncertain variables must give, (rows,), and how many of each kind there are, (rows, u)."""
    certain = q == 0
    return j - (count * certain).sum(1), np.where(certain, 0, count)


def _upper_tail(p: FloatArray, q: FloatArray, count: IntArray, j: IntArray) -> FloatArray:
    inside = (j > 0) & (j <= count.sum(1))
    return _contour(p, q, count, np.where(inside, j, 1), pole=True)


def _contour(p: FloatArray, q: FloatArray, count: IntArray, j: IntArray, *, pole: bool) -> FloatArray:
    result = np.empty(len(p))
    block = max(1, _FOURIER_BLOCK // (32 * p.shape[1]))
    for begin in range(0, len(p), block):
        rows = slice(begin, begin + block)
        result[rows] = _contour_block(
            p[rows], q[rows], count[rows].astype(np.float64), j[rows].astype(np.float64), pole
        )
    return result


def _contour_block(p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool) -> FloatArray:
    s = _saddle(p, q, count, j, pole)
    growth, factor = p * np.expm1(s)[:, None], q + p * np.exp(s)[:, None]
    tilted, rest = p * np.exp(s)[:, None] / factor, q / factor
    deviation = np.sqrt((count * tilted * rest).sum(1))
    # K(s) - s j from small terms: log(1 + p (e^s - 1)) - s p
    log_factor = np.where(np.abs(growth) < 0.5, np.log1p(np.maximum(growth, -0.5)), np.log(factor))
    log_height = (count * (log_factor - s[:, None] * p)).sum(1) - s * (j - (count * p).sum(1))
    nodes = np.ceil(9 * deviation + _ALIAS)
    if pole:
        nodes = np.maximum(nodes, np.ceil(_ALIAS / s))
    nodes = np.minimum(nodes, np.maximum(count.sum(1) + 1, np.ceil(_ALIAS / s) if pole else 0))
    with np.errstate(divide="ignore"):
        reach = np.minimum(nodes // 2, np.ceil(9.5 * nodes / (2 * np.pi * deviation)) + 1)
    k = np.arange(int(reach.max()) + 1)
    theta = 2 * np.pi * k / nodes[:, None]
    weight = np.where(k == 0, 1.0, np.where(2 * k < nodes[:, None], 2.0, np.where(2 * k == nodes[:, None], 1.0, 0.0)))
    weight[k > reach[:, None]] = 0.0
    versine, sine = 2 * np.sin(theta / 2) ** 2, np.sin(theta)
    both = tilted[:, :, None]
    with np.errstate(divide="ignore"):
        log_factors = np.log1p(-2 * both * rest[:, :, None] * versine[:, None])
    log_size = 0.5 * np.einsum("ru,ruk->rk", count, np.maximum(log_factors, -1e4))
    turn = np.arctan2(both * sine[:, None], 1 - both * versine[:, None]) - both * theta[:, None]
    phase = np.einsum("ru,ruk->rk", count, turn) - theta * (j - (count * tilted).sum(1))[:, None]
    value = np.exp(log_height[:, None] + log_size + 1j * phase)
    if pole:
        value = value / -np.expm1(-s[:, None] - 1j * theta)
    return np.asarray((weight * value.real).sum(1) / nodes)


def _saddle(p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool) -> FloatArray:
    """Near the minimum over s of K(s) - s j (- 4 log s with the pole), by bisection-guarded Newton steps."""
    low = np.full(len(j), 1e-9 if pole else -_CAP)
    high = np.full(len(j), _CAP)
    mean = (count * p).sum(1)
    variance = np.maximum((count * p * q).sum(1), 1e-300)
    gap = j - mean
    with np.errstate(over="ignore"):
        s = (gap + np.sqrt(gap**2 + 4 * _POLE * variance)) / (2 * variance) if pole else gap / variance
    s = np.clip(s, low, high)
    for _ in range(16):
        growth = np.exp(s)[:, None]
        tilted = p * growth / (q + p * growth)
        slope = (count * tilted).sum(1) - j - (_POLE / s if pole else 0.0)
        curvature = (count * tilted * (1 - tilted)).sum(1) + (_POLE / s**2 if pole else 0.0)
        low, high = np.where(slope < 0, s, low), np.where(slope < 0, high, s)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = s - slope / curvature
        safe = (newton >= low) & (newton <= high)
        if (safe & (np.abs(newton - s) <= 1e-3 * np.abs(s))).all():
            break  # the contour may pass anywhere near the saddle
        s = np.where(safe, newton, (low + high) / 2)
    return np.asarray(s)


_NEGLIGIBLE = 45.0  # -log of a probability that changes no digit
_NEGLIGIBLE_GAP = 35.0  # the same for a gap between the middle two
_TOLERANCE = 1e-12  # of the moments of one order statistic
_FINEST = 1e-13  # tolerance of the gap correction beyond which rounding rules
_BLOCK = 1 << 18
_WORK = 2e8  # Bernoulli factors on one side of the contour, about ten seconds


@dataclass(frozen=True)
class _Tasks:
    """Distinct (N, m), by ascending last rank N - m + 1, and how many tasks or queries have each, (u,) each."""

    N: IntArray
    m: IntArray
    count: IntArray

    @cached_property
    def last(self) -> IntArray:
        """Largest possible rank of each."""
        return self.N - self.m + 1

    def beyond(self, x: FloatArray) -> FloatArray:
        """P(r > x), for x that broadcasts with (u,), integers or points between them."""
        return np.maximum((self.N - x) / self.N, 0.0) if self.m.max() == 1 else np.exp(self._log_beyond(x))

    def between(self, x: FloatArray | float, y: FloatArray) -> FloatArray:
        """P(x < r <= y)."""
        if self.m.max() == 1:
            return np.maximum(np.minimum(y, self.N) - x, 0.0) / self.N
        above, further = self._log_beyond(x), self._log_beyond(y)
        with np.errstate(invalid="ignore"):  # nothing is beyond either
            return np.where(above == -np.inf, 0.0, np.exp(above) * -np.expm1(further - above))

    def _log_beyond(self, x: FloatArray | float) -> FloatArray:
        return log_miss(*np.broadcast_arrays(self.N, self.m, np.minimum(x, self.last)))

    def tails(self, x: FloatArray, j: int) -> tuple[FloatArray, FloatArray]:
        """P(X_(j) <= x) and P(X_(j) > x), each (len(x),)."""
        result = np.empty((2, len(x)))
        for rows in self._blocks(len(x)):
            p, q = self.between(0.0, x[rows, None]), self.beyond(x[rows, None])
            result[:, rows] = upper_and_lower_tail(p, q, self.count, j)
        return result[0], result[1]

    def tails_at(self, x: int, j: int) -> tuple[float, float]:
        """P(X_(j) <= x) and P(X_(j) > x)."""
        at_most, beyond = self.tails(np.array([float(x)]), j)
        return float(at_most[0]), float(beyond[0])

    def joint(self, x: FloatArray, gap: FloatArray, j: int) -> FloatArray:
        """P(B_x = j = B_y) for y = x + gap: no rank in (x, y], and j at most x."""
        result = np.empty(len(x))
        for rows in self._blocks(len(x)):
            y = (x + gap)[rows, None]
            taken = self.between(x[rows, None], y)
            p, q = self.between(0.0, x[rows, None]) / (1 - taken), self.beyond(y) / (1 - taken)
            result[rows] = np.exp(np.log1p(-taken) @ self.count) * point_probability(p, q, self.count, j)
        return result

    def _blocks(self, rows: int) -> list[slice]:
        size = max(1, _BLOCK // len(self.N))
        return [slice(begin, begin + size) for begin in range(0, rows, size)]


@strategy(lambda d: d.aggregation == "median" and d.f == IDENTITY and known(d.g).exponent in (1, -1))
def median_rank(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Moments of the median and the inverse median of ranks, midpoint for even n; None if weights differ.

    Raises:
        ExpectationUnavailableError: if n is even and wide gaps meet many distinct N: too much work.
    """
    if not counts.equal_weights:
        return None
    tasks = _Tasks(counts.num_candidates, np.ones_like(counts.num_candidates), counts.count)
    return _median_moments(definition, tasks)


def median_of_first_ranks(N: IntArray, m: IntArray, count: IntArray) -> tuple[float, float]:
    """Mean and variance of the median over queries of equal weight of the rank of the first relevant item.

    Args:
        N: (u,) int64, distinct together with m.
        m: (u,) int64, relevant items of a query.
        count: (u,) int64, how many queries have each N and m.

    Raises:
        ExpectationUnavailableError: as ``median_rank``.
    """
    order = np.argsort(N - m, kind="stable")
    return _cached_median(*(part[order].tobytes() for part in (N, m, count)))


@lru_cache(maxsize=512)
def _cached_median(*columns: bytes) -> tuple[float, float]:
    moments = _median_moments(MEDIAN_RANK, _Tasks(*(np.frombuffer(part, dtype=np.int64) for part in columns)))
    return moments.mean, moments.variance


def _median_moments(definition: RankDefinition, tasks: _Tasks) -> Moments:
    n, inverse = int(tasks.count.sum()), definition.g != IDENTITY
    j, fixed = (n + 1) // 2, int(tasks.count[tasks.last == 1].sum())
    if fixed >= n // 2 + 1:  # X_(n // 2 + 1) = 1, so the median cannot move
        return Moments(1.0, 0.0)
    center = _center(tasks, j)
    g = _inverse_pieces(center) if inverse else _identity_pieces(center)
    low, high = _window(tasks, j, center)
    first, second = _order_moments(tasks, j, g, center, low, high)
    if n % 2 == 0:
        low_b, high_b = _window(tasks, j + 1, center)
        upper = _order_moments(tasks, j + 1, g, center, low_b, high_b)
        window = (min(low, low_b), max(high, high_b))
        first, second = _middle_of_two(definition, tasks, j, g, window, (first, second), (upper[0], upper[1]))
    origin = 1 / center if inverse else float(center)
    return Moments(float(origin + first), float(second - first**2))


def _middle_of_two(
    definition: RankDefinition,
    tasks: _Tasks,
    j: int,
    g: "_Pieces",
    window: tuple[int, int],
    lower: tuple[float, float],
    upper: tuple[float, float],
) -> tuple[float, float]:
    """E D and E D^2 of the midpoint from those of the middle two; refined until the variance is right to 1e-9."""
    first, second = (lower[0] + upper[0]) / 2, (lower[1] + upper[1]) / 2
    tolerance = min(1e-6, 1e-11 * max(1.0, (second - first**2) / (upper[0] - lower[0]) ** 2))
    while True:
        correction = _gap_correction(tasks, j, g, *window, tolerance)
        if correction is None:
            raise unavailable(definition, "takes too long for this even number of tasks with so many distinct counts")
        mean, square = first - correction[0], second - correction[1]
        needed = 1e-10 * (square - mean**2) / max(abs(correction[1]), abs(second))
        if tolerance <= needed or tolerance * abs(correction[1]) <= 1e-10 * (square - mean**2):
            return mean, square
        if tolerance <= _FINEST:
            raise unavailable(definition, "has a variance that cancels to fewer than nine digits for these counts")
        tolerance = max(0.1 * needed, _FINEST)


@dataclass(frozen=True)
class _Pieces:
    """D(x) = g(x) - g(c) and the differences that summation by parts needs, in closed form.

    Attributes:
        value: D(x).
        step: D(x + 1) - D(x).
        bend: second differences at s = x + y of D((x + y) / 2) and of its square, (2, m).
    """

    value: Callable[[FloatArray], FloatArray]
    step: Callable[[FloatArray], FloatArray]
    bend: Callable[[FloatArray], FloatArray]


def _identity_pieces(center: int) -> _Pieces:
    def bend(s: FloatArray) -> FloatArray:
        return np.stack([np.zeros_like(s), np.full_like(s, 0.5)])

    return _Pieces(lambda x: x - center, np.ones_like, bend)


def _inverse_pieces(center: int) -> _Pieces:
    def bend(s: FloatArray) -> FloatArray:
        product = s * (s + 1) * (s + 2)
        linear = 4 / product  # of 2 / s
        return np.stack([linear, 4 * (6 * s * s + 12 * s + 4) / product**2 - 2 / center * linear])

    return _Pieces(lambda x: (center - x) / (x * center), lambda x: -1 / (x * (x + 1)), bend)


def _center(tasks: _Tasks, j: int) -> int:
    """Smallest x with P(X_(j) <= x) >= 1/2."""
    return 1 + bisect_left(range(1, int(tasks.last[-1])), True, key=lambda x: tasks.tails_at(x, j)[0] >= 0.5)


def _window(tasks: _Tasks, j: int, center: int) -> tuple[int, int]:
    """The x outside of which both tails of X_(j) are negligible against those at the center."""
    least = max(tasks.tails_at(center - 1, j)[0], tasks.tails_at(center, j)[1]) * math.exp(-_NEGLIGIBLE)
    below, above = range(1, center), range(center, int(tasks.last[-1]))
    low = 1 + bisect_left(below, True, key=lambda x: tasks.tails_at(x, j)[0] > least)
    high = center + bisect_left(above, True, key=lambda x: tasks.tails_at(x, j)[1] <= least)
    return low, high


def _runs(tasks: _Tasks, low: int, high: int, cuts: int = 8) -> tuple[IntArray, IntArray]:
    """[low, high) as runs between the kinks at the last ranks, cut further into equal parts."""
    inside = tasks.last[(low < tasks.last) & (high > tasks.last)]
    even = np.linspace(low, high, cuts + 1).astype(np.int64)
    edges = np.unique(np.concatenate([even, inside]))
    return edges[:-1], edges[1:]


def _order_moments(tasks: _Tasks, j: int, g: _Pieces, center: int, low: int, high: int) -> FloatArray:
    """E D(X_(j)) and E D(X_(j))^2, (2,)."""

    def weighted(x: FloatArray, probability: FloatArray) -> FloatArray:
        step = g.step(x)
        return np.stack([step * probability, step * (2 * g.value(x) + step) * probability])

    sums = np.zeros(2)
    for side, sign, begin, end in ((0, -1, low, center), (1, 1, center, high)):
        if begin < end:
            start, stop = _runs(tasks, begin, end)

            def functions(x: FloatArray, side: int = side) -> FloatArray:
                return weighted(x, tasks.tails(x, j)[side])

            sums += sign * smooth_sums(functions, start, stop, together=True, tolerance=_TOLERANCE).sum(1)
    return sums


def _gap_correction(tasks: _Tasks, j: int, g: _Pieces, low: int, high: int, tolerance: float) -> FloatArray | None:
    """What the midpoint of the middle two lacks of the mean of both, for D and D^2, (2,); None: too much work."""

    def inner(x: FloatArray) -> FloatArray:
        rules = [_gap_rule(tasks, value) for value in x]
        index = np.repeat(np.arange(len(x)), [len(rule[0]) for rule in rules])
        gap, weight = (np.concatenate([rule[k] for rule in rules]) for k in (0, 1))
        terms = g.bend(2 * x[index] + gap) * weight * tasks.joint(x[index], gap, j)
        return np.stack([np.bincount(index, term, len(x)) for term in terms])

    start, stop = _runs(tasks, low, high, cuts=4)
    outer = np.minimum(stop - start, 3 * PANEL_NODES).sum()
    middle = len(_gap_rule(tasks, float((low + high) // 2))[0])
    if float(outer) * middle * len(tasks.N) * PANEL_NODES > _WORK:
        return None
    return np.asarray(smooth_sums(inner, start, stop, together=True, tolerance=tolerance).sum(1))


def _gap_rule(tasks: _Tasks, x: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights for sums over y - x = 0, 1, ...; the diagonal counts half.

    x is an integer or a quadrature node between two: the panels end at the kinks y = N_i, at distances N_i - x that
    need not be integers. The Gauss rule of the counting measure continues to such lengths: the sum stays smooth in x.
    """

    def log_mass(gap: int) -> float:
        taken = tasks.between(np.array([x]), np.array([x + gap]))
        with np.errstate(divide="ignore"):
            return float(np.log1p(-taken) @ tasks.count)

    # from here on gaps are negligible
    gaps = range(1, max(1, math.ceil(tasks.last[-1] - x)))
    stop = 1 + bisect_left(gaps, True, key=lambda gap: log_mass(gap) <= -_NEGLIGIBLE_GAP)
    kinks = tasks.last[(x < tasks.last) & (tasks.last - x < stop)] - x
    last = min(float(stop), float(tasks.last[-1] - x))
    doubled = (2 * x + 1 + PANEL_NODES) * 2.0 ** np.arange(0, 60) - 2 * x  # g bends on the scale of x + y
    ends = np.concatenate([[1.0], np.sort(np.r_[kinks[kinks > 1], doubled[(doubled > 1) & (doubled < last)]]), [last]])
    nodes, weights = [np.zeros(1)], [np.full(1, 0.5)]
    for begin, end in pairwise(ends.tolist()):
        parts = max(1, math.ceil((end - begin) / max(PANEL_NODES, stop / 4)))
        length = (end - begin) / parts
        if length > 0:
            node, weight = _counting_rule(length)
            for part in range(parts):
                nodes.append(begin + part * length + node)
                weights.append(weight)
    return np.concatenate(nodes), np.concatenate(weights)


@lru_cache(maxsize=4096)
def _counting_rule(length: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of one ``gauss_rule``, (order,) each: many x share their lengths."""
    nodes, weights = gauss_rule(np.array([length]), max(1, min(PANEL_NODES, math.floor(length))))
    return nodes[0], weights[0]
