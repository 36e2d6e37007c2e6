"""`RankAccumulator`: ranks of candidates whose scores arrive in chunks of columns."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.eager import eager
from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.counting import choose
from torchrankmetrics.ranking.counting.torch_backend import BITS, remaining, said_of
from torchrankmetrics.ranking.exclude import Exclude, Excluded, check_exclude
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target, Tasks, check_scores, check_target, flags_of, said_of_answers
from torchrankmetrics.ranking.shards import Part, Slicing
from torchrankmetrics.ranking.tolerance import Tolerance, check_tolerance, count_within, extremes, spread, within
from torchrankmetrics.validation import check_int, shown

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class RankAccumulator:
    """Ranks of a batch whose candidates arrive in chunks of columns, in order; as ``rank_scores`` on the whole matrix.

    With a ``process_group`` each process passes the chunks of its slice of the candidates, and all get the ranks among
    all of them: where it is made and in ``compute`` every process waits for the others.

    Args:
        true_scores: (tasks,) score of each true candidate, from the same computation as the chunks: a product of
            another shape may round differently, and then a candidate equal to the truth no longer ties with it. With a
            group only those are read that are in the slice.
        target: as ``rank_scores`` takes it, columns of the whole matrix. The own column is left out by index.
        shape: (B, N) of the whole matrix; with a group (B, n) of the slice.
        exclude: as ``rank_scores`` takes it, for the whole matrix.
        backend: as ``rank_scores`` takes it.
        tolerance: as ``rank_scores`` takes it, but not relative: the spread of a row is not known before its end.
        offset: as ``rank_embeddings`` takes it, like what follows.
        num_candidates: as there.
        process_group: as there.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_scores`` and, with a group, as ``rank_embeddings``; ValueError at
            ``compute`` if not all columns came. An error in ``update`` is that of its process alone.

    >>> scores = torch.tensor([[3.0, 1.0, 2.0, 1.0]])
    >>> ranks = RankAccumulator(scores[:, 1], torch.tensor([1]), (1, 4))
    >>> for chunk in scores.split(3, dim=1):
    ...     ranks.update(chunk)
    >>> ranks.compute()
    Ranks(optimistic=[3], pessimistic=[4], num_candidates=[4])
    """

    @eager
    def __init__(
        self,
        true_scores: Tensor | Array,
        target: Target,
        shape: tuple[int, int],
        *,
        exclude: Exclude = None,
        backend: str = "auto",
        tolerance: float | Tolerance = 0.0,
        offset: int | None = None,
        num_candidates: int | None = None,
        process_group: "ProcessGroup | None" = None,
    ) -> None:
        def read() -> tuple[Tensor, float, int, int]:
            given = read_scores(true_scores, "true_scores", "scores (tasks,)")
            absolute, relative = check_tolerance(tolerance, given.dtype)
            if relative:
                raise ValueError(
                    "tolerance of chunks must be absolute: the spread of a row is known when its last chunk has come, "
                    "and the scores of the others are gone; pass the width itself, or whole rows to rank_scores"
                )
            if not isinstance(shape, tuple | list) or len(shape) != 2:
                raise TypeError(f"shape must be (B, N), two ints, got {shown(shape)}")
            B, n = (check_int("shape", size, 0) for size in shape)
            return given, absolute, B, n

        slicing = Slicing(process_group, offset, num_candidates)
        (true, absolute, B, _), part = slicing.join(read, lambda found: found[3], lambda _: {"tolerance": tolerance})
        asked = part.agree(
            lambda: read_tasks(target, exclude, part, B, true.device, lambda _: true),
            lambda asked: asked.said(part, B),
        )
        self._begin(asked, part, B, backend, absolute)

    @classmethod
    def of(
        cls, asked: "Asked", part: Part, num_rows: int, backend: str, tolerance: float | Tensor = 0.0
    ) -> "RankAccumulator":
        """Begin with what has been read and agreed on; tolerance is absolute, of all tasks or of each (P,)."""
        self = cls.__new__(cls)
        self._begin(asked, part, num_rows, backend, tolerance)
        return self

    def _begin(self, asked: "Asked", part: Part, num_rows: int, backend: str, tolerance: float | Tensor) -> None:
        tasks, excluded = asked.tasks, asked.excluded
        # copies, for what the caller writes between two chunks must not part them
        self._tasks = Tasks(tasks.row if tasks.row is None else tasks.row.clone(), tasks.column.clone(), tasks.wrong)
        self._flags, self._others = asked.flags, asked.others
        self._true = part.of_owners(asked.true.detach().clone(), tasks.column)
        exact = not isinstance(tolerance, Tensor) and tolerance == 0
        self._ends = None if exact else within(self._true, tolerance)
        self._part, self._num_rows = part, num_rows
        self._seen = part.first
        self._counting = backend
        # of the columns that are still to come
        excluded = excluded.split(part.first)[1] if part.first else excluded
        cells, columns = excluded.cells, excluded.columns
        cells = None if cells is None else cells[:, : len(part)].clone()
        self._excluded = Excluded(excluded.slices, cells, None if columns is None else columns[: len(part)].clone())
        self._counts = torch.zeros(4, len(self._true), dtype=torch.int64, device=self._true.device)
        self._total: Tensor | None = None

    @eager
    @torch.no_grad()
    def update(self, scores: Tensor | Array) -> None:
        """Count the next columns, (B, n) with n of any size; dtype and device of the true scores."""
        scores = read_scores(scores, "scores", "scores (B, n)")
        left_over = self._part.last - self._seen
        if scores.ndim != 2 or len(scores) != self._num_rows or scores.shape[1] > left_over:
            raise ValueError(
                f"scores must be ({self._num_rows}, n) with n up to the {left_over} columns left, "
                f"got {tuple(scores.shape)}"
            )
        if scores.dtype != self._true.dtype:
            raise TypeError(f"scores must have the dtype of true_scores, {self._true.dtype}; got {scores.dtype}")
        if scores.device != self._true.device:
            raise ValueError(f"scores must be on the device of true_scores, {self._true.device}; got {scores.device}")
        left, right = self._seen, self._seen + scores.shape[1]
        if left == right:
            return
        column = self._tasks.column
        column = torch.where((column >= left) & (column < right), column - left, -1)
        excluded, rest = self._excluded.split(right - left)
        count = choose(scores, self._counting)
        # a new tensor: one made in inference mode must not be written outside
        given = self._tasks.row, column, excluded
        if self._ends is None:
            counts = count(scores.detach(), self._true, *given)
        else:
            counts = count_within(count, scores.detach(), self._ends, *given)
        self._counts = self._counts + counts
        self._excluded, self._seen = rest, right

    @eager
    def compute(self) -> Ranks:
        """Ranks among all N columns."""
        return self.rank(())

    def rank(self, chunks: Iterable[Tensor]) -> Ranks:
        """Update with chunks, and compute; with a group an error in making or counting them is one on all processes."""

        def count() -> Tensor:
            for chunk in chunks:
                self.update(chunk)
            return self._complete()

        if self._total is None:
            self._total = self._part.add_up(count, self._others)
        ranks = Ranks.from_compared(self._total.clone(), self._flags)
        rows = None if self._tasks.row is None else (self._tasks.row, self._num_rows)
        return Ranks.trusted(ranks.columns, ranks.flags, rows)

    def _complete(self) -> Tensor:
        if self._seen != self._part.last:
            seen = self._seen - self._part.first
            raise ValueError(f"compute needs all {len(self._part)} columns; update has been given {seen}")
        return self._counts


class Asked(NamedTuple):
    """What is to be ranked by scores.

    Attributes:
        tasks: the targets.
        excluded: what is no candidate.
        flags: remarks on the tasks, or None.
        true: (P,) true scores of the tasks whose true candidates are in this part; of others anything.
        others: as ``Remaining.others`` for all candidates, where these are a part of them.
    """

    tasks: Tasks
    excluded: Excluded
    flags: Tensor | None
    true: Tensor
    others: Tensor | None

    def said(self, part: Part, num_rows: int) -> Mapping[str, object]:
        """What every process has to be given alike."""
        return {
            "dtype of the scores": self.true.dtype,
            "queries": num_rows,
            "target": torch.stack([self.tasks.rows, self.tasks.column]),
            **said_of(self.excluded, part.total),
        }


def read_tasks(
    target: Target,
    exclude: Exclude | Excluded,
    part: Part,
    num_rows: int,
    device: torch.device,
    true_scores: Callable[[Tasks], Tensor],
    say_rows: bool = True,
) -> Asked:
    """Read tasks for (B, n) scores of a part; ``say_rows``: where they are pairs, say which answers are excluded."""
    shape = (num_rows, part.total)
    tasks = check_target(target, shape, device)
    excluded = check_exclude(exclude, shape, device)
    true = true_scores(tasks)
    if true.shape != tasks.column.shape:
        raise ValueError(f"true_scores must be (tasks,) = {tuple(tasks.column.shape)}, got {tuple(true.shape)}")
    flags = flags_of(tasks, excluded)
    if say_rows and tasks.row is not None:
        told = said_of_answers(tasks, excluded)
        flags = told if flags is None else told + flags
    others = None
    if not part.is_whole:
        others = remaining(excluded, tasks.rows, tasks.column, shape, 0, part.total).others
    return Asked(tasks, excluded, flags, true, others)


def rank_part(
    scores: Tensor,
    target: Target,
    excluded: Excluded,
    backend: str,
    tolerance: float | Tolerance,
    part: Part,
) -> Ranks:
    """Rank as ``rank_filtered`` does by the scores (B, n) of a part; every process of the group calls it."""
    scores = scores.detach()

    def true_scores(tasks: Tasks) -> Tensor:
        check_scores(scores, some=False)
        check_tolerance(tolerance, scores.dtype)
        column = part.local(tasks.column)
        held = column >= 0
        bits = scores.view(BITS.get(scores.dtype, scores.dtype))
        true = bits.new_zeros(len(column))
        true[held] = bits[tasks.rows[held], column[held]]
        return true.view(scores.dtype)

    asked = part.agree(
        lambda: read_tasks(target, excluded, part, len(scores), scores.device, true_scores, say_rows=False),
        lambda asked: {**asked.said(part, len(scores)), "tolerance": tolerance},
    )
    absolute, relative = check_tolerance(tolerance, scores.dtype)
    width: float | Tensor = absolute
    if relative:
        width = absolute + relative * spread(part.most(extremes(scores)))[asked.tasks.rows]
    ranks = RankAccumulator.of(asked, part, len(scores), backend, width).rank([scores])
    return Ranks.trusted(ranks.columns, ranks.flags)
