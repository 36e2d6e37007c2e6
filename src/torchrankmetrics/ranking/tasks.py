"""`target` and `exclude` of every entry point: their forms become ranking tasks in one place.

The type and the dtype decide the form (see ``rank_scores``), never the batch size. A label is a
gain; 0: not relevant. Integers with two dimensions could be labels, pairs or columns: they raise.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import (
    Array,
    Integers,
    as_ids,
    as_tensor,
    check_device,
    first_outside,
)
from torchrankmetrics.ranking.counting import NOTHING, Excluded, ExcludedSlices
from torchrankmetrics.validation import is_int

_SPARSE = 16  # a mask of which one cell in so many is excluded is read faster as slices


class Sparse(Protocol):
    """A SciPy sparse matrix or array."""

    def tocsr(self) -> Any:
        """Convert to rows."""


Target = (
    Tensor | Array | Sparse | tuple[Integers, Integers] | Sequence[int | Integers | Collection[int]]
)
Exclude = Target | ExcludedSlices | None
# rows and columns, int64 (P,); gains (None: all are 1)
Cells = tuple[Tensor, Tensor, Tensor | None]


class QueryRows(NamedTuple):
    """The rows of scores that ranking tasks are in, each a query."""

    row: Tensor  # int64 (P,), of every task
    number: int  # of rows
    empty: Tensor  # int64 (E,), rows without a relevant item; none where the target has pairs
    num_candidates: Tensor  # int64 (E,), of these rows


class Tasks(NamedTuple):
    """Checked ranking tasks of a (B, N) score matrix."""

    row: Tensor | None  # int64 (P,); None: task i is in row i
    column: Tensor  # int64 (P,), the target, clamped into range where ``flags`` reports an error
    excluded: Excluded  # candidates that are excluded, except the target of a task
    flags: Tensor | None  # int64 (P,)
    rows: QueryRows | None  # ``Ranks.rows`` of these tasks
    gain: Tensor | None  # float64 (P,), labels of the targets; None: all are 1

    @property
    def row_of_each(self) -> Tensor:
        """The row of every task, int64 (P,)."""
        return (
            torch.arange(len(self.column), device=self.column.device)
            if self.row is None
            else self.row
        )

    def flags_by(self, num_others: Tensor, num_columns: int) -> Tensor | None:
        """Return the flags, after a check that look-ups of known positives contain the targets.

        ``num_others`` is the number of other candidates of each task, int64 (P,). A target that is
        not found is a flag on an accelerator, where nothing waits for it, else a warning.
        """
        slices = self.excluded.slices
        if slices is None or slices.missing is None or not len(slices.columns):
            return self.flags
        length = slices.length if self.row is None else slices.length[self.row]
        others = num_columns - 1  # of a target, if nothing was excluded
        if num_others.is_cpu:  # NumPy's calls cost a fifth of torch's
            is_missing = num_others.numpy() + length.numpy() == others
            if number := int(np.count_nonzero(is_missing)):
                slices.missing.warn(number, len(is_missing))
            return self.flags
        unlisted = (num_others + length == others) * fault.UNLISTED
        return unlisted if self.flags is None else self.flags + unlisted

    def fingerprint(self, num_columns: int) -> dict[str, Tensor | None]:
        """Name the tasks by content, for processes that must be given the same."""
        target = torch.stack([self.row_of_each, self.column])
        return {
            "target": target,
            "labels of target": self.gain,
            **self.excluded.fingerprint(num_columns),
        }


def read_tasks(
    target: Target,
    exclude: Exclude | Excluded,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    by_query: bool | None = None,
) -> Tasks:
    """Read target and exclude of ``rank_scores`` for scores of a shape (B, N) on a device.

    If ``by_query``, by default if target has pairs of (row, column), the row of each task is
    stored, and it is flagged whether the target is excluded from the other tasks of the row.
    """
    (row, column, gain), empty = _read_target(target, shape, device)
    excluded = read_exclude(exclude, shape, device)
    faults = []
    if column.is_cpu:
        _check_range(row, column, shape)
    else:  # to look would wait for the device
        row, column, wrong = _clamped(row, column, shape)
        faults.append(wrong * fault.TARGET_RANGE)
    if excluded.columns is not None:
        faults += _check_candidates(column, excluded.columns)
    if excluded.bad_pairs is not None:
        faults.append((excluded.bad_pairs * fault.EXCLUDE_RANGE).expand(len(column)))
    is_look_up = isinstance(exclude, Excluded | ExcludedSlices)
    by_query = row is not None if by_query is None else by_query
    if by_query or not (exclude is None or is_look_up):
        listed = _are_listed(row, column, exclude, excluded)
        if by_query:
            faults.append(torch.where(listed, fault.FILTERED, fault.RAW))
        # to look would wait for an accelerator
        if not is_look_up and (not listed.is_cpu or listed.any()):
            faults.append(listed * fault.EXCLUDED)
    rows = None
    if by_query and row is not None:
        sizes = excluded.num_candidates(empty, shape[1]) if len(empty) else empty
        rows = QueryRows(row.clone(), shape[0], empty, sizes)
    return Tasks(row, column, excluded, torch.stack(faults).sum(0) if faults else None, rows, gain)


def _check_candidates(column: Tensor, excluded: Tensor) -> list[Tensor]:
    """Check that no target is excluded for all rows (N,); on an accelerator return the flags."""
    outside = excluded[column]
    if not outside.is_cpu:
        return [outside * fault.TARGET_EXCLUDED]
    if outside.any():
        first = int(outside.nonzero()[0])
        raise ValueError(
            f"target must be a candidate; column {int(column[first])} of task {first} is excluded"
        )
    return []


def _are_listed(
    row: Tensor | None, column: Tensor, exclude: Exclude | Excluded, excluded: Excluded
) -> Tensor:
    """Find which targets are excluded from other tasks of their rows, bool (tasks,)."""
    row = torch.arange(len(column), device=column.device) if row is None else row
    if isinstance(exclude, Tensor) and exclude.ndim == 2:  # read faster than its slices
        return exclude[row, column]
    return excluded.lists(row, column)


def _check_range(row: Tensor | None, column: Tensor, shape: tuple[int, ...]) -> None:
    """Check that targets are cells of scores (B, N)."""
    first = first_outside(row, column, *shape)
    if first is not None:
        raise _outside(first, row, column, shape)


def _clamped(
    row: Tensor | None, column: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Move targets into the scores (B, N); return them with the mask of those that were outside."""
    B, N = shape
    wrong = (column < 0) | (column >= N)
    if row is not None:
        wrong = wrong | (row < 0) | (row >= B)
        row = row.clamp(0, max(B - 1, 0))
    return row, column.clamp(0, N - 1), wrong


