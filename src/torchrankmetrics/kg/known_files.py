"""Files of known triples: an index that all processes of a machine map into memory and share.

A header of 4096 bytes, then for each side three arrays of int64 (keys, starts and answers of ``KnownAnswers``), and the
SHA-256 of every 4096 entries of each array. The header is a line with the version, JSON, and in its last 32 bytes the
SHA-256 of the bytes before. Version 1 has one digest of each array, in the header.
"""

import hashlib
import json
import math
import mmap
import os
import stat
import sys
import warnings
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from torchrankmetrics.files import write_whole
from torchrankmetrics.kg.known_answers import AnswerIndex, CheckedBlocks, KnownAnswers
from torchrankmetrics.validation import shorten

_VERSIONS = (b"1", b"2")
_ABOUT = ("sizes", "num_answers", "longest", "lengths", "sha256")  # of an index, in the header
_FIRST = b"torchrankmetrics known triples "
_HEADER, _DIGEST, _ITEM = 4096, 32, 8
_ENTRIES = 4096  # of a block that has a digest: 32 KiB


def write_known(path: str | os.PathLike[str], num_entities: int, known: Mapping[str, KnownAnswers]) -> None:
    """Write indices to a file, completely or not at all."""
    sides, arrays = {}, []
    for side, one in known.items():
        one.check()
        own = [np.ascontiguousarray(part.cpu().numpy()) for part in one.index[:3]]
        sides[side] = dict(zip(_ABOUT, (*one.index[3:], [len(part) for part in own], []), strict=True))
        arrays += own
    about = {"byteorder": sys.byteorder, "num_entities": num_entities, "sides": sides}
    head = _FIRST + _VERSIONS[-1] + b"\n" + json.dumps(about).encode()
    head = head.ljust(_HEADER - _DIGEST)
    blocks = (array[at : at + _ENTRIES] for array in arrays for at in range(0, len(array), _ENTRIES))
    digests = b"".join(hashlib.sha256(block.data).digest() for block in blocks)
    write_whole(path, chain([head + hashlib.sha256(head).digest()], (array.data for array in arrays), [digests]))


def opened(path: str | os.PathLike[str]) -> tuple[tuple[str, str], int, dict[str, KnownAnswers]]:
    """Map a file, of which only the header is read: its path and digest, the number of entities, and the indices.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is foreign, damaged, truncated, of a later version or of another byte order.
    """
    name = os.fspath(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{name} is not a regular file, and only regular files can be mapped into memory")
    with open(path, "rb") as file:
        try:
            head = file.read(_HEADER)
            about = _read_header(head, os.fstat(file.fileno()).st_size)
        except ValueError as error:
            raise ValueError(f"{name} is not a whole file of known triples: {error}") from None
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{name} is not a whole file of known triples: its header is inconsistent") from None
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    lengths = [length for index in about["sides"].values() for length in index["lengths"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only memory: nothing writes to an index
        numbers = torch.from_numpy(np.frombuffer(mapped, np.int64, sum(lengths), _HEADER))
    parts, digests, known = iter(torch.split(numbers, lengths)), memoryview(mapped)[_HEADER + numbers.nbytes :], {}
    for side, index in about["sides"].items():
        key, start, answers = own = [next(parts) for _ in index["lengths"]]
        blocks = []
        damaged = f"{name} is damaged: a checksum of the {side} side does not match"
        for i, part in enumerate(own):
            if index["sha256"]:  # version 1
                blocks.append(CheckedBlocks(part.numpy(), len(part) or 1, bytes.fromhex(index["sha256"][i]), damaged))
            else:
                blocks.append(CheckedBlocks(part.numpy(), _ENTRIES, digests, damaged))
                digests = digests[_DIGEST * -(-len(part) // _ENTRIES) :]
        sizes = index["sizes"], index["num_answers"], index["longest"]
        known[side] = KnownAnswers.of_index(AnswerIndex(key, start, answers, *sizes), tuple(blocks))
    return (os.path.abspath(path), head[-_DIGEST:].hex()), about["num_entities"], known


def _read_header(head: bytes, size: int) -> dict[str, Any]:
    """Read and check a header against the size of its file."""
    if not head.startswith(_FIRST):
        raise ValueError(f"it starts with {shorten(head[:16])}" if head else "it is empty")
    version, _, rest = head[len(_FIRST) :].partition(b"\n")
    if version not in _VERSIONS:
        known = ", ".join(map(bytes.decode, _VERSIONS))
        raise ValueError(f"it has version {version[:20].decode(errors='replace')}; this library reads {known}")
    if len(head) < _HEADER or hashlib.sha256(head[:-_DIGEST]).digest() != head[-_DIGEST:]:
        raise ValueError(f"its header is damaged or cut (the file has {size} bytes)")
    about: dict[str, Any] = json.loads(rest[:-_DIGEST])
    if about["byteorder"] != sys.byteorder:
        order = about["byteorder"]
        raise ValueError(f"its numbers are {order}-endian, but this machine is {sys.byteorder}-endian; save it here")
    if any(index.keys() != {*_ABOUT} for index in [about["sides"]["tail"], *about["sides"].values()]):
        raise ValueError("its header is inconsistent")
    lengths = [length for index in about["sides"].values() for length in index["lengths"]]
    blocks = 0 if version == _VERSIONS[0] else sum(-(-length // _ENTRIES) for length in lengths)
    if size != (needed := _HEADER + _ITEM * sum(lengths) + _DIGEST * blocks):
        raise ValueError(f"it has {size} bytes, but its header declares {needed}")
    return about


def verify(known: Mapping[str, KnownAnswers], where: str, progress: bool) -> None:
    """Read every entry of indices, and check digests, order and range; ValueError if a check fails."""
    for side, one in tqdm(known.items(), desc="verifying", unit="side", disable=not progress):
        one.check()
        index = one.index
        key, start, answers = (part.cpu().numpy() for part in index[:3])
        falls = 1 + np.flatnonzero(answers[1:] <= answers[:-1])  # from the answers of a query to those of the next
        ascending = [(part[1:] > part[:-1]).all() for part in (key, start)]
        ends = start[0] == 0, start[-1] == len(answers), np.diff(start).max(initial=0) == index.longest
        inside = [
            not len(part) or (part.min() >= 0 and part.max() < size)
            for part, size in ((key, math.prod(index.sizes)), (answers, index.num_answers))
        ]
        if not all([*ascending, *ends, *inside]) or (start[np.searchsorted(start, falls)] != falls).any():
            raise ValueError(f"{where} is not a valid index: the {side} side is not sorted, or has ids out of range")
