"""PyKEEN's metric names, results and sources converted to ours and back."""

from __future__ import annotations  # the reference is built without PyKEEN

import math
import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, cast

from pykeen.datasets.base import Dataset
from pykeen.datasets.inductive import InductiveDataset
from pykeen.evaluation import RankBasedMetricResults
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey
from pykeen.metrics.ranking import RankBasedMetric, rank_based_metric_resolver
from pykeen.triples import CoreTriplesFactory
from torchmetrics import MetricCollection

from torchrankmetrics.kg.known_triples import KnownTriples
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.metrics.registry import MetricName, parse_name
from torchrankmetrics.metrics.summary import Summary, summarize
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import shorten

THEIR_NAMES = {
    "mr": "arithmetic_mean_rank",
    "mrr": "inverse_harmonic_mean_rank",
    "imr": "inverse_arithmetic_mean_rank",
    "hmr": "harmonic_mean_rank",
    "gmr": "geometric_mean_rank",
    "igmr": "inverse_geometric_mean_rank",
    "rank_variance": "variance",
    "rank_std": "standard_deviation",
    "rank_mad": "median_absolute_deviation",
    "amr": "adjusted_arithmetic_mean_rank",
    "amri": "adjusted_arithmetic_mean_rank_index",
    "adjusted_mrr": "adjusted_inverse_harmonic_mean_rank",
    "adjusted_gmr": "adjusted_geometric_mean_rank_index",
    "z_mr": "z_arithmetic_mean_rank",
    "z_mrr": "z_inverse_harmonic_mean_rank",
    "z_gmr": "z_geometric_mean_rank",
}
"""Canonical key -> PyKEEN's key, where they differ."""

One = str | RankMetric | RankBasedMetric | type[RankBasedMetric]
Requested = One | Collection[One] | Mapping[str, One]
Keywords = Mapping[str, object] | Collection[Mapping[str, object] | None]
_WITHOUT_K = {"adjusted_hits_at_10": "adjusted_hits_at_k", "z_hits_at_10": "z_hits_at_k"}
_HITS = [f"{view}hits_at_{k}" for view in ("", "adjusted_", "z_") for k in (1, 3, 5, 10)]
# those of PyKEEN's own evaluator, and the tie rate
DEFAULT_METRICS = [*THEIR_NAMES, *_HITS, "median_rank", "inverse_median_rank", "count", "tie_rate"]


def requested_metrics(
    metrics: Requested | None, metrics_kwargs: Keywords | None, add_defaults: bool
) -> list[str | RankMetric] | dict[str, str | RankMetric]:
    """Convert the arguments of ``RankCollectionEvaluator`` to metrics of ``RankCollection``."""
    if metrics is None:
        if metrics_kwargs is not None:
            raise ValueError("metrics_kwargs need metrics that they belong to, but metrics is None")
        return [*DEFAULT_METRICS]
    if isinstance(metrics, MetricCollection):
        got = type(metrics).__name__
        raise TypeError(f"metrics must be a list of names or metrics, got {got}; write a list such as ['mrr', 'mr']")
    if isinstance(metrics, Mapping):
        if metrics_kwargs is not None or add_defaults:
            raise ValueError(
                "metrics as a dict excludes metrics_kwargs and add_defaults; put all metrics into the dict"
            )
        return {key: _metric(entry) for key, entry in metrics.items()}
    if isinstance(metrics, str | type) or not isinstance(metrics, Collection):
        metrics = [metrics]
    entries = sorted(metrics, key=str) if isinstance(metrics, Set) else list(metrics)
    if metrics_kwargs is None or isinstance(metrics_kwargs, Mapping):
        options = [metrics_kwargs] * len(entries)
    else:
        options = list(metrics_kwargs)
        entries = entries * len(options) if len(entries) == 1 else entries
    if len(options) != len(entries):
        raise ValueError(f"metrics_kwargs must be one dict, or one per metric: {len(entries)}; got {len(options)}")
    requested = [_metric(entry, kwargs) for entry, kwargs in zip(entries, options, strict=True)]
    return [*requested, *DEFAULT_METRICS] if add_defaults else requested


