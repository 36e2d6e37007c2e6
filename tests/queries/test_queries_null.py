"""Moments and p-values of queries: outcomes of small ones, 50 digits, convolutions, simulation."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import hypergeom

import reference_queries as exact
from query_metrics import METRICS, every_metric, sample_of, sample_of_rows
from torchrankmetrics.definitions import MEAN_AUC, MEAN_RECIPROCAL_RANK, AtMost, Power, hits_at
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.queries import definitions as d, significance
from torchrankmetrics.queries.kind import hit_distribution
from torchrankmetrics.queries.sample import QuerySample, random_subsets
from torchrankmetrics.queries.significance import query_p_value

LARGE = [(2, 1), (3, 2), (4, 2), (10, 3), (300, 299), (2_000, 1), (54_321, 2), (10**6, 1_000)]
LARGE += [(10**7, m) for m in (1, 3, 60_000, 5 * 10**6, 10**7 - 1)]


@every_metric
def test_moments_are_those_of_all_outcomes(definition, value):
    pairs = [(N, m) for N in range(1, 10) for m in range(1, N + 1)]
    means, variances = definition.moments(*np.array(pairs).T)
    for (N, m), mean, variance in zip(pairs, means, variances, strict=True):
        values = [value(ranks, N) for ranks in exact.outcomes(N, m)]
        if values[0] is None:
            assert np.isnan(mean)
            assert variance == 0
            continue
        want_mean, want = exact.moments(values)
        assert mean == pytest.approx(float(want_mean), rel=2e-15)
        if len(set(values)) == 1:
            assert variance == 0  # exactly: views are undefined there
        else:
            assert variance == pytest.approx(float(want), rel=2e-14)


def precise_average_precision(N, m, k):
    """E and V of AP to 50 digits, from the raw second moment: E J_r C_r J_s C_s summed over r <= s.

    J_r: place r holds an answer; C_r: answers up to it. p_j = m .. (m - j + 1) / N .. (N - j + 1)
        is the probability
    that j given places do. What cancels, up to 30 digits, is why the library does not do it.
    """
    with mpmath.workdps(110):
        N, m = mpmath.mpf(N), mpmath.mpf(m)
        T = N if k is None else min(mpmath.mpf(k), N)
        H, H2 = mpmath.harmonic(T), mpmath.zeta(2) - mpmath.psi(1, T + 1)
        p = [mpmath.mpf(1)]
        for i in range(4):
            p.append(p[-1] * (m - i) / (N - i) if i < N else mpmath.mpf(0))
        mean = p[1] * H + p[2] * (T - H)
        same = p[1] * H2 + 3 * p[2] * (H - H2) + p[3] * (T - 3 * H + 2 * H2)
        harmonic_over = (H * H - H2) / 2  # sum of H_(s-1) / s
        pairs = (2 * p[2] - 4 * p[3] + 2 * p[4]) * harmonic_over + (3 * p[3] - 2 * p[4]) * (T - H)
        pairs += (p[3] - p[4]) * (T * H - T - harmonic_over) + p[4] * (T * (T + 1) / 2 - 2 * T + H)
        return mean / m, (same + 2 * pairs - mean**2) / m**2


@pytest.mark.parametrize(("N", "m"), LARGE)
@pytest.mark.parametrize("k", [None, 1, 2, 100, 30_000])
def test_moments_of_average_precision_agree_with_50_digits(N, m, k):
    (mean,), (variance,) = d.average_precision(k).moments([N], [m])
    want_mean, want = precise_average_precision(N, m, k)
    assert mean == pytest.approx(float(want_mean), rel=1e-14)
    assert variance == pytest.approx(float(want), rel=2e-14, abs=0), (N, m)


@pytest.mark.parametrize("k", [None, 7, 5_000])
@pytest.mark.parametrize(
    ("N", "m"), [(2_000, 2), (10**5, 3), (10**5, 700), (300_000, 150_000), (10**5, 10**5 - 3)]
)
def test_moments_of_the_first_hit_are_the_sums_over_every_place(N, m, k):
    r = np.arange(1, N - m + 2, dtype=np.longdouble)
    hazard = m / (N - r + 1)
    beyond = np.r_[np.longdouble(1), np.cumprod(1 - hazard)]
    distribution = beyond[:-1] * hazard
    for definition, value in (
        (d.first_reciprocal_rank(k), np.where(r <= (k or N), 1 / r, 0)),
        (d.success_at(k or N), np.where(r <= (k or N), 1.0, 0.0).astype(np.longdouble)),
    ):
        (mean,), (variance,) = definition.moments([N], [m])
        want = (distribution * value).sum()
        assert mean == pytest.approx(float(want), rel=1e-14)
        assert variance == pytest.approx(
            float((distribution * (value - want) ** 2).sum()), rel=1e-11, abs=1e-30
        )


@pytest.mark.parametrize("k", [None, 100])
def test_moments_of_ndcg_are_the_sums_over_every_place(k):
    N, m = 200_000, 12
    r = np.arange(1, N + 1, dtype=np.longdouble)
    gain = np.where(r <= (k or N), 1 / np.log2(1 + r), 0)
    ideal = (1 / np.log2(1 + r[: min(m, k or m)])).sum()
    (mean,), (variance,) = d.normalized_dcg(k).moments([N], [m])
    assert mean == pytest.approx(float(m * gain.mean() / ideal), rel=1e-14)
    spread = ((gain - gain.mean()) ** 2).mean()
    assert variance == pytest.approx(float(m * spread * (N - m) / (N - 1) / ideal**2), rel=1e-13)


# a function of which nothing is known is summed as far as it must
@pytest.mark.parametrize(
    "definition",
    [definition for definition, _ in METRICS if definition.name != "root"],
    ids=lambda definition: definition.name,
)
def test_moments_of_as_many_candidates_as_there_can_be_are_finite(definition):
    (mean,), (variance,) = definition.moments(np.array([(1 << 62) - 1]), [3])
    assert np.isfinite(mean)
    assert variance > 0


def test_the_mean_of_as_many_candidates_as_there_can_be_is_a_harmonic_number():
    N = np.array([(1 << 62) - 1])
    (mean,), _ = d.first_reciprocal_rank().moments(N, [1])
    assert mean == pytest.approx((62 * np.log(2) + np.euler_gamma) / 2**62, rel=1e-12)


@pytest.mark.parametrize(("N", "m"), [(6, 2), (6, 5), (7, 1), (400, 3), (30, 12)])
def test_random_subsets_are_uniform(N, m):
    rows = 30_000
    ranks = random_subsets(np.random.default_rng(1), N, m, rows)
    assert (np.diff(ranks, axis=1) > 0).all()
    seen = np.bincount(ranks.ravel(), minlength=N + 1)[1:]
    assert np.abs(seen - rows * m / N).max() < 5 * np.sqrt(rows * m / N * (1 - m / N)) + 1e-9


SHAPES = [(5, 2), (6, 3), (4, 1)]  # N and m
OUTCOMES = [exact.outcomes(N, m) for N, m in SHAPES]


def untied(*queries, weight=None):
    """A sample of queries (N, ranks)."""
    return sample_of(
        *((N, [(int(r), int(r), 1) for r in ranks]) for N, ranks in queries), weight=weight
    )


@every_metric
@pytest.mark.parametrize("weight", [(1.0, 1.0, 1.0), (1.0, 0.5, 3.0)])
def test_p_is_the_share_of_all_outcomes_that_are_as_good(definition, value, weight):
    every = 0.0
    for (N, _), outcomes, w in zip(SHAPES, OUTCOMES, weight, strict=True):
        every = np.add.outer(every, [w * float(value(ranks, N)) for ranks in outcomes])
    sign = 1 if definition.higher_is_better else -1
    random = np.random.default_rng(0)
    for _ in range(6):
        chosen = [int(random.integers(len(outcomes))) for outcomes in OUTCOMES]
        ranks = [outcomes[i] for outcomes, i in zip(OUTCOMES, chosen, strict=True)]
        sample = untied(*((N, r) for (N, _), r in zip(SHAPES, ranks, strict=True)), weight=weight)
        log_p, error = query_p_value(definition, sample)
        want = (sign * every >= sign * every[tuple(chosen)] - 1e-12).mean()
        assert error == 0
        assert math.exp(log_p) == pytest.approx(want, rel=1e-9)


@every_metric
@pytest.mark.parametrize("ranks", [(1, 1, 1), (1, 3, 2), (2, 2, 4), (5, 1, 3), (5, 6, 4)], ids=str)
def test_with_one_relevant_item_p_is_the_share_of_all_ranks_that_are_as_good(
    ranks, definition, value
):
    sizes = (5, 6, 4)
    every = 0.0
    for N in sizes:
        every = np.add.outer(every, [float(value((r,), N)) for r in range(1, N + 1)])
    sign = 1 if definition.higher_is_better else -1
    sample = untied(*((N, (r,)) for N, r in zip(sizes, ranks, strict=True)))
    log_p, _ = query_p_value(definition, sample)
    want = (sign * every >= sign * every[tuple(r - 1 for r in ranks)] - 1e-12).mean()
    assert math.exp(log_p) == pytest.approx(want, rel=1e-9)


class FallOut(d.QueryKind):
    """A user's kind: the share of irrelevant candidates that is in the first two places."""

    f = AtMost(2)

    def values(self, sample):
        N, m = sample.num_candidates, sample.num_relevant
        inside = np.clip(3 - sample.optimistic, 0, sample.size) * sample.answers / sample.size
        return (np.minimum(2, N) - sample.sums(inside)) / (N - m)

    def null_moments(self, N, m):
        mean = np.minimum(2, N) * (1 - m / N) / (N - m)
        return mean, np.full(len(N), 0.01)


