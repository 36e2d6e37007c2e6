"""TREC: qrels and runs, as files or as the dicts that pytrec_eval and ranx take; none of these is needed."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import View
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.evaluate import evaluate
from torchrankmetrics.metrics.selection import Metrics, Selection
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int, is_int, shorten

Qrels = Mapping[str, Mapping[str, int]]
"""Query -> document -> relevance."""
Run = Mapping[str, Mapping[str, float]]
"""Query -> document -> score, higher is better."""
_DEFAULT = ("rr_at_10", "ndcg_at_10", "recall_at_100")


class _Answers(NamedTuple):
    """Answers of all queries, one entry each."""

    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]
    num_candidates: npt.NDArray[np.int64]
    query: npt.NDArray[np.int64]
    missed: npt.NDArray[np.int64]  # 0: in the list; i: the i-th answer of its query that is not
    num_missed: npt.NDArray[np.int64]  # of its query


def rank_run(
    qrels: Qrels, run: Run, *, num_candidates: int | Mapping[str, int], relevance_level: int | None = None
) -> RankTable:
    """Rank the relevant documents of every query in its list, for any metric and for ``compare``.

    A run is a cut list. Documents that it lacks are tied below it, from depth + 1 to the number of candidates. So
    values of cuts beyond the list are expectations over the orders of the rest. Documents with equal scores are tied;
    trec_eval sorts them by name. If a query has no list, nothing was retrieved for it, and a warning is issued.

    Args:
        qrels (mapping or object): query -> document -> relevance, from 1 on relevant; or an object with ``to_dict``, as
            ranx has.
        run (mapping or object): query -> document -> score, higher is better; or such an object. Queries that qrels
            lack are left out.
        num_candidates (int or mapping): documents that could be retrieved, listed or not: the size of the collection;
            or by query.
        relevance_level (int, default None): least grade of a relevant document; required if qrels contain grades above
            1, because metrics are binary.

    Returns:
        A row per answer. Query ids are places in ``sorted(qrels)``, sample ids count the answers, query by query in
        that order and by document: two runs with the same qrels are rows of the same tasks.

    Raises:
        TypeError: if grades are not integers.
        ValueError: for graded qrels without a level, scores that are NaN, queries with more documents than candidates,
            and where qrels and run have no query in common.

    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1, "c": 0}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> rank_run(qrels, run, num_candidates=10).ranks
    Ranks(optimistic=[1, 4, 2], pessimistic=[1, 10, 2], num_candidates=[10, 10, 10])
    """
    return _table(_answers(qrels, run, num_candidates, relevance_level))


def evaluate_run(
    qrels: Qrels,
    run: Run,
    metrics: Metrics = _DEFAULT,
    *,
    num_candidates: int | Mapping[str, int],
    relevance_level: int | None = None,
    views: View | Sequence[View] = ("base",),
    rank_types: RankType | Sequence[RankType] = ("realistic",),
) -> dict[str, float]:
    """Compute metrics of the lists of a run, if they do not depend on documents that the lists lack.

    ``ap_at_<depth>`` is trec_eval's map, ``rr_at_<depth>`` its recip_rank. ``pessimistic_`` ranks documents that were
    not retrieved last, ``optimistic_`` right below the list.

    Args:
        qrels (mapping or object): query -> document -> relevance, as in ``rank_run``.
        run (mapping or object): query -> document -> score, as in ``rank_run``.
        metrics (sequence of str, default rr@10, ndcg@10, recall@100): as in ``RankCollection``.
        num_candidates (int or mapping): as in ``rank_run``.
        relevance_level (int, default None): as in ``rank_run``.
        views (str or sequence of str, default ("base",)): as in ``RankCollection``.
        rank_types (str or sequence of str, default ("realistic",)): as in ``RankCollection``.

    Returns:
        Values by canonical key, means over the queries of qrels that have a relevant document.

    Raises:
        TypeError, ValueError: as ``rank_run`` and ``evaluate``; ValueError for metrics that depend on documents that
        the lists lack.

    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> evaluate_run(qrels, run, ["recall@3", "rr", "pessimistic_ap"], num_candidates=10)
    {'recall_at_3': 0.75, 'rr': 0.75, 'pessimistic_ap': 0.55}
    """
    selection = Selection(views, rank_types, ("both",), DEFAULT_EXPECTATION)
    measures = selection.measures(metrics)
    answers = _answers(qrels, run, num_candidates, relevance_level)
    values = evaluate(_table(answers), metrics=measures)
    if answers.missed.any():
        # a value that is the same for the best and the worst places of the missing documents is known
        either = [key for key, measure in measures.items() if measure.rank_type in ("realistic", "expected")]
        best, worst = (Analysis([_table(_placed(answers, last)).rows]) for last in (False, True))
        bounds = {key: [measures[key].value_or_nan(analysis) for analysis in (best, worst)] for key in either}
        if unknown := [key for key in either if not _same(*bounds[key])]:
            depth = int((answers.low - 1)[answers.missed > 0].min())
            worst_key = replace(measures[unknown[0]], rank_type="pessimistic").key
            raise ValueError(
                f"{', '.join(map(repr, unknown))} cannot be computed from these lists: one that lacks a relevant "
                f"document has {depth} documents. Use a cut up to that depth (ap_at_<depth> is trec_eval's map), for "
                f"{worst_key!r}, which ranks documents that were not retrieved last, or the rows of rank_run, whose "
                "metrics are expectations over the order of the rest"
            )
    return values


def read_qrels(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Read a file of lines "query iteration document relevance"; ValueError names the first other line."""
    return _read(path, 4, lambda parts: (parts[0], parts[2], int(parts[3])))


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """Read a file of lines "query Q0 document rank score tag"; the score decides, not the rank, as in trec_eval.

    ValueError names the first other line.
    """
    return _read(path, 6, lambda parts: (parts[0], parts[2], float(parts[4])))


