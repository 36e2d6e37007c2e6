"""rank_alignment against brute force over pairs and candidates."""

import itertools

import pytest
import torch

import reference_ranks as reference
from torchrankmetrics import RankTable
from torchrankmetrics.kg import rank_alignment
from torchrankmetrics.ranking import flags

L, R, D = 9, 11, 4
ONE_TO_ONE = [[0, 3], [4, 1], [7, 10], [2, 2], [8, 0]]
# answers in common, and a pair twice
SEVERAL = [[0, 3], [0, 5], [4, 5], [7, 10], [2, 5], [7, 3], [0, 3]]
# two of them are of test entities on both sides, one is a test pair
KNOWN = [[0, 1], [1, 3], [6, 6], [2, 5]]


def embeddings(seed=0):
    """Small integers: products are exact, and many are tied."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(-2, 3, (size, D), generator=generator).float() for size in (L, R)]


def scores_of(left, right, similarity):
    if similarity in ("l1", "l2"):
        return -(left[:, None] - right[None]).abs().pow(int(similarity[1])).sum(2)
    return left @ right.T


def brute(scores, pairs, known, candidates):
    """(side, pair, optimistic, pessimistic, number of candidates), as in the docstring."""
    true, rows = {tuple(pair) for pair in pairs + known}, []
    for side, own in ((2, 1), (1, 0)):
        for a, b in pairs:
            cells = [(a, j) for j in range(R)] if own else [(j, b) for j in range(L)]
            others = (
                {pair[own] for pair in pairs} if candidates == "test" else set(range(len(cells)))
            )
            excluded = {j for j, cell in enumerate(cells) if j not in others or cell in true}
            ranks = reference.rank([scores[i][j] for i, j in cells], (a, b)[own], excluded)
            rows.append([side, pairs.index([a, b]), *ranks[:3]])
    return rows


def rows_of(table: RankTable):
    arrays = table.to_numpy()
    names = ("side", "sample_id", "optimistic", "pessimistic", "num_candidates")
    return [list(row) for row in zip(*(arrays[name].tolist() for name in names), strict=True)]


CASES = list(itertools.product([ONE_TO_ONE, SEVERAL], [[], KNOWN], ["test", "all"]))


@pytest.mark.parametrize(("pairs", "known", "candidates"), CASES)
@pytest.mark.parametrize("form", ["dot", "l2", "l1", torch.float16, torch.int64])
def test_embeddings_and_similarities_rank_as_brute_force_with_the_entities_as_queries(
    pairs, known, candidates, form
):
    left, right = embeddings()
    scores = scores_of(left, right, form)
    if isinstance(form, str):
        given = {"pairs": torch.tensor(pairs), "left": left, "right": right, "similarity": form}
    else:
        given = {"pairs": pairs, "left": (scores := scores.to(form))}
    expected = brute(scores.tolist(), pairs, known, candidates)
    table = rank_alignment(
        **given, known=torch.tensor(known) if known else None, candidates=candidates
    )
    assert rows_of(table) == expected
    assert not table.has_groups()
    assert len({tuple(row[2:]) for row in expected}) > 3  # a test of something
    entities = [(2, a) for a, _ in pairs] + [(1, b) for _, b in pairs]
    queries = [*zip(table.to_numpy()["side"].tolist(), table.query.tolist(), strict=True)]
    assert len({*zip(queries, entities, strict=True)}) == len({*queries}) == len({*entities})
    assert (table.ranks.flags & flags.FILTERED).all()


@pytest.mark.parametrize("candidates", ["test", "all"])
def test_batches_and_ways_of_counting_change_nothing(candidates, monkeypatch):
    left, right = embeddings()
    options = {"candidates": candidates, "known": KNOWN}
    whole = rank_alignment(SEVERAL, left, right, **options).rows
    monkeypatch.setattr("torchrankmetrics.kg.loop._QUERIES_EMBEDDED", 2)
    monkeypatch.setattr("torchrankmetrics.kg.batch_size.FIRST", 1)
    for arguments in ((left, right), (left @ right.T,)):
        for backend in ("torch", "auto"):
            assert torch.equal(
                rank_alignment(SEVERAL, *arguments, backend=backend, **options).rows, whole
            )
        with pytest.raises(ValueError, match="backend must be one of"):
            rank_alignment(SEVERAL, *arguments, backend="fast")


def test_embeddings_of_a_model_are_not_changed_and_nan_ranks_last():
    left, right = (x.requires_grad_() for x in embeddings())
    before = left.clone()
    table = rank_alignment(ONE_TO_ONE, left, right)
    assert torch.equal(left, before)
    assert rows_of(rank_alignment(ONE_TO_ONE, left @ right.T)) == rows_of(table)  # part of a graph
    left.data[ONE_TO_ONE[1][0], 0] = float("nan")
    ranks = rank_alignment(ONE_TO_ONE, left, right).select(side="tail").ranks
    assert ranks.pessimistic[1] == ranks.num_candidates[1]
    assert len(rank_alignment(torch.empty(0, 2, dtype=torch.long), *embeddings())) == 0
