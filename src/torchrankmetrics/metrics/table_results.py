"""Results of a table of ranks by names of metrics: summary, breakdown and values by query."""

from typing import Any

import numpy as np

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import Breakdown, break_down
from torchrankmetrics.metrics.names import MetricLike, Metrics, as_measure
from torchrankmetrics.metrics.selection import Selection
from torchrankmetrics.metrics.summary import Summary, summarize
from torchrankmetrics.rendering.tabular import Names
from torchrankmetrics.table.columns import Columns, HasRows
from torchrankmetrics.table.queries import queries_of, used_queries


def summary_of(table: HasRows, metrics: Metrics | None) -> Summary:
    """Tabulate metrics by side."""
    analysis = Analysis([table.rows], partial=True)
    return summarize(analysis, Selection().measures(metrics))


def breakdown_of(table: HasRows, metrics: Metrics | None, names: Names) -> Breakdown:
    """Tabulate metrics by group."""
    analysis = Analysis([table.rows], partial=True)
    return break_down(analysis, Selection().measures(metrics), names)


def query_values_of(table: HasRows, metric: MetricLike) -> dict[int, float]:
    """Values of a metric of queries by ``query``; ValueError if a query has no name of its own."""
    measure = as_measure(metric)
    definition: Any = measure.definition
    rows = Analysis([table.rows]).all_rows
    if measure.view != "base" or definition.entries_are_rows:
        raise ValueError(
            f"metric must be a metric of queries in its base view, got {measure.key!r}"
        )
    queries = definition.read(queries_of(rows))
    chosen = used_queries(definition, queries, measure.side, measure.empty_queries)
    names = Columns(rows).query[queries.row[chosen]]
    if (names < 0).any() or len(np.unique(names)) < len(names):
        raise ValueError(
            "query must name every query: pass query= to every update, and a metric of one side"
        )
    values = definition.unit_values(queries, measure.rank_type)[chosen]
    return dict(zip(names.tolist(), values.tolist(), strict=True))
