"""Tasks dependent by default; error rates of intervals and tests of dependent or weighted tasks."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from torchrankmetrics import RankCollection, RankMetric, Ranks, RankTable, compare, evaluate
from torchrankmetrics.inference import equivalence
from torchrankmetrics.inference.standard_errors import share_interval, units_of
from torchrankmetrics.study import RankStudy

pytestmark = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")


def both_sides(rng, triples=60, effect=0.0, **columns):
    """Ranks of both sides of triples, with a shared part of the score of a triple."""
    shared = rng.normal(size=triples) * effect
    parts = []
    for side in ("head", "tail"):
        rank = np.ceil(np.exp(2 + shared + rng.normal(size=triples))).clip(1, 500).astype(int)
        ranks = Ranks(rank, None, 500)
        ids = np.arange(triples)
        parts.append(RankTable.from_ranks(ranks, side=side, sample_id=ids, **columns))
    return RankTable.concatenate(parts)


def test_both_sides_of_a_triple_are_one_cluster_by_default():
    rng = np.random.default_rng(0)
    a, b = both_sides(rng, effect=1), both_sides(rng, effect=1)
    names = ["mrr", "hits@10"]
    found = a.confidence_intervals(names)
    assert found == a.confidence_intervals(names, cluster="sample_id")
    assert found["mrr"] != a.confidence_intervals(names, cluster=None)["mrr"]
    assert str(found).endswith("95% (normal), 120 tasks in 60 clusters")
    assert compare(a, b, names) == compare(a, b, names, cluster="sample_id")
    hits = compare(a, b, "hits@10")
    assert (hits.test, hits.num_clusters) == ("sign-flip permutation", 60)
    assert compare(a, b, "hits@10", cluster=None).test == "exact McNemar"
    # one side alone is independent
    assert compare(a, b, "tail_hits@10").test == "exact McNemar"
    assert equivalence(a, b, margin=0.2) == equivalence(a, b, margin=0.2, cluster="sample_id")


def test_tasks_without_a_sample_id_are_clusters_of_their_own():
    rank = torch.arange(1, 31)
    collection = RankCollection(["mrr"])
    for side in ("head", "tail"):
        ranks = Ranks(rank[:10] + (side == "tail"), None, 50)
        collection.update(ranks, side=side, sample_id=torch.arange(10))
    collection.update(Ranks(rank[[0, 0, 0, 7]], None, 50), side="head")
    found = collection.confidence_intervals()
    assert (found.num_tasks, found.num_clusters) == (24, 14)
    # the three equal tasks are counted as one row, but they are three clusters
    keys = np.r_[np.arange(10), np.arange(10), 10:14]
    value = 1 / np.r_[1:11, 2:12, [1, 1, 1, 8]]
    units = [(value[keys == key].sum(), (keys == key).sum()) for key in range(14)]
    left = [(value.sum() - s) / (24 - m) for s, m in units]
    error = math.sqrt(13 / 14 * sum((x - value.mean()) ** 2 for x in left))
    assert found["mrr"].standard_error == pytest.approx(error, rel=1e-9)


def labels_of(queries=40, copies=1):
    """Scores and labels of queries with two relevant items, each query ``copies`` times."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(queries, 12, generator=generator).repeat(copies, 1)
    labels = (torch.arange(12) < 2).expand(len(scores), 12)
    return scores, labels


@pytest.mark.parametrize("copies", [1, 3])
def test_tasks_of_a_query_are_one_cluster_by_default(copies):
    """Queries with and without a name of their own; equal queries are separate clusters."""
    scores, labels = labels_of(copies=copies)
    row = torch.arange(len(scores))
    unnamed, named = RankCollection(["mrr", "hits@3"]), RankCollection(["mrr", "hits@3"])
    unnamed.update(scores, labels)
    named.update(scores, labels, query=row)
    one, other = unnamed.confidence_intervals(), named.confidence_intervals()
    assert one.num_clusters == other.num_clusters == len(scores)
    for key in ("mrr", "hits_at_3"):
        assert one[key].low == pytest.approx(other[key].low, rel=1e-12)
        assert one[key].high == pytest.approx(other[key].high, rel=1e-12)
    grouped = RankCollection(["mrr"])
    grouped.update(scores, labels, group=row)
    assert grouped.confidence_intervals(cluster="group")["mrr"].low == pytest.approx(one["mrr"].low)


