"""Intervals: errors in Fractions, transforms undone, resampling enumerated, coverage simulated."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from scipy import stats

from torchrankmetrics import RankCollection, RankMetric, RankMetricWarning, Ranks, compare
from torchrankmetrics.definitions import tasks as d
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.inference import standard_errors as errors
from torchrankmetrics.inference.clusters import Clusters
from torchrankmetrics.inference.standard_errors import Units, estimate, units_of, wilson

# ten tasks with a long tail give narrow intervals; the warnings have tests of their own below
pytestmark = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")

RANKS = [1, 4, 2, 9, 1, 30, 3, 3, 12, 1]
COUNTS = [40, 40, 38, 40, 35, 40, 40, 31, 40, 40]
WEIGHTS = [1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 3.0, 1.0, 1.0, 1.0]

# f, g and its derivative, by hand
BY_HAND = {
    "mr": (lambda r: Fraction(r), lambda x: x, lambda x: 1),
    "mrr": (lambda r: Fraction(1, r), lambda x: x, lambda x: 1),
    "hits_at_3": (lambda r: Fraction(r <= 3), lambda x: x, lambda x: 1),
    "imr": (lambda r: Fraction(r), lambda x: 1 / x, lambda x: -1 / x**2),
    "hmr": (lambda r: Fraction(1, r), lambda x: 1 / x, lambda x: -1 / x**2),
    "gmr": (lambda r: Fraction(math.log(r)), lambda x: math.exp(x), lambda x: math.exp(x)),
    "igmr": (lambda r: Fraction(math.log(r)), lambda x: math.exp(-x), lambda x: -math.exp(-x)),
    "power_mean_rank_2": (
        lambda r: Fraction(r) ** 2,
        lambda x: math.sqrt(x),
        lambda x: 0.5 / math.sqrt(x),
    ),
}


def collect(metrics, weight=None, **columns):
    collection = RankCollection(metrics)
    ranks = Ranks(torch.tensor(RANKS), None, torch.tensor(COUNTS))
    collection.update(ranks, weight=None if weight is None else torch.tensor(weight), **columns)
    return collection


@pytest.mark.parametrize(
    ("names", "note"),
    [(["ap", "rr"], "30 queries"), (["ap", "mrr"], "60 tasks in 30 clusters")],
    ids=["of queries", "of tasks and queries"],
)
def test_intervals_of_query_metrics_count_queries(names, note):
    scores, labels = torch.rand(30, 9), torch.ones(30, 9) * (torch.arange(9) < 2)
    collection = RankCollection(names)
    collection.update(scores, labels)
    assert str(collection.confidence_intervals()).endswith(f"95% (normal), {note}")


def test_a_task_of_no_weight_is_not_drawn_nor_counted():
    dropped, ids = torch.tensor([0, 6]), torch.arange(10)
    weight = torch.tensor(WEIGHTS).index_fill(0, dropped, 0.0)
    kept = weight > 0
    whole, part = RankCollection(["mrr", "hits@3"]), RankCollection(["mrr", "hits@3"])
    ranks, counts = torch.tensor(RANKS), torch.tensor(COUNTS)
    whole.update(Ranks(ranks, None, counts), weight=weight, sample_id=ids, side="head")
    part.update(
        Ranks(ranks[kept], None, counts[kept]),
        weight=weight[kept],
        sample_id=ids[kept],
        side="head",
    )
    # as in table()
    of_whole, of_part = (one.confidence_intervals(cluster=ids[kept] % 5) for one in (whole, part))
    assert of_whole == of_part
    assert of_whole.num_tasks == 8


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_standard_error_is_the_formula(name, weight):
    f, g, slope = BY_HAND[name]
    w = [Fraction(x) for x in weight or [1.0] * len(RANKS)]
    v = [x / sum(w) for x in w]
    mean = sum(share * f(r) for share, r in zip(v, RANKS, strict=True))
    n = len(RANKS)
    square = Fraction(n, n - 1) * sum(
        share**2 * (f(r) - mean) ** 2 for share, r in zip(v, RANKS, strict=True)
    )
    interval = collect([name], weight).confidence_intervals()[name]
    assert interval.value == pytest.approx(g(float(mean)), rel=1e-12)
    assert interval.standard_error == pytest.approx(
        math.sqrt(square) * abs(slope(float(mean))), rel=1e-9
    )
    assert interval.low < interval.value < interval.high


def test_jackknife_of_clusters_is_leaving_one_out():
    key = [0, 0, 1, 2, 2, 2, 3, 1, 4, 0]
    collection = collect(["mrr"], WEIGHTS, group=torch.tensor(key))
    result = collection.confidence_intervals(cluster="group")

    def value(kept):
        w = [
            (Fraction(x), Fraction(1, r))
            for x, r, k in zip(WEIGHTS, RANKS, key, strict=True)
            if k in kept
        ]
        return sum(x * y for x, y in w) / sum(x for x, _ in w)

    groups = set(key)
    left = [value(groups) - value(groups - {k}) for k in groups]
    assert result["mrr"].standard_error == pytest.approx(
        math.sqrt(Fraction(4, 5) * sum(x**2 for x in left)), rel=1e-12
    )
    assert (result.num_tasks, result.num_clusters) == (10, 5)
    weight = [sum(x for x, k in zip(WEIGHTS, key, strict=True) if k == g) for g in groups]
    assert result.effective_clusters == pytest.approx(sum(weight) ** 2 / sum(x**2 for x in weight))


@pytest.mark.parametrize(("hits", "n"), [(0, 30), (1, 50), (4, 200), (90, 200), (50, 50)])
def test_wilson_is_that_of_scipy(hits, n):
    expected = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    low, high = wilson(hits / n, n, stats.norm.ppf(0.975))
    assert (max(low, 0), min(high, 1)) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("confidence_level", [0.5, 0.95, 0.999])
def test_ends_of_the_skewed_interval_solve_halls_equation(confidence_level):
    x = np.array(RANKS, dtype=np.float64)
    n = len(x)
    low, high = errors.skewed_normal(
        units_of(x, np.ones(n), np.ones(n, dtype=np.int64)), confidence_level
    )
    a = stats.skew(x) / math.sqrt(n)
    for end, q in ((low, (1 + confidence_level) / 2), (high, (1 - confidence_level) / 2)):
        t = (x.mean() - end) / (x.std(ddof=1) / math.sqrt(n))
        transformed = t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6
        assert transformed == pytest.approx(stats.t.ppf(q, n - 1), rel=1e-9)
    assert high - x.mean() > x.mean() - low


@pytest.mark.parametrize("method", ["normal", "bootstrap"])
def test_views_are_affine_images_and_inverses_swap_ends(method):
    names = [
        "mr",
        "amri",
        "amr",
        "z_mr",
        "imr",
        "mrr",
        "adjusted_mrr",
        "z_mrr",
        "hmr",
        "gmr",
        "igmr",
    ]
    result = collect(names).confidence_intervals(method=method, n_resamples=300)
    for base, others in {"mr": ("amri", "amr", "z_mr"), "mrr": ("adjusted_mrr", "z_mrr")}.items():
        moments = RankMetric(d.MEAN_RANK if base == "mr" else d.MEAN_RECIPROCAL_RANK).moments(
            COUNTS
        )
        root = math.sqrt(moments.variance)
        scale = {
            "amri": 1 - moments.mean,
            "amr": moments.mean,
            "adjusted_mrr": 1 - moments.mean,
            "z_mrr": root,
        }
        for other in others:
            width = (result[base].high - result[base].low) / abs(scale.get(other, root))
            assert result[other].high - result[other].low == pytest.approx(width, rel=1e-9)
            assert result[other].low < result[other].value < result[other].high
    for one, other in (("mr", "imr"), ("mrr", "hmr"), ("gmr", "igmr")):
        assert result[one].low == pytest.approx(1 / result[other].high, rel=1e-12)
        assert result[one].high == pytest.approx(1 / result[other].low, rel=1e-12)


def test_expected_ranks_are_means_over_tie_orders():
    collection = RankCollection(["mrr", "hits@3"], rank_types=["expected"])
    collection.update(Ranks([1, 2, 5, 1], [3, 2, 6, 1], 9))
    values = [
        (Fraction(1) + Fraction(1, 2) + Fraction(1, 3)) / 3,
        Fraction(1, 2),
        Fraction(11, 60),
        Fraction(1),
    ]
    mean = sum(values) / 4
    error = math.sqrt(Fraction(4, 3) * sum((x - mean) ** 2 for x in values) / 16)
    result = collection.confidence_intervals()
    assert result["expected_mrr"].standard_error == pytest.approx(error, rel=1e-12)
    assert result["expected_hits_at_3"].value == pytest.approx(0.75)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), min_size=2, max_size=12),
    st.floats(0.1, 50),
)
# three hits, whose weights add up to a little more
@example(entries=[(1, 3), (6, 1), (6, 1)], scale=0.1)
@settings(deadline=None, max_examples=25)
def test_counted_shuffled_and_scaled_tasks_give_the_same(entries, scale):
    rank, count = (np.array(x, dtype=np.int64) for x in zip(*entries, strict=True))
    merged = RankSample(rank, rank, np.full_like(rank, 60), np.full(len(rank), scale), count)
    spread = np.repeat(rank, count)[::-1].copy()
    for definition in (d.MEAN_RANK, d.GEOMETRIC_MEAN_RANK, d.hits_at(5)):
        one = estimate(definition, merged, "realistic", 0.95, "normal", None, 100, 0)
        plain = RankSample(spread, spread, np.full_like(spread, 60))
        two = estimate(definition, plain, "realistic", 0.95, "normal", None, 100, 0)
        for field in ("low", "high", "standard_error"):
            assert getattr(one, field) == pytest.approx(getattr(two, field), rel=1e-7)


@pytest.mark.parametrize("count", [[1, 1, 1, 1], [1, 2, 1]])
@pytest.mark.parametrize("cluster", [None, [0, 1, 1, 2]])
def test_bootstrap_draws_tasks_or_clusters_with_replacement(count, cluster):
    rank = np.array([1, 3, 7, 20][: len(count)], dtype=np.int64)
    keys = None if cluster is None else np.array(cluster[: len(count)], dtype=np.int64)
    sample = RankSample(rank, rank, np.full_like(rank, 20), count=np.array(count, dtype=np.int64))
    key_of = range(sum(count)) if cluster is None else np.repeat(keys, count).tolist()
    tasks: dict[int, list[int]] = {}
    for key, r in zip(key_of, np.repeat(rank, count).tolist(), strict=True):
        tasks.setdefault(key, []).append(r)
    distribution: dict[float, float] = {}
    for drawn in itertools.product(tasks.values(), repeat=len(tasks)):
        middle = float(np.median(list(itertools.chain(*drawn))))
        distribution[middle] = distribution.get(middle, 0) + len(tasks) ** -len(tasks)
    clusters = None if keys is None else Clusters(keys, np.ones_like(keys))
    (found,) = errors.replicate_values(d.MEDIAN_RANK, [sample], "realistic", 1500, 1, clusters)
    assert set(found) <= set(distribution)
    for value, p in distribution.items():
        assert (found == value).mean() == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / 1500))


def test_studentized_interval_is_efron_and_tibshiranis():
    x, w = np.array([1.0, 2.0, 4.0, 9.0, 30.0]), np.array([1.0, 1.0, 2.0, 1.0, 1.0])

    def mean_and_error(i):
        v = w[i] / w[i].sum()
        m = v @ x[i]
        return m, math.sqrt(5 / 4 * (v**2) @ (x[i] - m) ** 2)

    theta, error = mean_and_error(np.arange(5))
    ratios = []
    for drawn in itertools.product(range(5), repeat=5):
        m, e = mean_and_error(np.array(drawn))
        ratios.append(
            (m - theta) / e
            if e > 1e-12
            else 0.0
            if m == theta
            else math.copysign(math.inf, m - theta)
        )
    high, low = (theta - np.quantile(ratios, q, method="nearest") * error for q in (0.2, 0.8))
    units = units_of(x, w, np.ones(5, dtype=np.int64))
    found = errors.studentized_interval(units, 0.6, 20000, 3)
    assert found[0] == pytest.approx(error, rel=1e-12)
    assert found[1:] == pytest.approx((low, high), rel=0.05)


@pytest.mark.parametrize("n", [20, 60])
def test_wilson_is_widened_where_it_is_too_near_to_zero_or_one(n):
    """Brown, Cai and DasGupta 2001: just below 0.18 / n the plain interval covers 84%.

    The binomial distribution is exact.
    """
    for p in (0.17 / n, 1 - 0.17 / n, 0.5 / n, 1.2 / n, 2.6 / n):
        covered = {"ours": 0.0, "plain": 0.0}
        for k in range(n + 1):
            units = units_of(
                np.r_[np.ones(k), np.zeros(n - k)], np.ones(n), np.ones(n, dtype=np.int64)
            )
            both = errors.share_interval(units, 0.95), wilson(k / n, n, stats.norm.ppf(0.975))
            for name, (low, high) in zip(covered, both, strict=True):
                covered[name] += stats.binom.pmf(k, n, p) * (low <= p <= high)
        assert covered["ours"] >= max(covered["plain"], 0.93), (n, p, covered)
        assert covered["plain"] < 0.86 or not math.isclose(min(p, 1 - p) * n, 0.17)


@pytest.mark.parametrize("hits", [0, 1, 3, 10])
def test_hits_have_wilsons_interval_whatever_the_method(hits):
    ranks = [1] * hits + [50] * (10 - hits)
    collection = RankCollection(["hits@3", "tie_rate"])
    collection.update(Ranks(ranks, None, 60))
    normal, resampled = (
        collection.confidence_intervals(method=m, n_resamples=100) for m in ("normal", "bootstrap")
    )
    assert normal.rows == resampled.rows
    assert normal["hits_at_3"].low < normal["hits_at_3"].high
    assert normal["hits_at_3"].effective_tasks == math.inf


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 4)), min_size=1, max_size=9),
    st.floats(1e-9, 1e9),
)
def test_support_is_n_over_kurtosis(entries, scale):
    u, count = np.array([x for x, _ in entries]), np.array([c for _, c in entries])
    plain = [Fraction(int(x)) for x, c in entries for _ in range(c)]
    second, fourth = sum(x**2 for x in plain), sum(x**4 for x in plain)
    expected = second**2 / fourth if second else 0
    found = Units(np.ones(len(u)), np.zeros((len(u), 1)), count).effective_tasks(u * scale)
    assert found == pytest.approx(float(expected), rel=1e-9)
    assert found <= count.sum() + 1e-9


@pytest.mark.parametrize(("method", "confidence_level"), [("normal", 0.95), ("bootstrap", 0.9)])
def test_an_error_that_rests_on_few_tasks_is_warned_of(method, confidence_level):
    """37 of 40 tasks at rank 1: MR rests on the worst, MRR on the other 3; hits need no error."""
    collection = RankCollection(["mr", "amri", "mrr", "hits@1"])
    collection.update(Ranks([1] * 37 + [2, 3, 4000], None, 14_505))
    message = r"interval of 'mr' \(effective number of tasks 1.1\), 'amri' .*1.1\), 'mrr' .*2.5\)"
    with pytest.warns(RankMetricWarning, match=message) as reported:
        found = collection.confidence_intervals(confidence_level, method, n_resamples=200)
    assert reported[0].filename == __file__  # it points at the caller
    with pytest.warns(RankMetricWarning, match="may be too narrow") as reported:
        collection.table().confidence_intervals(["mr"])
    assert reported[0].filename == __file__
    u = np.array([1] * 37 + [2, 3, 4000]) - 4042 / 40
    expected = pytest.approx((u**2).sum() ** 2 / (u**4).sum())
    assert found["mr"].effective_tasks == found["amri"].effective_tasks == expected


def test_models_of_the_same_ranks_are_warned_of():
    with pytest.warns(
        RankMetricWarning, match="all differences of 'mrr' are 0: are these the same ranks"
    ) as reported:
        assert compare([1, 2, 3] * 20, [1, 2, 3] * 20, "mrr").difference == 0
    assert len(reported) == 1


@pytest.mark.parametrize("method", ["normal", "bootstrap"])
def test_tasks_that_are_all_alike_are_warned_of(method):
    collection = RankCollection(["mr", "mrr", "hits@10"])
    collection.update(Ranks([3] * 20, None, 50))
    with pytest.warns(
        RankMetricWarning, match=r"'mr' \(zero variance\), 'mrr' \(zero variance\) may"
    ):
        found = collection.confidence_intervals(method=method, n_resamples=100)
    assert (found["mr"].low, found["mr"].high, found["mr"].effective_tasks) == (3, 3, 0)
    assert found["hits_at_10"].low < 1


def test_median_has_a_bootstrap_only():
    collection = collect(["median", "mrr"])
    with pytest.raises(ValueError, match=r"'median_rank'.*method='bootstrap'"):
        collection.confidence_intervals()
    result = collection.confidence_intervals(method="bootstrap", n_resamples=500)
    assert result["median_rank"].low <= 3 <= result["median_rank"].high
    assert "median_rank" in str(result)
    with pytest.raises(KeyError, match="available: median_rank, mrr"):
        result["mr"]


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_synchronises_and_keeps_prefix_side_and_macro():
    options = {
        "dist_sync_fn": lambda rows, group=None: [rows, rows],
        "distributed_available_fn": lambda: True,
    }
    collection = RankCollection(["mrr", "tail_mr"], prefix="val/", **options)
    collection.update(Ranks(torch.tensor(RANKS), None, 40), side="head")
    collection.update(Ranks([2, 9, 5], None, 40), side="tail")
    result = collection.confidence_intervals()
    assert result.num_tasks == 26
    assert result["val/tail_mr"].value == pytest.approx(16 / 3)
    assert collection.table().num_tasks == 26
    macro = RankCollection([RankMetric(d.MEAN_RANK, average="macro")])
    macro.update(Ranks([1, 3, 5], None, 40), group=torch.tensor([0, 0, 1]))
    (row,) = macro.confidence_intervals().rows
    assert row.value == pytest.approx(3.5)
    assert row.standard_error == pytest.approx(
        math.sqrt(1.5 * (2.5**2 / 16 + 0.5**2 / 16 + 1.5**2 / 4))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence_level": 95}, "confidence_level must be in"),
        ({"method": "wald"}, "method must be one of 'normal', 'bootstrap'"),
        ({"method": "bootstrap", "n_resamples": 10}, "n_resamples must be an int of at least 100"),
        ({"cluster": "group"}, "needs a group for every task"),
        ({"cluster": "side"}, "'group', 'sample_id', 'query', None or an int64 array"),
        ({"cluster": [1, 2]}, "one key per row"),
        ({"cluster": list(range(7))}, "needs a sample_id for every task"),
    ],
)
def test_bad_options_are_rejected(options, message):
    collection = RankCollection(["mrr"])
    collection.update(Ranks(torch.tensor(sorted(set(RANKS))), None, 40))
    with pytest.raises(ValueError, match=message):
        collection.confidence_intervals(**options)


@pytest.mark.parametrize("name", ["mrr", "median_rank", "rank_std"])
def test_one_task_or_cluster_is_too_little(name):
    collection = RankCollection([name])
    for options in ({}, {"cluster": "group"}):
        collection.update(Ranks([3 + len(options)], None, 40), group=1)
        with pytest.raises(ValueError, match="at least 2 independent tasks or clusters"):
            collection.confidence_intervals(method="bootstrap", **options)
    with pytest.raises(TypeError, match="cluster must contain integers"):
        collection.confidence_intervals(method="bootstrap", cluster=[0.5])


def test_counts_and_p_values_are_left_out_and_no_tasks_are_nan():
    result = collect(["mrr", "count", "p_mrr", "tie_rate"]).confidence_intervals()
    assert [row.metric for row in result.rows] == ["mrr", "tie_rate"]
    with pytest.warns(RankMetricWarning, match="0 ranking tasks were given"):
        assert math.isnan(RankCollection(["mrr"]).confidence_intervals()["mrr"].low)
