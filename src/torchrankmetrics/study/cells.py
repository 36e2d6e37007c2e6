"""One dataset: values of its models with intervals and tests."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.candidates import FloatArray, IntArray
from torchrankmetrics.definitions.sample import Sample
from torchrankmetrics.definitions.transforms import apply_transform
from torchrankmetrics.inference.intervals import ClusterSource, named_clusters
from torchrankmetrics.inference.pairing import PairedSource
from torchrankmetrics.inference.seeds import SeededModels, smooth_of
from torchrankmetrics.inference.shares import share_difference_p_value
from torchrankmetrics.inference.standard_errors import Method, estimate, wilson_ends
from torchrankmetrics.inference.units import units_of
from torchrankmetrics.metrics.analysis import sample_of
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.metrics.views import apply_view, view_slope
from torchrankmetrics.null.expectation.provider import ExpectationUnavailableError
from torchrankmetrics.study.runs import DataSet, Read
from torchrankmetrics.table.columns import used

_RESAMPLES = 2000  # of metrics that have a bootstrap only


@dataclass(frozen=True)
class Cell:
    """A model on a data set.

    Attributes:
        value: mean over its seeds, NaN where it is undefined.
        low, high: its interval; NaN where there is none.
        standard_error: likewise.
        seeds: that it was trained with.
        seed_share: share of the squared error that is of the seeds; None with one seed.
        effective_tasks: number of tasks or clusters that the error of the tasks rests on, see ``Interval``.
        best: whether no model has a better value on the data set.
        p_best: of "it is as good as the best one", one family over the table; 1 for the best, NaN where untested.
        rank: its ranks among the models that the family leaves possible, 1 for the best; None where untested.
        p_within: of "some model is better by the margin or more", one family over the table; NaN without a margin.
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
    p_within: float = math.nan


@dataclass(frozen=True, eq=False)
class Joint:
    """Models on the same tasks (or queries), and how two of them differ.

    Attributes:
        models: their values with the errors that seeds and tasks give.
        slope: of the view.
        exact: whether they are shares of single runs, which have exact tests.
    """

    models: SeededModels
    slope: float
    exact: bool

    def p_value(self, a: int, b: int, null: float = 0.0) -> float:
        """Two-sided p-value of "a less b is ``null``", in the units of the view."""
        null = null / self.slope if null else 0.0
        units = self.models.units
        if not self.exact:
            return self.models.difference(a, b, 0.5).p_value_of(null)
        differences = units.sums[:, a] - units.sums[:, b]
        only_a, only_b = (int(units.count[sign * differences > 0].sum()) for sign in (1, -1))
        return share_difference_p_value(only_a, only_b, units.size, null)


@dataclass(frozen=True, eq=False)
class Measured:
    """A measure on a data set.

    Attributes:
        cells: by model.
        chance: its value by chance; NaN where nobody can tell.
        tested: the models that are compared.
        joint: their values together; None without at least two.
        pairs: all pairs of them, as indices into ``tested``; empty where no test is possible.
        p_values: two-sided, of "the pair does not differ", each right by itself, (pairs,).
        differences: of the pairs, with their standard errors and the degrees of freedom of these, (pairs, 3).
        ends: of their intervals, each right by itself, (pairs, 2).
        remark: why models of the same tasks are not compared; "" if they are.
    """

    cells: Mapping[str, Cell]
    chance: float
    tested: tuple[str, ...]
    joint: Joint | None
    pairs: tuple[tuple[int, int], ...]
    p_values: FloatArray
    differences: FloatArray
    ends: FloatArray
    remark: str = ""


