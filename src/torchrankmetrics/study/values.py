"""Datasets of a study with values of queries instead of ranks."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from torchrankmetrics.definitions.protocol import Average, Side, ValueDefinition, ValueSample
from torchrankmetrics.inference.sources import Values
from torchrankmetrics.inference.values import PairedValues, value_rows
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.study.runs import DataSet, Facts, LoadedRun, Run, missing_seeds
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.validation import shorten


class _RunValues:
    """Values of a metric of one run, as ``Analysis``."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def sample(self, side: Side = "both", average: Average = "micro", min_candidates: int = 1) -> ValueSample:
        """The values."""
        return PairedValues([self.rows]).sample(side, average, min_candidates)[0][0]

    def once(self, key: Hashable, compute: Callable[..., Any], *arguments: Hashable) -> Any:
        """Compute a result."""
        return compute(*arguments)


class ValueDataSet:
    """Runs of a dataset by model, as ``DataSet``; the source of each run is a dict of metric -> query -> value."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.models: dict[str, list[Run]] = {}
        for run in runs:
            self.models.setdefault(run.model, []).append(run)
        self.metrics = dict.fromkeys(key for run in runs for key in _values(run))
        self.num_rows = sum(run.num_rows for run in runs)

    def of(self, measure: Measure) -> tuple[DataSet, Measure]:
        """Runs with values of a metric, and the measure of given values of its name; ValueError without values."""
        if measure.key not in self.metrics:
            raise ValueError(
                f"no values of {shorten(measure.key)} were added, available: {', '.join(self.metrics)}; other metrics "
                "and views need ranks"
            )
        loaded = [
            _loaded(run, _values(run)[measure.key])
            for runs in self.models.values()
            for run in runs
            if measure.key in _values(run)
        ]
        is_share = all(np.isin(run.rows.view(np.float64), (0.0, 1.0)).all() for run in loaded)
        return DataSet(loaded), Measure(ValueDefinition(measure.key, measure.higher_is_better, is_share))

    @property
    def facts(self) -> Facts:
        """Number of queries."""
        sizes = [len(one) for runs in self.models.values() for run in runs for one in _values(run).values()]
        return Facts(max(sizes), 0, 0, {})

    def notes(self, seeds: Sequence[str]) -> list[str]:
        """Models whose queries differ from most others, and missing seeds."""
        found = []
        for key in self.metrics:
            data, _ = self.of(Measure(ValueDefinition(key)))
            odd = [model for model in data.models if model not in data.aligned]
            found += [f"{model} is not compared in {key}: its queries differ from most others" for model in odd]
        return found + missing_seeds({model: [run.seed for run in runs] for model, runs in self.models.items()}, seeds)


def _values(run: Run) -> dict[str, Values]:
    assert isinstance(run.source, dict)
    return run.source


def _loaded(run: Run, values: Values) -> LoadedRun:
    (rows,) = value_rows([values], [run.label])
    digest = hashlib.blake2b("\n".join(sorted(map(str, values))).encode(), digest_size=16).hexdigest()
    return LoadedRun(run, None, _RunValues(rows), rows, digest, ())  # type: ignore[arg-type]
