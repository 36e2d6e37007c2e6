"""Clusters of dependent ranking tasks: sides of a triple, tasks of a query, groups, keys."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import IntArray
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.table.blocks import has_repeats
from torchrankmetrics.table.columns import (
    ABSENT,
    Columns,
    Rows,
    is_empty_query,
    num_copies,
    sorted_rows,
    weights,
)
from torchrankmetrics.validation import shorten

ClusterColumn = Literal["group", "sample_id", "query"]
Cluster = Literal["auto"] | ClusterColumn | Integers
"""Unit of resampling: "auto", the name of a column, or a key for every task."""


class Clusters(NamedTuple):
    """Clusters of rows of tasks, or of entries of a sample."""

    key: IntArray  # (m,) rows of one key are dependent; ABSENT: each task is a cluster of its own
    copies: IntArray  # (m,) number of equal clusters that the rows of a key are counts of
    is_auto: bool = False  # found, not chosen by the user

    def take(self, index: IntArray) -> "Clusters":
        """The clusters of some rows."""
        return Clusters(self.key[index], self.copies[index], self.is_auto)

    def units(self, count: IntArray) -> tuple[IntArray, IntArray]:
        """Index of the cluster of each row (m,), and the number of equal clusters (u,)."""
        single = self.key == ABSENT
        keys, of_key = np.unique(self.key[~single], return_inverse=True)
        index = np.empty(len(self.key), dtype=np.int64)
        index[~single] = of_key
        index[single] = len(keys) + np.arange(single.sum())
        number = np.empty(len(keys) + int(single.sum()), dtype=np.int64)
        number[index] = np.where(single, count, self.copies)
        return index, number


def clusters_of(cluster: Cluster | None, runs: Sequence[Rows], of: str) -> Clusters | None:
    """Clusters of the rows (n, 10) of runs on the same tasks; None: all tasks are independent.

    ValueError, TypeError unless ``cluster`` is None, "auto", a column that has values, or one
    integer per row.
    """
    if cluster is None:
        return None
    rows = runs[0]
    if isinstance(cluster, str):
        if cluster == "auto":
            return automatic_clusters(runs)
        if cluster == "query":
            return query_clusters(runs)
        key = _column(rows, cluster)
    else:
        key = as_ids(cluster, "cluster").cpu().numpy()
        if (key == ABSENT).any():
            raise ValueError(f"cluster must not contain the smallest int64, {ABSENT}")
        key = _with_empty_queries(key, rows)
        if key.shape != (len(rows),):
            raise ValueError(
                f"cluster must have one key per row of {of}, shape ({len(rows)},); got {key.shape}."
                " With sample ids: cluster = query_of[collection.table().sample_id]"
            )
    return Clusters(key, np.ones_like(key))


def _with_empty_queries(key: IntArray, rows: Rows) -> IntArray:
    """Complete keys of tasks among rows (n, 10): each query without a relevant item is alone."""
    is_task = ~is_empty_query(rows)
    if key.shape != (is_task.sum(),):
        return key
    keys = np.full(len(rows), ABSENT)
    keys[is_task] = key
    return keys


def automatic_clusters(runs: Sequence[Rows]) -> Clusters | None:
    """Both sides of a triple if a sample id has two, else tasks of a query; None: neither."""
    ids = np.where(weights(runs[0]) > 0, Columns(runs[0]).sample_id, ABSENT)
    # rows with sample ids are distinct by (side, sample id)
    if has_repeats(ids[ids != ABSENT]):
        return Clusters(ids, np.ones_like(ids), is_auto=True)
    queries = query_clusters(runs)
    size = Columns(runs[0]).count // queries.copies
    named = queries.key != ABSENT
    if has_repeats(queries.key[named]) or (size[named] > 1).any():
        return queries._replace(is_auto=True)
    return None


def query_clusters(runs: Sequence[Rows]) -> Clusters:
    """The tasks of one query, by side and ``query``; other tasks are clusters of their own."""
    rows = runs[0]
    clusters = Clusters(np.full(len(rows), ABSENT), np.ones(len(rows), dtype=np.int64))
    named = np.flatnonzero((Columns(rows).query != ABSENT) & (weights(rows) > 0))
    if not len(named):
        return clusters
    order, starts = query_order([run[named] for run in runs])
    length = np.diff(np.append(starts, len(order)))
    clusters.key[named[order]] = np.repeat(np.arange(len(starts)), length)
    # equal queries without a name of their own are counted in the same rows
    found = rows[named[order]]
    nameless = Columns(found).query[starts] < 0
    if nameless.any():
        inside = np.repeat(nameless, length)
        begins = np.append(0, np.cumsum(length[nameless]))[:-1]
        copies = np.maximum(num_copies(found[inside], begins), 1)
        clusters.copies[named[order[inside]]] = np.repeat(copies, length[nameless])
    return clusters


def query_order(runs: Sequence[Rows]) -> tuple[IntArray, IntArray]:
    """Order of rows by query, and the start of each query in it; names may differ between runs."""
    names = [Columns(run).query for run in runs]
    first = Columns(runs[0])
    # queries without a name of their own also differ by group and weight
    nameless = np.logical_and.reduce([name < 0 for name in names])
    facts = [np.where(nameless, fact, 0) for fact in (first.group, first.weight_bits)]
    return sorted_rows([*names, first.side, *facts])


def entry_clusters(
    clusters: Clusters | None, runs: Sequence[Rows], used: IntArray, definition: Definition
) -> Clusters | None:
    """Clusters of the entries of a sample, of whose rows ``used`` has one each.

    The tasks of an entry of a query metric must be in one cluster; "auto" regards queries that
    share triples as independent.
    """
    if clusters is None:
        return None
    if not definition.entries_are_rows and _splits_queries(clusters, runs):
        if clusters.is_auto:
            return None
        raise ValueError(
            f"cluster must be the same for all tasks of a query, because {shorten(definition.name)}"
            " is a query metric: use cluster='auto', 'group', or None"
        )
    return clusters.take(used)


def _splits_queries(clusters: Clusters, runs: Sequence[Rows]) -> bool:
    queries = query_clusters(runs)
    named = queries.key != ABSENT
    key = queries.key[named]
    own = clusters.key[named]
    order = np.argsort(key, kind="stable")
    same_query = key[order][1:] == key[order][:-1]
    return bool((same_query & (own[order][1:] != own[order][:-1])).any())


def _column(rows: Rows, name: str) -> IntArray:
    """Column of clusters (n,); ValueError for other columns, and if a task has no value in it."""
    if name not in ("group", "sample_id"):
        listed = ", ".join(map(repr, ("auto", *get_args(ClusterColumn))))
        raise ValueError(f"cluster must be {listed}, None or an int64 array, got {shorten(name)}")
    keys = Columns(rows).group if name == "group" else Columns(rows).sample_id
    if ((keys == ABSENT) & ~is_empty_query(rows)).any():
        raise ValueError(
            f"cluster={shorten(name)} needs a {name} for every task: pass {name}= to update (or a "
            "column)"
        )
    return keys


def canonical_clusters(keys: Integers, rows: Rows, of: str) -> IntArray:
    """Clusters of rows with sample ids, in the order of the canonical rows, without repeats."""
    weighed = (weights(rows) > 0) & ~is_empty_query(rows)
    given: Any = clusters_of(keys, [rows], of)
    own = given.key[weighed]
    tasks = np.column_stack([Columns(rows).side, Columns(rows).sample_id])[weighed]
    _, first, index = np.unique(tasks, axis=0, return_index=True, return_inverse=True)
    if (own != own[first][index.reshape(-1)]).any():
        raise ValueError(f"cluster must be the same for all repeats of a task of {of}")
    return np.asarray(own[first])


class SampleSize(NamedTuple):
    """Number of tasks or queries of a sample, and of clusters (None: they are independent)."""

    number: int
    unit: str
    num_clusters: int | None = None
    effective_clusters: float | None = None

    def __str__(self) -> str:
        text = f"{self.number} {self.unit}"
        if self.num_clusters is None or self.effective_clusters is None:
            return text
        text += f" in {self.num_clusters} clusters"
        if round(self.effective_clusters) < self.num_clusters:
            text += f" (effective number {self.effective_clusters:.0f})"
        return text
