"""`KnownTriples`: known positives of both sides, candidate counts, relation categories."""

from __future__ import annotations  # help() shows the names of types

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from torchrankmetrics.kg.candidates import (
    CandidatesByRelation,
    check_by_relation,
    excluded_by,
    excluded_of_relation,
    warn_of_outside,
)
from torchrankmetrics.kg.known_positives import KnownPositives, opened, verify, write_known
from torchrankmetrics.ranking.arrays import Integers, as_ids, unique_rows
from torchrankmetrics.ranking.counting import Excluded, ExcludedSlices, MissingTargets
from torchrankmetrics.validation import (
    ENTITY_SIDES,
    QUERY_AND_ANSWER,
    EntitySide,
    TaskSide,
    check_choice,
    check_int,
    is_int,
    one_number,
    shorten,
)


class KnownTriples:
    """Known positives of both sides, which filtered evaluation excludes from the candidates.

    Pass train and valid for early stopping, and train, valid and test for the final test.

    Args:
        triples (integers): (n, 3) integers [head, relation, tail] of a split, one argument per
            split; or a tuple of three (n,) arrays. Ids start at 0.
        num_entities (int, default None): number of entities; None: one more than the largest id.
            Pass it if some entities have no triple.

    Raises:
        TypeError, ValueError: if ids or num_entities are not integers, or a split is not (n, 3).
        IndexError: if an id is negative or an entity is not below num_entities.

    Source: filtered setting of Bordes et al. 2013; example of Berrendorf et al. 2020 (arXiv
        2002.06914), Figure 1.

    >>> import torch
    >>> from torchrankmetrics import KnownTriples
    >>> known = KnownTriples(torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 2], [0, 1, 3]]))
    >>> known.num_candidates(torch.tensor([[0, 1, 1]]), "tail")  # tails 2 and 3 are filtered
    tensor([2])
    >>> from torchrankmetrics import rank_scores
    >>> heads, relations, tails = torch.tensor([[0], [1], [1]])
    >>> rank_scores(torch.rand(1, 4), tails, exclude=known.tails(heads, relations)).num_candidates
    tensor([2])
    """

    _file: tuple[str, str] | None = None  # path and digest
    _given: int | None = None  # num_entities, unless the triples determine it

    def __init__(self, *triples: Integers, num_entities: int | None = None) -> None:
        numbers = [part for part in triples if is_int(part)]
        if numbers:
            raise TypeError(
                f"triples must be splits (n, 3), got {numbers[0]}; pass num_entities={numbers[0]}"
            )
        parts = [as_triples(part, f"triples[{i}]") for i, part in enumerate(triples)]
        parts = parts or [torch.empty(0, 3, dtype=torch.int64, device="cpu")]
        known = parts[0]
        if len(parts) > 1:  # a copy is made by columns, as the index reads them
            known = torch.cat([part.T for part in parts], 1).T
        # "relation" is added when it is first needed
        tails = KnownPositives(known[:, :2], known[:, 2])
        heads = KnownPositives(known[:, 1:], known[:, 0])
        self._sides: dict[str, KnownPositives] = {"tail": tails, "head": heads}
        least = max(tails.index.num_ids, heads.index.num_ids)
        self.num_entities = (
            least if num_entities is None else check_int("num_entities", num_entities, 0, 1 << 63)
        )
        self._given = None if num_entities is None else self.num_entities
        self._missing = MissingTargets()
        if least > self.num_entities:
            raise IndexError(
                f"triples must contain entities in [0, num_entities={self.num_entities}), got "
                f"{least - 1}"
            )

    def save(self, path: str | os.PathLike[str], *, relations: bool = False) -> None:
        """Write a file for ``open``, completely or not at all: up to 48 bytes per triple.

        Args:
            path (path): of the file; an existing file keeps its mode, and the target of a link is
                replaced.
            relations (bool, default False): True also writes the index of ``relations``, 24 bytes
                more per triple.
        """
        if relations:
            self._index_relations()
        write_known(path, self.num_entities, self._given, self._sides)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> KnownTriples:
        """Map a file of ``save`` into memory; only its header is read before the first look-up.

        All processes of a machine share its pages, and a pickle contains only its path. Nothing in
        a file is executed. Call ``verify`` first on a file from elsewhere. Writing to the read-only
        tensors ends the process.

        Args:
            path (path): a file that ``save`` wrote.

        Returns:
            The index; its tensors are read-only maps of the file.

        Raises:
            OSError, ValueError: if the file cannot be opened, is damaged, of a later version or
                another byte order.
        """
        self = cls.__new__(cls)
        self._file, self.num_entities, self._given, self._sides = opened(path)
        self._missing = MissingTargets()
        return self

    def verify(self, *, progress: bool = False) -> None:
        """Read the whole index, and check its checksums, order and range.

        ValueError if a check fails.

        Args:
            progress (bool, default False): whether to show a progress bar.
        """
        verify(self._sides, "the index" if self._file is None else self._file[0], progress)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return (
            super().__reduce_ex__(protocol)
            if self._file is None
            else (_open_again, (type(self), *self._file))
        )

    def tails(self, heads: Tensor, relations: Tensor) -> ExcludedSlices:
        """Return the known tails of (head, relation, ?), for ``rank_scores(..., exclude=...)``.

        Args:
            heads (Tensor): (B,) integers.
            relations (Tensor): (B,) integers.
        """
        return self._look_up("tail", heads=heads, relations=relations)

    def heads(self, relations: Tensor, tails: Tensor) -> ExcludedSlices:
        """Return the known heads of (?, relation, tail), for ``rank_scores(..., exclude=...)``.

        Args:
            relations (Tensor): (B,) integers.
            tails (Tensor): (B,) integers.
        """
        return self._look_up("head", relations=relations, tails=tails)

    def relations(self, heads: Tensor, tails: Tensor) -> ExcludedSlices:
        """Return the known relations of (head, ?, tail), for ``rank_scores(..., exclude=...)``.

        Args:
            heads (Tensor): (B,) integers.
            tails (Tensor): (B,) integers.
        """
        self._index_relations()
        return self._look_up("relation", heads=heads, tails=tails)

    def _look_up(self, side: TaskSide, **columns: Tensor) -> ExcludedSlices:
        ids = [as_ids(column, name) for name, column in columns.items()]
        check_vectors(ids, 2, f"{' and '.join(columns)} must be (B,)")
        return replace(self._sides[side].of_columns(*ids), missing=self._missing)

    def _index_relations(self) -> None:
        if "relation" not in self._sides:
            queries, tails = self._sides["tail"].entries()
            self._sides["relation"] = KnownPositives(
                torch.stack([queries[:, 0], tails], 1), queries[:, 1]
            )

    def num_candidates(
        self,
        triples: Integers,
        side: EntitySide,
        *,
        candidates: Integers | CandidatesByRelation | None = None,
    ) -> Tensor:
        """Count the filtered candidates of each triple, without any model: (n,) int64.

        Args:
            triples (integers): (n, 3) integers, the tasks.
            side (str): "tail" or "head", the side that is predicted.
            candidates (integers or dict, default None): ids (m,) or bool (num_entities,) of the
                candidates; None: all entities. Or a dict of relation -> (heads, tails), as in
                ``rank_triples``: a target that is not in it counts too.

        Returns:
            (n,) int64, the target included.

        Warns:
            RankMetricWarning: if triples are not among the known ones, or targets are not
                candidates of their relation.

        Raises:
            ValueError, IndexError: if side is neither, a true entity is not a candidate, or an
                entity is out of range.
        """
        index, queries, own = self._tasks(triples, side)
        known = index(queries)
        is_known = Excluded(known).lists(torch.arange(len(own), device=own.device), own)
        if len(known.columns) and (missing := int((~is_known).sum())):
            self._missing.warn(missing, len(own))
        if candidates is not None:
            index.check()
        if isinstance(candidates, Mapping):
            relation = queries[:, QUERY_AND_ANSWER[side].index(1)]
            number, is_outside = self._num_by_relation(known, candidates, side, relation, own)
            warn_of_outside(int(is_outside.sum()), len(own))
            return number + (is_known | is_outside).long()
        excluded = excluded_by(candidates, self.num_entities, own.device)
        if excluded is not None and excluded[own].any():
            first = int(excluded[own].nonzero()[0])
            raise ValueError(
                f"candidates must contain the true {side} of every task; {int(own[first])} is "
                "missing"
            )
        return self._num_unknown(known, excluded) + is_known.long()

    def _num_unknown(self, known: ExcludedSlices, excluded: Tensor | None) -> Tensor:
        """Count the candidates of each query that are not known positives, (B,) int64."""
        if excluded is None:
            return self.num_entities - known.length
        counted = torch.nn.functional.pad((~excluded[known.columns]).cumsum(0), (1, 0))
        number = counted[known.start + known.length] - counted[known.start]
        return (~excluded).sum() - number

    def _num_by_relation(
        self,
        known: ExcludedSlices,
        candidates: CandidatesByRelation,
        side: EntitySide,
        relation: Tensor,
        own: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Count as ``_num_unknown``; and find targets that are not candidates of their relation."""
        check_by_relation(candidates)
        number = self.num_entities - known.length
        is_outside = torch.zeros_like(own, dtype=torch.bool)
        for one in torch.unique(relation).tolist():
            excluded = excluded_of_relation(candidates, one, side, self.num_entities, own.device)
            if excluded is not None:
                some = relation == one
                part = replace(known, start=known.start[some], length=known.length[some])
                number[some] = self._num_unknown(part, excluded)
                is_outside[some] = excluded[own[some]]
        return number, is_outside

    def queries(self, triples: Integers, side: EntitySide) -> tuple[Tensor, Tensor]:
        """Group tasks by query, so that each query is scored once for all its answers.

        Args:
            triples (integers): (n, 3) integers [head, relation, tail].
            side (str): "tail" or "head", the side that is predicted.

        Returns:
            Unique queries (Q, 2) int64, and target pairs (2, n) int64 of (row of the query,
            answer), one per triple.
        """
        _, queries, own = self._tasks(triples, side)
        unique, row = unique_rows(queries)
        return unique, torch.stack([row, own])

    def _tasks(self, triples: Integers, side: EntitySide) -> tuple[KnownPositives, Tensor, Tensor]:
        check_choice("side", side, ENTITY_SIDES)
        tasks = as_triples(triples, "triples")
        check_below(tasks[:, ::2], self.num_entities, "triples must contain entities")
        return self._sides[side], *split_facts(tasks, side)


def _open_again(kind: type[KnownTriples], path: str, digest: str) -> KnownTriples:
    """Open the file of a pickle; ValueError if another file has taken its place."""
    known = kind.open(path)
    if known._file != (path, digest):
        raise ValueError(f"{path} is another file of known triples than the one that was pickled")
    return known


def check_below(ids: Tensor, size: int, expected: str) -> None:
    """Raise an IndexError for ids that are not below a size; ``expected`` begins the message."""
    if ids.numel() and int(ids.max()) >= size:
        raise IndexError(f"{expected} in [0, {size}), got {int(ids.max())}")


def check_vectors(parts: Sequence[Tensor], number: int, expected: str) -> None:
    """Raise a ValueError unless there are so many vectors of one length."""
    if len(parts) != number or parts[0].ndim != 1 or len({part.shape for part in parts}) > 1:
        raise ValueError(
            f"{expected}; got {' and '.join(str(tuple(part.shape)) for part in parts)}"
        )


def as_triples(values: Integers, name: str) -> Tensor:
    """Read triples (n, 3), or three vectors (n,), of ids of at least 0, as int64 (n, 3)."""
    if hasattr(values, "edge_index"):
        raise TypeError(
            f"{name} must be (n, 3) integers, got {type(values).__name__}; known_triples and "
            "rank_triples of torchrankmetrics.integrations.pyg take the data of PyG"
        )
    if hasattr(values, "mapped_triples"):
        raise TypeError(
            f"{name} must be (n, 3) integers, got {type(values).__name__}; pass its .mapped_triples"
        )
    if (
        isinstance(values, tuple)
        and len(values) == 3
        and all(hasattr(part, "__array__") for part in values)
    ):
        parts = [as_ids(part, f"{name}[{i}]") for i, part in enumerate(values)]
        check_vectors(parts, 3, f"{name} as a tuple must be three (n,): heads, relations, tails")
        values = torch.stack(parts, 1)
    return as_facts(values, name, "head", "relation", "tail")


def as_facts(values: Integers, name: str, *columns: str) -> Tensor:
    """Read ids of at least 0, one column (n,) for each that is named, as int64 (n, columns)."""
    facts = as_ids(values, name)
    if facts.ndim != 2 or facts.shape[1] != len(columns):
        raise ValueError(
            f"{name} must be (n, {len(columns)}): {', '.join(columns)}; got {tuple(facts.shape)}"
        )
    if facts.numel() and facts.min() < 0:
        raise IndexError(f"{name} must contain ids of at least 0, got {int(facts.min())}")
    return facts


def split_facts(facts: Tensor, side: TaskSide) -> tuple[Tensor, Tensor]:
    """Split facts (n, 3 or more) into queries, which end with further columns, and targets (n,)."""
    *query, answer = QUERY_AND_ANSWER[side]
    return facts[:, [*query, *range(3, facts.shape[1])]], facts[:, answer]


RELATION_CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
"""Names of the numbers that ``relation_categories`` returns."""


def relation_categories(
    triples: Integers, *, num_relations: int | None = None, threshold: float = 1.5
) -> Tensor:
    """Sort relations into 1-1, 1-n, n-1 and n-n by their mean numbers of tails and heads.

    A side is "n" if its mean number over distinct triples is at least ``threshold``: 1-n has many
    tails per head. ``relation_categories(train)[relations]`` is a ``group``,
    ``RELATION_CATEGORIES`` its names for ``breakdown``.

    Args:
        triples (integers): (n, 3) integers [head, relation, tail], of all splits or of training.
        num_relations (int, default None): number of relations; None: one more than the largest id.
        threshold (float, default 1.5): above 1; 1.5 as in Bordes et al. 2013 (NeurIPS 26), section
            4.3.

    Returns:
        (num_relations,) int64: 0 for 1-1, 1 for 1-n, 2 for n-1, 3 for n-n; -1 for a relation
        without a triple.

    Raises:
        TypeError, ValueError, IndexError: as ``KnownTriples``; for a threshold of 1 or less.

    >>> import torch
    >>> from torchrankmetrics.kg import RELATION_CATEGORIES, relation_categories
    >>> born_in, capital_of = [[0, 0, 8], [1, 0, 8], [2, 0, 9]], [[8, 1, 6], [9, 1, 7]]
    >>> [RELATION_CATEGORIES[i] for i in relation_categories(torch.tensor(born_in + capital_of))]
    ['n-1', '1-1']
    """
    known = unique_rows(as_triples(triples, "triples"))[0]
    least = one_number(threshold)
    if least is None or not least > 1:
        raise ValueError(
            f"threshold must be a number above 1, the least mean; got {shorten(threshold)}"
        )
    largest = int(known[:, 1].max()) if len(known) else -1
    num_relations = (
        largest + 1
        if num_relations is None
        else check_int("num_relations", num_relations, 0, 1 << 63)
    )
    if largest >= num_relations:
        raise IndexError(
            f"triples must contain relations in [0, num_relations) = [0, {num_relations}), got "
            f"{largest}"
        )
    relation = known[:, 1]
    number = torch.bincount(relation, minlength=num_relations)
    many = []
    for side in ENTITY_SIDES:  # heads per (relation, tail), tails per (head, relation)
        queries = unique_rows(split_facts(known, side)[0])[0][:, QUERY_AND_ANSWER[side].index(1)]
        many.append(number >= least * torch.bincount(queries, minlength=num_relations).double())
    return torch.where(number > 0, many[1].long() + 2 * many[0].long(), -1)
