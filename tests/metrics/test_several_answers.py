"""Query metrics from names and input to files, sides, null moments, intervals and comparisons."""

import itertools
import math
import warnings
from fractions import Fraction
from statistics import median

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given
from scipy.sparse import csr_array

import reference_queries
import reference_queries as exact
import torchrankmetrics as trm
from bits import bits
from fuzzing import cases
from query_metrics import looked_up, sample_of
from torchrankmetrics import (
    AveragePrecision,
    RankCollection,
    RankMetricWarning,
    Ranks,
    RankTable,
    compare,
    evaluate,
)
from torchrankmetrics.definitions.tasks import MEAN_RANK, MEDIAN_RANK
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.metrics.warnings import query_counterpart
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.table.columns import Columns

# the task metrics are on purpose
pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query")
SCORES = torch.tensor([[0.9, 0.1, 0.4, 0.2], [0.2, 0.4, 0.4, 0.9], [0.5, 0.8, 0.6, 0.1]])
ANSWERS = [[0, 2], [1, 2], [0, 1, 3]]
RELEVANT = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1]]).bool()


def test_the_error_of_a_simulated_p_value_is_returned():
    generator = torch.Generator().manual_seed(2)
    relevant = torch.rand(40, 30, generator=generator) < 0.1
    relevant[:, 0] = True
    collection = RankCollection(["p_recall@3", "p_ap", "mrr"])
    collection.update((torch.rand(40, 30, generator=generator) * 20).round(), relevant)
    p = collection.compute()["p_ap"].item()
    assert 0.05 < p < 1
    expected = {
        "p_recall_at_3": 0.0,
        "p_ap": pytest.approx(math.sqrt(p * (1 - p) / 10_000), rel=1e-9),
    }
    assert collection.p_value_errors() == expected
    printed = [
        note.split(" is ")[0] for note in collection.summary().notes if "p_value_errors" in note
    ]
    assert printed == (["p_ap"] if collection.p_value_errors()["p_ap"] > 0.01 * p else [])


def test_filtered_ranks_become_places():
    """Ranks 1, 1, 1 that exclude the other relevant items are the places 1, 2, 3."""
    table = RankTable.from_ranks(Ranks([1, 1, 1], None, 5, filtered=True), query=4)
    assert evaluate(table, metrics=["ap", "mrr", "precision@3"]) == {
        "ap": 1.0,
        "mrr": 1.0,
        "precision_at_3": 1.0,
    }
    places = Ranks([1, 3, 7], None, 9, filtered=False)
    assert evaluate(places, query=0, metrics=["ap"])["ap"] == pytest.approx((1 + 2 / 3 + 3 / 7) / 3)


def test_a_nan_never_helps():
    scores = SCORES.clone()
    scores[2, 0] = scores[2, 3] = math.nan  # two answers of three
    collection = RankCollection(["ap", "mrr"])
    collection.update(scores, RELEVANT)
    with pytest.warns(RankMetricWarning, match="NaN"):
        values = collection.compute()
    # the third query: two answers last, and they count as better than the one that has a score
    worst = evaluate(Ranks([2, 3, 4], None, 4, filtered=False), query=0, metrics=["ap"])["ap"]
    rest = evaluate(SCORES[:2], ANSWERS[:2], metrics=["ap"])["ap"]
    assert values["ap"].item() == pytest.approx((2 * rest + worst) / 3)


