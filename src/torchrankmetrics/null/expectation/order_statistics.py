"""Null moments of the largest, the smallest and the median rank, and of their powers."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np

from torchrankmetrics.definitions.sample import (
    CandidateCounts,
    FloatArray,
    IntArray,
    Moments,
    sum_by_value,
)
from torchrankmetrics.definitions.sums import PANEL_NODES, gauss_rule, panel_rule
from torchrankmetrics.definitions.tasks import MEDIAN_RANK, RankDefinition
from torchrankmetrics.definitions.transforms import as_transform
from torchrankmetrics.null.expectation.poisson_binomial import point, tail
from torchrankmetrics.null.expectation.provider import unavailable
from torchrankmetrics.null.hypergeometric import log_miss

# powers of ranks are smooth between these ranks, or summed one by one
_DOUBLINGS = np.r_[16, 32, 48, 64 << np.arange(56, dtype=np.int64)]
_REACH = 45.0  # -log of the smallest tail that is summed, relative to that at the center
_GAP_REACH = 35.0  # the same for a gap between the middle two
_CUTS = 8  # panels on each side of the center: about 1.2 standard deviations each
_WORK = 2e8  # Bernoulli factors on one side of the contour: about ten seconds on one core


def order_statistic(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Exact moments of a power of the largest, smallest or median rank.

    None for a median if weights differ.
    """
    if not definition.is_extreme and counts.weight.min() != counts.weight.max():
        return None
    N, count = sum_by_value(counts.num_candidates, counts.count)
    return _moments(definition, _IndependentRanks(N, np.ones_like(N), count.astype(np.int64)))


def median_of_first_ranks(N: IntArray, m: IntArray, count: IntArray) -> Moments:
    """Moments of the median over queries of the rank of the first relevant item.

    A query has m relevant items among N candidates.
    """
    order = np.argsort(N - m, kind="stable")
    return _cached_median(*(part[order].tobytes() for part in (N, m, count)))


@lru_cache(maxsize=512)
def _cached_median(*columns: bytes) -> Moments:
    return _moments(
        MEDIAN_RANK, _IndependentRanks(*(np.frombuffer(part, dtype=np.int64) for part in columns))
    )


