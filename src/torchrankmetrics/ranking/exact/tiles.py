"""Tiles of candidates in each precision, with upper bounds of their norms."""

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.counting import Form

_NUMBERS = 1 << 17


def rows_at_once(vectors: Tensor) -> int:
    """How many rows to work on, so that what is made on the way stays in the cache."""
    return max(1, _NUMBERS // max(vectors.shape[1], 1))


def are_finite(norms: Tensor) -> bool:
    """Whether all norms (n,) are, which is one read of them."""
    return not len(norms) or float(norms.amax()) < torch.inf


def upper_norms(vectors: Tensor) -> Tensor:
    """Bounds of the norms of (n, d) floats: float64 (n,), 0 for zeros alone; inf or NaN where a number is."""
    wide = vectors if vectors.dtype == torch.float64 else vectors.float()
    norm = torch.linalg.vector_norm(wide, dim=1).double()
    if wide.dtype == torch.float32 and not are_finite(norm):
        norm = torch.linalg.vector_norm(wide.double(), dim=1)
    zeros = (norm == 0).nonzero()[:, 0]
    return _bounds(norm, vectors.shape[1], wide.dtype, zeros[~(vectors[zeros] != 0).any(1)] if len(zeros) else zeros)


def rounding_norms(vectors: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Round vectors (n, d) to a precision; bound the norms of what that changes, as ``upper_norms`` does."""
    rounded, norm = vectors.to(dtype), torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
    if torch.finfo(dtype).eps <= torch.finfo(vectors.dtype).eps:  # it holds all of them
        return rounded, norm
    for part in torch.split(torch.arange(len(vectors), device=norm.device), rows_at_once(vectors)):
        # a difference that needs no rounding
        norm[part] = torch.linalg.vector_norm(vectors[part].double() - rounded[part].double(), dim=1)
    zeros = (norm == 0).nonzero()[:, 0]
    zeros = zeros[(rounded[zeros].double() == vectors[zeros]).all(1)]
    return rounded, _bounds(norm, vectors.shape[1], torch.float64, zeros)


def _bounds(norm: Tensor, d: int, dtype: torch.dtype, zeros: Tensor) -> Tensor:
    # the rounding of the sum, and squares that vanish
    step, lost = (2.0**-50, 2.0**-510) if dtype == torch.float64 else (2.0**-22, 2.0**-62)
    bound: Tensor = norm * (1 + (d + 4) * step) + lost * d**0.5
    return bound.index_fill_(0, zeros, 0.0) if len(zeros) else bound


INT8, FLOAT32, FLOAT64 = torch.int8, torch.float32, torch.float64
_SAFE = 2.0**450  # lengths whose squares neither overflow nor vanish in float64


class Sizes(NamedTuple):
    """Terms of the error bound: maxima over the candidates of a tile, floats; or of each candidate, tensors.

    Attributes:
        norm: norm of the factor of the queries, before it is rounded.
        error: norm of the rounding.
        bias: magnitude of the added bias.
        bias_error: its rounding.
        longest: of the vectors that are multiplied; they are divided by their lengths later where that is cosine.
        shortest: the least length they are divided by; 1 where they are not.
    """

    norm: Any
    error: Any
    bias: Any
    bias_error: Any
    longest: Any
    shortest: Any


class Tile:
    """Candidates [left, right), their scores q.e + bias, or q.e / |e| for cosine; l2 is half of 2 q.e - |e|^2 + bias.

    Each property is computed on first use and stored.
    """

    def __init__(self, embeddings: Tensor, bias: Tensor | None, columns: slice, similarity: str) -> None:
        self.left, self.right = int(columns.start), int(columns.stop)
        self.given, self.similarity = embeddings[columns], similarity
        self.prepared: dict[Any, Any] = {}  # int8 columns
        self._bias = None if bias is None else bias[columns].double()

    def __len__(self) -> int:
        return self.right - self.left

    @cached_property
    def norm(self) -> Tensor:
        """Upper bounds of the norms, float64 (n,); inf and NaN where a number is."""
        return upper_norms(self.given)

    @cached_property
    def special(self) -> Tensor | None:
        """Columns of the tile, int64, whose scores are not finite for any query; None: no columns."""
        finite = are_finite(self.norm)
        if finite and self.similarity != "cosine" and self._bias is None:
            return None
        odd = torch.zeros_like(self.norm, dtype=torch.bool) if finite else ~self.given.double().isfinite().all(1)
        if self.similarity == "cosine":
            odd |= ~(self.given != 0).any(1) if not bool((self.length > 0).all()) else False
        if self._bias is not None:
            odd |= ~self._bias.isfinite()
        return odd.nonzero()[:, 0] if bool(odd.any()) else None

    @cached_property
    def _square(self) -> Tensor:
        parts = torch.split(self.given, rows_at_once(self.given))
        return torch.cat([part.double().square().sum(1) for part in parts])

    @cached_property
    def length(self) -> Tensor:
        """Lengths, float64 (n,): within (d + 4) 2^-53, relatively, where ``_SAFE``."""
        return self._square.sqrt()

    @cached_property
    def bias(self) -> Tensor | None:
        """Return the addend to q.e, float64 (n,)."""
        if self.similarity != "l2":
            return self._bias
        return -self._square / 2 if self._bias is None else (self._bias - self._square) / 2

    @property
    def form(self) -> Form:
        """How a score is made of a product in float64."""
        return Form(self.length if self.similarity == "cosine" else None, self.bias)

    def sizes(self, dtype: torch.dtype) -> Sizes:
        """Return the terms of the error bound for scores in a precision."""
        return getattr(self, f"_sizes_{str(dtype).removeprefix('torch.')}")  # type: ignore[no-any-return]

    def scores(self, queries: Tensor, columns: slice, out: Tensor) -> Tensor:
        """Compute scores (rows, n) in the precision of the queries, which come from ``Queries.rounded``."""
        matrix = self.given[columns].to(queries.dtype)
        if self.bias is not None:
            return torch.addmm(self.bias[columns].to(queries.dtype)[None], queries, matrix.T, out=out)
        torch.mm(queries, matrix.T, out=out)
        return out.div_(self.length[columns].to(queries.dtype)) if self.similarity == "cosine" else out

    @cached_property
    def each(self) -> Sizes:
        """Return the terms of the error bound of each candidate in float64: tensors (n,)."""
        d, norm = self.given.shape[1], self.norm
        none, one = torch.zeros_like(norm), torch.ones_like(norm)
        if self.similarity == "cosine":
            safe = (self.length > 1 / _SAFE) & (norm < _SAFE)
            error = torch.where(safe, (d + 4) * 2.0**-51, torch.inf)
            return Sizes(one * (1 + 2.0**-20), error, none, none, norm, torch.where(safe, self.length, 1.0))
        if self.bias is None:
            return Sizes(norm, none, none, none, norm, one)
        bias = self.bias.abs()
        rounding = (d + 4) * 2.0**-51 * (norm * norm + bias) + d * 2.0**-1020 if self.similarity == "l2" else none
        return Sizes(norm, none, bias, rounding, norm, one)

    @cached_property
    def _sizes_float64(self) -> Sizes:
        largest = Sizes(*(self._largest(numbers) for numbers in self.each))
        return largest._replace(shortest=-self._largest(-self.each.shortest, -1.0))

    @cached_property
    def _sizes_float32(self) -> Sizes:
        wide = self._sizes_float64
        error = wide.error + (2.0**-20 if self.similarity == "cosine" else 0.0)
        if self.given.dtype == FLOAT64 and bool((rounding := self.given - self.given.float().double()).any()):
            error += (self._largest(torch.linalg.vector_norm(rounding, dim=1)) * 1.01 + 2.0**-500) / wide.shortest
        return wide._replace(error=error, bias_error=wide.bias_error + wide.bias * 2.0**-23)

    def _largest(self, numbers: Tensor, of_special: float = 0.0) -> float:
        if self.special is not None:
            numbers = numbers.index_fill(0, self.special, of_special)
        return float(numbers.max())
