"""Counting against intervals block by block, and the norms that their bounds are made of, against plain arithmetic."""

import importlib.util
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st

from fuzzing import cases
from torchrankmetrics.ranking.exact.counting import choose_intervals
from torchrankmetrics.ranking.exact.problem import rounding_norms, upper_norms

WAYS = ["torch", *(["numba"] if importlib.util.find_spec("numba") else [])]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("way", WAYS)
@cases(20, 1500)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 3, 700, 2500]),
    st.sampled_from([1, 64, 1024, 5000]),
    st.sampled_from([0, 2, 50, 5000]),
    st.sampled_from([1, 3]),
)
def test_blocks_are_counted_as_one_row_is(way, seed, width, block, limit, threads):
    generator = torch.Generator().manual_seed(seed)
    rows, tasks = int(torch.randint(1, 6, (), generator=generator)), int(torch.randint(1, 12, (), generator=generator))
    cells = torch.randint(-9, 10, (rows, width), generator=generator).float()
    row = torch.randint(0, rows, (tasks,), generator=generator)
    low = torch.randint(-10, 11, (tasks,), generator=generator).float()
    high = low + torch.randint(0, 6, (tasks,), generator=generator)
    inside = [{j for j in range(width) if low[i] <= cells[row[i], j] <= high[i]} for i in range(tasks)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        if way == "numba":
            from torchrankmetrics.ranking.exact import kernels as compiled_intervals

            patch.setattr(compiled_intervals, "_PER_THREAD", 1)
        counter = choose_intervals(cells, way).counter((row, low, high), limit)
        for left in range(0, width, block):
            counter.add(cells[:, left : left + block].contiguous(), left)
        above, counts, task, column = counter.found()
    assert above.tolist() == [int((cells[row[i]] > high[i]).sum()) for i in range(tasks)]
    assert counts.tolist() == [len(columns) for columns in inside]
    listed = [[] for _ in range(tasks)]
    for i, j in zip(task.tolist(), column.tolist(), strict=True):
        listed[i].append(j)
    for i, columns in enumerate(listed):
        assert sorted(columns) == (sorted(inside[i]) if len(inside[i]) <= limit else [])


def vectors(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    exponent = torch.randint(-160, 160, (7, 1), generator=generator).double()
    some = torch.randn(7, 5, generator=generator, dtype=torch.float64) * 2.0**exponent
    some[1], some[2, 1:] = 0.0, 0.0
    return some.clamp(-6e4, 6e4).to(dtype) if dtype == torch.float16 else some.clamp(-3e38, 3e38).to(dtype)


def squared(numbers):
    return sum(Fraction(float(x)) ** 2 for x in numbers)


@cases(60, 2000)
@given(st.integers(0, 10**6), st.sampled_from(FLOATS))
def test_norms_are_upper_bounds_and_close_and_zero_for_zeros_alone(seed, dtype):
    given_ = vectors(seed, dtype)
    bounds = upper_norms(given_)
    for bound, row in zip(bounds.tolist(), given_, strict=True):
        exact = squared(row)
        assert (bound == 0) == (exact == 0)
        assert Fraction(bound) ** 2 >= exact
        assert bound <= 1.0001 * float(row.double().norm()) + 2.0**-58


@cases(60, 2000)
@given(st.integers(0, 10**6), st.sampled_from(FLOATS), st.sampled_from([torch.bfloat16, torch.float32]))
def test_errors_of_rounding_are_bounded_and_zero_without_rounding(seed, dtype, to):
    given_ = vectors(seed, dtype)
    rounded, bounds = rounding_norms(given_, to)
    assert torch.equal(rounded, given_.to(to))
    for bound, row, now in zip(bounds.tolist(), given_, rounded, strict=True):
        if not bool(now.isfinite().all()):
            assert bound == torch.inf
            continue
        changed = sum((Fraction(float(x)) - Fraction(float(y))) ** 2 for x, y in zip(row, now, strict=True))
        assert (bound == 0) == (changed == 0)
        assert Fraction(bound) ** 2 >= changed if bound < torch.inf else dtype == torch.float32
