"""Candidates sharded over processes: shards, communication, and errors raised on all processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed as dist

from torchrankmetrics.validation import check_int

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup

# other errors become RuntimeError on the other processes
_KINDS = TypeError, ValueError, IndexError, MemoryError


class Communicator:
    """The processes of a group, which call the same methods in the same order.

    Without a group it is only this process.
    """

    def __init__(self, group: "ProcessGroup | None" = None) -> None:
        self._group = group
        self.rank = 0
        self.names = [0]
        if group is not None:
            if (
                not isinstance(group, dist.ProcessGroup)
                and group is not dist.GroupMember.NON_GROUP_MEMBER
            ):
                raise TypeError(
                    "process_group must be a torch.distributed.ProcessGroup, got "
                    f"{type(group).__name__}"
                )
            if dist.get_rank(group) < 0:
                raise ValueError("process_group must be a group that this process is part of")
            self.rank = dist.get_rank(group)
            self.names = dist.get_process_group_ranks(group)

    @contextmanager
    def agreeing(self, own: str = "") -> Iterator[dict[str, Any]]:
        """Raise an error of the block on all processes, by one gather.

        Settings that the block puts in the dict must be the same. The dict then has lists of the
        settings of all processes, tensors by digest; the setting ``own`` may differ.
        """
        settings: dict[str, Any] = {}
        if self._group is None:
            yield settings
            return
        fault = None
        sent = None
        values = {}
        try:
            yield settings
            for key, value in settings.items():
                values[key] = value if key == own else _digest(value)
        except Exception as error:
            fault = error
            sent = _kind_and_text(error)
        found = self._gather((sent, values))
        if fault is not None:
            fault.add_note(
                f"on process {self.names[self.rank]} of process_group; the others raise it too"
            )
            raise fault
        for name, (failure, _) in zip(self.names, found, strict=True):
            if failure is not None:
                raise failure[0](f"process {name} of process_group: {failure[1]}")
        for key in found[0][1]:
            settings[key] = [others[key] for _, others in found]
            if key != own:
                self._check_same(key, settings[key])

    def _check_same(self, key: str, values: list[Any]) -> None:
        for name, value in zip(self.names, values, strict=True):
            if value != values[0]:
                raise ValueError(
                    f"{key} must be the same on all processes of process_group, "
                    f"but process {self.names[0]} has {values[0]}, process {name} {value}"
                )

    def all_sum(self, numbers: Tensor) -> Tensor:
        """Sum over all processes, of the same shape and dtype on each."""
        if self._group is None:
            return numbers
        there = numbers.to(group_device(self._group, numbers.device), copy=True)
        dist.all_reduce(there, dist.ReduceOp.SUM, group=self._group)
        return there.to(numbers.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows (n, w) of all processes in their order; n may differ."""
        if self._group is None:
            return rows
        sizes = self._gather(len(rows))
        mine = rows.new_zeros(
            (max(sizes), rows.shape[1]), device=group_device(self._group, rows.device)
        )
        mine[: len(rows)] = rows
        parts = [torch.empty_like(mine) for _ in sizes]
        dist.all_gather(parts, mine, group=self._group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(
            rows.device
        )

    def _gather(self, value: object) -> list[Any]:
        found: list[Any] = [None] * len(self.names)
        dist.all_gather_object(found, value, group=self._group)
        return found


def _kind_and_text(error: Exception) -> tuple[type[Exception], str]:
    """Return the class and the text of an error for the other processes."""
    for kind in _KINDS:
        if isinstance(error, kind):
            return kind, str(error)
    return RuntimeError, f"{type(error).__name__}: {error}"


def group_device(group: "ProcessGroup | None", device: torch.device) -> torch.device:
    """Device of a group's communication: the given one if its type is supported, else the first."""
    served = [part.split(":") for part in dist.get_backend_config(group).split(",")]
    # gloo and mpi list accelerators that they support only if built for them
    kinds = [kind for kind, backend in served if kind == "cpu" or backend not in ("gloo", "mpi")]
    if device.type in kinds:
        return device
    return (
        torch.device(kinds[0], torch.cuda.current_device())
        if kinds[0] == "cuda"
        else torch.device(kinds[0])
    )


def _digest(value: object) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    dtype = str(value.dtype).removeprefix("torch.")
    content = _bytes(value.detach().flatten()).cpu().numpy()
    return (
        f"{dtype} {tuple(value.shape)} of digest {blake2b(content.data, digest_size=8).hexdigest()}"
    )


def _bytes(rows: Tensor) -> Tensor:
    return rows.resolve_neg().contiguous().view(torch.uint8)


class Shard(Communicator):
    """Candidates [first, last) of ``total`` on this process, once it has joined.

    Arguments are those of ``rank_embeddings``. Without a group they are all candidates. ``largest``
    is the size of the largest shard.
    """

    first = last = total = largest = 0
    size: int  # these two are set while joining
    settings: dict[str, Any]

    def __init__(
        self,
        group: "ProcessGroup | None" = None,
        offset: int | None = None,
        num_candidates: int | None = None,
    ) -> None:
        super().__init__(group)
        self.is_whole = group is None
        self._given = {"offset": offset, "num_candidates": num_candidates}
        for name, number in self._given.items():
            if self.is_whole and number is not None:
                raise ValueError(
                    f"{name} is for candidates in slices: without a process_group it must be None"
                )

    def __len__(self) -> int:
        return self.last - self.first

    @contextmanager
    def joining(self) -> Iterator["Shard"]:
        """Find the candidates of a copy from the ``size`` that the block sets.

        ``settings`` are those of ``agreeing``.
        """
        shard = copy(self)
        with self.agreeing("sizes") as shard.settings:
            for least, (name, number) in enumerate(self._given.items()):
                if number is not None:
                    check_int(name, number, least, 1 << 62)
            yield shard
            shard.settings["sizes"] = shard.size, *self._given.values()
        if self.is_whole:
            shard.last = shard.total = shard.largest = shard.size
        else:
            shard._place(*zip(*shard.settings["sizes"], strict=True))

    def _place(
        self, sizes: tuple[int, ...], offsets: tuple[Any, ...], numbers: tuple[int | None, ...]
    ) -> None:
        if offsets.count(None) not in (0, len(offsets)):
            raise ValueError(
                f"offset must be given on all processes of process_group or on none, got {offsets}"
            )
        if None in offsets:
            offsets = 0, *accumulate(sizes[:-1])
        slices = [(first, first + size) for first, size in zip(offsets, sizes, strict=True)]
        covering = sorted(part for part in slices if part[0] < part[1])
        ends = [0, *(last for _, last in covering)]
        if [first for first, _ in covering] != ends[:-1]:
            named = zip(self.names, slices, strict=True)
            listed = ", ".join(
                f"process {name} has [{first}, {last})" for name, (first, last) in named
            )
            raise ValueError(
                f"the slices of process_group must cover the candidates once, but {listed}"
            )
        self.total = sum(sizes)
        self.largest = max(sizes)
        if set(numbers) - {None, self.total}:
            raise ValueError(
                f"num_candidates must be the total of the shards, {self.total}; got {numbers}"
            )
        if not 0 < self.total < 1 << 62:
            raise ValueError(
                f"the shards of process_group must have from 1 to 2^62 candidates, got {self.total}"
            )
        self.first, self.last = slices[self.rank]

    def local(self, column: Tensor) -> Tensor:
        """Convert columns of all candidates to columns of this shard; negative on other shards."""
        return torch.where((column >= self.first) & (column < self.last), column - self.first, -1)

    def gather_from_owner(self, rows: Tensor, column: Tensor) -> Tensor:
        """Take each row, (P,) or (P, w), from the process with its candidate, ``column`` (P,)."""
        if self.is_whole:
            return rows
        # all processes except the owner send zeros: the sum of bytes has the bits of the owner, of
        # any dtype
        given = (
            _bytes(rows if rows.ndim == 2 else rows[:, None]) * (self.local(column) >= 0)[:, None]
        )
        return self.all_sum(given).view(rows.dtype).view(rows.shape)
