"""Ranks by exact arithmetic are those of rational numbers, whatever computes them."""

import importlib.util

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import exact_scores
import reference_ranks as reference
from ranking_problems import KINDS, as_exclude, as_target, flagged_lines
from torchrankmetrics import Candidates, rank_embeddings
from torchrankmetrics.ranking.certified import cascade, pairs, problem, rank
from torchrankmetrics.ranking.certified.tiles import BFLOAT16, FLOAT32, FLOAT64

HAS_NUMBA = importlib.util.find_spec("numba") is not None
LADDERS = [[BFLOAT16, FLOAT32, FLOAT64], [FLOAT32, FLOAT64], [FLOAT64], [BFLOAT16, FLOAT64]]
WAYS = [("torch", ladder) for ladder in LADDERS if BFLOAT16 not in ladder]
WAYS += [("numba", ladder) for ladder in LADDERS if HAS_NUMBA]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
KINDS_OF_NUMBERS = [
    "normal",
    "one ulp",
    "duplicates",
    "scaled",
    "huge and tiny",
    "denormal",
    "not finite",
    "cancelling",
    "integers",
]


def embeddings(kind, generator, B, N, d, dtype):
    queries, candidates = torch.randn(B, d, generator=generator), torch.randn(N, d, generator=generator)
    some = torch.rand(N, d, generator=generator) < 0.2
    if kind == "one ulp":
        candidates = candidates[:1].repeat(N, 1).to(dtype)
        bits = candidates.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
        bits += torch.randint(-1, 2, (N, d), generator=generator).to(bits.dtype) * some
    elif kind == "duplicates":
        candidates = candidates[torch.randint(0, max(1, N // 4), (N,), generator=generator)]
    elif kind == "scaled":
        candidates = candidates[torch.randint(0, 3, (N,), generator=generator).clamp(max=N - 1)].to(torch.bfloat16)
        candidates = (
            candidates.double() * torch.tensor([0.25, 1.0, 3.0])[torch.randint(0, 3, (N, 1), generator=generator)]
        )
    elif kind == "huge and tiny":
        largest = 10 if dtype == torch.float16 else 100 if dtype != torch.float64 else 900
        power = torch.randint(-largest, largest, (N, 1), generator=generator).double()
        candidates = candidates.double() * torch.exp2(power)
    elif kind == "denormal":
        candidates, queries = (x.double() * torch.finfo(dtype).tiny for x in (candidates, queries))
        queries[::2] *= 2.0**30 / torch.finfo(dtype).tiny
    elif kind == "not finite":
        odd = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0])
        for x in (queries, candidates):
            where = torch.rand(len(x), generator=generator) < 0.4
            cell = torch.randint(0, d, (len(x),), generator=generator)
            x[where, cell[where]] = odd[torch.randint(0, 4, (int(where.sum()),), generator=generator)]
        candidates[torch.rand(N, generator=generator) < 0.2] = 0.0
    elif kind == "cancelling":
        queries[:, : d // 2] *= 1e4 if dtype == torch.float16 else 1e30
        candidates = (candidates * some).sign()
        candidates[:, : d // 2] = candidates[:1, : d // 2]
    elif kind == "integers":
        queries, candidates = (x.round() for x in (queries, candidates))
    return queries.to(dtype), candidates.to(dtype)


@settings(deadline=None, max_examples=400)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS_OF_NUMBERS),
    st.sampled_from(DTYPES),
    st.sampled_from(["dot", "cosine", "l2"]),
    st.sampled_from(["none", "normal", "not finite"]),
    st.sampled_from(WAYS),
    st.sampled_from([1, 2, 9, 70]),
    st.sampled_from([None, 1, 5]),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_ranks_are_those_of_rational_numbers(
    seed, kind, dtype, similarity, added, way, d, chunk_size, several, left_out
):
    generator = torch.Generator().manual_seed(seed)
    B, N = int(torch.randint(1, 5, (), generator=generator)), int(torch.randint(1, 24, (), generator=generator))
    queries, candidates = embeddings(kind, generator, B, N, d, dtype)
    bias = None
    if added != "none" and similarity != "cosine":
        bias = torch.randn(N, generator=generator).to(dtype)
        if added == "not finite":
            bias[::3] = torch.tensor([torch.inf, -torch.inf, torch.nan])[seed % 3]
    number = 3 * B if several else B
    column = torch.randint(0, N, (number,), generator=generator).tolist()
    row = torch.randint(0, B, (number,), generator=generator).tolist() if several else range(B)
    tasks = list(zip(row, column, strict=True))
    cells = torch.stack([torch.randint(0, size, (2 * N,), generator=generator) for size in (B, N)], 1)
    exclude, gone = as_exclude(left_out, [tuple(cell) for cell in cells.tolist()], tasks, B, N)
    expected = reference.ranks(exact_scores.matrix(queries, candidates, bias, similarity), tasks, gone)
    counting, ladder = way
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank, "precisions", lambda *args, **options: ladder)
        patch.setattr(problem, "CELLS", [1 << 20, 7][seed % 2])
        patch.setattr(cascade, "_FEW", [16, 1, 2][seed % 3])
        patch.setattr(pairs, "_LOOK", [0, 1 << 10][seed // 2 % 2])
        ranks = rank_embeddings(
            queries,
            Candidates(candidates, bias),
            as_target("pairs" if several else "one", tasks),
            similarity=similarity,
            exclude=exclude,
            chunk_size=chunk_size,
            counting=counting,
            arithmetic="exact",
        )
    assert flagged_lines(ranks) == expected
