"""Graded relevance: values, null moments and p-values from all orders of labels.

Also the numbers of other libraries.
"""

import itertools
import math
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given
from scipy.sparse import csr_array
from sklearn.metrics import dcg_score, ndcg_score
from torchmetrics.retrieval import RetrievalNormalizedDCG

from bits import bits
from fuzzing import cases
from query_metrics import looked_up
from torchrankmetrics import (
    RankCollection,
    RankMetric,
    compare,
    evaluate,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.sample import QuerySample
from torchrankmetrics.queries.significance import query_p_value

VIEWS = ("base", "normalized", "adjusted_index", "z_score", "p_value")
N = 5


def dcg(labels, k=None, gain=float):
    return math.fsum(gain(x) / math.log2(2 + i) for i, x in enumerate(labels[:k]))


def power(label):
    return 2.0**label - 1


def ndcg(labels, k=None, gain=float):
    return dcg(labels, k, gain) / dcg(sorted(labels, reverse=True), k, gain)


PLAIN = {
    "ndcg": ndcg,
    "ndcg_at_3": lambda labels: ndcg(labels, 3),
    "ndcg_exp": lambda labels: ndcg(labels, None, power),
    "ndcg_exp_at_2": lambda labels: ndcg(labels, 2, power),
    "dcg": dcg,
    "dcg_at_4": lambda labels: dcg(labels, 4),
}
every_metric = pytest.mark.parametrize("name", PLAIN)


def orders(scores, labels, rank_type):
    """Labels in the order of the scores, for the tie orders of a rank type."""
    own = {
        "expected": itertools.permutations,
        "optimistic": lambda block: [sorted(block, reverse=True)],
        "pessimistic": lambda block: [sorted(block)],
    }[rank_type]
    pairs = list(zip(scores, labels, strict=True))
    choices = [
        own([x for s, x in pairs if s == score]) for score in sorted({*scores}, reverse=True)
    ]
    return [list(itertools.chain(*parts)) for parts in itertools.product(*choices)]


def plain(name, queries, rank_type="expected"):
    """Mean over queries (scores, labels)."""
    values = [
        np.mean([PLAIN[name](order) for order in orders(*query, rank_type)]) for query in queries
    ]
    return math.fsum(values) / len(values)


QUERIES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=N, max_size=N),
        st.lists(st.sampled_from([0, 0, 1, 2, 3, 0.5]), min_size=N, max_size=N).filter(any),
    ),
    min_size=1,
    max_size=4,
)


def batch(queries, form):
    scores = torch.tensor([scores for scores, _ in queries]).float()
    labels = torch.tensor([labels for _, labels in queries]).float()
    row, column = labels.nonzero().T
    if form == "flat":
        return (
            scores.ravel(),
            labels.ravel(),
            {"indexes": torch.arange(len(queries)).repeat_interleave(N)},
        )
    if form == "pairs":
        return scores, (row, column), {"gain": labels[row, column]}
    if form == "all pairs":  # labels of 0 drop the task
        return scores, tuple(torch.ones(labels.shape).nonzero().T), {"gain": labels.ravel()}
    if form == "ranks":
        return rank_scores(scores, labels), None, {}
    if form == "ranks of pairs":
        return (
            rank_embeddings(scores, torch.eye(N), (row, column)),
            None,
            {"gain": labels[row, column]},
        )
    target = {
        "labels": labels,
        "array": labels.numpy(),
        "sparse": csr_array(labels.numpy()),
        "dicts": [dict(enumerate(one)) for one in labels.tolist()],
    }[form]
    return scores, target, {}


FORMS = [
    "labels",
    "array",
    "sparse",
    "dicts",
    "flat",
    "pairs",
    "all pairs",
    "ranks",
    "ranks of pairs",
]


@cases(25, 1000)
@given(QUERIES, st.sampled_from(FORMS))
def test_every_form_of_labels_gives_the_mean_over_all_tie_orders(queries, form):
    collection = RankCollection(list(PLAIN), rank_types=("expected", "optimistic", "pessimistic"))
    preds, target, options = batch(queries, form)
    collection.update(preds, target, **options)
    values = collection.compute()
    for rank_type in ("expected", "optimistic", "pessimistic"):
        for name in PLAIN:
            key = name if rank_type == "expected" else f"{rank_type}_{name}"
            assert values[key].item() == pytest.approx(
                plain(name, queries, rank_type), rel=1e-13
            ), key


