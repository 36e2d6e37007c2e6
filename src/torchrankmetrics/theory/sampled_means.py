"""Means of f among sampled negatives, expected from the full ranks: metrics of sampled protocols without a draw."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from torchrankmetrics.checks import check_int
from torchrankmetrics.theory.candidates import FloatArray
from torchrankmetrics.theory.definitions import RankDefinition, WithCandidates
from torchrankmetrics.theory.sampled_hits import sampled_hits_at
from torchrankmetrics.theory.transforms import apply_transform, known

_CELLS = 1 << 21


def sampled_mean(definition: RankDefinition, num_negatives: int, *, with_replacement: bool = False) -> RankDefinition:
    """Define the expectation of a mean of f among m negatives sampled from all N - 1; direction as that of the metric.

    f'(r, N) = E f(1 + X) with X hypergeometric: m of N - 1, r - 1 of them better; all of them if there are fewer than
    m. It is what the metric of a sampled protocol estimates, without its noise; no inverse exists (docs/sampled.md). A
    rank between two is read as either.

    Args:
        definition: a metric that is the mean of f, such as MRR, MR or hits at k.
        num_negatives: m, at least 1.
        with_replacement: the binomial in its place, B(m, (r - 1) / (N - 1)).

    Raises:
        TypeError: if num_negatives is no integer.
        ValueError: if it is below 1, for hits at more than m, and for metrics that are no mean of f.

    Source: Krichene and Rendle 2020 (doi:10.1145/3394486.3403226), section 3, for draws with replacement.

    >>> from torchrankmetrics.theory.definitions import MEAN_RECIPROCAL_RANK
    >>> sampled = sampled_mean(MEAN_RECIPROCAL_RANK, 50)
    >>> sampled.name
    'sampled_mrr_50'
    >>> sampled.f_at(1001)(torch.tensor([1.0, 11.0, 201.0], dtype=torch.float64))
    tensor([1.0000, 0.7835, 0.0976], dtype=torch.float64)
    """
    m = check_int("num_negatives", num_negatives, 1)
    if not definition.is_mean_of_f or definition.optimum is None:
        raise ValueError(
            f"{definition.name!r} has no expectation among sampled negatives here: use a mean of f such as 'mrr', 'mr' "
            "or 'hits@10'"
        )
    if known(definition.f).is_share:
        return sampled_hits_at(int(definition.name.rsplit("_", 1)[1]), m, with_replacement=with_replacement)
    return RankDefinition(
        f"sampled_{definition.name}_{m}{'_with_replacement' if with_replacement else ''}",
        f=WithCandidates(_SampledMean(definition, m, with_replacement), known(definition.f).min_candidates),
        optimum=definition.optimum,
        higher_is_better=definition.higher_is_better,
    )


@dataclass(frozen=True)
class _SampledMean:
    definition: RankDefinition
    m: int
    with_replacement: bool

    def __call__(self, r: Tensor, num_candidates: Tensor) -> Tensor:
        pairs = torch.stack([r.reshape(-1), num_candidates.reshape(-1)])
        distinct, index = torch.unique(pairs, dim=1, return_inverse=True)
        rank, N = distinct.numpy()
        low, high = np.floor(rank), np.ceil(rank)
        mean = np.empty_like(rank)
        step = max(1, _CELLS // (self.m + 1))
        for start in range(0, len(rank), step):
            part = slice(start, start + step)
            mean[part] = (self._at(low[part], N[part]) + self._at(high[part], N[part])) / 2
        return torch.from_numpy(mean)[index].reshape(r.shape)

    def _at(self, r: FloatArray, N: FloatArray) -> FloatArray:
        n = np.full_like(N, self.m) if self.with_replacement else np.minimum(self.m, N - 1)
        seen = np.arange(self.m + 1)
        law = sampled_law(r[:, None], N[:, None], n[:, None], self.with_replacement)
        values = np.zeros_like(law)
        for size in np.unique(n).astype(int).tolist():  # f may depend on the number of candidates, m + 1 here
            rows = n == size
            f = apply_transform(self.definition.f_at(size + 1), np.arange(1.0, size + 2))
            values[np.ix_(rows, seen <= size)] = f
        return np.asarray((law * values).sum(1), dtype=np.float64)


def sampled_law(r: FloatArray, N: FloatArray, m: FloatArray, with_replacement: bool = False) -> FloatArray:
    """Probabilities of 0, ..., max m better ones among m negatives: (u, 1) in thrice, (u, max m + 1) out."""
    seen = np.arange(int(m.max()) + 1)
    if with_replacement:
        share = np.divide(r - 1, N - 1, out=np.zeros_like(r), where=N > 1)
        return np.asarray(binom.pmf(seen, m, share), dtype=np.float64)
    possible = (seen <= r - 1) & (seen <= m) & (m - seen <= N - r)
    x = seen[:-1]
    step = possible[:, :-1] & possible[:, 1:]
    more = np.log(np.where(step, (r - 1 - x) * (m - x), 1.0)) - np.log(
        np.where(step, (x + 1) * (N - r - m + x + 1), 1.0)
    )
    # neighbours have small ratios: of factorials the logarithms would cancel
    height = np.pad(np.cumsum(more, 1), ((0, 0), (1, 0)))
    law = np.where(possible, np.exp(height - np.where(possible, height, -np.inf).max(1, keepdims=True)), 0.0)
    return np.asarray(law / law.sum(1, keepdims=True), dtype=np.float64)
