"""One dataset: values of its models with intervals, and tests of their differences."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.sample import UnknownCandidatesError
from torchrankmetrics.definitions.transforms import apply_transform
from torchrankmetrics.inference.clusters import SampleSize, clusters_of, entry_clusters
from torchrankmetrics.inference.paired import (
    DEFAULT_DRAWS,
    T_OVER_BOTH,
    T_OVER_TASKS,
    PairTest,
    Tested,
    mean_limits,
)
from torchrankmetrics.inference.sources import ClusteredSource, PairedSource
from torchrankmetrics.inference.standard_errors import (
    Estimate,
    Method,
    Units,
    estimate,
    share_effective_tasks,
    student_interval,
    units_of,
    wilson,
)
from torchrankmetrics.inference.testing import SeededEstimate, SeededModels
from torchrankmetrics.metrics.measure import Measure, affine_view
from torchrankmetrics.null.expectation.provider import ExpectationUnavailableError
from torchrankmetrics.study.runs import DataSet, LoadedRun

_RESAMPLES = 2000  # for metrics without a standard error


@dataclass(frozen=True)
class Cell:
    """A model on a dataset.

    Attributes:
        value: mean over its seeds, NaN if it is undefined.
        low, high, standard_error: interval and standard error; NaN without one.
        seeds: of its runs.
        seed_share: share of the squared standard error due to seeds; None with one seed.
        effective_tasks: effective number of tasks or clusters, see ``Interval``.
        best: whether no model on the same tasks has a better value on the dataset.
        p_best: p-value of "it is as good as the best", one family over the table; 1 for the best,
            NaN if untested.
        rank: its ranks among the models that the family leaves possible, 1 for the best; None if
            untested.
        is_better_than_random: whether all its runs are significantly better than random ranking,
            one family over the table for each metric; None for metrics without a p-value.

    >>> from torchrankmetrics import Ranks, RankTable
    >>> from torchrankmetrics.study import RankStudy
    >>> study = RankStudy()
    >>> for model, ranks in {"a": [1, 2, 1, 4] * 30, "b": [3, 2, 5, 4] * 30}.items():
    ...     study.add(RankTable.from_ranks(Ranks(ranks, None, 9)), model=model, dataset="toy")
    ...
    >>> cell = study.table("mrr").cell("a", "toy")
    >>> cell.value, cell.best
    (0.6875, True)
    """

    value: float
    low: float
    high: float
    standard_error: float
    seeds: tuple[str, ...]
    seed_share: float | None = None
    effective_tasks: float = math.inf
    best: bool = False
    p_best: float = math.nan
    rank: tuple[int, int] | None = None
    is_better_than_random: bool | None = None


class Difference(NamedTuple):
    """Difference a - b of two models on a dataset, with its interval and test."""

    value: float
    low: float
    high: float
    standard_error: float
    freedom: float
    p_value: float
    test: str

    @property
    def turned(self) -> "Difference":
        """Difference b - a."""
        return self._replace(value=-self.value, low=-self.high, high=-self.low)


class DatasetResult(NamedTuple):
    """A measure on a dataset: cells by model.

    ``random_value`` is the expectation under random ranking. ``comparable`` models are on the same
    tasks, unless ``remark`` is the reason why their queries differ. Their differences are
    ``tested`` (``together``) if the order of the tasks is known and the measure has a test.
    """

    cells: Mapping[str, Cell]
    random_value: float
    comparable: tuple[str, ...]
    tested: tuple[str, ...]
    remark: str
    pairs: Mapping[tuple[str, str], Difference]
    size: SampleSize
    together: "Together | None"


class Together:
    """Models on the same tasks with one or more runs each; ``slope`` of the measure's view."""

    def __init__(
        self,
        models: Mapping[str, list[LoadedRun]],
        measure: Measure,
        cluster: str | None,
        slope: float,
    ) -> None:
        rows = [run.rows for runs in models.values() for run in runs]
        self.names = list(models)
        self.slope = slope
        self.definition = measure.definition
        source = PairedSource(rows)
        samples, used = measure.sample(source)
        first = samples[0]
        clusters = clusters_of(cluster, rows, "the table")
        clusters = entry_clusters(clusters, rows, used, self.definition)
        values = [self.definition.unit_values(sample, measure.rank_type) for sample in samples]
        columns = np.stack(values, 1)
        self.limits = mean_limits(self.definition, first, columns)
        self.units = units_of(columns, first.weight, first.count, clusters)
        self.sizes = tuple(map(len, models.values()))

    @cached_property
    def models(self) -> SeededModels:
        """Means and variances over the runs of each model."""
        return SeededModels(self.units, self.sizes, self.definition.g)

    def is_single(self, *models: int) -> bool:
        """Whether models have one run each."""
        return all(self.sizes[i] == 1 for i in models)

    def pair(self, a: int, b: int) -> Units:
        """Units with the single runs of two models."""
        starts = np.cumsum((0, *self.sizes))
        return self.units.columns([starts[a], starts[b]])

    def difference(self, a: int, b: int, level: float) -> Difference:
        """Difference of two models: by the test of ``compare``, or by t for several runs."""
        found = self.models.estimate(level, a, b)
        about = found.standard_error * abs(self.slope), found.freedom
        if self.is_single(a, b):
            test = PairTest(self.pair(a, b), self.definition, self.limits, DEFAULT_DRAWS)
            tested = test.tested(level)
        else:
            name = T_OVER_TASKS if 1 in (self.sizes[a], self.sizes[b]) else T_OVER_BOTH
            tested = Tested(found.low, found.high, found.p_value_of(0.0), name)
        low, high, p_value, test_name, *_ = tested.scaled(self.slope)
        return Difference(found.value * self.slope, low, high, *about, p_value, test_name)


