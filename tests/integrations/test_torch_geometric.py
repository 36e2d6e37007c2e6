"""The drop-ins of torch_geometric.metrics against the installed PyG."""

import math

import pytest
import torch
from torch_geometric import metrics as peer
from torchmetrics import MetricCollection

from torchrankmetrics import RankMetricWarning, compare, evaluate
from torchrankmetrics.integrations import torch_geometric as own

NAMES = [
    "LinkPredPrecision",
    "LinkPredRecall",
    "LinkPredF1",
    "LinkPredMAP",
    "LinkPredNDCG",
    "LinkPredMRR",
    "LinkPredHitRatio",
]
every_class = pytest.mark.parametrize("name", NAMES)


def problem(seed, sources=10, destinations=14, width=6):
    """Top destinations of every source, true edges (none for some sources), and their weights."""
    generator = torch.Generator().manual_seed(seed)
    top = torch.rand(sources, destinations, generator=generator).topk(width, dim=1).indices
    edges = (torch.rand(sources, destinations, generator=generator) < 0.15).nonzero().T
    edges = edges[:, torch.randperm(edges.shape[1], generator=generator)]
    weights = torch.randint(1, 9, (edges.shape[1],), generator=generator) / 4
    return top, edges, weights


def value_of(module, name, options, batches):
    metric = getattr(module, name)(**options)
    for batch in batches:
        metric.update(*batch)
    return metric.compute()


@every_class
@pytest.mark.parametrize("k", [1, 3, 6, 10])
@pytest.mark.parametrize("number", [1, 3])
def test_values_of_several_updates_are_those_of_pyg(number, name, k):
    batches = [problem(seed)[:2] for seed in range(3)]
    batches[1] = batches[1][0], tuple(batches[1][1])
    found = value_of(own, name, {"k": k}, batches[:number])
    expected = value_of(peer, name, {"k": k}, batches[:number])
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


@every_class
def test_forward_reset_and_no_edges(name):
    mine, theirs = getattr(own, name)(3), getattr(peer, name)(3)
    for seed in range(3):
        top, edges, _ = problem(seed)
        assert mine(top, edges).item() == pytest.approx(theirs(top, edges).item(), rel=1e-6)
    assert mine.compute().item() == pytest.approx(theirs.compute().item(), rel=1e-6)
    mine.reset()
    mine.update(top, edges[:, :0])
    with pytest.warns(RankMetricWarning, match="0 ranking tasks were given"):
        assert mine.compute().isnan()
    assert mine.higher_is_better is theirs.higher_is_better is True


