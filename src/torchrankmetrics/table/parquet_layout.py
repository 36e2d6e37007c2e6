"""Footer and page headers of a Parquet file, read before pyarrow decodes it: what it needs, and a digest of the file.

A footer may claim less than decoding takes; page headers say what pyarrow allocates. Files of this library have the
SHA-256 of all other bytes in the gap before the footer, where readers expect nothing: damage never reaches a decoder.
"""

import hashlib
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from torchrankmetrics.table.npz import TooLargeError

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
