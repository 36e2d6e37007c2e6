"""Base values and views of every definition against the exact reference, along all routes of weights and rank types."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import reference
from reference import METRIC_VIEWS, METRICS, Task
from scripts import ROOT
from torchrankmetrics import RankCollection, Ranks
from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.definitions.tasks import RankDefinition
from torchrankmetrics.metrics import registry
from torchrankmetrics.metrics.registry import parse_name

RANK_TYPES = ("realistic", "optimistic", "pessimistic")


@st.composite
def task_lists(draw, most=8, candidates=9, widest=None):
    """Tasks with ties (so half-integer realistic ranks), weights with zeros that are exact in binary, and groups."""
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


def updated(metrics, tasks, average="micro", **options):
    """A collection that has seen the tasks, in one update."""
    collection = RankCollection(metrics, average=average, **options)
    collection.update(
        Ranks(
            torch.tensor([task.optimistic for task in tasks]),
            torch.tensor([task.pessimistic for task in tasks]),
            torch.tensor([task.num_candidates for task in tasks]),
        ),
        weight=[float(task.weight) for task in tasks],
        group=torch.tensor([task.group for task in tasks]),
    )
    return collection


def computed(metrics, tasks, average="micro", **options):
    values = updated(metrics, tasks, average, **options).compute()
    return {key.replace("macro_", ""): float(x) for key, x in values.items()}


@pytest.mark.parametrize("average", ["micro", "macro"])
@given(tasks=task_lists())
@settings(max_examples=20, deadline=None)
def test_base_values(average, tasks):
    names = [*METRICS, "count", "tie_rate"]
    for rank_type in RANK_TYPES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = computed(names, tasks, average, rank_types=["expected"])
    for name in names:
        want = reference.value(name, tasks, "expected", average)
        assert values[f"expected_{name}"] == pytest.approx(want, rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize("average", ["micro", "macro"])
@given(tasks=task_lists(most=4, candidates=4))
@settings(max_examples=8, deadline=None)
def test_views(average, tasks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = computed(list(METRICS), tasks, average, views=reference.VIEWS)
    moments = {name: reference.moments(name, tasks, average) for name in METRICS}
    for name, view in METRIC_VIEWS:
        want = reference.view(name, view, reference.value(name, tasks, "realistic", average), moments[name])
        got = values[reference.key(name, view)]
        assert got == pytest.approx(want, rel=1e-8, abs=1e-10, nan_ok=True), (name, view)


def test_every_metric_has_a_reference_and_a_row_in_the_docs():
    names = {entry.name for entry in registry.METRICS if isinstance(entry.made, RankDefinition)}
    assert names <= {*METRICS, "count", "tie_rate"}
    pages = "".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("metrics", "mathematics"))
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


def test_weighted_median_splits_where_the_weight_is_exactly_half():
    for weights, want in [([1, 1, 2], 4.0), ([1, 2, 1], 3.0), ([3, 1, 1], 1.0), ([1, 1, 3], 5.0), ([1, 0, 1], 3.0)]:
        tasks = [Task(r, r, 9, Fraction(w)) for r, w in zip([1, 3, 5], weights, strict=True)]
        assert reference.value("median_rank", tasks) == want
        assert computed(["median_rank"], tasks)["median_rank"] == want
    # a tenth ten times is not 1 in binary: half is meant to 1e-12
    tasks = [Task(r, r, 99, Fraction(1, 10)) for r in range(1, 11)]
    assert computed(["median_rank"], tasks)["median_rank"] == 5.5
