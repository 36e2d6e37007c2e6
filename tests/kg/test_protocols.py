"""Evaluation protocols against brute force over triples and the procedures of papers, and PyKEEN on Nations."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from fuzzing import cases
from pykeen_lookup import Lookup, splits_of
from random_graphs import graph, integers
from reference_ranks import among, lines
from torchrankmetrics import KnownTriples, evaluate, rank_scores, rank_triples
from torchrankmetrics.kg import KnownAnswers, KnownFacts, rank_complex_queries, rank_facts
from torchrankmetrics.ranking import RankAccumulator

E, R, T = 7, 3, 3


def test_types_and_known_answers_filter_at_once():
    triples = graph()
    h, r, t = triples.T
    tails_of = torch.zeros(R, E, dtype=torch.bool)
    tails_of[r, t] = True
    tails_of[0, :3] = False  # types may miss some of the true tails: those tasks keep their own
    outside = ~tails_of[r]
    outside[tuple(KnownTriples(triples).tails(h, r).pairs())] = True
    scores = integers(len(triples), E)
    true = {tuple(x) for x in triples.tolist()}
    expected = [
        among(row, d, [e for e in range(E) if e == d or (tails_of[b, e] and (a, b, e) not in true)])
        for row, (a, b, d) in zip(scores.tolist(), triples.tolist(), strict=True)
    ]
    assert lines(rank_scores(scores, t, exclude=outside)) == expected
    assert len({n for *_, n in expected}) > 3


@pytest.mark.parametrize(
    ("entities", "relations"),
    [([0, 1, 3, 4, 5, 7, 9, 12], None), ([2, 3, 5, 7, 8, 9, 11, 13], list(range(30)))],
    ids=["entities", "both"],
)
def test_restrictions_are_those_of_pykeen(nations, entities, relations):
    from pykeen.evaluation import RankBasedEvaluator

    splits, num_entities = splits_of(nations), nations.num_entities
    model, test = Lookup(nations), splits[2]
    evaluator = RankBasedEvaluator(clear_on_finalize=False)
    evaluator.evaluate(
        model,
        test,
        batch_size=64,
        use_tqdm=False,
        restrict_entities_to=entities,
        restrict_relations_to=relations,
        pre_filtered_triples=False,
        additional_filter_triples=splits[:2],
    )
    of_interest = torch.ones(len(test), dtype=torch.bool)
    if entities is not None:
        of_interest &= torch.isin(test[:, [0, 2]], torch.tensor(entities)).all(1)
    if relations is not None:
        of_interest &= torch.isin(test[:, 1], torch.tensor(relations))
    assert 20 < of_interest.sum() < len(test)
    known = KnownTriples(*splits, num_entities=num_entities)
    triples = test[of_interest]
    table = rank_triples(
        lambda h, r: model.scores[r, h], lambda r, t: model.scores[r, :, t], triples, known, candidates=entities
    )
    for side in ("tail", "head"):
        ranks = table.select(side=side).ranks
        for rank_type in ("optimistic", "pessimistic", "realistic"):
            theirs = torch.cat([torch.as_tensor(part) for part in evaluator.ranks[side, rank_type]])
            assert getattr(ranks, rank_type).double().tolist() == theirs.double().tolist()
        counts = torch.cat([torch.as_tensor(part) for part in evaluator.num_candidates[side]])
        assert ranks.num_candidates.tolist() == counts.tolist()
        assert known.num_candidates(triples, side, candidates=entities).tolist() == counts.tolist()


def test_inductive_ranks_are_those_of_strict_negatives():
    """ULTRA and GraIL: filtered by the inference graph and the test triples, pessimistic ranks, both sides."""
    inference, test = graph(4, n=30), graph(5, n=15)
    scores = integers(2, E, R, E)
    table = rank_triples(
        lambda h, r: scores[0, h, r],
        lambda r, t: scores[1, t, r],
        test,
        KnownTriples(inference, test, num_entities=E),
    )
    true = {tuple(x) for x in [*inference.tolist(), *test.tolist()]}
    pessimistic, negatives = [], []
    for side in (0, 1):
        for h, r, t in test.tolist():
            row, own = (scores[0, h, r], t) if side == 0 else (scores[1, t, r], h)
            other = [(h, r, e) if side == 0 else (e, r, t) for e in range(E)]
            strict = [row[e].item() for e in range(E) if other[e] not in true]
            pessimistic.append(1 + sum(score >= row[own].item() for score in strict))
            negatives.append(len(strict))
    assert table.ranks.pessimistic.tolist() == pessimistic
    assert (table.ranks.num_candidates - 1).tolist() == negatives
    values = evaluate(table, metrics=["mrr", "hits@3"], rank_types=["pessimistic"])
    assert values["pessimistic_mrr"] == pytest.approx(np.mean(1 / np.array(pessimistic)))
    assert values["pessimistic_hits_at_3"] == pytest.approx(np.mean(np.array(pessimistic) <= 3))


ANSWERS = st.lists(st.tuples(st.sets(st.integers(0, E - 1), min_size=1), st.sets(st.integers(0, E - 1))), max_size=6)


@cases(25, 600)
@given(ANSWERS, st.sampled_from(["sets", "pairs"]), st.data())
def test_hard_answers_are_averaged_per_query_and_pattern(queries, form, data):
    """As in BetaE: sort all entities, of a hard answer's place take off the other answers before it, average."""
    hard = [h for h, _ in queries]
    easy = [e - h for h, e in queries]
    pattern = data.draw(st.lists(st.integers(0, 2), min_size=len(queries), max_size=len(queries)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 9)))
    scores = torch.rand(len(queries), E, generator=generator)  # no ties: they have no rule of theirs
    logs = {}
    for i in range(len(queries)):
        order = scores[i].argsort(descending=True).tolist()
        ranks = [
            1 + sum(x not in hard[i] | easy[i] for x in order[: order.index(answer)]) for answer in sorted(hard[i])
        ]
        logs.setdefault(pattern[i], []).append(np.mean([1 / rank for rank in ranks]))

    def given_as(sets):
        pairs = [(i, a) for i, part in enumerate(sets) for a in sorted(part)]
        return sets if form == "sets" else torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T

    table = rank_complex_queries(lambda q: scores[q], given_as(hard), given_as(easy), pattern=pattern, progress=False)
    assert len(table) == sum(map(len, hard))
    if not queries:
        return
    for one, values in logs.items():
        mrr = evaluate(table.select(group=one), metrics=["mrr"])["mrr"]
        assert mrr == pytest.approx(np.mean(values), rel=1e-12)
    over_patterns = evaluate(table, metrics=["mrr"], average="macro")["macro_mrr"]
    assert over_patterns == pytest.approx(np.mean([np.mean(values) for values in logs.values()]), rel=1e-12)
    over_queries = evaluate(table, metrics=["mrr"])["mrr"]
    assert over_queries == pytest.approx(np.mean(np.concatenate(list(logs.values()))), rel=1e-12)


