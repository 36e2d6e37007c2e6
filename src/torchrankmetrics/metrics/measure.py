"""`Analysis`: cached samples of the rows of an evaluation; `Measure`: the value of a metric in a view, from one."""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.protocol import (
    VIEWS,
    Average,
    Definition,
    EmptyQueries,
    Side,
    View,
)
from torchrankmetrics.definitions.sample import (
    RANK_TYPES,
    FloatArray,
    IntArray,
    Moments,
    RankSample,
    RankType,
    Sample,
    UnknownCandidatesError,
    by_power_of_two,
    distinct_rows,
    in_range,
)
from torchrankmetrics.errors import warn
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION, ExactExpectation
from torchrankmetrics.null.expectation.provider import (
    ExpectationProvider,
    ExpectationUnavailableError,
    check_provider,
    unavailable,
)
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.counting import missing_targets
from torchrankmetrics.table.columns import (
    ABSENT,
    ONE,
    SIDE_CODES,
    Columns,
    Rows,
    canonical_rows,
    empty_rows,
    far_below_chance,
    has_unknown,
    raise_faults,
    used,
    weights,
    without_flag,
    without_queries,
)
from torchrankmetrics.validation import TASK_SIDES, check_choice, shorten

if TYPE_CHECKING:
    from torchrankmetrics.queries.definitions import QueryDefinition
    from torchrankmetrics.queries.sample import QuerySample
Found = TypeVar("Found")


