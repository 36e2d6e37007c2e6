"""Samples of the rows of an evaluation, computed once and shared by all metrics."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.definitions.protocol import Average, Side
from torchrankmetrics.definitions.sample import (
    FloatArray,
    IntArray,
    RankSample,
    by_power_of_two,
    distinct_rows,
    in_range,
)
from torchrankmetrics.errors import warn
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
    used,
    weights,
    without_flag,
    without_queries,
)
from torchrankmetrics.validation import TASK_SIDES, shorten

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition
    from torchrankmetrics.queries.sample import QuerySample
Found = TypeVar("Found")


class Analysis:
    """Canonical rows of an evaluation, with samples and values that are computed on first use and cached."""

    def __init__(self, blocks: Sequence[Tensor], *, partial: bool = False) -> None:
        if not all(block.is_cpu for block in blocks):  # one copy to the host, here and nowhere before
            blocks = [torch.cat(list(blocks)).cpu()]
        # by columns, as they are read from here on; NumPy starts no threads
        columns = [block.numpy().T for block in blocks or [empty_rows()]]
        rows = (np.concatenate(columns, 1) if len(columns) > 1 else columns[0]).T
        seen = fault.raise_faults(Columns(rows).flags)
        repeated = bool(seen & fault.REPEATED)
        if repeated:
            rows = without_flag(rows, fault.REPEATED)  # a property of the update, not of the task
        self._tasks, self._differing, given = rows, 0, Columns(rows)  # queries are read from any order of rows
        if not ((given.sample_id == ABSENT) & (given.weight_bits != 0) & (given.count == 1)).all():
            self._tasks = self.table_rows
        self.has_queries = bool((Columns(self._tasks).query != ABSENT).any())
        self._cache: dict[Hashable, Any] = {}
        self._warned: set[str] = set()
        if seen & fault.PARTIAL and not partial and self.num_partial:
            raise ValueError(
                f"{self.num_partial} ranking tasks are a sample that a sequential test ended: their values are not "
                "values of all tasks. Use the SequentialResult, or the summary() of the table, or rank all tasks"
            )
        if repeated:
            warn(
                "sample_id repeats within one update, and repeats count once: resampled rows (BootStrapper) or several "
                "tasks under one id are lost. Give each task its own id or none; for intervals there is "
                "RankCollection.confidence_intervals"
            )
        if len(rows) and not len(self._tasks):
            warn(
                "every ranking task has the weight 0 or the gain 0, and values are NaN: pass numbers above 0 for tasks "
                "that count"
            )
        if self._differing:
            # equal repeats that storage="counts" merged are not counted
            lost = int(Columns(rows).count[weights(rows) > 0].sum() - Columns(self.table_rows).count.sum())
            warn(
                f"{self._differing} repeated (side, sample_id) came with different ranks; the smallest row of each is "
                f"kept, and at least {lost} ranking tasks are dropped. Repeats should be the same task scored "
                "by the same model; for sample_id pass the index in the dataset, not the position in the batch"
            )
        if seen & fault.NAN and self.num_nan:
            warn(
                f"{self.num_nan} of {int(Columns(self.rows).count.sum())} ranking tasks have NaN scores; "
                "a NaN never helps: a NaN true score ranks last, a NaN candidate counts as better than the truth"
            )

    def once(self, key: Hashable, compute: Callable[[], Found]) -> Found:
        """Return a result, computed at the first call with its key."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]  # type: ignore[no-any-return]

    def warn_once(self, about: str, message: str) -> None:
        """Warn unless there was a warning about it."""
        if about not in self._warned:
            self._warned.add(about)
            warn(message)

    @cached_property
    def table_rows(self) -> Rows:
        """Canonical rows of all tasks."""
        self._tasks, self._differing = canonical_rows(self._tasks)
        self._tasks.flags.writeable = False  # values of it are cached: copy rows before they leave
        return self._tasks

    @cached_property
    def rows(self) -> Rows:
        """What metrics of ranking tasks use: ``table_rows`` without queries and gains, equal rows counted together."""
        if not self.has_queries and not (Columns(self._tasks).gain_bits != ONE).any():
            return self.table_rows
        return canonical_rows(without_queries(self.table_rows))[0]

    # numbers of tasks with a NaN among their scores, among sampled candidates, and of a sequential evaluation
    num_nan = property(lambda self: self._num_flagged(fault.NAN))
    num_sampled = property(lambda self: self._num_flagged(fault.SAMPLED))
    num_partial = property(lambda self: self._num_flagged(fault.PARTIAL))

    @property
    def sides(self) -> list[Side]:
        """Sides of the rows: a subset of head, tail, relation."""
        return [side for side in TASK_SIDES if SIDE_CODES[side] in Columns(self.rows).side]

    def sample(self, side: Side = "both", average: Average = "micro", min_candidates: int = 1) -> RankSample:
        """Tasks of a side, with weights that sum to one per group if the average is macro."""

        def read() -> RankSample:
            if side == "both" and min_candidates == 1:
                return sample_of(self.rows, average)
            return sample_of(self.rows.T[:, used(self.rows, side, min_candidates)].T, average)

        return self.once(("tasks", side, average, min_candidates), read)

    @cached_property
    def queries(self) -> "QuerySample":
        """All queries with the places of their relevant items, equal ones as one entry."""
        from torchrankmetrics.table.queries import merged, queries_of

        return merged(queries_of(self._tasks))

    def queries_for(self, definition: "QueryDefinition") -> "QuerySample":
        """The queries with the items that a metric counts as relevant."""
        from torchrankmetrics.table.queries import merged

        def read() -> "QuerySample":
            found = definition.read(self.queries)
            return found if found is self.queries else merged(found)

        return self.once(("queries", definition.relevance), read)

    def query_sample(
        self, definition: "QueryDefinition", side: Side = "both", average: Average = "micro"
    ) -> "QuerySample":
        """Queries of a side on which a metric is defined; with macro average their weights sum to one per group."""
        self.warn_of_labels(definition)
        selected = self.used_queries(definition, side)
        queries = self.queries_for(definition)
        key = queries, average, selected.tobytes()
        return self.once(key, lambda: query_sample_of(queries if selected.all() else queries.take(selected), average))

    def used_queries(self, definition: "QueryDefinition", side: Side = "both") -> npt.NDArray[np.bool_]:
        """Which queries are of a side and have a value of a metric."""
        from torchrankmetrics.table.queries import used_queries

        return used_queries(definition, self.queries_for(definition), side)

    @property
    def group(self) -> IntArray:
        """Groups of the rows, (m,) int64; ValueError if a task has none."""
        group = Columns(self.rows).group
        if (group == ABSENT).any():
            raise ValueError("every task needs a group: pass group= to every update (to a file, a column group)")
        return group

    def by_group(self) -> Iterator[tuple[int, "Analysis"]]:
        """Yield the rows of each group, by ascending id."""
        ids = np.unique(self.group)

        def parts(rows: Rows) -> list[Rows]:
            rows = rows[np.argsort(Columns(rows).group, kind="stable")]
            return np.split(rows, np.searchsorted(Columns(rows).group, ids[1:]))

        # without rows: no group, but one empty part
        for group, rows, table_rows in zip(ids.tolist(), parts(self.rows), parts(self.table_rows), strict=False):
            part = Analysis.__new__(Analysis)
            part.rows, part.table_rows = rows, table_rows  # rows of queries are merged once, not in every group
            part._tasks, part.has_queries, part._cache, part._warned = table_rows, self.has_queries, {}, self._warned
            yield group, part

    def _num_flagged(self, flag: int) -> int:
        rows = Columns(self.rows)
        return int(rows.count[rows.flags & flag > 0].sum())

    def _num_competing(self, side: Side) -> int:
        """Number of queries of a side whose relevant items are candidates of each other's ranking tasks."""
        rows = Columns(self.table_rows[used(self.table_rows, side) & (Columns(self.table_rows).query != ABSENT)])
        _, count = distinct_rows((rows.side, rows.query), rows.count)
        _, raw = distinct_rows((rows.side, rows.query), rows.count * (rows.flags & fault.RAW > 0))
        return int(((raw > 0) & (count > 1)).sum())

    def warn_of_competition(self, name: str, key: str, side: Side) -> None:
        """Warn once if relevant items of a query compete and a query metric has the same name in retrieval."""
        instead = query_counterpart(name) if "competition" not in self._warned else None
        if instead and (number := self.once(("competing", side), lambda: self._num_competing(side))):
            self.warn_once(
                "competition",
                f"relevant items of one query are candidates of each other (number of such queries: {number}), and "
                f"{shorten(key)} averages over relevant items: to average over queries use {instead!r} (mr -> "
                "first_mr, mrr -> rr, hits_at_k -> success_at_k, median_rank -> first_median_rank, auc -> query_auc); "
                "for filtered ranks list the relevant items in exclude",
            )

    def warn_of_labels(self, definition: "QueryDefinition") -> None:
        """Warn once for each threshold if all relevant items of a query have smaller labels."""
        if self.queries.count.sum() > self.queries_for(definition).count.sum():
            # the same text in every batch, so that Python shows it once
            text = f"queries without a label of at least {definition.relevance:g} are not counted"
            self.warn_once(text, f"{text} (trec_eval counts them as 0)")

    def warn_of_input(self) -> None:
        """Warn once if the ranks show an inverted mask, or distances in place of scores."""
        candidates = Columns(self._tasks).num_candidates
        if len(candidates) and candidates[0] == 1 and (candidates == 1).all():
            if "undefined" not in self._warned:  # which names the same cause
                self.warn_once(
                    "mask",
                    "each ranking task has one candidate, so that every rank is 1 whatever the scores: if the mask "
                    "exclude= is inverted, invert it; True marks candidates to skip",
                )
        elif self.reversal:  # the same text in every epoch, so that Python shows it once
            self.warn_once("reversal", f"the ranks are far worse than chance: {_REVERSED}")

    @cached_property
    def reversal(self) -> str:
        """Text of a warning if ranks are so much worse than random that scores must be distances; else ""."""
        found = far_below_chance(self._tasks)
        return found and f"{found}: {_REVERSED}"