def measured(dataset: DataSet, measure: Measure, confidence_level: float, cluster: str | None) -> Measured:
    """Work out a measure for all models of a data set.

    Raises:
        ValueError: if the tasks lack the group or the sample id that the average or the clusters ask for, or the places
            that a metric of queries asks for.
    """
    if measure.definition.of_tasks is None and cluster == "sample_id":
        raise ValueError(f"cluster must be 'group' or None for {measure.key!r}: its units are queries, not tasks")
    cells = {}
    samples = _samples(dataset.reference, measure)
    aligned = {} if not _has_formula(measure) or len(samples.weight) == 0 else dataset.aligned
    models, remark = _together(list(aligned.values()), measure, cluster)
    aligned = {} if remark else aligned
    for model, reads in dataset.models.items():
        place = (models, list(aligned).index(model)) if models is not None and model in aligned else None
        cells[model] = _cell(reads, measure, place, confidence_level, cluster)
    tested = tuple(aligned)
    pairs: tuple[tuple[int, int], ...] = ()
    joint, p_values, differences, ends = None, np.empty(0), np.empty((0, 3)), np.empty((0, 2))
    if models is not None and len(tested) > 1 and measure.higher_is_better is not None:
        slope = _slope(measure, samples)
        joint = Joint(models, slope, _is_exact(measure, models))
        pairs = tuple(combinations(range(len(tested)), 2))
        found = [models.difference(a, b, confidence_level) for a, b in pairs]
        p_values = np.array([joint.p_value(a, b) for a, b in pairs])
        differences = np.array([(one.value * slope, one.standard_error * abs(slope), one.freedom) for one in found])
        ends = np.sort(np.array([(one.low * slope, one.high * slope) for one in found]), 1)
    return Measured(
        cells=cells,
        chance=_chance(measure, samples),
        tested=tested,
        joint=joint,
        pairs=pairs,
        p_values=p_values,
        differences=differences,
        ends=ends,
        remark=remark,
    )


def _has_formula(measure: Measure) -> bool:
    return measure.definition.is_function_of_mean(measure.rank_type)


def _is_exact(measure: Measure, models: SeededModels) -> bool:
    """Whether the values are shares of tasks of equal weight, each hit or not, with a run per model."""
    units = models.units
    single = measure.definition.is_share and set(models.sizes) == {1} and not units.clustered
    return single and bool(np.ptp(units.weight) == 0 and not (units.sums / units.weight[:, None] % 1).any())


def _samples(read: Read, measure: Measure) -> Sample:
    if (definition := measure.definition.of_tasks) is None:
        return measure.sample(read.analysis)
    return sample_of(read.rows[used(read.rows, measure.side, definition.min_candidates)], measure.average)


def _keys(read: Read, measure: Measure, cluster: str | None) -> IntArray | None:
    if cluster is None:
        return None
    if (definition := measure.definition.of_tasks) is None:
        source: ClusterSource = ClusterSource(read.analysis, cluster, None)
        return measure.definition.sample(source, measure.side, measure.average)
    return named_clusters(read.rows, cluster)[used(read.rows, measure.side, definition.min_candidates)]


def _seeded(models: list[list[Read]], measure: Measure, cluster: str | None) -> SeededModels | None:
    """All runs of models on the same tasks at once; None if an error has no formula there, as with a single task.

    Raises:
        ValueError: for queries that have other answers in another run.
    """
    reads = [read for reads in models for read in reads]
    rows = [read.rows for read in reads]
    samples, kept = measure.definition.sample(PairedSource(rows), measure.side, measure.average)
    keys = None if cluster is None else named_clusters(rows[0], cluster)[kept]
    values = np.stack([measure.definition.unit_values(sample, measure.rank_type) for sample in samples], 1)
    units = units_of(values, samples[0].weight, samples[0].count, keys)
    if units.size < 2:
        return None
    return SeededModels(units, tuple(len(reads) for reads in models), smooth_of(measure.definition))


def _together(models: list[list[Read]], measure: Measure, cluster: str | None) -> tuple[SeededModels | None, str]:
    """The runs at once, or why they are not: in others the queries have other answers."""
    if not models or measure.definition.of_tasks is not None:
        return (_seeded(models, measure, cluster) if models else None), ""
    try:
        return _seeded(models, measure, cluster), ""
    except ValueError as error:
        return None, str(error)


