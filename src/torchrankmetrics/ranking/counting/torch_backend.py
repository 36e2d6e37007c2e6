"""Count in plain torch on any device: the reference of all counting.

Comparisons are written into a small float buffer, which is summed while it is cached.
Nothing of the size of the scores is allocated. float32 sums of ones are exact below 2^24 columns a
tile.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, ExcludedSlices, num_excluded

_TILE = 1 << 18  # a thread
_MOST_THREADS = 8  # tiles in memory at once: 8 MiB
_TILE_ACCELERATOR = 1 << 23  # there a launch costs more than a tile that fits a CPU's cache
_ENTRIES = 1 << 18  # of excluded slices, read at once

Map = Callable[[Tensor], Tensor]
# what torch neither gathers nor compares, and the type its bits are gathered as
_FLOAT8 = {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
BITS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
BITS |= dict.fromkeys(_FLOAT8, torch.uint8)


def at(scores: Tensor, row: Tensor | None, column: Tensor) -> Tensor:
    """Scores (P,) in cells of a matrix or a vector, as their bits for dtypes in ``BITS``."""
    scores = _bits(scores)
    if scores.ndim == 1:
        return scores[column]
    return scores.gather(1, column[:, None])[:, 0] if row is None else scores[row, column]


class _Matrix(NamedTuple):
    """Scores (B, N) that tasks are compared with, by the row of each task."""

    scores: Tensor  # bits for dtypes in ``BITS``
    in_order: Map  # from scores to numbers of the same order
    row: Tensor | None  # int64 (P,); None: task i is in row i
    excluded: Tensor | None  # bool (B, N), or (1, N) for all rows

    def num_counted(self, num_tasks: int) -> Tensor:
        """Count the columns of each task that are not excluded, int64 (P,)."""
        shape = (num_tasks,)
        number = torch.full(shape, self.scores.shape[1], device=self.scores.device)
        if self.excluded is not None:
            out = num_excluded(self.excluded)
            number -= out if self.row is None or len(self.excluded) == 1 else out[self.row]
        return number

    def are_counted(self, column: Tensor) -> Tensor:
        """Find which targets are counted, int64 (P,): those in a column that is not excluded."""
        is_counted = (column >= 0).long()
        if self.excluded is not None:
            excluded = self.excluded.expand(len(self.scores), -1)
            is_counted *= ~at(excluded, self.row, column.clamp(min=0))
        return is_counted


def count(
    scores: Tensor,
    true: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    excluded: Excluded,
    borders: Tensor | None = None,
) -> Tensor:
    """As ``counting.count``; on an accelerator only lists wait for the device."""
    in_order = _order_of(scores)
    scores = _bits(scores)
    is_own = true is None
    if true is None:
        assert column is not None
        true = at(scores, row, column if borders is None else borders[row] + column)
    true = in_order(_bits(true))
    if borders is not None:
        assert row is not None
        return _count_lists(in_order(scores), true, row, column, excluded.cells, borders)
    matrix = _Matrix(scores, in_order, row, excluded.matrix)
    below, above, others, nan = _count_cells(matrix, true, column, is_own)
    is_number = true == true
    not_above = (others - above - nan) * is_number  # nothing is "not above" a NaN
    counts = torch.stack([others - not_above, others - below, others, nan + ~is_number])
    if excluded.slices is not None:
        counts -= _count_slices(matrix, true, column, excluded)
    return counts


def _count_cells(
    matrix: _Matrix, true: Tensor, column: Tensor | None, is_own: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Count the other candidates below and above the true score, all, and NaN: int64 (P,) each.

    If not ``is_own``, the true score was computed elsewhere, and may be rounded otherwise than the
    cell in its column.
    """
    compare = [torch.lt, torch.gt]
    if true.is_floating_point() and not true.is_cpu:
        compare.append(torch.ne)
    below, above, *nans = _sweep(matrix, true, compare)
    others = matrix.num_counted(len(true))
    own_nan = torch.zeros_like(others)
    if column is not None:
        is_counted = matrix.are_counted(column)
        own = true
        if not is_own:
            own = matrix.in_order(at(matrix.scores, matrix.row, column.clamp(min=0)))
        others -= is_counted
        below -= (own < true) * is_counted
        above -= (own > true) * is_counted
        own_nan = (own != own) * is_counted
    if nans:
        return below, above, others, nans[0] - own_nan
    nan = torch.zeros_like(others)
    rest = others - below - above
    # what is neither below nor above is tied or NaN: only then is a third comparison worth its time
    if true.is_floating_point() and rest.any():
        suspect = rest.nonzero()[:, 0]
        part = matrix._replace(row=suspect if matrix.row is None else matrix.row[suspect])
        nan[suspect] = _sweep(part, true[suspect], [torch.ne])[0] - own_nan[suspect]
    return below, above, others, nan


