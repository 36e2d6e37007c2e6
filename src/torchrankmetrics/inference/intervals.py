"""Confidence intervals of the metrics of one evaluation."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from torchrankmetrics.definitions.sample import IntArray
from torchrankmetrics.errors import warn
from torchrankmetrics.inference.standard_errors import METHODS, Estimate, Method, estimate, units_of
from torchrankmetrics.metrics.measure import Analysis, Measure
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.rendering import ROW, Column, Rendered, Tabular
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, is_empty_query, used
from torchrankmetrics.validation import check_choice, check_int, one_number, shorten

Cluster = Literal["group", "sample_id"] | Integers
"""Unit of resampling: the name of a column, or a key for every task."""
# below it 95% intervals covered less than 93% in simulations: python -m benchmarks.calibration
LEAST_EFFECTIVE_TASKS = 5.0


Row = TypeVar("Row", bound=Any)  # with a key ``metric``


@dataclass(frozen=True)
class Interval:
    """A metric with its confidence interval.

    Attributes:
        metric (str): canonical key.
        value, low, high (float): value of the metric, and the ends of the interval.
        standard_error (float): in the units of the value.
        effective_tasks (float): effective number of tasks or clusters, n over the kurtosis of their
            influences; infinite for methods such as Wilson's. Below 5 the interval misses more
            often than stated.
    """

    metric: str
    value: float
    low: float
    high: float
    standard_error: float
    effective_tasks: float = math.inf

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Intervals(Rendered):
    """Intervals by metric key, for example ``intervals["mrr"].low``.

    Attributes:
        rows (tuple): one ``Interval`` per metric.
        confidence_level, method (float, str): level in (0, 1); "normal" or "bootstrap".
        num_tasks, unit (int, str): number of "tasks", or of "queries" if all metrics are query
            metrics.
        num_clusters, effective_clusters (int, float): number of clusters, and the effective one,
            None without clusters; well below 100 the intervals miss more often than stated.
    """

    rows: tuple[Interval, ...]
    confidence_level: float
    method: Method
    num_tasks: int
    num_clusters: int | None
    effective_clusters: float | None
    unit: str = "tasks"

    def __getitem__(self, key: str) -> Interval:
        return row_of(self.rows, key)

    def tabular(self) -> Tabular:
        """Columns, cells and notes."""
        columns = (
            Column("metric", key=True),
            *(Column(name, metric=ROW) for name in ("value", "low", "high")),
            *(Column(name, audience="programs") for name in ("standard_error", "effective_tasks")),
        )
        clusters = in_clusters(self.num_clusters, self.effective_clusters)
        note = f"{100 * self.confidence_level:g}% ({self.method}), {self.num_tasks} {self.unit}{clusters}"
        return Tabular(columns, [dataclasses.astuple(row) for row in self.rows], (note,))


def row_of(rows: Sequence[Row], key: str) -> Row:
    """Return the result of a metric; KeyError if it is not there."""
    for row in rows:
        if row.metric == key:
            return row
    raise KeyError(
        f"no result for {shorten(key)}; available: "
        f"{', '.join(dict.fromkeys(row.metric for row in rows))}"
    )


def in_clusters(number: int | None, effective: float | None) -> str:
    """Describe the number of clusters, and the effective one; "" without clusters."""
    return "" if number is None else f" in {number} clusters (effective number {effective:.0f})"


def check_confidence_level(
    given: float, name: str = "confidence_level", example: float = 0.95
) -> float:
    """Read a confidence level, or another probability; ValueError outside (0, 1)."""
    number = one_number(given)
    if number is None or not 0 < number < 1:
        raise ValueError(f"{name} must be in (0, 1), for example {example}; got {shorten(given)}")
    return number


def warn_of_few_tasks(effective_tasks: Mapping[str, float]) -> None:
    """Warn of metrics whose standard error depends on too few tasks or clusters."""
    few = [
        f"{shorten(key)} "
        f"({f'effective number of tasks {number:.1f}' if number else 'zero variance'})"
        for key, number in effective_tasks.items()
        if number < LEAST_EFFECTIVE_TASKS
    ]
    if few:
        warn(
            f"the interval of {', '.join(few)} may be too narrow: fewer than "
            f"{LEAST_EFFECTIVE_TASKS:g} tasks or clusters, for example of very large ranks, "
            "determine its standard error. Use more tasks, or a metric that depends less on large "
            "ranks, such as hits@10"
        )


def named_clusters(rows: Rows, name: str) -> IntArray:
    """Cluster of every row (n,) from a column; ValueError for other columns, and if a task has no value in it."""
    if name not in ("group", "sample_id"):
        raise ValueError(
            f"cluster must be 'group', 'sample_id' or an int64 array, got {shorten(name)}"
        )
    keys = Columns(rows).group if name == "group" else Columns(rows).sample_id
    if ((keys == ABSENT) & ~is_empty_query(rows)).any():
        raise ValueError(
            f"cluster={shorten(name)} needs a {name} for every task: pass {name}= to update (or a "
            "column)"
        )
    return keys


def clusters_of(cluster: Cluster | None, rows: Rows, of: str) -> IntArray | None:
    """Cluster of every row (n,) from a column or an array; TypeError, ValueError unless it has one integer per row.

    An array may leave out queries without a relevant item, which are one more cluster then.
    """
    if isinstance(cluster, str | None):
        return None if cluster is None else named_clusters(rows, cluster)
    array = as_ids(cluster, "cluster").cpu().numpy()
    is_task = ~is_empty_query(rows)
    if array.shape == (is_task.sum(),) != (len(rows),):
        keys = np.full(len(rows), ABSENT)
        keys[is_task] = array
        return keys
    if array.shape != (len(rows),):
        raise ValueError(
            f"cluster must have one key per row of {of}, shape ({len(rows)},); got {array.shape}. "
            "With sample ids: cluster = query_of[collection.table().sample_id]"
        )
    return array


def canonical_clusters(keys: Integers, rows: Rows, of: str) -> IntArray:
    """Clusters of rows with sample ids, in the order of the canonical rows, without repeats."""
    weighed = used(rows, "both")
    own = np.asarray(clusters_of(keys, rows, of))[weighed]
    tasks = np.column_stack([Columns(rows).side, Columns(rows).sample_id])[weighed]
    _, first, index = np.unique(tasks, axis=0, return_index=True, return_inverse=True)
    if (own != own[first][index.reshape(-1)]).any():
        raise ValueError(f"cluster must be the same for all repeats of a task of {of}")
    return np.asarray(own[first])


def confidence_intervals(
    analysis: Analysis,
    measures: Mapping[str, Measure],
    confidence_level: float,
    method: Method,
    cluster: Cluster | None,
    n_resamples: int,
    seed: int,
) -> Intervals:
    """Compute the intervals of all measures that are estimates, for ``RankCollection.confidence_intervals``."""
    confidence_level = check_confidence_level(confidence_level)
    check_choice("method", method, METHODS)
    check_int("n_resamples", n_resamples, 100)
    check_int("seed", seed, 0)
    keys = clusters_of(cluster, np.concatenate([analysis.rows, analysis.empty]), "table()")
    keys = None if keys is None else keys[: len(analysis.rows)]
    if not isinstance(cluster, str | None) and (Columns(analysis.rows).sample_id == ABSENT).any():
        raise ValueError(
            "cluster as an array needs a sample_id for every task, because rows without one are "
            "sorted and merged: pass sample_id= to every update, or cluster='group'"
        )
    estimated = {key: measure for key, measure in measures.items() if measure.is_estimate}
    others = [
        repr(key)
        for key, one in estimated.items()
        if not one.definition.is_function_of_mean(one.rank_type)
    ]
    if method == "normal" and others:
        raise ValueError(
            f"method='normal' has no standard error for {', '.join(others)}: only functions of a "
            "mean have a formula; use method='bootstrap'"
        )
    found: dict[Measure, Estimate] = {}
    rows = []
    for key, measure in estimated.items():
        sample, own, tasks = measure.sample(analysis), keys, measure.definition.of_tasks
        base = dataclasses.replace(measure, view="base")
        if base not in found:
            if keys is not None and tasks is not None:
                own = keys[used(analysis.rows, measure.side, tasks.min_candidates)]
            elif keys is not None:
                own = clusters_of_queries(analysis, measure, cluster)
            options = confidence_level, method, own, n_resamples, seed
            found[base] = estimate(measure.definition, sample, measure.rank_type, *options)
        in_view = found[base].in_view(measure, sample)
        rows.append(Interval(key, measure.value_or_nan(analysis), **in_view._asdict()))
    warn_of_few_tasks({row.metric: row.effective_tasks for row in rows})
    sample, number, effective = analysis.sample(), None, None
    if keys is not None:
        clusters = units_of(
            sample.weight, sample.weight, sample.count, keys[used(analysis.rows, "both")]
        )
        number, effective = clusters.size, clusters.effective
    num_tasks, unit = sample.num_tasks, "tasks"
    if estimated and all(measure.definition.of_tasks is None for measure in estimated.values()):
        num_tasks, unit = (
            max(measure.sample(analysis).num_tasks for measure in estimated.values()),
            "queries",
        )
    return Intervals(tuple(rows), confidence_level, method, num_tasks, number, effective, unit)


def clusters_of_queries(analysis: Analysis, measure: Measure, cluster: Cluster | None) -> IntArray:
    """Clusters of the queries of an analysis, their groups; ValueError for others."""
    if not isinstance(cluster, str) or cluster != "group":
        raise ValueError(
            f"cluster must be 'group' or None for {measure.key!r}: its units are queries, not tasks"
        )
    queries: Any = measure.sample(analysis)
    return queries.group  # type: ignore[no-any-return]
