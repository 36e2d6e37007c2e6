"""Ranks from scores against plain loops: every dtype, layout, form of target and of exclusion; what must not matter."""

import tracemalloc

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
from allocations import Allocations
from fuzzing import cases
from ranking_problems import KINDS, as_exclude, as_target, flagged_lines, lay_out, problems
from torchrankmetrics import rank_scores
from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.ranking.scores import rank_dense
from torchrankmetrics.ranking.tasks import read_exclude

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_integers_beyond_the_digits_of_a_float_are_distinguished(backend):
    scores = torch.tensor([[2**53, 2**53 + 1, 2**53 - 1]])
    assert flagged_lines(rank_scores(scores, torch.tensor([0]), backend=backend)) == [(2, 2, 3, False)]


@cases(25, 600)
@given(problems(), st.sampled_from(FLOATS), st.integers(1, 7), st.integers(1, 5), st.sampled_from(KINDS), st.booleans())
def test_tiles_of_any_size_count_the_same(problem, dtype, tile, entries, kind, by_column):
    rows, B, N, form, tasks, pairs = problem
    scores = lay_out(torch.tensor(rows, dtype=dtype).reshape(B, N), "column" if by_column else "row")
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_TILE", tile)
        patch.setattr(plain, "_ENTRIES", entries)
        ranks = rank_scores(scores, as_target(form, tasks), exclude=exclude, backend="torch")
    assert flagged_lines(ranks) == reference.ranks(rows, tasks, gone)


@cases(25, 600)
@given(problems(), st.sampled_from(["index", "pairs"]), st.sets(st.integers(0, 8)))
def test_known_answers_and_a_restriction_at_once(problem, kind, outside):
    rows, B, N, form, tasks, pairs = problem
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    outside = {c for c in outside if c < N} - {c for _, c in tasks}
    restriction = torch.tensor([c in outside for c in range(N)])
    scores = torch.tensor(rows).reshape(B, N)
    for backend in ("torch", "auto"):
        both = read_exclude(exclude, (B, N), scores.device)._replace(columns=restriction)
        ranks = rank_dense(scores, as_target(form, tasks), both, backend=backend)
        assert flagged_lines(ranks) == reference.ranks(rows, tasks, lambda row: gone(row) | outside)


@pytest.mark.trains
def test_nothing_of_the_graph_is_kept():
    scores = torch.randn(3, 4, requires_grad=True) * 2
    ranks = rank_scores(scores, torch.tensor([0, 1, 2]), exclude=torch.zeros(3, 4, dtype=torch.bool))
    assert not any(part.requires_grad for part in (ranks.optimistic, ranks.pessimistic))
    assert scores.grad_fn is not None
    with torch.inference_mode():
        inside = rank_scores(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert flagged_lines(inside) == [(1, 3, 3, False)] * 2


@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("kind", ["none", "pairs", "mask", "restriction", "several"])
def test_the_scores_are_never_copied(kind, layout):
    # 32 MiB of scores; an operator may allocate the tile and what grows with the tasks or with N alone
    B, N = 256, 1 << 15
    scores, mask = lay_out(torch.zeros(B, N), layout), torch.zeros(B, N, dtype=torch.bool)
    target = (torch.arange(2 * B) // 2, torch.arange(2 * B)) if kind == "several" else torch.arange(B)
    excludes = {"pairs": torch.stack([torch.arange(B), torch.arange(B) + 1]), "mask": mask, "restriction": mask[0]}
    exclude = excludes.get(kind)
    with Allocations() as seen:
        rank_scores(scores, target, exclude=exclude, backend="torch")
    assert 0 < seen.largest <= 2 << 20
    rank_scores(scores, target, exclude=exclude)  # compiled, if Numba is there, before NumPy's memory is watched
    tracemalloc.start()
    try:
        with Allocations() as seen:
            rank_scores(scores, target, exclude=exclude)
        assert max(seen.largest, tracemalloc.get_traced_memory()[1]) <= 2 << 20
    finally:
        tracemalloc.stop()
