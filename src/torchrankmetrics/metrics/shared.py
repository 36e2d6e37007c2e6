"""What the members of one collection share: the last analysis of their rows, and the last gather across processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.ranking.rows import empty_rows

Gather = Callable[..., list[Tensor]]


class _Memo:
    """A result and the blocks it came from. Blocks are appended, never written in place, so identity is content.

    The blocks are held, so that no other tensor can take their identity.
    """

    def __init__(self, blocks: Sequence[Tensor], result: Any) -> None:
        self._blocks = tuple(blocks)
        self.result = result

    def fits(self, blocks: Sequence[Tensor]) -> bool:
        return len(blocks) == len(self._blocks) and all(a is b for a, b in zip(blocks, self._blocks, strict=True))


class Shared:
    """Memo of one collection, or of one metric alone; copies and pickles start empty but keep members together."""

    def __init__(self) -> None:
        self._analysis: _Memo | None = None
        self._gathered: _Memo | None = None
        self._window: list[Tensor] | None = None
        self.several = False

    def analysis(self, blocks: Sequence[Tensor]) -> Analysis:
        """Analyse blocks of rows, once for all members."""
        if self._analysis is None or not self._analysis.fits(blocks):
            self._analysis = _Memo(blocks, Analysis(blocks))
        result: Analysis = self._analysis.result
        return result

    def gather(self, blocks: Sequence[Tensor], local: Callable[[], Tensor], gather: Gather, group: Any) -> Tensor:
        """Give the rows of all processes, gathered once for all members where every process may reuse the last gather.

        Args:
            blocks: the blocks of this process.
            local: gives them as one (n, 8) tensor, empty for a process without data.
            gather: ``gather_all_tensors`` or a replacement: (tensor, group=...) -> list of tensors.
            group: the process group.
        """
        if self._window:  # inside compute of the collection, where every process asks for the same members in turn
            return self._window[0]
        if self._window is None and self.several and self._agree(blocks, gather, group):
            assert self._gathered is not None
            rows: Tensor = self._gathered.result
            return rows
        device = _group_device(group, blocks) if gather is gather_all_tensors else None
        mine = local() if device is None else local().to(device)
        rows = torch.cat(list(gather(mine.contiguous(), group=group)))
        self._gathered = _Memo(blocks, rows)
        if self._window is not None:
            self._window.append(rows)
        return rows

    @contextmanager
    def window(self) -> Iterator[None]:
        """Let the members asked inside share one gather without asking the other processes again."""
        self._window = []
        try:
            yield
        finally:
            self._window = None

    def forget(self) -> None:
        """Drop what is remembered, and the memory it holds."""
        self._analysis = self._gathered = None

    def _agree(self, blocks: Sequence[Tensor], gather: Gather, group: Any) -> bool:
        """Whether the last gather is still right on every process: one process alone must never gather or reuse."""
        fits = self._gathered is not None and self._gathered.fits(blocks)
        if gather is not gather_all_tensors:
            return all(bool(vote) for vote in gather(torch.tensor(fits), group=group))
        vote = torch.tensor(int(fits), device=_group_device(group, blocks))
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


def _group_device(group: Any, blocks: Sequence[Tensor]) -> torch.device:
    """Where the group can communicate: the device of the rows if it serves that kind, else the first that it serves."""
    here = blocks[0].device if blocks else torch.device("cpu")
    served = [part.split(":")[0] for part in torch.distributed.get_backend_config(group).split(",")]
    backend = torch.distributed.get_backend(group)
    kinds = ["cuda"] if backend == "nccl" else ["cpu"] if backend in ("gloo", "mpi") else served
    if here.type in kinds:
        return here
    return torch.device(kinds[0], torch.cuda.current_device()) if kinds[0] == "cuda" else torch.device(kinds[0])


def local_rows(blocks: Sequence[Tensor], device: torch.device) -> Tensor:
    """Give blocks as one (n, 8) int64 tensor; typed and of the right width without data."""
    return torch.cat(list(blocks)) if blocks else empty_rows(device)
