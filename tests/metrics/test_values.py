"""Base values and views of every definition against the exact reference.

Views also by `adjust`, from the base value alone.
"""

import math
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import reference
import reference_queries
from reference import METRIC_VIEWS, METRICS, Task
from scripts import ROOT
from torchrankmetrics import (
    RankCollection,
    RankDefinition,
    RankMetricWarning,
    Ranks,
    adjust,
    evaluate,
)
from torchrankmetrics.definitions.sample import Moments, RankSample
from torchrankmetrics.metrics import registry
from torchrankmetrics.metrics.names import parse_name
from torchrankmetrics.null import ExactExpectation


@st.composite
def task_lists(draw, most=8, candidates=9, widest=None):
    """Tasks with ties (half-integer realistic ranks), groups, and weights exact in binary or 0."""
    tasks = []
    for _ in range(draw(st.integers(1, most))):
        n = draw(st.integers(1, candidates))
        low = draw(st.integers(1, n))
        high = draw(st.integers(low, n if widest is None else min(n, low + widest)))
        weight = Fraction(draw(st.sampled_from([0, 1, 1, 1, 2, 3, 6])), 8)
        tasks.append(Task(low, high, n, weight, draw(st.integers(0, 2))))
    if all(task.weight == 0 for task in tasks):
        tasks[0] = Task(tasks[0].optimistic, tasks[0].pessimistic, tasks[0].num_candidates)
    return tasks


def computed(metrics, tasks, average="micro", **options):
    """Values of the tasks, in one update."""
    collection = RankCollection(metrics, average=average, **options)
    fields = ("optimistic", "pessimistic", "num_candidates", "weight", "group")
    low, high, N, weight, group = ([getattr(task, field) for task in tasks] for field in fields)
    collection.update(Ranks(low, high, N), weight=[float(x) for x in weight], group=group)
    with warnings.catch_warnings(action="ignore"):
        return {key.replace("macro_", ""): float(x) for key, x in collection.compute().items()}


@pytest.mark.parametrize("average", ["micro", "macro"])
@given(tasks=task_lists())
@settings(max_examples=20, deadline=None)
def test_base_values(average, tasks):
    names = [*METRICS, "count", "tie_rate"]
    for rank_type in ("realistic", "optimistic", "pessimistic"):
        values = computed(names, tasks, average, rank_types=[rank_type])
        for name in names:
            key = name if rank_type == "realistic" else f"{rank_type}_{name}"
            want = reference.value(name, tasks, rank_type, average)
            assert values[key] == pytest.approx(want, rel=1e-12, abs=1e-15, nan_ok=True), name


