"""Rows as plain arrays by name, and from columns of text."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_array, as_ids
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import ABSENT, SIDE_BITS, SIDE_WORDS, WIDTH, Columns, check_side_codes
from torchrankmetrics.validation import shorten, truncate

Array = npt.NDArray[Any]
VERSION_FIELD = "rank_table_version"
VERSIONS = (1, 2, 3, 4, 5)
_NEW_IN = {"query": 2, "partial": 3, "gain": 4}  # the first version of a file that may have this column
_UNKNOWN_IN = 5  # the first version of a file that may lack num_candidates
INTEGERS = ("optimistic", "pessimistic", "num_candidates", "side", "group", "sample_id", "count", "query")
DEFAULTS = {
    "num_candidates": fault.UNKNOWN,
    "side": 0,
    "group": ABSENT,
    "sample_id": ABSENT,
    "count": 1,
    "query": ABSENT,
}
FLAGS = {
    "nan": fault.NAN,
    "sampled": fault.SAMPLED,
    "partial": fault.PARTIAL,
    "filtered": fault.FILTERED,
    "raw": fault.RAW,
}
FLOATS = {"weight": "weight_bits", "gain": "gain_bits"}
NAMES = (*INTEGERS, *FLOATS, *FLAGS)
_PER_TASK = ("optimistic", "sample_id")
_OPTIONAL = ("side", "group", "sample_id", "query")  # columns of text that may have missing values
MISSING = ("", "nan", "none", "<na>")  # as CSV files, NumPy and pandas write missing values
_EXACT = 2.0**53  # larger floats are not exact integers


class TooLargeError(ValueError):
    """A file needs more memory than the caller allows."""

    def __init__(self, path: str | os.PathLike[str], needed: object, max_bytes: int) -> None:
        super().__init__(
            f"{os.fspath(path)} is not loaded: it would take {needed} bytes of memory, and max_bytes={max_bytes}: if "
            "you trust it, allow more (max_bytes=, on the command line --max-bytes)"
        )


def to_arrays(rows: Tensor) -> dict[str, Array]:
    """Write rows as arrays by name, without columns of default values; faults of an accelerator are errors."""
    table = Columns(rows.cpu().numpy())
    flags = table.flags
    fault.raise_faults(flags)
    arrays: dict[str, Array] = {}
    for name in INTEGERS:
        column = getattr(table, name).copy()
        if name not in DEFAULTS or (column != DEFAULTS[name]).any():
            arrays[name] = column
    for name, bits in FLOATS.items():
        numbers = getattr(table, bits).copy().view(np.float64)
        if (numbers != 1).any():
            arrays[name] = numbers
    arrays |= {name: flags & bit > 0 for name, bit in FLAGS.items() if (flags & bit).any()}
    return arrays


def from_arrays(arrays: Mapping[str, npt.ArrayLike]) -> Tensor:
    """Read rows from arrays by name, as ``RankTable.from_numpy`` describes them."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays must be a dict of arrays by name, got {type(arrays).__name__}")
    check_names(arrays)
    if "optimistic" not in arrays:
        raise ValueError(f"arrays must contain optimistic, got {truncate(', '.join(map(str, arrays))) or 'none'}")
    n = len(_vector(arrays["optimistic"], "optimistic", None))
    table = Columns(np.empty((WIDTH, n), dtype=np.int64).T)  # in memory by columns, as they are written and read
    for name in INTEGERS:
        if name in arrays:
            column = as_ids(_vector(arrays[name], name, n), name).numpy()
        else:
            column = table.optimistic if name == "pessimistic" else np.array(DEFAULTS[name])
        setattr(table, "side_and_flags" if name == "side" else name, column)
    known = table.num_candidates != fault.UNKNOWN
    for part in (known, ~known):  # Ranks checks the values
        if part.any():
            ranks = table.ranks if part.all() else table.ranks[part]
            low, high, N = torch.from_numpy(ranks.T)
            Ranks(low, high, N if part is known else None)
    for name, bits in FLOATS.items():
        numbers = _vector(arrays[name], name, n) if name in arrays else np.ones(n)
        if n and numbers.dtype.kind not in "iuf":
            raise TypeError(f"{name} must hold real numbers, got {numbers.dtype}")
        numbers = numbers.astype(np.float64) + 0.0  # -0.0 and 0.0 have different bits
        setattr(table, bits, numbers.view(np.int64))
        _refuse(~(np.isfinite(numbers) & (numbers >= 0)), numbers, f"{name} must be finite and not negative")
    side, count = table.side_and_flags, table.count
    named = table.sample_id != ABSENT
    check_side_codes(side)
    _refuse(count < 1, count, "count must be at least 1")
    _refuse(named & (count != 1), count, "count must be 1 in rows with a sample_id: repeats of an id count once")
    for name, bit in FLAGS.items():
        if name in arrays:
            flag = _vector(arrays[name], name, n)
            if n and flag.dtype != bool:
                raise TypeError(f"{name} must hold booleans, got {flag.dtype}")
            side |= (flag.astype(np.int64) * bit) << SIDE_BITS
    marks = table.flags & (fault.FILTERED | fault.RAW)
    _refuse(marks == fault.FILTERED | fault.RAW, marks, "filtered and raw must not both be true")
    _refuse((marks > 0) & (table.query == ABSENT), table.query, "filtered and raw belong to rows with a query")
    return torch.from_numpy(table.rows)


