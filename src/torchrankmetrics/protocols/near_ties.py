"""Looks for float noise: candidates whose scores are those of the true ones but for the last bits."""

import torch
from torch import Tensor

from torchrankmetrics.errors import warn
from torchrankmetrics.ranking.excluded import Excluded

_SHARE, _MOST = 16, 32  # one task in so many is looked at, and at most so many of a side
_CELLS = 1 << 20  # scores looked at, at once
_NEAR, _AROUND = 8, 72  # units in the last place
_LEAST = 3  # tasks with near-ties


class NearTies:
    """Counts candidates near the true ones in a sample of the tasks: further reads of those rows of scores alone.

    By chance a candidate within 72 units in the last place is within 8 in one case of nine. Float noise is a few units
    wide: where more are within 8 than beyond, scores that should tie differ by rounding.
    """

    def __init__(self) -> None:
        self._seen = self._most = self._looked = self._tasks = self._near = self._beyond = 0

    def begin(self) -> None:
        """Begin with a side."""
        self._most += _MOST

    def look(self, scores: Tensor, target: tuple[Tensor, Tensor], excluded: Excluded) -> None:
        """Look at some tasks of a batch: float32 or float64 scores (B, N), rows and columns of the true candidates."""
        # each 16th of all tasks, not some of each batch: the sizes of batches follow a clock
        some = slice(_SHARE - 1 - self._seen % _SHARE, None, _SHARE)
        self._seen += len(target[0])
        row, column = (part[some][: self._most - self._looked] for part in target)
        if not len(row) or scores.dtype not in (torch.float32, torch.float64):
            return
        self._looked += len(row)
        number = max(1, _CELLS // scores.shape[1])
        for rows, columns in zip(torch.split(row, number), torch.split(column, number), strict=True):
            self._count(scores, rows, columns, excluded)

    def _count(self, scores: Tensor, row: Tensor, column: Tensor, excluded: Excluded) -> None:
        true = scores[row, column]
        size = true.abs()
        unit = torch.nextafter(size, torch.full_like(size, torch.inf)) - size
        unit.masked_fill_((size < torch.finfo(size.dtype).tiny) | (unit == torch.inf), -1.0)  # masked, or vanished
        apart = (scores[row] - true[:, None]).abs_()
        task, other = (apart <= _AROUND * unit[:, None]).nonzero().unbind(1)
        distance = apart[task, other]
        counted = distance > 0  # what is equal ties, the true one with itself
        if not bool(counted.any()):
            return
        counted &= ~excluded.hold(row[task], other)
        near = counted & (distance <= _NEAR * unit[task])
        self._near += int(near.sum())
        self._beyond += int((counted & ~near).sum())
        self._tasks += int((torch.bincount(task[near]) > 0).sum())

    def tell(self) -> None:
        """Warn where there is more than chance explains."""
        if self._tasks >= _LEAST and self._near > self._beyond:
            warn(
                f"{self._tasks} of {self._looked} ranking tasks looked at have candidates within {_NEAR} units in the "
                "last place of the true score, not equal to it, and fewer beyond: rounding orders candidates that may "
                "be equal; tolerance=Tolerance(relative=1e-5), or as large as the noise is, makes them tie"
            )
