"""Public names for PyKEEN: evaluators, and rank tables from its results."""

from __future__ import annotations  # the reference is built without PyKEEN

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pykeen.evaluation import RankBasedEvaluator, SampledRankBasedEvaluator, evaluator_resolver
from pykeen.evaluation.rank_based_evaluator import sample_negatives
from pykeen.triples import CoreTriplesFactory
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, Target
from torch import Tensor

from torchrankmetrics.integrations.pykeen_evaluator import RankCollectionEvaluator
from torchrankmetrics.integrations.pykeen_results import (
    RankResults,
    Requested,
    find_key,
    known_triples,
)
from torchrankmetrics.kg.known_triples import as_triples
from torchrankmetrics.ranking import flags
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.ranks import Ranks, trusted
from torchrankmetrics.ranking.scores import rank_scores
from torchrankmetrics.table.columns import SIDE_CODES
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import shorten


class SampledRankCollectionEvaluator(RankCollectionEvaluator):
    """``RankCollectionEvaluator`` that ranks each true entity among sampled ones, as ``SampledRankBasedEvaluator``.

    The ranks are marked as sampled: MRR and hits of them differ from those among all entities (docs/protocols.md). A
    sampled candidate that the evaluation filters is excluded.

    Args:
        evaluation_factory (CoreTriplesFactory): the triples that will be evaluated.
        metrics (sequence of str, default None): as in ``RankCollectionEvaluator``.
        additional_filter_triples (Tensor or list of Tensor, default None): (n, 3) known triples that are not sampled,
            one tensor or several.
        num_negatives (int, default None): how many are sampled per triple and side; None: 50.
        head_negatives (Tensor, default None): (triples, M) entities in place of a sample; together with those for the
            tail.
        tail_negatives (Tensor, default None): (triples, M) entities in place of a sample; together with those for the
            head.
        **kwargs (object): as in ``RankCollectionEvaluator``.

    Raises:
        ValueError: if there are fewer entities than negatives, one side's are missing, or not one row per triple.
    """

    def __init__(
        self,
        evaluation_factory: CoreTriplesFactory,
        metrics: Requested | None = None,
        *,
        additional_filter_triples: Tensor | list[Tensor] | None = None,
        num_negatives: int | None = None,
        head_negatives: Tensor | None = None,
        tail_negatives: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(metrics, **kwargs)
        self.num_entities = evaluation_factory.num_entities
        triples = evaluation_factory.mapped_triples
        if head_negatives is None and tail_negatives is None:
            number = 50 if num_negatives is None else num_negatives
            if not 0 < number <= self.num_entities:
                raise ValueError(f"num_negatives must be in [1, num_entities] = [1, {self.num_entities}], got {number}")
            self.negative_samples = sample_negatives(triples, additional_filter_triples, number, self.num_entities)
        elif head_negatives is None or tail_negatives is None:
            raise ValueError("head_negatives and tail_negatives go together: pass both, or none")
        else:
            given = {LABEL_HEAD: head_negatives, LABEL_TAIL: tail_negatives}
            self.negative_samples = {side: as_ids(ids, f"{side}_negatives") for side, ids in given.items()}
        for side, ids in self.negative_samples.items():
            if ids.ndim != 2 or len(ids) != len(triples):
                raise ValueError(
                    f"{side}_negatives must be ({len(triples)}, M), a row per triple; got {tuple(ids.shape)}"
                )
        self._sizes = triples.max(0).values + 1
        self._keys, self._order = self._key(triples).sort(stable=True)

    def _rank(
        self,
        hrt_batch: Tensor,
        target: Target,
        scores: Tensor,
        own: Tensor,
        exclude: Tensor | tuple[Tensor, Tensor] | None,
    ) -> Ranks:
        if target not in self.negative_samples:
            raise ValueError(f"candidates are sampled for head and tail; got target {shorten(target)}")
        if self._columns_of is not None:
            raise ValueError("restrict_entities_to does not go with sampled candidates: pass head_ and tail_negatives")
        candidates = self.negative_samples[target][self._index(hrt_batch.cpu())].to(own.device)
        candidates = torch.cat([own[:, None], candidates], 1)
        if isinstance(exclude, tuple):
            mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
            mask[exclude] = True
            exclude = mask
        if exclude is not None:
            exclude = exclude.gather(1, candidates)
            exclude[:, 0] = False
        ranks = rank_scores(scores.gather(1, candidates), torch.zeros_like(own), exclude=exclude, backend=self.backend)
        marks = torch.zeros_like(own) if ranks.flags is None else ranks.flags
        return trusted(ranks.columns, marks | flags.SAMPLED)

    def _index(self, triples: Tensor) -> Tensor:
        """Return the places of triples (B, 3) among the evaluated triples."""
        key = self._key(triples)
        place = torch.searchsorted(self._keys, key).clamp(max=len(self._keys) - 1)
        new = (self._keys[place] != key) | (triples >= self._sizes).any(1)
        if new.any():
            raise ValueError(f"evaluation_factory must hold all triples evaluated; {triples[new][0].tolist()} is new")
        return self._order[place]

    def _key(self, triples: Tensor) -> Tensor:
        _, relations, tails = self._sizes.tolist()
        head, relation, tail = triples.T
        key: Tensor = (head * relations + relation) * tails + tail
        return key


__all__ = [
    "RankCollectionEvaluator",
    "RankResults",
    "SampledRankCollectionEvaluator",
    "early_stopping",
    "known_triples",
    "objective",
    "rank_table",
]

for _evaluator in (RankCollectionEvaluator, SampledRankCollectionEvaluator):
    evaluator_resolver.register(_evaluator, raise_on_conflict=False)  # a module may be loaded again


def early_stopping(
    metric: str = "mrr", evaluator: RankCollectionEvaluator | None = None, **options: object
) -> dict[str, object]:
    """``stopper_kwargs`` of PyKEEN's early stopper with the direction of the metric, which PyKEEN does not look at.

    Args:
        metric (str, default "mrr"): any name of one that the evaluator computes.
        evaluator (RankCollectionEvaluator, default None): the evaluator of the pipeline; None: one with the default
            metrics.
        **options (object): further ``stopper_kwargs``.

    Returns:
        Keyword arguments for ``pipeline(stopper_kwargs=...)``.

    Raises:
        TypeError: if the evaluator is another.
        ValueError: if the metric is unknown, has no direction, or is not computed by the evaluator.

    >>> early_stopping("mr", frequency=5)
    {'metric': 'both.realistic.arithmetic_mean_rank', 'larger_is_better': False, 'frequency': 5}
    """
    name, larger = _directed(metric, evaluator)
    return {"metric": name, "larger_is_better": larger, **options}


def objective(metric: str = "mrr", evaluator: RankCollectionEvaluator | None = None) -> dict[str, str]:
    """``metric`` and ``direction`` for ``hpo_pipeline``, which maximizes every metric by default.

    Args:
        metric (str, default "mrr"): any name of one that the evaluator computes.
        evaluator (RankCollectionEvaluator, default None): as the search will build it; None: one with the default
            metrics.

    Returns:
        Keyword arguments for ``hpo_pipeline``.

    Raises:
        TypeError: if the evaluator is another.
        ValueError: if the metric is unknown, has no direction, or is not computed by the evaluator.

    >>> objective("tail_mr")
    {'metric': 'tail.realistic.arithmetic_mean_rank', 'direction': 'minimize'}
    """
    name, larger = _directed(metric, evaluator)
    return {"metric": name, "direction": "maximize" if larger else "minimize"}


def rank_table(evaluator: RankBasedEvaluator | RankCollectionEvaluator, triples: Integers | None = None) -> RankTable:
    """Ranks of a finished evaluation; a ``RankBasedEvaluator`` needs ``clear_on_finalize=False``.

    Args:
        evaluator (RankBasedEvaluator or RankCollectionEvaluator): after its ``evaluate``; of a sampled one the ranks
            are marked as sampled.
        triples (integers, default None): (n, 3) that were evaluated: their relation becomes the group; None: the groups
            that the evaluator knows, PyKEEN's none.

    Returns:
        One row per task, head before tail, with the triple's index as sample id. Macro weights of PyKEEN's are not
        taken over.

    Raises:
        TypeError: for another evaluator.
        ValueError: if its ranks have been cleared, triples do not fit, or ranks come from NaN scores.
    """
    if isinstance(evaluator, RankCollectionEvaluator):
        table = evaluator.collection.table()
        if not len(table):
            raise ValueError("evaluator has no ranks; call evaluate first")
    elif isinstance(evaluator, RankBasedEvaluator):
        if not evaluator.num_candidates:
            raise ValueError("evaluator has no ranks; build it with clear_on_finalize=False and call evaluate")
        tables = []
        for side, parts in sorted(evaluator.num_candidates.items(), key=lambda item: SIDE_CODES[item[0]]):
            numbers = np.concatenate(parts)
            columns: dict[str, npt.ArrayLike] = {
                "optimistic": np.concatenate(evaluator.ranks[side, "optimistic"]),
                "pessimistic": np.concatenate(evaluator.ranks[side, "pessimistic"]),
                "num_candidates": numbers,
                "side": SIDE_CODES[side],
                "sample_id": np.arange(len(numbers)),
                "sampled": np.full(len(numbers), isinstance(evaluator, SampledRankBasedEvaluator)),
            }
            tables.append(RankTable.from_numpy(columns))
        table = RankTable.concatenate(tables)
    else:
        raise TypeError(
            f"evaluator must be a RankBasedEvaluator or a RankCollectionEvaluator, got {type(evaluator).__name__}"
        )
    if triples is None:
        return table
    relation, arrays = as_triples(triples, "triples")[:, 1].cpu().numpy(), table.to_numpy()
    number = int(arrays["sample_id"].max()) + 1
    if len(relation) != number:
        raise ValueError(f"triples must be the {number} that were evaluated, got {len(relation)}")
    return RankTable.from_numpy(arrays | {"group": relation[arrays["sample_id"]]})


def _directed(metric: str, evaluator: RankCollectionEvaluator | None) -> tuple[str, bool]:
    """PyKEEN's name of a metric that the evaluator computes, and whether a larger value is better."""
    if evaluator is None:
        evaluator = RankCollectionEvaluator()
    if not isinstance(evaluator, RankCollectionEvaluator):
        raise TypeError(f"evaluator must be a RankCollectionEvaluator, got {type(evaluator).__name__}")
    computed = evaluator.computed()
    key = find_key(computed, metric, "is not computed by the evaluator (pass your evaluator as evaluator=)")
    higher = computed[key][1].higher_is_better
    if higher is None:
        raise ValueError(f"{shorten(metric)} has no direction: neither a high nor a low value is better")
    return ".".join(key), higher
