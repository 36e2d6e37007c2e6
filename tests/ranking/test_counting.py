"""Every way of counting gives the bits of plain torch, and plain torch those of plain loops (test_rank_scores)."""

import importlib
import importlib.util
import os

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from fuzzing import cases
from ranking_problems import STRIDES, lay_out
from torchrankmetrics.kg.known_answers import KnownAnswers
from torchrankmetrics.kg.triples import rank_triples
from torchrankmetrics.ranking import counting
from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.ranking.embeddings import rank_embeddings
from torchrankmetrics.ranking.exclude import Excluded
from torchrankmetrics.ranking.scores import rank_scores

needs_numba = pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason='needs numba: extra "fast"')
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int32, torch.int64, torch.bool]  # a type compiles in seconds


def scores_with_specials(generator, B, N, dtype, strides):
    """Small integers; among floating scores also NaN of both signs, infinities, zeros of both signs, subnormals."""
    numbers = torch.randint(-3, 4, (B, N), generator=generator)
    scores = numbers.to(dtype)
    if dtype.is_floating_point:
        specials = torch.tensor(
            [float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0, 6e-8, -6e-8], dtype=dtype
        )
        some = torch.rand(B, N, generator=generator) < 0.2
        scores[some] = specials[torch.randint(0, len(specials), (int(some.sum()),), generator=generator)]
    return lay_out(scores, strides)


@needs_numba
@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_compiled_counts_are_those_of_plain_torch(dtype, strides):
    from torchrankmetrics.ranking.counting import numba_backend as compiled

    generator = torch.Generator().manual_seed(7)
    for B, N, P in [(0, 3, 0), (1, 1, 3), (3, 1, 5), (7, 40, 30), (2, 17000, 5)]:
        scores = scores_with_specials(generator, B, N, dtype, strides)
        row = torch.randint(0, max(B, 1), (P,), generator=generator)
        column = torch.randint(0, N, (P,), generator=generator)
        mask = torch.rand(B, N, generator=generator) < 0.5
        restriction = torch.rand(N, generator=generator) < 0.5
        pairs = (torch.rand(B, N, generator=generator) < 0.3).nonzero()
        known = KnownAnswers(pairs[:, 0], pairs[:, 1])(torch.arange(B))
        one = torch.randint(0, N, (B,), generator=generator)
        outside = torch.where(column % 2 == 0, column, -1)
        for rows, columns in ((None, one), (row, column), (row, outside), (row, None)):
            lines, place = (torch.arange(B) if rows is None else rows), (column if columns is None else columns)
            true = scores[lines, place.clamp(min=0)]
            for excluded in (
                Excluded(),
                Excluded(slices=known),
                Excluded(cells=mask),
                Excluded(columns=restriction),
                Excluded(slices=known, columns=restriction),
            ):
                arguments = (scores, true, rows, columns, excluded)
                assert torch.equal(compiled.count(*arguments), plain.count(*arguments))


@needs_numba
@cases(300, 20_000)
@given(
    st.integers(0, 10**9),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32]),
    st.sampled_from([1, 7, 70, 130, 17_000]),
    st.sampled_from([0, 1, 5, 80, 300]),
    st.sampled_from(["none", "lists", "cells", "columns", "lists and columns"]),
    st.sampled_from(["own", "given", "outside"]),
    st.sampled_from([1, 3]),
)
def test_any_number_of_targets_of_a_row_is_counted_as_in_plain_torch(seed, dtype, N, P, kind, true, threads):
    """From few targets, each compared with every cell, to many, which are searched; over block and thread borders."""
    from torchrankmetrics.ranking.counting import numba_backend as compiled

    generator = torch.Generator().manual_seed(seed)
    B = int(torch.randint(1, 4, (), generator=generator))
    scores = scores_with_specials(generator, B, N, dtype, "row")
    if seed % 2 and dtype.is_floating_point:  # few ties
        scores = torch.where(
            torch.rand(B, N, generator=generator) < 0.9, torch.randn(B, N, generator=generator), scores.float()
        ).to(dtype)
    row = torch.randint(0, B, (P,), generator=generator)
    row = row if seed % 3 else row.sort().values
    column = torch.randint(0, N, (P,), generator=generator)
    share = float(torch.rand((), generator=generator))
    slices = columns = cells = None
    if "lists" in kind:
        pairs = (torch.rand(B, N, generator=generator) < share).nonzero()
        slices = KnownAnswers(pairs[:, 0], pairs[:, 1])(torch.arange(B))
    if "columns" in kind:
        columns = torch.rand(N, generator=generator) < share
    if kind == "cells":
        cells = torch.rand(B, N, generator=generator) < share
    excluded = Excluded(slices, cells, columns)
    given_ = None if true == "own" else scores[row, column]
    if true == "outside":
        column = torch.where(column % 2 == 0, column, -1)
    split = int(torch.randint(0, N + 1, (), generator=generator))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        patch.setattr(compiled, "_PER_THREAD", 1)
        arguments = (scores, given_, row, column, excluded)
        expected = plain.count(*arguments)
        assert torch.equal(compiled.count(*arguments), expected)
        if given_ is not None and 0 < split < N:  # the same in two chunks
            left, right = excluded.between(0, split), excluded.between(split, N)
            own = [torch.where((column >= a) & (column < b), column - a, -1) for a, b in ((0, split), (split, N))]
            parts = [
                compiled.count(chunk, given_, row, place, part)
                for chunk, place, part in zip((scores[:, :split], scores[:, split:]), own, (left, right), strict=True)
            ]
            total = parts[0] + parts[1]
            assert torch.equal(total[:3], expected[:3])
            assert torch.equal(total[3] > 0, expected[3] > 0)


