"""Models whose scores are products or distances of embeddings: ranked without the matrix of scores, exactly."""

from collections.abc import Callable

from torch import Tensor

from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.certified.candidates import Candidates
from torchrankmetrics.ranking.certified.rank import rank_exactly
from torchrankmetrics.ranking.chunks import (
    check_embeddings,
    check_similarity,
    product_scores,
    read_candidates,
    resolve_arithmetic,
)
from torchrankmetrics.ranking.excluded import Excluded
from torchrankmetrics.ranking.parallel.part import Part
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.ranking.scores import Target


class EmbeddingScorer:
    """A scorer for ``rank_triples`` and its like, given by embeddings of queries and candidates.

    DistMult is ``EmbeddingScorer(lambda h, r: entities[h] * relations[r], entities)``; ComplEx, RESCAL and TransE are
    in docs/scale.md. In ``rank_triples`` the candidates are ranked as ``rank_embeddings`` does, by default exactly.

    Args:
        queries: (ids (B,), ...) -> (B, d) floats, of the ids that a function in its place would be given.
        candidates: (N, d) embeddings, or ``Candidates``; one object may serve both sides. With the ``process_group`` of
            ``rank_triples`` the slice of this process.
        bias: as ``rank_embeddings`` takes it, like what follows.
        similarity: as there.
        arithmetic: as there.

    Raises:
        TypeError, ValueError: as ``rank_embeddings``.

    >>> import torch
    >>> from torchrankmetrics import rank_triples
    >>> entities, relations = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]]), torch.ones(1, 2)
    >>> score = EmbeddingScorer(lambda h, r: entities[h] * relations[r], entities)
    >>> rank_triples(score, None, [[0, 0, 2], [2, 0, 1]], None, progress=False).ranks
    Ranks(optimistic=[1, 2], pessimistic=[2, 2], num_candidates=[3, 3])
    """

    def __init__(
        self,
        queries: Callable[..., Tensor],
        candidates: Tensor | Array | Candidates,
        *,
        bias: Tensor | Array | None = None,
        similarity: str = "dot",
        arithmetic: str | None = None,
    ) -> None:
        self.candidates = read_candidates(candidates, bias)
        check_similarity(similarity, self.candidates.bias)
        self.queries, self.similarity = queries, similarity
        device = self.candidates.embeddings.device
        self.is_exact = resolve_arithmetic(arithmetic, similarity, device) == "exact"

    def __call__(self, *ids: Tensor) -> Tensor:
        """Scores (B, N) by the product."""
        return product_scores(self.embed(ids, some=False), self.candidates, self.similarity)

    def rank(
        self,
        queries: Tensor,
        target: Target,
        excluded: Excluded,
        backend: str,
        part: Part,
    ) -> Ranks:
        """Exact ranks of the answers to queries (B, d); arguments as ``rank_scores`` takes them, but of a part."""
        return rank_exactly(
            queries,
            self.candidates,
            target,
            excluded,
            similarity=self.similarity,
            chunk_size=None,
            backend=backend,
            kept=True,
            part=part,
        )

    def embed(self, ids: tuple[Tensor, ...], *, some: bool = True) -> Tensor:
        """Embed queries (B, d), ``some`` as ``check_embeddings`` takes it."""
        queries = read_scores(self.queries(*ids), "queries", "embeddings (B, d)")
        check_embeddings(queries, self.candidates.embeddings, some=some)
        if len(queries) != len(ids[0]):
            raise ValueError(f"queries must return (B, d) = ({len(ids[0])}, d), got {tuple(queries.shape)}")
        return queries
