"""Candidates sharded over processes: communication, and errors that are raised on all ranks."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor, distributed as dist

from torchrankmetrics.validation import check_int

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


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


Said = Callable[[T], Mapping[str, object]]
"""What has to be the same on all processes, by name."""


class Part:
    """Candidates [first, last) of ``total``: all of them, where no group shares them.

    What is asked of the other processes is answered by this one; ``Slice`` asks.
    """

    is_whole = True

    def __init__(self, first: int, last: int, total: int, largest: int | None = None) -> None:
        self.first, self.last, self.total = first, last, total
        self.largest = total if largest is None else largest  # of all parts

    def __len__(self) -> int:
        return self.last - self.first

    def agree(self, read: Callable[[], T], said: Said[T]) -> T:
        """Read arguments; what goes wrong on one process is an error on all, and so is what ``said`` tells apart."""
        return read()

    def local(self, column: Tensor) -> Tensor:
        """Columns of all candidates as those of this part, negative where it does not hold them."""
        return column

    def of_owners(self, numbers: Tensor, column: Tensor) -> Tensor:
        """Numbers (P,) of the tasks as they are known where their true candidates, int64 (P,), are held."""
        return numbers

    def rows(self, column: Tensor, tables: Sequence[Tensor | None]) -> tuple[list[Tensor | None], Tensor]:
        """Rows of tables of this part, of candidates (P,) of any part: tables that hold them, and where, (P,)."""
        return list(tables), column

    def most(self, numbers: Tensor) -> Tensor:
        """Largest of all parts, elementwise."""
        return numbers

    def add_up(self, count: Callable[[], Tensor], others: Tensor | None) -> Tensor:
        """Sum counts, int64 (4, P), over all parts; ``others`` (P,), their third line, is known before."""
        return count()


class Slice(Part):
    """A slice of the candidates; every process of the group calls the same methods in the same order."""

    is_whole = False

    def __init__(self, peers: Peers, first: int, last: int, total: int, largest: int) -> None:
        super().__init__(first, last, total, largest)
        self._peers = peers

    def agree(self, read: Callable[[], T], said: Said[T]) -> T:
        """Exchange a status and a digest: one small gather."""
        return self._peers.attempt(read, lambda _: [], said)[0]

    def local(self, column: Tensor) -> Tensor:
        """Subtract where the slice begins."""
        return torch.where((column >= self.first) & (column < self.last), column - self.first, -1)

    def of_owners(self, numbers: Tensor, column: Tensor) -> Tensor:
        """Take each from the process that holds its candidate: one sum of P numbers."""
        held = self.local(column) >= 0
        given = _bytes(numbers).view(len(numbers), numbers.element_size())
        return self._sum_bytes(held, given[held]).view(numbers.dtype)[:, 0]

    def rows(self, column: Tensor, tables: Sequence[Tensor | None]) -> tuple[list[Tensor | None], Tensor]:
        """Take each from its process: one sum of as many rows as there are different candidates."""
        columns, place = torch.unique(column, return_inverse=True)
        local = self.local(columns)
        held = local >= 0
        given = [table[local[held]] for table in tables if table is not None]
        lines = [_bytes(table if table.ndim == 2 else table[:, None]) for table in given]
        parts = iter(torch.split(self._sum_bytes(held, torch.cat(lines, 1)), [line.shape[1] for line in lines], 1))
        found: list[Tensor | None] = []
        for table in tables:
            if table is None:
                found.append(None)
            else:
                numbers = next(parts).contiguous().view(table.dtype)
                found.append(numbers if table.ndim == 2 else numbers[:, 0])
        return found, place

    def _sum_bytes(self, held: Tensor, sent: Tensor) -> Tensor:
        # of every row all processes but one send zeros: a sum of bytes gives its bits, whatever they mean
        rows = torch.zeros(len(held), sent.shape[1], dtype=torch.uint8, device=held.device)
        rows[held] = sent
        return self._peers.sum(rows)

    def most(self, numbers: Tensor) -> Tensor:
        """Compare in one exchange."""
        return self._peers.most(numbers)

    def add_up(self, count: Callable[[], Tensor], others: Tensor | None) -> Tensor:
        """Sum two integers a task, and a status."""
        assert others is not None
        base, P = self.total + 1, len(others)

        def digits() -> Tensor:
            # two integers a task: as the upper digit of the first, how many processes met a NaN
            better, not_worse, _, nan = count()
            return torch.cat([better + base * (nan > 0), not_worse])

        first, not_worse = self._peers.add_up(digits, 2 * P, others.device).view(2, P)
        return torch.stack([first % base, not_worse, others, first // base])


def _bytes(rows: Tensor) -> Tensor:
    return rows.resolve_neg().contiguous().view(torch.uint8)


class Slicing(NamedTuple):
    """How candidates are shared by processes, as ``rank_embeddings`` is told it."""

    process_group: "ProcessGroup | None" = None
    offset: int | None = None
    num_candidates: int | None = None

    def agree(self, read: Callable[[], T], said: Said[T]) -> T:
        """Read arguments as ``Part.agree`` does, before it is known who holds what."""
        self._check()
        if self.process_group is None:
            return read()
        return Peers(self.process_group).attempt(read, lambda _: [], said)[0]

    def join(self, read: Callable[[], T], size: Callable[[T], int], said: Said[T] = lambda _: {}) -> tuple[T, Part]:
        """Read arguments, and find the part of this process.

        Args:
            read: reads and checks; what it raises on one process is an error on all.
            size: how many candidates this process holds.
            said: as in ``Part.agree``.

        Raises:
            TypeError: if the group is none, or the numbers are no integers.
            ValueError: if this process is not part of the group; without a group, if offset or num_candidates are
                given; on all processes, if the slices do not cover the candidates once.
        """
        self._check()
        if self.process_group is None:
            result = read()
            return result, Part(0, size(result), size(result))
        peers = Peers(self.process_group)

        def checked() -> T:
            for name, number, least in (("offset", self.offset, 0), ("num_candidates", self.num_candidates, 1)):
                if number is not None:
                    check_int(name, number, least, 1 << 62)
            return read()

        def numbers(result: T) -> list[int]:
            told = (-1 if number is None else int(number) for number in (self.offset, self.num_candidates))
            return [size(result), *told]

        result, rows = peers.attempt(checked, numbers, said)
        return result, _slice_of(peers, rows)

    def _check(self) -> None:
        if self.process_group is None:
            for name, number in (("offset", self.offset), ("num_candidates", self.num_candidates)):
                if number is not None:
                    raise ValueError(f"{name} is for candidates in slices: without a process_group it must be None")


def _slice_of(peers: Peers, rows: list[list[int]]) -> Slice:
    sizes, offsets, numbers = ([row[i] for row in rows] for i in range(3))
    total = sum(sizes)
    if any(offset >= 0 for offset in offsets) and any(offset < 0 for offset in offsets):
        missing = peers.names[offsets.index(-1)]
        raise ValueError(
            f"offset must be given on all processes of process_group or on none; process {missing} has none"
        )
    if offsets[0] < 0:
        offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    end, before = 0, ""
    for offset, size, name in sorted(zip(offsets, sizes, peers.names, strict=True)):
        if offset != end and size:
            what = "overlap" if offset < end else "leave a gap"
            raise ValueError(
                f"the slices of process_group must cover the candidates once, but {what}: process {name} has "
                f"[{offset}, {offset + size}){before or ', and no process those before'}"
            )
        if size:
            end, before = offset + size, f", process {name} [{offset}, {offset + size})"
    for number, name in zip(numbers, peers.names, strict=True):
        if number >= 0 and number != total:
            raise ValueError(
                f"num_candidates must be that of all slices of process_group, {total}; process {name} has {number}"
            )
    if not total or (len(peers) + 1) * (total + 1) >= 1 << 63:
        raise ValueError(f"the slices of process_group must hold from 1 to 2^62 / processes candidates, got {total}")
    first = offsets[peers.rank]
    return Slice(peers, first, first + sizes[peers.rank], total, max(sizes))
