"""`RankCollection`: many metrics with one buffer, one pass over the scores and one gather."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from torchrankmetrics.decorators import eager
from torchrankmetrics.definitions.protocol import Average, EmptyQueries, Side, View
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.buffer import RowBuffer
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.metric import RankMetric, Storage
from torchrankmetrics.metrics.names import MetricLike, Metrics, parse_name
from torchrankmetrics.metrics.registry import all_names
from torchrankmetrics.metrics.selection import DEFAULT_METRICS, Selection
from torchrankmetrics.metrics.state import KEY, RowOwner, as_values
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.validation import shorten

if TYPE_CHECKING:
    from torchrankmetrics.inference.clusters import Cluster
    from torchrankmetrics.inference.intervals import Intervals
    from torchrankmetrics.inference.standard_errors import Method
    from torchrankmetrics.metrics.breakdown import Breakdown
    from torchrankmetrics.metrics.summary import Summary
    from torchrankmetrics.rendering.tabular import Names
    from torchrankmetrics.table.rank_table import RankTable

Member = MetricLike | MetricCollection
Members = MetricCollection | Sequence[Member]


class RankCollection(RowOwner, MetricCollection):
    """A ``MetricCollection`` of rank metrics that ranks each batch once for all metrics.

    The rows are stored once, too.

    Args:
        metrics (str, sequence or mapping, default None): names (any synonym), ``RankMetric``
            instances, or a dict of key -> name or instance; None: mrr, mr, hits_at_1/3/10, amri,
            adjusted_mrr, z_mrr. Names multiply with views, rank_types and sides unless they contain
            their own; instances and dict entries stay as they are.
        *additional_metrics (str or RankMetric): more metrics, unless metrics is a dict.
        views (str or sequence of str, default ("base",)): "base", "normalized", "adjusted_index",
            "z_score" or "p_value", one or several; undefined ones are left out.
        rank_types (str or sequence of str, default ("realistic",)): "realistic", "optimistic",
            "pessimistic" or "expected", one or several.
        sides (str or sequence of str, default ("both",)): "both", "head", "tail" or "relation", one
            or several; others than "both" need ``side`` in update.
        average (str, default "micro"): "micro" or "macro", for names without their own.
        expectation (ExpectationProvider, default None): source of the null moments; None: exact.
        relevance_threshold (float, default 1.0): smallest label of a relevant item, for query
            metrics.
        empty_queries (str, default None): for query metrics, queries without a relevant item are
            left out with a warning (None), left out ("skip"), count as 0 ("zero"), or raise
            ("error").
        storage (str, default "ranks"): "ranks" stores all rows; "counts" merges equal rows, which
            bounds the memory by the number of distinct rows. Values are the same.
        prefix (str, default None): before every key, for example "val/".
        postfix (str, default None): after every key.
        compute_groups (bool or list of lists of str, default True): without effect: all members are
            one group.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``, for every member.

    Raises:
        TypeError, ValueError: for unknown names (with the nearest) or options, keys that a logger
            would not accept, and undefined combinations that are requested by name.

    Example:
        >>> import torch
        >>> from torchrankmetrics import RankCollection
        >>> collection = RankCollection(["mrr", "amri"], prefix="val/")
        >>> scores = torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]])
        >>> collection.update(scores, torch.tensor([1, 2]))
        >>> {name: value.item() for name, value in collection.compute().items()}
        {'val/mrr': 0.75, 'val/amri': 0.5}
    """

    # TorchScript compiles all other properties of a module
    __jit_unused_properties__: ClassVar[list[str]] = [
        *MetricCollection.__jit_unused_properties__,
        "measures",
        "_first",
    ]

    def __init__(
        self,
        metrics: Metrics | Members | None = None,
        *additional_metrics: Member,
        views: View | Sequence[View] = ("base",),
        rank_types: RankType | Sequence[RankType] = ("realistic",),
        sides: Side | Sequence[Side] = ("both",),
        average: Average = "micro",
        expectation: ExpectationProvider | None = None,
        relevance_threshold: float = 1.0,
        empty_queries: EmptyQueries | None = None,
        storage: Storage = "ranks",
        prefix: str | None = None,
        postfix: str | None = None,
        compute_groups: bool | list[list[str]] = True,
        **kwargs: Any,
    ) -> None:
        self._selection = Selection(
            views, rank_types, sides, expectation, average, relevance_threshold, empty_queries
        )
        self._options: dict[str, Any] = {"storage": storage, **kwargs}
        self.storage = storage
        self._persistent = {KEY: False}
        self.rows = RowBuffer(merges=storage == "counts")
        chosen: Any = DEFAULT_METRICS if metrics is None else metrics
        names = {"prefix": prefix, "postfix": postfix}
        # adds the metrics
        super().__init__(chosen, *additional_metrics, **names)  # type: ignore[arg-type]

    def add_metrics(  # type: ignore[override]  # names are metrics here
        self,
        metrics: Metrics | Members,
        *additional_metrics: Member,
    ) -> None:
        """Add metrics, as the constructor takes them; they see all rows so far."""
        if additional_metrics:
            if isinstance(metrics, Mapping):
                raise ValueError(
                    "a dict of metrics must be the only argument: put the others into it"
                )
            first = (
                metrics
                if isinstance(metrics, Sequence) and not isinstance(metrics, str)
                else [metrics]
            )
            metrics = [*first, *additional_metrics]
        members: dict[str, RankMetric] = {}
        for key, entry in self._entries(metrics):
            member = RankMetric(entry, **self._options) if isinstance(entry, Measure) else entry
            self._check_new(key, member, members)
            members[key] = member
        if not self._modules and not members:
            raise ValueError(
                "metrics is empty: pass at least one metric, or None for the default ones"
            )
        self.rows.claim(self, self._members())
        for key, member in members.items():
            member.rows.is_released = True  # a collection that owns them finds the difference
            member.persistent(False)
            self[key] = member
        self.rows.share(self, members.values())
        self._enable_compute_groups = self._groups_checked = True
        self._groups = {0: [str(key) for key in self._modules]}
        self.compute_on_cpu = self._first.compute_on_cpu
        # the cost of an update does not depend on their number
        self._note_needs(list(self.measures.values()))

    def _check_new(self, key: str, member: RankMetric, others: Mapping[str, RankMetric]) -> None:
        """Raise for a metric that cannot be added under a key next to others."""
        if key in self._modules or key in others:
            raise ValueError(
                f"metric {key!r} is in the collection already; pass a dict to choose another key"
            )
        if hasattr(self, key):
            raise ValueError(
                f"metric key {key!r} is an attribute of every collection; pass a dict with another"
            )
        if member.rows:
            raise ValueError(
                f"metric {key!r} has been updated before; reset it first, or add a fresh one"
            )
        _check_methods(key, member)

    def _entries(self, metrics: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(metrics, list | tuple) and any(
            isinstance(entry, MetricCollection) for entry in metrics
        ):
            return chain.from_iterable(map(self._entries, metrics))
        if isinstance(metrics, MetricCollection):
            metrics = dict(metrics.items(keep_base=True, copy_state=False))
        return self._selection.entries(metrics)

    def _members(self) -> list[RankMetric]:
        return list(self._modules.values())  # type: ignore[arg-type]

    @property
    def _first(self) -> RankMetric:
        return next(iter(self._modules.values()))  # type: ignore[return-value]

    update = RankMetric.update  # it calls methods of RowOwner

    def _check_writable(self) -> None:
        super()._check_writable()
        if self.rows.is_released:
            self.rows.claim(self, self._members())

    def _refer_to(self, rows: RowBuffer) -> None:
        self.rows = rows
        rows.share(self, self._members())

    def _replace(self, rows: Tensor) -> None:
        members = self._members()
        rows = rows.to(self._first.device)
        self.rows.check_members(self, members)
        self.rows.share(self, members)
        self.rows.replace([rows], max(self.rows.updates, 1))

    @eager
    def compute(self) -> dict[str, Tensor]:
        """Value of each metric by its key, 0-d float64, over all tasks so far.

        NaN without tasks or where it is undefined.
        """
        if not self._computes_together():
            return super().compute()
        return dict(zip(map(str, self.keys()), self._values(), strict=True))

    def _computes_together(self) -> bool:
        """Whether all members compute from the same rows in the same way.

        The way of torchmetrics takes longer.
        """
        usual = RankMetric.compute, _OPTIONS(self._first)
        return all(
            one.rows is self._first.rows and (type(one).compute, _OPTIONS(one)) == usual
            for one in self._members()
        )

    def _values(self) -> Sequence[Tensor]:
        """Value of each member."""
        members = self._members()
        if not self._computes_together():
            return [one.compute() for one in members]
        if not self._first.update_called:  # a process without data synchronizes, too
            warn(
                "compute was called before the ``update`` method: without ranking tasks values are "
                "NaN"
            )
        analysis = self._synced_analysis()
        numbers = [one.measure.value(analysis) for one in members]
        self._warn_of(analysis, self.measures.values())
        return as_values(numbers, self._first.device)

    @torch.jit.unused
    @eager
    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Update with a batch and return ``compute`` of this batch alone.

        NaN if `update` added nothing.
        """
        with self._batch_alone():
            self.update(*args, **kwargs)
            self.rows.updates = max(self.rows.updates, 1)  # if it skipped the batch
            values = self._values()
            found = self.compute()
        for member, value in zip(self._members(), values, strict=True):
            member._forward_cache = value
        return found

    def reset(self) -> None:
        """Remove all ranking tasks."""
        # most have no state but the rows, and torch sets attributes slowly
        for one in self._members():
            own = one._is_synced or one._forward_cache is not None or len(one._defaults) > 1
            if own or one.rows is not self.rows or type(one).reset is not RankMetric.reset:
                one.reset()
        self.rows.clear()  # no member's buffer if other collections updated all members

    def merge_state(self, other: RankCollection) -> None:
        """Add the rows of another collection, as if its updates had been made here.

        Args:
            other (RankCollection): a collection with the same metrics.
        """
        if not isinstance(other, RankCollection):
            raise TypeError(f"other must be a RankCollection, got {type(other).__name__}")
        rows = other._first.rows.as_one(other._first.device)
        self._merge(rows, other._first.update_count)

    def _synced_analysis(self) -> Analysis:
        first = self._first
        with first.sync_context(
            first.dist_sync_fn, should_sync=first._to_sync, should_unsync=first._should_unsync
        ):
            return first.rows.analysis()

    @staticmethod
    def names() -> list[str]:
        """Return canonical names of all metrics, with ``<k>`` and ``<p>`` for numbers.

        Views are prefixes of these names.
        """
        return list(all_names())

    @property
    def measures(self) -> dict[str, Measure]:
        """The measure of each key, in the order of the keys."""
        return {
            str(key): member.measure
            for key, member in zip(self.keys(), self._members(), strict=True)
        }

    def _tabulated(self) -> dict[str, Measure]:
        """Measures without those of metrics that override ``compute``, which a warning names."""
        own = [
            str(key)
            for key, member in zip(self.keys(), self._members(), strict=True)
            if type(member).compute is not RankMetric.compute
        ]
        if own:
            warn(
                f"{len(own)} of {len(self)} metrics have a class that overrides `compute` and are "
                f"left out: {', '.join(own)}. Tables and intervals are computed from definitions; "
                "write a RankDefinition or QueryDefinition instead"
            )
        return {key: measure for key, measure in self.measures.items() if key not in own}

    def __getitem__(self, key: str, copy_state: bool = True) -> RankMetric:
        """Return a metric by its key, with or without its prefix, or a synonym of one."""
        try:
            return self._modules[self._name_of(key)]  # type: ignore[return-value]
        except ValueError as error:
            raise KeyError(str(error)) from None

    def _name_of(self, metric: str) -> str:
        name = str(metric).removeprefix(self.prefix or "").removesuffix(self.postfix or "")
        if name not in self._modules:
            name = parse_name(name).measure().key
        if name not in self._modules:
            raise ValueError(
                f"{shorten(metric)} is not in the collection; it has "
                f"{', '.join(map(str, self.keys()))}"
            )
        return name

    def monitor(self, metric: str) -> dict[str, Any]:
        """Return ``monitor`` and ``mode`` of a metric, for Lightning's callbacks.

        Use ``EarlyStopping(**collection.monitor("hits@10"))``.

        Args:
            metric (str): a key of the collection, with or without its prefix, or a synonym of one.

        Raises:
            ValueError: if the collection has no such metric, or it has no direction.
        """
        name = self._name_of(metric)
        if (higher := self._modules[name].higher_is_better) is None:
            raise ValueError(
                f"{shorten(metric)} has no direction: neither a high nor a low value is better"
            )
        return {
            "monitor": f"{self.prefix or ''}{name}{self.postfix or ''}",
            "mode": "max" if higher else "min",
        }

    def table(self) -> RankTable:
        """Return all rows of all processes as a ``RankTable`` on the CPU.

        The rows are sorted, distinct and counted.
        """
        from torchrankmetrics.table.rank_table import RankTable

        return RankTable(torch.from_numpy(self._synced_analysis().all_rows.copy(order="K")))

    def local_table(self) -> RankTable:
        """Return the rows of this process as a ``RankTable``.

        They are in the order of the updates, or merged.

        Flat scores (``indexes``) are ranked among the scores of this process alone.
        """
        from torchrankmetrics.table.columns import has_entries
        from torchrankmetrics.table.entries import rank_entries
        from torchrankmetrics.table.rank_table import RankTable

        rows = self._first.rows.as_one(self._first.device)
        if has_entries(rows):
            ranked, _ = rank_entries(rows.cpu().numpy())
            rows = torch.from_numpy(ranked).to(rows.device)
        return RankTable(rows)

    def summary(self) -> Summary:
        """Return a printable table of three values of every metric by side.

        The values are base value, adjusted index and z-score.
        """
        from torchrankmetrics.metrics.summary import summarize

        return summarize(self._synced_analysis(), self._tabulated())

    def p_value_errors(self) -> dict[str, float]:
        """Return the error of every requested p-value.

        It is a standard error if the p-value is simulated, else an estimate.

        0 if the method is exact, and NaN where the p-value is NaN.
        """
        analysis = self._synced_analysis()
        return {
            key: one.log_p_value(analysis)[1]
            for key, one in self.measures.items()
            if one.view == "p_value"
        }

    def breakdown(self, *, names: Names = None) -> Breakdown:
        """Return a table of count, base value, adjusted index and z-score by group. Synchronizes.

        Args:
            names (mapping or sequence of str, default None): names of the groups by id; None: ids.
        """
        from torchrankmetrics.metrics.breakdown import break_down

        return break_down(self._synced_analysis(), self._tabulated(), names)

    def confidence_intervals(
        self,
        confidence_level: float = 0.95,
        method: Method = "normal",
        cluster: Cluster | None = "auto",
        *,
        n_resamples: int = 2000,
        seed: int = 0,
    ) -> Intervals:
        """Return an ``Interval`` of each metric, by its key. Synchronizes.

        The interval is of its value on other tasks of the same kind.

        Args:
            confidence_level (float, default 0.95): in (0, 1).
            method (str, default "normal"): "normal" (means of f, corrected for skewness) or
                "bootstrap" (studentized for means of f, percentiles for others); hits have
                Wilson's. The median has a bootstrap only.
            cluster (str or integers, default "auto"): tasks that are dependent. "auto": of one
                sample id if one has two sides (both sides of a triple), else of one query if one
                has several tasks, else none. Or "group", "sample_id", "query", or int64 keys
                aligned with the rows of ``table()``. None: all tasks are independent.
            n_resamples (int, default 2000): number of bootstrap samples.
            seed (int, default 0): random seed of the bootstrap.

        Raises:
            TypeError, ValueError: for bad options, keys that do not fit, and fewer than two tasks
                or clusters.
        """
        from torchrankmetrics.inference.intervals import confidence_intervals

        analysis = self._synced_analysis()
        return confidence_intervals(
            analysis, self._tabulated(), confidence_level, method, cluster, n_resamples, seed
        )

    def items(  # type: ignore[override]
        self, keep_base: bool = False, copy_state: bool = True
    ) -> Iterable[tuple[str, RankMetric]]:
        """Keys and metrics, as of any ``MetricCollection``."""
        # a plain MetricCollection takes members through this call, and updates them
        self.rows.is_released |= copy_state
        return super().items(keep_base, copy_state)  # type: ignore[return-value]

    def _compute_groups_create_state_ref(self, copy: bool = False) -> None:
        """Do nothing: members refer to one buffer, and copies of it would miss later updates."""

    def persistent(self, mode: bool = True) -> None:
        """Choose whether rows are saved in the ``state_dict``.

        They are saved once for the collection, not once per metric.
        """
        self._persistent = {KEY: mode}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if not self.rows.is_released:
            self.rows.share(self, self._members())  # a copy owns its buffer


def _check_methods(key: str, member: RankMetric) -> None:
    """Raise for a metric with an own way to update, which a collection would not use."""
    for name in ("update", "forward"):
        if getattr(type(member), name) is not getattr(RankMetric, name):
            raise ValueError(
                f"metric {key!r} cannot be in a RankCollection, which ranks once for all its "
                f"metrics: {type(member).__name__} overrides {name!r}; transform the scores before "
                "the collection, use a plain MetricCollection, or the collection's own "
                f"{member.key!r}"
            )


# what the values of members that are computed together must share
_OPTIONS = attrgetter(
    "dist_sync_fn", "process_group", "distributed_available_fn", "_to_sync", "_should_unsync"
)
