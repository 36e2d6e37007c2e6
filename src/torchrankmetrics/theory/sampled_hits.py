"""Hits among sampled negatives, expected from the full ranks: the forward direction, exact and without a draw."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrankmetrics.checks import check_int
from torchrankmetrics.theory.definitions import RankDefinition, WithCandidates


def sampled_hits_at(k: int, num_negatives: int, *, with_replacement: bool = False) -> RankDefinition:
    """Define the expected hits at k among m negatives sampled from all N - 1, in [0, 1]; higher is better.

    f(r, N) = P(fewer than k of the r - 1 better ones are drawn), hypergeometric: m of N - 1, and all of them if there
    are fewer than m. It is what sampled hits at k estimate, without their noise; no inverse exists (docs/sampled.md).
    By chance its mean is min(k, n) / n over n = min(m, N - 1) + 1 candidates. A rank between two is read as either.

    Args:
        k: at least 1.
        num_negatives: m, at least k.
        with_replacement: the binomial in its place, B(m, (r - 1) / (N - 1)). Of pessimistic ranks it is ``hits@10_50``
            in the code of NBFNet with m = 50, and in that of ULTRA with m = 49.

    Raises:
        TypeError: if k or num_negatives are no integers.
        ValueError: if k is below 1 or above num_negatives, so that every rank is a hit.

    >>> definition = sampled_hits_at(10, 50)
    >>> definition.name
    'sampled_hits_at_10_50'
    >>> definition.f_at(1001)(torch.tensor([1.0, 201.0], dtype=torch.float64))
    tensor([1.0000, 0.4409], dtype=torch.float64)
    """
    k, num_negatives = check_int("k", k, 1), check_int("num_negatives", num_negatives, 1)
    if k > num_negatives:
        raise ValueError(f"k must be at most num_negatives = {num_negatives}, else all ranks are hits; got {k}")
    name = f"sampled_hits_at_{k}_{num_negatives}{'_with_replacement' if with_replacement else ''}"
    hit = WithCandidates(_SampledHit(k, num_negatives, with_replacement))
    return RankDefinition(name, f=hit, optimum=1.0, higher_is_better=True)


@dataclass(frozen=True)
class _SampledHit:
    k: int
    m: int
    with_replacement: bool

    def __call__(self, r: Tensor, num_candidates: Tensor) -> Tensor:
        low, high = r.floor(), r.ceil()
        hit = self._at(low, num_candidates)
        return hit if torch.equal(low, high) else (hit + self._at(high, num_candidates)) / 2

    def _at(self, r: Tensor, num_candidates: Tensor) -> Tensor:
        better, worse = r - 1, num_candidates - r
        seen = r.new_zeros(self.k, *r.shape)  # the probability of so many better ones among those drawn so far
        seen[0] = 1
        number = torch.arange(self.k, dtype=r.dtype, device=r.device).view(-1, *[1] * r.ndim)
        for drawn in range(self.m):  # one after the other: sums of products, nothing cancels
            found, other = (number * 0, number * 0) if self.with_replacement else (number, drawn - number)
            left = (better + worse - (0 if self.with_replacement else drawn)).clamp(min=0)
            more = seen * ((better - found) / left.clamp(min=1)).clamp(min=0)
            seen = seen * torch.where(left > 0, ((worse - other) / left.clamp(min=1)).clamp(min=0), 1.0)
            seen[1:] += torch.where(left > 0, more, 0.0)[:-1]
        return seen.sum(0).clamp(max=1)
