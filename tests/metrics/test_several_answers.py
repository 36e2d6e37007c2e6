"""Query metrics from names and input to files, sides, null moments, intervals and comparisons."""

import math

import numpy as np
import pytest
import torch

import reference_queries
import torchrankmetrics as trm
from bits import bits
from torchrankmetrics import AveragePrecision, RankCollection, RankMetricWarning, Ranks, RankTable, compare, evaluate
from torchrankmetrics.table.columns import Columns

pytestmark = [
    pytest.mark.filterwarnings("ignore:relevant items of one query"),  # the task metrics are on purpose
]
SCORES = torch.tensor([[0.9, 0.1, 0.4, 0.2], [0.2, 0.4, 0.4, 0.9], [0.5, 0.8, 0.6, 0.1]])
ANSWERS = [[0, 2], [1, 2], [0, 1, 3]]
RELEVANT = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0], [1, 1, 0, 1]]).bool()


def random_batch(seed, queries=40, candidates=30, ties=True):
    generator = torch.Generator().manual_seed(seed)
    relevant = torch.rand(queries, candidates, generator=generator) < 0.1
    relevant[:, 0] = True
    scores = torch.rand(queries, candidates, generator=generator) + 0.2 * relevant
    return (scores * 20).round() if ties else scores, relevant


def test_the_error_of_a_simulated_p_value_is_returned():
    scores, relevant = random_batch(2)
    collection = RankCollection(["p_recall@3", "p_ap", "mrr"])
    collection.update(scores - 4 * relevant, relevant)
    p = collection.compute()["p_ap"].item()
    assert 0.05 < p < 1
    expected = {"p_recall_at_3": 0.0, "p_ap": pytest.approx(math.sqrt(p * (1 - p) / 10_000), rel=1e-9)}
    assert collection.p_value_errors() == expected
    printed = [note.split(" is ")[0] for note in collection.summary().notes if "p_value_errors" in note]
    assert printed == (["p_ap"] if collection.p_value_errors()["p_ap"] > 0.01 * p else [])


def test_filtered_ranks_become_places():
    """Ranks 1, 1, 1 that exclude the other relevant items are the places 1, 2, 3."""
    table = RankTable.from_ranks(Ranks([1, 1, 1], None, 5, filtered=True), query=4)
    assert evaluate(table, metrics=["ap", "mrr", "precision@3"]) == {"ap": 1.0, "mrr": 1.0, "precision_at_3": 1.0}
    places = Ranks([1, 3, 7], None, 9, filtered=False)
    assert evaluate(places, query=0, metrics=["ap"])["ap"] == pytest.approx((1 + 2 / 3 + 3 / 7) / 3)


def test_a_nan_never_helps():
    scores, relevant = SCORES.clone(), RELEVANT
    scores[2, 0] = scores[2, 3] = math.nan  # two answers of three
    collection = RankCollection(["ap", "mrr"])
    collection.update(scores, relevant)
    with pytest.warns(RankMetricWarning, match="NaN"):
        values = collection.compute()
    # the third query: two answers last, and they count as better than the one that has a score
    worst = evaluate(Ranks([2, 3, 4], None, 4, filtered=False), query=0, metrics=["ap"])["ap"]
    rest = evaluate(SCORES[:2], ANSWERS[:2], metrics=["ap"])["ap"]
    assert values["ap"].item() == pytest.approx((2 * rest + worst) / 3)


