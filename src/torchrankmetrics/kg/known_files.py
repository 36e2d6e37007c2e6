"""Files of known triples: an index that all processes of a machine map into memory and share.

A header of 4096 bytes, then for each side three arrays of int64 (keys, starts and answers of ``KnownAnswers``), and the
SHA-256 of every 4096 entries of each array. The header is a line with the version, JSON, and in its last 32 bytes the
SHA-256 of the bytes before. Version 1 has one digest of each array, in the header.
"""

import hashlib
import json
import mmap
import os
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from torchrankmetrics.files import write_whole
from torchrankmetrics.kg.known_answers import AnswerIndex, CheckedBlocks, IntArray, KnownAnswers, check_key_size
from torchrankmetrics.validation import QUERY_AND_ANSWER, shorten

VERSIONS = (1, 2)
SIDES = tuple(QUERY_AND_ANSWER)  # the order of their indices in a file
_FIRST = b"torchrankmetrics known triples "
_HEADER, _DIGEST, _ITEM = 4096, 32, 8
_ENTRIES = 4096  # of a block that has a digest: 32 KiB
_BLOCK = 1 << 20  # entries that are checked at once


class Index(NamedTuple):
    """Header of one side: sizes of its ids, lengths of its arrays, in version 1 their SHA-256."""

    sizes: list[int]
    num_answers: int
    longest: int
    lengths: list[int]
    sha256: Sequence[str] = ()


class Opened(NamedTuple):
    """A mapped file."""

    path: str
    digest: str
    num_entities: int
    known: dict[str, KnownAnswers]


def write_known(path: str | os.PathLike[str], num_entities: int, known: Mapping[str, KnownAnswers]) -> None:
    """Write indices to a file, completely or not at all."""
    sides, arrays = {}, []
    for side, one in known.items():
        one.check()
        own = [np.ascontiguousarray(part.cpu().numpy()) for part in one.index[:3]]
        sides[side] = Index(*one.index[3:], [len(part) for part in own])._asdict()
        arrays += own
    about = {"byteorder": sys.byteorder, "num_entities": num_entities, "sides": sides}
    head = _FIRST + b"%d\n" % VERSIONS[-1] + json.dumps(about).encode()
    head = head.ljust(_HEADER - _DIGEST)
    blocks = (array[at : at + _ENTRIES] for array in arrays for at in range(0, len(array), _ENTRIES))
    digests = b"".join(hashlib.sha256(block.data).digest() for block in blocks)
    write_whole(path, chain([head + hashlib.sha256(head).digest()], (array.data for array in arrays), [digests]))


