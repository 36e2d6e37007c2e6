"""Metrics of retrieval runs: rows and values from qrels and a run, as files or objects of other libraries."""

import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.definitions.protocol import EmptyQueries, View
from torchrankmetrics.definitions.sample import FloatArray, IntArray, RankType
from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import Metrics, Selection
from torchrankmetrics.parsing import parse_json, parse_number
from torchrankmetrics.ranking.flags import UNKNOWN
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.columns import Columns, empty_rows
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int, is_int, shorten

Source = str | os.PathLike[str] | Mapping[str, Mapping[str, Any]] | Iterable[Any]
"""A path, a dict of dicts, an object with ``to_dict``, a data frame, or records of single documents."""
NumCandidates = int | Mapping[str, int]  # size of the collection, for all queries or by query
DEFAULT_RUN_METRICS = ("rr_at_10", "ndcg_at_10", "recall_at_100")
_FAR = 1 << 60  # above NEVER: ranks of documents that are in no list


@suggest_keywords
def rank_run(
    qrels: Source, run: Source, *, num_candidates: NumCandidates | None = None
) -> RankTable:
    """Rank the relevant documents of every query in its list, for any metric and for ``compare``.

    Documents that are not judged are not relevant; documents of equal score are tied, where
    trec_eval sorts by name. Documents without a score are tied below the list; without
    ``num_candidates`` they have ranks above 2^60. Queries without a list count, with a warning.

    Args:
        qrels (path, dict or object): query -> document -> label, from 1 on relevant; as for
            ``read_qrels``.
        run (path, dict or object): query -> document -> score, higher is better; as for
            ``read_run``.
        num_candidates (int or dict, default None): size of the collection, also by query; for
            chance-adjusted views.

    Returns:
        A row per relevant document: its label as gain, the place in ``sorted(qrels)`` as query, and
        a sample id that depends on the qrels only.

    Raises:
        OSError, TypeError, ValueError: as ``read_qrels``; for NaN scores, too few candidates, or no
            common query.

    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1, "c": 0}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> rank_run(qrels, run, num_candidates=10).ranks
    Ranks(optimistic=[1, 4, 2], pessimistic=[1, 10, 2], num_candidates=[10, 10, 10])
    """
    return _answers(qrels, run, num_candidates)[0]


def _warn_of_empty_queries(table: RankTable, empty_queries: EmptyQueries) -> None:
    number = len(table) - table.num_tasks
    if number and empty_queries == "zero":
        warn(
            f"{number} queries have no relevant document in qrels and count as 0, as in trec_eval; "
            "empty_queries='skip' leaves them out"
        )


