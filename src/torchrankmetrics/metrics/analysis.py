"""`Analysis`: cached samples of the rows of an evaluation."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.protocol import Average, EmptyQueries, Side
from torchrankmetrics.definitions.sample import (
    FloatArray,
    IntArray,
    RankSample,
    by_power_of_two,
    distinct_rows,
    in_range,
)
from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.warnings import (
    check_empty_queries,
    warn_of_differing_entries,
    warn_of_missing_targets,
    warn_of_rows,
)
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    SIDE_CODES,
    Columns,
    Rows,
    canonical_rows,
    empty_rows,
    has_unknown,
    raise_faults,
    used,
    weights,
    without_flag,
    without_queries,
)
from torchrankmetrics.validation import TASK_SIDES

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition
    from torchrankmetrics.queries.sample import QuerySample
Found = TypeVar("Found")


class Analysis:
    """Canonical rows of an evaluation, with samples and values that are computed once.

    ``tasks`` are all tasks in any order, ``table_rows`` the same in canonical form. ``rows`` are
    merged further: metrics of ranking tasks need neither queries nor gains. ``empty`` are the
    queries without a relevant item, and ``all_rows`` are ``table_rows`` and ``empty``.
    """

    def __init__(self, blocks: Sequence[Tensor], *, partial: bool = False) -> None:
        rows = _rows_on_host(blocks)
        self.has_rows = len(rows) > 0
        self.empty = rows[:0]  # queries without a relevant item
        self.num_differing = 0  # repeats with other ranks, once ``table_rows`` has dropped them
        self._cache: dict[Hashable, Any] = {}
        self._warned: set[str] = set()
        flags = raise_faults(Columns(rows).flags)
        if flags & (fault.ENTRY | fault.EMPTY):
            rows = self._ranking_tasks(rows)
            flags |= int(np.bitwise_or.reduce(Columns(rows).flags, initial=0))
        of_update = fault.REPEATED | fault.UNLISTED  # facts of an update, not of its tasks
        if flags & fault.UNLISTED:
            warn_of_missing_targets(rows)
        if flags & of_update:
            rows = without_flag(rows, of_update)
        self.tasks = rows  # in any order, from which queries are read
        if not _has_single_tasks(rows):
            self.tasks = self.table_rows
        self.has_queries = bool((Columns(self.tasks).query != ABSENT).any())
        if flags & fault.PARTIAL and not partial and self.num_partial:
            raise ValueError(
                f"{self.num_partial} ranking tasks are a sample that a sequential test ended: "
                "their values are not values of all tasks. Use the SequentialResult, or the "
                "summary() of the table, or rank all tasks"
            )
        warn_of_rows(self, rows, flags)

    def _ranking_tasks(self, rows: Rows) -> Rows:
        """Rank the scores of flat lists, and set queries without a relevant item aside."""
        from torchrankmetrics.table.entries import rank_entries, set_empty_aside

        rows, num_differing = rank_entries(rows)
        if num_differing:
            warn_of_differing_entries(num_differing)
        rows, self.empty = set_empty_aside(rows)
        return rows

    def once(self, key: Hashable, compute: Callable[[], Found]) -> Found:
        """Return a result, computed at the first call with its key."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]  # type: ignore[no-any-return]

    def warn_once(self, about: str, message: str) -> None:
        """Warn unless there was a warning about it."""
        if not self.has_warned(about):
            self._warned.add(about)
            warn(message)

    def has_warned(self, about: str) -> bool:
        """Whether there was a warning about it."""
        return about in self._warned

    @cached_property
    def table_rows(self) -> Rows:
        """Canonical rows of all tasks."""
        self.tasks, self.num_differing = canonical_rows(self.tasks)
        self.tasks.flags.writeable = False  # values of it are cached: copy rows before they leave
        return self.tasks

    @property
    def all_rows(self) -> Rows:
        """Canonical rows of all tasks, and behind them the queries without a relevant item."""
        return np.concatenate([self.table_rows, self.empty]) if len(self.empty) else self.table_rows

    @cached_property
    def task_rows(self) -> Rows:
        """Rows for metrics of ranking tasks: ``table_rows`` without queries and gains, merged."""
        tasks = Columns(self.tasks)
        is_excluded = tasks.flags & fault.EXCLUDED > 0
        if not (self.has_queries or (tasks.gain_bits != ONE).any() or is_excluded.any()):
            return self.table_rows
        return canonical_rows(without_queries(self.table_rows))[0]

    # numbers of tasks with a NaN among their scores, among sampled candidates, and of a sequential
    # evaluation
    num_nan = property(lambda self: self._num_flagged(fault.NAN))
    num_sampled = property(lambda self: self._num_flagged(fault.SAMPLED))
    num_partial = property(lambda self: self._num_flagged(fault.PARTIAL))

    @property
    def sides(self) -> list[Side]:
        """Sides of the rows: a subset of head, tail, relation."""
        return [side for side in TASK_SIDES if SIDE_CODES[side] in Columns(self.task_rows).side]

    def sample(
        self, side: Side = "both", average: Average = "micro", min_candidates: int = 1
    ) -> RankSample:
        """Tasks of a side, with weights that sum to one per group if the average is macro."""

        def read() -> RankSample:
            if side == "both" and min_candidates == 1:
                return sample_of(self.task_rows, average)
            return sample_of(
                self.task_rows.T[:, used(self.task_rows, side, min_candidates)].T, average
            )

        return self.once(("tasks", side, average, min_candidates), read)

    @cached_property
    def queries(self) -> "QuerySample":
        """All queries with the places of their relevant items, equal ones as one entry."""
        from torchrankmetrics.table.queries import merged, queries_of

        rows = np.concatenate([self.tasks, self.empty]) if len(self.empty) else self.tasks
        return merged(queries_of(rows))

    @property
    def num_queries(self) -> int:
        """Number of queries with a relevant item."""
        return int(self.queries.count[self.queries.num_relevant > 0].sum())

    def queries_for(self, definition: "QueryDefinition") -> "QuerySample":
        """The queries with the items that a metric counts as relevant."""
        from torchrankmetrics.table.queries import merged

        def read() -> "QuerySample":
            found = definition.read(self.queries)
            return found if found is self.queries else merged(found)

        return self.once(("queries", definition.relevance), read)

    def query_sample(
        self,
        definition: "QueryDefinition",
        side: Side = "both",
        average: Average = "micro",
        empty_queries: EmptyQueries | None = None,
    ) -> "QuerySample":
        """Queries of a side on which a metric is defined; macro: weights sum to one per group."""
        from torchrankmetrics.table.queries import used_queries

        queries = self.queries_for(definition)
        check_empty_queries(self, definition, side, empty_queries)
        selected = used_queries(definition, queries, side, empty_queries)

        def read() -> "QuerySample":
            used = queries if selected.all() else queries.take(selected)
            return query_sample_of(used, average)

        return self.once((queries, average, selected.tobytes()), read)

    @property
    def group(self) -> IntArray:
        """Groups of the rows, (m,) int64; ValueError if a task has none."""
        group = Columns(self.task_rows).group
        if (group == ABSENT).any():
            raise ValueError(
                "every task needs a group: pass group= to every update (to a file, a column group)"
            )
        return group

    def by_group(self) -> Iterator[tuple[int, "Analysis"]]:
        """Yield the rows of each group, by ascending id."""
        of_empty = Columns(self.empty).group
        ids = np.union1d(self.group, of_empty[of_empty != ABSENT])

        def parts(rows: Rows) -> list[Rows]:
            rows = rows[np.argsort(Columns(rows).group, kind="stable")]
            return np.split(rows, np.searchsorted(Columns(rows).group, ids[1:]))

        # without rows: no group, but one empty part
        for group, rows, table_rows in zip(
            ids.tolist(), parts(self.task_rows), parts(self.table_rows), strict=False
        ):
            part = _GroupAnalysis(self, rows, table_rows, self.empty[of_empty == group])
            yield group, part

    def _num_flagged(self, flag: int) -> int:
        rows = Columns(self.task_rows)
        return int(rows.count[rows.flags & flag > 0].sum())

    def num_competing(self, side: Side) -> int:
        """Number of queries of a side whose relevant items are candidates of each other."""
        rows = Columns(
            self.table_rows[
                used(self.table_rows, side) & (Columns(self.table_rows).query != ABSENT)
            ]
        )
        _, count = distinct_rows((rows.side, rows.query), rows.count)
        _, raw = distinct_rows((rows.side, rows.query), rows.count * (rows.flags & fault.RAW > 0))
        return int(((raw > 0) & (count > 1)).sum())

    def has_relevant_items(self, definition: "QueryDefinition", side: Side) -> bool:
        """Whether a query of a side has an item that a metric counts as relevant."""
        from torchrankmetrics.table.queries import of_side

        queries = self.queries_for(definition)
        return bool((of_side(queries, side) & (queries.num_relevant > 0)).any())


