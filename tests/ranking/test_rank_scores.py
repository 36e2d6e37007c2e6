"""Ranks from scores against loops; chunks rank as the whole matrix does, which never exists."""

import tracemalloc

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
from fuzzing import cases
from ranking_problems import Allocations, as_exclude, as_target, flagged_lines, lay_out, problems
from torchrankmetrics import rank_embeddings, rank_scores
from torchrankmetrics.kg import KnownPositives
from torchrankmetrics.ranking import RankAccumulator
from torchrankmetrics.ranking.counting import torch_backend as plain
from torchrankmetrics.ranking.ranks import rank_dense
from torchrankmetrics.ranking.tasks import read_exclude

COLUMNS = st.integers(0, 8)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_integers_beyond_the_digits_of_a_float_are_distinguished(backend):
    scores = torch.tensor([[2**53, 2**53 + 1, 2**53 - 1]])
    assert flagged_lines(rank_scores(scores, torch.tensor([0]), backend=backend)) == [
        (2, 2, 3, False)
    ]


@cases(40, 1000)
@given(
    problems(),
    st.integers(1, 7),
    st.integers(1, 5),
    st.sampled_from(["index", "tuple"]),
    st.sets(st.integers(0, 8)),
)
def test_known_answers_and_a_restriction_at_once_in_tiles_of_any_size(
    problem, tile, entries, kind, outside
):
    rows, B, N, form, tasks, pairs = problem
    exclude, gone = as_exclude(kind, pairs, tasks, B, N)
    outside = {c for c in outside if c < N} - {c for _, c in tasks}
    restriction = torch.tensor([c in outside for c in range(N)])
    scores = torch.tensor(rows, requires_grad=True).reshape(B, N)
    both = read_exclude(exclude, (B, N), scores.device)._replace(columns=restriction)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "_TILE", tile)
        patch.setattr(plain, "_ENTRIES", entries)
        found = [
            rank_dense(scores, as_target(form, tasks), both, backend=backend)
            for backend in ("torch", "auto")
        ]
    for ranks in found:
        assert flagged_lines(ranks) == reference.ranks(
            rows, tasks, lambda row: {*gone(row)} | outside
        )


@pytest.mark.parametrize("layout", ["row", "column"])
@pytest.mark.parametrize("kind", ["none", "pairs", "mask", "restriction", "several"])
def test_the_scores_are_never_copied(kind, layout):
    # 32 MiB of scores; an operator may allocate the tile and what grows with the tasks or with N
    # alone
    B, N = 256, 1 << 15
    scores, mask = lay_out(torch.zeros(B, N), layout), torch.zeros(B, N, dtype=torch.bool)
    target = (
        (torch.arange(2 * B) // 2, torch.arange(2 * B)) if kind == "several" else torch.arange(B)
    )
    excludes = {
        "pairs": (torch.arange(B), torch.arange(B) + 1),
        "mask": mask,
        "restriction": mask[0],
    }
    exclude = excludes.get(kind)
    with Allocations() as seen:
        rank_scores(scores, target, exclude=exclude, backend="torch")
    assert 0 < seen.largest <= 2 << 20
    # compiled, if Numba is there, before NumPy's memory is watched
    rank_scores(scores, target, exclude=exclude)
    tracemalloc.start()
    try:
        with Allocations() as seen:
            rank_scores(scores, target, exclude=exclude)
        assert max(seen.largest, tracemalloc.get_traced_memory()[1]) <= 2 << 20
    finally:
        tracemalloc.stop()


SIMILARITIES = {
    "dot": lambda q, e: q @ e.T,
    "cosine": lambda q, e: (q @ e.T) * (q @ e.T).abs() / e.square().sum(1),
    "l2": lambda q, e: -(q[:, None] - e[None]).square().sum(2),
    "l1": lambda q, e: -(q[:, None] - e[None]).abs().sum(2),
}


def tasks_and_exclusions(generator, B, N, several):
    target = torch.randint(0, N, (B,), generator=generator)
    if several:
        target = tuple(
            torch.randint(0, size, (3 * B,), generator=generator) for size in (max(B, 1), N)
        )
    mask = torch.rand(B, N, generator=generator) < 0.4
    restriction = torch.rand(N, generator=generator) < 0.4
    restriction[target[1] if several else target] = False
    pairs = tuple(mask.nonzero().T)
    known = KnownPositives(*pairs)(torch.arange(B).flip(0))
    return target, {
        "none": None,
        "mask": mask,
        "pairs": pairs,
        "known": known,
        "restriction": restriction,
    }


EXCLUSIONS = ["none", "mask", "pairs", "known", "restriction"]


@cases(40, 1200)
@given(
    st.integers(0, 10**6),
    st.integers(0, 5),
    st.integers(1, 30),
    st.sampled_from(sorted(SIMILARITIES)),
    st.sampled_from([None, 1, 3, 7, 30]),
    st.sampled_from(EXCLUSIONS),
    st.booleans(),
    st.booleans(),
)
def test_embeddings_of_integers_rank_as_their_matrix(
    seed, B, N, similarity, size, kind, several, biased
):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-4, 5, (B, 6), generator=generator).float()
    candidates = torch.randint(-4, 5, (N, 6), generator=generator).float()
    # equal candidates tie
    candidates[torch.randint(0, N, (N // 2,), generator=generator)] = candidates[0].clone()
    target, exclusions = tasks_and_exclusions(generator, B, N, several)
    scores, bias = SIMILARITIES[similarity](queries, candidates), None
    if biased and similarity != "cosine":
        bias = torch.randint(-3, 4, (N,), generator=generator).float()
        scores += bias
    options = {"exclude": exclusions[kind], "chunk_size": size, "bias": bias}
    given_ = [x.clone().requires_grad_() for x in (queries, candidates)]
    ranks = rank_embeddings(*given_, target, similarity=similarity, **options)
    assert torch.equal(torch.cat(given_), torch.cat([queries, candidates]))  # nothing is written
    assert flagged_lines(ranks) == flagged_lines(
        rank_scores(scores, target, exclude=exclusions[kind])
    )


def test_a_zero_vector_never_helps_by_cosine():
    candidates = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    ranks = rank_embeddings(
        candidates[1:2].repeat(2, 1), candidates, torch.tensor([0, 1]), similarity="cosine"
    )
    assert ranks.optimistic.tolist() == [3, 2]


@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
def test_the_matrix_never_exists(similarity):
    queries, candidates = torch.zeros(64, 8), torch.zeros(100_000, 8)
    with Allocations() as seen:
        rank_embeddings(queries, candidates, torch.arange(64), similarity=similarity)
    assert 0 < seen.largest <= 4 << 20  # the matrix would have 24 MiB


def test_a_rejected_chunk_changes_nothing():
    ranks = RankAccumulator(torch.zeros(1), torch.tensor([1]), (1, 4))
    ranks.update(torch.zeros(1, 2))
    with pytest.raises(ValueError):
        ranks.update(torch.zeros(1, 3))
    ranks.update(torch.ones(1, 2))
    assert (ranks.compute().optimistic.item(), ranks.compute().pessimistic.item()) == (3, 4)
