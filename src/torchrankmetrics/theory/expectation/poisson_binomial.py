"""Tails and point probabilities of a sum of independent Bernoulli variables, to relative accuracy.

With K(z) = log E e^(z B), P(B >= j) is the average of exp(K(z) - z j) / (1 - e^-z) over z = s + i theta, |theta| <= pi,
for any s > 0, and P(B = j) the same without the denominator, for any s. At the saddlepoint nothing cancels, and a sum
with a few dozen nodes is exact to rounding for any number of variables: all others alias to less than e^-40.
"""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray

_POLE = 4.0  # weight of the pole at z = 0 against the saddle: keeps s a few standard deviations away from it
_ALIAS = 40.0
_CAP = 40.0  # largest |s|
_BLOCK = 1 << 20


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
    block = max(1, _BLOCK // (32 * p.shape[1]))
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
