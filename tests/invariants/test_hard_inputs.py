"""Inputs at the limits of a dtype; arrays written to after they were passed or returned."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch

import reference
from ranking_problems import flagged_lines
from reference import Task
from torchrankmetrics import RankCollection, Ranks, RankTable, compare, evaluate, rank_embeddings
from torchrankmetrics.definitions.sample import CandidateCounts
from torchrankmetrics.definitions.tasks import MEAN_RANK
from torchrankmetrics.null import MonteCarloExpectation
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.ranking import RankAccumulator


@pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")
def test_tasks_without_weight_are_left_out_of_pairs_with_their_cluster_keys():
    ids, weight = [5, 5, 6, 7, 8], [0.0, 1, 1, 1, 1]
    a = RankTable.from_ranks(Ranks([1, 4, 2, 3, 9], None, 50), weight=weight, sample_id=ids)
    b = RankTable.from_ranks(Ranks([9, 1, 2, 1, 3], None, 50), weight=weight, sample_id=ids)
    with_them = compare(a, b, "mr", cluster=[9, 0, 0, 1, 2])
    assert with_them == compare(
        *[RankTable(table.rows[1:]) for table in (a, b)], "mr", cluster=[0, 0, 1, 2]
    )


def test_ranks_near_the_limit_are_added_exactly():
    most = 2**62 - 1
    assert evaluate(Ranks([most - 2], [most], most), metrics=["mr"])["mr"] == float(most - 1)


@pytest.mark.parametrize(
    "call",
    [
        *(lambda N=N: evaluate([1], num_candidates=N) for N in (2**62, 2**80, [2**62])),
        lambda: MonteCarloExpectation(10).moments(MEAN_RANK, [2**62]),
    ],
)
def test_too_many_candidates_raise(call):
    with pytest.raises(ValueError, match=r"num_candidates.*below 2\^62"):
        call()


@pytest.mark.parametrize("name", ["group", "sample_id"])
@pytest.mark.parametrize("bad", [2**63, 2**64 - 1])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_ids_beyond_int64_raise(name, bad, convert):
    ids = convert(np.array([bad], dtype=np.uint64))
    with pytest.raises(ValueError, match=rf"{name} must be below 2\^63, got {bad}"):
        RankCollection(["mr"]).update(Ranks([1], None, 50), **{name: ids})


def test_counts_of_tasks_beyond_int64_raise():
    with pytest.raises(ValueError, match=r"count must sum to less than 2\^63"):
        CandidateCounts.of([3, 4], count=[2**62, 2**62])
    table = RankTable.from_numpy({"optimistic": [1, 1], "num_candidates": 3, "count": 2**62})
    with pytest.raises(ValueError, match=r"counts.*2\^63"):
        evaluate(table)


WEIGHTS = {
    "huge": [1e308, 1.5e308, 1e308, 3e307],
    "subnormal": [5e-324, 1.5e-323, 1e-323, 2e-323],
    "huge and usual": [1e308, 1e308, 1.0, 3.0],
    "subnormal and usual": [5e-324, 1.5e-323, 1.0, 3.0],
}


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_values_under_extreme_weights(weights, average):
    # a share of the weight within 1e-12 of one half counts as one half
    names = [
        "mr",
        "mrr",
        "rank_variance",
        "gmr",
        "count",
        *([] if "usual" in weights else ["median_rank"]),
    ]
    weights, ranks, groups = WEIGHTS[weights], [2, 9, 4, 30], [0, 0, 1, 1]
    rows = zip(ranks, map(Fraction, weights), groups, strict=True)
    tasks = [Task(rank, rank, 50, weight, group) for rank, weight, group in rows]
    metrics = RankCollection(names, average=average)
    metrics.update(Ranks(ranks, None, 50), weight=weights, group=groups)
    for name, value in zip(names, metrics.compute().values(), strict=True):
        assert value.item() == pytest.approx(
            reference.value(name, tasks, average=average), rel=1e-12
        ), name


@pytest.mark.parametrize("weights", WEIGHTS)
def test_moments_under_extreme_weights(weights):
    weights = WEIGHTS[weights]
    tasks = [
        Task(1, 1, n, Fraction(weight)) for n, weight in zip([3, 5, 4, 7], weights, strict=True)
    ]
    counts = CandidateCounts.of([3, 5, 4, 7], weights)
    assert not pickle.loads(pickle.dumps(counts)).weight.flags.writeable
    got = DEFAULT_EXPECTATION.moments(MEAN_RANK, counts)
    assert (got.mean, got.variance) == pytest.approx(reference.moments("mr", tasks), rel=1e-12)


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_the_own_column_is_left_out_however_its_score_was_rounded(backend):
    # computed apart, a true score may differ from the cell of the matrix in its last digit
    scores = torch.tensor([[0.0, 1.0, 2.0, math.nan]]).repeat(3, 1)
    ranks = RankAccumulator(
        torch.tensor([0.9, 1.1, math.nan]), torch.tensor([1, 1, 1]), (3, 4), backend=backend
    )
    ranks.update(scores)
    assert flagged_lines(ranks.compute()) == [(3, 3, 4, True), (3, 3, 4, True), (4, 4, 4, True)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_embeddings_in_half_precision_are_ranked_exactly(dtype, similarity):
    # squares of 240 add up to far more than 65504, the largest half; all numbers here are exact in
    # every dtype
    candidates = 224 * torch.eye(5, 8) + 16 * torch.ones(5, 8) * torch.arange(5)[:, None]
    queries = candidates[[0, 3]].to(dtype)
    target = torch.tensor([0, 3])
    wide = rank_embeddings(
        queries.double(), candidates.to(dtype).double(), target, similarity=similarity
    )
    ranks = rank_embeddings(queries, candidates.to(dtype), target, similarity=similarity)
    assert ranks.optimistic.tolist() == ranks.pessimistic.tolist() == wide.optimistic.tolist()
    assert ranks.optimistic.tolist() == [1, 1] or similarity == "cosine"


@pytest.mark.parametrize("made_inside", [False, True])
def test_an_accumulator_outlives_inference_mode(made_inside):
    scores, target = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([2])
    with torch.inference_mode(made_inside):
        ranks = RankAccumulator(scores[:, 2], target, (1, 3), exclude=[[0]])
        ranks.update(scores[:, :2])
    with torch.inference_mode(not made_inside):
        ranks.update(scores[:, 2:])
    assert flagged_lines(ranks.compute()) == [(2, 2, 2, False)]