PAIRS = torch.tensor([[0, 0], [0, 1]])
BAD_UPDATES = [  # arguments, keywords and the message
    ((SCORES, PAIRS), {"weight": [1.0, 2.0]}, "differ in weight"),
    ((SCORES, PAIRS), {"group": [1, 2]}, "differ in .*group"),
    ((SCORES[:2], [0, 1]), {"query": [5, 5], "weight": [1.0, 2.0]}, "differ in weight"),
    ((SCORES, [0, 1, 2]), {"query": [1, -1, 2]}, "query must hold ids of at least 0"),
    ((SCORES, PAIRS), {"query": [1, 2]}, r"query must be \(3,\)"),
    ((SCORES, [0, 1, 2]), {"query": [0.5, 1.0, 2.0]}, "query must hold integers"),
    ((SCORES, RELEVANT * -2.0), {}, "labels of at least 0, got -2.0"),
    ((SCORES, RELEVANT / 0.0), {}, "labels of at least 0, got"),
    ((SCORES, RELEVANT.long()), {}, r"labels as target.float\(\), .* tuple"),
    ((SCORES[0], [0, -3, 1, 0]), {"indexes": [0] * 4}, "labels of at least 0, got -3"),
    ((SCORES, RELEVANT * 2.0), {"gain": 1.0}, "gain must not be given with a graded"),
    ((SCORES, PAIRS), {"gain": [1.0, -1.0]}, "gain must be finite and not negative"),
    ((SCORES, PAIRS), {"gain": [1.0]}, r"gain must be \(tasks,\) = \(2,\)"),
    ((SCORES, PAIRS.new_zeros(5, 2)), {}, "target.T"),
    ((SCORES, RELEVANT[:, :3]), {}, r"target as labels must be \(B, N\)"),
    ((SCORES, [[0], [1]]), {}, "one entry for each of 3 rows"),
    ((SCORES, [[[0]], [[1]], [[2]]]), {}, r"target\[0\] must be"),
    ((SCORES[0], RELEVANT[0]), {}, "need indexes"),
    ((SCORES[0], RELEVANT[0]), {"indexes": [0, 1]}, r"indexes must be \(T,\)"),
    ((SCORES[0], RELEVANT[0]), {"indexes": [0] * 4, "exclude": RELEVANT[0]}, "must not contain relevant items"),
    ((Ranks([1, 3], None, 4),), {"query": 0}, "filtered=True"),
    ((Ranks([2, 2], None, 4, filtered=False),), {"query": 0}, "more answers than"),
    ((Ranks([1, 2], [3, 2], 4, filtered=False),), {"query": 0}, "tied with each other"),
    ((Ranks([1, 3], None, [4, 5], filtered=False),), {"query": 0}, "differ in num_cand"),
    ((SCORES.tolist(), ANSWERS), {}, r"torch.tensor\(preds\)"),
    ((SCORES, ANSWERS), {"mask": RELEVANT}, "did you mean 'exclude'"),
    ((Ranks([1], None, 4),), {"indexes": [0]}, "indexes must not be given"),
]


@pytest.mark.parametrize("make", [AveragePrecision, lambda: RankCollection(["mrr", "ndcg@2"])])
def test_bad_queries_raise_before_the_state_changes(make):
    metric = make()
    metric.update(SCORES, ANSWERS)
    before = bits(metric)
    for arguments, keywords, message in BAD_UPDATES:
        with pytest.raises((ValueError, TypeError), match=message):
            metric.update(*arguments, **keywords)
        assert bits(metric) == before, message


def test_task_metrics_alone_take_different_weights_in_a_query():
    pairs = torch.tensor([[0, 0, 1], [0, 2, 1]])
    collection = RankCollection(["mrr"])
    collection.update(SCORES, pairs, weight=[1.0, 2.0, 1.0])
    assert collection.compute()["mrr"].item() == pytest.approx((1 + 2 / 2 + 1 / 2.5) / 4)
    with pytest.raises(ValueError, match="differ in weight or group"):
        evaluate(collection.table(), metrics=["ap"])


def test_a_query_without_relevant_items_warns_and_is_not_counted():
    relevant = RELEVANT.clone()
    relevant[1] = False
    expected = evaluate(SCORES[[0, 2]], RELEVANT[[0, 2]], metrics=["ap"])
    for target, options in ((relevant, {}), ([[0, 2], [], {0, 1, 3}], {})):
        with pytest.warns(RankMetricWarning, match="without a relevant item"):
            assert evaluate(SCORES, target, metrics=["ap"], **options) == expected
    with pytest.warns(RankMetricWarning, match="without a relevant item"):
        found = evaluate(
            scores=SCORES.flatten(), target=relevant.flatten(), indexes=np.repeat(range(3), 4), metrics=["ap"]
        )
    assert found == expected


