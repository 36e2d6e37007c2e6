"""What a metric of queries is asked for: the value of a query, its moments and law by chance, and its best value."""

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.tails.listed import Law
from torchrankmetrics.theory.transforms import KnownTransform

_ENUMERATED = 1 << 12  # choices of the places of the answers


@dataclass(frozen=True)
class QueryKind:
    """A kind of metric of one query; the mean over queries is taken elsewhere.

    By chance the places of the m answers are a uniform m-subset of 1..N. So a block of ties is a small query by chance,
    and a constant scorer has the null mean.

    Attributes:
        is_share: its mean is a share of queries.
    """

    is_share: ClassVar[bool] = False

    def values(self, sample: QuerySample) -> FloatArray:
        """Expectation over the orders of tied candidates, (Q,) float64; NaN where the metric is undefined."""
        raise NotImplementedError

    def has_value(self, N: IntArray, m: IntArray) -> npt.NDArray[np.bool_]:
        """Whether the metric is defined with m answers of N candidates, (u,) bool."""
        return np.ones(len(N), dtype=bool)

    def null_moments(self, N: IntArray, m: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance >= 0 by chance: (u,) int64 twice in, sorted by N, then m; (u,) float64 twice out."""
        raise NotImplementedError

    def optimum(self, N: IntArray, m: IntArray) -> FloatArray:
        """Value of the ranking whose first m candidates are the answers, (u,) float64."""
        return self.values(QuerySample.tied(m, m, N))

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        """The f and the factor s with which a query of one answer has the value s f(r)."""
        raise NotImplementedError

    def law(self, N: int, m: int, most: int) -> Law | None:
        """Law of one query by chance, with about ``most`` atoms, rounded to the better side where it has more.

        None where it is not at hand: here, where too many choices would have to be listed.
        """
        few = min(m, N - m)
        if 2**few > _ENUMERATED or (choices := math.comb(N, few)) > min(_ENUMERATED, most):
            return None
        ranks = np.array(list(itertools.combinations(range(1, N + 1), m)), dtype=np.int64)
        values, count = np.unique(self.values(QuerySample.ranked(ranks, N)), return_counts=True)
        return Law(values, count / choices)
