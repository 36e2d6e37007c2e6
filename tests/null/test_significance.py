"""p-values against enumeration, exact integer distributions, an independent way for large sets."""

import itertools
import math
import operator
import warnings
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.signal import fftconvolve

import torchrankmetrics as trm
from exact_distributions import sum_distribution, upper_tails
from fuzzing import cases
from torchrankmetrics import evaluate
from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.definitions.sample import CandidateCounts
from torchrankmetrics.null.p_values import log_p_value, p_value, upper_tail

MRR, GMR, SQUARES = d.MEAN_RECIPROCAL_RANK, d.GEOMETRIC_MEAN_RANK, d.power_mean_rank(2)
DCG = d.RankDefinition("dcg", f=lambda r: 1 / torch.log2(1 + r))
DCG_AT_2 = d.RankDefinition("dcg_at_2", f=lambda r: torch.where(r <= 2, 1 / torch.log2(1 + r), 0.0))
WAVES = d.RankDefinition("waves", f=lambda r: torch.sin(2 * r), optimum=1.0, higher_is_better=True)
SQUASHED = d.RankDefinition("squashed", f=lambda r: -r.log(), g=lambda x: torch.tanh(x / 4))
STEPS = d.RankDefinition("steps", f=lambda r: 1.0 * (r <= 1) + 0.5 * (r <= 10) + 0.3 * (r <= 100))
MEANS = [d.MEAN_RANK, MRR, d.hits_at(1), d.hits_at(2), d.INVERSE_MEAN_RANK, d.HARMONIC_MEAN_RANK]
MEANS += [GMR, d.INVERSE_GEOMETRIC_MEAN_RANK, SQUARES, d.power_mean_rank(-0.5), DCG]
MEANS += [DCG_AT_2, WAVES, SQUASHED]
EXTREMES = [d.power_mean_rank(math.inf), d.power_mean_rank(-math.inf)]
WITHOUT = [d.MEDIAN_RANK, d.RANK_VARIANCE, d.RANK_STANDARD_DEVIATION, d.RANK_COUNT, d.TIE_RATE]


name = operator.attrgetter("name")


def assert_near(tail, exact):
    """Within 2% of p and three stated errors, or 0.5% of log p where p < 1e-12."""
    if exact < math.log(1e-12):
        assert tail.log_p == pytest.approx(exact, rel=5e-3, abs=3 * tail.error)
    else:
        assert math.expm1(tail.log_p - exact) == pytest.approx(0, abs=max(0.02, 3 * tail.error))
        assert tail.error < 0.05


def values(definition, ranks, weights):
    """The metric of every row of ranks, by the plain formula."""
    v = np.asarray(weights, float) / np.sum(weights)
    if definition.aggregation in ("maximum", "minimum"):
        return getattr(ranks, definition.aggregation[:3])(axis=1)
    mean = definition.f(torch.from_numpy(ranks)).numpy() @ v
    return definition.g(torch.from_numpy(mean)).numpy()


SMALL = [
    ([1, 4, 1, 2], None),
    ([5, 5, 5], None),
    ([2, 3, 4], [1.0, 2.0, 0.5]),
    ([4, 3, 2, 4], [0.3, 0.0, 0.9, 0.7]),
]
SMALL += [([3, 3, 2, 2, 2], [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])]


@pytest.mark.parametrize("definition", MEANS + EXTREMES, ids=name)
@pytest.mark.parametrize(("N", "weights"), SMALL)
def test_every_attained_value_by_enumeration(definition, N, weights):
    if definition in EXTREMES and weights is not None:
        N = [n for n, w in zip(N, weights, strict=True) if w > 0]
        weights = None
    outcomes = np.array(list(itertools.product(*[range(1, n + 1) for n in N])), float)
    all_values = values(definition, outcomes, weights or [1.0] * len(N))
    for x in np.unique(all_values):
        near = 1e-10 * abs(x) + 1e-14
        good = all_values >= x - near if definition.higher_is_better else all_values <= x + near
        assert p_value(definition, x, N, weights) == pytest.approx(good.mean(), rel=1e-8)
    worst, best = sorted(
        (all_values.min(), all_values.max()), reverse=not definition.higher_is_better
    )
    step = 0.01 if definition.higher_is_better else -0.01
    assert log_p_value(definition, best + step, N, weights) == -math.inf
    assert (
        p_value(definition, worst, N, weights) == p_value(definition, worst - step, N, weights) == 1
    )


def logarithm(ways, total):
    return (
        math.log(ways) - math.log(total)
        if 2 * ways < total
        else math.log1p(-float(Fraction(total - ways, total)))
    )


