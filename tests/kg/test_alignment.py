"""rank_alignment against brute force over pairs and candidates."""

import itertools

import pytest
import torch

from torchrankmetrics import RankTable, evaluate
from torchrankmetrics.kg import rank_alignment

L, R, D = 9, 11, 4
ONE_TO_ONE = [[0, 3], [4, 1], [7, 10], [2, 2], [8, 0]]
SEVERAL = [[0, 3], [0, 5], [4, 5], [7, 10], [2, 5], [7, 3], [0, 3]]  # answers in common, and a pair twice
KNOWN = [[0, 1], [1, 3], [6, 6], [2, 5]]  # two of them are of test entities on both sides, one is a test pair


def embeddings(seed=0):
    """Small integers: products are exact, and many are tied."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(-2, 3, (size, D), generator=generator).float() for size in (L, R)]


def scores_of(left, right, similarity):
    if similarity == "dot":
        return left @ right.T
    return -(left[:, None] - right[None]).abs().pow(1 if similarity == "l1" else 2).sum(2)


def brute(scores, pairs, known, candidates):
    """(side, pair, optimistic, pessimistic, number of candidates), from the words of the docstring."""
    true = {tuple(pair) for pair in pairs + known}
    rows = []
    for side in (2, 1):
        for a, b in pairs:
            if side == 2:
                others = {r for _, r in pairs} if candidates == "test" else set(range(R))
                wrong = [scores[a][r] for r in others if r != b and (a, r) not in true]
            else:
                others = {x for x, _ in pairs} if candidates == "test" else set(range(L))
                wrong = [scores[x][b] for x in others if x != a and (x, b) not in true]
            own = scores[a][b]
            rows.append(
                [
                    side,
                    pairs.index([a, b]),
                    1 + sum(s > own for s in wrong),
                    1 + sum(s >= own for s in wrong),
                    1 + len(wrong),
                ],
            )
    return rows


def rows_of(table: RankTable):
    arrays = table.to_numpy()
    names = ("side", "sample_id", "optimistic", "pessimistic", "num_candidates")
    return [list(row) for row in zip(*(arrays[name].tolist() for name in names), strict=True)]


CASES = list(itertools.product([ONE_TO_ONE, SEVERAL], [[], KNOWN], ["test", "all"]))


@pytest.mark.parametrize(("pairs", "known", "candidates"), CASES)
@pytest.mark.parametrize("similarity", ["dot", "l2", "l1"])
def test_embeddings_rank_as_brute_force(pairs, known, candidates, similarity):
    left, right = embeddings()
    expected = brute(scores_of(left, right, similarity).tolist(), pairs, known, candidates)
    options = {"similarity": similarity, "candidates": candidates}
    given = torch.tensor(known) if known else None
    table = rank_alignment(torch.tensor(pairs), left, right, known=given, **options)
    assert rows_of(table) == expected
    assert not table.has_groups()
    assert len({tuple(row[2:]) for row in expected}) > 3  # a test of something


@pytest.mark.parametrize(("pairs", "known", "candidates"), CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_similarities_rank_as_brute_force(pairs, known, candidates, dtype):
    scores = scores_of(*embeddings(), "dot").to(dtype)
    expected = brute(scores.tolist(), pairs, known, candidates)
    assert rows_of(rank_alignment(pairs, scores, known=known or None, candidates=candidates)) == expected


def query_values(scores, pairs, known, candidates, side):
    """success@1, rr, recall@2 and ap, averaged over the entities of a side, from one list of candidates each."""
    query, answer = (0, 1) if side == "tail" else (1, 0)
    true = {tuple(pair) for pair in known}
    sizes = len(scores[0]), len(scores)
    values = []
    for entity in sorted({pair[query] for pair in pairs}):
        answers = {pair[answer] for pair in pairs if pair[query] == entity}
        everything = {pair[answer] for pair in pairs} if candidates == "test" else set(range(sizes[query]))
        others = {x for x in everything - answers if ((entity, x) if side == "tail" else (x, entity)) not in true}
        score = {x: scores[entity][x] if side == "tail" else scores[x][entity] for x in answers | others}
        order = sorted(score, key=lambda x: -score[x])
        places = [place for place, x in enumerate(order, 1) if x in answers]
        values.append(
            [
                places[0] == 1,
                1 / places[0],
                sum(place <= 2 for place in places) / len(places),
                sum(i / place for i, place in enumerate(places, 1)) / len(places),
            ]
        )
    return [sum(column) / len(values) for column in zip(*values, strict=True)]


@pytest.mark.parametrize(("pairs", "known", "candidates"), CASES)
def test_pairs_that_share_an_entity_are_one_query_of_its_side(pairs, known, candidates):
    scores = torch.rand(L, R, generator=torch.Generator().manual_seed(0))
    names = ["success@1", "rr", "recall@2", "ap"]
    table = rank_alignment(pairs, scores, known=known or None, candidates=candidates)
    for side in ("tail", "head"):
        found = evaluate(table, metrics=names, sides=side)
        expected = query_values(scores.tolist(), pairs, known, candidates, side)
        assert list(found.values()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("candidates", ["test", "all"])
def test_batches_change_nothing(candidates, monkeypatch):
    left, right = embeddings()
    scores = scores_of(left, right, "dot")
    whole = rank_alignment(SEVERAL, left, right, candidates=candidates, known=KNOWN)
    monkeypatch.setattr("torchrankmetrics.kg.alignment._QUERIES", 2)
    monkeypatch.setattr("torchrankmetrics.kg.loop.FIRST", 1)
    for arguments in ((left, right), (scores,)):
        table = rank_alignment(SEVERAL, *arguments, candidates=candidates, known=KNOWN)
        assert torch.equal(table.rows, whole.rows)


def test_embeddings_of_a_model_are_not_changed_and_nan_ranks_last():
    left, right = (x.requires_grad_() for x in embeddings())
    before = left.clone()
    table = rank_alignment(ONE_TO_ONE, left, right)
    assert not table.rows.requires_grad
    assert torch.equal(left, before)
    assert rows_of(rank_alignment(ONE_TO_ONE, left @ right.T)) == rows_of(table)  # part of a graph
    left.data[ONE_TO_ONE[1][0], 0] = float("nan")
    ranks = rank_alignment(ONE_TO_ONE, left, right).select(side="tail").ranks
    assert ranks.pessimistic[1] == ranks.num_candidates[1]
    assert len(rank_alignment(torch.empty(0, 2, dtype=torch.long), *embeddings())) == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"pairs": [[0, 1, 2]]}, ValueError, r"pairs must be \(n, 2\): left, right; got \(1, 3\)"),
        ({"pairs": [[0.0, 1.0]]}, TypeError, "pairs must hold integers, got torch.float64"),
        ({"pairs": [[0, 1], [9, 1]]}, IndexError, r"pairs must hold left entities in \[0, 9\), got 9"),
        ({"pairs": [[0, 11]]}, IndexError, r"pairs must hold right entities in \[0, 11\), got 11"),
        ({"pairs": [[-1, 1]]}, IndexError, "pairs must hold ids of at least 0, got -1"),
        ({"pairs": [[0, 1], [2]]}, ValueError, "pairs must not be ragged, got list"),
        ({"pairs": [["a", "b"]]}, TypeError, "pairs must hold numbers, got list of <U1"),
        ({"known": [[0, 11]]}, IndexError, "known must hold right entities"),
        ({"known": [0, 1]}, ValueError, r"known must be \(n, 2\)"),
        ({"candidates": "train"}, ValueError, "candidates must be one of 'test', 'all'; got 'train'"),
        ({"similarity": "csls"}, ValueError, "similarity must be one of 'dot', .*; got 'csls'"),
        ({"right": None, "similarity": "dot"}, ValueError, "similarity is for embeddings; without right"),
        ({"right": torch.zeros(R, D + 1)}, ValueError, r"left and right must be .*; got \(9, 4\) and \(11, 5\)"),
        ({"right": torch.zeros(R)}, ValueError, r"left and right must be .*; got \(9, 4\) and \(11,\)"),
        ({"right": torch.zeros(0, D)}, ValueError, r"left and right must be .* none of them empty; .* and \(0, 4\)"),
        ({"right": None, "left": torch.zeros(L)}, ValueError, r"or left similarities \(L, R\), .*; got \(9,\)"),
        ({"left": [[0.0] * D] * L}, TypeError, "left must be a torch.Tensor or an array .* got list"),
        ({"left": torch.zeros(L, D).long()}, TypeError, "queries and candidates must share a floating dtype"),
        (
            {"right": torch.zeros(R, D).double()},
            TypeError,
            "share a floating dtype, got torch.float32 and torch.float64",
        ),
    ],
)
def test_bad_input_is_named(change, error, message):
    left, right = embeddings()
    arguments = {"pairs": ONE_TO_ONE, "left": left, "right": right} | change
    with pytest.raises(error, match=message):
        rank_alignment(**arguments)


@pytest.mark.parametrize("backend", ["torch", "numba"])
def test_every_way_of_counting_gives_the_same_ranks(backend):
    if backend == "numba":
        pytest.importorskip("numba")
    left, right = embeddings()
    for arguments in ((left, right), (left @ right.T,)):
        expected = rank_alignment(SEVERAL, *arguments)
        assert torch.equal(rank_alignment(SEVERAL, *arguments, backend=backend).rows, expected.rows)
        with pytest.raises(ValueError, match="backend must be one of"):
            rank_alignment(SEVERAL, *arguments, backend="fast")


def test_cosine_ranks_by_the_angle():
    left, right = embeddings()
    left, right = left + 5, right + 5  # no zero vectors; 5 is far from making all alike
    unit = [x / x.norm(dim=1, keepdim=True) for x in (left, right)]
    expected = rank_alignment(ONE_TO_ONE, unit[0].double() @ unit[1].double().T)
    table = rank_alignment(ONE_TO_ONE, left.double(), right.double(), similarity="cosine")
    assert (table.ranks.realistic - expected.ranks.realistic).abs().max() <= 0.5  # ties may break by rounding
