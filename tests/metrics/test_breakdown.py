"""The table by group: each row is what the metrics say of that group alone."""

import pytest
import torch

from torchrankmetrics import (
    HitsAtK,
    MeanReciprocalRank,
    RankCollection,
    RankDefinition,
    RankMetric,
    Ranks,
    RankTable,
    evaluate,
)
from torchrankmetrics.null import MonteCarloExpectation

METRICS = ["mrr", "mr", "hits@3", "gmr"]


def filled(metrics=None, **options):
    """Head and tail tasks of groups 5, -2 and 7; 7 on one side only, its one task among one candidate."""
    collection = RankCollection(METRICS if metrics is None else metrics, **options)
    generator = torch.Generator().manual_seed(0)
    for side, groups in (("head", [5, -2]), ("tail", [5, -2, -2])):
        n = 30
        N = torch.randint(5, 15, (n,), generator=generator)
        optimistic = 1 + (torch.rand(n, generator=generator) * N).long().clamp(max=N - 1)
        pessimistic = torch.minimum(optimistic + torch.randint(0, 3, (n,), generator=generator), N)
        group = torch.tensor(groups).repeat(n // len(groups))
        weight = torch.rand(n, generator=generator) + 0.5
        collection.update(Ranks(optimistic, pessimistic, N), side=side, group=group, weight=weight)
    collection.update(Ranks([1], None, 1), side="tail", group=7)
    return collection


def test_a_row_has_the_values_of_the_group_alone():
    options = {"rank_types": ["realistic", "pessimistic"], "sides": ["both", "tail"]}
    collection = filled(**options)
    breakdown, table = collection.breakdown(), collection.table()
    assert breakdown["group"] == [-2, 5, 7]
    assert breakdown["count"] == [35, 25, 1]
    views = ["base", "adjusted_index", "z_score"]
    compared = 0
    for i, group in enumerate([-2, 5]):
        expected = evaluate(table.select(group=group), metrics=METRICS, views=views, **options)
        assert sorted(expected) == sorted(breakdown.columns[2:])
        for key, value in expected.items():
            assert breakdown[key][i] == value
            compared += 1
    assert compared == 2 * 4 * 3 * len(METRICS)


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
    assert breakdown.sort("mrr")["mrr"] == sorted(breakdown["mrr"])
    assert breakdown.sort("group", descending=True)["group"] == [7, 5, -2]
    for descending in (False, True):
        assert breakdown.sort("z_mrr", descending=descending)["group"][-1] == 7  # NaN
    assert breakdown["group"] == [-2, 5, 7]
    with pytest.raises(ValueError, match=r"column must be one of 'group', 'count', 'mrr', .*; got 'mrrr'"):
        breakdown.sort("mrrr")


def test_names_replace_the_ids_of_groups():
    names = {-2: "tokenconference", 5: "aidenemy", 7: "treaties", 8: "never asked"}
    assert filled().breakdown(names=names)["group"] == ["tokenconference", "aidenemy", "treaties"]
    collection = RankCollection(["mrr"])
    collection.update(Ranks([1, 2], None, 3), group=torch.tensor([2, 0]))
    assert collection.breakdown(names=["a", "b", "c"])["group"] == ["a", "c"]
    for names in (["a", "b"], {0: "a"}):
        with pytest.raises(ValueError, match="names must have a name for every group that occurs; group 2 has none"):
            collection.breakdown(names=names)
    with pytest.raises(ValueError, match="group -2 has none"):
        filled().breakdown(names=["a"] * 10)
    with pytest.raises(TypeError, match=r"names must be a dict .* got the string 'abc'"):
        collection.breakdown(names="abc")


@pytest.mark.filterwarnings("ignore:ranking tasks from")
def test_groups_that_a_process_never_saw():
    """A replaced gather stands for the other processes: one with another group, one without data."""
    other = RankTable.from_ranks(Ranks([2, 2], None, 4), group=torch.tensor([1, 9]))
    parts = [other.rows, torch.empty(0, 10, dtype=torch.int64)]
    options = {"dist_sync_fn": lambda x, group=None: [x, *parts], "distributed_available_fn": lambda: True}
    collection = RankCollection(["mrr"], **options)
    collection.update(Ranks([1, 1, 4], None, 4), group=torch.tensor([1, 1, 3]))
    breakdown = collection.breakdown()
    assert breakdown["group"] == [1, 3, 9]
    assert breakdown["count"] == [3, 1, 1]
    assert breakdown["mrr"] == pytest.approx([2.5 / 3, 0.25, 0.5], rel=1e-15)
    assert len(collection._first.rows[0]) == 3  # its own rows are back


def test_ranks_without_groups_raise():
    collection = filled()
    collection.update(Ranks([1], None, 3), side="head")
    with pytest.raises(ValueError, match="a breakdown needs a group for every task: pass group= to every update"):
        collection.breakdown()
