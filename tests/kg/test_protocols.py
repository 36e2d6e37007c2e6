"""Complex queries and temporal facts against brute force and the procedures of papers; restrictions as in PyKEEN."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from fuzzing import cases
from pykeen_lookup import Lookup, evaluated, splits_of
from random_graphs import graph, integers
from reference_ranks import lines, rank
from torchrankmetrics import KnownTriples, evaluate, rank_triples
from torchrankmetrics.kg import KnownFacts, rank_complex_queries, rank_facts

E, R, T = 7, 3, 3


def test_restrictions_are_those_of_pykeen(nations):
    from pykeen.evaluation import RankBasedEvaluator

    entities, relations = [2, 3, 5, 7, 8, 9, 11, 13], list(range(30))
    splits, num_entities = splits_of(nations), nations.num_entities
    model, test = Lookup(nations), splits[2]
    evaluator = RankBasedEvaluator(clear_on_finalize=False)
    restrictions = {"restrict_entities_to": entities, "restrict_relations_to": relations}
    evaluated(nations, evaluator, model, pre_filtered_triples=False, **restrictions)
    of_interest = torch.isin(test[:, [0, 2]], torch.tensor(entities)).all(1)
    of_interest &= torch.isin(test[:, 1], torch.tensor(relations))
    assert 20 < of_interest.sum() < len(test)
    known, triples = KnownTriples(*splits, num_entities=num_entities), test[of_interest]
    scorers = lambda h, r: model.scores[r, h], lambda r, t: model.scores[r, :, t]
    table = rank_triples(*scorers, triples, known, candidates=entities)
    for side in ("tail", "head"):
        ranks = table.select(side=side).ranks
        for rank_type in ("optimistic", "pessimistic", "realistic"):
            theirs = torch.cat([torch.as_tensor(part) for part in evaluator.ranks[side, rank_type]])
            assert getattr(ranks, rank_type).double().tolist() == theirs.double().tolist()
        counts = torch.cat([torch.as_tensor(part) for part in evaluator.num_candidates[side]])
        assert ranks.num_candidates.tolist() == counts.tolist()
        assert known.num_candidates(triples, side, candidates=entities).tolist() == counts.tolist()


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
        order, true = scores[i].argsort(descending=True).tolist(), hard[i] | easy[i]
        before = [sum(x not in true for x in order[: order.index(answer)]) for answer in hard[i]]
        logs.setdefault(pattern[i], []).append(np.mean([1 / (1 + number) for number in before]))

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
            made = [(h, r, e) if side == 0 else (e, r, t) for e in range(E)]
            times = {True: [time], False: range(T), None: []}[time_aware]
            excluded = {e for e in range(E) if any((*made[e], at) in true for at in times)}
            expected.append(rank(row.tolist(), own, excluded)[:3])
    assert lines(table.ranks) == expected
    assert table.sample_id.tolist() == list(range(len(test))) * 2
    assert table.group.tolist() == test[:, 1].tolist() * 2
    assert len(requested) == len(set(requested))
