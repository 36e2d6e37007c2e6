"""`RankMetric`: one metric as a torchmetrics Metric; its attributes follow from its measure."""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.definitions.candidates import Moments
from torchrankmetrics.definitions.protocol import Definition
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.eager import eager
from torchrankmetrics.metrics.analysis import Analysis, Average, Side
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import MetricName, as_measure
from torchrankmetrics.metrics.state import RowState, checked
from torchrankmetrics.metrics.store import REWRITING, Gather, TakesBatches, as_values
from torchrankmetrics.metrics.views import View
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.ranking.arrays import Integers, as_array
from torchrankmetrics.table.blocks import Preds
from torchrankmetrics.table.canonical import canonical_rows
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide, check_choice

Fact = TypeVar("Fact")


class OfMeasure(Generic[Fact]):
    """An attribute of a metric and of its class; None on a class whose measure is open.

    Args:
        read: gives it from the measure.
    """

    def __init__(self, read: Callable[[Measure], Fact]) -> None:
        self._read = read

    @overload
    def __get__(self, metric: None, owner: type) -> Fact | None: ...
    @overload
    def __get__(self, metric: object, owner: type) -> Fact: ...
    def __get__(self, metric: Any, owner: type) -> Fact | None:
        measure = getattr(owner if metric is None else metric, "measure", None)
        return None if measure is None else self._read(measure)

    def __set__(self, metric: Any, value: Any) -> None:
        raise AttributeError("what a metric measures is said when it is made: build another one")


Storage = Literal["ranks", "counts"]


class HostOptions(TypedDict, total=False):
    """Keyword arguments of ``torchmetrics.Metric``."""

    compute_on_cpu: bool
    dist_sync_on_step: bool
    process_group: object
    dist_sync_fn: Callable[..., object] | None
    distributed_available_fn: Callable[..., bool] | None
    sync_on_compute: bool
    compute_with_cache: bool


_COMPACT_FROM = 1 << 16


