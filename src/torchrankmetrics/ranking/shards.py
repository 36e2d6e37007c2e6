"""Candidates sharded over processes: shards, their communication, and errors that are raised on all ranks."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch import Tensor, distributed as dist

from torchrankmetrics.validation import check_int

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup

Table = tuple[Tensor, Tensor | None]
"""Embeddings (n, d) and their biases (n,)."""
_TEXT = 1 << 11  # bytes of a message, which is exchanged only after an error
_NUMBERS = 5  # status, digest, size, offset, num_candidates
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (TypeError, ValueError, IndexError, MemoryError)
}  # other exceptions become RuntimeError on the other ranks


@dataclass
class Exchange:
    """Values that a ``with`` block sets on every process, and the values of all processes after the block."""

    size: int = 0  # candidates on this process
    settings: dict[str, object] = field(default_factory=dict)  # must be equal on all processes; tensors by digest
    numbers: list[list[int]] = field(default_factory=list)  # of this process, then of all
    shard: "Shard" = field(init=False)  # of this process, after ``ShardSpec.joining``
    counts: Tensor = field(init=False)  # int64 (4, P), of this shard, then of all candidates


class Communicator:
    """The processes of a group, which call the same methods in the same order."""

    def __init__(self, group: "ProcessGroup") -> None:
        outside = getattr(getattr(dist, "GroupMember", None), "NON_GROUP_MEMBER", None)
        is_outside = outside is not None and group is outside
        if not is_outside and (not dist.is_available() or not isinstance(group, dist.ProcessGroup)):
            raise TypeError(f"process_group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")
        if is_outside or dist.get_rank(group) < 0:
            raise ValueError("process_group must be a group that this process is part of")
        self.rank, self.names = dist.get_rank(group), dist.get_process_group_ranks(group)
        self._group, self._device = group, group_device(group)

    def __len__(self) -> int:
        return len(self.names)

    @contextmanager
    def agreeing(self) -> Iterator[Exchange]:
        """Raise an error of the block on all processes, also if their settings differ; one small gather."""
        exchange, fault, text, mine = Exchange(), None, "", [1, 0]
        try:
            yield exchange
            text = "\n".join(f"{name}\t{_digest(value)}" for name, value in exchange.settings.items())
            digest = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
            mine = [0, digest, *(number for row in exchange.numbers for number in row)]
        except Exception as error:
            fault = error
        rows = self._gather(mine)
        if any(row[0] for row in rows):
            self._raise(fault)
        if any(row[1] != mine[1] for row in rows):
            self._raise_difference(text)
        exchange.numbers = [row[2:] for row in rows]

    @contextmanager
    def summing(self, size: int, device: torch.device) -> Iterator[Exchange]:
        """Sum the counts that the block sets, int64 (size,); raise an error of the block on all processes."""
        exchange, fault = Exchange(), None
        total = torch.zeros(size + 1, dtype=torch.int64, device=device)
        try:
            yield exchange
            total[:size] = exchange.counts
        except Exception as error:
            total[size], fault = 1, error
        total = self.all_sum(total)
        if int(total[size]):
            self._raise(fault)
        exchange.counts = total[:size]

    def all_sum(self, numbers: Tensor) -> Tensor:
        """Sum over all processes, of the same shape and dtype on each."""
        there = numbers.to(group_device(self._group, numbers.device), copy=True)
        dist.all_reduce(there, dist.ReduceOp.SUM, group=self._group)
        return there.to(numbers.device)

    def gather(self, rows: Tensor) -> Tensor:
        """Concatenate the rows (n, w) of all processes in their order; n may differ."""
        sizes = [size for size, *_ in self._gather([len(rows)])]
        mine = rows.new_zeros((max(sizes), rows.shape[1]), device=group_device(self._group, rows.device))
        mine[: len(rows)] = rows
        parts = [torch.empty_like(mine) for _ in self.names]
        dist.all_gather(parts, mine, group=self._group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(rows.device)

    def _gather(self, numbers: Sequence[int], width: int = _NUMBERS, dtype: Any = torch.int64) -> list[list[int]]:
        mine = torch.zeros(width, dtype=dtype, device=self._device)
        mine[: len(numbers)] = torch.tensor(list(numbers), dtype=dtype, device=self._device)
        rows = [torch.empty_like(mine) for _ in self.names]
        dist.all_gather(rows, mine, group=self._group)
        found: list[list[int]] = torch.stack(rows).tolist()
        return found

    def _texts(self, text: str) -> list[str]:
        rows = self._gather(text.encode()[:_TEXT], _TEXT, torch.uint8)
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]

    def _raise(self, fault: Exception | None) -> NoReturn:
        # the first known base class: NumPy has its own subclass of MemoryError
        kinds = [] if fault is None else [kind.__name__ for kind in type(fault).__mro__]
        texts = self._texts("" if fault is None else f"{next((k for k in kinds if k in _KINDS), kinds[0])}: {fault}")
        if fault is not None:
            fault.add_note(f"on process {self.names[self.rank]} of process_group; the others raise it too")
            raise fault
        name, text = next((name, text) for name, text in zip(self.names, texts, strict=True) if text)
        kind, _, message = text.partition(": ")
        raise _KINDS.get(kind, RuntimeError)(f"process {name} of process_group: {message if kind in _KINDS else text}")

    def _raise_difference(self, text: str) -> NoReturn:
        settings = [[line.split("\t") for line in other.splitlines()] for other in self._texts(text)]
        for lines in zip(*settings, strict=False):
            for other, line in zip(self.names, lines, strict=True):
                if line != lines[0]:
                    raise ValueError(
                        f"{line[0]} must be the same on all processes of process_group, "
                        f"but process {self.names[0]} has {lines[0][-1]}, process {other} {line[-1]}"
                    )
        raise ValueError("the arguments must be the same on all processes of process_group")


def group_device(group: "ProcessGroup | None", device: torch.device | None = None) -> torch.device:
    """Device of a group's communication: the given one if the group supports its type, else the first supported."""
    served = [part.split(":") for part in dist.get_backend_config(group).split(",")]
    # gloo and mpi list accelerators that they support only if built for them
    kinds = [kind for kind, backend in served if kind == "cpu" or backend not in ("gloo", "mpi")]
    if device is not None and device.type in kinds:
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
    """Candidates [first, last) of ``total`` on this process: all of them. ``_ProcessShard`` communicates."""

    is_whole = True

    def __init__(self, first: int, last: int, total: int, largest: int | None = None) -> None:
        self.first, self.last, self.total = first, last, total
        self.largest = total if largest is None else largest  # size of the largest shard

    def __len__(self) -> int:
        return self.last - self.first

    def agreeing(self) -> AbstractContextManager[Exchange | None]:
        """Raise an error of the block on all processes, also if their settings differ; None: nothing to compare."""
        return nullcontext()

    def counting(self, others: Tensor | None) -> AbstractContextManager[Exchange]:
        """Sum the counts (4, P) that the block sets over all shards; ``others`` (P,) is their third row."""
        return nullcontext(Exchange())

    def local(self, column: Tensor) -> Tensor:
        """Convert columns of all candidates to columns of this shard; negative on other shards."""
        return column

    def gather_from_owner(self, numbers: Tensor, column: Tensor) -> Tensor:
        """Take each of the numbers (P,) from the process that has candidate ``column``, int64 (P,)."""
        return numbers

    def rows(self, column: Tensor, table: Table) -> tuple[Table, Tensor]:
        """Find embeddings and biases that contain candidates (P,) of any shard, and their indices (P,)."""
        return table, column


