"""`rank_facts`: temporal facts, filtered at the time of the query or at any time."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.kg.known_triples import as_facts, split_facts
from torchrankmetrics.kg.loop import LoopOptions, rank_sides, sides_of
from torchrankmetrics.kg.scorers import Scores
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.ranking.exclude import ExcludedSlices
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import ENTITY_SIDES

_COLUMNS = ("head", "relation", "tail", "time")


class KnownFacts:
    """Known positives with a time, of every split that an evaluation filters by.

    Args:
        facts (integers): (n, 4) integers [head, relation, tail, time], one argument per split.
        time_aware (bool, default True): True: (h, r, ?, time) filters entities that are true at that time. False:
            entities that are true at any time (static, or time-unaware, filtering), which are more.

    Raises:
        TypeError: if ids are not integers.
        ValueError: if a split is not (n, 4).
        IndexError: if an id is negative.

    Source: Lacroix et al. 2020 (arXiv 2004.04926) filter time-aware; Gastinger et al. 2023
    (doi:10.1007/978-3-031-43418-1_32) compare the settings.

    >>> facts = torch.tensor([[0, 0, 1, 2001], [0, 0, 2, 2001], [0, 0, 3, 2002]])
    >>> for known in KnownFacts(facts), KnownFacts(facts, time_aware=False):
    ...     print(known.tails(*facts[:1, [0, 1, 3]].T).pairs()[1])
    tensor([1, 2])
    tensor([1, 2, 3])
    """

    def __init__(self, *facts: Integers, time_aware: bool = True) -> None:
        parts = [as_facts(part, f"facts[{i}]", *_COLUMNS) for i, part in enumerate(facts)]
        known = torch.cat(parts) if parts else torch.empty(0, 4, dtype=torch.int64, device="cpu")
        self.time_aware = time_aware
        known = known if time_aware else known[:, :3]
        self._heads, self._tails = (KnownAnswers(*split_facts(known, side)) for side in ENTITY_SIDES)

    def tails(self, heads: Tensor, relations: Tensor, times: Tensor) -> ExcludedSlices:
        """Known tails of (head, relation, ?, time), for ``rank_scores(..., exclude=...)``; each (B,).

        Args:
            heads (Tensor): (B,) integers, head entities.
            relations (Tensor): (B,) integers, relations.
            times (Tensor): (B,) integers, times.

        Returns:
            The known positives of each row, for ``rank_scores(..., exclude=...)``.
        """
        return self._tails(self._queries(heads, relations, times))

    def heads(self, relations: Tensor, tails: Tensor, times: Tensor) -> ExcludedSlices:
        """Known heads of (?, relation, tail, time), for ``rank_scores(..., exclude=...)``; each (B,).

        Args:
            relations (Tensor): (B,) integers, relations.
            tails (Tensor): (B,) integers, tail entities.
            times (Tensor): (B,) integers, times.

        Returns:
            The known positives of each row, for ``rank_scores(..., exclude=...)``.
        """
        return self._heads(self._queries(relations, tails, times))

    def _queries(self, *columns: Tensor) -> Tensor:
        return torch.stack(columns if self.time_aware else columns[:2], 1)


def rank_facts(
    score_tails: Callable[[Tensor, Tensor, Tensor], Scores] | None,
    score_heads: Callable[[Tensor, Tensor, Tensor], Scores] | None,
    facts: Integers,
    known: KnownFacts | None,
    *,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    higher_is_better: bool = True,
    progress: bool = True,
) -> RankTable:
    """Rank both sides of every fact with a time; each query (h, r, time), (r, t, time) is scored once.

    Args:
        score_tails (callable): (heads (B,), relations (B,), times (B,)) -> scores (B, N); None: tails are not ranked.
        score_heads (callable): (relations (B,), tails (B,), times (B,)) -> scores (B, N); None: heads are not ranked.
        facts (integers): (n, 4) integers [head, relation, tail, time].
        known (KnownFacts): known positives, and how to filter them; None: raw ranks.
        candidates (integers, default None): as in ``rank_triples``.
        batch_size (int, default None): as in ``rank_triples``.
        backend (str, default "auto"): as in ``rank_triples``.
        higher_is_better (bool, default True): as in ``rank_triples``.
        progress (bool, default True): as in ``rank_triples``.

    Returns:
        One row per side and fact, tails first: the relation as group, the index of the fact as sample id.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples``.

    >>> facts = torch.tensor([[0, 0, 1, 2001], [0, 0, 2, 2001], [0, 0, 3, 2002]])
    >>> score = lambda h, r, time: torch.zeros(len(h), 5)
    >>> rank_facts(score, None, facts, KnownFacts(facts)).ranks.num_candidates
    tensor([4, 4, 5])
    """
    tasks = as_facts(facts, "facts", *_COLUMNS)
    options = LoopOptions(candidates, batch_size, backend, higher_is_better, progress)
    return rank_sides(sides_of((score_tails, score_heads), tasks, known, options, kind=KnownFacts), tasks[:, 1])
