"""What a ``RankTable`` is asked directly: its methods look these functions up."""

from typing import Any

from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.breakdown import Breakdown, Names, break_down
from torchrankmetrics.evaluation.clusters import Cluster, canonical_clusters
from torchrankmetrics.evaluation.intervals import Intervals, confidence_intervals
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.selection import DEFAULT_METRICS, Metrics, Selection
from torchrankmetrics.evaluation.summary import Summary, summarize
from torchrankmetrics.table.columns import ABSENT, Columns
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION


def summary(table: RankTable, metrics: Metrics | None) -> Summary:
    """See ``RankTable.summary``."""
    return summarize(Analysis([table.rows], partial=True), _measures(metrics).values())


def breakdown(table: RankTable, metrics: Metrics | None, names: Names) -> Breakdown:
    """See ``RankTable.breakdown``."""
    return break_down(Analysis([table.rows], partial=True), _measures(metrics).values(), names)


def intervals(table: RankTable, metrics: Metrics | None, cluster: Cluster | None, **asked: Any) -> Intervals:
    """See ``RankTable.confidence_intervals``."""
    rows = table.rows.cpu().numpy()
    if cluster is not None and not isinstance(cluster, str) and (Columns(rows).sample_id != ABSENT).all():
        cluster = canonical_clusters(cluster, rows, "the table")
    return confidence_intervals(Analysis([table.rows]), _measures(metrics), cluster=cluster, **asked)


def _measures(metrics: Metrics | None) -> dict[str, Measure]:
    selection = Selection("base", "realistic", "both", DEFAULT_EXPECTATION)
    return selection.measures(DEFAULT_METRICS if metrics is None else metrics)
