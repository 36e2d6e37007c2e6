"""Known answers of integer queries, as a CSR index over sorted composite keys: built once, asked per batch."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import as_tensor
from torchrankmetrics.ranking.exclusion import Exclusion

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

    def __init__(self, queries: Any, answers: Any) -> None:
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

    def __call__(self, queries: Tensor) -> Exclusion:
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
        return Exclusion(here._answers, start, length, here._longest, here._num_answers)

    def pairs(self, queries: Tensor) -> Tensor:
        """Look up a batch of queries as (2, P) int64 pairs of (row, answer), answers ascending in each row."""
        return self(queries).pairs()

    def to(self, device: torch.device | str) -> "KnownAnswers":
        """Give the index on a device; copies are made once and kept."""
        device = torch.device(device)
        if device == self._answers.device:
            return self
        if device not in self._copies:
            copy = object.__new__(KnownAnswers)
            copy.__dict__.update(self.__dict__, _copies={})
            for name in ("_key", "_start", "_answers", "_limits"):
                setattr(copy, name, getattr(self, name).to(device))
            self._copies[device] = copy
        return self._copies[device]

    def count(self, queries: Tensor, own: Tensor, keep: Tensor | None = None) -> Tensor:
        """Count the known answers other than one's own, (B,) int64.

        Args:
            queries: (B, k) integers.
            own: (B,) the answer that is not counted, known or not.
            keep: bool (num_answers or more,), which answers count; None: all.
        """
        start, length = self._slices(queries)
        stop = start + length
        if keep is None:
            known = length
        else:
            kept = torch.nn.functional.pad(keep[self._answers].long().cumsum(0), (1, 0))
            known = kept[stop] - kept[start]
        inside = keep[own] if keep is not None else True
        return known - (self.contains(queries, own) & inside).long()

    def contains(self, queries: Tensor, answers: Tensor) -> Tensor:
        """Whether each (query, answer) is known, bool (B,)."""
        size = max(self._num_answers, 1)
        key, valid = self._keys(queries)
        valid = valid & (answers >= 0) & (answers < size)
        both = self._key.repeat_interleave(self._start.diff()) * size + self._answers
        wanted = key * size + answers
        place = torch.searchsorted(both, wanted).clamp(max=max(len(both) - 1, 0))
        return valid & (both[place] == wanted) if len(both) else torch.zeros_like(valid)

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


class KnownTriples:
    """The triples that are known to be true: every split that an evaluation filters by.

    Args:
        triples: (n, 3) integers [head, relation, tail], one argument per split.
        num_entities: number of entities; None: one more than the largest id.

    Raises:
        TypeError: if ids are not integers.
        ValueError: if a split is not (n, 3).
        IndexError: if an id is negative or an entity is not below num_entities.

    Source: filtered setting of Bordes et al. 2013; candidate sets of Berrendorf et al. 2020 (arXiv 2002.06914), Figure
    1: entities a, b, c, d; evaluating (a, s, b), the known tails c and d leave 2 candidates.

    >>> b_r_a, a_s_b, a_s_c, a_s_d = [1, 0, 0], [0, 1, 1], [0, 1, 2], [0, 1, 3]
    >>> known = KnownTriples(torch.tensor([b_r_a, a_s_b, a_s_c, a_s_d]))
    >>> known.num_candidates(torch.tensor([a_s_b]), "tail")
    tensor([2])
    """

    def __init__(self, *triples: Any, num_entities: int | None = None) -> None:
        parts = [as_triples(part, f"triples[{i}]") for i, part in enumerate(triples)]
        known = torch.cat(parts) if parts else torch.empty(0, 3, dtype=torch.int64)
        largest = int(known[:, [0, 2]].max()) if len(known) else -1
        if num_entities is None:
            num_entities = largest + 1
        elif largest >= num_entities:
            raise IndexError(f"triples must hold entities in [0, num_entities) = [0, {num_entities}), got {largest}")
        self.num_entities = num_entities
        self._tails = KnownAnswers(known[:, [0, 1]], known[:, 2])
        self._heads = KnownAnswers(known[:, [1, 2]], known[:, 0])

    def tails(self, heads: Tensor, relations: Tensor) -> Exclusion:
        """Known tails of (head, relation, ?), for ``rank_scores(..., exclude=...)``; heads and relations (B,)."""
        return self._tails(_stack(heads, relations, "heads", "relations"))

    def heads(self, relations: Tensor, tails: Tensor) -> Exclusion:
        """Known heads of (?, relation, tail), for ``rank_scores(..., exclude=...)``; relations and tails (B,)."""
        return self._heads(_stack(relations, tails, "relations", "tails"))

    def num_candidates(self, triples: Any, side: str, *, candidates: Any = None) -> Tensor:
        """Count the filtered candidates of each triple, without any model: (n,) int64.

        Args:
            triples: (n, 3) integers, the tasks.
            side: "tail" or "head", the side that is predicted.
            candidates: the entities that are candidates at all, as ids (m,) or bool (num_entities,); None: all. Known
                answers outside are not subtracted.

        Raises:
            ValueError: if side is neither, or the true entity of a task is not among the candidates.
            IndexError: if an entity is outside [0, num_entities).
        """
        index, queries, own = self._tasks(triples, side)
        keep = candidate_mask(candidates, self.num_entities, own.device)
        if keep is None:
            total: int | Tensor = self.num_entities
        else:
            total = keep.sum()
            if len(own) and not keep[own].all():
                first = int((~keep[own]).nonzero()[0])
                raise ValueError(f"candidates must contain the true {side} of every task; {int(own[first])} is missing")
        return total - index.to(own.device).count(queries, own, keep)

    def queries(self, triples: Any, side: str) -> tuple[Tensor, Tensor]:
        """Group tasks by query, so that each query is scored once for all its answers.

        Returns:
            Unique queries (Q, 2) int64, (head, relation) or (relation, tail); and target pairs (2, n) int64 of
            (row of the query, answer), in the order of the triples.
        """
        _, queries, own = self._tasks(triples, side)
        unique, row = torch.unique(queries, dim=0, return_inverse=True)
        return unique, torch.stack([row, own])

    def _tasks(self, triples: Any, side: str) -> tuple[KnownAnswers, Tensor, Tensor]:
        if side not in ("tail", "head"):
            raise ValueError(f'side must be "tail" or "head", got {side!r}')
        tasks = as_triples(triples, "triples")
        entities = tasks[:, [0, 2]]
        if len(tasks) and int(entities.max()) >= self.num_entities:
            limit = self.num_entities
            raise IndexError(f"triples must hold entities in [0, {limit}), got {int(entities.max())}")
        if side == "tail":
            return self._tails, tasks[:, [0, 1]], tasks[:, 2]
        return self._heads, tasks[:, [1, 2]], tasks[:, 0]


def candidate_mask(candidates: Any, num_entities: int, device: torch.device) -> Tensor | None:
    """Read candidates given as ids (m,) or bool (num_entities,) into a bool mask, True = candidate."""
    if candidates is None:
        return None
    candidates = torch.as_tensor(candidates, device=device)
    if candidates.dtype == torch.bool:
        if candidates.shape != (num_entities,):
            shape = tuple(candidates.shape)
            raise ValueError(f"candidates as bool must be (num_entities,) = ({num_entities},), got {shape}")
        given: Tensor = candidates
        return given
    ids = as_ids(candidates, "candidates")
    if ids.ndim != 1:
        raise ValueError(f"candidates must be ids (m,) or bool (num_entities,), got {tuple(ids.shape)}")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= num_entities):
        raise IndexError(f"candidates must lie in [0, {num_entities}), got {int(ids.min())} to {int(ids.max())}")
    mask = torch.zeros(num_entities, dtype=torch.bool, device=device)
    mask[ids] = True
    return mask


def as_ids(values: Any, name: str) -> Tensor:
    """Read integer ids, as int64; floats and booleans are refused."""
    ids = as_tensor(values, name)
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise TypeError(f"{name} must hold integers, got {ids.dtype}")
    return ids.to(torch.int64)


def as_triples(values: Any, name: str) -> Tensor:
    """Read triples (n, 3) of ids of at least 0, as int64."""
    triples = as_ids(values, name)
    if triples.ndim != 2 or triples.shape[1] != 3:
        raise ValueError(f"{name} must be (n, 3): head, relation, tail; got {tuple(triples.shape)}")
    if triples.numel() and triples.min() < 0:
        raise IndexError(f"{name} must hold ids of at least 0, got {int(triples.min())}")
    return triples


def _stack(first: Tensor, second: Tensor, first_name: str, second_name: str) -> Tensor:
    first, second = as_ids(first, first_name), as_ids(second, second_name)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"{first_name} and {second_name} must be (B,), got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    return torch.stack([first, second], dim=1)


def _check_size(sizes: list[int]) -> None:
    product = 1
    for size in sizes:
        product *= size
    if product >= _LARGEST:
        raise ValueError(f"ids are too large for a 63-bit key (sizes {sizes}); renumber them densely from 0")
