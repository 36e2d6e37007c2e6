"""Known positives of integer queries as a CSR index over sorted composite keys, and its files.

Processes of a machine map a file into memory and share it. It has a header of 4096 bytes, then for
each side three arrays of int64 (keys, starts and positives of ``KnownPositives``), and the SHA-256
of every 4096 entries of each array. The header is a line with the version, JSON, and the SHA-256
of the bytes before. Version 1 has one digest of each array.
"""

from __future__ import annotations  # help() shows the names of types

import hashlib
import json
import math
import mmap
import os
import stat
import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.files import write_whole
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.counting import ExcludedSlices
from torchrankmetrics.validation import shorten

_VERSIONS = (b"1", b"2")
# facts about a side, by their names in the header
_ABOUT = ("sizes", "num_answers", "longest", "lengths", "sha256")
_FIRST = b"torchrankmetrics known triples "
_HEADER = 4096
_DIGEST = 32
_ITEM = 8
_ENTRIES = 4096  # of a block that has a digest: 32 KiB
IntArray = npt.NDArray[np.int64]


class PositiveIndex(NamedTuple):
    """Query key[i] has positives[start[i] : start[i + 1]], ascending as the keys."""

    key: Tensor
    start: Tensor
    positives: Tensor
    sizes: list[int]  # of the ids of a query
    num_ids: int
    longest: int


