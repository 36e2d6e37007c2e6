"""compare: values as in evaluate, alignment against shuffles, training seeds against simulation."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import optimize, special, stats

from flips import sign_flip_p_value
from fuzzing import cases
from torchrankmetrics import (
    RankCollection,
    RankMetric,
    RankMetricWarning,
    Ranks,
    RankTable,
    compare,
    evaluate,
)
from torchrankmetrics.datasets import PrecomputedExpectation
from torchrankmetrics.definitions.tasks import IDENTITY
from torchrankmetrics.inference.flips import SignFlipTest
from torchrankmetrics.inference.standard_errors import units_of
from torchrankmetrics.inference.testing import holm, share_difference, tango

A = [1, 2, 1, 3, 1, 2, 9, 4, 1, 30]
B = [4, 2, 3, 9, 5, 8, 7, 4, 2, 11]

# ten tasks with a long tail give narrow intervals; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")


def table(ranks, order=None, **columns):
    order = torch.arange(len(ranks)) if order is None else torch.as_tensor(order)
    picked = {name: torch.as_tensor(values)[order] for name, values in columns.items()}
    return RankTable.from_ranks(Ranks(torch.tensor(ranks)[order], None, 40), **picked)


X, Y = Ranks(A, None, 40), Ranks(B, None, 40)
NAMED = table(A, sample_id=range(10))


def test_values_and_difference_are_those_of_evaluate():
    names = ["mr", "mrr", "hits_at_3", "gmr", "hmr", "amri", "adjusted_mrr", "z_mrr", "z_mr", "amr"]
    result = compare(X, Y, names, n_resamples=200)
    a, b = evaluate(A, 40, names), evaluate(B, 40, names)
    for row in result.rows:
        assert (row.value_a, row.value_b) == pytest.approx((a[row.metric], b[row.metric]))
        assert row.difference == pytest.approx(a[row.metric] - b[row.metric])
        assert row.low <= row.difference <= row.high
    # one hypothesis, one p: views are affine, and a metric and its inverse are means of the same f
    assert result["mr"].p_value == result["amri"].p_value == result["z_mr"].p_value
    assert result["mrr"].p_value == result["hmr"].p_value == result["z_mrr"].p_value
    slope = result["amri"].difference / result["mr"].difference
    assert slope < 0
    assert result["amri"].low == pytest.approx(slope * result["mr"].high)
    assert result["hits_at_3"].test == "exact McNemar"
    assert result["hits_at_3"].p_value == pytest.approx(stats.binomtest(4, 4).pvalue)
    adjusted = holm([row.p_value for row in result.rows])
    assert [row.p_adjusted for row in result.rows] == pytest.approx(adjusted.tolist())


AGREEING = [
    *(
        "mr",
        "mrr",
        "gmr",
        "hmr",
        "imr",
        "power_mean_rank_2",
        "amri",
        "z_mrr",
        "auc",
        "hits@1",
        "hits@3",
    ),
    *("adjusted_hits_at_3", "expected_hits_at_3", "success@3", "recall@3", "rr", "ap", "ndcg"),
]


@given(
    st.sampled_from(["equal", "weighted", "clustered", "weighted and clustered", "two runs each"]),
    st.sampled_from(AGREEING),
    st.sampled_from([0.8, 0.9375, 0.95, 0.999]),  # p of five discordant tasks is 1 - 0.9375
    st.integers(0, 1 << 30),
)
@cases(150, 5000)
def test_the_interval_holds_zero_where_p_is_above_one_minus_level(
    tasks, metric, confidence_level, seed
):
    rng = np.random.default_rng(seed)
    size, shift = int(rng.integers(4, 45)), rng.choice([0, 0.5, 2])
    weight = rng.choice([0.1, 1.0, 2.0, 7.5], size) if "weighted" in tasks else np.ones(size)
    keys = (
        np.r_[0, 1, rng.integers(0, rng.integers(2, size), size - 2)]
        if "clustered" in tasks
        else None
    )
    hardness = rng.normal(1, 1, size)

    def run(shift):
        ranks = np.clip(np.exp(hardness + shift * rng.random(size)), 1, 30).astype(np.int64)
        return RankTable.from_ranks(Ranks(ranks, None, 30), sample_id=range(size), weight=weight)

    several = 2 if tasks == "two runs each" else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankMetricWarning)
        a, b = ([run(shift) for _ in range(several)] for shift in (0, shift))
        found = compare(
            a, b, metric, confidence_level=confidence_level, cluster=keys, permutations=1999
        )
    assert (found.low <= 0 <= found.high) == (found.p_value > 1 - confidence_level + 1e-11)
    assert found.low <= found.difference + 1e-12
    assert found.high >= found.difference - 1e-12


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=6, max_size=11))
@cases(20, 500)
def test_ends_are_where_the_test_of_shifted_differences_turns(ranks):
    """All flips of d - delta, enumerated: not rejected just inside, but rejected just outside."""
    ranks = np.array(ranks, dtype=float)
    d = ranks[:, 0] - ranks[:, 1]
    units = units_of(ranks, np.ones(len(d)), np.ones(len(d), dtype=np.int64))
    low, high, *_ = SignFlipTest(units, IDENTITY, (-math.inf, math.inf), 9999, 0).difference(0.9)
    for end, inwards in ((low, 1), (high, -1)):
        step = inwards * 1e-6
        assert end == pytest.approx(d.mean()) or sign_flip_p_value(d - end - step) > 0.1
        assert sign_flip_p_value(d - end + step) <= 0.1 + 1e-12


@pytest.mark.parametrize(
    ("b", "c", "n"), [(0, 0, 40), (5, 0, 50), (12, 3, 200), (1, 7, 9), (9, 9, 18)]
)
def test_share_difference_is_tangos_score_interval_at_least(b, c, n):
    """The score statistic with the constrained maximum found by a search, not by its formula."""

    def statistic(delta):
        def loss(q):
            p = np.array([q + delta, q, 1 - 2 * q - delta])
            x = np.array([b, c, n - b - c])
            return -(special.xlogy(x, np.clip(p, 1e-300, None))).sum()

        low, high = max(0.0, -delta), (1 - delta) / 2
        q = optimize.minimize_scalar(
            loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
        ).x
        return (b - c - n * delta) ** 2 / (n * (2 * q + delta - delta**2))

    low, high = share_difference(b, c, n, 0.95)
    q = stats.chi2.ppf(0.95, 1)
    assert low < (b - c) / n < high
    score, exact = tango(b, c, n, 0.95), (0.0, 0.0)
    for end in score:
        assert abs(end) == pytest.approx(1) or statistic(end) == pytest.approx(q, rel=1e-3)
    if b + c:
        tail = stats.binomtest(b, b + c).proportion_ci(0.95)
        exact = [(2 * x - 1) * (b + c) / n for x in (tail.low, tail.high)]
    assert (low, high) == pytest.approx((min(score[0], exact[0]), max(score[1], exact[1])))


def test_two_tasks_give_the_widest_interval_and_warn():
    a, b = Ranks([1, 2], None, 40), Ranks([4, 9], None, 40)
    with pytest.warns(RankMetricWarning) as warned:
        found = compare(a, b, ["mr", "mrr"])
    assert "interval of 'mr', 'mrr' ends at the limit of the possible values" in str(warned[1])
    assert "fewer than 5 tasks or clusters" in str(warned[0])
    assert {one.filename for one in warned} == {__file__}
    assert (found["mr"].low, found["mr"].high) == (-39, 39)
    assert (found["mrr"].low, found["mrr"].high) == pytest.approx((-39 / 40, 39 / 40))
    assert not found["mr"].bounded
    with pytest.warns(RankMetricWarning):
        unknown = compare([1, 2], [4, 9], ["mr", "mrr"])  # numbers of candidates
    assert [(row.low, row.high) for row in unknown.rows] == [(-math.inf, math.inf), (-1, 1)]
    with pytest.raises(ValueError, match="at least 2 independent tasks"):
        compare(Ranks([1], None, 40), Ranks([4], None, 40), "hits@1")


def test_the_number_of_flips_and_their_error_are_printed():
    rng = np.random.default_rng(1)
    a = rng.integers(1, 60, 50)
    x, y, worse = (
        Ranks(r, None, 100) for r in (a, np.clip(a + rng.integers(-9, 12, 50), 1, 100), a + 40)
    )
    single = compare(x, y, "mr", permutations=1999)
    assert single.permutations == 1999
    assert single.monte_carlo_error == pytest.approx(
        math.sqrt(single.p_value * (1 - single.p_value) / 1999)
    )
    printed = (
        f"p = {single.p_value:.2g} ± {single.monte_carlo_error:.1g} "
        "(sign-flip permutation, 1999 flips)"
    )
    assert printed in str(single)
    floor = compare(x, worse, "mr", permutations=1999)
    # all 50 differences have one sign, so that only 2 of 2^50 flips reach their sum
    assert 2 * 2.0**-50 < floor.p_value < 1e-10
    assert floor.monte_carlo_error == 0
    assert f"p < {floor.p_value:.2g} (sign-flip permutation, 1999 flips)" in str(floor)
    small = compare(X, Y, "gmr")
    assert (small.permutations, small.monte_carlo_error) == (None, 0)  # all 1,024 flips
    assert compare(x, y, "median").monte_carlo_error is None


def test_p_below_those_of_random_flips_is_an_upper_bound():
    """Holm's correction of many hypotheses can still reject; all flips of 16 tasks enumerated."""
    rng = np.random.default_rng(2)
    for shift in (0.6, 1.5, 4.0):
        d = rng.normal(shift, 1, 16)
        exact, few = sign_flip_p_value(d, 2**16), sign_flip_p_value(d, 99)
        assert exact <= few <= max(0.06, 20 * exact)
    a, b = (Ranks(np.arange(1, 41) + shift, None, 100) for shift in (0, 30))
    found = compare(a, b, ["mr", "gmr", "imr", "hits@30", "mrr"], permutations=99)
    assert [row.permutations for row in found.rows] == [99, 99, 99, None, 99]
    assert [found[key].p_adjusted < 1e-4 for key in ("mr", "gmr", "imr")] == [True] * 3
    with pytest.raises(
        ValueError, match=r"permutations must be at least 999 for intervals of level 0\.999"
    ):
        compare(a, b, "mr", permutations=500, confidence_level=0.999)


