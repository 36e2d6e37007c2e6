"""Sums over consecutive integers by panels: short ones term by term, long ones by the counting Gauss rule."""

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.expectation.sums import gauss_counting

ORDER = 16


def counting_rule(ends: IntArray) -> tuple[FloatArray, FloatArray]:
    """Nodes, ascending, and weights for sums over 1..ends[-1] with panels (ends[i], ends[i + 1]]; ends[0] is 0.

    >>> nodes, weights = counting_rule(np.array([0, 10, 1000]))
    >>> len(nodes), round(float(weights @ nodes))
    (26, 500500)
    """
    start, length = ends[:-1] + 1, np.diff(ends)
    nodes = start[:, None] + np.arange(float(ORDER))
    weights = (np.arange(ORDER) < length[:, None]).astype(np.float64)
    long = length > ORDER
    if long.any():
        unique, index = np.unique(length[long], return_inverse=True)
        x, a = gauss_counting(unique)
        nodes[long], weights[long] = start[long][:, None] + x[index], a[index]
    used = weights > 0
    return nodes[used], weights[used]