@suggest_keywords
def evaluate_run(
    qrels: Source,
    run: Source,
    metrics: Metrics = DEFAULT_RUN_METRICS,
    *,
    num_candidates: NumCandidates | None = None,
    relevance_threshold: float = 1.0,
    views: View | Sequence[View] = ("base",),
    rank_types: RankType | Sequence[RankType] = ("realistic",),
    empty_queries: EmptyQueries = "zero",
) -> dict[str, float]:
    """Compute metrics of a run.

    Without ``num_candidates`` relevant documents without a score count as never retrieved, as in
    trec_eval: ``ap`` is its map, ``rr`` its recip_rank. With ``num_candidates`` they are among the
    documents below the list, and a value that depends on their order is an error; ``pessimistic_``
    ranks them last, ``optimistic_`` right below the list.

    Args:
        qrels (path, dict or object): as for ``rank_run``.
        run (path, dict or object): as for ``rank_run``.
        metrics (str or several, default rr@10, ndcg@10, recall@100): as for ``RankCollection``.
        num_candidates (int or dict, default None): as for ``rank_run``.
        relevance_threshold (float, default 1.0): smallest label of a relevant document for binary
            metrics: -l.
        views (str or several, default "base"): as for ``RankCollection``.
        rank_types (str or several, default "realistic"): as for ``RankCollection``.
        empty_queries (str, default "zero"): queries of qrels without a relevant document count as
            0, as in trec_eval; or "skip" or "error", as for ``RankCollection``.

    Returns:
        Values by canonical key, means over the queries of qrels.

    Raises:
        OSError, TypeError, ValueError: as ``rank_run``; if a metric depends on the order of
            documents without a score.

    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> evaluate_run(qrels, run, ["recall@3", "adjusted_rr", "pessimistic_ap"], num_candidates=10)
    {'recall_at_3': 0.75, 'adjusted_rr': 0.6088994347320754, 'pessimistic_ap': 0.55}
    """
    measures = Selection(
        views, rank_types, relevance_threshold=relevance_threshold, empty_queries=empty_queries
    ).measures(metrics)
    table, depth, missed = _answers(qrels, run, num_candidates)
    _warn_of_empty_queries(table, empty_queries)
    analysis, lost = Analysis([table.rows]), missed > 0
    values = {key: measure.value(analysis) for key, measure in measures.items()}
    if num_candidates is None or not lost.any():
        return values
    query = Columns(table.rows).query
    checked = {
        key: one for key, one in measures.items() if one.rank_type in ("realistic", "expected")
    }
    unknown: dict[str, Measure] = {}
    for behind in (
        Columns(table.rows).num_candidates - torch.bincount(query, lost)[query].long(),
        depth,
    ):
        rows = table.rows.clone()
        rows[lost, :2] = (behind + missed)[lost, None]  # one by one behind a place
        end = Analysis([rows])
        for key, one in checked.items():
            if not np.isclose(
                values[key], one.value_or_nan(end), rtol=1e-12, atol=1e-12, equal_nan=True
            ):
                unknown[key] = one
        # an expectation over orders that equals the value of the worst order is that of every order
        checked = {
            key: one
            for key, one in checked.items()
            if one.rank_type != "expected" or one.view == "p_value"
        }
    if unknown:
        shallow = int(depth[lost].min())
        worst = replace(next(iter(unknown.values())), rank_type="pessimistic").key
        raise ValueError(
            f"{', '.join(map(repr, unknown))} cannot be computed from these lists: one that lacks "
            f"a relevant document has {shallow} documents. Use a cut-off up to that depth; or "
            f"{worst!r}, which ranks documents that were not retrieved last. Without "
            "num_candidates these contribute nothing"
        )
    return values


def _answers(
    qrels: Source, run: Source, num_candidates: NumCandidates | None
) -> tuple[RankTable, Tensor, Tensor]:
    """Rank all relevant documents; also returns the length of the list of each, and i for the i-th not in its list."""
    judged, lists = read_qrels(qrels), read_run(run)
    for query, labels in judged.items():
        for name, label in labels.items():
            if type(label) is not int and not is_int(label):
                got = f"{shorten(label)} for {shorten(name)} of query {shorten(query)}"
                hint = "write int(label); are qrels and run swapped?"
                raise TypeError(f"qrels must hold integers, got {got}: {hint}")
    relevant = {
        query: sorted(name for name, label in judged[query].items() if label >= 1)
        for query in sorted(judged)
    }
    if relevant and not relevant.keys() & lists.keys():
        one, other = (shorten(next(iter(queries), None)) for queries in (judged, lists))
        raise ValueError(
            f"qrels and run have no query in common: {one} is in qrels, {other} in run"
        )
    empty = [number for number, found in enumerate(relevant.values()) if not found]
    if len(empty) == len(relevant):
        warn(
            f"qrels have no relevant document in any of {len(relevant)} queries: labels of 1 or "
            "more are relevant"
        )
    numbers = np.array(
        [number for number, found in enumerate(relevant.values()) if found], dtype=np.int64
    )
    relevant = {query: found for query, found in relevant.items() if found}
    without = [query for query in relevant if not lists.get(query)]
    _warn("have no list in run and count as queries where nothing was retrieved", without)
    found = [lists.get(query, {}) for query in relevant]
    index = np.repeat(np.arange(len(relevant)), [len(names) for names in relevant.values()])
    depth = np.array([len(scores) for scores in found], dtype=np.int64)
    scores = np.fromiter(
        chain.from_iterable(one.values() for one in found), np.float64, int(depth.sum())
    )
    if (nan := np.isnan(scores)).any():
        query = list(relevant)[int(np.searchsorted(np.cumsum(depth), nan.argmax(), side="right"))]
        raise ValueError(f"run holds a score of query {shorten(query)} that is NaN")
    pairs = zip(relevant.values(), found, strict=True)
    own = np.array(
        [scores.get(name, math.nan) for names, scores in pairs for name in names], dtype=np.float64
    )
    missing = np.isnan(own)
    count = np.cumsum(missing)
    missed = np.where(missing, count - (count - missing)[np.searchsorted(index, index)], 0)
    first, last, N = _FAR + missed, _FAR + missed, None
    if num_candidates is not None:
        num_missed = np.bincount(index, missing, len(relevant)).astype(np.int64)
        N = _num_candidates(num_candidates, list(relevant), depth, num_missed)[index]
        first, last = depth[index] + 1, N
    low, high = _places(scores, depth, own, index)
    low, high = np.where(missing, first, low), np.where(missing, last, high)
    gain = np.array(
        [judged[query][name] for query, names in relevant.items() for name in names],
        dtype=np.float64,
    )
    ranks = Ranks(low, high, N, filtered=False)
    table = RankTable.from_ranks(
        ranks, query=numbers[index], sample_id=np.arange(len(index)), gain=gain
    )
    none = np.zeros(len(empty), dtype=np.int64)
    table = RankTable.concatenate([table, _without_items(empty, num_candidates)])
    depth = np.concatenate([depth[index], none])
    return table, torch.from_numpy(depth), torch.from_numpy(np.concatenate([missed, none]))


