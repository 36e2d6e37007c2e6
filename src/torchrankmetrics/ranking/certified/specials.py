"""Scores that are no finite numbers: their class, NaN, inf or -inf, by exact arithmetic, where sums never overflow."""

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified import problem as sizes
from torchrankmetrics.ranking.certified.problem import Problem, Tally
from torchrankmetrics.ranking.certified.tiles import Tile
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.excluded import Excluded


def count_specials(problem: Problem, kind: Tensor, tally: Tally, tile: Tile) -> None:
    """Count what is no finite number in a tile: all scores of such queries, and of others those of such candidates.

    Args:
        problem: what is ranked.
        kind: (P,) of the true scores: 0 for a finite one, else NaN, inf or -inf.
        tally: where it is counted.
        tile: some of the candidates.
    """
    finite = problem.queries.finite
    if not bool(finite.all()):
        every = torch.arange(len(tile), device=finite.device)
        _count(problem, kind, tally, tile, (~finite).nonzero()[:, 0], every)
    if tile.special is not None:
        _count(problem, kind, tally, tile, finite.nonzero()[:, 0], tile.special)


def _count(problem: Problem, kind: Tensor, tally: Tally, tile: Tile, rows: Tensor, columns: Tensor) -> None:
    bias = problem.candidates.bias
    added = None if bias is None else bias[tile.left : tile.right][columns]
    for some in torch.split(rows, max(1, sizes.CELLS // len(tile))):
        task = torch.isin(problem.row, some).nonzero()[:, 0]
        if not len(task):
            continue
        out = torch.zeros(len(some), len(tile), device=some.device)
        problem.excluded.of(slice(tile.left, tile.right), some).fill(out, slice(0, len(tile)), 1.0)
        scores = classes(problem.queries.given[some], tile.given[columns], added, problem.similarity)
        place = torch.searchsorted(some, problem.row[task])
        own = torch.searchsorted(columns, problem.column[task] - tile.left).clamp(max=len(columns) - 1)
        own = torch.where(columns[own] == problem.column[task] - tile.left, own, -1)
        count = choose(scores, problem.backend)
        better, not_worse, others, nan = count(scores, kind[task], place, own, Excluded(cells=out[:, columns] != 0))
        tally.above[task] += better
        tally.tied[task] += not_worse - better
        tally.special[task] += others
        tally.nan[task] += nan


def classes(queries: Tensor, candidates: Tensor, bias: Tensor | None, similarity: str) -> Tensor:
    """Class of every score, float32 (B, n): NaN, inf, -inf, or 0 for a finite one.

    What is infinite or NaN follows IEEE arithmetic on the exact terms: inf - inf and 0 inf are NaN. l2 is that of
    -|q - e|^2, cosine that of q.e / |e|, NaN for a vector of zeros.
    """
    q, e = _signs(queries), _signs(candidates)
    if similarity == "l2":
        scores = torch.zeros(len(q), len(e), device=q.device)
        both = sum(((q == sign).float() @ (e == sign).float().T for sign in (torch.inf, -torch.inf)), scores)
        scores.masked_fill_(q.isinf().any(1)[:, None] | e.isinf().any(1), -torch.inf)
        scores.masked_fill_((both != 0) | q.isnan().any(1)[:, None] | e.isnan().any(1), torch.nan)
    else:
        scores = q @ e.T
        if similarity == "cosine":
            scores = scores / torch.where(e.isinf().any(1), torch.inf, e.abs().sum(1))
    if bias is not None:
        scores = scores + _signs(bias)
    return scores.masked_fill(scores.isfinite(), 0.0)


def class_of_pairs(
    queries: Tensor, candidates: Tensor, bias: Tensor | None, similarity: str, row: Tensor, odd: Tensor
) -> Tensor:
    """``classes`` of the queries in rows (n,) with candidate i each: (n,); those that are not odd, bool (n,), are 0."""
    found = torch.zeros(len(row), device=queries.device)
    for i in odd.nonzero()[:, 0].tolist():
        own, one = row[i : i + 1], slice(i, i + 1)
        found[i] = classes(queries[own], candidates[one], None if bias is None else bias[one], similarity)[0, 0]
    return found


def _signs(numbers: Tensor) -> Tensor:
    """Finite numbers as -1, 0 and 1, float32."""
    wide = numbers.double()  # not float32, where small ones would vanish and large ones be infinite
    return torch.where(wide.isfinite(), wide.sign(), wide).float()