@pytest.mark.parametrize("k", [1, 3, 10])
def test_weights_are_labels_of_ndcg(k):
    batches = [problem(seed) for seed in range(3)]
    weights = batches[0][2]
    weights[:4] = torch.tensor([0.0, -1.0, 0.0, 2.0])
    options = {"k": k, "weighted": True}
    found = value_of(own, "LinkPredNDCG", options, batches)
    expected = value_of(peer, "LinkPredNDCG", options, batches)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_metrics_that_are_not_weighted_ignore_weights(name):
    batches = [problem(seed) for seed in range(3)]
    weights = batches[0][2]
    weights[:4] = torch.tensor([0.0, -1.0, 0.0, 2.0])
    # others ignore weights, also those of 0
    found = value_of(own, name, {"k": 3}, batches)
    assert found == value_of(own, name, {"k": 3}, [batch[:2] for batch in batches])
    assert found.item() == pytest.approx(value_of(peer, name, {"k": 3}, batches).item(), rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_collection_has_the_keys_and_values_of_pyg(weighted):
    collections = []
    for module in (own, peer):
        metrics = [getattr(module, name)(k) for name in NAMES for k in (2, 5)]
        if weighted:
            metrics.append(module.LinkPredNDCG(7, weighted=True))
        collections.append(module.LinkPredMetricCollection(metrics))
    for seed in range(3):
        top, edges, weights = problem(seed)
        weights[::4] = 0
        for collection in collections:
            collection.update(top, edges, weights if weighted else None)
    mine, theirs = collections
    found, expected = mine.compute(), theirs.compute()
    assert list(found) == list(expected)
    assert [one.item() for one in found.values()] == pytest.approx(
        [one.item() for one in expected.values()], rel=1e-6
    )
    assert (mine.max_k, mine.weighted) == (theirs.max_k, theirs.weighted)
    mine.reset()
    assert mine["LinkPredMAP@2"].update_count == 0
    named = own.LinkPredMetricCollection({"map": own.LinkPredMAP(2)})
    named.update(*problem(0)[:2])
    assert list(named.compute()) == ["map"]


def test_a_plain_metric_collection_takes_them():
    mine, theirs = (
        MetricCollection([getattr(module, name)(3) for name in NAMES]) for module in (own, peer)
    )
    for seed in range(2):
        top, edges, _ = problem(seed)
        mine.update(top, edges)
        theirs.update(top, edges)
    expected = {key: pytest.approx(one.item(), rel=1e-6) for key, one in theirs.compute().items()}
    assert {key: one.item() for key, one in mine.compute().items()} == expected


def job_value(batches):
    return [value_of(own, name, {"k": 3}, batches).item() for name in NAMES]


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_two_processes_have_the_value_of_one(pool):
    batches = [problem(seed)[:2] for seed in range(4)]
    expected = [value_of(peer, name, {"k": 3}, batches).item() for name in NAMES]
    for found in pool.run(job_value, [(batches[:1],), (batches[1:],)]):
        assert found == pytest.approx(expected, rel=1e-6)


def test_tables_have_chance_adjusted_values_intervals_and_tests():
    top, edges, _ = problem(0, sources=60)
    metrics = [own.LinkPredNDCG(3, num_dst_nodes=14) for _ in range(2)]
    for metric, lists in zip(metrics, (top, top.flip(1)), strict=True):
        metric.update(lists, edges, query=torch.arange(60))
    values = evaluate(metrics[0].table(), metrics=["ndcg@3", "adjusted_ndcg@3"])
    assert values["ndcg_at_3"] == pytest.approx(metrics[0].compute().item(), rel=1e-6)
    assert values["adjusted_ndcg_at_3"] < values["ndcg_at_3"]
    interval = metrics[0].table().confidence_intervals(["ndcg@3"])["ndcg_at_3"]
    assert interval.low < values["ndcg_at_3"] < interval.high
    found = compare(*(metric.table().query_values("ndcg@3") for metric in metrics))
    difference = metrics[0].compute() - metrics[1].compute()
    assert found.difference == pytest.approx(difference.item(), rel=1e-6)


def test_bad_arguments_raise_before_the_state_changes():
    with pytest.raises(ValueError, match="k must"):
        own.LinkPredMAP(0)
    with pytest.raises(ValueError, match=r"use torch_geometric\.metrics\.LinkPredRecall"):
        own.LinkPredRecall(3, weighted=True)
    for name in set(peer.link_pred_metrics) - {
        *NAMES,
        "LinkPredMetric",
        "LinkPredMetricCollection",
    }:
        with pytest.raises(ImportError, match=r"import it from torch_geometric\.metrics"):
            getattr(own, name)
    with pytest.raises(AttributeError, match="no attribute 'LinkPredAUC'"):
        own.LinkPredAUC  # noqa: B018
    with pytest.raises(TypeError, match="got LinkPredCoverage"):
        own.LinkPredMetricCollection([peer.LinkPredCoverage(3, num_dst_nodes=5)])
    with pytest.raises(ValueError, match="metrics is empty"):
        own.LinkPredMetricCollection([])
    top, edges, weights = problem(0)
    metric = own.LinkPredNDCG(5, weighted=True, num_dst_nodes=14)
    for given, error, text in (
        ((top, edges), ValueError, "edge_label_weight must be passed to update"),
        ((top[:, :3], edges, weights), ValueError, r"at least k=5\) with .*, got \(10, 3\)"),
        ((top[:, [0] * 9], edges, weights), ValueError, "no destination twice"),
        ((top, edges - 1, weights), IndexError, "edge_label_index must lie in"),
        ((top, edges, weights[1:]), ValueError, "edge_label_weight must be"),
        ((top[0], edges, weights), ValueError, "pred_index_mat must be"),
    ):
        with pytest.raises(error, match=text):
            metric.update(*given)
    both = own.LinkPredMetricCollection([own.LinkPredMRR(2), own.LinkPredMAP(9, num_dst_nodes=14)])
    with pytest.raises(ValueError, match="with num_dst_nodes"):
        both.update(top, edges)
    assert metric.update_count == both["LinkPredMRR@2"].update_count == 0
    assert math.isfinite(own.LinkPredMRR(2)(top, edges))
