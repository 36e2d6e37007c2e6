"""What a RankCollection is to torchmetrics: members that hold one list of rows, synchronised and saved once for all."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torchmetrics import MetricCollection

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.keywords import with_host_keywords
from torchrankmetrics.metrics.metric import RankMetric, as_values
from torchrankmetrics.metrics.shared import Shared, local_rows
from torchrankmetrics.ranking.blocks import make_block
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.table import RankTable


class TiedCollection(MetricCollection):
    """A ``MetricCollection`` of ``RankMetric`` with one store of rows, that of the first member.

    Args:
        prefix: put before every key.
        postfix: put behind every key.
    """

    def __init__(self, prefix: str | None, postfix: str | None) -> None:
        super().__init__({}, prefix=prefix, postfix=postfix)
        self._shared = Shared()
        self._shared.several = True
        self._persistent_rows = False

    @with_host_keywords
    def update(  # type: ignore[override]
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
        """Rank a batch once, for all metrics. Arguments and errors as in ``RankMetric.update``."""
        for member in self._checked:
            member._check_update(preds, side, group)
        block = make_block(preds, target, exclude, side=side, group=group, weight=weight, sample_id=sample_id)
        leader = self._leader
        vars(leader)["_update_count"] += 1  # setting an attribute of a module costs microseconds
        leader._ingest(block)
        if leader._update_count == 1 or self._state_is_copy:
            self._tie()
        if leader.compute_on_cpu:
            leader._move_list_states_to_cpu()

    def compute(self) -> dict[str, Tensor]:
        """Values of all metrics, 0-d float64, after one gather across processes."""
        if not self._computes_as_one():
            with self._shared.window():
                return super().compute()
        analysis = self._synced_analysis()
        values = as_values([member._number(analysis) for member in self._members()], self._leader._value_device)
        return dict(zip(map(str, self.keys()), values, strict=True))

    def reset(self) -> None:
        """Forget all tasks."""
        for member in self._members():
            member.reset()
        self._tie()

    def merge_state(self, other: "TiedCollection") -> None:
        """Take over the rows of another collection, as if its updates had been made here."""
        if not isinstance(other, TiedCollection):
            raise TypeError(f"other must be a RankCollection, got {type(other).__name__}")
        count = self._leader._update_count + other._leader._update_count
        self._leader.merge_state({"rows": list(other._leader.rows)})
        self._leader._update_count = count
        self._tie()

    def persistent(self, mode: bool = True) -> None:
        """Choose whether rows are saved in the ``state_dict``: once for the collection, not once per metric."""
        self._persistent_rows = mode

    def set_dtype(self, dst_type: Any) -> "TiedCollection":
        """Do nothing: rows are int64 and values float64, whatever the model's dtype."""
        return self

    @property
    def _leader(self) -> RankMetric:
        member: RankMetric = next(iter(self._modules.values()))  # type: ignore[assignment]
        return member

    def _members(self) -> Iterable[RankMetric]:
        return self._modules.values()  # type: ignore[return-value]

    def _hold(self, members: Mapping[str, RankMetric]) -> None:
        """Take members in; they see all rows so far."""
        for key, member in members.items():
            member._shared = self._shared
            member.persistent(False)
            self[key] = member
        self._enable_compute_groups = True
        self._groups = {0: [str(key) for key in self._modules]}
        self._groups_checked = True
        # an update asks the first, and the first that needs a side or a group: its cost does not grow with the members
        picky = {(member.side is not None, member.average): member for member in reversed(list(self._members()))}
        self._checked = (self._leader, *(member for member in picky.values() if member is not self._leader))
        self._tie()

    def _is_tied(self) -> bool:
        rows = self._leader.rows
        return not self._state_is_copy and all(member.rows is rows for member in self._members())

    def _computes_as_one(self) -> bool:
        """Whether every member would synchronise and compute as the first does: most do, and cost no wrapper then."""
        leader = self._leader

        def road(member: RankMetric) -> tuple[Any, ...]:
            ways = (member.dist_sync_fn, member.process_group, member.distributed_available_fn)
            return (type(member).compute, member._is_synced, member._computed, member._to_sync, member.device, *ways)

        expected = (RankMetric.compute, False, None, *road(leader)[3:])
        alike = all(road(member) == expected for member in self._members())
        return alike and leader.update_called and self._is_tied()

    def _tie(self) -> None:
        """Let all members hold the one list of rows of the first."""
        self._compute_groups_create_state_ref()

    def _compute_groups_create_state_ref(self, copy: bool = False) -> None:
        if self._modules:
            leader = self._leader
            rows = leader._own_rows()
            for member in self._members():
                if member._is_synced:
                    continue  # it holds the rows of all processes; its own come back with unsync
                # a shallow copy parts the members: what a plain MetricCollection that takes them over relies on;
                # it may also do so before there are rows
                apart = member is not leader and (copy or not rows)
                if apart or member.rows is not rows:  # setting an attribute of a module costs microseconds
                    member.rows = list(rows) if apart else rows
                if member._update_count != leader._update_count:
                    member._update_count = leader._update_count
        self._state_is_copy = copy

    def _synced_analysis(self) -> Analysis:
        leader = self._leader
        with (
            self._shared.window(),
            leader.sync_context(
                dist_sync_fn=leader.dist_sync_fn, should_sync=leader._to_sync, should_unsync=leader._should_unsync
            ),
        ):
            return self._shared.analysis(leader.rows)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> "TiedCollection":
        for member in self._members():
            if member is not self._leader and not member._is_synced:
                member.rows = []  # moved once, not once per member
        try:
            super()._apply(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            self._tie()
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._persistent_rows:
            destination[prefix + "rows"] = local_rows(self._leader.rows, self._leader.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        rows = state_dict.pop(prefix + "rows", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if rows is not None:
            leader = self._leader
            leader.rows = [rows.to(leader.device)]
            leader._update_count = max(leader._update_count, 1)
            self._tie()