def _without_items(queries: list[int], num_candidates: NumCandidates | None) -> RankTable:
    """A row without rank for each number of a query without a relevant document."""
    N = num_candidates if is_int(num_candidates) else UNKNOWN
    if not queries:
        return RankTable(empty_rows())
    zero = [0] * len(queries)
    return RankTable.from_numpy(
        {"optimistic": zero, "num_candidates": N, "query": queries, "empty": True}
    )


def _places(
    scores: FloatArray, depth: IntArray, own: FloatArray, index: IntArray
) -> tuple[IntArray, IntArray]:
    """Find the first and last places of own scores of queries ``index`` in their lists, of lengths ``depth``."""
    ends = np.cumsum(depth)
    ascending = scores.copy()
    for of_query in np.split(ascending, ends[:-1]):
        of_query.sort()
    # complex numbers are ordered by their real part, the query, then by the imaginary one
    key, own_key = np.empty(len(scores), dtype=complex), np.empty(len(own), dtype=complex)
    key.real, key.imag = np.repeat(np.arange(len(depth)), depth), ascending
    own_key.real, own_key.imag = index, own
    return ends[index] - np.searchsorted(key, own_key, "right") + 1, ends[index] - np.searchsorted(
        key, own_key
    )


def _num_candidates(
    given: NumCandidates, queries: list[str], depth: IntArray, num_missed: IntArray
) -> IntArray:
    """Number of candidates of every query, at least the documents in its list and the relevant ones outside."""
    by_query = given if isinstance(given, Mapping) else dict.fromkeys(queries, given)
    if lost := [query for query in queries if query not in by_query]:
        raise ValueError(
            f"num_candidates must be an int or hold all queries of qrels; {shorten(lost[0])} is "
            "missing"
        )
    numbers = np.array(
        [check_int("num_candidates", by_query[query], 1) for query in queries], dtype=np.int64
    )
    if (wrong := depth + num_missed > numbers).any():
        i = int(wrong.argmax())
        there = f"{depth[i]} in its list and {num_missed[i]} relevant documents outside"
        query = shorten(queries[i])
        raise ValueError(
            f"num_candidates must count all documents: query {query} has {there}, got {numbers[i]}"
        )
    return numbers


def _warn(text: str, queries: list[str]) -> None:
    if queries:
        warn(f"{len(queries)} queries {text}; the first is {shorten(queries[0])}")


# names of fields in ir_measures, PyTerrier, ranx and the datasets of BEIR and MTEB
_QUERY = ("query_id", "qid", "q_id", "query-id")
_DOCUMENT = ("doc_id", "docno", "corpus-id")


# fields of a line of TREC, of which the third is the document; column of the value, and its names
# in records
_FORMATS = {"qrels": (4, 3, ("relevance", "label", "score")), "run": (6, 4, ("score",))}
_Entry = tuple[Any, Any, Any, str]  # query, document, value and the place where they are


def read_qrels(source: Source) -> dict[str, dict[str, int]]:
    """Read the relevance of documents: query -> document -> label.

    Files may be compressed with gzip; the content decides how they are read:

    - TREC: lines of "query iteration document relevance";
    - BEIR: a header, then lines of "query document relevance";
    - JSON {query: {document: relevance}}, or such an object in each line.

    Args:
        source: a path; or a dict of dicts, an object with ``to_dict`` (ranx), a data frame
            (PyTerrier) or records (ir_measures, datasets of MTEB) with a query, a document and a
            relevance.

    Raises:
        OSError, TypeError, ValueError: if a file cannot be opened, for other objects, and for
            another content.
    """
    return _read(source, "qrels")