def test_pairs_of_queries_without_names_are_clustered():
    scores, labels = labels_of(12)  # so few that all flips are enumerated
    worse = scores + torch.rand(scores.shape, generator=torch.Generator().manual_seed(1))
    a, b = RankCollection(["mrr"]), RankCollection(["mrr"])
    a.update(scores, labels)
    b.update(worse, labels)
    found = compare(a, b, "mrr")
    assert found.size == (24, "tasks", 12, 12.0)
    by_key = compare(a, b, "mrr", cluster=np.arange(12).repeat(2))
    assert found.p_value == by_key.p_value
    assert found.low == pytest.approx(by_key.low)


def test_queries_are_independent_units_of_query_metrics():
    scores, labels = labels_of()
    collection = RankCollection(["ap", "rr"])
    collection.update(scores, labels)
    plain = collection.confidence_intervals(cluster=None)
    for row in collection.confidence_intervals().rows:
        assert row.low == pytest.approx(plain[row.metric].low, rel=1e-12)
        assert row.high == pytest.approx(plain[row.metric].high, rel=1e-12)
    # one relevant item per query: the query metric has the dependence of the task metric
    table = both_sides(np.random.default_rng(3), effect=2)
    found = table.confidence_intervals(["rr", "mrr"])
    assert found["rr"].standard_error == pytest.approx(found["mrr"].standard_error)
    assert found["rr"] != table.confidence_intervals(["rr"], cluster=None)["rr"]


def test_a_study_clusters_by_default_and_counts_the_clusters():
    study = RankStudy()
    for model in "ab":
        rng = np.random.default_rng(ord(model))
        study.add(both_sides(rng, effect=1), model=model, dataset="toy")
    table, plain = study.table("mrr"), study.table("mrr", cluster="sample_id")
    assert table.cells == plain.cells
    assert table.cells != study.table("mrr", cluster=None).cells
    assert "120 tasks in 60 clusters" in table.to_text()
    (row,) = study.difference("a", "b").rows
    assert row.size == "120 tasks in 60 clusters"


def test_no_cluster_where_tasks_are_independent():
    ranks = np.random.default_rng(0).integers(1, 30, 40)
    plain = RankTable.from_ranks(Ranks(ranks, None, 30))
    named = RankTable.from_ranks(Ranks(ranks, None, 30), side="tail", query=np.arange(40))
    for table in (plain, named):
        found = table.confidence_intervals(["mrr", "hits@3"])
        assert found == table.confidence_intervals(["mrr", "hits@3"], cluster=None)
        assert found.num_clusters is None


def test_size_of_the_default_test_with_an_effect_of_model_and_triple():
    """Exchangeable models, 250 samples of 40 triples: a size of 5% has a standard error of 1.4%."""
    rng, metrics = np.random.default_rng(5), ["mrr", "hits@10"]
    sizes = {}
    for cluster in ("auto", None):
        p_values = []
        for _ in range(250):
            models = [both_sides(rng, 40, effect=2) for _ in range(2)]
            found = compare(*models, metrics, cluster=cluster, permutations=199)
            p_values.append([row.p_value for row in found.rows])
        sizes[cluster] = (np.array(p_values) <= 0.05).mean(0)
    assert (sizes["auto"] <= 0.05 + 0.042).all()
    assert (sizes[None] >= 0.08).all()


WEIGHTS = {
    "exponential": lambda rng, n: rng.exponential(size=n),
    "pareto": lambda rng, n: 1 + rng.pareto(1.5, size=n),
    "macro": lambda rng, n: np.repeat(1 / (1 + np.arange(n)), 1 + np.arange(n))[:n],
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("size", "share"), [(10, 0.3), (40, 0.9), (120, 0.5), (120, 0.02)])
def test_weighted_hits_are_covered(weights, size, share):
    """1,000 samples: the standard error of a coverage of 95% is 0.7%."""
    rng, covered = np.random.default_rng(size), 0
    for _ in range(1000):
        weight = WEIGHTS[weights](rng, size)
        hits = (rng.random(size) < share).astype(float)
        low, high = share_interval(units_of(hits, weight, np.ones(size, np.int64)), 0.95)
        covered += low <= share <= high
    assert covered >= 930


def test_hits_in_groups_of_unequal_sizes():
    """Macro hits, groups of 1 to 100 tasks: the interval is as wide as the few groups require."""
    sizes = np.array([1, 2, 4, 8, 16, 100])
    group, rng, covered = np.repeat(np.arange(6), sizes), np.random.default_rng(1), 0
    for _ in range(200):
        collection = RankCollection([RankMetric("hits@10", average="macro")])
        rank = np.where(rng.random(len(group)) < 0.7, 3, 30)
        collection.update(Ranks(rank, None, 100), group=torch.from_numpy(group))
        with pytest.warns(match="effective number of tasks 3.3"):
            (row,) = collection.confidence_intervals().rows
        covered += row.low <= 0.7 <= row.high
    assert covered >= 186


