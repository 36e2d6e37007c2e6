"""Differential fuzzer: all ways to ranks against loops; dtypes, memory, targets, exclusions."""

import math

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given

import reference_ranks as reference
from fuzzing import cases
from ranking_problems import KINDS, STRIDES, as_exclude, as_target, flagged_lines, lay_out
from torchrankmetrics import rank_scores
from torchrankmetrics.ranking import RankAccumulator
from torchrankmetrics.ranking.counting import torch_backend as plain

FLOATS = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
INTEGERS = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
LAYOUTS = [*STRIDES, "one row", "negated"]
WAYS = ["torch", "auto", "tiles", "chunks", "given truth"]


@st.composite
def cells(draw, B, N):
    """A matrix of any dtype, from few values, so that many tie, or from all bit patterns."""
    dtype = draw(st.sampled_from([*FLOATS, *INTEGERS, torch.bool]))
    size, bits = B * N, dtype.itemsize * 8
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # every pattern of bits: subnormals, all kinds of NaN, bytes that are no booleans
    if draw(st.booleans()):
        values = torch.from_numpy(random.integers(0, 256, size * bits // 8, dtype=np.uint8)).view(
            dtype
        )
        few = (
            values[torch.from_numpy(random.integers(0, max(1, size // 3), size))]
            if size
            else values
        )
    elif dtype.is_floating_point:
        pool = [
            -math.inf,
            -1.5,
            -0.0,
            0.0,
            1.0,
            1.5,
            math.inf,
            *[math.nan] * draw(st.integers(0, 1)),
        ]
        few = torch.tensor(pool, dtype=torch.float64)[
            torch.from_numpy(random.integers(0, len(pool), size))
        ].to(dtype)
    else:
        few = torch.from_numpy(random.integers(0, 4, size)).to(dtype)
    return few.reshape(B, N)


@st.composite
def problems(draw):
    B, N = draw(st.integers(1, 6)), draw(st.integers(1, 70))
    scores = draw(cells(B, N))
    scores = lay_out(scores, draw(st.sampled_from(LAYOUTS)))
    place = st.tuples(st.integers(0, B - 1), st.integers(0, N - 1))
    one = draw(st.booleans())
    tasks = (
        [(i, draw(st.integers(0, N - 1))) for i in range(B)]
        if one
        else draw(st.lists(place, max_size=12))
    )
    pairs = draw(st.lists(place, max_size=60))
    return scores, "one" if one else "pairs", tasks, pairs


def values_of(scores):
    """What plain loops compare: Python's numbers."""
    if scores.dtype == torch.bool:
        return (scores.contiguous().view(torch.uint8) != 0).int().tolist()
    return (scores.double() if scores.is_floating_point() else scores).tolist()


@cases(80, 20_000)
@given(problems(), st.sampled_from(KINDS), st.sampled_from(WAYS), st.data())
def test_ranks_are_those_of_plain_loops(problem, kind, way, data):
    scores, form, tasks, pairs = problem
    B, N = scores.shape
    rows = values_of(scores)
    target = as_target(form, tasks)
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    if way in ("torch", "auto"):
        ranks = rank_scores(scores, target, exclude=exclude, backend=way)
    elif way == "tiles":
        before = plain._TILE
        plain._TILE = data.draw(st.integers(1, 90))
        try:
            ranks = rank_scores(scores, target, exclude=exclude, backend="torch")
        finally:
            plain._TILE = before
    else:
        backend = data.draw(st.sampled_from(["torch", "auto"]))
        row, column = torch.tensor(tasks, dtype=torch.int64).reshape(-1, 2).T
        accumulator = RankAccumulator(
            scores[row, column], target, (B, N), exclude=exclude, backend=backend
        )
        most = N if way == "given truth" else 9
        left = 0
        while left < N:
            right = min(N, left + data.draw(st.integers(1, most)))
            accumulator.update(scores[:, left:right])
            left = right
        ranks = accumulator.compute()
    assert flagged_lines(ranks) == reference.ranks(rows, tasks, gone)