@pytest.mark.parametrize("N", [[14] * 398, [3, 14, 1, 7] * 15, [2] * 60, [9, 1000]], ids=str)
def test_mean_rank_by_integer_convolution(N):
    ways = [1]
    for n in N:
        padded = list(itertools.accumulate(ways + [0] * (n - 1)))
        ways = [padded[j] - (padded[j - n] if j >= n else 0) for j in range(len(padded))]
    at_most, total = list(itertools.accumulate(ways)), math.prod(N)
    for j in np.unique(
        np.r_[0, 1, 2, np.linspace(0, len(ways) - 1, 20).astype(int), len(ways) - 2]
    ).tolist():
        exact = logarithm(at_most[j], total)
        assert log_p_value(d.MEAN_RANK, (j + len(N)) / len(N), N) == pytest.approx(
            exact, rel=1e-8, abs=1e-8
        )
        # a half-integer sum (ties) is as good as the next worse integer, no better
        half = log_p_value(d.MEAN_RANK, (j + len(N) - 0.5) / len(N), N)
        assert half == (
            pytest.approx(logarithm(at_most[j - 1], total), rel=1e-8, abs=1e-8) if j else -math.inf
        )


@pytest.mark.parametrize(
    ("N", "k"), [([40943] * 60, 1), ([3, 14, 1, 7, 20] * 12, 3), ([10**6] * 50, 10)], ids=str
)
@pytest.mark.filterwarnings("error")
def test_hits_by_poisson_binomial(N, k):
    ways = [1]
    for n in N:
        hit = min(n, k)
        ways = [(n - hit) * a + hit * b for a, b in zip([*ways, 0], [0, *ways], strict=True)]
    at_least, total = list(itertools.accumulate(ways[::-1]))[::-1], math.prod(N)
    for j, count in enumerate(at_least):
        got = log_p_value(d.hits_at(k), j / len(N), N)
        assert (
            got == pytest.approx(logarithm(count, total), rel=1e-8, abs=1e-8)
            if count
            else got == -math.inf
        )


def test_reciprocal_rank_of_wn18rr_size_by_a_fine_grid():
    # the distribution of 6268 x 1/r on a grid, each atom split between two neighbors so that its
    # mean stays
    N, n, size, span = 40943, 6268, 1 << 20, 64.0
    x = size / span / np.arange(1, N + 1)
    left = np.floor(x).astype(int)
    pmf = np.bincount(left, 1 - (x - left), size) + np.bincount(left + 1, x - left, size)
    law = np.fft.irfft(np.fft.rfft(pmf / N) ** n, size)
    normal = {}
    for z in (1.645, 3.09, 4.75):
        r = np.arange(1, N + 1.0)
        mean, deviation = (1 / r).mean(), math.sqrt((1 / r).var() / n)
        value = mean + z * deviation
        p = p_value(MRR, value, [N] * n)
        assert p == pytest.approx(law[math.ceil(value * n * size / span) :].sum(), rel=0.01)
        normal[z] = math.erfc(z / math.sqrt(2)) / 2 / p
    assert [round(share, 2) for share in normal.values()] == [0.65, 0.08, 0.0]


@pytest.mark.parametrize("power", [2, 3, 4])
def test_hits_of_two_weights(power):
    # the Fourier transform of these sums returns to nearly 1 at high frequencies
    rng = np.random.default_rng(1)
    N, weight = rng.integers(20, 13000, 200), np.where(rng.random(200) < 0.3, 0.7310585, 1.0)
    value = weight[np.ceil(N * rng.random(200) ** power) <= 3].sum()
    masses = [
        reduce(np.convolve, [[1 - 3 / n, 3 / n] for n in N[weight == one]])
        for one in (0.7310585, 1.0)
    ]
    sums = np.add.outer(0.7310585 * np.arange(len(masses[0])), np.arange(len(masses[1])))
    exact = math.log(np.multiply.outer(*masses)[sums > value - 1e-9].sum())
    assert_near(upper_tail(d.hits_at(3), value / weight.sum(), N, weight), exact)


@pytest.fixture(scope="module")
def two_weights():
    """Counts (2, 1000) of weights 1 and 2; mean, deviation and tails of the sum of v / r."""
    # many distinct N are condensed; up to second order in 1/N, the distribution of 1/r is that for
    # their harmonic mean
    N, size, span = np.random.default_rng(0).integers(500_000, 10**6, (2, 1000)), 1 << 21, 16.0
    spectrum, mean, variance = 1.0, 0.0, 0.0
    for weight, counts in zip((1, 2), N, strict=True):
        x = weight / np.arange(1, round(1 / np.mean(1 / counts)) + 1)
        left = np.floor(x * size / span).astype(int)
        right = x * size / span - left
        pmf = np.bincount(left, 1 - right, size) + np.bincount(left + 1, right, size)
        spectrum = spectrum * np.fft.rfft(pmf / len(x)) ** len(counts)
        mean, variance = mean + len(counts) * x.mean(), variance + len(counts) * x.var()
    pmf = np.fft.irfft(spectrum, size)
    return N, mean, math.sqrt(variance), lambda value: pmf[round(value * size / span) :].sum()