PAIRS = (torch.tensor([0, 0]), torch.tensor([0, 1]))
BAD_UPDATES = [  # arguments, keywords and the message
    ((SCORES, ([0, 1, 0], [1, 2, 1])), {}, "more of them than"),
    ((SCORES, RELEVANT * SCORES), {"exclude": looked_up(RELEVANT)}, "different labels"),
    ((SCORES, PAIRS), {"weight": [1.0, 2.0]}, "differ in weight"),
    ((SCORES, PAIRS), {"group": [1, 2]}, "differ in .*group"),
    ((SCORES[:2], [0, 1]), {"query": [5, 5], "weight": [1.0, 2.0]}, "differ in weight"),
    ((SCORES, [0, 1, 2]), {"query": [1, -1, 2]}, "query must contain ids of at least 0"),
    ((SCORES, PAIRS), {"query": [1, 2]}, r"query must be \(3,\)"),
    ((SCORES, [0, 1, 2]), {"query": [0.5, 1.0, 2.0]}, "query must contain integers"),
    ((SCORES, RELEVANT * -2.0), {}, "labels of at least 0, got -2.0"),
    ((SCORES, RELEVANT / 0.0), {}, "labels of at least 0, got"),
    ((SCORES, RELEVANT.long()), {}, r"target.tolist\(\).*target.bool\(\)"),
    ((SCORES[0], [0, -3, 1, 0]), {"indexes": [0] * 4}, "labels of at least 0, got -3"),
    ((SCORES, RELEVANT * 2.0), {"gain": 1.0}, "gain must not be given with a graded"),
    ((SCORES, PAIRS), {"gain": [1.0, -1.0]}, "gain must be finite and not negative"),
    ((SCORES, PAIRS), {"gain": [1.0]}, r"gain must be \(tasks,\) = \(2,\)"),
    ((SCORES, torch.zeros(5, 2).long()), {}, r"target.tolist\(\)"),
    ((SCORES, RELEVANT[:, :3]), {}, r"target as labels must be \(B, N\)"),
    ((SCORES, [[0], [1]]), {}, "one entry per row of scores, 3;"),
    ((SCORES, [[[0]], [[1]], [[2]]]), {}, r"target\[0\] must be"),
    ((SCORES[0], RELEVANT[0]), {}, "need indexes"),
    ((SCORES[0], RELEVANT[0]), {"indexes": [0, 1]}, r"indexes must be \(T,\)"),
    (
        (SCORES[0], RELEVANT[0]),
        {"indexes": [0] * 4, "exclude": RELEVANT[0]},
        "must not contain relevant items",
    ),
    ((Ranks([1, 3], None, 4),), {"query": 0}, "filtered=True"),
    ((Ranks([2, 2], None, 4, filtered=False),), {"query": 0}, "more of them than"),
    ((Ranks([1, 2], [3, 2], 4, filtered=False),), {"query": 0}, "tied with each other"),
    ((Ranks([1, 3], None, [4, 5], filtered=False),), {"query": 0}, "differ in num_cand"),
    ((SCORES[0], RELEVANT[0]), {"indexes": [0] * 4, "query": 1}, "query must not be given"),
    ((SCORES[0], RELEVANT[0]), {"indexes": [0, 1, -1, 2]}, "ids of at least 0, got -1"),
    ((SCORES[0] * torch.tensor(2**60), [1] * 3), {"indexes": [0] * 4}, r"target must be \(T,\)"),
    ((SCORES[0].long() + 2**60, RELEVANT[0]), {"indexes": [0] * 4}, "within 2.53"),
    ((SCORES.tolist(), ANSWERS), {}, r"torch.tensor\(preds\)"),
    ((SCORES, ANSWERS), {"mask": RELEVANT}, "did you mean 'exclude'"),
    ((Ranks([1], None, 4),), {"indexes": [0]}, "indexes must not be given"),
]


@pytest.mark.parametrize("make", [AveragePrecision, lambda: RankCollection(["mrr", "ndcg@2"])])
@pytest.mark.parametrize(
    ("arguments", "keywords", "message"), BAD_UPDATES, ids=[message for *_, message in BAD_UPDATES]
)
def test_bad_queries_raise_before_the_state_changes(arguments, keywords, message, make):
    metric = make()
    metric.update(SCORES, ANSWERS)
    before = bits(metric)
    with pytest.raises((ValueError, TypeError), match=message):
        metric.update(*arguments, **keywords)
    assert bits(metric) == before, message


