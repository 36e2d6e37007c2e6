"""The true candidates in the forms people have them: a relevance matrix, a list per query, flat scores with indexes."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_ids, as_tensor
from torchrankmetrics.ranking.forms import GRADED, Cells
from torchrankmetrics.ranking.negatives import in_order
from torchrankmetrics.ranking.ranks import Ranks


def cells_of_labels(labels: Tensor, shape: tuple[int, ...]) -> Cells:
    """Find the answers in relevance labels (B, N), bool or floating with the values 0 and 1.

    Raises:
        ValueError: for another shape, and for graded relevance.
    """
    if labels.shape != shape:
        raise ValueError(f"target as labels must be (B, N) = {tuple(shape)}, got {labels.dtype} {tuple(labels.shape)}")
    if labels.dtype != torch.bool:
        if ((labels != 0) & (labels != 1)).any():
            raise ValueError(f"target of {labels.dtype} {tuple(labels.shape)} must hold 0 and 1: {GRADED}")
        labels = labels == 1
    return Cells(*labels.nonzero().unbind(1))


def warn_of_queries_without_answers(query: Tensor, num_queries: int) -> None:
    """Warn where a query has no answer, given the query (tasks,) of every answer; an accelerator is not waited for."""
    if query.is_cpu and not torch.bincount(query, minlength=num_queries).all():
        warn("queries without an answer are not counted: a row of target has none (see docs/retrieval.md)")


def rank_flat(preds: Tensor, target: Any, indexes: Any, exclude: Any = None) -> tuple[Ranks, Tensor]:
    """Rank the answers of queries whose candidates are flat, as torchmetrics' retrieval metrics take them.

    The other answers of a query are candidates; ties and NaN as in ``rank_scores``. One sort; as bool targets have no
    shape of their own, an accelerator is waited for.

    Args:
        preds: (T,) scores, higher is better.
        target: (T,) bool, or integers 0 and 1: which are answers.
        indexes: (T,) integers, the query of each; in any order, every query whole.
        exclude: bool (T,), True where a score is no candidate.

    Returns:
        The ranks of the answers, in the order given, and the places (tasks,) of the answers among the T.

    Raises:
        TypeError, ValueError: if shapes differ, the relevance is graded, or an answer is excluded.
    """
    if preds.ndim != 1 or preds.is_complex():
        raise ValueError(f"preds must be real and (T,) beside indexes, got {preds.dtype} {tuple(preds.shape)}")
    relevant = _flat(target, "target", preds)
    if relevant.dtype != torch.bool:
        if relevant.is_floating_point() or ((relevant != 0) & (relevant != 1)).any():
            raise ValueError(f"target must be bool (T,), or 0 and 1: {GRADED}")
        relevant = relevant == 1
    owner = as_ids(_flat(indexes, "indexes", preds), "indexes")
    scores, kept = preds.detach(), None
    if exclude is not None:
        excluded = _flat(exclude, "exclude", preds)
        if excluded.dtype != torch.bool:
            raise TypeError(f"exclude must be bool (T,) beside indexes, got {excluded.dtype}")
        if (excluded & relevant).any():
            raise ValueError("exclude must not hold answers of target: among flat scores it is what is no candidate")
        kept = (~excluded).nonzero()[:, 0]
        scores, relevant, owner = scores[kept], relevant[kept], owner[kept]
    _, query = torch.unique(owner, return_inverse=True)
    number = torch.bincount(query)
    warn_of_queries_without_answers(query[relevant], len(number))
    columns, nan = _places(scores, query, number, torch.ones_like(relevant))
    place = relevant.nonzero()[:, 0]
    flags = torch.full_like(place, fault.RAW) + fault.NAN * nan[place]
    ranks = Ranks.trusted(columns[:, place], flags, (query[place], len(number)))
    return ranks, place if kept is None else kept[place]


def rank_listed(scores: Tensor, relevant: Tensor, query: Tensor, excluded: Tensor) -> tuple[Ranks, Tensor]:
    """Rank the answers of lists of candidates: those that are excluded are none of the other answers' candidates.

    Args:
        scores: (T,) real, higher is better.
        relevant: (T,) bool, which are answers.
        query: (T,) int64 from 0 on, without holes; every query whole.
        excluded: (T,) bool, True = no candidate, or of an answer: no candidate beside another answer.

    Returns:
        The ranks of the answers, in the order given, and the places (tasks,) of the answers among the T.
    """
    columns, nan = _places(scores.detach(), query, torch.bincount(query), ~excluded)
    place = relevant.nonzero()[:, 0]
    flags = torch.where(excluded[place], fault.FILTERED, fault.RAW) + fault.NAN * nan[place]
    return Ranks.trusted(columns[:, place], flags), place


def _places(scores: Tensor, query: Tensor, number: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks of all T scores among those of their queries that count, int64 (3, T); and whether a NaN is among these."""
    scores = in_order(scores)
    is_nan = scores != scores
    order = scores.argsort(descending=True, stable=True)  # NaN first: a NaN candidate counts as better
    order = order[query[order].argsort(stable=True)]
    value, owner = scores[order], query[order]
    place = torch.arange(len(order), device=scores.device)
    new = torch.ones_like(owner, dtype=torch.bool)
    new[1:] = (owner[1:] != owner[:-1]) | (value[1:] != value[:-1])
    block = new.cumsum(0) - 1
    first = place[new]
    end = torch.cat([first[1:], first.new_tensor([len(order)])])
    before = torch.nn.functional.pad(counted[order].cumsum(0), (1, 0))  # how many count up to a place
    last = number.cumsum(0)
    begin = before[(last - number)[owner]]
    alone = (~counted[order]).long()  # what does not count is a candidate of its own task
    low, high = before[first[block]] - begin + 1, before[end[block]] - begin + alone
    columns = torch.empty(3, len(order), dtype=torch.int64, device=scores.device)
    columns[:, order] = torch.stack([low, high, before[last[owner]] - begin + alone])
    columns[:2] = torch.where(is_nan, columns[2], columns[:2])
    wrong = is_nan & counted
    nan = torch.zeros_like(number, dtype=torch.bool).index_put_((query[wrong],), wrong[wrong])
    return columns, nan[query] | is_nan


def _flat(values: Any, name: str, preds: Tensor) -> Tensor:
    tensor = as_tensor(values, name)
    if tensor.shape != preds.shape:
        raise ValueError(f"{name} must be (T,) = {tuple(preds.shape)} as preds, got {tuple(tensor.shape)}")
    return tensor.to(preds.device)