class _IndependentRanks:
    """Distinct (N, m) by ascending last rank N - m + 1, and how many tasks have each, (u,) all.

    The rank is that of the first of m relevant items; a ranking task has m = 1.
    """

    def __init__(self, N: IntArray, m: IntArray, count: IntArray) -> None:
        self.num_candidates = N
        self._m = m
        self.count = count
        self.last = N - m + 1
        self.total = int(count.sum())

    def between(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """P(x < r <= y), for integers or points between them that broadcast with (u,)."""
        if self._m.max() == 1:
            return np.maximum(np.minimum(y, self.num_candidates) - x, 0.0) / self.num_candidates
        above = log_miss(self.num_candidates, self._m, np.minimum(x, self.last))
        further = log_miss(self.num_candidates, self._m, np.minimum(y, self.last))
        with np.errstate(invalid="ignore"):  # both are impossible
            inside = np.exp(above) * -np.expm1(further - above)
        return np.where(above == -np.inf, 0.0, inside)

    def at_most(self, x: FloatArray, j: int) -> FloatArray:
        """P(X_(j) <= x) for each x, (len(x),), to a small relative error where it is below 1/2."""
        return np.concatenate([tail(p, q, self.count, j) for p, q, _ in self._shares(x, x)])

    def beyond(self, x: FloatArray, j: int) -> FloatArray:
        """P(X_(j) > x) for each x, (len(x),), to a small relative error where it is below 1/2."""
        needed = self.total - j + 1
        return np.concatenate([tail(q, p, self.count, needed) for p, q, _ in self._shares(x, x)])

    def joint(self, x: FloatArray, y: FloatArray, j: int) -> FloatArray:
        """P(B_x = j = B_y), (len(x),): no rank in (x, y], and j at most x."""
        shares = self._shares(x, y)
        return np.concatenate([free * point(p, q, self.count, j) for p, q, free in shares])

    def _shares(
        self, x: FloatArray, y: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Yield P(r <= x) and P(r > y) given that no rank is in (x, y], and its probability."""
        block = max(1, (1 << 15) // len(self.count))
        top = self.last[-1:].astype(np.float64)
        for begin in range(0, len(x), block):
            low = x[begin : begin + block, None]
            high = y[begin : begin + block, None]
            taken = self.between(low, high)
            below = self.between(np.zeros(1), low) / (1 - taken)
            above = self.between(high, top) / (1 - taken)
            yield below, above, np.exp(np.log1p(-taken) @ self.count)


def _moments(definition: RankDefinition, tasks: _IndependentRanks) -> Moments:
    """Moments of a power of X_(j), the j-th smallest rank, or of the midpoint of two."""
    # the statistic of one ranking task is its rank
    if tasks.total == 1 and tasks.last[0] == tasks.num_candidates[0]:
        mean, variance = as_transform(definition.g).null_moments(tasks.last)
        return Moments(float(mean[0]), float(variance[0]))

    j = _place(definition, tasks.total)
    is_midpoint = definition.aggregation == "median" and tasks.total % 2 == 0
    num_certain = int(tasks.count[tasks.last == 1].sum())
    if num_certain >= j + is_midpoint:  # X_(j) = 1
        return Moments(1.0, 0.0)

    a = as_transform(definition.g).exponent
    center = _center(tasks, j)
    if is_midpoint:
        first, second = _midpoint(definition, tasks, j, center, a)
    else:
        first, second = _one(tasks, j, center, _window(tasks, j, center, a), a)
    return Moments(float(float(center) ** a + first), float(second - first**2))


def _place(definition: RankDefinition, n: int) -> int:
    """Which of n ranks in ascending order is the statistic, from 1; the lower one of a midpoint."""
    if definition.aggregation == "minimum":
        return 1
    if definition.aggregation == "maximum":
        return n
    return (n + 1) // 2


def _center(tasks: _IndependentRanks, j: int) -> int:
    """The median of X_(j)."""

    def is_reached(x: int) -> bool:
        return bool(tasks.at_most(np.array([float(x)]), j)[0] >= 0.5)

    return 1 + bisect_left(range(1, int(tasks.last[-1])), True, key=is_reached)


def _midpoint(
    definition: RankDefinition, tasks: _IndependentRanks, j: int, center: int, a: float
) -> tuple[float, float]:
    """E D and E D^2 for the midpoint of X_(j) and X_(j+1), as in ``_one``."""
    lower = _window(tasks, j, center, a)
    upper = _window(tasks, j + 1, center, a)
    of_lower = _one(tasks, j, center, lower, a)
    of_upper = _one(tasks, j + 1, center, upper, a)
    first, second = np.mean([of_lower, of_upper], 0)

    # a power of the midpoint is the mean of both powers less a term in their gap
    low = min(lower[0], upper[0])
    high = max(lower[1], upper[1])
    nodes, weight = _panels(tasks, low, high, 2 * _CUTS)
    gaps_of_one = len(_gap_rule(tasks, float((low + high) // 2))[0])
    if len(nodes) * gaps_of_one * len(tasks.count) * PANEL_NODES > _WORK:
        raise unavailable(
            definition,
            "takes too long for this even number of tasks with so many distinct counts",
        )
    correction = _gap_correction(tasks, j, center, nodes, weight, inverse=a < 0)
    first -= correction[0]
    second -= correction[1]
    if second - first**2 < 1e-3 * abs(correction[1]):
        raise unavailable(
            definition, "has a variance that cancels to fewer than nine digits for these counts"
        )
    return first, second


def _window(tasks: _IndependentRanks, j: int, center: int, a: float) -> tuple[int, int]:
    """The x outside of which both tails of X_(j) are negligible relative to those at the center."""

    def tail_at(x: int) -> float:
        tail_of = tasks.at_most if x < center else tasks.beyond
        return float(tail_of(np.array([float(x)]), j)[0])

    largest = max(tail_at(center - 1), tail_at(center))
    least = largest * math.exp(-_REACH + min(0.0, 2 * a * math.log(center)))
    top = int(tasks.last[-1])
    low = bisect_left(range(1, center), True, key=lambda x: tail_at(x) > least)
    high = bisect_left(range(center, top), True, key=lambda x: tail_at(x) <= least)
    return 1 + low, center + high


def _panels(
    tasks: _IndependentRanks, low: int, high: int, cuts: int
) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights for sums over [low, high), by panels between kinks at last ranks."""
    inner = np.r_[tasks.last, _DOUBLINGS]
    even = np.linspace(low, high, cuts + 1).astype(np.int64)
    edges = np.unique(np.r_[even, inner[(low < inner) & (inner < high)]])
    nodes, weights, _ = panel_rule(edges[:-1], np.diff(edges))
    return nodes, weights


def _one(
    tasks: _IndependentRanks, j: int, center: int, window: tuple[int, int], a: float
) -> FloatArray:
    """E D and E D^2 of D = X_(j)^a - center^a, (2,), by summation by parts."""
    sums = np.zeros(2)
    if window[0] < center:
        x, weight = _panels(tasks, window[0], center, _CUTS)
        sums -= _steps(x, center, a) @ (weight * tasks.at_most(x, j))
    if center < window[1]:
        x, weight = _panels(tasks, center, window[1], _CUTS)
        sums += _steps(x, center, a) @ (weight * tasks.beyond(x, j))
    return sums


def _steps(x: FloatArray, center: int, a: float) -> FloatArray:
    """D(x + 1) - D(x) and D(x + 1)^2 - D(x)^2 of D(x) = x^a - center^a, (2, len(x))."""
    origin = float(center) ** a
    near = origin * np.expm1(a * np.log1p(np.maximum((x - center) / center, -0.5)))
    value = np.where(2 * x > center, near, x**a - origin)
    step = x**a * np.expm1(a * np.log1p(1 / x))
    return np.stack([step, step * (2 * value + step)])


def _gap_correction(
    tasks: _IndependentRanks,
    j: int,
    center: int,
    nodes: FloatArray,
    weight: FloatArray,
    *,
    inverse: bool,
) -> FloatArray:
    """Expected mean of D of both middle ranks, minus expected D of their midpoint.

    The second number is the same of D^2: (2,).

    It is a sum over x and y = x + gap of the second difference of D((x + y) / 2) times the
    probability that j ranks are at most x and no rank is in (x, y].
    """
    rules = [_gap_rule(tasks, x) for x in nodes.tolist()]
    gap = np.concatenate([gaps for gaps, _ in rules])
    inner = np.concatenate([weights for _, weights in rules])
    num_gaps = [len(gaps) for gaps, _ in rules]
    x = np.repeat(nodes, num_gaps)
    outer = np.repeat(weight, num_gaps)
    bend = _second_differences(2 * x + gap, center, inverse)
    return np.asarray(bend @ (outer * inner * tasks.joint(x, x + gap, j)))


def _second_differences(s: FloatArray, center: int, inverse: bool) -> FloatArray:
    """Second differences at s = x + y of D(s / 2) and of its square, (2, len(s)).

    D is that of 1 / x if inverse.
    """
    if not inverse:
        return np.stack([np.zeros_like(s), np.full_like(s, 0.5)])
    product = s * (s + 1) * (s + 2)
    of_square = 4 * (6 * s * s + 12 * s + 4) / product**2 - 8 / (center * product)
    return np.stack([4 / product, of_square])


def _gap_rule(tasks: _IndependentRanks, x: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights for sums over y - x = 0, 1, ...; the diagonal counts half."""
    end = float(tasks.last[-1] - x)
    stop = _widest_gap(tasks, x, end)
    nodes = [np.zeros(1)]
    weights = [np.full(1, 0.5)]
    for low, high in pairwise(_gap_edges(tasks, x, stop, min(float(stop), end))):
        num_panels = max(1, math.ceil((high - low) / max(PANEL_NODES, stop / 4)))
        length = (high - low) / num_panels
        if length > 0:
            node, weight = _counting_rule(length)
            nodes += [low + panel * length + node for panel in range(num_panels)]
            weights += [weight] * num_panels
    return np.concatenate(nodes), np.concatenate(weights)


def _widest_gap(tasks: _IndependentRanks, x: float, end: float) -> int:
    """The gap from which on P(no rank is in (x, x + gap]) is negligible."""

    def is_negligible(gap: int) -> bool:
        taken = tasks.between(np.array([x]), np.array([x + gap]))
        with np.errstate(divide="ignore"):
            return bool(np.log1p(-taken) @ tasks.count <= -_GAP_REACH)

    return 1 + bisect_left(range(1, max(1, math.ceil(end))), True, key=is_negligible)


def _gap_edges(tasks: _IndependentRanks, x: float, stop: int, last: float) -> list[float]:
    """Ends of panels: kinks at the last ranks, and doublings, as g bends on the scale of x + y.

    Distances of kinks from x need not be integers, so the sum stays smooth in x.
    """
    kinks = tasks.last[(x < tasks.last) & (tasks.last - x < stop)] - x
    doubled = (2 * x + 1 + PANEL_NODES) * 2.0 ** np.arange(0, 60) - 2 * x
    inner = np.r_[kinks[kinks > 1], doubled[(doubled > 1) & (doubled < last)]]
    return [1.0, *np.sort(inner).tolist(), last]


@lru_cache(maxsize=4096)
def _counting_rule(length: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of one ``gauss_rule``, (order,) each: many x share their lengths."""
    nodes, weights = gauss_rule(np.array([length]), max(1, min(PANEL_NODES, math.floor(length))))
    return nodes[0], weights[0]
