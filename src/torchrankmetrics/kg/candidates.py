"""Candidates of an evaluation: some entities for all queries, or heads and tails by relation."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking.arrays import Integers, as_ids, as_tensor
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide, is_int, shorten

CandidatesByRelation = Mapping[int, tuple[Integers | None, Integers | None]]
"""Heads and tails that are candidates, by relation; None and relations that are missing: all."""


def excluded_by(
    candidates: Integers | None,
    num_entities: int,
    device: torch.device,
    name: str = "candidates",
) -> Tensor | None:
    """Return the entities that candidates exclude, bool (num_entities,).

    Candidates are ids (m,) or bool (num_entities,); None excludes nothing and returns None.
    """
    if candidates is None:
        return None
    given = as_tensor(candidates, name).to(device)
    if given.dtype == torch.bool:
        if given.shape != (num_entities,):
            shape = tuple(given.shape)
            raise ValueError(
                f"{name} as bool must be (num_entities,) = ({num_entities},), got {shape}"
            )
        return ~given
    ids = as_ids(given, name)
    if ids.ndim != 1:
        raise ValueError(f"{name} must be ids (m,) or bool (num_entities,), got {tuple(ids.shape)}")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= num_entities):
        raise IndexError(
            f"{name} must lie in [0, {num_entities}), got {int(ids.min())} to {int(ids.max())}"
        )
    return torch.ones(num_entities, dtype=torch.bool, device=device).index_fill_(0, ids, False)


def check_by_relation(candidates: Mapping[Any, Any]) -> None:
    """Check the form of candidates by relation; their ids are checked when they are used."""
    for relation, pair in candidates.items():
        if not is_int(relation):
            raise TypeError(
                "candidates as a dict must have relations as keys, integers; got "
                f"{shorten(relation)} of type {type(relation).__name__}"
            )
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                f"candidates[{relation}] must be a tuple (heads, tails), each ids (m,), bool "
                f"(num_entities,) or None; got {shorten(pair)}"
            )


def excluded_of_relation(
    candidates: CandidatesByRelation,
    relation: int,
    side: EntitySide,
    num_entities: int,
    device: torch.device,
) -> Tensor | None:
    """Return the entities that are not candidates of a side, bool (num_entities,), or None."""
    if relation not in candidates:
        return None
    place = ENTITY_SIDES.index(side)
    name = f"candidates[{relation}][{place}]"
    return excluded_by(candidates[relation][place], num_entities, device, name)


def excluded_by_relation(
    candidates: CandidatesByRelation, side: EntitySide, relations: Tensor, num_entities: int
) -> Tensor:
    """Return the entities that are not candidates of a side, bool (B, num_entities).

    ``relations`` (B,) are those of the queries.
    """
    device = relations.device
    outside = torch.zeros(len(relations), num_entities, dtype=torch.bool, device=device)
    for relation in torch.unique(relations).tolist():
        excluded = excluded_of_relation(candidates, relation, side, num_entities, device)
        if excluded is not None:
            outside[relations == relation] = excluded
    return outside


def warn_of_outside(outside: int, number: int) -> None:
    """Warn if targets are not among the candidates of their relation."""
    if outside:
        warn(
            f"{outside} of {number} targets are not candidates of their relation: each is ranked "
            "among these candidates all the same; add them to candidates, or report their number"
        )