@pytest.mark.parametrize("average", ["micro", "macro"])
@given(tasks=task_lists(most=4, widest=4))
@settings(max_examples=15, deadline=None)
def test_expected_values_over_all_tie_orders(average, tasks):
    names = [name for name, metric in METRICS.items() if metric.expected]
    values = computed(names, tasks, average, rank_types=["expected"])
    for name in names:
        want = reference.value(name, tasks, "expected", average)
        assert values[f"expected_{name}"] == pytest.approx(want, rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize("average", ["micro", "macro"])
@given(tasks=task_lists(most=4, candidates=4))
@settings(max_examples=8, deadline=None)
def test_views(average, tasks):
    values = computed(list(METRICS), tasks, average, views=reference.VIEWS)
    moments = {name: reference.moments(name, tasks, average) for name in METRICS}
    for name, view in METRIC_VIEWS:
        want = reference.view(
            name, view, reference.value(name, tasks, "realistic", average), moments[name]
        )
        got = values[reference.key(name, view)]
        assert got == pytest.approx(want, rel=1e-8, abs=1e-10, nan_ok=True), (name, view)


def test_every_metric_has_a_reference_and_a_row_in_the_docs():
    references = " ".join([*METRICS, *reference_queries.NAMES])
    names = {entry.name for entry in registry.METRICS}
    without = {name for name in names if not re.search(rf"\b{name}(_|\b)", references)}
    # the last four are in tests/queries
    assert without == {"count", "tie_rate", "dcg", "ndcg_exp", "rbp", "first_median_rank"}
    pages = "".join(
        (ROOT / "docs" / f"{page}.md").read_text() for page in ("metrics", "mathematics")
    )
    assert not [name for name in registry.all_names() if f"`{name}`" not in pages]


@pytest.mark.parametrize("name", METRICS)
def test_large_ranks_and_many_tasks(name):
    # 3000 tasks among a million candidates, as a histogram of few distinct ones: no loss of digits
    random = np.random.default_rng(0)
    ranks = random.integers(1, 1_000_000, 30)
    count = random.integers(1, 200, 30)
    sample = RankSample(ranks, ranks, np.full(30, 1_000_000), count=count)
    total = int(count.sum())
    shares = [Fraction(int(c), total) for c in count]
    want = METRICS[name].value([Fraction(int(r)) for r in ranks], shares, [1_000_000] * 30)
    assert parse_name(name).definition.value(sample) == pytest.approx(float(want), rel=1e-13)


@pytest.mark.parametrize(
    ("weights", "want"),
    [
        ([1, 1, 2], 4.0),
        ([1, 2, 1], 3.0),
        ([3, 1, 1], 1.0),
        ([1, 1, 3], 5.0),
        ([1, 0, 1], 3.0),
    ],
    ids=str,
)
def test_weighted_median_splits_where_the_weight_is_exactly_half(weights, want):
    tasks = [Task(r, r, 9, Fraction(w)) for r, w in zip([1, 3, 5], weights, strict=True)]
    assert reference.value("median_rank", tasks) == want
    assert computed(["median_rank"], tasks)["median_rank"] == want


def test_half_of_the_weight_is_meant_up_to_rounding():
    # a tenth ten times is not 1 in binary: half is meant to 1e-12
    tasks = [Task(r, r, 99, Fraction(1, 10)) for r in range(1, 11)]
    assert computed(["median_rank"], tasks)["median_rank"] == 5.5


RANKS = [1, 4, 2, 9, 1, 30, 3, 3]
COUNTS = [40, 40, 38, 14, 35, 40, 12, 31]
MEANS = ["mr", "mrr", "auc", "hits_at_1", "hits_at_10", "imr", "hmr", "gmr", "igmr"]


@pytest.mark.parametrize("view", ["adjusted_index", "normalized", "z_score", "p_value"])
@pytest.mark.parametrize("name", MEANS)
def test_values_are_those_of_a_collection_of_the_ranks(name, view):
    base = evaluate(RANKS, COUNTS, [name])[name]
    ((_, expected),) = evaluate(RANKS, COUNTS, [name], views=[view]).items()
    assert adjust(base, name, COUNTS, view=view) == pytest.approx(expected, rel=1e-9)


# Berrendorf et al. 2020 (arXiv 2002.06914), table 1: filtered MR and AMRI in percent, as printed
TABLE_1 = {
    "wn18rr": [
        (7000, "65.8"),
        (4412, "78.4"),
        (2289, "88.8"),
        (2126, "89.6"),
        (6254, "69.4"),
        (2448, "88.0"),
    ],
    "fb15k237": [
        (500, "93.0"),
        (241, "96.6"),
        (317, "95.6"),
        (219, "97.0"),
        (540, "92.5"),
        (167, "97.7"),
    ],
}


def test_amri_of_berrendorf_et_al_are_those_of_filtered_candidates_not_of_all_entities():
    for graph, models in TABLE_1.items():
        assert [f"{100 * adjust(rank, 'mr', graph):.1f}" for rank, _ in models] == [
            printed for _, printed in models
        ]
    by_entities = [f"{100 * adjust(rank, 'mr', 14_541):.1f}" for rank, _ in TABLE_1["fb15k237"]]
    assert (
        sum(
            got != printed
            for got, (_, printed) in zip(by_entities, TABLE_1["fb15k237"], strict=True)
        )
        == 4
    )


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("0.355", "0.3545", "0.3555"),
        ("0.40", "0.395", "0.405"),
        ("0.4", "0.35", "0.45"),
        ("4e-1", "0.35", "0.45"),
    ],
)
def test_rounding_leaves_half_a_unit_of_the_last_digit(text, low, high):
    found = adjust(text, "mrr", COUNTS)
    expected = tuple(adjust(float(x), "mrr", COUNTS) for x in (low, text, high))
    assert (found.rounding_low, found.value, found.rounding_high) == pytest.approx(expected)
    assert float(found) == found.value
    assert str(found).startswith(f"{found.value:.4f} (rounding: ")


