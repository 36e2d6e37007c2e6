"""Weights that differ by the rounding of float32 are read as one, or as multiples of one unit if they nearly are."""

import numpy as np

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, distinct_rows
from torchrankmetrics.theory.tails.lattice import MOST_WEIGHTS

_RELATIVE = 2.0**-21  # four units in the last place of float32
_MOST_UNITS = 1000  # in the largest weight


def rounded_weights(counts: CandidateCounts) -> tuple[CandidateCounts, CandidateCounts] | None:
    """Replace weights by those that they stand for.

    Returns:
        the tasks with rounded weights, and the same tasks weighted by how far each weight was moved; None if weights
        are all equal, or none has a neighbour or unit to be rounded to.
    """
    v = np.unique(counts.weight)
    if len(v) == 1:
        return None
    index = _clusters(v)
    units = np.bincount(index, v) / np.bincount(index)
    if len(units) <= MOST_WEIGHTS:
        units = _multiples(units)
    elif len(units) == len(v):
        return None
    weight = units[index[np.searchsorted(v, counts.weight)]]
    weight = weight / (weight * counts.count).sum()
    (N, merged), count = distinct_rows((counts.num_candidates, weight), counts.count)
    moved = np.abs(counts.weight - weight)
    some = moved > 0
    if not some.any():
        return None
    return CandidateCounts(N, merged, count), CandidateCounts(
        counts.num_candidates[some], moved[some], counts.count[some]
    )


def _clusters(v: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Number of the cluster of each of ascending weights: (m,) float64 in, (m,) int64 out."""
    starts = np.zeros(len(v), dtype=np.int64)
    ends = np.searchsorted(v, v * (1 + _RELATIVE), side="right").tolist()  # where a cluster that begins here ends
    begin = 0
    while begin < len(v):
        starts[begin], begin = 1, ends[begin]
    return np.cumsum(starts) - 1


def _multiples(v: FloatArray) -> FloatArray:
    """The weights as the smallest integers that they are proportional to; as they are if there are none."""
    ratio = np.multiply.outer(np.arange(1, _MOST_UNITS + 1), v / v.max())
    whole = np.rint(ratio)
    fits = ((whole > 0) & (np.abs(ratio - whole) <= _RELATIVE * whole)).all(axis=1)
    return whole[np.argmax(fits)] if fits.any() else v
