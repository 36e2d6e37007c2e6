"""Protocols: what is ranked among what, against brute force over triples, and PyKEEN on Nations."""

import itertools

import pytest
import torch

from pykeen_lookup import Lookup, splits_of
from random_graphs import graph, integers
from reference_ranks import among, lines
from torchrankmetrics import KnownTriples, rank_scores, rank_triples
from torchrankmetrics.kg import KnownAnswers
from torchrankmetrics.ranking import RankAccumulator

E, R = 7, 3


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


def test_each_answer_of_a_query_is_a_task_without_the_others():
    answers = torch.unique(graph(3)[:, [1, 2]], dim=0)  # (query, answer)
    hard = answers[::2].T
    scores = integers(R, E)
    ranks = rank_scores(scores, hard, exclude=KnownAnswers(*answers.T)(torch.arange(R)))
    true = {tuple(x) for x in answers.tolist()}
    expected = [
        among(scores[q].tolist(), a, [c for c in range(E) if c == a or (q, c) not in true]) for q, a in hard.T.tolist()
    ]
    assert lines(ranks) == expected


def test_links_of_one_kind_have_neither_loops_nor_known_neighbours_among_the_candidates():
    edges = graph(2, n=8, columns=(E, E))
    edges = edges[edges[:, 0] != edges[:, 1]]
    both, loops = torch.cat([edges, edges.flip(1)]), torch.arange(E)
    known = KnownAnswers(torch.cat([both[:, 0], loops]), torch.cat([both[:, 1], loops]))
    node, other = both.T
    scores = integers(len(both), E)
    linked = {frozenset(x) for x in edges.tolist()}
    expected = [
        among(row, b, [c for c in range(E) if c == b or (c != a and frozenset((a, c)) not in linked)])
        for row, (a, b) in zip(scores.tolist(), both.tolist(), strict=True)
    ]
    assert lines(rank_scores(scores, other, exclude=known(node))) == expected


def test_a_time_in_the_key_filters_within_the_time():
    facts = graph(6, n=120, columns=(E, R, E, 4))
    keys = facts[:, [0, 1, 3]]
    scores = integers(len(facts), E)
    ranks = rank_scores(scores, facts[:, 2], exclude=KnownAnswers(keys, facts[:, 2])(keys))
    true = {tuple(x) for x in facts.tolist()}
    expected = [
        among(row, t, [e for e in range(E) if e == t or (h, r, e, time) not in true])
        for row, (h, r, t, time) in zip(scores.tolist(), facts.tolist(), strict=True)
    ]
    assert lines(ranks) == expected
    agnostic = KnownAnswers(facts[:, :2], facts[:, 2])(facts[:, :2])
    assert (rank_scores(scores, facts[:, 2], exclude=agnostic).num_candidates <= ranks.num_candidates).all()


def test_an_inductive_split_is_filtered_by_the_inference_graph_and_the_test_triples():
    """The training graph has other entities."""
    inference, test = graph(4, n=25), graph(5, n=6)
    known = KnownTriples(inference, test, num_entities=E)
    tails, heads = integers(E, R, E), integers(R, E, E, seed=2)
    table = rank_triples(lambda h, r: tails[h, r], lambda r, t: heads[r, t], test, known)
    true = {tuple(x) for x in torch.cat([inference, test]).tolist()}
    expected = []
    for side in ("tail", "head"):
        for h, r, t in test.tolist():
            if side == "tail":
                candidates = [e for e in range(E) if e == t or (h, r, e) not in true]
                expected.append(among(tails[h, r].tolist(), t, candidates))
            else:
                candidates = [e for e in range(E) if e == h or (e, r, t) not in true]
                expected.append(among(heads[r, t].tolist(), h, candidates))
    assert lines(table.ranks) == expected


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
    [([0, 1, 3, 4, 5, 7, 9, 12], None), (None, [0, 2, 3, 11, 30, 54]), ([2, 3, 5, 7, 8, 9, 11, 13], list(range(30)))],
    ids=["entities", "relations", "both"],
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


def test_a_true_entity_that_is_no_candidate_is_named():
    triples = torch.tensor([[0, 0, 1]])
    with pytest.raises(ValueError, match="target must be a candidate, but column 1 of task 0 is excluded for all"):
        rank_triples(lambda h, r: torch.zeros(1, E), None, triples, None, candidates=[0, 2])
    with pytest.raises(IndexError, match=r"candidates must lie in \[0, 7\), got 0 to 7"):
        rank_triples(lambda h, r: torch.zeros(1, E), None, triples, None, candidates=[0, 7])
    with pytest.raises(ValueError, match=r"queries must be \(B, 3\), got \(1, 2\)"):
        KnownAnswers(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, dtype=torch.long))(triples[:, :2])