class _GroupAnalysis(Analysis):
    """The rows of one group of an analysis, which checked them and warns for all groups."""

    def __init__(self, whole: Analysis, rows: Rows, table_rows: Rows, empty: Rows) -> None:
        self.empty = empty
        self.task_rows = rows  # rows of queries are merged once, not in every group
        self.table_rows = table_rows
        self.tasks = table_rows
        self.num_differing = 0
        self.has_queries = whole.has_queries
        self._cache = {}
        self._warned = whole._warned


def _rows_on_host(blocks: Sequence[Tensor]) -> Rows:
    """Join blocks of rows in one array, with one copy to the host, here and nowhere before."""
    if not all(block.is_cpu for block in blocks):
        blocks = [torch.cat(list(blocks)).cpu()]
    # by columns, as they are read from here on; NumPy starts no threads
    columns = [block.numpy().T for block in blocks or [empty_rows()]]
    return (np.concatenate(columns, 1) if len(columns) > 1 else columns[0]).T


def _has_single_tasks(rows: Rows) -> bool:
    """Whether each row is one task with a weight and without a sample id: none is dropped."""
    columns = Columns(rows)
    is_single = (columns.sample_id == ABSENT) & (columns.weight_bits != 0) & (columns.count == 1)
    return bool(is_single.all())


