"""Query values: tie orders and best rankings enumerated; with one answer, the task metric."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import reference_queries as exact
from fuzzing import cases
from query_metrics import CUT, METRICS, every_metric, sample_of, sample_of_rows
from torchrankmetrics import RankCollection, RankMetricWarning, compare, evaluate
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import (
    MEAN_AUC,
    MEAN_RANK,
    MEAN_RECIPROCAL_RANK,
    Power,
    RankDefinition,
    hits_at,
)
from torchrankmetrics.definitions.transforms import AtMost, WithCandidates
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.kind import Cut, Discount
from torchrankmetrics.queries.sample import QuerySample

RR_AT_3 = RankDefinition("rr_at_3", f=Cut(Power(-1), 3), optimum=1.0, higher_is_better=True)
GAIN = RankDefinition("gain", f=Discount())
# the task metric that a metric of queries is with one answer, and what it is multiplied by
ONE_ANSWER = [
    (d.recall_at(3), hits_at(3), 1),
    (d.precision_at(3), hits_at(3), 1 / 3),
    (d.success_at(3), hits_at(3), 1),
    (d.capped_recall_at(3), hits_at(3), 1),
    (d.f1_at(3), hits_at(3), 1 / 2),
    (d.capped_average_precision(3), RR_AT_3, 1),
    (d.R_PRECISION, hits_at(1), 1),
    (d.first_reciprocal_rank(), MEAN_RECIPROCAL_RANK, 1),
    (d.average_precision(), MEAN_RECIPROCAL_RANK, 1),
    (d.first_reciprocal_rank(3), RR_AT_3, 1),
    (d.average_precision(3), RR_AT_3, 1),
    (d.normalized_dcg(), GAIN, 1),
    (d.QUERY_AUC, MEAN_AUC, 1),
    (d.QueryDefinition("mr", f=Power(1)), MEAN_RANK, 1),
]


@st.composite
def tied_queries(draw):
    blocks, place = [], 1
    for _ in range(draw(st.integers(1, 3))):
        place += draw(st.integers(0, 2))
        size = draw(st.integers(1, 4))
        blocks.append((place, place + size - 1, draw(st.integers(1, size))))
        place += size
    return place - 1 + draw(st.integers(0, 2)), blocks


@cases(40, 1000)
@given(queries=st.lists(tied_queries(), min_size=1, max_size=3))
def test_values_are_the_means_over_the_tie_orders_of_a_rank_type(queries):
    sample = sample_of(*queries)
    for rank_type, orders in (
        ("expected", exact.orders),
        ("optimistic", lambda blocks: [[o + i for o, _, t in blocks for i in range(t)]]),
        ("pessimistic", lambda blocks: [[p - i for _, p, t in blocks for i in range(t)[::-1]]]),
    ):
        for definition, value in METRICS:
            for got, (N, blocks) in zip(definition.values(sample, rank_type), queries, strict=True):
                every = [value(ranks, N) for ranks in orders(blocks)]
                want = np.nan if every[0] is None else float(exact.moments(every)[0])
                assert got == pytest.approx(want, rel=2e-15, abs=1e-15, nan_ok=True), (
                    definition.name
                )


@every_metric
def test_the_optimum_is_the_value_of_the_answers_at_the_first_places(definition, value):
    nothing = sample_of_rows(*np.empty((4, 0), dtype=np.int64))
    assert definition.values(nothing).shape == definition.moments([], [])[1].shape == (0,)
    pairs = [(N, m) for N in range(1, 8) for m in range(1, N + 1)]
    N, m = np.array(pairs).T
    want = [value(range(1, m + 1), N) for N, m in pairs]
    want = [np.nan if x is None else float(x) for x in want]
    np.testing.assert_allclose(definition.optimum(N, m), want, rtol=1e-15)
    perfect = sample_of(*((N, [(r, r, 1) for r in range(1, m + 1)]) for N, m in pairs))
    np.testing.assert_allclose(definition.values(perfect), want, rtol=1e-15)


@pytest.mark.parametrize(
    ("definition", "task", "scale"), ONE_ANSWER, ids=[one[0].name for one in ONE_ANSWER]
)
@cases(20, 500)
@given(
    ranks=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(1, 20)),
        min_size=1,
        max_size=5,
    ),
    weighted=st.booleans(),
)
def test_with_one_answer_a_metric_of_queries_is_its_task_metric(
    definition, task, scale, ranks, weighted
):
    low = np.array([o for o, _, _ in ranks])
    high = low + [tied for _, tied, _ in ranks]
    N = high + [more for _, _, more in ranks]
    weight = np.arange(1.0, len(N) + 1) if weighted else np.ones(len(N))
    sample = sample_of_rows(np.arange(len(N)), low, high, N, weight)
    for rank_type in ("expected", "optimistic", "pessimistic"):
        want = task.value(RankSample(low, high, N, weight), rank_type)
        assert definition.value(sample, rank_type) == pytest.approx(scale * want, rel=1e-15)
    got, want = definition.null_moments(sample), DEFAULT_EXPECTATION.moments(task, N, weight)
    assert got.mean == pytest.approx(scale * want.mean, rel=1e-15)
    assert got.variance == pytest.approx(scale**2 * want.variance, rel=4e-15)


def test_a_divisor_divides_a_sum_of_f_and_is_above_0():
    with pytest.raises(ValueError, match="'x' has divisor=, which divides a sum of f="):
        d.QueryDefinition("x", kind=d.R_PRECISION.kind, divisor=np.sqrt)
    wrong = d.QueryDefinition("x", f=Power(-1), divisor=lambda m: m - 1)
    with pytest.raises(ValueError, match="divisor must return numbers above 0"):
        evaluate(torch.rand(1, 3), [[0]], metrics=[wrong])
    same = d.QueryDefinition("x", f=Power(-1), divisor=lambda m: 2)
    assert evaluate(torch.tensor([[0.9, 0.5, 0.1]]), [[0, 1]], metrics=[same]) == {"x": 0.75}


@every_metric
def test_a_constant_scorer_has_the_mean_by_chance(definition, value):
    m = np.array([1, 2, 3, 50, 1, 7, 4000, 3])
    N = np.array([1, 5, 5, 100, 10**6, 10**6, 10**6, 4 * 10**5])
    blind = QuerySample.tied(N, m, N)
    np.testing.assert_allclose(
        definition.values(blind), definition.moments(N, m)[0], rtol=1e-14, atol=1e-15
    )
    got, chance = definition.value(blind), definition.null_moments(blind)
    assert abs((got - chance.mean) / (chance.optimum - chance.mean)) < 1e-12


def test_a_long_block_costs_no_pass_over_its_places():
    """The rest of a cut list: places 1001..10^6 hold 9 answers; against sums over every place."""
    low, high, t = 1001, 10**6, 9
    place = np.arange(low, high + 1, dtype=np.longdouble)
    size = high - low + 1
    spread = 3 + (place - low) * (np.longdouble(t - 1) / (size - 1))
    sample = sample_of((high, [(1, 1, 1), (7, 9, 1), (low, high, t)]))
    head = 1 + sum((1 + 1) / np.longdouble(r) / 3 for r in (7, 8, 9))
    for k in (None, 5000):
        want = (head + t / np.longdouble(size) * (spread / place)[place <= (k or high)].sum()) / 11
        assert d.average_precision(k).values(sample)[0] == pytest.approx(float(want), rel=1e-15)
    # the first of 9 in that block: P(first > x) = prod over i < 9 of (size - x - i) / (size - i)
    only = sample_of((high, [(low, high, t)]))
    beyond = np.ones(size + 1, dtype=np.longdouble)
    for i in range(t):
        beyond *= np.maximum(size - np.arange(size + 1, dtype=np.longdouble) - i, 0) / (size - i)
    want = ((beyond[:-1] - beyond[1:]) / place).sum()
    assert d.first_reciprocal_rank().values(only)[0] == pytest.approx(float(want), rel=1e-14)
    assert d.success_at(9000).values(only)[0] == pytest.approx(float(1 - beyond[8000]), rel=1e-14)


def test_the_mean_over_queries_weighs_and_counts_them_and_leaves_out_those_without_a_value():
    queries = [(4, [(1, 1, 1), (3, 4, 1)]), (2, [(1, 2, 2)]), (5, [(2, 2, 1)])]
    sample = replace(sample_of(*queries, weight=[0.5, 3.0, 2.0]), count=np.array([4, 1, 1]))
    values = d.QUERY_AUC.values(sample)
    assert np.isnan(values).tolist() == [False, True, False]
    got, chance = d.QUERY_AUC.value(sample), d.QUERY_AUC.null_moments(sample)
    assert got == pytest.approx((4 * 0.5 * values[0] + 2 * values[2]) / 4, rel=1e-15)
    one, other = 5 / (12 * 2 * 2), 6 / (12 * 1 * 4)
    assert chance.variance == pytest.approx((4 * 0.25 * one + 4 * other) / 16, rel=1e-14)
    assert (chance.mean, chance.optimum) == (0.5, 1.0)
    repeated = sample_of(*[queries[0]] * 4, queries[2], weight=[0.5] * 4 + [2.0])
    assert (d.QUERY_AUC.value(repeated), d.QUERY_AUC.null_moments(repeated)) == (got, chance)
    nothing = sample_of(queries[1])
    assert np.isnan(d.QUERY_AUC.value(nothing))
    assert np.isnan(d.QUERY_AUC.null_moments(nothing).mean)


@pytest.mark.parametrize("make", [make for make, _ in CUT], ids=lambda make: make(7).name)
def test_definitions_are_values(make):
    assert pickle.loads(pickle.dumps(make(7))) == make(7) != make(8)
    assert hash(make(7)) == hash(make(7))
    with pytest.raises(ValueError, match="k must be an int of at least 1"):
        make(0)


def test_a_metric_of_a_user_is_a_function_of_ranks():
    assert not d.QueryDefinition("mr", f=Power(1)).higher_is_better
    below = d.QueryDefinition("below", f=WithCandidates(lambda r, n: (n - r) / n))
    assert below.values(sample_of((4, [(1, 2, 2)]), (9, [(3, 3, 1)]))).tolist() == [0.625, 6 / 9]


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("'mine' needs f=, a transform of ranks", lambda: d.QueryDefinition("mine")),
        (
            "aggregation='median', which is for kind=FirstRank",
            lambda: d.QueryDefinition("mine", f=lambda r: 1 / r, aggregation="median"),
        ),
        ("name must match", lambda: d.QueryDefinition("recall@10", f=AtMost(10))),
        ("higher_is_better must be passed", lambda: d.QueryDefinition("flat", f=torch.ones_like)),
        ("not both", lambda: d.QueryDefinition("mine", f=AtMost(3), kind=d.R_PRECISION.kind)),
        (
            "of queries must be one of 'expected'",
            lambda: d.R_PRECISION.values(sample_of((3, [(1, 1, 1)])), "realistic"),
        ),
        (
            r"in 1..num_candidates < 2\^62; got 4 of 3",
            lambda: d.R_PRECISION.moments([5, 3], [5, 4]),
        ),
        ("got 0 of 5", lambda: d.R_PRECISION.moments([5], [0])),
    ],
    ids=[
        "no function",
        "median",
        "name",
        "direction",
        "function and kind",
        "rank type",
        "too many relevant",
        "none relevant",
    ],
)
def test_other_metrics_raise(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_values_of_queries_are_those_that_the_mean_is_of():
    scores, target = torch.tensor([[0.9, 0.1, 0.5, 0.5], [0.1, 0.9, 0.2, 0.3]]), [[0, 2], [2, 0]]
    collection = RankCollection(["ndcg@3", "ap"])
    collection.update(scores, target, query=torch.tensor([7, 3]))
    table = collection.table()
    for metric, mean in collection.compute().items():
        values = table.query_values(metric)
        assert set(values) == {7, 3}
        assert sum(values.values()) / 2 == pytest.approx(mean.item(), rel=1e-15)
        for row, name in enumerate((7, 3)):
            assert values[name] == evaluate(scores[[row]], [target[row]], metrics=[metric])[metric]
    with pytest.warns(RankMetricWarning):
        assert compare(table.query_values("ap"), table.query_values("ap"), "ap").difference == 0
    for metric, message in (("mrr", "a metric of queries"), ("adjusted_ap", "base view")):
        with pytest.raises(ValueError, match=message):
            table.query_values(metric)
    unnamed = RankCollection(["ap"])
    unnamed.update(scores, target)
    with pytest.raises(ValueError, match="pass query="):
        unnamed.table().query_values("ap")
