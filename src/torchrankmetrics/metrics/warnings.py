"""Warnings of values that mislead: damaged or repeated rows, ties that decide, masks, nothing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.counting import missing_targets
from torchrankmetrics.table.columns import SIDE_CODES, Columns, Rows, far_below_random, weights
from torchrankmetrics.validation import TASK_SIDES, shorten

if TYPE_CHECKING:
    from torchrankmetrics.definitions.protocol import EmptyQueries, Side
    from torchrankmetrics.metrics.analysis import Analysis
    from torchrankmetrics.metrics.measure import Measure
    from torchrankmetrics.queries.definitions import QueryDefinition

_LEAST_TIES = 0.05  # share of tasks whose target ties with another candidate
_LEAST_GAP = 0.05  # between the values of optimistic and of pessimistic ranks
_ROWS = 4  # of the first batch that are read: a mask is in every row
_REVERSED = "are the scores distances? Higher scores must be better; pass -distances"
# metrics of tasks whose names retrieval uses for a metric of queries
_OF_QUERIES = {
    "mr": "first_mr",
    "mrr": "rr",
    "median_rank": "first_median_rank",
    "auc": "query_auc",
}


def warn_of_masked_scores(scores: Any, exclude: object) -> bool:
    """Warn if the first rows of scores (B, N) hold -inf, and nothing is excluded; whether it did.

    Only on the CPU: an accelerator would be waited for.
    """
    is_array = isinstance(scores, Tensor | np.ndarray) and scores.ndim == 2
    if not is_array or exclude is not None:
        return False
    rows = scores[:_ROWS]
    if isinstance(rows, np.ndarray):
        rows = torch.from_numpy(np.array(rows))
    number = int(rows.isneginf().sum()) if rows.is_cpu and rows.is_floating_point() else 0
    if number:
        warn(
            f"{number} of the first {rows.numel()} scores are -inf: masked candidates still count "
            "in num_candidates, so that chance-adjusted values, z-scores and p-values compare with "
            "too many candidates. Pass the mask as exclude=, True where a candidate is skipped"
        )
    return number > 0


def warn_of_ties(measures: "Iterable[Measure]", analysis: "Analysis") -> bool:
    """Warn if the order of tied candidates decides about a value in [0, 1]; whether it does.

    Only metrics with the default rank type alone: other rank types show what ties do.
    """
    sample = analysis.sample()
    if not sample.tie_mass > _LEAST_TIES * sample.total:
        return False
    by_metric: dict[Any, list[Measure]] = {}
    for measure in measures:
        by_metric.setdefault((measure.definition, measure.side, measure.average), []).append(
            measure
        )
    for alike in by_metric.values():
        is_default = {measure.rank_type for measure in alike} == {"realistic"}
        if is_default and alike[0].definition.bounds("base")[1] == 1:
            base = replace(alike[0], view="base")
            low, high = _ends(base, analysis)
            if abs(high - low) > _LEAST_GAP:
                _warn_of_ties(base, low, high, analysis)
                return True
    return False


def _ends(base: "Measure", analysis: "Analysis") -> tuple[float, float]:
    """Values with pessimistic and with optimistic ranks."""
    worst = replace(base, rank_type="pessimistic")
    best = replace(base, rank_type="optimistic")
    return worst.value_or_nan(analysis), best.value_or_nan(analysis)


def _warn_of_ties(base: "Measure", low: float, high: float, analysis: "Analysis") -> None:
    sample = analysis.sample()
    values = f"{high:.4f} with optimistic and {low:.4f} with pessimistic ranks"
    if not base.definition.why_undefined("base", "expected"):
        expected = replace(base, rank_type="expected").value_or_nan(analysis)
        values += f" ({expected:.4f} expected over random orders of ties)"
    warn(
        f"{100 * sample.tie_mass / sample.total:.0f}% of the targets tie with another candidate, "
        f"so that their order decides about {base.key}: it is {values}. Find "
        "out why scores are equal (constant, rounded or low precision), and report rank_types="
        "'pessimistic' or 'expected'"
    )


def warn_of_nothing(analysis: "Analysis", measures: "Iterable[Measure]") -> None:
    """Warn if there is no ranking task at all, or none of the sides that measures need."""
    if not analysis.has_rows:
        warn(
            "0 ranking tasks were given, so that values are NaN: check that the dataset, its split "
            "or the loader is not empty"
        )
        return
    requested = sorted({measure.side for measure in measures})
    if not requested or "both" in requested:
        return
    codes = Columns(analysis.all_rows).side
    given = [side for side in TASK_SIDES if SIDE_CODES[side] in codes]
    if not set(requested) & set(given):
        warn(
            f"0 ranking tasks have side {' or '.join(requested)}, so that values are NaN: the "
            f"tasks have side {' and '.join(given) or 'none'}. Evaluate both sides, or a side "
            "that the tasks have"
        )


def warn_of_missing_targets(rows: Rows) -> None:
    """Warn that look-ups of known triples did not contain the target of some rows."""
    columns = Columns(rows)
    is_unlisted = columns.flags & fault.UNLISTED > 0
    number = int(columns.count[is_unlisted].sum())
    warn(missing_targets(number, int(columns.count.sum())))


def warn_of_differing_entries(num_differing: int) -> None:
    """Warn that repeats of flat scores differ."""
    warn(
        f"{num_differing} repeated (side, sample_id) came with different scores or labels; "
        "the smallest row of each is kept. For sample_id pass the index in the dataset, not "
        "the position in the batch"
    )


def warn_of_rows(analysis: "Analysis", rows: Rows, flags: int) -> None:
    """Warn if rows, before repeats were dropped, are repeated, without weight, or of NaN scores.

    ``flags`` are the flags that at least one row has.
    """
    if flags & fault.REPEATED:
        warn(
            "sample_id repeats within one update, and repeats count once: resampled rows "
            "(BootStrapper) or several tasks under one id are lost. Give each task its own id "
            "or none; for intervals there is RankCollection.confidence_intervals"
        )
    if len(rows) and not len(analysis.tasks):
        warn(
            "every ranking task has the weight 0 or the gain 0, so values are NaN: pass "
            "numbers above 0"
        )
    if analysis.num_differing:
        # equal repeats that storage="counts" merged are not counted
        num_given = Columns(rows).count[weights(rows) > 0].sum()
        lost = int(num_given - Columns(analysis.table_rows).count.sum())
        warn(
            f"{analysis.num_differing} repeated (side, sample_id) came with different ranks; the "
            f"best rank of each is kept, and at least {lost} ranking tasks are dropped, so values "
            "may be too good. Repeats should be the same task scored by the same model; for "
            "sample_id pass the index in the dataset, not the position in the batch"
        )
    if flags & fault.NAN and analysis.num_nan:
        warn(
            f"{analysis.num_nan} of {int(Columns(analysis.task_rows).count.sum())} ranking tasks "
            "have NaN scores, which count against the model: a NaN target ranks last, a NaN "
            "candidate above the target. So values may be too low. Check the model: "
            "torch.isnan(scores).any(). With similarity='cosine' a zero vector (norm 0) is the "
            "usual cause"
        )


def warn_of_input(analysis: "Analysis") -> None:
    """Warn once if the ranks show an inverted mask, or distances in place of scores."""
    candidates = Columns(analysis.tasks).num_candidates
    if len(candidates) and candidates[0] == 1 and (candidates == 1).all():
        if not analysis.has_warned("undefined"):  # which names the same cause
            analysis.warn_once(
                "mask",
                "each ranking task has one candidate, so that every rank is 1 whatever the "
                "scores: if the mask exclude= is inverted, invert it; True marks candidates "
                "to skip",
            )
    elif reversal(analysis):  # the same text in every epoch, so that Python shows it once
        analysis.warn_once("reversal", f"the ranks are far worse than random ranking: {_REVERSED}")


def reversal(analysis: "Analysis") -> str:
    """Text of a warning if the ranks are so bad that scores must be distances; else ""."""
    found = analysis.once("reversal", lambda: far_below_random(analysis.tasks))
    return found and f"{found}: {_REVERSED}"


def query_counterpart(name: str) -> str | None:
    """Return the query metric that retrieval calls by the name of a metric of tasks, or None."""
    k = name.removeprefix("hits_at_")
    return f"success_at_{k}" if k != name else _OF_QUERIES.get(name)


def warn_of_competition(analysis: "Analysis", name: str, key: str, side: "Side") -> None:
    """Warn once if relevant items of a query compete in a metric of ranking tasks.

    Retrieval has a query metric of the same name.
    """
    instead = query_counterpart(name)
    if not instead or analysis.has_warned("competition"):
        return
    number = analysis.once(("competing", side), lambda: analysis.num_competing(side))
    if number:
        analysis.warn_once(
            "competition",
            "relevant items of one query are candidates of each other (number of such "
            f"queries: {number}), and {shorten(key)} averages over relevant items: to average "
            f"over queries use {instead!r} (mr -> first_mr, mrr -> rr, hits_at_k -> "
            "success_at_k, median_rank -> first_median_rank, auc -> query_auc); for filtered "
            "ranks list the relevant items in exclude",
        )


def check_empty_queries(
    analysis: "Analysis",
    definition: "QueryDefinition",
    side: "Side",
    empty_queries: "EmptyQueries | None",
) -> None:
    """Raise or warn once if queries of a side have no item that a metric counts as relevant."""
    from torchrankmetrics.table.queries import empty_queries_error, of_side

    if empty_queries == "skip" or (empty_queries == "zero" and definition.counts_empty):
        return
    queries = analysis.queries_for(definition)
    is_empty = (queries.num_relevant == 0) & of_side(queries, side)
    if not is_empty.any():
        return
    lacking = "relevant item"
    if definition.relevance not in (None, 1):
        lacking = f"label of at least {definition.relevance:g}"
    if empty_queries == "error":
        number = int(queries.count[is_empty].sum())
        raise ValueError(empty_queries_error(number, lacking))
    # the same text in every batch, so that Python shows it once
    text = f"queries without a {lacking} are not counted"
    about = f"{text} {definition.counts_empty}"
    remedy = f"metrics such as {definition.name} have no value for them"
    if definition.counts_empty:
        remedy = (
            "trec_eval, torchmetrics, ranx and BEIR count them as 0, as empty_queries='zero' does; "
            "for compare and RankStudy pass it to a RankMetric"
        )
    analysis.warn_once(about, f"{text}: {remedy}")
