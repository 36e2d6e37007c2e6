"""Null moments of order statistics: of the largest, the smallest and the median rank, and of their powers."""

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
from torchrankmetrics.definitions.transforms import known
from torchrankmetrics.null.expectation.provider import unavailable
from torchrankmetrics.null.hypergeometric import log_miss

# powers of ranks are smooth between these ranks, or summed one by one
_DOUBLINGS = np.r_[16, 32, 48, 64 << np.arange(56, dtype=np.int64)]
_REACH = 45.0  # -log of the smallest tail that is summed, relative to that at the center
_GAP_REACH = 35.0  # the same for a gap between the middle two
_CUTS = 8  # panels on each side of the center: about 1.2 standard deviations each
_WORK = 2e8  # Bernoulli factors on one side of the contour, about ten seconds


def order_statistic(definition: RankDefinition, counts: CandidateCounts) -> Moments | None:
    """Exact moments of a power of the largest, smallest or median rank; None for a median if weights differ."""
    if not definition.is_extreme and counts.weight.min() != counts.weight.max():
        return None
    N, count = sum_by_value(counts.num_candidates, counts.count)
    return _moments(definition, _IndependentRanks(N, np.ones_like(N), count.astype(np.int64)))


def median_of_first_ranks(N: IntArray, m: IntArray, count: IntArray) -> Moments:
    """Moments of the median over queries with m relevant items among N of the rank of the first one."""
    order = np.argsort(N - m, kind="stable")
    return _cached_median(*(part[order].tobytes() for part in (N, m, count)))


@lru_cache(maxsize=512)
def _cached_median(*columns: bytes) -> Moments:
    return _moments(
        MEDIAN_RANK, _IndependentRanks(*(np.frombuffer(part, dtype=np.int64) for part in columns))
    )


