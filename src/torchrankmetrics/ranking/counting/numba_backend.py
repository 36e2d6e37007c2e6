"""Counting compiled by Numba on several threads, for scores on the CPU."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import Excluded, ExcludedSlices, torch_backend as plain
from torchrankmetrics.ranking.counting.numba_one import count_one
from torchrankmetrics.ranking.counting.numba_several import count_several


def side_by_side(
    function: Callable[..., Any], number: int, threads: int, *arguments: Any
) -> list[Any]:
    """Share a number of things among threads; return the results of the function for each share.

    The function takes the arguments, and the first and the last thing of a share. Of the threads,
    at most as many as torch has, this one is the first.
    """
    if threads <= 1 or (threads := min(torch.get_num_threads(), threads)) == 1:
        return [function(*arguments, 0, number)]
    here, *others = pairwise(number * i // threads for i in range(threads + 1))
    waiting = [
        _pool(len(others), os.getpid()).submit(function, *arguments, *part) for part in others
    ]
    return [function(*arguments, *here), *(future.result() for future in waiting)]


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    # one per process, for threads do not survive a fork
    return ThreadPoolExecutor(workers, thread_name_prefix="torchrankmetrics")


# what Numba compiles is typed by Numba
# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="no-any-return,attr-defined,call-overload"


if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

# what is read as it is: 0; halves as integers in their order: the bits of infinity, above which are
# those of NaN
_READ = dict.fromkeys((torch.bool, torch.float32, torch.float64, torch.uint8), 0)
_READ |= dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), 0)
_READ |= {torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
_BITS = {torch.bool: torch.uint8, torch.float16: torch.int16, torch.bfloat16: torch.int16}
_PER_THREAD = 1 << 20  # comparisons that are worth a thread
_NONE = np.empty(0, np.int64)  # for an argument that was not given
_NO_MARKS = (np.empty(0, np.uint8), 0)
_EMPTY_LISTS = (_NONE, _NONE, _NONE, 0)


def count(
    scores: Tensor,
    true: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    excluded: Excluded,
    borders: Tensor | None = None,
) -> Tensor:
    """As ``plain.count``, bit for bit, on several threads, which share the tasks."""
    matrix = excluded.matrix
    if borders is not None:
        scores = scores.contiguous()
        matrix = None if matrix is None else matrix.contiguous()
    P = _num_tasks(scores, true, row)
    if not (P and scores.numel() and _is_readable(scores, matrix)):
        return plain.count(scores, true, row, column, excluded, borders)
    cells, step = _flat(scores)
    ends = _NONE
    width = scores.shape[-1]
    if borders is not None:
        ends = borders.numpy()
        width = int(borders.diff().max())
    order, vectors = _sort_by_row(
        cells[:0] if true is None else _numbers(true), _vector(row), _vector(column)
    )
    rows = vectors[1]
    kernel = count_several if (rows[1:] == rows[:-1]).any() else count_one
    result = np.zeros((4, P), np.int64)
    side_by_side(
        kernel,
        P,
        min(P, P * width // _PER_THREAD),
        (cells, step, ends, width, _READ[scores.dtype]),
        vectors,
        _lists(excluded.slices),
        _NO_MARKS if matrix is None else _flat(matrix),
        result,
    )
    if order is not None:
        result[:, order] = result.copy()
    return torch.from_numpy(result)


def _num_tasks(scores: Tensor, true: Tensor | None, row: Tensor | None) -> int:
    tasks = scores if row is None else row
    if true is not None:
        tasks = true
    return tasks.shape[0]  # len() of a tensor takes five times as long


def _is_readable(scores: Tensor, matrix: Tensor | None) -> bool:
    """Whether the kernels read the memory of the scores and of a mask as it is."""
    if scores.dtype not in _READ or scores.is_neg():
        return False
    return _is_by_row(scores) and (matrix is None or _is_by_row(matrix))


def _sort_by_row(keys: Any, rows: Any, columns: Any) -> tuple[Any, tuple[Any, Any, Any]]:
    """Sort tasks by row, so that a row is read once; the order is None if they are sorted."""
    if not len(rows) or not (rows[1:] < rows[:-1]).any():
        return None, (keys, rows, columns)
    order = rows.argsort(kind="stable")
    keys = keys[order] if len(keys) else keys
    columns = columns[order] if len(columns) else columns
    return order, (keys, rows[order], columns)


def _vector(index: Tensor | None) -> Any:
    return _NONE if index is None else _numbers(index)


def _lists(slices: ExcludedSlices | None) -> tuple[Any, Any, Any, int]:
    if slices is None:
        return _EMPTY_LISTS
    return slices.start.numpy(), slices.length.numpy(), slices.columns.numpy(), slices.first


def _is_by_row(matrix: Tensor) -> bool:
    return matrix.is_contiguous() or matrix.stride(-1) == 1 or matrix.shape[-1] == 1


def _flat(matrix: Tensor) -> tuple[Any, int]:
    """Return the memory that a row-major matrix spans as one vector, and the step between rows."""
    rows = matrix.shape[0]
    step = matrix.stride(0) if rows > 1 else 0  # one row of excluded columns serves every task
    if not matrix.is_contiguous():
        matrix = matrix.as_strided(((rows - 1) * step + matrix.shape[1],), (1,))
    return _numbers(matrix).ravel(), step


def _numbers(cells: Tensor) -> Any:
    if cells.dtype in _BITS:
        cells = cells.view(_BITS[cells.dtype])
    return cells.contiguous().numpy()
