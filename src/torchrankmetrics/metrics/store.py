"""RowStore: the list state of a metric, and what was worked out from its blocks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.ranking.parallel.peers import group_device
from torchrankmetrics.table.rows import empty_rows

Gather = Callable[..., list[Tensor]]


class Version:
    """Identity of the content of a store. Copies and pickles keep it, so that an answer stays with what it was of."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Version":
        return self


class _Known:
    """What was worked out from the content of a store, by it or by a copy of it."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.analysis: Analysis | None = None
        self.gathered: list[tuple[Gather, Any, RowStore]] = []


class RowStore(list[Tensor]):
    """Blocks of rows, int64 (n_i, 9), that are never written in place; torchmetrics ties metrics by sharing the list.

    Args:
        blocks: the first blocks.
    """

    def __init__(self, blocks: Iterable[Tensor] = ()) -> None:
        super().__init__(blocks)
        self.shared = False  # whether another metric may hold this list: then only a collection appends to it
        self._known: _Known | None = None  # nothing since the last change

    def append(self, block: Tensor) -> None:
        """Take a block; one without rows is a change, too: every process updates, some of them with nothing."""
        list.append(self, block)  # asked in every update: super() and what nobody may ask for cost
        self._known = None

    def extend(self, blocks: Iterable[Tensor]) -> None:
        """Take several blocks."""
        super().extend(blocks)
        self._known = None

    def clear(self) -> None:
        """Drop all blocks."""
        super().clear()
        self._known = None

    @property
    def version(self) -> Version:
        """Identity of the content: another after every change."""
        return self._knowledge().version

    def rewrite(self, blocks: Iterable[Tensor]) -> None:
        """Hold the same tasks in other blocks: moved, or merged. What was worked out stays."""
        self[:] = blocks

    def as_one(self, device: torch.device) -> Tensor:
        """Give the blocks as one (n, 9) tensor; typed and of the right width without data."""
        return torch.cat(list(self)) if self else empty_rows(device)

    def analysis(self) -> Analysis:
        """Analyse the rows, once for all who hold or copied them."""
        known = self._knowledge()
        if known.analysis is None:
            known.analysis = Analysis(self)
        return known.analysis

    def gathered(self, local: Callable[[], Tensor], device: torch.device, gather: Gather, group: Any) -> "RowStore":
        """Give the rows of all processes, gathered once for all who hold or copied these.

        Between two gathers every process changes its rows (with none, if it has none) or none does: as everywhere in
        torchmetrics, a process that gathers waits for all others.

        Args:
            local: gives the rows of this process as one (n, 9) tensor.
            device: that of the metric: of the same kind on every process, which that of its blocks need not be.
            gather: ``gather_all_tensors`` or a replacement: (tensor, group=...) -> list of tensors.
            group: the process group.
        """
        gathered = self._knowledge().gathered
        for known, known_group, rows in gathered:
            if known is gather and known_group is group:
                return rows
        mine = local()
        if gather is gather_all_tensors:
            mine = mine.to(group_device(group, device))
        rows = RowStore([torch.cat(list(gather(mine.contiguous(), group=group)))])
        gathered.append((gather, group, rows))
        return rows

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowStore":
        other = RowStore(self)
        other._known = self._knowledge()  # the same tasks: what is worked out serves both
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return RowStore, (list(self),), {"_known": _Known(self.version)}

    def _knowledge(self) -> _Known:
        if self._known is None:
            self._known = _Known(Version())
        return self._known


def as_values(numbers: Sequence[float], device: torch.device) -> tuple[Tensor, ...]:
    """Put numbers on the device of their metrics as 0-d float64 tensors."""
    device = torch.device("cpu") if device.type == "mps" else device  # MPS has no float64
    return torch.tensor(numbers, dtype=torch.float64, device=device).unbind()
