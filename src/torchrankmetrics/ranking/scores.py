"""rank_scores: one pass over a score matrix gives the filtered ranks of the true candidates."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.counting import count_columns
from torchrankmetrics.ranking.exclusion import Exclusion, exclusion_from_pairs, pair_columns
from torchrankmetrics.ranking.ranks import Ranks

_GATHER = 1 << 20


@torch.no_grad()
def rank_scores(scores: Tensor, target: Any, *, exclude: Any = None) -> Ranks:
    """Rank the true candidates of a batch among all columns that are not excluded.

    optimistic = 1 + #{j a candidate, j != target : s_j > s_target}; pessimistic with >=. The own column is left out by
    index. A NaN never helps: a NaN true score ranks last, a NaN candidate counts as better. +-inf are ordinary scores.

    Args:
        scores: (B, N), any real dtype and strides, higher is better; never modified or copied whole.
        target: (B,) int column of the true candidate of each row; or int64 pairs (2, P) of (row, column), one task
            each, in that order (with B = 2 and P = 1 pass a tuple ``(rows, columns)``).
        exclude: what is not a candidate. Known answers, as int64 pairs (2, P) of (row, column), as bool (B, N), or as
            ``KnownTriples`` returns them: there the target of a task is left in and repeats count once. Or a
            restriction, bool (N,), True = not a candidate: there an excluded target is an error.

    Returns:
        ``Ranks`` with int64 (tasks,) tensors on the device of the scores.

    Raises:
        TypeError: if targets or pairs are not integers, or scores are complex.
        ValueError: if shapes or devices do not match, or a restriction excludes a target.
        IndexError: if a target or an excluded column is outside [0, N). On an accelerator the last two are raised at
            ``compute`` of the metric that takes the ranks, without a synchronisation here.

    Source: Berrendorf et al. 2020 (arXiv 2002.06914), sections 2 and 3.1.

    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]))
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]), exclude=torch.tensor([[0], [0]]))
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[2])
    """
    task = _check_target(_check_scores(scores), target)
    known, mask, restriction, bad_pairs = _check_exclude(scores, exclude)
    scores = scores.detach()
    column = task.column.clamp(0, scores.shape[1] - 1)  # out of range only on an accelerator, where it is flagged
    row = task.row.clamp(0, max(scores.shape[0] - 1, 0))
    true = scores[row, column]
    drop = mask if mask is not None else None if restriction is None else restriction[None]
    counts = count_columns(scores, true, None if task.one_per_row else row, drop)
    own = torch.ones_like(column, dtype=torch.bool)
    dropped = torch.zeros_like(column)
    if mask is not None:
        own = ~mask[row, column]
        dropped = mask.sum(1)[row]
    elif restriction is not None:
        own = ~restriction[column]
        dropped = restriction.sum().expand(len(column))
    not_nan = true == true
    others = scores.shape[1] - dropped - own.long()
    below, not_above, nan = counts.below, counts.not_above - (own & not_nan).long(), counts.nan - (own & ~not_nan).long()
    if known is not None:
        gone = _count_known(scores, true, row, column, known)
        others, below, not_above, nan = others - gone[0], below - gone[1], not_above - gone[2], nan - gone[3]
    flags = ((nan > 0) | ~not_nan) * fault.NAN + task.wrong * fault.TARGET_RANGE
    if restriction is not None:
        flags = flags + _flag_restricted(restriction, column)
    if bad_pairs is not None:
        flags = flags + bad_pairs * fault.EXCLUDE_RANGE
    return Ranks.trusted(others - not_above + 1, others - below + 1, others + 1, flags)


@dataclass(frozen=True)
class _Tasks:
    row: Tensor
    column: Tensor
    one_per_row: bool
    wrong: Tensor


def _check_scores(scores: Tensor) -> Tensor:
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores must be a torch.Tensor of shape (B, N), got {type(scores).__name__}")
    if scores.ndim != 2:
        raise ValueError(f"scores must be (B, N): one row of candidate scores per query; got {tuple(scores.shape)}")
    if scores.shape[1] == 0:
        raise ValueError(f"scores must have at least one candidate (N >= 1), got shape {tuple(scores.shape)}")
    if scores.is_complex():
        raise TypeError(f"scores must be real numbers, got {scores.dtype}")
    return scores


def _check_target(scores: Tensor, target: Any) -> _Tasks:
    B, N = scores.shape
    one_per_row = isinstance(target, Tensor) and target.ndim == 1
    if one_per_row:
        if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
            raise TypeError(f"target must hold integers, the column of the true candidate; got {target.dtype}")
        if len(target) != B:
            raise ValueError(f"target must be ({B},), one column per row of scores ({B}, {N}); got ({len(target)},)")
        if target.device != scores.device:
            raise ValueError(f"target must be on the device of scores, {scores.device}; got {target.device}")
        row, column = torch.arange(B, device=scores.device), target.to(torch.int64)
    else:
        if isinstance(target, Tensor) and target.ndim == 2 and target.shape[1] == 1 and (B == 2 or len(target) != 2):
            raise ValueError(
                f"target of shape {tuple(target.shape)} is not taken for scores ({B}, {N}): pass (B,) columns, for "
                "example target.squeeze(1), or a tuple (rows, columns) for several true candidates per row"
            )
        if not isinstance(target, Tensor | tuple | list):
            raise TypeError(f"target must be a torch.Tensor or a tuple (rows, columns), got {type(target).__name__}")
        row, column = pair_columns(target, "target", scores.device)
    wrong = (column < 0) | (column >= N)
    if not one_per_row:
        wrong = wrong | (row < 0) | (row >= B)
    if scores.device.type == "cpu" and wrong.any():
        first = int(wrong.nonzero()[0])
        where = f"task {first} has column {int(column[first])} in row {int(row[first])}"
        raise IndexError(f"target must lie in [0, {N}) and its rows in [0, {B}) for scores ({B}, {N}); {where}")
    return _Tasks(row, column, one_per_row, wrong)


def _check_exclude(
    scores: Tensor, exclude: Any
) -> tuple[Exclusion | None, Tensor | None, Tensor | None, Tensor | None]:
    """Sort what came into (known answers, mask, restriction, whether pairs are out of range); at most one is not None."""
    B, N = scores.shape
    if exclude is None:
        return None, None, None, None
    if isinstance(exclude, Exclusion):
        if len(exclude) != B:
            raise ValueError(f"exclude must come from {B} queries, one per row of scores; it has {len(exclude)}")
        if exclude.num_columns > N:
            raise IndexError(
                f"exclude holds columns up to {exclude.num_columns - 1}, but scores ({B}, {N}) have columns [0, {N})"
            )
        if exclude.start.device != scores.device:
            raise ValueError(f"exclude must be on the device of scores, {scores.device}; got {exclude.start.device}")
        return exclude, None, None, None
    if isinstance(exclude, Tensor) and exclude.dtype == torch.bool:
        if exclude.device != scores.device:
            raise ValueError(f"exclude must be on the device of scores, {scores.device}; got {exclude.device}")
        if exclude.shape == scores.shape:
            return None, exclude, None, None
        if exclude.shape == (N,):
            return None, None, exclude, None
        raise ValueError(f"exclude as bool must be (B, N) = ({B}, {N}) or (N,) = ({N},), got {tuple(exclude.shape)}")
    if not isinstance(exclude, Tensor | tuple | list):
        raise TypeError(
            f"exclude must be (2, P) pairs, bool (B, N), bool (N,) or what KnownTriples returns, got {type(exclude)}"
        )
    known, bad = exclusion_from_pairs(exclude, B, N, scores.device)
    return known, None, None, bad


def _flag_restricted(restriction: Tensor, column: Tensor) -> Tensor:
    outside = restriction[column]
    if outside.device.type == "cpu" and outside.any():
        first = int(outside.nonzero()[0])
        raise ValueError(
            f"target must be a candidate, but the restriction excludes column {int(column[first])} of task {first}"
        )
    return outside * fault.TARGET_RESTRICTED


def _count_known(
    scores: Tensor, true: Tensor, row: Tensor, column: Tensor, known: Exclusion
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per task, among its known answers other than its own: their number, and how many are below, not above, NaN."""
    if scores.device.type == "cpu":
        task, position = known.entries(row)
        return _tally(scores, true, row, column, task, known.columns[position], None)
    # on an accelerator the total is not known without waiting: blocks of the longest slice, masked
    total = torch.zeros(4, len(row), dtype=torch.int64, device=scores.device)
    step = max(1, _GATHER // max(len(row), 1))
    tasks = torch.arange(len(row), device=scores.device)
    for left in range(0, known.longest, step):
        offset = torch.arange(left, min(left + step, known.longest), device=scores.device)
        inside = offset < known.length[row][:, None]
        position = (known.start[row][:, None] + offset).clamp(max=max(len(known.columns) - 1, 0))
        task = tasks[:, None].expand_as(inside).reshape(-1)
        entry = known.columns[position.reshape(-1)]
        total += torch.stack(_tally(scores, true, row, column, task, entry, inside.reshape(-1)))
    return total[0], total[1], total[2], total[3]


def _tally(
    scores: Tensor, true: Tensor, row: Tensor, column: Tensor, task: Tensor, entry: Tensor, inside: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    other = entry != column[task]
    if inside is not None:
        other = other & inside
    value, reference = scores[row[task], entry], true[task]
    result = torch.zeros(4, len(row), dtype=torch.int64, device=scores.device)
    flags = torch.stack([other, other & (value < reference), other & (value <= reference), other & (value != value)])
    result.index_add_(1, task, flags.long())
    return result[0], result[1], result[2], result[3]
