"""Equivalence: against the interval they invert, enumeration and simulation."""

import itertools

import numpy as np
import pytest

from torchrankmetrics import Ranks, compare
from torchrankmetrics.inference import equivalence

N = 60
pytestmark = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")


def pair(seed, size=60, shift=0.0):
    rng = np.random.default_rng(seed)
    hard = rng.normal(1.5, 1, size)
    runs = [np.clip(np.exp(hard + s + rng.normal(0, 0.5, size)), 1, N).astype(int) for s in (0, shift)]
    return tuple(Ranks(run, None, N) for run in runs)


@pytest.mark.parametrize("metric", ["mrr", "mr", "hits@3", "gmr", "amri", "z_mr", "hmr", "median_rank"])
@pytest.mark.parametrize("seed", range(2))
def test_equivalence_is_an_interval_inside_the_margin(metric, seed):
    """Two one-sided tests at 5% reject exactly where the interval of 90% lies within the margin."""
    a, b = pair(seed, shift=0.05)
    interval, decided = compare(a, b, metric, n_resamples=300), set()
    shares = [0.2, 3.0] if metric == "median_rank" else [0.2, 0.5, 0.8, 1.0, 1.5, 3.0]  # a bootstrap for each
    for margin in abs(interval.high - interval.low) * np.array(shares):
        found = equivalence(a, b, metric, margin=margin, n_resamples=300, permutations=999)
        assert found.equivalent == (-margin < found.low and found.high < margin)
        higher = found.metric not in ("mr", "gmr", "hmr", "median_rank")
        assert found.not_inferior == (found.low > -margin if higher else found.high < margin)
        decided.add(found.equivalent)
    assert decided == {True, False}


def test_equivalence_of_clusters_and_seeds():
    runs = [pair(seed, shift=0.02) for seed in range(3)]
    a, b = [run[0] for run in runs], [run[1] for run in runs]
    cluster = np.arange(60) // 3
    for models in ((a, b, "mrr", None), (a[0], b[0], "hits@3", cluster), (a[0], b[0], "mrr", cluster)):
        wide, narrow = (equivalence(*models[:3], cluster=models[3], margin=m, permutations=999) for m in (0.9, 1e-4))
        assert wide.equivalent
        assert not narrow.equivalent
        assert wide.p_equivalent < 0.05 < narrow.p_equivalent


def test_p_of_a_mean_is_the_share_of_flips_enumerated():
    """One-sided p of "the difference is margin", every flip of the differences moved by it counted."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 20, 11), rng.integers(1, 20, 11)
    margin = 4.0
    found = equivalence(Ranks(a, None, 20), Ranks(b, None, 20), "mr", margin=margin)
    for null, p in ((-margin, found.p_not_better), (margin, found.p_not_worse)):
        moved = (a - b - null).astype(float)
        sums = [abs(np.dot(signs, moved)) for signs in itertools.product((1, -1), repeat=11)]
        two_sided = np.mean(np.array(sums) >= abs(moved.sum()) - 1e-9)
        inside = moved.sum() > 0 if null < 0 else moved.sum() < 0
        assert p == pytest.approx(two_sided / 2 if inside else 1 - two_sided / 2)


def test_bad_margins_raise():
    a, b = pair(0)
    with pytest.raises(ValueError, match="margin must be above 0"):
        equivalence(a, b, margin=0.0)
    with pytest.raises(TypeError, match="margin must be a number"):
        equivalence(a, b, margin="1%")
    with pytest.raises(ValueError, match=r"confidence_level must be above 0\.5"):
        equivalence(a, b, margin=0.1, confidence_level=0.4)
