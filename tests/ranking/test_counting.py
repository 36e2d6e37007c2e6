"""All ways of counting have the bits of plain torch, which are those of loops (test_rank_scores).

Also intervals block by block, and the norms that their bounds are made of, against plain
arithmetic.
"""

import importlib.util
import os

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given

from fuzzing import cases
from ranking_problems import STRIDES, lay_out
from torchrankmetrics.kg.known_positives import KnownPositives
from torchrankmetrics.kg.triples import rank_triples
from torchrankmetrics.ranking import counting
from torchrankmetrics.ranking.counting import Excluded, torch_backend as plain
from torchrankmetrics.ranking.embeddings import rank_embeddings
from torchrankmetrics.ranking.ranks import rank_scores

HAS_NUMBA = importlib.util.find_spec("numba") is not None
if HAS_NUMBA:
    from torchrankmetrics.ranking.counting import numba_backend as compiled
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason='needs numba: extra "fast"')
BACKENDS = {"torch": plain, **({"numba": compiled} if HAS_NUMBA else {})}
every_backend = pytest.mark.parametrize("backend", BACKENDS)
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int32, torch.int64, torch.bool]  # a type compiles in seconds


def scores_with_specials(generator, B, N, dtype, strides):
    """Small integers; if floating, also NaN, infinities and zeros of both signs, and subnormals."""
    numbers = torch.randint(-3, 4, (B, N), generator=generator)
    scores = numbers.to(dtype)
    if dtype.is_floating_point:
        specials = torch.tensor(
            [torch.nan, -torch.nan, torch.inf, -torch.inf, -0.0, 6e-8, -6e-8], dtype=dtype
        )
        some = torch.rand(B, N, generator=generator) < 0.2
        scores[some] = specials[
            torch.randint(0, len(specials), (int(some.sum()),), generator=generator)
        ]
    return lay_out(scores, strides)


@needs_numba
@cases(200, 20_000)
@given(
    st.integers(0, 10**9),
    st.sampled_from([*FLOATS, *INTEGERS]),
    st.sampled_from(STRIDES),
    st.sampled_from([1, 7, 70, 130, 17_001]),
    st.sampled_from([0, 1, 5, 80, 300]),
    st.sampled_from(["none", "lists", "cells", "columns", "lists and columns"]),
    st.sampled_from(["one of each row", "own", "given", "outside"]),
    st.sampled_from([1, 3]),
)
@example(7, torch.float32, "row", 17_001, 300, "lists", "own", 1)
def test_compiled_counts_are_those_of_plain_torch(seed, dtype, strides, N, P, kind, true, threads):
    """From few targets, each compared with every cell, to many, with buckets and searches.

    Sizes cross borders of blocks.
    """
    generator = torch.Generator().manual_seed(seed)
    B = int(torch.randint(1, 5, (), generator=generator))
    scores = scores_with_specials(generator, B, N, dtype, strides)
    if seed % 4 and dtype.is_floating_point:  # few ties
        few = torch.rand(B, N, generator=generator) < (0.9 if seed % 4 == 1 else 0.99)
        scores = lay_out(
            torch.where(few, torch.randn(B, N, generator=generator).to(dtype), scores), strides
        )
    row = torch.randint(0, B, (P,), generator=generator)
    row = row if seed % 3 else row.sort().values
    row = torch.arange(B) if true == "one of each row" else row
    column = torch.randint(0, N, (len(row),), generator=generator)
    share = float(torch.rand((), generator=generator))
    slices = columns = cells = None
    if "lists" in kind:
        pairs = (torch.rand(B, N, generator=generator) < share).nonzero()
        slices = KnownPositives(pairs[:, 0], pairs[:, 1])(torch.arange(B))
    if "columns" in kind:
        columns = torch.rand(N, generator=generator) < share
    if kind == "cells":
        cells = torch.rand(B, N, generator=generator) < share
    excluded = Excluded(slices, cells, columns)
    given_ = None if true == "own" else scores[row, column]
    if true == "outside":
        column = torch.where(column % 2 == 0, column, -1)
    split = int(torch.randint(0, N + 1, (), generator=generator))
    rows = None if true == "one of each row" else row
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        patch.setattr(compiled, "_PER_THREAD", 1)
        expected = plain.count(scores, given_, rows, column, excluded)
        assert torch.equal(compiled.count(scores, given_, rows, column, excluded), expected)
        if given_ is not None and 0 < split < N:  # the same in two chunks
            left, right = excluded.between(0, split), excluded.between(split, N)
            own = [
                torch.where((column >= a) & (column < b), column - a, -1)
                for a, b in ((0, split), (split, N))
            ]
            total = compiled.count(scores[:, :split], given_, rows, own[0], left)
            total += compiled.count(scores[:, split:], given_, rows, own[1], right)
            assert torch.equal(total[:3], expected[:3])
            assert torch.equal(total[3] > 0, expected[3] > 0)


