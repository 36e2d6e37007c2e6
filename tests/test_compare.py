"""compare: values against evaluate, alignment against shuffles, training seeds against simulation."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, RankTable, compare, evaluate
from torchrankmetrics.theory.inference.bootstrap import studentised_interval
from torchrankmetrics.theory.inference.seeds import seeded_difference
from torchrankmetrics.theory.inference.testing import holm, mcnemar_p_value
from torchrankmetrics.theory.inference.units import units_of

A = [1, 2, 1, 3, 1, 2, 9, 4, 1, 30]
B = [4, 2, 3, 9, 5, 8, 7, 4, 2, 11]


def identity(means):
    return means, np.ones_like(means)


def table(ranks, order=None, **columns):
    order = torch.arange(len(ranks)) if order is None else torch.as_tensor(order)
    picked = {name: torch.as_tensor(values)[order] for name, values in columns.items()}
    return RankTable.from_ranks(Ranks(torch.tensor(ranks)[order], None, 40), **picked)


def test_values_and_difference_are_those_of_evaluate():
    names = ["mr", "mrr", "hits_at_3", "gmr", "hmr", "amri", "adjusted_mrr", "z_mrr", "z_mr", "amr"]
    result = compare(Ranks(A, None, 40), Ranks(B, None, 40), names, resamples=200)
    a, b = evaluate(A, 40, names), evaluate(B, 40, names)
    for row in result.rows:
        assert (row.a, row.b) == pytest.approx((a[row.metric], b[row.metric]))
        assert row.difference == pytest.approx(a[row.metric] - b[row.metric])
        assert row.low <= row.difference <= row.high
    # one hypothesis, one p: views are affine, and a metric and its inverse are means of the same f
    assert result["mr"].p_value == result["amri"].p_value == result["z_mr"].p_value
    assert result["mrr"].p_value == result["hmr"].p_value == result["z_mrr"].p_value
    slope = result["amri"].difference / result["mr"].difference
    assert slope < 0
    assert result["amri"].low == pytest.approx(slope * result["mr"].high)
    assert result["hits_at_3"].test == "exact McNemar"
    assert result["hits_at_3"].p_value == mcnemar_p_value(4, 0)
    adjusted = holm([row.p_value for row in result.rows])
    assert [row.p_adjusted for row in result.rows] == pytest.approx(adjusted.tolist())


def test_a_task_of_no_weight_is_not_compared():
    weight = torch.tensor([1.0, 0, 1, 1, 0, 1, 1, 2, 1, 1])
    kept, ids = weight > 0, torch.arange(10)
    whole = [table(ranks, weight=weight, sample_id=ids) for ranks in (A, B)]
    part = [table(ranks, ids[kept], weight=weight, sample_id=ids) for ranks in (A, B)]
    keys = ids % 5
    expected = compare(*part, "mrr", cluster=keys[kept], resamples=200)
    assert compare(*whole, "mrr", cluster=keys, resamples=200) == expected
    assert expected.num_tasks == 8


def test_paired_interval_is_studentised_by_the_delta_method():
    """The error of a difference of harmonic means, by numerical derivatives."""
    x = np.column_stack([1 / np.array(A), 1 / np.array(B)])
    n = len(A)

    def smooth(m):
        return 1 / m[:, 0] - 1 / m[:, 1], np.column_stack([-1 / m[:, 0] ** 2, 1 / m[:, 1] ** 2])

    error = studentised_interval(units_of(x, np.ones(n), np.ones(n, dtype=np.int64)), smooth, 0.9, 100, 0)[0]
    covariance = np.cov(x.T) / n
    step = 1e-6
    base = x.mean(0)
    slope = [
        (smooth(base[None] + step * e)[0][0] - smooth(base[None] - step * e)[0][0]) / (2 * step) for e in np.eye(2)
    ]
    assert error == pytest.approx(math.sqrt(slope @ covariance @ np.array(slope)), rel=1e-6)


def test_aligned_by_side_and_sample_id_whatever_the_order():
    rng = np.random.default_rng(3)
    ids, group = torch.arange(100, 110), torch.arange(10) // 2
    expected = compare(Ranks(A, None, 40), Ranks(B, None, 40), "mrr")
    for shuffle in (rng.permutation(10), np.r_[np.arange(9, -1, -1), 3, 3]):  # also with repeats
        a = table(A, sample_id=ids, group=group)
        b = table(B, shuffle, sample_id=ids, group=group)
        found = compare(a, b, "mrr")
        assert (found.difference, found.p_value, found.num_tasks) == (expected.difference, expected.p_value, 10)
        key = compare(a, b, "mrr", cluster="group")
        assert key.num_clusters == 5
        assert compare(b, a, "mrr", cluster=group[torch.as_tensor(shuffle)]).p_value == key.p_value
        assert key.p_value != expected.p_value  # so that keys which fall on other tasks are seen
    collection = RankCollection(["mrr"])
    for i in range(9, -1, -1):
        collection.update(Ranks([A[i]], None, 40), sample_id=ids[[i]], group=group[[i]])
    assert compare(collection, b, "mrr").p_value == expected.p_value
    by_table = group[collection.table().sample_id - 100]
    assert compare(collection, b, "mrr", cluster=by_table).p_value == key.p_value
    head, tail = table(A, sample_id=ids), table(B, sample_id=ids)
    sided = [
        RankTable.concatenate([with_side(x, "head"), with_side(y, "tail")]) for x, y in ((head, tail), (tail, head))
    ]
    assert compare(*sided, "mrr").difference == pytest.approx(0)
    assert compare(*sided, "tail_mrr").difference == pytest.approx(-expected.difference)


def with_side(source, side):
    return RankTable.from_ranks(source.ranks, side=side, sample_id=source.sample_id)


def test_clusters_of_copies_count_once():
    single = compare(Ranks(A, None, 40), Ranks(B, None, 40), "mrr")
    keys = torch.arange(10).repeat(3)
    tripled = compare(Ranks(A * 3, None, 40), Ranks(B * 3, None, 40), ["mrr", "hits@3"], cluster=keys)
    assert tripled["mrr"].p_value == single.p_value
    assert tripled["mrr"].low == pytest.approx(single.low)
    assert tripled["mrr"].effective_clusters == pytest.approx(10)
    assert tripled["hits_at_3"].test == "sign-flip permutation"
    assert compare(Ranks(A * 3, None, 40), Ranks(B * 3, None, 40), "mrr").p_value < single.p_value


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (
            table(A, sample_id=range(10)),
            table(B[:8], sample_id=range(8)),
            r"not of the same tasks .*b lacks 2: \(None, 8\), \(None, 9\)",
        ),
        (
            table(A, sample_id=range(10)),
            table(B, sample_id=range(1, 11)),
            r"a lacks 1: \(None, 10\); b lacks 1: \(None, 0\)",
        ),
        (table(A, sample_id=range(10)), table(B), "b has tasks without a sample_id"),
        (Ranks(A, None, 40), Ranks(B[:9], None, 40), "b has 9 tasks, a has 10"),
        (Ranks(A, None, 40), Ranks(B, None, 41), "differ in num_candidates at 10 tasks, first task 0: 40 and 41"),
        (table(A, weight=torch.ones(10)), table(B, weight=torch.arange(1, 11)), "differ in weight"),
        (table(A).compact(), table(B), "a has no sample ids and its rows are sorted or merged"),
        (Ranks(A, None, 40), [], "b is an empty list"),
        ([Ranks(A, None, 40)] * 2, Ranks(B, None, 40), "lists of at least 2 runs"),
        (Ranks([], None, 40), Ranks([], None, 40), "a has no ranking tasks"),
    ],
)
def test_what_does_not_fit_is_told(a, b, message):
    with pytest.raises(ValueError, match=message):
        compare(a, b)


def test_bad_options_are_refused():
    a, b = Ranks(A, None, 40), Ranks(B, None, 40)
    for metric, message in (("count", "cannot be compared"), ("p_mrr", "cannot be compared"), ("z_std", "no meaning")):
        with pytest.raises(ValueError, match=message):
            compare(a, b, metric)
    with pytest.raises(ValueError, match="permutations must be an int of at least 99"):
        compare(a, b, permutations=0)
    with pytest.raises(ValueError, match="metric is empty"):
        compare(a, b, [])
    with pytest.raises(ValueError, match="no tasks of side 'tail'"):
        compare(a, b, "tail_mrr")
    with pytest.raises(TypeError, match="a must be a RankTable"):
        compare(A, b)
    repeated = table(A, [*range(10), 0], sample_id=range(10))
    with pytest.raises(ValueError, match="cluster must be the same for all repeats"):
        compare(repeated, repeated, cluster=list(range(11)))


def test_collections_without_ids_are_aligned_by_order_unless_it_is_lost():
    def collect(ranks, **options):
        collection = RankCollection(["mr"], **options)
        for part in (ranks[:4], ranks[4:]):
            collection.update(Ranks(part, None, 40))
        return collection

    expected = compare(Ranks(A, None, 40), Ranks(B, None, 40), "mr")
    assert compare(collect(A), collect(B), "mr") == expected
    with pytest.raises(ValueError, match="storage='counts'"):
        compare(collect(A, storage="counts"), collect(B), "mr")
    with pytest.raises(ValueError, match="sorted or merged"):
        compare(collect(A).table(), collect(B).table(), "mr")


def test_repeats_that_differ_warn():
    a = RankTable.from_ranks(Ranks([1, 2, 3], None, 40), sample_id=torch.tensor([0, 0, 1]))
    b = RankTable.from_ranks(Ranks([4, 5], None, 40), sample_id=torch.tensor([0, 1]))
    with pytest.warns(RankMetricWarning, match="repeated"):
        assert compare(a, b, "mr").a == 2


def test_median_has_an_interval_and_no_test():
    result = compare(Ranks(A, None, 40), Ranks(B, None, 40), ["median", "mr"], resamples=400)
    assert result["median_rank"].p_value is None
    assert result["median_rank"].low <= result["median_rank"].difference == 2 - 4.5 <= result["median_rank"].high
    assert result["mr"].p_adjusted == result["mr"].p_value
    assert "no p-value" in str(result)


def test_equal_models_do_not_differ():
    result = compare(Ranks(A, None, 40), Ranks(A, None, 40), ["mrr", "hits@3", "median"], resamples=100)
    assert all((row.low, row.high) == (0, 0) for row in result.rows)
    assert result["mrr"].p_value == result["hits_at_3"].p_value == 1


def simulated(rng, sizes, n, seed_spread, task_spread, noise):
    """Additive scores: seed + task of the model + both; tasks of A and B are drawn apart, so their spreads add."""
    columns = []
    for runs in sizes:
        task = rng.normal(0, task_spread, (n, 1))
        columns.append(rng.normal(0, seed_spread, (1, runs)) + task + rng.normal(0, noise, (n, runs)))
    return units_of(np.concatenate(columns, 1), np.ones(n), np.ones(n, dtype=np.int64))


def test_variance_split_is_unbiased_and_its_test_keeps_the_level():
    rng = np.random.default_rng(4)
    sizes, n, runs = (4, 5), 40, 400
    splits, rejected, covered = [], 0, 0
    for _ in range(runs):
        units = simulated(rng, sizes, n, 0.3, 1.0, 2.0)
        result = seeded_difference(units, sizes[0], identity, 0.95, 200, int(rng.integers(1 << 30)))
        splits.append((result.split.seeds, result.split.tasks, result.split.interaction))
        rejected += result.p_value <= 0.05
        covered += result.low <= 0 <= result.high
    truth = (0.09 / 4 + 0.09 / 5, 2 / n, 4 / 4 / n + 4 / 5 / n)
    found = np.mean(splits, axis=0)
    # parts below zero are cut to zero, which lifts the first two a little
    assert found[2] == pytest.approx(truth[2], rel=0.03)
    assert truth[0] * 0.9 < found[0] < truth[0] * 1.5
    assert truth[1] * 0.9 < found[1] < truth[1] * 1.3
    assert rejected / runs <= 0.08
    assert 0.92 <= covered / runs <= 0.985


def test_seeds_of_models_and_their_variance_by_hand():
    rng = np.random.default_rng(5)
    runs = [np.clip(np.round(np.exp(rng.normal(2, 1, 60))), 1, 40).astype(np.int64) for _ in range(4)]
    tables = [Ranks(run, None, 40) for run in runs]
    result = compare(tables[:2], tables[2:], "mr", resamples=300)
    assert result.a == pytest.approx(np.mean([runs[0].mean(), runs[1].mean()]))
    y = np.stack(runs, 1).astype(float)
    interaction = seeds = 0.0
    for pair in (y[:, :2], y[:, 2:]):
        residual = pair - pair.mean(1, keepdims=True) - pair.mean(0) + pair.mean()
        own = (residual**2).sum() / 59 / 60 / 2
        interaction += own
        seeds += max(pair.mean(0).var(ddof=1) / 2 - own, 0)
    tasks = max((y[:, :2].mean(1) - y[:, 2:].mean(1)).var(ddof=1) / 60 - interaction, 0)
    split = result.seeds
    assert (split.seeds, split.tasks, split.interaction) == pytest.approx((seeds, tasks, interaction))
    assert split.num_seeds == (2, 2)
    assert split.seed_share == pytest.approx(seeds / (seeds + tasks + interaction))
    assert "of the variance is training seeds" in str(result)
    index = compare(tables[:2], tables[2:], "amri", resamples=300)
    assert index.seeds.total == pytest.approx(split.total / 19.5**2)
    assert index.p_value == result.p_value
    with pytest.raises(ValueError, match="over several seeds has no variance formula"):
        compare(tables[:2], tables[2:], "median")


@pytest.mark.parametrize("shift", [-0.1, -0.08, 0.3])
def test_p_value_of_gmr_is_that_of_a_paired_t_test_of_log_ranks(shift):
    rng = np.random.default_rng(6)
    ranks = np.ceil(np.exp(rng.normal(2, 1.5, 400))).astype(np.int64)
    worse = np.ceil(ranks * np.exp(rng.normal(shift, 0.5, 400))).astype(np.int64)
    result = compare(Ranks(ranks, None, 10**6), Ranks(worse, None, 10**6), "gmr")
    expected = stats.ttest_rel(np.log(ranks), np.log(worse)).pvalue
    assert result.p_value == pytest.approx(expected, abs=0.01)
    assert result.difference < 0
    assert (result.high < 0) == (expected < 0.05)
    assert "gmr" in str(result)
