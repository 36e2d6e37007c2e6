"""The last level: single pairs compared in float64 and as rational numbers."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.problem import FLOAT64, Counts, Problem, Tile, rows_of
from torchrankmetrics.ranking.exact.target_scores import TargetScores, scores_of_pairs

Vector = npt.NDArray[np.float64]


class RationalScores:
    """Scores of one query, (d,) finite float64, exact: dot, l2 as 2 q.e - |e|^2 + bias, cosine as its signed square."""

    def __init__(self, query: Vector, similarity: str) -> None:
        self._query, self._unit = _integers(query)
        self._similarity = similarity

    def score(self, candidate: Vector, bias: float) -> Fraction:
        """A number in the order of the scores of this query."""
        numbers, unit = _integers(candidate)
        product = _dot(self._query, numbers)
        if self._similarity == "cosine":  # a vector of zeros scores NaN, and is handled before
            return Fraction(product * abs(product), _dot(numbers, numbers))
        score = product * Fraction(2) ** (self._unit + unit)
        if self._similarity == "l2":
            score = 2 * score - _dot(numbers, numbers) * Fraction(2) ** (2 * unit)
        return score + Fraction(bias)


def _integers(numbers: Vector) -> tuple[list[int], int]:
    """Integers and the exponent of the power of two that they are to be multiplied with."""
    fraction, exponent = np.frexp(numbers)
    exponent = np.where(fraction == 0, 0, exponent - 53)
    unit = int(exponent.min(initial=0))
    whole = np.ldexp(fraction, 53).astype(np.int64).tolist()
    return [number << shift for number, shift in zip(whole, (exponent - unit).tolist(), strict=True)], unit


def _dot(one: list[int], other: list[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))


_LOOK = 1 << 10  # pairs that float64 leaves open before the structure of the candidates is looked for
_PENDING = 1 << 20  # pairs that wait for the last level


class Pairs:
    """Counts pairs that no product of a whole tile has decided."""

    def __init__(self, problem: Problem, targets: TargetScores, counts: Counts) -> None:
        self._problem, self._targets, self._counts = problem, targets, counts
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._num_pending = 0

    def decide(self, tile: Tile, task: Tensor, column: Tensor) -> None:
        """Compare candidates of a tile, by their place in it, with the targets of tasks, which are not counted."""
        scores = scores_of_pairs(self._problem, tile, self._problem.row[task], column)
        low, high = (end[task] for end in self._targets.bounds(tile, FLOAT64)[1:])
        other = column != (self._problem.column - tile.left)[task]
        above = other & (scores > high)
        self._counts.above.index_add_(0, task, above.long())
        open_ = (other & ~above & ~(scores < low)).nonzero()[:, 0]
        if not len(open_):
            return
        task, column = self._count_certain(tile, task[open_], column[open_])
        if not self._targets.looked and self._num_pending + len(task) > _LOOK:
            self._targets.look()
            task, column = self._count_certain(tile, task, column)
        column = column + tile.left
        tied = self._targets.are_equal(task, column)
        self._counts.tied.index_add_(0, task, tied.long())
        self._pending.append((task[~tied], column[~tied]))
        self._num_pending += len(self._pending[-1][0])
        if self._num_pending > _PENDING:
            self.finish()

    def _count_certain(self, tile: Tile, task: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Count what the bound of each candidate decides; the others are returned."""
        found, certain = self._targets.signs(tile, task, column)
        self._counts.above.index_add_(0, task, (found > 0).long())
        self._counts.tied.index_add_(0, task, ((found == 0) & certain).long())
        left = (found == 0) & ~certain
        return task[left], column[left]

    def finish(self) -> None:
        """Decide what waits, exactly; scores of equal candidates of a query are computed once."""
        if not self._num_pending:
            return
        task, column = (torch.cat(part) for part in zip(*self._pending, strict=True))
        self._pending, self._num_pending = [], 0
        problem, group, among = self._problem, self._targets.group, self._problem.among
        order = problem.row[task].argsort(stable=True)
        last = -1
        for one, other in zip(task[order].tolist(), column[order].tolist(), strict=True):
            row = int(problem.row[one])
            if row != last:
                given = problem.queries.given[row].double().cpu().numpy()
                query, known = RationalScores(given, problem.similarity), dict[int, Fraction]()
                last = row
            scores = []
            for candidate in (other, int(among[one])):
                key = candidate if group is None else int(group[candidate])
                if key not in known:
                    (numbers,), bias = rows_of(problem.tables, torch.tensor([candidate], device=task.device))
                    known[key] = query.score(numbers.double().cpu().numpy(), 0.0 if bias is None else float(bias))
                scores.append(known[key])
            self._counts.above[one] += scores[0] > scores[1]
            self._counts.tied[one] += scores[0] == scores[1]