def read_run(source: Source) -> dict[str, dict[str, float]]:
    """Read the scores of documents: query -> document -> score; errors as ``read_qrels``.

    Args:
        source: as for ``read_qrels``, with scores instead of relevance; lines of TREC are "query Q0
            document rank score tag". The score decides, not the rank, as in trec_eval.
    """
    return _read(source, "run")


def _read(given: Any, kind: str) -> dict[str, dict[str, Any]]:
    if hasattr(given, "to_dict"):
        given = given.to_dict("records") if hasattr(given, "columns") else given.to_dict()
    if isinstance(given, Mapping):
        for query, inner in given.items():
            if not isinstance(inner, Mapping):
                got = f"{type(inner).__name__} for query {shorten(query)}"
                raise TypeError(
                    f"{kind} must be a dict of dicts, query -> document -> number; got {got}"
                )
        return given  # type: ignore[return-value]
    is_file = isinstance(given, str | os.PathLike)
    found: dict[str, dict[str, Any]] = {}
    for query, document, value, where in (_of_file if is_file else _of_records)(given, kind):
        number = parse_number(value)
        if math.isnan(number) or (kind == "qrels" and not number.is_integer()):
            expected = (
                "relevance must be an integer" if kind == "qrels" else "score must be a number"
            )
            raise ValueError(f"{where}: {expected}, got {shorten(value)}")
        documents = found.setdefault(str(query), {})
        if str(document) in documents:
            raise ValueError(
                f"{where}: document {shorten(document)} of query {shorten(query)} is there already"
            )
        documents[str(document)] = int(number) if kind == "qrels" else number
    if is_file and not found:
        raise ValueError(f"{os.fspath(given)} is empty: write a line for each document, or JSON")
    return found


def _of_records(records: Any, kind: str) -> list[_Entry]:
    names = _FORMATS[kind][2]
    try:
        return [
            (_field(one, _QUERY), _field(one, _DOCUMENT), _field(one, names), f"record {number}")
            for number, one in enumerate(records)
        ]
    except (TypeError, LookupError):
        fields = (
            f"records with the fields query_id, doc_id and {names[0]}; got {type(records).__name__}"
        )
        raise TypeError(
            f"{kind} must be a dict of dicts, query -> document -> number, a path, or {fields}"
        ) from None


def _field(record: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if isinstance(record, Mapping) and name in record:
            return record[name]
        if hasattr(record, name):
            return getattr(record, name)
    raise LookupError


def _of_file(path: str | os.PathLike[str], kind: str) -> Iterator[_Entry]:
    name = os.fspath(path)
    try:
        with open(path, "rb") as raw:
            compressed = raw.peek(2)[:2] == b"\x1f\x8b"
            text = io.TextIOWrapper(
                gzip.GzipFile(fileobj=raw) if compressed else raw, encoding="utf-8-sig"
            )
            yield from _of_lines(text, kind, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is a damaged gzip file: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error}") from error


def _of_lines(text: TextIO, kind: str, name: str) -> Iterator[_Entry]:
    separator, width, places = None, 0, (0, 2, _FORMATS[kind][1])
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        if not width and line.lstrip()[0] in "{[":
            yield from _of_json(line, text, number, name)
            return
        # a header
        if not width and len(line.split()) == 3 and math.isnan(parse_number(line.split()[2])):
            separator, width, places = ("\t" if "\t" in line else None), 3, (0, 1, 2)
            continue
        width = width or _FORMATS[kind][0]
        fields = line.rstrip("\r\n").split(separator)
        if len(fields) != width:
            hint = "; a file of 3 columns begins with a header" if len(fields) == 3 else ""
            raise ValueError(
                f"{name}, line {number}: {len(fields)} fields instead of {width}{hint}"
            )
        query, document, value = (fields[place] for place in places)
        yield query, document, value, f"{name}, line {number}"


def _of_json(line: str, text: TextIO, first: int, name: str) -> Iterator[_Entry]:
    """Yield the entries of one object, or of one in each line."""
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
        if not isinstance(queries, dict) or not all(
            isinstance(inner, dict) for inner in queries.values()
        ):
            raise ValueError(
                f"{name}, line {number}: expected {{query: {{document: number}}}}, got "
                f"{shorten(part)}"
            )
        for query, documents in queries.items():
            for document, value in documents.items():
                yield query, document, value, f"{name}, line {number}"
