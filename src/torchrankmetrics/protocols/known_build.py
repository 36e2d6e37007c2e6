"""Known triples that need not fit in memory: written down as they come, sorted in runs, merged into their file."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from tqdm.auto import tqdm

from torchrankmetrics.protocols.known_answers import check_key_size
from torchrankmetrics.protocols.known_files import Index, check_regular, write
from torchrankmetrics.sides import QUERY_AND_ANSWER, TaskSide
from torchrankmetrics.theory.candidates import IntArray

_COPIED = 1 << 22  # bytes that are copied at once


def build(
    path: str | os.PathLike[str],
    triples: Iterable[IntArray],
    num_entities: int | None,
    sides: Sequence[TaskSide],
    most: int,
    progress: bool,
) -> None:
    """Write a file of known triples from parts (n, 3) of at least 0, ``most`` triples in memory at once.

    Raises:
        IndexError: if an entity is not below ``num_entities``.
        OSError: if the file, or what is sorted beside it, cannot be written.
        ValueError: if ids are so large that a key does not fit in 63 bits, or the path is no regular file.
    """
    if os.path.exists(path):
        check_regular(path)
    target = Path(os.path.realpath(path))
    with TemporaryDirectory(prefix=f".{target.name[:50]}.", dir=target.parent) as folder:
        written, runs = Path(folder) / "triples", Path(folder) / "runs"
        limits = _write_down(written, triples, progress)
        largest = max(limits[0], limits[2])
        if num_entities is not None and largest > num_entities:
            raise IndexError(
                f"triples must hold entities in [0, num_entities) = [0, {num_entities}), got {largest - 1}"
            )
        found: dict[str, Index] = {}
        for side in sides:
            sizes = [max(limits[i], 1) for i in QUERY_AND_ANSWER[side]]
            check_key_size(sizes)
            number = os.path.getsize(written) // 24
            with tqdm(
                total=2 * number, desc=f"{side} side", unit="triple", unit_scale=True, disable=not progress
            ) as bar:
                ends = _write_runs(written, runs, QUERY_AND_ANSWER[side], sizes, most, bar)
                merged = _merged(runs, ends, max(most // (2 * max(len(ends), 1)), 1))
                num_answers = limits[QUERY_AND_ANSWER[side][2]]
                found[side] = _index(Path(folder) / side, merged, sizes[:2], num_answers, bar)
        written.unlink()
        runs.unlink()
        names = [Path(folder) / f"{side}.{name}" for side in sides for name in _ARRAYS]
        write(path, largest if num_entities is None else num_entities, found, _copied(names))


def triples_of_file(path: Path, most: int) -> Iterator[IntArray]:
    """Triples of a file in parts of ``most`` at most: an .npy of integers (n, 3), or text of three ids in a line.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is neither.
    """
    if path.suffix == ".npy":
        whole = open_memmap(path, mode="r")
        yield from (np.array(whole[at : at + most]) for at in range(0, len(whole) if whole.ndim else 1, most))
        return
    number = 0
    with path.open(encoding="utf-8") as file:
        while lines := list(islice(file, min(most, 1 << 18))):
            if filled := [line for line in lines if line.strip()]:
                try:
                    yield np.loadtxt(filled, dtype=np.int64, ndmin=2, comments=None)
                except ValueError as error:
                    raise ValueError(f"{path}, behind line {number}: expected three ids in a line; {error}") from None
            number += len(lines)


def _write_down(written: Path, triples: Iterable[IntArray], progress: bool) -> list[int]:
    """Write triples (n, 3) int64 in the order in which they come; one more than the largest id of each column."""
    limits = [0, 0, 0]
    with (
        written.open("wb") as file,
        tqdm(desc="reading triples", unit="triple", unit_scale=True, disable=not progress) as bar,
    ):
        for part in triples:
            if len(part):
                limits = [max(limit, int(most) + 1) for limit, most in zip(limits, part.max(0), strict=True)]
            file.write(np.ascontiguousarray(part).data)
            bar.update(len(part))
    return limits


def _write_runs(
    written: Path, runs: Path, columns: Sequence[int], sizes: Sequence[int], most: int, bar: Any
) -> list[int]:
    """Write runs of ascending, distinct keys of triples one behind the other, and say where each ends."""
    ends: list[int] = []
    with written.open("rb") as source, runs.open("wb") as file:
        while len(block := np.fromfile(source, dtype=np.int64, count=3 * most)):
            h, r, t = block.reshape(-1, 3).T[list(columns)]
            del block
            key = (h * sizes[1] + r) * sizes[2] + t
            del h, r, t
            bar.update(len(key))
            key = _distinct(key)
            file.write(key.data)
            ends.append((ends[-1] if ends else 0) + len(key))
    return ends


def _merged(runs: Path, ends: list[int], length: int) -> Iterator[IntArray]:
    """Merge runs, ``length`` keys of each at once: blocks that ascend, each key once."""
    at = [0, *ends[:-1]]
    blocks = [np.empty(0, dtype=np.int64)] * len(ends)
    with runs.open("rb") as file:
        while True:
            for i, end in enumerate(ends):
                if not len(blocks[i]) and at[i] < end:
                    file.seek(8 * at[i])
                    blocks[i] = np.fromfile(file, dtype=np.int64, count=min(length, end - at[i]))
                    at[i] += len(blocks[i])
            if not any(map(len, blocks)):
                return
            # up to here no key can come any more from what is not read yet
            last = [block[-1] for i, block in enumerate(blocks) if at[i] < ends[i]]
            limit = min(last) if last else max(block[-1] for block in blocks if len(block))
            cuts = [np.searchsorted(block, limit, side="right") for block in blocks]
            yield _distinct(np.concatenate([block[:cut] for block, cut in zip(blocks, cuts, strict=True)]))
            blocks = [block[cut:] for block, cut in zip(blocks, cuts, strict=True)]


def _distinct(keys: IntArray) -> IntArray:
    """Sort keys in place and drop repeats."""
    keys.sort()
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys if new.all() else keys[new]


_ARRAYS = ("keys", "starts", "answers")


class _Array:
    """An array that grows in a file of its own."""

    def __init__(self, path: Path) -> None:
        self.file, self.sha256, self.length = path.open("wb"), hashlib.sha256(), 0

    def append(self, numbers: IntArray) -> None:
        numbers = np.ascontiguousarray(numbers)
        self.sha256.update(numbers.data)
        self.file.write(numbers.data)
        self.length += len(numbers)


def _index(base: Path, merged: Iterator[IntArray], sizes: list[int], num_answers: int, bar: Any) -> Index:
    """Write the arrays of a side, as ``KnownAnswers`` would have them in memory."""
    keys, starts, answers = arrays = [_Array(base.with_name(f"{base.name}.{name}")) for name in _ARRAYS]
    before, begun, longest = -1, 0, 0
    for both in merged:
        owner = both // num_answers
        new = np.ones(len(owner), dtype=bool)
        np.not_equal(owner[1:], owner[:-1], out=new[1:])
        new[0] = owner[0] != before
        begins = answers.length + np.flatnonzero(new)
        if len(begins):
            longest = max(longest, int(np.diff(begins, prepend=begun).max()))
            begun = int(begins[-1])
        before = int(owner[-1])
        keys.append(owner[new])
        starts.append(begins)
        answers.append(both % num_answers)
        bar.update(len(both))
    longest = max(longest, answers.length - begun)
    starts.append(np.array([answers.length]))
    for array in arrays:
        array.file.close()
    return Index(
        sizes,
        num_answers,
        longest,
        [array.length for array in arrays],
        [array.sha256.hexdigest() for array in arrays],
    )


def _copied(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while part := file.read(_COPIED):
                yield part
