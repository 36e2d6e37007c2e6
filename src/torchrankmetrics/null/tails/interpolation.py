"""Replace many groups of summands by few: interpolation of log M in log N and in the weight."""

import numpy as np
from scipy.sparse import csr_array

from torchrankmetrics.definitions.sample import FloatArray, IntArray
from torchrankmetrics.null.tails.lists import Values

_NODES_OF_WEIGHT = 48
_ORDER = 6


def interpolated(
    values: Values, which: IntArray, v: FloatArray, c: FloatArray
) -> tuple[Values, IntArray, FloatArray, FloatArray]:
    """Few N and weights, and how often each is drawn so that the cumulants are those of all groups.

    log M is a smooth function of log N and of v; the numbers c at the nodes may be negative.
    """
    few, log_candidates = values.at_few_candidates()
    width = few.best - few.worst
    width = np.where(width > 0, width, 1.0)  # no group has such an N
    v_nodes = np.unique(v)
    if len(v_nodes) > _NODES_OF_WEIGHT:
        # weights relative to the range of values, so that those of small and large N are alike
        v = v * (values.best - values.worst)[which]
        v_nodes = np.linspace(v.min(), v.max(), _NODES_OF_WEIGHT)
    else:
        width = np.ones(len(width))
    number = csr_array((c, (which, np.arange(len(c))))) @ _onto_nodes(v, v_nodes)
    if log_candidates is not None:
        number = _onto_nodes(*log_candidates).T @ number
    number = number.tocoo()
    return few, number.row, v_nodes[number.col] / width[number.row], number.data


def _onto_nodes(y: FloatArray, nodes: FloatArray) -> csr_array:
    """Shares (m, nodes) of the nearest nodes in Lagrange's interpolation at y."""
    order = min(_ORDER, len(nodes))
    near = np.lib.stride_tricks.sliding_window_view(nodes, order)
    scale = 1 / np.prod(near[:, :, None] - near[:, None] + np.eye(order), axis=2)
    scale /= np.abs(scale).max(axis=1, keepdims=True)  # barycentric weights
    first = np.clip(np.searchsorted(nodes, y) - order // 2, 0, len(nodes) - order)
    apart = y[:, None] - near[first]
    share = scale[first] / np.where(apart == 0, 1e-300, apart)  # a node counts alone
    share /= share.sum(axis=1, keepdims=True)
    column = first[:, None] + np.arange(order)
    ends = order * np.arange(len(y) + 1)
    return csr_array((share.ravel(), column.ravel(), ends), shape=(len(y), len(nodes)))
