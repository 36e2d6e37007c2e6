"""PyKEEN: evaluators for its pipelines, rank tables, and the direction of a metric."""

from __future__ import annotations  # the reference is built without PyKEEN

import inspect
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from torchrankmetrics.definitions.protocol import Average, View
from torchrankmetrics.definitions.sample import RankType
from torchrankmetrics.errors import missing_extra, warn
from torchrankmetrics.kg.known_triples import KnownTriples, as_triples, split_facts
from torchrankmetrics.metrics.collection import RankCollection
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.names import Metrics, parse_name
from torchrankmetrics.null.expectation.provider import ExpectationProvider
from torchrankmetrics.ranking.arrays import Integers, as_ids
from torchrankmetrics.ranking.counting import chosen
from torchrankmetrics.ranking.ranks import Ranks, rank_dense
from torchrankmetrics.ranking.tasks import read_exclude
from torchrankmetrics.table.columns import SIDE_CODES
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import check_int, shorten

try:
    from pykeen import evaluation as pykeen
    from pykeen.datasets.base import Dataset
    from pykeen.datasets.inductive import InductiveDataset
    from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey as Key
    from pykeen.triples import CoreTriplesFactory
    from pykeen.typing import LABEL_RELATION, InductiveMode, Target as Side
except ModuleNotFoundError as error:
    raise missing_extra("integrations.pykeen", "PyKEEN", "pykeen") from error

Source = CoreTriplesFactory | Dataset | InductiveDataset
Known = KnownTriples | Source | Sequence[Source]
_ID_BITS = 30  # two ids and a side in one int64
_THEIR_KEYS: dict[str, str] = {}  # canonical key -> PyKEEN's
for _key in pykeen.RankBasedMetricResults.metrics:
    with suppress(ValueError):  # a metric that a user has added to PyKEEN
        _THEIR_KEYS[parse_name(_key).measure().key] = _key
_HITS = [f"{view}hits_at_{k}" for view in ("", "adjusted_", "z_") for k in (1, 3, 5, 10)]
# those of PyKEEN's own evaluator, and the tie rate
DEFAULT_METRICS = [*sorted(_THEIR_KEYS.keys() - {*_HITS}), *_HITS, "tie_rate"]


def pykeen_keys(key: str, measure: Measure) -> list[Key]:
    """PyKEEN's keys of a measure; a key that the user chose is the only one."""
    names = [key]
    if key == measure.key:
        name = replace(measure, side="both", rank_type="realistic", average="micro").key
        theirs = _THEIR_KEYS.get(name, name)
        names = [name, theirs] if theirs.endswith("_at_k") else [theirs]
    return [Key(measure.side, cast("Any", measure.rank_type), name) for name in names]


class RankResults(pykeen.RankBasedMetricResults):
    """Results under PyKEEN's keys.

    Metrics that PyKEEN does not have keep their canonical name: ``both.realistic.tie_rate``.

    PyKEEN's adjusted and z-scored hits have one key for all k, ``adjusted_hits_at_k``: here it is k
    = 10.

    Args:
        data (mapping): values by PyKEEN's keys.

    Attributes:
        table (RankTable): all ranks.

    >>> from pykeen.datasets import Nations
    >>> from pykeen.models import DistMult
    >>> from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator
    >>> dataset = Nations()
    >>> model = DistMult(triples_factory=dataset.training, random_seed=0)
    >>> evaluator = RankCollectionEvaluator(["mrr", "amri"], known=dataset)
    >>> triples = dataset.testing.mapped_triples
    >>> results = evaluator.evaluate(model, triples, use_tqdm=False, batch_size=64)
    >>> 0 < results.get_metric("tail.realistic.mrr") < 1
    True
    """

    table: RankTable

    @classmethod
    def key_from_string(cls, s: str | None) -> Key:
        """Read any name of a metric, PyKEEN's or ours, as PyKEEN's key.

        Raises ValueError for an unknown name.
        """
        try:
            measure = parse_name("mrr" if s is None else s).measure()
        except ValueError:
            with suppress(Exception):  # class_resolver has a dozen kinds
                return super().key_from_string(s)
            raise
        return pykeen_keys(measure.key, measure)[0]

    def get_metric(self, name: str | Key) -> float:
        """Value of a metric by any name; ValueError if it was not computed."""
        return self.data[find_key(self.data, name, "was not computed")]

    def to_dict(self) -> Mapping[str, Any]:
        """Nest the values by side, rank type and metric, as strict JSON; NaN values are omitted."""
        finite: Any = {key: value for key, value in self.data.items() if np.isfinite(value)}
        return pykeen.RankBasedMetricResults(finite).to_dict()


