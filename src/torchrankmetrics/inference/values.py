"""Values of queries that other tools have computed, for `compare`."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchrankmetrics.definitions.candidates import IntArray
from torchrankmetrics.definitions.protocol import Average, Side, ValueDefinition, ValueSample
from torchrankmetrics.inference.sources import is_values
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.registry import as_measure
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import one_number, shorten


def value_rows(models: Sequence[Any], names: Sequence[str]) -> list[Rows]:
    """Rows (Q, 1) of models in one order of queries: bits of float64 values.

    Raises:
        TypeError: if a model is not a mapping of queries to numbers.
        ValueError: if a value is not finite, or the models have different queries.
    """
    given = [(model, name) for model, name in zip(models, names, strict=True) if is_values(model)]
    first, reference = given[0] if given else ({}, "")
    for model, name in zip(models, names, strict=True):
        if not is_values(model):
            like = f", as {reference} is" if given else ""
            raise TypeError(f"{name} must be a dict of query -> value{like}, got {shorten(model)}")
        for query, value in model.items():
            if (number := one_number(value)) is None or not math.isfinite(number):
                raise ValueError(f"{name} must have finite values, got {shorten(value)} for query {shorten(query)}")
        missing = [(reference, model.keys() - first.keys()), (name, first.keys() - model.keys())]
        parts = [
            f"{where} lacks {len(lost)}, for example {shorten(min(lost, key=str))}" for where, lost in missing if lost
        ]
        if parts:
            raise ValueError(f"{reference} and {name} have different queries: {'; '.join(parts)}")
    order = sorted(first, key=str)
    return [np.array([model[query] for query in order], dtype=np.float64).view(np.int64)[:, None] for model in models]


def value_measure(name: str | None, rows: Sequence[Rows]) -> Measure:
    """Measure of given values; a name of the package has its canonical key and direction."""
    if not isinstance(name, str | None):
        raise TypeError(f"metric must be the name of the values, got {shorten(name)}")
    is_share = all(np.isin(one.view(np.float64), (0.0, 1.0)).all() for one in rows)
    known = None if name is None else known_measure(name)
    if known is None:
        return Measure(ValueDefinition(name or "value", is_share=is_share))
    return Measure(ValueDefinition(known.key, known.higher_is_better, is_share))


def known_measure(name: str) -> Measure | None:
    """Measure of a name of the package; None for a metric of another tool."""
    try:
        return as_measure(name)
    except ValueError:
        return None


class PairedValues:
    """Samples of several models from the rows of ``value_rows``, as ``PairedSource``."""

    def __init__(self, rows: Sequence[Rows]) -> None:
        self.rows = rows

    def sample(self, side: Side, average: Average, min_candidates: int) -> tuple[list[ValueSample], IntArray]:
        """Values of every model."""
        values = [np.ascontiguousarray(rows[:, 0]).view(np.float64) for rows in self.rows]
        return [ValueSample(one) for one in values], np.arange(len(self.rows[0]))

    def query_sample(self, definition: object, side: Side, average: Average) -> tuple[list[ValueSample], IntArray]:
        """Values of every model."""
        return self.sample(side, average, 1)
