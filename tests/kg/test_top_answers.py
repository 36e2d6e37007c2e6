"""The best candidates of each query beside its ranks: those that plain sorting finds, left out what is left out."""

import csv
import io
import math

import pytest
import torch

from random_graphs import graph
from torchrankmetrics import KnownTriples, RankTable, rank_triples

N, R = 12, 3
TRIPLES = graph(n=60, columns=(N, R, N))
TEST = TRIPLES[::3]
KNOWN = KnownTriples(TRIPLES, num_entities=N)


def scorer(kind, side):
    table = torch.randint(-3, 4, (2, N, N, N), generator=torch.Generator().manual_seed(1))  # ties everywhere
    if kind == "int":
        return lambda a, b: table[side, a % N, b % N]
    scores = table.double()
    if kind == "nan":
        scores[scores == 3] = math.nan
        scores[scores == -3] = -math.inf
    return lambda a, b: scores[side, a % N, b % N].clone()


def by_hand(kind, side, query, k, test, higher=True, known=True, candidates=None):
    """Candidates in the order of (score, id), without those left out; NaN last, with minus infinity."""
    own, true = (
        {t[2 - 2 * side] for t in triples if (t[:2] if side == 0 else t[1:]) == query}
        for triples in (test, TRIPLES.tolist())
    )
    row = scorer(kind, side)(*torch.tensor([query]).T)[0].tolist()
    gone = true - own if known else set()
    there = [i for i in candidates or range(N) if i not in gone]
    worth = {i: -math.inf if math.isnan(row[i]) else row[i] if higher else -row[i] for i in there}
    return [(i, row[i], i in own) for i in sorted(there, key=lambda i: (-worth[i], i))[:k]]


@pytest.mark.parametrize("kind", ["float", "nan", "int"])
@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(
    ("k", "batch_size", "known", "candidates"),
    [(1, None, True, None), (4, 7, True, None), (N + 5, None, False, None), (5, None, True, list(range(1, N)))],
)
def test_the_best_are_those_of_plain_sorting(kind, higher, k, batch_size, known, candidates):
    options = {"batch_size": batch_size, "higher_is_better": higher, "candidates": candidates, "progress": False}
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
        assert found.ids.shape == found.scores.shape == found.correct.shape == (len(found.queries), k)
        for i, query in enumerate(found.queries.tolist()):
            expected = by_hand(kind, side, query, k, test.tolist(), higher, known, candidates)
            expected += [(-1, math.nan, False)] * (k - len(expected))
            columns = (part[i].tolist() for part in (found.ids, found.scores, found.correct))
            assert str([*zip(*columns, strict=True)]) == str([(one, float(s), is_true) for one, s, is_true in expected])


def test_names_stand_in_every_table_and_file(tmp_path):
    answers = rank_triples(scorer("float", 0), scorer("float", 1), TEST, KNOWN, top_k=3, progress=False).answers
    frame = answers.to_pandas()
    assert list(frame.columns) == ["side", "head", "relation", "tail", "position", "score", "correct"]
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
    with pytest.raises(ValueError, match="relations must have a name for every id that occurs; id 2 has none"):
        answers.named(entities, ["a", "b"]).to_csv()
    with pytest.raises(TypeError, match="entities must be a dict of id -> name"):
        answers.named("abc").to_csv()


def test_scores_are_not_modified_and_no_triples_have_no_answers():
    stored = torch.rand(N, N, generator=torch.Generator().manual_seed(2))
    before = stored.clone()
    rank_triples(lambda h, r: stored[h], None, TEST, KNOWN, top_k=3, progress=False)
    assert torch.equal(stored, before)
    none = rank_triples(lambda h, r: stored[h], None, TEST[:0], KNOWN, top_k=3, progress=False)
    assert len(none.answers) == 0
    assert none.answers.to_csv() == "side,head,relation,tail,position,score,correct\n"
