"""Sums of f over 1..N without a table over 1..N, for many N at once.

The first 64 integers are taken one by one; beyond, dyadic panels are summed with the Gauss rule of the counting measure
(discrete Chebyshev polynomials), which is exact for polynomials of degree 31 and positive: nothing cancels.
"""

from functools import lru_cache

import numpy as np
import torch

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import IDENTITY, Transform

_ORDER = 16
_HEAD = 64
_BLOCK = 1 << 14


def gauss_counting(length: IntArray) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the Gauss rule with 16 nodes for sums over {0..M-1}, for each M > 16 given.

    Returns:
        nodes and weights, each (len(length), 16); the weights of a row sum to M.
    """
    k = np.arange(1, _ORDER)
    M = length[:, None].astype(np.float64)
    off = 0.5 * k * np.sqrt((1 - (k / M) ** 2) / (4 * k * k - 1))
    jacobi = np.zeros((len(length), _ORDER, _ORDER))
    jacobi[:, k - 1, k] = jacobi[:, k, k - 1] = off
    root, vector = np.linalg.eigh(jacobi)
    return (M - 1) / 2 + M * root, M * vector[:, 0, :] ** 2


class PrefixRule:
    """A quadrature rule whose partial sums are the sums over 1..N for every N of a sorted set.

    Args:
        upper: (u,) int64, the distinct N >= 1, ascending.
        ratio: largest ratio between the ends of a panel; 2 for functions like k^p with |p| <= 1, log k, k^s.
        head: the integers up to here are taken one by one.
    """

    def __init__(self, upper: IntArray, ratio: float = 2.0, head: int = _HEAD) -> None:
        top = int(upper[-1])
        head = min(head, top)
        edges = [head]
        while edges[-1] < top:
            edges.append(max(edges[-1] + 1, int(edges[-1] * ratio)))
        ends = np.unique(np.concatenate([np.minimum(np.array(edges), top), upper[upper > head]]))
        start, length = ends[:-1] + 1, np.diff(ends)
        self.nodes, self.weights, self._first = _panels(head, start, length)
        self._size = np.concatenate([np.ones(head), length])  # integers a panel stands for
        self._stop = np.where(upper <= head, upper - 1, head - 1 + np.searchsorted(ends, upper))
        self.upper = upper

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum f over 1..N for every N: values f(nodes) of shape (..., nodes) in, (..., u) out."""
        panels = np.add.reduceat(values * self.weights, self._first, axis=-1)
        # long double: thousands of panels would cost two digits in float64
        return np.cumsum(panels, axis=-1, dtype=np.longdouble)[..., self._stop].astype(np.float64)

    def means(self, values: FloatArray) -> FloatArray:
        """Average f over 1..N for every N: values f(nodes) of shape (..., nodes) in, (..., u) out."""
        return self.sums(values) / self.upper

    def variances(self, values: FloatArray) -> FloatArray:
        """Variance of f over 1..N for every N, from positive terms alone: values f(nodes) (nodes,) in, (u,) out.

        Panels are merged one after the other (Chan, Golub and LeVeque 1983): small N beside large N keep their digits.
        """
        inside = np.add.reduceat(values * self.weights, self._first) / self._size
        own = np.add.reduceat(self.weights * (values - np.repeat(inside, self._nodes_per_panel)) ** 2, self._first)
        total = np.cumsum(self._size)
        running = (np.cumsum(inside * self._size, dtype=np.longdouble) / total).astype(np.float64)
        before = np.r_[0.0, total[:-1]]
        between = before * self._size / total * (inside - np.r_[0.0, running[:-1]]) ** 2
        squares = np.cumsum(own + between, dtype=np.longdouble)[self._stop].astype(np.float64)
        return np.where(self.upper == 1, 0.0, squares / self.upper)

    @property
    def _nodes_per_panel(self) -> IntArray:
        return np.diff(np.append(self._first, len(self.nodes)))


def _panels(head: int, start: IntArray, length: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Nodes, weights and the first node of each panel: 1..head one by one, then the panels [start, start + length)."""
    long = length > _ORDER
    size = np.where(long, _ORDER, length)
    first = np.cumsum(np.r_[head, size])[:-1] if len(size) else np.zeros(0, dtype=np.int64)
    nodes = np.empty(head + int(size.sum()))
    weights = np.ones_like(nodes)
    nodes[:head] = np.arange(1, head + 1)
    panel = np.repeat(np.arange(len(size)), size)
    within = np.arange(len(panel)) - np.repeat(first - head, size) if len(size) else np.zeros(0, dtype=np.int64)
    nodes[head:] = start[panel] + within
    if long.any():
        unique, index = np.unique(length[long], return_inverse=True)
        x, a = gauss_counting(unique)
        where = first[long][:, None] + np.arange(_ORDER)
        nodes[where] = start[long][:, None] + x[index]
        weights[where] = a[index]
    return nodes, weights, np.concatenate([np.arange(head), first]).astype(np.int64)


def evaluate(f: Transform, ranks: FloatArray, name: str = "f") -> FloatArray:
    """Apply a transform to float64 ranks, in blocks of fixed size: the same bits for any number of threads.

    Raises:
        ValueError: if the transform changes the shape or gives a value that is not finite.
    """
    if f == IDENTITY:
        return _finite(ranks, ranks, name)
    result = np.empty(len(ranks))
    for begin in range(0, len(ranks), _BLOCK):
        block = torch.from_numpy(ranks[begin : begin + _BLOCK])
        value = f(block)
        if value.shape != block.shape:
            raise ValueError(f"{name} must keep the shape of its input, {tuple(block.shape)}; got {tuple(value.shape)}")
        result[begin : begin + _BLOCK] = value.to(torch.float64).numpy()
    return _finite(result, ranks, name)


def _finite(result: FloatArray, ranks: FloatArray, name: str) -> FloatArray:
    if not np.isfinite(result).all():
        bad = float(ranks[~np.isfinite(result)][0])
        raise ValueError(f"{name} must be finite on every rank >= 1; at rank {bad:g} it is not")
    return result


@lru_cache(maxsize=64)
def prefix_rule(upper: bytes, ratio: float = 2.0) -> PrefixRule:
    """Share a rule between metrics: keyed by the bytes of the int64 array of N."""
    return PrefixRule(np.frombuffer(upper, dtype=np.int64), ratio)
