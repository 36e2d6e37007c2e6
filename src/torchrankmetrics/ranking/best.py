"""The k best candidates of queries, filtered as their ranks are."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded
from torchrankmetrics.ranking.similarities import SIMILARITIES
from torchrankmetrics.ranking.tasks import Tasks
from torchrankmetrics.ranking.tile_ranks import best_scores

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

_CELLS = 1 << 22  # scores of embeddings in memory at once

Cells = tuple[Tensor, Tensor]
"""Rows and columns of scores, int64 (P,) each."""


class BestCandidates(NamedTuple):
    """The best candidates of queries, best first, on the CPU.

    >>> import torch
    >>> from torchrankmetrics import rank_embeddings
    >>> queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> candidates = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    >>> rank_embeddings(queries, candidates, torch.tensor([0, 2]), top_k=2).answers.ids
    tensor([[0, 2],
            [1, 2]])
    """

    ids: Tensor  # (B, k) int64, the candidates; -1 if a query has fewer
    scores: Tensor  # (B, k) float64, the scores of the model; NaN for missing candidates
    correct: Tensor  # (B, k) bool, whether the candidate is a target of the query

    @classmethod
    def empty(cls, k: int) -> "BestCandidates":
        """Return the best candidates of no queries."""
        dtypes = (torch.int64, torch.float64, torch.bool)
        return cls(*(torch.empty(0, k, dtype=dtype, device="cpu") for dtype in dtypes))

    @classmethod
    def concatenate(cls, parts: "Sequence[BestCandidates]") -> "BestCandidates":
        """Return the best candidates of several batches."""
        return cls(*(torch.cat(column) for column in zip(*parts, strict=True)))


def best_candidates(
    scores: Tensor,
    target: Cells,
    excluded: Excluded,
    k: int,
    original: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> BestCandidates:
    """Find the k best candidates of each query.

    Args:
        scores: (B, N), higher is better.
        target: (row, column) of the targets of all queries, int64 (tasks,) each.
        excluded: candidates that are excluded, unless they are targets.
        k: number of candidates.
        original: turns scores into those that are shown, such as distances.
    """
    out, correct = (cells.to(scores.device) for cells in cells_of(scores.shape, target, excluded))
    values = _without(scores, out)
    chosen = _chosen_cells(values, ~out, min(k, scores.shape[1]))
    row, column = chosen.nonzero(as_tuple=True)  # by row, then by id

    # stable sorts: by row, then from the largest value, then by id
    order = values[row, column].argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    column = column[order]

    number = chosen.sum(1)
    first = number.cumsum(0) - number
    cells = row, torch.arange(len(row), device=row.device) - first[row]
    found = original(scores[row, column]).double()
    shape = (len(scores), k)
    return BestCandidates(
        _filled(shape, -1, cells, column),
        _filled(shape, torch.nan, cells, found),
        _filled(shape, False, cells, correct[row, column]),
    )


def best_of_embeddings(
    queries: Tensor,
    candidates: "Candidates",
    similarity: str,
    backend: str,
    target: Cells,
    excluded: Excluded,
    k: int,
) -> BestCandidates:
    """Find the k best candidates (N, d) of each query (B, d) by their scores of pairs.

    Other arguments are those of ``best_candidates``.
    """
    out, _ = cells_of((len(queries), len(candidates)), target, excluded)
    scores = best_scores(queries, candidates, similarity, backend, out, k)
    original = SIMILARITIES[similarity].as_documented
    return best_candidates(scores, target, excluded, k, original)


def best_of_tasks(
    queries: Tensor,
    candidates: "Candidates",
    similarity: str,
    backend: str,
    tasks: Tasks,
    k: int,
) -> BestCandidates:
    """Find the k best candidates of each query, some queries at a time."""
    parts = [BestCandidates.empty(k)]
    number = max(1, _CELLS // len(candidates))
    row = tasks.row_of_each
    for first in range(0, len(queries), number):
        rows = slice(first, first + number)
        inside = (row >= first) & (row < first + number)
        target = row[inside] - first, tasks.column[inside]
        excluded = _of_rows(tasks.excluded, rows)
        given = queries[rows], candidates, similarity, backend
        parts.append(best_of_embeddings(*given, target, excluded, k))
    return BestCandidates.concatenate(parts)


def _of_rows(excluded: Excluded, rows: slice) -> Excluded:
    """Return what is excluded for some queries."""
    slices = excluded.slices
    cells = excluded.cells
    if slices is not None:
        slices = replace(slices, start=slices.start[rows], length=slices.length[rows])
    if cells is not None:
        cells = cells[rows]
    return Excluded(slices, cells, excluded.columns)


def cells_of(shape: tuple[int, ...], target: Cells, excluded: Excluded) -> tuple[Tensor, Tensor]:
    """Mark the cells that are not candidates, and the targets, which are: bool (B, N) each."""
    correct = torch.zeros(shape, dtype=torch.bool, device=target[0].device)
    correct[target] = True
    out = torch.zeros_like(correct) if excluded.cells is None else excluded.cells.clone()
    if excluded.slices is not None:
        out[tuple(excluded.slices.pairs())] = True
    out &= ~correct
    if excluded.columns is not None:
        out |= excluded.columns
    return out, correct


def _without(scores: Tensor, out: Tensor) -> Tensor:
    """Give cells that are not candidates, and NaN scores, the lowest value."""
    if scores.is_floating_point():
        return scores.masked_fill(out | scores.isnan(), -torch.inf)
    return scores.masked_fill(out, torch.iinfo(scores.dtype).min)


def _chosen_cells(values: Tensor, is_candidate: Tensor, k: int) -> Tensor:
    """Return the k largest candidates of each row, bool (B, N); of ties the smallest ids."""
    least = values.topk(k, dim=1).values[:, -1:]
    above = values > least
    level = (values == least) & is_candidate
    missing = k - above.sum(1, keepdim=True)
    return above | (level & (level.cumsum(1) <= missing))


def _filled(shape: tuple[int, int], missing: float, cells: Cells, values: Tensor) -> Tensor:
    """Return a table of values in cells, and of the missing value elsewhere, on the CPU."""
    table = torch.full(shape, missing, dtype=values.dtype, device=values.device)
    return table.index_put_(cells, values).cpu()
