"""Names of metrics as PyKEEN's keys, and results under them."""

from __future__ import annotations  # the reference is built without PyKEEN

import re
from dataclasses import replace
from typing import Any

from pykeen.evaluation import RankBasedMetricResults
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey

from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.names import MetricName, parse_name
from torchrankmetrics.table.rank_table import RankTable

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

_WITHOUT_K = {"adjusted_hits_at_10": "adjusted_hits_at_k", "z_hits_at_10": "z_hits_at_k"}
_HITS = [f"{view}hits_at_{k}" for view in ("", "adjusted_", "z_") for k in (1, 3, 5, 10)]
DEFAULT_METRICS = (*THEIR_NAMES, *_HITS, "median_rank", "inverse_median_rank", "count")
"""All that PyKEEN's own evaluator gives."""


class RankResults(RankBasedMetricResults):
    """Results under PyKEEN's keys; what PyKEEN lacks is under its canonical name, such as ``both.realistic.tie_rate``.

    PyKEEN's adjusted and z-scored hits have one key for all k, ``adjusted_hits_at_k``: here it is k = 10, and each k
    has a key of its own beside it. ``get_metric`` takes any synonym of either side.

    Attributes:
        table: all ranks: save it, compare it, or ask it for any other metric.
    """

    table: RankTable

    @classmethod
    def key_from_string(cls, s: str | None) -> RankBasedMetricKey:
        """Read any name of a metric, PyKEEN's or ours, as PyKEEN's key.

        Raises:
            ValueError: if it is unknown; the message names the nearest.
        """
        if s is None:
            return super().key_from_string(None)
        try:
            name = parse_metric(s)
        except ValueError as error:
            try:
                return super().key_from_string(s)
            except Exception:  # class_resolver has a dozen kinds
                raise error from None
        return measure_key(name.measure())

    def get_metric(self, name: str | RankBasedMetricKey) -> float:
        """Value of a metric by name.

        Raises:
            ValueError: if it was not computed, with those that were.
        """
        exact = {self.key_to_string(known): known for known in self.data}  # definitions of a user have no known name
        key = exact[name] if name in exact else self.string_or_key_to_key(name)
        if key not in self.data:
            there = sorted({known.metric for known in self.data})
            raise ValueError(f"{name!r} ({'.'.join(key)}) was not computed; there are {', '.join(there)}")
        return self.data[key]


def parse_metric(name: str) -> MetricName:
    """Read a name where PyKEEN may have left out k, or put it last: ``hits@k``, ``hits_at_k.5``."""
    found = re.fullmatch(r"(.*(?:@|_at_))k?(?:\.(\d+))?", name.strip().lower())
    return parse_name(f"{found[1]}{found[2] or 10}" if found else name)


def higher_is_better(metric: str) -> bool:
    """Direction of a metric by name.

    Raises:
        ValueError: if it is unknown or has none.
    """
    higher = parse_metric(metric).measure().higher_is_better
    if higher is None:
        raise ValueError(f"{metric!r} has no direction: neither a high nor a low value is better")
    return higher


def pykeen_key(side: Any, rank_type: Any, name: str) -> RankBasedMetricKey:
    """PyKEEN's key of a canonical name."""
    return RankBasedMetricKey(side, rank_type, THEIR_NAMES.get(name, name))


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
