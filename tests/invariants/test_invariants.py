"""Invariants of all metrics and views of ``reference.METRICS``: monoid, views, ties, mean order."""

import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import roc_auc_score

import reference
from bits import bits
from fuzzing import cases
from reference import METRIC_VIEWS, METRICS
from torchrankmetrics import (
    RankCollection,
    RankDefinition,
    RankMetric,
    RankMetricWarning,
    Ranks,
    evaluate,
    rank_scores,
)
from torchrankmetrics.definitions import WithCandidates, power_mean_rank
from torchrankmetrics.metrics import buffer as buffer_module
from torchrankmetrics.metrics.names import parse_name

# user-defined f that a metric of the package has too; the one of AUC is undefined for a single
# candidate
TWINS = {
    "hits_at_3": RankDefinition("own_hits", f=lambda r: (r <= 3).double(), higher_is_better=True),
    "mrr": RankDefinition("own_mrr", f=lambda r: 1 / r),
    "mr": RankDefinition("own_mr", f=WithCandidates(lambda r, n: r + 0 * n), optimum=1.0),
    "auc": RankDefinition(
        "own_auc", f=WithCandidates(lambda r, n: (n - r) / (n - 1), min_candidates=2)
    ),
}
every_view = pytest.mark.parametrize(
    ("name", "view"), METRIC_VIEWS, ids=[reference.key(*one) for one in METRIC_VIEWS]
)


def random_ranks(seed, n=40, candidates=12):
    random = np.random.default_rng(seed)
    N = random.integers(1, candidates + 1, n)
    low = random.integers(1, N + 1)
    high = np.minimum(N, low + random.integers(0, 3, n))
    return {
        "low": torch.from_numpy(low),
        "high": torch.from_numpy(high),
        "N": torch.from_numpy(N),
        "weight": torch.from_numpy(random.choice([0.1, 0.3, 0.7, 1.0], n)),
        "group": torch.from_numpy(random.integers(0, 5, n)),
    }


def feed(collection, rows, part=slice(None)):
    ranks = Ranks(rows["low"][part], rows["high"][part], rows["N"][part])
    collection.update(ranks, weight=rows["weight"][part], group=rows["group"][part])


def every_metric(**options):
    """All metrics in base view, and the views that have a closed form for any number of tasks."""
    closed = ["mr", "mrr", "auc", "hits_at_3", "gmr", "igmr", "imr", "hmr"]
    derived = [
        reference.key(name, view)
        for name in closed
        for view in ("normalized", "adjusted_index", "z_score")
    ]
    own = {one.name: RankMetric(one, view="z_score") for one in TWINS.values()}
    return RankCollection([*METRICS, "count", "tie_rate", *derived, *own.values()], **options)


@pytest.mark.parametrize("storage", ["ranks", "counts"])
@given(cuts=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 5), shuffle=st.booleans())
@settings(max_examples=6, deadline=None)
def test_any_split_and_order_of_updates_gives_the_same_bits(storage, cuts, seed, shuffle):
    rows = random_ranks(seed)
    whole, parts = every_metric(), every_metric(storage=storage)
    feed(whole, rows)
    if shuffle:
        order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        rows = {key: column[order] for key, column in rows.items()}
    with mock.patch.object(buffer_module, "_COMPACT_FROM", 4):
        for begin, end in itertools.pairwise([0, *sorted(cuts), 40]):
            feed(parts, rows, slice(begin, end))
        feed(parts, rows)
    feed(whole, rows)
    assert bits(whole) == bits(parts)


@pytest.mark.parametrize("storage", ["ranks", "counts"])
@pytest.mark.parametrize("order", [[3, 1, 2], [1, 2, 3], [2, 3, 1]], ids=str)
def test_the_smallest_of_different_repeats_stays_with_one_warning(order, storage, monkeypatch):
    # compaction keeps the count of different repeats
    monkeypatch.setattr(buffer_module, "_COMPACT_FROM", 1)
    collection = RankCollection(["mr", "count"], storage=storage)
    for rank in order:
        collection.update(Ranks([rank], None, 9), sample_id=[7])
    with pytest.warns(
        RankMetricWarning, match="2 repeated .* least 2 ranking tasks .*not the pos"
    ) as warned:
        assert {key: float(x) for key, x in collection.compute().items()} == {
            "mr": 1.0,
            "count": 1.0,
        }
    assert len(warned) == 1


@every_view
def test_index_is_one_at_the_best_and_zero_at_the_mean_and_z_is_standard(name, view):
    counts, weight = [3, 2, 4, 2], [1.0, 2.0, 0.5, 1.5]
    vectors = list(itertools.product(*(range(1, n + 1) for n in counts)))
    key = reference.key(name, view)
    metric = RankCollection([key])[key]
    values = []
    for vector in vectors:
        metric.reset()
        metric.update(Ranks(torch.tensor(vector), None, torch.tensor(counts)), weight=weight)
        values.append(metric.compute().item())
    assert vectors[0] == (1, 1, 1, 1)
    mean, variance = np.mean(values), np.var(values)
    if view == "base":
        moments = metric.moments(counts, weight=weight)
        assert (moments.mean, moments.variance) == pytest.approx((mean, variance), rel=1e-10)
    elif view == "normalized":
        assert mean == pytest.approx(1, rel=1e-12)
    else:
        assert mean == pytest.approx(0, abs=1e-12)
        assert values[0] == max(values)
    if view == "adjusted_index":
        assert values[0] == pytest.approx(1, abs=1e-14)
    if view == "z_score":
        assert variance == pytest.approx(1, rel=1e-10)