@pytest.mark.parametrize("way", ["torch_backend", pytest.param("numba_backend", marks=needs_numba)])
@cases(60, 5000)
@given(
    st.integers(0, 10**9),
    st.sampled_from([*FLOATS, *INTEGERS]),
    st.lists(st.sampled_from([0, 1, 5, 90]), min_size=1, max_size=5),
    st.sampled_from([1, 9, 200]),
    st.booleans(),
    st.booleans(),
)
def test_lists_are_counted_as_matrices_of_one_row_are(way, seed, dtype, lengths, P, is_own, excludes):
    count = importlib.import_module(f"{counting.__name__}.{way}").count
    generator = torch.Generator().manual_seed(seed)
    scores = scores_with_specials(generator, 1, sum(lengths), dtype, "row")[0]
    borders = torch.tensor([0, *lengths]).cumsum(0)
    lists = [i for i, length in enumerate(lengths) if length or not is_own]
    row = torch.tensor(lists, dtype=torch.int64)[
        torch.randint(0, max(1, len(lists)), (P if lists else 0,), generator=generator)
    ]
    drop = torch.rand(len(scores), generator=generator) < 0.3 if excludes else None
    column = torch.tensor([int(torch.randint(0, lengths[i], (), generator=generator)) for i in row]) if is_own else None
    true = None if is_own else scores_with_specials(generator, 1, len(row), dtype, "row")[0]
    if is_own:
        column = column.long()
    got = count(scores, true, row, column, Excluded(cells=drop), borders)
    for task, i in enumerate(row.tolist()):
        here, place = slice(int(borders[i]), int(borders[i + 1])), torch.tensor([task])
        some, none = scores[here][None], Excluded(cells=None if drop is None else drop[here][None])
        own = None if column is None else column[place]
        expected = plain.count(some, None if true is None else true[place], torch.tensor([0]), own, none)
        assert torch.equal(got[:, task], expected[:, 0])


@pytest.mark.parametrize("way", ["torch_backend", pytest.param("numba_backend", marks=needs_numba)])
def test_the_own_cell_is_left_out_whatever_the_true_score_was_rounded_to(way):
    """A true score that was computed elsewhere may be above or below the cell in its column; against plain loops."""
    count = importlib.import_module(f"{counting.__name__}.{way}").count
    generator = torch.Generator().manual_seed(8)
    B, N, nan = 40, 6, float("nan")
    scores = scores_with_specials(generator, B, N, torch.float64, "row")
    column = torch.randint(-1, N, (B,), generator=generator)
    drop = torch.rand(B, N, generator=generator) < 0.3
    for true in (scores[range(B), column] + shift for shift in (-1, 0, 1, nan)):
        for excluded in (None, drop):
            expected = []
            for i, own in enumerate(true.tolist()):
                kept = [c for c in range(N) if c != column[i] and (excluded is None or not excluded[i, c])]
                cells = scores[i, kept].tolist()
                better, not_worse = sum(not x <= own for x in cells), sum(not x < own for x in cells)  # NaN wins
                expected.append([better, not_worse, len(cells), sum(x != x for x in [*cells, own])])
            assert count(scores, true, None, column, Excluded(cells=excluded)).T.tolist() == expected


