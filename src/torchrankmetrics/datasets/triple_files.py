"""Triples in text files: one "head TAB relation TAB tail" a line, ids or labels."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchrankmetrics.definitions.candidates import IntArray
from torchrankmetrics.validation import shorten

Triple = tuple[str, str, str]


class Graph(NamedTuple):
    """Splits as integer triples (n, 3), ids in the order of the sorted labels, with the number of entities."""

    splits: Mapping[str, IntArray]
    entities: tuple[str, ...]
    relations: tuple[str, ...]


def read_text(path: str | os.PathLike[str], expected: str) -> str:
    """Read a UTF-8 text file without its byte order mark; the ValueError for others names the expected content."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fspath(path)} is not UTF-8 text: {expected}") from error


def read_triples(path: str | os.PathLike[str]) -> list[Triple]:
    """Read the triples of a file as text; the ValueError for a line without three columns names the line."""
    name, triples = os.fspath(path), []
    text = read_text(path, "a file of triples has head, relation, tail in a line")
    if not text:
        raise ValueError(f"{name} is empty: expected a triple (head, relation, tail) in every line")
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):  # labels may contain other line breaks
        columns = line.split("\t")
        if len(columns) != 3 or not all(map(str.strip, columns)):
            got = f"{len(columns)} column{'s' * (len(columns) != 1)}: {shorten(line[:60])}"
            raise ValueError(f"{name} line {number}: expected head, relation, tail separated by tabs, got {got}")
        triples.append((columns[0], columns[1], columns[2]))
    return triples


def number_triples(splits: Mapping[str, list[Triple]]) -> Graph:
    """Number entities and relations by their sorted labels, over all splits."""
    every = [triple for triples in splits.values() for triple in triples]
    entity = {label: i for i, label in enumerate(sorted({label for h, _, t in every for label in (h, t)}))}
    relation = {label: i for i, label in enumerate(sorted({r for _, r, _ in every}))}
    ids = {split: [(entity[h], relation[r], entity[t]) for h, r, t in triples] for split, triples in splits.items()}
    numbers = {split: np.array(triples, np.int64).reshape(-1, 3) for split, triples in ids.items()}
    return Graph(numbers, tuple(entity), tuple(relation))