def test_task_metrics_alone_take_different_weights_in_a_query():
    pairs = (torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]))
    collection = RankCollection(["mrr"])
    collection.update(SCORES, pairs, weight=[1.0, 2.0, 1.0])
    assert collection.compute()["mrr"].item() == pytest.approx((1 + 2 / 2 + 1 / 2.5) / 4)
    with pytest.raises(ValueError, match="differ in weight or group"):
        evaluate(collection.table(), metrics=["ap"])


def test_a_query_without_relevant_items_warns_and_is_not_counted():
    relevant = RELEVANT.clone()
    relevant[1] = False
    expected = evaluate(SCORES[[0, 2]], RELEVANT[[0, 2]], metrics=["ap"])
    flat = {
        "scores": SCORES.flatten(),
        "target": relevant.flatten(),
        "indexes": np.repeat(range(3), 4),
    }
    for known in (
        flat,
        *({"scores": SCORES, "target": target} for target in (relevant, [[0, 2], [], {0, 1, 3}])),
    ):
        with pytest.warns(RankMetricWarning, match="without a relevant item"):
            assert evaluate(**known, metrics=["ap"]) == expected


def test_flat_scores_take_group_weight_and_ids_of_each_score():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    owner = torch.arange(3).repeat_interleave(4)
    group, weight = owner * 10, torch.tensor([1.0, 2.0, 3.0])[owner]
    flat = RankCollection(["ap", "macro_mrr"])
    known = {"group": group[order], "weight": weight[order]}
    known |= {"indexes": owner[order], "sample_id": torch.arange(12)[order]}
    flat.update(SCORES.flatten()[order], RELEVANT.flatten()[order], **known)
    whole = RankCollection(["ap", "macro_mrr"])
    ids = RELEVANT.flatten().nonzero()[:, 0]
    whole.update(
        SCORES, RELEVANT, group=[0, 10, 20], weight=[1.0, 2.0, 3.0], query=[0, 1, 2], sample_id=ids
    )
    assert bits(flat) == bits(whole)
    assert (flat.table().rows == whole.table().rows).all()


@pytest.mark.parametrize(
    ("target", "version"), [(RELEVANT, 2), (torch.tensor([0, 1, 2]), 1)], ids=["queries", "tasks"]
)
def test_files_have_version_2_only_where_there_are_queries(target, version, tmp_path):
    path = tmp_path / "a.npz"
    collection = RankCollection(["ap", "mrr"])
    collection.update(SCORES, target, exclude=looked_up(RELEVANT))
    collection.table().save(path)
    with np.load(path) as file:
        assert int(file["rank_table_version"]) == version
        assert ("query" in file) == ("filtered" in file) == (version == 2)
    loaded = RankTable.load(path)
    assert (loaded.rows == collection.table().rows).all()
    assert evaluate(loaded, metrics=["ap"])["ap"].hex() == bits(collection)["ap"]


def drawn(boost):
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        relevant = torch.rand(20, 15, generator=generator) < 0.15
        relevant[:, 0] = True
        yield torch.rand(20, 15, generator=generator) + boost * relevant, relevant


def filled(boost, *known):
    collection = RankCollection(["ap", "success@3", "mrr", "z_ndcg@10"])
    for part, (scores, relevant) in enumerate(drawn(boost)):
        about = {
            "sample_id": torch.arange(int(relevant.sum())) + 1000 * part,
            "query": torch.arange(20) + 20 * part,
        }
        about = {name: about[name] for name in known}
        collection.update(scores, relevant, group=torch.arange(20) % 4, **about)
    return collection


def per_query(boost):
    pairs = [
        pair
        for scores, relevant in drawn(boost)
        for pair in zip(scores.tolist(), relevant, strict=True)
    ]
    ap = reference_queries.ap
    return np.array(
        [reference_queries.value(ap, None, row, own.nonzero()[:, 0].tolist()) for row, own in pairs]
    )