def sample_of(rows: Rows, average: Average = "micro") -> RankSample:
    """Read canonical rows as a sample of ranks."""
    columns = Columns(rows)
    weight = _averaged(weights(rows), columns.count, columns.group, average)
    optimistic, pessimistic, num_candidates = columns.ranks.T
    known = None if has_unknown(num_candidates) else num_candidates
    return RankSample(optimistic, pessimistic, known, weight, columns.count)


def query_sample_of(queries: "QuerySample", average: Average = "micro") -> "QuerySample":
    """Scale the weights of queries for an average."""
    return replace(
        queries, weight=in_range(_averaged(queries.weight, queries.count, queries.group, average))
    )


def _averaged(weight: FloatArray, count: IntArray, group: IntArray, average: Average) -> FloatArray:
    """Return the weights, or for macro scale them so that they sum to one per group."""
    if average == "micro":
        return weight
    if (group == ABSENT).any():
        raise ValueError(
            "average='macro' needs a group for every task: pass group= to every update"
        )
    _, index = np.unique(group, return_inverse=True)
    largest = np.zeros(index.max(initial=-1) + 1)
    np.maximum.at(largest, index, weight)
    weight = by_power_of_two(weight, largest[index])  # the sum of a group could overflow or round
    return np.asarray(weight / np.bincount(index, weight * count)[index])
