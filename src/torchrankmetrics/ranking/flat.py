"""Ranks among flat candidates: scores (T,) with the query of each, counted list by list."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_ids, as_tensor
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.forms import read_gain
from torchrankmetrics.ranking.negatives import sort_owners
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.tasks import warn_of_empty_queries


def rank_flat(
    preds: Tensor, target: Any, indexes: Any, exclude: Any = None, backend: str = "auto"
) -> tuple[Ranks, Tensor]:
    """Rank the relevant items of queries whose candidates are flat, the input of torchmetrics' retrieval metrics.

    The other relevant items of a query are candidates; ties and NaN as in ``rank_scores``. Waits for an accelerator.

    Args:
        preds: (T,) scores, higher is better.
        target: (T,) bool, True for relevant items; or numbers, labels of at least 0.
        indexes: (T,) integers, the query of each; in any order, every query complete.
        exclude: bool (T,), True for scores that are not candidates.
        backend: as in ``rank_scores``.

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
    ranks, place = _rank_lists(scores, relevant, owner, None, backend)
    assert ranks.rows is not None
    warn_of_empty_queries(*ranks.rows)
    ranks.gain = None if label.dtype == torch.bool else read_gain(label[place])
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
    ranks, place = _rank_lists(scores.detach(), relevant, query, excluded, "auto")
    return Ranks.trusted(ranks.columns, ranks.flags), place


def _rank_lists(
    scores: Tensor, relevant: Tensor, owner: Tensor, excluded: Tensor | None, backend: str
) -> tuple[Ranks, Tensor]:
    """Rank relevant items (T,) in the lists of their owners, which are the rows in ascending order; and find them."""
    place, (order, owner) = relevant.nonzero()[:, 0], sort_owners(owner)
    at = place
    if order is not None:  # where the sorted scores have the relevant items, in the order given
        scores, excluded = scores[order], None if excluded is None else excluded[order]
        at = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))[place]
    new = torch.ones_like(owner, dtype=torch.bool)
    new[1:] = owner[1:] != owner[:-1]
    first = new.nonzero()[:, 0]
    row = torch.searchsorted(first, at, right=True) - 1
    borders = torch.cat([first, first.new_tensor([len(owner)])])
    counts = choose(scores, backend).count_lists(scores, borders, row, None, at - first[row], excluded)
    flags = torch.full_like(place, fault.RAW)
    if excluded is not None:
        flags = torch.where(excluded[at], fault.FILTERED, fault.RAW)
    return Ranks.from_counts(counts, flags, (row, len(first))), place


def _flat(values: Any, name: str, preds: Tensor) -> Tensor:
    tensor = as_tensor(values, name)
    if tensor.shape != preds.shape:
        raise ValueError(f"{name} must be (T,) = {tuple(preds.shape)} as preds, got {tuple(tensor.shape)}")
    return tensor.to(preds.device)
