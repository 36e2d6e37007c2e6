"""The precisions of a cascade: how each makes the scores of a tile and tells what it cannot decide."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified import eighths
from torchrankmetrics.ranking.certified.precisions import multiplied
from torchrankmetrics.ranking.certified.problem import Problem
from torchrankmetrics.ranking.certified.tiles import BFLOAT16, EIGHTHS, FLOAT32, FLOAT64, Tile
from torchrankmetrics.ranking.certified.truth import Truth
from torchrankmetrics.ranking.counting.plain_intervals import Counter

# for plans, which change no rank: whether a precision is worth it at all is measured in ``precisions``. In products of
# numbers in float32, for each number of a vector and beside: a score with its counting, a pair that is compared alone
_COSTS = {
    EIGHTHS: (0.22, 15.0),
    BFLOAT16: (0.46, 20.0),
    FLOAT32: (1.0, 12.0),
    FLOAT64: (2.0, 12.0),
    None: (3.0, 2300.0),
}
_PREPARED = {EIGHTHS: 30.0, BFLOAT16: 45.0}  # for each number of the candidates
_BEGUN = 1 << 28  # for each precision that is used at all, the look at a sample included


def cost(dtype: torch.dtype | None, width: int) -> float:
    """Of one score of a product in a precision, or of a pair (None), in products of numbers in float32."""
    each, beside = _COSTS[dtype]
    return each * width + beside


def cost_of_candidates(dtype: torch.dtype, width: int, number: int, kept: bool) -> float:
    """Of the candidates in a precision below float32, in the same: those that are kept are there already."""
    return _BEGUN + (0 if kept else _PREPARED[dtype] * width * number)


def worth(precisions: Sequence[torch.dtype], width: int, scores: int) -> list[torch.dtype]:
    """Precisions without those below float32 that would save little even if they left nothing open."""
    full = cost(FLOAT32, width)
    return [x for x in precisions if x not in _PREPARED or (full - cost(x, width)) * scores > 1.5 * _BEGUN]


class Level(ABC):
    """One precision.

    Attributes:
        dtype: of the operands.
        nothing: a score below all others, of what is not counted.
    """

    nothing: ClassVar[float]

    def __init__(self, dtype: torch.dtype, problem: Problem, truth: Truth) -> None:
        self.dtype, self._problem, self._truth = dtype, problem, truth
        self._buffer: Tensor | None = None

    @property
    def is_coarse(self) -> bool:
        """Whether it is below float32, and decides nothing but what is far from the true score."""
        return self.dtype in (EIGHTHS, BFLOAT16)

    def guess(self, tile: Tile, task: Tensor) -> Tensor:
        """About how many candidates of a small tile are left open of some tasks, float64 (T,): by typical errors.

        Nothing is prepared for it.
        """
        queries = self._problem.queries.given.index_select(0, self._problem.row.index_select(0, task)).float()
        vectors, bias = tile.given.float(), torch.zeros(len(tile), device=queries.device)
        if tile.bias is not None:
            bias = tile.bias.float()
        if tile.similarity == "cosine":
            vectors = vectors / tile.length.float()[:, None]
        if tile.special is not None:  # not counted here
            vectors, bias = (part.index_fill(0, tile.special, 0.0) for part in (vectors, bias))
        norms, errors = torch.linalg.vector_norm(vectors, dim=1), self._typical_errors(vectors)
        true = self._truth.scores.index_select(0, task).float()[:, None]
        reach = torch.zeros_like(true)
        if self.dtype != EIGHTHS:  # one bound for the tile, and scores that are rounded too
            norms, errors, reach = norms.amax(), errors.amax(), true.abs() * (torch.finfo(self.dtype).eps / 2)
        own_norms, own_errors = torch.linalg.vector_norm(queries, dim=1), self._typical_errors(queries)
        reach = reach + own_norms[:, None] * errors + own_errors[:, None] * norms
        number: Tensor = (torch.addmm(bias, queries, vectors.T) - true).abs_() < reach
        return number.sum(1, dtype=torch.float64)

    @abstractmethod
    def _typical_errors(self, vectors: Tensor) -> Tensor:
        """What rounding float32 vectors (n, d) changes on average, as a norm, (n,); inf: they cannot be rounded so."""

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
    def counter(self, tile: Tile, task: Tensor, place: Tensor, limit: int, spare: int) -> Counter:
        """What counts the scores of tasks, whose rows among the scores are given; as ``plain_intervals.Counter``."""

    def _cells(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        if self._buffer is None or len(self._buffer) < rows * columns:
            self._buffer = torch.empty(rows * columns, dtype=dtype, device=self._problem.row.device)
        return self._buffer[: rows * columns].view(rows, columns)


class Floating(Level):
    """Bfloat16, float32 or float64."""

    nothing = -torch.inf

    def _typical_errors(self, vectors: Tensor) -> Tensor:
        """Half of a digit at most: 0.20 of a digit of the norm on average, and more of the longest of many."""
        error: Tensor = torch.linalg.vector_norm(vectors, dim=1) * (0.22 * torch.finfo(self.dtype).eps)
        return error

    def ready(self, tile: Tile) -> Tensor:
        """Whether the bound is finite."""
        return self._truth.error(tile, self.dtype).isfinite()

    def queries(self, rows: Tensor) -> Tensor:
        """Rounded."""
        return _rows(self._problem.queries.rounded(self.dtype), rows)

    def scores(self, tile: Tile, queries: Tensor, columns: slice) -> Tensor:
        """Products in that precision."""
        return tile.scores(queries, columns, self._cells(len(queries), columns.stop - columns.start, self.dtype))

    def counter(self, tile: Tile, task: Tensor, place: Tensor, limit: int, spare: int) -> Counter:
        """By one bound for the tile."""
        low, high = self._truth.interval(tile, self.dtype)
        return self._problem.intervals.counter(
            place, low.index_select(0, task), high.index_select(0, task), limit, spare
        )


class Eighths(Level):
    """Integers of eight bits."""

    nothing = eighths.LEAST

    def __init__(self, dtype: torch.dtype, problem: Problem, truth: Truth) -> None:
        super().__init__(dtype, problem, truth)
        assert problem.intervals.eighths is not None
        self._rounding = problem.intervals.eighths
        self._of: Tile | None = None

    @cached_property
    def _queries(self) -> eighths.Whole:
        return eighths.Whole.of(self._problem.queries.given, self._rounding)

    def _typical_errors(self, vectors: Tensor) -> Tensor:
        """Half of a step at most, evenly."""
        step = vectors.abs().amax(1) / 127
        error: Tensor = step * (vectors.shape[1] / 12) ** 0.5
        return error.masked_fill((step > eighths.RANGE) | ((step > 0) & (step < 1 / eighths.RANGE)), torch.inf)

    def ready(self, tile: Tile) -> Tensor:
        """Whether the numbers are in range."""
        if self._of is not tile:
            self._of, self._columns = tile, eighths.columns_of(tile, self._rounding)
            if self._columns is None:
                self._ready = torch.zeros_like(self._truth.kind, dtype=torch.bool)
            else:
                self._rulers, self._ready = eighths.rulers_of(
                    self._queries, self._columns, self._problem.row, self._truth.scores, self._truth.errors
                )
        return self._ready

    def queries(self, rows: Tensor) -> Tensor:
        """Integers."""
        return _rows(self._queries.matrix, rows)

    def scores(self, tile: Tile, queries: Tensor, columns: slice) -> Tensor:
        """Integer products."""
        assert self._columns is not None
        out = self._cells(len(queries), columns.stop - columns.start, torch.int32)
        return multiplied(queries, self._columns.matrix[columns], out)

    def counter(self, tile: Tile, task: Tensor, place: Tensor, limit: int, spare: int) -> Counter:
        """By a bound for every pair."""
        assert self._columns is not None
        assert self._problem.intervals.counter_of_eighths is not None
        tasks = type(self._rulers)(*(part.index_select(0, task) for part in self._rulers))
        return self._problem.intervals.counter_of_eighths(place, tasks, self._columns.scales, limit, spare)


def levels(precisions: Sequence[torch.dtype], problem: Problem, truth: Truth) -> list[Level]:
    """One level for each precision."""
    return [(Eighths if dtype == EIGHTHS else Floating)(dtype, problem, truth) for dtype in precisions]


def _rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Rows in ascending order, without a copy where there is none between them."""
    first, last = int(rows[0]), int(rows[-1])
    return matrix[first : last + 1] if last - first + 1 == len(rows) else matrix.index_select(0, rows)
