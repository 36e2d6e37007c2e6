"""Filtered evaluation of facts with a time: `rank_facts` and its filter, `KnownFacts`."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Unpack, overload

import torch
from torch import Tensor

from torchrankmetrics.decorators import suggest_keywords
from torchrankmetrics.kg.answers import AnsweredTable
from torchrankmetrics.kg.candidates import CandidatesByRelation
from torchrankmetrics.kg.known_positives import KnownPositives
from torchrankmetrics.kg.known_triples import as_facts, split_facts
from torchrankmetrics.kg.loop import ONLY, LoopOptions, RankOptions
from torchrankmetrics.kg.scorers import Scores
from torchrankmetrics.kg.sides import rank_sides, sides_of
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.ranking.counting import ExcludedSlices, MissingTargets
from torchrankmetrics.validation import ENTITY_SIDES

_COLUMNS = ("head", "relation", "tail", "time")


class KnownFacts:
    """Known positives with a time, of every split that an evaluation filters by.

    Args:
        facts (integers): (n, 4) integers [head, relation, tail, time], one argument per split.
        time_aware (bool, default True): True filters entities that are true at the time of the
            query; False entities that are true at any time (static, or time-unaware, filtering).

    Raises:
        TypeError, ValueError, IndexError: if ids are not integers, a split is not (n, 4), or an id
            is negative.

    Source: Lacroix et al. 2020 (arXiv 2004.04926) filter time-aware; Gastinger et al. 2023
    (doi:10.1007/978-3-031-43418-1_32) compare the settings.

    >>> import torch
    >>> from torchrankmetrics.kg import KnownFacts
    >>> facts = torch.tensor([[0, 0, 1, 2001], [0, 0, 2, 2001], [0, 0, 3, 2002]])
    >>> for known in KnownFacts(facts), KnownFacts(facts, time_aware=False):
    ...     print(known.tails(*facts[:1, [0, 1, 3]].T).pairs()[1])
    ...
    tensor([1, 2])
    tensor([1, 2, 3])
    """

    def __init__(self, *facts: Integers, time_aware: bool = True) -> None:
        parts = [as_facts(part, f"facts[{i}]", *_COLUMNS) for i, part in enumerate(facts)]
        known = torch.cat(parts) if parts else torch.empty(0, 4, dtype=torch.int64, device="cpu")
        self._width = 3 if time_aware else 2  # of a query
        known = known[:, : self._width + 1]
        self._missing = MissingTargets()
        self._heads, self._tails = (
            KnownPositives(*split_facts(known, side)) for side in ENTITY_SIDES
        )

    def tails(self, heads: Tensor, relations: Tensor, times: Tensor) -> ExcludedSlices:
        """Return the known tails of (head, relation, ?, time), (B,) each, as ``exclude``."""
        found = self._tails(torch.stack([heads, relations, times][: self._width], 1))
        return replace(found, missing=self._missing)

    def heads(self, relations: Tensor, tails: Tensor, times: Tensor) -> ExcludedSlices:
        """Return the known heads of (?, relation, tail, time), (B,) each, as ``exclude``."""
        found = self._heads(torch.stack([relations, tails, times][: self._width], 1))
        return replace(found, missing=self._missing)


FactFunction = Callable[[Tensor, Tensor, Tensor], Scores]


@overload
def rank_facts(
    score_tails: FactFunction | None,
    score_heads: FactFunction | None,
    facts: Integers,
    known: KnownFacts | None,
    **options: Unpack[RankOptions],
) -> AnsweredTable: ...


@overload
def rank_facts(
    score_tails: FactFunction | None,
    score_heads: FactFunction | None,
    facts: Integers,
    known: Mapping[str, KnownFacts | None],
    **options: Unpack[RankOptions],
) -> dict[str, AnsweredTable]: ...


@suggest_keywords
def rank_facts(
    score_tails: FactFunction | None,
    score_heads: FactFunction | None,
    facts: Integers,
    known: KnownFacts | Mapping[str, KnownFacts | None] | None,
    *,
    candidates: Integers | CandidatesByRelation | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    higher_is_better: bool = True,
    progress: bool = True,
    top_k: int | None = None,
) -> AnsweredTable | dict[str, AnsweredTable]:
    """Rank both sides of every fact with a time, each query once.

    Args:
        score_tails (callable): (heads (B,), relations (B,), times (B,)) -> scores (B, N); None:
            tails are not ranked.
        score_heads (callable): (relations (B,), tails (B,), times (B,)) -> scores (B, N); None:
            heads are not ranked.
        facts (integers): (n, 4) integers [head, relation, tail, time].
        known (KnownFacts): known positives, and how to filter them; None: raw ranks; or a dict of
            several, as in ``rank_triples``.
        candidates (integers or dict, default None): ids (m,) or bool (N,) of the candidates; None:
            all. Or a dict of relation -> (heads, tails), one of these forms for each side.
        batch_size (int, default None): queries scored at once; None: it grows while that is faster
            and memory allows.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        higher_is_better (bool, default True): False for distances.
        progress (bool, default True): whether to show a progress bar, on a terminal only.
        top_k (int, default None): number of best candidates of each query in ``answers`` of the
            table.

    Returns:
        One row per side and fact, tails first: the relation as group, the index of the fact as
        sample id. If known is a dict, a table for each of its names.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples``.

    >>> import torch
    >>> from torchrankmetrics.kg import KnownFacts, rank_facts
    >>> facts = torch.tensor([[0, 0, 1, 2001], [0, 0, 2, 2001], [0, 0, 3, 2002]])
    >>> score = lambda h, r, time: torch.zeros(len(h), 5)
    >>> rank_facts(score, None, facts, KnownFacts(facts)).ranks.num_candidates
    tensor([4, 4, 5])
    """
    tasks = as_facts(facts, "facts", *_COLUMNS)
    options = LoopOptions(candidates, batch_size, backend, higher_is_better, progress, top_k)
    sides = sides_of((score_tails, score_heads), tasks, known, options, kind=KnownFacts)
    tables = rank_sides(sides, tasks[:, 1])
    return tables if isinstance(known, Mapping) else tables[ONLY]
