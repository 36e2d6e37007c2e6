"""Tails of sums of independent Bernoulli variables, by an integral over a circle.

P(B >= j) is the integral of E[z^B] z^(-j-1) / (1 - 1/z) over the circle |z| = e^s, s > 0, divided
by 2 pi i. P(B = j) is the same without the factor 1 / (1 - 1/z), which has a pole at z = 1. The
circle passes near the saddlepoint, where nothing cancels.
"""

import numpy as np

from torchrankmetrics.definitions.sample import FloatArray, IntArray

# weight of the pole at z = 1 against the saddle: keeps s a few standard deviations away from it
_POLE = 4.0
_ALIAS = 40.0  # -log of the aliasing error
_CAP = 40.0  # largest |s|


def tail(p: FloatArray, q: FloatArray, count: IntArray, j: int) -> FloatArray:
    """P(B >= j), (rows,), of sums B of count[u] variables Bernoulli(p[row, u]).

    Args:
        p: (rows, u) probabilities.
        q: 1 - p with all its digits.
        count: (u,) integers.
        j: at least 1.
    """
    if j == 1:
        return np.asarray(-np.expm1(_log(q, p) @ count))
    if j == int(count.sum()):
        return np.asarray(np.exp(_log(p, q) @ count))
    variables = _UncertainVariables(p, q, count, j)
    inside = (variables.needed > 0) & (variables.needed <= variables.total)
    value = variables.integral(inside, pole=True)
    return np.where(inside, value, variables.needed <= 0)


def point(p: FloatArray, q: FloatArray, count: IntArray, j: int) -> FloatArray:
    """P(B = j), (rows,); arguments as in ``tail``."""
    variables = _UncertainVariables(p, q, count, j)
    inside = (variables.needed >= 0) & (variables.needed <= variables.total)
    value = variables.integral(inside, pole=False)
    return np.where(inside, value, 0.0)


def _log(x: FloatArray, rest: FloatArray) -> FloatArray:
    """Log of x in [0, 1] from x or from rest = 1 - x, whichever keeps its digits."""
    with np.errstate(divide="ignore"):
        return np.where(x < 0.5, np.log(x), np.log1p(-rest))


class _UncertainVariables:
    """The variables with p < 1 of every row, and how many of them must be 1."""

    def __init__(self, p: FloatArray, q: FloatArray, count: IntArray, j: int) -> None:
        certain = q == 0
        free = np.where(certain, 0, count)
        self.needed = j - (count * certain).sum(1)
        self.total = free.sum(1)
        self._count = free.astype(np.float64)
        self._p = np.where(certain, 0.5, p)  # without effect: these have no count
        self._q = np.where(certain, 0.5, q)

    def integral(self, inside: FloatArray, *, pole: bool) -> FloatArray:
        needed = np.where(inside, self.needed, 1).astype(np.float64)
        return _Contour(self._p, self._q, self._count, needed, pole=pole).integral()


