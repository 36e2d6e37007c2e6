"""User-defined f(r), f(r, N) and AUC, in all views: against enumeration, fsum and closed forms."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import torchrankmetrics as trm
from torchrankmetrics import (
    MeanAUC,
    RankCollection,
    RankDefinition,
    RankMetric,
    RankMetricWarning,
    Ranks,
    evaluate,
)
from torchrankmetrics.datasets import PrecomputedExpectation
from torchrankmetrics.definitions import MEAN_AUC, WithCandidates, hits_at
from torchrankmetrics.definitions.transforms import Custom, rank_table
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.null.p_values import log_p_value, p_value
from torchrankmetrics.queries.definitions import QUERY_AUC, QueryDefinition, recall_at
from torchrankmetrics.queries.sample import QuerySample

pytestmark = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")

# the same function without the closed forms, and two that have none: a step, and one with another g
PLAIN = RankDefinition(
    "plain", f=WithCandidates(lambda r, n: (n - r) / (n - 1).clamp(min=1), min_candidates=2)
)
TOP = RankDefinition(
    "top", f=WithCandidates(lambda r, n: (r <= (n / 2).ceil()).double()), optimum=1.0
)
LOG = RankDefinition("log", f=WithCandidates(lambda r, n: r.log() / (n + 1).log()), g=torch.exp)
METRICS = [MEAN_AUC, PLAIN, TOP, LOG]
every_metric = pytest.mark.parametrize("definition", METRICS, ids=lambda d: d.name)

SMALL = [
    ([3], None),
    ([1, 4, 1, 2], None),
    ([2, 3, 4], [1.0, 2.0, 0.5]),
    ([4, 3, 1, 4], [0.5, 0.0, 1.0, 0.75]),
]


def values_of(definition, N, weights):
    """The metric at all rank vectors by the plain formula, without tasks of too few candidates."""
    w = [Fraction(1) if weights is None else Fraction(x) for x in (weights or N)]
    used = [i for i, n in enumerate(N) if n >= definition.min_candidates and w[i] > 0]
    v = [w[i] / sum(w[j] for j in used) for i in used]
    counts = torch.tensor([float(N[i]) for i in used], dtype=torch.float64)
    for ranks in itertools.product(*(range(1, N[i] + 1) for i in used)):
        if definition in (MEAN_AUC, PLAIN):
            yield sum(
                s * Fraction(N[i] - r, N[i] - 1) for s, i, r in zip(v, used, ranks, strict=True)
            )
        else:
            f = definition.f(torch.tensor(ranks, dtype=torch.float64), counts)
            mean = sum(float(s) * x for s, x in zip(v, f.tolist(), strict=True))
            yield definition.g(torch.tensor(mean, dtype=torch.float64)).item()


@every_metric
@pytest.mark.parametrize(("N", "weights"), SMALL)
def test_moments_are_those_of_all_rank_vectors(definition, N, weights):
    values = [float(x) for x in values_of(definition, N, weights)]
    precomputed = PrecomputedExpectation(N, weights).moments(definition, [9, 9])
    for moments in (DEFAULT_EXPECTATION.moments(definition, N, weights), precomputed):
        assert moments.mean == pytest.approx(np.mean(values), rel=1e-12)
        assert moments.variance == pytest.approx(np.var(values), rel=1e-10, abs=1e-30)


@every_metric
@pytest.mark.parametrize(("N", "weights"), SMALL)
def test_p_values_are_shares_of_all_rank_vectors(definition, N, weights):
    values = np.array([float(x) for x in values_of(definition, N, weights)])
    for x in np.unique(values):
        good = values >= x - 1e-12 if definition.higher_is_better else values <= x + 1e-12
        assert p_value(definition, x, N, weights) == pytest.approx(good.mean(), rel=1e-9)


def test_one_candidate_has_no_auc_and_changes_nothing():
    ranks, N, group = [2, 1, 5, 1], [4, 1, 9, 1], torch.tensor([0, 0, 1, 1])
    names = ["auc", "expected_auc", "adjusted_auc", "z_auc", "p_auc"]
    assert evaluate(ranks, N, names) == evaluate(ranks[::2], N[::2], names)
    macro = {"auc": RankMetric(MEAN_AUC, average="macro")}
    assert evaluate(ranks, N, macro, group=group)["auc"] == pytest.approx(
        (2 / 3 + 1 / 2) / 2, rel=1e-14
    )
    whole, part = (RankCollection(["auc", "adjusted_auc"]) for _ in range(2))
    whole.update(Ranks(ranks, None, N), group=group)
    part.update(Ranks(ranks[::2], None, N[::2]), group=group[::2])
    assert whole.confidence_intervals().rows == part.confidence_intervals().rows
    assert whole.breakdown()["adjusted_auc"] == part.breakdown()["adjusted_auc"]
    assert [row.base for row in whole.summary().rows] == [row.base for row in part.summary().rows]
    assert MeanAUC().moments(N) == MeanAUC().moments(N[::2])


def test_without_any_task_of_two_candidates_it_is_undefined():
    with pytest.warns(RankMetricWarning, match="auc is undefined") as reported:
        assert all(
            math.isnan(x)
            for x in evaluate([1, 1], [1, 1], ["auc", "adjusted_auc", "p_auc"]).values()
        )
    assert len(reported) == 1
    moments = MeanAUC().moments([1, 1])
    assert math.isnan(moments.mean)
    assert moments.variance == 0
    with pytest.raises(ValueError, match="at least 2"):
        trm.adjust(0.5, "auc", [1, 1])
    with pytest.raises(ValueError, match="at least 2 candidates"):
        p_value(MEAN_AUC, 0.5, [1, 1])
    with pytest.raises(ValueError, match="no tasks to compare 'auc' on"):
        trm.compare(Ranks([1], None, 1), Ranks([1], None, 1), "auc")


def test_a_best_value_that_depends_on_the_candidates_is_rejected():
    with pytest.raises(ValueError, match="rank 1 the same value for every number of candidates"):
        RankDefinition("relative", f=WithCandidates(lambda r, n: r / n))
    free = RankDefinition(
        "relative", f=WithCandidates(lambda r, n: r / n), optimum=None, higher_is_better=False
    )
    values = evaluate(
        [1, 2], [4, 8], {"base": RankMetric(free), "z": RankMetric(free, view="z_score")}
    )
    assert values["base"] == 0.25
    with pytest.raises(ValueError, match="no best value"):
        RankMetric(free, view="adjusted_index")


FUNCTIONS = {
    "step": lambda r: (r <= 70_000).double(),
    "every seventh": lambda r: (r % 7 == 0) * 0.3,
    "dcg": lambda r: 1 / torch.log2(1 + r),
    "cut dcg": lambda r: torch.where(r <= 100_000, 1 / torch.log2(1 + r), 0 * r),
    "waves": lambda r: torch.sin(r) + 1.1,
    "square": lambda r: r**2,
}


def step(k):
    return RankDefinition(
        f"own_hits_{k}", f=lambda r: (r <= k).double(), optimum=1.0, higher_is_better=True
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_moments_and_block_means_are_those_of_every_rank(name):
    f, rng = Custom(FUNCTIONS[name]), np.random.default_rng(0)
    N = np.unique(np.r_[1, 2, 3, 33, 34, 1000, 14_541, rng.integers(1, 200_000, 20)])
    table = rank_table(f, 200_000)
    mean, variance = f.null_moments(N)
    for i, n in enumerate(N.tolist()):
        center = math.fsum(table[:n]) / n
        assert mean[i] == pytest.approx(center, rel=2e-15)
        assert variance[i] == pytest.approx(
            math.fsum((table[:n] - center) ** 2) / n, rel=1e-14, abs=1e-31
        )
        alone = f.null_moments(N[i : i + 1])
        assert (alone[0][0], alone[1][0]) == (mean[i], variance[i])
    low = rng.integers(1, 200_000, 60)
    high = np.minimum(200_000, low + np.repeat([0, 2, 40_000], 20))
    for begin, end, found in zip(low, high, f.block_means(low, high), strict=True):
        assert found == pytest.approx(
            math.fsum(table[begin - 1 : end]) / (end - begin + 1), rel=2e-15
        )


@pytest.mark.parametrize(
    ("k", "N"), [(1, 34), (2, 1000), (5, 14_541), (1, 100_003), (10_000_000, 1 << 24)]
)
def test_steps_are_exact_up_to_the_limit(k, N):
    """Issue: a constant scorer had 2e-16 in place of k / N, at many N above 33."""
    tied = Ranks([1], [N], [N])
    assert (
        evaluate(tied, metrics={"own": RankMetric(step(k), rank_type="expected")})["own"] == k / N
    )
    found, expected = (DEFAULT_EXPECTATION.moments(one, [N]) for one in (step(k), hits_at(k)))
    assert (found.mean, found.variance) == pytest.approx((k / N, expected.variance), rel=1e-15)
    (mean,), _ = QueryDefinition(
        "own", f=lambda r: (r <= k).double(), higher_is_better=True
    ).moments([N], [3])
    assert mean == k / N


def test_p_values_of_steps_beyond_the_table():
    """Also of unequal weights; jumps of f that are not constant between them are found."""
    N, k, n = 200_000, 70_000, 50
    counts, weight = np.full(n, N), np.where(np.arange(n) < 25, 1.0, 1.5)
    for w, value in ((None, 27 / n), (weight, 0.55)):
        expected = log_p_value(hits_at(k), value, counts, w)
        assert log_p_value(step(k), value, counts, w) == pytest.approx(expected, rel=1e-9)
    cut = RankDefinition("cut_dcg", f=FUNCTIONS["cut dcg"])
    ranks = np.random.default_rng(1).integers(1, N + 1, (100_000, 20))
    simulated = np.where(ranks <= 100_000, 1 / np.log2(1.0 + ranks), 0).mean(1)
    value = float(np.quantile(simulated, 0.97))
    p = math.exp(log_p_value(cut, value, counts[:20]))
    assert p == pytest.approx((simulated >= value).mean(), abs=0.002)


def test_queries_with_too_few_candidates_are_left_out():
    """f(r, N) divides by zero there."""
    own = QueryDefinition("own", f=WithCandidates(lambda r, n: (n - r) / (n - 1), min_candidates=2))
    mean, variance = own.moments([1, 5, 9], [1, 1, 1])
    expected = QUERY_AUC.moments([1, 5, 9], [1, 1, 1])
    np.testing.assert_allclose((mean, variance), expected, rtol=1e-14)
    one = np.array([1, 1, 2])
    values = own.values(QuerySample.tied(one, one, np.array([1, 5, 9])))
    assert math.isnan(values[0])
    assert values[1:] == pytest.approx([1, 7.5 / 8])
    steps = QueryDefinition(
        "steps", f=WithCandidates(lambda r, n: (r <= 3).double() + 0 * n), higher_is_better=True
    )
    np.testing.assert_allclose(
        steps.moments([5, 9], [2, 4]), recall_at(3).moments([5, 9], [2, 4]), rtol=1e-14
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda N: DEFAULT_EXPECTATION.moments(step(3), [N]),
        lambda N: Custom(step(3).f).block_means(np.array([1]), np.array([N])),
        lambda N: log_p_value(step(3), 0.5, [N] * 4),
        lambda N: QueryDefinition("own", f=step(3).f, higher_is_better=True).moments([N], [2]),
    ],
    ids=["moments", "block means", "p-value", "query metric"],
)
def test_too_many_candidates_are_an_error(call):
    message = (
        r"num_candidates must be at most 16,777,216, to sum the user-defined f=.*<lambda> "
        r".* got 16,777,217.*Use"
    )
    with pytest.raises(ValueError, match=message):
        call((1 << 24) + 1)


@pytest.mark.parametrize(
    "call",
    [DEFAULT_EXPECTATION.moments, lambda share, counts: log_p_value(share, 0.5, counts)],
    ids=["moments", "p-value"],
)
def test_too_many_evaluations_are_an_error(call):
    share = RankDefinition(
        "share", f=WithCandidates(lambda r, n: (r <= n / 2).double()), optimum=1.0
    )
    counts = np.arange(1_000_000, 1_001_001)
    message = r"a sum of at most 1,000,000,000.*got 1,001 distinct counts with a sum of 1"
    with pytest.raises(ValueError, match=message):
        call(share, counts)
