"""Sums of smooth functions over long runs of integers: Gauss panels that are halved until they agree."""

from collections.abc import Callable

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.sums import PANEL_NODES, panel_rule

_TOLERANCE = 1e-14

Functions = Callable[[FloatArray], FloatArray]  # (m,) float64 integers or points between them in, (rows, m) values out


def smooth_sums(
    functions: Functions, start: IntArray, stop: IntArray, *, together: bool = False, tolerance: float = _TOLERANCE
) -> FloatArray:
    """Sum several functions over the integers of each run [start, stop).

    Args:
        functions: all functions at once; each smooth inside a run.
        start: (runs,) int64, first integers.
        stop: (runs,) int64, one past the last integers.
        together: the error of a panel is measured by the sum over all runs, not over its own run.
        tolerance: relative disagreement of a panel with its halves that passes.

    Returns:
        (rows, runs) float64 sums.
    """
    run = np.arange(len(start))
    coarse = _panel_sums(functions, start, stop)
    short = stop - start <= PANEL_NODES  # summed one by one: exact
    sums, scale = np.where(short, coarse, 0.0), np.where(short, np.abs(coarse), 0.0)
    coarse, run, start, stop = coarse[:, ~short], run[~short], start[~short], stop[~short]
    while len(start):
        middle = start + (stop - start) // 2
        left, right = _panel_sums(functions, start, middle), _panel_sums(functions, middle, stop)
        fine = left + right
        for row in range(len(sums)):
            np.maximum.at(scale[row], run, np.abs(fine[row]))
        reference = scale.sum(1, keepdims=True) if together else scale[:, run]
        done = (np.abs(fine - coarse) <= tolerance * np.maximum(reference, 1e-300)).all(0) | (
            stop - start <= PANEL_NODES
        )
        for row in range(len(sums)):
            np.add.at(sums[row], run[done], fine[row][done])
        todo = ~done
        coarse = np.concatenate([left[:, todo], right[:, todo]], axis=1)
        run = np.tile(run[todo], 2)
        start, stop = np.r_[start[todo], middle[todo]], np.r_[middle[todo], stop[todo]]
    return sums


def _panel_sums(functions: Functions, start: IntArray, stop: IntArray) -> FloatArray:
    """Sums over [start, stop), one panel each: (rows, panels)."""
    nodes, weights, size = panel_rule(start, stop - start)
    values = functions(nodes)
    spread = np.zeros((len(values), len(start), PANEL_NODES))
    spread[:, np.arange(PANEL_NODES) < size[:, None]] = values * weights
    return np.asarray(spread.sum(-1))
