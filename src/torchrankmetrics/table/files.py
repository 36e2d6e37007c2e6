"""Files of ranks: .npz (docs/cli.md, "File format"), CSV and TSV, Parquet, by content."""

import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from torchrankmetrics.errors import RankMetricError, missing_extra
from torchrankmetrics.files import MAX_BYTES, Source, natural, write_whole
from torchrankmetrics.parsing import parse_csv
from torchrankmetrics.table.arrays import (
    VERSION_FIELD,
    Array,
    check_names,
    check_version,
    from_arrays,
    from_columns,
    of_text,
    to_arrays,
    version_of,
)
from torchrankmetrics.table.columns import WIDTH, Rows
from torchrankmetrics.validation import check_int, shorten, truncate

_ENTRY = b"PK\1\2"  # begins an entry of the directory of a zip archive
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# memory of CSV, by tracemalloc with Python 3.12: 330 bytes for a line of one cell, 19,190 of 200
_BYTES_OF_LINE = 240
_BYTES_OF_CELL = 96
_MAGIC = b"PAR1"
# bytes after the footer of Parquet: its length in 4 bytes, and the magic bytes
_END = 4 + len(_MAGIC)
_MARK = b"torchrankmetrics SHA-256"  # before the digest
_SEAL = len(_MARK) + hashlib.sha256().digest_size
_BATCH = 1 << 16  # rows that are decoded at once
# bytes of memory that one byte of the footer may need: an empty struct is one byte there
_PER_BYTE = 128


class TooLargeError(RankMetricError):
    """A file needs more memory than the caller allows."""


def _check_size(path: Source, needed: int, max_bytes: int, at_least: str = "") -> None:
    if needed > max_bytes:
        raise TooLargeError(
            f"{os.fspath(path)} is not loaded: it would take {at_least}{needed} bytes of memory, "
            f"and max_bytes={max_bytes}: if you trust it, allow more with max_bytes="
        )


def read(path: Source, max_bytes: int) -> Tensor:
    """Read the rows of a file, a pipe or a directory; errors as ``RankTable.load``."""
    max_bytes = check_int("max_bytes", max_bytes, 1)
    if any(_parquet_in(path)):
        return read_parquet(path, max_bytes)
    content = _content(path, max_bytes)
    if content.startswith(_MAGIC):
        return _read_parquet_files([(path, content)], max_bytes)
    return (_read_csv if _is_csv(path, content) else _read_npz)(content, path, max_bytes)


def read_parquet(source: Source | Iterable[Source], max_bytes: int) -> Tensor:
    """Read the rows of Parquet files and directories; errors as ``RankTable.from_parquet``."""
    max_bytes = check_int("max_bytes", max_bytes, 1)
    return _read_parquet_files(
        ((path, _content(path, max_bytes)) for path in _parts(source)), max_bytes
    )


def num_stored_rows(path: Source) -> int:
    """Return the number of rows of a file or directory, from headers and footers alone."""
    if any(_parquet_in(path)):
        return sum(map(num_stored_rows, _parts(path)))
    content = _content(path, MAX_BYTES)
    if content.startswith(_MAGIC):
        return int(_opened(path, content, MAX_BYTES).metadata.num_rows)
    if _is_csv(path, content):
        return max(sum(bool(line.strip()) for line in content.splitlines()) - 1, 0)
    with _members(content, path, MAX_BYTES) as (archive, members):
        if "optimistic" not in members:
            raise ValueError(f"it has no 'optimistic'; it has {truncate(', '.join(members))}")
        return len(_array(archive, "optimistic", members["optimistic"]))


def write(path: Source, rows: Tensor) -> None:
    """Write rows as Parquet if the path ends in .parquet, else as .npz."""
    if Path(path).suffix == ".parquet":
        write_parquet(path, rows)
    else:
        write_npz(path, rows)


def write_npz(path: Source, rows: Tensor) -> None:
    """Write a compressed .npz, completely or not at all."""
    arrays = to_arrays(rows)
    content = io.BytesIO()
    smallest: dict[str, Any] = {name: _smallest(array) for name, array in arrays.items()}
    np.savez_compressed(content, rank_table_version=version_of(arrays), **smallest)
    write_whole(path, content.getvalue())


