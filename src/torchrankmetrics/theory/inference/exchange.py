"""Test triples dealt anew within a relation: a null that keeps how often every head and every tail is an answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from torchrankmetrics.sides import EntitySide
from torchrankmetrics.theory.candidates import FloatArray, IntArray

_CELLS = 1 << 25
_STEPS = 20  # of a chain, and four for every answer of the largest query


@dataclass(frozen=True, eq=False)
class CrossRanks:
    """The rank that each of Q queries gives each of A answers among what no other split knows as answers of the query.

    Attributes:
        optimistic, pessimistic: (Q, A) int64; other test answers of the query are still candidates.
        scores: (Q, A), scores of the answers.
        num_candidates: (Q,) int64, number of those candidates.
    """

    optimistic: IntArray
    pessimistic: IntArray
    scores: npt.NDArray[Any]
    num_candidates: IntArray

    def filtered(self, query: IntArray, answer: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Optimistic and pessimistic ranks and candidates (b, n) of b sets of n tasks, less other answers of a query.

        Args:
            query: (b, n) int64, the same ones in every row, in any order.
            answer: (b, n) int64, distinct within a query.
        """
        low, high = self.optimistic[query, answer], self.pessimistic[query, answer]
        size = np.bincount(query[0], minlength=len(self.num_candidates))
        order = np.argsort(query, axis=1, kind="stable")
        first, rows = np.cumsum(size) - size, np.arange(len(query))[:, None, None]
        for number in np.unique(size[size > 1]).tolist():
            task = order[:, first[size == number][:, None] + np.arange(number)]  # (b, queries, number)
            scores = self.scores[query[rows, task], answer[rows, task]]
            own, other = scores[..., :, None], scores[..., None, :]
            apart = ~np.eye(number, dtype=bool)
            # a NaN counts as better, on either side: as where candidates are counted
            low[rows, task] -= (~(other <= own) & apart).sum(-1)
            high[rows, task] -= (~(other < own) & apart).sum(-1)
        return low, high, (self.num_candidates - size + 1)[query]


@dataclass(frozen=True, eq=False)
class ExchangeableTriples:
    """Test triples of one relation, whose tails may be dealt out anew among their heads.

    A deal keeps how many tails every head has and how many heads every tail has, makes no triple that another split
    knows, and none twice. Under the null all deals are as likely as the true one. Both sides of a triple are tasks,
    and move together.

    Attributes:
        head, tail: (n,) int64, indices among the distinct heads and tails.
        excluded: (heads, tails) bool, True where another split knows the triple, or it would be a loop and none is.
        sides: ranks by side: of tails for heads as queries ("tail"), of heads for tails as queries ("head").
    """

    head: IntArray
    tail: IntArray
    excluded: npt.NDArray[np.bool_]
    sides: Mapping[EntitySide, CrossRanks]

    @cached_property
    def is_fixed(self) -> bool:
        """Whether there is no other deal to draw, as with a single head or a single tail."""
        return bool(min(self.excluded.shape) < 2)

    def ranks(self, deals: IntArray, side: EntitySide) -> tuple[IntArray, IntArray, IntArray]:
        """Optimistic and pessimistic ranks and candidates (b, n) of the tasks of a side, for deals (b, n) of tails."""
        heads = np.repeat(self.head[None], len(deals), 0)
        query, answer = (heads, deals) if side == "tail" else (deals, heads)
        return self.sides[side].filtered(query, answer)

    def draw(self, number: int, rng: np.random.Generator) -> IntArray:
        """Draw deals that are exchangeable with the true one under the null: (number, n) int64, tails.

        Chains of swaps leave the uniform law on deals as it is. They start at a deal that a chain has reached from the
        true one, so that, if all deals are as likely as it, p-values counted from them are exact however long they are.

        Source: Besag and Clifford 1989 (doi:10.1093/biomet/76.4.633), the parallel method.
        """
        deals = np.repeat(self.tail[None], number, 0)
        if self.is_fixed:
            return deals
        hub = self._walked(deals[:1], rng)
        step = max(1, _CELLS // max(self.excluded.size, len(self.tail)))
        for start in range(0, number, step):
            chains = min(step, number - start)
            deals[start : start + chains] = self._walked(np.repeat(hub, chains, 0), rng)
        return deals

    def _walked(self, deals: IntArray, rng: np.random.Generator) -> IntArray:
        """Swap the tails of pairs of heads, one triple of each at a time; which are asked to depends on no tail."""
        deals = deals.copy()
        size = np.bincount(self.head, minlength=len(self.excluded))
        order, first = np.argsort(self.head, kind="stable"), np.cumsum(size) - size
        chains, half, rows = len(deals), len(size) // 2, np.arange(len(deals))[:, None]
        taken = np.zeros((chains, *self.excluded.shape), dtype=bool)
        taken[rows, self.head, deals] = True
        for _ in range(_STEPS + 4 * int(size.max())):
            heads = rng.random((chains, len(size))).argsort(1)[:, : 2 * half]
            task = order[first[heads] + (rng.random(heads.shape) * size[heads]).astype(np.int64)]
            (q, r), (i, j) = (np.split(part, 2, axis=1) for part in (heads, task))
            a, b = deals[rows, i], deals[rows, j]
            free = ~(self.excluded[q, b] | self.excluded[r, a] | taken[rows, q, b] | taken[rows, r, a])
            chain, at = np.nonzero(free)
            q, r, i, j, a, b = (part[chain, at] for part in (q, r, i, j, a, b))
            taken[chain, q, a] = taken[chain, r, b] = False
            taken[chain, q, b] = taken[chain, r, a] = True
            deals[chain, i], deals[chain, j] = b, a
        return deals


def exact_share(observed: float, drawn: FloatArray, higher_is_better: bool) -> float:
    """p-value in (0, 1]: the share of draws, the observed value among them, that are at least as good."""
    slack = 1e-12 * max(1.0, abs(observed))
    reached = drawn >= observed - slack if higher_is_better else drawn <= observed + slack
    return float((1 + np.count_nonzero(reached | np.isnan(drawn))) / (1 + len(drawn)))