class Analysis:
    """Canonical rows of an evaluation, with samples and values that are computed on first use and cached."""

    def __init__(self, blocks: Sequence[Tensor], *, partial: bool = False) -> None:
        # one copy to the host, here and nowhere before
        if not all(block.is_cpu for block in blocks):
            blocks = [torch.cat(list(blocks)).cpu()]
        # by columns, as they are read from here on; NumPy starts no threads
        columns = [block.numpy().T for block in blocks or [empty_rows()]]
        rows = (np.concatenate(columns, 1) if len(columns) > 1 else columns[0]).T
        self.has_rows = len(rows) > 0
        seen = raise_faults(Columns(rows).flags)
        self.empty = rows[:0]  # queries without a relevant item
        if seen & (fault.ENTRY | fault.EMPTY):
            rows = self._ranking_tasks(rows)
            seen |= int(np.bitwise_or.reduce(Columns(rows).flags, initial=0))
        repeated = bool(seen & fault.REPEATED)
        if seen & fault.UNLISTED:
            is_unlisted = Columns(rows).flags & fault.UNLISTED > 0
            number = int(Columns(rows).count[is_unlisted].sum())
            warn(missing_targets(number, int(Columns(rows).count.sum())))
        if seen & (fault.REPEATED | fault.UNLISTED):  # of the update, not of the task
            rows = without_flag(rows, fault.REPEATED | fault.UNLISTED)
        # queries are read from any order of rows
        self._tasks, self._differing, given = rows, 0, Columns(rows)
        if not ((given.sample_id == ABSENT) & (given.weight_bits != 0) & (given.count == 1)).all():
            self._tasks = self.table_rows
        self.has_queries = bool((Columns(self._tasks).query != ABSENT).any())
        self._cache: dict[Hashable, Any] = {}
        self._warned: set[str] = set()
        if seen & fault.PARTIAL and not partial and self.num_partial:
            raise ValueError(
                f"{self.num_partial} ranking tasks are a sample that a sequential test ended: "
                "their values are not values of all tasks. Use the SequentialResult, or the "
                "summary() of the table, or rank all tasks"
            )
        if repeated:
            warn(
                "sample_id repeats within one update, and repeats count once: resampled rows "
                "(BootStrapper) or several tasks under one id are lost. Give each task its own id "
                "or none; for intervals there is RankCollection.confidence_intervals"
            )
        if len(rows) and not len(self._tasks):
            warn(
                "every ranking task has the weight 0 or the gain 0, so values are NaN: pass "
                "numbers above 0"
            )
        if self._differing:
            # equal repeats that storage="counts" merged are not counted
            lost = int(
                Columns(rows).count[weights(rows) > 0].sum() - Columns(self.table_rows).count.sum()
            )
            warn(
                f"{self._differing} repeated (side, sample_id) came with different ranks; the "
                f"smallest row of each is kept, and at least {lost} ranking tasks are dropped. "
                "Repeats should be the same task scored by the same model; for sample_id pass the "
                "index in the dataset, not the position in the batch"
            )
        if seen & fault.NAN and self.num_nan:
            warn(
                f"{self.num_nan} of {int(Columns(self.rows).count.sum())} ranking tasks have NaN "
                "scores, which count against the model: a NaN target ranks last, a NaN candidate "
                "above the target. So values may be too low. Check the model: torch.isnan(scores).any()"
            )

    def _ranking_tasks(self, rows: Rows) -> Rows:
        """Rank the scores of flat lists, and set queries without a relevant item aside."""
        from torchrankmetrics.table.entries import rank_entries, set_empty_aside

        rows, num_differing = rank_entries(rows)
        if num_differing:
            warn(
                f"{num_differing} repeated (side, sample_id) came with different scores or labels; "
                "the smallest row of each is kept. For sample_id pass the index in the dataset, not "
                "the position in the batch"
            )
        rows, self.empty = set_empty_aside(rows)
        return rows

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

    @property
    def all_rows(self) -> Rows:
        """Canonical rows of all tasks, and behind them the queries without a relevant item."""
        return np.concatenate([self.table_rows, self.empty]) if len(self.empty) else self.table_rows

    @cached_property
    def rows(self) -> Rows:
        """What metrics of ranking tasks use: ``table_rows`` without queries and gains, equal rows counted together."""
        tasks = Columns(self._tasks)
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
        return [side for side in TASK_SIDES if SIDE_CODES[side] in Columns(self.rows).side]

    def sample(
        self, side: Side = "both", average: Average = "micro", min_candidates: int = 1
    ) -> RankSample:
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

        rows = np.concatenate([self._tasks, self.empty]) if len(self.empty) else self._tasks
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
        empty_queries: EmptyQueries = "skip",
    ) -> "QuerySample":
        """Queries of a side on which a metric is defined; with macro average their weights sum to one per group."""
        from torchrankmetrics.table.queries import used_queries

        queries = self.queries_for(definition)
        self._check_empty_queries(definition, side, empty_queries)
        selected = used_queries(definition, queries, side, empty_queries)
        key = queries, average, selected.tobytes()
        return self.once(
            key,
            lambda: query_sample_of(queries if selected.all() else queries.take(selected), average),
        )

    @property
    def group(self) -> IntArray:
        """Groups of the rows, (m,) int64; ValueError if a task has none."""
        group = Columns(self.rows).group
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
            ids.tolist(), parts(self.rows), parts(self.table_rows), strict=False
        ):
            part = _GroupAnalysis(self, rows, table_rows, self.empty[of_empty == group])
            yield group, part

    def _num_flagged(self, flag: int) -> int:
        rows = Columns(self.rows)
        return int(rows.count[rows.flags & flag > 0].sum())

    def _num_competing(self, side: Side) -> int:
        """Number of queries of a side whose relevant items are candidates of each other's ranking tasks."""
        rows = Columns(
            self.table_rows[
                used(self.table_rows, side) & (Columns(self.table_rows).query != ABSENT)
            ]
        )
        _, count = distinct_rows((rows.side, rows.query), rows.count)
        _, raw = distinct_rows((rows.side, rows.query), rows.count * (rows.flags & fault.RAW > 0))
        return int(((raw > 0) & (count > 1)).sum())

    def warn_of_competition(self, name: str, key: str, side: Side) -> None:
        """Warn once if relevant items of a query compete and a query metric has the same name in retrieval."""
        instead = query_counterpart(name) if "competition" not in self._warned else None
        if instead and (
            number := self.once(("competing", side), lambda: self._num_competing(side))
        ):
            self.warn_once(
                "competition",
                "relevant items of one query are candidates of each other (number of such "
                f"queries: {number}), and {shorten(key)} averages over relevant items: to average "
                f"over queries use {instead!r} (mr -> first_mr, mrr -> rr, hits_at_k -> "
                "success_at_k, median_rank -> first_median_rank, auc -> query_auc); for filtered "
                "ranks list the relevant items in exclude",
            )

    def has_relevant_items(self, definition: "QueryDefinition", side: Side) -> bool:
        """Whether a query of a side has an item that a metric counts as relevant."""
        from torchrankmetrics.table.queries import of_side

        queries = self.queries_for(definition)
        return bool((of_side(queries, side) & (queries.num_relevant > 0)).any())

    def _check_empty_queries(
        self, definition: "QueryDefinition", side: Side, empty_queries: EmptyQueries
    ) -> None:
        """Raise or warn once if queries of a side have no item that a metric counts as relevant."""
        from torchrankmetrics.table.queries import empty_queries_error, of_side

        queries = self.queries_for(definition)
        is_empty = (queries.num_relevant == 0) & of_side(queries, side)
        if not is_empty.any() or (empty_queries == "zero" and definition.counts_empty):
            return
        lacking = "relevant item"
        if definition.relevance not in (None, 1):
            lacking = f"label of at least {definition.relevance:g}"
        if empty_queries == "error":
            number = int(queries.count[is_empty].sum())
            raise ValueError(empty_queries_error(number, lacking))
        # the same text in every batch, so that Python shows it once
        text = f"queries without a {lacking} are not counted"
        remedy = f"{definition.name} has no value for them"
        if definition.counts_empty:
            remedy = (
                "trec_eval, torchmetrics, ranx and BEIR count them as 0, as empty_queries='zero' "
                "does"
            )
        self.warn_once(text + remedy, f"{text}: {remedy}")

    def warn_of_input(self) -> None:
        """Warn once if the ranks show an inverted mask, or distances in place of scores."""
        candidates = Columns(self._tasks).num_candidates
        if len(candidates) and candidates[0] == 1 and (candidates == 1).all():
            if "undefined" not in self._warned:  # which names the same cause
                self.warn_once(
                    "mask",
                    "each ranking task has one candidate, so that every rank is 1 whatever the "
                    "scores: if the mask exclude= is inverted, invert it; True marks candidates "
                    "to skip",
                )
        elif self.reversal:  # the same text in every epoch, so that Python shows it once
            self.warn_once("reversal", f"the ranks are far worse than chance: {_REVERSED}")

    @cached_property
    def reversal(self) -> str:
        """Text of a warning if ranks are so much worse than random that scores must be distances; else ""."""
        found = far_below_chance(self._tasks)
        return found and f"{found}: {_REVERSED}"


