"""Sums of f over 1..N for many N at once: the first integers one by one, then panels that end at every N."""

from functools import lru_cache

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.quadrature.panels import SMALL_RANKS, panel_rule


class PrefixRule:
    """A quadrature rule whose partial sums are the sums over 1..N for every N of a sorted set.

    Args:
        upper: (u,) int64, the distinct N >= 1, ascending.
        ratio: largest ratio between the ends of a panel; 2 for functions like k^p with |p| <= 1, log k, k^s.

    Attributes:
        upper: as given.
        nodes: (nodes,) float64, where f is to be evaluated.
    """

    def __init__(self, upper: IntArray, ratio: float = 2.0) -> None:
        top = int(upper[-1])
        head = min(SMALL_RANKS, top)
        edges = [head]
        while edges[-1] < top:
            edges.append(max(edges[-1] + 1, int(edges[-1] * ratio)))
        ends = np.unique(np.concatenate([np.arange(head), np.minimum(np.array(edges), top), upper[upper > head]]))
        self.upper = upper
        self._integers = np.diff(ends)  # that a panel stands for
        self.nodes, self._weights, self._size = panel_rule(ends[:-1] + 1, self._integers)
        self._first = np.cumsum(self._size) - self._size
        self._last = np.searchsorted(ends, upper) - 1  # the panel that ends at N

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum f over 1..N for every N: values f(nodes) of shape (..., nodes) in, (..., u) out."""
        panels = np.add.reduceat(values * self._weights, self._first, axis=-1)
        # long double: thousands of panels would cost two digits in float64
        return np.cumsum(panels, axis=-1, dtype=np.longdouble)[..., self._last].astype(np.float64)

    def means(self, values: FloatArray) -> FloatArray:
        """Average f over 1..N for every N: values f(nodes) of shape (..., nodes) in, (..., u) out."""
        return self.sums(values) / self.upper

    def variances(self, values: FloatArray) -> FloatArray:
        """Variance of f over 1..N for every N, from positive terms alone: values f(nodes) (nodes,) in, (u,) out.

        Panels are merged one after the other: small N beside large N keep their digits.

        Source: Chan, Golub and LeVeque 1983 (doi:10.1080/00031305.1983.10483115).
        """
        inside = np.add.reduceat(values * self._weights, self._first) / self._integers
        own = np.add.reduceat(self._weights * (values - np.repeat(inside, self._size)) ** 2, self._first)
        total = np.cumsum(self._integers).astype(np.float64)
        running = (np.cumsum(inside * self._integers, dtype=np.longdouble) / total).astype(np.float64)
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
