"""Query metrics with graded relevance: sums of discounted gains."""

from dataclasses import dataclass

import numpy as np

from torchrankmetrics.definitions.candidates import FloatArray
from torchrankmetrics.definitions.transforms import KnownTransform
from torchrankmetrics.queries.kind import Cut, Discount, QueryKind, place_means
from torchrankmetrics.queries.sample import QuerySample


@dataclass(frozen=True)
class DiscountedGain(QueryKind):
    """Sum of gain times f(r_i) over the relevant items, and over its value for the ideal ranking if it is normalized.

    Gains are labels, or 2^label - 1. They are divided by the largest gain of their query, so that equal gains have the
    value of binary relevance bit for bit, and multiplied by it at the end if nothing is normalized.

    Under random ranking the sum is a linear permutation statistic: Hoeffding 1951 (doi:10.1214/aoms/1177729545).

    Source: Järvelin and Kekäläinen 2002 (doi:10.1145/582415.582418); gains 2^label - 1: Burges et al. 2005
    (doi:10.1145/1102351.1102363).
    """

    f: Discount | Cut
    is_exponential: bool = False
    is_normalized: bool = True
    is_graded = True

    @property
    def limits(self) -> tuple[float | None, float | None]:
        return 0.0, 1.0 if self.is_normalized else None

    def values(self, sample: QuerySample) -> FloatArray:
        """Every relevant item of a block has the block's mean of f."""
        answers = sample.answers.astype(np.float64)
        if sample.gain is not None:
            answers *= self._relative(sample.gain, _largest(sample)[sample.query])
        sums = sample.sums(answers * place_means(self.f, sample.optimistic, sample.pessimistic))
        return np.asarray(sums / self._ideal(sample) if self.is_normalized else sums * _largest(sample))

    def moments(self, sample: QuerySample) -> tuple[FloatArray, FloatArray, FloatArray]:
        """From N, and the sum and the sum of squares of the gains."""
        if not len(sample):
            return np.empty(0), np.empty(0), np.empty(0)
        N, m, levels = sample.known_candidates, sample.num_answers, sample.levels
        distinct, index = np.unique(N, return_inverse=True)
        mean, variance = (moment[index] for moment in self.f.null_moments(distinct))
        gain = self._relative(levels.gain, _largest(sample)[levels.query])
        total = np.add.reduceat(gain * levels.number, levels.starts)
        apart = np.add.reduceat(levels.number * (gain - (total / m)[levels.query]) ** 2, levels.starts)
        ideal = self._ideal(sample)
        share = total / ideal if self.is_normalized else total * _largest(sample)
        free = np.maximum(N - 1, 1)
        spread = (N - m) / (free * m.astype(np.float64)) + N * apart / (free * total**2)
        best = np.ones(len(N)) if self.is_normalized else ideal * _largest(sample)
        return share * mean, share**2 * spread * variance, best

    @property
    def of_one_answer(self) -> tuple[KnownTransform, float]:
        best = float(self.f.values(np.ones(1))[0])
        return self.f, 1 / best if self.is_normalized else 1.0

    def _relative(self, gain: FloatArray, largest: FloatArray) -> FloatArray:
        """Gains of labels, as shares of the gain of the largest label of the query."""
        if not self.is_exponential:
            return gain / largest
        power = np.exp2(-largest)
        return np.asarray((np.exp2(gain - largest) - power) / (1 - power))  # no power overflows

    def _ideal(self, sample: QuerySample) -> FloatArray:
        """Sum for the ranking by descending gain."""
        levels = sample.levels
        gain = self._relative(levels.gain, _largest(sample)[levels.query])
        terms = gain * (levels.number * place_means(self.f, levels.first, levels.last))
        return np.asarray(np.add.reduceat(terms, levels.starts))


def _largest(sample: QuerySample) -> FloatArray:
    """The largest gain of every query."""
    return sample.levels.gain[sample.levels.starts]
