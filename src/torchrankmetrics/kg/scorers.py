"""Adapters of models: score functions of triples, arrays, and `EmbeddingScorer`."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.embeddings import (
    Candidates,
    check_embeddings,
    product_scores,
    read_candidates,
    resolve_arithmetic,
)
from torchrankmetrics.validation import check_int

_TRIPLES = 1 << 17  # scored at once: a model holds several embeddings for each

Scores = Tensor | Array
"""Scores that a function returns."""
ScorePair = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]


def both_sides(score_hrt: Callable[[Tensor], Scores], num_entities: int) -> ScorePair:
    """Make scorers of all tails and of all heads from a function that scores single triples (m, 3)."""
    number = check_int("num_entities", num_entities, 1)

    def score(first: Tensor, second: Tensor, place: int) -> Tensor:
        rows = torch.stack([first, second], 1)
        total, parts = len(rows) * number, []
        for begin in range(0, total, _TRIPLES):
            cell = torch.arange(begin, min(begin + _TRIPLES, total), device=rows.device)
            given, put_in = rows[cell // number], (cell % number)[:, None]
            triples = torch.cat([put_in, given] if place == 0 else [given, put_in], 1)
            scores = as_scores(score_hrt(triples), rows.device, name="score_hrt(...)")
            if scores.shape not in ((len(cell),), (len(cell), 1)):
                got = tuple(scores.shape)
                raise ValueError(f"score_hrt must return scores ({len(cell)},), one for each triple; got {got}")
            parts.append(scores.flatten())
        return torch.cat(parts).view(len(rows), number) if parts else torch.empty(len(rows), 0, device=rows.device)

    return lambda heads, relations: score(heads, relations, 2), lambda relations, tails: score(relations, tails, 0)


def as_scores(given: Scores, device: torch.device, higher_is_better: bool = True, name: str = "score") -> Tensor:
    """Return scores as a tensor, higher is better, arrays on the device."""
    scores = read_scores(given, name, "scores")
    scores = scores if isinstance(given, Tensor) else scores.to(device)
    if higher_is_better:
        return scores
    # integers by the complement: -x overflows for the lowest integer, and for unsigned ones
    return -scores if scores.is_floating_point() else torch.bitwise_not(scores)


def score_queries(
    score: Callable[..., Scores], ids: tuple[Tensor, ...], side: str | None, higher_is_better: bool
) -> Tensor:
    """Score queries, given as columns of ids (B,): (B, N), higher is better."""
    name = "score" if side is None else f"score_{side}s"
    scores = as_scores(score(*ids), ids[0].device, higher_is_better, f"{name}(...)")
    if scores.ndim != 2 or len(scores) != len(ids[0]):
        raise ValueError(f"{name} must return scores ({len(ids[0])}, N), got {tuple(scores.shape)}")
    if scores.is_complex():
        raise TypeError(f"{name} must return real scores, got {scores.dtype}")
    return scores


class EmbeddingScorer:
    """A scorer for ``rank_triples`` and similar functions, from embeddings of queries and candidates.

    The example is DistMult; ComplEx, RESCAL and TransE are in docs/scale.md. Ranks are those of ``rank_embeddings``.

    Args:
        queries (callable): (ids (B,), ...) -> (B, d) floats, with the ids that a score function takes.
        candidates (Tensor, array or Candidates): (N, d) embeddings, or ``Candidates``, which may serve both sides; with
            a ``process_group`` those of this process.
        bias (Tensor or array, default None): as in ``rank_embeddings``.
        similarity (str, default "dot"): as in ``rank_embeddings``.
        arithmetic (str, default None): as in ``rank_embeddings``.

    Raises:
        TypeError, ValueError: as ``rank_embeddings``.

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
        self.candidates = read_candidates(candidates, bias, similarity)
        self.queries, self.similarity = queries, similarity
        device = self.candidates.embeddings.device
        self.is_exact = resolve_arithmetic(arithmetic, similarity, device) == "exact"

    def __call__(self, *ids: Tensor) -> Tensor:
        """Compute scores (B, N) by the product."""
        return product_scores(self.embed(ids, some=False), self.candidates, self.similarity)

    def embed(self, ids: tuple[Tensor, ...], *, some: bool = True) -> Tensor:
        """Embed queries (B, d), given as columns of ids (B,); ``some`` as in ``check_embeddings``."""
        queries = read_scores(self.queries(*ids), "queries", "embeddings (B, d)")
        check_embeddings(queries, self.candidates.embeddings, some=some)
        if len(queries) != len(ids[0]):
            raise ValueError(f"queries must return (B, d) = ({len(ids[0])}, d), got {tuple(queries.shape)}")
        return queries
