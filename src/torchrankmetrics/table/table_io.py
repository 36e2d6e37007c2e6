"""Rows as plain NumPy arrays by name, and the .npz file of them (docs/cli.md, "File format")."""

import io
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from zipfile import ZipFile, ZipInfo

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib import format as npy
from torch import Tensor

from torchrankmetrics.files import write_whole
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.arrays import as_array, as_ids
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import ABSENT, SIDE_BITS, WIDTH, Columns, check_side_codes
from torchrankmetrics.validation import shorten, truncate

Array = npt.NDArray[Any]
_NEW_IN = {"query": 2, "partial": 3, "gain": 4}  # the first version of a file that may have this column
VERSIONS = (1, 2, 3, 4, 5)
_UNKNOWN_IN = 5  # the first version of a file that may lack num_candidates
VERSION_FIELD = "rank_table_version"
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
_NAMES = (*INTEGERS, *FLOATS, *FLAGS)
_PER_TASK = ("optimistic", "sample_id")
_NPY = b"\x93NUMPY"
_ENTRY = b"PK\1\2"  # begins an entry of the directory of a zip archive
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class TooLargeError(ValueError):
    """A file needs more memory than the caller allows."""

    def __init__(self, path: str | os.PathLike[str], needed: object, max_bytes: int) -> None:
        super().__init__(
            f"{os.fspath(path)} is not loaded: it would take {needed} bytes of memory, and max_bytes={max_bytes}: if "
            "you trust it, allow more (max_bytes=, on the command line --max-bytes)"
        )


def to_arrays(rows: Tensor) -> dict[str, Array]:
    """Write rows as arrays by name; columns of default values are left out.

    Raises:
        IndexError, ValueError: for faults that an accelerator could only flag.
    """
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
    table = Columns(np.empty((n, WIDTH), dtype=np.int64))
    for name in INTEGERS:
        if name in arrays:
            column = as_ids(_vector(arrays[name], name, n), name).numpy()
        else:
            column = table.optimistic if name == "pessimistic" else np.array(DEFAULTS[name])
        setattr(table, "side_and_flags" if name == "side" else name, column)
    known = table.num_candidates != fault.UNKNOWN
    for part in (known, ~known):  # Ranks checks the values
        if part.any():
            low, high, N = torch.from_numpy(np.ascontiguousarray(table.ranks[part].T))
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


def write(path: str | os.PathLike[str], rows: Tensor) -> None:
    """Write a file, completely or not at all."""
    arrays = to_arrays(rows)
    fields: dict[str, Any] = {VERSION_FIELD: np.array(version_of(arrays))}
    fields |= {name: _smallest(array) for name, array in arrays.items()}
    content = io.BytesIO()
    np.savez_compressed(content, **fields)
    write_whole(path, content.getvalue())


def read_opened(file: BinaryIO, path: str | os.PathLike[str], max_bytes: int) -> Tensor:
    """Read the rows of an open file; pickled objects raise an error.

    Raises:
        ValueError: if it is empty, damaged, of another kind, of a later version, or would take more than ``max_bytes``.
    """
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


def read_length(path: str | os.PathLike[str], file: BinaryIO) -> int:
    """Return the number of rows of an open file from its headers; ValueError if it is not a file of ranks."""
    with _members(file, path) as (archive, members):
        if "optimistic" not in members:
            raise ValueError(f"it has no 'optimistic'; it has {truncate(', '.join(members))}")
        return _length(archive, "optimistic", members["optimistic"])


@contextmanager
def _members(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[tuple[ZipFile, dict[str, ZipInfo]]]:
    """Open a file of ranks and check its directory; errors name its path."""
    try:
        start = file.read(len(_NPY))
        if start == _NPY:
            raise ValueError("it is a single array, not an .npz")
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
    except (MemoryError, TooLargeError):
        raise
    except Exception as error:  # zipfile, zlib and NumPy meet damage with a dozen kinds of errors
        text = truncate(str(error) or type(error).__name__, 400)
        raise ValueError(f"{os.fspath(path)} is not a whole RankTable file: {text}") from error


def check_version(version: object, names: Collection[str]) -> None:
    """Check that a file has a supported version, and only columns of its version."""
    if not isinstance(version, int) or version not in VERSIONS:
        raise ValueError(
            f"its {VERSION_FIELD} is {shorten(version)}; this library reads {', '.join(map(str, VERSIONS))}"
        )
    if version < (needed := version_of(names)):
        what = f"it has no 'num_candidates', which a file of {VERSION_FIELD} below {needed} must have"
        if "num_candidates" in names:
            newest = max(names, key=lambda name: _NEW_IN.get(name, 1))
            what = f"it has {shorten(newest)}, which a file of {VERSION_FIELD} below {needed} has not"
        raise ValueError(what)


def version_of(names: Collection[str]) -> int:
    """The first version that has these columns."""
    newest = max((_NEW_IN.get(name, 1) for name in names), default=1)
    return newest if "num_candidates" in names else _UNKNOWN_IN


def check_names(names: Iterable[str]) -> None:
    """Check the names of columns."""
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        raise ValueError(f"arrays must be among {', '.join(_NAMES)}; got {truncate(', '.join(map(repr, unknown)))}")


def _vector(values: npt.ArrayLike, name: str, n: int | None) -> Array:
    array = as_array(values, name)
    if array.ndim == 0 and n is not None and name not in _PER_TASK:
        return np.full(n, array)
    if array.ndim != 1 or (n is not None and len(array) != n):
        expected = "(tasks,)" if n is None else f"(tasks,) = ({n},) as optimistic"
        raise ValueError(f"{name} must be {expected}, got shape {array.shape}")
    return array


def _smallest(array: Array) -> Array:
    """The same integers in the smallest dtype that contains them all."""
    if array.dtype.kind != "i" or not len(array):
        return array
    dtype = np.result_type(*(np.min_scalar_type(end) for end in (array.min(), array.max())))
    return array.astype(dtype) if dtype.itemsize < array.itemsize else array


def _refuse(wrong: npt.NDArray[np.bool_], values: Array, text: str) -> None:
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(f"{text}; got {values[first]} in row {first}")


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