_REVERSED = "are the scores distances? Higher scores must be better; pass -distances"


def far_below_chance(rows: Rows) -> str:
    """Describe ranks so much worse than random that the order of the scores must be reversed; else ""."""
    columns = Columns(rows)
    above = columns.optimistic + columns.pessimistic - columns.num_candidates - 1.0  # twice r - E[r]
    if (above * columns.count).sum() <= 0 or has_unknown(columns.num_candidates):  # nearly always
        return ""
    count = columns.count * (columns.flags & fault.NAN == 0)  # tasks with NaN rank last in any order
    surplus, N = float((count * above).sum()) / 2, columns.num_candidates.astype(np.float64)
    if surplus <= 0:
        return ""
    index = -2 * surplus / float((count * (N - 1)).sum())
    z = -surplus / float((count * ((N**2 - 1) / 12)).sum()) ** 0.5
    return f"the ranks are far worse than chance (AMRI {index:.2f}, its z-score {z:.1f})" * (z < -6 and index < -0.25)


def sample_of(rows: Rows, average: Average = "micro") -> RankSample:
    """Read canonical rows as a sample of ranks."""
    columns = Columns(rows)
    weight = _averaged(weights(rows), columns.count, columns.group, average)
    optimistic, pessimistic, num_candidates = columns.ranks.T
    known = None if has_unknown(num_candidates) else num_candidates
    return RankSample(optimistic, pessimistic, known, weight, columns.count)


