"""Sums of smooth functions over long runs of integers: Gauss panels that are halved until they agree."""

from collections.abc import Callable

import numpy as np

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.expectation.sums import gauss_counting

_ORDER = 16
_TOLERANCE = 1e-14

Functions = Callable[[FloatArray], FloatArray]  # (m,) float64 integers or points between them in, (rows, m) values out


def smooth_sums(
    functions: Functions, start: IntArray, stop: IntArray, *, together: bool = False, tolerance: float = _TOLERANCE
) -> FloatArray:
    """Sum several functions over the integers of each run [start, stop).

    Args:
        functions: all functions at once; each smooth inside a run.
        start: (runs,) first integers.
        stop: (runs,) one past the last integers.
        tolerance: relative disagreement of a panel with its halves that passes.
        together: the error of a panel is measured by the sum over all runs, not over its own run.

    Returns:
        (rows, runs) sums.
    """
    run = np.arange(len(start))
    coarse = _panel_sums(functions, start, stop)
    short = stop - start <= _ORDER  # summed one by one: exact
    sums, scale = np.where(short, coarse, 0.0), np.where(short, np.abs(coarse), 0.0)
    coarse, run, start, stop = coarse[:, ~short], run[~short], start[~short], stop[~short]
    while len(start):
        middle = start + (stop - start) // 2
        left, right = _panel_sums(functions, start, middle), _panel_sums(functions, middle, stop)
        fine = left + right
        for row in range(len(sums)):
            np.maximum.at(scale[row], run, np.abs(fine[row]))
        reference = scale.sum(1, keepdims=True) if together else scale[:, run]
        done = (np.abs(fine - coarse) <= tolerance * np.maximum(reference, 1e-300)).all(0) | (stop - start <= _ORDER)
        for row in range(len(sums)):
            np.add.at(sums[row], run[done], fine[row][done])
        todo = ~done
        coarse = np.concatenate([left[:, todo], right[:, todo]], axis=1)
        run = np.tile(run[todo], 2)
        start, stop = np.r_[start[todo], middle[todo]], np.r_[middle[todo], stop[todo]]
    return sums


def _panel_sums(functions: Functions, start: IntArray, stop: IntArray) -> FloatArray:
    """Sums over [start, stop), one panel each: (rows, panels)."""
    length = stop - start
    nodes = start[:, None] + np.arange(float(_ORDER))
    weights = (np.arange(_ORDER) < length[:, None]).astype(np.float64)
    long = length > _ORDER
    if long.any():
        unique, index = np.unique(length[long], return_inverse=True)
        x, a = gauss_counting(unique)
        nodes[long], weights[long] = start[long][:, None] + x[index], a[index]
    used = weights > 0
    values = functions(nodes[used])
    spread = np.zeros((len(values), *nodes.shape))
    spread[:, used] = values * weights[used]
    return np.asarray(spread.sum(-1))