@pytest.mark.parametrize("z", [1.0, 3.0, 5.0])
def test_reciprocal_ranks_with_two_weights_by_a_fine_grid(z, two_weights):
    N, mean, deviation, tail_at = two_weights
    value = mean + z * deviation
    tail = upper_tail(MRR, value / 3000, N.ravel(), np.repeat([1.0, 2.0], 1000))
    assert_near(tail, math.log(tail_at(value)))


@pytest.mark.parametrize("definition", [d.MEAN_RANK, MRR, d.hits_at(3), GMR], ids=name)
def test_order_and_splitting_of_tasks_do_not_matter(definition):
    counts = np.r_[[14] * 100, [1] * 3, [9] * 51, [13] * 77]
    weights = np.repeat([1.0, 2.0, 3.0], 77)
    ranks = np.random.default_rng(0).integers(1, counts + 1).astype(float)
    value = float(values(definition, ranks[None], weights)[0])
    expected = log_p_value(definition, value, counts, weights)
    order = np.random.default_rng(1).permutation(len(counts))
    assert log_p_value(definition, value, counts[order], 7 * weights[order]) == pytest.approx(
        expected, rel=1e-8
    )
    split = CandidateCounts.of(np.r_[counts, 99], np.r_[weights, 0.0])
    assert log_p_value(definition, value, split) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("definition", [MRR, d.hits_at(1), d.MEAN_RANK], ids=name)
def test_an_observed_value_counts_in_any_order_of_summation(definition):
    rng = np.random.default_rng(0)
    weights = 1 / np.repeat([3.0, 7.0, 50.0], [3, 7, 50])
    v = weights / weights.sum()
    ranks = rng.integers(1, 4, 60)
    terms = v * definition.f(torch.from_numpy(ranks.astype(float))).numpy()
    sums = {float(np.cumsum(rng.permutation(terms))[-1]) for _ in range(30)} | {math.fsum(terms)}
    assert len(sums) > 2
    assert np.ptp([log_p_value(definition, s, [3] * 60, weights) for s in sums]) < 1e-6


@pytest.mark.parametrize("definition", [MRR, GMR, SQUARES], ids=name)
def test_better_values_are_rarer(definition):
    N = np.r_[[1000] * 300, [977] * 100]
    grid = np.geomspace(0.004, 0.9, 8) if definition.higher_is_better else np.linspace(900, 2, 8)
    found = [log_p_value(definition, x, N) for x in grid.tolist()]
    assert all(a > b for a, b in itertools.pairwise(found[2:]))
    assert all(a >= b for a, b in itertools.pairwise(found))


def test_which_metrics_have_a_p_value():
    assert all(definition.has_p_value for definition in MEANS + EXTREMES)
    assert not d.RankDefinition(
        "bent", g=lambda x: (x - 3) ** 2, optimum=0.0, higher_is_better=False
    ).has_p_value


@pytest.mark.parametrize("definition", WITHOUT, ids=lambda definition: definition.name)
def test_metrics_without_a_p_value_raise_their_name(definition):
    assert not definition.has_p_value
    with pytest.raises(ValueError, match=definition.name):
        log_p_value(definition, 1.0, [3, 4])


@pytest.mark.parametrize(
    ("value", "counts", "message"),
    [
        (math.nan, [3], "nan"),
        (1.0, [0], "at least 1"),
        (1.0, [], "empty|integers"),
    ],
)
def test_bad_input(value, counts, message):
    with pytest.raises((ValueError, TypeError), match=message):
        log_p_value(d.MEAN_RANK, value, counts)


@pytest.mark.parametrize("pair", [("p_mr", "p_imr"), ("p_mrr", "p_hmr"), ("p_gmr", "p_igmr")])
def test_a_metric_and_its_inverse_have_one_p_value_bit_for_bit(pair):
    # nothing is inverted on the way: 1 / (1 / x) is not x, nor log(exp(x))
    rng = np.random.default_rng(0)
    for _ in range(cases(6, 60).max_examples):
        N = rng.integers(5, 2000, int(rng.integers(3, 60)))
        ranks = np.minimum((N * rng.random(len(N)) ** 2).astype(int) + 1, N)
        first, second = evaluate(ranks, N, list(pair)).values()
        assert first == second