def test_aligned_by_side_and_sample_id_whatever_the_order():
    rng = np.random.default_rng(3)
    ids, group = torch.arange(100, 110), torch.arange(10) // 2
    expected = compare(X, Y, "mrr")
    for shuffle in (rng.permutation(10), np.r_[np.arange(9, -1, -1), 3, 3]):  # also with repeats
        a = table(A, sample_id=ids, group=group)
        b = table(B, shuffle, sample_id=ids, group=group)
        found = compare(a, b, "mrr")
        assert (found.difference, found.p_value, found.num_tasks) == (
            expected.difference,
            expected.p_value,
            10,
        )
        key = compare(a, b, "mrr", cluster="group")
        assert key.num_clusters == 5
        assert compare(b, a, "mrr", cluster=group[torch.as_tensor(shuffle)]).p_value == key.p_value
        assert key.p_value != expected.p_value  # so that keys which fall on other tasks are seen
    collection = RankCollection(["mrr"])
    for i in range(9, -1, -1):
        collection.update(Ranks([A[i]], None, 40), sample_id=ids[[i]], group=group[[i]])
    assert compare(collection, b, "mrr").p_value == expected.p_value
    by_table = group[collection.table().sample_id - 100]
    assert compare(collection, b, "mrr", cluster=by_table).p_value == key.p_value
    sided = []
    for pair in ((X, Y), (Y, X)):
        of_sides = zip(pair, ("head", "tail"), strict=True)
        sided.append(
            RankTable.concatenate(
                [RankTable.from_ranks(x, side=side, sample_id=ids) for x, side in of_sides]
            )
        )
    assert compare(*sided, "mrr", cluster=None).difference == pytest.approx(0)
    assert compare(*sided, "tail_mrr").difference == pytest.approx(-expected.difference)


