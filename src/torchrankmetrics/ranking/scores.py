"""`rank_scores`: filtered ranks from a score matrix, and targets as labels, lists or flat scores."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.eager import eager
from torchrankmetrics.errors import told, warn
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import Array, as_ids, as_tensor, first_outside, read_scores
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.exclude import Exclude, Excluded, check_exclude
from torchrankmetrics.ranking.forms import GRADED, Cells, Form, is_by_row, read_form
from torchrankmetrics.ranking.negatives import in_order
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.tolerance import Tolerance, check_tolerance, count_within, extremes, spread, within


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


Target = Form
"""What ``rank_scores`` takes as the true candidates: (B,) columns, labels (B, N), pairs of (row, column), or lists."""


@eager
@told
def rank_scores(
    scores: Tensor | Array,
    target: Target,
    *,
    exclude: Exclude = None,
    backend: str = "auto",
    tolerance: float | Tolerance = 0.0,
) -> Ranks:
    """Rank the true candidates of a batch among all columns that are not excluded.

    optimistic = 1 + #{j a candidate, j != target : s_j > s_target}; pessimistic with >=. The own column is left out by
    index. A NaN never helps: a NaN true score ranks last, a NaN candidate counts as better. +-inf are ordinary scores.

    Args:
        scores: (B, N), any real dtype and strides, higher is better; never modified or copied whole. An array is taken
            as a tensor on the CPU, here and in what follows.
        target: (B,) integers, the column of the true candidate of each row. Or several true candidates per row, one
            ranking task each: a list of the columns of every row; bool or floating labels (B, N), also as a SciPy
            sparse matrix; a tuple (rows, columns); or integer pairs (2, P) of (row, column). Integers of the shape of
            the scores, or (B, 1), are an error: they could be labels, pairs or columns.
        exclude: what is not a candidate. Known positives, in every form of target except (B,) integers and floating
            labels, or as ``KnownTriples`` returns them: the target of a task is never excluded, and repeats count
            once. Or bool (N,), True = not a candidate of any row: there an excluded target is an error.
        backend: "auto", "torch" or "numba" (extra ``fast``): how comparisons are counted; the ranks are the same.
        tolerance: candidates whose scores are no further from the true one than this are ties; in the units of the
            scores, or a ``Tolerance``, which may be relative to the spread of a row.

    Returns:
        ``Ranks`` with int64 (tasks,) tensors on the device of the scores.

    Raises:
        TypeError: if targets or pairs are not integers, scores are complex, or scores with a tolerance no floats.
        ValueError: if shapes or devices do not match, a form is ambiguous, or a target is excluded for all rows.
        IndexError: if a target or an excluded column is outside [0, N). On an accelerator the last two are raised at
            ``compute`` of the metric that takes the ranks, without a synchronisation here.

    Source: Berrendorf et al. 2020 (arXiv 2002.06914), sections 2 and 3.1.

    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]))
    Ranks(optimistic=[2], pessimistic=[2], num_candidates=[3])
    >>> rank_scores(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([1]), exclude=[[0]])
    Ranks(optimistic=[1], pessimistic=[1], num_candidates=[2])
    """
    return rank_with_rows(read_scores(scores, "scores"), target, exclude, backend=backend, tolerance=tolerance)


def rank_with_rows(
    scores: Tensor,
    target: Target,
    exclude: Exclude,
    *,
    named: bool = False,
    backend: str = "auto",
    tolerance: float | Tolerance = 0.0,
    name: str = "scores",
) -> Ranks:
    """Rank as ``rank_scores``, for queries that may have several answers: with pairs, and where they are ``named``.

    There the ranks say which answers ``exclude`` lists: those that the ranks of the others leave out. Errors call the
    scores by their ``name``.
    """
    ranks, tasks, excluded = rank_filtered(scores, target, exclude, backend, tolerance, name)
    if tasks.row is None and not named:
        return ranks
    return with_rows(ranks, tasks, excluded, len(scores), named=named)


def with_rows(ranks: Ranks, tasks: "Tasks", excluded: Excluded, num_rows: int, *, named: bool = False) -> Ranks:
    """Let ranks say which row of scores each task has and which answers are excluded, where rows may have several."""
    if tasks.row is None and not named:
        return ranks
    told = said_of_answers(tasks, excluded)
    rows = None if tasks.row is None else (tasks.row.clone(), num_rows)
    return Ranks.trusted(ranks.columns, told if ranks.flags is None else told + ranks.flags, rows)


def rank_filtered(
    scores: Tensor,
    target: Target,
    exclude: Exclude | Excluded,
    backend: str,
    tolerance: float | Tolerance = 0.0,
    name: str = "scores",
) -> "tuple[Ranks, Tasks, Excluded]":
    """Rank as ``rank_scores`` does, with what is excluded in one form or in several."""
    # asked once per batch, when the scores have driven everything else out of the caches: each call costs microseconds
    check_scores(scores, name)
    shape, device = scores.shape, scores.device
    tasks = check_target(target, shape, device)
    excluded = check_exclude(exclude, shape, device)
    if scores.requires_grad:
        scores = scores.detach()
    flags = flags_of(tasks, excluded)
    count, given = choose(scores, backend), (tasks.row, tasks.column, excluded)
    absolute, relative = (
        (0.0, 0.0) if isinstance(tolerance, float) and tolerance == 0.0 else check_tolerance(tolerance, scores.dtype)
    )
    if absolute or relative:
        row = tasks.rows
        width = absolute + relative * spread(extremes(scores))[row] if relative else absolute
        counts = count_within(count, scores, within(scores[row, tasks.column], width), *given)
    else:
        counts = count(scores, None, *given)
    return Ranks.from_compared(counts, flags), tasks, excluded


def said_of_answers(tasks: "Tasks", excluded: Excluded) -> Tensor:
    """Flags of tasks whose queries may have several answers, int64 (tasks,)."""
    listed = excluded.lists(tasks.row, tasks.column)
    return torch.where(listed, fault.FILTERED, fault.RAW)


class Tasks(NamedTuple):
    """Checked targets: rows (None: task i is row i) and columns, clamped into range where ``wrong`` says so."""

    row: Tensor | None
    column: Tensor
    wrong: Tensor | None  # bool (P,), on an accelerator only: the CPU raises at once

    @property
    def rows(self) -> Tensor:
        """The row of every task, int64 (P,)."""
        return torch.arange(len(self.column), device=self.column.device) if self.row is None else self.row


def flags_of(tasks: Tasks, excluded: Excluded) -> Tensor | None:
    """Faults of the tasks as bits, or None if there cannot be any."""
    flags: Tensor | None = None
    if tasks.wrong is not None:
        flags = tasks.wrong * fault.TARGET_RANGE
    if excluded.columns is not None:
        outside = excluded.columns[tasks.column]
        if outside.device.type != "cpu":
            flags = outside * fault.TARGET_EXCLUDED + (0 if flags is None else flags)
        elif outside.any():
            first = int(outside.nonzero()[0])
            column = int(tasks.column[first])
            raise ValueError(f"target must be a candidate, but column {column} of task {first} is excluded for all")
    if excluded.bad_pairs is not None:
        flags = excluded.bad_pairs * fault.EXCLUDE_RANGE + (torch.zeros_like(tasks.column) if flags is None else flags)
    return flags


def check_scores(scores: Tensor, name: str = "scores", *, some: bool = True) -> None:
    """Refuse scores that cannot be ranked; ``some`` candidates are needed where there are no other slices."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor of shape (B, N), got {type(scores).__name__}")
    if scores.ndim != 2:
        raise ValueError(f"{name} must be (B, N): one row of candidate scores per query; got {tuple(scores.shape)}")
    if some and scores.shape[1] == 0:
        raise ValueError(f"{name} must have at least one candidate (N >= 1), got shape {tuple(scores.shape)}")
    if scores.is_complex():
        raise TypeError(f"{name} must be real numbers, got {scores.dtype}")


