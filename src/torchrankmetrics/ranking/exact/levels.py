"""The levels of exact ranks: the precisions that pay, and the counts that each one decides.

Products of int8 vectors, integers up to 127 times a scale, have no error; what remains is the
rounding of the vectors, bounded for every pair. docs/mathematics.md, "Exact ranks", has the proof.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.counting import Blocks
from torchrankmetrics.ranking.exact.problem import FLOAT32, FLOAT64, INT8, Problem, Tile
from torchrankmetrics.ranking.exact.target_scores import TargetScores

_WIDTH, _QUERIES = 64, 64  # from here on a copy in int8 pays
_ROWS, _COLUMNS = 256, 64
_WIDEST = 1 << 16  # products of int8 vectors are int32 numbers
_BEGUN = 3 << 27  # multiplications in float32 that must be saved for int8 to begin


def precisions(width: int, num_queries: int, scores: int, *, compiled: bool) -> list[torch.dtype]:
    """Precisions of the products, from int8 if it pays to float64. The ranks never depend on them."""
    found = [FLOAT32, FLOAT64] if _float32_is_whole() else [FLOAT64]
    large = _WIDTH <= width <= _WIDEST and num_queries >= _QUERIES
    # it would save little of few scores even if it left nothing open
    large = large and (cost(FLOAT32, width) - cost(INT8, width)) * scores > _BEGUN
    if compiled and large and _int8_pays(width):
        found.insert(0, INT8)
    return found


def _float32_is_whole() -> bool:
    """Whether torch multiplies float32 as it is, and not rounded to TF32 or bfloat16, which no bound here covers."""
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    reduced = getattr(matmul, "fp32_precision", "none") not in ("none", "ieee")
    return torch.get_float32_matmul_precision() == "highest" and not reduced


@cache
def _int8_pays(width: int) -> bool:
    """Whether the processor multiplies int8 faster than float32; and the largest products are exact: some saturate."""
    if not getattr(torch.cpu, "_is_vnni_supported", bool)():
        return False
    one = torch.full((_ROWS, width), 127, dtype=torch.int8, device="cpu")
    one[:, ::3] = -127
    other = one[:1].repeat(_COLUMNS, 1)  # the largest products, and others
    other[1::2] = other[1::2].roll(1, 1)
    expected = (one[0].long() * other.long()).sum(1)
    try:
        return all(
            bool((torch._int_mm(one[:rows], other[:columns].T) == expected[:columns]).all())
            for rows, columns in ((_ROWS, _COLUMNS), (1, _COLUMNS), (_ROWS, 2), (1, 1), (17, 33))
        )
    except (AttributeError, RuntimeError):  # torch has no such product everywhere
        return False


# For plans, which change no rank: the cost of a score with its counting, or of a pair compared
# alone (None), for each number of a vector and in addition, in products of two float32 numbers.
_COSTS = {INT8: (0.22, 15.0), FLOAT32: (1.0, 12.0), None: (3.0, 2300.0)}


def cost(dtype: torch.dtype | None, width: int) -> float:
    """Of one score of a product in a precision, or of a pair (None), in products of numbers in float32."""
    each, beside = _COSTS[dtype]
    return each * width + beside


class Level:
    """Float32 or float64, with one error bound for the tile; ``nothing`` is a score below all others."""

    nothing = -torch.inf
    is_coarse = False  # below float32: decides only scores that are far from the true score

    def __init__(self, dtype: torch.dtype, problem: Problem, targets: TargetScores) -> None:
        self.dtype, self._problem, self._targets = dtype, problem, targets
        self._buffer = torch.empty(
            0, dtype=torch.int32 if dtype == INT8 else dtype, device=problem.row.device
        )

    def ready(self, tile: Tile) -> Tensor:
        """Whether the bound of a task is finite, bool (P,); called once for a tile, before its scores are counted."""
        return self._targets.bounds(tile, self.dtype)[0].isfinite()

    def queries(self, rows: Tensor) -> Tensor:
        """Some queries, ascending, as ``scores`` takes them."""
        return _rows(self._problem.queries.rounded(self.dtype)[0], rows)

    def scores(self, tile: Tile, queries: Tensor, width: int) -> Iterator[Tensor]:
        """Scores (rows, n) of ``width`` candidates of the tile after the other in one buffer, fewer at the end."""
        dtype, is_rounded = queries.dtype, tile.given.dtype != queries.dtype
        divisors = (
            torch.split(tile.length.to(dtype), width) if tile.similarity == "cosine" else None
        )
        biases = None if tile.bias is None else torch.split(tile.bias.to(dtype), width)
        for number, (part, out) in enumerate(self._parts(tile.given, len(queries), width)):
            matrix = part.to(dtype) if is_rounded else part
            if biases is None:
                torch.mm(queries, matrix, out=out)
            else:
                torch.addmm(biases[number], queries, matrix, out=out)
            yield out if divisors is None else out.div_(divisors[number])

    def count(self, blocks: Blocks, tile: Tile, task: Tensor, place: Tensor, limit: int) -> Any:
        """As ``exact.counting.count_intervals`` for the scores of tasks, whose rows among the scores are given."""
        ends = (end.index_select(0, task) for end in self._targets.bounds(tile, self.dtype)[1:])
        return self._problem.intervals.count_intervals(blocks, (place, *ends), limit)

    def _parts(self, candidates: Tensor, rows: int, width: int) -> Iterable[tuple[Tensor, Tensor]]:
        """Parts (d, n) of candidates (N, d), and where their scores (rows, n) are written."""
        # all views at once: a product takes the code of other calls from the cache, so that each of
        # them is slow
        parts = torch.split(candidates.T, width, 1)
        if len(self._buffer) < rows * width:
            self._buffer = self._buffer.new_empty(rows * width)
        first, last = (
            self._buffer[: rows * part.shape[1]].view(rows, -1) for part in (parts[0], parts[-1])
        )
        return zip(parts, [first] * (len(parts) - 1) + [last], strict=True)


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Rows in ascending order, without a copy where there is none between them."""
    first, last = int(rows[0]), int(rows[-1])
    return (
        matrix[first : last + 1] if last - first + 1 == len(rows) else matrix.index_select(0, rows)
    )


