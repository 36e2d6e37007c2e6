"""Queries in each precision, with the norms that error bounds are made of."""

from functools import cached_property

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.norms import are_finite, rounding_norms, upper_norms
from torchrankmetrics.ranking.certified.tiles import BFLOAT16, FLOAT32, FLOAT64, PARTS


class Queries:
    """Query embeddings (B, d), rounded when a precision is asked for."""

    def __init__(self, given: Tensor, has_bias: bool) -> None:
        self.given, self._has_bias = given, has_bias
        self._rounded: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    @cached_property
    def norm(self) -> Tensor:
        """Upper bounds of the norms, float64 (B,): 0 for zeros, not finite where a number is not."""
        return upper_norms(self.given)

    @cached_property
    def finite(self) -> Tensor:
        """Whether all numbers of a query are, bool (B,)."""
        if are_finite(self.norm):
            return torch.ones_like(self.norm, dtype=torch.bool)
        return self.given.double().isfinite().all(1)

    @cached_property
    def wide(self) -> Tensor:
        """In float32, or float64 where they are given so, rows beside each other in memory: as pairs are compared."""
        return self.given.to(FLOAT64 if self.given.dtype == FLOAT64 else FLOAT32).contiguous()

    def rounded(self, dtype: torch.dtype) -> Tensor:
        """(B, d) in a precision, or (B, d + 3) where a bias is part of the product."""
        return self._of(dtype)[0]

    def sizes(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Upper bounds of the norms of what ``rounded`` gives without a bias, and of its rounding; as ``norm``."""
        if dtype == FLOAT64:
            return self.norm, torch.zeros_like(self.norm)
        error = self._of(dtype)[1]
        return self.norm + error, error

    def _of(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if dtype not in self._rounded:
            matrix, error = rounding_norms(self.given, dtype)
            if dtype == BFLOAT16 and self._has_bias:
                matrix = torch.cat([matrix, matrix.new_ones(len(matrix), PARTS)], 1)
            self._rounded[dtype] = matrix, error
        return self._rounded[dtype]
