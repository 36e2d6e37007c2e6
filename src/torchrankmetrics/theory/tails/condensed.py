"""Many tasks as few: sums of c K(v, N) over tasks, for smooth K, by interpolation in log v and log N.

A sum over tasks of values that interpolate between nodes is a sum over the nodes, with real counts that may be
negative. Few nodes are enough: 32 where a cumulant function turns by 30 radians, 12 for an octave of N.
"""

import math
from dataclasses import dataclass

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray
from torchrankmetrics.theory.quadrature.panels import SMALL_RANKS

_FEWEST_WEIGHTS = 10  # nodes between a weight and its double, and three more for every four radians
_CANDIDATES = 12  # nodes in an octave of N
_EXACT = 64  # distinct weights up to which each is taken as it is
_RADIANS = 30.0  # between the ends of a range of weights
_MOST_SHARED = 2048  # weights that are left; more would take longer than they are worth
FEWEST_TURNS = 60.0  # radians that the term of the largest weight turns where octaves of weights do


@dataclass(frozen=True)
class Shared:
    """Tasks of one weight.

    Attributes:
        weight: v of one task.
        num_candidates: (u,) int64, ascending.
        count: (u,) float64; not integers if condensed.
        condensed: whether these stand for tasks of other weights.
    """

    weight: float
    num_candidates: IntArray
    count: FloatArray
    condensed: bool = False


def by_weight(counts: CandidateCounts) -> list[Shared]:
    """The tasks of every weight, as they are."""
    order = np.argsort(counts.weight, kind="stable")
    weight, first = np.unique(counts.weight[order], return_index=True)
    parts = np.split(order, first[1:])
    return [
        Shared(v, counts.num_candidates[part], counts.count[part].astype(np.float64))
        for v, part in zip(weight.tolist(), parts, strict=True)
    ]


def condense(counts: CandidateCounts, reach: float, smooth: bool) -> list[Shared] | None:
    """Tasks of few weights in place of tasks of many; None if K turns too fast between them.

    Args:
        counts: the tasks.
        reach: how many radians the term of the largest weight turns.
        smooth: whether K is smooth in N beyond the small ones too.
    """
    if len(np.unique(counts.weight)) <= _EXACT:
        return by_weight(counts)
    bins = _bins(counts.weight, reach)
    result = []
    for one in np.unique(bins):
        chosen = bins == one
        part = CandidateCounts(counts.num_candidates[chosen], counts.weight[chosen], counts.count[chosen])
        turns = reach * float(part.weight.max() - part.weight.min()) / float(counts.weight.max())
        order = math.ceil(_FEWEST_WEIGHTS + 0.75 * turns)
        if len(np.unique(part.weight)) <= order:
            result += by_weight(part)
            continue
        log_v = np.log(part.weight)
        nodes = _chebyshev(float(log_v.min()), float(log_v.max()), order)
        N, index = np.unique(part.num_candidates, return_inverse=True)
        shares = part.count[:, None] * _lagrange(nodes, log_v)
        count = np.array([np.bincount(index, share, len(N)) for share in shares.T])
        if smooth:
            N, count = _fewer_candidates(N, count)
        result += [Shared(float(v), N, c, True) for v, c in zip(np.exp(nodes), count, strict=True)]
    return result if len(result) <= _MOST_SHARED else None


def _bins(weight: FloatArray, reach: float) -> IntArray:
    """Bins of weights, none wider than an octave, in each of which the terms turn by 30 radians at most."""
    ends = [float(weight.max())]
    while ends[-1] >= weight.min():
        turns = reach * ends[-1] / ends[0]
        ends.append(ends[-1] * (1 - min(0.5, _RADIANS / turns)))
    return np.searchsorted(-np.array(ends), -weight, side="right")


def _fewer_candidates(N: IntArray, count: FloatArray) -> tuple[IntArray, FloatArray]:
    """Octaves of N by nodes: (u,) int64 and (rows, u) in, (w,) and (rows, w) out."""
    octave = np.where(N > SMALL_RANKS, np.ceil(np.log2(N / SMALL_RANKS)), 0)
    new_N, new_count = [], []
    for one in np.unique(octave):
        part, share = N[octave == one], count[:, octave == one]
        if one > 0 and len(part) > 2 * _CANDIDATES:
            nodes = np.unique(np.rint(np.exp(_chebyshev(np.log(part[0]), np.log(part[-1]), _CANDIDATES))))
            share = share @ _lagrange(np.log(nodes), np.log(part))
            part = nodes.astype(np.int64)
        new_N.append(part)
        new_count.append(share)
    return np.concatenate(new_N), np.concatenate(new_count, axis=1)


def _chebyshev(low: float, high: float, order: int) -> FloatArray:
    """Chebyshev points of [low, high], ascending, its ends among them."""
    nodes: FloatArray = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * np.arange(order) / (order - 1))
    return nodes


def _lagrange(nodes: FloatArray, x: FloatArray) -> FloatArray:
    """Values of the Lagrange polynomials of the nodes at x: (points, nodes), rows of sum 1."""
    scale = 4 / (nodes[-1] - nodes[0])
    gaps = scale * (nodes[:, None] - nodes)
    np.fill_diagonal(gaps, 1.0)
    barycentric = 1 / gaps.prod(axis=1)
    distance = x[:, None] - nodes
    at_node = distance == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = barycentric / distance
        result: FloatArray = terms / terms.sum(axis=1, keepdims=True)
    hit = at_node.any(axis=1)
    result[hit] = at_node[hit]
    return result