@pytest.mark.parametrize(
    ("metric", "n", "top"), [(DCG, 200, 14_541), (STEPS, 2000, 1000), (d.hits_at(10), 2000, 1000)]
)
def test_many_random_weights_by_simulation(metric, n, top):
    random = np.random.default_rng(n)
    N, weights = random.integers(5, top + 1, n), random.exponential(size=n)
    f = metric.f(torch.arange(1, top + 1, dtype=torch.float64)).double().numpy()
    means = np.array(
        [f[(random.random(n) * N).astype(int)] @ weights / weights.sum() for _ in range(2000)]
    )
    for share in (0.7, 0.3, 0.02):
        error = math.sqrt(share * (1 - share) / len(means))
        got = p_value(metric, float(np.quantile(means, 1 - share)), N, weights)
        assert abs(got - share) < 4 * error + 0.01 * share


def test_many_weights_far_in_the_tail_by_the_saddlepoint():
    # the formula of Lugannani and Rice from the whole table, for 2,000 weights of 20 tasks each
    weights = np.random.default_rng(0).exponential(size=2000) + 0.01
    v, x = weights / weights.sum() / 20, 1 / np.arange(1, 1001)
    value, low, high = 0.03, 0.0, 1e6
    for _ in range(45):
        t = (low + high) / 2
        e = np.exp(t * np.multiply.outer(v, x - 1))
        mean = (e @ x) / e.sum(axis=1)
        low, high = (t, high) if 20 * v @ mean < value else (low, t)
    K = 20 * (t * v + np.log(e.mean(axis=1))).sum()
    variance = 20 * v**2 @ ((e @ x**2) / e.sum(axis=1) - mean**2)
    want = K - t * value - math.log(t * math.sqrt(2 * math.pi * variance))
    assert log_p_value(MRR, value, [1000] * 40_000, np.repeat(weights, 20)) == pytest.approx(
        want, abs=2e-2
    )
    assert want < -100


@pytest.mark.parametrize(("sum_", "n"), [(8000, 2000), (1500, 300), (533, 6000)])
def test_hits_with_integer_weights_by_convolution(sum_, n):
    # one weight for almost every task, whose lattice is too fine to be used, or interpolated
    # weights on a lattice
    random = np.random.default_rng(n)
    k, N, weights = 10, random.integers(400, 1001, n), random.integers(1, 1001, n)
    if n > 4096:
        k, N, weights = (
            1,
            np.geomspace(150, 9000, 100).astype(int).repeat(60),
            np.tile(np.arange(1, 61), 100),
        )
    below = np.eye(1, sum_)[0]
    for size, w in zip(N.tolist(), weights.tolist(), strict=True):
        below = below * (1 - k / size) + np.r_[np.zeros(w), below[:-w]][:sum_] * (k / size)
    tail = upper_tail(d.hits_at(k), sum_ / weights.sum(), N, weights)
    assert_near(tail, math.log(1 - below.sum()))


@pytest.mark.parametrize(("k", "N", "n"), [(1, [1000], 100_000), (500, np.arange(250, 900), 3000)])
def test_hits_of_many_weights_by_the_saddlepoint(k, N, n):
    # weights so dense that merging equal ones link by link merges all; N near k, where min(k / N,
    # 1) has a kink
    weights, N = 1 + np.random.default_rng(0).random(n) ** 2, np.resize(N, n)
    v, p = weights / weights.sum(), np.minimum(k / N, 1)
    low, high, value = 0.0, 1e6, v @ p + 6 * math.sqrt(v**2 @ (p * (1 - p)))
    for _ in range(60):
        t = (low + high) / 2
        q = p * np.exp(t * v) / (1 + p * np.expm1(t * v))
        low, high = (t, high) if v @ q < value else (low, t)
    z = t + 1j * np.arange(120) * 0.2 / math.sqrt(v**2 @ (q * (1 - q)))
    K = np.array([np.log1p(p * np.expm1(one * v)).sum() for one in z])
    terms = (np.exp(K - K[0].real - 1j * z.imag * value) / z).real * np.where(z.imag > 0, 2, 1)
    exact = K[0].real - t * value + math.log(terms.sum() * z[1].imag / 2 / math.pi)
    assert_near(upper_tail(d.hits_at(k), value, N, weights), exact)