def parse_metric(name: str) -> MetricName:
    """Read a name where PyKEEN may have left out k, or put it last: ``hits@k``, ``hits_at_k.5``."""
    found = re.fullmatch(r"(.*(?:@|_at_))k?(?:\.(\d+))?", name.strip().lower())
    return parse_name(f"{found[1]}{found[2] or 10}" if found else name)


def pykeen_keys(key: str, measure: Measure) -> list[RankBasedMetricKey]:
    """PyKEEN's keys of a measure; a key that the user chose is the only one."""
    names = [key]
    if key == measure.key:
        name = replace(measure, side="both", rank_type="realistic", average="micro").key
        names = [name, *([_WITHOUT_K[name]] if name in _WITHOUT_K else [])]
    rank_type = cast("Any", measure.rank_type)
    return [RankBasedMetricKey(measure.side, rank_type, THEIR_NAMES.get(name, name)) for name in names]


def _metric(entry: One, kwargs: Mapping[str, object] | None = None) -> str | RankMetric:
    if isinstance(entry, RankMetric):
        if kwargs:
            raise ValueError(f"metrics_kwargs are for PyKEEN's metrics; {entry.key!r} is built already, got {kwargs}")
        return entry
    if isinstance(entry, str) and not kwargs:
        try:
            return _canonical(parse_metric(entry))
        except ValueError:  # PyKEEN also accepts names of classes: HitsAtK
            if rank_based_metric_resolver.normalize(entry) not in rank_based_metric_resolver.lookup_dict:
                raise
    elif not isinstance(entry, str | RankBasedMetric) and not (
        isinstance(entry, type) and issubclass(entry, RankBasedMetric)
    ):
        got = getattr(entry, "__name__", type(entry).__name__)
        raise TypeError(f"metrics must be names, RankMetric, or metrics of PyKEEN, got {got}")
    return _name_of(rank_based_metric_resolver.make(entry, kwargs))


def _name_of(metric: RankBasedMetric) -> str:
    """Canonical name of a metric of PyKEEN."""
    fault = f"metrics: {type(metric).__name__} of PyKEEN has no counterpart here; pass RankMetric(RankDefinition(...))"
    if type(metric).__module__ != RankBasedMetric.__module__:  # a user's, whatever its name
        raise ValueError(fault)
    k = getattr(getattr(metric, "base", metric), "k", None)  # keys of adjusted and z-scored hits do not contain k
    try:
        return _canonical(parse_name(re.sub(r"_at_k$", f"_at_{k}", metric.key)))
    except ValueError:
        raise ValueError(fault) from None


def _canonical(name: MetricName) -> str:
    parts = name.side, name.rank_type, Measure(name.definition, name.view or "base").key
    return "_".join(part for part in parts if part)


