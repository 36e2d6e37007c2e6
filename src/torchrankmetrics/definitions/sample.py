"""Ranks of ranking tasks with weights and counts, as mathematics reads them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import (
    CandidateCounts,
    FloatArray,
    IntArray,
    distinct_rows,
    in_range,
    tally,
)

RankType = Literal["realistic", "optimistic", "pessimistic", "expected"]
RANK_TYPES: tuple[RankType, ...] = ("realistic", "optimistic", "pessimistic", "expected")


@dataclass(frozen=True, eq=False)
class Histogram:
    """Distinct ranks, ascending, or pairs of rank and candidate count, with the total weight of their tasks.

    Attributes:
        rank: (h,) float64.
        mass: (h,) float64 > 0.
        num_candidates: (h,) int64, or None where ranks of all candidate counts are together.
    """

    rank: FloatArray
    mass: FloatArray
    num_candidates: IntArray | None = None


@dataclass(frozen=True, eq=False)
class TieBlocks:
    """Distinct (optimistic, pessimistic, weight) and how many tasks have each.

    Attributes:
        optimistic: (b,) int64, the first rank of a block of tied candidates.
        pessimistic: (b,) int64, the last one.
        weight: (b,) float64 > 0, of ONE task.
        count: (b,) int64 > 0.
    """

    optimistic: IntArray
    pessimistic: IntArray
    weight: FloatArray
    count: IntArray


class RankSample:
    """Ranks with weights and multiplicities; what several metrics need is computed once, on first use.

    Args:
        optimistic: (m,) int64 >= 1.
        pessimistic: (m,) int64, no smaller.
        num_candidates: (m,) int64, or None if unknown: then there are base values only.
        weight: (m,) float64 >= 0, of ONE task; a zero drops the entry; None: all equal.
        count: (m,) int64 > 0, how many tasks an entry stands for; None: one each.

    Attributes:
        optimistic, pessimistic, num_candidates, count: as given, without the entries of zero weight.
        weight: likewise; scaled if it is so large or small that sums of it would overflow or round.
        mass: (m,) float64, weight times count.
    """

    def __init__(
        self,
        optimistic: IntArray,
        pessimistic: IntArray,
        num_candidates: IntArray | None,
        weight: FloatArray | None = None,
        count: IntArray | None = None,
    ) -> None:
        weight = np.ones(len(optimistic)) if weight is None else weight
        count = np.ones(len(optimistic), dtype=np.int64) if count is None else count
        common = len(weight) == 0 or weight[weight.argmin()] > 0
        used: slice | npt.NDArray[np.bool_] = slice(None) if common else weight > 0  # no copies
        self.optimistic, self.pessimistic = optimistic[used], pessimistic[used]
        self.num_candidates = num_candidates[used] if num_candidates is not None else None
        self.weight, self.count = in_range(weight[used]), count[used]
        self.mass = self.weight * self.count
        self._histograms: dict[tuple[RankType, bool], Histogram] = {}

    @cached_property
    def num_tasks(self) -> int:
        """Number n of tasks of positive weight."""
        return int(self.count.sum())

    @cached_property
    def total(self) -> float:
        """Sum W of the weights of all tasks."""
        return float(self.mass.sum())

    def at_least(self, min_candidates: int) -> "RankSample":
        """The tasks with so many candidates or more; itself if that is all of them.

        Raises:
            ValueError: if candidate counts are asked for and unknown.
        """
        if min_candidates <= 1 or (enough := self.known_candidates >= min_candidates).all():
            return self
        low, high, N = self.optimistic[enough], self.pessimistic[enough], self.known_candidates[enough]
        return RankSample(low, high, N, self.weight[enough], self.count[enough])

    def rank(self, rank_type: RankType) -> FloatArray:
        """Ranks of the entries, (m,) float64.

        Raises:
            ValueError: for "expected", which averages values over tie orders and is no rank.
        """
        if rank_type == "realistic":
            return (self.optimistic + self.pessimistic) / 2.0
        return self._end(rank_type).astype(np.float64)

    def histogram(self, rank_type: RankType, by_candidates: bool = False) -> Histogram:
        """Distinct ranks with their mass; the sums of every metric run over these instead of over tasks.

        Args:
            rank_type: of the ranks.
            by_candidates: tell ranks among different numbers of candidates apart.

        Raises:
            ValueError: for "expected", and if candidate counts are asked for and unknown.
        """
        key = (rank_type, by_candidates)
        if key not in self._histograms:
            count = self._count_ranks_by_candidates if by_candidates else self._count_ranks
            self._histograms[key] = count(rank_type)
        return self._histograms[key]

    def _count_ranks_by_candidates(self, rank_type: RankType) -> Histogram:
        columns = (self.rank(rank_type), self.known_candidates, self.weight)
        (rank, num_candidates, weight), count = distinct_rows(columns, self.count)
        return Histogram(rank, weight * count, num_candidates)

    def _count_ranks(self, rank_type: RankType) -> Histogram:
        if rank_type == "realistic":  # integers are tallied without a sort
            doubled, mass = tally(self.optimistic + self.pessimistic, self.mass)
            return Histogram(doubled / 2.0, mass)
        whole, mass = tally(self._end(rank_type), self.mass)
        return Histogram(whole.astype(np.float64), mass)

    def _end(self, rank_type: RankType) -> IntArray:
        if rank_type == "expected":
            raise ValueError("rank_type='expected' is no rank: ask for 'realistic', 'optimistic' or 'pessimistic'")
        return self.optimistic if rank_type == "optimistic" else self.pessimistic

    @cached_property
    def tie_blocks(self) -> TieBlocks:
        """The ranks with their ties: what the expected rank type and resampling run over."""
        (low, high, weight), count = distinct_rows((self.optimistic, self.pessimistic, self.weight), self.count)
        return TieBlocks(low, high, weight, count)

    @property
    def tie_mass(self) -> float:
        """Total weight of the tasks whose true candidate shares its score."""
        return float(self.mass[self.pessimistic > self.optimistic].sum())

    @cached_property
    def candidate_counts(self) -> CandidateCounts:
        """The candidate counts of the tasks, for expectations.

        Raises:
            ValueError: if they are unknown, or no task has positive weight.
        """
        return CandidateCounts.of(self.known_candidates, self.weight, self.count)

    @property
    def known_candidates(self) -> IntArray:
        """The number of candidates of every entry, (m,) int64.

        Raises:
            ValueError: if they are unknown.
        """
        if self.num_candidates is None:
            raise ValueError(
                "num_candidates is needed for every view but 'base', and for metrics that depend on them; pass the "
                "filtered candidate counts"
            )
        return self.num_candidates