def find_key(known: Mapping[Key, object], name: str | Key, fault: str) -> Key:
    """Key of a metric by any name; ValueError with ``fault`` if it is not in ``known``."""
    exact = {".".join(key): key for key in known}  # definitions of a user have no known name
    key = exact[name] if name in exact else RankResults.string_or_key_to_key(name)
    if key not in known:
        there = sorted({one.metric for one in known})
        raise ValueError(f"{shorten(name)} ({'.'.join(key)}) {fault}; there are {', '.join(there)}")
    return key


def known_triples(*sources: Source) -> KnownTriples:
    """``KnownTriples`` of triples factories, or of datasets.

    Args:
        *sources (CoreTriplesFactory or Dataset): splits, or a dataset with all its splits (of an
            inductive one: inference, validation and test).

    Returns:
        The index of all their triples.

    Raises:
        TypeError, ValueError: for other or no sources, or if they number entities or relations
            differently.

    >>> from pykeen.datasets import Nations
    >>> from torchrankmetrics.integrations.pykeen import known_triples
    >>> dataset = Nations()
    >>> known = known_triples(dataset)
    >>> known.num_candidates(dataset.testing.mapped_triples[:2], "tail")
    tensor([9, 7])
    """
    factories: list[Any] = []
    for source in sources:
        parts: Any = source.factory_dict.values() if isinstance(source, Dataset) else [source]
        if isinstance(source, InductiveDataset):
            parts = (
                source.inductive_inference,
                source.inductive_validation,
                source.inductive_testing,
            )
            parts = [part for part in parts if part is not None]
        factories += parts
    if wrong := [
        type(part).__name__ for part in factories if not isinstance(part, CoreTriplesFactory)
    ]:
        raise TypeError(f"sources must be triples factories or datasets of PyKEEN, got {wrong[0]}")
    if not factories:
        raise ValueError(
            "sources is empty: pass a dataset, or the triples factories of the splits to filter by"
        )
    # factories without labels lack the last two
    for name in ("num_entities", "entity_to_id", "relation_to_id"):
        numberings = [
            own for factory in factories if (own := getattr(factory, name, None)) is not None
        ]
        if any(own != numberings[0] for own in numberings):
            raise ValueError(
                "sources must number their triples alike, but their entities or relations differ"
            )
    return KnownTriples(
        *(factory.mapped_triples for factory in factories), num_entities=factories[0].num_entities
    )


