"""Inputs at the limits of a dtype, and arrays that are written to after they were passed or returned."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import reference
from ranking_problems import flagged_lines
from reference import Task
from torchrankmetrics import (
    KnownTriples,
    RankCollection,
    RankMetric,
    Ranks,
    RankTable,
    compare,
    evaluate,
    rank_embeddings,
    rank_scores,
)
from torchrankmetrics.definitions import candidates as candidates_module
from torchrankmetrics.definitions.candidates import CandidateCounts
from torchrankmetrics.kg import KnownAnswers, relation_categories
from torchrankmetrics.metrics.registry import parse_name
from torchrankmetrics.null import MonteCarloExpectation
from torchrankmetrics.ranking import RankAccumulator, ranks as ranks_module


def collection(ranks, *names, candidates=50, **columns):
    metric = RankCollection(list(names) or ["mr", "count"])
    metric.update(Ranks(ranks, None, candidates), **columns)
    return metric


class TestTasksWithoutWeight:
    def test_a_repeat_without_weight_does_not_replace_its_task(self):
        metric = collection([7], weight=[1.0], sample_id=[5])
        metric.update(Ranks([2, 9], None, 50), weight=[0.0, 1.0], sample_id=[5, 6])
        assert {key: value.item() for key, value in metric.compute().items()} == {"mr": 8, "count": 2}
        assert len(metric.table()) == 2

    @pytest.mark.filterwarnings("ignore:the interval of:torchrankmetrics.RankMetricWarning")
    def test_such_tasks_are_left_out_of_pairs_with_their_cluster_keys(self):
        ids, weight = [5, 5, 6, 7, 8], [0.0, 1, 1, 1, 1]
        a = RankTable.from_ranks(Ranks([1, 4, 2, 3, 9], None, 50), weight=weight, sample_id=ids)
        b = RankTable.from_ranks(Ranks([9, 1, 2, 1, 3], None, 50), weight=weight, sample_id=ids)
        with_them = compare(a, b, "mr", cluster=[9, 0, 0, 1, 2])
        kept = [RankTable(table.rows[1:]) for table in (a, b)]
        assert with_them == compare(*kept, "mr", cluster=[0, 0, 1, 2])


class TestReturnedArrays:
    def test_writing_to_a_table_leaves_the_metric(self):
        metric = collection([3, 1], "mr")
        metric.table().rows.fill_(1)
        assert metric.compute()["mr"] == 2

    def test_writing_to_arrays_of_a_table_leaves_the_table(self):
        table = collection([3, 1], "mr", weight=[2.0, 1.0]).table()
        for array in table.to_numpy().values():
            array.fill(9)
        assert table.rows[:, 0].tolist() == [1, 3]
        assert table.weight.tolist() == [1, 2]

    def test_candidate_counts_cannot_be_written(self):
        given = np.array([3, 5])
        counts = CandidateCounts.of(given)
        with pytest.raises(ValueError, match="read-only"):
            counts.num_candidates[0] = 1
        given[0] = 1
        assert counts.num_candidates.tolist() == [3, 5]

    def test_an_accumulator_copies_its_arguments(self):
        scores = torch.tensor([[3.0, 1, 2, 4], [1.0, 2, 3, 0]])
        mask = torch.zeros(2, 4).bool()
        mask[0, 3] = True
        for exclude in (mask, mask[1], mask.nonzero().T.repeat(1, 2)):
            given = [torch.tensor([0, 1]), scores[[0, 1], [0, 1]], exclude.clone()]
            ranks = RankAccumulator(given[1], given[0], (2, 4), exclude=given[2])
            for chunk in scores.split(2, dim=1):
                ranks.update(chunk)
                for tensor in given:
                    tensor.fill_(1)
            expected = rank_scores(scores, torch.tensor([0, 1]), exclude=exclude)
            assert flagged_lines(ranks.compute()) == flagged_lines(expected)


class TestLargeNumbers:
    def test_ranks_near_the_limit_are_added_exactly(self):
        most = 2**62 - 1
        assert evaluate(Ranks([most - 2], [most], most), metrics=["mr"])["mr"] == float(most - 1)
        assert ranks_module._MOST == candidates_module.MOST_CANDIDATES == most

    @pytest.mark.parametrize(
        "call",
        [
            lambda: evaluate([1], num_candidates=2**62),
            lambda: evaluate([1], num_candidates=2**80),
            lambda: evaluate([1], num_candidates=[2**62]),
            lambda: MonteCarloExpectation(10).moments(RankCollection(["mr"])["mr"].definition, [2**62]),
        ],
    )
    def test_too_many_candidates_raise(self, call):
        with pytest.raises(ValueError, match=r"num_candidates.*below 2\^62"):
            call()

    @pytest.mark.parametrize("given", [[2**64 - 1], [1e19], [2.0**62], [2**62]])
    def test_ranks_beyond_int64_raise(self, given):
        with pytest.raises(ValueError, match=r"ranks.*(2\^63|2\^62|4611686018427387903)"):
            evaluate(given)

    @pytest.mark.parametrize("name", ["group", "sample_id"])
    @pytest.mark.parametrize("bad", [2**63, 2**64 - 1])
    def test_ids_beyond_int64_raise(self, name, bad):
        for ids in (np.array([bad], dtype=np.uint64), torch.from_numpy(np.array([bad], dtype=np.uint64))):
            with pytest.raises(ValueError, match=rf"{name} must be below 2\^63, got {bad}"):
                collection([1], **{name: ids})

    def test_ids_of_uint64_within_int64_are_taken(self):
        ids = torch.tensor([2**63 - 1, 7], dtype=torch.uint64)
        assert collection([1, 2], sample_id=ids).table().sample_id.tolist() == [7, 2**63 - 1]

    @pytest.mark.parametrize(
        ("call", "name"),
        [
            (lambda big: collection([1], group=2**63), "group"),
            (lambda big: collection([1], group=-(2**63) - 1), "group"),
            (lambda big: KnownAnswers(big, [1]), "queries"),
            (lambda big: KnownAnswers([1], [1])(big), "queries"),
            (lambda big: KnownTriples(big[:, None].repeat(1, 3)), r"triples\[0\]"),
            (lambda big: collection([1, 2]).confidence_intervals(cluster=big), "cluster"),
        ],
    )
    def test_other_ids_beyond_int64_raise(self, call, name):
        with pytest.raises(ValueError, match=f"{name} must"):
            call(torch.from_numpy(np.array([2**63 + 1], dtype=np.uint64)))

    def test_arrays_of_any_byte_order_are_read(self):
        for dtype in (">i8", "<i8", ">u4", np.longlong, np.ulonglong):
            assert collection(np.array([2, 4], dtype=dtype)).compute()["mr"] == 3
        assert evaluate(np.array([1.5, 2.5], dtype=">f8"), metrics=["mr"]) == {"mr": 2.0}

    def test_counts_of_tasks_beyond_int64_raise(self):
        with pytest.raises(ValueError, match=r"count must sum to less than 2\^63"):
            CandidateCounts.of([3, 4], count=[2**62, 2**62])
        table = RankTable.from_numpy({"optimistic": [1, 1], "num_candidates": 3, "count": 2**62})
        with pytest.raises(ValueError, match=r"counts.*2\^63"):
            evaluate(table)

    @pytest.mark.parametrize(
        ("value", "error"),
        [(2.5, TypeError), (True, TypeError), ("3", TypeError), (-1, ValueError), (2**64, ValueError)],
    )
    def test_numbers_of_things_are_integers(self, value, error):
        with pytest.raises(error, match="num_entities must be"):
            KnownTriples(num_entities=value)
        with pytest.raises(error, match="num_relations must be"):
            relation_categories(np.empty((0, 3), dtype=int), num_relations=value)
        assert KnownTriples(num_entities=np.int32(4)).num_entities == 4


WEIGHTS = {
    "huge": [1e308, 1.5e308, 1e308, 3e307],
    "subnormal": [5e-324, 1.5e-323, 1e-323, 2e-323],
    "huge and usual": [1e308, 1e308, 1.0, 3.0],
    "subnormal and usual": [5e-324, 1.5e-323, 1.0, 3.0],
}


class TestExtremeWeights:
    """Any weights that float64 holds, against Fractions."""

    @pytest.mark.parametrize("average", ["micro", "macro"])
    @pytest.mark.parametrize("weights", WEIGHTS)
    @pytest.mark.parametrize("name", ["mr", "mrr", "median_rank", "rank_variance", "gmr", "count"])
    def test_values(self, name, weights, average):
        if name == "median_rank" and "usual" in weights:
            pytest.skip("a share of the weight within 1e-12 of one half counts as one half")
        weights, ranks, groups = WEIGHTS[weights], [2, 9, 4, 30], [0, 0, 1, 1]
        tasks = [
            Task(rank, rank, 50, Fraction(weight), group)
            for rank, weight, group in zip(ranks, weights, groups, strict=True)
        ]
        metric = RankMetric(parse_name(name).definition, average=average)
        metric.update(Ranks(ranks, None, 50), weight=weights, group=groups)
        assert metric.compute().item() == pytest.approx(reference.value(name, tasks, average=average), rel=1e-12)

    @pytest.mark.parametrize("weights", WEIGHTS)
    def test_moments(self, weights):
        weights = WEIGHTS[weights]
        tasks = [Task(1, 1, n, Fraction(weight)) for n, weight in zip([3, 5, 4, 7], weights, strict=True)]
        counts = CandidateCounts.of([3, 5, 4, 7], weights)
        expected = reference.moments("mr", tasks)
        got = RankCollection(["mr"])["mr"].expectation.moments(RankCollection(["mr"])["mr"].definition, counts)
        assert (got.mean, got.variance) == pytest.approx(expected, rel=1e-12)


def test_the_own_column_is_left_out_however_its_score_was_rounded():
    # computed apart, a true score may differ from the cell of the matrix in its last digit
    scores = torch.tensor([[0.0, 1.0, 2.0, math.nan]]).repeat(3, 1)
    for backend in ("torch", "auto"):
        ranks = RankAccumulator(torch.tensor([0.9, 1.1, math.nan]), torch.tensor([1, 1, 1]), (3, 4), backend=backend)
        ranks.update(scores)
        assert flagged_lines(ranks.compute()) == [(3, 3, 4, True), (3, 3, 4, True), (4, 4, 4, True)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("similarity", ["l2", "l1", "cosine"])
def test_embeddings_in_half_precision_are_ranked_exactly(dtype, similarity):
    # squares of 240 add up to far more than 65504, the largest half; all numbers here are exact in every dtype
    candidates = 224 * torch.eye(5, 8) + 16 * torch.ones(5, 8) * torch.arange(5)[:, None]
    queries = candidates[[0, 3]].to(dtype)
    target = torch.tensor([0, 3])
    wide = rank_embeddings(queries.double(), candidates.to(dtype).double(), target, similarity=similarity)
    ranks = rank_embeddings(queries, candidates.to(dtype), target, similarity=similarity)
    assert ranks.optimistic.tolist() == ranks.pessimistic.tolist() == wide.optimistic.tolist()
    assert ranks.optimistic.tolist() == [1, 1] or similarity == "cosine"


@pytest.mark.parametrize("made_inside", [False, True])
def test_an_accumulator_outlives_inference_mode(made_inside):
    scores, target = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([2])
    with torch.inference_mode(made_inside):
        ranks = RankAccumulator(scores[:, 2], target, (1, 3), exclude=torch.tensor([[0], [0]]))
        ranks.update(scores[:, :2])
    with torch.inference_mode(not made_inside):
        ranks.update(scores[:, 2:])
    assert flagged_lines(ranks.compute()) == [(2, 2, 2, False)]


def test_a_negated_weight_is_read_as_its_value():
    weight = torch.complex(torch.zeros(2, dtype=torch.float64), torch.tensor([-1.0, -3.0], dtype=torch.float64))
    assert collection([1, 5], weight=weight.conj().imag).compute()["mr"] == 4
