"""Embeddings rank as their scores do; the best candidates of each query against plain sorting."""

import csv
import io
import math

import pytest
import torch

import reference_ranks as reference
from random_graphs import graph
from torchrankmetrics import KnownTriples, RankTable, rank_triples
from torchrankmetrics.kg import (
    EmbeddingScorer,
    KnownFacts,
    rank_alignment,
    rank_complex_queries,
    rank_facts,
)
from torchrankmetrics.ranking import Candidates

N, R, D = 23, 3, 6
TRIPLES = graph(n=60, columns=(N, R, N))
TEST = TRIPLES[::3]
GENERATOR = torch.Generator().manual_seed(0)
ENTITIES, RELATIONS = (torch.randn(n, D, generator=GENERATOR) for n in (N, R))
BIAS = torch.randn(N, generator=GENERATOR)
KNOWN = KnownTriples(TRIPLES, num_entities=N)


def scorer(kind, side):
    # ties everywhere
    table = torch.randint(-3, 4, (2, N, N, N), generator=torch.Generator().manual_seed(1))
    if kind == "int":
        return lambda a, b: table[side, a % N, b % N]
    scores = table.double()
    if kind == "nan":
        scores[scores == 3] = math.nan
        scores[scores == -3] = -math.inf
    return lambda a, b: scores[side, a % N, b % N].clone()


def by_hand(kind, side, query, k, test, higher=True, known=True, candidates=None):
    """Candidates ordered by (score, id), without excluded ones; NaN last, with minus infinity."""
    given_ = ("tail", "head")[side], tuple(query)
    own, true = (reference.Graph(triples).answers(*given_) for triples in (test, TRIPLES.tolist()))
    row = scorer(kind, side)(*torch.tensor([query]).T)[0].tolist()
    gone = true - own if known else set()
    there = [i for i in candidates or range(N) if i not in gone]
    worth = {i: -math.inf if math.isnan(row[i]) else row[i] if higher else -row[i] for i in there}
    return [(i, row[i], i in own) for i in sorted(there, key=lambda i: (-worth[i], i))[:k]]


@pytest.mark.parametrize("kind", ["float", "nan", "int"])
@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(
    ("k", "batch_size", "known", "candidates"),
    [
        (1, None, True, None),
        (4, 7, True, None),
        (N + 5, None, False, None),
        (5, None, True, list(range(1, N))),
    ],
)
def test_the_best_are_those_of_plain_sorting(kind, higher, k, batch_size, known, candidates):
    options = {
        "batch_size": batch_size,
        "higher_is_better": higher,
        "candidates": candidates,
        "progress": False,
    }
    test = TEST if candidates is None else TEST[(TEST[:, [0, 2]] > 0).all(1)]
    given = scorer(kind, 0), scorer(kind, 1), test, KNOWN if known else None
    plain = rank_triples(*given, **options)
    table = rank_triples(*given, top_k=k, **options)
    assert torch.equal(table.rows, plain.rows)
    assert isinstance(table, RankTable)
    assert plain.answers is None
    for side, name in enumerate(("tail", "head")):
        found = table.answers.sides[name]
        wanted = test[:, :2] if side == 0 else test[:, 1:]
        assert torch.equal(found.queries, torch.unique(wanted, dim=0))  # each query once
        assert (
            found.ids.shape == found.scores.shape == found.correct.shape == (len(found.queries), k)
        )
        for i, query in enumerate(found.queries.tolist()):
            expected = by_hand(kind, side, query, k, test.tolist(), higher, known, candidates)
            expected += [(-1, math.nan, False)] * (k - len(expected))
            columns = (part[i].tolist() for part in (found.ids, found.scores, found.correct))
            assert str([*zip(*columns, strict=True)]) == str(
                [(one, float(s), is_true) for one, s, is_true in expected]
            )


