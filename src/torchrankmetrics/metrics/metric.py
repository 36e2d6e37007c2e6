"""`RankMetric`: one metric as a torchmetrics Metric, with `update` for it and for collections."""

from __future__ import annotations  # help() shows the names of types

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import torch
from lightning_utilities import apply_to_collection
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from torchmetrics.utilities.plot import plot_single_or_multi_val
from torchmetrics.wrappers import BootStrapper

from torchrankmetrics.decorators import eager
from torchrankmetrics.definitions.protocol import Average, Definition, EmptyQueries, Side, View
from torchrankmetrics.definitions.sample import Moments, RankType
from torchrankmetrics.metrics.buffer import Gather, RowBuffer
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import MetricName, as_measure
from torchrankmetrics.metrics.state import KEY, RowOwner, validated, value_device
from torchrankmetrics.metrics.warnings import warn_of_masked_scores
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.ranking.arrays import Integers, Numbers, as_array
from torchrankmetrics.ranking.tasks import Exclude, Target
from torchrankmetrics.table.blocks import Preds, make_block
from torchrankmetrics.table.task_facts import NO_FACTS, TaskFacts
from torchrankmetrics.validation import TaskSide, check_choice

if TYPE_CHECKING:
    from torchrankmetrics.metrics.collection import RankCollection

Storage = Literal["ranks", "counts"]
Value = TypeVar("Value")


class MeasureAttribute(Generic[Value]):
    """An attribute of a metric and of its class, computed from the measure.

    It is None on a class without a measure.
    """

    def __init__(self, read: Callable[[Measure], Value]) -> None:
        self._read = read

    def __get__(self, metric: Any, owner: type) -> Value:
        measure = getattr(owner if metric is None else metric, "measure", None)
        return None if measure is None else self._read(measure)  # type: ignore[return-value]

    def __set__(self, metric: Any, value: Any) -> None:
        raise AttributeError(
            "the measure of a metric is fixed at construction; create a new metric instead"
        )


