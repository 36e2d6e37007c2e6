"""Ranks by exact arithmetic are those of rational numbers, whatever computes them."""

import importlib.util
import itertools
from contextlib import contextmanager

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given

import reference_ranks as reference
from fuzzing import cases
from ranking_problems import KINDS, as_exclude, as_target, flagged_lines
from torchrankmetrics import rank_embeddings
from torchrankmetrics.ranking import Candidates
from torchrankmetrics.ranking.exact import levels, problem, rank
from torchrankmetrics.ranking.exact.problem import FLOAT32, FLOAT64, INT8

HAS_NUMBA = importlib.util.find_spec("numba") is not None
LADDERS = [[INT8, FLOAT32, FLOAT64], [INT8, FLOAT64], [FLOAT32, FLOAT64], [FLOAT64]]
WAYS = [("torch", ladder) for ladder in LADDERS if ladder[0] in (FLOAT32, FLOAT64)]
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
]
KINDS_OF_NUMBERS += ["cancelling", "integers"]


@contextmanager
def tuned(ladder, **constants):
    """Precisions and constants of the module of exact ranks, which decide what is computed how, and never a rank."""
    modules = {"CELLS": problem, "BLOCK": problem}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank, "precisions", lambda *args, **options: ladder)
        for name, value in constants.items():
            patch.setattr(modules.get(name, rank), name, value)
        yield patch


