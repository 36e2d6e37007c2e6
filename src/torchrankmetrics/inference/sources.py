"""Samples of one run or of several runs on the same tasks, with the clusters of their entries."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchrankmetrics.definitions.protocol import Average, EmptyQueries, Side, ValueSample
from torchrankmetrics.definitions.sample import IntArray, Sample
from torchrankmetrics.inference.clusters import (
    Cluster,
    Clusters,
    SampleSize,
    clusters_of,
    entry_clusters,
    query_order,
)
from torchrankmetrics.inference.standard_errors import Units, units_of
from torchrankmetrics.metrics.analysis import Analysis, query_sample_of, sample_of
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.table.columns import ABSENT, Columns, Rows, used, weights

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition
    from torchrankmetrics.queries.sample import QuerySample


class PairedSource(NamedTuple):
    """Samples of runs from rows in one order of tasks or values, with a row of each entry."""

    rows: Sequence[Rows]

    def sample(
        self, side: Side, average: Average, min_candidates: int
    ) -> tuple[Sequence[Any], IntArray]:
        """Ranking tasks of every run."""
        index = np.flatnonzero(used(self.rows[0], side, min_candidates))
        parts = self.rows
        if len(index) < len(self.rows[0]):
            parts = [part.T[:, index].T for part in self.rows]
        return [sample_of(part, average) for part in parts], index

    def value_sample(self, column: int) -> tuple[Sequence[ValueSample], IntArray]:
        """A column of the given values of every run."""
        values = [np.ascontiguousarray(rows[:, column]).view(np.float64) for rows in self.rows]
        return [ValueSample(one) for one in values], np.arange(len(self.rows[0]))

    def query_sample(
        self,
        definition: "QueryDefinition",
        side: Side,
        average: Average,
        empty_queries: EmptyQueries | None = None,
    ) -> tuple[Sequence[Sample], IntArray]:
        """Queries of every run on which the metric is defined; ValueError if queries differ."""
        from torchrankmetrics.table.queries import queries_of, used_queries

        weighed = np.flatnonzero(weights(self.rows[0]) > 0)
        if empty_queries in (None, "skip"):
            weighed = np.flatnonzero(used(self.rows[0], "both"))
        elif len({len(run) for run in self.rows}) > 1:
            raise ValueError(
                "the models differ in which queries have no relevant item: rank the same queries "
                "with both, or leave them out with empty_queries='skip'"
            )
        parts = [run[weighed] for run in self.rows]
        label = _labels(parts)
        found = [definition.read(queries_of(part, label)) for part in parts]
        if not (_have_same_names(parts, label) and _have_same_sizes(found)):
            raise ValueError(
                "the models differ in which tasks are relevant items of one query: rank the same "
                "queries with both, in the same form, or name them with query="
            )
        chosen = used_queries(definition, found[0], side, empty_queries)
        _check_same_weights_and_groups([queries.take(chosen) for queries in found])
        samples = [query_sample_of(queries.take(chosen), average) for queries in found]
        return samples, weighed[found[0].row[chosen]]


def _labels(parts: Sequence[Rows]) -> IntArray:
    """Number of the query of each row, (n,)."""
    label = np.zeros(len(parts[0]), dtype=np.int64)
    if len(label):
        order, starts = query_order(parts)
        label[order[starts[1:]]] = 1
        label[order] = np.cumsum(label[order])
    return label


def _have_same_names(parts: Sequence[Rows], label: IntArray) -> bool:
    """Whether every query that has a name in one run is one query in all runs."""
    has_name = np.stack([Columns(part).query != ABSENT for part in parts])
    if (has_name.any(0) != has_name.all(0)).any():
        return False
    for part in parts:
        own = Columns(part)
        named = Columns(part).query >= 0
        # the label separates different names; equal queries without a name may have several labels
        keys = np.stack([own.side, own.query, label], 1)[named]
        if len(np.unique(keys, axis=0)) > len(np.unique(keys[:, :2], axis=0)):
            return False
    return True


def _have_same_sizes(found: "Sequence[QuerySample]") -> bool:
    first = found[0]
    return all(
        np.array_equal(one.count, first.count)
        and np.array_equal(one.num_relevant, first.num_relevant)
        for one in found
    )


def _check_same_weights_and_groups(found: "Sequence[QuerySample]") -> None:
    """Raise a ValueError if queries differ; only empty ones can, tasks were compared before."""
    for name in ("weight", "group"):
        expected = getattr(found[0], name)
        if not all(np.array_equal(getattr(queries, name), expected) for queries in found):
            raise ValueError(
                f"the models differ in {name} of queries without a relevant item: pass the same "
                f"{name}= for both"
            )


class ClusteredSource:
    """Samples of an evaluation with the clusters of their entries, or of counted equal entries."""

    def __init__(self, analysis: Analysis, cluster: Cluster | None) -> None:
        self.analysis = analysis
        self.clusters: Clusters | None = None
        if cluster is None:
            return
        self.clusters = clusters_of(cluster, [analysis.all_rows], "table()")
        if (
            not isinstance(cluster, str)
            and (Columns(analysis.table_rows).sample_id == ABSENT).any()
        ):
            raise ValueError(
                "cluster as an array needs a sample_id for every task, because rows without one "
                "are sorted and merged: pass sample_id= to every update, or cluster='group'"
            )

    def sample(self, measure: Measure) -> tuple[Any, Clusters | None]:
        """Sample of a measure, and the clusters of its entries."""
        if self.clusters is None:
            return measure.sample(self.analysis), None
        source = PairedSource([self.analysis.all_rows])
        (sample,), used = measure.sample(source)
        return sample, entry_clusters(self.clusters, source.rows, used, measure.definition)

    def size(self, measure: Measure | None = None) -> SampleSize:
        """Size of the sample of a measure; None: of all tasks."""
        if measure is not None:
            sample, clusters = self.sample(measure)
        elif self.clusters is None:
            sample = self.analysis.sample()
            clusters = None
        else:
            (sample,), used = PairedSource([self.analysis.all_rows]).sample("both", "micro", 1)
            clusters = self.clusters.take(used)
        units = units_of(sample.weight, sample.weight, sample.count, clusters)
        of_queries = measure is not None and measure.definition.of_tasks is None
        unit = "queries" if of_queries else "tasks"
        return sample_size(units, sample.num_tasks, unit)


def sample_size(units: Units, number: int, unit: str) -> SampleSize:
    """Number of tasks or queries, and of their clusters unless they are independent."""
    if not units.clustered:
        return SampleSize(number, unit)
    return SampleSize(number, unit, units.size, units.effective)