def evaluate_dataset(
    dataset: DataSet, measure: Measure, confidence_level: float, cluster: str | None
) -> DatasetResult:
    """Compute a measure for all models of a dataset; ValueError if tasks lack a needed column."""
    source = ClusteredSource(dataset.reference.analysis, cluster)
    known = _known_before(source, measure)
    aligned = dataset.aligned if known.can_test else {}
    together, remark = _together(aligned, measure, cluster, known.slope)
    cells = {
        model: _cell(model, runs, measure, together, confidence_level, cluster)
        for model, runs in dataset.models.items()
    }
    comparable = () if remark else tuple(dataset.comparable)
    tested = () if remark else tuple(aligned)
    pairs = _pairs(together, measure, confidence_level)
    size = known.size or source.size()
    return DatasetResult(
        cells, known.random_value, comparable, tested, remark, pairs, size, together
    )


class _Known(NamedTuple):
    """Facts about a measure on a dataset, before any model is tested."""

    can_test: bool
    size: SampleSize | None
    random_value: float  # value under random ranking
    slope: float  # of the view


def _known_before(source: ClusteredSource, measure: Measure) -> _Known:
    can_test = measure.definition.is_function_of_mean(measure.rank_type)
    size = None
    random_value = math.nan
    slope = 1.0
    try:
        sample, _ = source.sample(measure)
        can_test &= len(sample.weight) > 0
        size = source.size(measure) if len(sample.weight) else None
        if len(sample.weight) and measure.definition.has_null:
            moments = measure.moments(sample)
            in_view, slope = affine_view(measure.definition, measure.view, moments)
            random_value = in_view(moments.mean)
    except UnknownCandidatesError:
        can_test &= size is not None and measure.view == "base"
    except ExpectationUnavailableError:
        can_test &= measure.view == "base"
    return _Known(can_test, size, random_value, slope)


def _pairs(
    together: Together | None, measure: Measure, confidence_level: float
) -> dict[tuple[str, str], Difference]:
    """Differences of all pairs of models; none for a measure without a direction."""
    if together is None or measure.higher_is_better is None:
        return {}
    names = together.names
    return {
        (names[a], names[b]): together.difference(a, b, confidence_level)
        for a, b in combinations(range(len(names)), 2)
    }


def _together(
    models: Mapping[str, list[LoadedRun]], measure: Measure, cluster: str | None, slope: float
) -> tuple[Together | None, str]:
    """Models on the same tasks, None for a single task; or the reason why their queries differ."""
    if not models:
        return None, ""
    try:
        found = Together(models, measure, cluster, slope)
    except ValueError as error:
        if measure.definition.of_tasks is not None:
            raise
        return None, str(error)
    return (found, "") if found.units.size > 1 else (None, "")


