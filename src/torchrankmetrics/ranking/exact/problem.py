"""Queries in each precision with their norms, and what a level of exact ranks reads."""

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.exact.candidates import Structure, structure_of
from torchrankmetrics.ranking.exact.counting import Intervals
from torchrankmetrics.ranking.exact.excluded import ExcludedTiles
from torchrankmetrics.ranking.exact.tiles import (
    BFLOAT16,
    FLOAT32,
    FLOAT64,
    PARTS,
    are_finite,
    rounding_norms,
    upper_norms,
)

if TYPE_CHECKING:
    from torchrankmetrics.ranking.embeddings import Candidates


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


CELLS = 1 << 20  # scores computed at once


class Targets(NamedTuple):
    """The true candidates: among the candidates, or beside them where other processes hold some.

    Attributes:
        embeddings: (M, d).
        bias: (M,) or None.
        place: int64 (P,), which of them is that of a task.
        among: int64 (P,), the same where they come after the candidates: N + place; or place, where they are these.
    """

    embeddings: Tensor
    bias: Tensor | None
    place: Tensor
    among: Tensor


class Problem(NamedTuple):
    """Tasks in ascending order of their rows.

    Attributes:
        queries: (B, d).
        candidates: (N, d), of the same dtype.
        similarity: "dot", "l2" or "cosine".
        row: int64 (P,), ascending.
        column: int64 (P,), the true candidates, negative where they are not among these candidates.
        targets: what they are.
        excluded: what is no candidate, tile by tile.
        intervals: how cells and pairs are counted.
        backend: how scores that are no finite numbers are counted, as ``rank_scores`` takes it.
    """

    queries: Queries
    candidates: "Candidates"
    similarity: str
    row: Tensor
    column: Tensor
    targets: Targets
    excluded: ExcludedTiles
    intervals: Intervals
    backend: str

    @property
    def width(self) -> int:
        """D of the embeddings."""
        return self.queries.given.shape[1]

    @property
    def tables(self) -> list[tuple[Tensor, Tensor | None]]:
        """The candidates, and the true ones where they are beside them: what ``Targets.among`` counts."""
        own = self.candidates.embeddings, self.candidates.bias
        return [own] if self.targets.embeddings is own[0] else [own, self.targets[:2]]

    def structure(self) -> Structure:
        """Structure of both; stored if the candidates are all."""
        return structure_of(self.candidates) if len(self.tables) == 1 else Structure.of(*self.tables)


class Counts:
    """Candidates better than the true one, tied with it, NaN, and those whose score is special: int64 (P,) each."""

    def __init__(self, like: Tensor) -> None:
        self.above, self.tied, self.nan, self.special = (torch.zeros_like(like) for _ in range(4))