def query_sample_of(queries: "QuerySample", average: Average = "micro") -> "QuerySample":
    """Scale the weights of queries for an average."""
    return replace(queries, weight=in_range(_averaged(queries.weight, queries.count, queries.group, average)))


def _averaged(weight: FloatArray, count: IntArray, group: IntArray, average: Average) -> FloatArray:
    """Return the weights, or for macro scale them so that they sum to one per group."""
    if average == "micro":
        return weight
    if (group == ABSENT).any():
        raise ValueError("average='macro' needs a group for every task: pass group= to every update")
    _, index = np.unique(group, return_inverse=True)
    largest = np.zeros(index.max(initial=-1) + 1)
    np.maximum.at(largest, index, weight)
    weight = by_power_of_two(weight, largest[index])  # the sum of a group could overflow or round
    return np.asarray(weight / np.bincount(index, weight * count)[index])


# metrics of tasks whose names retrieval uses for a metric of queries
_OF_QUERIES = {"mr": "first_mr", "mrr": "rr", "median_rank": "first_median_rank", "auc": "query_auc"}


def query_counterpart(name: str) -> str | None:
    """Return the query metric that retrieval calls by the name of a metric of tasks; None for other metrics."""
    k = name.removeprefix("hits_at_")
    return f"success_at_{k}" if k != name else _OF_QUERIES.get(name)
