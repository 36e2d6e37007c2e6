"""RankMetric: a definition and a view as a torchmetrics metric: state and synchronisation, no mathematics."""

import math
from typing import Any, Literal, get_args

import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.names import key_of
from torchrankmetrics.metrics.saved import checked
from torchrankmetrics.metrics.state import RowState
from torchrankmetrics.metrics.store import Gather, as_values
from torchrankmetrics.metrics.views import check_member, view_value
from torchrankmetrics.ranking.blocks import make_block
from torchrankmetrics.ranking.canonical import canonical_rows
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.table import RankTable
from torchrankmetrics.theory.candidates import Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.sample import RankType
from torchrankmetrics.theory.views import View

Average = Literal["micro", "macro"]
Storage = Literal["ranks", "counts"]
_COMPACT_FROM = 1 << 16


class RankMetric(RowState):
    """Any rank metric as a stateful, distributed ``torchmetrics.Metric`` with a 0-d float64 value.

    Args:
        definition: what is computed, for example ``RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))``.
        view: "base", "normalized" (M / E), "adjusted_index", "z_score" or "p_value".
        rank_type: "realistic", "optimistic", "pessimistic", or "expected" over tie orders.
        side: "head" or "tail": only those tasks count; None: all.
        average: "micro" (every task weighs the same) or "macro" (every group does).
        expectation: what gives null moments; None: exact.
        storage: "ranks" keeps the rows as they came; "counts" merges equal rows in place: memory is bounded by the
            number of distinct rows, values are the same.
        **kwargs: those of ``torchmetrics.Metric``.

    Raises:
        TypeError: if the definition is not a ``RankDefinition``.
        ValueError: for an unknown option, or a combination without a meaning or without an expectation.

    >>> metric = RankMetric(RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r)), view="adjusted_index")
    >>> metric.update(torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 0]))
    >>> metric.compute()
    tensor(1., dtype=torch.float64)
    """

    is_differentiable = False
    full_state_update = False
    _forward_cache: Any

    def __init__(
        self,
        definition: RankDefinition,
        *,
        view: View = "base",
        rank_type: RankType = "realistic",
        side: str | None = None,
        average: Average = "micro",
        expectation: ExpectationProvider | None = None,
        storage: Storage = "ranks",
        **kwargs: Any,
    ) -> None:
        expectation = DEFAULT_EXPECTATION if expectation is None else expectation
        check_member(definition, view, rank_type, expectation)
        _check_choice("side", side, (None, "head", "tail"))
        _check_choice("average", average, get_args(Average))
        _check_choice("storage", storage, get_args(Storage))
        super().__init__(**kwargs)
        self.definition = definition
        self.view = view
        self.rank_type = rank_type
        self.side = side
        self.average = average
        self.expectation = expectation
        self.storage = storage
        self._holder = None
        self.add_state("rows", [], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Direction of the value in its view; None for dispersion, counts and the tie rate."""
        if self.view in ("adjusted_index", "z_score"):
            return True
        return False if self.view == "p_value" else self.definition.higher_is_better

    @property
    def key(self) -> str:
        """Canonical key, ``[side_][rank_type_][view_]name``, as a ``RankCollection`` logs it."""
        return key_of(self.definition, self.view, self.rank_type, self.side)

    def update(
        self,
        scores: Tensor | Ranks | RankTable,
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
            scores: (B, N) scores, higher is better, never modified; or a ``Ranks``, then without target and exclude;
                or a ``RankTable``, then alone. A metric of one side, or a macro average, asks all rows of the table for
                theirs: on an accelerator that waits for the device.
            target: as in ``rank_scores``.
            exclude: as in ``rank_scores``.
            side: "head" or "tail", the side that was predicted.
            group: (tasks,) integers, or one int.
            weight: (tasks,) numbers >= 0, or one; a zero drops its task.
            sample_id: (tasks,) integers; repeats of (side, sample id) count once, on whatever process they fall.

        Raises:
            TypeError, ValueError, IndexError: for bad input, before the state changes.
        """
        self._check_free()
        self._check_update(scores, side, group)
        block = make_block(scores, target, exclude, side=side, group=group, weight=weight, sample_id=sample_id)
        if self.rows.shared:
            self.rows = list(self.rows)
        self._append(block)

    def compute(self) -> Tensor:
        """Value of the metric in its view over all tasks so far: 0-d float64, NaN without tasks or where undefined."""
        return self._as_value(self.rows.analysis())

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Update with a batch and give the value of that batch alone."""
        before = dict(vars(self))
        self.rows.shared = True
        try:
            value: Tensor = super().forward(*args, **kwargs)
        except BaseException:
            vars(self).update(before)  # torchmetrics resets before it updates
            raise
        self._bound()
        return value

    def moments(self, num_candidates: npt.ArrayLike, *, weight: Any = None) -> Moments:
        """Mean and variance of the base value under random ranking; needs no data.

        Args:
            num_candidates: (tasks,) integers >= 1.
            weight: (tasks,) numbers >= 0; None: equal.
        """
        return self.expectation.moments(self.definition, num_candidates, weight)

    def merge_state(self, incoming_state: "dict[str, Any] | Metric") -> None:
        """Take over the rows of another metric, as if its updates had been made here.

        Args:
            incoming_state: the same metric, or a dict with its ``rows``, a list of int64 (n, 8) tensors.

        Raises:
            TypeError, ValueError, IndexError: for another metric, and rows that an update would refuse.
        """
        self._check_free()
        if isinstance(incoming_state, RankMetric):
            ours, theirs = (f"{metric.key} {metric.average}" for metric in (self, incoming_state))
            if ours != theirs:
                raise ValueError(f"incoming_state must be the same metric, {ours}; got {theirs}")
            self._check_update(RankTable(incoming_state.rows.as_one(self.device)), None, None)
        elif isinstance(incoming_state, dict) and "rows" in incoming_state:
            incoming_state = {"rows": [checked(incoming_state["rows"]).to(self.device)]}
            self._check_update(RankTable(incoming_state["rows"][0]), None, None)
        super().merge_state(incoming_state)
        self._update_count += max(getattr(incoming_state, "_update_count", 1), 0)
        self._bound()

    def reset(self) -> None:
        """Forget all tasks."""
        self.rows = []  # a new list: others may hold the old one
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

    def _as_value(self, analysis: Analysis) -> Tensor:
        return as_values([self._number(analysis)], self.device)[0]

    def _number(self, analysis: Analysis) -> float:
        value = analysis.value(self.definition, self.rank_type, self.side, self.average == "macro")
        if self.view != "base" and not math.isnan(value):
            sample = analysis.sample(self.side, self.average == "macro")
            value = view_value(self.definition, self.view, value, sample.candidate_counts, self.expectation)
            if math.isnan(value):
                analysis.warn_undefined(self.key)
        return value

    def _check_free(self) -> None:
        if self._holder is not None and self._holder() is not None:
            raise TorchMetricsUserError(
                f"{self.key!r} is held by a RankCollection, which ranks once for all its metrics: update the collection"
            )

    def _check_update(self, scores: Any, side: str | None, group: Any) -> None:
        if self._is_synced:
            raise TorchMetricsUserError("update of a synced metric would be lost by unsync(); call unsync() first")
        if self.side is not None and side is None and not (isinstance(scores, RankTable) and scores.has_sides()):
            raise ValueError(
                'side must be passed to update ("head" or "tail"), or stand in every row of its RankTable: '
                f"{self.key!r} counts one side only"
            )
        if self.average == "macro" and group is None and not (isinstance(scores, RankTable) and scores.has_groups()):
            raise ValueError(
                "group must be passed to update, or stand in every row of its RankTable: average='macro' weighs every "
                "group the same"
            )

    def _append(self, block: Tensor) -> None:
        self._bound()
        self.rows.append(block)

    def _bound(self) -> None:
        """Merge equal rows where only their counts are kept; rarely: each time the rows have doubled."""
        if self.storage == "counts" and len(self.rows) > 1:
            first, *later = map(len, self.rows)
            if sum(later) >= max(_COMPACT_FROM, first):
                self._compact()

    def _compact(self) -> None:
        with torch.inference_mode(False):  # what is kept outlives inference mode
            rows, _ = canonical_rows(torch.cat(list(self.rows)).cpu().numpy(), drop_repeats=False)
            self.rows.rewrite([torch.from_numpy(rows).to(self.rows[0].device)])

    def _local_rows(self) -> Tensor:
        if self.storage == "counts" and len(self.rows) > 1:
            self._compact()
        return self.rows.as_one(self.device)

    def _sync_dist(self, dist_sync_fn: Gather = gather_all_tensors, process_group: Any = None) -> None:
        group = process_group or self.process_group
        self.rows = self.rows.gathered(self._local_rows, self.device, dist_sync_fn, group)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
