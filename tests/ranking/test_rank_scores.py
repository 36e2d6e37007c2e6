"""Ranks from scores against plain loops: every dtype, layout, form of target and of exclusion; what must not matter."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_the_integer_type_of_the_target_does_not_matter(dtype):
    scores = torch.randint(-4, 4, (6, 40), generator=torch.Generator().manual_seed(1)).float()
    target = torch.arange(6) * 5
    assert flagged_lines(rank_scores(scores, target.to(dtype))) == flagged_lines(rank_scores(scores, target))


@pytest.mark.trains
def test_nothing_of_the_graph_is_kept():
    scores = torch.randn(3, 4, requires_grad=True) * 2
    ranks = rank_scores(scores, torch.tensor([0, 1, 2]), exclude=torch.zeros(3, 4, dtype=torch.bool))
    assert not any(part.requires_grad for part in (ranks.optimistic, ranks.pessimistic))
    assert scores.grad_fn is not None
    with torch.inference_mode():
        inside = rank_scores(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert flagged_lines(inside) == [(1, 3, 3, False)] * 2