class _ProcessShard(Shard):
    """A shard of a process group; every process calls the same methods in the same order."""

    is_whole = False

    def __init__(self, communicator: Communicator, first: int, last: int, total: int, largest: int) -> None:
        super().__init__(first, last, total, largest)
        self._communicator = communicator

    def agreeing(self) -> AbstractContextManager[Exchange]:
        return self._communicator.agreeing()

    @contextmanager
    def counting(self, others: Tensor | None) -> Iterator[Exchange]:
        assert others is not None
        # two integers a task: the upper digit of the first is the number of processes with a NaN
        base, P, exchange = self.total + 1, len(others), Exchange()
        with self._communicator.summing(2 * P, others.device) as summed:
            yield exchange
            better, not_worse, _, nan = exchange.counts
            summed.counts = torch.cat([better + base * (nan > 0), not_worse])
        first, not_worse = summed.counts.view(2, P)
        exchange.counts = torch.stack([first % base, not_worse, others, first // base])

    def local(self, column: Tensor) -> Tensor:
        return torch.where((column >= self.first) & (column < self.last), column - self.first, -1)

    def gather_from_owner(self, numbers: Tensor, column: Tensor) -> Tensor:
        is_local = self.local(column) >= 0
        given = _bytes(numbers).view(len(numbers), numbers.element_size())
        return self._sum_bytes(is_local, given[is_local]).view(numbers.dtype)[:, 0]

    def rows(self, column: Tensor, table: Table) -> tuple[Table, Tensor]:
        columns, place = torch.unique(column, return_inverse=True)
        local = self.local(columns)
        is_local = local >= 0
        given = [part[local[is_local]] for part in table if part is not None]
        lines = [_bytes(part if part.ndim == 2 else part[:, None]) for part in given]
        parts = torch.split(self._sum_bytes(is_local, torch.cat(lines, 1)), [line.shape[1] for line in lines], 1)
        embeddings, *bias = (part.contiguous().view(one.dtype) for part, one in zip(parts, given, strict=True))
        return (embeddings, bias[0][:, 0] if bias else None), place

    def _sum_bytes(self, is_local: Tensor, sent: Tensor) -> Tensor:
        # all processes except the owner send zeros: the sum of bytes has the bits of the owner, of any dtype
        rows = torch.zeros(len(is_local), sent.shape[1], dtype=torch.uint8, device=is_local.device)
        rows[is_local] = sent
        return self._communicator.all_sum(rows)


class ShardSpec(NamedTuple):
    """Arguments of a public function that shards candidates; meaning as in ``rank_embeddings``."""

    process_group: "ProcessGroup | None" = None
    offset: int | None = None
    num_candidates: int | None = None

    def agreeing(self) -> AbstractContextManager[Exchange | None]:
        """Raise an error of the block on all processes, also if their settings differ."""
        self._check()
        return nullcontext() if self.process_group is None else Communicator(self.process_group).agreeing()

    @contextmanager
    def joining(self) -> Iterator[Exchange]:
        """Find the shard of this process from the ``size`` that the block sets; raise its errors on all processes."""
        self._check()
        if self.process_group is None:
            exchange = Exchange()
            yield exchange
            exchange.shard = Shard(0, exchange.size, exchange.size)
            return
        communicator = Communicator(self.process_group)
        with communicator.agreeing() as exchange:
            for name, least in (("offset", 0), ("num_candidates", 1)):
                if (number := getattr(self, name)) is not None:
                    check_int(name, number, least, 1 << 62)
            yield exchange
            spec = (-1 if number is None else int(number) for number in (self.offset, self.num_candidates))
            exchange.numbers = [[exchange.size, *spec]]
        exchange.shard = _shard_of(communicator, exchange.numbers)

    def _check(self) -> None:
        if self.process_group is None:
            for name in ("offset", "num_candidates"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is for candidates in slices: without a process_group it must be None")


def _shard_of(communicator: Communicator, rows: list[list[int]]) -> _ProcessShard:
    sizes, offsets, numbers = ([row[i] for row in rows] for i in range(3))
    total = sum(sizes)
    if any(offset >= 0 for offset in offsets) and any(offset < 0 for offset in offsets):
        missing = communicator.names[offsets.index(-1)]
        raise ValueError(
            f"offset must be given on all processes of process_group or on none; process {missing} has none"
        )
    if offsets[0] < 0:
        offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    end, before = 0, ""
    for offset, size, name in sorted(zip(offsets, sizes, communicator.names, strict=True)):
        if offset != end and size:
            what = "overlap" if offset < end else "leave a gap"
            raise ValueError(
                f"the slices of process_group must cover the candidates once, but {what}: process {name} has "
                f"[{offset}, {offset + size}){before or ', and no process those before'}"
            )
        if size:
            end, before = offset + size, f", process {name} [{offset}, {offset + size})"
    for number, name in zip(numbers, communicator.names, strict=True):
        if number >= 0 and number != total:
            raise ValueError(
                f"num_candidates must be the total of the shards of process_group, {total}; process {name} has {number}"
            )
    if not total or (len(communicator) + 1) * (total + 1) >= 1 << 63:
        raise ValueError(f"the shards of process_group must have from 1 to 2^62 / processes candidates, got {total}")
    first = offsets[communicator.rank]
    return _ProcessShard(communicator, first, first + sizes[communicator.rank], total, max(sizes))
