"""PyKEEN: an evaluator that fills a RankCollection, finished evaluations as RankTable, triples as KnownTriples."""

from __future__ import annotations  # the reference is built without PyKEEN

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pykeen.datasets.base import Dataset
from pykeen.evaluation import Evaluator, RankBasedEvaluator, SampledRankBasedEvaluator
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey
from pykeen.triples import CoreTriplesFactory

from torchrankmetrics.integrations.pykeen_keys import DEFAULT_METRICS, RankResults, higher_is_better, pykeen_keys
from torchrankmetrics.metrics.collection import RankCollection
from torchrankmetrics.protocols.known_triples import KnownTriples, as_triples
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.theory.expectation.provider import ExpectationProvider
from torchrankmetrics.theory.sample import RankType
from torchrankmetrics.theory.views import View


class RankCollectionEvaluator(Evaluator[RankBasedMetricKey]):
    """Evaluator for PyKEEN's ``pipeline``, its early stopper and ``hpo_pipeline`` that fills a ``RankCollection``.

    A NaN score counts against the model; PyKEEN's own evaluator takes it for a filtered one, so that a diverged model
    ranks first. ``collection`` holds the last evaluation: relations as groups, the triples' indices as sample ids.

    Args:
        metrics: as in ``RankCollection``; None: all that ``RankBasedEvaluator`` gives.
        views: as in ``RankCollection``.
        rank_types: as in ``RankCollection``.
        expectation: what gives null moments; None: exact.
        filtered: whether known triples are left out of the candidates.
        batch_size: of the evaluation; None: PyKEEN's choice.
        slice_size: of the scoring; None: PyKEEN's choice.
        mode: inductive mode, or None.

    Raises:
        TypeError, ValueError: as ``RankCollection``.
    """

    metric_result_cls = RankResults

    def __init__(
        self,
        metrics: Any = None,
        *,
        views: Sequence[View] = ("base",),
        rank_types: Sequence[RankType] = ("realistic", "optimistic", "pessimistic"),
        expectation: ExpectationProvider | None = None,
        filtered: bool = True,
        batch_size: int | None = None,
        slice_size: int | None = None,
        mode: Any = None,
    ) -> None:
        # the mask tells a filtered score from a NaN of the model
        super().__init__(filtered, filtered, batch_size, slice_size, mode)
        self.collection = RankCollection(
            DEFAULT_METRICS if metrics is None else metrics,
            views=views,
            rank_types=rank_types,
            sides=("both", "head", "tail"),
            expectation=expectation,
        )
        self._ranked: dict[str, int] = {}
        self._place: torch.Tensor | None = None

    def evaluate(self, *args: Any, **kwargs: Any) -> RankResults:
        """Evaluate as ``pykeen.evaluation.Evaluator.evaluate`` does, with its arguments."""
        given = inspect.signature(Evaluator.evaluate).bind(self, *args, **kwargs).arguments
        restricted = given.get("restrict_entities_to")
        self._place = None if restricted is None else _places(restricted)
        try:
            results = super().evaluate(*args, **kwargs)
        finally:
            self._place = None
        assert isinstance(results, RankResults)
        return results

    def process_scores_(
        self,
        hrt_batch: torch.Tensor,
        target: str,
        scores: torch.Tensor,
        true_scores: torch.Tensor | None = None,
        dense_positive_mask: torch.Tensor | None = None,
    ) -> None:
        """Rank a batch; PyKEEN calls it.

        Raises:
            ValueError: if a true entity is not among those that the evaluation is restricted to.
        """
        own = hrt_batch[:, 0 if target == "head" else 2]
        if self._place is not None:
            place = self._place.to(own.device)
            inside = own < len(place)
            inside[inside.clone()] = place[own[inside]] >= 0
            if not inside.all():
                missing = int(own[~inside][0])
                raise ValueError(
                    f"restrict_entities_to must hold the true {target} of every task; {missing} is missing"
                )
            own = place[own]
        if dense_positive_mask is not None:
            exclude = dense_positive_mask.bool()
        elif self.filtered:  # LCWAEvaluationLoop gives no mask; where the true score is NaN, so may the others be
            exclude = scores.isnan() & ~scores.gather(1, own[:, None]).isnan()
        else:
            exclude = None
        first = self._ranked.get(target, 0)
        self._ranked[target] = first + len(own)
        self.collection.update(
            scores,
            own,
            exclude=exclude,
            side=target,
            group=hrt_batch[:, 1],
            sample_id=torch.arange(first, first + len(own), device=own.device),
        )

    def clear(self) -> None:
        """Forget the ranks; PyKEEN calls it before each evaluation."""
        self.collection.reset()
        self._ranked = {}

    def finalize(self) -> RankResults:
        """Results of the sides that were ranked; the ranks stay in ``collection`` until the next evaluation.

        Raises:
            ValueError: if nothing was evaluated.
        """
        if not self._ranked:
            raise ValueError("there are no ranks: evaluate first")
        data: dict[RankBasedMetricKey | str, float] = {}
        values = self.collection.compute()
        for key, measure in self.collection.measures.items():
            if measure.side == "both" or measure.side in self._ranked:
                data |= dict.fromkeys(pykeen_keys(key, measure), float(values[key]))
        results = RankResults(data)
        results.table = self.collection.table()
        return results


