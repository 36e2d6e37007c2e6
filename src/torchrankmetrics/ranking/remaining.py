"""How many candidates a task has beside its true one, once what is excluded is left out."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting.plain import num_excluded
from torchrankmetrics.ranking.excluded import Excluded


class Remaining(NamedTuple):
    """Candidates [left, right) of a (B, N) matrix without what is excluded.

    Attributes:
        own: bool (P,), whether the true candidate of a task is excluded from the tasks of the others.
        others: int64 (P,), the candidates of a task in [left, right), its true one left out.
        cells: rows and columns of the slices in [left, right) that are not excluded for all rows, int64 (entries,).
    """

    own: Tensor
    others: Tensor
    cells: tuple[Tensor, Tensor] | None


def said_of(excluded: Excluded, num_columns: int) -> dict[str, Tensor | None]:
    """What is excluded, by name, in an order of its own: for processes that have to be given the same."""
    pairs = None
    if excluded.slices is not None:
        rows, place = excluded.slices.entries()
        pairs = (rows * num_columns + excluded.slices.columns[place]).sort().values
    return {"exclude": pairs, "exclude, as a mask,": excluded.cells, "candidates of all queries": excluded.columns}


def remaining(
    excluded: Excluded, row: Tensor, column: Tensor, shape: tuple[int, int], left: int, right: int
) -> Remaining:
    """Count for tasks in rows (P,) with true candidates (P,), int64, columns of all N."""
    B, N = shape
    cells: tuple[Tensor, Tensor] | None = None
    number = torch.zeros(B, dtype=torch.int64, device=row.device)
    own = torch.zeros_like(row, dtype=torch.bool)
    if excluded.slices is not None:
        rows, place = excluded.slices.entries()
        columns = excluded.slices.columns[place]
        own |= _among(row * N + column, rows * N + columns)
        if excluded.columns is not None:
            free = ~excluded.columns[columns]
            rows, columns = rows[free], columns[free]
        if right - left < N:
            here = (columns >= left) & (columns < right)
            rows, columns = rows[here], columns[here]
        number.index_add_(0, rows, torch.ones_like(rows))
        cells = rows, columns
    if excluded.cells is not None:
        number += num_excluded(excluded.cells[:, left:right], None, B)
        own |= excluded.cells[row, column]
    if excluded.columns is not None:
        number += excluded.columns[left:right].sum()
        own |= excluded.columns[column]
    others = right - left - number[row]
    if right - left < N:
        held = (column >= left) & (column < right)
        return Remaining(own, others - (held & ~own).long(), cells)
    return Remaining(own, others - 1 + own.long(), cells)


def _among(wanted: Tensor, keys: Tensor) -> Tensor:
    """Which are among the keys, bool."""
    if not bool((keys[1:] >= keys[:-1]).all()):
        return torch.isin(wanted, keys)
    # in order, as known triples give them, a search takes a tenth of the time
    place = torch.searchsorted(keys, wanted).clamp_(max=max(len(keys) - 1, 0))
    return keys[place] == wanted if len(keys) else torch.zeros_like(wanted, dtype=torch.bool)
