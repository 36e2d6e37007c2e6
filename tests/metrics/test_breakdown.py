"""The table by group: each row has the bits that the metrics have of that group alone, without a call per group."""

import numpy as np
import pytest
import torch

import torchrankmetrics as trm
from torchrankmetrics import HitsAtK, MeanReciprocalRank, RankCollection, RankDefinition, RankMetric, Ranks, evaluate
from torchrankmetrics.definitions import WithCandidates
from torchrankmetrics.metrics.analysis import Analysis
from torchrankmetrics.metrics.breakdown import Runs
from torchrankmetrics.null import MonteCarloExpectation

SQUARE = RankDefinition("square_share", f=WithCandidates(lambda r, n: ((n - r) / (n - 1)) ** 2, min_candidates=2))
CUBES = RankDefinition("cube", f=lambda r: r**-3.0)
METRICS = ["mrr", "mr", "hits@3", "gmr"]


def filled(metrics=METRICS, weights="any", **options):
    """Groups of 1 to 400 tasks, some of them on one side only, and one task among one candidate."""
    random = np.random.default_rng(0)
    sizes = np.r_[1, 1, 2, 3, 7, 8, 9, 17, 129, 400]
    group = np.repeat(random.permutation(len(sizes)) * 5 - 7, sizes)
    N = random.integers(2, 3000, len(group))
    low = np.ceil(random.random(len(group)) ** 2 * N).astype(int).clip(1)
    high = np.minimum(low + random.integers(0, 3, len(group)) * (random.random(len(group)) < 0.3), N)
    weight = {"equal": np.ones(len(group)), "any": random.random(len(group)) + 0.1}
    weight |= {"tiny": weight["any"] * 1e-200, "by group": (group % 3 + 0.7).astype(float)}
    collection = RankCollection(metrics, **options)
    for side, part in (("head", group % 2 == 0), ("tail", slice(None))):
        ranks = Ranks(low[part], high[part], N[part])
        collection.update(ranks, side=side, group=group[part], weight=weight[weights][part])
    collection.update(Ranks([1], None, 1), side="tail", group=70)
    return collection


@pytest.mark.parametrize(
    ("weights", "rank_types"),
    [
        ("equal", ["realistic", "pessimistic"]),
        ("by group", ["optimistic"]),
        ("tiny", ["realistic"]),
        ("any", ["expected"]),
    ],
)
def test_a_row_has_the_bits_of_the_group_alone(weights, rank_types):
    options = {"rank_types": rank_types, "sides": ["both", "head"]}
    names = ["mrr", "mr", "auc", "gmr", *(["hits@1", "hits@10", "imr"] if rank_types != ["expected"] else [])]
    own = [RankMetric(one, rank_type=rank_types[0]) for one in (SQUARE, CUBES)]
    collection = filled([*names, *own], weights, **options)
    breakdown, table = collection.breakdown(), collection.table()
    assert breakdown["group"] == [*range(-7, 39, 5), 70]
    views = ["base", "adjusted_index", "z_score"]
    members = {
        f"{one.key}_{view}": RankMetric(one.definition, view=view, rank_type=one.rank_type)
        for one in own
        for view in views
    }
    for i, group in enumerate(breakdown["group"][:-1]):
        alone = table.select(group=group)
        expected = evaluate(alone, metrics=names, views=views, **options)
        for member, value in zip(members.values(), evaluate(alone, metrics=members).values(), strict=True):
            expected[member.key] = value
        assert breakdown["count"][i] == alone.num_tasks
        assert sorted(expected) == sorted(breakdown.columns[2:])
        for key, value in expected.items():
            np.testing.assert_array_equal(breakdown[key][i], value, err_msg=key)


def test_means_are_broken_down_without_a_call_per_group(monkeypatch):
    collection = filled(["mrr", "mr", "hits@1", "hits@10", "auc"])
    expected = collection.breakdown()
    monkeypatch.setattr(Analysis, "by_group", lambda self: pytest.fail("group by group"))
    assert str(collection.breakdown()) == str(expected)
    estimated = filled(["mrr"], expectation=MonteCarloExpectation(100, seed=0))
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