class _Contour:
    """The circle of radius e^s for every row: p and q (rows, u), count (rows, u), j (rows,)."""

    def __init__(
        self, p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, *, pole: bool
    ) -> None:
        self._count = count
        self._j = j
        self._pole = pole
        self._s = _saddle(p, q, count, j, pole)
        radius = np.exp(self._s)[:, None]
        self._growth = p * np.expm1(self._s)[:, None]
        self._factor = q + p * radius
        self._p = p
        # the distribution tilted by e^(s B)
        self._tilted = p * radius / self._factor
        self._rest = q / self._factor

    def integral(self) -> FloatArray:
        """The integral by the trapezoidal rule, whose error falls off exponentially."""
        deviation = np.sqrt((self._count * self._tilted * self._rest).sum(1))
        nodes = self._num_nodes(deviation)
        theta, weight = _half_circle(nodes, deviation)
        log_size, phase = self._log_characteristic(theta)
        value = np.exp(self._log_height()[:, None] + log_size + 1j * phase)
        if self._pole:
            value = value / -np.expm1(-self._s[:, None] - 1j * theta)
        return np.asarray((weight * value.real).sum(1) / nodes)

    def _log_height(self) -> FloatArray:
        """K(s) - s j from small terms, log(1 + p (e^s - 1)) - s p."""
        by_growth = np.log1p(np.maximum(self._growth, -0.5))
        log_factor = np.where(np.abs(self._growth) < 0.5, by_growth, np.log(self._factor))
        centered = (self._count * (log_factor - self._s[:, None] * self._p)).sum(1)
        return np.asarray(centered - self._s * (self._j - (self._count * self._p).sum(1)))

    def _num_nodes(self, deviation: FloatArray) -> FloatArray:
        least = np.ceil(_ALIAS / self._s) if self._pole else np.zeros_like(self._s)
        wanted = np.maximum(np.ceil(9 * deviation + _ALIAS), least)
        enough = np.maximum(self._count.sum(1) + 1, least)
        return np.asarray(np.minimum(wanted, enough))

    def _log_characteristic(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log of the size, and the angle, of the tilted E exp(i theta (B - j)), each as theta."""
        tilted = self._tilted[:, :, None]
        versine = 2 * np.sin(theta / 2) ** 2
        # |q + p e^(i theta)|^2 = 1 - 2 p q versine is 0 for p = 1/2 at theta = pi, and rounding may
        # make it negative
        squared = np.maximum(-2 * tilted * self._rest[:, :, None] * versine[:, None], -1.0)
        with np.errstate(divide="ignore"):
            log_factors = np.log1p(squared)
        log_size = 0.5 * np.einsum("ru,ruk->rk", self._count, np.maximum(log_factors, -1e4))

        sine = tilted * np.sin(theta)[:, None]
        cosine = 1 - tilted * versine[:, None]
        turn = np.arctan2(sine, cosine) - tilted * theta[:, None]
        offset = self._j - (self._count * self._tilted).sum(1)
        phase = np.einsum("ru,ruk->rk", self._count, turn) - theta * offset[:, None]
        return log_size, phase


def _half_circle(nodes: FloatArray, deviation: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Angles of the upper half circle and their weights, (rows, k).

    Weights are 0 beyond 9.5 standard deviations.
    """
    with np.errstate(divide="ignore"):
        width = np.ceil(9.5 * nodes / (2 * np.pi * deviation)) + 1
    reach = np.minimum(nodes // 2, width)
    k = np.arange(int(reach.max()) + 1)
    theta = 2 * np.pi * k / nodes[:, None]
    is_own_mirror = (k == 0) | (2 * k == nodes[:, None])
    weight = np.where(is_own_mirror, 1.0, 2.0)
    weight[k > reach[:, None]] = 0.0
    return theta, weight


def _saddle(
    p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool
) -> FloatArray:
    """Near the minimum over s of K(s) - s j, by guarded Newton steps.

    With the pole the function is K(s) - s j - _POLE log s.
    """
    low = np.full(len(j), 1e-9 if pole else -_CAP)
    high = np.full(len(j), _CAP)
    s = np.clip(_first_guess(p, q, count, j, pole), low, high)
    for _ in range(16):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope, curvature = _derivatives(s, p, q, count, j, pole)
            newton = s - slope / curvature
        low = np.where(slope < 0, s, low)
        high = np.where(slope < 0, high, s)
        safe = (newton >= low) & (newton <= high)
        if (safe & (np.abs(newton - s) <= 1e-3 * np.abs(s))).all():
            break  # the contour may pass anywhere near the saddle
        s = np.where(safe, newton, (low + high) / 2)
    return np.asarray(s)


def _first_guess(
    p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool
) -> FloatArray:
    """The saddle of a normal distribution with the same mean and variance."""
    gap = j - (count * p).sum(1)
    variance = np.maximum((count * p * q).sum(1), 1e-300)
    with np.errstate(over="ignore"):
        if not pole:
            return np.asarray(gap / variance)
        return np.asarray((gap + np.sqrt(gap**2 + 4 * _POLE * variance)) / (2 * variance))


def _derivatives(
    s: FloatArray, p: FloatArray, q: FloatArray, count: FloatArray, j: FloatArray, pole: bool
) -> tuple[FloatArray, FloatArray]:
    growth = np.exp(s)[:, None]
    tilted = p * growth / (q + p * growth)
    slope = (count * tilted).sum(1) - j
    curvature = (count * tilted * (1 - tilted)).sum(1)
    if pole:
        slope -= _POLE / s
        curvature += _POLE / s**2
    return slope, curvature
