"""Archives of arrays (.npz) from anybody: every size is checked against the file before anything is allocated."""

import io
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from torchrankmetrics.checks import shortened, shown

_NPY = b"\x93NUMPY"
_ENTRY = b"PK\1\2"  # begins an entry of the directory of a zip archive
_DEFLATE = 1032  # no deflated byte stands for more bytes
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class TooLargeError(ValueError):
    """What an archive would take is more than the caller allows."""

    def __init__(self, needed: str, max_bytes: int) -> None:
        super().__init__(
            f"it would take {needed} bytes of memory, and max_bytes={max_bytes}: if you trust it, allow more "
            "(max_bytes=, on the command line --max-bytes)"
        )


@contextmanager
def opened(file: BinaryIO, max_bytes: int) -> Iterator[tuple[ZipFile, dict[str, ZipInfo]]]:
    """Open an archive, and give its members by name; a pipe is read into memory first, ``max_bytes`` at most.

    Raises:
        TooLargeError: if a pipe holds more.
        ValueError, zipfile.BadZipFile: if it is empty, something else, or claims more than its bytes can hold.
    """
    start = file.read(len(_NPY))
    if start == _NPY:
        raise ValueError("it is a single array, no .npz")
    if not start.startswith(b"PK"):
        raise ValueError(f"it is no .npz, it starts with {start!r}" if start else "it is empty")
    if not file.seekable():
        content = start + file.read(max_bytes)
        if len(content) > max_bytes:
            raise TooLargeError(f"more than {max_bytes}", max_bytes)
        file = io.BytesIO(content)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    with ZipFile(file) as archive:
        listed = archive.infolist()
        members = {info.filename.removesuffix(".npy"): info for info in listed}
        if len(listed) != len(members):
            raise ValueError(f"its directory has {len(listed)} entries, but only {len(members)} names")
        for name, info in members.items():
            # where a length is damaged an entry swallows the next: a column that is lost would silently be a default
            if _ENTRY in info.extra + info.comment:
                raise ValueError(f"its directory is damaged after {shown(name)}")
            if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ValueError(f"{shown(name)} is compressed by method {info.compress_type}: only deflate is read")
            if info.file_size > _DEFLATE * info.compress_size:
                raise ValueError(
                    f"{shown(name)} claims {info.file_size} bytes, but has {info.compress_size} in the file"
                )
        if sum(info.compress_size for info in members.values()) > size:
            raise ValueError(f"its directory claims more than the {size} bytes of the file")
        yield archive, members


def read_arrays(
    archive: ZipFile, members: Mapping[str, ZipInfo], row_bytes: int, max_bytes: int
) -> dict[str, npt.NDArray[Any]]:
    """Read all members, if they and ``row_bytes`` for each entry of the longest take at most ``max_bytes``.

    Raises:
        TooLargeError: if they take more.
        ValueError: if they are no arrays, or would have to be unpickled.
    """
    needed = sum(info.file_size for info in members.values())
    if needed <= max_bytes:  # else not even the headers are read
        needed += row_bytes * max((length(archive, name, info) for name, info in members.items()), default=0)
    if needed > max_bytes:
        raise TooLargeError(str(needed), max_bytes)
    arrays = {}
    for name, info in members.items():
        with archive.open(info) as member:
            arrays[name] = np.asarray(npy.read_array(member, allow_pickle=False))
    return arrays


def length(archive: ZipFile, name: str, info: ZipInfo) -> int:
    """Length of the first axis as the header tells it, if the member has as many bytes as that takes."""
    with archive.open(info) as member:
        try:
            shape, _, dtype = _HEADERS[npy.read_magic(member)](member)
        except (ValueError, KeyError):  # not NumPy's words: they advise to unpickle
            raise ValueError(f"{shown(name)} is no array: it has no header of an .npy") from None
        held = info.file_size - member.tell()
    if dtype.hasobject:
        raise ValueError(f"{shown(name)} holds Python objects, which are never loaded: an array must hold numbers")
    if held != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"{shown(name)} claims shape {shortened(str(shape))} of {dtype}, but has {held} bytes")
    return shape[0] if shape else 0