def test_clusters_of_copies_count_once():
    single = compare(X, Y, "mrr")
    thrice = Ranks(A * 3, None, 40), Ranks(B * 3, None, 40)
    tripled = compare(*thrice, ["mrr", "hits@3"], cluster=torch.arange(10).repeat(3))
    assert tripled["mrr"].p_value == single.p_value
    assert tripled["mrr"].low == pytest.approx(single.low)
    assert tripled["mrr"].effective_clusters == pytest.approx(10)
    assert tripled["hits_at_3"].test == "sign-flip permutation"
    assert compare(*thrice, "mrr").p_value < single.p_value


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (
            NAMED,
            table(B[:8], sample_id=range(8)),
            r"not of the same tasks .*b lacks 2: \(None, 8\), \(None, 9\)",
        ),
        (
            NAMED,
            table(B, sample_id=range(1, 11)),
            r"a lacks 1: \(None, 10\); b lacks 1: \(None, 0\)",
        ),
        (NAMED, table(B), "b has tasks without a sample_id"),
        (X, Ranks(B[:9], None, 40), "b has 9 tasks, a has 10"),
        (X, Ranks(B, None, 41), "differ in num_candidates at 10 tasks, first task 0: 40 and 41"),
        (table(A, weight=torch.ones(10)), table(B, weight=torch.arange(1, 11)), "differ in weight"),
        (table(A).compact(), table(B), "a has no sample ids and its rows are sorted or merged"),
        (X, [], "b is an empty list"),
        ([X] * 2, Y, "lists of at least 2 runs"),
        (Ranks([], None, 40), Ranks([], None, 40), "a contains no ranking tasks"),
    ],
)
def test_models_that_do_not_fit_raise(a, b, message):
    with pytest.raises(ValueError, match=message):
        compare(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "count"}, "cannot be compared"),
        ({"metric": "p_mrr"}, "cannot be compared"),
        ({"metric": "z_std"}, "no meaning"),
        ({"metric": "power_mean_rank_inf"}, "'power_mean_rank_inf' has no interval"),
        ({"metric": []}, "metric is empty"),
        ({"metric": "tail_mrr"}, "no tasks of side 'tail'"),
        ({"permutations": 0}, "permutations must be an int of at least 99"),
    ],
    ids=str,
)
def test_bad_options_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        compare(X, Y, **options)