class RankResults(RankBasedMetricResults):
    """Results under PyKEEN's keys; metrics that PyKEEN lacks have their canonical name: ``both.realistic.tie_rate``.

    PyKEEN's adjusted and z-scored hits have one key for all k, ``adjusted_hits_at_k``: here it is k = 10, and each k
    also has its own key. ``get_metric`` accepts any synonym of either package.

    Args:
        data (mapping): values by PyKEEN's keys.

    Attributes:
        table (RankTable): all ranks, to save, to compare, or to compute other metrics.
    """

    table: RankTable
    _measures: Sequence[Measure] = ()

    @classmethod
    def key_from_string(cls, s: str | None) -> RankBasedMetricKey:
        """Read any name of a metric, PyKEEN's or ours, as PyKEEN's key.

        Raises:
            ValueError: if it is unknown; the message names the nearest.
        """
        if s is None:
            return super().key_from_string(None)
        try:
            measure = parse_metric(s).measure()
        except ValueError as error:
            try:
                return super().key_from_string(s)
            except Exception:  # class_resolver has a dozen kinds
                raise error from None
        return pykeen_keys(measure.key, measure)[0]

    def get_metric(self, name: str | RankBasedMetricKey) -> float:
        """Value of a metric by name.

        Raises:
            ValueError: if it was not computed, with those that were.
        """
        return self.data[find_key(self.data, name, "was not computed")]

    def to_dict(self) -> Mapping[str, Any]:
        """Nest the values by side, rank type and metric, as strict JSON; NaN values are omitted."""
        finite: Any = {key: value for key, value in self.data.items() if math.isfinite(value)}
        result: Mapping[str, Any] = RankBasedMetricResults(finite).to_dict()
        return result

    def summary(self) -> Summary:
        """Base value, adjusted index and z-score of every metric, by side: print it, or read ``rows``.

        Raises:
            ValueError: if the results came without ranks.
        """
        if not self._measures:
            raise ValueError("the results have no ranks; only results of a RankCollectionEvaluator can be summarized")
        return summarize(Analysis([self.table.rows]), self._measures)


def find_key(
    known: Mapping[RankBasedMetricKey, object], name: str | RankBasedMetricKey, fault: str
) -> RankBasedMetricKey:
    """Key of a metric by any name; ValueError with ``fault`` if it is not in ``known``."""
    exact = {".".join(key): key for key in known}  # definitions of a user have no known name
    key = exact[name] if name in exact else RankResults.string_or_key_to_key(name)
    if key not in known:
        there = sorted({one.metric for one in known})
        raise ValueError(f"{shorten(name)} ({'.'.join(key)}) {fault}; there are {', '.join(there)}")
    return key


Source = CoreTriplesFactory | Dataset | InductiveDataset
Known = KnownTriples | Source | list[Source] | tuple[Source, ...]


def known_triples(*sources: Source) -> KnownTriples:
    """``KnownTriples`` of triples factories, or of a dataset with all its splits.

    For validation ``known_triples(dataset.training, dataset.validation)``, for the test ``known_triples(dataset)``. Of
    an inductive dataset: inference, validation and test, and training if it numbers entities and relations alike.

    Args:
        *sources (CoreTriplesFactory or Dataset): splits, or a dataset with all its splits.

    Returns:
        The index of all their triples.

    Raises:
        TypeError: if a source is neither.
        ValueError: if sources is empty, or sources number their entities or relations differently.
    """
    factories: list[Any] = []
    for source in sources:
        if isinstance(source, Dataset):
            factories += source.factory_dict.values()
        elif isinstance(source, InductiveDataset):
            inference, training = source.inductive_inference, source.transductive_training
            splits = (inference, source.inductive_validation, source.inductive_testing)
            factories += [factory for factory in splits if factory is not None]
            own, other = (_numbering(factory)[1:] for factory in (inference, training))
            if None not in own and own == other:
                factories.append(training)
        elif isinstance(source, CoreTriplesFactory):
            factories.append(source)
        else:
            raise TypeError(f"sources must be triples factories or datasets of PyKEEN, got {type(source).__name__}")
    if not factories:
        raise ValueError("sources is empty: pass a dataset, or the triples factories of the splits to filter by")
    for values in zip(*map(_numbering, factories), strict=True):
        known = [value for value in values if value is not None]
        if any(value != known[0] for value in known):
            raise ValueError("sources must number their triples alike, but their entities or relations differ")
    return KnownTriples(*(factory.mapped_triples for factory in factories), num_entities=factories[0].num_entities)


def _numbering(factory: CoreTriplesFactory) -> list[Any]:
    """Number of entities and, of a factory with labels, the ids of entities and relations."""
    return [getattr(factory, name, None) for name in ("num_entities", "entity_to_id", "relation_to_id")]