class RankMetric(TakesBatches, RowState):
    """Any rank metric as a stateful, distributed ``torchmetrics.Metric`` with a 0-d float64 value.

    Args:
        definition (str, RankDefinition or QueryDefinition): a name (any synonym; it may include view, rank type and
            side), or a definition such as ``RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))``.
        view (str, default None): "base" (None), "normalized" (M / E), "adjusted_index", "z_score" or "p_value".
        rank_type (str, default None): "realistic" (None), "optimistic", "pessimistic", or "expected" over the orders of
            tied candidates (None for query metrics). p-values are computed from pessimistic ranks.
        side (str, default None): "both" (None), or only the tasks of "head", "tail" or "relation".
        average (str, default None): "micro" (None): tasks have equal weights; "macro": groups have equal weights.
        expectation (ExpectationProvider, default None): source of the null moments; None: exact.
        storage (str, default "ranks"): "ranks" stores the rows as they came; "counts" merges equal rows in place. Then
            the number of distinct rows bounds the memory; values are the same.
        **kwargs: those of ``torchmetrics.Metric``.

    Raises:
        TypeError: if the definition is neither.
        ValueError: for an unknown name (with the nearest) or option, an option that differs from what the name says,
            or a combination without a meaning or without an expectation.

    Example:
        >>> import torch
        >>> from torchrankmetrics import RankDefinition, RankMetric
        >>> preds, target = torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 2])
        >>> RankMetric("mrr", view="adjusted_index")(preds, target)
        tensor(0.3571, dtype=torch.float64)
        >>> dcg = RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
        >>> RankMetric(dcg, view="adjusted_index")(preds, target)
        tensor(0.3630, dtype=torch.float64)
    """

    is_differentiable = False
    full_state_update = False
    # TorchScript compiles all other properties and annotated attributes of a module
    __jit_unused_properties__: ClassVar[list[str]] = [
        *Metric.__jit_unused_properties__,
        "rows",
        "dtype",
        "_computed",
        "_value_device",
        "_keeps_counts",
    ]
    __jit_ignored_attributes__: ClassVar[list[str]] = [*Metric.__jit_ignored_attributes__, "measure"]
    measure: Measure
    definition: OfMeasure[Definition] = OfMeasure(lambda measure: measure.definition)
    view: OfMeasure[View] = OfMeasure(lambda measure: measure.view)
    rank_type: OfMeasure[RankType] = OfMeasure(lambda measure: measure.rank_type)
    side: OfMeasure[Side] = OfMeasure(lambda measure: measure.side)
    average: OfMeasure[Average] = OfMeasure(lambda measure: measure.average)
    expectation: OfMeasure[ExpectationProvider] = OfMeasure(lambda measure: measure.expectation)
    key: OfMeasure[str] = OfMeasure(lambda measure: measure.key)
    higher_is_better: OfMeasure[bool | None] = OfMeasure(lambda measure: measure.higher_is_better)
    plot_lower_bound: OfMeasure[float | None] = OfMeasure(lambda measure: measure.bounds[0])
    plot_upper_bound: OfMeasure[float | None] = OfMeasure(lambda measure: measure.bounds[1])
    _forward_cache: Any

    def __init__(
        self,
        definition: Definition | str | MetricName | Measure,
        *,
        view: View | None = None,
        rank_type: RankType | None = None,
        side: Side | None = None,
        average: Average | None = None,
        expectation: ExpectationProvider | None = None,
        storage: Storage = "ranks",
        **kwargs: Unpack[HostOptions],
    ) -> None:
        measure = as_measure(definition, expectation, view=view, rank_type=rank_type, side=side, average=average)
        check_choice("storage", storage, get_args(Storage))
        super().__init__(**kwargs)
        self.measure = measure
        self._has_queries = measure.definition.of_tasks is None
        self.storage = storage
        self._holder = None
        self.add_state("rows", [], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """float64, that of the value, whatever the metric was cast to; rows are int64."""
        return torch.float64

    @eager
    def compute(self) -> Tensor:
        """Value of the metric in its view over all tasks so far: 0-d float64, NaN without tasks or where undefined."""
        return self._as_value(self.rows.analysis())

    @torch.jit.unused
    @eager
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Update with a batch and give the value of that batch alone."""
        self._check_free()
        before = dict(vars(self))
        self.rows.shared = True
        try:
            value: Tensor = super().forward(*args, **kwargs)
        except BaseException:
            vars(self).update(before)  # torchmetrics resets before it updates
            raise
        self._bound()
        return value

    def moments(
        self, num_candidates: npt.ArrayLike, *, weight: npt.ArrayLike | None = None, num_answers: npt.ArrayLike = 1
    ) -> Moments:
        """Mean and variance of the base value under random ranking; needs no data.

        Args:
            num_candidates: (tasks,) integers >= 1, or (queries,).
            weight: numbers >= 0 of that shape; None: equal.
            num_answers: (queries,) integers from 1 to num_candidates, or one; for metrics of queries alone.
        """
        given: dict[str, Any] = {"num_candidates": num_candidates, "weight": weight, "num_answers": num_answers}
        num_candidates, weight, num_answers = (
            as_array(values, name) if isinstance(values, Tensor | np.ma.MaskedArray) else values
            for name, values in given.items()
        )
        measure = self.measure
        return measure.definition.moments_of_counts(num_candidates, num_answers, weight, measure.expectation)

    def merge_state(self, incoming_state: "dict[str, Any] | Metric") -> None:
        """Take over the rows of another metric, as if its updates had been made here.

        Args:
            incoming_state: the same metric, or a dict with its ``rows``, a list of int64 (n, 10) tensors.

        Raises:
            TypeError, ValueError, IndexError: for another metric, and rows that an update would refuse.
        """
        self._check_free()
        if isinstance(incoming_state, RankMetric):
            if self.key != incoming_state.key:
                raise ValueError(f"incoming_state must be the same metric, {self.key!r}; got {incoming_state.key!r}")
            self._check_update(RankTable(incoming_state.rows.as_one(self.device)), None, None)
        elif isinstance(incoming_state, dict) and "rows" in incoming_state:
            incoming_state = {"rows": [checked(incoming_state["rows"], self._has_queries).to(self.device)]}
            self._check_update(RankTable(incoming_state["rows"][0]), None, None)
        super().merge_state(incoming_state)
        self._update_count += max(getattr(incoming_state, "_update_count", 1), 0)
        self._bound()

    def reset(self) -> None:
        """Forget all tasks; a RankCollection that holds the metric has one list of them, and forgets them, too."""
        holder = self._holding()
        for metric in [self] if holder is None or not self.rows else holder._members():
            metric.rows = []  # a new list: others may hold the old one
            RowState.reset(metric)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one or several values; returns ``(fig, ax)``. Needs matplotlib."""
        return self._plot(val, ax)

    def set_dtype(self, dst_type: str | torch.dtype) -> "RankMetric":
        """Do nothing: rows are int64 and values float64, whatever the model's dtype."""
        return self

    def extra_repr(self) -> str:
        """Show the key in ``print(metric)``."""
        return self.measure.key

    def _as_value(self, analysis: Analysis) -> Tensor:
        return as_values([self.measure.value(analysis)], self._value_device)[0]

    def _check_free(self) -> None:
        if self._holding() is not None:
            raise TorchMetricsUserError(
                f"{self.key!r} is held by a RankCollection, which ranks once for all its metrics: update the collection"
            )

    def _admit(self, preds: Preds, side: str | None, group: Integers | None) -> TaskSide | None:
        if self._holder is not None:
            self._check_free()
        self._check_update(preds, side, group)
        return cast("TaskSide | None", side)

    def _keep(self, block: Tensor) -> None:
        if self._has_queries:
            from torchrankmetrics.table.queries import check_queries

            check_queries(block)
        if self.storage == "counts":  # its own: who is updated is free
            self._bound()
        with REWRITING:
            if self.rows.shared:
                self.rows = list(self.rows)
            self.rows.append(block)

    def _check_update(self, preds: Preds, side: str | None, group: Integers | None) -> None:
        if self._is_synced:
            raise TorchMetricsUserError("update of a synced metric would be lost by unsync(); call unsync() first")
        measure = self.measure
        if measure.side != "both" and side is None and not (isinstance(preds, RankTable) and preds.has_sides()):
            known = ", ".join(map(repr, measure.side_names))
            raise ValueError(
                f"side must be passed to update ({known} or 'relation'), or stand in every row of its RankTable: "
                f"{self.key!r} counts one side only"
            )
        if measure.average == "macro" and group is None and not (isinstance(preds, RankTable) and preds.has_groups()):
            raise ValueError(
                "group must be passed to update, or stand in every row of its RankTable: average='macro' weighs every "
                "group the same"
            )

    def _holding(self) -> Any:
        """The RankCollection that holds this metric, or None."""
        return None if self._holder is None else self._holder()

    @property
    def _keeps_counts(self) -> bool:
        storage: Storage = (self._holding() or self).storage  # rows of a collection are kept its way
        return storage == "counts"

    def _bound(self) -> None:
        """Merge equal rows where only their counts are kept; rarely: each time the rows have doubled."""
        if self._keeps_counts and len(self.rows) > 1:
            first, *later = map(len, self.rows)
            if sum(later) >= max(_COMPACT_FROM, first):
                self._compact()

    def _compact(self) -> None:
        store = self.rows
        with REWRITING, torch.inference_mode(False):  # what is kept outlives inference mode
            blocks = list(store)  # other threads may append to the store meanwhile
            rows, _ = canonical_rows(torch.cat(blocks).cpu().numpy(), drop_repeats=False)
            store.rewrite([torch.from_numpy(rows).to(blocks[0].device)], len(blocks))

    def _local_rows(self) -> Tensor:
        if self._keeps_counts and len(self.rows) > 1:
            self._compact()
        return self.rows.as_one(self.device)

    def _sync_dist(self, dist_sync_fn: Gather = gather_all_tensors, process_group: Any = None) -> None:
        group = process_group or self.process_group
        self.rows = self.rows.gathered(self._local_rows, self.device, dist_sync_fn, group)