class CheckedBlocks:
    """Blocks of an array in a file, each compared with its SHA-256 before it is first used."""

    def __init__(
        self, numbers: IntArray, size: int, digests: bytes | memoryview, damaged: str
    ) -> None:
        self._numbers = numbers
        self._size = size
        self._digests = digests
        self._damaged = damaged
        self._right = np.zeros(-(-len(numbers) // size), dtype=bool)

    def check(self, start: IntArray, stop: IntArray) -> None:
        """Check the blocks of the entries in [start, stop), (n,) each, by their digests."""
        if self._right.all():
            return
        needed = np.zeros(len(self._right) + 1, dtype=np.int64)
        np.add.at(needed, start // self._size, 1)
        np.add.at(needed, -(-stop // self._size), -1)
        for block in np.flatnonzero((needed.cumsum()[:-1] > 0) & ~self._right):
            own = self._numbers[block * self._size : (block + 1) * self._size]
            self.require(
                hashlib.sha256(own.data).digest() == self._digests[32 * block : 32 * block + 32]
            )
            self._right[block] = True

    def require(self, right: bool) -> None:
        """Raise ValueError if a check failed."""
        if not right:
            raise ValueError(self._damaged)


class KnownPositives:
    """Index of the known positives of integer queries.

    ``known(queries)`` is an ``exclude`` of ``rank_scores``. The key of a query is any number of
    ids, such as (head, relation) or (head, relation, time).

    Args:
        queries (integers): (n, k) or (n,) integers >= 0.
        positives (integers): (n,) integers >= 0; repeated pairs count once.

    Attributes:
        index: the sorted tensors, which files of known triples contain.

    Raises:
        TypeError, IndexError: if ids are not integers, or negative.
        ValueError: if shapes do not match, or the ids are so large that a key does not fit in 63
            bits.

    >>> import torch
    >>> from torchrankmetrics.kg import KnownPositives
    >>> known = KnownPositives(torch.tensor([[0, 0], [0, 0], [1, 0]]), torch.tensor([3, 2, 1]))
    >>> known(torch.tensor([[0, 0], [7, 7], [1, 0]])).pairs()
    tensor([[0, 0, 2],
            [2, 3, 1]])
    """

    _blocks: tuple[CheckedBlocks, ...] = ()  # of an index in a file

    def __init__(self, queries: Integers, positives: Integers) -> None:
        self.index = _index(queries, positives)
        self._copies: dict[torch.device, KnownPositives] = {}

    @classmethod
    def of_index(
        cls, index: PositiveIndex, blocks: tuple[CheckedBlocks, ...] = ()
    ) -> KnownPositives:
        """Use sorted tensors without copying or reading them; ``blocks`` check what is read."""
        known = cls.__new__(cls)
        known.index = index
        known._blocks = blocks
        known._copies = {}
        return known

    def check(self) -> None:
        """Compare all of an index in a file with its digests; ValueError if one does not match."""
        for blocks, part in zip(self._blocks, self.index[:3], strict=False):
            blocks.check(np.array([0]), np.array([len(part)]))

    def __call__(self, queries: Integers) -> ExcludedSlices:
        """Look up queries (B, k), or (B,) if the key is one id; unknown queries exclude nothing."""
        queries = as_ids(queries, "queries")
        queries = queries[:, None] if queries.ndim == 1 else queries
        if queries.ndim != 2 or queries.shape[1] != len(self.index.sizes):
            raise ValueError(
                f"queries must be (B, {len(self.index.sizes)}), got {tuple(queries.shape)}"
            )
        return self.of_columns(*queries.unbind(1))

    def of_columns(self, *columns: Tensor) -> ExcludedSlices:
        """Look up queries that are given as columns of ids, int64 (B,) each."""
        device = columns[0].device
        if device != self.index.positives.device:
            return self.to(device).of_columns(*columns)
        index = self.index
        key, inside = self._keys(columns)
        known: Any = index.key
        starts: Any = index.start
        if known.is_cpu:
            known = known.numpy()
            starts = starts.numpy()
        start = key * 0
        length = key * 0
        if len(known):
            place: Any = torch.searchsorted(index.key, torch.as_tensor(key, device=device))
            place = (place.numpy() if place.is_cpu else place).clip(max=len(known) - 1)
            start = starts[place]
            length = (starts[place + 1] - start) * ((known[place] == key) & inside)
            if self._blocks:
                self._check_slices(place, key, start, start + length)
        return ExcludedSlices(
            index.positives,
            torch.as_tensor(start, device=device),
            torch.as_tensor(length, device=device),
            index.longest,
            index.num_ids,
        )

    def _keys(self, columns: Sequence[Tensor]) -> tuple[Any, Any]:
        """Keys of queries, as ``_index`` writes them, and whether all of their ids are in range."""
        ids: Sequence[Any] = columns
        if columns[0].is_cpu:  # NumPy's calls cost a fifth of torch's
            ids = [column.numpy() for column in columns]
        key: Any = 0
        inside: Any = True
        for column, size in zip(ids, self.index.sizes, strict=True):
            key = key * size + column
            inside = inside & (column >= 0) & (column < size)
        return key, inside

    def entries(self) -> tuple[Tensor, Tensor]:
        """Return all queries (n, k) with their known positives (n,), int64, sorted, each once."""
        self.check()
        key = self.index.key.repeat_interleave(self.index.start.diff())
        columns = []
        for size in reversed(self.index.sizes):
            columns.append(key % size)
            key = key // size
        return torch.stack(columns[::-1], 1), self.index.positives

    def to(self, device: torch.device | str) -> KnownPositives:
        """Return the index on a device; each copy is made once."""
        device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
        if device == self.index.positives.device:
            return self
        if device not in self._copies:
            self.check()
            key, start, positives = (part.to(device) for part in self.index[:3])
            self._copies[device] = self.of_index(
                self.index._replace(key=key, start=start, positives=positives)
            )
        return self._copies[device]

    def _check_slices(
        self, place: IntArray, key: IntArray, start: IntArray, stop: IntArray
    ) -> None:
        # if damage misleads the search, the keys around the place do not enclose the requested key
        known = self.index.key.numpy()
        (keys, starts, positives) = self._blocks
        before = np.maximum(place - 1, 0)
        keys.check(before, place + 1)
        too_far = (known[before] >= key) & (place > 0)
        too_near = (known[place] < key) & (place < len(known) - 1)
        keys.require(not (too_far | too_near).any())
        starts.check(place, place + 2)
        positives.check(start, stop)


def _index(queries: Integers, positives: Integers) -> PositiveIndex:
    queries, positives = _read_pairs(queries, positives)
    *sizes, num_ids = _sizes(queries, positives)
    sizes = [max(size, 1) for size in sizes]
    width = max(num_ids, 1)
    if math.prod(sizes) * width >= 1 << 62:
        raise ValueError(
            f"ids are too large for a 63-bit key (sizes {[*sizes, width]}); renumber them densely "
            "from 0"
        )
    # shifts are faster than divisions; less than twice the width still fits
    bits = (width - 1).bit_length()
    pairs = _sorted_pairs([*queries.unbind(1), positives], [*sizes, 1 << bits])
    key, start, positives, longest = _compress(pairs, bits)
    return PositiveIndex(key, start, positives, sizes, num_ids, longest)


def _compress(pairs: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Split sorted numbers, of which the lowest bits are positives, into the fields of an index."""
    # new memory costs more than the arithmetic
    spare = pairs
    pairs = torch.unique_consecutive(pairs)
    query = torch.bitwise_right_shift(pairs, bits, out=spare.resize_(len(pairs)))
    key, lengths = torch.unique_consecutive(query, return_counts=True)
    longest = int(lengths.max()) if len(lengths) else 0
    start = torch.nn.functional.pad(lengths.cumsum_(0), (1, 0))
    pairs &= (1 << bits) - 1
    return key, start, pairs, longest


def _read_pairs(queries: Integers, positives: Integers) -> tuple[Tensor, Tensor]:
    """Read queries as (n, k) and positives as (n,), int64."""
    queries = as_ids(queries, "queries")
    positives = as_ids(positives, "positives")
    queries = queries[:, None] if queries.ndim == 1 else queries
    if queries.ndim != 2 or not queries.shape[1] or positives.shape != queries.shape[:1]:
        raise ValueError(
            f"queries must be (n, k > 0), positives (n,); got {tuple(queries.shape)}, "
            f"{tuple(positives.shape)}"
        )
    return queries, positives


def _sizes(queries: Tensor, positives: Tensor) -> list[int]:
    """One more than the largest id of each column, the positives last, 0 without any."""
    sizes = []
    for column in (*queries.unbind(1), positives):
        # without dim, aminmax copies a column of a matrix
        low, high = map(int, column.aminmax(dim=0)) if len(column) else (0, -1)
        if low < 0:
            name = "positives" if column is positives else "queries"
            raise IndexError(f"{name} must contain ids of at least 0, got {low}")
        sizes.append(high + 1)
    return sizes


def _sorted_pairs(columns: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """One ascending number for each row of ids, with the sizes as its mixed radix."""
    pairs = torch.zeros_like(columns[-1])
    for column, size in zip(columns, sizes, strict=True):
        torch.add(column, pairs, alpha=size, out=pairs)
    if not pairs.is_cpu:
        return pairs.sort().values
    pairs.numpy().sort()  # a sixth of the time of torch, which sorts indices too
    return pairs


def write_known(
    path: str | os.PathLike[str],
    num_entities: int,
    given: int | None,
    known: Mapping[str, KnownPositives],
) -> None:
    """Write indices to a file, completely or not at all; ``given`` is num_entities or None."""
    sides = {}
    arrays: list[IntArray] = []
    for side, one in known.items():
        one.check()
        own = [np.ascontiguousarray(part.cpu().numpy()) for part in one.index[:3]]
        facts: tuple[Any, ...] = (*one.index[3:], list(map(len, own)), [])
        sides[side] = dict(zip(_ABOUT, facts, strict=True))
        arrays += own
    numbers = {"num_entities": num_entities, "given": given}
    about = {"byteorder": sys.byteorder, **numbers, "sides": sides}
    head = _FIRST + _VERSIONS[-1] + b"\n" + json.dumps(about).encode()
    head = head.ljust(_HEADER - _DIGEST)
    head += hashlib.sha256(head).digest()
    digests = b"".join(map(_digests, arrays))
    write_whole(path, chain([head], (array.data for array in arrays), [digests]))


def _digests(array: IntArray) -> bytes:
    """SHA-256 of each block of an array."""
    blocks = (array[at : at + _ENTRIES] for at in range(0, len(array), _ENTRIES))
    return b"".join(hashlib.sha256(block.data).digest() for block in blocks)


def opened(
    path: str | os.PathLike[str],
) -> tuple[tuple[str, str], int, int | None, dict[str, KnownPositives]]:
    """Map a file and read its header: path and digest, the arguments of ``write_known``."""
    name = os.fspath(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(
            f"{name} is not a regular file, and only regular files can be mapped into memory"
        )
    with open(path, "rb") as file:
        head = file.read(_HEADER)
        num_entities, given, sides = _checked_header(head, os.fstat(file.fileno()).st_size, name)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    known = _opened_sides(sides, mapped, name)
    return (os.path.abspath(path), head[-_DIGEST:].hex()), num_entities, given, known


def _opened_sides(
    sides: dict[str, list[Any]], mapped: mmap.mmap, name: str
) -> dict[str, KnownPositives]:
    """The indices of a file that is mapped into memory, by side."""
    lengths = [sum(side[-2]) for side in sides.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only memory: nothing writes to an index
        numbers = torch.from_numpy(np.frombuffer(mapped, np.int64, sum(lengths), _HEADER))
    digests = memoryview(mapped)[_HEADER + numbers.nbytes :]
    known = {}
    for (side, about), own in zip(sides.items(), torch.split(numbers, lengths), strict=True):
        damaged = f"{name} is damaged: a checksum of the {side} side does not match"
        known[side], digests = _opened_side(about, own, digests, damaged)
    return known


def _opened_side(
    about: list[Any], numbers: Tensor, digests: memoryview, damaged: str
) -> tuple[KnownPositives, memoryview]:
    """The index of a side in a file, and the digests of the next sides."""
    *facts, lengths, of_arrays = about
    key, start, positives = parts = torch.split(numbers, lengths)
    blocks = []
    for i, part in enumerate(parts):
        if of_arrays:  # version 1
            own = bytes.fromhex(of_arrays[i])
            blocks.append(CheckedBlocks(part.numpy(), len(part) or 1, own, damaged))
        else:
            blocks.append(CheckedBlocks(part.numpy(), _ENTRIES, digests, damaged))
            digests = digests[_DIGEST * -(-len(part) // _ENTRIES) :]
    return KnownPositives.of_index(
        PositiveIndex(key, start, positives, *facts), tuple(blocks)
    ), digests


def _checked_header(
    head: bytes, size: int, name: str
) -> tuple[int, int | None, dict[str, list[Any]]]:
    """Read a header; every fault of it is a ValueError that names the file."""
    try:
        return _read_header(head, size)
    except ValueError as error:
        raise ValueError(f"{name} is not a whole file of known triples: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{name} is not a whole file of known triples: its header is inconsistent"
        ) from None


def _read_header(head: bytes, size: int) -> tuple[int, int | None, dict[str, list[Any]]]:
    """Read the numbers of entities and the facts about each side; check the size of the file."""
    if not head.startswith(_FIRST):
        raise ValueError(f"it starts with {shorten(head[:16])}" if head else "it is empty")
    version, _, rest = head[len(_FIRST) :].partition(b"\n")
    if version not in _VERSIONS:
        known = ", ".join(map(bytes.decode, _VERSIONS))
        raise ValueError(
            f"it has version {version[:20].decode(errors='replace')}; this library reads {known}"
        )
    if len(head) < _HEADER or hashlib.sha256(head[:-_DIGEST]).digest() != head[-_DIGEST:]:
        raise ValueError(f"its header is damaged or cut (the file has {size} bytes)")
    about = json.loads(rest[:-_DIGEST])
    order = about["byteorder"]
    if order != sys.byteorder:
        raise ValueError(
            f"its numbers are {order}-endian, but this machine is {sys.byteorder}-endian; save it "
            "here"
        )
    sides = {}
    for side in ("tail", *about["sides"]):
        sides[side] = [about["sides"][side][key] for key in _ABOUT]
    needed = _size_of_file(version, sides)
    if size != needed:
        raise ValueError(f"it has {size} bytes, but its header declares {needed}")
    return about["num_entities"], about.get("given"), sides


def _size_of_file(version: bytes, sides: dict[str, list[Any]]) -> int:
    """The size in bytes that a header declares."""
    size = _HEADER
    for *_, (key, start, positives), _ in sides.values():
        for length in (key, start, positives):
            blocks = 0 if version == _VERSIONS[0] else -(-length // _ENTRIES)
            size += _ITEM * length + _DIGEST * blocks
    return size


def verify(known: Mapping[str, KnownPositives], where: str, progress: bool) -> None:
    """Read and check every entry of indices: digests, order and range; ValueError for a fault."""
    for side, one in tqdm(known.items(), desc="verifying", unit="side", disable=not progress):
        one.check()
        index = one.index
        key, start, positives = (part.cpu().numpy() for part in index[:3])
        # from the positives of a query to those of the next
        falls = 1 + np.flatnonzero(positives[1:] <= positives[:-1])
        ascending = [(part[1:] > part[:-1]).all() for part in (key, start)]
        ends = (
            start[0] == 0,
            start[-1] == len(positives),
            np.diff(start).max(initial=0) == index.longest,
        )
        inside = [
            not len(part) or (part.min() >= 0 and part.max() < size)
            for part, size in ((key, math.prod(index.sizes)), (positives, index.num_ids))
        ]
        if (
            not all([*ascending, *ends, *inside])
            or (start[np.searchsorted(start, falls)] != falls).any()
        ):
            raise ValueError(
                f"{where} is not a valid index: the {side} side is not sorted, or has ids out of "
                "range"
            )
