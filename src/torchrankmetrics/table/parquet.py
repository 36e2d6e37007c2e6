"""Rows as Parquet, of this library or of an engine: a file, many, or a partitioned folder, read in batches."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.files import natural, write_whole
from torchrankmetrics.table import table_io
from torchrankmetrics.table.columns import SIDE_WORDS, WIDTH
from torchrankmetrics.table.table_io import TooLargeError
from torchrankmetrics.validation import check_choice, check_int, shortened, shown

_BATCH = 1 << 16
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what engines write for a null in the name of a folder
_MOST = {"thrift_string_size_limit": 1 << 24, "thrift_container_size_limit": 1 << 16}  # of what a footer holds
_BOOLEANS = {"false": False, "true": True}
Source = str | os.PathLike[str]


class _Part(NamedTuple):
    """A file, and what the names of its folders say of all its rows."""

    path: Path
    said: dict[str, Any]


def write(path: Source, rows: Tensor) -> None:
    """Write a file of one column per array of ``to_arrays``, whole or not at all."""
    pa, pq = _pyarrow()
    arrays = table_io.to_arrays(rows)
    version = table_io.version_of(arrays)
    table = pa.table({name: pa.array(array) for name, array in arrays.items()})
    content = pa.BufferOutputStream()
    table = table.replace_schema_metadata({table_io.VERSION_FIELD: str(version)})
    pq.write_table(table, content, write_page_checksum=True)
    write_whole(path, sealed(memoryview(content.getvalue())))


def read(source: Source | Iterable[Source], max_bytes: int) -> Tensor:
    """Read the rows of a file, of several, or of folders, in their order; errors as ``RankTable.from_parquet``."""
    max_bytes = check_int("max_bytes", max_bytes, 1)
    parts = _parts(source)
    lengths, largest = [], 0
    for part in parts:
        with part.path.open("rb") as file:
            length, bytes_of_group = _size(file, part, max_bytes)
        lengths.append(length)
        largest = max(largest, bytes_of_group)
    _check_size(sum(lengths), largest, max_bytes, os.fspath(parts[0].path.parent if len(parts) > 1 else parts[0].path))
    rows = np.empty((sum(lengths), WIDTH), dtype=np.int64)
    at = 0
    for part, length in zip(parts, lengths, strict=True):
        with part.path.open("rb") as file:
            _fill(rows[at : at + length], file, part, max_bytes)
        at += length
    return torch.from_numpy(rows)


def read_opened(file: BinaryIO, path: Source, max_bytes: int) -> Tensor:
    """Read the rows of one file, or of a pipe, which is read into memory first."""
    max_bytes, part = check_int("max_bytes", max_bytes, 1), _Part(Path(path), {})
    source: Any = file
    if not file.seekable():
        pa, _ = _pyarrow()
        content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ValueError(f"{os.fspath(path)} is not loaded: {TooLargeError(f'more than {max_bytes}', max_bytes)}")
        source = pa.BufferReader(content)
    length, largest = _size(source, part, max_bytes)
    _check_size(length, largest, max_bytes, os.fspath(path))
    rows = np.empty((length, WIDTH), dtype=np.int64)
    _fill(rows, source, part, max_bytes)
    return torch.from_numpy(rows)


def read_length(source: Source) -> int:
    """Number of rows of a file or a folder, from the footers of its files alone."""
    length = 0
    for part in _parts(source):
        with part.path.open("rb") as file:
            length += _size(file, part, table_io.MAX_BYTES)[0]
    return length


def is_folder(path: Source) -> bool:
    """Whether a path is a folder with Parquet in it or its partitions."""
    return os.path.isdir(path) and any(True for _ in _of_folder(Path(path), {}))


def is_one_table(folder: Path) -> bool:
    """Whether a folder is the table of an engine: by its name, its partitions, or the names that engines give parts."""
    if folder.suffix == ".parquet" or (folder / "_SUCCESS").exists():
        return True
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(("_", "."))]
    files = [entry.name for entry in entries if entry.suffix == ".parquet"]
    partitioned = any("=" in entry.name and entry.is_dir() for entry in entries)
    return partitioned or (bool(files) and all(name.startswith(("part-", "part.")) for name in files))


def _parts(source: Source | Iterable[Source]) -> list[_Part]:
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    parts = []
    for one in map(Path, sources):
        parts += list(_of_folder(one, {})) if one.is_dir() else [_Part(one, {})]
    if not parts:
        where = ", ".join(map(str, sources)) or "nothing"
        raise ValueError(f"there is no .parquet file to read in {where}")
    return parts


def _of_folder(folder: Path, said: Mapping[str, Any]) -> Iterator[_Part]:
    """Files of a folder in the order in which people count, those of its partitions too."""
    for entry in sorted(folder.iterdir(), key=lambda entry: natural(entry.name)):
        if entry.name.startswith(("_", ".")):  # what engines write beside their data
            continue
        if not entry.is_dir():
            if entry.suffix == ".parquet":
                yield _Part(entry, dict(said))
            continue
        name, equals, text = entry.name.partition("=")
        if not equals:
            raise ValueError(f"{entry} is no partition (name=value): a folder must hold the files of one table")
        try:
            table_io.check_names([name])
            if name in said:
                raise ValueError(f"{name} comes twice in its path")
            value = _value(name, unquote(text))
        except ValueError as error:
            raise ValueError(f"{entry} is no partition of ranks: {error}") from None
        yield from _of_folder(entry, {**said, name: value})


def _value(name: str, text: str) -> int | float | bool:
    """What the name of a partition says of its rows."""
    if text == _NULL:
        raise ValueError(f"{name} is null, and every row needs a value")
    if name == "side" and text in SIDE_WORDS:
        return SIDE_WORDS[text]
    if name in table_io.FLAGS:
        if text.lower() not in _BOOLEANS:
            raise ValueError(f"{name} must be true or false, got {shown(text)}")
        return _BOOLEANS[text.lower()]
    if not text.isascii() or "_" in text:  # Python reads 1_000, and digits of other scripts
        raise ValueError(f"{name} must be a number, got {shown(text)}")
    return float(text) if name in table_io.FLOATS else int(text)


def _size(file: Any, part: _Part, max_bytes: int) -> tuple[int, int]:
    """Number of rows as the footer tells it, and bytes of the largest group of rows; the columns are checked."""
    with _opened(file, part, max_bytes) as (parquet, _, needed):
        length = parquet.metadata.num_rows
        if length < 0:
            raise ValueError(f"it claims {length} rows")
        return length, needed


def _check_size(length: int, largest: int, max_bytes: int, where: str) -> None:
    needed = 8 * WIDTH * length + largest
    if needed > max_bytes:
        raise ValueError(f"{where} is not loaded: {TooLargeError(str(needed), max_bytes)}")


def _fill(rows: Any, file: Any, part: _Part, max_bytes: int) -> None:
    """Read all rows of a file into an array of its length."""
    with _opened(file, part, max_bytes) as (parquet, names, _):
        at = 0
        for batch in parquet.iter_batches(_BATCH, columns=names):
            try:
                arrays = {name: _array(name, batch.column(name)) for name in names}
                rows[at : at + len(batch)] = table_io.from_arrays(arrays | part.said).numpy()
            except (TypeError, ValueError, IndexError) as error:
                raise ValueError(f"{error} (counted from row {at})" if at else str(error)) from None
            at += len(batch)
        if at != len(rows):
            raise ValueError(f"it claims {len(rows)} rows, but has {at}")


@contextmanager
def _opened(file: Any, part: _Part, max_bytes: int) -> Iterator[Any]:
    """Open a file, its columns and its version checked; what is wrong with it is told with its path.

    Gives the ``ParquetFile``, the names of its columns, and the bytes that its largest group of rows needs.
    """
    _, pq = _pyarrow()
    try:
        needed = needed_bytes(file, max_bytes)
        file.seek(0)
        parquet = pq.ParquetFile(file, page_checksum_verification=True, **_MOST)
        # but for the indices that pandas and Dask write
        names = [name for name in parquet.schema_arrow.names if not name.startswith("__")]
        table_io.check_names(names)
        if len(set(names)) < len(names):
            raise ValueError(f"its columns come twice: {shortened(', '.join(names))}")
        if both := part.said.keys() & set(names):
            raise ValueError(f"{', '.join(sorted(both))} is a column and a partition at once")
        version = (parquet.schema_arrow.metadata or {}).get(table_io.VERSION_FIELD.encode())
        if version is not None:
            table_io.check_version(int(version) if version.isdigit() else version, names)
        words = [name for name in names if _is_words(name, parquet.schema_arrow.field(name).type)]
        if words:  # a word once, however often it stands there
            file.seek(0)
            options = {"metadata": parquet.metadata, "read_dictionary": words}
            parquet = pq.ParquetFile(file, page_checksum_verification=True, **options)
        yield parquet, names, needed
    except MemoryError:
        raise
    except TooLargeError as error:
        raise ValueError(f"{part.path} is not loaded: {error}") from None
    except Exception as error:  # pyarrow meets damage with errors of its own
        told = shortened(str(error) or type(error).__name__, 400)
        raise ValueError(f"{part.path} is no whole Parquet file of ranks: {told}") from error


def _is_words(name: str, kind: Any) -> bool:
    """Whether a column holds words, which sides may; all else must be numbers."""
    pa, _ = _pyarrow()
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if name == "side" and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return True
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"{name} must hold numbers, got {kind}: number names from 0 on, the same in all files")
    return False


def _array(name: str, column: Any) -> Any:
    """A column as NumPy has it: numbers of any width, and words for sides."""
    pa, _ = _pyarrow()
    if column.null_count:
        raise ValueError(f"{name} has {column.null_count} nulls: every row needs a value, or leave the column out")
    if _is_words(name, column.type):
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        kept, place = np.unique(column.indices.to_numpy(), return_inverse=True)
        words = column.dictionary.take(pa.array(kept)).to_pylist()
        codes = [SIDE_WORDS[check_choice("side", word, SIDE_WORDS)] for word in words]
        return np.array(codes, dtype=np.int64)[place.reshape(-1)]
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.to_numpy(zero_copy_only=False)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError('Parquet needs pyarrow: pip install "torchrankmetrics[parquet]"') from error
    return pa, pq


MAGIC = b"PAR1"
_MARK = b"torchrankmetrics SHA-256"  # before the digest
_SEAL = len(_MARK) + hashlib.sha256().digest_size
_END = 4 + len(MAGIC)  # length of the footer and magic bytes
_PER_BYTE = 128  # of memory for a byte of the footer, in which a list of empty structs takes one byte for each
_BLOCK = 1 << 20  # bytes that are hashed at once
_HEADER = 1 << 13  # bytes that are read for the header of a page, minima and maxima included
_PAGES = {0: 5, 2: 7, 3: 8}  # fields of PageHeader by type of page: plain, dictionary, plain of version 2
_DELTAS = (6, 7)  # encodings of strings by their differences, which may take any multiple of their page


def sealed(content: memoryview) -> list[memoryview | bytes]:
    """Put the digest into the bytes of a file, in parts."""
    at = len(content) - _END - int.from_bytes(content[-_END : -len(MAGIC)], "little")
    return [content[:at], _MARK, hashlib.sha256(content).digest(), content[at:]]


def needed_bytes(file: BinaryIO, max_bytes: int) -> int:
    """Memory that the largest group of rows takes when it is read and decompressed; the digest is checked.

    Raises:
        TooLargeError: if the footer takes more than ``max_bytes``.
        ValueError: if the footer, the digest or the header of a page is damaged.
    """
    size = file.seek(0, os.SEEK_END)
    end = _read(file, max(size - _END, 0), _END)
    length = int.from_bytes(end[:4], "little")
    at = size - _END - length
    if end[4:] != MAGIC or at < len(MAGIC):
        raise ValueError("it has no footer")
    if _PER_BYTE * length > max_bytes:
        raise TooLargeError(str(_PER_BYTE * length), max_bytes)
    seal = _read(file, max(at - _SEAL, 0), _SEAL)
    if seal.startswith(_MARK):
        digest = hashlib.sha256()
        for block in (*_blocks(file, 0, at - _SEAL), *_blocks(file, at, size)):
            digest.update(block)
        if digest.digest() != seal[len(_MARK) :]:
            raise ValueError("it is damaged: its digest is another one")
    try:
        groups = _read_struct(_read(file, at, length), 0)[0].get(4, [])
        return max((sum(_pages(file, column[3], at) for column in group[1]) for group in groups), default=0)
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("its footer or the header of a page is damaged") from None


def _read(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)


def _blocks(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    return (_read(file, at, min(_BLOCK, end - at)) for at in range(start, end, _BLOCK))


def _pages(file: BinaryIO, column: dict[int, Any], limit: int) -> int:
    """Bytes of the pages of a column chunk, its ColumnMetaData given."""
    at = min((start for start in (column[9], column.get(11, 0)) if start > 0), default=0)
    end, total = at + column[7], 0
    if not 0 < at <= end <= limit:
        raise ValueError("a column is outside of the file")
    while at < end:
        page, length = _read_struct(_read(file, at, min(_HEADER, end - at)), 0)
        kind, unpacked, packed = page[1], page[2], page[3]
        own = page[_PAGES[kind]]
        if min(unpacked, packed) < 0 or (kind == 2 and own[1] > unpacked) or at + length + packed > end:
            raise ValueError("a page claims more than its column holds")
        if own[4 if kind == 3 else 2] in _DELTAS:
            raise ValueError("words must be plain or in a dictionary, without differences")
        total += max(unpacked, packed)
        at += length + packed
    return total


def _read_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Read a struct in Thrift's compact protocol: its fields by number, and where it ends.

    Raises:
        IndexError, KeyError: if the data end before it does, a field comes twice, or a type is unknown.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        if head >> 4:
            number, at = number + (head >> 4), at + 1
        else:
            number, at = _read_int(data, at + 1)
        if number in fields:
            raise KeyError(number)
        kind = head & 15
        fields[number], at = (None, at) if kind in (1, 2) else _read_value(data, at, kind)  # a bool is its own type
    return fields, at + 1


def _read_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (4, 5, 6):  # int16, int32, int64
        return _read_int(data, at)
    if kind == 8:  # bytes
        length, at = _read_varint(data, at)
        return data[at : at + length], at + length
    if kind in (9, 10):  # list, set
        length, kind, at = data[at] >> 4, data[at] & 15, at + 1
        if length == 15:
            length, at = _read_varint(data, at)
        values = []
        for _ in range(length):
            value, at = _read_value(data, at, kind)
            values.append(value)
        return values, at
    if kind == 12:
        return _read_struct(data, at)
    return data[at], at + {1: 1, 2: 1, 3: 1, 7: 8}[kind]  # bools in lists, int8, float64


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at
