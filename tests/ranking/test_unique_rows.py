"""Distinct rows are those that torch finds, in its order, however large the ids."""

import torch
from hypothesis import given, settings, strategies as st

from torchrankmetrics.ranking.arrays import unique_rows

IDS = st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 2**32, 0]))


def agree(rows):
    got, row = unique_rows(rows)
    expected, place = torch.unique(rows, dim=0, return_inverse=True)
    assert torch.equal(got, expected)
    assert torch.equal(row, place)
    assert (got.dtype, row.dtype) == (torch.int64, torch.int64)


@settings(deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda k: st.lists(st.lists(IDS, min_size=k, max_size=k), max_size=40).map(lambda x: (x, k))
    )
)
def test_distinct_rows_are_those_of_torch(drawn):
    rows, columns = drawn
    agree(torch.tensor(rows, dtype=torch.int64).reshape(-1, columns))


def test_rows_at_the_limits_of_one_number():
    widest = torch.tensor([[0, 0], [2**32 - 1, 2**31 - 2], [2**32 - 1, 0], [0, 0]])  # 2^32 (2^31 - 1) < 2^63
    agree(widest)
    agree(widest + torch.tensor([5, -7]))
    agree(torch.tensor([[0, 0], [2**32 - 1, 2**31 - 1], [0, 1], [1, 0], [0, 1]]))  # 2^63: one too many
