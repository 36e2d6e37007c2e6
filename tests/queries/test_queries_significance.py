"""p-values of means over queries: all outcomes of small ones, plain convolutions of large ones, and simulation."""

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

import reference_queries as exact
from query_metrics import every_metric, sample_of, sample_of_rows
from torchrankmetrics.definitions import MEAN_AUC, MEAN_RECIPROCAL_RANK, Power, hits_at
from torchrankmetrics.null.p_values import log_p_value
from torchrankmetrics.queries import definitions as d, significance
from torchrankmetrics.queries.kind import hit_distribution
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.queries.significance import query_p_value

SHAPES = [(5, 2), (6, 3), (4, 1)]  # N and m
OUTCOMES = [exact.outcomes(N, m) for N, m in SHAPES]


def untied(*queries, weight=None):
    """A sample of queries (N, ranks)."""
    return sample_of(*((N, [(int(r), int(r), 1) for r in ranks]) for N, ranks in queries), weight=weight)


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
    assert log_p == pytest.approx(log_p_value(task, definition.value(sample, "pessimistic"), N), rel=1e-9)
    precision, recall = (query_p_value(one(10), sample)[0] for one in (d.precision_at, d.recall_at))
    assert precision == pytest.approx(recall, rel=1e-9)


@pytest.mark.parametrize("lift", [1.0, 2.0, 6.0])
def test_p_of_hits_is_a_convolution_of_hypergeometric_distributions(lift):
    """200 queries of 1, 2 and 4 answers: recall in quarters, precision in tenths, success by ones."""
    random = np.random.default_rng(8)
    queries = list(zip(random.integers(300, 900, 200).tolist(), random.choice([1, 2, 4], 200).tolist(), strict=True))
    sample = untied(*((N, random.permutation(np.arange(1, int(N / lift) + 1))[:m]) for N, m in queries))
    for definition, distribution, places in (
        (d.recall_at(10), lambda N, m: np.kron(hypergeom.pmf(range(m + 1), N, m, 10), np.eye(4 // m)[0]), 4),
        (d.precision_at(10), lambda N, m: hypergeom.pmf(range(m + 1), N, m, 10), 10),
        (d.success_at(10), lambda N, m: np.array([hypergeom.pmf(0, N, m, 10), hypergeom.sf(0, N, m, 10)]), 1),
    ):
        total = np.ones(1)
        for N, m in queries:
            total = np.convolve(total, distribution(N, m))
        hits = round(definition.value(sample) * len(queries) * places)
        assert math.exp(query_p_value(definition, sample)[0]) == pytest.approx(total[hits:].sum(), rel=1e-9)


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
        last = np.where(needed > 0, np.minimum(np.floor(1 / needed * (1 + 1e-9)), N - m + 1), N - m + 1).astype(int)
    want = float((distribution * within[last]).sum())
    got = math.exp(query_p_value(d.first_reciprocal_rank(), sample)[0])
    assert want * (1 - 1e-8) <= got <= want * 1.05


def test_laws_with_more_atoms_than_wanted_are_better_never_worse():
    first = d.first_reciprocal_rank().kind.distribution
    for few, all_ in (
        (hit_distribution(10**5, 4000, 5000, 1.0, 50), hit_distribution(10**5, 4000, 5000, 1.0, 1 << 14)),
        (first(10**5, 7, 100), first(10**5, 7, 1 << 18)),
    ):
        assert len(few[0]) <= 101
        assert few[1].sum() == pytest.approx(1, rel=1e-12)
        upper = [np.cumsum(probability[::-1])[::-1] for _, probability in (few, all_)]
        above = np.searchsorted(few[0], all_[0])
        at_least = np.where(above < len(few[0]), np.r_[upper[0], 0.0][above], 0.0)
        assert (at_least >= upper[1] * (1 - 1e-10)).all()


BINARY = untied((7, [2, 4]), (6, [1, 3, 5]), (5, [2]), weight=[1.0, 2.0, 0.5])
OF_THREE = 1 + np.argsort(np.random.default_rng(5).random((4, 6)), axis=1)[:, :3]
GRADED = QuerySample.ranked(OF_THREE, 9, np.tile([3.0, 2.0, 1.0], (4, 1)))


@pytest.mark.parametrize(
    ("definition", "sample"),
    [
        *((one, BINARY) for one in (d.average_precision(), d.normalized_dcg(3), d.QUERY_AUC, d.recall_at(2))),
        (d.QueryDefinition("mr", f=Power(1)), BINARY),
        *((one(k), GRADED) for one in (d.normalized_dcg, d.exponential_ndcg, d.discounted_gain) for k in (None, 3)),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_simulation_and_importance_sampling_agree_with_the_distribution(definition, sample, monkeypatch):
    want, error = query_p_value(definition, sample)
    assert error == 0
    monkeypatch.setattr(significance, "_distributions", lambda *_: None)
    log_p, error = query_p_value(definition, sample, samples=4_000)
    assert math.exp(log_p) * 4_001 == pytest.approx(round(math.exp(log_p) * 4_001), rel=1e-12)
    assert abs(math.exp(log_p) - math.exp(want)) < 4 * error + 1 / 4_000
    assert query_p_value(definition, sample, samples=4_000) == (log_p, error)
    monkeypatch.setattr(significance, "_RARE", 1 << 60)
    tilted, error = query_p_value(definition, sample, samples=1)
    error /= math.exp(tilted)
    assert error < 0.1
    assert abs(tilted - want) < 5 * error


def test_where_nothing_can_vary_p_is_one_and_without_a_value_there_is_none():
    assert query_p_value(d.recall_at(10), untied((5, [1, 2]), (7, [3]))) == (0, 0)
    with pytest.raises(ValueError, match="'query_auc' needs a query that has a value"):
        query_p_value(d.QUERY_AUC, untied((2, [1, 2])))


def test_a_perfect_model_has_the_probability_of_one_ranking():
    sample = untied((400, range(1, 7)), (500, range(1, 5)), (450, range(1, 3)))
    want = -math.log(math.comb(400, 6) * math.comb(500, 4) * math.comb(450, 2))
    for definition in (d.average_precision(), d.normalized_dcg(), d.QUERY_AUC):
        log_p, error = query_p_value(definition, sample, samples=99)
        assert math.exp(log_p) < 1e-6
        assert abs(log_p - want) < 4 * error / math.exp(log_p) + 1e-9
