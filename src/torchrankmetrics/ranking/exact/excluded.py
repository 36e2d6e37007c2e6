"""Excluded candidates of each tile, and the number of remaining candidates."""

from itertools import pairwise

import torch
from torch import Tensor

from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.shards import Shard

BLOCK = 1024  # columns of a tile that are filled at once, or a multiple


class ExcludedTiles:
    """Excluded cells of a (B, n) part of a matrix that never exists, for tiles of so many columns.

    Attributes:
        own: bool (P,), whether the true candidate of a task is excluded from the tasks of the others.
        others: int64 (P,), the candidates of a task in this part, its true one left out.
        total: int64 (P,), the same of all parts.
    """

    def __init__(self, excluded: Excluded, row: Tensor, column: Tensor, num_rows: int, width: int, part: Shard) -> None:
        _, here = excluded._replace(slices=None).split(part.first)
        self._excluded, _ = here.split(len(part))
        self._cells: list[tuple[Tensor, Tensor]] = []
        self._width = width
        self.own = excluded.lists(row, column)
        self.others = excluded.num_others(row, column, num_rows, part.first, part.last)
        cells = excluded.between(part.first, part.last)
        self.total = self.others
        if not part.is_whole:
            self.total = excluded.num_others(row, column, num_rows, 0, part.total)
        if cells is not None:
            rows, columns = cells
            if not bool((rows[1:] >= rows[:-1]).all()):
                rows, order = rows.sort(stable=True)
                columns = columns[order]
            columns = columns - part.first if part.first else columns
            # of each tile in the order of their rows
            number = -(-len(part) // width)
            self._cells = _parted(columns // width, number, rows, columns)

    def of(self, columns: slice, rows: Tensor) -> "ExcludedCells":
        """The cells of a tile, its columns given, and of some rows, ascending."""
        cells = self._cells[columns.start // self._width] if self._cells else None
        by_row, of_all = self._excluded.cells, self._excluded.columns
        by_row, of_all = (
            by_row if by_row is None else by_row[rows, columns],
            of_all if of_all is None else of_all[columns],
        )
        excluded = Excluded(cells=by_row, columns=of_all)
        if cells is None or not len(rows):
            return ExcludedCells(excluded, None)
        row, column = cells
        first, last = rows[0], rows[-1]
        if int(last - first) + 1 == len(rows):
            some = slice(*torch.searchsorted(row, torch.stack([first, last + 1])).tolist())
            row, column = row[some] - first, column[some] - columns.start
        else:
            begin = torch.searchsorted(row, rows)
            number = torch.searchsorted(row, rows, right=True) - begin
            row = torch.arange(len(rows), device=rows.device).repeat_interleave(number)
            place = torch.arange(len(row), device=rows.device) + (begin - number.cumsum(0) + number)[row]
            column = column[place] - columns.start
        blocks = -(-(columns.stop - columns.start) // BLOCK)
        return ExcludedCells(excluded, _parted(column // BLOCK, blocks, row, column))


class ExcludedCells:
    """Excluded cells of some rows of a tile, block by block."""

    def __init__(self, excluded: Excluded, parts: list[tuple[Tensor, Tensor]] | None) -> None:
        self._excluded, self._parts = excluded, parts

    def fill(self, scores: Tensor, columns: slice, value: float) -> None:
        """Write a value into those of the scores (rows, n) of some columns of the tile, from one block to another."""
        if self._excluded.columns is not None:
            scores.masked_fill_(self._excluded.columns[columns], value)
        if self._excluded.cells is not None:
            scores.masked_fill_(self._excluded.cells[:, columns], value)
        if self._parts is not None:
            for row, column in self._parts[columns.start // BLOCK : -(-columns.stop // BLOCK)]:
                scores.view(-1).index_fill_(0, row * scores.shape[1] + (column - columns.start), value)


def _parted(of: Tensor, number: int, row: Tensor, column: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Cells by a number of theirs, each below so many; their order stays."""
    if number == 1:
        return [(row, column)]
    of, order = of.to(torch.int16 if number < 1 << 15 else torch.int64).sort(stable=True)  # small ones faster
    border = torch.searchsorted(of, torch.arange(number + 1, dtype=of.dtype, device=of.device)).tolist()
    row, column = row[order], column[order]
    return [(row[a:b], column[a:b]) for a, b in pairwise(border)]
