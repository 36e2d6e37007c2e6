"""What PyKEEN has already: finished evaluations as RankTable, triples of its data sets as KnownTriples."""

from __future__ import annotations  # the reference is built without PyKEEN

import numpy as np
from pykeen.datasets.base import Dataset
from pykeen.datasets.inductive import InductiveDataset
from pykeen.evaluation import RankBasedEvaluator, SampledRankBasedEvaluator
from pykeen.triples import CoreTriplesFactory

from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.protocols.known_triples import KnownTriples, as_triples
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.table.columns import SIDE_CODES
from torchrankmetrics.theory.candidates import IntArray

Source = CoreTriplesFactory | Dataset | InductiveDataset
Known = KnownTriples | Source | list[Source] | tuple[Source, ...]
"""What is filtered: ``KnownTriples``, or triples factories and data sets of PyKEEN, one or several."""


def table_of_ranks(evaluator: RankBasedEvaluator, relation: IntArray | None) -> RankTable:
    """Ranks that an evaluator of PyKEEN holds, sides by their codes; relation (n,) int64 becomes the group, or None."""
    if not evaluator.num_candidates:
        raise ValueError("evaluator holds no ranks: build it with clear_on_finalize=False, and evaluate")
    tables = []
    for side, parts in sorted(evaluator.num_candidates.items(), key=lambda item: SIDE_CODES[item[0]]):
        numbers = np.concatenate(parts)
        if relation is not None and len(relation) != len(numbers):
            raise ValueError(f"triples must be the {len(numbers)} that were evaluated, got {len(relation)}")
        tables.append(
            RankTable.from_numpy(
                {
                    "optimistic": np.concatenate(evaluator.ranks[side, "optimistic"]),
                    "pessimistic": np.concatenate(evaluator.ranks[side, "pessimistic"]),
                    "num_candidates": numbers,
                    "side": SIDE_CODES[side],
                    "sample_id": np.arange(len(numbers)),
                    **({} if relation is None else {"group": relation}),
                    "sampled": np.full(len(numbers), isinstance(evaluator, SampledRankBasedEvaluator)),
                }
            )
        )
    return RankTable.concatenate(tables)


def relation_of(triples: Integers | None) -> IntArray | None:
    """Relation of each triple, int64 (n,); None of None."""
    return None if triples is None else as_triples(triples, "triples")[:, 1].cpu().numpy()


def known_triples(*sources: Source) -> KnownTriples:
    """``KnownTriples`` of triples factories, or of a data set with all its splits.

    For validation ``known_triples(dataset.training, dataset.validation)``, for the test ``known_triples(dataset)``. Of
    an inductive data set: inference, validation and test, and training where it numbers entities and relations alike.

    Raises:
        TypeError: if a source is neither.
        ValueError: if there is none, or they number their entities or relations differently.
    """
    factories: list[CoreTriplesFactory] = []
    for source in sources:
        if isinstance(source, Dataset):
            factories += source.factory_dict.values()
        elif isinstance(source, InductiveDataset):
            factories += _inductive_factories(source)
        elif isinstance(source, CoreTriplesFactory):
            factories.append(source)
        else:
            raise TypeError(f"sources must be triples factories or data sets of PyKEEN, got {type(source).__name__}")
    if not factories:
        raise ValueError("sources is empty: pass a data set, or the triples factories of the splits to filter by")
    for what in ("num_entities", "entity_to_id", "relation_to_id"):
        known = [value for factory in factories if (value := getattr(factory, what, None)) is not None]
        if any(value != known[0] for value in known):
            raise ValueError(f"sources must number their triples alike, but their {what} differ")
    return KnownTriples(*(factory.mapped_triples for factory in factories), num_entities=factories[0].num_entities)


def as_known(known: Known) -> KnownTriples:
    """Take ``KnownTriples`` as they are, or what ``known_triples`` takes, one or several."""
    if isinstance(known, KnownTriples):
        return known
    return known_triples(*known) if isinstance(known, list | tuple) else known_triples(known)


def _inductive_factories(source: InductiveDataset) -> list[CoreTriplesFactory]:
    inference, training = source.inductive_inference, source.transductive_training
    factories = [inference, source.inductive_validation, source.inductive_testing]
    numbers = [[getattr(x, name, None) for name in ("entity_to_id", "relation_to_id")] for x in (inference, training)]
    if None not in numbers[0] and numbers[0] == numbers[1]:
        factories.append(training)
    return [factory for factory in factories if factory is not None]