def _read_target(
    target: Target, shape: tuple[int, ...], device: torch.device
) -> tuple[Cells | tuple[None, Tensor, Tensor | None], Tensor]:
    """Read a target as cells (without rows, cell i is in row i), and find the rows without any."""
    B, N = shape
    none = torch.empty(0, dtype=torch.int64, device=device)
    if isinstance(target, Tensor) and target.ndim == 1:
        form: Tensor | Cells = target
    else:
        # lists are read on the CPU, where nothing waits for an accelerator
        where = device if isinstance(target, Tensor | tuple) else torch.device("cpu")
        form = _read_form(target, "target", shape, where)
    if isinstance(form, Tensor) and form.ndim != 2:
        column = _read_columns(form, shape)
        column = column if isinstance(target, Tensor) else column.to(device)
        check_device(column, "target", device, "scores")
        return (None, column, None), none
    if isinstance(form, Tensor):
        if form.shape != shape:
            raise ValueError(
                f"target as labels must be (B, N) = {tuple(shape)}, got {form.dtype} "
                f"{tuple(form.shape)}; embeddings are ranked by rank_embeddings(queries, "
                "candidates, target)"
            )
        cells = _cells_of_mask(form.bool())  # a quarter of the time of labels != 0
        form = *cells, read_gain(form[cells])
    row, column, gain = form
    if len(row) and B == 0:
        raise IndexError(
            f"target must lie in the rows of scores (0, {N}), which has none; got {len(row)} tasks"
        )
    empty = rows_without(row, B) if is_by_row(target) else none
    gain = None if gain is None else gain.to(device)
    return (row.to(device), column.to(device), gain), empty.to(device)


