"""Names of metrics: what PyKEEN's users write as ours, ours as PyKEEN's keys."""

from __future__ import annotations  # the reference is built without PyKEEN

import re
from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from typing import Any, cast

from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey
from pykeen.metrics.ranking import RankBasedMetric, rank_based_metric_resolver
from torchmetrics import MetricCollection

from torchrankmetrics.evaluation.analysis import Side
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import MetricName, parse_name
from torchrankmetrics.metrics.metric import RankMetric
from torchrankmetrics.theory.sample import RankType

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
Requested = One | Collection[One] | Mapping[str, One] | MetricCollection
Keywords = Mapping[str, object] | Collection[Mapping[str, object] | None]
_WITHOUT_K = {"adjusted_hits_at_10": "adjusted_hits_at_k", "z_hits_at_10": "z_hits_at_k"}
_HITS = [f"{view}hits_at_{k}" for view in ("", "adjusted_", "z_") for k in (1, 3, 5, 10)]
DEFAULT_METRICS = (*THEIR_NAMES, *_HITS, "median_rank", "inverse_median_rank", "count", "tie_rate")
"""All that PyKEEN's own evaluator gives, and the tie rate."""


def requested_metrics(
    metrics: Requested | None, metrics_kwargs: Keywords | None, add_defaults: bool
) -> list[str | RankMetric] | dict[str, str | RankMetric]:
    """Give what an evaluator was asked for as ``RankCollection`` takes it.

    Args:
        metrics: names of either package, ``RankMetric``, PyKEEN's metric classes or instances, one or several, or a
            dict of key -> one of them; None: the default ones.
        metrics_kwargs: of PyKEEN's metrics, a dict for all or one per metric.
        add_defaults: whether the default ones come behind.

    Raises:
        TypeError: for metrics or arguments of another kind.
        ValueError: if a metric is unknown or has no counterpart here, or the numbers differ.
    """
    if metrics is None:
        if metrics_kwargs is not None:
            raise ValueError("metrics_kwargs need metrics that they belong to, but metrics is None")
        return list(DEFAULT_METRICS)
    if isinstance(metrics, MetricCollection):
        metrics = dict(metrics.items(keep_base=True, copy_state=False))
    if isinstance(metrics, Mapping):
        if metrics_kwargs is not None or add_defaults:
            raise ValueError("metrics as a dict takes neither metrics_kwargs nor add_defaults: its entries say all")
        return {key: _metric(entry, None) for key, entry in metrics.items()}
    if isinstance(metrics, str | RankMetric | RankBasedMetric | type) or not isinstance(metrics, Collection):
        metrics = [metrics]
    queries = sorted(metrics, key=str) if isinstance(metrics, Set) else list(metrics)
    if metrics_kwargs is None or isinstance(metrics_kwargs, Mapping):
        options = [metrics_kwargs] * len(queries)
    else:
        options = list(metrics_kwargs)
        queries = queries * len(options) if len(queries) == 1 else queries
    if len(options) != len(queries):
        raise ValueError(f"metrics_kwargs must be one dict, or one per metric: {len(queries)}; got {len(options)}")
    asked = [_metric(query, kwargs) for query, kwargs in zip(queries, options, strict=True)]
    return [*asked, *(name for name in DEFAULT_METRICS if name not in asked)] if add_defaults else asked


def relation_metrics(metrics: list[str | RankMetric] | dict[str, str | RankMetric]) -> list[str]:
    """Names for the side "relation" of those among requested metrics that say no side."""
    names = [parse_name(metric) for metric in metrics if isinstance(metric, str)] if isinstance(metrics, list) else []
    written = [f"relation_{_written(name)}" for name in names if name.side is None]
    return [name for name in written if name not in metrics]


def parse_metric(name: str) -> MetricName:
    """Read a name where PyKEEN may have left out k, or put it last: ``hits@k``, ``hits_at_k.5``."""
    found = re.fullmatch(r"(.*(?:@|_at_))k?(?:\.(\d+))?", name.strip().lower())
    return parse_name(f"{found[1]}{found[2] or 10}" if found else name)


def pykeen_key(side: Side, rank_type: RankType, name: str) -> RankBasedMetricKey:
    """PyKEEN's key of a canonical name."""
    return RankBasedMetricKey(side, cast("Any", rank_type), THEIR_NAMES.get(name, name))


def measure_key(measure: Measure) -> RankBasedMetricKey:
    """PyKEEN's key of a measure."""
    return pykeen_key(
        measure.side, measure.rank_type, replace(measure, side="both", rank_type="realistic", average="micro").key
    )


def pykeen_keys(key: str, measure: Measure) -> list[RankBasedMetricKey]:
    """Under what a measure of a collection is found; with a key of the user's choice under that alone."""
    if key != measure.key:
        return [pykeen_key(measure.side, measure.rank_type, key)]
    name = replace(measure, side="both", rank_type="realistic", average="micro").key
    names = [name, *([_WITHOUT_K[name]] if name in _WITHOUT_K else [])]
    return [pykeen_key(measure.side, measure.rank_type, one) for one in names]


def _metric(query: One, kwargs: Mapping[str, object] | None) -> str | RankMetric:
    if isinstance(query, str) and not kwargs:
        return _name(query)
    if isinstance(query, RankMetric):
        if kwargs:
            raise ValueError(f"metrics_kwargs are for PyKEEN's metrics; {query.key!r} is built already, got {kwargs}")
        return query
    known = isinstance(query, type) and issubclass(query, RankBasedMetric)
    if not known and not isinstance(query, str | RankBasedMetric):
        got = query.__name__ if isinstance(query, type) else type(query).__name__
        raise TypeError(f"metrics must be names, RankMetric, or metrics of PyKEEN, got {got}")
    return _name_of(_resolve(query, kwargs))


def _name(query: str) -> str:
    try:
        return _written(parse_metric(query), sided=True)
    except ValueError:
        try:  # PyKEEN also takes names of classes: HitsAtK
            return _name_of(_resolve(query, None))
        except (LookupError, TypeError):
            pass
        raise


def _resolve(
    query: str | RankBasedMetric | type[RankBasedMetric], kwargs: Mapping[str, object] | None
) -> RankBasedMetric:
    metric: RankBasedMetric = rank_based_metric_resolver.make(query, kwargs)
    return metric


def _name_of(metric: RankBasedMetric) -> str:
    """Canonical name of a metric of PyKEEN."""
    fault = f"metrics: {type(metric).__name__} of PyKEEN has no counterpart here; pass RankMetric(RankDefinition(...))"
    if type(metric).__module__ != RankBasedMetric.__module__:  # a user's, whatever its name
        raise ValueError(fault)
    k = getattr(getattr(metric, "base", metric), "k", None)  # keys of adjusted and z hits do not say it
    try:
        return _written(parse_name(re.sub(r"_at_k$", f"_at_{k}", metric.key)))
    except ValueError:
        raise ValueError(fault) from None


def _written(name: MetricName, sided: bool = False) -> str:
    """A parsed name in canonical words, saying no more than it said."""
    parts = [name.side if sided else None, name.rank_type, Measure(name.definition, name.view or "base").key]
    return "_".join(part for part in parts if part)