class RankCollectionEvaluator(pykeen.Evaluator[Key]):
    """Evaluator for PyKEEN's ``pipeline``, evaluation loops, early stopper and ``hpo_pipeline``.

    A NaN score counts against the model; ``LCWAEvaluationLoop`` marks filtered candidates with NaN:
    pass ``known``. ``collection`` has the ranks of the last evaluation, with relations as groups
    and triple indices as sample ids.

    Args:
        metrics (sequence of str, default None): names of metrics, definitions, or a dict of key ->
            name or definition; None: PyKEEN's, and the tie rate.
        add_defaults (bool, default False): whether the default metrics are computed beside a list
            of ``metrics``.
        views (sequence of str, default ("base",)): "base", "normalized", "adjusted_index",
            "z_score" or "p_value", one or several.
        rank_types (sequence of str): "realistic", "optimistic", "pessimistic" or "expected", one or
            several; default all three of PyKEEN.
        average (str, default "micro"): "macro" weighs queries equally, as
            ``MacroRankBasedEvaluator``, and the group of a rank is its query.
        expectation (ExpectationProvider, default None): source of the null moments; None: exact.
        filtered (bool, default True): whether known triples are left out of the candidates.
        known (KnownTriples, Dataset or CoreTriplesFactory, default None): further triples to
            filter, one or several sources; in loops with the evaluated triples.
        clear_on_finalize (bool, default True): if False, evaluations accumulate until ``clear``.
        batch_size, slice_size, mode (default None): arguments of PyKEEN's ``Evaluator``.
        backend (str, default "auto"): "auto", "torch" or "numba"; the ranks are the same.

    Raises:
        TypeError, ValueError: as ``RankCollection`` and ``known_triples``; and if known is given,
            but not filtered.

    >>> from pykeen.datasets import Nations
    >>> from pykeen.models import DistMult
    >>> from torchrankmetrics.integrations.pykeen import RankCollectionEvaluator
    >>> dataset = Nations()
    >>> model = DistMult(triples_factory=dataset.training, random_seed=0)
    >>> evaluator = RankCollectionEvaluator(["mrr", "amri"], known=dataset)
    >>> triples = dataset.testing.mapped_triples
    >>> results = evaluator.evaluate(model, triples, use_tqdm=False, batch_size=64)
    >>> len(results.table)
    402
    """

    metric_result_cls = RankResults

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        add_defaults: bool = False,
        views: Sequence[View] = ("base",),
        rank_types: Sequence[RankType] = ("realistic", "optimistic", "pessimistic"),
        average: Average = "micro",
        expectation: ExpectationProvider | None = None,
        filtered: bool = True,
        known: Known | None = None,
        clear_on_finalize: bool = True,
        batch_size: int | None = None,
        slice_size: int | None = None,
        mode: InductiveMode | None = None,
        backend: str = "auto",
    ) -> None:
        if known is not None and not filtered:
            raise ValueError(
                "known must be None if filtered is False, got known triples; leave one of them out"
            )
        chosen(torch.empty(0, 0, device="cpu"), backend)  # an error before a model is trained
        # the mask distinguishes filtered scores from NaN scores of the model
        super().__init__(filtered, filtered, batch_size, slice_size, mode)
        requested: Any = DEFAULT_METRICS if metrics is None else metrics
        if add_defaults and not isinstance(requested, str | Mapping):
            requested = [*requested, *DEFAULT_METRICS]
        options: Any = {
            "views": views,
            "rank_types": rank_types,
            "average": average,
            "expectation": expectation,
        }
        self.collection = RankCollection(requested, sides=("both", "head", "tail"), **options)
        self.average = average
        self.backend = backend
        self.clear_on_finalize = clear_on_finalize
        if known is not None and not isinstance(known, KnownTriples):
            known = known_triples(*known) if isinstance(known, Sequence) else known_triples(known)
        self._known = known
        # column of each entity, -1: none; None: all entities are columns
        self._columns_of: Tensor | None = None
        self.clear()

    def evaluate(self, *args: Any, **kwargs: Any) -> RankResults:
        """Evaluate as ``pykeen.evaluation.Evaluator.evaluate`` does, with its arguments."""
        given = inspect.signature(super().evaluate).bind(*args, **kwargs).arguments
        if (restricted := given.get("restrict_entities_to")) is not None:
            entities = [int(entity) for entity in restricted]
            self._num_entities = given["model"].num_entities
            largest = max(*entities, int(given["mapped_triples"].max()), self._num_entities - 1)
            self._columns_of = torch.full((largest + 1,), -1)
            self._columns_of[entities] = torch.arange(len(entities))
        try:
            return cast("RankResults", super().evaluate(*args, **kwargs))
        finally:
            self._columns_of = None

    def _add_relation_metrics(self) -> None:
        """Add metrics of relations for each metric that was requested of both sides."""
        there = self.collection.measures
        both = [one for one in there.values() if one.side == "both"]
        relations = [
            replace(one, side="relation") for one in both if replace(one, side="head").key in there
        ]
        self.collection.add_metrics([one for one in relations if one.key not in there])

    def process_scores_(
        self,
        hrt_batch: Tensor,
        target: Side,
        scores: Tensor,
        true_scores: Any = None,
        dense_positive_mask: Any = None,
    ) -> None:
        """Rank a batch; PyKEEN calls it."""
        if not self._ranked:
            self.clear()
        queries, answers = split_facts(hrt_batch, target)
        own = self._columns(answers)
        if (own < 0).any():
            missing = (
                f"the {target} of every evaluated triple; {int(answers[own < 0][0])} is missing"
            )
            raise ValueError(f"restrict_entities_to must contain {missing}")
        exclude = self._exclude(hrt_batch, target, scores, own, dense_positive_mask)
        ranks = self._rank(hrt_batch, target, scores, own, exclude)
        first = self._ranked.get(target, 0)
        # few evaluations rank relations: others would compute a third more
        if target == LABEL_RELATION and first == 0:
            self._add_relation_metrics()
        group = hrt_batch[:, 1]
        if self.average == "macro":
            group = ((SIDE_CODES[target] << _ID_BITS | queries[:, 0]) << _ID_BITS) | queries[:, 1]
        sample_id = torch.arange(first, first + len(own), device=own.device)
        self.collection.update(ranks, side=target, group=group, sample_id=sample_id)
        self._ranked[target] = first + len(own)

    def clear(self) -> None:
        """Reset the ranks; PyKEEN calls it before an evaluation, except in evaluation loops."""
        self.collection.reset()
        self._lost: dict[Side, Tensor] = {}  # columns that were NaN in every row
        self._ranked: dict[Side, int] = {}  # number of ranked triples; empty before an evaluation

    def finalize(self) -> RankResults:
        """Return the results of the ranked sides.

        ``collection`` stores the ranks until the next batch.
        """
        if not self._ranked:
            raise ValueError("no ranks: call evaluate first")
        for target, columns in self._lost.items():
            if (lost := columns.nonzero()[:, 0].tolist()) and self._ranked[target] > 1:
                number = f"{len(lost)} of {len(columns)} columns"
                some = f"{number} of the {target} scores {shorten(tuple(lost))}"
                remedy = "pass known= to the evaluator: then a NaN score counts against the model"
                warn(f"{some} were NaN in every row and were excluded as filtered; {remedy}")
        values = self.collection.compute()
        results = RankResults(
            {key: float(values[name]) for key, (name, _) in self.computed(self._ranked).items()}
        )
        results.table = self.collection.table()
        if self.clear_on_finalize:
            self._ranked = {}
        return results

    def computed(self, sides: Collection[str] = ("head", "tail")) -> dict[Key, tuple[str, Measure]]:
        """Map PyKEEN's keys to keys and measures of ``collection``, for the ranked sides."""
        computed = [
            one for one in self.collection.measures.items() if one[1].side in ("both", *sides)
        ]
        return {key: one for one in computed for key in pykeen_keys(*one)}

    def _rank(
        self, hrt_batch: Tensor, target: Side, scores: Tensor, own: Tensor, exclude: Any
    ) -> Ranks:
        # PyKEEN's filter is a look-up of known positives, in a form of its own
        known = read_exclude(exclude, scores.shape, scores.device)
        return rank_dense(scores, own, known, backend=self.backend)

    def _columns(self, ids: Tensor) -> Tensor:
        return ids if self._columns_of is None else self._columns_of.to(ids.device)[ids]

    def _exclude(
        self, hrt_batch: Tensor, target: Side, scores: Tensor, own: Tensor, mask: Tensor | None
    ) -> Any:
        """Return the excluded candidates of scores (B, N), as bool or as (rows, columns).

        The target of row i is in column own[i].
        """
        if self._known is None:
            if mask is not None or not self.filtered:
                return None if mask is None else mask != 0
            lost = scores.isnan()
            self._lost[target] = lost.all(0) & self._lost.get(
                target, torch.tensor(True, device=lost.device)
            )
            # if the target score is NaN, other NaN scores may come from the model
            return lost & ~lost.gather(1, own[:, None])
        entities = self._known.num_entities
        columns = scores.shape[1] if self._columns_of is None else self._num_entities
        if target != LABEL_RELATION and entities > columns:
            raise ValueError(
                f"known has {entities} entities, but the {target} scores have {columns} columns"
            )
        row, answer = getattr(self._known, f"{target}s")(
            *split_facts(hrt_batch, target)[0].T
        ).pairs()
        column = self._columns(answer)
        pairs = row[column >= 0], column[column >= 0]
        if mask is not None:
            return (mask != 0).index_put_(pairs, torch.tensor(True, device=mask.device))
        # an evaluation loop replaces the scores of filtered candidates by NaN
        if len(
            new := hrt_batch[
                ~torch.isin(torch.arange(len(own), device=own.device), row[column == own[row]])
            ]
        ):
            missing = f"the evaluated ones included; {new[0].tolist()} is missing"
            raise ValueError(f"known must contain all filtered triples, {missing}")
        return pairs  # a mask would take a third longer