@every_metric
def test_null_moments_are_those_of_all_orders_of_all_labels(name):
    definition = parse_name(name).definition
    for size in range(1, 9):
        every = np.array(list(itertools.product(range(4), repeat=size)), dtype=float)
        found = {}
        for labels in every[1:]:
            found.setdefault(tuple(np.sort(labels)[::-1]), []).append(labels)
        for labels in found:
            gains = power(np.array(found[labels])) if "exp" in name else np.array(found[labels])
            discount = 1 / np.log2(2 + np.arange(size))
            discount[int(name[-1]) if name[-1].isdigit() else size :] = 0
            ideal = np.sort(gains[0])[::-1] @ discount if "ndcg" in name else 1.0
            values = gains @ discount / ideal
            m = sum(x > 0 for x in labels)
            sample = QuerySample.ranked(np.arange(1, m + 1)[None], size, np.array(labels[:m])[None])
            got = definition.null_moments(sample)
            assert got.mean == pytest.approx(values.mean(), rel=1e-13)
            assert got.variance == pytest.approx(values.var(), rel=1e-11, abs=1e-30)
            assert got.optimum == pytest.approx(values.max(), rel=1e-14)
            if len(set(gains[0])) == 1:
                assert got.variance == 0


def random_labels(seed, size=8, candidates=40, levels=(1, 2, 3), share=0.15, ties=True):
    generator = np.random.default_rng(seed)
    labels = np.where(
        generator.random((size, candidates)) < share,
        generator.choice(levels, (size, candidates)),
        0,
    )
    labels[:, 0] = levels[-1]
    scores = generator.random((size, candidates)) + 0.2 * (labels > 0)
    return torch.tensor((scores * 12).round() if ties else scores), torch.tensor(labels).double()


@pytest.mark.parametrize("level", [1.0, 0.1, 3.0, 1e-3])
def test_one_level_has_the_bits_of_binary_relevance(level):
    scores, labels = random_labels(1, size=4, candidates=15)
    names = ["ndcg", "ndcg@5", "ndcg_exp@5", "ndcg_exp"]
    options = {
        "views": VIEWS[: 5 if level == 1 else 4],
        "rank_types": ("expected", "optimistic", "pessimistic"),
    }
    binary, graded = (RankCollection(names, **options) for _ in range(2))
    binary.update(scores, labels > 0)
    graded.update(scores, (labels > 0) * level)
    assert bits(graded) == bits(binary)


@pytest.mark.filterwarnings("ignore:the interval of")
@pytest.mark.filterwarnings("ignore:.*without a label of at least")
@pytest.mark.parametrize("threshold", [1, 2.5])
def test_binary_metrics_have_the_bits_of_labels_above_a_threshold(threshold):
    scores, labels = random_labels(2)
    labels[5] = labels[5].clamp(max=1)  # no query for a larger threshold
    names = [
        "recall@3",
        "precision@5",
        "success@2",
        "rr",
        "rr@3",
        "ap",
        "ap@9",
        "r_precision",
        "query_auc",
        "rbp",
    ]
    names.append("first_mr")
    above = labels >= threshold
    some = above.any(1)

    def both(**options):
        binary, graded = (
            RankCollection(names, **options),
            RankCollection(names, relevance_threshold=threshold, **options),
        )
        binary.update(scores[some], above[some], group=torch.arange(8)[some] % 3)
        graded.update(scores, labels, group=torch.arange(8) % 3)
        return binary, graded

    binary, graded = both(views=VIEWS, rank_types=("expected", "optimistic", "pessimistic"))
    suffix = {1: "", 2.5: "_rel_2p5"}[threshold]
    assert {key.removesuffix(suffix): x for key, x in bits(graded).items()} == bits(binary)
    assert list(RankCollection(list(graded.keys())).keys()) == list(graded.keys())
    one, two = both()
    for method in ("normal", "bootstrap"):
        for cluster in (None, "group"):
            options = {"method": method, "cluster": cluster, "n_resamples": 100}
            left, right = (each.confidence_intervals(**options).rows for each in (one, two))
            for row, other in zip(left, right, strict=True):
                assert row.value == other.value
                # sums over more queries, some of which do not count, are rounded differently
                ends = (other.low, other.high)
                assert (row.low, row.high) == pytest.approx(ends, rel=1e-12, nan_ok=True)
    for left, right in zip(one.breakdown().rows, two.breakdown().rows, strict=True):
        assert repr(left[2:]) == repr(right[2:])


