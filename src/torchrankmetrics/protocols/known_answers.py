"""Known answers of integer queries, as a CSR index over sorted composite keys: built once, asked per batch."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.excluded import KnownSlices

_LARGEST = 1 << 62


class KnownAnswers:
    """Index of the true answers of integer queries: ``known(queries)`` is what ``rank_scores`` excludes.

    Any key: (head, relation), (relation, tail), (head, tail), (head, relation, time), a single id.

    Args:
        queries: (n, k) or (n,) integers >= 0.
        answers: (n,) integers >= 0; repeated pairs count once.

    Raises:
        TypeError: if ids are not integers.
        ValueError: if shapes do not match, or the ids are so large that a key does not fit in 63 bits.
        IndexError: if an id is negative.

    >>> known = KnownAnswers(torch.tensor([[0, 0], [0, 0], [1, 0]]), torch.tensor([3, 2, 1]))
    >>> known.pairs(torch.tensor([[0, 0], [7, 7], [1, 0]]))
    tensor([[0, 0, 2],
            [2, 3, 1]])
    """

    def __init__(self, queries: Integers, answers: Integers) -> None:
        queries = as_ids(queries, "queries")
        queries = queries[:, None] if queries.ndim == 1 else queries
        answers = as_ids(answers, "answers")
        if queries.ndim != 2 or answers.ndim != 1 or len(queries) != len(answers):
            raise ValueError(
                f"queries must be (n, k) and answers (n,), got {tuple(queries.shape)} and {tuple(answers.shape)}"
            )
        for name, ids in (("queries", queries), ("answers", answers)):
            if ids.numel() and ids.min() < 0:
                raise IndexError(f"{name} must hold ids of at least 0, got {int(ids.min())}")
        self._sizes = [int(column.max()) + 1 if len(column) else 1 for column in queries.unbind(1)]
        self._num_answers = int(answers.max()) + 1 if len(answers) else 0
        _check_size([*self._sizes, max(self._num_answers, 1)])
        self._limits = torch.tensor(self._sizes, device=queries.device)
        key, _ = self._keys(queries)
        both = torch.unique_consecutive((key * max(self._num_answers, 1) + answers).sort().values)
        owner = both // max(self._num_answers, 1)
        self._key, lengths = torch.unique_consecutive(owner, return_counts=True)
        self._start = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        self._answers = both % max(self._num_answers, 1)
        self._longest = int(lengths.max()) if len(lengths) else 0
        self._copies: dict[torch.device, KnownAnswers] = {}

    @classmethod
    def _of_index(cls, arrays: Sequence[Tensor], sizes: list[int], num_answers: int, longest: int) -> "KnownAnswers":
        """Take an index that was built before, on the CPU: its keys, starts and answers are neither copied nor read."""
        self = cls.__new__(cls)
        self._key, self._start, self._answers = arrays
        self._sizes, self._num_answers, self._longest = sizes, num_answers, longest
        self._limits, self._copies = torch.tensor(sizes, device="cpu"), {}
        return self

    def __call__(self, queries: Integers) -> KnownSlices:
        """Look up a batch of queries; those without an answer, or never seen, exclude nothing.

        Args:
            queries: (B, k) integers, or (B,) if the key is a single id. The index follows to their device.

        Raises:
            TypeError: if ids are not integers.
            ValueError: if the key has another number of columns.
        """
        queries = as_ids(queries, "queries")
        queries = queries[:, None] if queries.ndim == 1 else queries
        if queries.ndim != 2 or queries.shape[1] != len(self._sizes):
            raise ValueError(f"queries must be (B, {len(self._sizes)}), got {tuple(queries.shape)}")
        here = self.to(queries.device)
        start, length = here._slices(queries)
        return KnownSlices(here._answers, start, length, here._longest, here._num_answers)

    def pairs(self, queries: Integers) -> Tensor:
        """Look up a batch of queries as (2, P) int64 pairs of (row, answer), answers ascending in each row."""
        return self(queries).pairs()

    def entries(self) -> tuple[Tensor, Tensor]:
        """All queries (n, k) and their answers (n,), each pair once."""
        key = self._key.repeat_interleave(self._start.diff())
        columns = []
        for size in reversed(self._sizes):
            columns.append(key % size)
            key = key // size
        return torch.stack(columns[::-1], 1), self._answers

    def to(self, device: torch.device | str) -> "KnownAnswers":
        """Give the index on a device; copies are made once and kept."""
        device = torch.device(device)
        if device.index is None and device.type != "cpu":
            device = torch.empty(0, device=device).device  # as tensors name it: "cuda" is their "cuda:0"
        if device == self._answers.device:
            return self
        if device not in self._copies:
            there = copy(self)
            there._copies = {}
            there._key, there._start = self._key.to(device), self._start.to(device)
            there._answers, there._limits = self._answers.to(device), self._limits.to(device)
            self._copies[device] = there
        return self._copies[device]

    def count(
        self, queries: Tensor, own: Tensor, *, excluded: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Count the known answers other than one's own, (B,) int64.

        Args:
            queries: (B, k) integers.
            own: (B,) the answer that is not counted, known or not.
            excluded: bool (num_answers or more,), True = the answer does not count; None: all count.
            keep: the opposite of ``excluded``, its name up to 0.1.
        """
        if keep is not None:
            warn("KnownAnswers.count(keep=...) is deprecated and goes with 0.3: pass excluded=~keep", FutureWarning)
            excluded = ~keep
        start, length = self._slices(queries)
        stop = start + length
        own_known = self.contains(queries, own)
        if excluded is None:
            return length - own_known.long()
        counted = torch.nn.functional.pad((~excluded[self._answers]).cumsum(0), (1, 0))
        return counted[stop] - counted[start] - (own_known & ~excluded[own]).long()

    def contains(self, queries: Tensor, answers: Tensor) -> Tensor:
        """Whether each (query, answer) is known, bool (B,)."""
        if not len(self._answers):
            return torch.zeros_like(answers, dtype=torch.bool)
        start, length = self._slices(queries)
        slices = KnownSlices(self._answers, start, length, self._longest, self._num_answers)
        return slices.hold(torch.arange(len(answers), device=answers.device), answers)

    def _keys(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Composite keys, -1 where an id is outside the range the index was built with; and where none is."""
        key = _composite(queries.unbind(1), self._sizes)
        valid = ((queries >= 0) & (queries < self._limits)).all(1)
        return torch.where(valid, key, -1), valid

    def _slices(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        if len(self._key) == 0:
            nothing = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
            return nothing, nothing.clone()
        if queries.device.type != "cpu":
            wanted, _ = self._keys(queries)
            return _find(torch.searchsorted(self._key, wanted), self._key, self._start, wanted)
        # NumPy, whose calls cost a fifth of torch's: of two dozen on a few hundred ids nothing else is left
        ids, limits, known, start = (x.numpy() for x in (queries, self._limits, self._key, self._start))
        key = np.where(((ids >= 0) & (ids < limits)).all(1), _composite(ids.T, self._sizes), -1)
        first, length = _find(np.searchsorted(known, key), known, start, key)
        return torch.from_numpy(first), torch.from_numpy(length)


def _composite(columns: Any, sizes: list[int]) -> Any:
    key = columns[0]
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        key = key * size + column
    return key


def _find(place: Any, known: Any, start: Any, key: Any) -> tuple[Any, Any]:
    """Start and length of the slice of each key, given where it would stand among the known ones."""
    place = place * (place < len(known))
    first = start[place]
    return first, (start[place + 1] - first) * (known[place] == key)


def _check_size(sizes: list[int]) -> None:
    if math.prod(sizes) >= _LARGEST:
        raise ValueError(f"ids are too large for a 63-bit key (sizes {sizes}); renumber them densely from 0")
