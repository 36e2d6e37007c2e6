"""Weights against popularity: what is asked for most does not decide the mean."""

import torch

from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.kg.known_triples import as_triples
from torchrankmetrics.ranking.arrays import Integers, as_ids, unique_rows
from torchrankmetrics.table.columns import SIDE_CODES
from torchrankmetrics.validation import one_number


def weight_by_popularity(
    table: RankTable, triples: Integers, *known: Integers, entity_exponent: float = 1.0, relation_exponent: float = 0.0
) -> RankTable:
    """Weigh every task by the inverse popularity of its answer, as the stratified MRR and hits do.

    weight = popularity(answer)^-entity_exponent * popularity(relation)^-relation_exponent, where the popularity of an
    entity is the number of times it stands in a known triple, on either side, and that of a relation the number of its
    triples; at least 1. With both exponents 0 it is the ordinary mean. Every metric and view of the table follows.

    Args:
        table: of ``rank_triples``: with a side, and the index of the triple as sample id.
        triples: (n, 3) integers, the triples that were ranked.
        *known: (n, 3) integers each, where popularity is counted, repeats once: training triples, or all splits.
        entity_exponent: how much popular answers are held down; 1: every entity weighs the same in total, if the test
            triples are as popular as the known ones.
        relation_exponent: the same of relations.

    Returns:
        The table with these weights, times those that it had.

    Raises:
        TypeError, ValueError, IndexError: for wrong triples; ValueError if the table has no sides or sample ids, or ids
            of no triple, if known is empty, or an exponent is no finite number.

    Source: Mohamed et al. 2020, Popularity Agnostic Evaluation of Knowledge Graph Embeddings (UAI, PMLR 124);
    for recommendation Steck 2011 (doi:10.1145/2043932.2043957). Theirs in kind, normalised as any weighted mean.

    >>> from torchrankmetrics import Ranks, evaluate
    >>> train = torch.tensor([[0, 0, 9], [1, 0, 9], [2, 0, 9], [3, 0, 8]])  # 9 is popular
    >>> test = torch.tensor([[4, 0, 9], [5, 0, 8]])
    >>> table = RankTable.from_ranks(Ranks([1, 4], None, 9), side="tail", sample_id=[0, 1])
    >>> weighed = weight_by_popularity(table, test, train)
    >>> [round(evaluate(one, metrics=["mrr"])["mrr"], 4) for one in (table, weighed)]
    [0.625, 0.4375]
    """
    entity_exponent = _exponent("entity_exponent", entity_exponent)
    relation_exponent = _exponent("relation_exponent", relation_exponent)
    if not isinstance(table, RankTable):
        raise TypeError(f"table must be a RankTable of rank_triples, got {type(table).__name__}")
    tasks = as_triples(triples, "triples").cpu()
    if not known:
        raise ValueError("known is empty: pass the triples that popularity is counted in")
    facts = unique_rows(torch.cat([as_triples(part, f"known[{i}]").cpu() for i, part in enumerate(known)]))[0]
    arrays = table.to_numpy()
    index, code = (as_ids(arrays.get(name, [-1]), name) for name in ("sample_id", "side"))
    head, tail = (code == SIDE_CODES[name] for name in ("head", "tail"))
    if len(table) and not ((index >= 0) & (index < len(tasks)) & (head | tail)).all():
        raise ValueError(
            f"table must have the side head or tail and the index of one of the {len(tasks)} triples as sample id in "
            "every row, as rank_triples gives it"
        )
    size = 1 + max(int(part.max()) if len(part) else 0 for part in (tasks, facts))
    entity = torch.bincount(facts[:, [0, 2]].flatten(), minlength=size).clamp(min=1).double()
    relation = torch.bincount(facts[:, 1], minlength=size).clamp(min=1).double()
    asked = tasks[index]
    answer = torch.where(head, asked[:, 0], asked[:, 2])
    weight = entity[answer] ** -entity_exponent * relation[asked[:, 1]] ** -relation_exponent
    weighed = RankTable.from_numpy({**arrays, "weight": arrays.get("weight", 1.0) * weight.numpy()})
    return RankTable(weighed.rows.to(table.rows.device))


def _exponent(name: str, exponent: float) -> float:
    number = one_number(exponent)
    if number is None or not abs(number) < float("inf"):
        raise ValueError(f"{name} must be a finite number, got {exponent!r}")
    return number
