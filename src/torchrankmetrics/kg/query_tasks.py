"""Ranking tasks by query."""

import copy
from itertools import accumulate

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import unique_rows
from torchrankmetrics.table.rank_table import RankTable


class QueryTasks:
    """Ranking tasks by query, so that each query is scored once.

    Attributes:
        queries: (Q, c) int64, each query once, sorted.
        row: (n,) int64, the query of each task.
        targets: (n,) int64, the target of each task.
    """

    def __init__(self, queries: Tensor, targets: Tensor) -> None:
        self.queries, self.row = unique_rows(queries)
        self.targets = targets
        self._order = self.row.argsort(stable=True)
        numbers = torch.bincount(self.row, minlength=len(self.queries))
        self._border = [0, *numbers.cumsum(0).tolist()]

    def __len__(self) -> int:
        return len(self.queries)

    def of(self, first: int, last: int) -> Tensor:
        """Return the tasks of the queries in [first, last), sorted by query."""
        return self._order[self._border[first] : self._border[last]]

    def part(self, queries: Tensor) -> "QueryTasks":
        """Select some of the queries, by their indices (b,), and their tasks."""
        part = copy.copy(self)
        tasks = [self.of(i, i + 1) for i in queries.tolist()]
        part.queries = self.queries[queries]
        part._order = torch.cat(tasks)
        part._border = [0, *accumulate(map(len, tasks))]
        place = torch.zeros_like(self.row[: len(self.queries)])
        place[queries] = torch.arange(len(queries), device=place.device)
        part.row = place[self.row]
        return part

    def in_order(self, table: RankTable) -> RankTable:
        """Sort the rows of all queries, one per task, in the order of the tasks."""
        return RankTable(table.rows[self._order.argsort()]) if len(table) else table