def test_the_unit_of_intervals_is_the_query():
    found = filled(0.2).confidence_intervals()["ap"]
    values = per_query(0.2)
    assert found.value == pytest.approx(values.mean(), rel=1e-12)
    assert found.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(60), rel=1e-12)
    with pytest.warns(RankMetricWarning, match="fewer than 5"):
        clustered = filled(0.2).confidence_intervals(cluster="group")["ap"]
    groups = values.reshape(3, 5, 4).sum((0, 1)) / 15 - values.mean()
    jackknife = math.sqrt(3 / 4 * ((groups / 4 / (1 - 1 / 4)) ** 2).sum())
    assert clustered.standard_error == pytest.approx(jackknife, rel=1e-10)
    with pytest.raises(ValueError, match="same for all tasks of a query"):
        filled(0.2, "sample_id").confidence_intervals(cluster="sample_id")


@pytest.mark.filterwarnings("ignore:the interval of")
@pytest.mark.parametrize("known", [(), ("sample_id",), ("query",), ("sample_id", "query")], ids=str)
def test_models_are_compared_query_by_query(known):
    difference = per_query(0.2) - per_query(0.1)
    a, b, c = (filled(boost, *known) for boost in (0.2, 0.1, 0.0))
    found = compare(a, b, ["ap", "success@3", "mrr", "z_ndcg@10"])
    assert found["ap"].num_tasks == 60
    assert found["success_at_3"].test == "exact McNemar"
    several = compare({"a": a, "b": b, "c": c}, ["ap", "mrr"])
    for one in (found["ap"], several.rows[0]):
        assert one.difference == pytest.approx(difference.mean(), rel=1e-12)


def test_both_directions_of_one_matrix_are_sides():
    owner = torch.arange(12) // 4  # four captions of each of three images
    scores = torch.rand(3, 12, generator=torch.Generator().manual_seed(1))
    own = owner == torch.arange(3)[:, None]
    collection = RankCollection(["success@1", "both_ap", "tail_rr"], sides=("tail", "head"))
    collection.update(scores, own, side="tail")
    collection.update(scores.T, owner, side="head")
    values = collection.compute()
    assert list(values) == ["tail_success_at_1", "head_success_at_1", "ap", "tail_rr"]
    assert (
        values["tail_success_at_1"].item()
        == evaluate(scores, own, metrics=["success@1"])["success_at_1"]
    )
    assert (
        values["head_success_at_1"].item()
        == evaluate(scores.T, owner, metrics=["hits@1"])["hits_at_1"]
    )
    assert {row.side for row in collection.summary().rows} == {"tail", "head", "both"}
    assert set(Columns(collection.table().rows).side.tolist()) == {1, 2}


@pytest.mark.parametrize("filtered", [False, True])
def test_base_values_need_no_numbers_of_candidates(filtered):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (20, 9), generator=generator).double()
    relevant = torch.rand(20, 9, generator=generator) < 0.4
    ranks = trm.rank_scores(scores, relevant, exclude=relevant if filtered else None)
    query = relevant.nonzero()[:, 0]
    unknown = Ranks(ranks.optimistic, ranks.pessimistic, None, filtered=filtered)
    names = [
        "recall@3",
        "ap",
        "ap@3",
        "ndcg",
        "ndcg@3",
        "rr",
        "precision@3",
        "r_precision",
        "first_mr",
        "success@2",
    ]
    options = {
        "metrics": [*names, "first_median_rank"],
        "rank_types": ("realistic", "optimistic", "pessimistic"),
    }
    values = evaluate(unknown, query=query, **options)
    known = Ranks(ranks.optimistic, ranks.pessimistic, ranks.num_candidates, filtered=filtered)
    assert values == evaluate(known, query=query, **options)
    for name in ("query_auc", "z_ap", "adjusted_recall@3", "p_first_mr", "z_first_median_rank"):
        with pytest.raises(ValueError, match="num_candidates is needed"):
            evaluate(unknown, query=query, metrics=[name])


