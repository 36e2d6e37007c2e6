"""Ranks in CSV and TSV files and in data frames: a header, and one row per ranking task."""

import csv
import io
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.table import table_io
from torchrankmetrics.table.columns import ABSENT, SIDE_WORDS
from torchrankmetrics.validation import truncate

SUFFIXES = (".csv", ".tsv")
_INTEGERS = ("rank", "optimistic", "pessimistic", "num_candidates", "side", "group", "sample_id", "count", "query")
_OPTIONAL = {"side": 0, "group": ABSENT, "sample_id": ABSENT, "query": ABSENT}
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
        header, *rows = [line for line in lines if line] or [[]]
        names = [column.strip() for column in header]
        if len(set(names)) < len(names):
            raise ValueError(f"columns must have different names, got {truncate(', '.join(names))}")
        ragged = next((i for i, row in enumerate(rows, 2) if len(row) != len(names)), None)
        if ragged is not None:
            raise ValueError(f"line {ragged} must have {len(names)} cells as the header, got {len(rows[ragged - 2])}")
        cells = zip(*rows, strict=True) if rows else ((),) * len(names)
        return rows_of_columns(
            dict(zip(names, (np.array(column, dtype=object) for column in cells), strict=True)), name
        )
    except (csv.Error, ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def read_length(path: str | os.PathLike[str], file: BinaryIO) -> int:
    """Number of rows of an open file, without the header."""
    return max(sum(bool(line.strip()) for line in file) - 1, 0)


def rows_of_columns(columns: Mapping[str, npt.ArrayLike], name: str) -> Tensor:
    """Read rows from columns by name: ``rank``, or ``optimistic`` and ``pessimistic``; and those of ``from_numpy``."""
    known = (*_INTEGERS, *table_io.FLOATS, *table_io.FLAGS)
    found = {column: np.asarray(columns[column]) for column in columns if column in known}
    if not ("rank" in found) ^ ({"optimistic", "pessimistic"} <= found.keys()):
        got = truncate(", ".join(map(str, columns))) or "none"
        raise ValueError(f"columns must contain rank, or optimistic and pessimistic (with ties); got {got}")
    arrays = {column: _read(values, column) for column, values in found.items()}
    if "rank" in arrays:
        arrays["optimistic"] = arrays.pop("rank")
    rows = table_io.from_arrays(arrays)
    if ignored := [str(column) for column in columns if column not in known]:
        warn(f"{name}: ignored the columns {truncate(', '.join(ignored))}")
    return rows


def _read(values: npt.NDArray[Any], column: str) -> npt.NDArray[Any]:
    """Read a column as the dtype of ``RankTable.from_numpy``; missing sides, groups and ids are not given."""
    if values.dtype.kind in "iu" or (values.dtype == bool and column in table_io.FLAGS):
        return values
    text = np.char.lower(np.char.strip(values.astype(str)))
    if column in table_io.FLAGS:
        return np.isin(text, ("true", "1", "1.0"))
    missing = np.isin(text, _MISSING)
    if missing.any() and column not in _OPTIONAL:
        raise ValueError(f"{column} must have a value in every row, got none in row {int(missing.argmax())}")
    text = np.where(missing, str(_OPTIONAL.get(column)), text)
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