def test_a_threshold_is_of_query_metrics_with_binary_relevance():
    assert RankMetric("recall@10", relevance_threshold=2).key == "recall_at_10_rel_2"
    assert RankMetric("ndcg@10", relevance_threshold=2).key == "ndcg_at_10"
    assert RankMetric("recall@10_rel_3", relevance_threshold=2).key == "recall_at_10_rel_3"
    scores, labels = random_labels(3)
    values = evaluate(scores, labels, ["recall@5", "recall@5_rel_2"])
    assert values | evaluate(scores, labels, "recall@5", relevance_threshold=2) == values
    message = r"relevance_threshold is for query metrics.*'mrr' averages over ranking tasks"
    with pytest.raises(ValueError, match=message):
        RankCollection(["mrr", "ndcg"], relevance_threshold=2)


@pytest.mark.parametrize("threshold", [0, -1, math.inf, math.nan, "2"], ids=str)
def test_a_threshold_must_be_a_label_above_zero(threshold):
    with pytest.raises(ValueError, match="relevance_threshold must be a label above 0"):
        RankMetric("recall@10", relevance_threshold=threshold)


@pytest.mark.parametrize(
    ("metrics", "threshold"),
    [(["rr", "ap", "ndcg"], 3), (["rr_rel_3"], 1)],
    ids=["of the collection", "of a metric"],
)
def test_queries_whose_labels_are_below_the_threshold_are_reported(metrics, threshold):
    scores, labels = torch.rand(3, 4), torch.eye(3, 4) * torch.tensor([[1.0], [2.0], [3.0]])
    with pytest.warns(match=r"^queries without a label of at least 3 are not counted") as caught:
        evaluate(scores, labels, metrics, relevance_threshold=threshold)
    assert len(caught) == 1


def test_labels_below_the_threshold_are_reported_at_the_line_of_the_caller():
    scores, labels = torch.rand(3, 4), torch.eye(3, 4) * torch.tensor([[1.0], [2.0], [3.0]])
    collection = RankCollection(["rr", "ap"], relevance_threshold=3)
    collection.update(scores, labels)
    with pytest.warns(match="without a label of at least 3") as caught:
        collection.compute()
    assert {one.filename for one in caught} == {__file__}  # not torchmetrics' between


def test_filtered_ranks_of_neighbors_with_different_labels_have_no_order():
    scores, labels = (
        torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]]),
        torch.tensor([[2.0, 0.0, 2.0, 1.0, 0.0]]),
    )
    collection = RankCollection(["ndcg"])
    with pytest.raises(
        ValueError, match=r"different labels.*exclude must not list the relevant items of a query"
    ):
        collection.update(scores, labels, exclude=looked_up(labels > 0))
    three = torch.cat([labels.clamp(max=1), labels, 2 * labels])
    for ids, named in ((None, "ranking task 3"), (range(20, 29), "sample id 23")):
        with pytest.raises(
            ValueError, match=rf"^2 queries .* different labels .*; the first is that of {named}"
        ):
            collection.update(
                scores.repeat(3, 1), three, exclude=looked_up(three > 0), sample_id=ids
            )
    collection.update(scores, labels.clamp(max=1), exclude=looked_up(labels > 0))
    apart = torch.tensor([[2.0, 0.0, 2.0, 0.0, 1.0]])
    collection.update(scores, apart, exclude=looked_up(apart > 0))
    assert collection.compute()["ndcg"].item() == pytest.approx(
        (ndcg([1, 0, 1, 1, 0]) + ndcg([2, 0, 2, 0, 1])) / 2
    )
    one = RankCollection(["mrr"])
    one.update(scores, labels, exclude=labels > 0)
    assert one.compute()["mrr"].item() == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)


