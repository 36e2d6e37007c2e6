"""Queries in each precision, with the norms that error bounds are made of."""

from functools import cached_property

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.tiles import _PARTS, BFLOAT16, FLOAT64

_ROWS = 1 << 12


class Queries:
    """Query embeddings (B, d), rounded when a precision is asked for."""

    def __init__(self, given: Tensor, has_bias: bool) -> None:
        self.given, self._has_bias = given, has_bias
        self._rounded: dict[torch.dtype, tuple[Tensor, Tensor, Tensor]] = {}

    @cached_property
    def finite(self) -> Tensor:
        """Whether all numbers of a query are, bool (B,)."""
        finite = self.rounded(FLOAT64)[1].isfinite()
        return finite if bool(finite.all()) else self.given.double().isfinite().all(1)

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """(B, d) in a precision, or (B, d + 3) where a bias is part of the product; norms of that and of the rounding.

        The norms are upper bounds, float64 (B,), and 0 for zeros; not finite where a number is not.
        """
        if dtype not in self._rounded:
            parts = [_with_norms(part, dtype) for part in torch.split(self.given, _ROWS)] or [
                _with_norms(self.given, dtype)
            ]
            matrix, norm, error = (torch.cat(part) for part in zip(*parts, strict=True))
            if dtype == BFLOAT16 and self._has_bias:
                matrix = torch.cat([matrix, matrix.new_ones(len(matrix), _PARTS)], 1)
            self._rounded[dtype] = matrix, norm, error
        return self._rounded[dtype]


def _with_norms(given: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    matrix = given.to(dtype)
    exact, wide = given.double(), matrix.double()
    return matrix, _upper(wide), _upper(exact - wide)


def _upper(vectors: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(vectors, dim=1)
    some = (vectors != 0).any(1)
    return torch.where(some, norm * (1 + (vectors.shape[1] + 4) * 2.0**-50) + 2.0**-500, 0.0).to(FLOAT64)