def _read(path: str | os.PathLike[str], width: int, read: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.split()
            if not parts:
                continue
            try:
                if len(parts) != width:
                    raise ValueError(f"{len(parts)} fields instead of {width}")
                query, document, value = read(parts)
                if document in found.get(query, ()):
                    raise ValueError(f"document {shorten(document)} of query {shorten(query)} is there already")
            except ValueError as error:
                raise ValueError(f"{os.fspath(path)}, line {number}: {error}") from None
            found.setdefault(query, {})[document] = value
    return found


def _answers(qrels: Qrels, run: Run, num_candidates: int | Mapping[str, int], relevance_level: int | None) -> _Answers:
    relevant = _relevant(_as_dict(qrels, "qrels"), relevance_level)
    lists = _as_dict(run, "run")
    if relevant.keys() and not relevant.keys() & lists.keys():
        raise ValueError(
            f"qrels and run have no query in common: {shorten(next(iter(relevant)))} is in qrels, "
            f"{shorten(next(iter(lists), None))} in run"
        )
    _tell("have no relevant document in qrels and are not counted", [q for q, found in relevant.items() if not found])
    _tell(
        "have no list in run and count as queries where nothing was retrieved",
        [query for query, found in relevant.items() if found and query not in lists],
    )
    rows: list[tuple[int, ...]] = []
    for number, query in enumerate(sorted(relevant)):
        if relevant[query]:
            total = num_candidates.get(query) if isinstance(num_candidates, Mapping) else num_candidates
            if total is None:
                raise ValueError(
                    "num_candidates must be an int, such as len(corpus), or hold every query of qrels; "
                    f"{shorten(query)} is missing"
                )
            total = check_int("num_candidates", total, 1)
            rows += _of_query(query, number, sorted(relevant[query]), lists.get(query, {}), total)
    return _Answers(*np.array(rows, dtype=np.int64).reshape(-1, 6).T)


def _of_query(
    query: str, number: int, answers: list[str], found: Mapping[str, float], total: int
) -> list[tuple[int, ...]]:
    """The six numbers of every answer of a query."""
    scores = np.fromiter(found.values(), np.float64, len(found))
    if np.isnan(scores).any():
        raise ValueError(f"run holds a score of query {shorten(query)} that is NaN")
    num_missed = sum(answer not in found for answer in answers)
    if len(found) + num_missed > total:
        raise ValueError(
            f"num_candidates must count all documents, listed or not: query {shorten(query)} has {len(found)} in its "
            f"list and {num_missed} relevant documents outside, got {total}"
        )
    rows: list[tuple[int, ...]] = []
    missed = 0
    for answer in answers:
        own = found.get(answer)
        missed += own is None
        if own is None:
            rows.append((len(found) + 1, total, total, number, missed, num_missed))
        else:
            low, high = int((scores > own).sum()) + 1, int((scores >= own).sum())
            rows.append((low, high, total, number, 0, num_missed))
    return rows


def _placed(answers: _Answers, last: bool) -> _Answers:
    """The answers that are not listed at places of their own: right below the list, or last of all."""
    place = np.where(last, answers.num_candidates - answers.num_missed, answers.low - 1) + answers.missed
    out = answers.missed > 0
    return answers._replace(low=np.where(out, place, answers.low), high=np.where(out, place, answers.high))


def _table(answers: _Answers) -> RankTable:
    ranks = Ranks(answers.low, answers.high, answers.num_candidates, filtered=False)
    return RankTable.from_ranks(ranks, query=answers.query, sample_id=np.arange(len(answers.query)))


def _relevant(qrels: Mapping[str, Mapping[str, int]], level: int | None) -> dict[str, list[str]]:
    """The answers of every query."""
    highest = 1
    for query, judged in qrels.items():
        for document, grade in judged.items():
            if not is_int(grade):
                raise TypeError(
                    f"qrels must hold integers, got {shorten(grade)} for {shorten(document)} of query {shorten(query)}"
                )
            highest = max(highest, int(grade))
    if level is None and highest > 1:
        raise ValueError(
            f"qrels hold grades up to {highest}: graded relevance is not taken. Pass relevance_level=1, for example, "
            "to count every document from that grade on as an answer"
        )
    level = 1 if level is None else check_int("relevance_level", level, 1)
    return {query: [name for name, grade in judged.items() if grade >= level] for query, judged in qrels.items()}


def _as_dict(given: Any, name: str) -> Mapping[str, Mapping[str, Any]]:
    given = given.to_dict() if hasattr(given, "to_dict") else given
    if not isinstance(given, Mapping) or not all(isinstance(inner, Mapping) for inner in given.values()):
        raise TypeError(f"{name} must be a dict of dicts, query -> document -> number, got {type(given).__name__}")
    return given


def _tell(what: str, queries: list[str]) -> None:
    if queries:
        warn(f"{len(queries)} queries {what}; the first is {shorten(queries[0])}")


def _same(one: float, two: float) -> bool:
    return one == two or (math.isnan(one) and math.isnan(two))
