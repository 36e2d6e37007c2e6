"""`evaluate`: metric values without state, from ranks or from scores."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy.typing as npt
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.definitions.protocol import Average, EmptyQueries, Side, View
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import Metrics, parse_name
from torchrankmetrics.metrics.selection import DEFAULT_METRICS, Selection
from torchrankmetrics.metrics.warnings import (
    warn_of_input,
    warn_of_masked_scores,
    warn_of_nothing,
    warn_of_ties,
)
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.ranking.arrays import Integers, Numbers, as_ids, as_tensor
from torchrankmetrics.ranking.negatives import Predictions
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.tasks import Exclude, Target
from torchrankmetrics.table.blocks import make_block
from torchrankmetrics.table.columns import has_unknown
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.table.task_facts import TaskFacts
from torchrankmetrics.validation import TaskSide, is_int, shorten


@eager
def evaluate(
    ranks: Numbers | Ranks | RankTable | Predictions | None = None,
    num_candidates: Integers | Target | None = None,
    metrics: Metrics | None = None,
    *,
    scores: Numbers | None = None,
    target: Integers | Target | None = None,
    exclude: Exclude | npt.ArrayLike = None,
    side: TaskSide | None = None,
    weight: Numbers | None = None,
    group: Integers | None = None,
    sample_id: Integers | None = None,
    query: Integers | None = None,
    gain: Numbers | None = None,
    indexes: Integers | None = None,
    views: View | Sequence[View] = ("base",),
    rank_types: RankType | Sequence[RankType] = ("realistic",),
    sides: Side | Sequence[Side] = ("both",),
    average: Average = "micro",
    expectation: ExpectationProvider | None = None,
    relevance_threshold: float = 1.0,
    empty_queries: EmptyQueries | None = None,
    backend: str = "auto",
) -> dict[str, float]:
    """Compute metrics in one call, from scores or from ranks.

    - ``evaluate(scores, target, metrics=["mrr"])``: scores (B, N);
    - ``evaluate(ranks, num_candidates, metrics=["mrr", "amri"])``: ranks that start at 1;
    - ``evaluate(table, metrics=["mrr"])``: a ``Ranks`` or a ``RankTable``.

    Args:
        ranks (numbers, Ranks, RankTable or mapping, default None): ranks (tasks,) as integers, or
            as multiples of 1/2 (realistic); a ``Ranks`` or ``RankTable``; a dict of "y_pred_pos"
            and "y_pred_neg" for ``Ranks.from_negatives``; or scores (B, N).
        num_candidates (integers or Tensor, list or tuple, default None): (tasks,) or one int; None:
            only base values. With scores: the target.
        metrics (sequence of str, default None): names of metrics, definitions, or a dict of key ->
            name or definition; None: the default metrics of ``RankCollection``, without candidate
            counts those in the base view.
        scores (numbers, default None): scores (B, N), higher is better, instead of ranks.
        target (integers or Tensor, list or tuple, default None): target of the scores, as in
            ``rank_scores``.
        exclude (Tensor, list or tuple or array-like, default None): with scores known positives, in
            every form of ``rank_scores``; with a dict bool (B, M), True: the negative is padding.
        side (str, default None): "head", "tail" or "relation", the predicted side. A ``RankTable``
            has its own facts, also for the next five.
        weight (numbers, default None): (tasks,) or one, at least 0; None: equal.
        group (integers, default None): (tasks,) or one, for macro averages.
        sample_id (integers, default None): (tasks,); repeats of (side, sample id) count once.
        query (integers, default None): query of each task, (tasks,) or one; of scores (B,).
        gain (numbers, default None): relevance label of each task, at least 0.
        indexes (integers, default None): query of each flat score (T,), with a target (T,).
        views (str or sequence of str, default ("base",)): "base", "normalized", "adjusted_index",
            "z_score" or "p_value", one or several; undefined ones are left out.
        rank_types (str or sequence of str, default ("realistic",)): one or several rank types.
        sides (str or sequence of str, default ("both",)): one or several sides.
        average (str, default "micro"): "micro" or "macro".
        expectation (ExpectationProvider, default None): source of the null moments; None: exact.
        relevance_threshold (float, default 1.0): smallest label of a relevant item, for query
            metrics.
        empty_queries (str, default None): for query metrics, queries without a relevant item are
            left out with a warning (None), left out ("skip"), count as 0 ("zero"), or raise
            ("error").
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.

    Returns:
        Values by canonical key, as floats. Nothing is synchronized across processes.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores``, ``Ranks`` and ``RankCollection``, and
            for metrics that need num_candidates, both ranks of tied tasks or a side if these are
            missing.

    >>> from torchrankmetrics import evaluate
    >>> evaluate([1, 2, 5], num_candidates=9, metrics=["mr", "amri"])
    {'mr': 2.6666666666666665, 'amri': 0.5833333333333334}
    >>> import torch
    >>> scores = torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]])
    >>> evaluate(scores, torch.tensor([1, 2]), metrics=["mr", "amri"])
    {'mr': 1.5, 'amri': 0.5}
    """
    if (ranks is None) == (scores is None):
        raise TypeError(
            "evaluate() takes ranks (tasks,), a Ranks or a RankTable, or scores (B, N) with their "
            "target"
        )
    _check_no_names(num_candidates, metrics)
    if scores is None:
        given, exclude = _read_ranks(ranks, exclude, backend)
    else:
        given = as_tensor(scores, "scores")
    is_plain = isinstance(given, Tensor)
    is_scored = is_plain and (scores is not None or indexes is not None or given.ndim == 2)
    if is_scored:
        target = _read_target(given, num_candidates, target)
    else:
        _check_ranks_alone(given, num_candidates, target, exclude)
    if metrics is None and not is_scored and _lacks_candidates(given, num_candidates):
        metrics = _base_metrics()
    measures = Selection(
        views, rank_types, sides, expectation, average, relevance_threshold, empty_queries
    ).measures(metrics)
    _check_sides(measures, side, given)
    has_half_ranks = is_plain and not is_scored and given.is_floating_point()
    if is_plain and not is_scored:
        given = _as_ranks(given, cast("Integers | None", num_candidates), measures)
    facts = TaskFacts(side, group, weight, sample_id, query, gain)
    options: Any = {"indexes": indexes, "backend": backend, "name": "scores"}
    block = make_block(given, cast("Any", target), cast("Any", exclude), facts, **options)
    analysis = Analysis([block])
    if is_scored:
        warn_of_input(analysis)
        if _has_views(measures):
            warn_of_masked_scores(given, exclude)
    warn_of_nothing(analysis, measures.values())
    if not has_half_ranks:  # which are not ties
        warn_of_ties(measures.values(), analysis)
    return _values(measures, analysis)


def _check_no_names(num_candidates: object, metrics: object) -> None:
    """Raise TypeError for names of metrics or datasets instead of numbers of candidates."""
    if isinstance(num_candidates, str):
        raise TypeError(
            "num_candidates must be (tasks,) integers or one int, got the str "
            f"{shorten(num_candidates)}; write metrics={shorten(num_candidates)} for a metric; "
            "adjust() and PrecomputedExpectation take dataset names"
        )
    if not isinstance(num_candidates, list | tuple):
        return
    if not any(isinstance(one, str) for one in num_candidates):
        return
    if metrics is not None:
        raise TypeError(
            "the second argument must be integers (numbers of candidates, or targets of scores), "
            f"got {shorten(num_candidates)}; number names first, for example by pandas.factorize"
        )
    raise TypeError(
        f"num_candidates must be (tasks,) integers or one int, got {shorten(num_candidates)}; "
        f"write metrics={shorten(num_candidates)} for metrics"
    )


def _read_ranks(ranks: Any, exclude: Any, backend: str) -> tuple[Any, Any]:
    """Read the first argument as a tensor, ``Ranks`` or a table; and ``exclude`` if it is left."""
    if isinstance(ranks, Mapping):  # a result of integrations.ogb has its ranks
        ranks = getattr(ranks, "ranks", ranks)
    if isinstance(ranks, Mapping):
        if ranks and all(isinstance(part, Mapping) for part in ranks.values()):
            raise TypeError(
                "for dicts of qrels and a run use integrations.trec.evaluate_run(qrels, run, "
                "metrics)"
            )
        return Ranks.from_negatives(ranks, exclude=exclude, backend=backend), None
    if hasattr(ranks, "columns") and hasattr(ranks, "__array__"):
        return RankTable.from_pandas(ranks), exclude
    if isinstance(ranks, Ranks | RankTable):
        return ranks, exclude
    return as_tensor(ranks, "ranks"), exclude


def _read_target(scores: Tensor, second: Any, target: Any) -> Any:
    """Return the target of scores, which may be the second argument of ``evaluate``."""
    if second is not None and target is not None:
        raise ValueError(
            "num_candidates must not be given with scores: pass non-candidates as exclude"
        )
    target = second if target is None else target
    if target is None or isinstance(target, int):
        raise ValueError(
            "target must be (B,), the columns of the ground truth, with scores (B, N) = "
            f"{tuple(scores.shape)}, got {target}; ranks would be (tasks,), with num_candidates"
        )
    return target


def _check_ranks_alone(ranks: object, num_candidates: object, *of_scores: object) -> None:
    """Raise for arguments that do not belong to ranks."""
    if any(argument is not None for argument in of_scores):
        raise ValueError(
            "target and exclude belong to scores (B, N); ranks come with their num_candidates"
        )
    if not isinstance(ranks, Tensor) and num_candidates is not None:
        raise ValueError(
            f"num_candidates must not be given with a {type(ranks).__name__}, which contains them"
        )


def _base_metrics() -> list[str]:
    """The default metrics that need no numbers of candidates."""
    return [name for name in DEFAULT_METRICS if parse_name(name).view is None]


def _has_views(measures: Mapping[str, Measure]) -> bool:
    return any(measure.view != "base" for measure in measures.values())


def _values(measures: Mapping[str, Measure], analysis: Analysis) -> dict[str, float]:
    return {key: measure.value(analysis) for key, measure in measures.items()}


def _lacks_candidates(ranks: Tensor | Ranks | RankTable, num_candidates: object) -> bool:
    """Whether the number of candidates of a task is unknown."""
    if isinstance(ranks, Tensor):
        return num_candidates is None
    of_tasks = ranks.ranks if isinstance(ranks, RankTable) else ranks
    return has_unknown(of_tasks.num_candidates)


def _check_sides(measures: Mapping[str, Measure], side: TaskSide | None, given: object) -> None:
    """Raise for metrics of one side if tasks have no side."""
    requested = sorted({measure.side for measure in measures.values()} - {"both"})
    has_sides = isinstance(given, RankTable) and given.has_sides()
    if requested and side is None and not has_sides:
        raise ValueError(
            f"sides {requested} need the side of every task: pass side= or a table with sides"
        )


def _as_ranks(
    ranks: Tensor, num_candidates: Integers | None, measures: Mapping[str, Measure]
) -> Ranks:
    if ranks.ndim != 1:
        raise ValueError(
            f"ranks must be (tasks,), one per ranking task; got shape {tuple(ranks.shape)}"
        )
    floats = ranks.is_floating_point() and ranks.numel() > 0
    if floats:
        _check_half_ranks(ranks)
    for key, measure in measures.items():
        if num_candidates is None and (
            measure.view != "base" or measure.definition.uses_candidates
        ):
            raise ValueError(
                f"num_candidates is needed for {shorten(key)}; without it only base values are "
                "known"
            )
        if floats and (
            measure.rank_type != "realistic" or measure.definition.aggregation == "tie_rate"
        ):
            raise ValueError(
                f"{shorten(key)} needs optimistic and pessimistic ranks; ranks given as floats are "
                "realistic only. Pass Ranks(optimistic, pessimistic, num_candidates)"
            )
    if num_candidates is not None and not is_int(num_candidates):
        num_candidates = as_tensor(num_candidates, "num_candidates").to(ranks.device)
    if not floats:
        return Ranks(
            as_ids(ranks.long() if ranks.numel() == 0 else ranks, "ranks"), None, num_candidates
        )
    return Ranks(ranks.floor().long(), ranks.ceil().long(), num_candidates)


def _check_half_ranks(ranks: Tensor) -> None:
    """Raise for floats that are not realistic ranks."""
    wrong = ~(2 * ranks == (2 * ranks).round()) | ~(ranks.abs() < 2.0**62)
    if wrong.any():
        raise ValueError(
            "ranks given as floats must be multiples of 1/2 (realistic ranks) and below 2^62, "
            f"got {ranks[wrong][0]:g}. The scores of one query go in as evaluate(scores[None], "
            "[target], metrics=...), with labels (N,) as target[None].float()"
        )
