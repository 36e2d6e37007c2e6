"""The forms in which `target` and `exclude` name cells of a score matrix, read in one place for both.

The type and the dtype decide the form, never the batch size.

| form | meaning |
|---|---|
| integers (B,) | one column per row |
| bool or floating (B, N) | labels |
| SciPy sparse (B, N) | labels |
| integers (2, P) | pairs (row, column) |
| tuple of two vectors | (rows, columns) |
| list | one entry per row: a column, the columns of that row, or a dict {column: label} |

A label is a gain; 0 is not relevant. Integers of the shape of the scores, or (B, 1), could be labels, pairs or columns:
they raise for every B.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Array, Integers, as_ids, as_tensor


class Sparse(Protocol):
    """A SciPy sparse matrix or array."""

    def tocsr(self) -> Any:
        """Convert to rows."""


Form = Tensor | Array | Sparse | tuple[Integers, Integers] | Sequence[int | Integers | Collection[int]]
"""What ``target`` and ``exclude`` take in common."""


class Cells(NamedTuple):
    """Cells of a score matrix: rows and columns, int64 (P,), and gains, float64 (P,); None: all are 1."""

    row: Tensor
    column: Tensor
    gain: Tensor | None = None


def read_gain(label: Tensor) -> Tensor | None:
    """Read the labels of a target that are not 0 as gains, float64; None: all are 1.

    Raises:
        ValueError: if a label is negative, infinite or NaN.
    """
    gain = label.to(torch.float64)
    wrong = ~(gain > 0) | gain.isinf()
    if wrong.any():
        raise ValueError(f"target must hold finite labels of at least 0, got {float(gain[wrong][0])}")
    return None if (gain == 1).all() else gain


def read_form(values: Any, name: str, shape: tuple[int, ...], device: torch.device) -> Tensor | Cells:
    """Read a target or what is excluded, for scores of a shape (B, N) on a device.

    Returns:
        Cells; or a vector or labels, as a tensor that is not checked further.

    Raises:
        TypeError, ValueError: for other types and shapes, and another device; the message names the form to use.
    """
    if isinstance(values, tuple):
        if len(values) != 2:
            raise ValueError(f"{name} as a tuple must be (rows, columns), got {len(values)} entries; {_list(name)}")
        row, column = (_read(part, name, device) for part in values)
        if row.ndim != 1 or row.shape != column.shape:
            raise ValueError(
                f"{name} as (rows, columns) must be two vectors (P,), got shapes {tuple(row.shape)} and "
                f"{tuple(column.shape)}; {_list(name)}"
            )
        return Cells(as_ids(row, name), as_ids(column, name))
    if isinstance(values, list) or getattr(values, "dtype", None) == np.dtype(object):
        return _of_list(list(values), name, shape[0], device)
    if hasattr(values, "tocsr"):
        return _of_sparse(values, name, shape, device)
    tensor = _read(values, name, device)
    if tensor.ndim == 2 and tensor.dtype != torch.bool and not tensor.is_floating_point():
        return _of_pairs(tensor, name, shape)
    return tensor


def _graded(cells: Cells, label: Tensor) -> Cells:
    """Cells whose label is not 0, with their gains."""
    keep = label != 0
    return Cells(cells.row[keep], cells.column[keep], read_gain(label[keep]))


def is_by_row(values: Any) -> bool:
    """Whether a form lists the columns of every row: an argument with one entry per query then has B entries."""
    if isinstance(values, Tensor):
        return values.dtype == torch.bool or values.is_floating_point()
    if hasattr(values, "__array__"):
        return np.asarray(values).dtype.kind in "bfO"
    return not isinstance(values, tuple)


def _list(name: str) -> str:
    return f"pass a list for one entry per row, such as {name}=[[0, 2], [1]]"


def _read(values: Any, name: str, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor | list) and not hasattr(values, "__array__"):
        raise TypeError(
            f"{name} must be a tensor or an array (labels (B, N) as bool, pairs (2, P) of (row, column)), a list "
            f"with one entry per row or a tuple (rows, columns); got {type(values).__name__}"
        )
    tensor = as_tensor(values, name)
    if not isinstance(values, Tensor):
        return tensor.to(device)
    if tensor.device != device:
        raise ValueError(f"{name} must be on the device of scores, {device}; got {tensor.device}")
    return tensor


def _of_pairs(pairs: Tensor, name: str, shape: tuple[int, ...]) -> Cells:
    got = f"{pairs.dtype} {tuple(pairs.shape)}"
    as_tuple = "pairs (row, column) as a tuple (rows, columns)"
    if pairs.shape == shape:
        raise ValueError(
            f"{name} must be labels or pairs, got {got} for scores {tuple(shape)}, which could be either: pass "
            f"{'labels as floats, target.float()' if name == 'target' else 'bool labels, exclude > 0'}, or {as_tuple}"
        )
    if pairs.shape == (shape[0], 1):
        raise ValueError(
            f"{name} must be columns or pairs, got {got} for scores {tuple(shape)}, which could be either: pass one "
            f"column per row as a list of lists, {name}.tolist(), or {as_tuple}"
        )
    if len(pairs) != 2:
        turned = f"pass {name}.T, or " if pairs.shape[1] == 2 else "pass "
        raise ValueError(
            f"{name} of integers must be (2, P), pairs of (row, column), got {got}: {turned}bool labels (B, N), or a "
            f"list with one entry per row, {name}.tolist()"
        )
    return Cells(as_ids(pairs[0], name), as_ids(pairs[1], name))


def _of_list(values: list[Any], name: str, num_rows: int, device: torch.device) -> Tensor | Cells:
    if values and all(isinstance(part, int | np.integer) and not isinstance(part, bool) for part in values):
        return as_tensor(np.asarray(values, dtype=np.int64), name).to(device)
    label: Tensor | None = None
    if name == "target" and values and all(isinstance(part, Mapping) for part in values):
        label = as_tensor([one for part in values for one in part.values()], name)
        values = [list(part) for part in values]
    for i, part in enumerate(values):
        if not isinstance(part, Collection | Tensor) or isinstance(part, str | Mapping):
            raise TypeError(f"{name} as a list must hold the columns of every row, got {part!r:.80} in entry {i}")
        if not isinstance(part, Tensor) and isinstance(next(iter(part), 0), bool):
            raise TypeError(
                f"{name} as a list must hold columns, got bool in entry {i}: pass labels (B, N) as torch.tensor({name})"
            )
    if len(values) != num_rows:
        raise ValueError(
            f"{name} as a list must have one entry for each of {num_rows} rows of scores, got {len(values)}"
        )
    parts = []
    for i, part in enumerate(values):
        column = as_ids(sorted(part) if isinstance(part, set | frozenset) else part, f"{name}[{i}]")
        if column.ndim != 1:
            raise ValueError(f"{name}[{i}] must be a vector of columns, got shape {tuple(column.shape)}")
        parts.append(column.cpu())
    length = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu")
    row = torch.arange(num_rows, device="cpu").repeat_interleave(length)
    cells = Cells(row.to(device), (torch.cat(parts) if parts else row).to(device))
    return cells if label is None else _graded(cells, label.to(device))


def _of_sparse(values: Any, name: str, shape: tuple[int, ...], device: torch.device) -> Cells:
    if values.shape != tuple(shape):
        raise ValueError(f"{name} as a sparse matrix must be (B, N) = {tuple(shape)}, got {values.shape}")
    found = values.tocsr().tocoo()
    row, column, label = (_read(part, name, device) for part in (found.row, found.col, found.data))
    return _graded(Cells(row.long(), column.long()), label if name == "target" else label != 0)