def check_target(target: Target, shape: tuple[int, ...], device: torch.device) -> Tasks:
    """Read a target of any form for scores of a shape (B, N) on a device."""
    B, N = shape
    row: Tensor | None = None
    form = target if isinstance(target, Tensor) and target.ndim == 1 else read_form(target, "target", shape, device)
    if isinstance(form, Tensor) and form.ndim == 2:
        form = cells_of_labels(form, shape)
    if isinstance(form, Cells):
        row, column = form
        if len(row) and B == 0:
            raise IndexError(f"target must lie in the rows of scores ({B}, {N}), which has none; got {len(row)} tasks")
        if is_by_row(target):
            warn_of_queries_without_answers(row, B)
    else:
        column = as_ids(form, "target")
        if column.shape != (B,):
            raise ValueError(
                f"target must be ({B},), one column per row of scores ({B}, {N}); got {tuple(column.shape)}"
            )
        if column.device != device:
            raise ValueError(f"target must be on the device of scores, {device}; got {column.device}")
    if column.is_cpu:
        if (first := first_outside(row, column, B, N)) is not None:
            where = f"task {first} has column {int(column[first])} in row {first if row is None else int(row[first])}"
            raise IndexError(f"target must lie in [0, {N}) and its rows in [0, {B}) for scores ({B}, {N}); {where}")
        return Tasks(row, column, None)
    wrong = (column < 0) | (column >= N)
    if row is not None:
        wrong = wrong | (row < 0) | (row >= B)
        row = row.clamp(0, max(B - 1, 0))
    return Tasks(row, column.clamp(0, N - 1), wrong)
