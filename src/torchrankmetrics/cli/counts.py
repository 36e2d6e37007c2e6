"""Candidate counts from the options of a command: of a known data set, of a file, or one number."""

import csv
import io
from pathlib import Path
from typing import Literal, get_args

from torchrankmetrics.datasets import candidate_counts, dataset_facts
from torchrankmetrics.datasets.facts import Entities, Split
from torchrankmetrics.datasets.triple_files import read_text
from torchrankmetrics.sides import ENTITY_SIDES, EntitySide
from torchrankmetrics.theory.candidates import CandidateCounts

Side = Literal["both", EntitySide]
SIDES: tuple[Side, ...] = get_args(Side)
HISTOGRAM = ("split", "entities", "side", "num_candidates", "count")
"""Columns of the CSV that ``candidates --histogram`` writes and ``adjust --counts`` reads."""


def counts_of_dataset(dataset: str, split: Split, side: Side, entities: Entities) -> tuple[CandidateCounts, str]:
    """Counts of a data set, and what they are in words."""
    counts = candidate_counts(dataset, split, None if side == "both" else side, entities)
    return counts, describe(dataset_facts(dataset).title, split, side, entities, counts)


def counts_of_file(path: Path, split: str, side: str, entities: str) -> tuple[CandidateCounts, str]:
    """Counts of a histogram in a CSV file, and what they are in words.

    Raises:
        OSError: if there is no such file to open.
        ValueError: if it is empty or ragged, or has no such tasks.
    """
    expected = ",".join(HISTOGRAM)
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, f"expected {expected}"))))
    except csv.Error as error:
        raise ValueError(f"{path} is no CSV with the columns {expected}: {error}") from error
    if not lines or tuple(lines[0]) != HISTOGRAM:
        got = ",".join(lines[0]) if lines else "an empty file"
        raise ValueError(
            f"{path} must start with the columns {expected} (candidates --histogram -f csv); got {got[:80]}"
        )
    numbers, counts = [], []
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(HISTOGRAM) or not all(map(_is_count, line[3:])):
            raise ValueError(
                f"{path} line {number}: expected {expected}, the last two integers; got {','.join(line)[:60]}"
            )
        if line[0] == split and line[1] == entities and line[2] in (ENTITY_SIDES if side == "both" else (side,)):
            numbers.append(int(line[3]))
            counts.append(int(line[4]))
    if not numbers:
        raise ValueError(f"{path} has no tasks of split {split!r}, side {side!r}, entities {entities!r}")
    found = CandidateCounts.of(numbers, count=counts)
    return found, describe(str(path), split, side, entities, found)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 19  # int64 holds all of 18 digits


def describe(title: str, split: str, side: str, entities: str, counts: CandidateCounts) -> str:
    """Say which tasks the counts are of."""
    sides = "both sides" if side == "both" else f"{side} side"
    kind = "all entities" if entities == "all" else "entities of train only"
    low, high = counts.num_candidates[0], counts.num_candidates[-1]
    return f"{title}: {split} split, {sides}, {kind}: {counts.num_tasks} tasks among {low} to {high} candidates"