def test_bad_models_and_clusters_are_rejected():
    pykeen = SimpleNamespace(metric_results=SimpleNamespace(table=None))
    with pytest.raises(TypeError, match=r"got SimpleNamespace; pass result\.metric_results\.table"):
        compare(pykeen, pykeen)
    with pytest.raises(TypeError, match="a must be a RankTable"):
        compare(object(), Y)
    repeated = table(A, [*range(10), 0], sample_id=range(10))
    with pytest.raises(ValueError, match="cluster must be the same for all repeats"):
        compare(repeated, repeated, cluster=list(range(11)))


def test_collections_without_ids_are_aligned_by_order_unless_it_is_lost():
    def collect(ranks, **options):
        collection = RankCollection(["mr"], **options)
        for part in (ranks[:4], ranks[4:]):
            collection.update(Ranks(part, None, 40))
        return collection

    assert compare(collect(A), collect(B), "mr") == compare(X, Y, "mr")
    with pytest.raises(ValueError, match="storage='counts'"):
        compare(collect(A, storage="counts"), collect(B), "mr")
    with pytest.raises(ValueError, match="sorted or merged"):
        compare(collect(A).table(), collect(B).table(), "mr")


def test_seeds_of_models_and_their_variance_by_hand():
    rng = np.random.default_rng(5)
    runs = [
        np.clip(np.round(np.exp(rng.normal(2, 1, 60))), 1, 40).astype(np.int64) for _ in range(4)
    ]
    tables = [Ranks(run, None, 40) for run in runs]
    result = compare(tables[:2], tables[2:], "mr", n_resamples=300)
    assert result.value_a == pytest.approx(np.mean([runs[0].mean(), runs[1].mean()]))
    y = np.stack(runs, 1).astype(float)
    interaction = seeds = 0.0
    for pair in (y[:, :2], y[:, 2:]):
        residual = pair - pair.mean(1, keepdims=True) - pair.mean(0) + pair.mean()
        own = (residual**2).sum() / 59 / 60 / 2
        interaction += own
        seeds += max(pair.mean(0).var(ddof=1) / 2 - own, 0)
    tasks = max((y[:, :2].mean(1) - y[:, 2:].mean(1)).var(ddof=1) / 60 - interaction, 0)
    split = result.seeds
    assert (split.seeds, split.tasks, split.interaction) == pytest.approx(
        (seeds, tasks, interaction)
    )
    assert split.num_seeds == (2, 2)
    assert split.seed_share == pytest.approx(seeds / (seeds + tasks + interaction))
    assert "% of the variance is training seeds" in str(result)
    assert " %" not in str(result)
    index = compare(tables[:2], tables[2:], "amri", n_resamples=300)
    assert index.seeds.total == pytest.approx(split.total / 19.5**2)
    assert index.p_value == result.p_value
    with pytest.raises(ValueError, match="over several seeds has no variance formula"):
        compare(tables[:2], tables[2:], "median")