def test_names_stand_in_every_table_and_file_and_scores_are_not_modified(tmp_path):
    answers = rank_triples(
        scorer("float", 0), scorer("float", 1), TEST, KNOWN, top_k=3, progress=False
    ).answers
    frame = answers.to_pandas()
    assert list(frame.columns) == [
        "side",
        "head",
        "relation",
        "tail",
        "position",
        "score",
        "correct",
    ]
    assert len(frame) == int(sum((side.ids >= 0).sum() for side in answers.sides.values()))
    first = frame.iloc[0]
    query = answers.sides["tail"].queries[0].tolist()
    assert [first["head"], first["relation"]] == query
    assert first["tail"] == by_hand("float", 0, query, 3, TEST.tolist())[0][0]
    entities, relations = [f"entity {i}" for i in range(N)], {0: "likes", 1: "knows", 2: "owns"}
    answers.named(entities, relations).to_csv(tmp_path / "answers.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "answers.csv").read_text())))
    assert [row["tail"] for row in rows] == [f"entity {i}" for i in frame["tail"]]
    assert [row["relation"] for row in rows] == [relations[i] for i in frame["relation"]]
    assert {row["correct"] for row in rows} == {"0", "1"}
    assert repr(answers) == f"TopAnswers({len(answers)} queries, sides: tail, head)"
    with pytest.raises(
        ValueError, match="relations must have a name for every id that occurs; id 2 has none"
    ):
        answers.named(entities, ["a", "b"]).to_csv()
    with pytest.raises(TypeError, match="entities must be a dict of id -> name"):
        answers.named("abc").to_csv()
    stored = torch.rand(N, N, generator=torch.Generator().manual_seed(2))
    before = stored.clone()
    rank_triples(lambda h, r: stored[h], None, TEST, KNOWN, top_k=3, progress=False)
    assert torch.equal(stored, before)
    none = rank_triples(lambda h, r: stored[h], None, TEST[:0], KNOWN, top_k=3, progress=False)
    assert len(none.answers) == 0
    assert none.answers.to_csv() == "side,head,relation,tail,position,score,correct\n"


L2 = {"similarity": "l2"}
MODELS = {
    "DistMult": (
        {},
        None,
        lambda h, r: ENTITIES[h] * RELATIONS[r],
        lambda r, t: RELATIONS[r] * ENTITIES[t],
    ),
    "TransE": (
        L2,
        BIAS,
        lambda h, r: ENTITIES[h] + RELATIONS[r],
        lambda r, t: ENTITIES[t] - RELATIONS[r],
    ),
}


@pytest.mark.parametrize("candidates", [None, "some"])
@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", MODELS)
def test_both_sides_are_those_of_plain_float64_numbers(name, batch_size, candidates):
    options, bias, tails, heads = MODELS[name]
    stored = Candidates(ENTITIES, bias)
    scorers = [EmbeddingScorer(queries, stored, **options) for queries in (tails, heads)]
    allowed = (
        set(range(N))
        if candidates is None
        else {*TRIPLES[:, 0].tolist(), *TRIPLES[:, 2].tolist()} - {N}
    )
    given = None if candidates is None else torch.tensor(sorted(allowed))
    table = rank_triples(
        *scorers, TRIPLES, KNOWN, candidates=given, batch_size=batch_size, progress=False
    )

    def row_of(side, query):
        requested = {"tail": tails, "head": heads}[side](*torch.tensor([query]).T)
        return reference.score_matrix(
            requested, ENTITIES, stored.bias, options.get("similarity", "dot")
        )[0]

    expected = reference.Graph(TRIPLES.tolist()).lines(TRIPLES.tolist(), row_of, allowed)
    assert reference.lines(table.ranks) == expected


def test_functions_facts_and_complex_queries_take_it():
    translated = EmbeddingScorer(MODELS["TransE"][2], ENTITIES, bias=BIAS, similarity="l1")
    by_scores = rank_triples(lambda h, r: translated(h, r), None, TRIPLES, KNOWN, progress=False)
    assert torch.equal(
        rank_triples(translated, None, TRIPLES, KNOWN, progress=False).rows, by_scores.rows
    )
    facts = torch.cat([TRIPLES, TRIPLES[:, :1] % 4], 1)
    score = EmbeddingScorer(lambda h, r, time: ENTITIES[h] * RELATIONS[r] + time[:, None], ENTITIES)
    known = KnownFacts(facts)
    table = rank_facts(score, None, facts, known, progress=False)
    same = rank_facts(lambda *ids: score(*(ids)).double(), None, facts, known, progress=False)
    assert torch.equal(table.rows, same.rows)
    requested = EmbeddingScorer(lambda queries: ENTITIES[queries], ENTITIES)
    scorers = requested, lambda q: requested(q).double()
    table, same = (rank_complex_queries(one, [{1, 2}, {4}], progress=False) for one in scorers)
    assert torch.equal(table.rows, same.rows)


def test_alignments_are_ranked_by_float64_scores():
    left, right = torch.randn(30, 8, generator=GENERATOR), torch.randn(40, 8, generator=GENERATOR)
    left[:, 0] = right[:, 0] = 1e4  # float32 scores are 1e8 and differ by ones
    test = torch.arange(30)[:, None].repeat(1, 2)
    by_scores = rank_alignment(test, left.double() @ right.double().T).rows
    assert torch.equal(rank_alignment(test, left, right).rows, by_scores)


@pytest.mark.parametrize("candidates", [None, [0, 2, 3, 5, 7]])
@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2", "l1"])
@pytest.mark.parametrize("k", [1, 3, N + 5])
def test_best_candidates_are_those_of_the_scores_of_pairs(similarity, k, candidates):
    entities = ENTITIES.clone()
    entities[3] = torch.nan
    entities[5:] = entities[2].clone()  # ties, of which the smallest ids are the best
    bias = None if similarity == "cosine" else BIAS
    score = EmbeddingScorer(
        lambda h, r: ENTITIES[h] * RELATIONS[r], entities, bias=bias, similarity=similarity
    )
    triples = TEST if candidates is None else TEST[:0]
    if candidates is not None:
        triples = TRIPLES[torch.isin(TRIPLES[:, 2], torch.tensor(candidates))]
    options = {"top_k": k, "progress": False, "candidates": candidates}
    table = rank_triples(score, None, triples, KNOWN, **options)
    by_scores = rank_triples(lambda h, r: score(h, r), None, triples, KNOWN, **options)
    assert table.answers.to_csv() == by_scores.answers.to_csv()
    query = table.answers.sides["tail"].queries[0]
    scores = torch.tensor(
        reference.score_matrix(
            ENTITIES[query[:1]] * RELATIONS[query[1:]], entities, bias, similarity
        ),
        dtype=torch.float64,
    )
    if similarity == "cosine":
        scores = scores.sign() * scores.abs().sqrt()
    torch.testing.assert_close(score(*query[:, None]), scores, rtol=0, atol=0, equal_nan=True)
