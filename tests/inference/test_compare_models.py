"""Several models at once: every pair as two alone, and one family of tests over metrics and pairs."""

import itertools

import numpy as np
import pytest

from flips import sign_flip_p_value
from torchrankmetrics import Ranks, RankTable, compare
from torchrankmetrics.inference.flips import max_t_p_values
from torchrankmetrics.inference.testing import holm


def models(skills=(0.5, 0.3, 0.0), tasks=200, seed=0, sides=False):
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0, 2, tasks)
    found = {}
    for name, skill in zip(("ours", "theirs", "old"), skills, strict=True):
        rank = np.ceil(np.exp(difficulty - skill + rng.normal(0, 1, tasks))).clip(1, 500).astype(int)
        found[name] = Ranks(rank, None, 500)
        if sides:
            halves = zip(("head", "tail"), np.split(rank, 2), strict=True)
            ids = np.arange(tasks // 2)
            found[name] = RankTable.concatenate(
                [RankTable.from_ranks(Ranks(half, None, 500), side=side, sample_id=ids) for side, half in halves]
            )
    return found


def test_every_pair_has_the_values_of_two_models_except_the_adjustment():
    named = models()
    found = compare(named, ["mrr", "hits@10", "median_rank"])
    assert found.models == ("ours", "theirs", "old")
    assert [row.models for row in found.rows] == [("ours", "theirs"), ("ours", "old"), ("theirs", "old")] * 3
    permutations = {row.permutations for row in found["mrr"].rows}
    for row in found.rows:
        (number,) = permutations
        alone = compare(*(named[model] for model in row.models), row.metric, permutations=number)
        for field in ("a", "b", "difference", "low", "high", "p_value", "test", "num_tasks", "effective_tasks"):
            assert getattr(row, field) == getattr(alone, field), field
    assert {row.p_adjusted is None for row in found["median_rank"].rows} == {True}


def test_without_a_common_test_holm_adjusts_metrics_and_pairs_together():
    named = models()
    found = compare(named, ["mrr", "median_rank"])  # the median has no p
    assert {row.correction for row in found.rows} == {"Holm"}
    plain = [row.p_value for row in found["mrr"].rows]
    assert [row.p_adjusted for row in found["mrr"].rows] == holm(plain).tolist()
    runs = {name: [ranks, other] for (name, ranks), other in zip(named.items(), models(seed=1).values(), strict=True)}
    seeded = compare(runs, ["mrr", "mr"])
    assert {row.test for row in seeded.rows} == {"t over seeds and tasks"}
    assert [row.p_adjusted for row in seeded.rows] == holm([row.p_value for row in seeded.rows]).tolist()


def test_max_t_is_that_of_all_flips_by_hand():
    """Step-down: each statistic against the largest of itself and of those that are less clear, over all flips."""
    rng = np.random.default_rng(3)
    d = rng.normal(0.4, 1, (7, 2))
    lines = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]])
    each = d @ lines
    flips = [np.array(signs) @ each / np.sqrt((each**2).sum(0)) for signs in itertools.product((1, -1), repeat=7)]
    statistic = np.abs(each.sum(0) / np.sqrt((each**2).sum(0)))
    order = np.argsort(-statistic)
    expected, before = np.empty(3), 0.0
    for i, j in enumerate(order):
        reached = sum(np.abs(flip[order[i:]]).max() >= statistic[j] - 1e-12 for flip in flips)
        before = expected[j] = max(before, reached / 2**7)
    assert max_t_p_values(d, lines).tolist() == expected.tolist()
    drawn = max_t_p_values(d, lines, permutations=126, seed=1)
    assert (drawn >= 1 / 127).all()
    assert max_t_p_values(d[:, :1], np.eye(1)).tolist() == [sign_flip_p_value(d[:, 0])]


def test_max_t_of_equal_models_is_one_and_of_copies_costs_nothing():
    d = np.random.default_rng(0).normal(0.5, 1, (40, 1))
    same = max_t_p_values(np.c_[d, d, np.zeros(40)], np.eye(3))
    assert same[0] == same[1] == max_t_p_values(d, np.eye(1))[0]  # Holm would double it
    assert same[2] == 1
    assert max_t_p_values(np.c_[d, d], np.array([[1.0], [-1.0]])).tolist() == [1.0]  # a difference of equals


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
    assert {row.models[0] for row in compare(called, "mrr", baseline="best").rows} == {"best"}  # its name


def test_clusters_share_the_flips_of_their_tasks():
    clustered = compare(models(sides=True), ["tail_mrr", "mrr"], cluster="sample_id")
    assert {row.num_clusters for row in clustered.rows} == {100}
    assert all(row.p_adjusted >= row.p_value for row in clustered.rows)
    assert "100 clusters" in str(clustered)


def test_names_of_the_models_are_in_every_text():
    found = compare(models(), ["mrr", "hits@3"])
    assert str(found["mrr", "old", "ours"]).startswith("mrr, old - ours: 0.")
    assert ", by max-T " in str(found["mrr", "theirs", "ours"])
    lines = str(found).splitlines()
    assert lines[0].split() == ["metric", "A", "B", "a", "b", "a", "-", "b", "low", "high", "p", "p_adjusted", "test"]
    assert lines[2].split()[:3] == ["mrr", "ours", "theirs"]
    assert lines[-1] == "200 tasks, intervals at 95%; p_adjusted by max-T"
    assert list(found.to_pandas()["model_b"]) == ["theirs", "old", "old"] * 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: compare(m["ours"]), TypeError, "b is missing: compare"),
        (lambda m: compare(m, "mr", "hits@3"), TypeError, "after a dict of models the metric is the second argument"),
        (lambda m: compare({"a": m["ours"]}), ValueError, "models must be at least two, by name; got 'a'"),
        (lambda m: compare({}), ValueError, "models must be at least two, by name; got none"),
        (lambda m: compare(m, []), ValueError, "metric is empty"),
        (lambda m: compare(m, baseline="ous"), ValueError, "baseline must be None, 'best' or one of the models 'ours'"),
        (lambda m: compare(m["ours"], m["old"], baseline="best"), ValueError, "pass a dict of name -> model"),
        (lambda m: compare({**m, "x": 3}), TypeError, "'x' must be a RankTable, a RankCollection, Ranks or an array"),
        (lambda m: compare({**m, "x": [m["old"]] * 2}), ValueError, "all models must be lists .* 'ours' has 1"),
        (lambda m: compare({**m, "x": Ranks([1], None, 3)}), ValueError, "'x' has 1 tasks, 'ours' has 200"),
        (lambda m: compare(m, "p_mrr"), ValueError, "'p_mrr' cannot be compared"),
        (lambda m: compare(m)["mr"], KeyError, "no result for 'mr'; available: mrr"),
        (lambda m: compare(m)["mrr", "ours", "x"], KeyError, "were not compared; there are ours, theirs, old"),
    ],
)
def test_models_that_cannot_be_compared_raise(call, error, message):
    with pytest.raises(error, match=message):
        call(models())
