"""Rows of several models aligned on the same ranking tasks or queries."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchrankmetrics.definitions.candidates import IntArray
from torchrankmetrics.definitions.protocol import Average, SampleSource, Side
from torchrankmetrics.definitions.sample import Sample
from torchrankmetrics.inference.intervals import Cluster, canonical_clusters, given_clusters, named_clusters
from torchrankmetrics.inference.sources import Collected, Evaluation, as_table, check_complete
from torchrankmetrics.metrics.analysis import Analysis, query_sample_of, sample_of
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.table.canonical import canonical_rows
from torchrankmetrics.table.columns import ABSENT, SIDES_BY_CODE, WIDTH, Columns, Rows, gains, used, weights
from torchrankmetrics.table.rank_table import RankTable

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition
    from torchrankmetrics.queries.sample import QuerySample

_SHOWN = 3


def paired_rows(
    runs: list[Evaluation], names: list[str], cluster: Cluster | None = None
) -> tuple[list[Rows], IntArray | None]:
    """Rows of every run in one common order of tasks, and the cluster of each task.

    Tasks are aligned by (side, sample id) if they have sample ids, else by order.

    Args:
        runs: each a ``RankTable``, ``RankCollection`` or ``Ranks``.
        names: their names in errors.
        cluster: None, "group", "sample_id", or int64 keys aligned with the tasks of the first run: the rows of its
            ``table()`` for a collection with sample ids, else the tasks in input order.

    Raises:
        TypeError: if the keys are not integers.
        ValueError: if the runs have different tasks, or their order is unknown.
    """
    given = [_rows(run, name) for run, name in zip(runs, names, strict=True)]
    named = [bool((Columns(rows).sample_id != ABSENT).any()) for rows in given]
    if any(named):
        for rows, name in zip(given, names, strict=True):
            if (Columns(rows).sample_id == ABSENT).any():
                raise ValueError(
                    f"{name} has tasks without a sample_id, others have them: pass sample_id= to every update of both"
                )
    # an analysis warns of NaN scores and of repeats that differ, and raises errors that an accelerator has flagged
    analyses = [Analysis([torch.from_numpy(rows)]) for rows in given]
    if any(named):
        ordered = [analysis.table_rows for analysis in analyses]
        _check_same_ids(ordered, names)
    else:
        ordered = given
        for run, rows, name in zip(runs, ordered, names, strict=True):
            _check_order(run, rows, name)
            if len(rows) != len(ordered[0]):
                raise ValueError(
                    f"{name} has {len(rows)} tasks, {names[0]} has {len(ordered[0])}; without sample ids tasks are "
                    "aligned by order: pass sample_id= to every update, or ranks of the same tasks in the same order"
                )
    for rows, name in zip(ordered[1:], names[1:], strict=True):
        check_same_tasks(ordered[0], rows, names[0], name)
    keys = _clusters(cluster, runs[0], given[0], ordered[0], names[0])
    return ordered, keys


def _rows(run: Evaluation, name: str) -> Rows:
    table = as_table(run.local_table() if isinstance(run, Collected) else run)
    check_complete(table, name)
    return table.rows.cpu().numpy()


def _check_order(run: Evaluation, rows: Rows, name: str) -> None:
    if isinstance(run, Ranks):
        return
    merged = bool((Columns(rows).count != 1).any())
    stored = isinstance(run, Collected) and run.storage == "counts"
    # rows sorted as compact() and table() sort them have lost the order of tasks
    sorted_ = isinstance(run, RankTable) and len(rows) > 1 and np.array_equal(canonical_rows(rows)[0], rows)
    if merged or stored or sorted_:
        raise ValueError(
            f"{name} has no sample ids and its rows are sorted or merged, as table(), compact() and storage='counts' "
            "return them: their order may not be that of the tasks. Pass sample_id= to every update (to a file, a "
            "column sample_id), or compare Ranks or the collections"
        )


def _check_same_ids(ordered: list[Rows], names: list[str]) -> None:
    first, *others = (np.stack([Columns(rows).side, Columns(rows).sample_id], 1) for rows in ordered)
    for ids, name in zip(others, names[1:], strict=True):
        if np.array_equal(ids, first):
            continue
        a, b = (set(map(tuple, part.tolist())) for part in (first, ids))
        parts = [
            f"{where} lacks {len(lost)}: {_listed(lost)}" for where, lost in ((names[0], b - a), (name, a - b)) if lost
        ]
        raise ValueError(f"{names[0]} and {name} are not of the same tasks (side, sample_id): {'; '.join(parts)}")


def _listed(lost: set[tuple[int, int]]) -> str:
    listed = ", ".join(f"({SIDES_BY_CODE[side]}, {sample})" for side, sample in sorted(lost)[:_SHOWN])
    return listed + (", ..." if len(lost) > _SHOWN else "")


def check_same_tasks(a: Rows, b: Rows, name_a: str, name_b: str) -> None:
    """Raise a ValueError if tasks differ in anything except their ranks; rows (n, 10) of both, in one order."""
    for column, x, y in (
        ("side", Columns(a).side, Columns(b).side),
        ("num_candidates", Columns(a).num_candidates, Columns(b).num_candidates),
        ("group", Columns(a).group, Columns(b).group),
        ("weight", weights(a), weights(b)),
        ("gain", gains(a), gains(b)),
    ):
        different = np.flatnonzero(x != y)
        if len(different):
            at = int(different[0])
            sample = Columns(a).sample_id[at]
            task = f"task {at}" if sample == ABSENT else f"task {_listed({(int(Columns(a).side[at]), int(sample))})}"
            raise ValueError(
                f"{name_a} and {name_b} differ in {column} at {len(different)} tasks, first {task}: "
                f"{x[at]} and {y[at]}; "
                "use the same tasks, filter and weights for all models"
            )


def _clusters(cluster: Cluster | None, run: Evaluation, given: Rows, ordered: Rows, name: str) -> IntArray | None:
    if cluster is None or isinstance(cluster, str):
        return None if cluster is None else named_clusters(ordered, cluster)
    # the keys of a collection are aligned with table(), which drops repeats and sorts
    if ordered is given or isinstance(run, Collected):
        return given_clusters(cluster, len(ordered), name)
    return canonical_clusters(cluster, given, name)


def paired_source(rows: Sequence[Rows]) -> SampleSource:
    """Return the source of samples of several runs, from rows in one order of tasks, or of values of queries."""
    if rows[0].shape[1] == WIDTH:
        return PairedSource(rows)
    from torchrankmetrics.inference.values import PairedValues

    return PairedValues(rows)


class PairedSource:
    """Samples of several runs, from ``rows`` in one order of tasks, with the index of a row of each entry."""

    def __init__(self, rows: Sequence[Rows]) -> None:
        self.rows = rows

    def sample(self, side: Side, average: Average, min_candidates: int) -> tuple[list[Sample], IntArray]:
        """Ranking tasks of every run."""
        index = np.flatnonzero(used(self.rows[0], side, min_candidates))
        parts = self.rows if len(index) == len(self.rows[0]) else [part.T[:, index].T for part in self.rows]
        return [sample_of(part, average) for part in parts], index

    def query_sample(
        self, definition: "QueryDefinition", side: Side, average: Average
    ) -> tuple[list[Sample], IntArray]:
        """Queries of every run on which the metric is defined; ValueError if the runs have different queries."""
        from torchrankmetrics.table.queries import of_side

        weighed = np.flatnonzero(weights(self.rows[0]) > 0)
        parts = [run[weighed] for run in self.rows]
        names = np.stack([Columns(part).query for part in parts], 1)
        alone = names == ABSENT
        if (alone.any(1) != alone.all(1)).any():
            raise _differing()
        # queries without names also differ by group and weight
        about = Columns(parts[0])
        facts = [about.side, *(np.where((names < 0).all(1), fact, 0) for fact in (about.group, about.weight_bits))]
        label = np.unique(np.column_stack([names, *facts]), axis=0, return_inverse=True)[1].reshape(-1)
        found = [definition.read(_queries(part, label)) for part in parts]
        first = found[0]
        for other in found[1:]:
            same = len(other) == len(first) and np.array_equal(other.count, first.count)
            if not same or not np.array_equal(other.num_answers, first.num_answers):
                raise _differing()
        used_rows = definition.has_value(first.num_candidates, first.num_answers) & of_side(first, side)
        return [query_sample_of(queries.take(used_rows), average) for queries in found], weighed[first.row[used_rows]]


def _queries(rows: Rows, label: IntArray) -> "QuerySample":
    """Queries by a label that separates different names; equal queries without a name may have several labels."""
    from torchrankmetrics.table.queries import queries_of

    query = Columns(rows).query
    named = query >= 0
    pairs = np.stack([Columns(rows).side, query, label], 1)[named]
    if len(np.unique(pairs, axis=0)) != len(np.unique(pairs[:, :2], axis=0)):
        raise _differing()
    return queries_of(rows, label)


def _differing() -> ValueError:
    return ValueError(
        "the models differ in which tasks are relevant items of one query: rank the same queries with both, in the "
        "same form, or name them with query="
    )