# a metric, f in rational numbers (for GMR r itself: products in place of sums), whether a larger
# sum is better
EXACT = {
    "mr": (d.MEAN_RANK, lambda r: Fraction(r), False),
    "imr": (d.INVERSE_MEAN_RANK, lambda r: Fraction(r), False),
    "mrr": (MRR, lambda r: Fraction(1, r), True),
    "hmr": (d.HARMONIC_MEAN_RANK, lambda r: Fraction(1, r), True),
    "hits": (d.hits_at(3), lambda r: Fraction(r <= 3), True),
    "quadratic": (SQUARES, lambda r: Fraction(r**2), False),
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
        got = log_p_value(
            definition, of_mean(definition, x / total), N, [float(w) for w in weights]
        )
        assert got >= math.log(exact) - 1e-9
        # what counts as tied with x is what lies within the rounding of weights
        near = Fraction(1, 2**19) * (abs(x) + total)
        reached = [p for y, p in tails if (y >= x - near if larger else y <= x + near)]
        assert got <= math.log(max(reached)) + 1e-9


def integer_tails(steps, n):
    """(sum, log P(at least it)) of n draws of integers, exact, descending; every 20th below 1/2."""
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
    # N = 6, in units of 1/60; N = 5, by how much r^3 falls short of 125, less one
    ("p", "steps", "n"),
    [
        (-1, [60, 30, 20, 15, 12, 10], 90),
        (3, [124, 117, 98, 61, 0], 40),
        (-2, [144, 36, 16, 9], 40),
    ],
)
def test_far_tails_by_integer_convolution(p, steps, n):
    definition, worst = MRR if p == -1 else d.power_mean_rank(p), 0.0
    for x, exact in integer_tails(steps, n):
        mean = {3: 125 - x / n, -1: x / n / 60, -2: x / n / 144}[p]
        got = log_p_value(definition, of_mean(definition, mean), [len(steps)] * n)
        assert got == pytest.approx(exact, abs=1e-7)
        worst = min(worst, exact)
    assert worst < math.log(1e-20)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("definition", "N", "values"),
    [
        (d.hits_at(10), 4, (1.0, 1 - 1e-15)),
        (d.hits_at(1), 1, (1.0, 1 - 1e-15)),
        (d.MEAN_RANK, 1, (1.0, 1 - 1e-15)),
        (MRR, 1, (1.0, 1 - 1e-15)),
        (GMR, 1, (1.0, 1 - 1e-15)),
        (d.power_mean_rank(3), 1, (1.0, 1 - 1e-15)),
        (d.power_mean_rank(math.inf), 1, (1.0,)),
    ],
    ids=["hits@10", "hits@1", "mr", "mrr", "gmr", "power mean", "maximum"],
)
def test_a_constant_has_p_one(definition, N, values, weighted):
    weights = np.random.default_rng(0).random(49) + 0.01 if weighted else None
    for value in values:
        assert log_p_value(definition, value, [N] * 49, weights) == 0.0


@pytest.mark.parametrize("weighted", [False, True])
def test_hits_among_few_candidates_have_p_one_and_no_z_score(weighted):
    weights = np.random.default_rng(0).random(49) + 0.01 if weighted else None
    with warnings.catch_warnings(action="ignore"):
        values = trm.evaluate([1] * 49, 4, ["p_hits@10", "z_hits@10"], weight=weights)
    assert values["p_hits_at_10"] == trm.adjust(1.0, "hits@10", [4] * 49, view="p_value") == 1.0
    assert math.isnan(values["z_hits_at_10"])


@pytest.mark.parametrize("definition", [d.MEAN_RANK, MRR, d.hits_at(2), SQUARES], ids=name)
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
    assert p_value(MRR, 1 / 49990, [50000]) == pytest.approx(0.9998, rel=1e-6)


@pytest.mark.parametrize(
    ("N", "n", "value"), [(14505, 200, 1.5), (1000, 130, 1.2), (300, 1000, 1.2)]
)
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
    assert_near(upper_tail(SQUARES, value, [N] * n), exact)


@pytest.mark.parametrize(
    "definition", [MRR, d.MEAN_RANK, GMR, d.power_mean_rank(4), d.hits_at(10)], ids=name
)
@pytest.mark.parametrize(
    "counts", [[40_000] * 500, [100, 40_000] * 50, [183_098] * 3], ids=["equal", "mixed", "few"]
)
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


SIZES = [65_536, 10**6, 10**9]
SHARES = [1e-6, 0.02, 0.5, 0.9, 0.999]


@pytest.mark.parametrize("N", SIZES, ids=str)
@pytest.mark.parametrize("share", SHARES)
def test_one_task_has_the_share_of_its_rank(N, share):
    rank = max(1, round(share * N))
    # how many ranks are as good as tied: sums of reciprocals are known to 4e-15, sums of squares to
    # 4e-15 N^2
    ties = {MRR: 4e-15 * rank**2, GMR: 1e-7 * rank, SQUARES: 4e-15 * N**2 / rank}
    for definition, value in ((MRR, 1 / rank), (GMR, float(rank)), (SQUARES, float(rank))):
        got = p_value(definition, value, [N]) * N
        assert rank * (1 - 1e-9) <= got <= rank * (1 + 1e-8) + 2 * ties[definition] + 1


