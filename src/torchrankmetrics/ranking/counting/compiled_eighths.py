"""Rounding vectors to integers of eight bits, compiled by Numba for the CPU."""
# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="no-any-return"

from itertools import pairwise

import numba
import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting.threads import cuts, side_by_side

_PER_THREAD = 1 << 18  # numbers that are worth a thread


def eighths(numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Round each of (n, d) float32 vectors to integers of at most 127 times a scale of its own.

    Returns:
        int8 (n, d); the scales, float32 (n,), 1 for zeros; the squares of the lengths, float64, and of those of the
        rounding, float32. What is not finite becomes zeros, with lengths of inf.
    """
    given = numbers.contiguous().numpy()
    n = len(given)
    out, scale = np.empty(given.shape, np.int8), np.empty(n, np.float32)
    square, error = np.empty(n), np.empty(n, np.float32)
    arrays = given, given.view(np.int32), out, scale, square, error
    parts = cuts(n, given.size // _PER_THREAD)
    side_by_side(_round, [(*arrays, *piece) for piece in pairwise(parts)])
    matrix, scales, squares, errors = (torch.from_numpy(part) for part in (out, scale, square, error))
    return matrix, scales, squares, errors


@numba.njit(nogil=True, cache=True)
def _round(given, bits, out, scale, square, error, first, last):
    cell = np.empty(1, np.int32)
    largest = cell.view(np.float32)
    for i in range(first, last):
        most = np.int32(0)
        for k in range(bits.shape[1]):
            most = max(most, np.int32(bits[i, k] & np.int32(0x7FFFFFFF)))
        out[i] = 0
        scale[i], square[i], error[i] = 1, 0, 0
        if most >= np.int32(0x7F800000):
            square[i] = error[i] = np.inf
        elif most:
            cell[0] = most
            scale[i] = largest[0] / np.float32(127)
            # of numbers that are denormal the scale is inexact, and may be zero: they stay zeros
            if scale[i] > np.float32(2.0**-120):
                _round_one(given[i], np.float32(1) / scale[i], out[i])
            else:
                scale[i] = 1
            square[i], error[i] = _squares(given[i], out[i], scale[i])


@numba.njit(nogil=True, cache=True)
def _round_one(numbers, inverse, out):
    for k in range(numbers.shape[0]):
        out[k] = np.int8(np.int32(np.rint(numbers[k] * inverse)))


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _squares(numbers, whole, scale):
    square, error = 0.0, np.float32(0)
    for k in range(numbers.shape[0]):
        square += np.float64(numbers[k]) * np.float64(numbers[k])
    for k in range(numbers.shape[0]):
        apart = numbers[k] - np.float32(whole[k]) * scale
        error += apart * apart
    return square, error
