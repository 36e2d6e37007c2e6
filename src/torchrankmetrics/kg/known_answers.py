"""Known positives of integer queries as a CSR index over sorted composite keys."""

import hashlib
import math
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.exclude import ExcludedSlices

IntArray = npt.NDArray[np.int64]


class AnswerIndex(NamedTuple):
    """Query key[i] has answers[start[i] : start[i + 1]], ascending as the keys; ``sizes`` of the ids of a query."""

    key: Tensor
    start: Tensor
    answers: Tensor
    sizes: list[int]
    num_answers: int
    longest: int


class CheckedBlocks:
    """Blocks of an array in a file, each compared with its SHA-256 before it is used for the first time."""

    def __init__(self, numbers: IntArray, size: int, digests: bytes | memoryview, damaged: str) -> None:
        self._numbers, self._size, self._digests, self._damaged = numbers, size, digests, damaged
        self._right = np.zeros(-(-len(numbers) // size), dtype=bool)

    def check(self, start: IntArray, stop: IntArray) -> None:
        """Check the blocks of the entries in [start, stop), (n,) each; ValueError if a digest does not match."""
        if self._right.all():
            return
        needed = np.zeros(len(self._right) + 1, dtype=np.int64)
        np.add.at(needed, start // self._size, 1)
        np.add.at(needed, -(-stop // self._size), -1)
        for block in np.flatnonzero((needed.cumsum()[:-1] > 0) & ~self._right):
            own = self._numbers[block * self._size : (block + 1) * self._size]
            self.require(hashlib.sha256(own.data).digest() == self._digests[32 * block : 32 * block + 32])
            self._right[block] = True

    def require(self, right: bool) -> None:
        """Raise ValueError if a check failed."""
        if not right:
            raise ValueError(self._damaged)


class KnownAnswers:
    """Index of the known positives of integer queries; ``known(queries)`` is an ``exclude`` of ``rank_scores``.

    The key of a query is any number of ids, such as (head, relation) or (head, relation, time).

    Args:
        queries (integers): (n, k) or (n,) integers >= 0.
        answers (integers): (n,) integers >= 0; repeated pairs count once.

    Attributes:
        index: the sorted tensors, which files of known triples contain.

    Raises:
        TypeError, IndexError: if ids are not integers, or negative.
        ValueError: if shapes do not match, or the ids are so large that a key does not fit in 63 bits.

    >>> known = KnownAnswers(torch.tensor([[0, 0], [0, 0], [1, 0]]), torch.tensor([3, 2, 1]))
    >>> known(torch.tensor([[0, 0], [7, 7], [1, 0]])).pairs()
    tensor([[0, 0, 2],
            [2, 3, 1]])
    """

    _blocks: tuple[CheckedBlocks, ...] = ()  # of an index in a file

    def __init__(self, queries: Integers, answers: Integers) -> None:
        self.index = _index(queries, answers)
        self._copies: dict[torch.device, KnownAnswers] = {}

    @classmethod
    def of_index(cls, index: AnswerIndex, blocks: tuple[CheckedBlocks, ...] = ()) -> "KnownAnswers":
        """Use sorted tensors without copying or reading them; ``blocks`` check them when they are first read."""
        known = cls.__new__(cls)
        known.index, known._blocks, known._copies = index, blocks, {}
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
            raise ValueError(f"queries must be (B, {len(self.index.sizes)}), got {tuple(queries.shape)}")
        return self.of_columns(*queries.unbind(1))

    def of_columns(self, *columns: Tensor) -> ExcludedSlices:
        """Look up queries that are given as columns of ids, int64 (B,) each."""
        device = columns[0].device
        here = self.to(device)
        if here is not self:
            return here.of_columns(*columns)
        index, ids, inside = self.index, list[Any](columns), cast("Any", True)
        known: Any = index.key
        starts: Any = index.start
        if known.is_cpu:  # NumPy's calls cost a fifth of torch's
            ids, known, starts = [column.numpy() for column in columns], known.numpy(), starts.numpy()
        key = _composite(ids, index.sizes)
        for column, size in zip(ids, index.sizes, strict=True):
            inside = inside & (column >= 0) & (column < size)
        start, length = key * 0, key * 0
        if len(known):
            place: Any = torch.searchsorted(index.key, torch.as_tensor(key, device=device))
            place = (place.numpy() if place.is_cpu else place).clip(max=len(known) - 1)
            start = starts[place]
            length = (starts[place + 1] - start) * ((known[place] == key) & inside)
            if self._blocks:
                self._check_slices(place, key, start, start + length)
        slices = torch.as_tensor(start, device=device), torch.as_tensor(length, device=device)
        return ExcludedSlices(index.answers, *slices, index.longest, index.num_answers)

    def entries(self) -> tuple[Tensor, Tensor]:
        """Return all queries (n, k) int64 with their known positives (n,), each pair once, sorted."""
        self.check()
        key = self.index.key.repeat_interleave(self.index.start.diff())
        columns = []
        for size in reversed(self.index.sizes):
            columns.append(key % size)
            key = key // size
        return torch.stack(columns[::-1], 1), self.index.answers

    def to(self, device: torch.device | str) -> "KnownAnswers":
        """Return the index on a device; each copy is made once."""
        device = torch.device(device)
        if device.index is None and device.type != "cpu":
            device = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
        if device == self.index.answers.device:
            return self
        if device not in self._copies:
            self.check()
            key, start, answers = (part.to(device) for part in self.index[:3])
            self._copies[device] = self.of_index(self.index._replace(key=key, start=start, answers=answers))
        return self._copies[device]

    def _check_slices(self, place: IntArray, key: IntArray, start: IntArray, stop: IntArray) -> None:
        # if damage misleads the search, the keys around the place do not enclose the requested key
        known, (keys, starts, answers) = self.index.key.numpy(), self._blocks
        before = np.maximum(place - 1, 0)
        keys.check(before, place + 1)
        too_far = (known[before] >= key) & (place > 0)
        too_near = (known[place] < key) & (place < len(known) - 1)
        keys.require(not (too_far | too_near).any())
        starts.check(place, place + 2)
        answers.check(start, stop)


def _index(queries: Integers, answers: Integers) -> AnswerIndex:
    queries, answers = as_ids(queries, "queries"), as_ids(answers, "answers")
    queries = queries[:, None] if queries.ndim == 1 else queries
    if queries.ndim != 2 or not queries.shape[1] or answers.shape != queries.shape[:1]:
        raise ValueError(
            f"queries must be (n, k), k >= 1, and answers (n,), got {tuple(queries.shape)} and {tuple(answers.shape)}"
        )
    columns = [column.contiguous() for column in (*queries.unbind(1), answers)]
    ends = [column.aminmax() if len(column) else (0, -1) for column in columns]
    for i, (low, _) in enumerate(ends):
        if low < 0:
            name = "answers" if i == len(ends) - 1 else "queries"
            raise IndexError(f"{name} must hold ids of at least 0, got {int(low)}")
    *sizes, num_answers = (int(high) + 1 for _, high in ends)
    sizes, width = [max(size, 1) for size in sizes], max(num_answers, 1)
    if math.prod(sizes) * width >= 1 << 62:
        raise ValueError(f"ids are too large for a 63-bit key (sizes {[*sizes, width]}); renumber them densely from 0")
    both = _composite(columns, [*sizes, width])
    del columns
    if both.is_cpu:
        both.numpy().sort()  # a sixth of the time of torch, which sorts indices too
    else:
        both = both.sort().values
    both = torch.unique_consecutive(both)
    key, lengths = torch.unique_consecutive(both // width, return_counts=True)
    start = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    longest = int(lengths.max()) if len(lengths) else 0
    return AnswerIndex(key, start, both % width, sizes, num_answers, longest)


def _composite(columns: Any, sizes: list[int]) -> Any:
    key = columns[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        key = key * size
        key += column
    return key