class _GroupAnalysis(Analysis):
    """The rows of one group of an analysis, which has checked them and warns once for all groups."""

    def __init__(self, whole: Analysis, rows: Rows, table_rows: Rows, empty: Rows) -> None:
        self.empty = empty
        self.rows = rows  # rows of queries are merged once, not in every group
        self.table_rows = table_rows
        self._tasks = table_rows
        self._differing = 0
        self.has_queries = whole.has_queries
        self._cache = {}
        self._warned = whole._warned


_REVERSED = "are the scores distances? Higher scores must be better; pass -distances"


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


# metrics of tasks whose names retrieval uses for a metric of queries
_OF_QUERIES = {
    "mr": "first_mr",
    "mrr": "rr",
    "median_rank": "first_median_rank",
    "auc": "query_auc",
}


def query_counterpart(name: str) -> str | None:
    """Return the query metric that retrieval calls by the name of a metric of tasks; None for other metrics."""
    k = name.removeprefix("hits_at_")
    return f"success_at_{k}" if k != name else _OF_QUERIES.get(name)


SIDES: tuple[Side, ...] = get_args(Side)
AVERAGES: tuple[Average, ...] = get_args(Average)
# prefixes of keys; the mean rank has its own names
VIEW_PREFIXES: dict[View, str] = {
    "base": "",
    "normalized": "normalized_",
    "adjusted_index": "adjusted_",
    "z_score": "z_",
    "p_value": "p_",
}
_OWN_WORDS: dict[tuple[str, View], str] = {
    ("mr", "normalized"): "amr",
    ("mr", "adjusted_index"): "amri",
}

