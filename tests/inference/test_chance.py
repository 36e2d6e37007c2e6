"""clustered_p_value: by hand, its size with dependent tasks, and its errors."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from torchrankmetrics import Ranks
from torchrankmetrics.inference import clustered_p_value

RANKS, QUERY, ANSWER = [1, 2, 1, 3, 2, 2], [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3]


def jackknife(x, key):
    """Variance of the mean of x, one cluster left out at a time."""
    left = [x[np.array(key) != one].mean() for one in sorted(set(key))]
    return (len(left) - 1) / len(left) * sum((mean - x.mean()) ** 2 for mean in left)


def test_it_is_students_t_of_the_mean_with_clustered_errors():
    centred = np.array([1 / r for r in RANKS]) - np.mean([1 / k for k in range(1, 10)])
    ranks, by_query = Ranks(RANKS, None, 9), jackknife(centred, QUERY)
    # two degrees of freedom: three clusters of equal weight
    assert clustered_p_value(ranks, "mrr", cluster=QUERY) == pytest.approx(
        student.sf(centred.mean() / math.sqrt(by_query), 2), rel=1e-9
    )
    both = by_query + jackknife(centred, ANSWER) - jackknife(centred, range(6))  # no two tasks share both
    assert both > by_query
    assert clustered_p_value(ranks, "mrr", cluster=QUERY, second_cluster=ANSWER) == pytest.approx(
        student.sf(centred.mean() / math.sqrt(both), 2), rel=1e-9
    )


@pytest.mark.parametrize("metric", ["count", "median_rank", "ndcg", "rank_std"])
def test_metrics_that_are_not_means_of_f_raise(metric):
    with pytest.raises(ValueError, match=r"metric must be a function of a mean of f .*, got"):
        clustered_p_value(Ranks(RANKS, None, 9), metric, cluster=QUERY)


def test_one_cluster_raises():
    with pytest.raises(ValueError, match="at least 2"):
        clustered_p_value(Ranks(RANKS, None, 9), "mrr", cluster=[0] * 6)
