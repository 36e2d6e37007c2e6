"""`read_qrels` and `read_run`: every form becomes query -> document -> number."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from torchrankmetrics.integrations.trec.columns import DOCUMENT, VALUE, Kind, find_columns
from torchrankmetrics.integrations.trec.files import ALL_DOCUMENTS, RunEntry, entries_of_file
from torchrankmetrics.parsing import parse_number
from torchrankmetrics.validation import shorten

Source = str | os.PathLike[str] | Mapping[Any, Any] | Iterable[Any]
"""A path, a dict of the documents of queries, an object with ``to_dict``, a frame, or records."""
Documents = dict[str, dict[str, float]]
"""Query -> document -> label or score."""
_MISSING = ("None", "nan", "<NA>", "NaT")


def read_qrels(source: Source) -> Documents:
    """Read the relevance of documents: query -> document -> label.

    Ids are stripped text: 10 and "10" are the same document. Files may be compressed with gzip; the
    content decides how they are read:

    - TREC: lines of "query iteration document relevance";
    - lines under a header with the names of columns, such as "query-id corpus-id score" (BEIR);
    - JSON {query: {document: relevance}}, or such an object in each line.

    Args:
        source (path, dict, frame or records): a path; a frame of pandas, Polars or Arrow; or
            records (ir_measures, datasets of MTEB). Or a dict of query -> documents, or an object
            with ``to_dict`` (ranx): documents are a dict of labels, or a list or set of relevant
            ids. Columns of frames and records are a query (query_id, qid, user_id, user), a
            document (doc_id, docno, corpus_id, item_id, item) and a label (relevance, label,
            rating, score). Without a label all rows are relevant. Labels are finite numbers; a
            label of 0 or below is not relevant.

    Returns:
        Labels by query and document.

    Raises:
        OSError, TypeError, ValueError: if a file cannot be opened, for other objects, and for
            another content.

    >>> from torchrankmetrics.integrations.trec import read_qrels
    >>> read_qrels({"q1": ["d1", "d2"], "q2": {7: 0.5}})
    {'q1': {'d1': 1.0, 'd2': 1.0}, 'q2': {'7': 0.5}}
    """
    return _read(source, "qrels")


def read_run(source: Source) -> Documents:
    """Read the scores of documents: query -> document -> score; errors as ``read_qrels``.

    Args:
        source (path, dict, frame or records): in every form of ``read_qrels``, with scores instead
            of labels: a column score, prediction or rating, or rank, of which 1 is best. In a dict
            the documents of a query are a dict of scores, a list of ids, best first, or a list of
            (id, score). Of an id that is repeated in a list the first place counts, or the highest
            score. Lines of TREC are "query Q0 document rank score tag"; the score decides, not the
            rank, as in trec_eval.

    Returns:
        Scores by query and document, higher is better; of a list of ids minus the place.

    >>> from torchrankmetrics.integrations.trec import read_run
    >>> read_run({"q1": ["d3", "d1", "d3"], "q2": [("d2", 0.5)]})
    {'q1': {'d3': -1.0, 'd1': -2.0}, 'q2': {'d2': 0.5}}
    """
    return _read(source, "run")


def as_id(value: Any, where: str) -> str:
    """Return the id of a query or a document as it is compared: text without spaces at the ends.

    ValueError for a missing value of a frame (None, NaN, NA, NaT); ``where`` begins the message.
    """
    text = str(value).strip()
    if text in _MISSING and not isinstance(value, str):
        raise ValueError(
            f"{where}: an id is missing ({text}); drop such rows before, as frame.dropna() does"
        )
    return text


def _read(given: Any, kind: Kind) -> Documents:
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        found = _collect(entries_of_file(given, kind), kind, f"{name}, line")
        if not found:
            raise ValueError(f"{name} is empty: write a line for each document, or JSON")
        return found
    names = getattr(given, "column_names", getattr(given, "columns", None))
    if names is not None:
        return _collect(_of_frame(given, list(names), kind), kind, f"{kind}, row")
    if hasattr(given, "to_dict"):
        given = given.to_dict()
    if isinstance(given, Mapping):
        return _of_mapping(given, kind)
    return _collect(_of_records(given, kind), kind, f"{kind}, record")


def _of_mapping(given: Mapping[Any, Any], kind: Kind) -> Documents:
    found: Documents = {}
    for query, inner in given.items():
        name = as_id(query, kind)
        if name in found:
            raise ValueError(f"{kind} has the query {shorten(name)} twice, with different spaces")
        if _is_plain(inner, kind):  # the common case needs no copy
            found[name] = inner
        else:
            found[name] = _documents(inner, kind, f"{kind} of query {shorten(query)}")
    return found


def _is_plain(inner: Any, kind: Kind) -> bool:
    """Whether documents are a dict of ids without spaces at the ends to valid numbers."""
    if not isinstance(inner, dict):
        return False
    ids = list(inner)
    try:
        has_spaces = list(map(str.strip, ids)) != ids
    except TypeError:  # ids of another type
        return False
    numbers = list(inner.values())
    return not has_spaces and set(map(type, numbers)) <= {float, int} and _are_valid(numbers, kind)


def _collect(entries: Iterable[RunEntry], kind: Kind, where: str) -> Documents:
    """Put entries into dicts by query; ``where`` is the text before the place of an entry."""
    found: Documents = {}
    for query, document, value, place, sign in entries:
        here = f"{where} {place}"
        documents = found.setdefault(as_id(query, here), {})
        if document is ALL_DOCUMENTS:
            several = _documents(value, kind, here)
        else:
            several = {as_id(document, here): sign * _number(value, kind, here)}
        for name, number in several.items():
            if name in documents:
                raise ValueError(
                    f"{here}: document {shorten(name)} of query {shorten(query)} is there already"
                )
            documents[name] = number
    return found


def _documents(inner: Any, kind: Kind, where: str) -> dict[str, float]:
    """Read the documents of one query.

    They are a dict, a list of ids or of (id, score), or a set of relevant ids.
    """
    if isinstance(inner, Mapping):
        return _of_dict(inner, kind, where)
    if isinstance(inner, np.ndarray) or hasattr(inner, "tolist"):
        inner = inner.tolist()
    if isinstance(inner, Set) and kind == "run":
        raise TypeError(f"{where} is a set, which has no order; pass a list of ids, best first")
    if not isinstance(inner, Sequence | Set) or isinstance(inner, str):
        numbers = "labels" if kind == "qrels" else "scores"
        raise TypeError(
            f"{where} must be a dict of document -> number, or a list of ids or of (id, number), "
            f"got {type(inner).__name__}; {kind} is a dict of dicts of {numbers}"
        )
    pairs = [_pair(one, kind, where) for one in inner]
    found: dict[str, float] = {}
    for place, (name, number) in enumerate(pairs, 1):
        if number is None:
            number = 1.0 if kind == "qrels" else -float(place)
        found[name] = max(number, found.get(name, -math.inf))
    return found


def _of_dict(inner: Mapping[Any, Any], kind: Kind, where: str) -> dict[str, float]:
    names = [as_id(name, where) for name in inner]
    numbers = [_number(value, kind, where) for value in inner.values()]
    found = dict(zip(names, numbers, strict=True))
    if len(found) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{where} has the document {shorten(repeated)} twice, as another spelling")
    return found


def _pair(one: Any, kind: Kind, where: str) -> tuple[str, float | None]:
    """Read an id, a pair (id, number) or a dict with both, as semantic search returns it."""
    if isinstance(one, Mapping):
        columns = find_columns(["query", *one], kind, where)
        parts = ["", *one.values()]
        one = parts[columns.document], parts[columns.value or 0]
    if isinstance(one, tuple | list):
        if len(one) != 2:
            raise ValueError(f"{where}: expected an id or a pair (id, number), got {shorten(one)}")
        return as_id(one[0], where), _number(one[1], kind, where)
    return as_id(one, where), None


def _are_valid(numbers: list[float], kind: Kind) -> bool:
    """Whether labels are finite, or no score is NaN."""
    try:
        if kind == "qrels":
            return all(map(math.isfinite, numbers))
        return not any(map(math.isnan, numbers))
    except OverflowError:  # an int that no float can hold
        return False


def _number(value: Any, kind: Kind, where: str) -> float:
    number = parse_number(value)
    if not _are_valid([number], kind):
        expected = (
            "relevance must be a finite number" if kind == "qrels" else "score must be a number"
        )
        raise ValueError(f"{where}: {expected}, got {shorten(value)}")
    return number


def _of_frame(table: Any, names: list[Any], kind: Kind) -> Iterator[RunEntry]:
    """Yield the rows of a frame of pandas, Polars or Arrow."""
    columns = find_columns(names, kind, "a frame")
    query, document = (_listed(table[names[i]]) for i in (columns.query, columns.document))
    value = [1] * len(query) if columns.value is None else _listed(table[names[columns.value]])
    for place, row in enumerate(zip(query, document, value, strict=True)):
        yield RunEntry(*row, place, columns.sign)


def _listed(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column.to_list())


def _of_records(records: Any, kind: Kind) -> Iterator[RunEntry]:
    """Yield records: dicts, named tuples or other objects whose attributes are columns."""
    columns = None
    names = list[str]()
    for place, one in enumerate(_iterated(records, kind)):
        if columns is None:
            names = _fields(one, kind)
            columns = find_columns(names, kind, f"{kind}, record {place}")
        values = _as_mapping(one, names)
        value = 1 if columns.value is None else values[names[columns.value]]
        query = values[names[columns.query]]
        document = values[names[columns.document]]
        yield RunEntry(query, document, value, place, columns.sign)


def _as_mapping(record: Any, names: list[str]) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        return record
    return {name: getattr(record, name) for name in names}


def _iterated(records: Any, kind: Kind) -> Iterable[Any]:
    if not isinstance(records, Iterable):
        raise TypeError(_expected(records, kind))
    return records


def _fields(record: Any, kind: Kind) -> list[str]:
    if isinstance(record, Mapping):
        return list(record)
    fields = getattr(record, "_fields", None) or getattr(record, "__dict__", None)
    if fields is None:
        raise TypeError(_expected(record, kind))
    return list(fields)


def _expected(given: Any, kind: Kind) -> str:
    fields = f"query_id, {DOCUMENT[0]} and {VALUE[kind][0]}"
    return (
        f"{kind} must be a dict of query -> documents, a path, a frame or records with the fields "
        f"{fields}; got {type(given).__name__}"
    )