SHAPES = st.lists(
    st.integers(1, 8).flatmap(lambda N: st.tuples(st.just(N), st.integers(1, N))),
    min_size=1,
    max_size=4,
)


@cases(25, 1000)
@given(SHAPES)
@example([(1, 1), (6, 1), (6, 1), (6, 1)])  # a variable with p = 1/2 at the point -1 of the contour
def test_moments_of_the_median_are_those_of_all_outcomes(shapes):
    firsts = [[min(ranks) for ranks in exact.outcomes(N, m)] for N, m in shapes]
    counts = [{r: ranks.count(r) for r in ranks} for ranks in firsts]
    distribution = {}  # of the value, from the counts of first ranks
    for outcome in itertools.product(*counts):
        times = np.prod([count[r] for count, r in zip(counts, outcome, strict=True)], dtype=object)
        middle = median(map(Fraction, outcome))
        distribution[middle] = distribution.get(middle, 0) + times
    total = sum(distribution.values())
    mean = sum(x * times for x, times in distribution.items()) / Fraction(total)
    variance = sum((x - mean) ** 2 * times for x, times in distribution.items()) / total
    got = d.FIRST_MEDIAN_RANK.null_moments(QuerySample.of_counts(*np.array(shapes).T))
    assert got.mean == pytest.approx(float(mean), rel=1e-12)
    assert got.variance == pytest.approx(float(variance), rel=1e-9, abs=0)
    assert got.optimum == 1


@cases(25, 1000)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_median_is_that_of_first_ranks_in_every_rank_type(sizes, random):
    queries, low, high = [], [], []
    for m in sizes:
        first, width = random.randint(1, 5), random.randint(m, m + 3)
        queries.append((20, [(first, first + width - 1, m)]))
        low.append(first)
        high.append(first + width - m)
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    for rank_type, ranks in {"optimistic": low, "pessimistic": high, "realistic": middle}.items():
        assert d.FIRST_MEDIAN_RANK.value(sample_of(*queries), rank_type) == float(median(ranks))