@pytest.mark.parametrize(
    ("values", "means"),
    [(("zero", "zero"), 3), (("skip", None), 2), (("zero", "skip"), 0), ((None, "zero"), 0)],
    ids=str,
)
def test_collections_agree_on_queries_without_relevant_items(values: tuple, means: int) -> None:
    """One of three queries has none; the means are over ``means`` queries; 0: an error."""
    target = torch.tensor([[1, 0, 0], [0, 0, 0], [0, 1, 1]]).bool()
    models = [RankCollection(["recall@1", "mrr"], empty_queries=value) for value in values]
    for i, model in enumerate(models):
        model.update(torch.tensor([[3.0, 2, 1], [3, 2, 1], [1 + 3 * i, 3, 2]]), target)
    assert compare(*models, "mrr").value_a == pytest.approx((1 + 1 + 1 / 2) / 3)
    if means == 0:
        with pytest.raises(ValueError, match=r"differ in empty_queries .* 'recall_at_1'"):
            compare(*models, "recall@1")
        with pytest.raises(ValueError, match=r"differ in empty_queries .* 'rr'"):
            compare(*models, "rr")  # a metric that neither collection has
    else:
        found = compare(*models, "recall@1")
        assert (found.value_a, found.value_b) == pytest.approx((1.5 / means, 1 / means))


def test_a_metric_of_neither_collection_treats_queries_as_the_metrics_of_queries_do() -> None:
    a, b = (RankCollection(["mrr", RankMetric("recall@1", empty_queries="zero")]) for _ in range(2))
    only_tasks = RankCollection(["mrr"])
    for i, model in enumerate((a, b, only_tasks)):
        model.update(torch.tensor([[3.0, 2], [1, 2], [i, 1]]), [[0], [], [1]])
    assert compare(a, b, "rr").num_tasks == 3
    with pytest.raises(ValueError, match="differ in empty_queries"):
        compare(a, only_tasks, "rr")


def labeled(seed: int, **options: object) -> RankCollection:
    """40 rows of scores, of which the last 10 have no relevant item."""
    target = torch.zeros(40, 9, dtype=torch.bool)
    target[:30, 0] = True
    found = RankCollection(["rr"], empty_queries=options.pop("empty_queries", None))
    scores = torch.rand(40, 9, generator=torch.Generator().manual_seed(seed))
    found.update(scores, target, **options)
    return found


@pytest.mark.filterwarnings("default:queries without a relevant:torchrankmetrics.RankMetricWarning")
def test_queries_that_are_left_out_warn() -> None:
    a, b = labeled(1), labeled(2)
    with pytest.warns(RankMetricWarning, match="queries without a relevant item are not counted"):
        assert compare(a, b, "rr").num_tasks == 30
    zero = compare(a, b, RankMetric("rr", empty_queries="zero"))
    assert zero.num_tasks == 40
    assert zero.value_a == labeled(1, empty_queries="zero").compute()["rr"]