def embeddings(kind, generator, B, N, d, dtype):
    queries, candidates = (
        torch.randn(B, d, generator=generator),
        torch.randn(N, d, generator=generator),
    )
    some = torch.rand(N, d, generator=generator) < 0.2
    if kind == "one ulp":
        candidates = candidates[:1].repeat(N, 1).to(dtype)
        bits = candidates.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
        bits += torch.randint(-1, 2, (N, d), generator=generator).to(bits.dtype) * some
    elif kind == "duplicates":
        candidates = candidates[torch.randint(0, max(1, N // 4), (N,), generator=generator)]
    elif kind == "scaled":
        candidates = candidates[torch.randint(0, 3, (N,), generator=generator).clamp(max=N - 1)].to(
            torch.bfloat16
        )
        factor = torch.tensor([0.25, 1.0, 3.0])[torch.randint(0, 3, (N, 1), generator=generator)]
        candidates = candidates.double() * factor
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
            x[where, cell[where]] = odd[
                torch.randint(0, 4, (int(where.sum()),), generator=generator)
            ]
        candidates[torch.rand(N, generator=generator) < 0.2] = 0.0
    elif kind == "cancelling":
        queries[:, : d // 2] *= 1e4 if dtype == torch.float16 else 1e30
        candidates = (candidates * some).sign()
        candidates[:, : d // 2] = candidates[:1, : d // 2]
    elif kind == "integers":
        queries, candidates = (x.round() for x in (queries, candidates))
    return queries.to(dtype), candidates.to(dtype)


# true scores below all numbers of float32, and lengths that vanish in it
@example(
    305263,
    "huge and tiny",
    torch.bfloat16,
    "l2",
    "none",
    ("numba", [FLOAT64]),
    70,
    None,
    False,
    "none",
)
@example(
    4,
    "huge and tiny",
    torch.float64,
    "cosine",
    "none",
    ("torch", [FLOAT32, FLOAT64]),
    1,
    1,
    False,
    "none",
)
@cases(100, 4000)
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
    seed, kind, dtype, similarity, added, way, d, chunk_size, several, out
):
    generator = torch.Generator().manual_seed(seed)
    B, N = (int(torch.randint(1, high, (), generator=generator)) for high in (5, 24))
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
    cells = torch.stack(
        [torch.randint(0, size, (2 * N,), generator=generator) for size in (B, N)], 1
    )
    exclude, gone = as_exclude(out, [tuple(cell) for cell in cells.tolist()], tasks, B, N)
    expected = reference.ranks(
        reference.exact_matrix(queries, candidates, bias, similarity), tasks, gone
    )
    backend, ladder = way
    if d == 1:  # torch gives wrong integer products there, which the look at them would find out
        ladder = [dtype for dtype in ladder if dtype != INT8]
    constants = {
        "CELLS": [1 << 20, 7][seed % 2],
        "BLOCK": [1024, 3][seed // 13 % 2],
        "_LEAST": [0, 1, 16][seed % 3],
    }
    constants |= {"_FIRST": [1, 4, 512][seed // 3 % 3], "_LISTED": [2, 1 << 22][seed // 17 % 2]}
    options = {
        "similarity": similarity,
        "exclude": exclude,
        "chunk_size": chunk_size,
        "backend": backend,
    }
    target = as_target("pairs" if several else "one", tasks)
    with tuned(ladder, **constants, _LOOK=[0, 1 << 10][seed // 2 % 2]):
        ranks = rank_embeddings(
            queries, Candidates(candidates, bias), target, arithmetic="exact", **options
        )
    assert flagged_lines(ranks) == expected


@cases(8, 250)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["dot", "cosine", "l2"]),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
)
def test_threads_tiles_batches_and_precisions_change_nothing(seed, similarity, threads, trained):
    generator = torch.Generator().manual_seed(seed)
    B, N, d = 90, 700, 64
    queries, candidates = (
        torch.randn(B, d, generator=generator),
        torch.randn(N, d, generator=generator),
    )
    candidates[N // 2 :] = candidates[: N - N // 2]  # every candidate has a duplicate
    target = torch.randint(0, N, (B,), generator=generator)
    if trained:
        queries = candidates[target] + 0.3 * queries
    wide = {
        "dot": torch.mm,
        "cosine": lambda q, e: q @ (e / e.norm(dim=0)),
        "l2": lambda q, e: -torch.cdist(q, e.T),
    }
    scores = wide[similarity](queries.double(), candidates.double().T)
    true = scores.gather(1, target[:, None])
    expected = 1 + (scores - true > 1e-9).sum(1)  # no two others are that close here
    options = {"similarity": similarity, "arithmetic": "exact"}
    for (backend, ladder), chunk_size in itertools.product(WAYS, (None, 64, 333)):
        with tuned(ladder) as patch:
            patch.setattr(torch, "get_num_threads", lambda: threads)
            if backend == "numba":
                patch.setattr("torchrankmetrics.ranking.exact.kernels._PER_THREAD", 1)
            ranks = rank_embeddings(
                queries, candidates, target, backend=backend, chunk_size=chunk_size, **options
            )
        assert torch.equal(ranks.columns[:2], torch.stack([expected, expected + 1]))
    stored, batches = Candidates(candidates), zip(queries.split(7), target.split(7), strict=True)
    parts = [rank_embeddings(q, stored, t, **options) for q, t in batches]
    assert torch.equal(torch.cat([part.columns for part in parts], 1), ranks.columns)


def test_biases_that_vanish_in_float64_are_distinguished_for_queries_of_zeros():
    zeros = torch.zeros(4, 1, dtype=torch.float64)
    candidates = torch.tensor([[1e-170], [2e-170], [3e-170], [1.0]], dtype=torch.float64)
    ranks = rank_embeddings(zeros, candidates, torch.arange(4), similarity="l2")
    assert ranks.optimistic.tolist() == ranks.pessimistic.tolist() == [1, 2, 3, 4]
    bias = torch.tensor([0.0, 5e-324], dtype=torch.float64)  # half of it is 0 in float64
    ranks = rank_embeddings(zeros[:1], zeros[:2], torch.tensor([0]), similarity="l2", bias=bias)
    assert ranks.optimistic.tolist() == ranks.pessimistic.tolist() == [2]


def test_many_ties_of_every_cause_are_not_compared_one_by_one(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    requested = []
    score = rank.rational_score
    monkeypatch.setattr(rank, "_LOOK", 100)
    monkeypatch.setattr(rank, "rational_score", lambda *given: requested.append(1) or score(*given))
    queries, candidates = (
        torch.randn(200, 64, generator=generator),
        torch.randn(3000, 64, generator=generator),
    )
    target = torch.arange(200)
    half = candidates.clone()
    half[1500:] = candidates[3]
    coarse = (2 * candidates).round() / 2
    cases = {
        "half are duplicates": (queries, half, "dot"),
        "all are": (queries, candidates[:1].repeat(3000, 1), "l2"),
        "all are zeros": (queries * 0, candidates, "cosine"),
        "integers": ((2 * queries).round(), coarse, "dot"),
        "integers apart": ((2 * queries).round(), coarse, "l2"),
    }
    for name, (q, e, similarity) in cases.items():
        requested.clear()
        ranks = rank_embeddings(q, e, target, similarity=similarity)
        assert len(requested) <= 2 * rank._LOOK, name
        tied = {
            "half are duplicates": 1500 * (target == 3),
            "all are": 2999,
            "all are zeros": 2999,
        }.get(name)
        if tied is None:
            scores = q @ e.T if similarity == "dot" else -(q[:, None] - e).square().sum(2)
            tied = (scores == scores.gather(1, target[:, None])).sum(1) - 1
            assert int(tied.sum()) > 2 * rank._LOOK
        assert torch.equal(
            ranks.pessimistic - ranks.optimistic, torch.zeros(200, dtype=torch.long) + tied
        )


def test_products_of_reduced_precision_are_not_trusted():
    queries, candidates = (
        torch.randn(n, 64, generator=torch.Generator().manual_seed(n)) for n in (64, 500)
    )
    expected = rank_embeddings(queries, candidates, torch.arange(64)).columns
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert FLOAT32 not in rank.precisions(64, 2000, 1 << 30, compiled=False)
        assert torch.equal(rank_embeddings(queries, candidates, torch.arange(64)).columns, expected)
    finally:
        torch.set_float32_matmul_precision(before)


def test_integer_products_that_saturate_or_are_missing_are_found_out(monkeypatch):
    def saturated(one, other, out=None):
        unsigned, other = one.int() + 128, other.int()
        pairs = [unsigned[:, k : k + 2] @ other[k : k + 2] for k in range(0, 64, 2)]
        return sum(pair.clamp(-(2**15), 2**15 - 1) for pair in pairs) - 128 * other.sum(0)

    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True, raising=False)
    monkeypatch.setattr(torch, "_int_mm", saturated)
    assert not levels._int8_pays.__wrapped__(64)
    monkeypatch.delattr(torch, "_int_mm")
    assert not levels._int8_pays.__wrapped__(64)


def test_candidates_are_read_once_and_rejected_when_they_have_changed():
    embeddings, bias = torch.randn(50, 8), torch.randn(50)
    stored = Candidates(embeddings, bias)
    queries, target = torch.randn(4, 8), torch.arange(4)
    first = rank_embeddings(queries, stored, target, similarity="l2").columns
    assert torch.equal(
        first, rank_embeddings(queries, embeddings, target, similarity="l2", bias=bias).columns
    )
    assert ("l2", 50, 50) in stored.prepared
    with torch.no_grad():
        embeddings.mul_(2)
    narrow = Candidates(given_ := torch.zeros(9, 8, dtype=torch.float8_e5m2))
    given_.fill_(1)  # which are stored as bfloat16
    for arithmetic in ("exact", "product"):
        with pytest.raises(ValueError, match="Candidates have changed since"):
            rank_embeddings(queries, stored, target, arithmetic=arithmetic)
        with pytest.raises(ValueError, match="Candidates have changed since"):
            rank_embeddings(queries.bfloat16(), narrow, target, arithmetic=arithmetic)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
def test_cuda_ranks_as_the_cpu(similarity):
    queries, candidates = (
        torch.randn(n, 128, generator=torch.Generator().manual_seed(n)) for n in (300, 20_000)
    )
    given_ = queries, candidates, torch.arange(300)
    expected = rank_embeddings(*given_, similarity=similarity).columns
    found = rank_embeddings(*(x.cuda() for x in given_), similarity=similarity, arithmetic="exact")
    assert torch.equal(found.columns.cpu(), expected)


def test_which_precisions_pay_is_measured_on_the_processor_whatever_the_default_device():
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (
        torch.randn(n, 67, generator=generator, device="cpu") for n in (1000, 70)
    )
    target = torch.arange(1000, device="cpu") % 70
    with torch.device("meta"):
        found = rank_embeddings(queries, candidates, target)
    scores = queries.double() @ candidates.double().T
    assert torch.equal(found.optimistic, 1 + (scores > scores.gather(1, target[:, None])).sum(1))


@pytest.mark.skipif(not HAS_NUMBA, reason="int8 needs Numba")
def test_rounding_to_int8_by_rows():
    from torchrankmetrics.ranking.exact.kernels import quantized

    rows = (
        torch.randn(60, 33, generator=torch.Generator().manual_seed(0))
        * torch.logspace(-30, 15, 60)[:, None]
    )
    rows[0], rows[1, 3], rows[2, 5], rows[3], rows[4] = (
        0.0,
        torch.nan,
        -torch.inf,
        1e-40,
        rows[4] * 1e-20,
    )
    whole, scale, error = quantized(rows)
    is_usable = (rows.abs().amax(1) > 127 * 2.0**-120) & (rows.abs().amax(1) < torch.inf)
    assert is_usable[5:].all()
    assert not is_usable[:4].any()
    assert (scale[~is_usable] == 1).all()
    assert (whole[~is_usable] == 0).all()
    assert (whole[is_usable].int().abs().amax(1) == 127).all()
    exact = (
        rows[is_usable].double() - whole[is_usable].double() * scale[is_usable].double()[:, None]
    )
    assert (exact.abs() <= scale[is_usable].double()[:, None] * (0.5 + 1e-4)).all()
    torch.testing.assert_close(
        error[is_usable].double(), exact.norm(dim=1), rtol=1e-4, atol=2.0**-60
    )
