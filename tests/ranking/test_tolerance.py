"""Scores within a tolerance of the true one tie, however they are counted."""

import importlib.util
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from fuzzing import cases
from ranking_problems import KINDS, as_exclude, as_target, flagged_lines
from torchrankmetrics import RankCollection, RankMetric, Ranks, rank_scores, rank_triples
from torchrankmetrics.ranking import RankAccumulator, Tolerance

WAYS = ["torch"] + ["numba"] * (importlib.util.find_spec("numba") is not None)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def brute(row, column, width, gone):
    """(optimistic, pessimistic, num_candidates, touched by NaN), from the words of the docstring."""
    true = row[column]
    others = [s for j, s in enumerate(row) if j != column and j not in gone]
    better = sum(math.isnan(s) or math.isnan(true) or s > true + width for s in others)
    not_worse = sum(math.isnan(s) or math.isnan(true) or s >= true - width for s in others)
    return 1 + better, 1 + not_worse, 1 + len(others), any(math.isnan(s) for s in [*others, true])


@cases(60, 2000)
@given(
    st.integers(0, 10**6),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 1e-3, 0.25, 1.0]),
    st.sampled_from([0.0, 0.1, 0.25]),
    st.sampled_from(WAYS),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_ranks_are_those_of_plain_loops(seed, dtype, absolute, relative, backend, several, left_out):
    generator = torch.Generator().manual_seed(seed)
    B, N = 4, 11
    scores = (torch.randint(-8, 9, (B, N), generator=generator) / 4).to(dtype)
    if seed % 3 == 0:
        odd = torch.tensor([math.nan, math.inf, -math.inf, 1e-7, 3e-5, 1.0 + 2**-7]).to(dtype)
        some = torch.rand(B, N, generator=generator) < 0.3
        scores[some] = odd[torch.randint(0, len(odd), (int(some.sum()),), generator=generator)]
    column = torch.randint(0, N, (3 * B if several else B,), generator=generator).tolist()
    row = torch.randint(0, B, (3 * B,), generator=generator).tolist() if several else range(B)
    tasks = list(zip(row, column, strict=True))
    cells = torch.stack([torch.randint(0, size, (N,), generator=generator) for size in (B, N)], 1)
    exclude, gone = as_exclude(left_out, [tuple(cell) for cell in cells.tolist()], tasks, B, N)
    numbers = scores.double().tolist()
    finite = [[s for s in line if math.isfinite(s)] for line in numbers]
    widths = [absolute + relative * (max(line) - min(line)) if line else absolute for line in finite]
    expected = [brute(numbers[i], j, widths[i], gone(i)) for i, j in tasks]
    target = as_target("pairs" if several else "one", tasks)
    ranks = rank_scores(scores, target, exclude=exclude, backend=backend, tolerance=Tolerance(absolute, relative))
    assert flagged_lines(ranks) == expected
    if not relative:
        own = scores[list(row), column]
        chunks = RankAccumulator(own, target, (B, N), exclude=exclude, backend=backend, tolerance=absolute)
        for chunk in scores.split(4, dim=1):
            chunks.update(chunk)
        assert flagged_lines(chunks.compute()) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ends_tie_and_their_neighbours_do_not(dtype):
    true = torch.tensor([1.0], dtype=dtype)
    high = torch.tensor([1.25], dtype=dtype)
    beyond = torch.tensor([1.25 + 2 * torch.finfo(dtype).eps], dtype=dtype)
    ranks = rank_scores(torch.cat([true, high, beyond, true - 0.25])[None], torch.tensor([0]), tolerance=0.25)
    assert flagged_lines(ranks) == [(2, 4, 4, False)]


def test_noise_breaks_ties_and_a_tolerance_mends_them():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 5, (40, 60), generator=generator).float()
    noisy = scores + 1e-5 * torch.rand(40, 60, generator=generator)
    target = torch.arange(40)
    expected = rank_scores(scores, target).columns
    assert not torch.equal(rank_scores(noisy, target).columns, expected)
    assert torch.equal(rank_scores(noisy, target, tolerance=1e-4).columns, expected)
    assert torch.equal(rank_scores(noisy, target, tolerance=Tolerance(relative=1e-4)).columns, expected)
    triples = torch.stack([target, target * 0, target], 1)
    table = rank_triples(lambda h, r: noisy[h], None, triples, None, tolerance=1e-4)
    assert torch.equal(table.ranks.columns, expected)
    for make in (lambda: RankMetric("mrr"), lambda: RankCollection(["mrr", "mr"])):
        metric, clean = make(), make()
        for tolerance in (1e-4, Tolerance(relative=1e-4)):
            metric.update(noisy, target, tolerance=tolerance)
            clean.update(scores, target)
        assert metric.compute() == clean.compute()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s, t: rank_scores(s, t, tolerance=-1.0), ValueError, "tolerance must be a finite number .* got -1.0"),
        (lambda s, t: rank_scores(s, t, tolerance="1e-3"), ValueError, "tolerance must be a finite number"),
        (lambda s, t: rank_scores(s, t, tolerance=Tolerance(0.0, math.inf)), ValueError, "finite number"),
        (lambda s, t: rank_scores(s.long(), t, tolerance=1.0), TypeError, "tolerance is for scores in floats"),
        (
            lambda s, t: RankAccumulator(s[:, 0], t, (1, 3), tolerance=Tolerance(relative=0.1)),
            ValueError,
            "tolerance of chunks must be absolute.* pass the width itself, or whole rows to rank_scores",
        ),
        (
            lambda s, t: RankMetric("mrr").update(Ranks([1], None, 3), tolerance=0.1),
            ValueError,
            "tolerance is for scores .* with existing ranks",
        ),
        (
            lambda s, t: RankCollection(["mrr"]).update(s[0], t, indexes=torch.zeros(3, dtype=torch.long), tolerance=1),
            ValueError,
            "tolerance is for scores .* with indexes",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.zeros(1, 3), torch.tensor([0]))
