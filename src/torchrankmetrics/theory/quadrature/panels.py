"""Sums over runs of consecutive integers by panels: short ones term by term, long ones by a Gauss rule.

The rule is that of the counting measure (discrete Chebyshev polynomials). With 16 nodes it is exact for polynomials of
degree 31, and its weights are positive: nothing cancels.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import FloatArray, IntArray

PANEL_NODES = 16  # at most
# ranks up to here are taken one by one: powers and logarithms bend most there, and a user's f may jump there
SMALL_RANKS = 64
TABLED_RANKS = 1 << 16


def gauss_rule(length: npt.NDArray[np.int64] | FloatArray, order: int = PANEL_NODES) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of the Gauss rule for sums over {0..M-1}, for each length M >= order.

    The recurrence has a meaning for real M too: it continues the sums to lengths between the integers.

    Args:
        length: (m,) int64 or float64.
        order: number of nodes.

    Returns:
        nodes and weights, each (m, order) float64; the weights of a row sum to M.

    Source: Gautschi 2004, Orthogonal Polynomials: Computation and Approximation, table 1.2 (discrete Chebyshev).
    """
    k = np.arange(1, order)
    M = length[:, None].astype(np.float64)
    off = 0.5 * k * np.sqrt((1 - (k / M) ** 2) / (4 * k * k - 1))
    jacobi = np.zeros((len(length), order, order))
    jacobi[:, k - 1, k] = jacobi[:, k, k - 1] = off
    root, vector = np.linalg.eigh(jacobi)
    return (M - 1) / 2 + M * root, M * vector[:, 0, :] ** 2


def panel_rule(start: IntArray, length: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Nodes and weights for sums over the integers of the panels [start, start + length).

    Args:
        start: (m,) int64, first integers.
        length: (m,) int64 >= 1.

    Returns:
        nodes and weights, float64, panel after panel, and the number of nodes of each panel, (m,) int64.

    >>> nodes, weights, size = panel_rule(np.array([1, 11]), np.array([10, 990]))
    >>> size.tolist(), round(float(weights @ nodes))
    ([10, 16], 500500)
    """
    size = np.minimum(length, PANEL_NODES)
    first = np.cumsum(size) - size
    nodes = (np.repeat(start - first, size) + np.arange(int(size.sum()))).astype(np.float64)
    weights = np.ones_like(nodes)
    long = length > PANEL_NODES
    if long.any():
        unique, index = np.unique(length[long], return_inverse=True)
        x, a = gauss_rule(unique)
        where = first[long][:, None] + np.arange(PANEL_NODES)
        nodes[where] = start[long][:, None] + x[index]
        weights[where] = a[index]
    return nodes, weights, size


def panel_means(f: Callable[[FloatArray, IntArray], FloatArray], low: IntArray, high: IntArray) -> FloatArray:
    """Mean over {low..high} of a function smooth on dyadic panels: positive rules, no differences of prefix sums.

    ``f(rank (m,), block (m,))`` gives the values at ranks of the blocks of these indices.
    """
    total = np.zeros(len(low))
    block, start = np.arange(len(low)), low.copy()
    while len(block):
        # one by one where powers bend most; then panels no longer than their start
        length = np.minimum(np.where(start <= SMALL_RANKS, PANEL_NODES, start), high[block] - start + 1)
        nodes, weights, size = panel_rule(start, length)
        terms = weights * f(nodes, np.repeat(block, size))
        total[block] += np.add.reduceat(terms, np.cumsum(size) - size)
        start = start + length
        left = start <= high[block]
        block, start = block[left], start[left]
    mean: FloatArray = total / (high - low + 1)
    return mean
