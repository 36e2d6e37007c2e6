"""Count better, tied and NaN candidates in plain torch on any device, and skip excluded candidates.

Comparisons are written into a small float buffer, which is summed while it is cached.
Nothing of the size of the scores is allocated. float32 sums of ones are exact below 2^24 columns a tile.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.exclude import NOTHING, Excluded, ExcludedSlices, num_excluded

_TILE = 1 << 18  # a thread
_MOST_THREADS = 8  # tiles in memory at once: 8 MiB
_TILE_ACCELERATOR = 1 << 23  # there a launch costs more than a tile that fits a CPU's cache
_ENTRIES = 1 << 18  # of excluded slices, looked at in one go

Map = Callable[[Tensor], Tensor]
# what torch neither gathers nor compares, and the type its bits are gathered as
_EIGHTHS = {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
BITS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
BITS |= dict.fromkeys(_EIGHTHS, torch.uint8)


def count(
    scores: Tensor,
    true: Tensor | None,
    row: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Excluded = NOTHING,
) -> Tensor:
    """Compare every candidate of a task, its own column left out, with its true score: the reference of all counting.

    Args:
        scores: (B, N), any real dtype and strides; only read.
        true: (P,) the true score of each task, same dtype; None: the score in its own column.
        row: (P,) int64, the row each task belongs to; None: task i is row i (P = B).
        column: (P,) int64, its own column, negative if it is not in the matrix; None: in none.
        excluded: candidates of the B rows that are not counted.

    Returns:
        int64 (4, P): the other candidates that are better, that are not worse, all of them, and the NaN, the true
        score included. A NaN candidate is better than any true score, and any candidate is better than a NaN.
    """
    slices, matrix = excluded.slices, excluded.matrix
    bits = BITS.get(scores.dtype)
    in_order = order_of(scores)
    if bits is not None:
        scores, true = scores.view(bits), None if true is None else true.view(bits)
    at_own: Tensor | None = None
    if column is not None:
        place = column.clamp(min=0)
        at_own = in_order(scores.gather(1, place[:, None])[:, 0] if row is None else scores[row, place])
    assert true is not None or at_own is not None
    reference = at_own if true is None else in_order(true)
    assert reference is not None
    on_cpu = scores.device.type == "cpu"
    compare = [torch.lt, torch.gt]
    if reference.is_floating_point() and not on_cpu:
        compare.append(torch.ne)
    swept = _sweep(scores, reference, row, matrix, compare, in_order)
    others = torch.zeros_like(swept[0]) + scores.shape[1]
    if matrix is not None:
        number = num_excluded(matrix)
        others -= number if row is None or len(matrix) == 1 else number[row]
    own_nan = others * 0
    if column is not None and at_own is not None:
        own = ((column >= 0) if matrix is None else _own_counts(matrix, row, column)).long()
        others, own_nan = others - own, (at_own != at_own) * own
        if true is not None:  # one that was computed elsewhere may be rounded otherwise than the cell in its column
            swept[0] -= (at_own < reference) * own
            swept[1] -= (at_own > reference) * own
    below, not_above = swept[0], swept[0]
    rest = others - below - swept[1]
    nan = swept[2] - own_nan if len(swept) == 3 else torch.zeros_like(below)
    # what is neither below nor above is tied or NaN: only then is a third look worth its time
    if not on_cpu or rest.any():
        if reference.is_floating_point() and on_cpu:
            suspect = rest.nonzero()[:, 0]
            rows = suspect if row is None else row[suspect]
            nan[suspect] = _sweep(scores, reference[suspect], rows, matrix, [torch.ne], in_order)[0] - own_nan[suspect]
        not_above = (below + rest - nan) * (reference == reference)  # nothing is "not above" a NaN
    counts = torch.stack([others - not_above, others - below, others, nan + (reference != reference)])
    if slices is not None:
        task_row = torch.arange(len(reference), device=scores.device) if row is None else row
        own_column = torch.full_like(task_row, -1) if column is None else column
        counts -= _count_slices(_Compared(scores, reference, task_row, own_column, excluded.columns, in_order), slices)
    return counts


def count_lists(
    scores: Tensor,
    borders: Tensor,
    row: Tensor,
    true: Tensor | None = None,
    column: Tensor | None = None,
    excluded: Tensor | None = None,
) -> Tensor:
    """Count as ``count`` in lists of different lengths, by sorting them; waits for an accelerator.

    Args:
        scores: (T,), any real dtype: list i is scores[borders[i] : borders[i + 1]].
        borders: (B + 1,) int64.
        row: (P,) int64, the list of each task.
        true: (P,) the true score of each task, which is not in a list; None: it is at ``column``.
        column: (P,) int64, the place of the true score in the list.
        excluded: bool (T,), True for scores that are not counted.

    Returns:
        As ``count``.
    """
    in_order = order_of(scores)
    bits = BITS.get(scores.dtype, scores.dtype)
    value = in_order(scores.view(bits))
    own = None if column is None else borders[row] + column
    reference = in_order(true.view(bits)) if true is not None else value[own]
    counted = torch.ones_like(value, dtype=torch.bool) if excluded is None else ~excluded
    is_nan, own_nan = value != value, reference != reference
    is_candidate = torch.zeros_like(own_nan) if own is None else counted[own]
    # ascending places of all numbers, NaN behind them; then one sort of (list, place)
    code = torch.unique(torch.cat([value, reference]), return_inverse=True)[1]
    width, owner = len(code) + 1, torch.arange(len(borders) - 1, device=row.device).repeat_interleave(borders.diff())
    key = (owner * width + code[: len(value)])[counted].sort().values
    ends = row * width, (row + 1) * width, row * width + code[len(value) :], row * width + code[len(value) :] + 1
    begin, end, low, high = (torch.searchsorted(key, place) for place in ends)
    others = end - begin - is_candidate.long()
    below, not_above = (low - begin) * ~own_nan, (high - begin - is_candidate.long()) * ~own_nan
    nan = torch.zeros_like(borders[1:]).index_add_(0, owner, (is_nan & counted).long())[row]
    return torch.stack([others - not_above, others - below, others, nan + (own_nan & ~is_candidate)])


def order_of(scores: Tensor) -> Map:
    """Return the map from cells of the scores (bits for dtypes in ``BITS``) to numbers of the same order for torch."""
    dtype = scores.dtype
    if dtype in _EIGHTHS:
        return lambda cells: cells.view(dtype).float()
    if dtype in BITS:
        return lambda cells: cells ^ torch.iinfo(cells.dtype).min  # the lowest number becomes the lowest with a sign
    # halves are compared on the CPU by converting cell by cell; a tile at once is faster, and exact
    if dtype in (torch.float16, torch.bfloat16) and scores.device.type == "cpu":
        return Tensor.float
    return Tensor.resolve_neg


def _sweep(
    scores: Tensor,
    true: Tensor,
    row: Tensor | None,
    excluded: Tensor | None,
    compare: list[Callable[..., Tensor]],
    in_order: Map = Tensor.resolve_neg,
) -> Tensor:
    """Per comparison and task, in how many counted columns it holds: int64 (len(compare), P)."""
    tasks, N = len(true), scores.shape[1]
    total = torch.zeros(len(compare), tasks, dtype=torch.int64, device=scores.device)
    if tasks == 0 or N == 0:
        return total
    on_cpu = scores.device.type == "cpu"
    limit = _TILE * min(torch.get_num_threads(), _MOST_THREADS) if on_cpu else _TILE_ACCELERATOR
    # column-major scores are read along their own memory: tiles of a few whole columns instead of a few whole rows
    by_column = scores.stride(0) == 1 and scores.stride(1) > 1
    width = max(1, limit // tasks) if by_column else limit
    width = min(width, N)
    height = min(tasks, max(1, limit // width))
    buffer = torch.empty(height * width, dtype=torch.float32, device=scores.device)
    for_all = excluded[0] if excluded is not None and excluded.shape[0] == 1 else None
    by_row = excluded if for_all is None else None
    part = torch.empty(len(compare), tasks, dtype=torch.float32, device=scores.device)
    outs = list(zip(*(torch.split(line, height) for line in part), strict=True))
    references = torch.split(true[:, None], height)
    flag = buffer[:0]
    for left in range(0, N, width):
        columns = slice(left, min(left + width, N))
        weight = None if for_all is None else (~for_all[columns]).to(torch.float32)
        tiles = _row_blocks(scores[:, columns], row, height)
        masks = references if by_row is None else _row_blocks(by_row[:, columns], row, height)
        for tile, reference, mask, out in zip(tiles, references, masks, outs, strict=True):
            if flag.shape != tile.shape:
                flag = buffer[: tile.numel()]
                flag = flag.view(tile.shape[::-1]).T if by_column else flag.view(tile.shape)
            tile = in_order(tile)
            for operation, result in zip(compare, out, strict=True):
                operation(tile, tile if operation is torch.ne else reference, out=flag)
                if by_row is not None:
                    flag.masked_fill_(mask, 0)
                if weight is None:
                    torch.sum(flag, 1, out=result)
                else:
                    torch.mv(flag, weight, out=result)
        total += part.long()
    return total


def _row_blocks(matrix: Tensor, row: Tensor | None, height: int) -> Iterable[Tensor]:
    if row is None:
        return torch.split(matrix, height)
    return (matrix.index_select(0, rows) for rows in torch.split(row, height))


def _own_counts(excluded: Tensor, row: Tensor | None, column: Tensor) -> Tensor:
    place = column.clamp(min=0)
    if len(excluded) == 1:
        row = torch.zeros_like(place)
    elif row is None:
        row = torch.arange(len(place), device=place.device)
    return (column >= 0) & ~excluded[row, place]


class _Compared(NamedTuple):
    """Tasks and their true scores, as in ``count``, with a row and a column for each."""

    scores: Tensor
    true: Tensor
    row: Tensor
    column: Tensor
    excluded_columns: Tensor | None
    in_order: Map = Tensor.resolve_neg


def _count_slices(tasks: _Compared, slices: ExcludedSlices) -> Tensor:
    """What ``count`` counted among the excluded slices of each task, its own column left out: int64 (4, P)."""
    total = torch.zeros(4, len(tasks.row), dtype=torch.int64, device=tasks.row.device)
    if tasks.scores.device.type != "cpu":
        _add_slices_masked(total, tasks, slices)
        return total
    task, position = slices.entries(tasks.row)
    for some, where in zip(torch.split(task, _ENTRIES), torch.split(position, _ENTRIES), strict=True):
        _add_counts(total, tasks, some, slices.columns[where] - slices.first, None)
    return total


def _add_slices_masked(total: Tensor, tasks: _Compared, slices: ExcludedSlices) -> None:
    """Count them where their number is not known without waiting: blocks of the longest slice, masked."""
    row, device = tasks.row, tasks.row.device
    step = max(1, _TILE_ACCELERATOR // 8 // max(len(row), 1))
    start, length = slices.start[row][:, None], slices.length[row][:, None]
    task = torch.arange(len(row), device=device)[:, None]
    for left in range(0, slices.longest, step):
        offset = torch.arange(left, min(left + step, slices.longest), device=device)
        inside = offset < length
        entry = slices.columns[(start + offset).clamp(max=len(slices.columns) - 1)] - slices.first
        entry = entry.masked_fill(~inside, 0).reshape(-1)  # entries of other rows or chunks may lie outside the matrix
        _add_counts(total, tasks, task.expand_as(inside).reshape(-1), entry, inside.reshape(-1))


def _add_counts(total: Tensor, tasks: _Compared, task: Tensor, entry: Tensor, inside: Tensor | None) -> None:
    other = entry != tasks.column[task]
    if inside is not None:
        other &= inside
    if tasks.excluded_columns is not None:
        other &= ~tasks.excluded_columns[entry]
    value, reference = tasks.in_order(tasks.scores[tasks.row[task], entry]), tasks.true[task]
    better, not_worse = ~(value <= reference), ~(value < reference)
    for line, holds in zip(total, (better & other, not_worse & other, other, (value != value) & other), strict=True):
        line.index_add_(0, task, holds.long())
