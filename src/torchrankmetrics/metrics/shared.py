"""What the members of one collection share: the last analysis of their rows, and the last gather across processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.table.rows import empty_rows

Gather = Callable[..., list[Tensor]]


class _Memo:
    """A result and the blocks it came from. Blocks are appended, never written in place, so identity is content.

    The blocks are held, so that no other tensor can take their identity.
    """

    def __init__(self, blocks: Sequence[Tensor], result: Any, group: Any = None) -> None:
        self._blocks = tuple(blocks)
        self._group = group
        self.result = result

    def fits(self, blocks: Sequence[Tensor], group: Any = None) -> bool:
        same = len(blocks) == len(self._blocks) and all(a is b for a, b in zip(blocks, self._blocks, strict=True))
        return same and group is self._group


class Shared:
    """Memo of one collection, or of one metric alone; copies and pickles start empty but keep members together."""

    def __init__(self) -> None:
        self._analysis: _Memo | None = None
        self._gathered: _Memo | None = None
        self._window: list[tuple[Gather, Any, Tensor]] | None = None
        self.several = False
        self.last_block: Tensor | None = None  # what the last update added, for forward

    def analysis(self, blocks: Sequence[Tensor]) -> Analysis:
        """Analyse blocks of rows, once for all members."""
        if self._analysis is None or not self._analysis.fits(blocks):
            self._analysis = _Memo(blocks, Analysis(blocks))
        result: Analysis = self._analysis.result
        return result

    def gather(
        self,
        blocks: Sequence[Tensor],
        local: Callable[[], Tensor],
        device: torch.device,
        gather: Gather,
        group: Any,
    ) -> Tensor:
        """Give the rows of all processes, gathered once for all members where every process may reuse the last gather.

        Args:
            blocks: the blocks of this process.
            local: gives them as one (n, 8) tensor, empty for a process without data.
            device: that of the metric: of the same kind on every process, which that of its blocks need not be.
            gather: ``gather_all_tensors`` or a replacement: (tensor, group=...) -> list of tensors.
            group: the process group.
        """
        if self._window is not None:  # inside compute of the collection: every process asks the same members in turn
            for known, known_group, rows in self._window:
                if known is gather and known_group is group:
                    return rows
        own = gather is gather_all_tensors
        if own:
            device = _group_device(group, device)
            # a replacement is handed rows only, never the question whether the last gather may be reused
            if self._window is None and self.several and self._agree(blocks, device, group):
                assert self._gathered is not None
                last: Tensor = self._gathered.result
                return last
        mine = local()
        rows = torch.cat(list(gather((mine.to(device) if own else mine).contiguous(), group=group)))
        if own:
            self._gathered = _Memo(blocks, rows, group)
        if self._window is not None:
            self._window.append((gather, group, rows))
        return rows

    @contextmanager
    def window(self) -> Iterator[None]:
        """Let the members asked inside share one gather without asking the other processes again."""
        self._window = []
        try:
            yield
        finally:
            self._window = None

    def take_last_block(self) -> Tensor:
        """Give the block that the last update added, and hold it no longer."""
        block, self.last_block = self.last_block, None
        assert block is not None, "forward asks after its update"
        return block

    def forget(self) -> None:
        """Drop what is remembered, and the memory it holds."""
        self._analysis = self._gathered = self.last_block = None

    def _agree(self, blocks: Sequence[Tensor], device: torch.device, group: Any) -> bool:
        """Whether the last gather is still right on every process: one process alone must never gather or reuse."""
        fits = self._gathered is not None and self._gathered.fits(blocks, group)
        vote = torch.tensor(int(fits), device=device)
        torch.distributed.all_reduce(vote, torch.distributed.ReduceOp.MIN, group=group)
        return bool(vote)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shared":
        return self._fresh()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.several,))

    def _fresh(self) -> "Shared":
        return _restore(self.several)


def _restore(several: bool) -> Shared:
    shared = Shared()
    shared.several = several
    return shared


def _group_device(group: Any, device: torch.device) -> torch.device:
    """Where the group communicates: on the metric's device if it serves that kind, else on the first that it serves."""
    served = [part.split(":") for part in torch.distributed.get_backend_config(group).split(",")]
    # gloo and mpi list accelerators that they serve only if built for them
    kinds = [kind for kind, backend in served if kind == "cpu" or backend not in ("gloo", "mpi")]
    if device.type in kinds:
        return device
    return torch.device(kinds[0], torch.cuda.current_device()) if kinds[0] == "cuda" else torch.device(kinds[0])


def local_rows(blocks: Sequence[Tensor], device: torch.device) -> Tensor:
    """Give blocks as one (n, 8) int64 tensor; typed and of the right width without data."""
    return torch.cat(list(blocks)) if blocks else empty_rows(device)
