"""Qrels and runs as dicts of dicts, read from files of TREC, BEIR and JSON or from objects of other libraries."""

import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TextIO

from torchrankmetrics.validation import shorten

Qrels = Mapping[str, Mapping[str, int]]
"""Query -> document -> relevance."""
Run = Mapping[str, Mapping[str, float]]
"""Query -> document -> score, higher is better."""
Source = str | os.PathLike[str] | Mapping[str, Mapping[str, Any]] | Iterable[Any]
"""A path, a dict of dicts, an object with ``to_dict``, a data frame, or records of single documents."""

# names of fields in ir_measures, PyTerrier, ranx and the datasets of BEIR and MTEB
_QUERY = ("query_id", "qid", "q_id", "query-id")
_DOCUMENT = ("doc_id", "docno", "corpus-id")


class _Format(NamedTuple):
    name: str
    width: int  # fields of a line of TREC
    document: int  # its column
    value: int
    names: tuple[str, ...]  # of the value in records
    read: Callable[[Any], float]


def read_qrels(source: Source) -> dict[str, dict[str, int]]:
    """Read the relevance of documents: query -> document -> label.

    Files may be compressed with gzip; the content decides how they are read:

    - TREC: lines of "query iteration document relevance";
    - BEIR: a header, then lines of "query document relevance";
    - JSON {query: {document: relevance}}, or such an object in each line.

    Args:
        source: a path; or a dict of dicts, an object with ``to_dict`` (ranx), a data frame (PyTerrier) or records
            (ir_measures, datasets of MTEB) with a query, a document and a relevance.

    Raises:
        OSError: if a file cannot be opened.
        TypeError: for other objects.
        ValueError: if a file has another content; the message names line and field.
    """
    return _read(source, _QRELS)


def read_run(source: Source) -> dict[str, dict[str, float]]:
    """Read the scores of documents: query -> document -> score.

    Args:
        source: as for ``read_qrels``, with scores instead of relevance; lines of TREC are "query Q0 document rank score
            tag". The score decides, not the rank, as in trec_eval.

    Raises:
        OSError, TypeError, ValueError: as ``read_qrels``.
    """
    return _read(source, _RUN)


def _label(value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError
    return int(number)


def _score(value: Any) -> float:
    if math.isnan(number := float(value)):
        raise ValueError
    return number


_QRELS = _Format("qrels", 4, 2, 3, ("relevance", "label", "score"), _label)
_RUN = _Format("run", 6, 2, 4, ("score",), _score)


def _read(source: Any, form: _Format) -> dict[str, dict[str, Any]]:
    if isinstance(source, str | os.PathLike):
        return _of_file(source, form)
    given = source
    if hasattr(given, "to_dict"):
        given = given.to_dict("records") if hasattr(given, "columns") else given.to_dict()
    if isinstance(given, Mapping) and all(isinstance(inner, Mapping) for inner in given.values()):
        return given  # type: ignore[return-value]
    try:
        if isinstance(given, Mapping):
            raise LookupError
        triples = [tuple(_field(one, names) for names in (_QUERY, _DOCUMENT, form.names)) for one in given]
    except (TypeError, LookupError):
        raise TypeError(
            f"{form.name} must be a dict of dicts, query -> document -> number, a path, or records with the fields "
            f"query_id, doc_id and {form.names[0]}; got {type(source).__name__}"
        ) from None
    found: dict[str, dict[str, Any]] = {}
    for number, (query, document, value) in enumerate(triples):
        _add(found, form, query, document, value, f"record {number}")
    return found


def _field(record: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if isinstance(record, Mapping) and name in record:
            return record[name]
        if hasattr(record, name):
            return getattr(record, name)
    raise LookupError


def _add(found: dict[str, dict[str, Any]], form: _Format, query: Any, document: Any, value: Any, where: str) -> None:
    try:
        number = form.read(value)
    except (TypeError, ValueError):
        expected = "an integer" if form is _QRELS else "a number"
        raise ValueError(f"{where}: {form.names[0]} must be {expected}, got {shorten(value)}") from None
    documents = found.setdefault(str(query), {})
    if str(document) in documents:
        raise ValueError(f"{where}: document {shorten(document)} of query {shorten(query)} is there already")
    documents[str(document)] = number


def _of_file(path: str | os.PathLike[str], form: _Format) -> dict[str, dict[str, Any]]:
    name, found = os.fspath(path), dict[str, dict[str, Any]]()
    try:
        with open(path, "rb") as raw:
            compressed = raw.peek(2)[:2] == b"\x1f\x8b"
            text = io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if compressed else raw, encoding="utf-8-sig")
            for query, document, value, line in _entries(text, form, name):
                _add(found, form, query, document, value, f"{name}, line {line}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is a damaged gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error}") from error
    if not found:
        raise ValueError(f"{name} is empty: {form.name} have a line for each document, or are JSON")
    return found


def _entries(text: TextIO, form: _Format, name: str) -> Iterator[tuple[Any, Any, Any, int]]:
    """Yield query, document, value and number of the line."""
    separator, width, places = None, 0, (0, form.document, form.value)
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        if not width and line.lstrip()[0] in "{[":
            yield from _json_entries(line + text.read(), number, name)
            return
        if not width and _is_header(line):
            separator, width, places = ("\t" if "\t" in line else None), 3, (0, 1, 2)
            continue
        width = width or form.width
        fields = line.rstrip("\r\n").split(separator)
        if len(fields) != width:
            hint = "; a file of 3 columns begins with a header" if len(fields) == 3 else ""
            raise ValueError(f"{name}, line {number}: {len(fields)} fields instead of {width}{hint}")
        query, document, value = (fields[place] for place in places)
        yield query, document, value, number


def _is_header(line: str) -> bool:
    """Whether a line is the header of three columns."""
    fields = line.split()
    try:
        return len(fields) == 3 and math.isnan(float(fields[2]))
    except ValueError:
        return True


def _json_entries(content: str, first: int, name: str) -> Iterator[tuple[Any, Any, Any, int]]:
    """Yield as ``_entries`` from one JSON object, or from one in each line."""
    line, _, rest = content.partition("\n")
    try:
        json.loads(line)
        parts = list(enumerate([line, *rest.split("\n")], first))
    except json.JSONDecodeError:
        parts = [(first, content)]
    for number, part in parts:
        if not part.strip():
            continue
        try:
            queries = json.loads(part)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}, line {number + error.lineno - 1}: {error.msg}") from None
        if not isinstance(queries, dict) or not all(isinstance(inner, dict) for inner in queries.values()):
            raise ValueError(f"{name}, line {number}: expected {{query: {{document: number}}}}, got {shorten(part)}")
        for query, documents in queries.items():
            for document, value in documents.items():
                yield query, document, value, number
