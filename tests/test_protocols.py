"""Protocols: what is ranked among what, against brute force over triples, enumeration, and PyKEEN on Nations."""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from torchrankmetrics import (
    RELATION_CATEGORIES,
    KnownAnswers,
    KnownTriples,
    RankAccumulator,
    RankCollection,
    RankMetricWarning,
    Ranks,
    RankTable,
    evaluate,
    rank_scores,
    rank_triples,
    relation_categories,
)

E, R = 7, 3


def graph(seed=0, n=40, columns=(E, R, E)):
    """Distinct random facts, and scores that are often tied."""
    generator = torch.Generator().manual_seed(seed)
    facts = torch.stack([torch.randint(size, (n,), generator=generator) for size in columns], dim=1)
    return torch.unique(facts, dim=0)


def integers(*shape, seed=1):
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


def brute(scores, own, candidates):
    """(optimistic, pessimistic, num_candidates); own is one of the candidates."""
    assert own in candidates
    others = [scores[c] for c in candidates if c != own]
    better = sum(s > scores[own] for s in others)
    return 1 + better, 1 + better + sum(s == scores[own] for s in others), 1 + len(others)


def lines(ranks):
    return list(zip(ranks.optimistic.tolist(), ranks.pessimistic.tolist(), ranks.num_candidates.tolist(), strict=True))


# --- what Hoyt et al. say the framework covers ------------------------------------------------------------------------


def test_relation_prediction():
    triples = graph(n=60)
    r = triples[:, 1]
    scores = integers(len(triples), R)
    ranks = rank_scores(scores, r, exclude=KnownAnswers(triples[:, [0, 2]], r)(triples[:, [0, 2]]))
    true = {tuple(x) for x in triples.tolist()}
    expected = [
        brute(row, b, [c for c in range(R) if c == b or (a, c, d) not in true])
        for row, (a, b, d) in zip(scores.tolist(), triples.tolist(), strict=True)
    ]
    assert lines(ranks) == expected
    assert {n for *_, n in expected} == {1, 2, 3}


@pytest.mark.parametrize("size", [1, 3, E])
def test_entity_pairs_in_chunks(size):
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
        expected.append(brute(scores[b].flatten().tolist(), a * E + d, candidates))
    assert lines(ranks.compute()) == expected


def test_several_answers_of_a_query():
    answers = torch.unique(graph(3)[:, [1, 2]], dim=0)  # (query, answer)
    hard = answers[::2].T
    scores = integers(R, E)
    ranks = rank_scores(scores, hard, exclude=KnownAnswers(*answers.T)(torch.arange(R)))
    true = {tuple(x) for x in answers.tolist()}
    expected = [
        brute(scores[q].tolist(), a, [c for c in range(E) if c == a or (q, c) not in true]) for q, a in hard.T.tolist()
    ]
    assert lines(ranks) == expected


def test_homogeneous_links():
    edges = graph(2, n=8, columns=(E, E))
    edges = edges[edges[:, 0] != edges[:, 1]]
    both, loops = torch.cat([edges, edges.flip(1)]), torch.arange(E)
    known = KnownAnswers(torch.cat([both[:, 0], loops]), torch.cat([both[:, 1], loops]))
    node, other = both.T
    scores = integers(len(both), E)
    linked = {frozenset(x) for x in edges.tolist()}
    expected = [
        brute(row, b, [c for c in range(E) if c == b or (c != a and frozenset((a, c)) not in linked)])
        for row, (a, b) in zip(scores.tolist(), both.tolist(), strict=True)
    ]
    assert lines(rank_scores(scores, other, exclude=known(node))) == expected


def test_inductive():
    """Filtered by the inference graph and the test triples; the training graph has other entities."""
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
                expected.append(brute(tails[h, r].tolist(), t, candidates))
            else:
                candidates = [e for e in range(E) if e == h or (e, r, t) not in true]
                expected.append(brute(heads[r, t].tolist(), h, candidates))
    assert lines(table.ranks) == expected


# --- restriction ------------------------------------------------------------------------------------------------------