def write_parquet(path: Source, rows: Tensor) -> None:
    """Write a Parquet file of one column per array of ``to_arrays``, completely or not at all."""
    pa = _pyarrow()
    arrays = to_arrays(rows)
    table = pa.table({name: pa.array(array) for name, array in arrays.items()})
    table = table.replace_schema_metadata({VERSION_FIELD: str(version_of(arrays))})
    buffer = pa.BufferOutputStream()
    pa.parquet.write_table(table, buffer, write_page_checksum=True)
    content = memoryview(buffer.getvalue())
    footer = _start_of_footer(content)
    # between pages and footer, where readers skip them: a mark and the SHA-256 of all other bytes
    write_whole(path, [content[:footer], _MARK, hashlib.sha256(content).digest(), content[footer:]])


def is_one_table(folder: Path) -> bool:
    """Whether a directory is one table of an engine, by its name or the names of its files."""
    names = [path.name for path in folder.glob("*.parquet") if not path.name.startswith(("_", "."))]
    of_engine = bool(names) and all(name.startswith(("part-", "part.")) for name in names)
    return of_engine or folder.suffix == ".parquet" or (folder / "_SUCCESS").exists()


def _parquet_in(path: Source) -> Iterable[Path]:
    """Find the Parquet files below a directory; "" is not a directory, but Path("") is one."""
    return Path(path).rglob("*.parquet") if os.path.isdir(path) else ()


def _content(path: Source, max_bytes: int) -> bytes:
    """Return the bytes of a file or a pipe."""
    with open(os.fspath(path), "rb") as file:
        _check_size(path, os.fstat(file.fileno()).st_size, max_bytes)  # 0 of a pipe
        content = file.read() if file.seekable() else file.read(max_bytes + 1)
    _check_size(path, len(content), max_bytes, "at least ")
    return content


@contextmanager
def _naming_errors(path: Source, kind: str) -> Iterator[None]:
    """Name the path in errors of zipfile, zlib, NumPy and pyarrow, which raise a dozen kinds."""
    try:
        yield
    except (MemoryError, TooLargeError):
        raise
    except Exception as error:
        text = truncate(" ".join(str(error).split()) or type(error).__name__, 400)
        raise ValueError(f"{os.fspath(path)} is not a whole {kind}: {text}") from error


def _smallest(array: Array) -> Array:
    """The same integers in the smallest dtype that contains them all."""
    if array.dtype.kind != "i" or not len(array):
        return array
    dtype = np.result_type(*(np.min_scalar_type(end) for end in (array.min(), array.max())))
    return array.astype(dtype) if dtype.itemsize < array.itemsize else array


def _read_npz(content: bytes, path: Source, max_bytes: int) -> Tensor:
    with _members(content, path, max_bytes) as (archive, members):
        arrays = {name: _array(archive, name, info) for name, info in members.items()}
        needed = sum(info.file_size for info in members.values())
        _check_size(
            path, needed + 8 * WIDTH * max(array.size for array in arrays.values()), max_bytes
        )
        check_version(str(arrays.pop(VERSION_FIELD)), arrays)
        return from_arrays(arrays)


def _hint_of_text(content: bytes) -> str:
    """Return how qrels and runs of TREC are read, if this is such a file."""
    line = content.partition(b"\n")[0]
    fields = len(line.split())
    if fields not in (4, 6) or not line.isascii():
        return ""
    what = "qrels" if fields == 4 else "a run"
    return (
        f" and looks like {what} of TREC: give qrels and run together, to rank_run(qrels, run) of "
        "integrations.trec or as torchrankmetrics report QRELS RUN"
    )


@contextmanager
def _members(
    content: bytes, path: Source, max_bytes: int
) -> Iterator[tuple[ZipFile, dict[str, ZipInfo]]]:
    """Open an .npz and check its directory before it is decompressed; errors name its path."""
    with _naming_errors(path, "RankTable file"):
        if not content.startswith(b"PK"):
            raise ValueError(
                f"it is not an .npz, it starts with {shorten(content[:8])}{_hint_of_text(content)}"
                if content
                else "it is empty"
            )
        with ZipFile(io.BytesIO(content)) as archive:
            listed = archive.infolist()
            members = {info.filename.removesuffix(".npy"): info for info in listed}
            # if a length is damaged, an entry swallows the next one, and a lost column would
            # silently be a default
            if len(listed) != len(members) or any(
                _ENTRY in info.extra + info.comment for info in listed
            ):
                raise ValueError("its directory is damaged")
            if VERSION_FIELD not in members:
                found = truncate(", ".join(members)) or "nothing"
                remedy = "write it with RankTable.from_numpy({'optimistic': ranks}).save(path)"
                raise ValueError(f"it has no {VERSION_FIELD!r}; it has {found}; {remedy}")
            check_names(name for name in members if name != VERSION_FIELD)
            _check_size(path, sum(info.file_size for info in listed), max_bytes)
            yield archive, members


