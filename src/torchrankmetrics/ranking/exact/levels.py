"""The levels of exact ranks: the precisions that pay, and the counts that each one decides."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact import int8
from torchrankmetrics.ranking.exact.counting import IntervalCounter
from torchrankmetrics.ranking.exact.problem import Problem
from torchrankmetrics.ranking.exact.target_scores import TargetScores
from torchrankmetrics.ranking.exact.tiles import FLOAT32, FLOAT64, INT8, Tile

_WIDTH, _QUERIES = 64, 64  # from here on a copy in int8 pays
_ROWS, _COLUMNS, _RUNS = 256, 2048, 3
_SHARE = 0.7  # of the time of the float32 product
_WIDEST = 1 << 16  # products of int8 vectors are int32 numbers


def precisions(width: int, num_queries: int, *, on_cpu: bool, compiled: bool) -> list[torch.dtype]:
    """Precisions of the products, in order; the last is float64. The ranks never depend on them.

    Args:
        width (int): d of the embeddings.
        num_queries (int): of this call.
        on_cpu (bool): whether they are there.
        compiled (bool): whether cells are counted by Numba, without which int8 is slow to count.

    Returns:
        From int8, if it pays, to float64.
    """
    found = [FLOAT32, FLOAT64] if _float32_is_whole() else [FLOAT64]
    large = _WIDTH <= width <= _WIDEST and num_queries >= _QUERIES
    if on_cpu and compiled and large and _int8_pays(width, torch.get_num_threads()):
        found.insert(0, INT8)
    return found


def _float32_is_whole() -> bool:
    """Whether torch multiplies float32 as it is, and not rounded to TF32 or bfloat16, which no bound here covers."""
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    reduced = getattr(matmul, "fp32_precision", "none") not in ("none", "ieee")
    return torch.get_float32_matmul_precision() == "highest" and not reduced


@cache
def _int8_pays(width: int, threads: int) -> bool:
    """Measure one tile in int8 and float32; and see that the largest products are exact: some processors saturate."""
    one = torch.full((_ROWS, width), 127, dtype=torch.int8, device="cpu")
    one[:, ::3] = -127
    other = one[:1].repeat(_COLUMNS, 1)  # the largest products, and others
    other[1::2] = other[1::2].roll(1, 1)
    expected = (one[0].long() * other.long()).sum(1)
    try:
        for rows, columns in ((_ROWS, _COLUMNS), (1, _COLUMNS), (_ROWS, 2), (1, 1), (17, 33)):
            if not bool((multiplied(one[:rows], other[:columns]) == expected[:columns]).all()):
                return False
        out = torch.empty(_ROWS, _COLUMNS, dtype=torch.int32, device="cpu")
        took = _least(lambda: multiplied(one, other, out))
    except (AttributeError, RuntimeError):  # torch has no such product everywhere
        return False
    return took < _SHARE * _least_of_float32(width)


def multiplied(one: Tensor, other: Tensor, out: Tensor | None = None) -> Tensor:
    """Integer products (n, m) of int8 rows (n, d) with rows (m, d)."""
    if out is None:
        return torch._int_mm(one, other.T)
    return torch._int_mm(one, other.T, out=out)


def _least_of_float32(width: int) -> float:
    one, other = (torch.ones(size, width, device="cpu") for size in (_ROWS, _COLUMNS))
    out = torch.empty(_ROWS, _COLUMNS, device="cpu")
    return _least(lambda: torch.mm(one, other.T, out=out))


def _least(run: Any) -> float:
    """Seconds of the fastest of some runs, after one that does not count."""
    run()
    times = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


# for plans, which change no rank: whether a precision is worth it at all is measured in ``precisions``. In products of
# numbers in float32, for each number of a vector and beside: a score with its counting, a pair that is compared alone
_COSTS = {INT8: (0.22, 15.0), FLOAT32: (1.0, 12.0), FLOAT64: (2.0, 12.0), None: (3.0, 2300.0)}
_PREPARED = 30.0  # int8, for each number of the candidates
_BEGUN = 1 << 28  # int8 at all, a sample of the candidates included


def cost(dtype: torch.dtype | None, width: int) -> float:
    """Of one score of a product in a precision, or of a pair (None), in products of numbers in float32."""
    each, beside = _COSTS[dtype]
    return each * width + beside


def cost_of_int8(width: int, number: int, is_reused: bool) -> float:
    """Of candidates rounded to int8, in the same: reused candidates have them already."""
    return _BEGUN + (0 if is_reused else _PREPARED * width * number)


def worth(precisions: Sequence[torch.dtype], width: int, scores: int) -> list[torch.dtype]:
    """Precisions without int8, if it would save little even if it left nothing open."""
    saved = (cost(FLOAT32, width) - cost(INT8, width)) * scores
    return [x for x in precisions if x != INT8 or saved > 1.5 * _BEGUN]


class Level(ABC):
    """One precision.

    Attributes:
        dtype: of the operands.
        nothing: a score below all others, for cells that are not counted.
    """

    nothing: ClassVar[float]

    def __init__(self, dtype: torch.dtype, problem: Problem, targets: TargetScores) -> None:
        self.dtype, self._problem, self._targets = dtype, problem, targets
        self._buffer: Tensor | None = None

    @property
    def is_coarse(self) -> bool:
        """Whether it is below float32, and decides only scores that are far from the true score."""
        return self.dtype == INT8

    @abstractmethod
    def ready(self, tile: Tile) -> Tensor:
        """Whether the bound of a task is finite, bool (P,)."""

    @abstractmethod
    def queries(self, rows: Tensor) -> Tensor:
        """Some queries, ascending, as ``scores`` takes them."""

    @abstractmethod
    def scores(self, tile: Tile, queries: Tensor, columns: slice) -> Tensor:
        """Scores of queries and some candidates of the tile, (rows, n) in a buffer."""

    @abstractmethod
    def counter(self, tile: Tile, task: Tensor, place: Tensor, limit: int, spare: int) -> IntervalCounter:
        """Return the counter of the scores of tasks, whose rows among the scores are given."""

    def _cells(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        if self._buffer is None or len(self._buffer) < rows * columns:
            self._buffer = torch.empty(rows * columns, dtype=dtype, device=self._problem.row.device)
        return self._buffer[: rows * columns].view(rows, columns)


class _FloatLevel(Level):
    """Float32 or float64, with one error bound for the tile."""

    nothing = -torch.inf

    def ready(self, tile: Tile) -> Tensor:
        return self._targets.error(tile, self.dtype).isfinite()

    def queries(self, rows: Tensor) -> Tensor:
        return _rows(self._problem.queries.rounded(self.dtype), rows)

    def scores(self, tile: Tile, queries: Tensor, columns: slice) -> Tensor:
        return tile.scores(queries, columns, self._cells(len(queries), columns.stop - columns.start, self.dtype))

    def counter(self, tile: Tile, task: Tensor, place: Tensor, limit: int, spare: int) -> IntervalCounter:
        low, high = self._targets.interval(tile, self.dtype)
        tasks = place, low.index_select(0, task), high.index_select(0, task)
        return self._problem.intervals.counter(tasks, limit, spare)


class _Int8Level(Level):
    """Products of int8 vectors, with an error bound for every pair."""

    nothing = int8.LEAST

    def __init__(self, dtype: torch.dtype, problem: Problem, targets: TargetScores) -> None:
        super().__init__(dtype, problem, targets)
        assert problem.intervals.rounded_to_int8 is not None
        self._rounding = problem.intervals.rounded_to_int8
        self._of: Tile | None = None

    @cached_property
    def _queries(self) -> int8.QuantizedRows:
        return int8.QuantizedRows.of(self._problem.queries.given, self._rounding)

    def ready(self, tile: Tile) -> Tensor:
        if self._of is not tile:
            self._of, self._columns = tile, int8.columns_of(tile, self._rounding)
            if self._columns is None:
                self._ready = torch.zeros_like(self._targets.kind, dtype=torch.bool)
            else:
                self._bounds, self._ready = int8.bounds_of(
                    self._queries, self._columns, self._problem.row, self._targets.scores, self._targets.errors
                )
        return self._ready

    def queries(self, rows: Tensor) -> Tensor:
        return _rows(self._queries.matrix, rows)

    def scores(self, tile: Tile, queries: Tensor, columns: slice) -> Tensor:
        assert self._columns is not None
        out = self._cells(len(queries), columns.stop - columns.start, torch.int32)
        return multiplied(queries, self._columns.matrix[columns], out)

    def counter(self, tile: Tile, task: Tensor, place: Tensor, limit: int, spare: int) -> IntervalCounter:
        assert self._columns is not None
        tasks = place, *(part.index_select(0, task) for part in self._bounds)
        return self._problem.intervals.counter(tasks, limit, spare, self._columns.scales)


def levels(precisions: Sequence[torch.dtype], problem: Problem, targets: TargetScores) -> list[Level]:
    """One level for each precision."""
    return [(_Int8Level if dtype == INT8 else _FloatLevel)(dtype, problem, targets) for dtype in precisions]


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Rows in ascending order, without a copy where there is none between them."""
    first, last = int(rows[0]), int(rows[-1])
    return matrix[first : last + 1] if last - first + 1 == len(rows) else matrix.index_select(0, rows)