def _cell(
    reads: list[Read],
    measure: Measure,
    place: tuple[SeededModels, int] | None,
    confidence_level: float,
    cluster: str | None,
) -> Cell:
    """A model on a data set; ``place`` says where it stands among the models on the same tasks."""
    values = [measure.value_or_nan(read.analysis) for read in reads]
    cell = Cell(float(np.mean(values)), math.nan, math.nan, math.nan, tuple(read.run.seed for read in reads))
    if math.isnan(cell.value):
        return cell
    sample, keys = _samples(reads[0], measure), _keys(reads[0], measure, cluster)
    if len(reads) == 1:
        method: Method = "normal" if _has_formula(measure) else "bootstrap"
        try:
            own = estimate(measure.definition, sample, measure.rank_type, confidence_level, method, keys, _RESAMPLES, 0)
        except ValueError:  # extremes, and fewer than two tasks, have no interval
            return cell
        return _in_view(
            replace(cell, effective_tasks=own.effective_tasks), measure, sample, own.low, own.high, own.standard_error
        )
    if place is None and _has_formula(measure) and reads[0].tasks and len({read.tasks for read in reads}) == 1:
        alone, _ = _together([reads], measure, cluster)
        place = None if alone is None else (alone, 0)
    if place is None:
        return _of_seeds_alone(cell, values, confidence_level)
    models, found = place[0], place[0].mean(place[1], confidence_level)
    low, high, effective_tasks = found.low, found.high, models.effective_tasks(place[1])
    if measure.definition.is_share:
        total, p = found.standard_error**2, min(max(found.value, 0.0), 1.0)
        # a share without any spread has the interval of its number of tasks
        n = p * (1 - p) / total if total > 0 else models.units.effective
        low, high = wilson_ends(p, n, float(student.ppf((1 + confidence_level) / 2, found.freedom)))
        effective_tasks = math.inf if effective_tasks == 0 or keys is None else effective_tasks
    limits = measure.definition.mean_limits(sample)
    if np.isfinite(limits).all():
        ends = sorted(apply_transform(measure.definition.g, np.array(limits), "g").tolist())
        low, high = max(low, ends[0]), min(high, ends[1])
    cell = replace(cell, seed_share=found.split.seed_share, effective_tasks=effective_tasks)
    return _in_view(cell, measure, sample, low, high, found.standard_error)


def _of_seeds_alone(cell: Cell, values: list[float], confidence_level: float) -> Cell:
    """The interval of runs that share no tasks, or of a metric without a formula: what the seeds say alone."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(student.ppf((1 + confidence_level) / 2, len(values) - 1)) * error
    return replace(cell, low=cell.value - half, high=cell.value + half, standard_error=error, seed_share=1.0)


def _in_view(cell: Cell, measure: Measure, sample: Sample, low: float, high: float, error: float) -> Cell:
    """Put the interval of the base value into the view."""
    if measure.view != "base":
        moments = measure.moments(sample)
        ends = [apply_view(measure.definition, measure.view, end, moments) for end in (low, high)]
        low, high = sorted(ends) if not math.isnan(ends[0]) else ends
        error *= abs(view_slope(measure.definition, measure.view, moments))
    return replace(cell, low=low, high=high, standard_error=error)


def _slope(measure: Measure, sample: Sample) -> float:
    if measure.view == "base":
        return 1.0
    return view_slope(measure.definition, measure.view, measure.moments(sample))


def _chance(measure: Measure, sample: Sample) -> float:
    if not measure.definition.has_null or len(sample.weight) == 0:
        return math.nan
    try:
        moments = measure.moments(sample)
    except ExpectationUnavailableError:
        return math.nan
    return apply_view(measure.definition, measure.view, moments.mean, moments)