def test_easy_answers_are_neither_candidates_nor_tasks():
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0]])
    table = rank_complex_queries(lambda q: scores[q], [[2]], [[0]])
    assert lines(table.ranks) == [(2, 2, 3)]
    assert lines(rank_complex_queries(lambda q: scores[q], [[2]]).ranks) == [(3, 3, 4)]


@pytest.mark.parametrize(
    ("hard", "more", "message"),
    [
        ([[0], [1]], {"easy": [[2], [1]]}, "every answer once; 1 are given again"),
        ([[0, 0]], {}, "every answer once; 1 are given again"),
        ([[0], [1]], {"pattern": [0]}, r"pattern must be \(Q,\), at least \(2,\)"),
        (torch.zeros(3, 2, dtype=torch.int64), {}, r"hard must be \(2, P\)"),
        ((torch.zeros(2).long(), torch.zeros(3).long()), {}, r"hard must be \(2, P\), .*; got \(2,\) and \(3,\)"),
    ],
)
def test_bad_answers_are_named(hard, more, message):
    with pytest.raises(ValueError, match=message):
        rank_complex_queries(lambda q: torch.zeros(len(q), E), hard, **more)


@pytest.mark.parametrize("time_aware", [True, False, None])
def test_facts_with_a_time_by_brute_force(time_aware):
    train, test = graph(n=40, columns=(E, R, E, T)), graph(seed=3, n=12, columns=(E, R, E, T))
    scores, requested = integers(2, E, R, T, E), []

    def tails(h, r, time):
        requested.extend(zip(h.tolist(), r.tolist(), time.tolist(), strict=True))
        return scores[0, h, r, time]

    known = None if time_aware is None else KnownFacts(train, test, time_aware=time_aware)
    table = rank_facts(tails, lambda r, t, time: scores[1, t, r, time].numpy(), test, known, progress=False)
    true = {tuple(x) for x in [*train.tolist(), *test.tolist()]}
    expected = []
    for side in (0, 1):
        for h, r, t, time in test.tolist():
            row, own = (scores[0, h, r, time], t) if side == 0 else (scores[1, t, r, time], h)
            others = []
            for e in range(E):
                made = (h, r, e) if side == 0 else (e, r, t)
                times = {True: [time], False: range(T), None: []}[time_aware]
                if e != own and not any((*made, at) in true for at in times):
                    others.append(row[e].item())
            better = 1 + sum(x > row[own].item() for x in others)
            expected.append((better, better + sum(x == row[own].item() for x in others), 1 + len(others)))
    assert lines(table.ranks) == expected
    assert table.sample_id.tolist() == list(range(len(test))) * 2
    assert table.group.tolist() == test[:, 1].tolist() * 2
    assert len(requested) == len(set(requested))