def _array(archive: ZipFile, name: str, info: ZipInfo) -> Array:
    """Read an array of numbers; nothing is allocated by the shape that its header claims."""
    with archive.open(info) as member:
        # ``archive.read`` would decompress more than the declared size
        content = member.read(info.file_size + 1)
    file = io.BytesIO(content)
    try:
        shape, _, dtype = _HEADERS[npy.read_magic(file)](file)
        return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape).copy()
    except (ValueError, KeyError):  # not NumPy's words: they advise to unpickle
        raise ValueError(f"{shorten(name)} is not a whole array of numbers") from None


def _is_csv(path: Source, content: bytes) -> bool:
    """Whether a file is CSV by its suffix, or by a header with ranks; an .npz begins with PK."""
    header = content[:4096].partition(b"\n")[0]
    is_header = not content.startswith(b"PK") and (b"rank" in header or b"optimistic" in header)
    return is_header or Path(path).suffix.lower() in (".csv", ".tsv")


def _check_csv_size(content: bytes, path: Source, max_bytes: int) -> None:
    """Check the memory that a CSV file needs, before it is parsed."""
    num_lines = content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")
    num_cells = num_lines + content.count(b",") + content.count(b"\t")
    _check_size(path, _BYTES_OF_LINE * num_lines + _BYTES_OF_CELL * num_cells, max_bytes)


def _read_csv(content: bytes, path: Source, max_bytes: int) -> Tensor:
    """Read a header and one row per ranking task; the header decides between commas and tabs."""
    _check_csv_size(content, path, max_bytes)
    name = os.fspath(path)
    rows: list[list[str]] = []
    numbers: list[int] = []  # of lines
    try:
        if not content:
            raise ValueError("the file is empty")
        text = content.decode("utf-8-sig")
        lines = parse_csv(text, "\t" if "\t" in text.partition("\n")[0] else ",")
        names = [column.strip() for column in next(lines, (0, []))[1]]
        if len(names) == 1 and ";" in names[0]:
            raise ValueError(f"cells must be separated by commas or tabs, got {shorten(names[0])}")
        for number, row in lines:
            if len(row) != len(names):
                raise ValueError(
                    f"line {number} must have {len(names)} cells as the header, got {len(row)}"
                )
            rows.append(row)
            numbers.append(number)
        cells = zip(*rows, strict=True) if rows else ((),) * len(names)
        return from_columns(names, [np.array(column, dtype=object) for column in cells], name)
    except (ValueError, TypeError) as error:
        lines_of = {str(i): f"line {number}" for i, number in enumerate(numbers)}
        text = re.sub(
            r"(?:row|task) (\d+)(?=$|;| has)", lambda at: lines_of.get(at[1], at[0]), str(error)
        )
        raise ValueError(f"{name}: {text}") from error


def _parts(source: Source | Iterable[Source]) -> list[Source]:
    """Find Parquet files, of a directory in natural order; ValueError for directories in it."""
    parts: list[Source] = []
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    for path in sources:
        folder = Path(path)
        files = [file.relative_to(folder) for file in _parquet_in(path) if file.is_file()]
        files = [file for file in files if not _is_of_engine(file)]
        if nested := [str(folder / file) for file in files if len(file.parts) > 1]:
            remedy = (
                "read partitions (name=value) with RankTable.from_pandas(pandas.read_parquet(...))"
            )
            raise ValueError(
                f"{folder} must contain the files of one table, got {min(nested)}; {remedy}"
            )
        files.sort(key=lambda file: natural(file.name))
        parts += [folder / file for file in files] or [path]
    if any(map(os.path.isdir, parts)) or not parts:
        raise ValueError(
            "there is no .parquet file to read in "
            f"{', '.join(map(str, sources)) or 'an empty list'}"
        )
    return parts