def _count_lists(
    scores: Tensor,
    true: Tensor,
    row: Tensor,
    column: Tensor | None,
    excluded: Tensor | None,
    borders: Tensor,
) -> Tensor:
    """Count in lists by one sort; waits for an accelerator."""
    counted = torch.ones_like(scores, dtype=torch.bool) if excluded is None else ~excluded
    owner = torch.arange(len(borders) - 1, device=row.device).repeat_interleave(borders.diff())
    length, below, not_above = _search_lists(scores, true, row, owner, counted)
    is_number = true == true
    is_candidate = torch.zeros_like(is_number)
    if column is not None:
        is_candidate = counted[borders[row] + column]
    others = length - is_candidate.long()
    below *= is_number
    not_above = (not_above - is_candidate.long()) * is_number
    nan = torch.zeros_like(borders[1:])
    nan.index_add_(0, owner, ((scores != scores) & counted).long())
    nan_besides = nan[row] + ~(is_number | is_candidate)
    return torch.stack([others - not_above, others - below, others, nan_besides])


def _search_lists(
    scores: Tensor, true: Tensor, row: Tensor, owner: Tensor, counted: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Count all entries of the list of each task, those below and not above: int64 (P,) each.

    ``owner`` (T,) is the list of each score. NaN is above all numbers.
    """
    # ascending places of all numbers, NaN behind them; then one sort of (list, place)
    code = torch.unique(torch.cat([scores, true]), return_inverse=True)[1]
    width = len(code) + 1
    key = (owner * width + code[: len(scores)])[counted].sort().values
    place = row * width + code[len(scores) :]
    begin = torch.searchsorted(key, row * width)
    end = torch.searchsorted(key, (row + 1) * width)
    below = torch.searchsorted(key, place) - begin
    not_above = torch.searchsorted(key, place + 1) - begin
    return end - begin, below, not_above


def _bits(scores: Tensor) -> Tensor:
    bits = BITS.get(scores.dtype)
    return scores if bits is None else scores.view(bits)


def _order_of(scores: Tensor) -> Map:
    """Return the map from cells of the scores to numbers of the same order for torch.

    Cells of dtypes in ``BITS`` are their bits.
    """
    dtype = scores.dtype
    if dtype in _FLOAT8:
        return lambda cells: cells.view(dtype).float()
    if dtype in BITS:
        # the lowest number becomes the lowest with a sign
        return lambda cells: cells ^ torch.iinfo(cells.dtype).min
    # halves are compared on the CPU by converting cell by cell; a tile at once is faster, and exact
    if dtype in (torch.float16, torch.bfloat16) and scores.is_cpu:
        return Tensor.float
    return Tensor.resolve_neg


class _Tiling:
    """Tiles of scores (B, N) that stay in the cache, and a buffer for the comparisons of one."""

    def __init__(self, scores: Tensor, num_tasks: int) -> None:
        limit = _TILE_ACCELERATOR
        if scores.is_cpu:
            limit = _TILE * min(torch.get_num_threads(), _MOST_THREADS)
        # column-major scores are read along their own memory: tiles of a few whole columns instead
        # of a few whole rows
        self._by_column = scores.stride(0) == 1 and scores.stride(1) > 1
        width = max(1, limit // num_tasks) if self._by_column else limit
        self.width = min(scores.shape[1], width)
        self.height = min(num_tasks, max(1, limit // self.width))
        size = self.height * self.width
        self._buffer = torch.empty(size, dtype=torch.float32, device=scores.device)

    def flags(self, tile: Tensor) -> Tensor:
        """Return the buffer in the shape and the order of a tile."""
        flags = self._buffer[: tile.numel()]
        return flags.view(tile.shape[::-1]).T if self._by_column else flags.view(tile.shape)


def _sweep(matrix: _Matrix, true: Tensor, compare: list[Callable[..., Tensor]]) -> Tensor:
    """Per comparison and task, in how many counted columns it holds: int64 (len(compare), P)."""
    N = matrix.scores.shape[1]
    shape = (len(compare), len(true))
    total = torch.zeros(shape, dtype=torch.int64, device=true.device)
    if not len(true) or not N:
        return total
    tiling = _Tiling(matrix.scores, len(true))
    part = torch.empty(shape, dtype=torch.float32, device=true.device)
    for left in range(0, N, tiling.width):
        columns = slice(left, left + tiling.width)
        _count_columns(matrix, true, compare, columns, tiling, part)
        total += part.long()
    return total


def _count_columns(
    matrix: _Matrix,
    true: Tensor,
    compare: list[Callable[..., Tensor]],
    columns: slice,
    tiling: _Tiling,
    out: Tensor,
) -> None:
    """Write to ``out``, (len(compare), P), in how many of some columns each comparison holds."""
    height = tiling.height
    tiles = _row_blocks(matrix.scores[:, columns], matrix.row, height)
    masks = _masks(matrix, columns, height)
    references = torch.split(true[:, None], height)
    outs = torch.split(out, height, 1)
    for tile, mask, reference, results in zip(tiles, masks, references, outs, strict=False):
        flags = tiling.flags(tile)
        tile = matrix.in_order(tile)
        for operation, result in zip(compare, results, strict=True):
            operation(tile, tile if operation is torch.ne else reference, out=flags)
            _add_up(flags, mask, result)


def _row_blocks(matrix: Tensor, row: Tensor | None, height: int) -> Iterable[Tensor]:
    if row is None:
        return torch.split(matrix, height)
    return (matrix.index_select(0, rows) for rows in torch.split(row, height))


def _masks(matrix: _Matrix, columns: slice, height: int) -> Iterable[Tensor | None]:
    """Excluded cells of the tiles of some columns; weights (n,) if all rows exclude the same."""
    if matrix.excluded is None:
        return repeat(None)
    excluded = matrix.excluded[:, columns]
    if len(excluded) == 1:
        return repeat((~excluded[0]).float())
    return _row_blocks(excluded, matrix.row, height)


def _add_up(flags: Tensor, mask: Tensor | None, out: Tensor) -> None:
    """Sum the flags of each row, except of masked cells."""
    if mask is not None and mask.ndim == 1:
        torch.mv(flags, mask, out=out)
        return
    if mask is not None:
        flags.masked_fill_(mask, 0)
    torch.sum(flags, 1, out=out)


def _count_slices(
    matrix: _Matrix, true: Tensor, column: Tensor | None, excluded: Excluded
) -> Tensor:
    """Count as ``count`` among the excluded slices, the target left out: int64 (4, P)."""
    row = torch.arange(len(true), device=true.device) if matrix.row is None else matrix.row
    total = torch.zeros(4, len(row), dtype=torch.int64, device=row.device)
    for task, entry, is_counted in _listed_cells(excluded, row, column):
        value = matrix.in_order(matrix.scores[row[task], entry])
        reference = true[task]
        better = ~(value <= reference)
        not_worse = ~(value < reference)
        kinds = (better, not_worse, torch.ones_like(better), value != value)
        for line, holds in zip(total, kinds, strict=True):
            line.index_add_(0, task, (holds & is_counted).long())
    return total


def _listed_cells(
    excluded: Excluded, row: Tensor, column: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of the tasks and columns in excluded slices, and whether they count for a task."""
    slices = excluded.slices
    assert slices is not None
    for task, place, inside in _entries(slices, row):
        # entries that are not inside may lie outside the matrix
        entry = (slices.columns[place] - slices.first) * inside
        is_counted = inside if column is None else inside & (entry != column[task])
        if excluded.columns is not None:
            is_counted = is_counted & ~excluded.columns[entry]
        yield task, entry, is_counted


def _entries(slices: ExcludedSlices, row: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of the entries of slices: their tasks, places in ``columns``, and which exist."""
    if row.is_cpu:
        tasks, places = slices.entries(row)
        blocks = zip(torch.split(tasks, _ENTRIES), torch.split(places, _ENTRIES), strict=True)
        for task, place in blocks:
            yield task, place, torch.ones_like(task, dtype=torch.bool)
        return
    # elsewhere their number is not known without waiting: blocks of the longest slice
    step = max(1, _TILE_ACCELERATOR // 8 // max(len(row), 1))
    start = slices.start[row][:, None]
    length = slices.length[row][:, None]
    task = torch.arange(len(row), device=row.device)[:, None]
    for left in range(0, slices.longest, step):
        offset = torch.arange(left, min(left + step, slices.longest), device=row.device)
        inside = offset < length
        place = (start + offset).clamp(max=len(slices.columns) - 1)
        yield task.expand_as(inside).reshape(-1), place.reshape(-1), inside.reshape(-1)
