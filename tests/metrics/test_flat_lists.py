"""Flat scores with `indexes`: one index is one query over all updates, batches and processes."""

import itertools
import math

import pytest
import torch
from torchmetrics.retrieval import RetrievalMAP, RetrievalMRR, RetrievalNormalizedDCG

from bits import bits
from torchrankmetrics import (
    AveragePrecision,
    RankCollection,
    RankMetric,
    RankMetricWarning,
    RankTable,
    compare,
    evaluate,
)
from torchrankmetrics.ranking import flags
from torchrankmetrics.table.columns import Columns

# the task metrics are on purpose
pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query")
NAMES = ["ap", "rr", "ndcg", "recall@3", "mrr", "z_ap", "macro_rr"]
PREDS = torch.tensor([0.9, 0.2, 0.8, 0.5])
TARGET = torch.tensor([False, True, False, True])


def lists(queries=50, documents=20, seed=0):
    """Scores, labels, indexes and sample ids of (query, document) pairs, in random order."""
    generator = torch.Generator().manual_seed(seed)
    total = queries * documents
    target = torch.randint(-3, 3, (total,), generator=generator).clamp(min=0).float()
    target.view(queries, documents)[:, 0] = 1
    # without ties, which torchmetrics breaks by place
    preds = torch.randperm(total, generator=generator).float() + 1  # RetrievalMAP needs preds > 0
    indexes = torch.arange(queries).repeat_interleave(documents) * 11
    order = torch.randperm(total, generator=generator)
    return preds[order], target[order], indexes[order], order


def test_a_list_that_two_updates_cut_is_one_query():
    # places 3 and 4 of the relevant items: (1/3 + 2/4) / 2
    metric = AveragePrecision()
    metric.update(PREDS[:2], TARGET[:2], indexes=[7, 7])
    metric.update(PREDS[2:], TARGET[2:], indexes=[7, 7])
    assert metric.compute().item() == pytest.approx(5 / 12, rel=1e-15)
    peer = RetrievalMAP()
    peer.update(PREDS[:2], TARGET[:2], indexes=torch.tensor([7, 7]))
    peer.update(PREDS[2:], TARGET[2:], indexes=torch.tensor([7, 7]))
    assert metric.compute().item() == pytest.approx(peer.compute().item(), rel=1e-6)


def test_shuffled_batches_have_the_values_of_torchmetrics_and_of_whole_lists():
    preds, target, indexes, _ = lists()
    peers = {"ap": RetrievalMAP(), "rr": RetrievalMRR(), "ndcg": RetrievalNormalizedDCG()}
    collection = RankCollection(NAMES)
    for part in torch.arange(len(preds)).split(64):
        collection.update(preds[part], target[part], indexes=indexes[part], group=3)
        for name, peer in peers.items():
            labels = target[part].long() if name == "ndcg" else target[part] > 0
            peer.update(preds[part], labels, indexes=indexes[part])
    found = {key: value.item() for key, value in collection.compute().items()}
    for name, peer in peers.items():
        assert found[name] == pytest.approx(peer.compute().item(), rel=1e-6)
    whole = RankCollection(NAMES)
    whole.update(preds, target, indexes=indexes, group=3)
    assert bits(whole) == bits(collection)
    order = torch.argsort(indexes)
    rows, labels = preds[order].view(50, 20), target[order].view(50, 20)
    assert evaluate(rows, labels, NAMES, group=3) == found
    assert evaluate(preds, target, NAMES, indexes=indexes, group=3) == found


def job_values(preds, target, indexes):
    collection = RankCollection(NAMES)
    if len(preds):
        collection.update(preds, target, indexes=indexes, group=0)
    values = bits(collection)
    return values, collection.table().to_numpy()


@pytest.mark.filterwarnings("ignore:ranking tasks from")
@pytest.mark.parametrize("bounds", [(0, 70, 200), (0, 0, 200), (0, 64, 128, 200)], ids=str)
def test_a_list_that_processes_cut_is_one_query(bounds, pool):
    preds, target, indexes, _ = lists(queries=10)
    whole = RankCollection(NAMES)
    whole.update(preds, target, indexes=indexes, group=0)
    parts = [slice(*ends) for ends in itertools.pairwise(bounds)]
    given = [(preds[part], target[part], indexes[part]) for part in parts]
    for values, arrays in pool.run(job_values, given):
        assert values == bits(whole)
        assert RankTable.from_numpy(arrays).rows.equal(whole.table().rows)


def test_repeats_of_a_sample_id_are_dropped_before_ranking():
    preds, target, indexes, ids = lists(queries=10)
    padded = torch.cat([torch.arange(200), torch.arange(30)])  # as a sampler that pads
    whole, repeated = RankCollection(NAMES), RankCollection(NAMES)
    whole.update(preds, target, indexes=indexes, sample_id=ids, group=0)
    for part in padded.split(100):
        repeated.update(
            preds[part], target[part], indexes=indexes[part], sample_id=ids[part], group=0
        )
    assert bits(repeated) == bits(whole)
    repeated.update(preds[:3] + 1000, target[:3], indexes=indexes[:3], sample_id=ids[:3], group=0)
    with pytest.warns(RankMetricWarning, match="3 repeated .* different scores or labels"):
        repeated.compute()


def test_forward_has_the_value_of_its_batch():
    metric = AveragePrecision()
    first = metric(PREDS, TARGET, indexes=[0] * 4)
    assert first.item() == pytest.approx(5 / 12)
    second = metric(PREDS[2:], TARGET[2:], indexes=[0, 0])
    assert second.item() == 0.5  # the relevant item is the second of two
    # all six: places 2.5 of .8, .8; 5 of .5 ... by the expected orders of ties
    joined = evaluate(
        torch.cat([PREDS, PREDS[2:]])[None], torch.cat([TARGET, TARGET[2:]])[None], ["ap"]
    )
    assert metric.compute().item() == joined["ap"]