def test_graded_items_with_nan_scores_rank_last_and_the_largest_label_is_the_very_last():
    scores = torch.tensor([[math.nan, math.nan, 1.0, 2.0, 3.0]])
    labels = torch.tensor([[1.0, 3.0, 0.0, 0.0, 2.0]])
    with pytest.warns(UserWarning, match="NaN"):
        value = evaluate(scores, labels, ["dcg"])["dcg"]
    assert value == pytest.approx(dcg([0, 0, 2, 1, 3]))


@every_metric
@pytest.mark.parametrize("weight", [(1.0, 1.0), (1.0, 0.3)])
def test_p_is_the_share_of_all_outcomes_that_are_as_good(name, weight):
    definition = parse_name(name).definition
    labels = [(3.0, 1.0, 1.0, 0.0, 0.0), (2.0, 1.0, 0.0, 0.0)]
    parts = [
        np.array([w * PLAIN[name](list(x)) for x in itertools.permutations(one)])
        for one, w in zip(labels, weight, strict=True)
    ]
    every = np.add.outer(*parts)
    generator = np.random.default_rng(0)
    for _ in range(8):
        chosen = [generator.permutation(one) for one in labels]
        scores = -torch.arange(5.0).repeat(2, 1)
        exclude = torch.tensor([[False] * 5, [False] * 4 + [True]])
        metric = RankCollection([definition], views="p_value")
        target = torch.tensor([[*chosen[0]], [*chosen[1], 0.0]])
        metric.update(scores, target, exclude=exclude, weight=weight)
        reached = sum(w * PLAIN[name](list(x)) for x, w in zip(chosen, weight, strict=True))
        assert metric.compute()[f"p_{name}"].item() == pytest.approx(
            (every >= reached - 1e-12).mean(), rel=1e-9
        )


@every_metric
def test_a_perfect_model_has_the_probability_of_one_ranking(name):
    definition = parse_name(name).definition
    gains = [(3.0, 3.0, 2.0, 1.0), (3.0, 2.0, 2.0, 1.0)]
    rank = np.arange(1, 5)
    sample = QuerySample.ranked(np.stack([rank, rank]), 400, np.array(gains))
    log_p, error = query_p_value(definition, sample, samples=99)
    k = int(name[-1]) if name[-1].isdigit() else 4
    # that the first k places have relevant items
    want = 2 * math.log(math.comb(4, k) / math.comb(400, k))
    for one in gains:
        best = PLAIN[name](list(one)) - 1e-12
        want += math.log(
            np.mean([PLAIN[name](list(order)) >= best for order in itertools.permutations(one)])
        )
    assert log_p == pytest.approx(want, rel=1e-12)
    assert error == 0


def test_models_on_graded_labels_are_compared_and_must_have_the_same_labels():
    scores, labels = random_labels(7, size=60)
    better, worse, other = (RankCollection(["ndcg@10", "recall@5_rel_2", "dcg"]) for _ in range(3))
    better.update(scores + labels, labels)
    worse.update(scores, labels)
    other.update(scores, labels.clamp(max=2))
    found = compare(better, worse, ["ndcg@10", "recall@5_rel_2", "dcg"])
    for key in ("ndcg_at_10", "recall_at_5_rel_2", "dcg"):
        assert found[key].difference == pytest.approx(
            better.compute()[key].item() - worse.compute()[key].item()
        )
        assert found[key].p_value < 0.01
    with pytest.raises(ValueError, match="differ in gain"):
        compare(better, other, ["ndcg@10"])


@pytest.mark.parametrize("ties", [False, True])
def test_scikit_learn_and_torchmetrics_have_the_same_values(ties):
    indexes = torch.arange(5).repeat_interleave(12)
    for seed in range(10):
        scores, labels = random_labels(seed, size=5, candidates=12, share=0.4, ties=ties)
        values = evaluate(scores, labels, ["ndcg", "ndcg@5", "dcg", "dcg@5"])
        for k, key in ((None, "ndcg"), (5, "ndcg_at_5")):
            assert values[key] == pytest.approx(ndcg_score(labels, scores, k=k), rel=1e-12)
            assert values[key[1:]] == pytest.approx(dcg_score(labels, scores, k=k), rel=1e-12)
            theirs = RetrievalNormalizedDCG(top_k=k)
            theirs.update(scores.ravel(), labels.ravel().long(), indexes=indexes)
            flat = evaluate(scores.ravel(), labels.ravel(), [key], indexes=indexes)
            assert flat[key] == pytest.approx(values[key], rel=1e-12)
            assert values[key] == pytest.approx(theirs.compute().item(), rel=1e-5)