class _IndependentRanks:
    """Distinct (N, m) by ascending last rank N - m + 1 and how many have each, (u,); m is 1 for a ranking task."""

    def __init__(self, N: IntArray, m: IntArray, count: IntArray) -> None:
        self.num_candidates, self._m, self.count = N, m, count
        self.last, self.total = N - m + 1, int(count.sum())

    def between(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """P(x < r <= y), for integers or points between them that broadcast with (u,)."""
        if self._m.max() == 1:
            return np.maximum(np.minimum(y, self.num_candidates) - x, 0.0) / self.num_candidates
        above, further = (
            log_miss(self.num_candidates, self._m, np.minimum(z, self.last)) for z in (x, y)
        )
        with np.errstate(invalid="ignore"):  # both are impossible
            return np.where(above == -np.inf, 0.0, np.exp(above) * -np.expm1(further - above))

    def at_most(self, x: FloatArray, j: int) -> FloatArray:
        """P(X_(j) <= x) for each x, (len(x),), to a small relative error where it is below 1/2."""
        return np.concatenate([_tail(p, q, self.count, j) for p, q, _ in self._shares(x, x)])

    def beyond(self, x: FloatArray, j: int) -> FloatArray:
        """P(X_(j) > x) for each x, (len(x),), to a small relative error where it is below 1/2."""
        return np.concatenate(
            [_tail(q, p, self.count, self.total - j + 1) for p, q, _ in self._shares(x, x)]
        )

    def joint(self, x: FloatArray, y: FloatArray, j: int) -> FloatArray:
        """P(B_x = j = B_y), (len(x),): no rank in (x, y], and j at most x."""
        shares = self._shares(x, y)
        return np.concatenate(
            [free * _tail(p, q, self.count, j, point=True) for p, q, free in shares]
        )

    def _shares(
        self, x: FloatArray, y: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """In blocks of rows: P(r <= x) and P(r > y) given that no rank is in (x, y], and the probability of that."""
        block = max(1, (1 << 15) // len(self.count))
        for begin in range(0, len(x), block):
            low, high = x[begin : begin + block, None], y[begin : begin + block, None]
            taken = self.between(low, high)
            p, q = (
                self.between(np.zeros(1), low),
                self.between(high, self.last[-1:].astype(np.float64)),
            )
            yield p / (1 - taken), q / (1 - taken), np.exp(np.log1p(-taken) @ self.count)


def _moments(definition: RankDefinition, tasks: _IndependentRanks) -> Moments:
    """Moments of a power of X_(j), the j-th smallest rank, or of the midpoint of two."""
    n, a = tasks.total, known(definition.g).exponent
    # the statistic of one ranking task is its rank
    if n == 1 and tasks.last[0] == tasks.num_candidates[0]:
        mean, variance = known(definition.g).null_moments(tasks.last)
        return Moments(float(mean[0]), float(variance[0]))
    j = {"minimum": 1, "maximum": n}.get(definition.aggregation, (n + 1) // 2)
    two = definition.aggregation == "median" and n % 2 == 0
    if int(tasks.count[tasks.last == 1].sum()) >= j + two:  # X_(j) = 1
        return Moments(1.0, 0.0)
    top = int(tasks.last[-1])
    center = 1 + bisect_left(
        range(1, top), True, key=lambda x: tasks.at_most(np.array([float(x)]), j)[0] >= 0.5
    )
    windows = [_window(tasks, i, center, a) for i in range(j, j + 1 + two)]
    first, second = np.mean(
        [_one(tasks, j + i, center, window, a) for i, window in enumerate(windows)], 0
    )
    if two:
        low, high = min(low for low, _ in windows), max(high for _, high in windows)
        nodes, weight = _panels(tasks, low, high, 2 * _CUTS)
        work = (
            len(nodes)
            * len(_gap_rule(tasks, float((low + high) // 2))[0])
            * len(tasks.count)
            * PANEL_NODES
        )
        if work > _WORK:
            raise unavailable(
                definition,
                "takes too long for this even number of tasks with so many distinct counts",
            )
        correction = _gap_correction(tasks, j, center, nodes, weight, inverse=a < 0)
        first, second = first - correction[0], second - correction[1]
        if second - first**2 < 1e-3 * abs(correction[1]):
            raise unavailable(
                definition, "has a variance that cancels to fewer than nine digits for these counts"
            )
    return Moments(float(float(center) ** a + first), float(second - first**2))


def _window(tasks: _IndependentRanks, j: int, center: int, a: float) -> tuple[int, int]:
    """The x outside of which both tails of X_(j) are negligible relative to those at the center."""

    def tail(x: int) -> float:
        return float((tasks.at_most if x < center else tasks.beyond)(np.array([float(x)]), j)[0])

    least = max(tail(center - 1), tail(center)) * math.exp(
        -_REACH + min(0.0, 2 * a * math.log(center))
    )
    low = 1 + bisect_left(range(1, center), True, key=lambda x: tail(x) > least)
    return low, center + bisect_left(
        range(center, int(tasks.last[-1])), True, key=lambda x: tail(x) <= least
    )


def _panels(
    tasks: _IndependentRanks, low: int, high: int, cuts: int
) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights for sums over [low, high), by panels between the kinks at the last ranks."""
    inner = np.r_[tasks.last, _DOUBLINGS]
    even = np.linspace(low, high, cuts + 1).astype(np.int64)
    edges = np.unique(np.r_[even, inner[(low < inner) & (inner < high)]])
    nodes, weights, _ = panel_rule(edges[:-1], np.diff(edges))
    return nodes, weights


def _one(
    tasks: _IndependentRanks, j: int, center: int, window: tuple[int, int], a: float
) -> FloatArray:
    """E D and E D^2 of D = X_(j)^a - center^a, (2,), by summation by parts."""
    sums, origin = np.zeros(2), float(center) ** a
    for tail, sign, low, high in (
        (tasks.at_most, -1, window[0], center),
        (tasks.beyond, 1, center, window[1]),
    ):
        if low < high:
            x, weight = _panels(tasks, low, high, _CUTS)
            near = origin * np.expm1(a * np.log1p(np.maximum((x - center) / center, -0.5)))
            value = np.where(2 * x > center, near, x**a - origin)
            step = x**a * np.expm1(a * np.log1p(1 / x))  # D(x + 1) - D(x)
            sums += sign * (np.stack([step, step * (2 * value + step)]) @ (weight * tail(x, j)))
    return sums


def _gap_correction(
    tasks: _IndependentRanks,
    j: int,
    center: int,
    nodes: FloatArray,
    weight: FloatArray,
    *,
    inverse: bool,
) -> FloatArray:
    """Difference between the mean of both middle ranks and their midpoint, for D and D^2, (2,)."""
    rules = [_gap_rule(tasks, x) for x in nodes.tolist()]
    sizes = [len(gap) for gap, _ in rules]
    gap, inner = (np.concatenate(parts) for parts in zip(*rules, strict=True))
    x = np.repeat(nodes, sizes)
    s = 2 * x + gap
    # second differences at s = x + y of D((x + y) / 2) and of its square
    bend = np.stack([np.zeros_like(s), np.full_like(s, 0.5)])
    if inverse:
        product = s * (s + 1) * (s + 2)
        bend = np.stack(
            [4 / product, 4 * (6 * s * s + 12 * s + 4) / product**2 - 8 / (center * product)]
        )
    return np.asarray(bend @ (np.repeat(weight, sizes) * inner * tasks.joint(x, x + gap, j)))


def _gap_rule(tasks: _IndependentRanks, x: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights for sums over y - x = 0, 1, ...; the diagonal counts half."""

    def log_free(gap: int) -> float:
        with np.errstate(divide="ignore"):
            return float(np.log1p(-tasks.between(np.array([x]), np.array([x + gap]))) @ tasks.count)

    end = tasks.last[-1] - x
    stop = 1 + bisect_left(
        range(1, max(1, math.ceil(end))), True, key=lambda gap: log_free(gap) <= -_GAP_REACH
    )
    last = min(float(stop), float(end))
    kinks = tasks.last[(x < tasks.last) & (tasks.last - x < stop)] - x
    # g bends on the scale of x + y
    doubled = (2 * x + 1 + PANEL_NODES) * 2.0 ** np.arange(0, 60) - 2 * x
    # panels end at the kinks, at distances from x that need not be integers: so the sum stays
    # smooth in x
    inner = np.r_[kinks[kinks > 1], doubled[(doubled > 1) & (doubled < last)]]
    nodes, weights = [np.zeros(1)], [np.full(1, 0.5)]
    for begin, end in pairwise([1.0, *np.sort(inner).tolist(), last]):
        parts = max(1, math.ceil((end - begin) / max(PANEL_NODES, stop / 4)))
        if (length := (end - begin) / parts) > 0:
            node, weight = _counting_rule(length)
            nodes += [begin + part * length + node for part in range(parts)]
            weights += [weight] * parts
    return np.concatenate(nodes), np.concatenate(weights)


@lru_cache(maxsize=4096)
def _counting_rule(length: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of one ``gauss_rule``, (order,) each: many x share their lengths."""
    nodes, weights = gauss_rule(np.array([length]), max(1, min(PANEL_NODES, math.floor(length))))
    return nodes[0], weights[0]


# Tails of Poisson binomial variables, by an integral over the circle of radius e^s through the
# saddlepoint.

# weight of the pole at z = 0 against the saddle: keeps s a few standard deviations away from it
_POLE = 4.0
_ALIAS = 40.0  # -log of the aliasing error
_CAP = 40.0  # largest |s|


def _tail(
    p: FloatArray, q: FloatArray, count: IntArray, j: int, *, point: bool = False
) -> FloatArray:
    """P(B >= j), or P(B = j), of sums B of count[u] variables Bernoulli(p[row, u]); q = 1 - p with all its digits."""
    if not point and j in (1, int(count.sum())):
        with np.errstate(divide="ignore"):
            log_p, log_q = (np.where(x < 0.5, np.log(x), np.log1p(-y)) for x, y in ((p, q), (q, p)))
            return -np.expm1(log_q @ count) if j == 1 else np.exp(log_p @ count)
    certain = q == 0
    needed, free = j - (count * certain).sum(1), np.where(certain, 0, count)
    p, q = np.where(certain, 0.5, p), np.where(certain, 0.5, q)  # the certain ones have no count
    inside = (needed > -point) & (needed <= free.sum(1))
    value = _contour(
        p,
        q,
        free.astype(np.float64),
        np.where(inside, needed, 1).astype(np.float64),
        pole=not point,
    )
    return np.where(inside, value, (needed <= 0) & (not point))


def _contour(
    p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool
) -> FloatArray:
    s = _saddle(p, q, count, j, pole)
    growth, factor = p * np.expm1(s)[:, None], q + p * np.exp(s)[:, None]
    tilted, rest = p * np.exp(s)[:, None] / factor, q / factor
    deviation = np.sqrt((count * tilted * rest).sum(1))
    # K(s) - s j from small terms: log(1 + p (e^s - 1)) - s p
    log_factor = np.where(np.abs(growth) < 0.5, np.log1p(np.maximum(growth, -0.5)), np.log(factor))
    log_height = (count * (log_factor - s[:, None] * p)).sum(1) - s * (j - (count * p).sum(1))
    least = np.ceil(_ALIAS / s) if pole else np.zeros_like(s)
    nodes = np.minimum(
        np.maximum(np.ceil(9 * deviation + _ALIAS), least), np.maximum(count.sum(1) + 1, least)
    )
    with np.errstate(divide="ignore"):
        reach = np.minimum(nodes // 2, np.ceil(9.5 * nodes / (2 * np.pi * deviation)) + 1)
    k = np.arange(int(reach.max()) + 1)
    theta = 2 * np.pi * k / nodes[:, None]
    weight = np.where((k == 0) | (2 * k == nodes[:, None]), 1.0, 2.0)
    weight[k > reach[:, None]] = 0.0
    versine, sine = 2 * np.sin(theta / 2) ** 2, np.sin(theta)
    both = tilted[:, :, None]
    with np.errstate(divide="ignore"):
        # |q + p e^(i theta)|^2 = 1 - 2 p q versine is 0 for p = 1/2 at theta = pi, and rounding may
        # take it below
        log_factors = np.log1p(np.maximum(-2 * both * rest[:, :, None] * versine[:, None], -1.0))
    log_size = 0.5 * np.einsum("ru,ruk->rk", count, np.maximum(log_factors, -1e4))
    turn = np.arctan2(both * sine[:, None], 1 - both * versine[:, None]) - both * theta[:, None]
    phase = np.einsum("ru,ruk->rk", count, turn) - theta * (j - (count * tilted).sum(1))[:, None]
    value = np.exp(log_height[:, None] + log_size + 1j * phase)
    if pole:
        value = value / -np.expm1(-s[:, None] - 1j * theta)
    return np.asarray((weight * value.real).sum(1) / nodes)


def _saddle(
    p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool
) -> FloatArray:
    """Near the minimum over s of K(s) - s j (- 4 log s with the pole), by bisection-guarded Newton steps."""
    low, high = np.full(len(j), 1e-9 if pole else -_CAP), np.full(len(j), _CAP)
    gap = j - (count * p).sum(1)
    variance = np.maximum((count * p * q).sum(1), 1e-300)
    with np.errstate(over="ignore"):
        start = (
            (gap + np.sqrt(gap**2 + 4 * _POLE * variance)) / (2 * variance)
            if pole
            else gap / variance
        )
    s = np.clip(start, low, high)
    for _ in range(16):
        growth = np.exp(s)[:, None]
        tilted = p * growth / (q + p * growth)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = (count * tilted).sum(1) - j - (_POLE / s if pole else 0.0)
            curvature = (count * tilted * (1 - tilted)).sum(1) + (_POLE / s**2 if pole else 0.0)
            newton = s - slope / curvature
        low, high = np.where(slope < 0, s, low), np.where(slope < 0, high, s)
        safe = (newton >= low) & (newton <= high)
        if (safe & (np.abs(newton - s) <= 1e-3 * np.abs(s))).all():
            break  # the contour may pass anywhere near the saddle
        s = np.where(safe, newton, (low + high) / 2)
    return np.asarray(s)
