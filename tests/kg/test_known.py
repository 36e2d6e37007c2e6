"""KnownAnswers and KnownTriples against dictionaries of sets."""

from fractions import Fraction

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
from fuzzing import cases
from random_graphs import graph
from torchrankmetrics import KnownTriples
from torchrankmetrics.kg import RELATION_CATEGORIES, KnownAnswers, relation_categories

TRIPLES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 5)), max_size=25)


def as_tensor(triples):
    return torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)


def rows_of(exclusion):
    pairs = exclusion.pairs()
    return [pairs[1][pairs[0] == i].tolist() for i in range(len(exclusion))]


@cases(50, 1500)
@given(TRIPLES, TRIPLES, st.lists(st.tuples(st.integers(-2, 9), st.integers(-2, 9)), max_size=8))
def test_lookups_are_those_of_a_dictionary(train, test, queries):
    graph = reference.Graph([*train, *test])
    known = KnownTriples(as_tensor(train), as_tensor(test))
    first, second = torch.tensor(queries, dtype=torch.int64).reshape(-1, 2).T
    assert rows_of(known.tails(first, second)) == [sorted(graph.answers("tail", query)) for query in queries]
    assert rows_of(known.heads(first, second)) == [sorted(graph.answers("head", query)) for query in queries]


@cases(50, 1500)
@given(
    TRIPLES, TRIPLES, st.sampled_from(["tail", "head"]), st.sets(st.integers(0, 6)), st.sampled_from(["ids", "bool"])
)
def test_filtered_candidates_are_counted(train, test, side, outside, form):
    allowed = sorted(set(range(7)) - outside | {reference.split(triple, side)[1] for triple in test})
    some = torch.tensor(allowed, dtype=torch.int64)
    if form == "bool":
        some = torch.zeros(7, dtype=torch.bool).index_fill_(0, some, True)
    for triples in (train, [*train, *test]):  # a task may be unknown to the index: it counts itself all the same
        graph, known = reference.Graph(triples), KnownTriples(as_tensor(triples), num_entities=7)
        for candidates, listed in ((None, range(7)), (some, allowed)):
            expected = [graph.num_candidates(triple, side, listed) for triple in test]
            assert known.num_candidates(as_tensor(test), side, candidates=candidates).tolist() == expected


@cases(25, 600)
@given(TRIPLES, st.sampled_from(["tail", "head"]))
def test_queries_are_unique_and_keep_every_task(test, side):
    queries, target = KnownTriples(as_tensor(test)).queries(as_tensor(test), side)
    requested = [reference.split(triple, side)[0] for triple in test]
    assert len(queries) == len(set(requested))
    assert [tuple(queries[row].tolist()) for row in target[0]] == requested
    assert target[1].tolist() == [reference.split(triple, side)[1] for triple in test]


@cases(25, 600)
@given(st.integers(1, 3), st.lists(st.tuples(*[st.integers(0, 4)] * 4), max_size=20))
def test_keys_of_any_width(width, lines):
    lines = torch.tensor(lines, dtype=torch.int64).reshape(-1, 4)
    queries, answers = lines[:, :width], lines[:, 3]
    known = KnownAnswers(queries[:, 0] if width == 1 else queries, answers)
    requested = torch.cat([queries, queries + 3])
    expected = [sorted(set(answers[(queries == query).all(1)].tolist())) for query in requested]
    assert rows_of(known(requested)) == expected
    if width == 1:
        assert rows_of(known(requested[:, 0])) == expected


def test_an_empty_index_excludes_nothing():
    for known in (KnownTriples(), KnownTriples(as_tensor([]), num_entities=5)):
        exclusion = known.tails(torch.tensor([0, 3]), torch.tensor([1, 2]))
        assert rows_of(exclusion) == [[], []]
        assert exclusion.longest == exclusion.num_columns == 0
    assert known.num_candidates(as_tensor([(0, 0, 4)]), "head").tolist() == [5]
    assert len(known.tails(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))) == 0


def test_ids_up_to_the_width_of_a_key_are_distinguished_and_larger_ones_raise():
    known = KnownAnswers(torch.tensor([[2**30, 5]]), torch.tensor([2**25]))
    assert rows_of(known(torch.tensor([[2**30, 5], [2**30, 4]]))) == [[2**25], []]
    largest = 2**31 - 1
    known = KnownAnswers(torch.tensor([largest - 1]), torch.tensor([largest]))
    assert rows_of(known(torch.tensor([largest - 1, largest - 2]))) == [[largest], []]
    for queries, answer in ((torch.tensor([largest]), largest), (torch.tensor([[2**40, 5]]), 2**30)):
        with pytest.raises(ValueError, match=r"too large.*63-bit"):
            KnownAnswers(queries, torch.tensor([answer]))


def test_copies_for_devices_are_made_once():
    known = KnownAnswers([0], [1])
    assert known.to("cpu") is known
    assert known.to("meta") is known.to("meta")
    exclusion = KnownTriples(as_tensor([(0, 0, 1), (0, 0, 5), (1, 0, 2)])).tails(*torch.tensor([[1], [0]]))
    assert (exclusion.longest, exclusion.num_columns) == (2, 6)  # of the whole index: no look-up waits for its own


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
@pytest.mark.parametrize("seed", range(2))
def test_a_category_is_two_means_against_the_threshold(seed, threshold):
    triples = graph(seed, n=60, columns=(9, 25, 6))
    triples = torch.cat([triples, triples[:20]])  # repeats count once
    expected = categories(triples.tolist(), Fraction(threshold))
    got = relation_categories(triples, num_relations=30, threshold=threshold).tolist()
    assert len(got) == 30
    assert {r: RELATION_CATEGORIES[c] for r, c in enumerate(got) if c != -1} == expected
    assert len(set(expected.values())) > (1 if threshold < 4 else 0)
    # a mean of exactly 1.5 is "n": below it is "1" in the paper
    assert relation_categories(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 3]])).tolist() == [1]
