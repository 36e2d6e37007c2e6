"""The part of the candidates that a process ranks among: all of them, or its slice of a group's."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from torchrankmetrics.checks import check_int
from torchrankmetrics.ranking.parallel.peers import Peers

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
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
