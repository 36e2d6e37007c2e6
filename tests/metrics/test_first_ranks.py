"""first_mr and first_median_rank, and the warning that names a query metric where relevant items compete."""

import itertools
import warnings
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given

import reference_queries as exact
from fuzzing import cases
from query_metrics import sample_of
from torchrankmetrics import KnownTriples, RankCollection, RankMetricWarning, Ranks, RankTable, evaluate
from torchrankmetrics.definitions.tasks import MEAN_RANK, MEDIAN_RANK
from torchrankmetrics.metrics.analysis import query_counterpart
from torchrankmetrics.metrics.registry import parse_name
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION
from torchrankmetrics.queries import definitions as d
from torchrankmetrics.queries.sample import QuerySample

SHAPES = st.lists(st.integers(1, 8).flatmap(lambda N: st.tuples(st.just(N), st.integers(1, N))), min_size=1, max_size=4)


def median(values):
    ordered = sorted(values)
    return Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)


@cases(25, 1000)
@given(SHAPES)
@example([(1, 1), (6, 1), (6, 1), (6, 1)])  # a variable with p = 1/2 at the point -1 of the contour
def test_moments_of_the_median_are_those_of_all_outcomes(shapes):
    """Those of the mean are among the others of test_queries_null.py."""
    firsts = [[min(ranks) for ranks in exact.outcomes(N, m)] for N, m in shapes]
    counts = [{r: ranks.count(r) for r in ranks} for ranks in firsts]
    distribution = {}  # of the value, from the counts of first ranks
    for outcome in itertools.product(*counts):
        times = np.prod([count[r] for count, r in zip(counts, outcome, strict=True)], dtype=object)
        distribution[median(outcome)] = distribution.get(median(outcome), 0) + times
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
    middle = [Fraction(a + b, 2) for a, b in zip(low, high, strict=True)]
    for rank_type, ranks in {"optimistic": low, "pessimistic": high, "realistic": middle}.items():
        assert d.FIRST_MEDIAN_RANK.value(sample_of(*queries), rank_type) == float(median(ranks))


@pytest.mark.parametrize("name", ["mr", "median_rank"])
def test_with_one_relevant_item_they_are_the_task_metrics(name):
    generator = torch.Generator().manual_seed(0)
    for size in (1, 2, 7, 40):
        scores = torch.randint(0, 9, (size, 30), generator=generator).float()  # with ties
        target = torch.randint(0, 30, (size,), generator=generator)
        exclude = torch.rand(size, 30, generator=generator) < 0.3
        views = ["base", "normalized", "adjusted_index", "z_score", *(["p_value"] if name == "mr" else [])]
        for rank_type in ("realistic", "optimistic", "pessimistic"):
            some = views[:-1] if rank_type == "optimistic" else views
            of_tasks, of_queries = (
                evaluate(scores, target, [one], exclude=exclude, views=some, rank_types=rank_type)
                for one in (name, f"first_{name}")
            )
            assert list(of_queries.values()) == pytest.approx(list(of_tasks.values()), rel=1e-12, nan_ok=True)
    N = np.array([3, 8, 8, 100, 1])
    definition, task = (d.FIRST_MEAN_RANK, MEAN_RANK) if name == "mr" else (d.FIRST_MEDIAN_RANK, MEDIAN_RANK)
    got, want = definition.null_moments(QuerySample.of_counts(N, 1)), DEFAULT_EXPECTATION.moments(task, N)
    assert (got.mean, got.variance) == pytest.approx((want.mean, want.variance), rel=1e-13)


def retrieval(images=40, captions=5):
    generator = torch.Generator().manual_seed(0)
    image_of = torch.arange(images).repeat_interleave(captions)
    vectors = torch.randn(images, 12, generator=generator)
    texts = vectors[image_of] + 1.5 * torch.randn(len(image_of), 12, generator=generator)
    return vectors @ texts.T, torch.arange(len(image_of)).view(-1, captions).tolist(), image_of


SCORES, CAPTIONS, IMAGE_OF = retrieval()


def warnings_of(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in found if issubclass(one.category, RankMetricWarning)]


def test_task_metrics_name_the_query_metric_where_relevant_items_compete():
    counterparts = {"mr": "first_mr", "hits@10": "success_at_10", "median_rank": "first_median_rank"}
    counterparts |= {"auc": "query_auc", "adjusted_mrr": "rr", "pessimistic_mr": "first_mr"}
    for name, instead in counterparts.items():
        metric = RankCollection([name])
        assert warnings_of(lambda metric=metric: metric.update(SCORES, CAPTIONS)) == []
        for call in (metric.compute, lambda name=name: evaluate(SCORES, CAPTIONS, [name])):
            (message,) = warnings_of(call)
            assert "relevant items of one query are candidates of each other (number of such queries: 40)" in message
            assert f"use {instead!r}" in message
        assert query_counterpart(parse_name(name).definition.name) == instead
    metric = RankCollection(["mrr"])  # an excluded relevant item competes with one that is not
    metric.update(torch.tensor([[0.1, 0.9, 0.8, 0.3]]), [[1, 3]], exclude=[[1]])
    (message,) = warnings_of(metric.compute)
    assert "number of such queries: 1" in message


def test_there_is_no_warning_where_relevant_items_are_excluded_or_alone():
    relevant = torch.zeros_like(SCORES, dtype=torch.bool)
    for row, columns in zip(relevant, CAPTIONS, strict=True):
        row[columns] = True
    assert warnings_of(lambda: evaluate(SCORES, CAPTIONS, exclude=relevant)) == []
    assert warnings_of(lambda: evaluate(SCORES.T, IMAGE_OF)) == []
    assert warnings_of(lambda: evaluate(SCORES.T, IMAGE_OF, query=torch.arange(200))) == []
    triples = torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 2]])
    known = KnownTriples(triples, num_entities=3)
    queries, pairs = known.queries(triples, "tail")
    filtered = known.tails(*queries.T)
    assert warnings_of(lambda: evaluate(torch.rand(2, 3), tuple(pairs), exclude=filtered)) == []
    assert warnings_of(lambda: evaluate(Ranks([1, 1], None, 5, filtered=True), query=0)) == []
    assert len(warnings_of(lambda: evaluate(Ranks([1, 2], None, 5, filtered=False), query=0))) == 1


@pytest.mark.filterwarnings("ignore:relevant items of one query")
def test_parts_of_a_query_are_found_after_merge_and_files(tmp_path):
    first, second = RankCollection(["mrr"]), RankCollection(["mrr"])
    for metric, place in ((first, 0), (second, 1)):
        metric.update(SCORES, [columns[place] for columns in CAPTIONS], query=torch.arange(40))
        assert warnings_of(metric.compute) == []
    first.merge_state(second)
    assert len(warnings_of(first.compute)) == 1
    first.table().save(tmp_path / "ranks.npz")
    loaded = RankTable.load(tmp_path / "ranks.npz")
    assert len(warnings_of(lambda: evaluate(loaded, metrics=["mrr"]))) == 1
