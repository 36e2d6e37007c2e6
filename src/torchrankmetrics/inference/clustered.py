"""clustered_p_value: a p-value under random ranking that allows for dependent ranking tasks."""

import math

import numpy as np
from scipy.stats import t as student

from torchrankmetrics.definitions.transforms import apply_transform, known
from torchrankmetrics.inference.intervals import Cluster
from torchrankmetrics.inference.pairing import paired_rows
from torchrankmetrics.inference.sources import Evaluation, check_evaluation
from torchrankmetrics.inference.standard_errors import degrees_of_freedom
from torchrankmetrics.inference.units import units_of
from torchrankmetrics.metrics.analysis import sample_of
from torchrankmetrics.metrics.registry import MetricLike, as_measure
from torchrankmetrics.table import columns
from torchrankmetrics.validation import shorten


def clustered_p_value(
    evaluation: Evaluation, metric: MetricLike = "mrr", *, cluster: Cluster, second_cluster: Cluster | None = None
) -> float:
    """Test whether a model is better than random ranking, for dependent tasks in clusters.

    The p-value in (0, 1] is one-sided: Student's t of the mean of f minus its mean under random ranking, with a
    cluster-robust variance. Tasks of one cluster may depend in any way. The test needs many clusters of similar weight:
    otherwise it rejects too often. It uses pessimistic ranks, whatever the rank type.

    Args:
        evaluation (Ranks, RankTable or RankCollection): a ``RankTable``, ``RankCollection`` or ``Ranks``.
        metric (str, RankDefinition or RankMetric, default "mrr"): one metric that is a function of a mean of f and has
            a direction.
        cluster (str or integers): "group", "sample_id" or int64 keys aligned with the tasks, as in ``compare``.
        second_cluster (str or integers, default None): second keys (for example queries and targets); tasks that share
            either key may depend.

    Returns:
        The p-value, a float in (0, 1].

    Raises:
        TypeError, ValueError: for other metrics, invalid keys, and fewer than two clusters.

    Source: Cameron, Gelbach and Miller 2011 (doi:10.1198/jbes.2010.07136), for two kinds of clusters.

    >>> from torchrankmetrics import Ranks
    >>> round(clustered_p_value(Ranks([1, 2, 1, 3, 2, 2], None, 9), "mrr", cluster=[0, 0, 1, 1, 2, 2]), 4)
    0.0238
    """
    measure = as_measure(metric)
    definition = measure.definition.of_tasks
    if (
        definition is None
        or measure.higher_is_better is None
        or not definition.has_p_value
        or not definition.is_function_of_mean()
    ):
        raise ValueError(
            f"metric must be a function of a mean of f over tasks with a direction, got {shorten(measure.key)}"
        )
    check_evaluation(evaluation, "evaluation")
    kinds = [cluster] if second_cluster is None else [cluster, second_cluster]
    paired = [paired_rows([evaluation], ["evaluation"], kind) for kind in kinds]
    rows = paired[0][0][0]
    used = columns.used(rows, measure.side, definition.min_candidates)
    sample = sample_of(rows[used], measure.average)
    keys = [key[used] for _, key in paired if key is not None]
    if len(keys) == 2:
        keys.append(np.unique(np.stack(keys, 1), axis=0, return_inverse=True)[1].reshape(-1))

    number, index = np.unique(sample.known_candidates, return_inverse=True)
    centred = definition.unit_values(sample, "pessimistic") - known(definition.f).null_moments(number)[0][index]
    units = [units_of(centred, sample.weight, sample.count, key) for key in keys]
    variances = [float(one.covariance[0, 0]) for one in units]
    # inclusion-exclusion: pairs of tasks that share both clusters are in both variances
    variance = max(variances[0], sum(variances[:2]) - variances[2]) if len(keys) == 3 else variances[0]
    if variance <= 0:
        return 1.0
    ends = apply_transform(definition.f, np.array([1.0, float(number.max())]), num_candidates=np.full(2, number.max()))
    direction = 1.0 if ends[0] >= ends[1] else -1.0
    freedom = min(degrees_of_freedom(one) for one in units[: len(kinds)])
    statistic = direction * float(units[0].mean[0]) / math.sqrt(variance)
    return max(float(student.sf(statistic, freedom)), math.ulp(0.0))
