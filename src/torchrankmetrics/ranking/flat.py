"""Ranks among flat candidates: scores (T,) with the query of each, ranked by one sort."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_ids, as_tensor
from torchrankmetrics.ranking.forms import read_gain
from torchrankmetrics.ranking.negatives import in_order
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.tasks import warn_of_empty_queries


def rank_flat(preds: Tensor, target: Any, indexes: Any, exclude: Any = None) -> tuple[Ranks, Tensor]:
    """Rank the relevant items of queries whose candidates are flat, the input of torchmetrics' retrieval metrics.

    The other relevant items of a query are candidates; ties and NaN as in ``rank_scores``. Waits for an accelerator.

    Args:
        preds: (T,) scores, higher is better.
        target: (T,) bool, True for relevant items; or numbers, labels of at least 0.
        indexes: (T,) integers, the query of each; in any order, every query complete.
        exclude: bool (T,), True for scores that are not candidates.

    Returns:
        The ranks of the relevant items, in the order given, and their indices (tasks,) among the T.
    """
    if preds.ndim != 1 or preds.is_complex():
        raise ValueError(f"preds must be real and (T,) with indexes, got {preds.dtype} {tuple(preds.shape)}")
    label = _flat(target, "target", preds)
    if label.is_complex():
        raise TypeError(f"target must hold real labels (T,), got {label.dtype}")
    relevant = label != 0
    owner = as_ids(_flat(indexes, "indexes", preds), "indexes")
    scores, places = preds.detach(), None
    if exclude is not None:
        excluded = _flat(exclude, "exclude", preds)
        if excluded.dtype != torch.bool:
            raise TypeError(f"exclude must be bool (T,) with indexes, got {excluded.dtype}")
        if (excluded & relevant).any():
            raise ValueError(
                "exclude must not contain relevant items of target: among flat scores it marks entries that are not "
                "candidates"
            )
        places = (~excluded).nonzero()[:, 0]
        scores, label, relevant, owner = scores[places], label[places], relevant[places], owner[places]
    _, query = torch.unique(owner, return_inverse=True)
    number = torch.bincount(query)
    warn_of_empty_queries(query[relevant], len(number))
    columns, nan = _ranked(scores, query, number, torch.ones_like(relevant))
    place = relevant.nonzero()[:, 0]
    flags = torch.full_like(place, fault.RAW) + fault.NAN * nan[place]
    gain = None if label.dtype == torch.bool else read_gain(label[place])
    ranks = Ranks.trusted(columns[:, place], flags, (query[place], len(number)), gain)
    return ranks, place if places is None else places[place]


def rank_listed(scores: Tensor, relevant: Tensor, query: Tensor, excluded: Tensor) -> tuple[Ranks, Tensor]:
    """Rank the relevant items of lists of candidates; an excluded item is a candidate of its own task only.

    Args:
        scores: (T,) real, higher is better.
        relevant: (T,) bool.
        query: (T,) int64 from 0 on, without gaps; every query complete.
        excluded: (T,) bool.

    Returns:
        The ranks of the relevant items, in the order given, and their indices (tasks,) among the T.
    """
    columns, nan = _ranked(scores.detach(), query, torch.bincount(query), ~excluded)
    place = relevant.nonzero()[:, 0]
    flags = torch.where(excluded[place], fault.FILTERED, fault.RAW) + fault.NAN * nan[place]
    return Ranks.trusted(columns[:, place], flags), place


def _ranked(scores: Tensor, query: Tensor, number: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Rank all T scores among the counted ones of their queries, int64 (3, T); and find NaN in the query, bool (T,)."""
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
    before = torch.nn.functional.pad(counted[order].cumsum(0), (1, 0))  # counted scores before a place
    last = number.cumsum(0)
    begin = before[(last - number)[owner]]
    alone = (~counted[order]).long()  # an excluded item is a candidate of its own task
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
