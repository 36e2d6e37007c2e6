"""Count in plain torch on any device: the reference of all counting.

Comparisons are written into a small float buffer, which is summed while it is cached.
Nothing of the size of the scores is allocated. float32 sums of ones are exact below 2^24 columns a
tile.
"""

from collections.abc import Callable, Iterable, Iterator

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
    if is_own := true is None:
        assert column is not None
        true = at(scores, row, column if borders is None else borders[row] + column)
    reference = in_order(_bits(true))
    on_cpu = scores.is_cpu
    if borders is not None:
        assert row is not None
        return _count_lists(in_order(scores), reference, row, column, excluded.cells, borders)
    matrix = excluded.matrix
    compare = (
        [torch.lt, torch.gt]
        if on_cpu or not reference.is_floating_point()
        else [torch.lt, torch.gt, torch.ne]
    )
    below, above, *nans = _sweep(scores, reference, row, matrix, compare, in_order)
    others = torch.full_like(below, scores.shape[1])
    if matrix is not None:
        number = num_excluded(matrix)
        others -= number if row is None or len(matrix) == 1 else number[row]
    own_nan: Tensor | int = 0
    if column is not None:
        place = column.clamp(min=0)
        is_candidate = (column >= 0).long()
        if matrix is not None:
            is_candidate *= ~at(matrix.expand(len(scores), -1), row, place)
        own = reference if is_own else in_order(at(scores, row, place))
        others -= is_candidate
        # a true score that was computed elsewhere may be rounded otherwise than the cell in its
        # column
        below -= (own < reference) * is_candidate
        above -= (own > reference) * is_candidate
        own_nan = (own != own) * is_candidate
    rest = others - below - above
    nan = nans[0] if nans else torch.zeros_like(below) + own_nan
    # what is neither below nor above is tied or NaN: only then is a third comparison worth its time
    if on_cpu and reference.is_floating_point() and rest.any():
        suspect = rest.nonzero()[:, 0]
        rows = suspect if row is None else row[suspect]
        nan[suspect] = _sweep(scores, reference[suspect], rows, matrix, [torch.ne], in_order)[0]
    nan = nan - own_nan
    not_above = (below + rest - nan) * (reference == reference)  # nothing is "not above" a NaN
    counts = torch.stack(
        [others - not_above, others - below, others, nan + (reference != reference)]
    )
    if excluded.slices is not None:
        counts -= _count_slices(scores, reference, row, column, excluded, in_order)
    return counts


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
    own_nan = true != true
    is_candidate = torch.zeros_like(own_nan) if column is None else counted[borders[row] + column]
    # ascending places of all numbers, NaN behind them; then one sort of (list, place)
    code = torch.unique(torch.cat([scores, true]), return_inverse=True)[1]
    width = len(code) + 1
    owner = torch.arange(len(borders) - 1, device=row.device).repeat_interleave(borders.diff())
    key = (owner * width + code[: len(scores)])[counted].sort().values
    place = row * width + code[len(scores) :]
    begin, end, low, high = (
        torch.searchsorted(key, x) for x in (row * width, (row + 1) * width, place, place + 1)
    )
    others = end - begin - is_candidate.long()
    below = (low - begin) * ~own_nan
    not_above = (high - begin - is_candidate.long()) * ~own_nan
    nan = torch.zeros_like(borders[1:]).index_add_(0, owner, ((scores != scores) & counted).long())[
        row
    ]
    return torch.stack(
        [others - not_above, others - below, others, nan + (own_nan & ~is_candidate)]
    )


def _bits(scores: Tensor) -> Tensor:
    bits = BITS.get(scores.dtype)
    return scores if bits is None else scores.view(bits)


def _order_of(scores: Tensor) -> Map:
    """Return the map from cells of the scores (bits for dtypes in ``BITS``) to numbers of the same order for torch."""
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


def _sweep(
    scores: Tensor,
    true: Tensor,
    row: Tensor | None,
    excluded: Tensor | None,
    compare: list[Callable[..., Tensor]],
    in_order: Map = Tensor.resolve_neg,
) -> Tensor:
    """Per comparison and task, in how many counted columns it holds: int64 (len(compare), P)."""
    tasks = len(true)
    N = scores.shape[1]
    total = torch.zeros(len(compare), tasks, dtype=torch.int64, device=scores.device)
    if tasks == 0 or N == 0:
        return total
    limit = (
        _TILE * min(torch.get_num_threads(), _MOST_THREADS) if scores.is_cpu else _TILE_ACCELERATOR
    )
    # column-major scores are read along their own memory: tiles of a few whole columns instead of a
    # few whole rows
    by_column = scores.stride(0) == 1 and scores.stride(1) > 1
    width = min(N, max(1, limit // tasks) if by_column else limit)
    height = min(tasks, max(1, limit // width))
    buffer = torch.empty(height * width, dtype=torch.float32, device=scores.device)
    part = torch.empty(len(compare), tasks, dtype=torch.float32, device=scores.device)
    references = torch.split(true[:, None], height)
    outs = torch.split(part, height, 1)
    for_all = excluded is not None and len(excluded) == 1
    for left in range(0, N, width):
        columns = slice(left, left + width)
        weight = (~excluded[0, columns]).float() if for_all and excluded is not None else None
        masks = (
            references
            if for_all or excluded is None
            else _row_blocks(excluded[:, columns], row, height)
        )
        tiles = _row_blocks(scores[:, columns], row, height)
        for tile, reference, mask, out in zip(tiles, references, masks, outs, strict=True):
            flag = buffer[: tile.numel()]
            flag = flag.view(tile.shape[::-1]).T if by_column else flag.view(tile.shape)
            tile = in_order(tile)
            for operation, result in zip(compare, out, strict=True):
                operation(tile, tile if operation is torch.ne else reference, out=flag)
                if weight is not None:
                    torch.mv(flag, weight, out=result)
                    continue
                if excluded is not None:
                    flag.masked_fill_(mask, 0)
                torch.sum(flag, 1, out=result)
        total += part.long()
    return total


def _row_blocks(matrix: Tensor, row: Tensor | None, height: int) -> Iterable[Tensor]:
    if row is None:
        return torch.split(matrix, height)
    return (matrix.index_select(0, rows) for rows in torch.split(row, height))


def _count_slices(
    scores: Tensor,
    true: Tensor,
    row: Tensor | None,
    column: Tensor | None,
    excluded: Excluded,
    in_order: Map,
) -> Tensor:
    """What ``count`` counted among the excluded slices of each task, its own column left out: int64 (4, P)."""
    slices = excluded.slices
    assert slices is not None
    row = torch.arange(len(true), device=true.device) if row is None else row
    total = torch.zeros(4, len(row), dtype=torch.int64, device=row.device)
    for task, place, inside in _entries(slices, row):
        # entries that are not inside may lie outside the matrix
        entry = (slices.columns[place] - slices.first) * inside
        counted = inside if column is None else inside & (entry != column[task])
        if excluded.columns is not None:
            counted = counted & ~excluded.columns[entry]
        value = in_order(scores[row[task], entry])
        reference = true[task]
        better = ~(value <= reference)
        not_worse = ~(value < reference)
        for line, holds in zip(
            total, (better, not_worse, torch.ones_like(better), value != value), strict=True
        ):
            line.index_add_(0, task, (holds & counted).long())
    return total


def _entries(slices: ExcludedSlices, row: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Blocks of the entries of the slices of tasks: their tasks and places in ``columns``, and whether they are."""
    if row.is_cpu:
        for task, place in zip(
            *(torch.split(part, _ENTRIES) for part in slices.entries(row)), strict=True
        ):
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
