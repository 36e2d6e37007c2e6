"""`RankSample`: ranks of ranking tasks with weights and counts, their histograms, and weighted averages."""

import math
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from torchrankmetrics.definitions.candidates import (
    CandidateCounts,
    FloatArray,
    IntArray,
    distinct_rows,
    in_range,
    sum_by_value,
)

RankType = Literal["realistic", "optimistic", "pessimistic", "expected"]
RANK_TYPES: tuple[RankType, ...] = get_args(RankType)
NEVER = 1 << 50  # without N, items at ranks above this one were not retrieved


class UnknownCandidatesError(ValueError):
    """Raised for values that depend on numbers of candidates that are unknown."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "num_candidates is needed for every view except 'base', and for metrics that depend on it; without it "
            "only base values such as mrr, hits@10 and ndcg@10 are known. Pass the numbers of filtered candidates"
        )


class Sample:
    """Ranking tasks or queries with weights; equal ones are one entry with a count."""

    weight: FloatArray
    count: IntArray

    @cached_property
    def num_tasks(self) -> int:
        """Number n of tasks or queries."""
        return int(self.count.sum())


class RankSample(Sample):
    """Ranks with weights and multiplicities; what several metrics need is computed once, on first use."""

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

    @cached_property
    def elsewhere(self) -> "RankSample | None":
        """The sample with other ranks of items that were not retrieved, if the numbers of candidates are unknown."""
        if self.num_candidates is not None or not (far := self.optimistic > NEVER).any():
            return None
        low, high = self.optimistic * (1 + far), self.pessimistic * (1 + far)
        return RankSample(low, high, None, self.weight, self.count)

    def at_least(self, min_candidates: int) -> "RankSample":
        """The tasks with at least ``min_candidates`` candidates; the sample itself if these are all."""
        if min_candidates <= 1 or (enough := self.known_candidates >= min_candidates).all():
            return self
        low, high, N = self.optimistic[enough], self.pessimistic[enough], self.known_candidates[enough]
        return RankSample(low, high, N, self.weight[enough], self.count[enough])

    def doubled(self, rank_type: RankType) -> IntArray:
        """Twice the ranks of the entries, (m,) int64."""
        low = self.pessimistic if rank_type == "pessimistic" else self.optimistic
        return low + (self.optimistic if rank_type == "optimistic" else self.pessimistic)

    def rank(self, rank_type: RankType) -> FloatArray:
        """Ranks of the entries, (m,) float64."""
        return self.doubled(rank_type) / 2.0

    def histogram(
        self, rank_type: RankType, by_candidates: bool = False
    ) -> tuple[FloatArray, FloatArray, IntArray | None]:
        """Distinct ranks, ascending, and the total weight of their tasks: sums of metrics run over these."""
        key = (rank_type, by_candidates)
        if key not in self._histograms:
            doubled, N = self.doubled(rank_type), None
            if by_candidates:
                columns = (doubled, self.known_candidates, self.weight)
                (doubled, N, weight), count = distinct_rows(columns, self.count)
                mass: FloatArray = weight * count
            else:  # integers are tallied without a sort
                doubled, mass = sum_by_value(doubled, self.mass)
            self._histograms[key] = doubled / 2.0, mass, N
        return self._histograms[key]

    @cached_property
    def tie_blocks(self) -> "RankSample":
        """The sample without candidate counts, equal ranks and weights as one entry."""
        (low, high, weight), count = distinct_rows((self.optimistic, self.pessimistic, self.weight), self.count)
        return RankSample(low, high, None, weight, count)

    @property
    def tie_mass(self) -> float:
        """Total weight of the tasks whose target shares its score."""
        return float(self.mass[self.pessimistic > self.optimistic].sum())

    @cached_property
    def candidate_counts(self) -> CandidateCounts:
        """The candidate counts of the tasks, for expectations."""
        return CandidateCounts.of(self.known_candidates, self.weight, self.count)

    @property
    def known_candidates(self) -> IntArray:
        """The number of candidates of every entry, (m,) int64."""
        if self.num_candidates is None:
            raise UnknownCandidatesError
        return self.num_candidates


def weighted_mean(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Mean of x (m,) or of the columns of x (m, outcomes), weighted by mass (m,) > 0."""
    if x.ndim == 1:  # the bits of a dot product would depend on the number of threads
        return np.asarray((mass * x).sum() / mass.sum())
    return np.asarray(mass @ x / mass.sum())


def weighted_median(x: FloatArray, mass: FloatArray) -> FloatArray:
    """Lower weighted median; the midpoint where the weight up to it is exactly half (to 1e-12 of the total)."""
    if x.ndim > 1 or (x[1:] < x[:-1]).any():  # a histogram comes in order
        order = np.argsort(x, axis=0, kind="stable")
        x, mass = np.take_along_axis(x, order, 0), mass[order]
    cumulative = np.cumsum(mass, axis=0)
    half, slack = cumulative[-1] / 2, 1e-12 * cumulative[-1]
    column = tuple(np.arange(size) for size in x.shape[1:])
    lower = np.argmax(cumulative >= half - slack, axis=0)
    upper = np.argmax(cumulative > half + slack, axis=0)
    return np.asarray((x[(lower, *column)] + x[(upper, *column)]) / 2)


def power_mean(p: float, rank: FloatArray, mass: FloatArray) -> float:
    """(sum v r^p)^(1/p) relative to its dominating rank: finite for every p, exact near p = 0."""
    scale = rank.max() if p > 0 else rank.min()
    exponent = p * np.log(rank / scale)  # all <= 0
    if exponent.min() > -0.5:
        return float(scale * math.exp(math.log1p(weighted_mean(np.expm1(exponent), mass)) / p))
    return float(scale * weighted_mean(np.exp(exponent), mass) ** (1 / p))
