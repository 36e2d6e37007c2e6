"""First attempts of users of each field: the error names the right call, and that call works."""

import warnings

import numpy as np
import pytest
import torch

from torchrankmetrics import (
    HitsAtK,
    KnownTriples,
    MeanRank,
    RankCollection,
    RankMetricWarning,
    Ranks,
    adjust,
    compare,
    evaluate,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.integrations.pyg import ranks_of_predictions
from torchrankmetrics.integrations.trec import evaluate_run, rank_run
from torchrankmetrics.kg import rank_alignment
from torchrankmetrics.ranking import RankAccumulator

SCORES = torch.tensor([[0.3, 0.9, 0.1, 0.4], [0.8, 0.2, 0.5, 0.4], [0.1, 0.6, 0.2, 0.3]])
TARGET = torch.tensor([1, 2, 3])  # ranks 1, 2, 2


def updated(*args, metrics=("mrr", "hits@1"), **kwargs):
    collection = RankCollection(list(metrics))
    collection.update(*args, **kwargs)
    return {key: value.item() for key, value in collection.compute().items()}


def test_link_prediction_in_a_loop_of_ones_own():
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1, 0] = True
    for word in ("mask", "filter", "filters"):
        with pytest.raises(TypeError, match=f"{word}'; did you mean 'exclude'.* True marks an excluded candidate"):
            updated(SCORES, TARGET, **{word: mask})
        for function in (rank_scores, evaluate):
            with pytest.raises(TypeError, match=rf"{function.__name__}\(\).*did you mean 'exclude'"):
                function(SCORES, TARGET, **{word: mask})
    assert updated(SCORES, TARGET, exclude=mask) == pytest.approx({"mrr": 5 / 6, "hits_at_1": 2 / 3})

    for ranks in (torch.tensor([1, 2, 2]), np.array([1, 2, 2])):
        for second in ((), (torch.tensor([4, 4, 4]),)):
            with pytest.raises(ValueError, match=r"Ranks\(ranks, None, num_candidates\)"):
                updated(ranks, *second)
        with pytest.raises(TypeError, match=r"Ranks\(ranks, None, num_candidates\)"):
            updated(ranks, num_candidates=4)
        assert updated(Ranks(ranks, None, 4)) == updated(SCORES, TARGET)
    with pytest.raises(TypeError, match=r"become ranks by rank_scores"):
        Ranks(SCORES, None, 4)
    with pytest.raises(ValueError, match=r"scores are \(B, N\), with their target"):
        evaluate(SCORES[0], 4)

    known = KnownTriples(np.array([[0, 0, 1], [0, 0, 2]]), num_entities=4)
    heads, relations = torch.tensor([0, 1, 2]), torch.zeros(3, dtype=torch.int64)
    assert updated(SCORES, TARGET, exclude=known.tails(heads, relations)) == updated(SCORES, TARGET)


def test_numpy_instead_of_torch():
    scores, target, seen = SCORES.double().numpy(), TARGET.numpy(), np.array([[1, 2], [0, 1]])
    expected = updated(SCORES, TARGET, exclude=torch.from_numpy(seen))
    mask = np.zeros((3, 4), dtype=bool)
    mask[tuple(seen)] = True
    locked = scores.copy()
    locked.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for exclude in (seen, tuple(seen), mask, torch.from_numpy(mask)):
            assert updated(scores, target, exclude=exclude) == expected
            assert evaluate(rank_scores(locked, target, exclude=exclude), metrics=["mrr", "hits@1"]) == expected
        assert updated(scores.ravel(), np.eye(4, dtype=bool)[target].ravel(), indexes=np.arange(12) // 4) == updated(
            SCORES, TARGET
        )
        assert HitsAtK(1)(scores, target) == 1 / 3
    chunks = RankAccumulator(scores[np.arange(3), target], target, scores.shape)
    chunks.update(scores)
    embedded = rank_embeddings(scores, np.eye(4), target)
    for ranks in (chunks.compute(), embedded):
        assert evaluate(ranks, metrics=["mrr", "hits@1"]) == updated(SCORES, TARGET)
    with pytest.raises(TypeError, match=r"got list: pass torch.tensor\(preds\)"):
        updated(SCORES.tolist(), TARGET)


def test_ogb_and_sampled_negatives():
    dictionary = {"y_pred_pos": torch.tensor([2.0, 0.5]), "y_pred_neg": torch.tensor([[1.0, 0.0], [0.4, 0.9]])}
    with pytest.raises(TypeError, match=r"got dict: a dict of OGB.* Ranks.from_negatives\(preds\)"):
        updated(dictionary)
    with pytest.raises(TypeError, match=r"Ranks.from_negatives\(dict of y_pred_pos"):
        updated(**dictionary)
    assert updated(Ranks.from_negatives(dictionary)) == evaluate(dictionary, metrics=["mrr", "hits@1"])
    with pytest.raises(TypeError, match=r"got the str '104'"):
        evaluate([1, 2], "104")
    with pytest.raises(TypeError, match=r"got the str 'fb15k237'; .*adjust.* PrecomputedExpectation take"):
        evaluate([1, 2], "fb15k237")
    for call in (lambda: Ranks([1, 2], None, "104"), lambda: MeanRank().moments("104")):
        with pytest.raises(TypeError, match=r"num_candidates must .*, got the str '104'"):
            call()
    with pytest.raises(ValueError, match=r"'104'.*: pass an int"):
        adjust(0.3, "mrr", "104")


