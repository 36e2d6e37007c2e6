"""RowStore: the list state of a metric, and what was worked out from its blocks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.table.rows import empty_rows

Gather = Callable[..., list[Tensor]]


class Version:
    """Identity of the content of a store. Copies and pickles keep it, so that an answer stays with what it was of."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Version":
        return self


class RowStore(list[Tensor]):
    """Blocks of rows, int64 (n_i, 8), that are never written in place; torchmetrics ties metrics by sharing the list.

    Args:
        blocks: the first blocks.
    """

    def __init__(self, blocks: Iterable[Tensor] = ()) -> None:
        super().__init__(blocks)
        self.shared = False  # whether another metric may hold this list: then only a collection appends to it
        self._change()

    def append(self, block: Tensor) -> None:
        """Take a block; one without rows is a change, too: every process updates, some of them with nothing."""
        super().append(block)
        self._change()

    def extend(self, blocks: Iterable[Tensor]) -> None:
        """Take several blocks."""
        super().extend(blocks)
        self._change()

    def clear(self) -> None:
        """Drop all blocks."""
        super().clear()
        self._change()

    def rewrite(self, blocks: Iterable[Tensor]) -> None:
        """Hold the same tasks in other blocks: moved, or merged. What was worked out stays."""
        self[:] = blocks

    def as_one(self, device: torch.device) -> Tensor:
        """Give the blocks as one (n, 8) tensor; typed and of the right width without data."""
        return torch.cat(list(self)) if self else empty_rows(device)

    def analysis(self) -> Analysis:
        """Analyse the rows, once for all who hold or copied them."""
        if not self._analysed:
            self._analysed.append(Analysis(self))
        return self._analysed[0]

    def gathered(self, local: Callable[[], Tensor], device: torch.device, gather: Gather, group: Any) -> "RowStore":
        """Give the rows of all processes, gathered once for all who hold or copied these.

        Between two gathers every process changes its rows (with none, if it has none) or none does: as everywhere in
        torchmetrics, a process that gathers waits for all others.

        Args:
            local: gives the rows of this process as one (n, 8) tensor.
            device: that of the metric: of the same kind on every process, which that of its blocks need not be.
            gather: ``gather_all_tensors`` or a replacement: (tensor, group=...) -> list of tensors.
            group: the process group.
        """
        for known, known_group, rows in self._gathered:
            if known is gather and known_group is group:
                return rows
        mine = local()
        if gather is gather_all_tensors:
            mine = mine.to(_group_device(group, device))
        rows = RowStore([torch.cat(list(gather(mine.contiguous(), group=group)))])
        self._gathered.append((gather, group, rows))
        return rows

    def __deepcopy__(self, memo: dict[int, Any]) -> "RowStore":
        other = RowStore(self)
        vars(other).update(vars(self), shared=False)  # the same tasks: what was worked out serves both
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return RowStore, (list(self),), {"version": self.version}

    def _change(self) -> None:
        self.version = Version()
        self._analysed: list[Analysis] = []
        self._gathered: list[tuple[Gather, Any, RowStore]] = []


def as_values(numbers: Sequence[float], device: torch.device) -> tuple[Tensor, ...]:
    """Put numbers on the device of their metrics as 0-d float64 tensors."""
    if device.type in ("mps", "meta"):  # MPS has no float64, and meta, a default device for dry runs, no values
        device = torch.device("cpu")
    return torch.tensor(numbers, dtype=torch.float64, device=device).unbind()


def _group_device(group: Any, device: torch.device) -> torch.device:
    """Where the group communicates: on the metric's device if it serves that kind, else on the first that it serves."""
    served = [part.split(":") for part in torch.distributed.get_backend_config(group).split(",")]
    # gloo and mpi list accelerators that they serve only if built for them
    kinds = [kind for kind, backend in served if kind == "cpu" or backend not in ("gloo", "mpi")]
    if device.type in kinds:
        return device
    return torch.device(kinds[0], torch.cuda.current_device()) if kinds[0] == "cuda" else torch.device(kinds[0])
