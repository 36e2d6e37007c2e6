"""What is no candidate of a query, tile by tile: the cells that are never counted, and how many candidates remain."""

import torch
from torch import Tensor

from torchrankmetrics.ranking.excluded import Excluded
from torchrankmetrics.ranking.parallel.part import Part
from torchrankmetrics.ranking.remaining import remaining


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
            order = (columns // width).argsort(stable=True)
            self._row, self._column = rows[order], columns[order]
            edges = torch.arange(-(-len(part) // width) + 1, device=row.device)
            self._border = torch.searchsorted(self._column // width, edges).tolist()

    def fill(self, scores: Tensor, number: int, columns: slice, rows: Tensor, value: float) -> None:
        """Write a value into the excluded cells of a tile (rows, n), its number and its columns given; rows ascend."""
        if self._restriction is not None:
            scores.masked_fill_(self._restriction[columns], value)
        if self._mask is not None:
            scores.masked_fill_(self._mask[rows, columns], value)
        if self._border is None or not len(rows):
            return
        here = slice(self._border[number], self._border[number + 1])
        row, column = self._row[here], self._column[here] - columns.start
        first, last = int(rows[0]), int(rows[-1])
        begin, end = torch.searchsorted(row, torch.tensor([first, last + 1], device=row.device)).tolist()
        row, column = row[begin:end] - first, column[begin:end]
        if last - first + 1 != len(rows):
            place = torch.full((last - first + 1,), -1, device=row.device)
            place[rows - first] = torch.arange(len(rows), device=row.device)
            asked = place[row] >= 0
            row, column = place[row[asked]], column[asked]
        scores.view(-1).index_fill_(0, row * scores.shape[1] + column, value)
