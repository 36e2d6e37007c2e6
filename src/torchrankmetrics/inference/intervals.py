"""Confidence intervals of the metrics of one evaluation."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torchrankmetrics.errors import warn
from torchrankmetrics.inference.clusters import Cluster, SampleSize, canonical_clusters
from torchrankmetrics.inference.sources import ClusteredSource
from torchrankmetrics.inference.standard_errors import METHODS, Estimate, Method, estimate
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import Metrics
from torchrankmetrics.metrics.selection import Selection
from torchrankmetrics.metrics.warnings import warn_of_nothing
from torchrankmetrics.rendering import ROW, Column, Rendered, Tabular
from torchrankmetrics.table.columns import ABSENT, Columns, HasRows, is_empty_query
from torchrankmetrics.validation import check_choice, check_int, one_number, shorten

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
            influences (of shares over the kurtosis of their weights, infinite for equal ones).
            Below 5 the interval misses more often than stated.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> table = RankTable.from_ranks(Ranks([1, 2, 1, 3, 1, 2] * 20, None, 9))
    >>> print(table.confidence_intervals(["mrr"])["mrr"])
    mrr 0.7222 [0.6704, 0.7732]
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

    >>> from torchrankmetrics import Ranks, RankTable
    >>> table = RankTable.from_ranks(Ranks([1, 2, 1, 3, 1, 2] * 20, None, 9))
    >>> print(table.confidence_intervals(["mrr", "hits@1"]))
    metric      value     low    high
    ---------  ------  ------  ------
    mrr        0.7222  0.6704  0.7732
    hits_at_1  0.5000  0.4111  0.5889
    95% (normal), 120 tasks
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
        columns = [Column("metric", key=True)]
        columns += [Column(name, metric=ROW) for name in ("value", "low", "high")]
        more = ("standard_error", "effective_tasks")
        columns += [Column(name, audience="programs") for name in more]
        size = SampleSize(self.num_tasks, self.unit, self.num_clusters, self.effective_clusters)
        note = f"{100 * self.confidence_level:g}% ({self.method}), {size}"
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
    few = []
    for key, number in effective_tasks.items():
        if number < LEAST_EFFECTIVE_TASKS:
            size = f"effective number of tasks {number:.1f}" if number else "zero variance"
            few.append(f"{shorten(key)} ({size})")
    if few:
        warn(
            f"the interval of {', '.join(few)} may be too narrow: fewer than "
            f"{LEAST_EFFECTIVE_TASKS:g} tasks or clusters, for example of very large ranks, "
            "determine its standard error. Use more tasks, or a metric that depends less on large "
            "ranks, such as hits@10"
        )


def confidence_intervals(
    analysis: Analysis,
    measures: Mapping[str, Measure],
    confidence_level: float,
    method: Method,
    cluster: Cluster | None,
    n_resamples: int,
    seed: int,
) -> Intervals:
    """Compute the intervals of all measures that are estimates, for ``RankCollection``."""
    confidence_level = check_confidence_level(confidence_level)
    check_choice("method", method, METHODS)
    check_int("n_resamples", n_resamples, 100)
    check_int("seed", seed, 0)
    estimated = {key: measure for key, measure in measures.items() if measure.is_estimate}
    _check_formula(estimated, method)
    warn_of_nothing(analysis, measures.values())
    source = ClusteredSource(analysis, cluster)
    found: dict[Measure, Estimate] = {}
    rows = []
    for key, measure in estimated.items():
        base = dataclasses.replace(measure, view="base")
        sample, clusters = source.sample(measure)
        if base not in found:
            found[base] = estimate(
                measure.definition,
                sample,
                measure.rank_type,
                confidence_level,
                method,
                clusters,
                n_resamples,
                seed,
            )
        rows.append(_interval(key, measure, analysis, found[base].in_view(measure, sample)))
    warn_of_few_tasks({row.metric: row.effective_tasks for row in rows})
    size = _size(source, estimated)
    return Intervals(
        tuple(rows),
        confidence_level,
        method,
        size.number,
        size.num_clusters,
        size.effective_clusters,
        size.unit,
    )


def _interval(key: str, measure: Measure, analysis: Analysis, found: Estimate) -> Interval:
    return Interval(key, measure.value_or_nan(analysis), **found._asdict())


def intervals_of(
    table: HasRows,
    metrics: Metrics | None,
    confidence_level: float,
    method: Method,
    cluster: Cluster | None,
    n_resamples: int,
    seed: int,
) -> Intervals:
    """Compute the intervals of metrics of a table, for ``RankTable.confidence_intervals``."""
    rows = table.rows.cpu().numpy()
    has_ids = (Columns(rows[~is_empty_query(rows)]).sample_id != ABSENT).all()
    if cluster is not None and not isinstance(cluster, str) and has_ids:
        cluster = canonical_clusters(cluster, rows, "the table")
    options = confidence_level, method, cluster, n_resamples, seed
    return confidence_intervals(Analysis([table.rows]), Selection().measures(metrics), *options)


def _check_formula(measures: Mapping[str, Measure], method: Method) -> None:
    others = [
        repr(key)
        for key, one in measures.items()
        if not one.definition.is_function_of_mean(one.rank_type)
    ]
    if method == "normal" and others:
        raise ValueError(
            f"method='normal' has no standard error for {', '.join(others)}: only functions of a "
            "mean have a formula; use method='bootstrap'"
        )


def _size(source: ClusteredSource, measures: Mapping[str, Measure]) -> SampleSize:
    """Number of tasks, or of queries if no metric is of tasks."""
    if not measures or any(one.definition.of_tasks is not None for one in measures.values()):
        return source.size()
    sizes = [source.size(measure) for measure in measures.values()]
    return max(sizes, key=lambda size: size.number)
