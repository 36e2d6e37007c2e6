"""A one-sided test against uniform ranks whose error lets the tasks of a cluster depend."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.theory.candidates import FloatArray, IntArray
from torchrankmetrics.theory.definitions import RankDefinition
from torchrankmetrics.theory.inference.mean_intervals import degrees_of_freedom
from torchrankmetrics.theory.inference.units import is_mean, task_values, units_of
from torchrankmetrics.theory.sample import RankSample
from torchrankmetrics.theory.transforms import apply_transform, known


def clustered_p(definition: RankDefinition, sample: RankSample, clusters: Sequence[IntArray]) -> float:
    """p-value in (0, 1] of "the mean of f of pessimistic ranks is no better than that of uniform ones", by Student's t.

    Args:
        definition: a metric with ``is_mean`` and a direction.
        sample: ranks with candidate counts.
        clusters: one or two arrays of (m,) int64 keys; of two, tasks that share either may depend.

    Raises:
        ValueError: for other metrics, and fewer than two clusters.

    Source: Cameron, Gelbach and Miller 2011 (doi:10.1198/jbes.2010.07136).
    """
    if not is_mean(definition):
        raise ValueError(f"{definition.name!r} is no function of a mean of f")
    number, index = np.unique(sample.known_candidates, return_inverse=True)
    centred = task_values(definition, sample, "pessimistic") - known(definition.f).null_moments(number)[0][index]
    kinds = list(clusters)
    if len(kinds) == 2:
        kinds.append(np.unique(np.stack(kinds, 1), axis=0, return_inverse=True)[1].reshape(-1))
    units = [units_of(centred, sample.weight, sample.count, keys) for keys in kinds]
    variances = [float(one.covariance[0, 0]) for one in units]
    # what both kinds share is in either
    variance = max(variances[0], sum(variances[:2]) - variances[2]) if len(kinds) == 3 else variances[0]
    if variance <= 0:
        return 1.0
    freedom = min(degrees_of_freedom(one) for one in units[: len(clusters)])
    statistic = _direction(definition, number) * float(units[0].mean[0]) / math.sqrt(variance)
    return max(float(student.sf(statistic, freedom)), math.ulp(0.0))


def _direction(definition: RankDefinition, number: IntArray) -> float:
    """1 if f falls from rank 1 on, else -1."""
    ends: FloatArray = apply_transform(
        definition.f, np.array([1.0, float(number.max())]), num_candidates=np.full(2, number.max())
    )
    return 1.0 if ends[0] >= ends[1] else -1.0
