"""`RowBuffer`: the rows of a metric or a collection, with their analysis and gather; `RowOwner` adds and saves them."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.measure import Analysis, Measure
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.blocks import NO_FACTS, TaskFacts
from torchrankmetrics.table.columns import (
    ABSENT,
    Columns,
    HasRows,
    canonical_rows,
    empty_rows,
    has_entries,
)

if TYPE_CHECKING:
    from torchrankmetrics.metrics.collection import RankCollection
    from torchrankmetrics.metrics.metric import RankMetric

Gather = Callable[..., list[Tensor]]
KEY = "rows"  # of the state in a state_dict
_WRITER = "process"
_COMPACT_FROM = 1 << 16
# locked while blocks are appended or replaced; one lock for all buffers, so that buffers can be
# pickled
_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


class Content:
    """Identity of the rows of a buffer, with their analysis and the rows of all processes by gather and group."""

    def __init__(self) -> None:
        self.analysis: Analysis | None = None
        self.gathered: list[tuple[Gather, Any, RowBuffer]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Content":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Content, ()


class RowBuffer(list[Tensor]):
    """Blocks of rows, int64 (n_i, 10), that are never written in place: a list state, which torchmetrics can share."""

    def __init__(
        self,
        blocks: Iterable[Tensor] = (),
        updates: int = 0,
        merges: bool = False,
        content: Content | None = None,
    ) -> None:
        super().__init__(blocks)
        self.updates = updates
        self.merges = merges
        self.owner: ref[Any] | None = None  # who may append; any other metric appends to a copy
        self._seen: Any = (
            None if content is None else (len(self), self[-1] if self else None, content)
        )

    @property
    def collection(self) -> "RankCollection | None":
        """The RankCollection that owns the buffer, or None."""
        owner = None if self.owner is None else self.owner()
        return owner if isinstance(owner, MetricCollection) else None  # type: ignore[return-value]

    @property
    def content(self) -> Content:
        """Identity of the rows: another one after every change of the number of blocks or of the last block."""
        last = self[-1] if self else None
        if self._seen is None or self._seen[0] != len(self) or self._seen[1] is not last:
            self._seen = len(self), last, Content()
        return self._seen[2]  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Remove all rows, for every metric that refers to the buffer."""
        super().clear()
        self.updates, self._seen = 0, None

    def move(self, device: torch.device) -> None:
        """Move the blocks to a device."""
        if any(block.device != device for block in self):
            with _LOCK, torch.inference_mode(False):  # rows outlive inference mode
                self._rewrite([block.to(device) for block in self])

    def as_one(self, device: torch.device | str = "cpu") -> Tensor:
        """Return the rows as one (n, 10) tensor; the device is for a buffer without rows."""
        if self.merges:
            with _LOCK:
                self.merge_equal(0)
        return torch.cat(list(self)) if self else empty_rows(device)

    def analysis(self) -> Analysis:
        """Analyze the rows, once for all that refer to the buffer or copied it."""
        content = self.content
        if content.analysis is None:
            content.analysis = Analysis(list(self))
        return content.analysis

    def gathered(self, gather: Gather, group: Any, device: torch.device) -> "RowBuffer":
        """Return the rows of all processes, gathered once for all members of a RankCollection."""
        for known_gather, known_group, rows in self.content.gathered:
            if known_gather is gather and known_group is group:
                return rows
        mine = self.as_one(device)
        if gather is gather_all_tensors:
            from torchrankmetrics.ranking.shards import group_device

            mine = mine.to(group_device(group, device))
        parts = list(gather(mine.contiguous(), group=group))
        rows = RowBuffer([torch.cat(parts)], self.updates)
        about = Columns(rows[0])
        is_task = about.flags & fault.EMPTY == 0
        if len(parts) > 1 and (is_task & (about.sample_id == ABSENT)).any():
            warn(  # the same text in every epoch, so that Python shows it once
                f"ranking tasks from {len(parts)} processes have no sample_id: samples that a "
                "sampler repeats count twice, and torch's DistributedSampler repeats some unless "
                "their number is divisible by the number of processes or drop_last is True; pass "
                "sample_id= to update"
            )
        # Metrics outside of a RankCollection gather one by one: a plain MetricCollection lets
        # metrics share a buffer only after they have seen data, and a process without data must
        # gather as often as the others.
        if self.collection is not None and not self.collection.is_released:
            self.content.gathered.append((gather, group, rows))
        return rows

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowBuffer":
        return RowBuffer(self, self.updates, self.merges, self.content)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowBuffer, (list(self), self.updates, self.merges, self.content)

    def merge_equal(self, least: int) -> None:
        """Merge equal rows if that many, and as many as in the first block, were added since; needs the lock."""
        if len(self) > 1 and sum(map(len, self[1:])) >= max(least, len(self[0]) if least else 0):
            with torch.inference_mode(False):  # rows outlive inference mode
                rows, _ = canonical_rows(torch.cat(list(self)).cpu().numpy(), drop_repeats=False)
                self._rewrite([torch.from_numpy(rows).to(self[0].device)])

    def _rewrite(self, blocks: list[Tensor]) -> None:
        """Replace the blocks by others with the same ranking tasks."""
        content = self.content
        self[:] = blocks
        self._seen = len(self), self[-1], content


