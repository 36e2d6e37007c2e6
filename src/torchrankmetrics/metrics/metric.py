"""RankMetric: a definition and a view as a torchmetrics metric: state and synchronisation, no mathematics."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.bootstrap import refuse_what_is_not_resampled
from torchrankmetrics.metrics.keywords import with_host_keywords
from torchrankmetrics.metrics.names import MetricName, key_of, said_by
from torchrankmetrics.metrics.shared import Shared, local_rows
from torchrankmetrics.metrics.views import FromView, check_choice, check_member, view_value
from torchrankmetrics.ranking.blocks import make_block
from torchrankmetrics.ranking.canonical import canonical_rows
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.table import RankTable
from torchrankmetrics.theory.candidates import Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.sample import RankType
from torchrankmetrics.theory.views import View, direction, value_bounds

Average = Literal["micro", "macro"]
Storage = Literal["ranks", "counts"]
_COMPACT_FROM = 1 << 16


class RankMetric(Metric):
    """Any rank metric as a stateful, distributed ``torchmetrics.Metric`` with a 0-d float64 value.

    Args:
        definition: what is computed: a name (any synonym), which may say view, rank type and side itself, or a
            definition such as ``RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))``.
        view: "base" (so is None), "normalized" (M / E), "adjusted_index", "z_score" or "p_value".
        rank_type: "realistic" (so is None), "optimistic", "pessimistic", or "expected" over tie orders.
        side: "head" or "tail": only those tasks count; None: all.
        average: "micro" (every task weighs the same) or "macro" (every group does).
        expectation: what gives null moments; None: exact.
        storage: "ranks" keeps the rows as they came; "counts" merges equal rows in place: memory is bounded by the
            number of distinct rows, values are the same.
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
    #: Direction of the value in its view; None for dispersion, counts and the tie rate.
    higher_is_better = FromView(direction)
    plot_lower_bound = FromView(lambda *measure: value_bounds(*measure)[0])
    plot_upper_bound = FromView(lambda *measure: value_bounds(*measure)[1])
    definition: RankDefinition
    view: View = "base"
    rows: list[Tensor]
    _forward_cache: Any

    def __init__(
        self,
        definition: RankDefinition | str | MetricName,
        *,
        view: View | None = None,
        rank_type: RankType | None = None,
        side: str | None = None,
        average: Average = "micro",
        expectation: ExpectationProvider | None = None,
        storage: Storage = "ranks",
        **kwargs: Any,
    ) -> None:
        expectation = DEFAULT_EXPECTATION if expectation is None else expectation
        said = said_by(definition, view, rank_type, side)
        check_member(said.definition, said.view, said.rank_type, expectation)
        check_choice("side", said.side, (None, "head", "tail"))
        check_choice("average", average, get_args(Average))
        check_choice("storage", storage, get_args(Storage))
        super().__init__(**kwargs)
        self.definition, self.view, self.rank_type, self.side = said.definition, said.view, said.rank_type, said.side
        self.average = average
        self.expectation = expectation
        self.storage = storage
        # a value that one process remembers and another must gather for would hang both; the analysis is what is kept
        self.compute_with_cache = False
        self._shared = Shared()
        self._compacted = 0
        self.add_state("rows", [], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """float64, that of the value, whatever the metric was cast to; rows are int64."""
        return torch.float64

    @property
    def key(self) -> str:
        """Canonical key, ``[side_][rank_type_][view_]name``, as a ``RankCollection`` logs it."""
        return key_of(self.definition, self.view, self.rank_type, self.side)

    @with_host_keywords
    def update(
        self,
        preds: Tensor | Ranks | RankTable,
        target: Any = None,
        *,
        exclude: Any = None,
        side: str | None = None,
        group: Any = None,
        weight: Any = None,
        sample_id: Any = None,
    ) -> None:
        """Rank a batch and keep the ranks, or take ranks that are there.

        Args:
            preds: (B, N) scores, higher is better, never modified; or a ``Ranks``, then without target and exclude;
                or a ``RankTable``, then alone. A metric of one side, or a macro average, asks all rows of the table for
                theirs: on an accelerator that waits for the device.
            target: as in ``rank_scores``.
            exclude: as in ``rank_scores``.
            side: "head" or "tail", the side that was predicted.
            group: (tasks,) integers, or one int.
            weight: (tasks,) numbers >= 0, or one; a zero drops its task.
            sample_id: (tasks,) integers; repeats of (side, sample id) count once; those within an update are told.

        Raises:
            TypeError, ValueError, IndexError: for bad input, before the state changes.
        """
        refuse_what_is_not_resampled(preds, target, exclude, group, weight, sample_id)
        self._check_update(preds, side, group)
        block = make_block(preds, target, exclude, side=side, group=group, weight=weight, sample_id=sample_id)
        self._ingest(block)

    def compute(self) -> Tensor:
        """Value of the metric in its view over all tasks so far: 0-d float64, NaN without tasks or where undefined."""
        return self._as_value(self._shared.analysis(self.rows))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Update with a batch and give the value of that batch alone."""
        self.update(*args, **kwargs)
        value = self._as_value(self._batch_analysis())
        self._forward_cache = value
        return value

    def moments(self, num_candidates: npt.ArrayLike, *, weight: Any = None) -> Moments:
        """Mean and variance of the base value under random ranking; needs no data.

        Args:
            num_candidates: (tasks,) integers >= 1.
            weight: (tasks,) numbers >= 0; None: equal.
        """
        return self.expectation.moments(self.definition, num_candidates, weight)

    def merge_state(self, incoming_state: "dict[str, Any] | Metric") -> None:
        """Take over the rows of another metric, as if its updates had been made here."""
        super().merge_state(incoming_state)
        self._update_count += max(getattr(incoming_state, "_update_count", 1), 0)

    def reset(self) -> None:
        """Forget all tasks."""
        self.rows = []  # a new list: others may hold the old one
        self._compacted = 0
        self._shared.forget()
        super().reset()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one or several values; returns ``(fig, ax)``. Needs matplotlib."""
        return self._plot(val, ax)

    def set_dtype(self, dst_type: Any) -> "RankMetric":
        """Do nothing: rows are int64 and values float64, whatever the model's dtype."""
        return self

    def extra_repr(self) -> str:
        """Show the key in ``print(metric)``."""
        return self.key

    @contextmanager
    def sync_context(self, *args: Any, should_unsync: bool = True, **kwargs: Any) -> Iterator[None]:
        """Synchronise inside, and restore the rows of this process afterwards even if something raises."""
        self.sync(*args, **kwargs)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        counted = super()._wrap_update(update)

        @functools.wraps(update)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            count = self._update_count
            try:
                counted(*args, **kwargs)
            except Exception:
                self._update_count = count  # torchmetrics counts before it calls
                raise

        return wrapped

    def _as_value(self, analysis: Analysis) -> Tensor:
        return as_values([self._number(analysis)], self._value_device)[0]

    @property
    def _value_device(self) -> torch.device:
        # a metric built on the meta device may be updated with real scores
        return self.rows[-1].device if self.device.type == "meta" and self.rows else self.device

    def _number(self, analysis: Analysis) -> float:
        value = analysis.value(self.definition, self.rank_type, self.side, self.average == "macro")
        if self.view != "base" and not math.isnan(value):
            sample = analysis.sample(self.side, self.average == "macro")
            value = view_value(self.definition, self.view, value, sample.candidate_counts, self.expectation)
            if math.isnan(value):
                analysis.warn_undefined(self.key)
        return value

    def _batch_analysis(self) -> Analysis:
        """Analyse the rows of the last update alone; of all processes if ``dist_sync_on_step``."""
        block = self._shared.take_last_block()
        if self.dist_sync_on_step and self.distributed_available_fn():
            fn = self.dist_sync_fn or gather_all_tensors
            block = Shared().gather([block], lambda: block, self.device, fn, self.process_group)
        return Analysis([block])

    def _check_update(self, preds: Any, side: str | None, group: Any) -> None:
        if self._is_synced:
            raise TorchMetricsUserError("update of a synced metric would be lost by unsync(); call unsync() first")
        if self.side is not None and side is None and not (isinstance(preds, RankTable) and preds.has_sides()):
            raise ValueError(
                'side must be passed to update ("head" or "tail"), or stand in every row of its RankTable: '
                f"{self.key!r} counts one side only"
            )
        if self.average == "macro" and group is None and not (isinstance(preds, RankTable) and preds.has_groups()):
            raise ValueError(
                "group must be passed to update, or stand in every row of its RankTable: average='macro' weighs every "
                "group the same"
            )

    def _ingest(self, block: Tensor) -> None:
        self._shared.last_block = block
        self.rows.append(block)
        if self.storage == "counts":
            pending = sum(len(part) for part in self.rows) - self._compacted
            if pending >= max(_COMPACT_FROM, self._compacted):  # rarely: each time the rows have doubled
                self._compact()

    def _compact(self) -> None:
        with torch.inference_mode(False):  # what is kept outlives inference mode
            rows, _ = canonical_rows(torch.cat(self.rows).cpu().numpy(), drop_repeats=False)
            self.rows[:] = [torch.from_numpy(rows).to(self.rows[0].device)]
        self._compacted = len(rows)

    def _own_rows(self) -> list[Tensor]:
        """Give the blocks of this process, also while synced."""
        rows: list[Tensor] = self._cache["rows"] if self._is_synced and self._cache else self.rows  # type: ignore[assignment]
        return rows

    def _local_rows(self) -> Tensor:
        if self.storage == "counts" and len(self.rows) > 1:
            self._compact()
        return local_rows(self.rows, self.device)

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None) -> None:
        group = process_group or self.process_group
        self.rows = [self._shared.gather(self.rows, self._local_rows, self.device, dist_sync_fn, group)]

    def _copy_state_dict(self) -> dict[str, Any]:
        # the list itself: blocks are never written in place, and members of a collection stay tied to one list
        return {"rows": self.rows}

    def _apply(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "RankMetric":
        rows, self.rows = self.rows, []
        try:
            super()._apply(fn, *args, **kwargs)
        finally:
            self.rows = rows
        # rows follow the device and no dtype; the list stays the same if nothing moves, and members stay tied
        if not self.compute_on_cpu and any(block.device != self.device for block in rows):
            with torch.inference_mode(False):
                self.rows = [block.to(self.device) for block in rows]
        return self

    def _move_list_states_to_cpu(self) -> None:
        # only what is not there yet, in place: a new list per update would be quadratic and untie members
        for i in range(len(self.rows) - 1, -1, -1):
            if self.rows[i].device.type == "cpu":
                break
            self.rows[i] = self.rows[i].cpu()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        loaded = prefix + "rows" in state_dict
        super()._load_from_state_dict(state_dict, prefix, *args)
        if loaded:
            self.rows = list(self.rows)  # not the list of the state dict, which others may load too
            self._update_count = max(self._update_count, 1)


def as_values(numbers: Sequence[float], device: torch.device) -> tuple[Tensor, ...]:
    """Put numbers on the device of their metrics as 0-d float64 tensors."""
    device = torch.device("cpu") if device.type == "mps" else device  # MPS has no float64
    return torch.tensor(numbers, dtype=torch.float64, device=device).unbind()
