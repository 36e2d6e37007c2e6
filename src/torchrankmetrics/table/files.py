"""Files of ranks: .npz (docs/cli.md, "File format"), CSV and TSV; the content distinguishes them, and Parquet."""

import csv
import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from torch import Tensor

from torchrankmetrics.files import MAX_BYTES, write_whole
from torchrankmetrics.table import parquet
from torchrankmetrics.table.arrays import (
    VERSION_FIELD,
    Array,
    TooLargeError,
    check_names,
    check_version,
    from_arrays,
    from_columns,
    to_arrays,
    version_of,
)
from torchrankmetrics.table.columns import WIDTH
from torchrankmetrics.validation import check_int, shorten, truncate

Source = str | os.PathLike[str]
_ENTRY = b"PK\1\2"  # begins an entry of the directory of a zip archive
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_BYTES_OF_LINE = 160  # text and ten columns


def read(path: Source, max_bytes: int) -> Tensor:
    """Read the rows of a file, a pipe or a directory; errors as ``RankTable.load``."""
    max_bytes = check_int("max_bytes", max_bytes, 1)
    if parquet.is_folder(path):
        return parquet.read(path, max_bytes)
    with _opened(path, max_bytes) as (file, start):
        if start.startswith(parquet.MAGIC):
            return parquet.read_opened(file, path, max_bytes)
        return (_read_csv if _is_csv(path, start) else _read_npz)(file, path, max_bytes)


def num_stored_rows(path: Source) -> int:
    """Return the number of rows of a file or a directory, from headers and footers.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is not a file of ranks.
    """
    if parquet.is_folder(path):
        return parquet.num_rows(path)
    with _opened(path, MAX_BYTES) as (file, start):
        if start.startswith(parquet.MAGIC):
            return parquet.num_rows(path, file)
        if _is_csv(path, start):
            return max(sum(bool(line.strip()) for line in file) - 1, 0)
        with _members(file, path) as (archive, members):
            if "optimistic" not in members:
                raise ValueError(f"it has no 'optimistic'; it has {truncate(', '.join(members))}")
            return _length(archive, "optimistic", members["optimistic"])


@contextmanager
def _opened(path: Source, max_bytes: int) -> Iterator[tuple[BinaryIO, bytes]]:
    """Open a file, and look at its start; a pipe is read into memory."""
    with Path(path).open("rb") as file:
        start = file.peek(1)
        if file.seekable():
            yield file, start
            return
        content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise TooLargeError(path, f"more than {max_bytes}", max_bytes)
        yield io.BytesIO(content), start


def write_npz(path: Source, rows: Tensor) -> None:
    """Write a compressed .npz, completely or not at all."""
    arrays = to_arrays(rows)
    fields: dict[str, Any] = {VERSION_FIELD: np.array(version_of(arrays))}
    fields |= {name: _smallest(array) for name, array in arrays.items()}
    content = io.BytesIO()
    np.savez_compressed(content, **fields)
    write_whole(path, content.getvalue())


def _smallest(array: Array) -> Array:
    """The same integers in the smallest dtype that contains them all."""
    if array.dtype.kind != "i" or not len(array):
        return array
    dtype = np.result_type(*(np.min_scalar_type(end) for end in (array.min(), array.max())))
    return array.astype(dtype) if dtype.itemsize < array.itemsize else array


def _read_npz(file: BinaryIO, path: Source, max_bytes: int) -> Tensor:
    with _members(file, path) as (archive, members):
        needed = sum(info.file_size for info in members.values())
        if needed <= max_bytes:  # else not even the headers are read
            needed += 8 * WIDTH * max(_length(archive, name, info) for name, info in members.items())
        if needed > max_bytes:
            raise TooLargeError(path, needed, max_bytes)
        arrays = {}
        for name, info in members.items():
            with archive.open(info) as member:
                arrays[name] = np.asarray(npy.read_array(member, allow_pickle=False))
        version = arrays.pop(VERSION_FIELD)
        check_version(int(version) if version.ndim == 0 and version.dtype.kind in "iu" else version, arrays)
        return from_arrays(arrays)


@contextmanager
def _members(file: BinaryIO, path: Source) -> Iterator[tuple[ZipFile, dict[str, ZipInfo]]]:
    """Open a file of ranks and check its directory; errors name its path."""
    with parquet.naming_errors(path, "RankTable file"):
        start = file.read(8)
        if not start.startswith(b"PK"):
            raise ValueError(f"it is not an .npz, it starts with {shorten(start)}" if start else "it is empty")
        file.seek(0)
        with ZipFile(file) as archive:
            listed = archive.infolist()
            members = {info.filename.removesuffix(".npy"): info for info in listed}
            if len(listed) != len(members):
                raise ValueError(f"its directory has {len(listed)} entries, but only {len(members)} names")
            for name, info in members.items():
                # if a length is damaged, an entry swallows the next one, and a lost column would silently be a default
                if _ENTRY in info.extra + info.comment:
                    raise ValueError(f"its directory is damaged after {shorten(name)}")
            if VERSION_FIELD not in members:
                raise ValueError(f"it has no {VERSION_FIELD!r}; it has {truncate(', '.join(members)) or 'nothing'}")
            check_names(name for name in members if name != VERSION_FIELD)
            yield archive, members


def _length(archive: ZipFile, name: str, info: ZipInfo) -> int:
    """Return the length of the first axis by the header; ValueError if the member has other bytes than it declares."""
    with archive.open(info) as member:
        try:
            shape, _, dtype = _HEADERS[npy.read_magic(member)](member)
        except (ValueError, KeyError):  # not NumPy's words: they advise to unpickle
            raise ValueError(f"{shorten(name)} is not an array: it has no header of an .npy") from None
        size = info.file_size - member.tell()
    if dtype.hasobject:
        raise ValueError(f"{shorten(name)} holds Python objects, which are never loaded: an array must hold numbers")
    if size != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"{shorten(name)} claims shape {truncate(str(shape))} of {dtype}, but has {size} bytes")
    return shape[0] if shape else 0


def _is_csv(path: Source, start: bytes) -> bool:
    """Whether a file is CSV by its suffix, or by a header with ranks; an .npz begins with PK."""
    header = start.partition(b"\n")[0]
    is_header = not start.startswith(b"PK") and (b"rank" in header or b"optimistic" in header)
    return is_header or Path(path).suffix.lower() in (".csv", ".tsv")


def _read_csv(file: BinaryIO, path: Source, max_bytes: int) -> Tensor:
    """Read a header and one row per ranking task; the header decides between commas and tabs."""
    name = os.fspath(path)
    content = file.read(max_bytes + 1)
    if (needed := max(len(content), _BYTES_OF_LINE * content.count(b"\n"))) > max_bytes:
        raise TooLargeError(path, needed, max_bytes)
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
        return from_columns(names, [np.array(column, dtype=object) for column in cells], name)
    except (csv.Error, ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error