def test_runs_and_qrels_of_retrieval():
    qrels, run = {"q1": {"d1": 1}, "q2": {"d4": 1}}, {"q1": {"d1": 3.2, "d2": 1.0}, "q2": {"d5": 8.1, "d4": 7.7}}
    for call in (updated, rank_scores):
        with pytest.raises(TypeError, match=r"dicts of dicts are qrels and runs.*trec\.rank_run\(qrels, run\)"):
            call(qrels, run)
    with pytest.raises(TypeError, match=r"trec\.evaluate_run\(qrels, run"):
        evaluate(qrels, run)
    with pytest.raises(TypeError, match=r"names are not scores.*trec"):
        updated(["d1", "d2"], ["d1"])
    expected = {"rr_at_10": 0.75, "success_at_1": 0.5}
    assert evaluate_run(qrels, run, ["recip_rank@10", "S@1"], num_candidates=9) == expected
    assert updated(rank_run(qrels, run, num_candidates=9), metrics=["mrr@10", "hr@1"]) == expected


def test_recommendation():
    seen = [[0], [], [1, 2]]
    expected = pytest.approx({"mrr": 5 / 6, "hits_at_1": 2 / 3})
    assert updated(SCORES, TARGET, exclude=seen) == expected
    assert evaluate(SCORES, TARGET, ["mrr", "hits@1"], exclude=seen) == expected
    assert updated(SCORES, [[1], {2}, [3]], metrics=["HR@1", "NDCG@4"])["success_at_1"] == 1 / 3
    for options in ({"k": 10}, {"top_k": 10}):
        with pytest.raises(TypeError, match=r"a cut is part of a name"):
            evaluate(SCORES, TARGET, **options)


@pytest.mark.filterwarnings("ignore:relevant items of one query")
def test_relevance_as_a_matrix_and_pairs_the_wrong_way_round():
    relevant = torch.nn.functional.one_hot(TARGET, 4)
    expected = updated(SCORES, TARGET)
    for matrix in (relevant, 2 * relevant, relevant[:2]):
        with pytest.raises(ValueError, match=r"must be pairs .* got .* pass labels as target\.float\(\)"):
            updated(SCORES[: len(matrix)], matrix)
    assert updated(SCORES, relevant > 0) == updated(SCORES, relevant.float()) == expected
    assert updated(SCORES, 2.0 * relevant) == expected  # graded
    both = tuple(torch.tensor([[0, 1, 0, 0], [0, 0, 1, 1]]))
    assert updated(SCORES[:2], both)["hits_at_1"] == 0.75  # 4 pairs, of which (1, 0), (0, 1) and (0, 1) come first
    with pytest.raises(TypeError, match=r"got \[False, True.*labels \(B, N\)"):
        updated(SCORES, relevant.bool().tolist())
    with pytest.raises(ValueError, match=r"must be pairs .*\(2, P\).*target\.T"):
        updated(SCORES, torch.tensor([[0, 1], [1, 2], [2, 3]]))


def test_entity_alignment_by_distances():
    points = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    other = points + 0.1
    distances, target = torch.cdist(points, other), torch.arange(60)
    with pytest.warns(RankMetricWarning, match=r"are the scores distances.* pass -distances") as warned:
        evaluate(distances, target, metrics=["mrr"])
    assert warned[0].filename == __file__
    collection = RankCollection(["mrr"])
    collection.update(distances, target)
    assert "are the scores distances?" in str(collection.summary())
    with pytest.raises(TypeError, match=r"higher is better: pass the negative of distances"):
        collection.update(distances, target, higher_is_better=False)
    expected = evaluate(rank_embeddings(points, other, target, similarity="l2"), metrics=["hits@1"])
    assert evaluate(-distances, target, metrics=["hits@1"]) == expected
    pairs = torch.stack([target, target], 1)
    with pytest.raises(TypeError, match=r"did you mean 'similarity'"):
        rank_alignment(pairs, points, other, metric="l2")
    with pytest.raises(TypeError, match=r"did you mean 'similarity'"):
        rank_embeddings(points, other, target, distance="l2")
    table = rank_alignment(pairs, points, other, similarity="l2")
    assert evaluate(table, metrics=["hits@1"], sides=["tail"]) == {"tail_hits_at_1": expected["hits_at_1"]}
    collection.reset()
    collection.update(-distances, target)
    assert "distances" not in str(collection.summary())


def test_top_k_lists_of_pyg():
    lists, edges = np.array([[1, 3], [0, 2], [1, 3]]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    ranks = ranks_of_predictions(torch.from_numpy(lists), edges, num_dst_nodes=4)
    assert updated(ranks) == updated(SCORES, TARGET)


def test_two_models():
    a, b = Ranks([1, 2, 1, 3, 1, 2], None, 50), Ranks([4, 2, 3, 9, 5, 8], None, 50)
    with pytest.warns(RankMetricWarning, match=r"'mrr' .*may be too narrow") as warned:
        assert compare(a, b, metric=["mrr"]).rows[0].difference > 0
    assert warned[0].filename == __file__
    with pytest.raises(TypeError, match=r"compare\(\).*'metrics'; did you mean 'metric'"):
        compare(a, b, metrics=["mrr"])
    with pytest.raises(TypeError, match=r"evaluate\(\).*'metric'; did you mean 'metrics'"):
        evaluate(a, metric="mrr")
    with pytest.raises(TypeError, match=r"a must be .*"):
        compare(object(), [2, 2, 4])
    with pytest.raises(TypeError, match=r"^permutations must be an int"):  # of a call that fits the error stays
        compare(a, b, permutations="many")
