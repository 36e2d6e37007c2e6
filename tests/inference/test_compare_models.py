"""Several models at once: every pair as two alone, one family of tests; queries; equivalence."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from flips import sign_flip_p_value
from torchrankmetrics import Ranks, RankTable, compare, evaluate
from torchrankmetrics.inference import clustered_p_value, equivalence
from torchrankmetrics.inference.flips import max_t_p_values
from torchrankmetrics.inference.testing import holm, share_difference_p_value


def models(skills=(0.5, 0.3, 0.0), tasks=200, seed=0, sides=False):
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0, 2, tasks)
    found = {}
    for name, skill in zip(("ours", "theirs", "old"), skills, strict=True):
        rank = (
            np.ceil(np.exp(difficulty - skill + rng.normal(0, 1, tasks))).clip(1, 500).astype(int)
        )
        found[name] = Ranks(rank, None, 500)
        if sides:
            halves = zip(("head", "tail"), np.split(rank, 2), strict=True)
            ids = np.arange(tasks // 2)
            found[name] = RankTable.concatenate(
                [
                    RankTable.from_ranks(Ranks(half, None, 500), side=side, sample_id=ids)
                    for side, half in halves
                ]
            )
    return found


def test_every_pair_has_the_values_of_two_models_except_the_adjustment():
    named = models()
    found = compare(named, ["mrr", "hits@10", "median_rank"])
    assert found.models == ("ours", "theirs", "old")
    assert [row.models for row in found.rows] == [
        ("ours", "theirs"),
        ("ours", "old"),
        ("theirs", "old"),
    ] * 3
    permutations = {row.permutations for row in found["mrr"].rows}
    for row in found.rows:
        (number,) = permutations
        alone = compare(*(named[model] for model in row.models), row.metric, permutations=number)
        for field in (
            "value_a",
            "value_b",
            "difference",
            "low",
            "high",
            "p_value",
            "test",
            "num_tasks",
            "effective_tasks",
        ):
            assert getattr(row, field) == getattr(alone, field), field
    assert {row.p_adjusted is None for row in found["median_rank"].rows} == {True}


def test_without_a_common_test_holm_adjusts_metrics_and_pairs_together():
    named = models()
    found = compare(named, ["mrr", "median_rank"])  # the median has no p
    assert {row.correction for row in found.rows} == {"Holm"}
    plain = [row.p_value for row in found["mrr"].rows]
    assert [row.p_adjusted for row in found["mrr"].rows] == holm(plain).tolist()
    runs = {
        name: [ranks, other]
        for (name, ranks), other in zip(named.items(), models(seed=1).values(), strict=True)
    }
    seeded = compare(runs, ["mrr", "mr"])
    assert {row.test for row in seeded.rows} == {"t over seeds and tasks"}
    assert [row.p_adjusted for row in seeded.rows] == holm(
        [row.p_value for row in seeded.rows]
    ).tolist()


def test_max_t_is_that_of_all_flips_by_hand():
    """Step-down, all flips: each statistic against the largest of itself and less clear ones."""
    rng = np.random.default_rng(3)
    d = rng.normal(0.4, 1, (7, 2))
    lines = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]])
    each = d @ lines
    flips = [
        np.array(signs) @ each / np.sqrt((each**2).sum(0))
        for signs in itertools.product((1, -1), repeat=7)
    ]
    statistic = np.abs(each.sum(0) / np.sqrt((each**2).sum(0)))
    order = np.argsort(-statistic)
    expected, before = np.empty(3), 0.0
    for i, j in enumerate(order):
        reached = sum(np.abs(flip[order[i:]]).max() >= statistic[j] - 1e-12 for flip in flips)
        before = expected[j] = max(before, reached / 2**7)
    assert max_t_p_values(d, lines).tolist() == expected.tolist()
    assert (max_t_p_values(d, lines, permutations=126, seed=1) >= 1 / 127).all()
    assert max_t_p_values(d[:, :1], np.eye(1)).tolist() == [sign_flip_p_value(d[:, 0])]


def test_max_t_of_equal_models_is_one_and_of_copies_costs_nothing():
    d = np.random.default_rng(0).normal(0.5, 1, (40, 1))
    same = max_t_p_values(np.c_[d, d, np.zeros(40)], np.eye(3))
    assert same[0] == same[1] == max_t_p_values(d, np.eye(1))[0]  # Holm would double it
    assert same[2] == 1
    # a difference of equals
    assert max_t_p_values(np.c_[d, d], np.array([[1.0], [-1.0]])).tolist() == [1.0]


def test_against_a_model_is_a_smaller_family():
    named = models()
    every, some = compare(named, "mrr"), compare(named, "mrr", baseline="old")
    assert [row.models for row in some.rows] == [("old", "ours"), ("old", "theirs")]
    assert some["mrr", "ours", "old"].difference == every["mrr", "ours", "old"].difference
    assert some["mrr", "ours", "old"].low == -some["mrr", "old", "ours"].high
    assert some["mrr", "ours", "old"].p_adjusted <= every["mrr", "ours", "old"].p_adjusted


def test_the_best_is_found_in_the_data_and_pays_for_all_pairs():
    named = models(skills=(0.0, 0.6, 0.3))
    best, every = compare(named, ["mrr", "gmr"], baseline="best"), compare(named, ["mrr", "gmr"])
    assert {row.models[0] for row in best.rows} == {"theirs"}
    assert len(best.rows) == 4
    for row in best.rows:
        assert row.p_adjusted == every[(row.metric, *row.models)].p_adjusted
        assert (row.difference > 0) == (row.metric == "mrr")
    with pytest.raises(ValueError, match="'tie_rate' has no direction, so no model is the best"):
        compare(named, ["mrr", "tie_rate"], baseline="best")
    called = {"best": named["old"], "other": named["ours"], "third": named["theirs"]}
    # its name
    assert {row.models[0] for row in compare(called, "mrr", baseline="best").rows} == {"best"}


def test_clusters_share_the_flips_of_their_tasks():
    clustered = compare(models(sides=True), ["tail_mrr", "mrr"], cluster="sample_id")
    # a cluster of one task is an independent task
    assert [row.num_clusters for row in clustered["tail_mrr"].rows] == [None] * 3
    assert [row.num_clusters for row in clustered["mrr"].rows] == [100] * 3
    assert all(row.p_adjusted >= row.p_value for row in clustered.rows)
    assert "100 tasks, 200 tasks in 100 clusters, intervals" in str(clustered)


def test_names_of_the_models_are_in_every_text():
    found = compare(models(), ["mrr", "hits@3"])
    assert str(found["mrr", "old", "ours"]).startswith("mrr, old - ours: 0.")
    assert ", by max-T " in str(found["mrr", "theirs", "ours"])
    assert list(found.to_pandas()["model_b"]) == ["theirs", "old", "old"] * 2
    # named a, b, c: a column "b" would be read as the values of model b
    own = dict(zip("abc", models().values(), strict=True))
    for row in json.loads(compare(own, "mrr").to_json()):
        assert {"a", "b", "c"}.isdisjoint(row)
        values = [evaluate(own[row[f"model_{x}"]], metrics="mrr")["mrr"] for x in "ab"]
        assert [row["value_a"], row["value_b"]] == pytest.approx(values)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: compare(m["ours"]), TypeError, "b is missing: compare"),
        (
            lambda m: compare(m, "mr", "hits@3"),
            TypeError,
            "after a dict of models the metric is the second argument",
        ),
        (
            lambda m: compare({"a": m["ours"]}),
            ValueError,
            "models must be at least two, by different names; got 'a'",
        ),
        (
            lambda m: compare({1: m["ours"], "1": m["old"]}),
            ValueError,
            "by different names; got '1', '1'",
        ),
        (
            lambda m: compare({}),
            ValueError,
            "models must be at least two, by different names; got none",
        ),
        (lambda m: compare(m, []), ValueError, "metric is empty"),
        (
            lambda m: compare(m, baseline="ous"),
            ValueError,
            "baseline must be None, 'best' or one of the models 'ours'",
        ),
        (
            lambda m: compare(m["ours"], m["old"], baseline="best"),
            ValueError,
            "pass a dict of name -> model",
        ),
        (
            lambda m: compare({**m, "x": 3}),
            TypeError,
            "'x' must be ranks of tasks, or one value per query as .* "
            "Two averages cannot be compared",
        ),
        (
            lambda m: compare({**m, "x": [m["old"]] * 2}),
            ValueError,
            "all models must be lists .* 'ours' has 1",
        ),
        (
            lambda m: compare({**m, "x": Ranks([1], None, 3)}),
            ValueError,
            "'x' has 1 tasks, 'ours' has 200",
        ),
        (lambda m: compare(m, "p_mrr"), ValueError, "'p_mrr' cannot be compared"),
        (lambda m: compare(m)["mr"], KeyError, "no result for 'mr'; available: mrr"),
        (
            lambda m: compare(m)["mrr", "ours", "x"],
            KeyError,
            "are not both among ours, theirs, old",
        ),
    ],
)
def test_models_that_cannot_be_compared_raise(call, error, message):
    with pytest.raises(error, match=message):
        call(models())


QUERIES = [f"q{i:03}" for i in range(150)]


def systems():
    ranks = {name: one.optimistic.numpy() for name, one in models(tasks=150).items()}
    ranks["new"] = models(tasks=150, seed=1)["old"].optimistic.numpy()
    return ranks, {
        name: dict(zip(QUERIES, (1 / r).tolist(), strict=True)) for name, r in ranks.items()
    }


def same(ours, theirs, tolerance=1e-12):
    for name in (
        "value_a",
        "value_b",
        "difference",
        "low",
        "high",
        "p_value",
        "p_adjusted",
        "effective_tasks",
    ):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=tolerance), name
    assert (ours.test, ours.num_tasks) == (theirs.test, theirs.num_tasks)


def test_values_give_the_results_of_the_ranks_they_come_from():
    ranks, values = systems()
    for baseline in (None, "best", "old"):  # one family
        ours, theirs = (
            compare(values, "mrr", baseline=baseline),
            compare(ranks, "mrr", baseline=baseline),
        )
        assert [row.models for row in ours.rows] == [row.models for row in theirs.rows]
        for one, other in zip(ours.rows, theirs.rows, strict=True):
            same(one, other)
            assert one.correction == "max-T"
    seeds = [([of["ours"], of["theirs"]], [of["old"], of["new"]]) for of in (values, ranks)]
    same(compare(*seeds[0], "mrr"), compare(*seeds[1], "mrr"))
    found = [equivalence(of["ours"], of["theirs"], "mrr", margin=0.1) for of in (values, ranks)]
    assert found[0].p_equivalent == pytest.approx(found[1].p_equivalent, abs=1e-12)
    hits = [
        dict(zip(QUERIES, (ranks[name] <= 3).astype(int).tolist(), strict=True))
        for name in ("ours", "theirs")
    ]
    share = compare(*hits, "success@3")
    same(share, compare(ranks["ours"], ranks["theirs"], "hits@3"))
    assert (share.test, share.metric) == ("exact McNemar", "success_at_3")


def test_queries_are_aligned_by_name_and_counted_as_queries_with_the_direction_of_the_metric():
    _, values = systems()
    shuffled = dict(sorted(values["theirs"].items(), key=lambda item: item[1]))
    found = compare(values["ours"], shuffled)
    assert found.difference == compare(values["ours"], values["theirs"]).difference
    assert (found.metric, found.unit) == ("value", "queries")
    assert str(found).endswith(f"; {len(QUERIES)} queries; a is better: higher value")
    assert compare(values, "mr", baseline="best").rows[0].models[0] == "old"
    assert compare(values, "BERTScore", baseline="best").rows[0].models[0] == "ours"
    assert compare(values, "BERTScore").rows[0].metric == "BERTScore"


def test_values_of_several_metrics_are_compared_as_one_family() -> None:
    _, values = systems()
    models = {
        name: {query: {"rr": value, "share": float(value > 0.4)} for query, value in one.items()}
        for name, one in values.items()
    }
    a, b = models["ours"], models["theirs"]
    found = compare(a, b, ["rr", "share"])
    pairs = compare(models, ["rr", "share"])
    for name in ("rr", "share"):
        alone = compare(a, b, name)
        for row in (found[name], pairs[name, "ours", "theirs"]):
            assert (row.difference, row.p_value, row.test) == (
                alone.difference,
                alone.p_value,
                alone.test,
            )
        assert found[name].p_adjusted >= alone.p_value
    assert found["share"].test == "exact McNemar"
    assert len(compare(a, b, ["rr", "first_reciprocal_rank", "share", "share"]).rows) == 2


def test_ids_such_as_p1_are_no_names_of_metrics() -> None:
    a, b = ({f"p{i}": (i % k) / k for i in range(1, 20)} for k in (3, 5))
    assert compare(a, b, "ndcg@10").num_tasks == 19


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "message"),
    [
        (
            {"q": 1.0, "p": 0.5},
            {"q": 1.0, "r": 0.5},
            {},
            ValueError,
            "a lacks 1: 'r'; b lacks 1: 'p'",
        ),
        (
            {"q": 1.0, "p": 0.5},
            {"q": 1.0, "p": float("nan")},
            {},
            ValueError,
            "b must have finite.*nan for query 'p'",
        ),
        (
            {"q": 1.0, "p": 0.5},
            {"q": 1.0, "p": "x"},
            {},
            ValueError,
            "b must have finite values, got 'x'",
        ),
        (
            {"q": 1.0, "p": 0.5},
            Ranks([1, 2]),
            {},
            TypeError,
            "b must be a dict of query -> value, as a is, got Ranks",
        ),
        (
            Ranks([1, 2]),
            {"q": 1.0, "p": 0.5},
            {},
            TypeError,
            "a must be a dict of query -> value, as b is, got Ranks",
        ),
        (
            {"q": 1.0},
            {"q": 0.5},
            {"cluster": "group"},
            ValueError,
            "cluster must be 'auto' or None",
        ),
        ({"q": 1.0}, {"q": 0.5}, {"metric": ["a", "b"]}, ValueError, "metric must be one name"),
        (
            {"ndcg@10": 1.0, "rr": 0.5},
            {"ndcg@10": 0.5, "rr": 0.5},
            {},
            ValueError,
            "a must be a dict of query -> value, got averages of .*per_query=True",
        ),
        (
            {"q": {"rr": 1.0}, "p": {}},
            {"q": {"rr": 0.5}, "p": {"rr": 0.5}},
            {"metric": "rr"},
            ValueError,
            "a has no value of 'rr' for query 'p'",
        ),
        (
            {"q": 1.0},
            {"q": 0.5},
            {"metric": 3},
            TypeError,
            "metric must be the name of the values, got 3",
        ),
        ({"q": 1.0}, {"q": 0.5}, {}, ValueError, "at least 2 independent tasks"),
    ],
)
def test_bad_values_raise(a, b, options, error, message):
    with pytest.raises(error, match=message):
        compare(a, b, **options)


few = pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")


def pair(seed):
    return list(models((0.05, 0.0, 0.0), 60, seed).values())[:2]


@few
@pytest.mark.parametrize(
    "metric", ["mrr", "mr", "hits@3", "gmr", "amri", "z_mr", "hmr", "median_rank"]
)
@pytest.mark.parametrize("seed", range(2))
def test_equivalence_is_an_interval_inside_the_margin(metric, seed):
    """Two one-sided tests at 5% reject exactly where the interval of 90% lies within the margin."""
    a, b = pair(seed)
    interval, decided = compare(a, b, metric, n_resamples=300), set()
    # a bootstrap for each
    shares = [0.2, 3.0] if metric == "median_rank" else [0.2, 0.5, 0.8, 1.0, 1.5, 3.0]
    for margin in abs(interval.high - interval.low) * np.array(shares):
        found = equivalence(a, b, metric, margin=margin, n_resamples=300, permutations=999)
        assert found.equivalent == (-margin < found.low and found.high < margin)
        higher = found.metric not in ("mr", "gmr", "hmr", "median_rank")
        assert found.not_inferior == (found.low > -margin if higher else found.high < margin)
        decided.add(found.equivalent)
    assert decided == {True, False}


def test_equivalence_of_clusters_and_seeds():
    runs = [pair(seed) for seed in range(3)]
    a, b = [run[0] for run in runs], [run[1] for run in runs]
    cluster = np.arange(60) // 3
    for models in (
        (a, b, "mrr", None),
        (a[0], b[0], "hits@3", cluster),
        (a[0], b[0], "mrr", cluster),
    ):
        wide, narrow = (
            equivalence(*models[:3], cluster=models[3], margin=m, permutations=999)
            for m in (0.9, 1e-4)
        )
        assert wide.equivalent
        assert not narrow.equivalent
        assert wide.p_equivalent < 0.05 < narrow.p_equivalent


@few
def test_p_of_a_mean_is_the_share_of_flips_enumerated():
    """One-sided p of "the difference is margin", counting all flips of differences moved by it."""
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


def test_bad_margins_raise():
    a, b = pair(0)
    with pytest.raises(ValueError, match="margin must be above 0"):
        equivalence(a, b, margin=0.0)
    with pytest.raises(TypeError, match="margin must be a number"):
        equivalence(a, b, margin="1%")
    with pytest.raises(
        ValueError, match=r"permutations must be at least 499 for intervals of level 0\.998"
    ):
        equivalence(a, b, margin=0.1, confidence_level=0.999, permutations=99)
    with pytest.raises(ValueError, match=r"confidence_level must be above 0\.5"):
        equivalence(a, b, margin=0.1, confidence_level=0.4)


@pytest.mark.parametrize(
    "differences", [[1, 2, 3, 4, -2], [3, 0, 1, 1, 1, -1], [5], [0, 0], [1, 1, 1, 1, 1, 1, 1, -6]]
)
def test_sign_flip_is_the_studentized_test_enumerated(differences):
    """All flips in Fractions, ordered by Student's t squared with the variance of each flip."""

    def t_squared(values):
        total = sum(values, Fraction(0))
        spread = sum(x**2 for x in values) - total**2 / len(values)
        return total**2 / spread if spread else math.inf if total else 0

    flips = list(itertools.product(*((x, -x) for x in map(Fraction, differences))))
    expected = Fraction(sum(t_squared(flip) >= t_squared(flips[0]) for flip in flips), len(flips))
    assert sign_flip_p_value(np.array(differences, dtype=np.float64)) == pytest.approx(
        float(expected)
    )


