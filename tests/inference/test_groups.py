"""All groups at once: the bits that each group has alone, without a call per group."""

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, RankDefinition, Ranks
from torchrankmetrics.definitions import WithCandidates
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import Groups, Runs
from torchrankmetrics.metrics.measure import Measure
from torchrankmetrics.null import MonteCarloExpectation

SQUARE = RankDefinition("square_share", f=WithCandidates(lambda r, n: ((n - r) / (n - 1)) ** 2, min_candidates=2))
CUBES = RankDefinition("cube", f=lambda r: r**-3.0)
METRICS = ["mrr", "mr", "hits@1", "hits@10", "auc", "imr", "gmr", "tie_rate"]


def collection(metrics, weights, seed=0, **options):
    """Groups of 1 to 400 tasks, and one on a single side."""
    random = np.random.default_rng(seed)
    sizes = np.r_[1, 1, 2, 3, 7, 8, 9, 17, 129, 400]
    group = np.repeat(random.permutation(len(sizes)) * 5 - 7, sizes)
    N = random.integers(2, 3000, len(group))
    low = np.ceil(random.random(len(group)) ** 2 * N).astype(int).clip(1)
    high = np.minimum(low + random.integers(0, 3, len(group)) * (random.random(len(group)) < 0.3), N)
    weight = {"equal": np.ones(len(group)), "any": random.random(len(group)) + 0.1}
    weight |= {"tiny": weight["any"] * 1e-200, "by group": (group % 3 + 0.7).astype(float)}
    metric = RankCollection(metrics, **options)
    for side, part in (("head", group % 2 == 0), ("tail", slice(None))):
        arrays = (low[part], high[part], N[part])
        ranks = Ranks(*(torch.from_numpy(a) for a in arrays))
        metric.update(ranks, side=side, group=group[part], weight=weight[weights][part])
    return metric


@pytest.mark.parametrize(
    ("weights", "rank_type"),
    [
        ("equal", "realistic"),
        ("any", "optimistic"),
        ("by group", "pessimistic"),
        ("tiny", "realistic"),
        ("any", "expected"),
    ],
)
def test_values_of_all_groups_are_those_of_each_alone_bit_for_bit(weights, rank_type):
    metrics = METRICS if rank_type != "expected" else ["mrr", "mr", "auc", "gmr"]
    own = [Measure(one, view, rank_type) for one in (SQUARE, CUBES) for view in ("base", "z_score")]
    options = {"rank_types": [rank_type], "sides": ["both", "head"], "views": ["base", "adjusted_index", "z_score"]}
    metric = collection([*metrics, *own], weights, **options)
    analysis = Analysis([metric.table().rows])
    groups, parts = Groups(analysis), list(analysis.by_group())
    assert groups.ids.tolist() == [group for group, _ in parts]
    assert groups.num_tasks.tolist() == [part.sample().num_tasks for _, part in parts]
    for key, measure in metric.measures.items():
        if measure.definition.name == "count":
            continue
        alone = np.array([measure.value_or_nan(part) for _, part in parts])
        np.testing.assert_array_equal(groups.values(measure), alone, err_msg=key)
        assert measure.view != "base" or not np.isnan(alone).all()


def test_means_are_broken_down_without_a_call_per_group(monkeypatch):
    metric = collection(["mrr", "mr", "hits@1", "hits@10", "auc"], "equal")
    expected = metric.breakdown()
    monkeypatch.setattr(Analysis, "by_group", lambda self: pytest.fail("group by group"))
    assert str(metric.breakdown()) == str(expected)
    estimated = collection(["mrr"], "equal", expectation=MonteCarloExpectation(100, seed=0))
    with pytest.raises(pytest.fail.Exception, match="group by group"):  # its moments have no other way
        estimated.breakdown()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 15, 128, 129, 1000, 5000])
def test_sums_of_runs_have_the_bits_of_each_sum_alone(size):
    values = np.random.default_rng(size).lognormal(0, 3, 3 * size + 2)
    group = np.repeat([0, 2, 3, 4], [size, 1, 2 * size, 1])
    runs = Runs(group)
    assert runs.present.tolist() == [0, 2, 3, 4]
    assert runs.sums(values).tolist() == [values[group == i].sum() for i in (0, 2, 3, 4)]


def test_groups_far_apart_and_enormous_ranks_do_not_collide():
    metric = RankCollection(["mr"])
    large = 1 << 60
    metric.update(Ranks([large, 1, large, 2], None, large), group=[-(1 << 62), 1 << 62, 5, 5])
    assert metric.breakdown()["mr"] == [float(large), (large + 2) / 2, 1.0]
