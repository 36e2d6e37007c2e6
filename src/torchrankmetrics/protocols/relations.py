"""Categories of relations by how many entities they join: groups for a breakdown."""

import torch
from torch import Tensor

from torchrankmetrics.checks import check_int, one_number
from torchrankmetrics.protocols.known_triples import as_triples, asked_of
from torchrankmetrics.ranking.arrays import Integers, unique_rows
from torchrankmetrics.sides import ENTITY_SIDES, QUERY_AND_ANSWER

RELATION_CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
"""What ``relation_categories`` numbers from 0 on."""


def relation_categories(triples: Integers, *, num_relations: int | None = None, threshold: float = 1.5) -> Tensor:
    """Sort relations into 1-1, 1-n, n-1 and n-n by their mean numbers of tails per head and of heads per tail.

    A side is "n" if its mean number over distinct triples is at least ``threshold``: 1-n has many tails per head.
    ``relation_categories(train)[relations]`` is a ``group``, ``RELATION_CATEGORIES`` its names for ``breakdown``.

    Args:
        triples: (n, 3) integers [head, relation, tail], of all splits or of training.
        num_relations: number of relations; None: one more than the largest id.
        threshold: Bordes et al. take 1.5.

    Returns:
        (num_relations,) int64: 0 for 1-1, 1 for 1-n, 2 for n-1, 3 for n-n; -1 for a relation without a triple.

    Raises:
        TypeError: if triples or num_relations are not integers.
        ValueError: if they are not (n, 3), or the threshold is not above 1: a mean is never below 1.
        IndexError: if an id is negative, or a relation is not below num_relations.

    Source: Bordes et al. 2013, Translating Embeddings for Modeling Multi-relational Data (NeurIPS 26), section 4.3.

    >>> born_in, capital_of = [[0, 0, 8], [1, 0, 8], [2, 0, 9]], [[8, 1, 6], [9, 1, 7]]
    >>> [RELATION_CATEGORIES[i] for i in relation_categories(torch.tensor(born_in + capital_of))]
    ['n-1', '1-1']
    """
    known = unique_rows(as_triples(triples, "triples"))[0]
    least = one_number(threshold)
    if least is None or not least > 1:
        raise ValueError(f"threshold must be a number above 1, the least mean; got {threshold!r}")
    largest = int(known[:, 1].max()) if len(known) else -1
    num_relations = largest + 1 if num_relations is None else check_int("num_relations", num_relations, 0, 1 << 63)
    if largest >= num_relations:
        raise IndexError(f"triples must hold relations in [0, num_relations) = [0, {num_relations}), got {largest}")
    relation = known[:, 1]
    number = torch.bincount(relation, minlength=num_relations)
    many = []
    for side in ENTITY_SIDES:  # heads per (relation, tail), tails per (head, relation)
        queries = unique_rows(asked_of(known, side)[0])[0][:, QUERY_AND_ANSWER[side].index(1)]
        many.append(number >= least * torch.bincount(queries, minlength=num_relations).double())
    return torch.where(number > 0, many[1].long() + 2 * many[0].long(), -1)