@pytest.mark.parametrize("n", [40, 5000])
def test_random_flips_vary_as_much_as_stated(n):
    """With fewer and with more tasks than flips, around the p-value of a normal sum."""
    values = np.random.default_rng(n).standard_t(4, n)
    values += 2 * math.sqrt((values**2).sum()) / n - values.mean()
    drawn = np.array([sign_flip_p_value(values, 999, seed) for seed in range(200)])
    p = drawn.mean()
    assert p == pytest.approx(math.erfc(values.sum() / math.sqrt(2 * (values**2).sum())), abs=0.01)
    assert drawn.std() <= 1.1 * math.sqrt(p * (1 - p) / 999)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 1), (3, 9), (12, 4), (7, 7)])
def test_mcnemar_is_a_binomial_tail_on_both_sides(only_a, only_b):
    n = only_a + only_b
    distribution = [Fraction(math.comb(n, k), 2**n) for k in range(n + 1)]
    expected = sum(p for p in distribution if p <= distribution[only_a])
    assert share_difference_p_value(only_a, only_b, n + 30, 0.0) == pytest.approx(float(expected))


def test_holm_is_closed_testing_with_bonferroni():
    p = [0.011, 0.2, 0.013, 0.04, 0.9]
    subsets = [s for size in range(1, 6) for s in itertools.combinations(range(5), size)]
    for i, adjusted in enumerate(holm(p)):
        assert adjusted == pytest.approx(
            max(min(1, len(s) * min(p[j] for j in s)) for s in subsets if i in s)
        )


