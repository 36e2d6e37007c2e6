"""Files of known triples: an index that every process of a machine maps into memory, so that all share its pages.

A header of 4096 bytes, then for each side three arrays of int64: keys, starts and answers, as ``KnownAnswers`` keeps
them. The header is a line with the version, JSON, and in its last 32 bytes the SHA-256 of what stands before.
"""

import hashlib
import json
import mmap
import os
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from torchrankmetrics.files import write_whole
from torchrankmetrics.protocols.known_answers import AnswerIndex, KnownAnswers, check_key_size
from torchrankmetrics.sides import QUERY_AND_ANSWER
from torchrankmetrics.theory.candidates import IntArray

VERSION = 1
SIDES = tuple(QUERY_AND_ANSWER)  # the order of their indices in a file
_FIRST = b"torchrankmetrics known triples "
_HEADER, _DIGEST, _ITEM = 4096, 32, 8
_BLOCK = 1 << 20  # entries that are checked at once


class Index(NamedTuple):
    """What the header says of a side: sizes of its ids, lengths of its arrays, and their SHA-256."""

    sizes: list[int]
    num_answers: int
    longest: int
    lengths: list[int]
    sha256: list[str]


class Opened(NamedTuple):
    """A file in memory: where it is, the digest of its header, and what it holds."""

    path: str
    digest: str
    num_entities: int
    sides: dict[str, Index]
    known: dict[str, KnownAnswers]


def write_known(path: str | os.PathLike[str], num_entities: int, known: Mapping[str, KnownAnswers]) -> None:
    """Write indices to a file, whole or not at all."""
    sides, arrays = {}, []
    for side, one in known.items():
        own = [np.ascontiguousarray(part.cpu().numpy()) for part in one.index[:3]]
        lengths, digests = [len(part) for part in own], [hashlib.sha256(part.data).hexdigest() for part in own]
        sides[side] = Index(*one.index[3:], lengths, digests)._asdict()
        arrays += own
    about = {"byteorder": sys.byteorder, "num_entities": num_entities, "sides": sides}
    head = _FIRST + b"%d\n" % VERSION + json.dumps(about).encode()
    head = head.ljust(_HEADER - _DIGEST)
    write_whole(path, chain([head + hashlib.sha256(head).digest()], (array.data for array in arrays)))


def opened(path: str | os.PathLike[str]) -> Opened:
    """Map a file into memory; of its content only the header is read.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is foreign, damaged, truncated, of a later version or of another byte order.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{os.fspath(path)} is no regular file, and nothing else can be mapped into memory")
    with open(path, "rb") as file:
        try:
            head = file.read(_HEADER)
            num_entities, sides = _read_header(head, os.fstat(file.fileno()).st_size)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is no whole file of known triples: {error}") from None
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of memory that can only be read; nobody writes to an index
        numbers = torch.from_numpy(np.frombuffer(mapped, dtype=np.int64, offset=_HEADER))
    part = iter(torch.split(numbers, [length for index in sides.values() for length in index.lengths]))
    known = {
        side: KnownAnswers.of_index(AnswerIndex(next(part), next(part), next(part), *index[:3]))
        for side, index in sides.items()
    }
    return Opened(os.path.abspath(path), head[-_DIGEST:].hex(), num_entities, sides, known)


def _read_header(head: bytes, size: int) -> tuple[int, dict[str, Index]]:
    """Read and check a header against the size of its file."""
    if not head.startswith(_FIRST):
        raise ValueError(f"it starts with {head[:16]!r}" if head else "it is empty")
    version, _, rest = head[len(_FIRST) :].partition(b"\n")
    if not version.isdigit() or int(version) != VERSION:
        raise ValueError(f"it has version {version[:20].decode(errors='replace')}; this library reads {VERSION}")
    if len(head) < _HEADER or hashlib.sha256(head[:-_DIGEST]).digest() != head[-_DIGEST:]:
        raise ValueError(f"its header is damaged or cut (the file has {size} bytes)")
    try:
        about = json.loads(rest[:-_DIGEST])
        order, num_entities = about["byteorder"], int(about["num_entities"])
        sides = {side: _checked(Index(**index)) for side, index in about["sides"].items()}
        if tuple(sides) != SIDES[: max(len(sides), 2)] or len({one.lengths[2] for one in sides.values()}) != 1:
            raise ValueError
        if num_entities < max(sides[side].num_answers for side in ("tail", "head")):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("its header says what cannot be") from None
    if order != sys.byteorder:
        raise ValueError(f"its numbers are {order}-endian, those of this machine {sys.byteorder}-endian: save it here")
    needed = _HEADER + _ITEM * sum(sum(index.lengths) for index in sides.values())
    if size != needed:
        raise ValueError(f"it has {size} bytes, and {needed} by its header")
    return num_entities, sides


def _checked(index: Index) -> Index:
    numbers: list[Any] = [*index.sizes, *index.lengths, index.num_answers, index.longest]
    keys, starts, answers = index.lengths
    if not all(type(number) is int and number >= 0 for number in numbers) or len(index.sizes) != 2:
        raise ValueError
    if starts != keys + 1 or keys > answers or index.longest > answers or len(index.sha256) != 3:
        raise ValueError
    check_key_size([*index.sizes, index.num_answers])
    return index


def verify(known: Mapping[str, KnownAnswers], file: Opened | None, progress: bool) -> None:
    """Read every entry of indices, of the file they come from too, and check what look-ups rely on.

    Raises:
        ValueError: if an array is not what its file was written with, not ascending, or has ids out of range.
    """
    arrays = {side: [part.cpu().numpy() for part in one.index[:3]] for side, one in known.items()}
    total = sum(len(part) for parts in arrays.values() for part in parts)
    where = "the index" if file is None else file.path
    with tqdm(total=total, desc="verifying", unit="number", unit_scale=True, disable=not progress) as bar:
        for side, parts in arrays.items():
            digests = None if file is None or side not in file.sides else file.sides[side].sha256
            for i, part in enumerate(parts):
                found = hashlib.sha256()
                for at in range(0, len(part), _BLOCK):
                    found.update(part[at : at + _BLOCK].data)
                    bar.update(len(part[at : at + _BLOCK]))
                if digests is not None and found.hexdigest() != digests[i]:
                    raise ValueError(f"{where} is damaged: what it holds of the {side} side is not what was written")
            if fault := _fault(known[side].index, *parts):
                raise ValueError(f"{where} is no index: of the {side} side {fault}")


def _fault(index: AnswerIndex, key: IntArray, start: IntArray, answers: IntArray) -> str | None:
    """What is wrong with an index, in words."""
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