def test_type_constrained_and_filtered_at_once():
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
        brute(row, d, [e for e in range(E) if e == d or (tails_of[b, e] and (a, b, e) not in true)])
        for row, (a, b, d) in zip(scores.tolist(), triples.tolist(), strict=True)
    ]
    assert lines(rank_scores(scores, t, exclude=outside)) == expected
    assert len({n for *_, n in expected}) > 3


def test_facts_with_a_time():
    facts = graph(6, n=120, columns=(E, R, E, 4))
    keys = facts[:, [0, 1, 3]]
    scores = integers(len(facts), E)
    ranks = rank_scores(scores, facts[:, 2], exclude=KnownAnswers(keys, facts[:, 2])(keys))
    true = {tuple(x) for x in facts.tolist()}
    expected = [
        brute(row, t, [e for e in range(E) if e == t or (h, r, e, time) not in true])
        for row, (h, r, t, time) in zip(scores.tolist(), facts.tolist(), strict=True)
    ]
    assert lines(ranks) == expected
    agnostic = KnownAnswers(facts[:, :2], facts[:, 2])(facts[:, :2])
    assert (rank_scores(scores, facts[:, 2], exclude=agnostic).num_candidates <= ranks.num_candidates).all()


@pytest.fixture(scope="module")
def nations():
    pytest.importorskip("pykeen", reason="PyKEEN 1.11.1 is not installed: pip install 'torchrankmetrics[dev]'")
    from pykeen.datasets import Nations

    dataset = Nations()
    parts = (dataset.training, dataset.validation, dataset.testing)
    return [part.mapped_triples for part in parts], dataset.num_entities, dataset.num_relations


class RandomModel(torch.nn.Module):
    """Scores that know nothing, rounded so that many are tied; as much of a PyKEEN model as its evaluator asks for."""

    device = torch.device("cpu")

    def __init__(self, num_entities, num_relations):
        super().__init__()
        self.num_entities, self.num_relations = num_entities, num_relations
        generator = torch.Generator().manual_seed(0)
        self.tails, self.heads = (
            torch.randint(0, 8, shape, generator=generator).float()
            for shape in [(num_entities, num_relations, num_entities), (num_relations, num_entities, num_entities)]
        )

    def predict(self, hrt_batch, target, slice_size=None, mode=None):
        h, r, t = hrt_batch.T
        return self.tails[h, r].clone() if target == "tail" else self.heads[r, t].clone()


@pytest.mark.parametrize(
    ("entities", "relations"),
    [([0, 1, 3, 4, 5, 7, 9, 12], None), (None, [0, 2, 3, 11, 30, 54]), ([2, 3, 5, 7, 8, 9, 11, 13], list(range(30)))],
    ids=["entities", "relations", "both"],
)
def test_restrictions_are_those_of_pykeen(nations, entities, relations):
    from pykeen.evaluation import RankBasedEvaluator

    splits, num_entities, num_relations = nations
    model, test = RandomModel(num_entities, num_relations), splits[2]
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
        lambda h, r: model.tails[h, r], lambda r, t: model.heads[r, t], triples, known, candidates=entities
    )
    for side in ("tail", "head"):
        ranks = table.select(side=side).ranks
        for rank_type in ("optimistic", "pessimistic", "realistic"):
            theirs = torch.cat([torch.as_tensor(part) for part in evaluator.ranks[side, rank_type]])
            assert getattr(ranks, rank_type).double().tolist() == theirs.double().tolist()
        counts = torch.cat([torch.as_tensor(part) for part in evaluator.num_candidates[side]])
        assert ranks.num_candidates.tolist() == counts.tolist()
        assert known.num_candidates(triples, side, candidates=entities).tolist() == counts.tolist()


# --- relation categories ----------------------------------------------------------------------------------------------


