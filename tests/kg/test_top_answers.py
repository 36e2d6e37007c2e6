"""The best candidates of each query beside its ranks: those that plain sorting finds, left out what is left out."""

import csv
import io
import math

import pytest
import torch

from torchrankmetrics import KnownTriples, RankTable, rank_triples

N, R = 12, 3
generator = torch.Generator().manual_seed(0)
TRIPLES = torch.unique(
    torch.stack([torch.randint(0, high, (60,), generator=generator) for high in (N, R, N)], 1), dim=0
)
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


def by_hand(kind, side, query, k, *, higher=True, candidates=None, known=True):
    """Candidates in the order of (score, id), without those left out; NaN last, with minus infinity."""
    name = ("tail", "head")[side]
    own = [t[2 - 2 * side] for t in TEST.tolist() if (t[:2] if side == 0 else t[1:]) == query]
    true = [t[2 - 2 * side] for t in TRIPLES.tolist() if (t[:2] if side == 0 else t[1:]) == query]
    row = scorer(kind, side)(*torch.tensor([query]).T)[0].tolist()
    there = [
        i for i in range(N) if (not known or i not in true or i in own) and (candidates is None or i in candidates)
    ]
    sign = 1 if higher else -1
    worth = {i: -math.inf if math.isnan(row[i]) else sign * row[i] for i in there}
    best = sorted(there, key=lambda i: (-worth[i], i))[:k]
    return name, [(i, row[i], i in own) for i in best]


@pytest.mark.parametrize("kind", ["float", "nan", "int"])
@pytest.mark.parametrize("higher", [True, False])
@pytest.mark.parametrize(("k", "batch_size"), [(1, None), (4, 7), (N + 5, None)])
def test_the_best_are_those_of_plain_sorting(kind, higher, k, batch_size):
    options = {"batch_size": batch_size, "higher_is_better": higher, "progress": False}
    functions = scorer(kind, 0), scorer(kind, 1)
    plain = rank_triples(*functions, TEST, KNOWN, **options)
    table = rank_triples(*functions, TEST, KNOWN, top_k=k, **options)
    assert torch.equal(table.rows, plain.rows)
    assert isinstance(table, RankTable)
    assert plain.answers is None
    for side, name in enumerate(("tail", "head")):
        found = table.answers.sides[name]
        wanted = TEST[:, :2] if side == 0 else TEST[:, 1:]
        assert torch.equal(found.queries, torch.unique(wanted, dim=0))  # each query once
        assert found.ids.shape == found.scores.shape == found.correct.shape == (len(found.queries), k)
        for i, query in enumerate(found.queries.tolist()):
            _, expected = by_hand(kind, side, query, k, higher=higher)
            number = len(expected)
            assert found.ids[i].tolist() == [one for one, _, _ in expected] + [-1] * (k - number)
            assert str(found.scores[i].tolist()) == str([float(s) for _, s, _ in expected] + [math.nan] * (k - number))
            assert found.correct[i].tolist() == [c for _, _, c in expected] + [False] * (k - number)


def test_top_answers_exclude_the_candidates_that_ranks_exclude():
    functions = scorer("float", 0), scorer("float", 1)
    raw = rank_triples(*functions, TEST, None, top_k=5, progress=False).answers
    some = sorted({*TEST[:, 0].tolist(), *TEST[:, 2].tolist()})[:-1]
    kept = TEST[torch.isin(TEST[:, 0], torch.tensor(some)) & torch.isin(TEST[:, 2], torch.tensor(some))]
    few = rank_triples(*functions, kept, KNOWN, candidates=some, top_k=5, progress=False).answers
    for i, query in enumerate(raw.sides["tail"].queries.tolist()):
        assert raw.sides["tail"].ids[i].tolist() == [one for one, *_ in by_hand("float", 0, query, 5, known=False)[1]]
    assert set(few.sides["tail"].ids.unique().tolist()) <= {*some, -1}
    assert few.sides["tail"].ids.shape[1] == 5


def test_names_stand_in_every_table_and_file(tmp_path):
    answers = rank_triples(scorer("float", 0), scorer("float", 1), TEST, KNOWN, top_k=3, progress=False).answers
    frame = answers.to_pandas()
    assert list(frame.columns) == ["side", "head", "relation", "tail", "position", "score", "correct"]
    assert len(frame) == int(sum((side.ids >= 0).sum() for side in answers.sides.values()))
    first = frame.iloc[0]
    query = answers.sides["tail"].queries[0].tolist()
    assert [first["head"], first["relation"]] == query
    assert first["tail"] == by_hand("float", 0, query, 3)[1][0][0]
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


def test_scores_are_not_modified_and_bad_k_is_rejected():
    stored = torch.rand(N, N, generator=torch.Generator().manual_seed(2))
    before = stored.clone()
    rank_triples(lambda h, r: stored[h], None, TEST, KNOWN, top_k=3, progress=False)
    assert torch.equal(stored, before)
    for wrong, error in ((0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="top_k must be an int"):
            rank_triples(lambda h, r: stored[h], None, TEST, KNOWN, top_k=wrong)
    none = rank_triples(lambda h, r: stored[h], None, TEST[:0], KNOWN, top_k=3, progress=False)
    assert len(none.answers) == 0
    assert none.answers.to_csv() == "side,head,relation,tail,position,score,correct\n"
