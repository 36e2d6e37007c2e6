"""`RankCollection`: many metrics with one state, one pass over the scores and one gather."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, cast

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.eager import eager
from torchrankmetrics.inference.intervals import Cluster, Intervals, confidence_intervals
from torchrankmetrics.inference.standard_errors import Method
from torchrankmetrics.metrics.analysis import Average
from torchrankmetrics.metrics.breakdown import Breakdown, break_down
from torchrankmetrics.metrics.held import HoldingCollection
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.metric import HostOptions, RankMetric, Storage
from torchrankmetrics.metrics.registry import MetricLike, all_names, parse_name
from torchrankmetrics.metrics.selection import DEFAULT_METRICS, Metrics, Selection
from torchrankmetrics.metrics.store import RowStore, as_values
from torchrankmetrics.metrics.summary import Summary, summarize
from torchrankmetrics.metrics.views import View
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.rendering.tabular import Names
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import shown

One = MetricLike | MetricCollection
Several = Metrics | MetricCollection | Sequence[One]


class Monitor(TypedDict):
    """Keyword arguments of EarlyStopping and ModelCheckpoint."""

    monitor: str
    mode: Literal["max", "min"]


class RankCollection(HoldingCollection):
    """A ``MetricCollection`` of rank metrics that rank each batch once and keep one store of rows for all.

    Args:
        metrics: names (any synonym), ``RankMetric`` instances, or a dict of key -> name or instance; None: mrr, mr,
            hits_at_1/3/10, amri, adjusted_mrr, z_mrr. Names multiply with views, rank_types and sides unless they say
            their own; instances and dict entries are taken as they are.
        *additional_metrics: more of them, unless metrics is a dict.
        views: one or several of "base", "normalized", "adjusted_index", "z_score", "p_value"; pairs without a meaning
            are left out.
        rank_types: of "realistic", "optimistic", "pessimistic", "expected". p-values are computed from pessimistic
            ranks, whatever the rank type.
        sides: of "both", "head", "tail", "relation"; "both" is the union of the tasks. Others than "both" need ``side``
            in update. Or two labels of your own that stand for head and tail, ("i2t", "t2i") say, and maybe "both".
        average: "micro" or "macro", of names that do not say theirs.
        expectation: what gives null moments; None: exact.
        storage: "ranks" or "counts", as in ``RankMetric``.
        prefix: put before every key, for example "val/".
        postfix: put behind every key.
        compute_groups: a bool or lists of keys, as ``MetricCollection`` takes it, and without effect: there is one
            group always, for all members share one store of rows, whatever they compute.
        **kwargs: those of ``torchmetrics.Metric``, for every member.

    Raises:
        TypeError: if metrics are of another kind.
        ValueError: for unknown names (with the nearest) or options, keys that a logger would refuse, and combinations
            without a meaning that are asked for by name.

    Example:
        >>> import torch
        >>> from torchrankmetrics import RankCollection
        >>> collection = RankCollection(["mrr", "amri"], prefix="val/")
        >>> collection.update(torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 2]))
        >>> collection.compute()
        {'val/mrr': tensor(0.7500, dtype=torch.float64), 'val/amri': tensor(0.5000, dtype=torch.float64)}
    """

    def __init__(
        self,
        metrics: Several | None = None,
        *additional_metrics: One,
        views: View | Sequence[View] = ("base",),
        rank_types: RankType | Sequence[RankType] = ("realistic",),
        sides: str | Sequence[str] = ("both",),
        average: Average = "micro",
        expectation: ExpectationProvider | None = None,
        storage: Storage = "ranks",
        prefix: str | None = None,
        postfix: str | None = None,
        compute_groups: bool | list[list[str]] = True,
        **kwargs: Unpack[HostOptions],
    ) -> None:
        if not isinstance(compute_groups, bool | list):
            raise TypeError(f"compute_groups must be a bool or lists of keys, got {type(compute_groups).__name__}")
        self._selection = Selection(
            views, rank_types, sides, DEFAULT_EXPECTATION if expectation is None else expectation, average
        )
        self._options: dict[str, Any] = {"storage": storage, **kwargs}
        self.storage = storage
        super().__init__(prefix, postfix)
        self._labels = self._selection.labels
        if metrics is None and additional_metrics:
            raise ValueError("metrics is None, which stands for the default ones: pass them by name to add more")
        self.add_metrics(DEFAULT_METRICS if metrics is None else metrics, *additional_metrics)
        for key in itertools.chain(*compute_groups) if isinstance(compute_groups, list) else ():
            if key not in self._modules:
                raise ValueError(f"compute_groups must hold lists of {', '.join(self._modules)}; got {key!r}")

    def add_metrics(  # type: ignore[override]  # names are metrics here
        self, metrics: Several, *additional_metrics: One
    ) -> None:
        """Add metrics, as the constructor takes them; they see all rows so far."""
        if not hasattr(self, "_persistent_rows"):  # torchmetrics calls this before the store exists
            return
        if additional_metrics:
            if isinstance(metrics, Mapping):
                raise ValueError("a dict of metrics must be the only argument: put the others into it")
            first = metrics if isinstance(metrics, Sequence) and not isinstance(metrics, str) else [metrics]
            metrics = [*first, *additional_metrics]
        members: dict[str, RankMetric] = {}
        for key, entry in self._entries(metrics):
            member = RankMetric(entry, **self._options) if isinstance(entry, Measure) else entry
            if key in self._modules or key in members:
                raise ValueError(f"metric {key!r} is in the collection already; pass a dict to choose another key")
            if hasattr(self, key):
                raise ValueError(
                    f"metric key {key!r} is an attribute of every collection; pass a dict with another key"
                )
            if member.rows:
                raise ValueError(f"metric {key!r} has been updated before; reset it first, or add a fresh one")
            members[key] = member
        if not self._modules and not members:
            raise ValueError("metrics is empty: pass at least one metric, or None for the default ones")
        self._hold(members)

    def _entries(
        self, metrics: Metrics | MetricCollection | Sequence[MetricLike | MetricCollection]
    ) -> Iterator[tuple[str, Measure | RankMetric]]:
        if isinstance(metrics, MetricCollection):
            metrics = dict(cast("Iterator[tuple[str, RankMetric]]", metrics.items(keep_base=True, copy_state=False)))
        elif isinstance(metrics, list | tuple) and any(isinstance(entry, MetricCollection) for entry in metrics):
            for entry in metrics:
                yield from self._entries(entry)
            return
        yield from cast("Iterator[tuple[str, Measure | RankMetric]]", self._selection.entries(cast("Metrics", metrics)))

    @torch.jit.unused
    @eager
    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Update with a batch and give the values of that batch alone."""
        self.update(*args, **kwargs)
        leader = self._leader
        batch = RowStore(leader.rows[-1:])
        if leader.dist_sync_on_step and leader.distributed_available_fn():
            gather = leader.dist_sync_fn or gather_all_tensors
            batch = batch.gathered(lambda: batch[0], leader.device, gather, leader.process_group)
        analysis = batch.analysis()
        values = as_values([member.measure.value(analysis) for member in self._members()], leader._value_device)
        for member, value in zip(self._members(), values, strict=True):
            member._forward_cache = value
        return dict(zip(map(str, self.keys()), values, strict=True))

    @staticmethod
    def names() -> list[str]:
        """Canonical names of all metrics, ``<k>`` and ``<p>`` standing for numbers; a view goes before: ``z_mrr``."""
        return list(all_names())

    @property
    def measures(self) -> dict[str, Measure]:
        """What each key stands for, in the order of the keys."""
        return {str(key): member.measure for key, member in zip(self.keys(), self._members(), strict=True)}

    def monitor(self, metric: str) -> Monitor:
        """Return ``monitor`` and ``mode`` of a metric, for ``EarlyStopping(**collection.monitor("hits@10"))``.

        Args:
            metric: a key of the collection, with or without its prefix, or a synonym of one.

        Raises:
            ValueError: if the collection has no such metric, or it has no direction.
        """
        name = str(metric).removeprefix(self.prefix or "").removesuffix(self.postfix or "")
        if name not in self._modules:
            name = parse_name(name).measure().key
        if name not in self._modules:
            raise ValueError(f"{shown(metric)} is not in the collection; it has {', '.join(map(str, self.keys()))}")
        higher = self._modules[name].higher_is_better
        if higher is None:
            raise ValueError(f"{shown(metric)} has no direction: neither a high nor a low value is better")
        return {"monitor": f"{self.prefix or ''}{name}{self.postfix or ''}", "mode": "max" if higher else "min"}

    def mode(self, metric: str) -> Literal["max", "min"]:
        """Return the direction of a metric: "max" if higher is better, else "min"; arguments of ``monitor``."""
        return self.monitor(metric)["mode"]

    def table(self) -> RankTable:
        """All rows of all processes, sorted, distinct and counted, on the CPU."""
        return RankTable(torch.from_numpy(self._synced_analysis().table_rows.copy(order="K")))

    def local_table(self) -> RankTable:
        """The rows of this process, in the order they came (merged with storage="counts"); nothing is synchronised."""
        return RankTable(self._leader.rows.as_one(self._leader.device))

    def summary(self) -> Summary:
        """Base value, adjusted index and z-score of every metric, by side: print it, or read ``rows``."""
        return summarize(self._synced_analysis(), self.measures.values())

    def p_value_errors(self) -> dict[str, float]:
        """Standard error of every p-value asked for, from simulating it; 0.0 where the law is at hand. Synchronises."""
        analysis = self._synced_analysis()
        return {key: one.p_value_error(analysis) for key, one in self.measures.items() if one.view == "p_value"}

    def breakdown(self, names: Names = None) -> Breakdown:
        """Tabulate count, base value, adjusted index and z-score by group; names: id -> name. Synchronises."""
        return break_down(self._synced_analysis(), self.measures.values(), names)

    def confidence_intervals(
        self,
        confidence_level: float = 0.95,
        method: Method = "normal",
        cluster: Cluster | None = None,
        *,
        n_resamples: int = 2000,
        seed: int = 0,
    ) -> Intervals:
        """Intervals of every metric: what it would be on other tasks of the same kind. Synchronises like ``compute``.

        Args:
            confidence_level: in (0, 1).
            method: "normal" (means of f, corrected for skewness) or "bootstrap" (studentised for means of f,
                percentiles for all else); Wilson's for hits with both. The median has a bootstrap only, extremes none.
            cluster: what is drawn together: "group", "sample_id" (both sides of a triple), or int64 keys aligned with
                the rows of ``table()``; None: every task is on its own.
            n_resamples: number of bootstrap samples.
            seed: of the bootstrap.

        Raises:
            TypeError, ValueError: for bad options, keys that do not fit, and fewer than two tasks or clusters.

        Views are affine: their moments, given by the candidate counts, stay fixed. p-values and counts are left out.
        Warns of intervals whose error rests on fewer than 5 tasks or clusters: they may well miss.
        """
        return confidence_intervals(
            self._synced_analysis(), self.measures, confidence_level, method, cluster, n_resamples, seed
        )
