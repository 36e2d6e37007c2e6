"""Products of eighths: vectors as integers up to 127 times a scale, whose products are integers without any error.

What remains is the rounding of the vectors, bounded for every pair; docs/mathematics.md, "Exact ranks", has the proof.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.counting import ColumnBounds, ErrorBounds
from torchrankmetrics.ranking.exact.tiles import FLOAT64, INT8, Tile

LEAST = -(1 << 31)  # a cell that is not counted
_MORE = 1 + 2.0**-18  # for the rounding of float32 computations
_STEP = 2.0**-20  # relative error of a score and of a true one, as the compiled way works them out
RANGE = 2.0**60  # scales between its inverse and it neither overflow nor vanish
_LARGEST = 2.0**29  # so that a cell that is not counted stays below everything
_RATIO = 2.0**-10  # vectors so much shorter than the longest are zeros

Rounding = Callable[[Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]


class QuantizedRows(NamedTuple):
    """Vectors as int8 (n, d), their scales, and upper bounds of their norms and of the norms of the rounding."""

    matrix: Tensor
    scale: Tensor
    norm: Tensor
    error: Tensor

    @classmethod
    def of(cls, vectors: Tensor, rounding: Rounding) -> "QuantizedRows":
        """Round floats (n, d); the bounds are float64 (n,)."""
        matrix, scale, square, error = rounding(vectors.float())
        terms = vectors.shape[1] + 8
        norm = square.sqrt() * (1 + 2.0**-22) + 2.0**-100
        return cls(
            matrix, scale.double(), norm, error.double().sqrt() * (1 + terms * 2.0**-22) + norm * 2.0**-21 + 2.0**-60
        )


class Int8Columns(NamedTuple):
    """A tile as int8: its matrix, the bounds of its columns, and maxima over the tile."""

    matrix: Tensor
    scales: ColumnBounds
    bias: float
    slack: float
    largest: tuple[float, float, float]
    least_unit: float


def columns_of(tile: Tile, rounding: Rounding) -> Int8Columns | None:
    """Round a tile, which caches the result; None if its numbers are out of range for int8."""
    if INT8 not in tile.prepared:
        tile.prepared[INT8] = _columns_of(tile, rounding)
    found: Int8Columns | None = tile.prepared[INT8]
    return found


def _columns_of(tile: Tile, rounding: Rounding) -> Int8Columns | None:
    whole, wide = QuantizedRows.of(tile.given, rounding), tile.sizes(FLOAT64)
    scale, norm, error = whole.scale, whole.norm, whole.error
    if tile.similarity == "cosine":
        scale, error, norm = (
            scale / tile.length,
            error / tile.length * _MORE + wide.error,
            torch.ones_like(norm) * _MORE,
        )
    if tile.special is not None:  # not counted here: any numbers do
        scale, norm, error = (part.index_fill(0, tile.special, 0.0) for part in (scale, norm, error))
    scale = torch.where(whole.norm > 2.0**-99, scale, 0.0)  # zeros have a scale of 1
    longest = float(scale.max())
    if not 1 / RANGE < longest < RANGE or not wide.error < torch.inf:
        return None
    short = scale < longest * _RATIO
    if bool(short.any()):
        whole.matrix[short] = 0
        scale, error = torch.where(short, longest, scale), torch.where(short, norm + error, error)
    shift = None if tile.bias is None else tile.bias / scale
    if shift is not None and tile.special is not None:
        shift = shift.index_fill(0, tile.special, 0.0)
    unit, by_error, by_norm = 1 / scale, error / scale * _MORE, norm / scale * _MORE
    return Int8Columns(
        whole.matrix,
        ColumnBounds(unit.float(), by_error.float(), by_norm.float(), None if shift is None else shift.float()),
        wide.bias,
        wide.bias_error,
        (float(unit.max()), float(by_error.max()), float(by_norm.max())),
        float(unit.min()),
    )


def bounds_of(
    queries: QuantizedRows, columns: Int8Columns, row: Tensor, true: Tensor, error: Tensor
) -> tuple[ErrorBounds, Tensor]:
    """Return the bounds of a tile for each task, from its row, its true score in float64 and its error, (P,) each.

    Also whether the numbers of a task are such that the bound holds, bool (P,).
    """
    scale, norm, lost = (part.index_select(0, row) for part in (queries.scale, queries.norm, queries.error))
    norm = norm + lost
    unit, by_error, by_norm = columns.largest
    spread = true.abs() + columns.bias
    slack = (error + columns.slack + _STEP * spread) / scale * _MORE + _STEP / columns.least_unit
    step = _STEP * norm
    given = [true / scale, 1 / scale, (norm + step) / scale * _MORE, (lost + step) / scale * _MORE, slack]
    reach = (spread / scale + slack) * unit + given[2] * by_error + given[3] * by_norm
    ready = (reach < _LARGEST) & (scale > 1 / RANGE) & (scale < RANGE) & norm.isfinite()
    return ErrorBounds(*(part.float() for part in given)), ready
