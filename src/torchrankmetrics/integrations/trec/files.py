"""Lines of qrels and runs: TREC, a header with names of columns, JSON; compressed or not."""

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TextIO

from torchrankmetrics.integrations.trec.columns import Kind, RunColumns, find_columns, is_header
from torchrankmetrics.parsing import parse_json
from torchrankmetrics.validation import shorten

# number of fields of a line of TREC, and its columns; of a run the score decides, not the rank
_TREC = {"qrels": (4, RunColumns(0, 2, 3, 1)), "run": (6, RunColumns(0, 2, 4, 1))}


ALL_DOCUMENTS = object()


class RunEntry(NamedTuple):
    """One document of a query, or all documents of a query in JSON."""

    query: Any
    document: Any  # ALL_DOCUMENTS: ``value`` contains all documents of the query
    value: Any
    place: int  # number of the line or record
    sign: int = 1  # -1: the value is a rank, of which 1 is best


def entries_of_file(path: str | os.PathLike[str], kind: Kind) -> Iterator[RunEntry]:
    """Yield the entries of a file, whose content decides how it is read."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as raw:
            compressed = raw.peek(2)[:2] == b"\x1f\x8b"
            file = gzip.GzipFile(fileobj=raw) if compressed else raw
            with io.TextIOWrapper(file, encoding="utf-8-sig") as text:
                yield from _of_lines(text, kind, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is a damaged gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error}") from error


def _of_lines(text: TextIO, kind: Kind, name: str) -> Iterator[RunEntry]:
    lines = ((number, line) for number, line in enumerate(text, 1) if line.strip())
    numbered: Iterator[tuple[int, str]] = lines
    number, first = next(numbered, (0, ""))
    if first.lstrip()[:1] in ("{", "["):
        yield from _of_json(first, text, number, name)
        return
    separator = None
    width, columns = _TREC[kind]
    if _has_header(first, width):
        separator = "\t" if "\t" in first else None
        names = first.rstrip("\r\n").split(separator)
        width = len(names)
        columns = find_columns(names, kind, f"{name}, line {number}")
    elif first:
        numbered = chain([(number, first)], numbered)
    for number, line in numbered:
        fields = line.rstrip("\r\n").split(separator)
        if len(fields) != width:
            raise ValueError(
                f"{name}, line {number}: {len(fields)} fields instead of {width}"
                f"{_hint(fields, kind)}"
            )
        yield _entry(fields, columns, number)


def _has_header(line: str, width: int) -> bool:
    """Whether a first line has names of columns.

    It has known names, or it has no number and is not a line of TREC.
    """
    fields = line.split()
    if is_header(fields):
        return True
    has_number = any(field.lstrip("+-.")[:1].isdigit() for field in fields[1:])
    return len(fields) not in (0, width) and not has_number


def _hint(fields: list[str], kind: Kind) -> str:
    other: Kind = "run" if kind == "qrels" else "qrels"
    if len(fields) == _TREC[other][0]:
        return "; are qrels and run swapped?"
    if len(fields) != 3:
        return ""
    return "; a file of 3 columns begins with a header, such as: query-id doc-id score"


def _entry(fields: list[str], columns: RunColumns, number: int) -> RunEntry:
    value: Any = 1 if columns.value is None else fields[columns.value]
    return RunEntry(fields[columns.query], fields[columns.document], value, number, columns.sign)


def _of_json(line: str, text: TextIO, first: int, name: str) -> Iterator[RunEntry]:
    """Yield the queries of one object, or of one in each line."""
    parts: Iterable[str] = (one.rstrip("\n") for one in chain([line], text))
    try:
        parse_json(line)
    except json.JSONDecodeError:
        parts = [line + text.read()]
    except ValueError:  # described below, with its place
        pass
    for number, part in enumerate(parts, first):
        try:
            queries = parse_json(part) if part.strip() else {}
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}, line {number + error.lineno - 1}: {error.msg}") from None
        except ValueError as error:
            raise ValueError(f"{name}, from line {number} on: {error}") from None
        inner = queries.values() if isinstance(queries, dict) else [None]
        if not all(isinstance(documents, dict | list) for documents in inner):
            raise ValueError(
                f"{name}, line {number}: expected {{query: {{document: number}}}}, got "
                f"{shorten(part)}"
            )
        for query, documents in queries.items():
            yield RunEntry(query, ALL_DOCUMENTS, documents, number)
