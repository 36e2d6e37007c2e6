"""The transforms of ranks that metrics of queries add: the discount of DCG, and a transform cut at k."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.transforms import KnownTransform, apply_transform


@dataclass(frozen=True)
class Discount(KnownTransform):
    """r -> 1 / log2(1 + r).

    Source: Järvelin and Kekäläinen 2002 (doi:10.1145/582415.582418), with the logarithm shifted as is common since.
    """

    smooth = True

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        return (1 + x).log2().reciprocal()


@dataclass(frozen=True)
class Cut(KnownTransform):
    """r -> f(r) if r <= k else 0."""

    f: KnownTransform
    k: int

    @property
    def constant_from(self) -> int:  # type: ignore[override]
        """See ``KnownTransform``."""
        return self.k + 1

    def __call__(self, x: Tensor) -> Tensor:
        """Apply elementwise."""
        return torch.where(x <= self.k, self.f(x), torch.zeros_like(x))

    def null_moments(self, N: IntArray) -> tuple[FloatArray, FloatArray]:
        """See ``KnownTransform``: the moments over 1..min(k, N), and zeros."""
        top, index = np.unique(np.minimum(N, self.k), return_inverse=True)
        mean, variance = (moment[index] for moment in self.f.null_moments(top))
        share, rest = top[index] / N, (N - top[index]) / N
        return share * mean, share * (variance + rest * mean**2)

    def block_means(self, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
        """See ``KnownTransform``."""
        inside = np.clip(self.k - low + 1, 0, high - low + 1)
        kept = inside > 0
        means = np.zeros(len(low))
        means[kept] = self.f.block_means(low[kept], (low + inside - 1)[kept])
        return means * (inside / (high - low + 1))


def place_means(f: KnownTransform, low: IntArray, high: IntArray, num_candidates: IntArray | None = None) -> FloatArray:
    """Mean of f over the places {low..high} of each block, (b,); most blocks are one place, where it is f itself."""
    means = np.empty(len(low))
    single = low == high
    several = ~single
    N = (None, None) if num_candidates is None else (num_candidates[single], num_candidates[several])
    means[single] = apply_transform(f, low[single].astype(np.float64), num_candidates=N[0])
    if several.any():
        means[several] = f.block_means(low[several], high[several], N[1])
    return means