def _is_of_engine(file: Path) -> bool:
    """Whether an engine wrote a file for itself, under a name that begins with _ or a dot."""
    return any(part.startswith(("_", ".")) for part in file.parts)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("Parquet", "pyarrow", "parquet") from error
    return pyarrow


def _start_of_footer(content: bytes | memoryview) -> int:
    return len(content) - _END - int.from_bytes(content[-_END : -len(_MAGIC)], "little")


def _opened(path: Source, content: bytes, max_bytes: int) -> Any:
    """Open a Parquet file whose digest, footer and columns are checked."""
    pa = _pyarrow()
    with _naming_errors(path, "Parquet file of ranks"):
        footer = _start_of_footer(content)
        if not content.endswith(_MAGIC) or footer < len(_MAGIC):
            raise ValueError("it has no footer")
        _check_size(path, _PER_BYTE * (len(content) - footer), max_bytes)
        seal = content[max(footer - _SEAL, 0) : footer]
        if seal.startswith(_MARK):
            digest = hashlib.sha256(memoryview(content)[: footer - _SEAL])
            digest.update(memoryview(content)[footer:])
            if digest.digest() != seal[len(_MARK) :]:
                raise ValueError("it is damaged: its digest does not match")
        limits = {"thrift_string_size_limit": 1 << 24, "thrift_container_size_limit": 1 << 16}
        parquet = pa.parquet.ParquetFile(
            pa.BufferReader(content), page_checksum_verification=True, **limits
        )
        names = [name for _, name in _names(parquet)]
        check_names(names)
        if len(set(names)) < len(names):
            raise ValueError(f"columns must occur once: {truncate(', '.join(names))}")
        if (
            version := (parquet.schema_arrow.metadata or {}).get(VERSION_FIELD.encode())
        ) is not None:
            check_version(version.decode(), names)
        return parquet


def _names(parquet: Any) -> list[tuple[str, str]]:
    """Names of columns in the file and here, without indices (``__name``) of pandas and Dask."""
    here = {"rank": "optimistic"}
    names = parquet.schema_arrow.names
    return [(name, here.get(name, name)) for name in names if not name.startswith("__")]


def _read_parquet_files(files: Iterable[tuple[Source, bytes]], max_bytes: int) -> Tensor:
    """Read the rows of Parquet files, in batches."""
    opened = []
    size = 0  # of the files and their rows, in bytes
    number = 0
    largest = 0
    for path, content in files:
        parquet = _opened(path, content, max_bytes)
        opened.append((path, parquet))
        rows_of_file = max(parquet.metadata.num_rows, 0)
        number += rows_of_file
        size += len(content) + 8 * WIDTH * rows_of_file
        largest = max(largest, _largest_row_group(parquet))
        _check_size(path, size + largest, max_bytes)

    rows = np.empty((WIDTH, number), dtype=np.int64).T
    start = 0
    for path, parquet in opened:
        end = start + parquet.metadata.num_rows
        with _naming_errors(path, "Parquet file of ranks"):
            _fill(rows[start:end], parquet)
        start = end
    return torch.from_numpy(rows)


def _largest_row_group(parquet: Any) -> int:
    """Return the size in memory of the largest row group, in bytes."""
    about = parquet.metadata
    return max((about.row_group(i).total_byte_size for i in range(about.num_row_groups)), default=0)


def _fill(rows: Rows, parquet: Any) -> None:
    """Write the rows of a Parquet file, batch by batch, into an array (n, 10)."""
    names = _names(parquet)
    end = 0
    for batch in parquet.iter_batches(_BATCH, columns=[name for name, _ in names]):
        try:
            block = from_arrays({name: _values(own, batch.column(own)) for own, name in names})
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{error} (counted from row {end})") from None
        rows[end : end + len(block)] = block.numpy()
        end += len(block)
    declared = parquet.metadata.num_rows
    if end != declared:
        raise ValueError(f"its footer declares {declared} rows, but it has {end}")


def _values(name: str, column: Any) -> Array:
    """Return a column as an array; words and nulls are read as the cells of CSV files."""
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    has_nulls = column.null_count > 0  # NumPy would turn integers into floats
    values: Array = (
        np.array(column.to_pylist(), object) if has_nulls else column.to_numpy(zero_copy_only=False)
    )
    return values if values.dtype.kind in "biuf" else of_text(values, name)