@pytest.mark.parametrize("name", ["mr", "median_rank"])
@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("rank_type", ["realistic", "optimistic", "pessimistic"])
def test_with_one_relevant_item_they_are_the_task_metrics(rank_type, size, name):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (size, 30), generator=generator).float()  # with ties
    target = torch.randint(0, 30, (size,), generator=generator)
    exclude = torch.rand(size, 30, generator=generator) < 0.3
    exclude[torch.arange(size), target] = False
    views = [
        "base",
        "normalized",
        "adjusted_index",
        "z_score",
        *(["p_value"] if name == "mr" else []),
    ]
    options = {
        "views": views[:-1] if rank_type == "optimistic" else views,
        "rank_types": rank_type,
    }
    both = (
        evaluate(scores, target, one, exclude=exclude, **options) for one in (name, f"first_{name}")
    )
    of_tasks, of_queries = (list(values.values()) for values in both)
    assert of_queries == pytest.approx(of_tasks, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", ["mr", "median_rank"])
def test_with_one_relevant_item_their_moments_are_those_of_the_task_metrics(name):
    N = np.array([3, 8, 8, 100, 1])
    definition, task = (
        (d.FIRST_MEAN_RANK, MEAN_RANK) if name == "mr" else (d.FIRST_MEDIAN_RANK, MEDIAN_RANK)
    )
    got, want = (
        definition.null_moments(QuerySample.of_counts(N, 1)),
        DEFAULT_EXPECTATION.moments(task, N),
    )
    assert (got.mean, got.variance) == pytest.approx((want.mean, want.variance), rel=1e-13)


CAPTIONS, IMAGE_OF = torch.arange(200).view(40, 5).tolist(), torch.arange(200) // 5
SIMILARITY = torch.eye(40)[IMAGE_OF].T + torch.randn(
    40, 200, generator=torch.Generator().manual_seed(0)
)


def warnings_of(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in found if issubclass(one.category, RankMetricWarning)]


def test_task_metrics_name_the_query_metric_where_relevant_items_compete():
    counterparts = {
        "mr": "first_mr",
        "hits@10": "success_at_10",
        "median_rank": "first_median_rank",
    }
    counterparts |= {"auc": "query_auc", "adjusted_mrr": "rr", "pessimistic_mr": "first_mr"}
    for name, instead in counterparts.items():
        metric = RankCollection([name])
        assert warnings_of(lambda metric=metric: metric.update(SIMILARITY, CAPTIONS)) == []
        for call in (metric.compute, lambda name=name: evaluate(SIMILARITY, CAPTIONS, [name])):
            (message,) = warnings_of(call)
            assert (
                "relevant items of one query are candidates of each other (number of such queries: "
                "40)" in message
            )
            assert f"use {instead!r}" in message
        assert query_counterpart(parse_name(name).definition.name) == instead
    metric = RankCollection(["mrr"])  # an excluded relevant item competes with one that is not
    metric.update(torch.tensor([[0.1, 0.9, 0.8, 0.3]]), [[1, 3]], exclude=[[1]])
    (message,) = warnings_of(metric.compute)
    assert "number of such queries: 1" in message


def test_there_is_no_warning_where_relevant_items_are_excluded_or_alone():
    relevant = torch.zeros_like(SIMILARITY, dtype=torch.bool)
    for row, columns in zip(relevant, CAPTIONS, strict=True):
        row[columns] = True
    assert warnings_of(lambda: evaluate(SIMILARITY, CAPTIONS, exclude=relevant)) == []
    assert warnings_of(lambda: evaluate(SIMILARITY.T, IMAGE_OF)) == []
    assert warnings_of(lambda: evaluate(SIMILARITY.T, IMAGE_OF, query=torch.arange(200))) == []
    triples = torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 2]])
    known = trm.KnownTriples(triples, num_entities=3)
    queries, pairs = known.queries(triples, "tail")
    filtered = known.tails(*queries.T)
    assert warnings_of(lambda: evaluate(torch.rand(2, 3), tuple(pairs), exclude=filtered)) == []
    assert warnings_of(lambda: evaluate(Ranks([1, 1], None, 5, filtered=True), query=0)) == []
    assert len(warnings_of(lambda: evaluate(Ranks([1, 2], None, 5, filtered=False), query=0))) == 1


@pytest.mark.filterwarnings("ignore:relevant items of one query")
def test_parts_of_a_query_are_found_after_merge_and_files(tmp_path):
    first, second = RankCollection(["mrr"]), RankCollection(["mrr"])
    for metric, place in ((first, 0), (second, 1)):
        metric.update(SIMILARITY, [columns[place] for columns in CAPTIONS], query=torch.arange(40))
        assert warnings_of(metric.compute) == []
    first.merge_state(second)
    assert len(warnings_of(first.compute)) == 1
    first.table().save(tmp_path / "ranks.npz")
    assert (
        len(warnings_of(lambda: evaluate(RankTable.load(tmp_path / "ranks.npz"), metrics=["mrr"])))
        == 1
    )


SEEN = torch.tensor([[0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1]]).bool()


