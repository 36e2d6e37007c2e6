"""The true candidates in the forms people have them: a relevance matrix, a list per query, flat scores with indexes."""

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_ids, as_tensor, check_dense
from torchrankmetrics.ranking.negatives import in_order
from torchrankmetrics.ranking.ranks import Ranks

_GRADED = (
    "graded relevance is not taken: an answer is true or not. Pass bool, for example target > 0, and metrics of binary "
    "relevance"
)


def as_target(target: Any, shape: tuple[int, ...], device: torch.device) -> Any:
    """Read a target of any form as (B,) columns or (2, P) pairs, as far as its form goes.

    Args:
        target: (B,) or (2, P) integers, bool (B, N), or for each of B rows a list, a set or an array of columns.
        shape: (B, N) of the scores.
        device: that of the scores.

    Raises:
        TypeError, ValueError: for a matrix of numbers, pairs the wrong way round, and lists of another length than B.
    """
    if isinstance(target, tuple) and len(target) == 2:
        return tuple(part if isinstance(part, Tensor) else as_tensor(part, "target").to(device) for part in target)
    if not isinstance(target, Tensor) and hasattr(target, "__array__") and np.asarray(target).dtype != object:
        target = as_tensor(target, "target").to(device)
    if isinstance(target, Tensor):
        check_dense(target, "target")
        return _of_matrix(target, shape, device) if target.ndim == 2 else target
    if not isinstance(target, list | tuple | np.ndarray) or _is_pair(target):
        return target
    if all(isinstance(part, int | np.integer) for part in target):
        return as_tensor(np.asarray(target, dtype=np.int64), "target").to(device)
    if all(isinstance(part, Collection | Tensor) and not isinstance(part, str | dict) for part in target):
        return _of_lists(target, shape[0], device)
    return target


def is_by_row(target: Any) -> bool:
    """Whether a target lists the answers of every row of scores: what is said of queries then has B entries."""
    if isinstance(target, Tensor | np.ndarray) and target.dtype != object:
        return target.ndim == 2 and target.dtype in (torch.bool, np.bool_)
    return not _is_pair(target)


def _is_pair(target: Any) -> bool:
    """Whether it is two vectors of rows and columns: a tuple of two of any kind, or a list of two tensors."""
    two = isinstance(target, tuple | list) and len(target) == 2
    return two and (isinstance(target, tuple) or all(isinstance(part, Tensor) for part in target))


def _of_matrix(target: Tensor, shape: tuple[int, ...], device: torch.device) -> Tensor | tuple[Tensor, ...]:
    if target.dtype == torch.bool:
        if target.shape != shape:
            raise ValueError(f"target as bool must be (B, N) = {tuple(shape)}, got {tuple(target.shape)}")
        if target.device != device:
            raise ValueError(f"target must be on the device of scores, {device}; got {target.device}")
        _tell_of_none(target.any(1))
        return target.nonzero().unbind(1)
    if target.shape == shape and (shape[0] != 2 or target.is_floating_point()):
        raise ValueError(f"target of {target.dtype} {tuple(target.shape)} is as large as the scores: {_GRADED}")
    if target.shape == shape and target.is_cpu and target.numel() and target.min() >= 0 and target.max() <= 1:
        raise ValueError(
            f"target of zeros and ones {tuple(target.shape)}, as large as the scores, could be relevance or pairs of "
            "(row, column): pass bool, for example target > 0, or a tuple (rows, columns)"
        )
    if target.shape[1] == 2 and len(target) != 2 and not target.is_floating_point():
        raise ValueError(
            f"target of shape {tuple(target.shape)} has the pairs in its rows: pass (2, P) pairs of (row, column), "
            "target.T"
        )
    return target


def _of_lists(target: Collection[Any], num_rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    if len(target) != num_rows:
        raise ValueError(f"target as lists must have one for each of {num_rows} rows of scores, got {len(target)}")
    parts = []
    for i, given in enumerate(target):
        part = as_tensor(sorted(given) if isinstance(given, set | frozenset) else given, f"target[{i}]")
        if part.dtype == torch.bool:
            raise TypeError(
                "target as lists must hold columns, got bool: relevance is bool (B, N), torch.tensor(target)"
            )
        if part.ndim != 1:
            raise ValueError(f"target[{i}] must be a list of columns, got shape {tuple(part.shape)}")
        parts.append(as_ids(part, f"target[{i}]"))
    length = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu")
    _tell_of_none(length > 0)
    row = torch.arange(len(parts), device="cpu").repeat_interleave(length)
    column = torch.cat([part.cpu() for part in parts]) if parts else row
    return row.to(device), column.to(device)


def _tell_of_none(answered: Tensor) -> None:
    if answered.is_cpu and not answered.all():
        warn("queries without an answer are not counted: a row of target has none (see docs/several_answers.md)")


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
            raise ValueError(f"target must be bool (T,), or 0 and 1: {_GRADED}")
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
    _tell_of_none(torch.bincount(query[relevant], minlength=len(number)) > 0)
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