def categories(triples, threshold):
    """From the words of Bordes et al.: the averaged number of heads given (r, t), and of tails given (h, r)."""
    triples = {tuple(x) for x in triples}
    result = {}
    for r in sorted({r for _, r, _ in triples}):
        pairs = [(h, t) for h, s, t in triples if s == r]
        tails = Fraction(len(pairs), len({h for h, _ in pairs}))
        heads = Fraction(len(pairs), len({t for _, t in pairs}))
        result[r] = ("1" if heads < threshold else "n") + "-" + ("1" if tails < threshold else "n")
    return result


@pytest.mark.parametrize("threshold", [1.5, 1.25, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_relation_categories(seed, threshold):
    triples = graph(seed, n=60, columns=(9, 25, 6))
    triples = torch.cat([triples, triples[:20]])  # repeats count once
    expected = categories(triples.tolist(), Fraction(threshold))
    got = relation_categories(triples, num_relations=30, threshold=threshold).tolist()
    assert len(got) == 30
    assert {r: RELATION_CATEGORIES[c] for r, c in enumerate(got) if c != -1} == expected
    assert len(set(expected.values())) > (1 if threshold < 4 else 0)


def test_relation_categories_of_each_kind():
    one, fan_out, fan_in, many = [[0, 0, 1]], [[0, 1, 1], [0, 1, 2]], [[1, 2, 0], [2, 2, 0]], [[0, 3, 1], [0, 3, 2]]
    triples = torch.tensor([*one, *fan_out, *fan_in, *many, [3, 3, 1], [3, 3, 2]])
    assert [RELATION_CATEGORIES[c] for c in relation_categories(triples)] == ["1-1", "1-n", "n-1", "n-n"]
    # a mean of exactly 1.5 is "n": below it is "1" in the paper
    assert relation_categories(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 3]])).tolist() == [1]


def test_relation_categories_as_groups(nations):
    splits, _, num_relations = nations
    of = relation_categories(torch.cat(splits), num_relations=num_relations)
    collection = RankCollection(["mrr"])
    collection.update(Ranks([1] * len(splits[2]), None, 14), group=of[splits[2][:, 1]])
    breakdown = collection.breakdown(names=RELATION_CATEGORIES)
    assert sum(breakdown["count"]) == len(splits[2])
    assert set(breakdown["group"]) <= set(RELATION_CATEGORIES)
    assert len(breakdown) > 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"triples": torch.zeros(3, 2, dtype=torch.long)}, ValueError, r"triples must be \(n, 3\).*got \(3, 2\)"),
        ({"triples": torch.zeros(3, 3)}, TypeError, "triples must hold integers, got torch.float32"),
        ({"triples": [[0, 0, 1], [0, 1]]}, ValueError, "triples must not be ragged, got list"),
        ({"triples": torch.tensor([[0, -1, 2]])}, IndexError, "ids of at least 0, got -1"),
        ({"num_relations": 2}, IndexError, r"relations in \[0, num_relations\) = \[0, 2\), got 2"),
        ({"threshold": 1}, ValueError, "threshold must be a number above 1, the least mean; got 1"),
        ({"threshold": math.nan}, ValueError, "threshold must be a number above 1"),
        ({"threshold": "1.5"}, ValueError, "threshold must be a number above 1"),
    ],
)
def test_bad_relation_categories(arguments, error, message):
    with pytest.raises(error, match=message):
        relation_categories(**({"triples": graph()} | arguments))


# --- sampled candidates -----------------------------------------------------------------------------------------------


def samples(scores, m):
    """Every set of m negatives of a true candidate that stands first, each equally likely: one batch of ranks."""
    negatives = torch.tensor(list(itertools.combinations(scores[1:], m)), dtype=torch.float32)
    return Ranks.from_negatives(torch.full((len(negatives),), scores[0]), negatives)


@pytest.mark.parametrize("m", [1, 3, 6])
@pytest.mark.parametrize("scores", [[2.0, 5, 4, 1, 0, 3, 1], [2.0, 2, 2, 1, 4, 2, 5], [9.0, 0, 0, 0, 0, 0, 0]])
def test_the_estimate_of_the_full_rank_is_unbiased(scores, m):
    full = Ranks.from_negatives(torch.tensor(scores[:1]), torch.tensor([scores[1:]], dtype=torch.float32))
    sampled = samples(scores, m)
    assert len(sampled) == math.comb(6, m)
    mean = sampled.full_rank_estimate(7).mean().item()
    assert mean == pytest.approx(full.realistic.item(), rel=1e-14)
    values = evaluate(sampled, metrics=["amri"])
    assert values["amri"] == pytest.approx(evaluate(full, metrics=["amri"])["amri"], rel=1e-13, abs=1e-14)


