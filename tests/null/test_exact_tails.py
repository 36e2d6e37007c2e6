"""p-values against exact rational distributions, and the distribution that a p-value is never too small."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import torchrankmetrics as trm
from exact_distributions import sum_distribution, upper_tails
from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.null.p_values import log_p_value, p_value, p_value_bracket

MRR, GMR = d.MEAN_RECIPROCAL_RANK, d.GEOMETRIC_MEAN_RANK
# a metric, f in rational numbers (for GMR r itself: products in place of sums), whether a larger sum is better
EXACT = {
    "mr": (d.MEAN_RANK, lambda r: Fraction(r), False),
    "imr": (d.INVERSE_MEAN_RANK, lambda r: Fraction(r), False),
    "mrr": (MRR, lambda r: Fraction(1, r), True),
    "hmr": (d.HARMONIC_MEAN_RANK, lambda r: Fraction(1, r), True),
    "hits": (d.hits_at(3), lambda r: Fraction(r <= 3), True),
    "quadratic": (d.power_mean_rank(2), lambda r: Fraction(r**2), False),
    "cubic": (d.power_mean_rank(3), lambda r: Fraction(r**3), False),
    "p_minus_2": (d.power_mean_rank(-2), lambda r: Fraction(1, r**2), True),
}


def of_mean(definition, mean):
    return float(definition.g(torch.tensor(float(mean), dtype=torch.float64)))


@settings(deadline=None, max_examples=25)
@given(
    key=st.sampled_from(sorted(EXACT)),
    tasks=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4000)), min_size=1, max_size=4),
    single=st.booleans(),
)
def test_any_weights_by_their_rational_distribution(key, tasks, single):
    N, units = zip(*tasks, strict=True)
    weights = [Fraction(float(np.float32(u / 1000))) if single else Fraction(u, 8) for u in units]
    definition, f, larger = EXACT[key]
    total = sum(weights)
    tails = list(upper_tails(sum_distribution(N, weights, f), larger))
    for x, exact in tails[:: max(1, len(tails) // 6)]:
        got = log_p_value(definition, of_mean(definition, x / total), N, [float(w) for w in weights])
        assert got >= math.log(exact) - 1e-9
        # what counts as tied with x is what lies within the rounding of weights
        near = Fraction(1, 2**19) * (abs(x) + total)
        reached = [p for y, p in tails if (y >= x - near if larger else y <= x + near)]
        assert got <= math.log(max(reached)) + 1e-9


def integer_tails(steps, n):
    """(sum, log P(at least it)) of n draws from integers, exactly, the largest sum first; every 20th below 1/2."""
    ways = np.array([1], dtype=object)
    for _ in range(n):
        new = np.zeros(len(ways) + max(steps), dtype=object)
        for x in steps:
            new[x : x + len(ways)] += ways
        ways = new
    above, total = 0, len(steps) ** n
    for i, x in enumerate(np.flatnonzero(ways)[::-1].tolist()):
        above += ways[x]
        if i % 20 == 0 and 2 * above < total:
            yield x, math.log(above) - math.log(total)


@pytest.mark.parametrize(
    ("definition", "steps", "n"),
    [
        (MRR, [60, 30, 20, 15, 12, 10], 90),  # N = 6, in units of 1/60
        (d.power_mean_rank(3), [124, 117, 98, 61, 0], 40),  # N = 5, by how much r^3 falls short of 125, less one
        (d.power_mean_rank(-2), [144, 36, 16, 9], 40),
    ],
    ids=["mrr", "cubic", "p_minus_2"],
)
def test_far_tails_by_integer_convolution(definition, steps, n):
    worst = 0.0
    for x, exact in integer_tails(steps, n):
        mean = {3: 125 - x / n, -1: x / n / 60, -2: x / n / 144}[definition.f.p]
        got = log_p_value(definition, of_mean(definition, mean), [len(steps)] * n)
        assert got == pytest.approx(exact, abs=1e-7)
        worst = min(worst, exact)
    assert worst < math.log(1e-20)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_has_p_one(weighted):
    weights = np.random.default_rng(0).random(49) + 0.01 if weighted else None
    maximum = d.power_mean_rank(math.inf)
    for definition in (d.hits_at(10), d.MEAN_RANK, MRR, GMR, d.power_mean_rank(3), maximum, d.hits_at(1)):
        N = [4 if definition.name == "hits_at_10" else 1] * 49
        for value in (1.0, 1.0 if definition is maximum else 1 - 1e-15):
            assert log_p_value(definition, value, N, weights) == 0.0
    with warnings.catch_warnings(action="ignore"):
        values = trm.evaluate([1] * 49, 4, ["p_hits@10", "z_hits@10"], weight=weights)
    assert values["p_hits_at_10"] == trm.adjust(1.0, "hits@10", [4] * 49, view="p_value") == 1.0
    assert math.isnan(values["z_hits_at_10"])


@pytest.mark.parametrize("definition", [d.MEAN_RANK, MRR, d.hits_at(2), d.power_mean_rank(2)], ids=lambda x: x.name)
@pytest.mark.parametrize("n", [8, 30])
def test_nearly_equal_weights_are_equal(definition, n):
    rng = np.random.default_rng(n)
    weights, ranks = 1 + 1e-7 * rng.random(n), rng.integers(1, 6, n)
    f = definition.f(torch.from_numpy(ranks.astype(float))).numpy()
    equal = p_value(definition, of_mean(definition, f.mean()), [5] * n)
    got = p_value(definition, of_mean(definition, f @ weights / weights.sum()), [5] * n, weights)
    assert got >= equal * (1 - 1e-9)
    assert got == pytest.approx(equal, rel=1e-4)


def test_values_within_the_tolerance_of_the_worst_are_reached():
    assert p_value(MRR, 1 / (2 * 10**9 - 1), [2 * 10**9]) == 1
    assert log_p_value(MRR, 1 / 49990, [50000], tolerance=1e-3) == 0
    assert p_value(MRR, 1 / 49990, [50000]) == pytest.approx(0.9998, rel=1e-6)


@pytest.mark.parametrize(("N", "n", "value"), [(14505, 200, 1.5), (1000, 130, 1.2), (300, 1000, 1.2)])
def test_squares_of_the_first_ranks_are_a_lattice(N, n, value):
    """The number of ways to reach a sum of n squares, among N^n outcomes."""
    most = math.floor(n * value**2 * (1 + 1e-12))
    squares = [r * r for r in range(1, N + 1) if n - 1 + r * r <= most]
    ways = {0: 1}
    for left in range(n - 1, -1, -1):
        new: dict[int, int] = {}
        for total, number in ways.items():
            for square in squares:
                if total + square + left > most:
                    break
                new[total + square] = new.get(total + square, 0) + number
        ways = new
    exact = math.log(sum(ways.values())) - n * math.log(N)
    assert log_p_value(d.power_mean_rank(2), value, [N] * n) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(
    "definition", [MRR, d.MEAN_RANK, GMR, d.power_mean_rank(4), d.hits_at(10)], ids=lambda x: x.name
)
@pytest.mark.parametrize("counts", [[40_000] * 500, [100, 40_000] * 50, [183_098] * 3], ids=["equal", "mixed", "few"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_perfect_model_has_the_probability_of_its_ranks(definition, counts, weighted):
    weight = np.random.default_rng(0).random(len(counts)) + 0.1 if weighted else None
    if definition.name == "power_mean_rank_4":
        counts = [min(n, 1000) for n in counts]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log_p = log_p_value(definition, 1.0, counts, weight=weight)
    best = 10 if definition.name == "hits_at_10" else 1  # how many ranks have the best value
    assert log_p == pytest.approx(-sum(math.log(n / best) for n in counts), rel=1e-12)


SQUARES = d.power_mean_rank(2)
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
        error = math.sqrt(share * (1 - share) / len(means))
        assert share - 4 * error <= p_value(MRR, np.quantile(means, 1 - share), N, weights) <= 1.03 * share + 4 * error


@pytest.mark.parametrize("ranks", [(200, 1500, 1800), (300, 1000, 1500), (400, 1000, 1000)])
def test_reciprocal_ranks_of_three_tasks_by_counting_all_ranks(ranks):
    N = (4100, 4500, 5000)
    total = sum(1 / r for r in ranks)
    rest = total * (1 - 1e-13) - np.add.outer(1 / np.arange(1, N[0] + 1), 1 / np.arange(1, N[1] + 1))
    reached = np.floor(np.minimum(1 / np.maximum(rest, 1 / N[2]), N[2]))
    exact = math.log(reached.sum()) - math.log(math.prod(N))
    low, high = p_value_bracket(MRR, total / 3, N)
    assert low - 1e-6 <= exact <= high + 1e-6
    assert high - low < 1e-3
