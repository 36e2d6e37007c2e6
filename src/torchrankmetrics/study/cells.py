"""One dataset: values of its models with intervals, and tests of their differences."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.sample import IntArray, Sample, UnknownCandidatesError
from torchrankmetrics.definitions.transforms import apply_transform
from torchrankmetrics.inference.intervals import clusters_of_queries, named_clusters
from torchrankmetrics.inference.pairing import PairedSource
from torchrankmetrics.inference.standard_errors import (
    Estimate,
    Method,
    estimate,
    student_interval,
    units_of,
    wilson,
)
from torchrankmetrics.inference.testing import (
    SeededModels,
    share_difference,
    share_difference_p_value,
)
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
        best: whether no model has a better value on the dataset.
        p_best: p-value of "it is as good as the best", one family over the table; 1 for the best,
            NaN if untested.
        rank: its ranks among the models that the family leaves possible, 1 for the best; None if
            untested.
        is_better_than_random: whether all its runs are significantly better than random ranking,
            one family over the table for each metric; None for metrics without a p-value.
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


# difference a - b of two models, low, high, standard error, degrees of freedom, p
Difference = tuple[float, float, float, float, float, float]


class DatasetResult(NamedTuple):
    """A measure on a dataset: cells by model, and ``chance``, the expectation under random ranking.

    Models ``tested`` are on the same tasks, or ``remark`` is the reason why their queries differ.
    """

    cells: Mapping[str, Cell]
    chance: float
    tested: tuple[str, ...]
    remark: str
    pairs: Mapping[tuple[str, str], Difference]


def evaluate_dataset(
    dataset: DataSet, measure: Measure, confidence_level: float, cluster: str | None
) -> DatasetResult:
    """Compute a measure for all models of a dataset; ValueError if tasks lack a column that it or the clusters need."""
    definition = measure.definition
    slope, chance, aligned = 1.0, math.nan, dict[str, list[LoadedRun]]()
    try:
        sample, _ = _sample(dataset.reference, measure, None)
        if len(sample.weight) and definition.is_function_of_mean(measure.rank_type):
            aligned = dataset.aligned
        if len(sample.weight) and definition.has_null:
            moments = measure.moments(sample)
            in_view, slope = affine_view(definition, measure.view, moments)
            chance = in_view(moments.mean)
    except (ExpectationUnavailableError, UnknownCandidatesError):
        aligned = aligned if measure.view == "base" else {}
    models, remark = _together(list(aligned.values()), measure, cluster)
    tested = () if remark else tuple(aligned)
    places = {} if models is None else {model: (models, i) for i, model in enumerate(tested)}
    cells = {
        m: _cell(runs, measure, places.get(m), confidence_level, cluster)
        for m, runs in dataset.models.items()
    }
    pairs = dict[tuple[str, str], Difference]()
    if models is not None and measure.higher_is_better is not None:
        # shares of single runs have exact tests
        is_exact = definition.is_share and set(models.sizes) == {1} and models.units.is_binary
        for a, b in combinations(range(len(tested)), 2):
            found = models.estimate(confidence_level, a, b)
            ends, p = (found.low, found.high), found.p_value_of(0.0)
            if is_exact:
                shares = models.units.discordant(a, b)
                ends, p = (
                    share_difference(*shares, confidence_level),
                    share_difference_p_value(*shares, 0.0),
                )
            low, high = sorted(end * slope for end in ends)
            error = found.standard_error * abs(slope)
            pairs[tested[a], tested[b]] = (found.value * slope, low, high, error, found.freedom, p)
    return DatasetResult(cells, chance, tested, remark, pairs)


def _sample(
    run: LoadedRun, measure: Measure, cluster: str | None
) -> tuple[Sample, IntArray | None]:
    """The tasks or queries of a run, and their clusters."""
    if measure.definition.of_tasks is None:
        keys = None if cluster is None else clusters_of_queries(run.analysis, measure, cluster)
        return measure.sample(run.analysis), keys
    (sample,), chosen = measure.sample(PairedSource([run.rows]))
    return sample, None if cluster is None else named_clusters(run.rows, cluster)[chosen]


def _together(
    models: list[list[LoadedRun]], measure: Measure, cluster: str | None
) -> tuple[SeededModels | None, str]:
    """All runs of models on the same tasks, None for a single task; or the reason why their queries differ."""
    rows, definition = [run.rows for runs in models for run in runs], measure.definition
    if not rows:
        return None, ""
    try:
        samples, chosen = measure.sample(PairedSource(rows))
        keys = None if cluster is None else named_clusters(rows[0], cluster)[chosen]
        values = np.stack(
            [definition.unit_values(sample, measure.rank_type) for sample in samples], 1
        )
        units = units_of(values, samples[0].weight, samples[0].count, keys)
    except ValueError as error:
        if definition.of_tasks is not None:
            raise
        return None, str(error)
    return SeededModels(
        units, tuple(map(len, models)), definition.g
    ) if units.size > 1 else None, ""


def _cell(
    runs: list[LoadedRun],
    measure: Measure,
    place: tuple[SeededModels, int] | None,
    level: float,
    cluster: str | None,
) -> Cell:
    """A model on a dataset; ``place``: the models on the same tasks, and its index among them."""
    definition, rank_type = measure.definition, measure.rank_type
    values = [measure.value_or_nan(run.analysis) for run in runs]
    cell = Cell(
        float(np.mean(values)), math.nan, math.nan, math.nan, tuple(run.run.seed for run in runs)
    )
    if math.isnan(cell.value):
        return cell
    is_mean = definition.is_function_of_mean(rank_type)
    sample, keys = _sample(runs[0], measure, cluster)
    if len(runs) == 1:
        method: Method = "normal" if is_mean else "bootstrap"
        with suppress(ValueError):  # extremes, and fewer than two tasks, have no interval
            own = estimate(definition, sample, rank_type, level, method, keys, _RESAMPLES, 0)
            return replace(cell, **own.in_view(measure, sample)._asdict())
        return cell
    if place is None and is_mean and runs[0].tasks and len({run.tasks for run in runs}) == 1:
        alone, _ = _together([runs], measure, cluster)
        place = None if alone is None else (alone, 0)
    if place is None:
        # runs without common tasks, or a metric without a standard error: variance of seeds only
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        low, high = student_interval(cell.value, error, len(values) - 1, level)
        return replace(cell, low=low, high=high, standard_error=error, seed_share=1.0)
    models, i = place
    found, effective_tasks = (
        models.estimate(level, i),
        models.units.effective_tasks(models.influence[:, i]),
    )
    low, high = found.low, found.high
    if definition.is_share:
        total, p = found.standard_error**2, min(max(found.value, 0.0), 1.0)
        # a share without spread has Wilson's interval for its number of tasks
        n = p * (1 - p) / total if total > 0 else models.units.effective
        low, high = wilson(p, n, float(student.ppf((1 + level) / 2, found.freedom)))
        effective_tasks = math.inf if effective_tasks == 0 or keys is None else effective_tasks
    limits = definition.mean_limits(sample)
    if np.isfinite(limits).all():
        ends = sorted(apply_transform(definition.g, np.array(limits), "g").tolist())
        low, high = max(low, ends[0]), min(high, ends[1])
    own = Estimate(found.standard_error, low, high, effective_tasks).in_view(measure, sample)
    return replace(cell, **own._asdict(), seed_share=found.split.seed_share)


def against_random(
    dataset: DataSet, measure: Measure, enough: float
) -> dict[tuple[str, str, str], float]:
    """P-values of all runs (model, seed, dataset); upper bounds where these are at most ``enough``: tails are slow."""
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
