"""RankCollection: many metrics, one store of rows, one pass over the scores, one gather."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from torchrankmetrics.metrics.breakdown import Breakdown, Names, break_down
from torchrankmetrics.metrics.intervals import Intervals, Method, confidence_intervals
from torchrankmetrics.metrics.metric import RankMetric, Storage
from torchrankmetrics.metrics.names import key_of, parse_name
from torchrankmetrics.metrics.recipe import Recipe, Side
from torchrankmetrics.metrics.summary import Column, Summary, summarize
from torchrankmetrics.metrics.tied import TiedCollection
from torchrankmetrics.ranking.table import RankTable
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.sample import RankType
from torchrankmetrics.theory.views import View

DEFAULT_METRICS = ("mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10", "amri", "adjusted_mrr", "z_mrr")


class RankCollection(TiedCollection):
    """A ``MetricCollection`` of rank metrics that rank each batch once and keep one store of rows for all.

    Args:
        metrics: names (any synonym), ``RankMetric`` instances, or a dict of key -> name or instance; None: mrr, mr,
            hits_at_1/3/10, amri, adjusted_mrr, z_mrr. Names multiply with views, rank_types and sides unless they say
            their own; instances and dict entries are taken as they are.
        views: of "base", "normalized", "adjusted_index", "z_score", "p_value"; pairs without a meaning are left out.
        rank_types: of "realistic", "optimistic", "pessimistic", "expected".
        sides: of "both", "head", "tail", "relation"; "both" is the union of the tasks. Others than "both" need ``side``
            in update.
        expectation: what gives null moments; None: exact.
        storage: "ranks" or "counts", as in ``RankMetric``.
        prefix: put before every key, for example "val/".
        postfix: put behind every key.
        **kwargs: those of ``torchmetrics.Metric``, for every member.

    Raises:
        TypeError: if metrics are of another kind.
        ValueError: for unknown names (with the nearest) or options, keys that a logger would refuse, and combinations
            without a meaning that are asked for by name.

    >>> collection = RankCollection(["mrr", "amri"], prefix="val/")
    >>> collection.update(torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 2]))
    >>> {key: round(value.item(), 3) for key, value in collection.compute().items()}
    {'val/mrr': 0.75, 'val/amri': 0.5}
    """

    def __init__(
        self,
        metrics: Any = None,
        *,
        views: Sequence[View] = ("base",),
        rank_types: Sequence[RankType] = ("realistic",),
        sides: Sequence[Side] = ("both",),
        expectation: ExpectationProvider | None = None,
        storage: Storage = "ranks",
        prefix: str | None = None,
        postfix: str | None = None,
        **kwargs: Any,
    ) -> None:
        options = {"expectation": expectation or DEFAULT_EXPECTATION, "storage": storage, **kwargs}
        self._recipe = Recipe(views, rank_types, sides, options)
        super().__init__(prefix, postfix)
        self.add_metrics(DEFAULT_METRICS if metrics is None else metrics)

    def add_metrics(self, metrics: Any, *additional_metrics: Any) -> None:
        """Add metrics, as the constructor takes them; they see all rows so far."""
        if not hasattr(self, "_shared"):  # torchmetrics calls this before the store exists
            return
        if additional_metrics:
            several = isinstance(metrics, Sequence) and not isinstance(metrics, str)
            metrics = [*(metrics if several else [metrics]), *additional_metrics]
        members: dict[str, RankMetric] = {}
        for key, member in self._recipe.members(metrics):
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
        for member in members.values():
            member.storage = self._recipe.options["storage"]
        self._hold(members)

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Update with a batch and give the values of that batch alone."""
        self.update(*args, **kwargs)
        analysis = self._leader._batch_analysis()
        values = {}
        for key, member in zip(self.keys(), self._members(), strict=True):
            values[str(key)] = member._forward_cache = member._as_value(analysis)
        return values

    def mode(self, metric: str) -> Literal["max", "min"]:
        """Direction of a metric for EarlyStopping and ModelCheckpoint: "max" if higher is better, else "min".

        Args:
            metric: a key of the collection, with or without its prefix, or a synonym of one.

        Raises:
            ValueError: if the collection has no such metric, or it has no direction.
        """
        name = str(metric)
        name = name.removeprefix(self.prefix or "").removesuffix(self.postfix or "")
        if name not in self._modules:
            parsed = parse_name(name)
            name = key_of(parsed.definition, parsed.view or "base", parsed.rank_type or "realistic", parsed.side)
        if name not in self._modules:
            raise ValueError(f"{metric!r} is not in the collection; it has {', '.join(map(str, self.keys()))}")
        higher = self._modules[name].higher_is_better
        if higher is None:
            raise ValueError(f"{metric!r} has no direction: neither a high nor a low value is better")
        return "max" if higher else "min"

    def table(self) -> RankTable:
        """All rows of all processes, sorted, distinct and counted, on the CPU."""
        return RankTable(torch.from_numpy(self._synced_analysis().rows))

    def summary(self) -> Summary:
        """Base value, adjusted index and z-score of every metric, by side: print it, or read ``rows``."""
        return summarize(self._synced_analysis(), self._columns())

    def _columns(self) -> list[Column]:
        """The metrics that a summary tabulates, each once."""
        columns: dict[tuple[str, str, bool], Column] = {}
        for member in self._members():
            macro = member.average == "macro"
            column = Column(member.definition, member.rank_type, macro, member.expectation)
            columns.setdefault((member.definition.name, member.rank_type, macro), column)
        return list(columns.values())

    def breakdown(self, by: str = "group", names: Names = None) -> Breakdown:
        """Tabulate count, base value, adjusted index and z-score by group; names: id -> name. Synchronises."""
        return break_down(self._synced_analysis(), self._members(), by, names)

    def confidence_intervals(
        self,
        level: float = 0.95,
        method: Method = "normal",
        cluster: Any = None,
        *,
        resamples: int = 2000,
        seed: int = 0,
    ) -> Intervals:
        """Intervals of every metric: what it would be on other tasks of the same kind. Synchronises like ``compute``.

        Args:
            level: of confidence, in (0, 1).
            method: "normal" (means of f, corrected for skewness; Wilson for hits) or "bootstrap" (studentised for means
                of f, percentiles for all else); the median and its kin have a bootstrap only.
            cluster: what is drawn together: "group", "sample_id" (both sides of a triple), or int64 keys aligned with
                the rows of ``table()``; None: every task is on its own.
            resamples: number of bootstrap samples.
            seed: of the bootstrap.

        Raises:
            TypeError, ValueError: for bad options, keys that do not fit, and fewer than two tasks or clusters.

        Views are affine: their moments, given by the candidate counts, stay fixed. p-values and counts are left out.
        """
        members = {self._set_name(str(key)): member for key, member in zip(self._modules, self._members(), strict=True)}
        return confidence_intervals(self._synced_analysis(), members, level, method, cluster, resamples, seed)
