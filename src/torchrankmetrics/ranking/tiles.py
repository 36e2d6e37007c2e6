"""Embeddings in the forms in which they are compared: queries, and candidates tile by tile.

The score of a pair is the float64 number of ``pairs``. The product of a tile approximates the
scores of its candidates within an error bound.
"""

import importlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrankmetrics.ranking.counting import chosen
from torchrankmetrics.ranking.pairs import PRODUCT
from torchrankmetrics.ranking.similarities import LARGE, SIMILARITIES, Similarity, error_bound

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates

_TARGETS = 4096  # whose candidates are copied at once
_NO_FLOAT64 = {"mps"}  # devices whose embeddings are ranked on the CPU


def wide(vectors: Tensor) -> Tensor:
    """Return floats (n, d), row by row in memory, as float32, or float64 if they are."""
    dtype = torch.float64 if vectors.dtype == torch.float64 else torch.float32
    return vectors.detach().to(dtype).contiguous()


def squared_norms(vectors: Tensor, kernels: Any) -> Tensor:
    """Squared norms of wide vectors (n, d): float64 (n,)."""
    every = torch.arange(len(vectors), device=vectors.device)
    squares: Tensor = kernels.sums_of_pairs(vectors, vectors, every, every, PRODUCT)
    return squares


class Queries:
    """Queries (B, d) of one call in all precisions, with memory for their scores."""

    def __init__(self, given: Tensor, kernels: Any) -> None:
        self.wide = wide(given)
        self.norm = squared_norms(self.wide, kernels).sqrt()
        self.device = given.device
        self._rounded: dict[torch.dtype, Tensor] = {}
        self._memory: dict[torch.dtype, Tensor] = {}

    def rounded(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return some queries in a precision; zeros for those out of range, which are open."""
        if dtype not in self._rounded:
            odd = ~(self.norm < LARGE)
            self._rounded[dtype] = self.wide.to(dtype).masked_fill(odd[:, None], 0.0)
        return self._rounded[dtype][rows]

    def buffer(self, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Return memory for scores, which the next call overwrites."""
        number = shape[0] * shape[1]
        memory = self._memory.get(dtype)
        if memory is None or len(memory) < number:
            memory = torch.empty(number, dtype=dtype, device=self.device)
            self._memory[dtype] = memory
        return memory[:number].view(shape)


class Tile:
    """Some candidates, prepared for pairs and for products."""

    def __init__(
        self, embeddings: Tensor, bias: Tensor | None, similarity: Similarity, kernels: Any
    ) -> None:
        self.wide = wide(embeddings)
        self.bias = None if bias is None else bias.detach().double()
        self.similarity = similarity
        self.kernels = kernels
        self._products: dict[torch.dtype, Product] = {}

    def __len__(self) -> int:
        return len(self.wide)

    @cached_property
    def square(self) -> Tensor:
        """Squared norms, float64 (n,)."""
        return squared_norms(self.wide, self.kernels)

    def scores(self, queries: Queries, row: Tensor, column: Tensor) -> Tensor:
        """Scores of pairs of queries and candidates of the tile by the routine, float64 (n,)."""
        given = queries.wide, self.wide, row, column
        sums = self.kernels.sums_of_pairs(*given, self.similarity.terms)
        square = self.square[column] if self.similarity.needs_norm else None
        scores = self.similarity.score(sums, square)
        return scores if self.bias is None else scores.add_(self.bias[column])

    def product(self, dtype: torch.dtype) -> "Product":
        """Prepare products in a precision, once."""
        if dtype not in self._products:
            self._products[dtype] = Product(self, dtype)
        return self._products[dtype]


class Product:
    """Products of queries with a tile in a precision, and their error bounds.

    Candidates out of range become NaN, which is open.
    """

    def __init__(self, tile: Tile, dtype: torch.dtype) -> None:
        self._tile = tile
        self.dtype = dtype
        similarity = tile.similarity
        norm = tile.square.sqrt()
        odd = ~(norm < LARGE)
        if tile.bias is not None:
            odd |= ~(tile.bias.abs() < LARGE)
        if similarity.needs_norm:
            odd |= ~(norm > 1 / LARGE)
        self.matrix = similarity.matrix(tile.wide.to(dtype), norm)
        if bool(odd.any()):
            self.matrix = self.matrix.masked_fill(odd[:, None], torch.nan)
        addend = similarity.addend(tile.bias, tile.square)
        self.addend = None if addend is None else addend.to(dtype)
        self.longest = norm.masked_fill(odd, 0.0).amax()
        self.largest_bias = torch.zeros_like(self.longest)
        if tile.bias is not None:
            self.largest_bias = tile.bias.abs().masked_fill(odd, 0.0).amax()

    def scores(self, queries: Queries, rows: Tensor) -> Tensor:
        """Approximate scores (rows, n) of some queries, in the memory of the queries."""
        out = queries.buffer((len(rows), len(self._tile)), self.dtype)
        given = queries.rounded(rows, self.dtype), self.matrix, self.addend
        return self._tile.similarity.multiply(*given, out, self._tile.kernels)

    def error(self, norm: Tensor, approximated: Tensor) -> Tensor:
        """Bound the errors of approximations, float64 (P,); ``norm`` is |q|."""
        d = self.matrix.shape[1]
        size = self._tile.similarity.size(norm, self.longest, self.largest_bias, d)
        return error_bound(self.dtype, d, size, approximated, norm + self.longest)

    def interval(self, norm: Tensor, true: Tensor) -> tuple[Tensor, Tensor]:
        """Bound the open cells from the norm of each query and the true score."""
        approximated = self._tile.similarity.approximated(true, norm)
        error = self.error(norm, approximated)
        odd = ~(norm < LARGE) | ~(true.abs() < LARGE**2)
        low = (approximated - error).masked_fill_(odd, -torch.inf).to(self.dtype)
        high = (approximated + error).masked_fill_(odd, torch.inf).to(self.dtype)
        return low.clamp_(min=torch.finfo(self.dtype).min), high  # excluded cells are -inf: below


class Tiles:
    """Candidates of one process; a tile at a time is prepared, and the candidates store norms."""

    def __init__(
        self, candidates: "Candidates", similarity: str, queries: Tensor, backend: str
    ) -> None:
        self._candidates = candidates
        self._embeddings = candidates.embeddings.to(queries.device)
        self._bias = None if candidates.bias is None else candidates.bias.to(queries.device)
        self._similarity = SIMILARITIES[similarity]
        # late: numba takes half a second
        name = "pairs" if chosen(queries, backend) == "torch" else "pairs_numba"
        self.kernels = importlib.import_module(f"torchrankmetrics.ranking.{name}")

    def __len__(self) -> int:
        return len(self._embeddings)

    def tile(self, columns: Tensor | slice) -> Tile:
        """Select some candidates."""
        bias = None if self._bias is None else self._bias[columns]
        return Tile(self._embeddings[columns], bias, self._similarity, self.kernels)

    def slices(self, width: int) -> Iterator[tuple[int, Tile]]:
        """Tiles of so many candidates, in order, with their first column."""
        stored = self._candidates.prepared
        for left in range(0, len(self), width):
            tile = self.tile(slice(left, left + width))
            tile.square = stored.setdefault((left, len(tile)), tile.square)
            yield left, tile

    def scores(self, queries: Queries, row: Tensor, column: Tensor) -> Tensor:
        """Scores of pairs by the routine, 0 where the column is negative: float64 (P,)."""
        found = torch.zeros(len(row), dtype=torch.float64, device=row.device)
        for some in torch.split((column >= 0).nonzero()[:, 0], _TARGETS):
            every = torch.arange(len(some), device=some.device)
            found[some] = self.tile(column[some]).scores(queries, row[some], every)
        return found


def prepared(
    queries: Tensor, candidates: "Candidates", similarity: str, backend: str
) -> tuple[Queries, Tiles]:
    """Read queries and candidates on their device, or on the CPU if the device has no float64."""
    if queries.device.type in _NO_FLOAT64:
        queries = queries.cpu()
    tiles = Tiles(candidates, similarity, queries, backend)
    return Queries(queries.resolve_neg(), tiles.kernels), tiles