Number = TypeVar("Number", float, FloatArray)


def offset_and_scale(
    definition: Definition, view: View, mean: Number, variance: Number, best: float | None
) -> tuple[Number | float, Number]:
    """Return the offset and the divisor of an affine view, for one value or many; the divisor is 0 without variance.

    Source: Hoyt et al. 2022 (arXiv 2203.07544), section 3; z of a decreasing metric has PyKEEN's
        sign.
    """
    if view == "normalized":
        return 0.0, mean
    if view == "adjusted_index":
        assert best is not None
        return mean, (best - mean) * (variance != 0)
    return mean, np.sqrt(variance) * (1 if definition.higher_is_better else -1)


def affine_view(
    definition: Definition, view: View, moments: Moments
) -> tuple[Callable[[float], float], float]:
    """Return the map of base values into a view, and its slope, the factor of errors; both NaN if it is undefined."""
    if view == "base":
        return float, 1.0
    offset, scale = offset_and_scale(
        definition, view, moments.mean, moments.variance, definition.best(moments)
    )
    if scale == 0:
        return lambda value: math.nan, math.nan
    # + 0.0: 0 on average, not -0
    return lambda value: (float(value) - offset) / float(scale) + 0.0, float(1 / scale)


@dataclass(frozen=True)
class Measure:
    """A metric with its view, rank type, side, average and expectation."""

    definition: Definition
    view: View = "base"
    rank_type: RankType = "realistic"
    side: Side = "both"
    average: Average = "micro"
    expectation: ExpectationProvider = None  # type: ignore[assignment]  # None: exact
    empty_queries: EmptyQueries = "skip"

    def __post_init__(self) -> None:
        if self.expectation is None:
            object.__setattr__(self, "expectation", DEFAULT_EXPECTATION)
        elif not isinstance(self.expectation, ExactExpectation):
            check_provider(self.expectation)
        check_choice("view", self.view, VIEWS)
        check_choice("rank_type", self.rank_type, RANK_TYPES)
        check_choice("side", self.side, SIDES)
        check_choice("average", self.average, AVERAGES)
        check_choice("empty_queries", self.empty_queries, get_args(EmptyQueries))
        if why := self.definition.why_undefined(self.view, self.rank_type):
            raise ValueError(why)
        if self.view not in ("base", "p_value") and not self.definition.has_expectation(
            self.expectation
        ):
            raise unavailable(
                self.definition,
                f"has no moments from expectation={shorten(self.expectation)}",
                "use view='base', or expectation=None for exact moments",
            )
        object.__setattr__(self, "rank_type", self.definition.canonical_rank_type(self.rank_type))

    @property
    def key(self) -> str:
        """Canonical key, ``[side_][rank_type_][macro_][view_]name``: ``mrr``, ``tail_z_mrr``, ``macro_amri``."""
        usual = self.definition.canonical_rank_type("realistic")
        parts = [(self.side, "both"), (self.rank_type, usual), (self.average, "micro")]
        name = VIEW_PREFIXES[self.view] + self.definition.name
        name = _OWN_WORDS.get((self.definition.name, self.view), name)
        return "_".join([*(part for part, unwritten in parts if part != unwritten), name])

    @property
    def higher_is_better(self) -> bool | None:
        """Direction of the value in the view; None for dispersion, counts and the tie rate."""
        return self.definition.direction(self.view)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Lowest and highest value for any ranks; None: no bound, or an unknown one."""
        return self.definition.bounds(self.view)

    @property
    def is_estimate(self) -> bool:
        """Whether the value is an estimate with an error and a mean over seeds; p-values and counts are not."""
        return self.view != "p_value" and self.definition.aggregation != "count"

    def sample(self, rows: Any) -> Any:
        """The tasks or queries of the side on which the metric is defined, weighted by the average.

        ``rows`` are an ``Analysis``, or several runs.
        """
        return self.definition.sample(rows, self.side, self.average, self.empty_queries)

    def base(self, analysis: Analysis) -> float:
        """Base value, NaN without tasks; computed once for all measures that differ in view or expectation alone."""
        key = self.definition, self.rank_type, self.side, self.average, self.empty_queries
        return analysis.once(
            key, lambda: self.definition.value(self.sample(analysis), self.rank_type)
        )

    def value(self, analysis: Analysis) -> float:
        """Value in the view; NaN without tasks and, with one warning per analysis, for zero variance under the null."""
        value = self.base(analysis)
        if analysis.has_queries and self.definition.of_tasks is not None:
            analysis.warn_of_competition(self.definition.name, self.key, self.side)
        if not math.isnan(value):
            value = self._in_view(value, analysis)
        if math.isnan(value) and self.definition.has_tasks(analysis, self.side, self.average):
            analysis.warn_once(
                "undefined",
                f"{self.key} is undefined (NaN): under random ranking its value is a constant, for "
                "example because every task has a single candidate, or k is not below any number "
                "of candidates",
            )
        return value

    def log_p_value(self, analysis: Analysis) -> tuple[float, float]:
        """Natural logarithm of the p-value, finite where the p-value underflows to 0, and the error of the p-value.

        The error is the standard error of a simulated p-value, else an estimate. Both are NaN where
        the value is.
        """
        if math.isnan(self.base(analysis)):
            return math.nan, math.nan
        key = self.definition, self.side, self.average, self.empty_queries
        return analysis.once(key, lambda: self.definition.log_p_value(self.sample(analysis)))

    def _in_view(self, base: float, analysis: Analysis) -> float:
        if self.view == "base":
            return base
        if self.view == "p_value":
            return math.exp(self.log_p_value(analysis)[0])
        return affine_view(self.definition, self.view, self.moments(self.sample(analysis)))[0](base)

    def moments(self, sample: Sample) -> Moments:
        """Mean and variance of the base value under random ranking."""
        return self.definition.null_moments(sample, self.expectation)

    def with_views(self, *views: View) -> "Iterator[Measure | None]":
        """Return the metric in other views; None for a view that is undefined or has no expectation."""
        for view in views:
            try:
                yield replace(self, view=view)
            except ValueError:
                yield None

    def value_or_nan(self, analysis: Analysis) -> float:
        """Value in the view, for tables: NaN without a warning where it is undefined or has no expectation."""
        try:
            base = self.base(analysis)
            return base if math.isnan(base) else self._in_view(base, analysis)
        except (ExpectationUnavailableError, UnknownCandidatesError):
            return math.nan


class Measured(Protocol):
    """An object with a measure, such as a ``RankMetric``."""

    measure: Measure


def measure_of(entry: object) -> Measure | None:
    """Return the measure of an entry that is or has one; None for others."""
    measure = entry if isinstance(entry, Measure) else getattr(entry, "measure", None)
    if not isinstance(measure, Measure):
        return None
    if isinstance(entry, type):
        raise TypeError(
            f"a metric must be an instance, such as {entry.__name__}(...), got the class"
        )
    return measure
