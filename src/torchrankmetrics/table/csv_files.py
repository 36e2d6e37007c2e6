"""Ranks in CSV and TSV files and in data frames: a header, and one row per ranking task."""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.table import table_io
from torchrankmetrics.table.columns import SIDE_WORDS
from torchrankmetrics.validation import shorten, truncate

SUFFIXES = (".csv", ".tsv")
_INTEGERS = ("rank", *table_io.INTEGERS)
_OPTIONAL = ("side", "group", "sample_id", "query")  # columns that may have missing values
_MISSING = ("", "nan", "none", "<na>")  # as CSV files, NumPy and pandas write missing values
_EXACT = 2.0**53  # larger floats are not exact integers
_BYTES_OF_ROW = 160  # text and ten columns


def is_csv(path: str | os.PathLike[str], start: bytes) -> bool:
    """Whether a file is CSV by its suffix, or by a header with ranks; an .npz begins with PK."""
    header = start.partition(b"\n")[0]
    is_header = not start.startswith(b"PK") and (b"rank" in header or b"optimistic" in header)
    return is_header or Path(path).suffix.lower() in SUFFIXES


def read_opened(file: BinaryIO, path: str | os.PathLike[str], max_bytes: int) -> Tensor:
    """Read the rows of an open file; the header decides between commas and tabs.

    Raises:
        ValueError: if it is not UTF-8 text, has no columns of ranks, ragged rows or wrong values, or is too large.
    """
    name = os.fspath(path)
    content = file.read(max_bytes + 1)
    if (needed := max(len(content), _BYTES_OF_ROW * content.count(b"\n"))) > max_bytes:
        raise table_io.TooLargeError(path, needed, max_bytes)
    try:
        text = content.decode("utf-8-sig")
        lines = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in text.partition("\n")[0] else ",")
        names = [column.strip() for column in next(filter(None, lines), [])]
        rows = []
        for row in filter(None, lines):
            if len(row) != len(names):
                raise ValueError(f"line {lines.line_num} must have {len(names)} cells as the header, got {len(row)}")
            rows.append(row)
        cells = zip(*rows, strict=True) if rows else ((),) * len(names)
        return rows_of_columns(names, [np.array(column, dtype=object) for column in cells], name)
    except (csv.Error, ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def read_length(path: str | os.PathLike[str], file: BinaryIO) -> int:
    """Number of rows of an open file, without the header."""
    return max(sum(bool(line.strip()) for line in file) - 1, 0)


def rows_of_columns(names: Sequence[object], columns: Iterable[npt.ArrayLike], source: str) -> Tensor:
    """Read rows from columns: ``rank``, or ``optimistic`` and ``pessimistic``; and the columns of ``from_numpy``."""
    if len(set(names)) < len(names):
        raise ValueError(f"columns must have different names, got {truncate(', '.join(map(str, names)))}")
    known = (*_INTEGERS, *table_io.FLOATS, *table_io.FLAGS)
    found = {str(name): np.asarray(column) for name, column in zip(names, columns, strict=True) if name in known}
    if not ("rank" in found) ^ ({"optimistic", "pessimistic"} <= found.keys()):
        got = truncate(", ".join(map(str, names))) or "none"
        raise ValueError(f"columns must contain rank, or optimistic and pessimistic (with ties); got {got}")
    arrays = {name: _read(values, name) for name, values in found.items()}
    if "rank" in arrays:
        arrays["optimistic"] = arrays.pop("rank")
    rows = table_io.from_arrays(arrays)
    if ignored := [str(name) for name in names if name not in known]:
        warn(f"{source}: ignored the columns {truncate(', '.join(ignored))}")
    return rows


def _read(values: npt.NDArray[Any], column: str) -> npt.NDArray[Any]:
    """Read a column as the dtype of ``RankTable.from_numpy``; missing sides, groups and ids are not given."""
    if values.dtype.kind in "iu" or (values.dtype == bool and column in table_io.FLAGS):
        return values
    text = np.char.lower(np.char.strip(values.astype(str)))
    missing = np.isin(text, _MISSING)
    if column in table_io.FLAGS:
        true = np.isin(text, ("true", "1", "1.0"))
        if (wrong := ~(true | missing | np.isin(text, ("false", "0", "0.0")))).any():
            row = int(wrong.argmax())
            raise ValueError(f"{column} must be true or false, got {shorten(values[row])} in row {row}")
        return true
    if missing.any() and column not in _OPTIONAL:
        raise ValueError(f"{column} must have a value in every row, got none in row {int(missing.argmax())}")
    text = np.where(missing, str(table_io.DEFAULTS.get(column)), text)
    if column == "side":
        text = np.array([str(SIDE_WORDS.get(word, word)) for word in text.tolist()], dtype=str)
    if column in _INTEGERS:
        with suppress(ValueError, OverflowError):
            return text.astype(np.int64)
    try:
        numbers = text.astype(np.float64)
    except ValueError:
        raise ValueError(f"{column} must hold numbers{', or head and tail' * (column == 'side')}") from None
    if column not in _INTEGERS:
        return numbers
    wrong = ~missing & ~((numbers == np.floor(numbers)) & (abs(numbers) < _EXACT))
    if wrong.any():
        row, hint = int(wrong.argmax()), "; ranks of ties belong into the columns optimistic and pessimistic"
        raise ValueError(f"{column} must hold integers, got {values[row]} in row {row}{hint * (column == 'rank')}")
    return numbers.astype(np.int64)
