"""`rank_sequentially`: a filtered evaluation that stops as soon as the hypothesis is decided."""

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from torchrankmetrics.definitions.sample import IntArray
from torchrankmetrics.kg.known_triples import KnownTriples, as_triples
from torchrankmetrics.kg.loop import LoopOptions, QuerySide, Scores, sides_of, warn_of_distances
from torchrankmetrics.kg.triples import ScoreFunction
from torchrankmetrics.metrics.registry import MetricLike
from torchrankmetrics.ranking.arrays import Integers
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
    process_group: "ProcessGroup | None" = None,
) -> SequentialResult:
    """Rank the queries of ``rank_triples`` in random order, and stop as soon as the hypothesis is decided.

    Queries are drawn and bounded as in ``SequentialEvaluation``; if all are ranked, ranks and
    values equal those of ``rank_triples``.

    Args:
        score_tails (callable): as in ``rank_triples``.
        score_heads (callable): as in ``rank_triples``.
        triples (integers): as in ``rank_triples``.
        known (KnownTriples): as in ``rank_triples``.
        baseline (RankTable, default None): ranks of the other model, of ``rank_triples`` or a
            ``SequentialResult``; a sample is used for the queries that it has. None: one model, or
            a model without ranks yet.
        score_baseline (callable, default None): the functions of the other model, (score_tails,
            score_heads) or a score_hrt, for the queries that ``baseline`` lacks. None: if its ranks
            end, the result is undecided.
        metric (str, RankDefinition or RankMetric, default "mrr"): as in ``SequentialEvaluation``.
        alpha (float, default 0.05): as in ``SequentialEvaluation``.
        threshold (float, default None): as in ``SequentialEvaluation``.
        half_width (float, default None): as in ``SequentialEvaluation``.
        seed (int, default 0): as in ``SequentialEvaluation``.
        batch_size (int, default None): queries between two tests, over both sides and all
            processes; None: a fiftieth of them, 8 to 256.
        candidates (integers, default None): as in ``rank_triples``.
        backend (str, default "auto"): as in ``rank_triples``.
        score_hrt (callable, default None): as in ``rank_triples``.
        num_entities (int, default None): as in ``rank_triples``.
        higher_is_better (bool, default True): as in ``rank_triples``.
        progress (bool, default True): as in ``rank_triples``.
        process_group (ProcessGroup, default None): processes that each score a share of the queries
            among all entities (in ``rank_triples`` they share the entities), and stop at the same
            batch. None: this process only.

    Returns:
        The decision, an anytime-valid interval, and the ranks.

    Raises:
        TypeError, ValueError, IndexError: as ``rank_triples`` and ``SequentialEvaluation``.

    >>> generator = torch.Generator().manual_seed(0)
    >>> truth = torch.stack([torch.arange(500), torch.zeros(500, dtype=torch.int64), torch.arange(500)], 1)
    >>> noise = torch.randn(2, 500, 500, generator=generator)
    >>> old, new = (noise[i] + skill * torch.eye(500) for i, skill in enumerate((1.5, 2.5)))
    >>> from torchrankmetrics import rank_triples
    >>> best = rank_triples(lambda h, r: old[h], None, truth, None, progress=False)
    >>> decision = rank_sequentially(lambda h, r: new[h], None, truth, None, baseline=best, progress=False)
    >>> decision.answer, decision.num_queries, decision.total_queries
    (True, 40, 500)
    """
    tasks = as_triples(triples, "triples")
    if not len(tasks):
        raise ValueError("triples is empty")
    # each call ranks the given queries as one batch
    options = LoopOptions(candidates, 2 * len(tasks), backend, higher_is_better)
    sides = sides_of((score_tails, score_heads), tasks, known, options, score_hrt, num_entities)
    others: list[QuerySide] = []
    if score_baseline is not None:
        pair, single = (
            (score_baseline, None)
            if isinstance(score_baseline, tuple)
            else ((None, None), score_baseline)
        )
        others = sides_of(pair, tasks, known, options, single, num_entities)
        if [side.name for side in others] != [side.name for side in sides]:
            raise ValueError("score_baseline must rank the same sides as the model")
    first = [0, *accumulate(len(side.queries) for side in sides)]
    codes = [SIDE_CODES[side.name] for side in sides]
    most = known.num_entities if num_entities is None and known is not None else num_entities
    query = (
        torch.cat([side.row + start for side, start in zip(sides, first, strict=False)])
        .cpu()
        .numpy()
    )
    about = metric, alpha, threshold, half_width
    test = SequentialTest(query, about, most, baseline, seed, process_group, codes, bool(others))
    other = test.baseline
    if batch_size is None:
        batch_size = max(8, min(256, -(-first[-1] // 50)))

    def rank(of: list[QuerySide], queries: IntArray, bar: Any) -> Tensor:
        rows = [empty_rows(tasks.device)]
        for side, start, end in zip(of, first, first[1:], strict=False):
            own = queries[(queries >= start) & (queries < end)] - start
            if len(own):
                rows.append(
                    side.part(torch.from_numpy(own).to(tasks.device)).rank(tasks[:, 1], bar).rows
                )
        return torch.cat(rows)

    with tqdm(
        total=first[-1], desc="ranking", unit="query", disable=None if progress else True
    ) as bar:
        for places in test.rounds(check_int("batch_size", batch_size, 1)):
            if other is not None and others:
                lacking = [
                    place
                    for place in places
                    if not other.there[test.order.of(place, place + 1)].all()
                ]
                other.put(
                    *test.gathered(rank(others, test.order.queries[lacking], tqdm(disable=True)))
                )
            test.add(rank(sides, test.order.queries[places], bar))
    decision = test.decision
    warn_of_distances(decision.table, higher_is_better)
    return decision
