"""The k best candidates of queries, filtered as their ranks are."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded
from torchrankmetrics.ranking.similarities import SIMILARITIES
from torchrankmetrics.ranking.tiles import best_scores

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

Cells = tuple[Tensor, Tensor]
"""Rows and columns of scores, int64 (P,) each."""


class Best(NamedTuple):
    """The best candidates of queries, best first, on the CPU."""

    ids: Tensor  # (B, k) int64, the candidates; -1 if a query has fewer
    scores: Tensor  # (B, k) float64, the scores of the model; NaN for missing candidates
    correct: Tensor  # (B, k) bool, whether the candidate is a target of the query

    @classmethod
    def empty(cls, k: int) -> "Best":
        """Return the best candidates of no queries."""
        dtypes = (torch.int64, torch.float64, torch.bool)
        return cls(*(torch.empty(0, k, dtype=dtype, device="cpu") for dtype in dtypes))


def best_candidates(
    scores: Tensor,
    target: Cells,
    excluded: Excluded,
    k: int,
    original: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Best:
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
    return Best(
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
) -> Best:
    """Find the k best candidates (N, d) of each query (B, d) by their scores of pairs.

    Other arguments are those of ``best_candidates``.
    """
    out, _ = cells_of((len(queries), len(candidates)), target, excluded)
    scores = best_scores(queries, candidates, similarity, backend, out, k)
    shown = SIMILARITIES[similarity].shown
    return best_candidates(scores, target, excluded, k, shown)


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