class RankMetric(RowOwner, Metric):
    """Any rank metric as a stateful, distributed ``torchmetrics.Metric`` with a 0-d float64 value.

    Args:
        definition (str, RankDefinition or QueryDefinition): a name (also with view, rank type,
            side) or a definition.
        view (str, default None): "base" (None), "normalized" (M / E), "adjusted_index", "z_score"
            or "p_value".
        rank_type (str, default None): "realistic" (None), "optimistic", "pessimistic", or
            "expected" over the orders of tied candidates (None for query metrics). p-values are
            computed from pessimistic ranks.
        side (str, default None): "both" (None), or only the tasks of "head", "tail" or "relation".
        average (str, default None): "micro" (None): tasks have equal weights; "macro": groups have
            equal weights.
        expectation (ExpectationProvider, default None): source of the null moments; None: exact.
        relevance_threshold (float, default 1.0): smallest label of a relevant item, for query
            metrics except (N)DCG. Another one than 1 is part of the name: ``recall_at_10_rel_2``.
        empty_queries (str, default None): for query metrics, queries without a relevant item are
            left out with a warning (None), left out ("skip"), count as 0 ("zero", as in trec_eval
            and torchmetrics), or raise ("error"). ``query_auc`` and metrics where lower is better
            have no such value: "zero" leaves these queries out.
        storage (str, default "ranks"): "ranks" stores all rows; "counts" merges equal rows, which
            bounds the memory by the number of distinct rows. Values are the same.
        **kwargs (options of torchmetrics): options of ``torchmetrics.Metric``.

    Raises:
        TypeError, ValueError: for an unknown name (with the nearest) or option, an option that
            differs from the name's, or a combination that is undefined or has no expectation.

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
        *(*Metric.__jit_unused_properties__, "update_called", "update_count"),
        *("rows", "_first", "_computed", "_update_count"),
    ]
    __jit_ignored_attributes__: ClassVar[list[str]] = [
        *Metric.__jit_ignored_attributes__,
        "measure",
    ]
    measure: Measure
    definition: MeasureAttribute[Definition] = MeasureAttribute(lambda measure: measure.definition)
    view: MeasureAttribute[View] = MeasureAttribute(lambda measure: measure.view)
    rank_type: MeasureAttribute[RankType] = MeasureAttribute(lambda measure: measure.rank_type)
    side: MeasureAttribute[Side] = MeasureAttribute(lambda measure: measure.side)
    average: MeasureAttribute[Average] = MeasureAttribute(lambda measure: measure.average)
    expectation: MeasureAttribute[ExpectationProvider] = MeasureAttribute(
        lambda measure: measure.expectation
    )
    key: MeasureAttribute[str] = MeasureAttribute(lambda measure: measure.key)
    higher_is_better: MeasureAttribute[bool | None] = MeasureAttribute(
        lambda measure: measure.higher_is_better
    )
    plot_lower_bound: MeasureAttribute[float | None] = MeasureAttribute(
        lambda measure: measure.bounds[0]
    )
    plot_upper_bound: MeasureAttribute[float | None] = MeasureAttribute(
        lambda measure: measure.bounds[1]
    )
    if TYPE_CHECKING:  # torch.jit.script reads annotations of modules
        _forward_cache: Any
    _is_resampled = False  # whether it is a copy inside a BootStrapper

    def __init__(
        self,
        definition: Definition | str | MetricName | Measure,
        *,
        view: View | None = None,
        rank_type: RankType | None = None,
        side: Side | None = None,
        average: Average | None = None,
        expectation: ExpectationProvider | None = None,
        relevance_threshold: float = 1.0,
        empty_queries: EmptyQueries | None = None,
        storage: Storage = "ranks",
        **kwargs: Any,
    ) -> None:
        own: dict[str, Any] = {
            "view": view,
            "rank_type": rank_type,
            "side": side,
            "average": average,
        }
        measure = as_measure(definition, expectation, relevance_threshold, empty_queries, **own)
        if "top_k" in kwargs:
            raise ValueError(
                "top_k must be a part of the name: pass 'ndcg@10', or k=10 to a class such as "
                "NormalizedDCG"
            )
        check_choice("storage", storage, get_args(Storage))
        # super().__init__ sets the update count and the value, which are stored in these
        vars(self).update(_rows=RowBuffer(merges=storage == "counts"), _value=None)
        super().__init__(**kwargs)
        self.measure = measure
        self.storage = storage
        self._note_needs([measure])
        self.add_state(KEY, [], dist_reduce_fx="cat")

    @property
    def rows(self) -> RowBuffer:
        """The blocks of rows, the state.

        It has the update count and the value, which torchmetrics stores with each metric.
        """
        # read in every update: vars() takes twice as long
        return self.__dict__["_rows"]  # type: ignore[no-any-return]

    @rows.setter
    def rows(self, blocks: Iterable[Tensor]) -> None:
        if not isinstance(blocks, RowBuffer):
            blocks = RowBuffer(blocks, self.rows.updates, self.rows.merges)
        vars(self)["_rows"] = blocks.assigned_to(self)

    @property
    def _update_count(self) -> int:
        return self.rows.updates

    @_update_count.setter
    def _update_count(self, count: int) -> None:
        self.rows.updates = count

    @property
    def _computed(self) -> Any:
        value, content = self.__dict__["_value"] or (None, None)
        return value if content is self.rows.content else None

    @_computed.setter
    def _computed(self, value: Any) -> None:
        vars(self)["_value"] = None if value is None else (value, self.rows.content)

    @eager
    def update(
        self: RankMetric | RankCollection,
        preds: Preds,
        target: Target | None = None,
        *,
        exclude: Exclude = None,
        side: TaskSide | None = None,
        group: Integers | None = None,
        query: Integers | None = None,
        weight: Numbers | None = None,
        sample_id: Integers | None = None,
        gain: Numbers | None = None,
        indexes: Integers | None = None,
        backend: str = "auto",
    ) -> None:
        """Rank a batch and store the ranks, or store existing ranks.

        Args:
            preds (Tensor, Ranks or RankTable): scores (B, N), or (T,) with ``indexes``; higher is
                better, never modified. Or a ``Ranks``, without target and exclude. Or a
                ``RankTable``, without other arguments; metrics of one side and macro averages then
                check its sides or groups, which waits for an accelerator.
            target (Tensor, list or tuple, default None): the targets of each row, in every form of
                ``rank_scores``; with ``indexes`` bool or labels (T,).
            exclude (Tensor, list or tuple, default None): known positives to exclude, in every form
                of ``rank_scores``; with ``indexes`` bool (T,).
            side (str, default None): "head", "tail" or "relation", the predicted side.
            group (integers, default None): (tasks,), or one for all; (B,) if ``target`` is labels
                (B, N) or lists; (T,) with ``indexes``.
            query (integers, default None): (B,) or one, at least 0; with ranks (tasks,). The
                relevant items of one query may be spread over several updates. None: the relevant
                items of a row are a whole query.
            weight (numbers, default None): at least 0, of the shape of group; tasks of weight zero
                are dropped.
            sample_id (integers, default None): (tasks,), or (T,) with ``indexes``; repeats of
                (side, sample id) count once.
            gain (numbers, default None): relevance labels >= 0 of ranks, or of pairs in ``target``,
                (tasks,) or one; 0 drops the task. None: the labels of ``target``, else 1.
            indexes (integers, default None): the query of each flat score (T,), at least 0, as in
                torchmetrics' retrieval: scores of one side and index are one query over all updates
                and processes. Lists are ranked at ``compute``.
            backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.

        Raises:
            TypeError, ValueError, IndexError: for bad input, before the state changes.
        """
        # a named tuple takes 2% of an update
        is_plain = side is group is weight is sample_id is query is gain is None
        facts = NO_FACTS if is_plain else TaskFacts(side, group, weight, sample_id, query, gain)
        self._validate(preds, facts, target, exclude, indexes)
        self._check_not_flat(indexes is not None)
        is_plain_scores = (
            self._has_queries and target is not None and all(fact is None for fact in facts[1:])
        )
        block = make_block(preds, target, exclude, facts, indexes=indexes, backend=backend)
        if self._has_views and not self.rows and not self._has_warned_of_masks:
            self._has_warned_of_masks = warn_of_masked_scores(preds, exclude)
        self._append(block, is_plain_scores=is_plain_scores)

    @eager
    def compute(self) -> Tensor:
        """Value of the metric in its view over all tasks so far, 0-d float64.

        NaN without tasks or where it is undefined.
        """
        analysis = self.rows.analysis()
        value = self.measure.value(analysis)
        self._warn_of(analysis, [self.measure])
        return torch.scalar_tensor(value, dtype=torch.float64, device=value_device(self.device))

    @torch.jit.unused
    @eager
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Update with a batch and return the value of this batch alone.

        NaN if `update` added nothing.
        """
        if self.full_state_update:  # as torchmetrics does if `update` reads earlier states
            self.update(*args, **kwargs)
        with self._batch_alone(keep=not self.full_state_update):
            self.update(*args, **kwargs)
            value = self.compute()
        self._forward_cache = value
        return value

    def reset(self) -> None:
        """Remove all ranking tasks.

        For a member of a RankCollection these are all tasks of the collection.
        """
        self.unsync(self._is_synced)
        if self.rows.collection is None:
            self.rows = ()  # others may refer to the old buffer
        super().reset()

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the rows of another metric, as if its updates had been made here.

        Args:
            incoming_state (mapping or Metric): the same metric, or a dict with its ``rows``, int64
                (n, 10) tensors.
        """
        if isinstance(incoming_state, RankMetric):
            if self.key != incoming_state.key:
                raise ValueError(
                    f"incoming_state must be the same metric, {self.key!r}; got "
                    f"{incoming_state.key!r}"
                )
            rows = incoming_state.rows.as_one(self.device)
            self._merge_states(rows, incoming_state.metric_state, incoming_state.update_count)
        elif isinstance(incoming_state, dict) and KEY in incoming_state:
            self._merge_states(validated(incoming_state[KEY]), incoming_state)
        else:
            super().merge_state(incoming_state)  # raises

    def moments(
        self,
        num_candidates: npt.ArrayLike,
        *,
        weight: npt.ArrayLike | None = None,
        num_relevant: npt.ArrayLike = 1,
    ) -> Moments:
        """Return mean and variance of the base value under random ranking; needs no data.

        Args:
            num_candidates (array-like): integers >= 1, (tasks,) or (queries,).
            weight (array-like, default None): numbers >= 0 of that shape; None: equal.
            num_relevant (array-like, default 1): for query metrics, relevant items of each query
                (queries,), or one int.
        """
        return self.measure.definition.moments_of_counts(
            _without_masks(num_candidates, "num_candidates"),
            _without_masks(num_relevant, "num_relevant"),
            _without_masks(weight, "weight"),
            self.measure.expectation,
        )

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one or several values; returns ``(fig, ax)``. Needs matplotlib."""
        value = self.compute() if val is None else val
        return plot_single_or_multi_val(
            value,
            ax=ax,
            higher_is_better=self.higher_is_better,
            name=self.key,
            lower_bound=self.plot_lower_bound,
            upper_bound=self.plot_upper_bound,
            legend_name=self.plot_legend_name,
        )

    def extra_repr(self) -> str:
        """Show the key in ``print(metric)``."""
        return self.measure.key

    def _check_writable(self) -> None:
        if self.rows.is_exclusive:
            raise TorchMetricsUserError(
                f"{self.key!r} is in a RankCollection, which ranks once for all its metrics: "
                "update the collection"
            )
        super()._check_writable()

    def _validate(self, preds: Any, facts: TaskFacts, *others: Any) -> None:
        super()._validate(preds, facts)
        if self._is_resampled:
            _check_resampling(preds, facts, *others)

    def _refer_to(self, rows: RowBuffer) -> None:
        self.rows = rows

    def _replace(self, rows: Tensor) -> None:
        self.rows.is_released = True  # a collection that owns the buffer finds the difference
        self.rows = RowBuffer([rows.to(self.device)], max(self._update_count, 1), self.rows.merges)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not self._is_resampled:
            self._is_resampled = _is_copied_by_bootstrapper()

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        # torchmetrics counts an update, and drops the cached value, before it knows that the input
        # fits
        if type(self).update is RankMetric.update:
            return update
        hosted = super()._wrap_update(update)

        @functools.wraps(update)
        def counted_once(*args: Any, **kwargs: Any) -> None:
            number = self._update_count
            try:
                hosted(*args, **kwargs)
                number += 1
            finally:
                self._update_count = number

        return counted_once

    @contextmanager
    def _added_states(self) -> Iterator[None]:
        """Let torchmetrics' code inside see only the states that a subclass added."""
        defaults = self._defaults
        reductions = self._reductions
        self._defaults = {name: one for name, one in defaults.items() if name != KEY}
        self._reductions = {name: one for name, one in reductions.items() if name != KEY}
        try:
            yield
        finally:
            self._defaults = defaults
            self._reductions = reductions

    @contextmanager
    def _added_states_restored(self) -> Iterator[dict[str, Any]]:
        """Yield the values of the states that a subclass added, and restore them after an error."""
        with self._added_states():
            earlier = super()._copy_state_dict()
        try:
            yield earlier
        except BaseException:
            self._set_states(earlier)
            raise

    def _set_states(self, states: dict[str, Any]) -> None:
        for name, value in states.items():
            setattr(self, name, value)

    @contextmanager
    def _batch_alone(self, *, keep: bool = True) -> Iterator[None]:
        with self._added_states_restored() as earlier:
            self._set_states({name: deepcopy(self._defaults[name]) for name in earlier})
            with super()._batch_alone(keep=keep):
                yield
            if keep:
                with self._added_states():
                    self._reduce_states(earlier)
            else:
                self._set_states(earlier)

    def _merge_states(self, rows: Tensor, states: Mapping[str, Any], updates: int = 1) -> None:
        missing = [name for name in self._defaults if name not in states]
        if missing:
            raise ValueError(
                f"incoming_state must have every state of {type(self).__name__}; it lacks "
                f"{', '.join(missing)}"
            )
        with self._added_states_restored():
            with self._added_states():
                self._reduce_states(dict(states))
            self._merge(rows, updates)

    @contextmanager
    def sync_context(self, *args: Any, should_unsync: bool = True, **kwargs: Any) -> Iterator[None]:
        """Synchronize inside, and restore the rows of this process afterwards.

        They are restored after an error, too.
        """
        self.sync(*args, **kwargs)
        try:
            yield
        finally:  # torchmetrics leaves the rows of all processes after an error
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def _sync_dist(
        self, dist_sync_fn: Gather = gather_all_tensors, process_group: Any = None
    ) -> None:
        # torchmetrics gathers once per metric, and sends float32 without data
        rows = self.rows.gathered(dist_sync_fn, process_group or self.process_group, self.device)
        with self._added_states():
            super()._sync_dist(dist_sync_fn, process_group)
        self.rows = rows

    def _copy_state_dict(self) -> dict[str, Any]:
        with self._added_states():
            added = super()._copy_state_dict()
        return {KEY: self.rows, **added}  # torchmetrics copies blocks, which nobody writes in place

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = "") -> RankMetric:
        if self.rows and fn(self.rows[-1][:0]).is_meta:
            raise ValueError(
                f"{self.key!r} must be reset before it is moved to meta, which stores no values: "
                f"it has the rows of {self.update_count} updates"
            )
        values = self._computed, self._forward_cache
        super()._apply(fn, (*exclude_state, KEY))
        if not self.compute_on_cpu:
            self.rows.move(self.device)
        # torchmetrics casts values to the dtype of the model, too
        device = value_device(self.device)
        self._computed, self._forward_cache = (
            apply_to_collection(one, Tensor, Tensor.to, device) for one in values
        )
        return self