class RowOwner(nn.Module):
    """How a metric and a collection append, save and load rows."""

    rows: RowBuffer
    compute_on_cpu: bool
    # whether other collections may have taken the members of this one, to update them
    is_released = False
    _persistent: dict[str, bool]

    @property
    def _first(self) -> "RankMetric":
        """The metric itself, or the first member of a collection, whose rows another collection may own."""
        return self  # type: ignore[return-value]

    def _require(self, measures: Sequence[Measure]) -> None:
        """Note, once for all updates, which facts of ranking tasks the measures need."""
        of_queries = [one for one in measures if one.definition.of_tasks is None]
        self._has_queries = bool(of_queries)
        self._forbids_empty = any(one.empty_queries == "error" for one in of_queries)
        self._needs_side = next((one.key for one in measures if one.side != "both"), None)
        self._needs_group = any(one.average == "macro" for one in measures)

    def _check_queries(self, block: Tensor, of_scores: bool = False) -> None:
        if block.is_cpu:  # compute checks the rows of an accelerator
            from torchrankmetrics.table.queries import check_queries

            check_queries(block.numpy(), of_scores, self._forbids_empty)

    def _append(self, block: Tensor, updates: int = 1, of_scores: bool = False) -> None:
        if self._has_queries:
            self._check_queries(block, of_scores)
        if self.compute_on_cpu and not block.is_cpu:
            with torch.inference_mode(False):  # rows outlive inference mode
                block = block.cpu()
        with _LOCK:
            rows = self.rows
            if rows.owner is None or rows.owner() is not self:
                rows = self.rows = RowBuffer(rows, rows.updates, rows.merges)
                rows.owner = ref(self)
            if rows.merges:
                rows.merge_equal(_COMPACT_FROM)
            rows.append(block)  # after the merge: the last block contains the last update
            rows.updates += updates

    def _refuse_entries(self, is_flat: bool) -> None:
        if self.rows.merges and is_flat:
            raise ValueError(
                "storage='counts' cannot store flat scores (indexes), which are ranked at compute; "
                "use storage='ranks'"
            )

    def _merge(self, rows: Tensor, updates: int = 1) -> None:
        rows = rows.to(self._first.device)
        self._refuse_entries(has_entries(rows))
        self._validate(HasRows(rows), NO_FACTS)
        self._append(rows, updates)

    def _validate(self, preds: Any, facts: TaskFacts, *others: Any) -> None:
        """Raise for an update that does not fit, before anything is ranked."""
        if self._first._is_synced:
            raise TorchMetricsUserError(
                "update of a synced metric would be lost by unsync(); call unsync() first"
            )
        if (
            self._needs_side
            and facts.side is None
            and not (isinstance(preds, HasRows) and preds.has_sides())
        ):
            raise ValueError(
                "side must be passed to update ('head', 'tail' or 'relation'), or be in every row "
                f"of its RankTable: {self._needs_side!r} uses the ranking tasks of one side only"
            )
        if (
            self._needs_group
            and facts.group is None
            and not (isinstance(preds, HasRows) and preds.has_groups())
        ):
            raise ValueError(
                "group must be passed to update, or be in every row of its RankTable, for "
                "average='macro'"
            )
        if self.is_released:
            self._share()

    def _share(self) -> None:
        raise NotImplementedError

    def _replace(self, rows: Tensor) -> None:
        raise NotImplementedError

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._persistent[KEY]:
            destination[prefix + KEY] = self._first.rows.as_one()
            getattr(destination, "_metadata", {}).setdefault(prefix[:-1], {})[_WRITER] = (
                _rank_and_world()[0]
            )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        metadata: dict[str, Any],
        strict: bool,
        *lists: list[str],
    ) -> None:
        # torchmetrics takes any object as a state, and loads the rows of one process on all
        if prefix + KEY in state_dict:
            try:
                rows = validated(state_dict.pop(prefix + KEY))
                self._refuse_entries(has_entries(rows))
                if self._has_queries:
                    self._check_queries(rows)
            except (TypeError, ValueError, IndexError) as error:
                lists[-1].append(f"{prefix}{KEY}: {error}")
            else:
                rank, world = _rank_and_world()
                self._replace(rows if metadata.get(_WRITER, 0) % world == rank else rows[:0])
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)


def value_device(device: torch.device) -> torch.device:
    """Return the device of the values: the CPU for MPS, which has no float64, and for metrics on "meta"."""
    return torch.device("cpu") if device.type in ("mps", "meta") else device


def as_values(numbers: Sequence[float], device: torch.device) -> tuple[Tensor, ...]:
    """Return numbers as 0-d float64 tensors on the device of their metrics."""
    values = torch.from_numpy(np.array(numbers, dtype=np.float64))  # torch reads lists slowly
    return values.to(value_device(device)).unbind()


def validated(rows: Tensor | Sequence[Tensor]) -> Tensor:
    """Return rows from a file or another program as one (n, 10) tensor, if an update could make them."""
    from torchrankmetrics.table.entries import check_entries
    from torchrankmetrics.table.rank_table import RankTable

    tables = [RankTable(block) for block in ([rows] if isinstance(rows, Tensor) else rows)]
    joined = RankTable.concatenate(tables).rows
    is_entry = Columns(joined).flags & fault.ENTRY > 0
    tasks = RankTable.from_numpy(RankTable(joined[~is_entry]).to_numpy()).rows
    return torch.cat([tasks, check_entries(joined[is_entry].cpu())]) if is_entry.any() else tasks


def _rank_and_world() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
