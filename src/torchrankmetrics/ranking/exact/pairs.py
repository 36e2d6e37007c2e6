"""The last level: single pairs compared in float64 and as rational numbers."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.problem import FLOAT64, Counts, Problem, Tile, rows_of
from torchrankmetrics.ranking.exact.target_scores import TargetScores, scores_of_pairs

Integers = tuple[list[int], int]


def rational_score(query: Integers, candidate: Integers, bias: float, similarity: str) -> Fraction:
    """Exact score: dot, l2 as 2 q.e - |e|^2 + bias, cosine as the signed square of q.e / |e|."""
    (numbers, unit), product = candidate, _dot(query[0], candidate[0])
    if similarity == "cosine":  # a vector of zeros scores NaN, and is handled before
        return Fraction(product * abs(product), _dot(numbers, numbers))
    score = product * Fraction(2) ** (query[1] + unit)
    if similarity == "l2":
        score = 2 * score - _dot(numbers, numbers) * Fraction(2) ** (2 * unit)
    return score + Fraction(bias)


def _integers(vector: Tensor) -> Integers:
    """Integers and the exponent of the power of two that they are to be multiplied with."""
    fraction, exponent = np.frexp(vector.double().cpu().numpy())
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
        task, column, scores = task[open_], column[open_], scores[open_]
        while True:  # the bound of each candidate decides some of what the bound of the tile leaves open
            found, certain = self._targets.signs(tile, task, column, scores)
            self._counts.above.index_add_(0, task, (found > 0).long())
            self._counts.tied.index_add_(0, task, ((found == 0) & certain).long())
            left = (found == 0) & ~certain
            task, column, scores = task[left], column[left], scores[left]
            if self._targets.looked or self._num_pending + len(task) <= _LOOK:
                break
            self._targets.look()
        column = column + tile.left
        tied = self._targets.are_equal(task, column)
        self._counts.tied.index_add_(0, task, tied.long())
        self._pending.append((task[~tied], column[~tied]))
        self._num_pending += len(self._pending[-1][0])
        if self._num_pending > _PENDING:
            self.finish()

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
                query, known, last = _integers(problem.queries.given[row]), dict[int, Fraction](), row
            scores = []
            for candidate in (other, int(among[one])):
                key = candidate if group is None else int(group[candidate])
                if key not in known:
                    (given,), bias = rows_of(problem.tables, torch.tensor([candidate], device=task.device))
                    added = 0.0 if bias is None else float(bias)
                    known[key] = rational_score(query, _integers(given), added, problem.similarity)
                scores.append(known[key])
            self._counts.above[one] += scores[0] > scores[1]
            self._counts.tied[one] += scores[0] == scores[1]
