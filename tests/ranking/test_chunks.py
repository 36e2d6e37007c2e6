"""Candidates in chunks rank as the whole matrix does, which never exists."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from allocations import Allocations
from fuzzing import cases
from ranking_problems import flagged_lines
from torchrankmetrics import rank_embeddings, rank_scores
from torchrankmetrics.kg import KnownAnswers
from torchrankmetrics.ranking import RankAccumulator

SIMILARITIES = {
    "dot": lambda q, e: q @ e.T,
    "cosine": lambda q, e: (q @ e.T) / e.square().sum(1).sqrt(),
    "l2": lambda q, e: -(q[:, None] - e[None]).square().sum(2),
    "l1": lambda q, e: -(q[:, None] - e[None]).abs().sum(2),
}


def tasks_and_exclusions(generator, B, N, several):
    target = torch.randint(0, N, (B,), generator=generator)
    if several:
        target = tuple(torch.randint(0, size, (3 * B,), generator=generator) for size in (max(B, 1), N))
    mask = torch.rand(B, N, generator=generator) < 0.4
    restriction = torch.rand(N, generator=generator) < 0.4
    restriction[target[1] if several else target] = False
    pairs = tuple(mask.nonzero().T)
    known = KnownAnswers(*pairs)(torch.arange(B).flip(0))
    return target, {"none": None, "mask": mask, "pairs": pairs, "known": known, "restriction": restriction}


EXCLUSIONS = ["none", "mask", "pairs", "known", "restriction"]


@cases(40, 1200)
@given(
    *(st.integers(0, 10**6), st.integers(0, 5), st.integers(1, 30), st.sampled_from(sorted(SIMILARITIES))),
    *(st.sampled_from([None, 1, 3, 7, 30]), st.sampled_from(EXCLUSIONS), st.booleans(), st.booleans()),
    st.sampled_from(["product", None]),
)
def test_embeddings_of_integers_rank_as_their_matrix(seed, B, N, similarity, size, kind, several, biased, arithmetic):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(-4, 5, (B, 6), generator=generator).float()
    candidates = torch.randint(-4, 5, (N, 6), generator=generator).float()
    candidates[torch.randint(0, N, (N // 2,), generator=generator)] = candidates[0].clone()  # equal candidates tie
    target, exclusions = tasks_and_exclusions(generator, B, N, several)
    scores, bias = SIMILARITIES[similarity](queries, candidates), None
    if biased and similarity != "cosine":
        bias = torch.randint(-3, 4, (N,), generator=generator).float()
        scores += bias
    options = {"exclude": exclusions[kind], "chunk_size": size, "arithmetic": arithmetic, "bias": bias}
    ranks = rank_embeddings(queries, candidates, target, similarity=similarity, **options)
    assert flagged_lines(ranks) == flagged_lines(rank_scores(scores, target, exclude=exclusions[kind]))


def test_the_true_score_is_one_of_the_tile():
    # with a truth from another product than the tile's, most of these copies would not tie
    generator = torch.Generator().manual_seed(3)
    queries, candidates = torch.randn(64, 200, generator=generator), torch.randn(3000, 200, generator=generator)
    candidates[1000:2000] = candidates[:1000]
    target = torch.randint(0, 1000, (64,), generator=generator)
    ranks = rank_embeddings(queries, candidates, target, chunk_size=1000, arithmetic="product")
    assert torch.equal(ranks.pessimistic, ranks.optimistic + 1)


def test_nothing_of_the_graph_is_kept_and_no_candidate_is_written():
    queries, candidates = torch.randn(2, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    before = candidates.detach().clone()
    ranks = rank_embeddings(queries * 2, candidates, torch.tensor([0, 1]), similarity="cosine")
    assert not ranks.optimistic.requires_grad
    assert torch.equal(candidates, before)


def test_a_zero_vector_never_helps_by_cosine():
    candidates = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    ranks = rank_embeddings(candidates[1:2].repeat(2, 1), candidates, torch.tensor([0, 1]), similarity="cosine")
    assert ranks.optimistic.tolist() == [3, 2]


@pytest.mark.parametrize("arithmetic", ["product", None])
@pytest.mark.parametrize("similarity", sorted(SIMILARITIES))
def test_the_matrix_never_exists(similarity, arithmetic):
    queries, candidates = torch.zeros(64, 8), torch.zeros(100_000, 8)
    with Allocations() as seen:
        rank_embeddings(queries, candidates, torch.arange(64), similarity=similarity, arithmetic=arithmetic)
    assert 0 < seen.largest <= 4 << 20  # the matrix would have 24 MiB


def test_a_rejected_chunk_changes_nothing():
    ranks = RankAccumulator(torch.zeros(1), torch.tensor([1]), (1, 4))
    ranks.update(torch.zeros(1, 2))
    with pytest.raises(ValueError):
        ranks.update(torch.zeros(1, 3))
    ranks.update(torch.ones(1, 2))
    assert (ranks.compute().optimistic.item(), ranks.compute().pessimistic.item()) == (3, 4)
