"""Ranks of every answer for every query of a relation, and deals of triples: rank_triples and enumeration agree."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from torchrankmetrics import KnownTriples, permutation_p_value, rank_answers, rank_triples
from torchrankmetrics.inference import permutation_test

ENTITIES, RELATIONS = 9, 2


def problem(seed, dtype=torch.float64, levels=5):
    """Distinct triples in two splits, and scores with ties and NaN."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randperm(ENTITIES * RELATIONS * ENTITIES, generator=generator)[:46]
    triples = torch.stack([cells // (RELATIONS * ENTITIES), cells // ENTITIES % RELATIONS, cells % ENTITIES], 1)
    shape = (2, ENTITIES, RELATIONS, ENTITIES)
    scores = torch.randint(0, levels, shape, generator=generator).to(dtype)
    if dtype.is_floating_point:
        scores[torch.rand(shape, generator=generator) < 0.03] = torch.nan
    return triples[:20], triples[20:], (lambda h, r: scores[0][h, r]), (lambda r, t: scores[1][t, r])


def canonical(table):
    rows = table.rows[:, :6].clone()
    rows[:, 3] &= 3  # the side, without the mark of a NaN
    return rows[np.lexsort(rows.T.numpy())]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
def test_the_true_deal_has_the_ranks_of_rank_triples(seed, dtype):
    train, test, tails, heads = problem(seed, dtype)
    found = rank_answers(tails, heads, test, KnownTriples(train, num_entities=ENTITIES), batch_size=3, progress=False)
    expected = rank_triples(tails, heads, test, KnownTriples(train, test, num_entities=ENTITIES), progress=False)
    assert torch.equal(canonical(found.table()), canonical(expected))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::torchrankmetrics.RankMetricWarning")
def test_any_deal_has_the_ranks_of_its_own_evaluation(seed):
    train, test, tails, heads = problem(seed)
    found = rank_answers(tails, heads, test, KnownTriples(train, num_entities=ENTITIES), progress=False)
    for group, relation, index in zip(found.groups, found.relations, found.triples, strict=True):
        own = test[index]
        names = np.unique(own[:, 0].numpy()), np.unique(own[:, 2].numpy())
        for deal in group.draw(5, np.random.default_rng(seed)):
            triples = np.stack([names[0][group.head], np.full(len(deal), relation), names[1][deal]], 1)
            assert len(np.unique(triples, axis=0)) == len(triples), "a triple twice"
            assert not (torch.from_numpy(triples)[:, None] == train).all(2).any(), "a triple of another split"
            known = KnownTriples(train, torch.from_numpy(triples), num_entities=ENTITIES)
            table = rank_triples(tails, heads, torch.from_numpy(triples), known, progress=False)
            for side in ("tail", "head"):
                low, high, counts = (part[0] for part in group.ranks(deal[None], side))
                expected = table.select(side=side).ranks
                assert expected.optimistic.tolist() == low.tolist()
                assert expected.pessimistic.tolist() == high.tolist()
                assert expected.num_candidates.tolist() == counts.tolist()


def test_deals_are_uniform_on_all_that_are_allowed():
    """Two heads with two tails each and one with one: all allowed deals are enumerated, and come equally often."""
    test = torch.tensor([[0, 0, 3], [0, 0, 4], [1, 0, 3], [1, 0, 5], [2, 0, 4]])
    train = torch.tensor([[2, 0, 5]])
    scores = torch.rand(6, 6)
    found = rank_answers(lambda h, r: scores[h], None, test, KnownTriples(train, num_entities=6), progress=False)
    (group,) = found.groups

    def triples(deal):
        return frozenset(zip(group.head.tolist(), deal, strict=True))

    allowed = {
        triples(deal)
        for deal in set(itertools.permutations(group.tail.tolist()))
        if len(triples(deal)) == 5 and not any(group.excluded[h, t] for h, t in triples(deal))
    }
    before = group.tail.copy()
    drawn = Counter(triples(deal) for deal in group.draw(6000, np.random.default_rng(0)).tolist())
    assert set(drawn) == allowed
    assert (group.tail == before).all(), "the true deal stays as it is"
    # one hub for all chains: they are exchangeable, and nearly independent, as chains are long
    assert chisquare([drawn[deal] for deal in allowed]).pvalue > 1e-4


def test_p_is_uniform_where_the_deal_was_drawn_at_random():
    """Scores that know nothing, and triples that are themselves a random deal: p <= a in at most a share a of draws."""
    rng, p_values = np.random.default_rng(1), []
    scores = torch.from_numpy(rng.normal(size=(8, 12)).round(1))
    for seed in range(300):
        tails = torch.from_numpy(rng.permutation(8) + 4)
        test = torch.stack([torch.arange(8), torch.zeros(8, dtype=torch.int64), tails], 1)
        found = rank_answers(lambda h, r: scores[h], None, test, None, progress=False)
        p_values.append(permutation_p_value(found, "mrr", permutations=19, seed=seed))
    for level in (0.05, 0.25, 0.5):
        share = np.mean(np.array(p_values) <= level)
        assert share <= level + 4 * np.sqrt(level * (1 - level) / 300)
    assert np.mean(np.array(p_values) <= 0.5) > 0.3


def test_a_model_that_knows_the_triples_is_found_and_a_blind_one_is_not():
    rng = np.random.default_rng(2)
    test = torch.from_numpy(np.stack([np.arange(30), np.zeros(30, dtype=int), rng.permutation(30)], 1))
    blind = torch.rand(30).expand(30, -1)
    good = torch.rand(30, 30)
    good[test[:, 0], test[:, 2]] += 1.0
    found = {
        name: rank_answers(lambda h, r, s=s: s[h], None, test, None, progress=False)
        for name, s in (("g", good), ("b", blind))
    }
    assert permutation_p_value(found["g"], permutations=199) == 1 / 200
    result = permutation_test(found["b"], permutations=199)
    assert result.standard_deviation == 0
    assert result.p_value == 1, "no deal changes the ranks of a blind scorer"
    assert result.movable == 1
    assert np.isnan(result.z_score)


def test_reference_runs_are_counted():
    from torchrankmetrics import Ranks

    runs = [Ranks(np.random.default_rng(i).integers(1, 50, 40), None, 50) for i in range(20)]
    best = Ranks([1] * 40, None, 50)
    assert permutation_p_value(best, "mr", reference=runs) == 1 / 21
    assert permutation_p_value(best, "mrr", reference=[best, *runs]) == 2 / 22


def test_what_is_wrong_is_told():
    from torchrankmetrics import Ranks

    _, test, tails, heads = problem(0)
    with pytest.raises(ValueError, match="known must hold the triples of other splits only"):
        rank_answers(tails, heads, test, KnownTriples(test, num_entities=ENTITIES), progress=False)
    with pytest.raises(ValueError, match="both None"):
        rank_answers(None, None, test, None)
    with pytest.raises(ValueError, match=r"score_tails must return scores"):
        rank_answers(lambda h, r: torch.zeros(3), None, test, None, progress=False)
    with pytest.raises(ValueError, match="candidates must contain the true tail"):
        rank_answers(tails, None, test, None, candidates=torch.tensor([0]), progress=False)
    with pytest.raises(TypeError, match="rank_answers"):
        permutation_p_value(Ranks([1], None, 2))
    found = rank_answers(tails, heads, test, None, progress=False)
    with pytest.raises(ValueError, match="mean of f"):
        permutation_p_value(found, "median_rank")
    with pytest.raises(ValueError, match="permutations"):
        permutation_p_value(found, permutations=5)
    with pytest.raises(ValueError, match="reference is empty"):
        permutation_p_value(Ranks([1], None, 2), reference=[])
