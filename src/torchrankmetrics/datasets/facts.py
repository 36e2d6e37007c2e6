"""Facts of each dataset: sizes, provenance, histograms of filtered candidate counts."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

import numpy as np

from torchrankmetrics.definitions.sample import CandidateCounts, IntArray
from torchrankmetrics.validation import ENTITY_SIDES, EntitySide, check_choice, shorten

Split = Literal["train", "valid", "test"]
Entities = Literal["all", "train"]
SPLITS: tuple[Split, ...] = get_args(Split)
ENTITIES: tuple[Entities, ...] = get_args(Entities)
_FOLDER = files("torchrankmetrics.datasets") / "data"


@dataclass(frozen=True, eq=False)
class DatasetFacts:
    """Sizes, provenance and candidate counts of a dataset.

    Attributes:
        name (str): the name of files, and of options of the command line.
        title (str): as papers print it, with the graph if there are several.
        synonyms (tuple): other names.
        protocol (str): targets, candidates and filter, in a sentence.
        num_entities (mapping): by convention, "all" or "train" (entities of train); of an alignment
            the pairs.
        num_relations (int): number of relations; of an alignment 1.
        num_triples (mapping): by split, of those it has; of an alignment the pairs.
        checksum (mapping): SHA-256 of the sorted label lines by split
            (``benchmarks/make_datasets.py``).
        source (str): origin of the triples.
        license (str): of the triples.
        known (mapping): the splits that are filtered out, by split: itself and those before it.
        histograms (mapping): (2, n) integers by (split, entities, side): ascending num_candidates,
            and their counts.

    >>> from torchrankmetrics.datasets import dataset_facts
    >>> nations = dataset_facts("nations")
    >>> nations.num_entities["all"], nations.num_triples["test"]
    (14, 201)
    """

    name: str
    title: str
    synonyms: tuple[str, ...]
    protocol: str
    num_entities: Mapping[str, int]
    num_relations: int
    num_triples: Mapping[str, int]
    checksum: Mapping[str, str]
    source: str
    license: str
    known: Mapping[str, tuple[str, ...]]
    histograms: Mapping[tuple[str, str, str], IntArray]


def candidate_counts(
    dataset: str, split: Split = "test", side: EntitySide | None = None, entities: Entities = "all"
) -> CandidateCounts:
    """Filtered candidate counts N_i of a benchmark, for ``adjust`` and ``PrecomputedExpectation``.

    Filtered out are the known triples of the split and of those before it; of an alignment nothing.
    The true entity counts as a candidate.

    Args:
        dataset (str): a name, such as "fb15k237" or "FB15k-237", from ``dataset_names``.
        split (str, default "test"): "train", "valid" or "test"; not every dataset has all three.
        side (str, default None): "head", "tail", or None: the tasks of both.
        entities (str, default "all"): "all", or "train" as in PyKEEN: only entities of train are
            candidates, and triples with another entity or relation are dropped.

    Returns:
        Distinct counts N_i with the number of tasks of each.

    Raises:
        ValueError: for an unknown name or option, or a split that the dataset lacks.

    >>> from torchrankmetrics.datasets import candidate_counts
    >>> counts = candidate_counts("FB15k-237")
    >>> counts.num_tasks, len(counts.num_candidates)
    (40932, 319)
    """
    facts = dataset_facts(dataset)
    check_choice("split", split, SPLITS)
    check_choice("side", side, (None, *ENTITY_SIDES))
    check_choice("entities", entities, ENTITIES)
    if split not in facts.num_triples:
        raise ValueError(
            f"split {shorten(split)} is none of {facts.name}, which has "
            f"{', '.join(facts.num_triples)}"
        )
    sides = ENTITY_SIDES if side is None else (side,)
    numbers, counts = np.hstack([facts.histograms[split, entities, one] for one in sides])
    return CandidateCounts.of(numbers, count=counts)


def dataset_names() -> tuple[str, ...]:
    """Names of the datasets whose candidate counts are known, in alphabetical order.

    Returns:
        Names for ``candidate_counts``, ``adjust`` and ``dataset_facts``.

    >>> from torchrankmetrics.datasets import dataset_names
    >>> "fb15k237" in dataset_names()
    True
    """
    return tuple(
        sorted(
            path.name.removesuffix(".json")
            for path in _FOLDER.iterdir()
            if path.name.endswith(".json")
        )
    )


def dataset_facts(dataset: str) -> DatasetFacts:
    """Facts of a dataset; case, "-", "_" and spaces of its name do not matter.

    Args:
        dataset (str): a name from ``dataset_names``, or a synonym.

    Returns:
        Sizes, provenance and candidate counts.

    Raises:
        TypeError, ValueError: if the name is not a string, or unknown.

    >>> from torchrankmetrics.datasets import dataset_facts
    >>> dataset_facts("WN18RR").num_entities
    {'all': 40943, 'train': 40559}
    """
    if not isinstance(dataset, str):
        raise TypeError(f"dataset must be a str such as 'fb15k237', got {type(dataset).__name__}")
    word = _word(dataset)
    by_word = _names_by_word()
    if word not in by_word:  # only then are all files read
        by_word = by_word | {
            _word(other): name for name in by_word.values() for other in _load(name).synonyms
        }
    if word not in by_word:
        near = difflib.get_close_matches(word, by_word, 1, cutoff=0.85)
        nearest = f"did you mean {by_word[near[0]]!r}? " if near else ""
        known = (
            f"dataset_names() lists {len(dataset_names())} datasets, "
            "`KnownTriples.num_candidates` counts others"
        )
        raise ValueError(
            f"unknown dataset {shorten(dataset)}: its candidate counts are not shipped; "
            f"{nearest}{known}"
        )
    return _load(by_word[word])


@cache
def _names_by_word() -> dict[str, str]:
    return {_word(name): name for name in dataset_names()}


@cache
def _load(name: str) -> DatasetFacts:
    content = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    known = {}
    histograms = {}
    for one in content.pop("histograms"):
        known[one["split"]] = tuple(one["known"])
        histograms[one["split"], one["entities"], one["side"]] = np.array(
            [one["num_candidates"], one["count"]]
        )
    for split, _, side in tuple(histograms):  # written once where both conventions agree
        histograms.setdefault((split, "train", side), histograms[split, "all", side])
    content |= {
        "name": name,
        "synonyms": tuple(content["synonyms"]),
        "known": known,
        "histograms": histograms,
    }
    return DatasetFacts(**content)


def _word(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