def test_bad_facts_are_named():
    with pytest.raises(ValueError, match=r"facts must be \(n, 4\): head, relation, tail, time; got \(1, 3\)"):
        rank_facts(None, None, [[0, 0, 1]], None)
    with pytest.raises(ValueError, match="pass score_tails, score_heads or both"):
        rank_facts(None, None, [[0, 0, 1, 1]], None)
    with pytest.raises(TypeError, match="known must be KnownFacts or None, got KnownTriples"):
        rank_facts(max, None, [[0, 0, 1, 1]], KnownTriples([[0, 0, 1]]))
    with pytest.raises(TypeError, match=r"known must be KnownTriples or None, got KnownFacts; pass KnownTriples"):
        rank_triples(max, None, [[0, 0, 1]], KnownFacts([[0, 0, 1, 1]]))
    with pytest.raises(IndexError, match=r"facts\[1\] must hold ids of at least 0, got -1"):
        KnownFacts([[0, 0, 1, 1]], [[0, 0, 1, -1]])


def test_relations_of_a_pair_of_entities_are_filtered_by_the_pair():
    triples = graph(n=60)
    r = triples[:, 1]
    scores = integers(len(triples), R)
    ranks = rank_scores(scores, r, exclude=KnownAnswers(triples[:, [0, 2]], r)(triples[:, [0, 2]]))
    true = {tuple(x) for x in triples.tolist()}
    expected = [
        among(row, b, [c for c in range(R) if c == b or (a, c, d) not in true])
        for row, (a, b, d) in zip(scores.tolist(), triples.tolist(), strict=True)
    ]
    assert lines(ranks) == expected
    assert {n for *_, n in expected} == {1, 2, 3}


@pytest.mark.parametrize("size", [1, 3, E])
def test_pairs_of_entities_are_ranked_in_chunks(size):
    triples = graph()
    h, r, t = triples.T
    scores = integers(R, E, E)
    known = KnownAnswers(r, h * E + t)
    ranks = RankAccumulator(scores[r, h, t], (r, h * E + t), (R, E * E), exclude=known(torch.arange(R)))
    for heads in torch.arange(E).split(size):
        ranks.update(scores[:, heads].flatten(1))
    true = {tuple(x) for x in triples.tolist()}
    expected = []
    for a, b, d in triples.tolist():
        pairs = itertools.product(range(E), repeat=2)
        candidates = [x * E + y for x, y in pairs if (x, y) == (a, d) or (x, b, y) not in true]
        expected.append(among(scores[b].flatten().tolist(), a * E + d, candidates))
    assert lines(ranks.compute()) == expected
