"""Ranks of embeddings are those of float64 scores by one routine, whatever computes them."""

import importlib.util
from contextlib import contextmanager
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
from fuzzing import cases
from ranking_problems import KINDS, as_exclude, as_target, flagged_lines
from torchrankmetrics import rank_embeddings
from torchrankmetrics.ranking import Candidates, pairs, similarities, tile_ranks, tiles
from torchrankmetrics.ranking.similarities import SIMILARITIES

HAS_NUMBA = importlib.util.find_spec("numba") is not None
BACKENDS = ["torch", "numba"] if HAS_NUMBA else ["torch"]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2]
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
    "rectified",
]


@contextmanager
def tuned(**constants):
    """Constants of the tiles, which decide what is computed how, and never a rank."""
    with mock.patch.multiple(tile_ranks, **constants):
        yield


def drawn_sizes(seed):
    """Sizes of blocks and of what is open, small ones too."""
    return {
        "_ROWS": [1, 2, 256][seed % 3],
        "_TASKS": [1, 3, 1024][seed // 3 % 3],
        "_OPEN": [0, 16, 1 << 40][seed // 9 % 3],
    }


def embeddings(kind, generator, B, N, d, dtype):
    queries = torch.randn(B, d, generator=generator)
    candidates = torch.randn(N, d, generator=generator)
    some = torch.rand(N, d, generator=generator) < 0.2
    if kind == "one ulp" and dtype.itemsize > 1:
        candidates = candidates[:1].repeat(N, 1).to(dtype)
        bits = candidates.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
        bits += torch.randint(-1, 2, (N, d), generator=generator).to(bits.dtype) * some
    elif kind == "duplicates":
        candidates = candidates[torch.randint(0, max(1, N // 4), (N,), generator=generator)]
    elif kind == "scaled":
        place = torch.randint(0, 3, (N,), generator=generator).clamp(max=N - 1)
        factor = torch.tensor([0.25, 1.0, 3.0])[torch.randint(0, 3, (N, 1), generator=generator)]
        candidates = candidates[place].to(torch.bfloat16).double() * factor
    elif kind == "huge and tiny":
        largest = {1: 10, 2: 10, 4: 100, 8: 900}[dtype.itemsize]
        power = torch.randint(-largest, largest, (N, 1), generator=generator).double()
        candidates = candidates.double() * torch.exp2(power)
    elif kind == "denormal":
        queries, candidates = (x.double() * torch.finfo(dtype).tiny for x in (queries, candidates))
        queries[::2] *= 2.0**30 / torch.finfo(dtype).tiny
    elif kind == "not finite":
        odd = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0])
        for x in (queries, candidates):
            where = (torch.rand(len(x), generator=generator) < 0.4).nonzero()[:, 0]
            cell = torch.randint(0, d, (len(where),), generator=generator)
            x[where, cell] = odd[torch.randint(0, 4, (len(where),), generator=generator)]
        candidates[torch.rand(N, generator=generator) < 0.2] = 0.0
    elif kind == "cancelling":
        queries[:, : d // 2] *= 1e4 if dtype.itemsize < 4 else 1e30
        candidates = (candidates * some).sign()
        candidates[:, : d // 2] = candidates[:1, : d // 2]
    elif kind == "integers":
        queries, candidates = (x.round() for x in (queries, candidates))
    elif kind == "rectified":
        queries, candidates = ((x - 0.7).relu() for x in (queries, candidates))
    return queries.to(dtype), candidates.to(dtype)


def biases(kind, generator, N, dtype, seed):
    if kind == "none":
        return None
    bias = torch.randn(N, generator=generator)
    if kind == "not finite":
        bias[::3] = torch.tensor([torch.inf, -torch.inf, torch.nan])[seed % 3]
    return bias.to(dtype)


@cases(150, 6000)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS_OF_NUMBERS),
    st.sampled_from(DTYPES),
    st.sampled_from(sorted(SIMILARITIES)),
    st.sampled_from(["none", "normal", "not finite"]),
    st.sampled_from([1, 2, 3, 9, 31, 70]),
    st.sampled_from([None, 1, 5]),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_ranks_are_those_of_plain_float64_numbers(
    seed, kind, dtype, similarity, added, d, chunk_size, several, out
):
    generator = torch.Generator().manual_seed(seed)
    B, N = (int(torch.randint(1, high, (), generator=generator)) for high in (5, 24))
    queries, candidates = embeddings(kind, generator, B, N, d, dtype)
    bias = None
    if similarity != "cosine":
        bias = biases(added, generator, N, dtype, seed)
    number = 3 * B if several else B
    column = torch.randint(0, N, (number,), generator=generator).tolist()
    row = torch.randint(0, B, (number,), generator=generator).tolist() if several else range(B)
    tasks = list(zip(row, column, strict=True))
    cells = torch.stack(
        [torch.randint(0, size, (2 * N,), generator=generator) for size in (B, N)], 1
    )
    exclude, gone = as_exclude(out, [tuple(cell) for cell in cells.tolist()], tasks, B, N)
    scores = reference.score_matrix(queries, candidates, bias, similarity)
    expected = reference.ranks(scores, tasks, gone)
    target = as_target("pairs" if several else "one", tasks)
    options = {"similarity": similarity, "exclude": exclude, "chunk_size": chunk_size}
    for backend in BACKENDS:
        with tuned(**drawn_sizes(seed)):
            stored = Candidates(candidates, bias)
            ranks = rank_embeddings(queries, stored, target, backend=backend, **options)
        assert flagged_lines(ranks) == expected


def dense_scores(queries, candidates, bias, similarity):
    """As ``reference.score_matrix``, by NumPy."""
    queries, candidates = (x.double().numpy() for x in (queries, candidates))

    def added_by_halves(terms):
        while terms.shape[-1] > 1:
            half = (terms.shape[-1] + 1) // 2
            lower = terms[..., :half].copy()
            lower[..., : terms.shape[-1] - half] += terms[..., half:]
            terms = lower
        return terms[..., 0]

    terms = {
        "dot": lambda q: q * candidates,
        "cosine": lambda q: q * candidates,
        "l2": lambda q: (q - candidates) ** 2,
        "l1": lambda q: abs(q - candidates),
    }[similarity]
    with np.errstate(all="ignore"):
        sums = np.stack([added_by_halves(terms(q)) for q in queries])
        if similarity == "cosine":
            return sums * abs(sums) / added_by_halves(candidates * candidates)
        scores = sums if similarity == "dot" else -sums
        return scores if bias is None else scores + bias.double().numpy()


def dense_ranks(scores, target):
    true = scores[np.arange(len(target)), target][:, None]
    other = np.arange(scores.shape[1]) != target.numpy()[:, None]
    better = (~(scores <= true) & other).sum(1)
    tied = ((scores == true) & other).sum(1)
    number = np.full(len(target), scores.shape[1])
    return torch.tensor(np.stack([1 + better, 1 + better + tied, number]))


def larger_embeddings(kind, generator, B, N, d):
    queries, candidates = (
        torch.randn(n, d, generator=generator, dtype=torch.float64) for n in (B, N)
    )
    if kind == "near":
        candidates = candidates[:1] + 1e-7 * candidates
    elif kind == "clusters":
        centers = candidates[torch.randint(0, 9, (N,), generator=generator)]
        candidates = centers + 1e-6 * candidates
    elif kind == "duplicates":
        candidates = candidates[torch.randint(0, N // 4, (N,), generator=generator)]
    elif kind == "integers":
        queries, candidates = ((1.5 * x).round().clamp(-2, 2) for x in (queries, candidates))
    elif kind == "rectified":
        queries, candidates = ((x - 1).relu() for x in (queries, candidates))
    elif kind == "heavy tails":
        candidates *= torch.exp(3 * torch.randn(N, 1, generator=generator))
    elif kind == "far from 0":
        queries, candidates = (x + 100 for x in (queries, candidates))
    elif kind == "special":
        values = torch.tensor([torch.inf, -torch.inf, torch.nan, 6e4], dtype=torch.float64)
        for x in (queries, candidates):
            some = torch.randint(0, len(x), (max(1, len(x) // 20),), generator=generator)
            x[some, some % d] = values[torch.randint(0, 4, (len(some),), generator=generator)]
    return queries, candidates


LARGER = ["near", "clusters", "duplicates", "integers", "rectified", "heavy tails", "far from 0"]


@contextmanager
def full_precision_is_off(name):
    """Let torch round float32 products to TF32 or bfloat16, where it can."""
    matmul = torch.backends.mkldnn.matmul
    if name == "fp32_precision":
        matmul.fp32_precision = "bf16"
    else:
        torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        if name == "fp32_precision":
            matmul.fp32_precision = "none"
        else:
            torch.set_float32_matmul_precision("highest")


@contextmanager
def threads(number):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: number)
        for name in ("_PER_THREAD", "_PAIRS_PER_THREAD", "_DISTANCES_PER_THREAD"):
            patch.setattr(f"torchrankmetrics.ranking.pairs_numba.{name}", 1)
        yield


@cases(12, 400)
@given(
    st.integers(0, 10**6),
    st.sampled_from([*LARGER, "normal", "special"]),
    st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    st.sampled_from(sorted(SIMILARITIES)),
    st.sampled_from([(1, 500, 5), (33, 3000, 64), (60, 900, 200)]),
)
def test_ranks_do_not_depend_on_how_the_work_is_cut(seed, kind, dtype, similarity, sizes):
    generator = torch.Generator().manual_seed(seed)
    B, N, d = sizes
    queries, candidates = (x.to(dtype) for x in larger_embeddings(kind, generator, B, N, d))
    bias = None
    if similarity != "cosine" and seed % 2:
        bias = torch.randn(N, generator=generator).to(dtype)
    target = torch.randint(0, N, (B,), generator=generator)
    expected = dense_ranks(dense_scores(queries, candidates, bias, similarity), target)
    stored = Candidates(candidates, bias)

    def ranked(q=queries, e=stored, t=target, **options):
        return rank_embeddings(q, e, t, similarity=similarity, **options).columns

    for backend in BACKENDS:
        for chunk_size in (None, 64, 333):
            assert torch.equal(ranked(backend=backend, chunk_size=chunk_size), expected)
    batches = zip(queries.split(7), target.split(7), strict=True)
    assert torch.equal(torch.cat([ranked(q, t=t) for q, t in batches], 1), expected)
    order = torch.randperm(N, generator=generator)
    place = order.argsort()
    shuffled = Candidates(candidates[order], None if bias is None else bias[order])
    assert torch.equal(ranked(e=shuffled, t=place[target]), expected)
    by_column = Candidates(candidates.T.contiguous().T, bias)
    assert torch.equal(ranked(queries.T.contiguous().T, by_column), expected)
    if HAS_NUMBA:
        for number in (2, 3):
            with threads(number):
                assert torch.equal(ranked(), expected)


@pytest.mark.parametrize("mode", ["high", "medium", "fp32_precision"])
@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
def test_ranks_do_not_depend_on_the_precision_of_float32_products(mode, similarity):
    if mode == "fp32_precision" and not hasattr(torch.backends.mkldnn, "matmul"):
        pytest.skip("torch before 2.9")
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (torch.randn(n, 64, generator=generator) for n in (64, 500))
    target = torch.arange(64)
    expected = dense_ranks(dense_scores(queries, candidates, None, similarity), target)
    with full_precision_is_off(mode):
        assert similarities.product_dtype() == torch.float64
        found = rank_embeddings(queries, candidates, target, similarity=similarity)
    assert similarities.product_dtype() == torch.float32
    assert torch.equal(found.columns, expected)


@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
def test_ranks_do_not_depend_on_autocast(similarity):
    queries, candidates = (torch.randn(n, 64) for n in (64, 500))
    target = torch.arange(64)
    expected = rank_embeddings(queries, candidates, target, similarity=similarity).columns
    with torch.autocast("cpu", torch.bfloat16):
        found = rank_embeddings(queries, candidates, target, similarity=similarity, backend="torch")
    assert torch.equal(found.columns, expected)


def test_a_product_of_too_little_precision_is_an_error(monkeypatch):
    product = torch.mm

    def rounded(one, other, out):
        return out.copy_(product(one.bfloat16().float(), other.bfloat16().float()))

    monkeypatch.setattr(torch, "mm", rounded)
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (torch.randn(n, 128, generator=generator) for n in (200, 5000))
    candidates[1] = candidates[0]  # the target 0 has a tie, which hides nothing
    with pytest.raises(RuntimeError, match="on cpu are less accurate"):
        rank_embeddings(queries, candidates, torch.arange(200))
    with pytest.raises(RuntimeError, match="less accurate"):
        rank_embeddings(queries[:1], candidates, torch.tensor([0]))


@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 8, 128, 2000])
@pytest.mark.parametrize("kind", ["normal", "positive", "far from 0"])
def test_the_errors_of_products_are_far_below_their_bound(kind, similarity, backend, dtype, d):
    generator = torch.Generator().manual_seed(d)
    queries, candidates = (
        torch.randn(n, d, generator=generator, dtype=torch.float64) for n in (16, 300)
    )
    if kind == "positive":
        queries, candidates = queries.abs() / 3, candidates.abs() / 7
    if kind == "far from 0":
        queries, candidates = queries + 30, candidates + 30
    candidates *= 2.0 ** torch.randint(-9, 9, (300, 1), generator=generator)
    given_, shelf = tiles.prepared(queries, Candidates(candidates), similarity, backend)
    tile = shelf.tile(slice(None))
    product = tile.product(dtype)
    row, column = (x.flatten() for x in torch.where(torch.ones(16, 300, dtype=torch.bool)))
    found = product.scores(given_, torch.arange(16)).double()[row, column]
    score = tile.scores(given_, row, column)
    wanted = SIMILARITIES[similarity].approximated(score, given_.norm[row])
    bound = product.error(given_.norm[row], wanted)
    assert float(((found - wanted).abs() / bound).max()) < 0.35


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_float64_product_decides_what_float32_leaves_open(backend, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (100 + torch.randn(n, 16, generator=generator) for n in (40, 2000))
    target = torch.arange(40)
    expected = dense_ranks(dense_scores(queries, candidates, None, "l2"), target)
    name = "pairs" if backend == "torch" else "pairs_numba"
    module = importlib.import_module(f"torchrankmetrics.ranking.{name}")
    num_scored = []

    def seen(*given_):
        num_scored.append(len(given_[2]))
        return sums(*given_)

    sums = module.sums_of_pairs
    monkeypatch.setattr(module, "sums_of_pairs", seen)
    numbers = {}
    for share in (0, 16):  # 0: never
        num_scored.clear()
        with tuned(_OPEN=share):
            found = rank_embeddings(queries, candidates, target, similarity="l2", backend=backend)
        assert torch.equal(found.columns, expected)
        numbers[share] = num_scored[-1]
    assert numbers[0] > 5000
    assert numbers[16] < 100


@pytest.mark.skipif(not HAS_NUMBA, reason='needs numba: extra "fast"')
@pytest.mark.parametrize(("B", "N", "d"), [(1, 1, 1), (3, 513, 7), (9, 1100, 64), (2, 5, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_functions_are_those_of_torch(B, N, d, dtype):
    compiled = importlib.import_module("torchrankmetrics.ranking.pairs_numba")
    generator = torch.Generator().manual_seed(d)
    queries, candidates = (torch.randn(n, d, generator=generator).to(dtype) for n in (B, N))
    row, column = (torch.randint(0, n, (77,), generator=generator) for n in (B, N))
    for terms in (pairs.PRODUCT, pairs.SQUARE, pairs.DISTANCE):
        given_ = queries, candidates, row, column, terms
        assert torch.equal(compiled.sums_of_pairs(*given_), pairs.sums_of_pairs(*given_))
    scores, expected = torch.empty(2, B, N, dtype=dtype)
    compiled.negative_distances(queries, candidates, scores)
    pairs.negative_distances(queries, candidates, expected)
    torch.testing.assert_close(scores, expected)
    scores[0, 0] = torch.nan
    low = torch.randn(77, generator=generator).to(dtype) - d
    ends = row, low, low + torch.rand(77, generator=generator).to(dtype)
    found, same = (module.count_open(scores, *ends) for module in (compiled, pairs))
    assert all(map(torch.equal, found, same))
    listed, same = (module.list_open(scores, *ends, found[1]) for module in (compiled, pairs))
    assert all(map(torch.equal, listed, same))
    assert len(listed[0]) == int(found[1].sum())


@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
def test_equal_candidates_tie_and_no_other(similarity):
    generator = torch.Generator().manual_seed(3)
    queries, candidates = (torch.randn(n, 200, generator=generator) for n in (64, 3000))
    candidates[1000:2000] = candidates[:1000]
    target = torch.randint(0, 1000, (64,), generator=generator)
    ranks = rank_embeddings(queries, candidates, target, similarity=similarity, chunk_size=999)
    assert torch.equal(ranks.pessimistic, ranks.optimistic + 1)


def test_candidates_store_norms_and_are_rejected_when_they_have_changed():
    embeddings, bias = torch.randn(50, 8), torch.randn(50)
    stored = Candidates(embeddings, bias)
    queries, target = torch.randn(4, 8), torch.arange(4)
    first = rank_embeddings(queries, stored, target, similarity="l2").columns
    assert torch.equal(
        first, rank_embeddings(queries, embeddings, target, similarity="l2", bias=bias).columns
    )
    assert set(stored.prepared) == {(0, 50)}
    assert torch.equal(rank_embeddings(queries, stored, target, similarity="l2").columns, first)
    rank_embeddings(queries, stored, target, chunk_size=30)
    assert set(stored.prepared) == {(0, 50), (0, 30), (30, 20)}
    with torch.no_grad():
        embeddings.mul_(2)
    narrow = Candidates(given_ := torch.zeros(9, 8, dtype=torch.float8_e5m2))
    given_.fill_(1)  # which are stored as bfloat16
    with pytest.raises(ValueError, match="Candidates have changed since"):
        rank_embeddings(queries, stored, target)
    with pytest.raises(ValueError, match="Candidates have changed since"):
        rank_embeddings(queries.bfloat16(), narrow, target)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA")
@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
def test_cuda_ranks_as_the_cpu(similarity):
    queries, candidates = (
        torch.randn(n, 128, generator=torch.Generator().manual_seed(n)) for n in (300, 20_000)
    )
    given_ = queries, candidates, torch.arange(300)
    expected = rank_embeddings(*given_, similarity=similarity).columns
    found = rank_embeddings(*(x.cuda() for x in given_), similarity=similarity)
    assert torch.equal(found.columns.cpu(), expected)


def test_the_default_device_changes_nothing():
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (
        torch.randn(n, 67, generator=generator, device="cpu") for n in (1000, 70)
    )
    target = torch.arange(1000, device="cpu") % 70
    with torch.device("meta"):
        found = rank_embeddings(queries, candidates, target)
    expected = dense_ranks(dense_scores(queries, candidates, None, "dot"), target)
    assert torch.equal(found.columns, expected)
