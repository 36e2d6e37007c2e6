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
from collections.abc import Mapping
from itertools import chain
from typing import Any

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


def write_known(path: str | os.PathLike[str], num_entities: int, known: Mapping[str, KnownAnswers]) -> None:
    """Write indices to a file, completely or not at all."""
    sides, arrays = {}, []
    for side, one in known.items():
        one.check()
        own = [np.ascontiguousarray(part.cpu().numpy()) for part in one.index[:3]]
        names = ("sizes", "num_answers", "longest", "lengths", "sha256")
        sides[side] = dict(zip(names, (*one.index[3:], [len(part) for part in own], []), strict=True))
        arrays += own
    about = {"byteorder": sys.byteorder, "num_entities": num_entities, "sides": sides}
    head = _FIRST + b"%d\n" % VERSIONS[-1] + json.dumps(about).encode()
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
            num_entities, sides = _read_header(head, os.fstat(file.fileno()).st_size)
        except ValueError as error:
            raise ValueError(f"{name} is not a whole file of known triples: {error}") from None
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only memory: nothing writes to an index
        lengths = [length for index in sides.values() for length in index["lengths"]]
        numbers = torch.from_numpy(np.frombuffer(mapped, np.int64, sum(lengths), _HEADER))
    parts, known = iter(torch.split(numbers, lengths)), {}
    digests = memoryview(mapped)[_HEADER + numbers.nbytes :]
    for side, index in sides.items():
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
    return (os.path.abspath(path), head[-_DIGEST:].hex()), num_entities, known


def _read_header(head: bytes, size: int) -> tuple[int, dict[str, dict[str, Any]]]:
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
        order, num_entities, sides = about["byteorder"], int(about["num_entities"]), about["sides"]
        is_valid = tuple(sides) == SIDES[: max(len(sides), 2)]
        for index in sides.values():
            keys, starts, answers = index["lengths"]
            numbers = [*index["sizes"], *index["lengths"], index["num_answers"], index["longest"]]
            is_valid &= all(type(number) is int and number >= 0 for number in numbers) and len(index["sizes"]) == 2
            is_valid &= starts == keys + 1 and max(keys, index["longest"]) <= answers
            is_valid &= len(index["sha256"]) == 3 * (int(version) == 1)
            is_valid &= index["num_answers"] <= num_entities or index is sides.get("relation")
            check_key_size([*index["sizes"], index["num_answers"]])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ValueError("its header is inconsistent")
    if order != sys.byteorder:
        raise ValueError(f"its numbers are {order}-endian, but this machine is {sys.byteorder}-endian; save it here")
    lengths = [length for index in sides.values() for length in index["lengths"]]
    needed = _HEADER + _ITEM * sum(lengths)
    if int(version) > 1:
        needed += _DIGEST * sum(-(-length // _ENTRIES) for length in lengths)
    if size != needed:
        raise ValueError(f"it has {size} bytes, but its header declares {needed}")
    return num_entities, sides


def verify(known: Mapping[str, KnownAnswers], where: str, progress: bool) -> None:
    """Read every entry of indices, and check digests, order and range; ValueError if a check fails."""
    for side, one in tqdm(known.items(), desc="verifying", unit="side", disable=not progress):
        one.check()
        if fault := _fault(one.index, *(part.cpu().numpy() for part in one.index[:3])):
            raise ValueError(f"{where} is not a valid index: on the {side} side {fault}")


def _fault(index: AnswerIndex, key: IntArray, start: IntArray, answers: IntArray) -> str | None:
    """Return a description of the first fault of an index, or None."""
    largest = index.sizes[0] * index.sizes[1]
    if len(key) and (key[0] < 0 or key[-1] >= largest or not (key[1:] > key[:-1]).all()):
        return f"keys are not ascending in [0, {largest})"
    if start[0] != 0 or start[-1] != len(answers) or not (start[1:] > start[:-1]).all():
        return f"starts are not ascending from 0 to {len(answers)}"
    if (longest := int(np.diff(start).max(initial=0))) != index.longest:
        return f"the longest row has {longest} answers, not {index.longest}"
    if len(answers) and (answers.min() < 0 or answers.max() >= index.num_answers):
        return f"answers are not in [0, {index.num_answers})"
    falls = 1 + np.flatnonzero(answers[1:] <= answers[:-1])
    if (start[np.searchsorted(start, falls)] != falls).any():
        return "the answers of a query are not ascending"
    return None
