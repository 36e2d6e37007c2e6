"""`RowBuffer`: the rows of a metric or a collection, with their analysis and their gather."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional
from weakref import ref

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from torchrankmetrics.errors import warn
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.table.columns import ABSENT, Columns, canonical_rows, empty_rows

if TYPE_CHECKING:
    from torchrankmetrics.metrics.collection import RankCollection
    from torchrankmetrics.metrics.metric import RankMetric

Gather = Callable[..., list[Tensor]]
_COMPACT_FROM = 1 << 16  # new rows from which on equal ones are merged
# locked while blocks are appended or replaced; one lock for all buffers, so that buffers can be
# pickled
LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


class Content:
    """Identity of the rows of a buffer, with results that are computed once for these rows.

    The results are their analysis, and the rows of all processes by gather function and group.
    """

    def __init__(self) -> None:
        self.analysis: Analysis | None = None
        self.gathered: list[tuple[Gather, Any, RowBuffer]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Content":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Content, ()


class RowBuffer(list[Tensor]):
    """Blocks of rows, int64 (n_i, 10), that are never written in place.

    They are a list state, which torchmetrics can share.

    **Who may append.** Only the owner of a buffer appends to it; anyone else appends to a copy, and
    owns the copy. A metric owns the buffer that it fills, until torchmetrics assigns the buffer to
    another metric: then no metric owns it. A collection owns the buffer of its members, and an
    update of a member raises. A plain ``MetricCollection`` takes members over through ``items()``,
    so this call releases the buffer: members may be updated from then on, each in a copy. The next
    update of the collection claims the buffer again, or raises if a member was updated or taken
    over in the meantime. Copies of a buffer have no owner; the copy of a collection owns its copy.
    """

    is_batch = False  # whether it holds the batch of a ``forward`` alone

    def __init__(
        self,
        blocks: Iterable[Tensor] = (),
        updates: int = 0,
        merges: bool = False,
        content: Content | None = None,
        is_released: bool = False,
    ) -> None:
        super().__init__(blocks)
        self.updates = updates
        self.merges = merges
        self.is_released = is_released
        self._owner: ref[Any] | None = None
        self._seen: Any = None
        if content is not None:
            self._seen = (len(self), self._last, content)

    @property
    def _last(self) -> Tensor | None:
        return self[-1] if self else None

    @property
    def owner(self) -> Any:
        """The metric or collection that may append, or None."""
        return None if self._owner is None else self._owner()

    @property
    def collection(self) -> Optional["RankCollection"]:
        """The RankCollection that owns the buffer, or None."""
        owner = self.owner
        return owner if isinstance(owner, MetricCollection) else None  # type: ignore[return-value]

    @property
    def is_exclusive(self) -> bool:
        """Whether a collection owns the buffer and its members may not be updated."""
        return not self.is_released and self.collection is not None

    def owned_by(self, writer: Any) -> "RowBuffer":
        """Return the buffer if the writer owns it, else a copy that the writer owns."""
        if self.owner is writer:
            return self
        copy = RowBuffer(self, self.updates, self.merges, self.content)
        copy._owner = ref(writer)
        return copy

    def for_batch(self) -> "RowBuffer":
        """Return an empty buffer of the same owner, for the batch of a ``forward``."""
        batch = RowBuffer(merges=self.merges)
        batch.is_batch = True
        batch._owner = self._owner
        return batch

    def assigned_to(self, metric: "RankMetric") -> "RowBuffer":
        """Return the buffer, after an assignment to a metric.

        No metric owns a buffer of two metrics.
        """
        if self.collection is None and self.owner is not metric:
            self._owner = None
        return self

    def claim(self, collection: "RankCollection", members: Sequence["RankMetric"]) -> None:
        """Make a collection the owner and its members refer to the buffer.

        Raises:
            TorchMetricsUserError: if another collection took or updated a member in the meantime.
        """
        self.check_members(collection, members)
        for member in members:
            if member.rows and member.rows.content is not self.content:
                raise TorchMetricsUserError(
                    f"{member.key!r} was updated apart from its RankCollection: reset the "
                    "collection, or update a clone"
                )
        self.share(collection, members)

    def check_members(self, collection: "RankCollection", members: Sequence["RankMetric"]) -> None:
        """Raise if another collection took a member in the meantime."""
        for member in members:
            other = member.rows.collection
            is_taken = other is not None and other is not collection
            if other is None:  # torchmetrics marks metrics that came with a collection
                is_taken = getattr(member, "_from_collection", False)
            if is_taken:
                raise TorchMetricsUserError(
                    f"{member.key!r} was taken over by another collection: update that one, or "
                    "give it a clone()"
                )

    def share(self, collection: "RankCollection", members: Iterable["RankMetric"]) -> None:
        """Make a collection the owner and its members refer to the buffer, whatever they had."""
        for member in members:
            vars(member)["_rows"] = self
        self._owner = ref(collection)
        self.is_released = False

    @property
    def content(self) -> Content:
        """Identity of the rows.

        It changes with the number of blocks and with the last block.
        """
        if self._seen is None or self._seen[0] != len(self) or self._seen[1] is not self._last:
            self._seen = len(self), self._last, Content()
        return self._seen[2]  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Remove all rows, for every metric that refers to the buffer."""
        super().clear()
        self.updates = 0
        self._seen = None

    def replace(self, blocks: Sequence[Tensor], updates: int) -> None:
        """Replace all rows at once, for every metric that refers to the buffer."""
        self[:] = blocks
        self.updates = updates

    def add(self, blocks: Sequence[Tensor], updates: int) -> None:
        """Append blocks; needs the lock."""
        self.extend(blocks)
        self.updates += updates
        self.compact()

    def compact(self) -> None:
        """Merge equal rows from time to time, if the buffer does; needs the lock."""
        if self.merges:
            self.merge_equal(_COMPACT_FROM)

    def move(self, device: torch.device) -> None:
        """Move the blocks to a device."""
        if any(block.device != device for block in self):
            with LOCK, torch.inference_mode(False):  # rows outlive inference mode
                self._rewrite([block.to(device) for block in self])

    def as_one(self, device: torch.device | str = "cpu") -> Tensor:
        """Return the rows as one (n, 10) tensor; the device is for a buffer without rows."""
        if self.merges:
            with LOCK:
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
        if self.is_exclusive:
            self.content.gathered.append((gather, group, rows))
        return rows

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowBuffer":
        return RowBuffer(self, self.updates, self.merges, self.content, self.is_released)

    def __reduce__(self) -> tuple[Any, ...]:
        known = (list(self), self.updates, self.merges, self.content, self.is_released)
        return RowBuffer, known

    def merge_equal(self, least: int) -> None:
        """Merge equal rows if enough rows were added since the last merge; needs the lock.

        Enough is ``least``, and as many as the first block has; any number if ``least`` is 0.
        """
        if len(self) > 1 and sum(map(len, self[1:])) >= max(least, len(self[0]) if least else 0):
            with torch.inference_mode(False):  # rows outlive inference mode
                rows, _ = canonical_rows(torch.cat(list(self)).cpu().numpy(), drop_repeats=False)
                self._rewrite([torch.from_numpy(rows).to(self[0].device)])

    def _rewrite(self, blocks: list[Tensor]) -> None:
        """Replace the blocks by others with the same ranking tasks."""
        content = self.content
        self[:] = blocks
        self._seen = len(self), self[-1], content
