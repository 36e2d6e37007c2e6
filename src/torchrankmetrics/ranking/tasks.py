"""Ranking tasks: `target` and `exclude` of every entry point as rows, columns, excluded candidates and flags."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_ids, first_outside
from torchrankmetrics.ranking.exclude import Exclude, Excluded, read_exclude
from torchrankmetrics.ranking.forms import Cells, Form, is_by_row, read_form, read_gain

Target = Form
"""Type of ``target`` in ``rank_scores``: (B,) columns, labels (B, N), pairs of (row, column), or lists."""


class Tasks(NamedTuple):
    """Checked ranking tasks of a (B, N) score matrix.

    Attributes:
        row: int64 (P,); None: task i is in row i.
        column: int64 (P,), the target, clamped into range where ``flags`` reports an error.
        excluded: candidates that are excluded, except the target of a task.
        flags: int64 (P,), or None.
        rows: ``Ranks.rows`` of these tasks.
        gain: float64 (P,), labels of the targets; None: all are 1.
    """

    row: Tensor | None
    column: Tensor
    excluded: Excluded
    flags: Tensor | None
    rows: tuple[Tensor, int] | None
    gain: Tensor | None

    @property
    def row_of_each(self) -> Tensor:
        """The row of every task, int64 (P,)."""
        return torch.arange(len(self.column), device=self.column.device) if self.row is None else self.row

    def fingerprint(self, num_columns: int) -> dict[str, Tensor | None]:
        """Name the tasks by content, for processes that must be given the same."""
        return {
            "target": torch.stack([self.row_of_each, self.column]),
            "labels of target": self.gain,
            **self.excluded.fingerprint(num_columns),
        }


def read_tasks(
    target: Target,
    exclude: Exclude | Excluded,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    by_query: bool = True,
    named: bool = False,
) -> Tasks:
    """Read target and exclude for scores of a shape (B, N) on a device.

    Args:
        target: as in ``rank_scores``.
        exclude: as in ``rank_scores``, or in several forms.
        shape: (B, N).
        device: of the scores.
        by_query: keep the row of each task and flag whether its target is excluded from the other tasks of the row,
            if target has pairs of (row, column).
        named: flag for every form of target whether it is excluded from the other tasks of its row.
    """
    row, column, wrong, gain = _read_target(target, shape, device)
    excluded = read_exclude(exclude, shape, device)
    flags = None if wrong is None else wrong * fault.TARGET_RANGE
    if excluded.columns is not None:
        outside = excluded.columns[column]
        if outside.device.type != "cpu":
            flags = outside * fault.TARGET_EXCLUDED + (0 if flags is None else flags)
        elif outside.any():
            first = int(outside.nonzero()[0])
            raise ValueError(
                f"target must be a candidate, but column {int(column[first])} of task {first} is excluded for all"
            )
    if excluded.bad_pairs is not None:
        flags = excluded.bad_pairs * fault.EXCLUDE_RANGE + (torch.zeros_like(column) if flags is None else flags)
    tasks = Tasks(row, column, excluded, flags, None, gain)
    if not (named or (by_query and row is not None)):
        return tasks
    listed = torch.where(excluded.lists(tasks.row_of_each, column), fault.FILTERED, fault.RAW)
    rows = None if row is None else (row.clone(), shape[0])
    return tasks._replace(flags=listed if flags is None else listed + flags, rows=rows)


def _read_target(
    target: Target, shape: tuple[int, ...], device: torch.device
) -> tuple[Tensor | None, Tensor, Tensor | None, Tensor | None]:
    """Rows (None: task i is in row i), columns, on an accelerator whether a task is out of range, and gains, (P,)."""
    B, N = shape
    row = gain = None
    form = target if isinstance(target, Tensor) and target.ndim == 1 else read_form(target, "target", shape, device)
    if isinstance(form, Tensor) and form.ndim == 2:
        form = _cells_of_labels(form, shape)
    if isinstance(form, Cells):
        row, column, gain = form
        if len(row) and B == 0:
            raise IndexError(f"target must lie in the rows of scores ({B}, {N}), which has none; got {len(row)} tasks")
        if is_by_row(target):
            warn_of_empty_queries(row, B)
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
        return row, column, None, gain
    wrong = (column < 0) | (column >= N)
    if row is not None:
        wrong = wrong | (row < 0) | (row >= B)
        row = row.clamp(0, max(B - 1, 0))
    return row, column.clamp(0, N - 1), wrong, gain


def _cells_of_labels(labels: Tensor, shape: tuple[int, ...]) -> Cells:
    if labels.shape != shape:
        hint = ""
        if labels.is_floating_point() and labels.ndim == 2 and labels.shape[1] == shape[1]:
            hint = "; of two matrices of embeddings: evaluate(rank_embeddings(queries, candidates, target))"
        raise ValueError(
            f"target as labels must be (B, N) = {tuple(shape)}, got {labels.dtype} {tuple(labels.shape)}{hint}"
        )
    relevant = labels.bool()  # a quarter of the time of labels != 0
    if labels.is_cpu and labels.is_contiguous():  # a sixth of the time of torch's where few are relevant
        place = torch.from_numpy(np.flatnonzero(relevant.numpy()))
        row = place // labels.shape[1]
        column = place - row * labels.shape[1]
    else:
        row, column = relevant.nonzero().unbind(1)
    return Cells(row, column, None if labels.dtype == torch.bool else read_gain(labels[row, column]))


def warn_of_empty_queries(query: Tensor, num_queries: int) -> None:
    """Warn if a query has no relevant item, from the query (P,) of every relevant item; skipped on an accelerator."""
    if query.is_cpu and not torch.bincount(query, minlength=num_queries).all():
        warn("queries without a relevant item are not counted: a row of target has none (see docs/retrieval.md)")