@pytest.mark.parametrize("ties", [False, True], ids=["untied", "tied"])
def test_trec_eval_has_the_same_values_on_2000_runs(ties):
    """trec_eval has no ties: it sorts equal scores by the name of the document, descending."""
    measures = {
        "ndcg",
        "ndcg_cut.3,5",
        "map",
        "recip_rank",
        "recall.5",
        "P.5",
        "success.1,5",
        "Rprec",
    }
    ours = ["ndcg", "ndcg_cut_3", "ndcg_cut_5", "map", "recip_rank"]
    ours += ["recall_5", "P_5", "success_1", "success_5", "Rprec"]
    scores, labels = random_labels(11, size=1000, candidates=15, share=0.3, ties=ties)
    order = scores.argsort(dim=1, descending=True, stable=True)
    place = torch.empty_like(order).scatter_(1, order, torch.arange(15).expand(1000, 15))
    names = [f"d{99 - i}" for i in range(15)]  # ties by descending name: the first column first
    qrels = {
        f"q{i}": {names[j]: int(x) for j, x in enumerate(row)}
        for i, row in enumerate(labels.tolist())
    }
    run = {f"q{i}": dict(zip(names, row, strict=True)) for i, row in enumerate(scores.tolist())}
    for level in (1, 2):
        theirs = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=level).evaluate(
            run
        )
        some = (labels >= level).any(1)
        got = RankCollection(ours, relevance_threshold=level)  # under their names
        got.update(-place[some].double(), labels[some])
        for key, value in zip(ours, got.compute().values(), strict=True):
            want = np.mean([theirs[f"q{i}"][key] for i in range(1000) if some[i]])
            assert value.item() == pytest.approx(want, rel=1e-9), (key, level, ties)


@pytest.mark.parametrize(
    "one",
    [
        d.recall_at(3),
        d.precision_at(3),
        d.rank_biased_precision(),
        d.average_precision(),
        d.R_PRECISION,
    ],
    ids=lambda one: one.name,
)
def test_binary_metrics_ignore_gains(one):
    ranks = np.array([[1, 3, 5], [2, 4, 6]])
    binary, graded = (
        QuerySample.ranked(ranks, 9),
        QuerySample.ranked(ranks, 9, np.array([[3.0, 2.0, 1.0]] * 2)),
    )
    assert (one.values(graded) == one.values(binary)).all()
    assert one.null_moments(graded) == one.null_moments(binary)
    assert query_p_value(one, graded) == query_p_value(one, binary)


def test_the_default_persistence_is_0_8():
    assert d.rank_biased_precision().values(QuerySample.ranked(np.array([[2, 3]]), 9))[
        0
    ] == pytest.approx(0.288)


@pytest.mark.parametrize("p", [0, 1, -1, 2, math.nan, "half"], ids=str)
def test_a_persistence_must_lie_between_zero_and_one(p):
    with pytest.raises(ValueError, match="p must be a number between 0 and 1"):
        d.rank_biased_precision(p)


LABELS = [
    (1.0, 0, 0),
    (2.0, 0, 0),
    (3.0, 3.0, 2.0),
    (2.0, 1.0, 1.0),
    (1.0, 1.0, 0, 0),
    (3.0, 2.0, 0.1),
]


@every_metric
def test_the_best_value_of_repeated_labels_is_never_too_rare(name):
    definition = parse_name(name).definition
    for labels in itertools.combinations_with_replacement(LABELS, 3):
        want = 1.0
        for one in labels:
            every = np.array([PLAIN[name](list(x)) for x in itertools.permutations(one)])
            want *= (every >= every.max() * (1 - 1e-12)).mean()
        metric = RankCollection([definition], views="p_value")
        for one in labels:
            metric.update(-torch.arange(float(len(one)))[None], torch.tensor([one]))
        with warnings.catch_warnings(action="ignore"):
            assert metric.compute()[f"p_{name}"].item() == pytest.approx(want, rel=1e-9)
