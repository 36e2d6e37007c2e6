"""What is to be ranked, and what is counted of it."""

from typing import NamedTuple

import torch
from torch import Tensor

from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.excluded_tiles import ExcludedTiles
from torchrankmetrics.ranking.certified.queries import Queries
from torchrankmetrics.ranking.certified.structure import Structure
from torchrankmetrics.ranking.counting.plain_intervals import Intervals

CELLS = 1 << 20  # scores computed at once


class Answers(NamedTuple):
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
        answers: what they are.
        excluded: what is no candidate, tile by tile.
        intervals: how cells and pairs are counted.
        backend: how scores that are no finite numbers are counted, as ``rank_scores`` takes it.
    """

    queries: Queries
    candidates: Candidates
    similarity: str
    row: Tensor
    column: Tensor
    answers: Answers
    excluded: ExcludedTiles
    intervals: Intervals
    backend: str

    @property
    def width(self) -> int:
        """D of the embeddings."""
        return self.queries.given.shape[1]

    @property
    def tables(self) -> list[tuple[Tensor, Tensor | None]]:
        """The candidates, and the true ones where they are beside them: what ``Answers.among`` counts."""
        own = self.candidates.embeddings, self.candidates.bias
        return [own] if self.answers.embeddings is own[0] else [own, self.answers[:2]]

    def structure(self) -> Structure:
        """Of both; kept where the candidates are all."""
        return self.candidates.structure if len(self.tables) == 1 else Structure.of(*self.tables)


class Tally:
    """Candidates better than the true one, tied with it, NaN, and those whose score is special: int64 (P,) each."""

    def __init__(self, like: Tensor) -> None:
        self.above, self.tied, self.nan, self.special = (torch.zeros_like(like) for _ in range(4))