def _read_columns(form: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Read a target with one column per row of scores (B, N)."""
    B, N = shape
    if form.is_floating_point():
        raise TypeError(
            f"target must contain integers, got {form.dtype}: pass target.long(), or labels of the "
            f"shape of scores, {tuple(shape)}"
        )
    column = as_ids(form, "target")
    if column.shape != (B,):
        is_transposed = column.shape == (N,)
        hint = ". Are scores transposed? They are (queries, candidates)" * is_transposed
        raise ValueError(
            f"target must be ({B},), one column per row of scores {tuple(shape)}; got "
            f"{tuple(column.shape)}{hint}"
        )
    return column


def _outside(first: int, row: Tensor | None, column: Tensor, shape: tuple[int, ...]) -> IndexError:
    """Return the error for the first target out of range."""
    B, N = shape
    at = first if row is None else int(row[first])
    given = int(column[first])
    if not 0 <= at < B:
        return IndexError(
            f"target of task {first} is in row {at}, but scores have the rows 0 to {B - 1}"
        )
    where = (
        f"target[{first}] is {given}" if row is None else f"target has column {given} in row {at}"
    )
    hint = ""
    if given < 0 and row is None:
        hint = "; drop padded rows before: keep = target >= 0, scores[keep], target[keep]"
    elif given < 0:
        lists = "[[i for i in row if i >= 0] for row in target]"
        hint = f"; drop padding before: for lists pass {lists}"
    elif given == N:
        hint = "; columns count from 0: subtract 1 if your ids start at 1"
    else:
        hint = "; ids of retrieved items go in through ranking.ranks_of_lists"
    return IndexError(
        f"target must lie in [0, {N}), the columns of scores {tuple(shape)}, but {where}{hint}"
    )


def rows_without(row: Tensor, num_rows: int) -> Tensor:
    """Find the rows without a cell, from the row (P,) of every cell; waits for an accelerator."""
    if row.is_cpu:  # NumPy's calls cost a fifth of torch's
        number = np.bincount(row.numpy(), minlength=num_rows)
        return torch.from_numpy(np.flatnonzero(number == 0))
    is_empty = torch.ones(num_rows, dtype=torch.bool, device=row.device)
    is_empty[row] = False
    return is_empty.nonzero()[:, 0]


def _cells_of_mask(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the cells that are True."""
    if mask.is_cpu and mask.is_contiguous():  # a sixth of the time of torch's where few are
        place = torch.from_numpy(np.flatnonzero(mask.numpy()))
        row = place // max(1, mask.shape[1])
        return row, place - row * mask.shape[1]
    row, column = mask.nonzero().unbind(1)
    return row, column


def read_gain(label: Tensor, name: str = "target") -> Tensor | None:
    """Read the labels of a target that are not 0 as gains, float64; None: all are 1."""
    if label.dtype == torch.bool:
        return None
    gain = label.to(torch.float64)
    wrong = ~(gain > 0) | gain.isinf()
    if wrong.any():
        raise ValueError(
            f"{name} must contain finite labels of at least 0, got {float(gain[wrong][0])}; mark "
            "padding with exclude= and give it the label 0"
        )
    return None if (gain == 1).all() else gain


def is_by_row(values: Any) -> bool:
    """Whether a form lists the columns of every row.

    An argument with one entry per query then has B entries.
    """
    if isinstance(values, Tensor):
        return values.dtype == torch.bool or values.is_floating_point()
    if hasattr(values, "__array__"):
        return np.asarray(values).dtype.kind in "bfO"
    return not isinstance(values, tuple)


def read_exclude(
    exclude: Exclude | Excluded, shape: tuple[int, ...], device: torch.device
) -> Excluded:
    """Read ``exclude`` in any form, or in several, for scores of a shape (B, N) on a device."""
    if exclude is None:
        return NOTHING
    # of a whole evaluation: known positives, and columns for all queries
    if isinstance(exclude, Excluded):
        read_exclude(exclude.slices, shape, device)
        return exclude
    B, N = shape
    if isinstance(exclude, ExcludedSlices):
        if len(exclude) != B:
            raise ValueError(
                f"exclude must come from {B} queries, one per row of scores; it has {len(exclude)}"
            )
        if exclude.num_columns > N:
            raise IndexError(
                f"exclude has columns up to {exclude.num_columns - 1}; scores ({B}, {N}) end at "
                f"{N - 1}"
            )
        check_device(exclude.start, "exclude", device, "scores")
        return Excluded(exclude)
    form = _read_form(exclude, "exclude", shape, device)
    if isinstance(form, Tensor):
        _check_mask(form, B, N)
        if form.ndim == 1:
            return Excluded(columns=form)
        if not form.is_cpu or np.count_nonzero(form.numpy()) * _SPARSE > B * N:
            return Excluded(cells=form)
        form = *_cells_of_mask(form), None
    row, column, _ = form
    return _slices_of_pairs(row, column, B, N)


def _check_mask(mask: Tensor, B: int, N: int) -> None:
    """Check that ``exclude`` as a mask has the dtype and the shape for scores (B, N)."""
    has_shape = mask.shape in ((B, N), (N,))
    if has_shape and mask.dtype == torch.bool:
        return
    remedy = "for the columns of every row pass a list, such as exclude=[[0, 2], [1]]"
    if has_shape and mask.is_floating_point():
        remedy = (
            "pass exclude.bool() if 1 marks a candidate that is excluded, and exclude == 0 if 1 "
            "marks a candidate that is ranked"
        )
    raise (TypeError if mask.dtype != torch.bool else ValueError)(
        f"exclude as a mask must be bool (B, N) = ({B}, {N}) or (N,) = ({N},), got "
        f"{mask.dtype} {tuple(mask.shape)}; {remedy}"
    )


def _slices_of_pairs(row: Tensor, column: Tensor, B: int, N: int) -> Excluded:
    """Sort (row, column) pairs into slices; repeated pairs count once.

    On an accelerator no shape depends on the data, so that nothing waits for it: pairs out of range
    are dropped.
    """
    key = row * N + column
    bad = None
    if not row.is_cpu:
        wrong = (row < 0) | (row >= B) | (column < 0) | (column >= N)
        bad = wrong.any()
        key = torch.where(wrong, B * N, key).sort().values
        repeated = torch.zeros_like(wrong)
        repeated[1:] = key[1:] == key[:-1]
        # repeats and wrong pairs go behind the last row
        key = torch.where(repeated, B * N, key).sort().values
    elif (outside := first_outside(row, column, B, N)) is not None:
        raise IndexError(
            f"exclude must contain rows in [0, {B}) and columns in [0, {N}); "
            f"pair {outside} is ({int(row[outside])}, {int(column[outside])})"
        )
    else:
        # a third of the time of torch's sort
        key = torch.unique_consecutive(torch.from_numpy(np.sort(key.numpy())))
    border = torch.searchsorted(key, torch.arange(B + 1, device=key.device) * N)
    length = border.diff()
    longest = int(length.max()) if bad is None and B else min(len(key), N)
    return Excluded(ExcludedSlices(key % N, border[:-1], length, longest, N), bad_pairs=bad)


def _read_form(
    values: Any, name: str, shape: tuple[int, ...], device: torch.device
) -> Tensor | Cells:
    """Read a target or what is excluded as cells; a vector or labels as a tensor, not checked."""
    if isinstance(values, tuple):
        parts = [_on_device(part, name, device) for part in values]
        if len(parts) != 2 or parts[0].ndim != 1 or parts[0].shape != parts[1].shape:
            raise ValueError(
                f"{name} as a tuple must be (rows, columns), two vectors (P,), got shapes "
                f"{[tuple(part.shape) for part in parts]}; a list has one entry per row: "
                f"{name}=[[0, 2], [1]]"
            )
        return as_ids(parts[0], name), as_ids(parts[1], name), None
    if isinstance(values, list) or getattr(values, "dtype", None) == np.dtype(object):
        return _of_list(list(values), name, shape[0], device)
    if hasattr(values, "tocsr"):
        if values.shape != tuple(shape):
            raise ValueError(
                f"{name} as a sparse matrix must be (B, N) = {tuple(shape)}, got {values.shape}"
            )
        found = values.tocsr().tocoo()
        row, column, label = (
            _on_device(part, name, device) for part in (found.row, found.col, found.data)
        )
        return _labeled(row.long(), column.long(), label if name == "target" else label != 0)
    tensor = _on_device(values, name, device)
    if tensor.ndim == 2 and tensor.dtype != torch.bool and not tensor.is_floating_point():
        raise ValueError(
            f"{name} must not be integers with two dimensions, got {tensor.dtype} "
            f"{tuple(tensor.shape)} for scores {tuple(shape)}: pass "
            f"{_instead_of_integers(name, tuple(tensor.shape), tuple(shape))}"
        )
    return tensor


def _instead_of_integers(name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return what to pass instead of integers with two dimensions: columns, pairs or labels."""
    forms = [f"{name}.tolist() if these are the columns of every row"]
    if got[1] == 2:
        forms.append(f"tuple({name}.T) if every row is a pair (row, column)")
    if got[0] == 2:
        forms.append(f"tuple({name}) if these are rows and columns, (2, P)")
    if got == shape:
        as_labels = f"{name}.bool() or {name}.float()" if name == "target" else f"{name}.bool()"
        forms.append(f"{as_labels} if these are labels")
    return ", ".join(forms)


def _labeled(row: Tensor, column: Tensor, label: Tensor) -> Cells:
    """Cells whose label is not 0, with their gains."""
    keep = label != 0
    return row[keep], column[keep], read_gain(label[keep])


def _on_device(values: Any, name: str, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor | list) and not hasattr(values, "__array__"):
        listed = f": pass [{name}[row] for row in rows]" * isinstance(values, Mapping)
        if hasattr(values, "tails"):
            listed = ": pass its known.tails(heads, relations) or known.heads(relations, tails)"
        raise TypeError(
            f"{name} must be a tensor or an array (labels (B, N) as bool), a list with one entry "
            "per row or a tuple (rows, columns); got "
            f"{type(values).__name__}{listed}"
        )
    tensor = as_tensor(values, name)
    if isinstance(values, Tensor):
        check_device(tensor, name, device, "scores")
    return tensor.to(device)


def _of_list(values: list[Any], name: str, num_rows: int, device: torch.device) -> Tensor | Cells:
    if values and all(is_int(part) for part in values):
        return as_tensor(np.asarray(values, dtype=np.int64), name).to(device)
    if len(values) != num_rows:
        raise ValueError(
            f"{name} as a list must have one entry per row of scores, {num_rows}; got {len(values)}"
        )
    has_labels = (
        name == "target" and bool(values) and all(isinstance(part, Mapping) for part in values)
    )
    parts = [_columns_of(part, f"{name}[{i}]", has_labels) for i, part in enumerate(values)]
    length = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu")
    row = torch.arange(num_rows, device="cpu").repeat_interleave(length)
    column = torch.cat(parts) if parts else row
    if name == "target" and len(column) and int(column.min()) >= 0:  # else the range check raises
        _check_repeats(row, column)
    if not has_labels:
        return row.to(device), column.to(device), None
    label = as_tensor([one for part in values for one in part.values()], name)
    return _labeled(row.to(device), column.to(device), label.to(device))


def _columns_of(part: Any, name: str, has_labels: bool) -> Tensor:
    """Columns of one row of a list, (m,) int64 on the CPU; of a mapping with labels its keys."""
    is_columns = isinstance(part, Collection | Tensor) and not isinstance(part, str | Mapping)
    is_bool = False
    if is_columns and not isinstance(part, Tensor):
        is_bool = isinstance(next(iter(part), 0), bool)
    if is_bool or not (is_columns or has_labels):
        argument, _, entry = name[:-1].partition("[")
        raise TypeError(
            f"{argument} as a list must contain the columns of every row, got {part!r:.80} in "
            f"entry {entry}; labels (B, N) go in as torch.tensor({argument})"
        )
    column = as_ids(list(part) if isinstance(part, Set | Mapping) else part, name).cpu()
    if column.ndim != 1:
        raise ValueError(f"{name} must be a vector of columns, got shape {tuple(column.shape)}")
    return column.sort().values if isinstance(part, Set) else column


def _check_repeats(row: Tensor, column: Tensor) -> None:
    """Check that a target lists no column of a row twice."""
    width = int(column.max()) + 1
    key = (row * width + column).sort()[0]
    repeated = (key[1:] == key[:-1]).nonzero()
    if repeated.numel():
        i, item = divmod(int(key[repeated[0, 0]]), width)
        raise ValueError(
            f"target as a list must list each column of a row once, got {item} twice in entry {i}"
        )
