"""The processes of a group: what they tell each other, and that an error of one is an error of all."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NoReturn, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

T = TypeVar("T")

_TEXT = 1 << 11  # bytes of an error, or of what does not agree; told only then
_NUMBERS = 5  # status, digest, and what a slice is
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (TypeError, ValueError, IndexError, MemoryError)
}  # the others are RuntimeError elsewhere


class Peers:
    """The processes of a group, which all call the same methods in the same order.

    Args:
        group: of which this process is one.

    Raises:
        TypeError: if it is no process group.
        ValueError: if this process is not part of it.
    """

    def __init__(self, group: "dist.ProcessGroup") -> None:
        outside = getattr(getattr(dist, "GroupMember", None), "NON_GROUP_MEMBER", None)
        if outside is not None and group is outside:  # what torch gives those that it leaves out
            raise ValueError("process_group must be a group that this process is part of")
        if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
            raise TypeError(f"process_group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")
        rank = dist.get_rank(group)
        if rank < 0:
            raise ValueError("process_group must be a group that this process is part of")
        self.rank, self.names = rank, dist.get_process_group_ranks(group)
        self._group, self._device = group, group_device(group)

    def __len__(self) -> int:
        return len(self.names)

    def attempt(
        self, work: Callable[[], T], numbers: Callable[[T], list[int]], said: Callable[[T], Mapping[str, object]]
    ) -> tuple[T, list[list[int]]]:
        """Do something on all processes, each its own; where it raises on one, all raise.

        Args:
            work: what is done.
            numbers: integers to be told to all, equally many on each.
            said: what has to be the same on all processes, by name; tensors by their digests.

        Returns:
            What ``work`` gives; and the numbers of all processes.
        """
        fault, text, mine = None, "", [1, 0]
        try:
            result = work()
            text = "\n".join(f"{name}\t{_told(value)}" for name, value in said(result).items())
            digest = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
            mine = [0, digest, *numbers(result)]
        except Exception as error:
            fault = error
        rows = self._gather(mine)
        if any(row[0] for row in rows):
            self._raise(fault)
        if any(row[1] != mine[1] for row in rows):
            self._raise_difference(text)
        return result, [row[2:] for row in rows]

    def add_up(self, work: Callable[[], Tensor], size: int, device: torch.device) -> Tensor:
        """Sum what ``work`` gives, int64 (size,), over all processes; where it raises on one, all raise."""
        total, fault = torch.zeros(size + 1, dtype=torch.int64, device=device), None
        try:
            total[:size] = work()
        except Exception as error:
            total[size], fault = 1, error
        total = self.sum(total)
        if int(total[size]):
            self._raise(fault)
        return total[:size]

    def sum(self, numbers: Tensor) -> Tensor:
        """Sum over all processes, (n,) of the same size and dtype on each."""
        return self._reduce(numbers, "SUM")

    def most(self, numbers: Tensor) -> Tensor:
        """Largest of all processes, elementwise."""
        return self._reduce(numbers, "MAX")

    def join(self, rows: Tensor) -> Tensor:
        """Rows of all processes in their order, (m, w) of (n, w), any n on each, of one dtype; where they came from."""
        sizes = [size for size, *_ in self._gather([len(rows)])]
        mine = rows.new_zeros((max(sizes), rows.shape[1]), device=group_device(self._group, rows.device))
        mine[: len(rows)] = rows
        parts = [torch.empty_like(mine) for _ in self.names]
        dist.all_gather(parts, mine, group=self._group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(rows.device)

    def _reduce(self, numbers: Tensor, operation: str) -> Tensor:
        there = numbers.to(group_device(self._group, numbers.device), copy=True)
        dist.all_reduce(there, getattr(dist.ReduceOp, operation), group=self._group)
        return there.to(numbers.device)

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        mine = torch.zeros(_NUMBERS, dtype=torch.int64, device=self._device)
        mine[: len(numbers)] = torch.tensor(numbers, device=self._device)
        rows = [torch.empty_like(mine) for _ in self.names]
        dist.all_gather(rows, mine, group=self._group)
        found: list[list[int]] = torch.stack(rows).tolist()
        return found

    def _texts(self, text: str) -> list[str]:
        letters = text.encode()[:_TEXT]
        mine = torch.zeros(_TEXT, dtype=torch.uint8, device=self._device)
        mine[: len(letters)] = torch.tensor(list(letters), dtype=torch.uint8, device=self._device)
        rows = [torch.empty_like(mine) for _ in self.names]
        dist.all_gather(rows, mine, group=self._group)
        return [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in rows]

    def _raise(self, fault: Exception | None) -> NoReturn:
        texts = self._texts("" if fault is None else f"{_kind_of(fault)}: {fault}")
        if fault is not None:
            fault.add_note(f"on process {self.names[self.rank]} of process_group; the others are told")
            raise fault
        name, text = next((name, text) for name, text in zip(self.names, texts, strict=True) if text)
        kind, _, message = text.partition(": ")
        told = message if kind in _KINDS else text
        raise _KINDS.get(kind, RuntimeError)(f"process {name} of process_group: {told}")

    def _raise_difference(self, text: str) -> NoReturn:
        said = [[line.split("\t") for line in other.splitlines()] for other in self._texts(text)]
        for lines in zip(*said, strict=False):
            for other, line in zip(self.names, lines, strict=True):
                if line != lines[0]:
                    raise ValueError(
                        f"{line[0]} must be the same on all processes of process_group, "
                        f"but process {self.names[0]} has {lines[0][-1]}, process {other} {line[-1]}"
                    )
        raise ValueError("the processes of process_group were not given the same")


def _kind_of(fault: Exception) -> str:
    """The kind that the others raise: of a subclass, such as NumPy's of MemoryError, the one it is known by."""
    known = (kind.__name__ for kind in type(fault).__mro__ if kind.__name__ in _KINDS)
    return next(known, type(fault).__name__)


def group_device(group: "dist.ProcessGroup | None", device: torch.device | None = None) -> torch.device:
    """Where a group communicates: on a device if it serves that kind, else on the first that it serves."""
    served = [part.split(":") for part in dist.get_backend_config(group).split(",")]
    # gloo and mpi list accelerators that they serve only if built for them
    kinds = [kind for kind, backend in served if kind == "cpu" or backend not in ("gloo", "mpi")]
    if device is not None and device.type in kinds:
        return device
    return torch.device(kinds[0], torch.cuda.current_device()) if kinds[0] == "cuda" else torch.device(kinds[0])


def _told(value: object) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    dtype = str(value.dtype).removeprefix("torch.")
    content = value.detach().resolve_neg().flatten().cpu().view(torch.uint8).numpy()
    return f"{dtype} {tuple(value.shape)} of digest {blake2b(content.data, digest_size=8).hexdigest()}"
