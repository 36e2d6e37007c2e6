"""Ranks: what it takes, and ranks among sampled negatives against plain loops."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
from fuzzing import cases
from torchrankmetrics import Ranks
from torchrankmetrics.ranking import flags as fault
from torchrankmetrics.ranking.ranks import trusted

VALUES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 2.0, math.inf, math.nan])
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def test_realistic_is_the_mean_of_the_two():
    ranks = Ranks(torch.tensor([1, 2, 3]), torch.tensor([1, 5, 4]), torch.tensor([9, 14, 4]))
    assert ranks.realistic.tolist() == [1.0, 3.5, 3.5]
    assert ranks.realistic.dtype == torch.float64
    assert len(ranks) == 3


def test_no_pessimistic_means_no_ties_and_one_number_serves_all():
    ranks = Ranks([3, 1], None, 7)
    assert ranks.pessimistic.tolist() == [3, 1]
    assert ranks.num_candidates.tolist() == [7, 7]


def test_an_empty_batch_is_fine():
    for empty in ([], torch.tensor([]), torch.empty(0, dtype=torch.int32)):
        ranks = Ranks(empty, None, 5)
        assert len(ranks) == 0
        assert ranks.optimistic.dtype == ranks.num_candidates.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_of_any_type_become_int64(dtype):
    ranks = Ranks(torch.tensor([2], dtype=dtype), torch.tensor([3], dtype=dtype), torch.tensor([4], dtype=dtype))
    assert {x.dtype for x in (ranks.optimistic, ranks.pessimistic, ranks.num_candidates)} == {torch.int64}


BAD = {
    "float ranks": (([1.5], None, 5), TypeError, "optimistic.*float64"),
    "bool ranks": ((torch.tensor([True]), None, 5), TypeError, "optimistic.*bool"),
    "list of bools": (([True, True], None, 4), TypeError, "optimistic must hold integers, got torch.bool"),
    "float pessimistic": (([1], [2.0], 5), TypeError, "pessimistic"),
    "float candidates": (([1], [2], [5.0]), TypeError, "num_candidates"),
    "float candidates for all": (([1], [2], 5.0), (TypeError, ValueError), "num_candidates"),
    "two dimensions": (([[1]], None, 5), ValueError, r"optimistic.*\(1, 1\)"),
    "shapes": (([1, 2], [2], 5), ValueError, r"pessimistic.*\(2,\).*\(1,\)"),
    "shape of candidates": (([1, 2], [2, 3], [5]), ValueError, "num_candidates"),
    "devices": (
        (torch.tensor([1]), torch.empty(1, dtype=torch.int64, device="meta"), 5),
        ValueError,
        "pessimistic.*device",
    ),
    "rank 0": (([1, 0], None, 5), ValueError, "must lie between 1 and num_candidates; task 1 has optimistic=0"),
    "rank above": (([1, 6], None, 5), ValueError, "must lie between 1 and num_candidates; task 1 has optimistic=6"),
    "pessimistic above": (([1], [6], 5), ValueError, "must lie between .* pessimistic=6, num_candidates=5"),
    "order": (([1, 3], [1, 2], 5), ValueError, "optimistic ranks must not be above pessimistic ranks; task 1"),
    "zero candidates": (([1], None, 0), ValueError, "num_candidates must be at least 1"),
    "zero candidates of one task": (([1, 1], None, [2, 0]), ValueError, "num_candidates must be at least 1.*; task 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    args, error, message = BAD[case]
    with pytest.raises(error, match=message):
        Ranks(*args)


def test_on_an_accelerator_values_become_flags():
    # the CPU raises; the same comparisons as flags are seen by letting the device test fail
    class Elsewhere(torch.Tensor):
        @property
        def device(self):
            return torch.device("cuda")

    def column(*values):
        return torch.tensor(values).as_subclass(Elsewhere)

    ranks = trusted(torch.stack([column(1, 0, 3, 1), column(1, 1, 2, 1), column(1, 1, 3, 0)]), None)
    ranks._check_values(ranks.num_candidates)
    assert ranks.flags.tolist() == [
        0,
        fault.RANK_RANGE,
        fault.RANK_ORDER,
        fault.NO_CANDIDATES | fault.RANK_RANGE,
    ]


@cases(40, 1000)
@given(st.data(), st.sampled_from(DTYPES), st.booleans())
def test_ranks_among_negatives_are_those_of_plain_loops(data, dtype, column_major):
    B, M = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 6))
    positive = data.draw(st.lists(VALUES, min_size=B, max_size=B))
    negatives = data.draw(st.lists(st.lists(VALUES, min_size=M, max_size=M), min_size=B, max_size=B))
    matrix = torch.tensor(negatives, dtype=dtype).reshape(B, M)
    matrix = matrix.T.contiguous().T if column_major else matrix
    ranks = Ranks.from_negatives(torch.tensor(positive, dtype=dtype).requires_grad_(), matrix)
    expected = [reference.rank([p, *row], 0) for p, row in zip(positive, negatives, strict=True)]
    parts = (ranks.optimistic, ranks.pessimistic, ranks.num_candidates, ranks.flags == fault.SAMPLED | fault.NAN)
    assert list(zip(*(part.tolist() for part in parts), strict=True)) == expected
    assert not any(part.requires_grad for part in parts)


@pytest.mark.parametrize(
    ("positive", "negatives", "error", "message"),
    [
        (torch.zeros(2, 1), torch.zeros(2, 3), ValueError, "positive"),
        (torch.zeros(2), torch.zeros(3, 3), ValueError, r"negatives.*\(3, 3\)"),
        (torch.zeros(2), torch.zeros(()), ValueError, "negatives"),
        (torch.zeros(2), torch.zeros(2, 3).double(), TypeError, "dtype"),
        (torch.zeros(2).cfloat(), torch.zeros(2, 3).cfloat(), TypeError, "real"),
        (torch.zeros(2), torch.zeros(2, 3, device="meta"), ValueError, "device"),
    ],
)
def test_bad_negatives_are_named(positive, negatives, error, message):
    with pytest.raises(error, match=message):
        Ranks.from_negatives(positive, negatives)
