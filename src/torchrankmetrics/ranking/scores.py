"""`rank_scores`: filtered ranks from a score matrix; and ranks from flat scores."""

from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.eager import eager
from torchrankmetrics.errors import suggest_keywords
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Array, as_ids, as_tensor, read_scores, sort_owners
from torchrankmetrics.ranking.counting import count
from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.ranks import Ranks, from_counts
from torchrankmetrics.ranking.tasks import Exclude, Target, read_gain, read_tasks, warn_of_empty_queries


@eager
@suggest_keywords
def rank_scores(
    scores: Tensor | Array,
    target: Target,
    *,
    exclude: Exclude = None,
    backend: str = "auto",
) -> Ranks:
    """Rank the true candidates of a batch among all columns that are not excluded.

    optimistic = 1 + #{j a candidate, j != target : s_j > s_target}; pessimistic with >=. The target is excluded by
    index. NaN never helps: a NaN target score ranks last, a NaN candidate counts as better. +-inf are ordinary scores.

    Args:
        scores (Tensor or array): (B, N), any real dtype and strides, higher is better; never modified or copied whole.
            An array is taken as a tensor on the CPU, for every argument.
        target (Tensor, list or tuple): (B,) integers, the column of the true candidate of each row. Or several true
            candidates per row, one ranking task each: a list of the columns of every row, or of dicts {column: label};
            bool or floating labels (B, N), also as a SciPy sparse matrix; a tuple (rows, columns); or integer pairs
            (2, P) of (row, column). Labels are the ``gain`` of the ranks, and 0 is not relevant. Integers of the shape
            of the scores, or (B, 1), are an error: they could be labels, pairs or columns.
        exclude (Tensor, list or tuple, default None): known positives, in every form of target except (B,) integers
            and floating labels, or as ``KnownTriples`` returns them; the target of a task is never excluded. Or bool
            (N,), True = not a candidate of any row: then an excluded target is an error.
        backend (str, default "auto"): "auto", "torch" or "numba" (extra ``fast``); the ranks are the same.

    Returns:
        ``Ranks`` with int64 (tasks,) tensors on the device of the scores.

    Raises:
        TypeError: if targets or pairs are not integers, or scores are complex.
        ValueError: if shapes or devices do not match, a form is ambiguous, or a target is excluded for all rows.
        IndexError: if a target or an excluded column is outside [0, N). On an accelerator the last two are raised at
            ``compute`` of the metric that takes the ranks, without a synchronisation here.

    Source: Berrendorf et al. 2020 (arXiv 2002.06914), sections 2 and 3.1.

    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]), exclude=[[0]])
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[2])
    """
    return rank_dense(read_scores(scores, "scores"), target, exclude, backend=backend)


def rank_dense(
    scores: Tensor,
    target: Target,
    exclude: Exclude | Excluded,
    *,
    backend: str = "auto",
    by_query: bool | None = None,
    name: str = "scores",
) -> Ranks:
    """Rank as ``rank_scores``; ``by_query`` as in ``read_tasks``, errors call the scores by ``name``."""
    if scores.ndim != 2:
        raise ValueError(f"{name} must be (B, N): one row of candidate scores per query; got {tuple(scores.shape)}")
    if scores.shape[1] == 0:
        raise ValueError(f"{name} must have at least one candidate (N >= 1), got shape {tuple(scores.shape)}")
    if scores.is_complex():
        raise TypeError(f"{name} must be real numbers, got {scores.dtype}")
    tasks = read_tasks(target, exclude, scores.shape, scores.device, by_query=by_query)
    if scores.requires_grad:
        scores = scores.detach()
    counts = count(scores, None, tasks.row, tasks.column, tasks.excluded, backend=backend)
    return from_counts(counts, tasks.flags, tasks.rows, tasks.gain)


def rank_flat(
    preds: Tensor, target: Any, indexes: Any, exclude: Any = None, backend: str = "auto"
) -> tuple[Ranks, Tensor]:
    """Rank the relevant items of the flat lists (T,) of torchmetrics' retrieval metrics; also return their indices.

    Arguments as of ``RankMetric.update`` with ``indexes``. Waits for an accelerator.
    """
    if preds.ndim != 1 or preds.is_complex():
        raise ValueError(f"preds must be real and (T,) with indexes, got {preds.dtype} {tuple(preds.shape)}")
    label = _flat(target, "target", preds)
    if label.is_complex():
        raise TypeError(f"target must hold real labels (T,), got {label.dtype}")
    owner = as_ids(_flat(indexes, "indexes", preds), "indexes")
    scores, places = preds.detach(), None  # places: of the candidates
    if exclude is not None:
        excluded = _flat(exclude, "exclude", preds)
        if excluded.dtype != torch.bool:
            raise TypeError(f"exclude must be bool (T,) with indexes, got {excluded.dtype}")
        if (excluded & (label != 0)).any():
            raise ValueError(
                "exclude must not contain relevant items of target: among flat scores it marks entries that are not "
                "candidates"
            )
        places = (~excluded).nonzero()[:, 0]
        scores, label, owner = scores[places], label[places], owner[places]
    ranks, place = rank_listed(scores, label != 0, owner, None, backend)
    assert ranks.rows is not None
    warn_of_empty_queries(*ranks.rows)
    ranks.gain = read_gain(label[place])
    return ranks, place if places is None else places[place]


def rank_listed(
    scores: Tensor, relevant: Tensor, query: Tensor, excluded: Tensor | None, backend: str = "auto"
) -> tuple[Ranks, Tensor]:
    """Rank the relevant items (T,) of lists, named by int64 ``query`` (T,), by scores (T,); also return their indices.

    The queries in ascending order are the rows of the ranks. An excluded item is a candidate of its own task only.
    """
    place, (order, owner) = relevant.nonzero()[:, 0], sort_owners(query)
    at = place
    if order is not None:  # where the sorted scores have the relevant items, in the order given
        scores, excluded = scores[order], None if excluded is None else excluded[order]
        at = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))[place]
    new = torch.ones_like(owner, dtype=torch.bool)
    new[1:] = owner[1:] != owner[:-1]
    first = new.nonzero()[:, 0]
    row = torch.searchsorted(first, at, right=True) - 1
    borders = torch.cat([first, first.new_tensor([len(owner)])])
    counts = count(scores, None, row, at - first[row], Excluded(cells=excluded), borders, backend=backend)
    flags = torch.full_like(place, fault.RAW)
    if excluded is not None:
        flags = torch.where(excluded[at], fault.FILTERED, fault.RAW)
    return from_counts(counts, flags, (row, len(first))), place


def _flat(values: Any, name: str, preds: Tensor) -> Tensor:
    tensor = as_tensor(values, name)
    if tensor.shape != preds.shape:
        raise ValueError(f"{name} must be (T,) = {tuple(preds.shape)} as preds, got {tuple(tensor.shape)}")
    return tensor.to(preds.device)