def test_amri_is_the_weighted_and_adjusted_auc_the_plain_mean_of_two_auc_minus_one():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (30, 17), generator=generator).float()  # many ties
    target = torch.randint(0, 17, (30,), generator=generator)
    exclude = torch.rand(30, 17, generator=generator) < 0.3
    exclude[torch.arange(30), target] = False
    weighted = total = 0.0
    auc = []
    for row, column, out in zip(scores, target, exclude, strict=True):
        label = (torch.arange(17) == column)[~out]
        auc.append(roc_auc_score(label, row[~out]))
        weighted += (len(label) - 1) * (2 * auc[-1] - 1)
        total += len(label) - 1
    ranks = rank_scores(scores, target, exclude=exclude)
    values = evaluate(ranks, metrics=["amri", "auc", "adjusted_auc"])
    assert values["amri"] == pytest.approx(weighted / total, abs=1e-13)
    assert values["auc"] == pytest.approx(np.mean(auc), abs=1e-13)
    assert values["adjusted_auc"] == pytest.approx(2 * np.mean(auc) - 1, abs=1e-13)
    same = evaluate(ranks, metrics=["amri"], weight=1 / (ranks.num_candidates.double() - 1))["amri"]
    assert same == pytest.approx(values["adjusted_auc"], abs=1e-13)


@pytest.mark.filterwarnings("ignore:each ranking task has one candidate")
@every_view
def test_zero_variance_under_the_null_gives_nan_with_one_warning(name, view):
    key = reference.key(name, view)
    collection = RankCollection([key])
    collection.update(Ranks(torch.tensor([1, 1, 1]), None, 1))
    metric = METRICS[name]
    undefined = metric.min_candidates > 1 or view in ("adjusted_index", "z_score")
    optimum = 0.0 if undefined else float(metric.value([Fraction(1)], [Fraction(1)], [1]))
    if undefined or (view == "normalized" and optimum == 0):
        with pytest.warns(RankMetricWarning, match=f"{key} is undefined") as warned:
            assert math.isnan(collection.compute()[key])
        assert sum("is undefined" in str(one.message) for one in warned) == 1
    else:
        with pytest.warns(RankMetricWarning, match="has one candidate"):
            assert collection.compute()[key] == (optimum if view == "base" else 1)


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.expected])
@pytest.mark.parametrize(
    "sizes",
    [[14, 14, 13], [1, 2, 100_000], np.random.default_rng(3).integers(2, 3000, 200)],
    ids=["equal", "uneven", "many"],
)
def test_a_constant_scorer_has_index_zero_under_expected(sizes, name, average):
    N = torch.as_tensor(sizes)
    metric = RankMetric(
        parse_name(name).definition,
        view="adjusted_index",
        rank_type="expected",
        average=average,
    )
    tasks = torch.arange(len(N))
    metric.update(Ranks(torch.ones_like(N), N, N), weight=0.1 + tasks, group=tasks % 3)
    assert metric.compute().item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("rank_type", ["optimistic", "pessimistic", "realistic", "expected"])
def test_a_user_defined_metric_has_the_values_of_its_twin(name, rank_type):
    """In every view, average and group, some tasks with too few candidates."""
    rows, twin = random_ranks(4, n=60, candidates=300), parse_name(name).definition
    ranks = Ranks(rows["low"], torch.minimum(rows["high"] * 9, rows["N"]), rows["N"])
    views = [
        "base",
        "normalized",
        "adjusted_index",
        "z_score",
        *(["p_value"] if rank_type == "pessimistic" else []),
    ]
    for view, average in itertools.product(views, ("micro", "macro")):
        pair = [
            RankMetric(one, view=view, rank_type=rank_type, average=average)
            for one in (TWINS[name], twin)
        ]
        for metric in pair:
            metric.update(ranks, weight=rows["weight"], group=rows["group"])
        tolerance = 1e-3 if view == "p_value" else 1e-12
        assert pair[0].compute().item() == pytest.approx(
            pair[1].compute().item(), rel=tolerance, abs=1e-13
        )
    pair = RankCollection(
        {one.name: RankMetric(one, rank_type=rank_type) for one in (TWINS[name], twin)}
    )
    pair.update(ranks, weight=rows["weight"], group=rows["group"])
    by_group = pair.breakdown()
    own, other = np.split(np.array([by_group[column] for column in by_group.columns[2:]]), 2)
    assert own == pytest.approx(other, rel=1e-12, abs=1e-13)


MEANS = [-math.inf, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, math.inf]


TASKS = st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.floats(1e-6, 1e6))


@given(data=st.lists(TASKS, min_size=1, max_size=12))
@cases(15, 400)
def test_means_are_ordered_for_any_ranks_and_weights(data):
    low, gap, weight = zip(*data, strict=True)
    low, high = torch.tensor(low), torch.tensor(low) + torch.tensor(gap)  # half-integers too
    metrics = {f"m{i}": RankMetric(power_mean_rank(p)) for i, p in enumerate(MEANS)}
    values = evaluate(Ranks(low, high, 2 * 10**6), metrics=metrics, weight=weight)
    for smaller, larger in itertools.pairwise(values.values()):
        assert smaller <= larger * (1 + 1e-13)
    assert Fraction(values["m0"]) == Fraction(int((low + high).min()), 2)
