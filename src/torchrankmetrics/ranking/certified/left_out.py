"""What is no candidate of a query, tile by tile: the cells that are never counted, and how many candidates remain."""

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting.plain import _num_excluded
from torchrankmetrics.ranking.excluded import Excluded


class LeftOut:
    """Excluded cells of a (B, N) matrix that never exists, for tiles of so many columns.

    Attributes:
        own: bool (P,), whether the true candidate of a task is excluded from the tasks of the others.
        others: int64 (P,), the candidates of a task beside its true one.
    """

    def __init__(self, excluded: Excluded, row: Tensor, column: Tensor, shape: tuple[int, int], width: int) -> None:
        B, N = shape
        self._mask, self._restriction = excluded.mask, excluded.restriction
        self._row = self._column = row[:0]
        self._border: list[int] | None = None
        number = torch.zeros(B, dtype=torch.int64, device=row.device)
        self.own = torch.zeros_like(row, dtype=torch.bool)
        if excluded.known is not None:
            rows, place = excluded.known.entries()
            columns = excluded.known.columns[place]
            self.own |= torch.isin(row * N + column, rows * N + columns)
            if self._restriction is not None:
                free = ~self._restriction[columns]
                rows, columns = rows[free], columns[free]
            number.index_add_(0, rows, torch.ones_like(rows))
            order = (columns // width).argsort(stable=True)
            self._row, self._column = rows[order], columns[order]
            edges = torch.arange(-(-N // width) + 1, device=row.device)
            self._border = torch.searchsorted(self._column // width, edges).tolist()
        if self._mask is not None:
            number += _num_excluded(self._mask, None, B)
            self.own |= self._mask[row, column]
        if self._restriction is not None:
            number += self._restriction.sum()
            self.own |= self._restriction[column]
        self.others = N - 1 - number[row] + self.own.long()

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
