"""Case: what an evaluator is asked, with the ranks that are right; every answer here is written down, none computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from torchrankmetrics.ranking.ranks import Ranks

_SHOWN = 24  # scores that a report writes out


@dataclass(frozen=True)
class Case:
    """A batch of tasks and their ranks.

    Attributes:
        scores: (B, N), higher is better.
        target: (B,) int64.
        exclude: bool (B, N), True = no candidate; or None.
        low: (B,) int64, the optimistic ranks.
        high: (B,) int64, the pessimistic ranks.
        at_best: every rank from low on is right, whatever the tie rule, and so is to count the task as missed.
        note: what is asked, where the scores are too many to be written out.
        repeats: filter entries are given twice, if they are pairs.
    """

    scores: Tensor
    target: Tensor
    exclude: Tensor | None
    low: Tensor
    high: Tensor
    at_best: bool = False
    note: str = ""
    repeats: bool = False

    def ranks(self) -> Ranks:
        """The right ranks; a target is a candidate whatever is excluded."""
        return self._ranks

    @cached_property
    def _ranks(self) -> Ranks:
        count = torch.full_like(self.low, self.scores.shape[1])
        if self.exclude is not None:
            others = self.exclude.scatter(1, self.target[:, None], False)
            count -= others.sum(1)
        return Ranks(self.low, self.high, count)

    def twice(self) -> "Case":
        """The same rows once more, below."""
        return stack(self, self, note=self.note)

    def __str__(self) -> str:
        B, N = self.scores.shape
        kind = "" if self.scores.dtype == torch.float32 else f" {str(self.scores.dtype).removeprefix('torch.')}"
        if self.scores.numel() > _SHOWN:
            return f"{self.note or 'scores'}: ({B}, {N}){kind}"
        text = f"scores{kind} {_rows(self.scores)}, target {self.target.tolist()}"
        if self.exclude is not None:
            out = [row.nonzero().flatten().tolist() for row in self.exclude]
            text += f", exclude columns {out}" + (" (each twice)" if self.repeats else "")
        return text


def case(
    scores: Sequence[float],
    target: int,
    low: int,
    high: int | None = None,
    exclude: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    at_best: bool = False,
) -> Case:
    """One task: its scores, the column of the true candidate, its rank (of a tie both), the columns excluded."""
    out = None
    if exclude is not None:
        out = torch.zeros(1, len(scores), dtype=torch.bool)
        out[0, list(exclude)] = True
    ends = (torch.tensor([low]), torch.tensor([low if high is None else high]))
    return Case(torch.tensor([scores], dtype=dtype), torch.tensor([target]), out, *ends, at_best)


def stack(*cases: Case, note: str = "") -> Case:
    """Cases of one width as a batch."""
    out = None
    if cases[0].exclude is not None:
        out = torch.cat([part.exclude for part in cases if part.exclude is not None])
    scores, target, low, high = (
        torch.cat([getattr(part, name) for part in cases]) for name in ("scores", "target", "low", "high")
    )
    return Case(
        scores=scores,
        target=target,
        exclude=out,
        low=low,
        high=high,
        at_best=cases[0].at_best,
        note=note,
        repeats=cases[0].repeats,
    )


def ranked(ranks: Sequence[int], width: int, note: str = "") -> Case:
    """A task per rank among ``width`` candidates, without ties; scores are positive, and no two rows are the same."""
    rows, targets = [], [1 + i % (width - 2) for i in range(len(ranks))]
    for i, (rank, target) in enumerate(zip(ranks, targets, strict=True)):
        # the ends score lowest and are never true: that columns are treated alike is a law of its own
        best_first = [column for column in range(1, width - 1) if column != target] + [0, width - 1]
        best_first.insert(rank - 1, target)
        row = [0.0] * width
        for place, column in enumerate(best_first):
            row[column] = i + 1 - place / width
        rows.append(row)
    best = torch.tensor(ranks)
    return Case(torch.tensor(rows, dtype=torch.float32), torch.tensor(targets), None, best, best, note=note)


def _rows(scores: Tensor) -> str:
    return "[" + ", ".join("[" + ", ".join(f"{x:.6g}" for x in row) + "]" for row in scores.double().tolist()) + "]"