def test_holm_accepts_a_family_of_any_shape_and_skips_nan():
    p = np.random.default_rng(0).random((3, 2, 4)) ** 4
    np.testing.assert_array_equal(holm(p).ravel(), holm(p.ravel()))
    some = np.append(p.ravel(), np.nan)
    np.testing.assert_array_equal(holm(some)[:-1], holm(p.ravel()))
    assert np.isnan(holm(some)[-1])
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("wrong", [[0.5, 1.5], [-0.1]], ids=str)
def test_holm_rejects_numbers_outside_of_zero_to_one(wrong):
    with pytest.raises(ValueError, match=r"p_values must be in \[0, 1\], got"):
        holm(wrong)


RANKS, QUERY, ANSWER = [1, 2, 1, 3, 2, 2], [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3]


def jackknife(x, key):
    """Variance of the mean of x, one cluster left out at a time."""
    left = [x[np.array(key) != one].mean() for one in sorted(set(key))]
    return (len(left) - 1) / len(left) * sum((mean - x.mean()) ** 2 for mean in left)


def test_it_is_students_t_of_the_mean_with_clustered_errors():
    centred = np.array([1 / r for r in RANKS]) - np.mean([1 / k for k in range(1, 10)])
    ranks, by_query = Ranks(RANKS, None, 9), jackknife(centred, QUERY)
    # two degrees of freedom: three clusters of equal weight
    assert clustered_p_value(ranks, "mrr", cluster=QUERY) == pytest.approx(
        student.sf(centred.mean() / math.sqrt(by_query), 2), rel=1e-9
    )
    # no two tasks share both
    both = by_query + jackknife(centred, ANSWER) - jackknife(centred, range(6))
    assert both > by_query
    assert clustered_p_value(ranks, "mrr", cluster=QUERY, second_cluster=ANSWER) == pytest.approx(
        student.sf(centred.mean() / math.sqrt(both), 2), rel=1e-9
    )


