"""What is known of each data set: sizes, provenance, histograms of filtered candidate counts."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal, get_args

import numpy as np

from torchrankmetrics.checks import check_choice
from torchrankmetrics.sides import ENTITY_SIDES, EntitySide
from torchrankmetrics.theory.candidates import CandidateCounts, IntArray

Split = Literal["train", "valid", "test"]
Entities = Literal["all", "train"]
SPLITS: tuple[Split, ...] = get_args(Split)
ENTITIES: tuple[Entities, ...] = get_args(Entities)
# early stopping must not look at test triples, so that each split is filtered by itself and those before it
KNOWN: Mapping[Split, tuple[Split, ...]] = {split: SPLITS[: i + 1] for i, split in enumerate(SPLITS)}

CandidateHistogram = tuple[IntArray, IntArray]


@dataclass(frozen=True, eq=False)
class DatasetFacts:
    """Sizes, provenance and candidate counts of a data set.

    Attributes:
        name: as in file names and on the command line.
        title: as papers print it.
        num_entities: by convention of which entities exist, "all" or "train" (only those that occur in train).
        num_relations: number of relations.
        num_triples: by split.
        checksum: SHA-256 of the triples as label lines, sorted, by split (see ``benchmarks/make_datasets.py``).
        source: where the triples were taken from.
        licence: of the triples.
        histograms: (num_candidates, count) by (split, entities, side), each ascending.
    """

    name: str
    title: str
    num_entities: Mapping[str, int]
    num_relations: int
    num_triples: Mapping[str, int]
    checksum: Mapping[str, str]
    source: str
    licence: str
    histograms: Mapping[tuple[str, str, str], CandidateHistogram]


def candidate_counts(
    dataset: str, split: Split = "test", side: EntitySide | None = None, entities: Entities = "all"
) -> CandidateCounts:
    """Filtered candidate counts N_i of a benchmark graph: what ``adjust`` and ``PrecomputedExpectation`` need of it.

    Filtered out are the known triples of the split and of those before it: train + valid + test for "test", train +
    valid for "valid", train for "train". The true entity counts as a candidate.

    Args:
        dataset: a name, such as "fb15k237" or "FB15k-237"; see ``dataset_names``.
        split: "train", "valid" or "test", the tasks.
        side: "head", "tail", or None: the tasks of both.
        entities: "all", or "train": only entities that occur in train are candidates, and triples with another entity
            or relation are dropped, as PyKEEN does when it reads the files.

    Raises:
        ValueError: for an unknown name (with the nearest) or option.

    >>> counts = candidate_counts("FB15k-237")
    >>> counts.num_tasks, counts.num_candidates.min(), counts.num_candidates.max(), len(counts.num_candidates)
    (40932, np.int64(10178), np.int64(14541), 319)
    """
    facts = dataset_facts(dataset)
    check_choice("split", split, SPLITS)
    check_choice("side", side, (None, *ENTITY_SIDES))
    check_choice("entities", entities, ENTITIES)
    wanted = ENTITY_SIDES if side is None else (side,)
    parts = [facts.histograms[split, entities, one] for one in wanted]
    numbers, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    return CandidateCounts.of(numbers, count=counts)


def dataset_names() -> tuple[str, ...]:
    """Names of the data sets whose candidate counts are known, in alphabetical order."""
    found = (path.name for path in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))


def dataset_facts(dataset: str) -> DatasetFacts:
    """Everything that is known of a data set; case, "-", "_" and spaces of its name do not matter.

    Raises:
        TypeError: if the name is not a string.
        ValueError: if it is unknown; the message names the nearest and all that are known.

    >>> dataset_facts("WN18RR").num_entities
    {'all': 40943, 'train': 40559}
    """
    if not isinstance(dataset, str):
        raise TypeError(f"dataset must be a str such as 'fb15k237', got {type(dataset).__name__}")
    by_word = {_word(name): name for name in dataset_names()}
    if _word(dataset) not in by_word:
        close = [by_word[word] for word in difflib.get_close_matches(_word(dataset), by_word, n=2, cutoff=0.5)]
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        raise ValueError(f"unknown dataset {dataset!r}{hint} Known are {', '.join(sorted(by_word.values()))}")
    return _load(by_word[_word(dataset)])


@cache
def _load(name: str) -> DatasetFacts:
    content = json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8"))
    histograms = {
        (entry["split"], entry["entities"], entry["side"]): (
            np.array(entry["num_candidates"], dtype=np.int64),
            np.array(entry["count"], dtype=np.int64),
        )
        for entry in content.pop("histograms")
    }
    return DatasetFacts(name=name, histograms=histograms, **content)


def _folder() -> Traversable:
    return files("torchrankmetrics.datasets") / "data"


def _word(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())
