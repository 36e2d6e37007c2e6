"""The ranks of a set of tasks, as mathematics sees them: entries with weights and multiplicities."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import CandidateCounts, FloatArray, IntArray, tally

RankType = Literal["realistic", "optimistic", "pessimistic", "expected"]
RANK_TYPES: tuple[RankType, ...] = ("realistic", "optimistic", "pessimistic", "expected")


@dataclass(frozen=True, eq=False)
class Histogram:
    """Distinct ranks, ascending, with the total weight of the tasks that have them.

    Attributes:
        rank: (h,) float64.
        mass: (h,) float64 > 0.
    """

    rank: FloatArray
    mass: FloatArray


class RankSample:
    """Ranks with weights and multiplicities; what several metrics need is computed once, on first use.

    Args:
        optimistic: (m,) int64.
        pessimistic: (m,) int64.
        num_candidates: (m,) int64, or None if unknown: then there are base values only.
        weight: (m,) float64 >= 0, of ONE task; a zero drops the entry; None: all equal.
        count: (m,) int64 > 0, how many tasks an entry stands for; None: one each.
        realistic: (m,) float64, in place of optimistic and pessimistic where only those are known.
    """

    def __init__(
        self,
        optimistic: IntArray | None,
        pessimistic: IntArray | None,
        num_candidates: IntArray | None,
        weight: FloatArray | None = None,
        count: IntArray | None = None,
        realistic: FloatArray | None = None,
    ) -> None:
        size = len(realistic) if realistic is not None else len(optimistic) if optimistic is not None else 0
        weight = np.ones(size) if weight is None else weight
        count = np.ones(size, dtype=np.int64) if count is None else count
        positive = weight > 0
        used: slice | npt.NDArray[np.bool_] = slice(None) if positive.all() else positive  # the common case: no copies
        self.optimistic = optimistic[used] if optimistic is not None else None
        self.pessimistic = pessimistic[used] if pessimistic is not None else None
        self.num_candidates = num_candidates[used] if num_candidates is not None else None
        self.weight, self.count = weight[used], count[used]
        self._realistic = realistic[used] if realistic is not None else None
        self.mass = self.weight * self.count

    @property
    def num_tasks(self) -> int:
        """Number of tasks of positive weight."""
        return int(self.count.sum())

    @cached_property
    def total(self) -> float:
        """Sum W of the weights of all tasks."""
        return float(self.mass.sum())

    def rank(self, rank_type: RankType) -> FloatArray:
        """Ranks of the entries, float64 (m,).

        Raises:
            ValueError: if the sample was built from realistic ranks alone and another kind is asked for.
        """
        if self._realistic is not None:
            if rank_type != "realistic":
                raise ValueError(f"rank_type must be 'realistic' for ranks given as floats, got {rank_type!r}")
            return self._realistic
        assert self.optimistic is not None
        assert self.pessimistic is not None
        if rank_type == "realistic":
            return (self.optimistic + self.pessimistic) / 2.0
        return (self.optimistic if rank_type == "optimistic" else self.pessimistic).astype(np.float64)

    def histogram(self, rank_type: RankType) -> Histogram:
        """Distinct ranks with their mass; the sums of every metric run over these instead of over tasks."""
        if rank_type not in self._histograms:
            self._histograms[rank_type] = self._count_ranks(rank_type)
        return self._histograms[rank_type]

    def _count_ranks(self, rank_type: RankType) -> Histogram:
        if self.optimistic is None or self.pessimistic is None:
            rank, index = np.unique(self.rank(rank_type), return_inverse=True)
            return Histogram(rank, np.bincount(index, self.mass, minlength=len(rank)).astype(np.float64))
        if rank_type == "realistic":
            doubled, mass = tally(self.optimistic + self.pessimistic, self.mass)
            return Histogram(doubled / 2.0, mass)
        whole, mass = tally(self.optimistic if rank_type == "optimistic" else self.pessimistic, self.mass)
        return Histogram(whole.astype(np.float64), mass)

    @cached_property
    def _histograms(self) -> dict[RankType, Histogram]:
        return {}

    @cached_property
    def blocks(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """Distinct (optimistic, pessimistic, weight) with their number of tasks: the tie blocks."""
        if self.optimistic is None or self.pessimistic is None:
            raise ValueError("rank_type must be 'realistic' for ranks given as floats, got 'expected'")
        order = np.lexsort((self.weight, self.pessimistic, self.optimistic))
        columns = (self.optimistic[order], self.pessimistic[order], self.weight[order])
        first = np.zeros(len(order), dtype=bool)
        first[:1] = True
        for column in columns:
            first[1:] |= column[1:] != column[:-1]
        starts = np.flatnonzero(first)
        number = np.add.reduceat(self.count[order], starts).astype(np.float64) if len(starts) else np.zeros(0)
        return columns[0][first], columns[1][first], columns[2][first], number

    @property
    def tie_mass(self) -> float:
        """Total weight of the tasks whose true candidate shares its score."""
        if self.optimistic is None or self.pessimistic is None:
            raise ValueError("ties are unknown for ranks given as floats; pass optimistic and pessimistic ranks")
        return float(self.mass[self.pessimistic > self.optimistic].sum())

    @cached_property
    def candidate_counts(self) -> CandidateCounts:
        """The candidate counts of the tasks, for expectations.

        Raises:
            ValueError: if they are unknown.
        """
        if self.num_candidates is None:
            raise ValueError("num_candidates is needed for every view but 'base'; pass the filtered candidate counts")
        return CandidateCounts.of(self.num_candidates, self.weight, self.count)
