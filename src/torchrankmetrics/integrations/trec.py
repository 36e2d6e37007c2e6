"""Metrics of retrieval runs: rows and values from qrels and a run, as files or objects of other libraries."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.protocol import View
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.errors import warn
from torchrankmetrics.integrations.trec_files import Qrels, Source, read_qrels, read_run
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import Metrics, Selection
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int, is_int, shorten

_Integers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
DEFAULT_RUN_METRICS = ("rr_at_10", "ndcg_at_10", "recall_at_100")
_FAR, _NEAR = 1 << 60, 1 << 50  # places behind every list, if the number of candidates is unknown


class _Answers(NamedTuple):
    """Relevant documents of all queries, one entry each."""

    low: _Integers
    high: _Integers
    num_candidates: _Integers  # _FAR if unknown
    is_known: bool
    query: _Integers
    depth: _Integers  # length of the list of its query
    missed: _Integers  # 0: in the list; i: the i-th relevant document of its query that is not
    num_missed: _Integers  # of its query
    label: _Floats

    def table(self) -> RankTable:
        """The rows of a run."""
        ranks = Ranks(self.low, self.high, self.num_candidates if self.is_known else None, filtered=False)
        return RankTable.from_ranks(ranks, query=self.query, sample_id=np.arange(len(self.query)), gain=self.label)

    def analysis(self) -> Analysis:
        """The rows, to compute metrics."""
        return Analysis([self.table().rows])

    def placed(self, behind: _Integers | int) -> "_Answers":
        """Put the documents that the lists lack one by one behind a place."""
        low, high = (np.where(self.missed > 0, behind + self.missed, rank) for rank in (self.low, self.high))
        return self._replace(low=low, high=high)


def rank_run(qrels: Source, run: Source, *, num_candidates: int | Mapping[str, int] | None = None) -> RankTable:
    """Rank the relevant documents of every query in its list, for any metric and for ``compare``.

    A run is a truncated list. Documents that are not judged are not relevant. Documents without a score are tied below
    the list, from depth + 1 to the number of candidates, so that values of cut-offs beyond the list are expectations.
    Without ``num_candidates`` they have ranks above 2^60, and contribute nothing to ndcg@10 or ap.
    Documents of equal score are tied; trec_eval sorts them by name. If a query has no list, a warning is issued.

    Args:
        qrels (path, dict or object): query -> document -> label, from 1 on relevant; as for ``read_qrels``.
        run (path, dict or object): query -> document -> score, higher is better; as for ``read_run``. Queries that
            qrels lack are ignored.
        num_candidates (int or dict, default None): number of documents that could be retrieved, in the list or not:
            the size of the collection, for all queries or by query. Required for chance-adjusted views only.

    Returns:
        A row per relevant document, with its label as gain. Query ids are places in ``sorted(qrels)``; sample ids count
        the relevant documents in that order and by name: two runs with the same qrels are rows of the same tasks.

    Raises:
        OSError: if a file cannot be opened.
        TypeError: if labels are not integers.
        ValueError: for files of another format, scores that are NaN, queries with more documents than candidates, and
            qrels and a run without a common query.

    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1, "c": 0}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> rank_run(qrels, run, num_candidates=10).ranks
    Ranks(optimistic=[1, 4, 2], pessimistic=[1, 10, 2], num_candidates=[10, 10, 10])
    """
    return _answers(qrels, run, num_candidates).table()


def evaluate_run(
    qrels: Source,
    run: Source,
    metrics: Metrics = DEFAULT_RUN_METRICS,
    *,
    num_candidates: int | Mapping[str, int] | None = None,
    relevance_threshold: float = 1.0,
    views: View | Sequence[View] = ("base",),
    rank_types: RankType | Sequence[RankType] = ("realistic",),
) -> dict[str, float]:
    """Compute metrics of a run.

    Without ``num_candidates`` relevant documents without a score count as never retrieved, as in trec_eval: ``ap`` is
    its map, ``rr`` its recip_rank. With ``num_candidates`` they are among the documents below the list, and a value
    that depends on their order is an error; ``pessimistic_`` ranks them last, ``optimistic_`` right below the list.

    Args:
        qrels (path, dict or object): as for ``rank_run``.
        run (path, dict or object): as for ``rank_run``.
        metrics (str or several, default rr@10, ndcg@10, recall@100): as for ``RankCollection``.
        num_candidates (int or dict, default None): as for ``rank_run``.
        relevance_threshold (float, default 1.0): smallest label of a relevant document for metrics of binary relevance,
            trec_eval's -l. NDCG and DCG use the labels.
        views (str or several, default "base"): as for ``RankCollection``.
        rank_types (str or several, default "realistic"): as for ``RankCollection``.

    Returns:
        Values by canonical key, means over the queries of qrels that have a relevant document.

    Raises:
        OSError, TypeError, ValueError: as ``rank_run`` and ``evaluate``; ValueError for metrics that depend on the
            order of documents without a score.

    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> evaluate_run(qrels, run, ["recall@3", "ap", "rr"])
    {'recall_at_3': 0.75, 'ap': 0.5, 'rr': 0.75}
    >>> evaluate_run(qrels, run, ["recall@3", "adjusted_rr", "pessimistic_ap"], num_candidates=10)
    {'recall_at_3': 0.75, 'adjusted_rr': 0.6088994347320754, 'pessimistic_ap': 0.55}
    """
    selection = Selection(views, rank_types, ("both",), DEFAULT_EXPECTATION, relevance_threshold=relevance_threshold)
    measures = selection.measures(metrics)
    answers = _answers(qrels, run, num_candidates)
    analysis = answers.analysis()
    values = {key: measure.value(analysis) for key, measure in measures.items()}
    if not answers.missed.any():
        return values
    if num_candidates is None:
        ends: list[_Integers | int] = [_NEAR]
        checked = dict(measures)
    else:
        ends = [answers.num_candidates - answers.num_missed, answers.depth]
        checked = {key: one for key, one in measures.items() if one.rank_type in ("realistic", "expected")}
    unknown: dict[str, Measure] = {}
    for behind in ends:
        end = answers.placed(behind).analysis() if checked else analysis
        unknown |= {key: one for key, one in checked.items() if not _close(values[key], one.value_or_nan(end))}
        # an expectation over orders that equals the value of the worst order is that of every order
        checked = {key: one for key, one in checked.items() if one.rank_type != "expected" or one.view == "p_value"}
    if unknown:
        shallow = int(answers.depth[answers.missed > 0].min())
        worst = replace(next(iter(unknown.values())), rank_type="pessimistic").key
        raise ValueError(
            f"{', '.join(map(repr, unknown))} cannot be computed from these lists: one that lacks a "
            f"relevant document has {shallow} documents. Use a cut-off up to that depth; or {worst!r}, which ranks "
            "documents that were not retrieved last; or the rows of rank_run, whose metrics are expectations over "
            "their order. The last two need num_candidates"
        )
    return values


def _answers(qrels: Source, run: Source, num_candidates: int | Mapping[str, int] | None) -> _Answers:
    judged = read_qrels(qrels)
    relevant = _relevant(judged)
    lists = read_run(run)
    if relevant.keys() and not relevant.keys() & lists.keys():
        raise ValueError(
            f"qrels and run have no query in common: {shorten(next(iter(relevant)))} is in qrels, "
            f"{shorten(next(iter(lists), None))} in run"
        )
    _warn("have no relevant document in qrels and are not counted", [q for q, found in relevant.items() if not found])
    _warn(
        "have no list in run and count as queries where nothing was retrieved",
        [query for query, found in relevant.items() if found and query not in lists],
    )
    numbers = [number for number, query in enumerate(sorted(relevant)) if relevant[query]]
    queries = [query for query in sorted(relevant) if relevant[query]]
    answers, found = [relevant[query] for query in queries], [lists.get(query, {}) for query in queries]
    index = np.repeat(np.arange(len(queries)), [len(of_query) for of_query in answers])
    depth = np.array([len(scores) for scores in found], dtype=np.int64)
    scores = np.fromiter(chain.from_iterable(one.values() for one in found), np.float64, int(depth.sum()))
    if (nan := np.isnan(scores)).any():
        query = queries[int(np.searchsorted(np.cumsum(depth), nan.argmax(), side="right"))]
        raise ValueError(f"run holds a score of query {shorten(query)} that is NaN")
    names = zip(answers, found, strict=True)
    own = np.array([of.get(name, math.nan) for of_query, of in names for name in of_query], dtype=np.float64)
    low, high = _places(scores, depth, own, index)
    missing = np.isnan(own)
    count = np.cumsum(missing)
    missed = np.where(missing, count - (count - missing)[np.searchsorted(index, index)], 0)
    num_missed = np.bincount(index, missing, len(queries)).astype(np.int64)
    N = _num_candidates(_FAR if num_candidates is None else num_candidates, queries, depth, num_missed)[index]
    low, high = np.where(missing, depth[index] + 1, low), np.where(missing, N, high)
    of = np.array(numbers, dtype=np.int64)[index]
    label = np.array([judged[query][name] for query, names in zip(queries, answers, strict=True) for name in names])
    facts = num_candidates is not None, of, depth[index], missed, num_missed[index], label.astype(np.float64)
    ranked = _Answers(low, high, N, *facts)
    return ranked if num_candidates is not None else ranked.placed(_FAR)


def _places(scores: _Floats, depth: _Integers, own: _Floats, index: _Integers) -> tuple[_Integers, _Integers]:
    """First and last places of scores among all scores of their queries.

    Args:
        scores: (T,) of all queries, one after the other.
        depth: (Q,) number of scores of each query.
        own: (tasks,) scores of relevant documents; the places of NaN have no meaning.
        index: (tasks,) their queries.
    """
    order = np.argsort(scores)
    ascending = scores[order]
    new = np.append(True, ascending[1:] != ascending[:-1])[: len(scores)]
    code = np.empty(len(scores), dtype=np.int64)  # equal scores have equal codes
    code[order] = np.cumsum(new) - 1
    size = len(scores) + 1
    key = np.sort(np.repeat(np.arange(len(depth)), depth) * size + code)
    own_key = index * size + np.searchsorted(ascending[new], own)
    end = np.cumsum(depth)[index]
    return end - np.searchsorted(key, own_key, "right") + 1, end - np.searchsorted(key, own_key)


def _num_candidates(
    given: int | Mapping[str, int], queries: list[str], depth: _Integers, num_missed: _Integers
) -> _Integers:
    """Number of candidates of every query, at least the documents in its list and the relevant ones outside."""
    if isinstance(given, Mapping):
        if missing := [query for query in queries if query not in given]:
            raise ValueError(
                "num_candidates must be an int, such as len(corpus), or hold every query of qrels; "
                f"{shorten(missing[0])} is missing"
            )
        numbers = np.array([check_int("num_candidates", given[query], 1) for query in queries], dtype=np.int64)
    else:
        numbers = np.full(len(queries), check_int("num_candidates", given, 1))
    if (wrong := depth + num_missed > numbers).any():
        i = int(wrong.argmax())
        raise ValueError(
            f"num_candidates must count all documents, listed or not: query {shorten(queries[i])} has {depth[i]} in "
            f"its list and {num_missed[i]} relevant documents outside, got {numbers[i]}"
        )
    return numbers


def _relevant(qrels: Qrels) -> dict[str, list[str]]:
    """Relevant documents of every query, by name."""
    kinds = {kind for judged in qrels.values() for kind in set(map(type, judged.values()))}
    if not all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        query, document, label = next(
            (query, document, label)
            for query, judged in qrels.items()
            for document, label in judged.items()
            if not is_int(label)
        )
        raise TypeError(
            f"qrels must hold integers, got {shorten(label)} for {shorten(document)} of query {shorten(query)}"
        )
    return {query: sorted(name for name, label in judged.items() if label >= 1) for query, judged in qrels.items()}


def _warn(text: str, queries: list[str]) -> None:
    if queries:
        warn(f"{len(queries)} queries {text}; the first is {shorten(queries[0])}")


def _close(one: float, two: float) -> bool:
    return math.isclose(one, two, rel_tol=1e-12, abs_tol=1e-12) or (math.isnan(one) and math.isnan(two))
