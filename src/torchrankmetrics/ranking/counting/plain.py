"""Counting in plain torch, on any device: comparisons into a small float buffer, summed while it is in the cache.

Nothing of the size of the scores is allocated. float32 sums of ones are exact below 2^24 columns a tile.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_TILE = 1 << 17


class Counts(NamedTuple):
    """Per task, int64 (P,): columns with s < t, with s <= t, and with s NaN. A NaN is neither, so it never helps."""

    below: Tensor
    not_above: Tensor
    nan: Tensor


def count_columns(scores: Tensor, true: Tensor, rows: Tensor | None = None, drop: Tensor | None = None) -> Counts:
    """Compare every column of a row with the true score of a task.

    Args:
        scores: (B, N), any real dtype and strides; only read.
        true: (P,) the true score of each task, same dtype.
        rows: (P,) int64, the row each task belongs to; None: task i is row i (P = B).
        drop: bool (B, N) or (1, N), True where a column is not counted; None: all count.
    """
    by_column = scores.stride(0) == 1 and scores.stride(1) > 1
    tasks = len(true)
    total = torch.zeros(3, tasks, dtype=torch.float64, device=scores.device)
    if scores.shape[1] == 0 or tasks == 0:
        return Counts(*total.long().unbind())
    # column-major scores are read along their own memory: tiles of whole columns, reduced over the other dimension
    view, along = (scores.T, 0) if by_column else (scores, 1)
    mask = drop.T if by_column and drop is not None else drop
    width = min(scores.shape[1], max(1, _TILE // tasks)) if by_column else min(scores.shape[1], _TILE)
    height = tasks if by_column else max(1, _TILE // width)
    buffer = torch.empty(width * min(height, tasks), dtype=torch.float32, device=scores.device)
    precise = scores.device.type != "cpu" or drop is not None
    for first in range(0, tasks, height):
        task = slice(first, min(first + height, tasks))
        reference = true[task].unsqueeze(along)
        for left in range(0, scores.shape[1], width):
            tile = _tile(view, rows, task, slice(left, left + width), along)
            dropped = None
            if mask is not None:
                whole = mask.shape[1 - along] == 1  # one mask row serves every task
                dropped = _tile(mask, rows, slice(None) if whole else task, slice(left, left + width), along, whole)
            _add_tile(total[:, task], tile, reference, dropped, buffer, along, precise)
    if not precise and torch.isnan(total[2]).any():
        _count_nan(total[2], scores, rows)
    return Counts(*total.long().unbind())


def _tile(view: Tensor, rows: Tensor | None, task: slice, columns: slice, along: int, whole: bool = False) -> Tensor:
    part = view[:, columns] if along == 1 else view[columns]
    if rows is None or whole:
        return part[task] if along == 1 else part[:, task]
    return part.index_select(1 - along, rows[task])


def _add_tile(
    total: Tensor, tile: Tensor, reference: Tensor, dropped: Tensor | None, buffer: Tensor, along: int, precise: bool
) -> None:
    flag = buffer[: tile.numel()].view(tile.shape)
    comparisons = (torch.lt, torch.le) if not tile.is_floating_point() or not precise else (torch.lt, torch.le, torch.ne)
    for index, compare in enumerate(comparisons):
        other = tile if compare is torch.ne else reference
        compare(tile, other, out=flag)
        if dropped is not None:
            flag.masked_fill_(dropped, 0)
        total[index] += flag.sum(along)
    if not precise and tile.is_floating_point():
        total[2] += torch.amax(tile, along) * 0  # NaN if there is one; an infinity gives NaN too and is sorted out later


def _count_nan(total: Tensor, scores: Tensor, rows: Tensor | None) -> None:
    """Replace the entries that may have a NaN by the number of NaN in their row: rare, so a second look is affordable."""
    suspect = total.isnan().nonzero()[:, 0]
    total.zero_()
    for index in suspect.tolist():
        row = scores[index if rows is None else int(rows[index])]
        total[index] = sum(int(part.isnan().sum()) for part in row.split(_TILE))