@pytest.mark.parametrize("N", [300_000, 500_000, 524_288, 10**6])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.64, 0.99])
@pytest.mark.parametrize(
    "definition", [d.MEAN_RANK, d.MEAN_AUC], ids=lambda definition: definition.name
)
def test_the_rank_of_one_task_has_its_share(definition, N, share):
    rank = round(share * N)
    value = rank if definition is d.MEAN_RANK else (N - rank) / (N - 1)
    assert p_value(definition, value, [N]) == pytest.approx(rank / N, rel=1e-9)


@pytest.mark.parametrize("N", [10**6, 10**9], ids=str)
@pytest.mark.parametrize("n", [1, 3, 40])
def test_a_value_next_to_the_worst_has_the_probability_of_being_reached(N, n):
    # reciprocals of the worst ranks grow by about 1 / N^2 from one to the next: distances of n
    # ranks that add up to < k
    k = N // 1000
    value = (n - 1) / n / N + 1 / n / (N - k)
    missed = math.comb(k - 1 + n, n) / N**n
    assert (1 - missed) * (1 - 1e-9) <= p_value(MRR, value, [N] * n) <= 1


def test_thousand_weights_among_a_million_candidates_by_simulation():
    rng = np.random.default_rng(0)
    N, weights = rng.integers(500_000, 1_500_000, 1000), rng.random(1000) + 0.5
    weights /= weights.sum()
    means = np.concatenate(
        [(1 / np.ceil(rng.random((500, 1000)) * N)) @ weights for _ in range(20)]
    )
    for share in (0.9, 0.1):
        error = math.sqrt(share * (1 - share) / len(means))
        assert (
            share - 4 * error
            <= p_value(MRR, np.quantile(means, 1 - share), N, weights)
            <= 1.03 * share + 4 * error
        )


@pytest.mark.parametrize(
    ("definition", "N", "tiny"),
    # hits: half of N leave no choice
    [(SQUARES, (20, 10**6), 1), (d.hits_at(10), (2, 9), 1), (STEPS, (2, 90), 1e-17)],
)
def test_interpolated_weights_by_simulation(definition, N, tiny):
    rng = np.random.default_rng(0)
    N = np.r_[np.exp(rng.uniform(*np.log(N), 2500)), rng.integers(101, 60_000, 2000)].astype(int)
    weights = rng.lognormal(size=4500) * np.repeat([tiny, 1], [2500, 2000])
    f = definition.f(torch.arange(1, N.max() + 1, dtype=torch.float64)).double().numpy()
    means = np.array(
        [f[(rng.random(4500) * N).astype(int)] @ weights / weights.sum() for _ in range(2000)]
    )
    for share in (0.7, 0.1):
        value = definition.g(
            torch.tensor(np.quantile(means, 1 - share if definition.higher_is_better else share))
        )
        error = math.sqrt(share * (1 - share) / len(means))
        assert (
            share - 4 * error
            <= p_value(definition, float(value), N, weights)
            <= 1.03 * share + 4 * error
        )


def test_values_near_the_ends_if_few_tasks_have_a_choice():
    rng = np.random.default_rng(0)
    N, weights = np.r_[[1] * 900, rng.integers(2000, 60_000, 150)], rng.lognormal(size=1050)
    assert p_value(
        MRR, np.average(1 / np.maximum(N - 2, 1), weights=weights), N, weights
    ) == pytest.approx(1)
    # the last are below the rounding
    N, weights = np.arange(200, 5300), np.r_[np.arange(1.0, 5081.0), [1e-17] * 20]
    log_p = log_p_value(d.hits_at(100), 1.0, N, weights)
    assert np.log(100 / N).sum() - 1e-6 <= log_p <= np.log(100 / N[:-20]).sum() + 0.02


@pytest.mark.parametrize("ranks", [(200, 1500, 1800), (300, 1000, 1500), (400, 1000, 1000)])
def test_reciprocal_ranks_of_three_tasks_by_counting_all_ranks(ranks):
    N = (4100, 4500, 5000)
    total = sum(1 / r for r in ranks)
    rest = total * (1 - 1e-13) - np.add.outer(
        1 / np.arange(1, N[0] + 1), 1 / np.arange(1, N[1] + 1)
    )
    reached = np.floor(np.minimum(1 / np.maximum(rest, 1 / N[2]), N[2]))
    exact = math.log(reached.sum()) - math.log(math.prod(N))
    assert_near(upper_tail(MRR, total / 3, N), exact)


