"""Expectation providers of users: both families of metrics honor them, or raise."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, RankMetric, Ranks, evaluate
from torchrankmetrics.datasets import PrecomputedExpectation
from torchrankmetrics.definitions import Moments
from torchrankmetrics.null import ExactExpectation, MonteCarloExpectation

FAMILIES = ["mrr", "median_rank", "rr", "ndcg_at_10", "ap", "first_median_rank"]
generator = torch.Generator().manual_seed(0)
PREDS = torch.rand(30, 25, generator=generator)
LABELS = torch.randint(-6, 4, (30, 25), generator=generator).clamp_min(0).float()
LABELS[:, 0] = 2
pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query")


class Fixed:
    def __init__(self, found: Any, served: Callable[[Any], bool] = lambda definition: True) -> None:
        self.found = found
        self.supports = served

    def moments(self, definition: Any, counts: Any, weight: Any = None) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_provider_is_used_by_both_families(name: str) -> None:
    base = evaluate(PREDS, LABELS, [name])[name]
    about = {"views": ["z_score", "normalized"], "expectation": Fixed(Moments(0.25, 4.0))}
    found = list(evaluate(PREDS, LABELS, [name], **about).values())
    sign = 1 if RankMetric(name).higher_is_better else -1
    assert found == pytest.approx([sign * (base - 0.25) / 2, base / 0.25])
    about["expectation"] = Fixed(RuntimeError("called"))
    with pytest.raises(RuntimeError, match="called"):
        evaluate(PREDS, LABELS, [name], **about)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_provider_needs_no_best_value(name: str) -> None:
    class WithoutBest(ExactExpectation):
        def moments(self, *args: Any) -> Moments:
            return replace(super().moments(*args), optimum=None)

    both = [
        evaluate(PREDS, LABELS, [name], views=["adjusted_index"], expectation=provider)
        for provider in (None, WithoutBest())
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_provider_that_does_not_serve_a_metric_raises(name: str) -> None:
    nothing = Fixed(Moments(0.0, 1.0), lambda definition: False)
    with pytest.raises(ValueError, match=rf"'{name}' has no moments from expectation=.*None for"):
        RankMetric(name, view="z_score", expectation=nothing)
    assert RankMetric(name, expectation=nothing).key == name  # the base value needs none
    collection = RankCollection([name], expectation=nothing)
    collection.update(PREDS, LABELS)
    row = collection.summary().rows[0]
    assert math.isnan(row.index)
    assert math.isnan(row.z)


@pytest.mark.parametrize("name", ["z_mrr", "z_rr"])
@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((1.0, 2.0), r"must return Moments\(mean, variance\).* got \(1.0, 2.0\)"),
        (None, r"must return Moments\(mean, variance\).* got None"),
        (Moments(0.0, -1.0), "must have a variance of at least 0, got -1.0"),
    ],
)
def test_moments_of_a_provider_are_checked(name: str, found: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        evaluate(PREDS, LABELS, [name], expectation=Fixed(found))


class OnlyMoments:
    def moments(self, definition: Any, counts: Any, weight: Any = None) -> Moments:
        return Moments(0.0, 1.0)


class OnlySupports:
    def supports(self, definition: Any) -> bool:
        return True


@pytest.mark.parametrize("name", ["mrr", "rr"])
@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (OnlyMoments(), r"without supports\(definition\)"),
        (OnlySupports(), r"without moments\(definition, counts, weight\)"),
        (3, "got 3 without"),
        (MonteCarloExpectation, "an instance .* a class"),
    ],
)
def test_an_object_that_is_no_provider_is_named_with_what_it_lacks(
    name: Any, provider: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        RankMetric(name, view="z_score", expectation=provider)


@pytest.mark.parametrize("name", [*FAMILIES, "recall_at_5", "dcg_at_5", "first_mr", "query_auc"])
def test_monte_carlo_estimates_of_queries_are_near_the_exact_moments(name: str) -> None:
    numbers = {"num_candidates": [12, 40, 7, 40], "num_relevant": [3, 2, 5, 20]}
    if RankMetric(name).definition.of_tasks is not None:
        del numbers["num_relevant"]
    samples = 20_000
    exact = RankMetric(name).moments(**numbers)
    provider = MonteCarloExpectation(samples, seed=1)
    found = RankMetric(name, expectation=provider).moments(**numbers)
    deviation = exact.variance**0.5
    assert found.mean == pytest.approx(exact.mean, abs=5 * deviation / samples**0.5)
    assert found.variance == pytest.approx(exact.variance, rel=0.08)
    assert (found.optimum is None) == (exact.optimum is None)


def test_monte_carlo_draws_the_same_for_any_ranks_and_order_of_queries() -> None:
    provider = MonteCarloExpectation(200)
    names = ["ndcg_at_10", "rr", "first_median_rank"]
    found = []
    for preds, labels in ((PREDS, LABELS), (-PREDS.flip(0), LABELS.flip(0)), (0 * PREDS, LABELS)):
        collection = RankCollection(names, views="z_score", expectation=provider)
        collection.update(preds, labels)
        analysis = collection._synced_analysis()
        measures = collection.measures.values()
        found.append([one.moments(one.sample(analysis)) for one in measures])
    assert found[0] == found[1] == found[2]


def test_weights_and_graded_labels_reach_monte_carlo() -> None:
    weight = torch.arange(1.0, 31.0)
    views = {"views": ["z_score"], "weight": weight}
    names = ["ndcg_at_10", "rr", "dcg_at_3"]
    exact = evaluate(PREDS, LABELS, names, **views)
    found = evaluate(PREDS, LABELS, names, **views, expectation=MonteCarloExpectation(4000))
    assert found == pytest.approx(exact, abs=0.12)


@pytest.mark.parametrize("name", ["z_mrr", "z_rr"])
@pytest.mark.parametrize(
    "provider",
    [None, MonteCarloExpectation(10), Fixed(Moments(0.0, 1.0))],
    ids=["exact", "monte carlo", "fixed"],
)
def test_candidates_of_unknown_number_have_no_moments_from_any_provider(
    provider: Any, name: Any
) -> None:
    with pytest.raises(ValueError, match="num_candidates"):
        evaluate(Ranks([1, 2]), metrics=[RankMetric(name, expectation=provider)])


def test_stored_counts_of_tasks_do_not_serve_queries() -> None:
    stored = PrecomputedExpectation([9, 9])
    assert RankMetric("z_mrr", expectation=stored).moments([3]) == RankMetric("mrr").moments([9, 9])
    with pytest.raises(ValueError, match="'rr' has no moments from"):
        RankMetric("z_rr", expectation=stored)
    with pytest.raises(ValueError, match="metric of queries"):
        RankMetric("rr", expectation=stored).moments([9], num_relevant=[2])


def test_moments_of_counts_are_passed_as_one_class_for_each_family() -> None:
    seen = []

    class Seen(Fixed):
        def moments(self, definition: Any, counts: Any, weight: Any = None) -> Any:
            seen.append((type(counts).__name__, weight))
            assert definition.value(counts.at_random(np.random.default_rng(0))) > 0
            return super().moments(definition, counts)

    provider = Seen(Moments(0.5, 1.0))
    for name in ("mrr", "rr"):
        metric = RankMetric(name, view="z_score", expectation=provider)
        metric.moments([5, 6], weight=[1.0, 2.0])
        metric(PREDS, LABELS)
    assert seen == [("CandidateCounts", None)] * 2 + [("QuerySample", None)] * 2
