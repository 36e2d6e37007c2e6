"""Sums of a function over ranks 1..N: prefix sums and panels of the Gauss rule."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.sample import FloatArray, IntArray

PANEL_NODES = 16  # at most
# ranks up to here are taken one by one: powers and logarithms bend most there, and a user's f may
# jump there
SMALL_RANKS = 64


def gauss_rule(
    length: npt.NDArray[np.int64] | FloatArray, order: int = PANEL_NODES
) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the Gauss rule for sums over {0..M-1}, for each length M >= order."""
    # Gautschi 2004, Orthogonal Polynomials: Computation and Approximation, table 1.2 (discrete
    # Chebyshev)
    k = np.arange(1, order)
    M = length[:, None].astype(np.float64)
    off = 0.5 * k * np.sqrt((1 - (k / M) ** 2) / (4 * k * k - 1))
    jacobi = np.zeros((len(length), order, order))
    jacobi[:, k - 1, k] = jacobi[:, k, k - 1] = off
    root, vector = np.linalg.eigh(jacobi)
    return (M - 1) / 2 + M * root, M * vector[:, 0, :] ** 2


def panel_rule(
    start: IntArray, length: IntArray, order: int = PANEL_NODES
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Nodes and weights for sums over the integers of the panels [start, start + length)."""
    size = np.minimum(length, order)
    first = np.cumsum(size) - size
    nodes = (np.repeat(start - first, size) + np.arange(int(size.sum()))).astype(np.float64)
    weights = np.ones_like(nodes)
    long = length > order
    if long.any():
        unique, index = np.unique(length[long], return_inverse=True)
        x, a = gauss_rule(unique, order)
        where = first[long][:, None] + np.arange(order)
        nodes[where] = start[long][:, None] + x[index]
        weights[where] = a[index]
    return nodes, weights, size


def panel_means(
    f: Callable[[FloatArray, IntArray], FloatArray], low: IntArray, high: IntArray
) -> FloatArray:
    """Mean over {low..high} of a function smooth on dyadic panels, by rules of positive weights."""
    total = np.zeros(len(low))
    block = np.arange(len(low))
    start = low.copy()
    while len(block):
        # one by one where powers bend most; then panels no longer than their start
        length = np.minimum(
            np.where(start <= SMALL_RANKS, PANEL_NODES, start), high[block] - start + 1
        )
        nodes, weights, size = panel_rule(start, length)
        terms = weights * f(nodes, np.repeat(block, size))
        total[block] += np.add.reduceat(terms, np.cumsum(size) - size)
        start = start + length
        left = start <= high[block]
        block = block[left]
        start = start[left]
    return np.asarray(total / (high - low + 1))


class PrefixRule:
    """A quadrature rule whose partial sums are the sums over 1..N for every N of a sorted set."""

    def __init__(self, upper: IntArray, ratio: float = 2.0) -> None:
        top = int(upper[-1])
        head = min(SMALL_RANKS, top)
        edges = [head]
        while edges[-1] < top:
            edges.append(max(edges[-1] + 1, int(edges[-1] * ratio)))
        ends = np.unique(
            np.concatenate([np.arange(head), np.minimum(np.array(edges), top), upper[upper > head]])
        )
        self.upper = upper
        self._integers = np.diff(ends)  # per panel
        self.nodes, self._weights, self._size = panel_rule(ends[:-1] + 1, self._integers)
        self._first = np.cumsum(self._size) - self._size
        self._last = np.searchsorted(ends, upper) - 1  # the panel that ends at N

    def means(self, values: FloatArray) -> FloatArray:
        """Average f over 1..N for every N: values f(nodes), (..., nodes), in, (..., u) out."""
        panels = np.add.reduceat(values * self._weights, self._first, axis=-1)
        # long double: thousands of panels would cost two digits in float64
        return (
            np.cumsum(panels, axis=-1, dtype=np.longdouble)[..., self._last].astype(np.float64)
            / self.upper
        )

    def variances(self, values: FloatArray) -> FloatArray:
        """Variance of f over 1..N for every N, from positive terms: f(nodes) in, (u,) out."""
        # Chan, Golub and LeVeque 1983 (doi:10.1080/00031305.1983.10483115)
        inside = np.add.reduceat(values * self._weights, self._first) / self._integers
        own = np.add.reduceat(
            self._weights * (values - np.repeat(inside, self._size)) ** 2, self._first
        )
        total = np.cumsum(self._integers).astype(np.float64)
        running = (np.cumsum(inside * self._integers, dtype=np.longdouble) / total).astype(
            np.float64
        )
        before = np.r_[0.0, total[:-1]]
        between = before * self._integers / total * (inside - np.r_[0.0, running[:-1]]) ** 2
        squares = np.cumsum(own + between, dtype=np.longdouble)[self._last].astype(np.float64)
        return np.where(self.upper == 1, 0.0, squares / self.upper)


@lru_cache(maxsize=64)
def prefix_rule(upper: bytes, ratio: float = 2.0) -> PrefixRule:
    """Share a ``PrefixRule`` between metrics: keyed by the bytes of the int64 array of N."""
    return PrefixRule(np.frombuffer(upper, dtype=np.int64), ratio)


def panel_ratio(p: float) -> float:
    """Ratio of panel ends over which r^p at most doubles or halves; 2 for |p| <= 1."""
    return float(2.0 ** (1 / max(1.0, abs(p))))
