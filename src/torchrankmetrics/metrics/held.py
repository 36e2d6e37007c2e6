"""Members of a RankCollection, which share one list of rows."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, ClassVar
from weakref import ref

from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.eager import eager
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.state import KEY, sign
from torchrankmetrics.metrics.store import REWRITING, TakesBatches, as_values
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.table.blocks import Preds
from torchrankmetrics.table.queries import check_queries
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import TaskSide

# what members that compute alike have in common
_WAYS = itemgetter(
    "dist_sync_fn",
    "process_group",
    "distributed_available_fn",
    "_to_sync",
    "_is_synced",
    "_device",
    "compute_with_cache",
)


class HoldingCollection(TakesBatches, MetricCollection):  # type: ignore[misc]  # ModuleDict has an update of another kind
    """A ``MetricCollection`` of ``RankMetric`` with one store of rows, that of the first member.

    Args:
        prefix: put before every key.
        postfix: put behind every key.
    """

    # TorchScript compiles all other properties of a module
    __jit_unused_properties__: ClassVar[list[str]] = [
        *MetricCollection.__jit_unused_properties__,
        "measures",
        "_leader",
    ]

    def __init__(self, prefix: str | None, postfix: str | None) -> None:
        super().__init__({}, prefix=prefix, postfix=postfix)
        self._persistent_rows = False
        self._labels: Mapping[str, TaskSide] = {}  # of the user's own, for head and tail
        self._self = ref(self)

    @eager
    def compute(self) -> dict[str, Tensor]:
        """Values of all metrics, 0-d float64, after one gather across processes."""
        leader, members = self._leader, list(self._members())
        states = list(map(vars, members))
        rows, ways = leader.rows, _WAYS(states[0])
        alike = all(
            state["_rows"] is rows and type(member).compute is RankMetric.compute and _WAYS(state) == ways
            for member, state in zip(members, states, strict=True)
        )
        if not alike or not leader.update_called or leader._computed is not None:
            return super().compute()
        # what each would do, without torchmetrics' wrapper, which takes longer than the values
        analysis = self._synced_analysis()
        values = as_values([member.measure.value(analysis) for member in members], leader._value_device)
        if leader.compute_with_cache:
            version = rows.version
            for state, value in zip(states, values, strict=True):
                state["_answer"] = value, version
        return dict(zip(map(str, self.keys()), values, strict=True))

    def merge_state(self, other: "HoldingCollection") -> None:
        """Take over the rows of another collection, as if its updates had been made here."""
        if not isinstance(other, HoldingCollection):
            raise TypeError(f"other must be a RankCollection, got {type(other).__name__}")
        rows = other._leader.rows
        for member in self._checked:
            member._check_update(RankTable(rows.as_one(member.device)), None, None)
        self._take()
        leader = self._leader
        leader.rows.extend(rows)
        leader._bound()
        leader._update_count += other._leader._update_count
        self._share()

    def persistent(self, mode: bool = True) -> None:
        """Choose whether rows are saved in the ``state_dict``: once for the collection, not once per metric."""
        self._persistent_rows = mode

    def items(self, keep_base: bool = False, copy_state: bool = True) -> Iterable[tuple[str, RankMetric]]:  # type: ignore[override]
        """Keys and metrics, as of any ``MetricCollection``."""
        if copy_state:  # so a plain MetricCollection takes the members over: from then on they are its own to update
            for member in self._members():
                member._holder = None
        return super().items(keep_base, copy_state)  # type: ignore[return-value]

    def _admit(self, preds: Preds, side: str | None, group: Integers | None) -> TaskSide | None:
        if side is not None:
            side = self._labels.get(side, side)
        for member in self._checked:
            member._check_update(preds, side, group)
        return side  # type: ignore[return-value]  # told by what writes the rows

    def _keep(self, block: Tensor) -> None:
        if self._has_queries:
            check_queries(block)
        leader = self._leader
        state = vars(leader)  # setting an attribute of a module costs microseconds
        if state["_holder"] is not self._self or self._state_is_copy or not state["_update_count"]:
            with REWRITING:
                self._take()
        state["_update_count"] += 1
        if self.storage == "counts":
            leader._bound()
        state["_rows"].append(block)
        if leader.compute_on_cpu:
            leader._move_list_states_to_cpu()

    @property
    def _leader(self) -> RankMetric:
        member: RankMetric = next(iter(self._modules.values()))  # type: ignore[assignment]
        return member

    def _members(self) -> Iterable[RankMetric]:
        return self._modules.values()  # type: ignore[return-value]

    def _hold(self, members: Mapping[str, RankMetric]) -> None:
        """Take members in; they see all rows so far."""
        self._check_whole()
        for key, member in members.items():
            member.persistent(False)
            member._holder, member.rows = self._self, []  # whoever held it and its list before
            self[key] = member
        self._enable_compute_groups = True
        self._groups = {0: [str(key) for key in self._modules]}
        self._groups_checked = True
        # an update asks the first, and the first that needs a side or a group: its cost does not grow with the members
        picky = {
            (member.measure.side == "both", member.measure.average): member
            for member in reversed(list(self._members()))
        }
        self._has_queries = any(member._has_queries for member in self._members())
        self._checked = (self._leader, *(member for member in picky.values() if member is not self._leader))
        self._take()

    def _take(self) -> None:
        """Let all members hold one list of rows, that of the first, and be updated by the collection only."""
        self._check_whole()
        leader = self._leader
        if leader._holder is not self._self:
            leader.rows = list(leader.rows)  # others may hold the old one
        for member in self._members():
            member._holder = self._self
        self._share()

    def _check_whole(self) -> None:
        """Refuse to go on with metrics that are another collection's to update, or were updated apart."""
        for member in self._members():
            holder, rows = member._holding(), self._leader.rows
            # _from_collection: what torchmetrics notes of metrics that came with a collection
            if getattr(member, "_from_collection", False) if holder is None else holder is not self:
                raise TorchMetricsUserError(
                    f"{member.key!r} was taken over by another collection: update that one, or give it a clone()"
                )
            if member.rows is not rows and member.rows and rows and member.rows.version is not rows.version:
                raise TorchMetricsUserError(
                    f"{member.key!r} was updated apart from its RankCollection: reset the collection, or update a clone"
                )

    def _share(self) -> None:
        self._state_is_copy = False
        self._compute_groups_create_state_ref()

    def _synced_analysis(self) -> Analysis:
        leader = self._leader
        with leader.sync_context(
            dist_sync_fn=leader.dist_sync_fn, should_sync=leader._to_sync, should_unsync=leader._should_unsync
        ):
            return leader.rows.analysis()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_self": self._leader._holder is self._self}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._self = ref(self)
        if state["_self"]:  # a copy holds its members if this one does
            for member in self._members():
                member._holder = self._self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._persistent_rows:
            destination[prefix + KEY] = self._leader.rows.as_one(self._leader.device)
            sign(destination, prefix)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: dict[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        if self._leader._take_in(state_dict, prefix, metadata, lists[-1], self._has_queries):
            self._share()
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)