def _cell(
    model: str,
    runs: list[LoadedRun],
    measure: Measure,
    together: Together | None,
    level: float,
    cluster: str | None,
) -> Cell:
    """A model on a dataset; ``together``: the models on the same tasks."""
    values = [measure.value_or_nan(run.analysis) for run in runs]
    seeds = tuple(run.run.seed for run in runs)
    cell = Cell(float(np.mean(values)), math.nan, math.nan, math.nan, seeds)
    if math.isnan(cell.value):
        return cell
    if len(runs) == 1:
        return _cell_of_tasks(cell, runs[0], measure, level, cluster)
    if together is None or model not in together.names:
        has_tasks = runs[0].order != "" and len({run.order for run in runs}) == 1
        together = None
        if has_tasks and measure.definition.is_function_of_mean(measure.rank_type):
            together, _ = _together({model: runs}, measure, cluster, 1.0)
    if together is None:
        return _cell_of_seeds(cell, values, level)
    return _cell_of_both(cell, model, runs[0], measure, together, level)


def _cell_of_tasks(
    cell: Cell, run: LoadedRun, measure: Measure, level: float, cluster: str | None
) -> Cell:
    """A single run: its interval is over test tasks."""
    sample, clusters = ClusteredSource(run.analysis, cluster).sample(measure)
    definition = measure.definition
    rank_type = measure.rank_type
    method: Method = "normal" if definition.is_function_of_mean(rank_type) else "bootstrap"
    with suppress(ValueError):  # extremes, and fewer than two tasks, have no interval
        own = estimate(definition, sample, rank_type, level, method, clusters, _RESAMPLES, 0)
        return replace(cell, **own.in_view(measure, sample)._asdict())
    return cell


def _cell_of_seeds(cell: Cell, values: list[float], level: float) -> Cell:
    """Runs without common tasks, or a metric without a standard error: variance of seeds only."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    low, high = student_interval(cell.value, error, len(values) - 1, level)
    return replace(cell, low=low, high=high, standard_error=error, seed_share=1.0)


def _cell_of_both(
    cell: Cell,
    model: str,
    run: LoadedRun,
    measure: Measure,
    together: Together,
    level: float,
) -> Cell:
    """Several runs on the same tasks: the interval is over seeds and tasks."""
    models = together.models
    i = together.names.index(model)
    units = together.units
    found = models.estimate(level, i)
    effective_tasks = units.effective_tasks(models.influence[:, i])
    low = found.low
    high = found.high
    if measure.definition.is_share:
        low, high = _seeded_share(found, units.effective, level)
        effective_tasks = share_effective_tasks(units, effective_tasks)
    sample = measure.sample(run.analysis)
    limits = measure.definition.mean_limits(sample)
    if np.isfinite(limits).all():
        ends = sorted(apply_transform(measure.definition.g, np.array(limits), "g").tolist())
        low = max(low, ends[0])
        high = min(high, ends[1])
    own = Estimate(found.standard_error, low, high, effective_tasks).in_view(measure, sample)
    return replace(cell, **own._asdict(), seed_share=found.split.seed_share)


def _seeded_share(found: SeededEstimate, effective: float, level: float) -> tuple[float, float]:
    """Wilson's interval of a share, with an error over seeds and tasks or its number of tasks."""
    p = min(max(found.value, 0.0), 1.0)
    square = found.standard_error**2
    n = p * (1 - p) / square if square > 0 and 0 < p < 1 else effective
    return wilson(p, n, float(student.ppf((1 + level) / 2, found.freedom)))


def against_random(
    dataset: DataSet, measure: Measure, enough: float
) -> dict[tuple[str, str, str], float]:
    """P-values of all runs (model, seed, dataset); those of at most ``enough`` are upper bounds.

    The tails are slow to compute.
    """
    p_value, z_score = replace(measure, view="base", rank_type="pessimistic").with_views(
        "p_value", "z_score"
    )
    if p_value is None or z_score is None or not dataset.facts.fewest:
        return {}
    found = {}
    for run in dataset.runs:
        z = z_score.value_or_nan(run.analysis)
        p = 1 / (1 + z * z) if z > 0 else 1.0  # Cantelli 1928
        if p > enough:
            p = p_value.value_or_nan(run.analysis)
        found[run.run.model, run.run.seed, run.run.dataset] = 1.0 if math.isnan(p) else p
    return found
