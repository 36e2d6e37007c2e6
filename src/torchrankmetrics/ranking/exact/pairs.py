"""The last level: single pairs compared in float64 and as rational numbers."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.problem import FLOAT64, Counts, Problem, Tile, rows_of
from torchrankmetrics.ranking.exact.target_scores import TargetScores, operands

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
        score = product * _power(self._unit + unit)
        if self._similarity == "l2":
            score = 2 * score - _dot(numbers, numbers) * _power(2 * unit)
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


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


_LOOK = 1 << 10  # pairs that float64 leaves open before the structure of the candidates is looked for
_OPEN = 1 << 20  # pairs of a tile that wait to be compared
_PENDING = 1 << 20  # pairs that wait for the last level


class Pairs:
    """Counts pairs that no product of a whole tile has decided."""

    def __init__(self, problem: Problem, targets: TargetScores, counts: Counts) -> None:
        self._problem, self._targets, self._counts = problem, targets, counts
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._num_pending = 0
        self._open: list[tuple[Tensor, Tensor]] = []
        self._num_open = 0

    def add(self, tile: Tile, task: Tensor, column: Tensor) -> None:
        """Take candidates of a tile, by their place in it, to be compared with the true ones of tasks, int64 (n,)."""
        self._open.append((task, column))
        self._num_open += len(task)
        if self._num_open > _OPEN:
            self.decide(tile)

    def decide(self, tile: Tile) -> None:
        """Compare the pairs added of a tile, except each task's target.

        Pairs with the same candidate are compared one after the other.
        """
        if not self._num_open:
            return
        task, column = (torch.cat(part) for part in zip(*self._open, strict=True))
        self._open, self._num_open = [], 0
        problem, (low, high) = self._problem, self._targets.interval(tile, FLOAT64)
        tasks = problem.row, problem.column - tile.left, low, high
        above, open_ = problem.intervals.compare(operands(problem, tile), tile.form, tasks, task, column)
        self._counts.above += above
        if not bool(open_.any()):
            return
        task, column = self._count_certain(tile, task[open_], column[open_])
        if not self._targets.looked and self._num_pending + len(task) > _LOOK:
            self._targets.look()
            task, column = self._count_certain(tile, task, column)
        if len(task):
            self._leave(task, column + tile.left)

    def _count_certain(self, tile: Tile, task: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Count what the bound of each candidate decides; the others are returned."""
        found, certain = self._targets.signs(tile, task, column)
        self._count(task[found > 0], self._counts.above)
        self._count(task[(found == 0) & certain], self._counts.tied)
        left = (found == 0) & ~certain
        return task[left], column[left]

    def _count(self, task: Tensor, into: Tensor) -> None:
        into.index_add_(0, task, torch.ones_like(task))

    def _leave(self, task: Tensor, column: Tensor) -> None:
        """Count candidates that are equal to the true one; the others wait for the last level."""
        targets, group = self._problem.targets, self._targets.group
        if group is not None:
            tied = group[column] == group[targets.among[task]]
        elif self._targets.looked:
            tied = torch.zeros_like(task, dtype=torch.bool)
        else:
            candidates, (given, bias), own = self._problem.candidates, targets.table, targets.place[task]
            tied = (candidates.embeddings[column] == given[own]).all(1)
            if bias is not None and candidates.bias is not None:
                tied &= candidates.bias[column] == bias[own]
        self._count(task[tied], self._counts.tied)
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
        tables, group = self._problem.tables, self._targets.group
        order = self._problem.row[task].argsort(stable=True)
        last = -1
        for one, other in zip(task[order].tolist(), column[order].tolist(), strict=True):
            row, own = int(self._problem.row[one]), int(self._problem.targets.among[one])
            if row != last:
                given = self._problem.queries.given[row].double().cpu().numpy()
                query, known = RationalScores(given, self._problem.similarity), dict[int, Fraction]()
                last = row
            scores = []
            for candidate in (other, own):
                key = candidate if group is None else int(group[candidate])
                if key not in known:
                    (numbers,), bias = rows_of(tables, torch.tensor([candidate], device=task.device))
                    known[key] = query.score(numbers.double().cpu().numpy(), 0.0 if bias is None else float(bias))
                scores.append(known[key])
            self._counts.above[one] += scores[0] > scores[1]
            self._counts.tied[one] += scores[0] == scores[1]