@pytest.mark.parametrize(
    ("sample", "want"),
    [
        (untied((5, [1])), 2 / 5),
        (untied((5, [2]), (6, [1])), 2 / 15),
        (untied((5, [2]), (6, [5])), 2 / 5),
    ],
    ids=["one query", "best of two queries", "two queries"],
)
def test_a_kind_of_a_user_has_no_shortcut_for_one_relevant_item(sample, want):
    definition = d.QueryDefinition("fall_out_at_2", kind=FallOut(), higher_is_better=False)
    assert FallOut().as_task() is None
    assert math.exp(query_p_value(definition, sample)[0]) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("definition", "task"),
    [
        (d.recall_at(10), hits_at(10)),
        (d.success_at(10), hits_at(10)),
        (d.R_PRECISION, hits_at(1)),
        (d.average_precision(), MEAN_RECIPROCAL_RANK),
        (d.QUERY_AUC, MEAN_AUC),
    ],
    ids=lambda one: one.name,
)
def test_with_one_answer_p_is_that_of_the_task_metric(definition, task):
    random = np.random.default_rng(3)
    N = random.integers(50, 3000, 400)
    low = np.minimum(random.integers(1, 200, 400), N)
    high = np.minimum(low + random.integers(0, 3, 400), N)
    sample = sample_of_rows(np.arange(400), low, high, N)
    log_p, _ = query_p_value(definition, sample)
    assert log_p == pytest.approx(
        log_p_value(task, definition.value(sample, "pessimistic"), N), rel=1e-9
    )
    precision, recall = (query_p_value(one(10), sample)[0] for one in (d.precision_at, d.recall_at))
    assert precision == pytest.approx(recall, rel=1e-9)


