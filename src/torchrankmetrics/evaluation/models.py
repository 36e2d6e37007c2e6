"""One measure on the same tasks of two models: what every question about their difference starts from."""

from dataclasses import dataclass

import numpy as np

from torchrankmetrics.evaluation.analysis import sample_of
from torchrankmetrics.evaluation.measure import Measure
from torchrankmetrics.evaluation.query_pairs import paired_queries
from torchrankmetrics.table import columns
from torchrankmetrics.table.columns import Rows
from torchrankmetrics.theory.candidates import IntArray
from torchrankmetrics.theory.inference.paired import PairedRuns
from torchrankmetrics.theory.queries.definitions import QueryDefinition
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.values import base_value
from torchrankmetrics.theory.views import apply_view, view_slope


@dataclass(frozen=True, eq=False)
class PairedMeasure:
    """Values of two models in the view of a measure, and the runs behind them.

    Attributes:
        measure: what is compared.
        runs: the runs of A and of B on the same tasks.
        a, b: value of either model; of several runs their mean.
        slope: of the view: what an error of the base value is multiplied by.
    """

    measure: Measure
    runs: PairedRuns
    a: float
    b: float
    slope: float

    @property
    def difference(self) -> float:
        """A - b."""
        return self.a - self.b

    @property
    def num_tasks(self) -> int:
        """Ranking tasks that both were measured on."""
        return self.runs.samples[0].num_tasks


def paired_measure(measure: Measure, rows: list[Rows], num_a: int, keys: IntArray | None) -> PairedMeasure:
    """Measure two models on rows of the same tasks.

    Args:
        measure: what is asked.
        rows: of every run, in one order of tasks, the runs of A first.
        num_a: how many runs are of A.
        keys: cluster of each task; None: each on its own.

    Raises:
        ValueError: without tasks on the side that is asked for.
    """
    samples: list[RankSample] | list[QuerySample]
    if isinstance(measure.definition, QueryDefinition):
        samples, used = paired_queries(rows, measure.definition, measure.side, measure.average)
    else:
        used = np.flatnonzero(columns.used(rows[0], measure.side, measure.definition.min_candidates))
        samples = [sample_of(part[used], measure.average) for part in rows]
    if not len(used):
        side = "" if measure.side == "both" else f" of side {measure.side!r}"
        raise ValueError(f"no tasks{side} to compare {measure.definition.name!r} on")
    values = [base_value(measure.definition, sample, measure.rank_type) for sample in samples]
    slope = 1.0
    if measure.view != "base":
        moments = measure.moments(samples[0].candidate_counts)
        values = [apply_view(measure.definition, measure.view, value, moments) for value in values]
        slope = view_slope(measure.definition, measure.view, moments)
    runs = PairedRuns(measure.definition, measure.rank_type, samples, num_a, None if keys is None else keys[used])
    return PairedMeasure(measure, runs, float(np.mean(values[:num_a])), float(np.mean(values[num_a:])), slope)