@needs_numba
@cases(15, 400)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(2, 5), st.integers(0, 10**6), st.sampled_from(FLOATS))
def test_any_split_among_threads_counts_the_same(B, N, threads, seed, dtype):
    from torchrankmetrics.ranking.counting import numba_backend as compiled

    generator = torch.Generator().manual_seed(seed)
    scores = scores_with_specials(generator, B, N, dtype, "row")
    column = torch.randint(0, N, (B,), generator=generator)
    if seed % 2:
        scores[0, column[0]] = float("nan")
    pairs = (torch.rand(B, N, generator=generator) < 0.3).nonzero()
    known = KnownAnswers(pairs[:, 0], pairs[:, 1])(torch.arange(B))
    drop = torch.rand(N, generator=generator) < 0.3
    arguments = (scores, scores[torch.arange(B), column], None, column, Excluded(slices=known, columns=drop))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_PER_THREAD", 1)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        assert torch.equal(compiled.count(*arguments), plain.count(*arguments))


@needs_numba
@pytest.mark.parametrize("with_nan", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_keep_their_order_as_integers(dtype, with_nan):
    from torchrankmetrics.ranking.counting import numba_backend as compiled

    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every if with_nan else every[~every.isnan()]
    tasks = torch.cat([torch.arange(0, len(every), 97), (every == 0).nonzero()[:, 0], every.isinf().nonzero()[:, 0]])
    every = every[None]
    true = every[0, tasks]
    row = torch.zeros_like(tasks)
    wide = plain.count(every.double(), true.double(), row, tasks, Excluded())
    assert torch.equal(compiled.count(every, true, row, tasks, Excluded()), wide)
    assert torch.equal(plain.count(every, true, row, tasks, Excluded()), wide)


@needs_numba
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_counts_too():
    scores = torch.randn(4, 1 << 20)
    target = torch.tensor([1, 2, 3, 4])
    before = rank_scores(scores, target, backend="numba")
    child = os.fork()
    if child == 0:
        same = torch.equal(rank_scores(scores, target, backend="numba").optimistic, before.optimistic)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("way", ["torch", pytest.param("numba", marks=needs_numba)])
def test_more_than_2_to_the_24_columns(way):
    scores = torch.zeros(1, (1 << 24) + 5, dtype=torch.int8)
    ranks = rank_scores(scores, torch.tensor([3]), backend=way)
    assert (int(ranks.optimistic), int(ranks.pessimistic), int(ranks.num_candidates)) == (
        1,
        (1 << 24) + 5,
        (1 << 24) + 5,
    )


class TestChoice:
    def test_auto_uses_an_installed_backend(self, monkeypatch):
        monkeypatch.setattr(counting, "_numba_problem", lambda: "it is not installed")
        assert counting.chosen(torch.zeros(1, 1)) == "torch"

    @needs_numba
    def test_auto_is_numba_on_the_cpu(self):
        assert counting.chosen(torch.zeros(1, 1)) == "numba"
        assert counting.chosen(torch.zeros(1, 1), "torch") == "torch"
        assert counting.chosen(torch.zeros(1, 1, device="meta")) == "torch"

    @needs_numba
    @pytest.mark.parametrize("way", ["torch", "numba"])
    def test_the_requested_backend_counts(self, monkeypatch, way):
        used = []
        for name, module in (
            ("torch", plain),
            ("numba", importlib.import_module(f"{counting.__name__}.numba_backend")),
        ):
            real = module.count
            monkeypatch.setattr(module, "count", lambda *a, name=name, real=real: used.append(name) or real(*a))
        scores, target = torch.eye(3), torch.tensor([0, 1, 2])
        triples = torch.tensor([[0, 0, 1], [2, 0, 0]])
        rank_scores(scores, target, backend=way)
        rank_embeddings(scores, scores, target, backend=way)
        rank_triples(lambda h, r: scores[h], None, triples, None, backend=way)
        assert set(used) == {counting.chosen(scores, way)} == {way}

    def test_a_missing_backend_raises_with_the_remedy(self, monkeypatch):
        monkeypatch.setattr(counting, "_numba_problem", lambda: "it is not installed")
        with pytest.raises(ImportError, match=r"backend.*pip install .*torchrankmetrics\[fast\]"):
            rank_scores(torch.zeros(1, 1), torch.tensor([0]), backend="numba")

    def test_numba_is_for_the_cpu(self):
        with pytest.raises(ValueError, match=r"backend.*CPU, got meta"):
            counting.chosen(torch.zeros(1, 1, device="meta"), "numba")
