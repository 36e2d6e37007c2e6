"""`RankAccumulator`: ranks of candidates whose scores arrive in chunks of columns, or in shards."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchrankmetrics.decorators import eager
from torchrankmetrics.ranking.arrays import Array, check_device, read_scores
from torchrankmetrics.ranking.counting import Excluded, count
from torchrankmetrics.ranking.ranks import Ranks, from_counts
from torchrankmetrics.ranking.shards import Shard
from torchrankmetrics.ranking.tasks import Exclude, Target, Tasks, read_tasks
from torchrankmetrics.validation import check_int, shorten

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class RankAccumulator:
    """Rank a batch whose candidates arrive in chunks of columns, in order.

    The ranks are those of ``rank_scores`` on all columns.
    With a ``process_group`` each process passes the chunks of its slice of the candidates, and all
    get the ranks among all of them. Every process must call the constructor and ``compute``.

    Args:
        true_scores (Tensor or array): (tasks,) score of each target, from the same computation as
            the chunks: a product of another shape may round differently, and then equal candidates
            do not tie. With a group only the scores of targets in the slice are read.
        target (Tensor, list or tuple): the targets of each row, in every form of ``rank_scores``,
            columns of the whole matrix.
        shape (tuple): (B, N) of the whole matrix; with a group (B, n) of the slice.
        exclude (Tensor, list or tuple, default None): known positives to exclude, in every form of
            ``rank_scores``, for the whole matrix.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        offset (int, default None): index of the first candidate of the slice; None: slices are in
            order of processes.
        num_candidates (int, default None): N of all slices together, to be checked; None: their
            sum.
        process_group (ProcessGroup, default None): processes that share the candidates; None: this
            process has all.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_embeddings``; ValueError at ``compute`` if
            columns are missing. An error in ``update`` is raised on its process only.

    >>> import torch
    >>> from torchrankmetrics.ranking import RankAccumulator
    >>> scores = torch.tensor([[3.0, 1.0, 2.0, 1.0]])
    >>> ranks = RankAccumulator(scores[:, 1], torch.tensor([1]), (1, 4))
    >>> for chunk in scores.split(3, dim=1):
    ...     ranks.update(chunk)
    ...
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
        offset: int | None = None,
        num_candidates: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        with Shard(process_group, offset, num_candidates).joining() as shard:
            true = read_scores(true_scores, "true_scores", "scores (tasks,)")
            if not isinstance(shape, tuple | list) or len(shape) != 2:
                raise TypeError(f"shape must be (B, N), two ints, got {shorten(shape)}")
            B, shard.size = (check_int("shape", size, 0) for size in shape)
        with shard.agreeing() as settings:
            tasks = read_tasks(target, exclude, (B, shard.total), true.device)
            if true.shape != tasks.column.shape:
                raise ValueError(
                    f"true_scores must be (tasks,) = {tuple(tasks.column.shape)}, got "
                    f"{tuple(true.shape)}"
                )
            if not shard.is_whole:
                settings |= {
                    "dtype of the scores": true.dtype,
                    "queries": B,
                    **tasks.fingerprint(shard.total),
                }
        # copies: the caller may write to the arguments between two chunks
        row = None if tasks.row is None else tasks.row.clone()
        column = tasks.column.clone()
        tasks = tasks._replace(row=row, column=column, excluded=tasks.excluded.clone())
        self._counts = _ShardCounts(tasks, true.detach().clone(), shard, B, backend)

    @eager
    def update(self, scores: Tensor | Array) -> None:
        """Count the next columns, (B, n) with n of any size; dtype and device of the true scores.

        Args:
            scores (Tensor or array): (B, n) scores of the next n columns.
        """
        self._counts.add(read_scores(scores, "scores", "scores (B, n)"))

    @eager
    def compute(self) -> Ranks:
        """Ranks among all N columns.

        Returns:
            One entry per task.
        """
        return self._counts.rank(())


class _ShardCounts:
    """Counts of the candidates of checked tasks, in the chunks of a shard so far."""

    def __init__(
        self, tasks: Tasks, true: Tensor, shard: Shard, num_rows: int, backend: str
    ) -> None:
        self._tasks = tasks
        self._true = shard.gather_from_owner(true, tasks.column)
        self._shard = shard
        self._num_rows = num_rows
        self._backend = backend
        self._seen = shard.first
        self._found = torch.zeros(4, len(true), dtype=torch.int64, device=true.device)
        self._total: Tensor | None = None

    @torch.no_grad()
    def add(self, scores: Tensor) -> None:
        """Count in the next columns, (B, n)."""
        true = self._true
        left_over = self._shard.last - self._seen
        if scores.ndim != 2 or len(scores) != self._num_rows or scores.shape[1] > left_over:
            raise ValueError(
                f"scores must be ({self._num_rows}, n) with n up to the {left_over} columns left, "
                f"got {tuple(scores.shape)}"
            )
        if scores.dtype != true.dtype:
            raise TypeError(
                f"scores must have the dtype of true_scores, {true.dtype}; got {scores.dtype}"
            )
        check_device(scores, "scores", true.device, "true_scores")
        left = self._seen
        right = self._seen + scores.shape[1]
        if left == right:
            return
        row, column, excluded, *_ = self._tasks
        column = torch.where((column >= left) & (column < right), column - left, -1)
        excluded = excluded.between(left, right)
        counts = count(scores.detach(), true, row, column, excluded, backend=self._backend)
        # a new tensor: a tensor of inference mode must not be written to outside of it
        self._found = self._found + counts
        self._seen = right

    def rank(self, chunks: Iterable[Tensor]) -> Ranks:
        """Update with chunks, and compute; all processes raise an error that is in a chunk."""
        shard = self._shard
        if self._total is None:
            with shard.agreeing():
                for chunk in chunks:
                    self.add(chunk)
                if self._seen != shard.last:
                    got = self._seen - shard.first
                    raise ValueError(
                        f"compute needs all {len(shard)} columns; update has been given {got}"
                    )
            self._total = shard.all_sum(self._found)
        flags = self._tasks.flags_by(self._total[2], shard.total)
        return from_counts(self._total.clone(), flags, self._tasks.rows, self._tasks.gain)


def rank_chunks(
    chunks: Iterable[Tensor],
    true_of: Callable[[Tensor, Tensor], Tensor],
    target: Target,
    exclude: Exclude | Excluded,
    like: Tensor,
    shard: Shard,
    backend: str,
    by_query: bool | None = None,
) -> Ranks:
    """Rank the chunks (B, n) of a shard; every process calls it.

    Their B, dtype and device are those of the matrix ``like``. ``true_of`` returns the scores of
    cells (row, column) of the shard, as they are in the chunks, or their bits.
    """
    with shard.agreeing() as agreed:
        tasks = read_tasks(
            target, exclude, (len(like), shard.total), like.device, by_query=by_query
        )
        row = tasks.row_of_each
        column = shard.local(tasks.column)
        place = slice(None) if shard.is_whole else column >= 0
        found = true_of(row[place], column[place])
        true = found.new_zeros(len(column))
        true[place] = found
        if not shard.is_whole:
            agreed |= {
                "dtype of the scores": like.dtype,
                "queries": len(like),
                **tasks.fingerprint(shard.total),
            }
    counts = _ShardCounts(tasks, true.view(like.dtype), shard, len(like), backend)
    return counts.rank(chunks)
