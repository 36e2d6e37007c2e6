"""PyKEEN: evaluators that fill a RankCollection, finished evaluations as RankTable, triples as KnownTriples.

To import it makes ``evaluator="rankcollection"`` and ``"sampledrankcollection"`` known to PyKEEN.
"""

from __future__ import annotations  # the reference is built without PyKEEN

from pykeen.evaluation import RankBasedEvaluator, evaluator_resolver

from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.integrations.pykeen_evaluator import RankCollectionEvaluator
from torchrankmetrics.integrations.pykeen_results import RankResults, find_key
from torchrankmetrics.integrations.pykeen_sampled import SampledRankCollectionEvaluator
from torchrankmetrics.integrations.pykeen_sources import known_triples, relation_of, table_of_ranks
from torchrankmetrics.ranking.arrays import Integers
from torchrankmetrics.theory.candidates import IntArray

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
        metric: any name of one that the evaluator computes.
        evaluator: that of the pipeline; None: one with the default metrics.
        **options: further ``stopper_kwargs``.

    Raises:
        TypeError: if the evaluator is another.
        ValueError: if the metric is unknown, has no direction, or is not computed by the evaluator.

    >>> early_stopping("mr", frequency=5)
    {'metric': 'both.realistic.arithmetic_mean_rank', 'larger_is_better': False, 'frequency': 5}
    """
    name, larger = _directed(metric, evaluator)
    return {"metric": name, "larger_is_better": larger, **options}


def objective(metric: str = "mrr", evaluator: RankCollectionEvaluator | None = None) -> dict[str, str]:
    """``metric`` and ``direction`` for ``hpo_pipeline``, which maximises whatever the metric unless told.

    Args:
        metric: any name of one that the evaluator computes.
        evaluator: as the search will build it; None: one with the default metrics.

    Raises:
        TypeError: if the evaluator is another.
        ValueError: if the metric is unknown, has no direction, or is not computed by the evaluator.

    >>> objective("tail_mr")
    {'metric': 'tail.realistic.arithmetic_mean_rank', 'direction': 'minimize'}
    """
    name, larger = _directed(metric, evaluator)
    return {"metric": name, "direction": "maximize" if larger else "minimize"}


def rank_table(evaluator: RankBasedEvaluator | RankCollectionEvaluator, triples: Integers | None = None) -> RankTable:
    """Ranks of a finished evaluation, also of a ``RankBasedEvaluator`` that was built with ``clear_on_finalize=False``.

    Args:
        evaluator: after its ``evaluate``; of a sampled one the ranks are marked as sampled.
        triples: (n, 3) that were evaluated: their relation becomes the group; None: the groups that the evaluator
            knows, PyKEEN's none.

    Returns:
        One row per task, head before tail, with the triple's index as sample id. Macro weights of PyKEEN's are not
        taken over.

    Raises:
        TypeError: if it is neither.
        ValueError: if its ranks have been cleared, triples do not fit, or ranks come from NaN scores.
    """
    relation = relation_of(triples)
    if isinstance(evaluator, RankCollectionEvaluator):
        return _own_table(evaluator, relation)
    if not isinstance(evaluator, RankBasedEvaluator):
        raise TypeError(
            f"evaluator must be a RankBasedEvaluator or a RankCollectionEvaluator, got {type(evaluator).__name__}"
        )
    return table_of_ranks(evaluator, relation)


def _own_table(evaluator: RankCollectionEvaluator, relation: IntArray | None) -> RankTable:
    table = evaluator.collection.table()
    if not len(table):
        raise ValueError("evaluator holds no ranks: evaluate first")
    if relation is None:
        return table
    arrays = table.to_numpy()
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
    key = find_key(computed, metric, "is not computed by the evaluator (yours goes in as evaluator=)")
    higher = computed[key][1].higher_is_better
    if higher is None:
        raise ValueError(f"{metric!r} has no direction: neither a high nor a low value is better")
    return ".".join(key), higher