_MORE = 1 + 2.0**-18  # for the rounding of float32 computations
_STEP = 2.0**-20  # relative error of a score and of a true one, as the kernel computes them
_RANGE = 2.0**60  # scales between its inverse and it neither overflow nor vanish
_LARGEST = 2.0**29  # so that a cell that is not counted stays below everything
_RATIO = 2.0**-10  # vectors so much shorter than the longest are zeros


def _quantized(vectors: Tensor, norm: Tensor) -> tuple[Tensor, ...]:
    """Round floats (n, d) of some norms to int8 (n, d) times a scale each; the scales, and bounds of the errors."""
    from torchrankmetrics.ranking.exact.kernels import quantized  # Numba is optional

    matrix, scale, error = quantized(vectors.float())
    error = error.double() * (1 + (vectors.shape[1] + 8) * 2.0**-22) + norm * 2.0**-21 + 2.0**-60
    return matrix, scale.double(), error


class _Int8Level(Level):
    """Products of int8 vectors, with an error bound for every pair.

    In steps of its int8 scale, a column has the number one (unit), bounds of its rounding and norm,
    and its bias (shift); a task its true score, one (step), and the factors of these bounds.
    """

    nothing = -(1 << 31)
    is_coarse = True

    @cached_property
    def _queries(self) -> tuple[Tensor, ...]:
        return _quantized(self._problem.queries.given, self._problem.queries.norm)

    def ready(self, tile: Tile) -> Tensor:
        if INT8 not in tile.prepared:
            tile.prepared[INT8] = self._columns_of(tile)
        self._columns = tile.prepared[INT8]
        if self._columns is None:
            return torch.zeros_like(self._targets.kind, dtype=torch.bool)
        self._bounds, ready = self._bounds_of(tile, self._columns[1])
        return ready

    def queries(self, rows: Tensor) -> Tensor:
        return _rows(self._queries[0], rows)

    def scores(self, tile: Tile, queries: Tensor, width: int) -> Iterator[Tensor]:
        for part, out in self._parts(self._columns[0], len(queries), width):
            yield torch._int_mm(queries, part, out=out)

    def count(self, blocks: Blocks, tile: Tile, task: Tensor, place: Tensor, limit: int) -> Any:
        tasks = place, *(part[task] for part in self._bounds)
        return self._problem.intervals.count_intervals(blocks, tasks, limit, self._columns[1])

    def _columns_of(self, tile: Tile) -> tuple[Tensor, list[Tensor]] | None:
        """A tile in int8, and (unit, error, norm, shift) of its columns; None if its numbers are out of range."""
        matrix, scale, error = _quantized(tile.given, tile.norm)
        wide, norm = tile.sizes(FLOAT64), tile.norm
        has_numbers = norm > 2.0**-99  # zeros have a scale of 1
        if tile.similarity == "cosine":
            scale, error = scale / tile.length, error / tile.length * _MORE + wide.error
            norm = torch.ones_like(norm) * _MORE
        # special scores are not counted here: any numbers do
        scale, norm, error = (
            tile.ordinary(part) for part in (torch.where(has_numbers, scale, 0.0), norm, error)
        )
        longest = float(scale.max())
        if not 1 / _RANGE < longest < _RANGE or not wide.error < torch.inf:
            return None
        short = scale < longest * _RATIO
        matrix[short] = 0
        scale, error = torch.where(short, longest, scale), torch.where(short, norm + error, error)
        shift = scale[:0] if tile.bias is None else tile.ordinary(tile.bias / scale)
        return matrix, [
            part.float() for part in (1 / scale, error / scale * _MORE, norm / scale * _MORE, shift)
        ]

    def _bounds_of(self, tile: Tile, columns: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """(true, step, by_error, by_norm, slack) of each task, (P,), and whether the bound holds for its numbers."""
        row, true, error = self._problem.row, self._targets.scores, self._targets.errors
        scale, lost = (part[row] for part in self._queries[1:])
        wide, norm = tile.sizes(FLOAT64), self._problem.queries.norm[row] + lost
        unit, by_error, by_norm = (float(part.max()) * _MORE for part in columns[:3])
        spread = true.abs() + wide.bias
        slack = (error + wide.bias_error + _STEP * spread) / scale * _MORE + _STEP / float(
            columns[0].min()
        ) * _MORE
        step = _STEP * norm
        given = [
            true / scale,
            1 / scale,
            (norm + step) / scale * _MORE,
            (lost + step) / scale * _MORE,
            slack,
        ]
        reach = (spread / scale + slack) * unit + given[2] * by_error + given[3] * by_norm
        ready = (reach < _LARGEST) & (scale > 1 / _RANGE) & (scale < _RANGE) & norm.isfinite()
        return [part.float() for part in given], ready


LEVELS: dict[torch.dtype, type[Level]] = {INT8: _Int8Level, FLOAT32: Level, FLOAT64: Level}