@pytest.mark.parametrize("size", [10, 30, 100, 300])
def test_hits_of_equal_weight_are_covered_for_every_share(size):
    """Exact binomial: at least 93% for any share; Wilson's with a normal quantile has 91.9%."""
    ends = []
    for hits in range(size + 1):
        values = np.r_[np.ones(hits), np.zeros(size - hits)]
        ends.append(share_interval(units_of(values, np.ones(size), np.ones(size, np.int64)), 0.95))
    low, high = np.array(ends).T
    for share in np.linspace(0.005, 0.995, 199):
        covered = (low <= share + 1e-12) & (share <= high + 1e-12)
        assert stats.binom.pmf(np.arange(size + 1), size, share)[covered].sum() >= 0.93


def test_all_weighted_tasks_hit_and_the_sum_of_weights_misses_one():
    rng = np.random.default_rng(0)
    for _ in range(200):
        weight = rng.exponential(size=20)
        units = units_of(np.ones(20), weight, np.ones(20, np.int64))
        low, high = share_interval(units, 0.95)
        n = weight.sum() ** 2 / (weight**2).sum()
        assert 0 < low < 1
        assert high == pytest.approx(1)
        freedom = max((weight**2).sum() ** 2 / (weight**4).sum() - 1, 1)
        assert low == pytest.approx(n / (n + stats.t.ppf(0.975, freedom) ** 2))


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (np.ones(40), math.inf),
        (np.full(40, 0.3), math.inf),
        (
            np.arange(1.0, 41.0),
            (np.arange(1.0, 41.0) ** 2).sum() ** 2 / (np.arange(1.0, 41) ** 4).sum(),
        ),
    ],
    ids=["ones", "equal", "different"],
)
def test_only_equal_weights_have_an_infinite_effective_number(weight, expected):
    rank = np.array([1, 30] * 20)
    table = RankTable.from_ranks(Ranks(rank, None, 50), weight=weight)
    assert table.confidence_intervals(["hits@10"])["hits_at_10"].effective_tasks == pytest.approx(
        expected
    )


def test_differences_of_rounding_are_zero():
    rng = np.random.default_rng(0)
    exact = {f"q{i}": x for i, x in enumerate(rng.random(200))}
    single = {query: float(np.float32(x)) for query, x in exact.items()}
    third = {query: min(x + 0.1 * (i % 2), 1.0) for i, (query, x) in enumerate(exact.items())}
    with pytest.warns(match="all differences of 'value' are 0"):
        found = compare(exact, single)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)
    with pytest.warns(match="all differences of"):
        every = compare({"exact": exact, "single": single, "third": third})
    assert every["value", "exact", "single"].p_adjusted == 1
    assert every["value", "exact", "third"].p_value == every["value", "single", "third"].p_value
    # a real difference of a relative 1e-5 stays
    close = {query: x * (1 + 1e-5) for query, x in exact.items()}
    assert compare(close, exact).p_value < 1e-3
    study = RankStudy()
    for model, values in (("exact", exact), ("single", single)):
        study.add_values(values, metric="ap", model=model, dataset="d")
    assert study.difference("exact", "single", "ap")["d"].p_value == 1


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("mr", "a is better: lower MR"),
        ("mrr", "a is better: higher MRR"),
        ("amri", "a is better: higher AMRI"),
        ("tie_rate", ""),
    ],
)
def test_the_better_model_is_named_in_words(metric, expected):
    rng = np.random.default_rng(0)
    rank = rng.integers(1, 20, 60)
    a, b = Ranks(rank, None, 100), Ranks(rank + 15, rank + 15 + (metric == "tie_rate"), 100)
    found = compare(a, b, metric)
    assert found.direction == expected
    assert str(found).endswith(f"; 60 tasks{'; ' * bool(expected)}{expected}")
    if expected:
        turned = compare(b, a, metric)
        assert turned.direction == expected.replace("a is", "b is")
        named = compare({"ours": a, "old": b}, metric)
        assert named.rows[0].direction == expected.replace("a is", "ours is")
        assert named.to_pandas()["better"].tolist() == ["ours"]
        noise = compare(Ranks(rank, None, 100), Ranks(rng.permutation(rank), None, 100), metric)
        assert noise.direction.startswith("not significantly different; ")
        assert noise.better is None
        assert evaluate(a, metrics=[metric])[found.metric] == pytest.approx(found.value_a)