def test_flat_scores_take_group_weight_and_ids_of_each_score():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    owner = torch.arange(3).repeat_interleave(4)
    group, weight = owner * 10, torch.tensor([1.0, 2.0, 3.0])[owner]
    flat = RankCollection(["ap", "macro_mrr"])
    known = {"group": group[order], "weight": weight[order]}
    known |= {"query": owner[order], "sample_id": torch.arange(12)[order]}
    flat.update(SCORES.flatten()[order], RELEVANT.flatten()[order], indexes=owner[order] + 7, **known)
    whole = RankCollection(["ap", "macro_mrr"])
    ids = RELEVANT.flatten().nonzero()[:, 0]
    whole.update(SCORES, RELEVANT, group=[0, 10, 20], weight=[1.0, 2.0, 3.0], query=[0, 1, 2], sample_id=ids)
    assert bits(flat) == bits(whole)
    assert (flat.table().rows == whole.table().rows).all()


def test_files_have_version_2_only_where_there_are_queries(tmp_path):
    path = tmp_path / "a.npz"
    for target, version in ((RELEVANT, 2), (torch.tensor([0, 1, 2]), 1)):
        collection = RankCollection(["ap", "mrr"])
        collection.update(SCORES, target, exclude=RELEVANT)
        collection.table().save(path)
        with np.load(path) as file:
            assert int(file["rank_table_version"]) == version
            assert ("query" in file) == ("filtered" in file) == (version == 2)
        loaded = RankTable.load(path)
        assert (loaded.rows == collection.table().rows).all()
        assert evaluate(loaded, metrics=["ap"])["ap"].hex() == bits(collection)["ap"]


def drawn(boost):
    """Three parts of 20 queries: scores and relevant items."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        relevant = torch.rand(20, 15, generator=generator) < 0.15
        relevant[:, 0] = True
        yield torch.rand(20, 15, generator=generator) + boost * relevant, relevant


def filled(boost, *known):
    collection = RankCollection(["ap", "success@3", "mrr", "z_ndcg@10"])
    for part, (scores, relevant) in enumerate(drawn(boost)):
        about = {"sample_id": torch.arange(int(relevant.sum())) + 1000 * part, "query": torch.arange(20) + 20 * part}
        about = {name: about[name] for name in known}
        collection.update(scores, relevant, group=torch.arange(20) % 4, **about)
    return collection


def per_query(boost):
    """Average precision of every query, from plain loops."""
    pairs = [pair for scores, relevant in drawn(boost) for pair in zip(scores.tolist(), relevant, strict=True)]
    ap = reference_queries.ap
    return np.array([reference_queries.value(ap, None, row, own.nonzero()[:, 0].tolist()) for row, own in pairs])


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
    with pytest.raises(ValueError, match="its units are queries"):
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
    assert values["tail_success_at_1"].item() == evaluate(scores, own, metrics=["success@1"])["success_at_1"]
    assert values["head_success_at_1"].item() == evaluate(scores.T, owner, metrics=["hits@1"])["hits_at_1"]
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
    names = ["recall@3", "ap", "ap@3", "ndcg", "ndcg@3", "rr", "precision@3", "r_precision", "first_mr", "success@2"]
    options = {"metrics": [*names, "first_median_rank"], "rank_types": ("realistic", "optimistic", "pessimistic")}
    values = evaluate(unknown, query=query, **options)
    known = Ranks(ranks.optimistic, ranks.pessimistic, ranks.num_candidates, filtered=filtered)
    assert values == evaluate(known, query=query, **options)
    for name in ("query_auc", "z_ap", "adjusted_recall@3", "p_first_mr", "z_first_median_rank"):
        with pytest.raises(ValueError, match="num_candidates is needed"):
            evaluate(unknown, query=query, metrics=[name])
