"""Top predictions of facts, complex queries, alignments, per query and task, by plain sorting."""

import math

import pytest
import torch

from random_graphs import graph, integers
from torchrankmetrics import rank_embeddings, rank_triples
from torchrankmetrics.kg import (
    EmbeddingScorer,
    KnownFacts,
    rank_alignment,
    rank_complex_queries,
    rank_facts,
)

E, K = 7, 3


def best_of(row, gone, own):
    """The K first candidates in the order of (score, id), padded."""
    there = sorted((i for i in range(len(row)) if i not in gone), key=lambda i: (-row[i], i))[:K]
    found = [(i, float(row[i]), i in own) for i in there]
    return found + [(-1, math.nan, False)] * (K - len(found))


def listed(side, task):
    """What a side has for the query of a task."""
    i = side.row[task]
    columns = [part[i].tolist() for part in (side.ids, side.scores, side.correct)]
    return [*zip(*columns, strict=True)]


def same(found, expected):
    return str(found) == str(expected)  # NaN is NaN


def test_facts_have_one_line_for_each_query_and_one_for_each_fact():
    facts = graph(n=60, columns=(E, 3, E, 2))
    scores = integers(E, 3, 2, E)
    known = KnownFacts(facts)
    table = rank_facts(lambda h, r, t: scores[h, r, t], None, facts[::2], known, top_k=K)
    side = table.answers.sides["tail"]
    assert side.columns == ("head", "relation", "time", "tail")
    for task, (h, r, _, time) in enumerate(facts[::2].tolist()):
        assert side.queries[side.row[task]].tolist() == [h, r, time]
        answers = {t for a, b, t, c in facts.tolist() if (a, b, c) == (h, r, time)}
        own = {t for a, b, t, c in facts[::2].tolist() if (a, b, c) == (h, r, time)}
        assert same(listed(side, task), best_of(scores[h, r, time].tolist(), answers - own, own))
    frame = table.answers.named(times=["May", "June"]).to_pandas()
    assert list(frame)[:5] == ["side", "head", "relation", "tail", "time"]
    assert set(frame["time"]) == {"May", "June"}


def test_hard_answers_of_complex_queries_are_marked_and_easy_ones_are_left_out():
    hard, easy = [{1, 2}, {4}, {0}], [{5}, {0, 2}, set()]
    scores = integers(3, E)
    table = rank_complex_queries(lambda queries: scores[queries], hard, easy, top_k=K)
    side = table.answers.sides["answer"]
    query_of_task = [0, 0, 1, 2]
    for task, query in enumerate(query_of_task):
        expected = best_of(scores[query].tolist(), easy[query], hard[query])
        assert same(listed(side, task), expected)
    frame = table.answers.named(queries=["a", "b", "c"], entities=[f"e{i}" for i in range(E)])
    rows = frame.to_csv().splitlines()
    assert rows[0] == "side,query,answer,position,score,correct"
    assert rows[1].startswith("answer,a,e")


@pytest.mark.parametrize("form", ["embeddings", "similarities"])
@pytest.mark.parametrize("candidates", ["test", "all"])
def test_alignments_show_entities_of_the_other_graph(form, candidates):
    pairs, known = [[0, 3], [4, 1], [0, 5], [2, 2]], [[0, 1], [1, 3]]
    left, right = integers(E, 4, seed=2), integers(9, 4, seed=3)
    scores = left @ right.T
    given = (left, right) if form == "embeddings" else (scores,)
    table = rank_alignment(pairs, *given, candidates=candidates, known=known, top_k=K)
    for name, column in (("tail", 1), ("head", 0)):
        side = table.answers.sides[name]
        others = {pair[column] for pair in pairs}
        for task, pair in enumerate(pairs):
            row = (scores[pair[0]] if name == "tail" else scores[:, pair[1]]).tolist()
            entity = pair[1 - column]
            own = {other[column] for other in pairs if other[1 - column] == entity}
            gone = {other[column] for other in known if other[1 - column] == entity} - own
            if candidates == "test":
                gone |= set(range(len(row))) - others
            assert same(listed(side, task), best_of(row, gone, own))
    frame = table.answers.named(left=[f"l{i}" for i in range(E)]).to_pandas()
    assert list(frame) == ["side", "left", "right", "position", "score", "correct"]
    assert set(frame["side"]) == {"tail", "head"}


def test_predictions_of_every_triple_are_those_of_its_query():
    triples = graph(n=30)
    scores = integers(E, 3, E)
    answers = rank_triples(lambda h, r: scores[h, r], None, triples, None, top_k=K).answers
    side = answers.sides["tail"]
    per_triple = side.ids[side.row]
    assert per_triple.shape == (len(triples), K)
    for (h, r, _), ids in zip(triples.tolist(), per_triple.tolist(), strict=True):
        row = scores[h, r].tolist()
        assert ids == sorted(range(E), key=lambda i: (-row[i], i))[:K]


def test_no_queries_have_no_predictions():
    entities = integers(E, 4)
    scorer = EmbeddingScorer(lambda h, r: entities[h], entities)
    none = torch.empty(0, 3, dtype=torch.int64)
    answers = rank_triples(scorer, scorer, none, None, top_k=K).answers
    assert answers.sides["head"].ids.shape == (0, K)


@pytest.mark.parametrize("at_once", [1, 2 * E, 1 << 22])
@pytest.mark.parametrize("form", ["one target", "labels"])
def test_rank_embeddings_returns_the_best_candidates_of_every_row(monkeypatch, form, at_once):
    monkeypatch.setattr("torchrankmetrics.ranking.best._CELLS", at_once)
    queries, entities = integers(5, 4, seed=2), integers(E, 4, seed=3)
    scores = queries @ entities.T
    targets = [{0}, {3}, {1}, {1}, {6}] if form == "one target" else [{0, 2}, {3}, {1}, {1}, {4, 6}]
    known = [[1, 2], [], [0], [5, 4], [0, 6]]
    target = torch.tensor([min(own) for own in targets])
    if form == "labels":
        target = torch.zeros(5, E, dtype=torch.bool)
        for row, own in enumerate(targets):
            target[row, sorted(own)] = True
    ranks = rank_embeddings(queries, entities, target, exclude=known, top_k=K)
    plain = rank_embeddings(queries, entities, target, exclude=known)
    assert torch.equal(ranks.columns, plain.columns)
    assert plain.answers is None
    for row, own in enumerate(targets):
        columns = [part[row].tolist() for part in ranks.answers]
        expected = best_of(scores[row].tolist(), set(known[row]) - own, own)
        assert same([*zip(*columns, strict=True)], expected)


@pytest.mark.parametrize(
    ("wrong", "error"), [(0, ValueError), (1.5, TypeError)], ids=["zero", "float"]
)
def test_top_k_of_rank_embeddings_is_checked(wrong, error):
    queries, entities = integers(2, 4), integers(E, 4)
    with pytest.raises(error, match="top_k must be an int"):
        rank_embeddings(queries, entities, torch.tensor([0, 1]), top_k=wrong)
