"""The true scores in float64, and between which scores a precision cannot decide."""

from collections.abc import Iterator

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.bounds import error_bound, interval
from torchrankmetrics.ranking.certified.problem import Problem
from torchrankmetrics.ranking.certified.queries import Queries
from torchrankmetrics.ranking.certified.specials import class_of_pairs
from torchrankmetrics.ranking.certified.structure import grain_of
from torchrankmetrics.ranking.certified.tiles import FLOAT64, Sizes, Tile

_TASKS = 1 << 12  # true scores computed at once


class Truth:
    """True scores of all tasks.

    Attributes:
        kind: float32 (P,), 0 for a finite score, else NaN, inf or -inf.
        group: as ``Structure.group``, once it has been looked for.
        looked: whether it has.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._grain, self.looked = 0.0, False
        self._tile: Tile | None = None
        self.group: Tensor | None = None
        self._bounds: dict[torch.dtype, Tensor] = {}
        self._exact: dict[torch.dtype, Tensor | None] = {}
        self._intervals: dict[tuple[torch.dtype, torch.dtype], tuple[Tensor, Tensor]] = {}
        none = problem.queries.norm[:0]
        scores, kinds, errors = [none], [none.float()], [none]
        for task, tile, bias in self._tiles():
            row, place = problem.row[task], torch.arange(len(task), device=task.device)
            scores.append(scores_of_pairs(problem, tile, row, place))
            odd = ~problem.queries.finite[row]
            if tile.special is not None:
                odd[tile.special] = True
            kinds.append(class_of_pairs(problem.queries.given, tile.given, bias, problem.similarity, row, odd))
            errors.append(self._error_of(tile, row))
        self._scores, self.kind = torch.cat(scores).nan_to_num(0.0, 0.0, 0.0), torch.cat(kinds)
        self._errors = torch.cat(errors)

    def _error_of(self, tile: Tile, row: Tensor, column: Tensor | None = None) -> Tensor:
        """Bound of the errors in float64 of the scores of rows with the candidates of a tile, or with some of them."""
        sizes = tile.each if column is None else Sizes(*(numbers[column] for numbers in tile.each))
        norm, error = self._problem.queries.sizes(FLOAT64)
        return error_bound(
            FLOAT64, self._problem.width, sizes, norm.index_select(0, row), error.index_select(0, row), self._grain
        )

    def _tiles(self) -> Iterator[tuple[Tensor, Tile, Tensor | None]]:
        """The true candidates of some tasks at a time."""
        answers = self._problem.answers
        given, bias = answers.embeddings, answers.bias
        every = torch.arange(len(self._problem.row), device=self._problem.row.device)
        for task in torch.split(every, _TASKS):
            own = answers.place[task]
            added = None if bias is None else bias.index_select(0, own)
            yield task, Tile(given.index_select(0, own), added, slice(0, len(own)), self._problem.similarity), added

    def error(self, tile: Tile, dtype: torch.dtype) -> Tensor:
        """Bound of the error of a score of the tile and of the true one together, float64 (P,)."""
        if self._tile is not tile:  # of one tile at a time
            self._tile, self._bounds, self._intervals, self._exact = tile, {}, {}, {}
        if dtype not in self._bounds:
            norm, error = self._problem.queries.sizes(dtype)
            bound = error_bound(dtype, self._problem.width, tile.sizes(dtype), norm, error, self._grain)
            self._bounds[dtype] = bound.index_select(0, self._problem.row) + self._errors
        return self._bounds[dtype]

    def exact(self, tile: Tile, dtype: torch.dtype) -> Tensor | None:
        """Of which tasks scores of the tile in a precision are not rounded, bool (P,); None: of none."""
        error = self.error(tile, dtype)
        if dtype not in self._exact:
            exact = error == 0
            self._exact[dtype] = exact if bool(exact.any()) else None
        return self._exact[dtype]

    @property
    def scores(self) -> Tensor:
        """The true scores, float64 (P,), 0 for those that are no finite numbers."""
        return self._scores

    @property
    def errors(self) -> Tensor:
        """Bounds of their errors, float64 (P,)."""
        return self._errors

    def interval(self, tile: Tile, dtype: torch.dtype, numbers: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """What scores of a tile in a precision are not decided by, (P,) each: as ``bounds.interval`` gives it.

        They are compared as other numbers than those of the precision if these are said.
        """
        error, key = self.error(tile, dtype), (dtype, numbers or dtype)
        if key not in self._intervals:
            self._intervals[key] = interval(key[1], self._scores, error)
        return self._intervals[key]

    def signs(self, tile: Tile, task: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Compare pairs by the bound of each candidate: int8 (n,), -1, 0 or 1; and whether 0 is certain."""
        row = self._problem.row[task]
        bound = self._error_of(tile, row, column) + self._errors[task]
        low, high = interval(FLOAT64, self._scores[task], bound)
        scores = scores_of_pairs(self._problem, tile, row, column)
        return (scores > high).to(torch.int8) - (scores < low).to(torch.int8), bound == 0

    def look(self) -> None:
        """Look for equal candidates, and for numbers so coarse that products are exact."""
        problem, structure = self._problem, self._problem.structure()
        self.looked, self.group = True, structure.group
        grain = grain_of(problem.queries.given)
        if problem.similarity != "cosine" and 0 < structure.grain < torch.inf and 0 < grain < torch.inf:
            grain *= structure.grain
            if problem.similarity == "l2":
                grain = min(grain, structure.grain**2 / 2)
            for _, bias in problem.tables:
                if bias is not None:
                    grain = min(grain, grain_of(bias[:, None]) / 2)
            self._grain = grain
            errors = [self._error_of(tile, problem.row[task]) for task, tile, _ in self._tiles()]
            self._errors, self._tile = torch.cat([self._errors[:0], *errors]), None


def scores_of_pairs(problem: Problem, tile: Tile, row: Tensor, column: Tensor) -> Tensor:
    """Scores of pairs of rows and candidates of a tile, in float64."""
    scores = problem.intervals.products(*operands(problem.queries, tile), row, column)
    length, bias = tile.form
    scores = scores if length is None else scores / length[column]
    return scores if bias is None else scores + bias[column]


def operands(queries: Queries, tile: Tile) -> tuple[Tensor, Tensor]:
    """Queries and candidates as single products take them."""
    return queries.wide, tile.given.to(queries.wide.dtype).contiguous()