@pytest.mark.parametrize("lift", [1.0, 2.0, 6.0])
@pytest.mark.parametrize(
    ("definition", "distribution", "places"),
    [
        (
            d.recall_at(10),
            lambda N, m: np.kron(hypergeom.pmf(range(m + 1), N, m, 10), np.eye(4 // m)[0]),
            4,
        ),
        (d.precision_at(10), lambda N, m: hypergeom.pmf(range(m + 1), N, m, 10), 10),
        (
            d.success_at(10),
            lambda N, m: np.array([hypergeom.pmf(0, N, m, 10), hypergeom.sf(0, N, m, 10)]),
            1,
        ),
    ],
    ids=["recall", "precision", "success"],
)
def test_p_of_hits_is_a_convolution_of_hypergeometric_distributions(
    definition, distribution, places, lift
):
    """200 queries of 1, 2, 4 answers: recall in quarters, precision in tenths, success by ones."""
    random = np.random.default_rng(8)
    queries = list(
        zip(
            random.integers(300, 900, 200).tolist(),
            random.choice([1, 2, 4], 200).tolist(),
            strict=True,
        )
    )
    sample = untied(
        *((N, random.permutation(np.arange(1, int(N / lift) + 1))[:m]) for N, m in queries)
    )
    total = np.ones(1)
    for N, m in queries:
        total = np.convolve(total, distribution(N, m))
    hits = round(definition.value(sample) * len(queries) * places)
    assert math.exp(query_p_value(definition, sample)[0]) == pytest.approx(
        total[hits:].sum(), rel=1e-9
    )


@pytest.mark.parametrize("places", [(1, 1), (3, 40), (700, 2), (2500, 3100), (60, 4990)])
def test_p_of_first_hits_far_down_is_a_little_larger_never_smaller(places):
    N, m = 5000, 3
    rest = np.array([4999, 5000])
    sample = untied(*((N, [place, *rest][:m]) for place in places))
    beyond = np.cumprod(1 - m / (N - np.arange(N, dtype=np.longdouble)[: N - m + 1]))
    within = np.r_[0.0, 1 - beyond]
    distribution = np.diff(within)
    reached = np.longdouble(sum(1 / p for p in places))
    needed = reached - 1 / np.arange(1, N - m + 2, dtype=np.longdouble)
    with np.errstate(divide="ignore"):
        last = np.where(
            needed > 0, np.minimum(np.floor(1 / needed * (1 + 1e-9)), N - m + 1), N - m + 1
        ).astype(int)
    want = float((distribution * within[last]).sum())
    log_p, error = query_p_value(d.first_reciprocal_rank(), sample)
    # lists of 2048 first ranks
    assert want - 3 * error <= math.exp(log_p) <= want * 1.05 + 3 * error


def test_laws_with_more_atoms_than_wanted_are_better_never_worse():
    first = d.first_reciprocal_rank().kind.distribution
    for few, all_ in (
        (
            hit_distribution(10**5, 4000, 5000, 1.0, 50),
            hit_distribution(10**5, 4000, 5000, 1.0, 1 << 14),
        ),
        (first(10**5, 7, 100), first(10**5, 7, 1 << 18)),
    ):
        assert len(few[0]) <= 101
        assert few[1].sum() == pytest.approx(1, rel=1e-12)
        upper = [np.cumsum(probability[::-1])[::-1] for _, probability in (few, all_)]
        above = np.searchsorted(few[0], all_[0])
        assert (
            np.where(above < len(few[0]), np.r_[upper[0], 0.0][above], 0.0)
            >= upper[1] * (1 - 1e-10)
        ).all()


BINARY = untied((7, [2, 4]), (6, [1, 3, 5]), (5, [2]), weight=[1.0, 2.0, 0.5])
OF_THREE = 1 + np.argsort(np.random.default_rng(5).random((4, 6)), axis=1)[:, :3]
GRADED = QuerySample.ranked(OF_THREE, 9, np.tile([3.0, 2.0, 1.0], (4, 1)))


@pytest.mark.parametrize(
    ("definition", "sample"),
    [
        *(
            (one, BINARY)
            for one in (d.average_precision(), d.normalized_dcg(3), d.QUERY_AUC, d.recall_at(2))
        ),
        (d.QueryDefinition("mr", f=Power(1)), BINARY),
        *(
            (one(k), GRADED)
            for one in (d.normalized_dcg, d.exponential_ndcg, d.discounted_gain)
            for k in (None, 3)
        ),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_simulation_agrees_with_the_distribution(definition, sample, monkeypatch):
    want, error_of_want = query_p_value(definition, sample)
    monkeypatch.setattr(significance, "_distributions", lambda *_: None)
    log_p, error = query_p_value(definition, sample, samples=4_000)
    assert math.exp(log_p) * 4_001 == pytest.approx(round(math.exp(log_p) * 4_001), rel=1e-12)
    assert abs(math.exp(log_p) - math.exp(want)) < 4 * error + 1 / 4_000 + 3 * error_of_want
    assert query_p_value(definition, sample, samples=4_000) == (log_p, error)


def test_where_nothing_can_vary_p_is_one_and_without_a_value_there_is_none():
    assert query_p_value(d.recall_at(10), untied((5, [1, 2]), (7, [3]))) == (0, 0)
    with pytest.raises(ValueError, match="'query_auc' needs a query that has a value"):
        query_p_value(d.QUERY_AUC, untied((2, [1, 2])))


@pytest.mark.parametrize(
    "definition",
    [d.average_precision(), d.normalized_dcg(), d.QUERY_AUC],
    ids=lambda definition: definition.name,
)
def test_a_perfect_model_has_the_probability_of_one_ranking(definition):
    sample = untied((400, range(1, 7)), (500, range(1, 5)), (450, range(1, 3)))
    want = -math.log(math.comb(400, 6) * math.comb(500, 4) * math.comb(450, 2))
    log_p, error = query_p_value(definition, sample, samples=99)
    assert log_p == pytest.approx(want, rel=1e-12)
    assert error == 0
