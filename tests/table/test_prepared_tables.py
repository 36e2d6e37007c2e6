"""Tables are prepared without arrays by hand: a side, other groups, ids that do not collide."""

import pytest
import torch

from torchrankmetrics import Ranks, RankTable, evaluate
from torchrankmetrics.table.columns import ABSENT


def table(ranks, ids, side="tail", group=None):
    return RankTable.from_ranks(Ranks(ranks, None, 20), side=side, sample_id=ids, group=group)


def test_the_rows_of_a_side_are_selected():
    both = RankTable.concatenate([table([1, 2], [0, 1]), table([5], [0], side="head")])
    assert both.select(side="tail").num_tasks == 2
    assert torch.equal(both.select().rows, both.rows)
    with pytest.raises(ValueError, match="side must be"):
        both.select(side="both")


def test_groups_are_given_to_a_copy():
    one = table([1, 2, 9], [0, 1, 2], group=[4, 4, 5])
    before = one.rows.clone()
    assert one.with_group(7).group.tolist() == [7, 7, 7]
    assert one.with_group([3, 2, 1]).group.tolist() == [3, 2, 1]
    assert one.with_group(None).group.tolist() == [ABSENT] * 3
    assert torch.equal(one.rows, before)
    for left in ("ranks", "sample_id", "weight", "count"):
        assert str(getattr(one.with_group(7), left)) == str(getattr(one, left))
    with pytest.raises(ValueError, match=r"group must be \(tasks,\) = \(3,\)"):
        one.with_group([1, 2])
    with pytest.raises(TypeError, match="group must hold integers"):
        one.with_group([1.0, 2.0, 3.0])


def test_equal_ids_of_two_data_sets_are_no_repeats_once_they_are_moved_apart():
    a, b = table([1, 1, 4], [0, 1, 7], group=0), table([4, 4], [-3, 1], group=1)
    joined = RankTable.concatenate([a, b], offset_ids=True)
    assert joined.sample_id.tolist() == [0, 1, 7, 8, 12]
    assert joined.compact().num_tasks == 5
    assert evaluate(joined, metrics="macro_mrr") == {"macro_mrr": (0.75 + 0.25) / 2}
    assert b.sample_id.tolist() == [-3, 1]  # what was given stays
    plain = RankTable.from_ranks(Ranks([3], None, 20))
    mixed = RankTable.concatenate([plain, a], offset_ids=True)
    assert mixed.sample_id.tolist() == [ABSENT, 0, 1, 7]
    assert len(RankTable.concatenate([], offset_ids=True)) == 0


def test_both_sides_of_a_triple_keep_their_common_id():
    sides = RankTable.concatenate([table([1, 2], [5, 6]), table([3, 4], [5, 6], side="head")])
    joined = RankTable.concatenate([sides, sides], offset_ids=True)
    assert joined.sample_id.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert joined.compact().num_tasks == 8


def test_ids_that_have_no_room_are_rejected():
    wide = table([1, 2], [-(1 << 62), 1 << 62])
    with pytest.raises(ValueError, match="sample ids of all tables together must fit in int64"):
        RankTable.concatenate([wide, wide], offset_ids=True)