@pytest.mark.parametrize("metric", ["count", "median_rank", "ndcg", "rank_std"])
def test_metrics_that_are_not_means_of_f_raise(metric):
    with pytest.raises(ValueError, match=r"metric must be a function of a mean .*, got"):
        clustered_p_value(Ranks(RANKS, None, 9), metric, cluster=QUERY)


def test_one_cluster_raises():
    with pytest.raises(ValueError, match="at least 2"):
        clustered_p_value(Ranks(RANKS, None, 9), "mrr", cluster=[0] * 6)


def test_a_metric_without_direction_can_be_equivalent_but_not_worse() -> None:
    a, b = Ranks([1, 9, 2, 8, 3, 7] * 40, None, 50), Ranks([4, 6, 5, 5, 4, 6] * 40, None, 50)
    for pair in ((a, b), (b, a)):
        found = equivalence(*pair, "rank_std", margin=0.5)
        assert math.isnan(found.p_not_worse)
        assert math.isnan(found.p_not_better)
        assert not found.not_inferior
        assert found.p_equivalent > 0.9


def test_ids_may_be_the_index_of_a_frame() -> None:
    rng = np.random.default_rng(0)
    a = pd.DataFrame({"rank": rng.integers(1, 50, 99), "num_candidates": 50})
    a["sample_id"] = np.arange(99)
    b = a.assign(rank=rng.integers(1, 50, 99)).sample(frac=1, random_state=1)
    expected = compare(a, b, "mrr")
    assert compare(a.set_index("sample_id"), b.set_index("sample_id"), "mrr") == expected
