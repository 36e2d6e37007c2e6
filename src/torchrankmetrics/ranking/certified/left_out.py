"""What is no candidate of a query, block by block: the cells that are never counted, and how many candidates remain."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.excluded import Excluded
from torchrankmetrics.ranking.parallel.part import Part
from torchrankmetrics.ranking.remaining import remaining

BLOCK = 1024  # columns of a tile that are looked at together, or a multiple


class LeftOut:
    """Excluded cells of a (B, n) part of a matrix that never exists, for tiles of so many columns.

    Attributes:
        own: bool (P,), whether the true candidate of a task is excluded from the tasks of the others.
        others: int64 (P,), the candidates of a task in this part, its true one left out.
        total: int64 (P,), the same of all parts.
    """

    def __init__(self, excluded: Excluded, row: Tensor, column: Tensor, num_rows: int, width: int, part: Part) -> None:
        shape, here = (num_rows, part.total), slice(part.first, part.last)
        self._mask = None if excluded.mask is None else excluded.mask[:, here]
        self._restriction = None if excluded.restriction is None else excluded.restriction[here]
        self._row = self._column = row[:0]
        self._border: list[int] | None = None
        self.own, self.others, cells = remaining(excluded, row, column, shape, part.first, part.last)
        self.total = self.others
        if not part.is_whole:
            self.total = remaining(excluded, row, column, shape, 0, part.total).others
        if cells is not None:
            rows, columns = cells
            if part.first:
                columns = columns - part.first
            self._width, self._blocks = width, -(-width // BLOCK)  # of a tile
            block = self._block_of(columns)
            order = block.argsort(stable=True)
            self._row, self._column = rows[order], columns[order]
            edges = torch.arange(self._blocks * -(-len(part) // width) + 1, device=row.device)
            self._border = torch.searchsorted(block[order], edges).tolist()

    def _block_of(self, column: Any) -> Any:
        return column // self._width * self._blocks + column % self._width // BLOCK

    def fill(self, scores: Tensor, columns: slice, rows: Tensor, value: float) -> None:
        """Write a value into the excluded cells of some blocks (rows, n) of a tile, whose columns are given; rows ascend."""
        if self._restriction is not None:
            scores.masked_fill_(self._restriction[columns], value)
        if self._mask is not None:
            scores.masked_fill_(self._mask[rows, columns], value)
        if self._border is None or not len(rows):
            return
        begin, end = self._block_of(columns.start), self._block_of(columns.stop - 1) + 1
        here = slice(self._border[begin], self._border[end])
        row, column, first, last = self._row[here], self._column[here], int(rows[0]), int(rows[-1])
        if end - begin == 1:  # in the order of their rows
            bounds = torch.tensor([first, last + 1], device=row.device)
            some = slice(*torch.searchsorted(row, bounds).tolist())
            row, column = row[some], column[some]
        if end - begin > 1 or last - first + 1 != len(rows):
            place = torch.full((last - first + 3,), -1, device=row.device)
            place[rows - first + 1] = torch.arange(len(rows), device=row.device)
            row = place[(row - first + 1).clamp(0, last - first + 2)]
            row, column = row[row >= 0], column[row >= 0]
        else:
            row = row - first
        scores.view(-1).index_fill_(0, row * scores.shape[1] + (column - columns.start), value)
