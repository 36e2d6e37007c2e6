"""p-values where what matters is narrow beside the range of f: by counting ranks, pairs of ranks, and by simulation."""

import math

import numpy as np
import pytest

from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.null.p_values import p_value

MRR, GMR, SQUARES = d.MEAN_RECIPROCAL_RANK, d.GEOMETRIC_MEAN_RANK, d.power_mean_rank(2)
SIZES = [65_536, 10**6, 10**9]
SHARES = [1e-6, 0.02, 0.5, 0.9, 0.999]


@pytest.mark.parametrize("N", SIZES, ids=str)
@pytest.mark.parametrize("share", SHARES)
def test_one_task_has_the_share_of_its_rank(N, share):
    rank = max(1, round(share * N))
    # how many ranks are as good as tied: sums of reciprocals are known to 4e-15, sums of squares to 4e-15 N^2
    ties = {MRR: 4e-15 * rank**2, GMR: 1e-7 * rank, SQUARES: 4e-15 * N**2 / rank}
    for definition, value in ((MRR, 1 / rank), (GMR, float(rank)), (SQUARES, float(rank))):
        got = p_value(definition, value, [N]) * N
        assert rank * (1 - 1e-9) <= got <= rank * (1 + 1e-8) + 2 * ties[definition] + 1


@pytest.mark.parametrize("N", [10**6, 10**9], ids=str)
@pytest.mark.parametrize("n", [1, 3, 40])
def test_a_value_next_to_the_worst_has_the_probability_of_being_reached(N, n):
    # reciprocals of the worst ranks grow by about 1 / N^2 from one to the next: distances of n ranks that add up to < k
    k = N // 1000
    value = (n - 1) / n / N + 1 / n / (N - k)
    missed = math.comb(k - 1 + n, n) / N**n
    got = p_value(MRR, value, [N] * n)
    assert (1 - missed) * (1 - 1e-9) <= got <= 1


def test_thousand_weights_among_a_million_candidates_by_simulation():
    rng = np.random.default_rng(0)
    N, weights = rng.integers(500_000, 1_500_000, 1000), rng.random(1000) + 0.5
    weights /= weights.sum()
    means = np.concatenate([(1 / np.ceil(rng.random((500, 1000)) * N)) @ weights for _ in range(20)])
    for share in (0.9, 0.1):
        value = np.quantile(means, 1 - share)
        error = math.sqrt(share * (1 - share) / len(means))
        assert share - 4 * error <= p_value(MRR, value, N, weights) <= 1.03 * share + 4 * error