@needs_numba
@pytest.mark.parametrize(
    ("rows", "kernel"),
    [([0, 1, 2], "count_one"), ([2, 0], "count_one"), ([2, 0, 2], "count_several")],
)
def test_the_kernel_of_several_targets_is_used_only_if_a_row_has_several(monkeypatch, rows, kernel):
    used = []
    for name in ("count_one", "count_several"):
        real = getattr(compiled, name)
        monkeypatch.setattr(
            compiled, name, lambda *a, name=name, real=real: used.append(name) or real(*a)
        )
    columns = torch.arange(len(rows))
    rank_scores(torch.randn(3, 5), (torch.tensor(rows), columns), backend="numba")
    assert used == [kernel]


@every_backend
@cases(60, 5000)
@given(
    st.integers(0, 10**9),
    st.sampled_from([*FLOATS, *INTEGERS]),
    st.lists(st.sampled_from([0, 1, 5, 90]), min_size=1, max_size=5),
    st.sampled_from([1, 9, 200]),
    st.booleans(),
    st.booleans(),
)
def test_lists_are_counted_as_matrices_of_one_row_are(
    backend, seed, dtype, lengths, P, is_own, excludes
):
    generator = torch.Generator().manual_seed(seed)
    scores = scores_with_specials(generator, 1, sum(lengths), dtype, "row")[0]
    borders = torch.tensor([0, *lengths]).cumsum(0)
    lists = [i for i, length in enumerate(lengths) if length or not is_own]
    places = torch.randint(0, max(1, len(lists)), (P if lists else 0,), generator=generator)
    row = torch.tensor(lists, dtype=torch.int64)[places]
    drop = torch.rand(len(scores), generator=generator) < 0.3 if excludes else None
    true = column = None
    if is_own:
        column = torch.tensor(
            [int(torch.randint(0, lengths[i], (), generator=generator)) for i in row]
        ).long()
    else:
        true = scores_with_specials(generator, 1, len(row), dtype, "row")[0]
    got = BACKENDS[backend].count(scores, true, row, column, Excluded(cells=drop), borders)
    for task, i in enumerate(row.tolist()):
        here, place = slice(int(borders[i]), int(borders[i + 1])), torch.tensor([task])
        some, none = scores[here][None], Excluded(cells=None if drop is None else drop[here][None])
        own = None if column is None else column[place]
        expected = plain.count(
            some, None if true is None else true[place], torch.tensor([0]), own, none
        )
        assert torch.equal(got[:, task], expected[:, 0])


@every_backend
def test_the_own_cell_is_left_out_whatever_the_true_score_was_rounded_to(backend):
    """A target score from elsewhere may be above or below its cell; compared with plain loops."""
    generator = torch.Generator().manual_seed(8)
    B, N = 40, 6
    scores = scores_with_specials(generator, B, N, torch.float64, "row")
    column = torch.randint(-1, N, (B,), generator=generator)
    drop = torch.rand(B, N, generator=generator) < 0.3
    for true in (scores[range(B), column] + shift for shift in (-1, 0, 1, torch.nan)):
        for excluded in (None, drop):
            expected = []
            for i, own in enumerate(true.tolist()):
                kept = [
                    c
                    for c in range(N)
                    if c != column[i] and (excluded is None or not excluded[i, c])
                ]
                cells = scores[i, kept].tolist()
                # NaN wins
                better, not_worse = (
                    sum(not x <= own for x in cells),
                    sum(not x < own for x in cells),
                )
                expected.append([better, not_worse, len(cells), sum(x != x for x in [*cells, own])])
            found = BACKENDS[backend].count(scores, true, None, column, Excluded(cells=excluded))
            assert found.T.tolist() == expected