@pytest.mark.parametrize(
    "f", [lambda r: torch.sin(2 * r), lambda r: -r.sqrt()], ids=["waves", "roots"]
)
@pytest.mark.parametrize("share", [0.5, 0.9, 1e-3])
def test_few_values_by_counting_how_often_each_is_drawn(f, share):
    # the transform returns near 1 again and again: no number of frequencies gives all digits
    sums, masses, left = np.zeros(1), np.ones(1), np.array([50])
    for i, x in enumerate(f(torch.arange(1, 6, dtype=torch.float64)).tolist()):
        at, k = np.nonzero(
            np.arange(51) <= left[:, None] if i < 4 else np.arange(51) == left[:, None]
        )
        left, sums, masses = (
            left[at] - k,
            sums[at] + k * x,
            masses[at] * np.array([1 / math.factorial(j) for j in k]),
        )
    order = np.argsort(sums)
    sums, reached = sums[order], np.append(np.cumsum(masses[order][::-1])[::-1] / masses.sum(), 0.0)
    value = sums[np.searchsorted(-reached, -share)] + sums[len(sums) // 2]
    exact = -np.diff(reached) @ reached[np.searchsorted(sums, value - 1e-11 - sums)]
    definition = d.RankDefinition("x", f=f, higher_is_better=True, optimum=1.0)
    assert_near(upper_tail(definition, value / 100, [5] * 100), math.log(exact))


def test_a_rounded_metric_of_many_ranks_is_a_lattice():
    def f(r):
        return torch.round(1 - r.log() / 8, decimals=4)

    units = np.rint(f(torch.arange(1, 1001, dtype=torch.float64)).numpy() * 10_000).astype(int)
    law = np.fft.irfft(
        np.fft.rfft(np.bincount(units, minlength=3_000_001) / 1000) ** 300, 3_000_001
    )
    definition = d.RankDefinition("rounded", f=f, higher_is_better=True, optimum=1.0)
    for total in (725_000, 800_000):
        tail = upper_tail(definition, total / 3_000_000, [1000] * 300)
        assert_near(tail, math.log(law[total:].sum()))


def test_steps_rounded_to_float32_are_a_lattice():
    # counts of the values 1.8, 0.8 and 0.3 of 2,000 tasks
    counts, law = np.array([2, 20, 165]), np.bincount([18, 8, 3, 0], [0.001, 0.009, 0.09, 0.9])
    exact = np.fft.irfft(np.fft.rfft(law, 40_001) ** 2000, 40_001)[counts @ [18, 8, 3] :].sum()
    value = float(counts @ STEPS.f(torch.tensor([1.0, 5.0, 50.0])).double().numpy()) / 2000
    assert_near(upper_tail(STEPS, value, [1000] * 2000), math.log(exact))


@pytest.mark.parametrize("z", [0.0, 3.0, 6.0])
def test_reciprocal_ranks_on_a_fine_lattice_by_its_whole_distribution(z):
    # sums of 100 multiples of 1 / 27720, tilted toward s, on a circle that is longer than their
    # range in effect
    n, size, x = 100, 1 << 21, 27_720 // np.arange(1, 13)
    t = z / x.std() / math.sqrt(n)
    q = np.exp(t * (x - x.max()))
    at = np.bincount(x, q / q.sum(), size)
    law, base = (
        np.fft.irfft(np.fft.rfft(at) ** n, size),
        n * math.log(q.sum() / 12) + n * t * float(x.max()),
    )
    # below the smallest sum: once around
    s = np.arange(size) + size * (np.arange(size) < n * x.min())
    target = round(n * float(q @ x / q.sum()))
    total = int(s[np.argmin(np.where(law > law.max() / 10, abs(s - target), size))])
    reached = s >= total
    exact = base - t * total + math.log(law[reached] @ np.exp(-t * (s[reached] - total)))
    assert_near(upper_tail(MRR, total / 27_720 / n, [12] * n), exact)


NOISE = torch.from_numpy(np.random.default_rng(0).uniform(-1e-13, 1e-13, 64))
OWN = {
    "plateaus": lambda r: -torch.floor(r / 3),
    "noisy_plateaus": lambda r: (5 - torch.floor(r / 3)) * (1 + NOISE[r.long() % 64]),
    "period": lambda r: torch.sin(math.pi / 2 * r),  # 1, 1e-16, -1, -2e-16, 1, ...
    "noisy_period": lambda r: r % 3 + 1e-14 * torch.sin(r),
    "rising": lambda r: r.sqrt(),
}


@pytest.mark.parametrize("key", sorted(OWN))
@pytest.mark.parametrize("larger", [True, False])
@pytest.mark.parametrize(
    ("N", "weights"), [((8, 5, 8), (1, 1, 1)), ((6, 7, 3, 4), (1, 2, 0.5, 1)), ((7,), (1,))]
)
def test_values_that_agree_up_to_rounding_are_one(key, larger, N, weights):
    f = OWN[key]
    definition = d.RankDefinition(key, f=f, optimum=None, higher_is_better=larger)
    outcomes = np.array(list(itertools.product(*[range(1, n + 1) for n in N])), float)
    v = np.array(weights) / sum(weights)
    means = f(torch.from_numpy(outcomes)).numpy() @ v
    size = max(abs(means)) + 1e-300
    for mean in np.random.default_rng(0).choice(means, 8):
        near = 1e-11 * size + 4e-15
        better = means >= mean - near if larger else means <= mean + near
        assert p_value(definition, mean, N, weights) == pytest.approx(better.mean(), rel=1e-6)


@pytest.mark.parametrize("name", ["p_gmr", "p_igmr", "p_mrr", "p_mr", "p_hits@1", "p_hmr"])
def test_tasks_of_a_single_candidate_have_p_one(name):
    with warnings.catch_warnings(action="ignore"):
        assert list(evaluate([1, 1, 1], [1, 1, 1], [name]).values()) == [1.0]


@pytest.mark.parametrize("value", [0.05, 0.1, 0.3])
def test_a_step_function_of_a_user_has_the_p_value_of_hits(value):
    rng = np.random.default_rng(0)
    N, weights = rng.integers(20, 3000, 500), rng.choice([1.0, 2.0], 500)
    step = d.RankDefinition("step", f=lambda r: (r <= 10).double())
    want = upper_tail(d.hits_at(10), value, N, weights)
    assert upper_tail(step, value, N, weights) == pytest.approx(want)


def test_a_simulated_p_value_is_the_same_each_time_and_states_its_error():
    rng = np.random.default_rng(2)
    N, weights = rng.integers(300, 5000, 12), rng.random(12) + 0.1
    first, second = (upper_tail(MRR, 0.05, N, weights) for _ in range(2))
    assert first == second
    assert 0 < first.error < 0.02


def cells():
    """Mean, N, weights, exact log p for integers f(r) = -r, 1/r in units of 1/2520, [r <= 2]."""
    random = np.random.default_rng(0)
    sizes = itertools.product((5, 12, 40, 120), ("mr", "mrr", "hits"))
    for n, metric in (one for one in sizes if one != (120, "mrr")):
        N = random.integers(3, 11, n)
        weight = random.integers(1, 4, n)
        values = {"mr": lambda r: 10 - r, "mrr": lambda r: 2520 // r, "hits": lambda r: 1 * (r < 3)}
        steps = [w * values[metric](np.arange(1, m + 1)) for m, w in zip(N, weight, strict=True)]
        law = np.ones(1)
        for one in steps:
            law = np.maximum(fftconvolve(law, np.bincount(one) / len(one)), 0.0)
        tail = np.cumsum(law[::-1])[::-1]
        sums = np.flatnonzero(law > 1e-9 * law.max())
        for total in sums[tail[sums] > 1e-9][:: max(1, len(sums) // 20)].tolist():
            mean = total / weight.sum()
            mean = {"mr": 10 - mean, "mrr": mean / 2520, "hits": mean}[metric]
            yield metric, mean, N, weight, math.log(tail[total])


def test_two_hundred_cells_by_convolution():
    found = list(cells())
    assert len(found) >= 180
    for metric, mean, N, weight, exact in found:
        definition = {"mr": d.MEAN_RANK, "mrr": MRR, "hits": d.hits_at(2)}[metric]
        assert_near(upper_tail(definition, mean, N, weight), exact)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["hits_at_3", "mrr"])
@pytest.mark.parametrize("levels", [4, None])
def test_the_size_under_random_weights_and_ties_is_at_most_the_level(metric, levels):
    """Random scores of ``levels`` values, or without ties, and exponential weights."""
    random = np.random.default_rng(0)
    n, N, draws = 12, 30, 200
    weight = random.exponential(size=n)
    found = []
    for _ in range(draws):
        scores = random.integers(levels, size=(n, N)) if levels else random.random((n, N))
        one = trm.RankMetric(metric, view="p_value", rank_type="pessimistic")
        one.update(torch.from_numpy(scores), torch.zeros(n).long(), weight=torch.tensor(weight))
        found.append(one.compute().item())
    assert np.mean(np.array(found) <= 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / draws)
