"""A metric on a sample with its confidence interval: which interval serves which metric, and how views show it."""

import math
from typing import Literal, get_args

from torchrankmetrics.theory.candidates import IntArray, Moments
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.bootstrap import (
    percentile_effective_tasks,
    percentile_interval,
    replicate_values,
    studentised_interval,
)
from torchrankmetrics.theory.inference.mean_intervals import (
    Estimate,
    effective_tasks_of_mean,
    interval_through,
    mean_limits,
    normal_interval,
)
from torchrankmetrics.theory.inference.units import is_mean, task_values, units_of
from torchrankmetrics.theory.queries.definitions import Definition
from torchrankmetrics.theory.queries.sample import QuerySample
from torchrankmetrics.theory.sample import RankSample, RankType
from torchrankmetrics.theory.values import on_first_ranks
from torchrankmetrics.theory.views import View, apply_view, view_slope

Method = Literal["normal", "bootstrap"]
METHODS: tuple[Method, ...] = get_args(Method)


def estimate(
    definition: Definition,
    sample: RankSample | QuerySample,
    rank_type: RankType,
    level: float,
    method: Method,
    cluster: IntArray | None,
    n_resamples: int,
    seed: int,
) -> Estimate:
    """Interval of the base value of a metric on a sample."""
    if sample.num_tasks == 0:
        return Estimate(math.nan, math.nan, math.nan)
    if not is_mean(definition, rank_type):
        definition, sample = on_first_ranks(definition, sample)
        assert isinstance(definition, RankDefinition)
        assert isinstance(sample, RankSample)
        effective_tasks = percentile_effective_tasks(definition, sample, cluster)
        replicates = replicate_values(definition, sample, rank_type, n_resamples, seed, cluster)
        return Estimate(*percentile_interval(replicates, level), effective_tasks)
    units = units_of(task_values(definition, sample, rank_type), sample.weight, sample.count, cluster)
    limits = mean_limits(definition, sample)
    if method == "normal" or definition.is_share:  # no resample of a sample without hits has one
        return normal_interval(definition, units, level, limits)
    error, low, high = studentised_interval(units, level, n_resamples, seed)
    return interval_through(definition.g, units, error, (low, high), limits, effective_tasks_of_mean(definition, units))


def in_view(base: Estimate, definition: Definition, view: View, moments: Moments) -> Estimate:
    """The interval of a base value in an affine view, whose moments by chance are given and have no error."""
    slope = view_slope(definition, view, moments)
    ends = [apply_view(definition, view, end, moments) for end in (base.low, base.high)]
    low, high = ends if math.isnan(slope) else sorted(ends)
    return Estimate(base.standard_error * abs(slope), low, high, base.effective_tasks)