def test_columns_are_the_base_metrics_with_their_index_and_z():
    def columns(metrics, **options):
        return " ".join(filled(metrics, **options).breakdown().columns)

    assert columns(["mrr", "z_mrr", "count", "tie_rate"]) == "group count mrr adjusted_mrr z_mrr tie_rate"
    assert columns(["amri"]) == "group count mr amri z_mr"
    assert columns({"mine": HitsAtK(3, side="tail")}) == (
        "group count tail_hits_at_3 tail_adjusted_hits_at_3 tail_z_hits_at_3"
    )
    # within a group there is one average only
    macro = {"mrr": MeanReciprocalRank(), "macro": MeanReciprocalRank(average="macro")}
    assert columns(macro) == "group count mrr adjusted_mrr z_mrr"
    # no exact expectation: the base value alone, unless somebody estimates it
    square = RankDefinition("square", f=lambda r: r.double() ** 2, higher_is_better=False)
    assert columns([RankMetric(square)]).startswith("group count square")
    assert "z_mrr" in columns(["mrr"], expectation=MonteCarloExpectation(100, seed=0))


def test_sort_puts_nan_last_and_changes_no_original():
    breakdown = filled().breakdown()
    groups = breakdown["group"]
    assert breakdown.sort("mrr")["mrr"] == sorted(breakdown["mrr"])
    assert breakdown.sort("group", descending=True)["group"] == groups[::-1]
    for descending in (False, True):
        assert breakdown.sort("z_mrr", descending=descending)["group"][-1] == 70  # NaN
    assert breakdown["group"] == groups == sorted(groups)
    with pytest.raises(ValueError, match=r"column must be one of 'group', 'count', 'mrr', .*; got 'mrrr'"):
        breakdown.sort("mrrr")


def test_names_replace_the_ids_of_groups():
    collection = RankCollection(["mrr"])
    collection.update(Ranks([1, 2], None, 3), group=torch.tensor([2, 0]))
    assert collection.breakdown(names=["a", "b", "c"])["group"] == ["a", "c"]
    assert collection.breakdown(names={2: "treaties", 0: "aidenemy", 8: "unused"})["group"] == ["aidenemy", "treaties"]
    for names in (["a", "b"], {0: "a"}):
        with pytest.raises(ValueError, match="names must have a name for every group that occurs; group 2 has none"):
            collection.breakdown(names=names)
    with pytest.raises(ValueError, match="group -7 has none"):
        filled().breakdown(names=["a"] * 100)
    with pytest.raises(TypeError, match=r"names must be a dict .* got the string 'abc'"):
        collection.breakdown(names="abc")
    collection.update(Ranks([1], None, 3))
    with pytest.raises(ValueError, match="a breakdown needs a group for every task: pass group= to every update"):
        collection.breakdown()


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_groups_that_a_process_never_saw():
    """A replaced gather stands for the other processes: one with another group, one without data."""
    other = trm.RankTable.from_ranks(Ranks([2, 2], None, 4), group=torch.tensor([1, 9]))
    parts = [other.rows, torch.empty(0, 10, dtype=torch.int64)]
    options = {"dist_sync_fn": lambda x, group=None: [x, *parts], "distributed_available_fn": lambda: True}
    collection = RankCollection(["mrr"], **options)
    collection.update(Ranks([1, 1, 4], None, 4), group=torch.tensor([1, 1, 3]))
    breakdown = collection.breakdown()
    assert breakdown["group"] == [1, 3, 9]
    assert breakdown["count"] == [3, 1, 1]
    assert breakdown["mrr"] == pytest.approx([2.5 / 3, 0.25, 0.5], rel=1e-15)
    assert len(collection._first.rows[0]) == 3  # its own rows are back
