"""Queries without a relevant item: skipped, counted as 0, or an error; kept in tables and files."""

import math

import numpy as np
import pytest
import pytrec_eval
import torch
from scipy.sparse import csr_array
from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalNormalizedDCG

from bits import bits
from torchrankmetrics import (
    RankCollection,
    RankMetric,
    RankMetricWarning,
    Ranks,
    RankTable,
    compare,
    evaluate,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.integrations.trec import evaluate_run, rank_run
from torchrankmetrics.metrics.analysis import Analysis

pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query")
SCORES = torch.tensor([[0.9, 0.1, 0.4, 0.2], [0.2, 0.4, 0.3, 0.9], [0.5, 0.8, 0.6, 0.1]])
LISTS = [[0, 2], [], [0]]  # ranks 1 and 2; none; rank 3
MASK = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()
FORMS = {
    "lists": LISTS,
    "sets": [{0, 2}, set(), {0}],
    "dicts": [{0: 1, 2: 1}, {1: 0}, {0: 1}],
    "bool": MASK,
    "floats": MASK.float(),
    "array": MASK.numpy(),
    "sparse": csr_array(MASK.numpy()),
}
SKIPPED = "without a relevant item are not counted.*empty_queries='zero'"


def flat(mask=MASK):
    return {"scores": SCORES.ravel(), "target": mask.ravel(), "indexes": np.repeat(range(3), 4)}


@pytest.mark.parametrize("form", [*FORMS, "flat", "ranks", "embeddings"])
def test_every_form_skips_counts_as_zero_or_raises(form):
    arguments = {"scores": SCORES, "target": FORMS.get(form)}
    if form == "flat":
        arguments = flat()
    elif form == "ranks":
        arguments = {"ranks": rank_scores(SCORES, LISTS)}
    elif form == "embeddings":
        arguments = {"ranks": rank_embeddings(SCORES, torch.eye(4), MASK)}
    names = ["rr", "ap", "recall@1", "mrr"]
    with pytest.warns(RankMetricWarning, match=SKIPPED):
        skipped = evaluate(**arguments, metrics=names)
    assert skipped == pytest.approx(
        {"rr": 2 / 3, "ap": 2 / 3, "recall_at_1": 1 / 4, "mrr": (1 + 1 / 2 + 1 / 3) / 3}
    )
    zero = evaluate(**arguments, metrics=names, empty_queries="zero")
    assert zero == pytest.approx(
        {"rr": 4 / 9, "ap": 4 / 9, "recall_at_1": 1 / 6, "mrr": skipped["mrr"]}
    )
    with pytest.raises(ValueError, match="a relevant item for every query, got 1 without any"):
        evaluate(**arguments, metrics=names, empty_queries="error")
    assert evaluate(**arguments, metrics=["mrr"], empty_queries="error") == {"mrr": skipped["mrr"]}


def test_skip_leaves_them_out_without_a_warning():
    assert evaluate(SCORES, LISTS, ["rr"], empty_queries="skip") == {"rr": pytest.approx(2 / 3)}
    for metric in (
        RankMetric("rr", empty_queries="skip"),
        RankCollection(["rr", "first_mr"], empty_queries="skip"),
    ):
        metric.update(SCORES, LISTS)
        metric.compute()


def test_metrics_without_a_value_for_them_share_one_warning():
    names = [f"fall_out@{k}" for k in (1, 2, 3)]
    with pytest.warns(RankMetricWarning) as found:
        evaluate(SCORES, LISTS, names)
    assert len(found) == 1
    assert "metrics such as fall_out_at_1 have no value for them" in str(found[0].message)


def test_values_are_those_of_torchmetrics():
    generator = torch.Generator().manual_seed(0)
    preds = torch.rand(80, 20, generator=generator)
    target = torch.randint(0, 3, (80, 20), generator=generator).clamp(max=2)
    target[torch.rand(80, generator=generator) < 0.15] = 0
    assert (target == 0).all(1).any()
    indexes = torch.arange(80).repeat_interleave(20)
    collection = RankCollection(["ap", "rr", "ndcg@10"], empty_queries="zero")
    peers = RetrievalMAP(), RetrievalMRR(), RetrievalNormalizedDCG(top_k=10)
    for part in torch.arange(80).split(16):
        collection.update(preds[part], target[part].float())
    for peer, value in zip(peers, collection.compute().values(), strict=True):
        labels = target if isinstance(peer, RetrievalNormalizedDCG) else target > 0
        peer.update(preds.ravel(), labels.ravel(), indexes=indexes)
        assert value.item() == pytest.approx(peer.compute().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("view", "of_all"),
    [("base", 2 / 3), ("adjusted_index", 1.0), ("z_score", 1.0)],
    ids=["base", "adjusted_index", "z_score"],
)
def test_zero_is_value_null_mean_variance_and_best_value(view, of_all):
    options = {"metrics": ["ap", "ndcg", "recall@2"], "empty_queries": "zero"}
    zero = evaluate(SCORES, LISTS, views=view, **options)
    some = evaluate(SCORES[[0, 2]], [LISTS[0], LISTS[2]], options["metrics"], views=view)
    # a third of the queries adds 0 to value, mean, best value and standard deviation
    for key, value in some.items():
        assert zero[key] == pytest.approx(of_all * value, rel=1e-12)


def test_zero_keeps_perfect_indices_and_p_values():
    options = {"metrics": ["ap", "ndcg", "recall@2"], "empty_queries": "zero"}
    perfect = evaluate(MASK.float(), MASK, views="adjusted_index", **options)
    assert list(perfect.values()) == pytest.approx([1.0] * 3, rel=1e-12)
    p_values = [
        evaluate(scores, target, ["p_recall@2", "p_success@1"], empty_queries="zero")
        for scores, target in ((SCORES, LISTS), (SCORES[[0, 2]], [LISTS[0], LISTS[2]]))
    ]
    assert p_values[0] == p_values[1]
    nothing = RankMetric("p_ap", empty_queries="zero")
    nothing.update(SCORES, [[], [], []])
    assert nothing.compute() == 1.0


@pytest.mark.parametrize("name", ["first_mr", "first_median_rank", "query_auc"])
def test_lower_is_better_and_auc_have_no_value_for_them(name):
    with pytest.warns(RankMetricWarning, match=f"metrics such as {name} have no value for them"):
        zero = evaluate(SCORES, LISTS, [name], empty_queries="zero")
    rest = evaluate(SCORES[[0, 2]], [LISTS[0], LISTS[2]], [name])
    assert zero == rest


@pytest.mark.parametrize(
    "make",
    [
        lambda: RankMetric("rr", empty_queries="error"),
        lambda: RankCollection(["mrr", "rr"], empty_queries="error"),
    ],
    ids=["metric", "collection"],
)
def test_error_raises_before_the_state_changes(make):
    metric = make()
    metric.update(SCORES[:1], LISTS[:1])
    before = bits(metric)
    with pytest.raises(ValueError, match="got 1 without any; empty_queries='zero'"):
        metric.update(SCORES, LISTS)
    assert bits(metric) == before
    # a part of a named query, or of a flat list, may be empty
    metric.update(SCORES[1:], LISTS[1:], query=[4, 5])
    metric.update(SCORES[1:2], [[3]], query=[4])
    metric.update(SCORES[0], torch.zeros(4), indexes=[9] * 4)
    with pytest.raises(ValueError, match="got 1 without any"):
        metric.compute()
    metric.update(SCORES[1], torch.ones(4), indexes=[9] * 4)
    assert all(math.isfinite(float.fromhex(value)) for value in bits(metric).values())


def test_empty_queries_is_one_of_three_words():
    with pytest.raises(ValueError, match="empty_queries must be one of 'skip', 'zero', 'error'"):
        RankMetric("rr", empty_queries="neg")


def test_a_query_whose_items_come_in_other_updates_is_not_empty():
    metric = RankMetric("rr", empty_queries="zero")
    metric.update(SCORES[:1], [[]], query=[3])
    metric.update(SCORES[1:2], [[]], query=[4])
    metric.update(SCORES[1:2], [[]], query=[4])  # once, however often it comes
    assert metric.compute() == 0
    metric.update(SCORES[:1], [[0]], query=[3])
    assert metric.compute() == 0.5
    metric.update(SCORES[:2], [[], []])  # without a name each is one more
    assert metric.compute() == 0.25


def test_labels_below_the_threshold_are_empty_queries():
    labels = MASK * torch.tensor([[2.0], [1.0], [1.0]])
    options = {"relevance_threshold": 2, "metrics": ["rr"]}
    with pytest.warns(RankMetricWarning) as found:
        assert evaluate(SCORES, labels, **options)["rr_rel_2"] == 1
    assert "without a label of at least 2 are not counted" in str(found[0].message)
    assert evaluate(SCORES, labels, empty_queries="zero", **options)["rr_rel_2"] == 1 / 3
    with pytest.warns(RankMetricWarning) as found:  # none is left
        assert math.isnan(evaluate(SCORES, labels, ["rr"], relevance_threshold=3)["rr_rel_3"])
    assert len(found) == 1


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_tables_and_files_have_a_row_without_rank(tmp_path, suffix):
    collection = RankCollection(["rr", "mrr"], empty_queries="zero")
    collection.update(SCORES, LISTS, query=[5, 6, 7], group=[1, 2, 2])
    collection.update(SCORES[:1], [[]], exclude=[[0]])
    table = collection.table()
    assert (len(table), table.num_tasks) == (5, 3)
    path = tmp_path / f"ranks.{suffix}"
    if suffix == "csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        table.save(path)
    loaded = RankTable.load(path)
    assert loaded.rows.equal(table.rows)
    arrays = loaded.to_numpy()
    assert arrays["optimistic"][arrays["empty"]].tolist() == [0, 0]
    assert sorted(arrays["num_candidates"][arrays["empty"]].tolist()) == [3, 4]
    rr = RankMetric("rr", empty_queries="zero")
    rr.update(loaded)
    assert rr.compute() == collection.compute()["rr"] == (1 + 1 / 3) / 4
    named = RankTable(loaded.rows[loaded.query >= 0])
    assert named.query_values(rr) == {5: 1.0, 6: 0.0, 7: 1 / 3}
    assert evaluate(loaded.compact(), metrics=["mrr"])["mrr"] == collection.compute()["mrr"]
    with pytest.raises(ValueError, match="ranks must start at 1"):
        RankTable.from_numpy({"optimistic": [0]})


@pytest.mark.parametrize(
    "wrong", [{"optimistic": [1]}, {"optimistic": [0], "sample_id": [3]}], ids=["rank", "sample id"]
)
def test_rows_that_are_empty_have_no_rank_and_no_sample_id(wrong):
    with pytest.raises(ValueError, match=r"must be .* in rows that are empty"):
        RankTable.from_numpy(wrong | {"empty": [True]})


@pytest.mark.filterwarnings("ignore:the interval of")
def test_query_values_intervals_breakdowns_and_comparisons_count_them():
    measure = {"rr": RankMetric("rr", empty_queries="zero")}
    a, b = RankCollection(measure), RankCollection({"rr": RankMetric("rr", empty_queries="zero")})
    generator = torch.Generator().manual_seed(0)
    relevant = torch.rand(40, 12, generator=generator) < 0.1
    assert 3 < (~relevant.any(1)).sum() < 30
    scores = torch.rand(40, 12, generator=generator)
    facts = {"query": torch.arange(40), "group": torch.arange(40) % 3}
    facts["sample_id"] = torch.arange(int(relevant.sum()))
    a.update(scores + relevant, relevant, **facts)
    b.update(scores, relevant, **facts)
    values = [one.table().query_values(measure["rr"]) for one in (a, b)]
    assert [len(one) for one in values] == [40, 40]
    value_a, value_b = (np.array([one[i] for i in range(40)]) for one in values)
    assert a.compute()["rr"].item() == pytest.approx(value_a.mean(), rel=1e-12)
    interval = a.confidence_intervals()["rr"]
    error = value_a.std(ddof=1) / math.sqrt(40)
    assert interval.standard_error == pytest.approx(error, rel=1e-12)
    for metric in (measure["rr"], "rr"):  # a name counts as the collections do
        found = compare(a, b, metric)
        assert found.num_tasks == 40
        assert found.difference == pytest.approx((value_a - value_b).mean(), rel=1e-12)
    with pytest.warns(RankMetricWarning, match="queries without a relevant item are not counted"):
        skipped = compare(a.table(), b.table(), "rr")
    assert skipped.num_tasks == int(relevant.any(1).sum())
    groups = a.breakdown()
    column = groups[groups.columns[2]]
    expected = [value_a[np.arange(40) % 3 == g].mean() for g in range(3)]
    assert column == pytest.approx(expected, rel=1e-12)


def job_value(rows, mode):
    metric = RankMetric("rr", empty_queries=mode)
    for i in rows:
        metric.update(SCORES[[i]], [LISTS[i]], query=[i], sample_id=[10 * i + j for j in LISTS[i]])
    return metric.compute().item()


@pytest.mark.parametrize("shards", [[[0, 1], [1, 2]], [[1], [0, 2]], [[0, 1, 2], [1]]])
@pytest.mark.filterwarnings("ignore:queries without a relevant item", "ignore:The ``compute``")
@pytest.mark.filterwarnings("error:ranking tasks from")
@pytest.mark.parametrize(
    ("mode", "expected"), [("zero", 4 / 9), ("skip", 2 / 3)], ids=["zero", "skip"]
)
def test_processes_count_a_named_query_once(mode, expected, shards, pool):
    found = pool.run(job_value, [(rows, mode) for rows in shards])
    assert found == pytest.approx([expected] * 2)


def test_weights_of_zero_drop_them_and_counts_store_them():
    metric = RankMetric("rr", empty_queries="zero", storage="counts")
    for _ in range(3):
        metric.update(SCORES, LISTS, weight=[1.0, 2.0, 1.0])
        metric.update(SCORES, LISTS, weight=[1.0, 0.0, 1.0])
    assert metric.compute().item() == pytest.approx(6 * (1 + 1 / 3) / (3 * 4 + 3 * 2))
    macro = RankMetric("rr", average="macro", empty_queries="zero")
    macro.update(SCORES, LISTS, group=[0, 1, 0])
    assert macro.compute().item() == pytest.approx(2 / 3 / 2)


def test_pairs_list_tasks_and_no_queries():
    pairs = (torch.tensor([0, 0, 2]), torch.tensor([0, 2, 0]))
    assert evaluate(SCORES, pairs, ["rr"], empty_queries="error")["rr"] == pytest.approx(2 / 3)


def test_a_run_counts_judged_queries_as_trec_eval_does():
    rng = np.random.default_rng(0)
    qrels, run = {}, {}
    for i in range(30):
        documents = [f"d{j}" for j in range(12)]
        labels = (rng.integers(-2, 3, 12).clip(0) * (i % 5 > 0)).tolist()
        qrels[f"q{i}"] = dict(zip(documents, labels, strict=True))
        run[f"q{i}"] = dict(zip(documents, rng.permutation(12).astype(float).tolist(), strict=True))
    found = pytrec_eval.RelevanceEvaluator(qrels, {"map", "recip_rank", "ndcg_cut_5"}).evaluate(run)
    expected = [
        np.mean([one[name] for one in found.values()])
        for name in ("map", "recip_rank", "ndcg_cut_5")
    ]
    with pytest.warns(RankMetricWarning, match="6 queries have no relevant document.*count as 0"):
        values = evaluate_run(qrels, run, ["ap", "rr", "ndcg@5"])
    assert list(values.values()) == pytest.approx(expected, rel=1e-12)
    skipped = evaluate_run(qrels, run, ["ap"], empty_queries="skip")
    assert skipped["ap"] == pytest.approx(values["ap"] * 30 / 24)
    with pytest.raises(ValueError, match="got 6 without any"):
        evaluate_run(qrels, run, ["ap"], empty_queries="error")
    with pytest.warns(RankMetricWarning, match="count as 0"):
        found = evaluate_run(qrels, run, ["ap"], num_candidates=100)
    assert found["ap"] == values["ap"]
    table = rank_run(qrels, run)
    assert len(table) - table.num_tasks == 6
    ap = RankMetric("ap", empty_queries="zero")
    assert len(table.query_values(ap)) == 30


def test_documents_that_were_not_retrieved_contribute_nothing():
    qrels = {"a": {"x": 1}, "b": {"x": 1, "y": 1}, "c": {"y": 1}}
    run = {"a": {"x": 2.0, "z": 1.0}, "b": {"z": 1.0}, "c": {"x": 3.0, "y": 1.0}}
    alone = {"b": qrels["b"]}, {"b": ["z"]}
    with pytest.warns(RankMetricWarning, match="no relevant document of qrels is in any list"):
        assert evaluate_run(*alone, ["rr", "ap"]) == {"rr": 0.0, "ap": 0.0}
    with pytest.warns(RankMetricWarning, match="no relevant document of qrels is in any list"):
        assert evaluate(rank_run(*alone), metrics=["rr"]) == {"rr": 0.0}
    # first ranks 1, never, 2
    assert evaluate_run(qrels, run, ["first_median_rank"]) == {"first_median_rank": 2.0}
    table = rank_run(qrels, run)
    assert evaluate(table, metrics=["rr", "ap"]) == {"rr": 0.5, "ap": 0.5}
    assert table.query_values("rr") == {0: 1.0, 1: 0.0, 2: 0.5}


@pytest.mark.parametrize("name", ["first_mr", "mr", "gmr"])
def test_means_of_ranks_need_the_ranks_of_all_relevant_documents(name):
    qrels = {"a": {"x": 1}, "b": {"x": 1, "y": 1}, "c": {"y": 1}}
    run = {"a": {"x": 2.0, "z": 1.0}, "b": {"z": 1.0}, "c": {"x": 3.0, "y": 1.0}}
    with pytest.raises(ValueError, match="not retrieved"):
        evaluate_run(qrels, run, [name])


def test_an_analysis_sets_empty_queries_aside():
    table = RankTable.from_ranks(rank_scores(SCORES, LISTS))
    analysis = Analysis([table.rows])
    assert (len(analysis.task_rows), len(analysis.empty), analysis.num_queries) == (3, 1, 2)
    assert "2 queries" in " ".join(table.summary().notes)
    assert Ranks([1], None, 3).rows is None
