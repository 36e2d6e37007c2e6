"""`rank_sequentially`: a filtered evaluation that stops as soon as the hypothesis is decided."""

from __future__ import annotations  # help() shows the names of types

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.definitions.sample import IntArray
from torchrankmetrics.kg.known_triples import KnownTriples, as_triples
from torchrankmetrics.kg.loop import ONLY, LoopOptions, QuerySide
from torchrankmetrics.kg.scorers import Scores
from torchrankmetrics.kg.sides import sides_of, warn_of_distances
from torchrankmetrics.kg.triples import ScoreFunction
from torchrankmetrics.metrics.names import MetricLike
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.sequential.sequences import HypothesisOptions
from torchrankmetrics.sequential.testing import SequentialResult, SequentialTest
from torchrankmetrics.table.columns import SIDE_CODES, empty_rows
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int

if TYPE_CHECKING:  # torch may be built without
    from torch.distributed import ProcessGroup

ScoreHRT = Callable[[Tensor], Scores]
OtherScores = tuple[ScoreFunction | None, ScoreFunction | None] | ScoreHRT


def rank_sequentially(
    score_tails: ScoreFunction | None,
    score_heads: ScoreFunction | None,
    triples: Integers,
    known: KnownTriples | None,
    *,
    baseline: RankTable | None = None,
    score_baseline: OtherScores | None = None,
    metric: MetricLike = "mrr",
    alpha: float = 0.05,
    threshold: float | None = None,
    half_width: float | None = None,
    seed: int = 0,
    candidates: Integers | None = None,
    batch_size: int | None = None,
    backend: str = "auto",
    score_hrt: ScoreHRT | None = None,
    num_entities: int | None = None,
    higher_is_better: bool = True,
    progress: bool = True,
    process_group: ProcessGroup | None = None,
) -> SequentialResult:
    """Rank the queries of ``rank_triples`` in random order until the hypothesis is decided.

    Queries are drawn and bounded as in ``SequentialEvaluation``; if all are ranked, ranks and
    values equal those of ``rank_triples``.

    Args:
        score_tails (callable): (heads (B,), relations (B,)) -> scores (B, N); None: tails are not
            ranked.
        score_heads (callable): (relations (B,), tails (B,)) -> scores (B, N); None: heads are not
            ranked.
        triples (integers): (n, 3) integers [head, relation, tail], or a tuple of three (n,).
        known (KnownTriples): the true triples of every split to filter by; None: raw ranks.
        baseline (RankTable, default None): ranks of the other model, of ``rank_triples`` or a
            ``SequentialResult``; a sample is used for the queries that it has. None: one model, or
            a model without ranks yet.
        score_baseline (callable, default None): the functions of the other model, (score_tails,
            score_heads) or a score_hrt, for the queries that ``baseline`` lacks. None: if its ranks
            end, the result is undecided.
        metric (str, RankDefinition or RankMetric, default "mrr"): a mean of f over tasks, in its
            base view, for example "mrr", "hits@10" or "auc".
        alpha (float, default 0.05): largest probability of a wrong answer.
        threshold (float, default None): test whether the value, or with ``baseline`` the
            difference, is at least this; None with ``baseline``: test whether the model is better.
        half_width (float, default None): stop when the interval has at most this half width.
        seed (int, default 0): random seed of the order of queries.
        batch_size (int, default None): queries between two tests, over both sides and all
            processes; None: a fiftieth of them, 8 to 256.
        candidates (integers, default None): ids (m,) or bool (N,) of the candidates; None: all.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.
        score_hrt (callable, default None): (triples (m, 3)) -> scores (m,) or (m, 1), instead of
            both other functions.
        num_entities (int, default None): N of ``score_hrt``; None: ``known.num_entities``.
        higher_is_better (bool, default True): False for distances.
        progress (bool, default True): whether to show a progress bar, on a terminal only.
        process_group (ProcessGroup, default None): processes that each score a share of the queries
            among all entities (in ``rank_triples`` they share the entities), and stop at the same
            batch. None: this process only.

    Returns:
        The decision, an anytime-valid interval, and the ranks.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples`` and ``SequentialEvaluation``.

    >>> import torch
    >>> from torchrankmetrics.sequential import rank_sequentially
    >>> generator = torch.Generator().manual_seed(0)
    >>> ids = torch.arange(500)
    >>> truth = torch.stack([ids, ids * 0, ids], 1)
    >>> noise = torch.randn(2, 500, 500, generator=generator)
    >>> old, new = (noise[i] + skill * torch.eye(500) for i, skill in enumerate((1.5, 2.5)))
    >>> from torchrankmetrics import rank_triples
    >>> best = rank_triples(lambda h, r: old[h], None, truth, None, progress=False)
    >>> decision = rank_sequentially(
    ...     lambda h, r: new[h], None, truth, None, baseline=best, progress=False
    ... )
    >>> decision.answer, decision.num_queries, decision.total_queries
    (True, 40, 500)
    """
    tasks = as_triples(triples, "triples")
    if isinstance(known, Mapping):
        raise TypeError("known must be KnownTriples or None, got several filters in a dict")
    if not len(tasks):
        raise ValueError("triples is empty")
    # each call ranks the given queries as one batch
    options = LoopOptions(candidates, 2 * len(tasks), backend, higher_is_better)
    sides = sides_of((score_tails, score_heads), tasks, known, options, score_hrt, num_entities)
    model = _Model(sides, tasks)
    other_model = None
    if score_baseline is not None:
        pair, score_hrt = _scorers(score_baseline)
        sides = sides_of(pair, tasks, known, options, score_hrt, num_entities)
        other_model = _Model(sides, tasks)
        if other_model.side_names != model.side_names:
            raise ValueError("score_baseline must rank the same sides as the model")
    if num_entities is None and known is not None:
        num_entities = known.num_entities
    test = SequentialTest(
        model.query_of_task(),
        HypothesisOptions(metric, alpha, threshold, half_width),
        num_entities,
        baseline,
        seed,
        process_group,
        [SIDE_CODES[name] for name in model.side_names],
        extends=other_model is not None,
    )
    _rank_until_decided(test, model, other_model, batch_size, progress)
    decision = test.decision
    warn_of_distances(decision.table, higher_is_better)
    return decision


