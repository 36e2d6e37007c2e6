"""Results of an evaluation under PyKEEN's keys, with the ranks they came from."""

from __future__ import annotations  # the reference is built without PyKEEN

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pykeen.evaluation import RankBasedMetricResults
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey

from torchrankmetrics.evaluation.analysis import Analysis
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.rank_table import RankTable
from torchrankmetrics.evaluation.summary import Summary, summarize
from torchrankmetrics.integrations.pykeen_keys import measure_key, parse_metric


class RankResults(RankBasedMetricResults):
    """Results under PyKEEN's keys; what PyKEEN lacks is under its canonical name, such as ``both.realistic.tie_rate``.

    PyKEEN's adjusted and z-scored hits have one key for all k, ``adjusted_hits_at_k``: here it is k = 10, and each k
    has a key of its own beside it. ``get_metric`` takes any synonym of either side.

    Attributes:
        table: all ranks: save it, compare it, or ask it for any other metric.
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
        return self.data[find_key(self.data, name, "was not computed")]

    def to_dict(self) -> Mapping[str, Any]:
        """Nest the values by side, rank type and metric, as strict JSON: NaN has no place there and is left out."""
        finite: dict[RankBasedMetricKey | str, float] = {
            key: value for key, value in self.data.items() if math.isfinite(value)
        }
        result: Mapping[str, Any] = RankBasedMetricResults(finite).to_dict()
        return result

    def summary(self) -> Summary:
        """Base value, adjusted index and z-score of every metric, by side: print it, or read ``rows``.

        Raises:
            ValueError: if the results came without ranks.
        """
        if not self._measures:
            raise ValueError("there are no ranks to summarize: only results of a RankCollectionEvaluator hold theirs")
        return summarize(Analysis([self.table.rows]), self._measures)


def find_key(
    known: Mapping[RankBasedMetricKey, object], name: str | RankBasedMetricKey, fault: str
) -> RankBasedMetricKey:
    """Key of a metric by any name.

    Raises:
        ValueError: if it is unknown, or not among the known ones; the message says so by ``fault``.
    """
    exact = {".".join(key): key for key in known}  # definitions of a user have no known name
    key = exact[name] if name in exact else RankResults.string_or_key_to_key(name)
    if key not in known:
        there = sorted({one.metric for one in known})
        raise ValueError(f"{name!r} ({'.'.join(key)}) {fault}; there are {', '.join(there)}")
    return key
