"""rank_answers: the rank of every answer of a relation for every query of it, which a null by exchange needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.checks import check_int
from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.protocols.known_triples import KnownTriples, as_triples, excluded_by
from torchrankmetrics.protocols.scorers import score_queries
from torchrankmetrics.protocols.triples import ScoreFunction
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.ranking.excluded import ExcludedSlices
from torchrankmetrics.ranking.negatives import count_shared
from torchrankmetrics.ranking.ranks import Ranks
from torchrankmetrics.sides import EntitySide
from torchrankmetrics.theory.candidates import IntArray
from torchrankmetrics.theory.inference.exchange import CrossRanks, ExchangeableTriples


@dataclass(frozen=True, eq=False)
class AnswerRanks:
    """What ``rank_answers`` gives: for ``permutation_p_value``, and as a table.

    Attributes:
        groups: one per relation.
        relations: its relation.
        triples: (n,) int64, the indices of its triples.
    """

    groups: tuple[ExchangeableTriples, ...]
    relations: tuple[int, ...]
    triples: tuple[Tensor, ...]

    def table(self) -> RankTable:
        """The ranks as they are, as ``rank_triples`` gives them with all splits known; by relation, tails first."""
        tables = []
        for group, relation, index in zip(self.groups, self.relations, self.triples, strict=True):
            for side in group.sides:
                ranks = Ranks(*(part[0] for part in group.ranks(group.tail[None], side)))
                labels = torch.full_like(index, relation)
                tables.append(RankTable.from_ranks(ranks, side=side, group=labels, sample_id=index))
        return RankTable.concatenate(tables)


def rank_answers(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | None,
    *,
    candidates: Integers | None = None,
    batch_size: int = 32,
    higher_is_better: bool = True,
    progress: bool = True,
) -> AnswerRanks:
    """Rank every answer of a relation for every query of it, so that triples can be dealt anew.

    The other test answers of a query are left out of its candidates, whichever they are in a deal; so ``known`` holds
    the other splits and none of the triples. Where no triple of a relation is a loop, no deal makes one. Memory:
    distinct heads times distinct tails of the largest relation.

    Args:
        score_tails: (heads (B,), relations (B,)) -> scores (B, N), tensors or arrays; None: tails are not ranked.
        score_heads: (relations (B,), tails (B,)) -> scores (B, N); None: heads are not ranked.
        triples: (n, 3) integers [head, relation, tail], the tasks; a repeat is no second task.
        known: the triples of the other splits to filter by; None: there are no others.
        candidates: entities that are candidates at all, as ids (m,) or bool (N,); None: all.
        batch_size: queries scored at once.
        higher_is_better: False for distances.
        progress: whether a bar is shown.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples``; ValueError if a triple is known, or its answer is no
            candidate.

    >>> scores = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1], [0.0, 0.0, 1.0]])
    >>> found = rank_answers(lambda h, r: scores[h], None, torch.tensor([[0, 0, 2], [1, 0, 0]]), None, progress=False)
    >>> found.groups[0].sides["tail"].optimistic.tolist()  # of tails 0 and 2 for heads 0 and 1
    [[3, 2], [1, 3]]
    """
    given = as_triples(triples, "triples")
    check_int("batch_size", batch_size, 1)
    asked = _asked(score_tails, score_heads, known, candidates, higher_is_better)
    first = np.sort(np.unique(given.cpu().numpy(), axis=0, return_index=True)[1])
    index = torch.from_numpy(first).to(given.device)
    head, relation, tail = given[index].unbind(1)
    relations, groups, members = np.unique(relation.cpu().numpy()).tolist(), [], []
    with tqdm(relations, desc="ranking", unit="relation", disable=not progress) as bar, torch.no_grad():
        for label in bar:
            there = (relation == label).nonzero()[:, 0]
            heads, of_head = torch.unique(head[there], return_inverse=True)
            tails, of_tail = torch.unique(tail[there], return_inverse=True)
            at = of_head.cpu().numpy(), of_tail.cpu().numpy()
            sides: dict[EntitySide, CrossRanks] = {}
            loops = (heads[:, None] == tails).cpu().numpy()
            excluded = np.zeros_like(loops) if loops[at].any() else loops
            for one in asked:
                queries, answers = (heads, tails) if one.side == "tail" else (tails, heads)
                parts = [one.rank(batch, label, answers) for batch in queries.split(batch_size)]
                cross = _Cross(*(torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True)))
                sides[one.side] = CrossRanks(cross.low, cross.high, cross.scores, cross.total)
                excluded = excluded | (cross.excluded if one.side == "tail" else cross.excluded.T)
            if excluded[at].any():
                raise ValueError("known must hold the triples of other splits only, but it holds some of the tasks")
            groups.append(ExchangeableTriples(*at, excluded, sides))
            members.append(index[there])
    return AnswerRanks(tuple(groups), tuple(relations), tuple(members))


class _Cross(NamedTuple):
    low: IntArray
    high: IntArray
    scores: npt.NDArray[Any]
    excluded: npt.NDArray[np.bool_]
    total: IntArray


@dataclass(frozen=True)
class _Asked:
    """A side's scorer, and what leaves candidates out."""

    side: EntitySide
    score: ScoreFunction
    known: Callable[..., ExcludedSlices] | None
    candidates: Integers | None
    higher_is_better: bool

    def rank(self, queries: Tensor, relation: int, answers: Tensor) -> tuple[Tensor, ...]:
        """Ranks (b, A) twice, scores (b, A), whether a triple is excluded (b, A), and the number of candidates (b,)."""
        labels = torch.full_like(queries, relation)
        ids = (queries, labels) if self.side == "tail" else (labels, queries)
        scores = score_queries(self.score, ids, self.side, self.higher_is_better)
        if int(answers.max()) >= scores.shape[1]:
            raise IndexError(f"triples must hold entities below N = {scores.shape[1]}, got {int(answers.max())}")
        excluded = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        others = excluded_by(self.candidates, scores.shape[1], scores.device)
        if others is not None:
            if others[answers].any():
                raise ValueError(f"candidates must contain the true {self.side} of every task")
            excluded |= others
        if self.known is not None:
            excluded[tuple(self.known(*ids).pairs())] = True
        own = scores[:, answers]
        places = [_places(row[~out], of) for row, out, of in zip(scores, excluded, own, strict=True)]
        low, high = torch.stack(places, 1)
        return low, high, own.double() if own.dtype == torch.bfloat16 else own, excluded[:, answers], (~excluded).sum(1)


def _asked(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    known: KnownTriples | None,
    candidates: Integers | None,
    higher_is_better: bool,
) -> list[_Asked]:
    if score_tails is None and score_heads is None:
        raise ValueError("score_tails and score_heads are both None: there is nothing to rank")
    known_of = (None, None) if known is None else (known.tails, known.heads)
    sides: tuple[tuple[EntitySide, ScoreFunction | None], ...] = (("tail", score_tails), ("head", score_heads))
    asked = zip(sides, known_of, strict=True)
    return [_Asked(side, score, of, candidates, higher_is_better) for (side, score), of in asked if score is not None]


def _places(row: Tensor, own: Tensor) -> Tensor:
    """Optimistic and pessimistic ranks, int64 (2, A), of scores ``own`` (A,) that are among the scores (n,)."""
    above, not_below, number, _ = count_shared(own, row)
    return torch.stack([torch.where(own != own, number, above + 1), not_below])  # a NaN is below itself too