def _rank_until_decided(
    test: SequentialTest,
    model: _Model,
    other_model: _Model | None,
    batch_size: int | None,
    progress: bool,
) -> None:
    if batch_size is None:
        batch_size = max(8, min(256, -(-model.num_queries // 50)))
    batch_size = check_int("batch_size", batch_size, 1)
    disable = None if progress else True
    with tqdm(total=model.num_queries, desc="ranking", unit="query", disable=disable) as bar:
        for places in test.rounds(batch_size):
            if other_model is not None:
                _rank_lacking(other_model, test, places)
            test.add(model.rank(test.order.queries[places], bar))


def _scorers(score_baseline: OtherScores) -> tuple[Any, Any]:
    """The pair (score_tails, score_heads) and the score_hrt of the other model."""
    if isinstance(score_baseline, tuple):
        return score_baseline, None
    return (None, None), score_baseline


def _rank_lacking(model: _Model, test: SequentialTest, places: list[int]) -> None:
    """Rank those of the drawn queries by the other model whose ranks it lacks."""
    other = test.baseline
    assert other is not None
    lacking = [place for place in places if not other.there[test.order.of(place, place + 1)].all()]
    rows = model.rank(test.order.queries[lacking], tqdm(disable=True))
    other.put(*test.gathered(rows))


class _Model:
    """The sides of a model, whose queries are numbered side after side."""

    def __init__(self, sides: list[QuerySide], triples: Tensor) -> None:
        self._sides = sides
        self._triples = triples
        self._first = [0, *accumulate(len(side.tasks) for side in sides)]
        self.num_queries = self._first[-1]
        self.side_names = [side.name for side in sides]

    def query_of_task(self) -> IntArray:
        """The number of the query of every ranking task, side after side."""
        parts = [
            side.tasks.row + first for side, first in zip(self._sides, self._first, strict=False)
        ]
        return np.asarray(torch.cat(parts).cpu())

    def rank(self, queries: IntArray, bar: Any) -> Tensor:
        """Rows (m, 10) of the ranks of these queries."""
        rows = [empty_rows(self._triples.device)]
        for side, (first, end) in zip(self._sides, pairwise(self._first), strict=True):
            own = queries[(queries >= first) & (queries < end)] - first
            if len(own):
                part = side.part(torch.from_numpy(own).to(self._triples.device))
                rows.append(part.rank(self._triples[:, 1], bar)[ONLY].rows)
        return torch.cat(rows)
