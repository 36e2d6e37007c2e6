"""Scorers: functions that score all entities of a side, single triples, or embeddings."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchrankmetrics.ranking.arrays import Array, read_scores
from torchrankmetrics.ranking.embeddings import (
    Candidates,
    check_embeddings,
    read_candidates,
)
from torchrankmetrics.ranking.similarities import SIMILARITIES
from torchrankmetrics.ranking.tile_ranks import all_scores
from torchrankmetrics.validation import check_int

_TRIPLES = 1 << 17  # scored at once: a model holds several embeddings for each

Scores = Tensor | Array
"""Scores that a function returns."""


def both_sides(
    score_hrt: Callable[[Tensor], Scores], num_entities: int
) -> tuple[Callable[..., Tensor], ...]:
    """Make scorers of tails and of heads from a function that scores triples (m, 3)."""
    number = check_int("num_entities", num_entities, 1)

    def score(first: Tensor, second: Tensor, place: int) -> Tensor:
        rows = torch.stack([first, second], 1)
        total = len(rows) * number
        parts = []
        for begin in range(0, total, _TRIPLES):
            cell = torch.arange(begin, min(begin + _TRIPLES, total), device=rows.device)
            given = rows[cell // number]
            entity = (cell % number)[:, None]
            triples = torch.cat([entity, given] if place == 0 else [given, entity], 1)
            parts.append(_scores_of_triples(score_hrt, triples))
        return torch.cat(parts).view(len(rows), number)

    def tails(heads: Tensor, relations: Tensor) -> Tensor:
        return score(heads, relations, 2)

    def heads(relations: Tensor, tails: Tensor) -> Tensor:
        return score(relations, tails, 0)

    return tails, heads


def _scores_of_triples(score_hrt: Callable[[Tensor], Scores], triples: Tensor) -> Tensor:
    scores = as_scores(score_hrt(triples), triples.device, name="score_hrt(...)")
    number = len(triples)
    if scores.shape not in ((number,), (number, 1)):
        raise ValueError(
            f"score_hrt must return scores ({number},), one for each triple; got "
            f"{tuple(scores.shape)}"
        )
    return scores.flatten()


def as_scores(
    given: Scores, device: torch.device, higher_is_better: bool = True, name: str = "score"
) -> Tensor:
    """Return scores as a tensor, higher is better, arrays on the device."""
    scores = read_scores(given, name, "scores")
    scores = scores if isinstance(given, Tensor) else scores.to(device)
    return scores if higher_is_better else reversed_order(scores)


def reversed_order(scores: Tensor) -> Tensor:
    """Reverse the order of scores; twice gives the scores again."""
    # integers by the complement: -x overflows for the lowest integer, and for unsigned ones
    return -scores if scores.is_floating_point() else torch.bitwise_not(scores)


class EmbeddingScorer:
    """A scorer for ``rank_triples`` and similar functions, from embeddings.

    The example is DistMult; ComplEx, RESCAL and TransE are on the page "Large candidate sets".
    Ranks are those of ``rank_embeddings``.

    Args:
        queries (callable): (ids (B,), ...) -> (B, d) floats, with the ids that a score function
            takes.
        candidates (Tensor, array or Candidates): (N, d) embeddings, or ``Candidates``, which may
            serve both sides; with a ``process_group`` those of this process.
        bias (Tensor or array, default None): (N,) floats that are added to the scores, for all but
            cosine; ``Candidates`` have their own.
        similarity (str, default "dot"): "dot", "cosine", "l2" or "l1"; larger is better for all
            four.

    >>> import torch
    >>> from torchrankmetrics.kg import EmbeddingScorer
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
    ) -> None:
        self.candidates = read_candidates(candidates, bias, similarity)
        self.queries = queries
        self.similarity = similarity

    def __call__(self, *ids: Tensor) -> Tensor:
        """Compute the scores (B, N) of all candidates, float64."""
        queries = self.embed(ids, some=False)
        scores = all_scores(queries, self.candidates, self.similarity)
        return SIMILARITIES[self.similarity].as_documented(scores).to(queries.device)

    def embed(self, ids: tuple[Tensor, ...], *, some: bool = True) -> Tensor:
        """Embed queries (B, d), columns of ids (B,); ``some`` as in ``check_embeddings``."""
        queries = read_scores(self.queries(*ids), "queries", "embeddings (B, d)")
        check_embeddings(queries, self.candidates.embeddings, some=some)
        if len(queries) != len(ids[0]):
            raise ValueError(
                f"queries must return (B, d) = ({len(ids[0])}, d), got {tuple(queries.shape)}"
            )
        return queries