def test_scores_that_are_excluded_are_no_candidates():
    exclude = torch.tensor([True, False, False, False])
    for found in (
        evaluate(PREDS, TARGET, ["ap"], indexes=[0] * 4, exclude=exclude),
        RankCollection(["ap"])(PREDS, TARGET, indexes=[0] * 4, exclude=exclude),
    ):
        assert float(found["ap"]) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_sides_are_different_lists_and_nan_never_helps():
    collection = RankCollection(["rr"], sides=("head", "tail", "both"))
    collection.update(PREDS, TARGET, indexes=[0] * 4, side="head")
    collection.update(-PREDS, TARGET, indexes=[0] * 4, side="tail")
    values = {key: value.item() for key, value in collection.compute().items()}
    assert values == {"head_rr": 1 / 3, "tail_rr": 1.0, "rr": pytest.approx(2 / 3)}
    scores = PREDS.clone()
    scores[1] = math.nan
    metric = RankMetric("rr")
    metric.update(scores, TARGET, indexes=[0] * 4)
    with pytest.warns(RankMetricWarning, match="NaN"):
        assert metric.compute() == 1 / 3
    assert RankMetric("rr")(PREDS.bfloat16(), TARGET, indexes=[0] * 4) == 1 / 3


def test_tables_files_and_comparisons_see_ranks_only(tmp_path):
    preds, target, indexes, ids = lists(queries=30)
    collection, better = RankCollection(["ap", "ndcg@5"]), RankCollection(["ap", "ndcg@5"])
    for part in torch.arange(600).split(64):
        known = {"indexes": indexes[part], "sample_id": ids[part]}
        collection.update(preds[part], target[part], **known)
        better.update(preds[part] + 300 * target[part], target[part], **known)
    for table in (collection.table(), collection.local_table()):
        assert not (Columns(table.rows).flags & flags.ENTRY).any()
        assert table.num_tasks == int((target > 0).sum())
        table.save(tmp_path / "ranks.npz")
        loaded = RankTable.load(tmp_path / "ranks.npz")
        assert evaluate(loaded, metrics=["ap"])["ap"] == collection.compute()["ap"].item()
    assert set(collection.table().query_values("ap")) == set(indexes.tolist())
    found = compare(better, collection, "ap")
    own = [one.compute()["ap"].item() for one in (better, collection)]
    assert found.difference == pytest.approx(own[0] - own[1], rel=1e-12)
    assert found.num_tasks == 30
    assert collection.confidence_intervals()["ap"].value == own[1]


@pytest.mark.parametrize("make", [AveragePrecision, lambda: RankCollection(["ap"])])
def test_checkpoints_and_merges_keep_lists_that_are_not_whole_yet(make):
    first, second, whole = make(), make(), make()
    for metric in (first, second, whole):
        metric.persistent(True)
    first.update(PREDS[:2], TARGET[:2], indexes=[7, 7])
    second.load_state_dict(first.state_dict())
    second.update(PREDS[2:], TARGET[2:], indexes=[7, 7])
    whole.update(PREDS, TARGET, indexes=[7] * 4)
    assert bits(second) == bits(whole)
    third = make()
    third.update(PREDS[2:], TARGET[2:], indexes=[7, 7])
    first.merge_state(third)
    assert bits(first) == bits(whole)


def test_counts_cannot_store_lists():
    lists_ = {"indexes": [0] * 4}
    for metric in (AveragePrecision(storage="counts"), RankCollection(["ap"], storage="counts")):
        with pytest.raises(ValueError, match="storage='counts' cannot store flat scores"):
            metric.update(PREDS, TARGET, **lists_)
        assert metric.update_count == 0 if isinstance(metric, RankMetric) else True
    stored, counts = RankMetric("ap"), RankMetric("ap", storage="counts")
    stored.update(PREDS, TARGET, **lists_)
    with pytest.raises(ValueError, match="storage='counts' cannot store flat scores"):
        counts.merge_state(stored)


@pytest.mark.parametrize(
    ("column", "value"), [("query", -3), ("count", 2), ("gain_bits", -1), ("weight_bits", -1)]
)
def test_damaged_lists_raise_when_they_are_loaded(column, value):
    metric = RankMetric("ap")
    metric.persistent(True)
    metric.update(PREDS, TARGET, indexes=[0] * 4)
    stored = torch.cat(list(metric.rows))
    rows = stored.clone()
    setattr(Columns(rows), column, value)
    with pytest.raises(RuntimeError, match="is not one that an update writes"):
        RankMetric("ap").load_state_dict({"rows": rows})


def test_weights_and_groups_are_those_of_the_relevant_items():
    metric = RankMetric("rr")
    metric.update(PREDS, TARGET, indexes=[0, 0, 1, 1], weight=torch.tensor([9.0, 1.0, 0.0, 3.0]))
    # query 0 has its item second, query 1 too; the weights of other documents are of no account
    assert metric.compute() == 0.5
    metric.update(PREDS, TARGET, indexes=[2, 2, 2, 2], weight=torch.tensor([1.0, 0.0, 1.0, 2.0]))
    # the item of weight 0 is dropped, and stays below the other: rank 3
    assert metric.compute().item() == pytest.approx((0.5 * 1 + 0.5 * 3 + 2 / 3) / 6)
    with pytest.raises(ValueError, match="differ in weight"):
        metric.update(PREDS, TARGET, indexes=[3] * 4, weight=torch.tensor([1.0, 1.0, 1.0, 2.0]))
