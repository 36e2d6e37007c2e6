"""Values of queries that other tools computed are compared as ranks are."""

import numpy as np
import pytest

from torchrankmetrics import Ranks, compare
from torchrankmetrics.inference import equivalence

QUERIES = [f"q{i:03}" for i in range(150)]


def systems(seed=0, number=3):
    """Ranks of several models by name, and their reciprocals by query."""
    rng = np.random.default_rng(seed)
    difficulty = rng.gamma(1.0, 8.0, len(QUERIES))
    ranks = {f"m{i}": 1 + rng.poisson(difficulty * (1 + 0.3 * i)) for i in range(number)}
    values = {name: dict(zip(QUERIES, (1 / r).tolist(), strict=True)) for name, r in ranks.items()}
    return ranks, values


def same(ours, theirs, tolerance=1e-12):
    for name in ("a", "b", "difference", "low", "high", "p_value", "p_adjusted", "effective_tasks"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=tolerance), name
    assert (ours.test, ours.num_tasks) == (theirs.test, theirs.num_tasks)


def test_values_give_the_results_of_the_ranks_they_come_from():
    ranks, values = systems(number=4)
    for baseline in (None, "best", "m2"):  # one family
        ours, theirs = compare(values, "mrr", baseline=baseline), compare(ranks, "mrr", baseline=baseline)
        assert [row.models for row in ours.rows] == [row.models for row in theirs.rows]
        for one, other in zip(ours.rows, theirs.rows, strict=True):
            same(one, other)
            assert one.correction == "max-T"
    seeds = [([of["m0"], of["m1"]], [of["m2"], of["m3"]]) for of in (values, ranks)]
    same(compare(*seeds[0], "mrr"), compare(*seeds[1], "mrr"))
    found = [equivalence(of["m0"], of["m1"], "mrr", margin=0.1) for of in (values, ranks)]
    assert found[0].p_equivalent == pytest.approx(found[1].p_equivalent, abs=1e-12)
    hits = [dict(zip(QUERIES, (ranks[name] <= 3).astype(int).tolist(), strict=True)) for name in ("m0", "m1")]
    share = compare(*hits, "success@3")
    same(share, compare(ranks["m0"], ranks["m1"], "hits@3"))
    assert (share.test, share.metric) == ("exact McNemar", "success_at_3")


def test_queries_are_aligned_by_name_and_counted_as_queries():
    _, values = systems()
    shuffled = dict(sorted(values["m1"].items(), key=lambda item: item[1]))
    found = compare(values["m0"], shuffled)
    assert found.difference == compare(values["m0"], values["m1"]).difference
    assert (found.metric, found.unit) == ("value", "queries")
    assert str(found).endswith(f"; {len(QUERIES)} queries")


def test_the_direction_is_that_of_the_metric():
    _, values = systems()
    assert compare(values, "mr", baseline="best").rows[0].models[0] == "m2"
    assert compare(values, "BERTScore", baseline="best").rows[0].models[0] == "m0"
    assert compare(values, "BERTScore").rows[0].metric == "BERTScore"


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "message"),
    [
        ({"q": 1.0, "p": 0.5}, {"q": 1.0, "r": 0.5}, {}, ValueError, "a lacks 1: 'r'; b lacks 1: 'p'"),
        ({"q": 1.0, "p": 0.5}, {"q": 1.0, "p": float("nan")}, {}, ValueError, "b must have finite.*nan for query 'p'"),
        ({"q": 1.0, "p": 0.5}, {"q": 1.0, "p": "x"}, {}, ValueError, "b must have finite values, got 'x'"),
        ({"q": 1.0, "p": 0.5}, Ranks([1, 2]), {}, TypeError, "b must be a dict of query -> value, as a is, got Ranks"),
        (Ranks([1, 2]), {"q": 1.0, "p": 0.5}, {}, TypeError, "a must be a dict of query -> value, as b is, got Ranks"),
        ({"q": 1.0}, {"q": 0.5}, {"cluster": "group"}, ValueError, "cluster must be None"),
        ({"q": 1.0}, {"q": 0.5}, {"metric": ["a", "b"]}, ValueError, "metric one name"),
        ({"q": 1.0}, {"q": 0.5}, {"metric": 3}, TypeError, "metric must be the name of the values, got 3"),
        ({"q": 1.0}, {"q": 0.5}, {}, ValueError, "at least 2 independent tasks"),
    ],
)
def test_bad_values_raise(a, b, options, error, message):
    with pytest.raises(error, match=message):
        compare(a, b, **options)
