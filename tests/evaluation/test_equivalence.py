"""Equivalence, superiority, planning: against the interval they invert, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest

from torchrankmetrics import RankCollection, Ranks, compare
from torchrankmetrics.inference import equivalence, plan, superiority

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
    """Two one-sided tests at 5 % reject exactly where the interval of 90 % lies within the margin."""
    a, b = pair(seed, shift=0.05)
    interval, decided = compare(a, b, metric), set()
    shares = [0.2, 3.0] if metric == "median_rank" else [0.2, 0.5, 0.8, 1.0, 1.5, 3.0]  # a bootstrap for each
    for margin in abs(interval.high - interval.low) * np.array(shares):
        found = equivalence(a, b, metric, margin=margin, permutations=999)
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


def test_size_of_the_test_at_the_margin():
    """Models exactly a margin apart are called equivalent in no more than 5 % of samples."""
    rng, margin, called = np.random.default_rng(3), 0.08, 0
    for _ in range(200):
        hits = rng.random((400, 2)) < (0.5, 0.5 + margin)
        a, b = (Ranks(np.where(column, 1, 9), None, 10) for column in hits.T)
        called += equivalence(a, b, "hits@1", margin=margin).equivalent
    assert called / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_bad_margins_are_told():
    a, b = pair(0)
    with pytest.raises(ValueError, match="margin must be above 0"):
        equivalence(a, b, margin=0.0)
    with pytest.raises(TypeError, match="margin must be a number"):
        equivalence(a, b, margin="1%")
    with pytest.raises(ValueError, match=r"confidence_level must be above 0\.5"):
        equivalence(a, b, margin=0.1, confidence_level=0.4)


def test_superiority_counts_pairs():
    a, b = pair(4, 80, 0.3)
    found = superiority(a, b)
    gap = (b.realistic - a.realistic).numpy()
    assert found.probability == pytest.approx(((gap > 0) + 0.5 * (gap == 0)).mean())
    assert found.better == (gap > 0).mean()
    assert found.low < found.probability < found.high
    other = superiority(b, a)
    assert other.probability == pytest.approx(1 - found.probability)
    assert (other.low, other.high) == pytest.approx((1 - found.high, 1 - found.low))
    # the sign test
    wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
    law = [math.comb(wins + losses, k) / 2 ** (wins + losses) for k in range(wins + losses + 1)]
    assert found.p_value == pytest.approx(sum(p for p in law if p <= law[wins] * (1 + 1e-12)))


def test_superiority_of_sides_and_clusters():
    a, b = RankCollection(), RankCollection()
    for run, ranks in zip((a, b), pair(5, 40), strict=True):
        run.update(ranks, side="head", sample_id=np.arange(40))
        run.update(ranks, side="tail", sample_id=np.arange(40))
    assert superiority(a, b).num_tasks == 80
    assert superiority(a, b, side="head").num_tasks == 40
    both = superiority(a, b, cluster="sample_id")
    one = superiority(a, b, side="head")
    assert both.probability == pytest.approx(one.probability)
    assert (both.low, both.high) == pytest.approx((one.low, one.high), abs=0.05)


def test_interval_of_superiority_covers():
    """P(A above B) of a population of 1,000 tasks, from samples of 50: held about as often as said."""
    rng = np.random.default_rng(6)
    population = np.clip(rng.geometric(0.2, (1000, 2)) + np.array([0, 1]), 1, N)
    gap = population[:, 1] - population[:, 0]
    truth, held = ((gap > 0) + 0.5 * (gap == 0)).mean(), 0
    for _ in range(300):
        drawn = population[rng.integers(0, 1000, 50)]
        found = superiority(Ranks(drawn[:, 0].copy(), None, N), Ranks(drawn[:, 1].copy(), None, N))
        held += found.low <= truth <= found.high
    assert held / 300 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)


def test_a_plan_says_what_a_simulation_finds():
    """Single runs: the power it promises for twice the tasks is the share of rejections among them."""
    rng = np.random.default_rng(7)
    population = np.clip(rng.geometric(0.15, (4000, 2)), 1, N)
    a, b = (Ranks(column.copy(), None, N) for column in population.T)
    planned = plan(a, b, "mr")
    shifted = population + np.array([0, 1])
    difference = float((shifted[:, 0] - shifted[:, 1]).mean())
    n = int(planned.tasks_for(difference, 0.8))
    assert planned.power(difference, n) >= 0.8 > planned.power(difference, n - 1)
    rejected = 0
    for _ in range(200):
        drawn = shifted[rng.integers(0, 4000, n)]
        rejected += (
            compare(
                Ranks(drawn[:, 0].copy(), None, N + 1), Ranks(drawn[:, 1].copy(), None, N + 1), "mr", permutations=199
            ).p_value
            <= 0.05
        )
    assert rejected / 200 == pytest.approx(0.8, abs=0.1)
    assert planned.detectable(0.8, n) == pytest.approx(abs(difference), rel=0.02)


def test_a_plan_of_seeds_knows_what_more_tasks_cannot_do():
    rng = np.random.default_rng(8)

    def runs(skill):
        luck = rng.normal(0, 0.3, 4)
        return [Ranks(np.clip(np.exp(rng.normal(2 - skill + s, 1, 300)), 1, N).astype(int), None, N) for s in luck]

    planned = plan(runs(0.1), runs(0.0), "mrr")
    assert planned.num_seeds == 4
    assert planned.variance.seeds > 0
    limit = planned.detectable(0.8, num_units=10**9)
    assert limit > 0
    assert planned.tasks_for(limit / 2) == math.inf, "seeds alone keep it out of reach"
    assert planned.seeds_for(limit / 2) < math.inf
    seeds = int(planned.seeds_for(limit / 2))
    assert planned.power(limit / 2, num_seeds=seeds) >= 0.8 > planned.power(limit / 2, num_seeds=seeds - 1)
    assert planned.power(limit, num_seeds=1) == 0, "a single run says nothing of a method"
    assert "2 seeds" in str(planned)
    with pytest.raises(ValueError, match="as many runs"):
        plan(runs(0)[:3], runs(0), "mrr")
    with pytest.raises(ValueError, match="no mean of f"):
        plan(runs(0)[0], runs(0)[0], "median_rank")
