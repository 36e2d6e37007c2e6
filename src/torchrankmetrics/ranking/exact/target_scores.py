"""Scores of the targets with proven error bounds, and scores that are not ordinary numbers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, count
from torchrankmetrics.ranking.exact import problem as sizes
from torchrankmetrics.ranking.exact.problem import (
    FLOAT64,
    Counts,
    Problem,
    Sizes,
    Tile,
    lattice_step_of,
    rows_of,
)

_MORE = 1 + 2.0**-20  # for the rounding of the bounds themselves


def error_bound(
    dtype: torch.dtype, d: int, sizes: Sizes, norm: Tensor, error: Tensor, lattice_step: float
) -> Tensor:
    """Bound |computed - exact| for scores in a precision, (B,) float64: 0 where they are exact, inf for an overflow.

    ``norm`` and ``error`` (B,) bound the norms of the rounded queries and of their rounding. All
    products and biases are multiples of the lattice step, if it is known (not 0).
    """
    # twice the unit of rounding, and the least normal number
    unit, tiny, terms = torch.finfo(dtype).eps, torch.finfo(dtype).tiny, d + 8
    rounded, flushed = sizes.norm + sizes.error, 2 * tiny / sizes.shortest
    # norm * error of the candidates + error * norm of the candidates + accumulation + bias + what
    # vanishes
    by_norm = (sizes.error + terms * unit * rounded + terms**0.5 * flushed) * _MORE
    alone = terms * unit * 1.01 * sizes.bias + sizes.bias_error
    alone = (alone + flushed * (terms + terms**0.5 * (sizes.longest + sizes.error))) * _MORE
    bound: Tensor = norm * by_norm + error * (sizes.norm * _MORE) + alone
    safe = (norm * (sizes.longest + sizes.error) + 2 * sizes.bias < torch.finfo(dtype).max / 16) & (
        bound < torch.inf
    )
    safe &= sizes.shortest > 2.0**24 * tiny  # lengths that vanish or are inexact
    if not lattice_step and bool((safe & (norm > 0)).all()):  # most calls
        return bound
    # a query of zeros; a bias may have vanished
    exact = (norm == 0) & (error == 0) & (sizes.bias == 0) & (sizes.bias_error == 0)
    if lattice_step > tiny:
        largest = norm * sizes.norm + sizes.norm * sizes.norm + sizes.bias
        exact |= (error == 0) & (sizes.error == 0) & (largest < lattice_step / unit)
    return bound.masked_fill(exact, 0.0).masked_fill(~safe, torch.inf)


def interval(dtype: torch.dtype, true: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Round [true - error, true + error] outward to numbers of the precision."""
    info = torch.finfo(dtype)
    error = torch.where(error > 0, error * _MORE + true.abs() * (2 * info.eps) + info.tiny, 0.0)
    # excluded cells are -inf, below every interval except the interval of an unknown score
    low, high = (end.to(dtype).clamp(min=info.min) for end in (true - error, true + error))
    return low.masked_fill(error == torch.inf, -torch.inf), high


