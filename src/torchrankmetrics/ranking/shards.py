"""Candidates sharded over processes: shards, their communication, and errors that are raised on all ranks."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, distributed as dist

from torchrankmetrics.validation import check_int

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup

_KINDS = TypeError, ValueError, IndexError, MemoryError  # other errors become RuntimeError on the other processes


@dataclass
class Agreement:
    """Values that a ``with`` block sets on every process, and the values of all processes after the block."""

    settings: dict[str, object] = field(default_factory=dict)  # must be equal on all processes; tensors by digest
    size: int = 0  # candidates on this process
    sizes: list[Any] = field(default_factory=list)  # (size, offset, num_candidates) of this process, then of all
    shard: "Shard" = field(init=False)  # of this process, after ``ShardSpec.joining``


class Communicator:
    """The processes of a group, which call the same methods in the same order."""

    def __init__(self, group: "ProcessGroup") -> None:
        outside = getattr(getattr(dist, "GroupMember", None), "NON_GROUP_MEMBER", None)
        if group is not outside and not isinstance(group, getattr(dist, "ProcessGroup", ())):
            raise TypeError(f"process_group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")
        if group is outside or dist.get_rank(group) < 0:
            raise ValueError("process_group must be a group that this process is part of")
        self.rank, self.names = dist.get_rank(group), dist.get_process_group_ranks(group)
        self._group = group

    def __len__(self) -> int:
        return len(self.names)

    @contextmanager
    def agreeing(self) -> Iterator[Agreement]:
        """Raise an error of the block on all processes, also if their settings differ; one small gather."""
        agreement, fault, sent = Agreement(), None, None
        try:
            yield agreement
            settings = {name: _digest(value) for name, value in agreement.settings.items()}
        except Exception as error:
            fault, settings = error, {}
            kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
            sent = kind, str(error) if kind in _KINDS else f"{type(error).__name__}: {error}"
        found = self._gather((sent, settings, agreement.sizes))
        if fault is not None:
            fault.add_note(f"on process {self.names[self.rank]} of process_group; the others raise it too")
            raise fault
        for name, (failure, *_) in zip(self.names, found, strict=True):
            if failure is not None:
                raise failure[0](f"process {name} of process_group: {failure[1]}")
        for key, value in found[0][1].items():
            for name, (_, other, _) in zip(self.names, found, strict=True):
                if other[key] != value:
                    raise ValueError(
                        f"{key} must be the same on all processes of process_group, "
                        f"but process {self.names[0]} has {value}, process {name} {other[key]}"
                    )
        agreement.sizes = [sizes for *_, sizes in found]

    def all_sum(self, numbers: Tensor) -> Tensor:
        """Sum over all processes, of the same shape and dtype on each."""
        there = numbers.to(group_device(self._group, numbers.device), copy=True)
        dist.all_reduce(there, dist.ReduceOp.SUM, group=self._group)
        return there.to(numbers.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows (n, w) of all processes in their order; n may differ."""
        sizes = self._gather(len(rows))
        mine = rows.new_zeros((max(sizes), rows.shape[1]), device=group_device(self._group, rows.device))
        mine[: len(rows)] = rows
        parts = [torch.empty_like(mine) for _ in self.names]
        dist.all_gather(parts, mine, group=self._group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(rows.device)

    def _gather(self, value: object) -> list[Any]:
        found: list[Any] = [None] * len(self)
        dist.all_gather_object(found, value, group=self._group)
        return found


def agreeing(communicator: Communicator | None) -> AbstractContextManager[Agreement]:
    """Raise an error of the block on all processes, also if their settings differ; None: on this one."""
    return nullcontext(Agreement()) if communicator is None else communicator.agreeing()


def group_device(group: "ProcessGroup | None", device: torch.device) -> torch.device:
    """Device of a group's communication: the given one if the group supports its type, else the first supported."""
    served = [part.split(":") for part in dist.get_backend_config(group).split(",")]
    # gloo and mpi list accelerators that they support only if built for them
    kinds = [kind for kind, backend in served if kind == "cpu" or backend not in ("gloo", "mpi")]
    if device.type in kinds:
        return device
    return torch.device(kinds[0], torch.cuda.current_device()) if kinds[0] == "cuda" else torch.device(kinds[0])


def _digest(value: object) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    dtype = str(value.dtype).removeprefix("torch.")
    content = _bytes(value.detach().flatten()).cpu().numpy()
    return f"{dtype} {tuple(value.shape)} of digest {blake2b(content.data, digest_size=8).hexdigest()}"


def _bytes(rows: Tensor) -> Tensor:
    return rows.resolve_neg().contiguous().view(torch.uint8)


class Shard:
    """Candidates [first, last) of ``total`` on this process; without a communicator all of them."""

    def __init__(
        self, first: int, last: int, total: int, largest: int, communicator: Communicator | None = None
    ) -> None:
        self.first, self.last, self.total = first, last, total
        self.largest = largest  # size of the largest shard
        self._communicator = communicator
        self.is_whole = communicator is None

    def __len__(self) -> int:
        return self.last - self.first

    def agreeing(self) -> AbstractContextManager[Agreement]:
        """Raise an error of the block on all processes, also if their settings differ."""
        return agreeing(self._communicator)

    def local(self, column: Tensor) -> Tensor:
        """Convert columns of all candidates to columns of this shard; negative on other shards."""
        if self.is_whole:
            return column
        return torch.where((column >= self.first) & (column < self.last), column - self.first, -1)

    def all_sum(self, numbers: Tensor) -> Tensor:
        """Sum over all shards."""
        return numbers if self._communicator is None else self._communicator.all_sum(numbers)

    def gather_from_owner(self, rows: Tensor, column: Tensor) -> Tensor:
        """Take each of the rows (P,) or (P, w) from the process that has candidate ``column``, int64 (P,)."""
        if self.is_whole:
            return rows
        # all processes except the owner send zeros: the sum of bytes has the bits of the owner, of any dtype
        given = _bytes(rows if rows.ndim == 2 else rows[:, None]) * (self.local(column) >= 0)[:, None]
        return self.all_sum(given).view(rows.dtype).view(rows.shape)

    def rows_of(self, table: Tensor, column: Tensor) -> Tensor:
        """Rows of candidates ``column``, int64 (P,), of any shard, from the rows (n,) or (n, w) of this shard."""
        local = self.local(column)
        found = table.new_zeros(len(column), *table.shape[1:])
        found[local >= 0] = table[local[local >= 0]]
        return self.gather_from_owner(found, column)


class ShardSpec(NamedTuple):
    """Arguments of a public function that shards candidates; meaning as in ``rank_embeddings``."""

    process_group: "ProcessGroup | None" = None
    offset: int | None = None
    num_candidates: int | None = None

    def communicator(self) -> Communicator | None:
        """Return the processes that share the candidates; None: this process has all."""
        if self.process_group is not None:
            return Communicator(self.process_group)
        for name in self._fields[1:]:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is for candidates in slices: without a process_group it must be None")
        return None

    @contextmanager
    def joining(self) -> Iterator[Agreement]:
        """Find the shard of this process from the ``size`` that the block sets; raise its errors on all processes."""
        communicator = self.communicator()
        with agreeing(communicator) as agreement:
            for least, name in enumerate(self._fields[1:]):
                if (number := getattr(self, name)) is not None:
                    check_int(name, number, least, 1 << 62)
            yield agreement
            agreement.sizes = [agreement.size, self.offset, self.num_candidates]
        size = agreement.size
        agreement.shard = Shard(0, size, size, size) if communicator is None else _shard_of(communicator, agreement)


def _shard_of(communicator: Communicator, agreement: Agreement) -> Shard:
    sizes, offsets, numbers = (list(part) for part in zip(*agreement.sizes, strict=True))
    total, names = sum(sizes), communicator.names
    if offsets.count(None) not in (0, len(offsets)):
        missing = names[offsets.index(None)]
        raise ValueError(
            f"offset must be given on all processes of process_group or on none; process {missing} has none"
        )
    if offsets[0] is None:
        offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    slices = {name: (first, first + size) for name, first, size in zip(names, offsets, sizes, strict=True)}
    covering = sorted(part for part in slices.values() if part[0] < part[1])
    if [first for first, _ in covering] != [0, *(last for _, last in covering)][: len(covering)]:
        listed = ", ".join(f"process {name} has [{first}, {last})" for name, (first, last) in slices.items())
        raise ValueError(f"the slices of process_group must cover the candidates once, but {listed}")
    for number, name in zip(numbers, names, strict=True):
        if number not in (None, total):
            raise ValueError(
                f"num_candidates must be the total of the shards of process_group, {total}; process {name} has {number}"
            )
    if not 0 < total < 1 << 62:
        raise ValueError(f"the shards of process_group must have from 1 to 2^62 candidates, got {total}")
    return Shard(*slices[names[communicator.rank]], total, max(sizes), communicator)
