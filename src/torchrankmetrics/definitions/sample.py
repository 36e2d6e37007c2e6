"""`RankSample`: ranks of ranking tasks with weights and counts, and their histograms."""

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


class Sample:
    """Ranking tasks or queries with weights; equal ones are one entry with a count.

    Attributes:
        weight: (m,) float64 >= 0, of one task or query.
        count: (m,) int64 > 0, number of tasks or queries of the entry.
    """

    weight: FloatArray
    count: IntArray

    @cached_property
    def num_tasks(self) -> int:
        """Number n of tasks or queries."""
        return int(self.count.sum())


class RankSample(Sample):
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
        self._histograms: dict[tuple[RankType, bool], tuple[FloatArray, FloatArray, IntArray | None]] = {}

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

    def histogram(
        self, rank_type: RankType, by_candidates: bool = False
    ) -> tuple[FloatArray, FloatArray, IntArray | None]:
        """Distinct ranks, ascending, and the total weight of their tasks: sums of metrics run over these.

        Args:
            rank_type: of the ranks.
            by_candidates: keep ranks among different numbers of candidates apart.

        Returns:
            (h,) float64 ranks, (h,) float64 weights > 0, and (h,) int64 candidate counts or None.

        Raises:
            ValueError: for "expected", and if candidate counts are requested and unknown.
        """
        key = (rank_type, by_candidates)
        if key not in self._histograms:
            self._histograms[key] = self._count_ranks(*key)
        return self._histograms[key]

    def _count_ranks(self, rank_type: RankType, by_candidates: bool) -> tuple[FloatArray, FloatArray, IntArray | None]:
        if by_candidates:
            columns = (self.rank(rank_type), self.known_candidates, self.weight)
            (rank, num_candidates, weight), count = distinct_rows(columns, self.count)
            return rank, weight * count, num_candidates
        if rank_type == "realistic":  # integers are tallied without a sort
            doubled, mass = tally(self.optimistic + self.pessimistic, self.mass)
            return doubled / 2.0, mass, None
        whole, mass = tally(self._end(rank_type), self.mass)
        return whole.astype(np.float64), mass, None

    def _end(self, rank_type: RankType) -> IntArray:
        if rank_type == "expected":
            raise ValueError("rank_type='expected' is no rank: ask for 'realistic', 'optimistic' or 'pessimistic'")
        return self.optimistic if rank_type == "optimistic" else self.pessimistic

    @cached_property
    def tie_blocks(self) -> "RankSample":
        """The sample without candidate counts, equal ranks and weights as one entry."""
        (low, high, weight), count = distinct_rows((self.optimistic, self.pessimistic, self.weight), self.count)
        return RankSample(low, high, None, weight, count)

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