def _without_masks(values: Any, name: str) -> Any:
    """Read a tensor or masked array as an array; an error if an entry is masked."""
    if isinstance(values, Tensor | np.ma.MaskedArray):
        return as_array(values, name)
    return values


def _check_resampling(
    preds: object,
    facts: TaskFacts,
    target: object = None,
    exclude: object = None,
    indexes: object = None,
) -> None:
    """Raise for arguments that torchmetrics' ``BootStrapper`` cannot draw with replacement."""
    of_tasks = (facts.group, facts.weight, facts.gain)
    is_drawable = (
        (
            isinstance(preds, Tensor)
            and isinstance(target, Tensor)
            and (target.ndim == 1 or target.dtype == torch.bool)
        )
        and (
            exclude is None
            or (isinstance(exclude, Tensor) and exclude.dtype == torch.bool and exclude.ndim == 2)
        )
        # a query drawn twice would have its relevant items twice, a sample id would count once
        and facts.query is facts.sample_id is indexes is None
        and all(isinstance(fact, Tensor | int | float | None) for fact in of_tasks)
    )
    if not is_drawable:
        raise ValueError(
            "these arguments cannot be resampled by BootStrapper, which draws along the first "
            "dimension of tensors: pass preds (B, N), target (B,), exclude as bool (B, N), group "
            "and weight as (B,) tensors, and no query, indexes or sample_id (repeats of an id "
            "count once), or use RankCollection.confidence_intervals, which needs none of this"
        )


def _is_copied_by_bootstrapper() -> bool:
    """Whether torchmetrics' ``BootStrapper`` is copying its metric.

    The copies have no other trace of it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not BootStrapper.__init__.__code__:
        frame = frame.f_back
    return frame is not None