@pytest.mark.parametrize("name", ["mrr", "hits_at_1", "hits_at_10", "auc", "mr"])
@pytest.mark.parametrize("view", ["adjusted_index", "normalized", "z_score"])
@pytest.mark.parametrize("exponent", [1, 7], ids=["uniform ranks", "low ranks"])
def test_sampling_bounds_the_normal_interval_of_any_ranks_with_that_mean(exponent, name, view):
    random = np.random.default_rng(exponent)
    counts = random.integers(20, 60, 100)
    ranks = np.ceil(counts * random.random(100) ** exponent).astype(int)
    base = evaluate(ranks, counts, [name])[name]
    digits = f"{base:.12f}"
    f = {"mrr": 1 / ranks, "mr": ranks, "auc": (counts - ranks) / (counts - 1)}.get(name)
    f = (ranks <= int(name.rpartition("_")[2])).astype(float) if f is None else f
    slope = (
        adjust(base, name, counts, view=view) - adjust(base + 1e-3, name, counts, view=view)
    ) / 1e-3
    half = 1.959963984540054 * abs(slope) * f.std() / math.sqrt(100)
    found = adjust(digits, name, counts, view=view).sampling
    assert found >= half * (1 - 1e-6)
    if name.startswith("hits"):
        assert found == pytest.approx(half, rel=1e-6)


def test_sampling_is_unknown_without_tasks_and_for_p_values():
    assert math.isnan(adjust("0.4", "mrr", 40).sampling)  # of how many tasks is not known
    assert math.isnan(adjust("0.4", "mrr", COUNTS, view="p_value").sampling)


def test_own_metrics_and_expectations_are_accepted():
    dcg = RankDefinition("dcg", f=lambda r: 1 / (1 + r).log2())
    mean = np.mean([np.mean(1 / np.log2(1 + np.arange(1, n + 1))) for n in COUNTS])
    assert adjust(0.6, dcg, COUNTS) == pytest.approx((0.6 - mean) / (1 - mean))
    plain = adjust(0.4, "mrr", COUNTS, view="z_score")

    class Doubled(ExactExpectation):
        def moments(self, definition, counts, weight=None):
            exact = super().moments(definition, counts, weight)
            return Moments(exact.mean, 4 * exact.variance)

    assert adjust(0.4, "mrr", COUNTS, view="z_score", expectation=Doubled()) == pytest.approx(
        plain / 2
    )


def test_zero_variance_under_the_null_is_nan_with_a_warning():
    with pytest.warns(RankMetricWarning, match="adjusted_hits_at_10 is undefined"):
        assert math.isnan(adjust(1.0, "hits@10", [5, 9, 10]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((35.5, "mrr", COUNTS), {}, r"in \[0.0\d+, 1\].*\(as a share, not in percent\)"),
        ((41, "mr", 40), {}, r"in \[1, 40\]"),
        ((0.9, "amri", 40), {}, "must be a base metric, such as 'mr'"),
        ((0.3, "mrr", 40), {"view": "z_score"}, "one count per task for 'mrr' with view='z_score'"),
        ((0.3, "mmr", 40), {}, "did you mean"),
        (("a third", "mrr", 40), {}, "digits such as"),
        ((math.nan, "mrr", 40), {}, "finite"),
        ((2.0, "rank_std", COUNTS), {}, "no meaning"),
        ((0.3, "mrr", []), {}, "num_candidates is empty"),
        (("54.3%", "Hits@10", "FB15k-237"), {}, "not in percent"),
        (("0.355", "MRR"), {"dataset": "FB15k-237"}, "did you mean 'num_candidates'"),
        (("0.355", "MRR", "FB15k"), {}, "KnownTriples.num_candidates` counts others"),
        (("0.355", "MRR", "FB15k-273"), {}, "fb15k237"),
    ],
)
def test_impossible_values_raise(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        adjust(*arguments, **options)
