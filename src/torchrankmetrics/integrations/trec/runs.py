"""`rank_run` and `evaluate_run`: rows and values of a retrieval run."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.definitions.protocol import EmptyQueries, View
from torchrankmetrics.definitions.sample import RankType, UnknownCandidatesError
from torchrankmetrics.definitions.tasks import MEAN_RECIPROCAL_RANK
from torchrankmetrics.errors import warn
from torchrankmetrics.integrations.trec.lists import JudgedLists, NumCandidates
from torchrankmetrics.integrations.trec.sources import Source
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import Metrics, parse_name
from torchrankmetrics.metrics.selection import Selection
from torchrankmetrics.queries.definitions import first_reciprocal_rank
from torchrankmetrics.table.rank_table import RankTable

DEFAULT_RUN_METRICS = ("rr_at_10", "ndcg_at_10", "recall_at_100")
RR_NOTE = (
    "'mrr' of a run is 'rr', the reciprocal rank of the first relevant document of a query; the "
    "key is 'rr'"
)


@suggest_keywords
def rank_run(
    qrels: Source,
    run: Source,
    *,
    num_candidates: NumCandidates | None = None,
    ignore_identical_ids: bool | None = None,
) -> RankTable:
    """Rank the relevant documents of every query in its list, for any metric and for ``compare``.

    Documents without a label, or with a label of 0 or below, are not relevant. Documents of equal
    score are tied, where trec_eval sorts by name. Documents without a score are tied below the
    list; without ``num_candidates`` they have ranks above 2^60. Queries without a list count, with
    a warning.

    Args:
        qrels (path, dict, frame or records): query -> document -> label, in every form of
            ``read_qrels``.
        run (path, dict, frame or records): query -> document -> score, higher is better, or lists
            of ids, best first, in every form of ``read_run``.
        num_candidates (int or dict, default None): size of the collection, also by query; for
            chance-adjusted views.
        ignore_identical_ids (bool, default None): True: leave out documents of the run whose id is
            the query's, as BEIR does; False: keep them; None: keep them with a warning.

    Returns:
        A row per relevant document: its label as gain, the place of the query among the sorted ids
        (text) of qrels, and a sample id that depends on the relevant documents of qrels only.

    Raises:
        OSError, TypeError, ValueError: as ``read_qrels``; for NaN scores, too few candidates, or no
            common query.

    >>> from torchrankmetrics.integrations.trec import rank_run
    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1, "c": 0}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> rank_run(qrels, run, num_candidates=10).ranks
    Ranks(optimistic=[1, 4, 2], pessimistic=[1, 10, 2], num_candidates=[10, 10, 10])
    """
    lists = JudgedLists.read(qrels, run, ignore_identical_ids)
    return _table(lists, num_candidates)


class _EvaluationOptions(TypedDict, total=False):
    num_candidates: NumCandidates | None
    relevance_threshold: float
    views: View | Sequence[View]
    rank_types: RankType | Sequence[RankType]
    empty_queries: EmptyQueries
    ignore_identical_ids: bool | None


@overload
def evaluate_run(
    qrels: Source,
    run: Source,
    metrics: Metrics = ...,
    *,
    per_query: Literal[False] = ...,
    **options: Unpack[_EvaluationOptions],
) -> dict[str, float]: ...
@overload
def evaluate_run(
    qrels: Source,
    run: Source,
    metrics: Metrics = ...,
    *,
    per_query: Literal[True],
    **options: Unpack[_EvaluationOptions],
) -> dict[str, dict[str, float]]: ...
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
    ignore_identical_ids: bool | None = None,
    per_query: bool = False,
) -> dict[str, float] | dict[str, dict[str, float]]:
    """Compute metrics of a run.

    Without ``num_candidates`` relevant documents without a score count as never retrieved, as in
    trec_eval: ``ap`` is its map, ``rr`` its recip_rank. With ``num_candidates`` they are among the
    documents below the list, and a value that depends on their order is an error; ``pessimistic_``
    ranks them last, ``optimistic_`` right below the list.

    Args:
        qrels (path, dict, frame or records): query -> document -> label, in every form of
            ``read_qrels``.
        run (path, dict, frame or records): query -> document -> score, higher is better, in every
            form of ``read_run``.
        metrics (str or several, default rr@10, ndcg@10, recall@100): names of metrics, definitions,
            or a dict of key -> name or definition, except that ``mrr`` means ``rr``, the convention
            of retrieval.
        num_candidates (int or dict, default None): size of the collection, also by query; for
            chance-adjusted views.
        relevance_threshold (float, default 1.0): smallest label of a relevant document for binary
            metrics: -l.
        views (str or several, default "base"): "base", "normalized", "adjusted_index", "z_score" or
            "p_value", one or several.
        rank_types (str or several, default "realistic"): "realistic", "optimistic", "pessimistic"
            or "expected", one or several.
        empty_queries (str, default "zero"): queries of qrels without a relevant document count as
            0, as in trec_eval, with a warning; "skip" leaves them out, "error" raises.
        ignore_identical_ids (bool, default None): True: leave out documents of the run whose id is
            the query's, as BEIR does; False: keep them; None: keep them with a warning.
        per_query (bool, default False): return the values of every query, for base metrics of
            queries; two such dicts are the input of ``compare``.

    Returns:
        Values by canonical key, a dict of floats: means over the queries of qrels. With
        ``per_query`` a dict of such dicts by query id.

    Raises:
        OSError, TypeError, ValueError: as ``rank_run``; if a metric depends on the order of
            documents without a score.

    >>> from torchrankmetrics.integrations.trec import evaluate_run
    >>> qrels = {"q1": {"a": 1, "d": 1}, "q2": {"b": 1}}
    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.2}, "q2": {"c": 7.0, "b": 5.0}}
    >>> evaluate_run(qrels, run, ["recall@3", "adjusted_rr", "pessimistic_ap"], num_candidates=10)
    {'recall_at_3': 0.75, 'adjusted_rr': 0.6088994347320754, 'pessimistic_ap': 0.55}
    >>> evaluate_run({"q1": ["a", "d"]}, {"q1": ["b", "a"]}, ["rr", "recall@2"])
    {'rr': 0.5, 'recall_at_2': 0.5}
    """
    selection = Selection(
        views, rank_types, relevance_threshold=relevance_threshold, empty_queries=empty_queries
    )
    names, has_mrr = run_metrics(metrics)
    measures = selection.measures(names)
    if has_mrr:
        warn(RR_NOTE)
    lists = JudgedLists.read(qrels, run, ignore_identical_ids)
    table = _table(lists, num_candidates)
    has_relevant = len(lists.number) > 0  # else `read` warned
    if len(lists.empty) and has_relevant and empty_queries == "zero":
        warn(
            f"{len(lists.empty)} queries have no relevant document in qrels and count as 0, as in "
            "trec_eval; empty_queries='skip' leaves them out"
        )
    analysis = Analysis([table.rows])
    values = {key: _value(key, measure, analysis) for key, measure in measures.items()}
    if num_candidates is not None and lists.is_missed.any():
        _check_known(values, measures, table, lists)
    return _by_query(table, lists, measures) if per_query else values


def run_metrics(metrics: Any) -> tuple[Any, bool]:
    """Read ``mrr`` as ``rr`` in names of metrics, in any view; also return whether it was there."""
    if isinstance(metrics, Mapping):
        found = {key: _as_rr(one) for key, one in metrics.items()}
        return found, any(found[key] is not metrics[key] for key in metrics)
    if isinstance(metrics, list | tuple):
        read = [_as_rr(one) for one in metrics]
        return read, any(one is not given for one, given in zip(read, metrics, strict=True))
    read = _as_rr(metrics)
    return (metrics, False) if read is metrics else ([read], True)


def _value(key: str, measure: Measure, analysis: Analysis) -> float:
    """Compute a metric; an error for an unknown size of the collection begins with its key."""
    try:
        return measure.value(analysis)
    except UnknownCandidatesError as error:
        raise UnknownCandidatesError(f"{key}: {error}") from None


def _as_rr(metric: Any) -> Any:
    if not isinstance(metric, str):
        return metric
    name = parse_name(metric)
    if name.definition != MEAN_RECIPROCAL_RANK:
        return metric
    return replace(name, definition=first_reciprocal_rank())


def _table(lists: JudgedLists, num_candidates: NumCandidates | None) -> RankTable:
    ranks = lists.ranks(num_candidates)
    query = lists.number[lists.index]
    sample_id = lists.first_id + np.arange(len(lists.index))
    table = RankTable.from_ranks(ranks, query=query, sample_id=sample_id, gain=lists.gain)
    return RankTable.concatenate([table, lists.rows_of_empty(num_candidates)])


def _by_query(
    table: RankTable, lists: JudgedLists, measures: Mapping[str, Measure]
) -> dict[str, dict[str, float]]:
    """Values of queries by id; a query where a metric is undefined has no value of it."""
    found: dict[str, dict[str, float]] = {name: {} for name in lists.names}
    for key, measure in measures.items():
        for number, value in table.query_values(measure).items():
            found[lists.names[number]][key] = value
    return {name: values for name, values in found.items() if values}


def _check_known(
    values: Mapping[str, float],
    measures: Mapping[str, Measure],
    table: RankTable,
    lists: JudgedLists,
) -> None:
    """Raise an error for values that depend on the order of the documents below the lists."""
    length = lists.length[lists.index]
    size = table.ranks.num_candidates.numpy()[: len(length)]
    number = lists.missed_number
    best = _moved(table, lists, length + number)
    worst = _moved(table, lists, size - number + 1)
    unknown = []
    for key, one in measures.items():
        if one.rank_type not in ("realistic", "expected"):
            continue
        at_ends = [one.value_or_nan(best), one.value_or_nan(worst)]
        if not np.allclose(at_ends, values[key], rtol=1e-12, atol=1e-12, equal_nan=True):
            unknown.append(one)
    if unknown:
        worst_key = replace(unknown[0], rank_type="pessimistic").key
        raise ValueError(
            f"{', '.join(repr(one.key) for one in unknown)} cannot be computed from these lists: "
            f"one that lacks a relevant document has {length[lists.is_missed].min()} documents. "
            f"Use a cut-off up to that depth; or {worst_key!r}, which ranks documents that were "
            "not retrieved last. Without num_candidates these contribute nothing"
        )


def _moved(table: RankTable, lists: JudgedLists, places: Any) -> Analysis:
    """The rows with the documents that were not retrieved at known places."""
    rows: Tensor = table.rows.clone()
    missed = np.flatnonzero(lists.is_missed)
    rows[missed, :2] = torch.from_numpy(places[missed, None])
    return Analysis([rows])