class SampledRankCollectionEvaluator(RankCollectionEvaluator):
    """``RankCollectionEvaluator`` that ranks each true entity among sampled ones.

    It samples as PyKEEN's ``SampledRankBasedEvaluator``.

    The ranks are marked as sampled. Sampled candidates that the evaluation
    filters are excluded.

    Args:
        evaluation_factory (CoreTriplesFactory): the triples that will be evaluated.
        metrics (sequence of str, default None): names of metrics, definitions, or a dict of key ->
            name or definition.
        additional_filter_triples (Tensor or list, default None): (n, 3) known triples that are not
            sampled.
        num_negatives (int, default None): how many are sampled per triple and side; None: 50.
        head_negatives, tail_negatives (Tensor, default None): (triples, M) entities instead of a
            sample; both or none.
        **kwargs (object): other arguments of ``RankCollectionEvaluator``.

    Raises:
        ValueError: if there are fewer entities than negatives, one side's are missing, or not one
            row per triple.

    >>> from pykeen.datasets import Nations
    >>> from pykeen.models import DistMult
    >>> from torchrankmetrics.integrations.pykeen import SampledRankCollectionEvaluator
    >>> dataset = Nations()
    >>> model = DistMult(triples_factory=dataset.training, random_seed=0)
    >>> evaluator = SampledRankCollectionEvaluator(dataset.testing, ["mrr"], num_negatives=5)
    >>> known = [dataset.training.mapped_triples]
    >>> options = {"additional_filter_triples": known, "use_tqdm": False, "batch_size": 64}
    >>> results = evaluator.evaluate(model, dataset.testing.mapped_triples, **options)
    >>> results.table.ranks.num_candidates.max()
    tensor(6)
    """

    def __init__(
        self,
        evaluation_factory: CoreTriplesFactory,
        metrics: Metrics | None = None,
        *,
        additional_filter_triples: Tensor | list[Tensor] | None = None,
        num_negatives: int | None = None,
        head_negatives: Tensor | None = None,
        tail_negatives: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(metrics, **kwargs)
        if head_negatives is None and tail_negatives is None:
            num_negatives = 50 if num_negatives is None else num_negatives
            check_int("num_negatives", num_negatives, 1, evaluation_factory.num_entities + 1)
        number = evaluation_factory.num_triples
        options: Any = {
            "additional_filter_triples": additional_filter_triples,
            "num_negatives": num_negatives,
        }
        for name, given in (("head_negatives", head_negatives), ("tail_negatives", tail_negatives)):
            if given is not None:
                options[name] = ids = as_ids(given, name)
                if ids.ndim != 2 or len(ids) != number:
                    raise ValueError(
                        f"{name} must be ({number}, M), one row per triple; got {tuple(ids.shape)}"
                    )
        theirs = pykeen.SampledRankBasedEvaluator(evaluation_factory, **options)
        self.negative_samples = theirs.negative_samples
        self._index = theirs.triple_to_index

    def _rank(
        self, hrt_batch: Tensor, target: Side, scores: Tensor, own: Tensor, exclude: Any
    ) -> Ranks:
        if target not in self.negative_samples:
            raise ValueError(
                f"candidates are sampled for head and tail; got target {shorten(target)}"
            )
        if self._columns_of is not None:
            raise ValueError(
                "restrict_entities_to does not go with sampled candidates: pass head_ and "
                "tail_negatives"
            )
        batch = list(map(tuple, hrt_batch.tolist()))
        if new := set(batch) - self._index.keys():
            raise ValueError(
                f"evaluation_factory must contain all triples evaluated; {list(min(new))} is new"
            )
        negatives = self.negative_samples[target][[self._index[triple] for triple in batch]].to(
            own.device
        )
        if isinstance(exclude, tuple):
            exclude = torch.zeros_like(scores, dtype=torch.bool).index_put_(
                exclude, torch.tensor(True)
            )
        exclude = None if exclude is None else exclude.gather(1, negatives)
        true = scores.gather(1, own[:, None])[:, 0]
        return Ranks.from_negatives(
            true, scores.gather(1, negatives), exclude=exclude, backend=self.backend
        )


for _evaluator in (RankCollectionEvaluator, SampledRankCollectionEvaluator):
    # a module may be loaded again
    pykeen.evaluator_resolver.register(_evaluator, raise_on_conflict=False)


def early_stopping(
    metric: str = "mrr", evaluator: RankCollectionEvaluator | None = None, **options: Any
) -> dict[str, Any]:
    """``stopper_kwargs`` of PyKEEN's early stopper with the direction of the metric.

    PyKEEN does not look at the direction.

    Args:
        metric (str, default "mrr"): any name of one that the evaluator computes.
        evaluator (RankCollectionEvaluator, default None): that of the pipeline; None: one with the
            default metrics.
        **options (object): further ``stopper_kwargs``.

    Returns:
        Keyword arguments for ``pipeline(stopper_kwargs=...)``.

    Raises:
        TypeError, ValueError: for another evaluator; if the metric is unknown, has no direction, or
            is not computed.

    >>> from torchrankmetrics.integrations.pykeen import early_stopping
    >>> early_stopping("mr", frequency=5)
    {'metric': 'both.realistic.arithmetic_mean_rank', 'larger_is_better': False, 'frequency': 5}
    """
    evaluator = RankCollectionEvaluator() if evaluator is None else evaluator
    if not isinstance(evaluator, RankCollectionEvaluator):
        raise TypeError(
            f"evaluator must be a RankCollectionEvaluator, got {type(evaluator).__name__}"
        )
    computed = evaluator.computed()
    key = find_key(
        computed, metric, "is not computed by the evaluator (pass your evaluator as evaluator=)"
    )
    if (larger := computed[key][1].higher_is_better) is None:
        raise ValueError(
            f"{shorten(metric)} has no direction: neither a high nor a low value is better"
        )
    return {"metric": ".".join(key), "larger_is_better": larger, **options}


def objective(
    metric: str = "mrr", evaluator: RankCollectionEvaluator | None = None
) -> dict[str, str]:
    """``metric`` and ``direction`` for ``hpo_pipeline``, which maximizes every metric by default.

    Args:
        metric (str, default "mrr"): any name of one that the evaluator computes.
        evaluator (RankCollectionEvaluator, default None): that of the search; None: one with the
            default metrics.

    Returns:
        Keyword arguments for ``hpo_pipeline``; errors as ``early_stopping``.

    >>> from torchrankmetrics.integrations.pykeen import objective
    >>> objective("tail_mr")
    {'metric': 'tail.realistic.arithmetic_mean_rank', 'direction': 'minimize'}
    """
    name, larger = early_stopping(metric, evaluator).values()
    return {"metric": name, "direction": "maximize" if larger else "minimize"}


def rank_table(evaluator: pykeen.Evaluator[Any], triples: Integers | None = None) -> RankTable:
    """Ranks of a finished evaluation; a ``RankBasedEvaluator`` needs ``clear_on_finalize=False``.

    Args:
        evaluator (RankBasedEvaluator or RankCollectionEvaluator): after its ``evaluate``.
        triples (integers, default None): (n, 3) that were evaluated, whose relations become groups.

    Returns:
        One row per task, head before tail, with the triple's index as sample id, without PyKEEN's
        macro weights.

    Raises:
        TypeError, ValueError: for another evaluator, cleared ranks, ranks of NaN scores, or other
            triples.

    >>> from pykeen.datasets import Nations
    >>> from pykeen.evaluation import RankBasedEvaluator
    >>> from pykeen.models import DistMult
    >>> from torchrankmetrics.integrations.pykeen import rank_table
    >>> dataset = Nations()
    >>> model = DistMult(triples_factory=dataset.training, random_seed=0)
    >>> evaluator = RankBasedEvaluator(clear_on_finalize=False)
    >>> known = [dataset.training.mapped_triples]
    >>> options = {"additional_filter_triples": known, "use_tqdm": False, "batch_size": 64}
    >>> _ = evaluator.evaluate(model, dataset.testing.mapped_triples, **options)
    >>> len(rank_table(evaluator, dataset.testing.mapped_triples))
    402
    """
    if isinstance(evaluator, RankCollectionEvaluator):
        table = evaluator.collection.table()
    elif isinstance(evaluator, pykeen.RankBasedEvaluator):
        table = _table_of_pykeen(evaluator)
    else:
        got = type(evaluator).__name__
        raise TypeError(
            f"evaluator must be a RankBasedEvaluator or a RankCollectionEvaluator, got {got}"
        )
    if not len(table):
        raise ValueError(
            "evaluator has no ranks; call evaluate first, PyKEEN's with clear_on_finalize=False"
        )
    if triples is None:
        return table
    relation = as_triples(triples, "triples")[:, 1]
    number = int(table.sample_id.max()) + 1
    if len(relation) != number:
        raise ValueError(f"triples must be the {number} that were evaluated, got {len(relation)}")
    return table.with_group(relation.to(table.rows.device)[table.sample_id])


def _table_of_pykeen(evaluator: pykeen.RankBasedEvaluator) -> RankTable:
    """Ranks that an evaluator of PyKEEN has collected, head before tail."""
    sampled = isinstance(evaluator, pykeen.SampledRankBasedEvaluator)
    tables = []
    for side in sorted(evaluator.num_candidates, key=SIDE_CODES.__getitem__):
        low = np.concatenate(evaluator.ranks[side, "optimistic"])
        columns: Any = {
            "optimistic": low,
            "pessimistic": np.concatenate(evaluator.ranks[side, "pessimistic"]),
            "num_candidates": np.concatenate(evaluator.num_candidates[side]),
            "sample_id": np.arange(len(low)),
            "side": SIDE_CODES[side],
            "sampled": sampled,
        }
        tables.append(RankTable.from_numpy(columns))
    return RankTable.concatenate(tables)
