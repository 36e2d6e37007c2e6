"""Rows as Parquet, of this library or of an engine: a file, several, or a partitioned directory, read in batches."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.files import MAX_BYTES, natural, write_whole
from torchrankmetrics.table.arrays import (
    FLAGS,
    MISSING,
    VERSION_FIELD,
    TooLargeError,
    check_names,
    check_version,
    from_arrays,
    of_text,
    to_arrays,
    version_of,
)
from torchrankmetrics.table.columns import WIDTH
from torchrankmetrics.validation import check_int, shorten, truncate

Source = str | os.PathLike[str]

MAGIC = b"PAR1"
_END = 4 + len(MAGIC)  # bytes after the footer: its length in 4 bytes, and the magic bytes
_MARK = b"torchrankmetrics SHA-256"  # before the digest
_SEAL = len(_MARK) + hashlib.sha256().digest_size
_BLOCK = 1 << 20  # bytes that are hashed at once
_BATCH = 1 << 16  # rows that are decoded at once
_PER_BYTE = 128  # bytes of memory that one byte of the footer may need: an empty struct is one byte there
_NULL = "__HIVE_DEFAULT_PARTITION__"  # how engines name the partition of null


class _File(NamedTuple):
    path: Path
    constants: dict[str, Any]  # columns that the names of its directories define
    opened: BinaryIO | None = None


def write(path: Source, rows: Tensor) -> None:
    """Write a file of one column per array of ``to_arrays``, completely or not at all.

    Between pages and footer, where readers skip them, are a mark and the SHA-256 of all other bytes.
    """
    pa, pq = _pyarrow()
    arrays = to_arrays(rows)
    table = pa.table({name: pa.array(array) for name, array in arrays.items()})
    table = table.replace_schema_metadata({VERSION_FIELD: str(version_of(arrays))})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, write_page_checksum=True)
    content = memoryview(buffer.getvalue())
    footer = len(content) - _END - int.from_bytes(content[-_END : -len(MAGIC)], "little")
    write_whole(path, [content[:footer], _MARK, hashlib.sha256(content).digest(), content[footer:]])


def read(source: Source | Iterable[Source], max_bytes: int) -> Tensor:
    """Read the rows of a file, of several, or of directories, in their order; errors as ``RankTable.from_parquet``."""
    files = _files(source)
    return _read(files, max_bytes, files[0].path.parent if len(files) > 1 else files[0].path)


def read_opened(file: BinaryIO, path: Source, max_bytes: int) -> Tensor:
    """Read the rows of an open file."""
    return _read([_File(Path(path), {}, file)], max_bytes, Path(path))


def num_rows(source: Source, file: BinaryIO | None = None) -> int:
    """Return the number of rows of a directory, or of an open file, from the footers."""
    number = 0
    for part in _files(source) if file is None else [_File(Path(source), {}, file)]:
        with _opened(part, MAX_BYTES) as (parquet, _, _):
            number += parquet.metadata.num_rows
    return number


def is_folder(path: Source) -> bool:
    """Whether a path is a directory with Parquet files or partitions in it."""
    return os.path.isdir(path) and any(True for _ in _in_directory(Path(path), {}))


def is_one_table(folder: Path) -> bool:
    """Whether a directory is one table of an engine, by its name, its partitions, or the names of its files."""
    if folder.suffix == ".parquet" or (folder / "_SUCCESS").exists():
        return True
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(("_", "."))]
    files = [entry.name for entry in entries if entry.suffix == ".parquet"]
    partitioned = any("=" in entry.name and entry.is_dir() for entry in entries)
    return partitioned or (bool(files) and all(name.startswith(("part-", "part.")) for name in files))


def _files(source: Source | Iterable[Source]) -> list[_File]:
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    files: list[_File] = []
    for path in map(Path, sources):
        files += _in_directory(path, {}) if path.is_dir() else [_File(path, {})]
    if not files:
        where = ", ".join(map(str, sources)) or "an empty list"
        raise ValueError(f"there is no .parquet file to read in {where}")
    return files


def _in_directory(folder: Path, constants: dict[str, Any]) -> Iterator[_File]:
    """Yield the files of a directory and its partitions, numbers in names sorted by value."""
    for entry in sorted(folder.iterdir(), key=lambda entry: natural(entry.name)):
        if entry.name.startswith(("_", ".")):  # engines write their own files under such names
            continue
        if not entry.is_dir():
            if entry.suffix == ".parquet":
                yield _File(entry, constants)
            continue
        name, equals, text = entry.name.partition("=")
        if not equals:
            raise ValueError(f"{entry} is not a partition (name=value): a directory must hold the files of one table")
        try:
            check_names([name])
            if name in constants:
                raise ValueError(f"{name} occurs twice in its path")
            value = _constant(name, unquote(text))
        except ValueError as error:
            raise ValueError(f"{entry} is not a partition of ranks: {error}") from None
        yield from _in_directory(entry, {**constants, name: value})


def _constant(name: str, text: str) -> Any:
    """Read the value of a column from the name of a partition, which must have one."""
    if text == _NULL:
        raise ValueError(f"{name} is null, and every row needs a value")
    word = text.strip().lower()
    is_missing = word in MISSING and (name, word) != ("side", "none")
    if is_missing or "_" in text or not text.isascii():  # NumPy reads 1_000, and digits of other scripts
        expected = "true or false" if name in FLAGS else "a number"
        raise ValueError(f"{name} must be {expected}, got {shorten(text)}")
    return of_text(np.array([text]), name)[0]


def _read(files: list[_File], max_bytes: int, where: Path) -> Tensor:
    max_bytes, lengths, largest = check_int("max_bytes", max_bytes, 1), [], 0
    for file in files:
        with _opened(file, max_bytes) as (parquet, _, group_bytes):
            lengths.append(parquet.metadata.num_rows)
            largest = max(largest, group_bytes)
    needed = 8 * WIDTH * sum(lengths) + largest
    if needed > max_bytes:
        raise TooLargeError(where, needed, max_bytes)
    rows = np.empty((WIDTH, sum(lengths)), dtype=np.int64).T
    for file, part in zip(files, np.split(rows, np.cumsum(lengths)[:-1]), strict=True):
        with _opened(file, max_bytes) as (parquet, names, _):
            at = 0
            for batch in parquet.iter_batches(_BATCH, columns=names):
                try:
                    arrays = {name: _array(name, batch.column(name)) for name in names}
                    part[at : at + len(batch)] = from_arrays(arrays | file.constants).numpy()
                except (TypeError, ValueError, IndexError) as error:
                    raise ValueError(f"{error} (counted from row {at})" if at else str(error)) from None
                at += len(batch)
            if at != len(part):
                raise ValueError(f"its footer declares {len(part)} rows, but it has {at}")
    return torch.from_numpy(rows)


@contextmanager
def naming_errors(path: Source, kind: str) -> Iterator[None]:
    """Name the path in errors: damage raises a dozen kinds of errors in zipfile, zlib, NumPy and pyarrow."""
    try:
        yield
    except (MemoryError, TooLargeError):
        raise
    except Exception as error:
        text = truncate(str(error) or type(error).__name__, 400)
        raise ValueError(f"{os.fspath(path)} is not a whole {kind}: {text}") from error


@contextmanager
def _opened(source: _File, max_bytes: int) -> Iterator[Any]:
    """Open a file and check it.

    Yields:
        The ``ParquetFile``, the names of its columns, and the bytes that its largest row group needs.
    """
    _, pq = _pyarrow()
    with (
        source.path.open("rb") if source.opened is None else nullcontext(source.opened) as file,
        naming_errors(source.path, "Parquet file of ranks"),
    ):
        _check_ends(file, source.path, max_bytes)
        file.seek(0)
        parquet = pq.ParquetFile(
            file,
            pre_buffer=False,
            page_checksum_verification=True,
            thrift_string_size_limit=1 << 24,
            thrift_container_size_limit=1 << 16,
        )
        if parquet.metadata.num_rows < 0:
            raise ValueError(f"its footer declares {parquet.metadata.num_rows} rows")
        # pandas and Dask write indices under names that begin with __
        names = [name for name in parquet.schema_arrow.names if not name.startswith("__")]
        check_names(names)
        if len(set(names)) < len(names):
            raise ValueError(f"columns occur twice: {truncate(', '.join(names))}")
        if both := source.constants.keys() & set(names):
            raise ValueError(f"{', '.join(sorted(both))} is both a column and a partition")
        version = (parquet.schema_arrow.metadata or {}).get(VERSION_FIELD.encode())
        if version is not None:
            check_version(int(version) if version.isdigit() else version, [*names, *source.constants])
        groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
        yield parquet, names, max((group.total_byte_size for group in groups), default=0)


def _array(name: str, column: Any) -> Any:
    """Return a column as a NumPy array; words for sides become their codes."""
    if column.null_count:
        raise ValueError(f"{name} has {column.null_count} nulls: every row needs a value, or leave the column out")
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "biuf":
        return values
    if name != "side":
        raise ValueError(
            f"{name} must contain numbers, got {column.type}: number names from 0 on, the same in all files"
        )
    return of_text(values, name)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError('Parquet needs pyarrow: pip install "torchrankmetrics[parquet]"') from error
    return pa, pq


def _check_ends(file: BinaryIO, path: Path, max_bytes: int) -> None:
    """Check the size of the footer, and the digest of a file that has one."""
    size = file.seek(0, os.SEEK_END)
    end = _read_at(file, max(size - _END, 0), _END)
    length = int.from_bytes(end[:4], "little")
    footer = size - _END - length
    if end[4:] != MAGIC or footer < len(MAGIC):
        raise ValueError("it has no footer")
    if _PER_BYTE * length > max_bytes:
        raise TooLargeError(path, _PER_BYTE * length, max_bytes)
    seal = _read_at(file, max(footer - _SEAL, 0), _SEAL)
    if seal.startswith(_MARK):
        digest = hashlib.sha256()
        for start, stop in ((0, footer - _SEAL), (footer, size)):
            for at in range(start, stop, _BLOCK):
                digest.update(_read_at(file, at, min(_BLOCK, stop - at)))
        if digest.digest() != seal[len(_MARK) :]:
            raise ValueError("it is damaged: its digest does not match")


def _read_at(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)
