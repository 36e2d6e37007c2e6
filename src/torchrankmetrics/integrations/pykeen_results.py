"""PyKEEN's metric names, results and datasets converted to ours and back."""

from __future__ import annotations  # the reference is built without PyKEEN

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from pykeen.datasets.base import Dataset
from pykeen.datasets.inductive import InductiveDataset
from pykeen.evaluation import RankBasedMetricResults
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey
from pykeen.triples import CoreTriplesFactory

from torchrankmetrics.kg.known_triples import KnownTriples
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import parse_name
from torchrankmetrics.table.rank_table import RankTable
from torchrankmetrics.validation import shorten


def _their_keys() -> Iterator[tuple[str, str]]:
    for key in RankBasedMetricResults.metrics:
        with suppress(ValueError):  # a metric that a user has added to PyKEEN
            yield parse_name(key).measure().key, key


_THEIR_KEYS = dict(_their_keys())  # canonical key -> PyKEEN's
_HITS = [f"{view}hits_at_{k}" for view in ("", "adjusted_", "z_") for k in (1, 3, 5, 10)]
# those of PyKEEN's own evaluator, and the tie rate
DEFAULT_METRICS = [*sorted(_THEIR_KEYS.keys() - {*_HITS}), *_HITS, "tie_rate"]


def pykeen_keys(key: str, measure: Measure) -> list[RankBasedMetricKey]:
    """PyKEEN's keys of a measure; a key that the user chose is the only one."""
    names = [key]
    if key == measure.key:
        name = replace(measure, side="both", rank_type="realistic", average="micro").key
        theirs = _THEIR_KEYS.get(name, name)
        names = [name, theirs] if theirs.endswith("_at_k") else [theirs]
    return [RankBasedMetricKey(measure.side, cast("Any", measure.rank_type), name) for name in names]


class RankResults(RankBasedMetricResults):
    """Results under PyKEEN's keys; metrics that PyKEEN lacks have their canonical name: ``both.realistic.tie_rate``.

    PyKEEN's adjusted and z-scored hits have one key for all k, ``adjusted_hits_at_k``: here it is k = 10, and each k
    also has its own key. ``get_metric`` accepts any synonym of either package.

    Args:
        data (mapping): values by PyKEEN's keys.

    Attributes:
        table (RankTable): all ranks, to save, to summarize, to compare, or to compute other metrics.
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
            measure = parse_name(s).measure()
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
Known = KnownTriples | Source | Sequence[Source]


def known_triples(*sources: Source) -> KnownTriples:
    """``KnownTriples`` of triples factories, or of a dataset with all its splits.

    For validation ``known_triples(dataset.training, dataset.validation)``, for the test ``known_triples(dataset)``. Of
    an inductive dataset: inference, validation and test.

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
            parts = (source.inductive_inference, source.inductive_validation, source.inductive_testing)
            factories += [part for part in parts if part is not None]
        elif isinstance(source, CoreTriplesFactory):
            factories.append(source)
        else:
            raise TypeError(f"sources must be triples factories or datasets of PyKEEN, got {type(source).__name__}")
    if not factories:
        raise ValueError("sources is empty: pass a dataset, or the triples factories of the splits to filter by")
    for name in ("num_entities", "entity_to_id", "relation_to_id"):  # factories without labels lack the last two
        numberings = [own for factory in factories if (own := getattr(factory, name, None)) is not None]
        if any(own != numberings[0] for own in numberings):
            raise ValueError("sources must number their triples alike, but their entities or relations differ")
    return KnownTriples(*(factory.mapped_triples for factory in factories), num_entities=factories[0].num_entities)