def early_stopping(metric: str = "mrr", **options: Any) -> dict[str, Any]:
    """``stopper_kwargs`` of PyKEEN's early stopper with the direction of the metric, which PyKEEN does not look at.

    Raises:
        ValueError: if the metric is unknown or has no direction.

    >>> early_stopping("mr", frequency=5)
    {'metric': 'both.realistic.arithmetic_mean_rank', 'larger_is_better': False, 'frequency': 5}
    """
    return {
        "metric": RankResults.key_to_string(metric),
        "larger_is_better": higher_is_better(metric),
        **options,
    }


def objective(metric: str = "mrr") -> dict[str, str]:
    """``metric`` and ``direction`` for ``hpo_pipeline``, which maximises whatever the metric unless told.

    Raises:
        ValueError: if the metric is unknown or has no direction.

    >>> objective("tail_mr")
    {'metric': 'tail.realistic.arithmetic_mean_rank', 'direction': 'minimize'}
    """
    direction = "maximize" if higher_is_better(metric) else "minimize"
    return {"metric": RankResults.key_to_string(metric), "direction": direction}


def rank_table(evaluator: RankBasedEvaluator, triples: Any = None) -> RankTable:
    """Ranks of a finished ``RankBasedEvaluator`` that was built with ``clear_on_finalize=False``.

    Args:
        evaluator: after its ``evaluate``; of a sampled one the ranks are marked as sampled.
        triples: (n, 3) that were evaluated: their relation becomes the group; None: no groups.

    Returns:
        One row per task, head before tail, with the triple's index as sample id. Macro weights are not taken over.

    Raises:
        TypeError: if it is no ``RankBasedEvaluator``.
        ValueError: if its ranks have been cleared, triples do not fit, or ranks come from NaN scores.
    """
    if not isinstance(evaluator, RankBasedEvaluator):
        raise TypeError(f"evaluator must be a RankBasedEvaluator, got {type(evaluator).__name__}")
    if not evaluator.num_candidates:
        raise ValueError("evaluator holds no ranks: build it with clear_on_finalize=False, and evaluate")
    relation = None if triples is None else as_triples(triples, "triples")[:, 1].cpu().numpy()
    tables = []
    for side, parts in sorted(evaluator.num_candidates.items()):
        numbers = np.concatenate(parts)
        if relation is not None and len(relation) != len(numbers):
            raise ValueError(f"triples must be the {len(numbers)} that were evaluated, got {len(relation)}")
        tables.append(
            RankTable.from_numpy(
                {
                    "optimistic": np.concatenate(evaluator.ranks[side, "optimistic"]),
                    "pessimistic": np.concatenate(evaluator.ranks[side, "pessimistic"]),
                    "num_candidates": numbers,
                    "side": np.full(len(numbers), 1 if side == "head" else 2),
                    "sample_id": np.arange(len(numbers)),
                    **({} if relation is None else {"group": relation}),
                    "sampled": np.full(len(numbers), isinstance(evaluator, SampledRankBasedEvaluator)),
                }
            )
        )
    return RankTable.concatenate(tables)


def known_triples(*sources: CoreTriplesFactory | Dataset) -> KnownTriples:
    """``KnownTriples`` of triples factories, or of a data set with all its splits.

    For validation ``known_triples(dataset.training, dataset.validation)``, for the test ``known_triples(dataset)``.

    Raises:
        TypeError: if a source is neither.
        ValueError: if there is none, or they number their entities or relations differently.
    """
    factories: list[CoreTriplesFactory] = []
    for source in sources:
        if isinstance(source, Dataset):
            factories += source.factory_dict.values()
        elif isinstance(source, CoreTriplesFactory):
            factories.append(source)
        else:
            raise TypeError(f"sources must be triples factories or data sets of PyKEEN, got {type(source).__name__}")
    if not factories:
        raise ValueError("sources is empty: pass a data set, or the triples factories of the splits to filter by")
    for what in ("num_entities", "entity_to_id", "relation_to_id"):
        known = [value for factory in factories if (value := getattr(factory, what, None)) is not None]
        if any(value != known[0] for value in known):
            raise ValueError(f"sources must number their triples alike, but their {what} differ")
    return KnownTriples(*(factory.mapped_triples for factory in factories), num_entities=factories[0].num_entities)


def _places(entities: Any) -> torch.Tensor:
    """Column of each entity id among those that the evaluation is restricted to, -1 elsewhere."""
    ids = torch.as_tensor(entities if isinstance(entities, torch.Tensor) else list(entities), device="cpu")
    place = torch.full((int(ids.max()) + 1,), -1, device="cpu")
    place[ids] = torch.arange(len(ids), device="cpu")
    return place