def count_specials(problem: Problem, kind: Tensor, counts: Counts, tile: Tile) -> None:
    """Count the scores of a tile that are not finite: all scores of some queries and of some candidates."""
    finite, height = problem.queries.finite, max(1, sizes.CELLS // len(tile))
    pieces = []
    if not finite.all():
        every = torch.arange(len(tile), device=finite.device)
        pieces = [(rows, every) for rows in torch.split((~finite).nonzero()[:, 0], height)]
    if tile.special is not None:
        pieces += [(rows, tile.special) for rows in torch.split(finite.nonzero()[:, 0], height)]
    for some, columns in pieces:
        task = torch.isin(problem.row, some).nonzero()[:, 0]
        if not len(task):
            continue
        out = torch.zeros(len(some), len(tile), dtype=torch.bool, device=some.device)
        for fill in problem.excluded.of(tile, some):
            fill(out, slice(0, len(tile)), True)
        scores = classes(problem.queries.given[some], tile, columns)
        place = torch.searchsorted(some, problem.row[task])
        own = torch.searchsorted(columns, problem.column[task] - tile.left).clamp(
            max=len(columns) - 1
        )
        own = torch.where(columns[own] == problem.column[task] - tile.left, own, -1)
        better, not_worse, others, nan = count(
            scores, kind[task], place, own, Excluded(cells=out[:, columns]), backend=problem.backend
        )
        counts.above[task] += better
        counts.tied[task] += not_worse - better
        counts.special[task] += others
        counts.nan[task] += nan


def classes(queries: Tensor, tile: Tile, columns: Tensor | slice) -> Tensor:
    """Class of every score of some columns of a tile, float32 (B, n): NaN, inf, -inf, or 0 for a finite one.

    Infinite and NaN scores follow IEEE arithmetic on the exact terms: inf - inf and 0 inf are NaN.
    l2 is -|q - e|^2, cosine is q.e / |e| (NaN for a vector of zeros).
    """
    q, e = _signs(queries), _signs(tile.given[columns])
    if tile.similarity == "l2":
        scores = torch.zeros(len(q), len(e), device=q.device)
        both = sum(
            ((q == sign).float() @ (e == sign).float().T for sign in (torch.inf, -torch.inf)),
            scores,
        )
        scores.masked_fill_(q.isinf().any(1)[:, None] | e.isinf().any(1), -torch.inf)
        scores.masked_fill_((both != 0) | q.isnan().any(1)[:, None] | e.isnan().any(1), torch.nan)
    else:
        scores = q @ e.T
        if tile.similarity == "cosine":
            scores = scores / torch.where(e.isinf().any(1), torch.inf, e.abs().sum(1))
    if tile.given_bias is not None:
        scores = scores + _signs(tile.given_bias[columns])
    return scores.masked_fill(scores.isfinite(), 0.0)


def _signs(numbers: Tensor) -> Tensor:
    """Finite numbers as -1, 0 and 1, float32."""
    wide = numbers.double()  # not float32, where small ones would vanish and large ones be infinite
    return torch.where(wide.isfinite(), wide.sign(), wide).float()


_TASKS = 1 << 12  # true scores computed at once


class TargetScores:
    """Scores of the targets of all tasks, float64 (P,), and bounds of their errors; 0 where ``kind`` is not finite."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._lattice_step, self.looked = 0.0, False
        self.group: Tensor | None = None  # of equal candidates, once ``look`` has looked for them
        # of one tile at a time
        self._tile: Tile | None = None
        self._bounds: dict[torch.dtype, tuple[Tensor, Tensor, Tensor]] = {}
        parts = []
        for task, tile in self._tiles():
            row, place = problem.row[task], torch.arange(len(task), device=task.device)
            odd = ~problem.queries.finite[row]
            if tile.special is not None:
                odd[tile.special] = True
            kind = torch.zeros(len(row), device=row.device)
            for i in odd.nonzero()[:, 0].tolist():
                one = slice(i, i + 1)
                kind[i] = classes(problem.queries.given[row[one]], tile, one)[0, 0]
            scores = scores_of_pairs(problem, tile, row, place).nan_to_num(0.0, 0.0, 0.0)
            parts.append((scores, kind, self._error_of(row, tile.each)))
        self.scores, self.kind, self.errors = (torch.cat(part) for part in zip(*parts, strict=True))

    def _error_of(self, row: Tensor, sizes: Sizes) -> Tensor:
        """Bound of the errors in float64 of the scores of rows with one candidate each."""
        norm, error = (part.index_select(0, row) for part in self._problem.queries.sizes(FLOAT64))
        return error_bound(FLOAT64, self._problem.width, sizes, norm, error, self._lattice_step)

    def _tiles(self) -> Iterator[tuple[Tensor, Tile]]:
        """The true candidates of some tasks at a time."""
        among = self._problem.among
        for task in torch.split(torch.arange(len(among), device=among.device), _TASKS):
            given, bias = rows_of(self._problem.tables, among[task])
            yield task, Tile(given, bias, slice(0, len(task)), self._problem.similarity)

    def bounds(self, tile: Tile, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Bound the error of a score of the tile and the true one together; and the interval that is left open."""
        if self._tile is not tile:
            self._tile, self._bounds = tile, {}
        if dtype not in self._bounds:
            norm, error = self._problem.queries.sizes(dtype)
            bound = error_bound(
                dtype, self._problem.width, tile.sizes(dtype), norm, error, self._lattice_step
            )
            bound = bound.index_select(0, self._problem.row) + self.errors
            self._bounds[dtype] = bound, *interval(dtype, self.scores, bound)
        return self._bounds[dtype]

    def signs(
        self, tile: Tile, task: Tensor, column: Tensor, scores: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compare scores of pairs by the bound of each candidate: int8 (n,), -1, 0 or 1; and whether 0 is certain."""
        row = self._problem.row[task]
        each = Sizes(*(numbers[column] for numbers in tile.each))
        bound = self._error_of(row, each) + self.errors[task]
        low, high = interval(FLOAT64, self.scores[task], bound)
        return (scores > high).to(torch.int8) - (scores < low).to(torch.int8), bound == 0

    def are_equal(self, task: Tensor, column: Tensor) -> Tensor:
        """Whether candidates, int64 (n,), are known to have the numbers of the true ones of tasks, bool (n,)."""
        own = self._problem.among[task]
        if self.group is not None:
            return self.group[column] == self.group[own]
        (one, bias), (other, other_bias) = (
            rows_of(self._problem.tables, index) for index in (column, own)
        )
        equal = (one == other).all(1)
        return equal if bias is None or other_bias is None else equal & (bias == other_bias)

    def look(self) -> None:
        """Look for equal candidates, and for numbers so coarse that products are exact."""
        problem, (self.group, step) = self._problem, self._problem.structure()
        self.looked = True
        of_queries = lattice_step_of(problem.queries.given)
        if problem.similarity != "cosine" and 0 < step < torch.inf and 0 < of_queries < torch.inf:
            of_products = step * of_queries
            if problem.similarity == "l2":
                of_products = min(of_products, step**2 / 2)
            biases = [bias[:, None] for _, bias in problem.tables if bias is not None]
            self._lattice_step = min([of_products, *(lattice_step_of(bias) / 2 for bias in biases)])
            self.errors = torch.cat(
                [self._error_of(problem.row[task], tile.each) for task, tile in self._tiles()]
            )
            self._tile = None


def scores_of_pairs(problem: Problem, tile: Tile, row: Tensor, column: Tensor) -> Tensor:
    """Scores of pairs of rows and candidates of a tile, in float64."""
    queries = problem.queries.wide
    scores: Tensor = problem.intervals.products(
        queries, tile.given.to(queries.dtype).contiguous(), row, column
    )
    if problem.similarity == "cosine":
        scores /= tile.length[column]
    return scores if tile.bias is None else scores.add_(tile.bias[column])