@pytest.mark.parametrize(
    ("name", "other"), [("weight", [1.0] * 30 + [100.0] * 10), ("group", [0] * 30 + [1] * 10)]
)
def test_queries_without_a_relevant_item_have_the_same_weights_and_groups(
    name: str, other: list
) -> None:
    same = torch.ones(40) if name == "weight" else torch.zeros(40, dtype=torch.int64)
    a = labeled(1, empty_queries="zero", **{name: same})
    b = labeled(2, empty_queries="zero", **{name: torch.tensor(other)})
    for models in ((a, b), (b, a)):
        with pytest.raises(ValueError, match=f"differ in {name} of queries without a relevant"):
            compare(*models, "rr")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (None, "b has tasks without a query"),
        (torch.arange(10) // 5, "differ in which tasks are of one query"),
        (torch.arange(10), "differ in which tasks are of one query"),
        (torch.arange(10) // 2 + 7, None),
    ],
    ids=["none", "larger", "smaller", "other names"],
)
def test_tasks_of_one_query_are_those_of_one_query_for_both_models(
    query: torch.Tensor | None, message: str | None
) -> None:
    """Clusters do not depend on the order of the models."""
    a = table(A, sample_id=range(10), query=torch.arange(10) // 2)
    b = table(B, sample_id=range(10), **({} if query is None else {"query": query}))
    if message is None:
        assert compare(a, b, "mr").p_value == compare(b, a, "mr").p_value
        return
    with pytest.raises(ValueError, match=message):
        compare(a, b, "mr")
    with pytest.raises(ValueError, match=message.replace("b has", "a has")):
        compare(b, a, "mr")


def test_a_query_of_one_task_needs_no_name_in_both_models() -> None:
    a, b = (table(ranks, sample_id=range(10)) for ranks in (A, B))
    named = table(B, sample_id=range(10), query=torch.arange(10))
    assert compare(a, named, "mr").p_value == compare(a, b, "mr").p_value


def test_the_side_belongs_to_the_name_of_a_query() -> None:
    def of_sides(ranks: list[int], *names: list[int]) -> RankTable:
        parts = [Ranks(ranks[:5], None, 40), Ranks(ranks[5:], None, 40)]
        tables = [
            RankTable.from_ranks(part, side=side, query=query, sample_id=range(5))
            for part, side, query in zip(parts, ("head", "tail"), names, strict=True)
        ]
        return RankTable.concatenate(tables)

    a = of_sides(A, [0, 0, 1, 1, 1], [0, 0, 1, 1, 1])
    b = of_sides(B, [0, 0, 1, 1, 1], [2, 2, 3, 3, 3])
    assert compare(a, b, "mr").num_tasks == 10


def test_names_of_queries_contradict_the_order_of_tasks() -> None:
    query = torch.arange(10)
    collections = [RankCollection(["rr"]) for _ in range(4)]
    all_names = (query, query, query.flip(0), query + 10)
    for one, ranks, names in zip(collections, (X, Y, Y, Y), all_names, strict=True):
        one.update(ranks, query=names)
    a, b, reversed_b, continued = collections
    assert compare(a, b, "rr").num_tasks == compare(a, continued, "rr").num_tasks == 10
    with pytest.raises(ValueError, match=r"a and b have the queries 0 and 9 at task 0.*sample_id="):
        compare(a, reversed_b, "rr")


def test_views_are_against_the_chance_that_the_models_expect():
    """Collections and each of their members may have an expectation that is not the exact one."""
    twice, half = PrecomputedExpectation([120] * 5), PrecomputedExpectation([30] * 5)
    mixed = [RankMetric("mrr", expectation=twice), RankMetric("amri", expectation=half)]
    a, b = (RankCollection(mixed).clone() for _ in range(2))
    ranks = [Ranks(x, None, 60) for x in (A, B)]
    a.update(ranks[0])
    b.update(ranks[1])
    for name, expected in (("adjusted_mrr", twice), ("amri", half), ("adjusted_hits_at_3", twice)):
        found = compare(a, b, name)
        assert (found.value_a, found.value_b) == tuple(
            evaluate(x, metrics=name, expectation=expected)[name] for x in ranks
        )
        assert found.difference != compare(*ranks, name).difference
        assert compare({"a": ranks[0], "b": b}, name).rows[0].difference == found.difference
    assert compare(a, b, RankMetric("amri")).difference == compare(*ranks, "amri").difference