@pytest.mark.parametrize(
    "seen",
    [
        SEEN,
        SEEN.numpy(),
        [[2, 3], [0], [3]],
        tuple(SEEN.nonzero().T),
        csr_array(SEEN.numpy()),
    ],
    ids=["bool", "array", "lists", "tuple", "sparse"],
)
@pytest.mark.parametrize("target", [ANSWERS, RELEVANT, [2, 1, 3]], ids=["lists", "bool", "one"])
def test_exclude_that_holds_relevant_items_raises_for_metrics_of_queries(seen, target):
    message = r"but 2 of \d are in it.*seen & ~target.*target & ~seen.*-torch.inf"
    for metric in (AveragePrecision(), RankCollection(["mrr", "recall@1"])):
        with pytest.raises(ValueError, match=message):
            metric.update(SCORES, target, exclude=seen)
        assert not metric.update_called if isinstance(metric, AveragePrecision) else True
    with pytest.raises(ValueError, match=message):
        evaluate(SCORES, target, ["recall@1"], exclude=seen)
    ranks = trm.rank_scores(SCORES, target, exclude=seen)
    with pytest.raises(ValueError, match=message):
        evaluate(ranks, metrics=["rr"])
    # look-ups and task metrics are as before
    of_tasks = evaluate(SCORES, target, ["mrr", "hits@1"], exclude=seen)
    assert of_tasks == evaluate(SCORES, target, ["mrr", "hits@1"], exclude=looked_up(SEEN))
    evaluate(SCORES, target, ["rr"], exclude=looked_up(SEEN))
    RankCollection(["mrr"]).update(SCORES, target, exclude=seen)


def test_the_three_remedies_have_the_values_that_the_error_names():
    scores, seen = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[True, True, False, False]])
    target = torch.tensor([[False, True, True, False]])
    options = {"metrics": ["recall@1", "ap"]}
    # candidates 1, 2, 3; the relevant items have ranks 1 and 2
    kept = evaluate(scores, target, exclude=seen & ~target, **options)
    assert kept == {"recall_at_1": 0.5, "ap": 1.0}
    listed, relevant = [[0, 1]], [[1, 2]]
    lists = [[i for i in s if i not in t] for s, t in zip(listed, relevant, strict=True)]
    assert evaluate(scores, relevant, exclude=lists, **options) == kept
    dropped = evaluate(scores, target & ~seen, exclude=seen, **options)
    assert dropped == {"recall_at_1": 1.0, "ap": 1.0}
    # among 4 candidates the seen one is tied for the last place with the other seen one
    missed = evaluate(scores.masked_fill(seen, -math.inf), target, **options)
    assert missed["recall_at_1"] == 0.5
    assert missed["ap"] == pytest.approx((1 + (2 / 3 + 2 / 4) / 2) / 2)


def test_the_remedy_for_one_relevant_item_per_query_is_that_of_labels():
    target = torch.tensor([2, 1, 3])
    labels = torch.nn.functional.one_hot(target, 4).bool()
    expected = evaluate(SCORES, target, ["rr"], exclude=SEEN & ~labels)
    seen = SEEN.clone()
    seen[torch.arange(len(seen)), target] = False
    assert evaluate(SCORES, target, ["rr"], exclude=seen) == expected


def test_rows_keep_that_exclude_held_their_item(tmp_path):
    collection = RankCollection(["mrr"])
    collection.update(SCORES, ANSWERS, exclude=SEEN)
    collection.table().save(tmp_path / "ranks.npz")
    loaded = RankTable.load(tmp_path / "ranks.npz")
    assert loaded.to_numpy()["excluded"].sum() == 2
    assert evaluate(loaded, metrics=["mrr"])["mrr"] == collection.compute()["mrr"]
    collection.add_metrics(["recall@1"])
    for call in (collection.compute, lambda: evaluate(loaded, metrics=["recall@1"])):
        with pytest.raises(ValueError, match="exclude must not contain relevant items"):
            call()
    # equal ranks count together, whatever the form of exclude was
    both = RankCollection(["mrr"])
    both.update(SCORES, [0, 1, 1], exclude=torch.eye(4, dtype=torch.bool)[[0, 1, 1]])
    both.update(SCORES, [0, 1, 1])
    assert "excluded" in both.table().to_numpy()
    assert evaluate(both.table(), metrics=["mrr", "count"])["count"] == 6
