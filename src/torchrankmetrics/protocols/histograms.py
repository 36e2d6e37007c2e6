"""Histograms of filtered candidate counts, from the triples of a graph."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from torchrankmetrics.datasets.facts import CandidateHistogram, Entities
from torchrankmetrics.protocols.known_triples import KnownTriples
from torchrankmetrics.sides import EntitySide
from torchrankmetrics.theory.candidates import IntArray


def candidate_histogram(
    splits: Mapping[str, IntArray],
    tasks: str,
    known: Sequence[str],
    side: EntitySide,
    *,
    entities: Entities = "all",
    num_entities: int | None = None,
) -> CandidateHistogram:
    """Count how many tasks of a split have how many candidates: (num_candidates, count), ascending.

    Args:
        splits: (n, 3) integers [head, relation, tail] by name.
        tasks: the split that is ranked.
        known: the splits whose triples are filtered out.
        side: "head" or "tail", the side that is predicted.
        entities: "all", or "train": see ``candidate_counts``.
        num_entities: number of entities; None: one more than the largest id of all splits.

    Raises:
        ValueError, IndexError: as ``KnownTriples``.

    >>> train, test = np.array([[0, 0, 1], [0, 0, 2]]), np.array([[0, 0, 3]])
    >>> candidate_histogram({"train": train, "test": test}, "test", ["train", "test"], "tail")
    (array([2]), array([1]))
    """
    if num_entities is None:
        num_entities = 1 + max(
            (int(triples[:, [0, 2]].max()) for triples in splits.values() if len(triples)), default=0
        )
    index = KnownTriples(*(torch.from_numpy(splits[name]) for name in known), num_entities=num_entities)
    triples, candidates = splits[tasks], None
    if entities == "train":
        train = splits["train"]
        ids = np.unique(train[:, [0, 2]])
        triples = triples[np.isin(triples[:, [0, 2]], ids).all(1) & np.isin(triples[:, 1], train[:, 1])]
        candidates = torch.from_numpy(ids)
    counts = index.num_candidates(torch.from_numpy(triples), side, candidates=candidates)
    numbers, count = np.unique(counts.numpy(), return_counts=True)
    return numbers, count