def check_names(names: Iterable[str]) -> None:
    """Check the names of columns."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"arrays must be among {', '.join(NAMES)}; got {truncate(', '.join(map(repr, unknown)))}")


def check_version(version: object, names: Collection[str]) -> None:
    """Check that a file has a supported version, and only columns of its version."""
    if not isinstance(version, int) or version not in VERSIONS:
        read = ", ".join(map(str, VERSIONS))
        raise ValueError(f"its {VERSION_FIELD} is {shorten(version)}; this library reads {read}")
    if version < (needed := version_of(names)):
        found, must = "no 'num_candidates'", "must have"
        if "num_candidates" in names:
            found, must = repr(max(names, key=lambda name: _NEW_IN.get(name, 1))), "must not have"
        raise ValueError(f"it has {found}, which a file of {VERSION_FIELD} below {needed} {must}")


def version_of(names: Collection[str]) -> int:
    """The first version that has these columns."""
    newest = max((_NEW_IN.get(name, 1) for name in names), default=1)
    return newest if "num_candidates" in names else _UNKNOWN_IN


def _vector(values: npt.ArrayLike, name: str, n: int | None) -> Array:
    array = as_array(values, name)
    if array.ndim == 0 and n is not None and name not in _PER_TASK:
        return np.full(n, array)
    if array.ndim != 1 or (n is not None and len(array) != n):
        expected = "(tasks,)" if n is None else f"(tasks,) = ({n},) as optimistic"
        raise ValueError(f"{name} must be {expected}, got shape {array.shape}")
    return array


def _refuse(wrong: npt.NDArray[np.bool_], values: Array, text: str) -> None:
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"{text}; got {values[first]} in row {first}")


def from_columns(names: Sequence[object], columns: Iterable[npt.ArrayLike], source: str) -> Tensor:
    """Read rows from columns: ``rank``, or ``optimistic`` and ``pessimistic``; and the columns of ``from_numpy``."""
    if len(set(names)) < len(names):
        raise ValueError(f"columns must have different names, got {truncate(', '.join(map(str, names)))}")
    known = ("rank", *NAMES)
    found = {str(name): np.asarray(column) for name, column in zip(names, columns, strict=True) if name in known}
    if not ("rank" in found) ^ ({"optimistic", "pessimistic"} <= found.keys()):
        got = truncate(", ".join(map(str, names))) or "none"
        raise ValueError(f"columns must contain rank, or optimistic and pessimistic (with ties); got {got}")
    arrays = {name: of_text(values, name) for name, values in found.items()}
    if "rank" in arrays:
        arrays["optimistic"] = arrays.pop("rank")
    rows = from_arrays(arrays)
    if ignored := [str(name) for name in names if name not in known]:
        warn(f"{source}: ignored the columns {truncate(', '.join(ignored))}")
    return rows


def of_text(values: Array, column: str) -> Array:
    """Read text or numbers as the dtype of ``RankTable.from_numpy``; missing sides, groups and ids are not given."""
    if values.dtype.kind in "iu" or (values.dtype == bool and column in FLAGS):
        return values
    text = np.char.lower(np.char.strip(values.astype(str)))
    missing = np.isin(text, MISSING)
    if column in FLAGS:
        true = np.isin(text, ("true", "1", "1.0"))
        if (wrong := ~(true | missing | np.isin(text, ("false", "0", "0.0")))).any():
            row = int(wrong.argmax())
            raise ValueError(f"{column} must be true or false, got {shorten(values[row])} in row {row}")
        return true
    if missing.any() and column not in _OPTIONAL:
        raise ValueError(f"{column} must have a value in every row, got none in row {int(missing.argmax())}")
    text = np.where(missing, str(DEFAULTS.get(column)), text)
    if column == "side":
        text = np.array([str(SIDE_WORDS.get(word, word)) for word in text.tolist()], dtype=str)
    if column not in FLOATS:
        with suppress(ValueError, OverflowError):
            return text.astype(np.int64)
    try:
        numbers = text.astype(np.float64)
    except ValueError:
        hint = ", or head and tail" if column == "side" else ": number names from 0 on, the same in all files"
        raise ValueError(f"{column} must hold numbers{hint}") from None
    if column in FLOATS:
        return numbers
    wrong = ~missing & ~((numbers == np.floor(numbers)) & (abs(numbers) < _EXACT))
    if wrong.any():
        row, hint = int(wrong.argmax()), "; ranks of ties belong into the columns optimistic and pessimistic"
        raise ValueError(f"{column} must hold integers, got {values[row]} in row {row}{hint * (column == 'rank')}")
    return numbers.astype(np.int64)