def opened(path: str | os.PathLike[str]) -> Opened:
    """Map a file into memory; only the header is read.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is foreign, damaged, truncated, of a later version or of another byte order.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{os.fspath(path)} is not a regular file, and only regular files can be mapped into memory")
    with open(path, "rb") as file:
        try:
            head = file.read(_HEADER)
            num_entities, sides = _read_header(head, os.fstat(file.fileno()).st_size)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is not a whole file of known triples: {error}") from None
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only memory: nothing writes to an index
        lengths = [length for index in sides.values() for length in index.lengths]
        numbers = torch.from_numpy(np.frombuffer(mapped, np.int64, sum(lengths), _HEADER))
    parts, known = iter(torch.split(numbers, lengths)), {}
    digests = memoryview(mapped)[_HEADER + numbers.nbytes :]
    for side, index in sides.items():
        key, start, answers = own = [next(parts) for _ in index.lengths]
        blocks = []
        damaged = f"{os.fspath(path)} is damaged: a checksum of the {side} side does not match"
        for i, part in enumerate(own):
            size = len(part) or 1 if index.sha256 else _ENTRIES
            number = _DIGEST * -(-len(part) // size)
            of_blocks = bytes.fromhex(index.sha256[i]) if index.sha256 else digests[:number]
            digests = digests[0 if index.sha256 else number :]
            blocks.append(CheckedBlocks(part.numpy(), size, of_blocks, damaged))
        known[side] = KnownAnswers.of_index(AnswerIndex(key, start, answers, *index[:3]), tuple(blocks))
    return Opened(os.path.abspath(path), head[-_DIGEST:].hex(), num_entities, known)


def _read_header(head: bytes, size: int) -> tuple[int, dict[str, Index]]:
    """Read and check a header against the size of its file."""
    if not head.startswith(_FIRST):
        raise ValueError(f"it starts with {shorten(head[:16])}" if head else "it is empty")
    version, _, rest = head[len(_FIRST) :].partition(b"\n")
    if not version.isdigit() or int(version[:20]) not in VERSIONS:
        known = ", ".join(map(str, VERSIONS))
        raise ValueError(f"it has version {version[:20].decode(errors='replace')}; this library reads {known}")
    if len(head) < _HEADER or hashlib.sha256(head[:-_DIGEST]).digest() != head[-_DIGEST:]:
        raise ValueError(f"its header is damaged or cut (the file has {size} bytes)")
    try:
        about = json.loads(rest[:-_DIGEST])
        order, num_entities = about["byteorder"], int(about["num_entities"])
        sides = {side: _checked(Index(**index), int(version) == 1) for side, index in about["sides"].items()}
        if tuple(sides) != SIDES[: max(len(sides), 2)] or len({one.lengths[2] for one in sides.values()}) != 1:
            raise ValueError
        if num_entities < max(sides[side].num_answers for side in ("tail", "head")):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("its header is inconsistent") from None
    if order != sys.byteorder:
        raise ValueError(f"its numbers are {order}-endian, but this machine is {sys.byteorder}-endian; save it here")
    lengths = [length for index in sides.values() for length in index.lengths]
    needed = _HEADER + _ITEM * sum(lengths)
    if int(version) > 1:
        needed += _DIGEST * sum(-(-length // _ENTRIES) for length in lengths)
    if size != needed:
        raise ValueError(f"it has {size} bytes, but its header declares {needed}")
    return num_entities, sides


def _checked(index: Index, has_digests: bool) -> Index:
    numbers: list[Any] = [*index.sizes, *index.lengths, index.num_answers, index.longest]
    keys, starts, answers = index.lengths
    if not all(type(number) is int and number >= 0 for number in numbers) or len(index.sizes) != 2:
        raise ValueError
    if starts != keys + 1 or keys > answers or index.longest > answers or len(index.sha256) != 3 * has_digests:
        raise ValueError
    check_key_size([*index.sizes, index.num_answers])
    return index


def verify(known: Mapping[str, KnownAnswers], where: str, progress: bool) -> None:
    """Read every entry of indices, and check digests, order and range.

    Raises:
        ValueError: if a digest does not match, an array is not ascending, or ids are out of range.
    """
    for side, one in tqdm(known.items(), desc="verifying", unit="side", disable=not progress):
        one.check()
        if fault := _fault(one.index, *(part.cpu().numpy() for part in one.index[:3])):
            raise ValueError(f"{where} is not a valid index: on the {side} side {fault}")


def _fault(index: AnswerIndex, key: IntArray, start: IntArray, answers: IntArray) -> str | None:
    """Return a description of the first fault of an index, or None."""
    largest = index.sizes[0] * index.sizes[1]
    if len(key) and (key[0] < 0 or key[-1] >= largest or not _ascends(key)):
        return f"keys are not ascending in [0, {largest})"
    if start[0] != 0 or start[-1] != len(answers) or not _ascends(start):
        return f"starts are not ascending from 0 to {len(answers)}"
    longest = max((int(np.diff(block).max()) for block in _blocks(start) if len(block) > 1), default=0)
    if longest != index.longest:
        return f"the longest row has {longest} answers, not {index.longest}"
    for at, block in zip(range(0, len(answers), _BLOCK), _blocks(answers), strict=True):
        if int(block.min()) < 0 or int(block.max()) >= index.num_answers:
            return f"answers are not in [0, {index.num_answers})"
        falls = at + 1 + np.flatnonzero(block[1:] <= block[:-1])
        if len(falls) and (start[np.searchsorted(start, falls)] != falls).any():
            return "the answers of a query are not ascending"
    return None


def _ascends(numbers: IntArray) -> bool:
    return all(bool((block[1:] > block[:-1]).all()) for block in _blocks(numbers))


def _blocks(numbers: IntArray) -> Iterator[IntArray]:
    """Blocks of an array, each with the first entry of the next."""
    for first, end in pairwise([*range(0, len(numbers), _BLOCK), len(numbers)]):
        yield numbers[first : end + 1]