@pytest.mark.parametrize("backend", ["torch", "numba"])
@pytest.mark.parametrize("columns", [[0], [0, 4]], ids=["one", "several"])
@pytest.mark.parametrize(
    "exclude",
    [[[1, 2, 3, 4]], torch.tensor([[False, True, True, True, True]])],
    ids=["columns", "mask"],
)
def test_excluded_nan_scores_do_not_count(exclude, backend, columns):
    scores = torch.tensor([[0.5, torch.nan, torch.nan, torch.nan, 0.6]])
    ranks = rank_scores(scores, [columns], exclude=exclude, backend=backend)
    assert ranks.optimistic.tolist() == [1] * len(columns)
    assert ranks.pessimistic.tolist() == [1] * len(columns)
    assert ranks.num_candidates.tolist() == [1, 2][: len(columns)]


@needs_numba
@pytest.mark.parametrize("with_nan", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_keep_their_order_as_integers(dtype, with_nan):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every if with_nan else every[~every.isnan()]
    tasks = torch.cat(
        [
            torch.arange(0, len(every), 97),
            (every == 0).nonzero()[:, 0],
            every.isinf().nonzero()[:, 0],
        ]
    )
    true, row = every[tasks], torch.zeros_like(tasks)
    wide = plain.count(every[None].double(), true.double(), row, tasks, Excluded())
    for module in BACKENDS.values():
        assert torch.equal(module.count(every[None], true, row, tasks, Excluded()), wide)


@needs_numba
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_counts_too():
    scores, target = torch.randn(4, 1 << 20), torch.tensor([1, 2, 3, 4])
    before = rank_scores(scores, target, backend="numba").columns
    child = os.fork()
    if child == 0:
        same = torch.equal(rank_scores(scores, target, backend="numba").columns, before)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@every_backend
def test_more_than_2_to_the_24_columns(backend):
    N = (1 << 24) + 5
    ranks = rank_scores(torch.zeros(1, N, dtype=torch.int8), torch.tensor([3]), backend=backend)
    assert ranks.columns.tolist() == [[1], [N], [N]]


def test_numba_counts_on_the_cpu_if_it_is_installed(monkeypatch):
    somewhere_else = torch.zeros(1, 1, device="meta")
    assert counting.chosen(somewhere_else) == "torch"
    with pytest.raises(ValueError, match=r"backend.*CPU, got meta"):
        counting.chosen(somewhere_else, "numba")
    assert counting.chosen(torch.zeros(1, 1)) == ("numba" if HAS_NUMBA else "torch")
    monkeypatch.setattr(counting, "_numba_problem", lambda: "it is not installed")
    assert counting.chosen(torch.zeros(1, 1)) == "torch"
    with pytest.raises(ImportError, match=r"backend.*pip install .*torchrankmetrics\[fast\]"):
        rank_scores(torch.zeros(1, 1), torch.tensor([0]), backend="numba")


@pytest.mark.parametrize("way", ["torch", pytest.param("numba", marks=needs_numba)])
def test_the_requested_backend_counts(monkeypatch, way):
    used = []
    for name in ("torch", "numba") if importlib.util.find_spec("numba") else ("torch",):
        module = importlib.import_module(f"{counting.__name__}.{name}_backend")
        real = module.count
        monkeypatch.setattr(
            module, "count", lambda *a, name=name, real=real: used.append(name) or real(*a)
        )
    scores, target = torch.eye(3), torch.tensor([0, 1, 2])
    rank_scores(scores, target, backend=way)
    rank_embeddings(scores, scores, target, backend=way)
    rank_triples(
        lambda h, r: scores[h], None, torch.tensor([[0, 0, 1], [2, 0, 0]]), None, backend=way
    )
    assert set(used) == {counting.chosen(scores, way)} == {way}