def test_the_estimate_takes_counts_per_task():
    ranks = Ranks([1, 3, 2], [1, 4, 2], [5, 5, 11])
    expected = [1.0, 1 + 2.5 * 99 / 4, 1 + 1 * 10 / 10]
    assert ranks.full_rank_estimate(torch.tensor([9, 100, 11])).tolist() == expected


def test_mrr_and_hits_of_samples_are_not_the_full_ones():
    scores = [2.0, 5, 4, 1, 0, 3, 1]
    full = Ranks.from_negatives(torch.tensor(scores[:1]), torch.tensor([scores[1:]], dtype=torch.float32))
    for metric in ("mrr", "hits@1", "hits@3"):
        (sampled,) = evaluate(samples(scores, 2), metrics=[metric]).values()
        (true,) = evaluate(full, metrics=[metric]).values()
        assert sampled > true + 0.1


@pytest.mark.parametrize("storage", ["ranks", "counts"])
def test_the_printed_tables_say_so(storage, tmp_path):
    note = "ranks are among sampled candidates: MRR, hits and the like are not those of the full candidate set"
    collection = RankCollection(["mrr"], storage=storage)
    collection.update(Ranks([1, 2], None, 5), group=0)
    assert "sampled" not in str(collection.summary())
    collection.update(samples([1.0, 2, 3, float("nan")], 2), group=1)
    with pytest.warns(RankMetricWarning, match="NaN"):
        summary = str(collection.summary())
    collection.table().save(tmp_path / "a.npz")
    other = RankCollection(["mrr"])
    other.update(RankTable.load(tmp_path / "a.npz").ranks)
    assert f"3 {note}" in summary
    assert "2 ranking tasks have NaN scores" in summary
    assert f"3 {note}" in str(collection.breakdown())
    with pytest.warns(RankMetricWarning, match="NaN"):
        assert note in str(other.summary())


@pytest.mark.parametrize(
    ("num_candidates", "error", "message"),
    [
        (4, ValueError, "needs num_candidates of all candidates, .*; task 0 has 4 negatives, num_candidates=4"),
        (torch.tensor([9]), ValueError, r"num_candidates must have the shape of optimistic, \(2,\); got \(1,\)"),
        (9.0, ValueError, r"num_candidates must be \(tasks,\)"),
        (torch.tensor([9.0, 9.0]), TypeError, "num_candidates must be integers, got torch.float32"),
    ],
)
def test_bad_estimates(num_candidates, error, message):
    with pytest.raises(error, match=message):
        Ranks([1, 2], None, 5).full_rank_estimate(num_candidates)


def test_no_estimate_without_negatives():
    with pytest.raises(ValueError, match="needs a sampled negative in every task; task 1 has 0 negatives"):
        Ranks([1, 1], None, [5, 1]).full_rank_estimate(9)


# --- bad input of protocols -------------------------------------------------------------------------------------------


def test_a_true_entity_that_is_no_candidate_is_named():
    triples = torch.tensor([[0, 0, 1]])
    with pytest.raises(ValueError, match="target must be a candidate, but column 1 of task 0 is excluded for all"):
        rank_triples(lambda h, r: torch.zeros(1, E), None, triples, None, candidates=[0, 2])
    with pytest.raises(IndexError, match=r"candidates must lie in \[0, 7\), got 0 to 7"):
        rank_triples(lambda h, r: torch.zeros(1, E), None, triples, None, candidates=[0, 7])
    with pytest.raises(ValueError, match=r"queries must be \(B, 3\), got \(1, 2\)"):
        KnownAnswers(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, dtype=torch.long))(triples[:, :2])
