"""Models given by embeddings rank as their scores do, with one matrix multiplied for both sides."""

import pytest
import torch

import exact_scores
import reference_ranks as reference
from torchrankmetrics import KnownTriples, rank_triples
from torchrankmetrics.kg import EmbeddingScorer, KnownFacts, rank_alignment, rank_complex_queries, rank_facts
from torchrankmetrics.ranking import Candidates

N, R, D = 23, 3, 6
GENERATOR = torch.Generator().manual_seed(0)
ENTITIES, RELATIONS = (torch.randn(n, D, generator=GENERATOR) for n in (N, R))
BIAS = torch.randn(N, generator=GENERATOR)
TRIPLES = torch.stack([torch.randint(0, n, (60,), generator=GENERATOR) for n in (N, R, N)], 1)
KNOWN = KnownTriples(TRIPLES, num_entities=N)
L2 = {"similarity": "l2"}
MODELS = {
    "DistMult": ({}, None, lambda h, r: ENTITIES[h] * RELATIONS[r], lambda r, t: RELATIONS[r] * ENTITIES[t]),
    "TransE": (L2, BIAS, lambda h, r: ENTITIES[h] + RELATIONS[r], lambda r, t: ENTITIES[t] - RELATIONS[r]),
}


@pytest.mark.parametrize("candidates", [None, "some"])
@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", MODELS)
def test_both_sides_are_those_of_rational_numbers(name, batch_size, candidates):
    options, bias, tails, heads = MODELS[name]
    stored = Candidates(ENTITIES, bias)
    scorers = [EmbeddingScorer(queries, stored, **options) for queries in (tails, heads)]
    allowed = set(range(N)) if candidates is None else {*TRIPLES[:, 0].tolist(), *TRIPLES[:, 2].tolist()} - {N}
    given = None if candidates is None else torch.tensor(sorted(allowed))
    table = rank_triples(*scorers, TRIPLES, KNOWN, candidates=given, batch_size=batch_size, progress=False)

    def row_of(side, query):
        requested = {"tail": tails, "head": heads}[side](*torch.tensor([query]).T)
        return exact_scores.matrix(requested, ENTITIES, stored.bias, options.get("similarity", "dot"))[0]

    expected = reference.Graph(TRIPLES.tolist()).lines(TRIPLES.tolist(), row_of, allowed)
    assert reference.lines(table.ranks) == expected


def test_functions_facts_and_complex_queries_take_it():
    translated = EmbeddingScorer(MODELS["TransE"][2], ENTITIES, bias=BIAS, similarity="l1")
    by_scores = rank_triples(lambda h, r: translated(h, r), None, TRIPLES, KNOWN, progress=False)
    assert torch.equal(rank_triples(translated, None, TRIPLES, KNOWN, progress=False).rows, by_scores.rows)
    assert not translated.is_exact
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


def test_alignments_are_ranked_exactly_or_by_the_product():
    left, right = torch.randn(30, 8, generator=GENERATOR), torch.randn(40, 8, generator=GENERATOR)
    left[:, 0] = right[:, 0] = 1e4  # float32 scores are 1e8 and differ by ones
    test = torch.arange(30)[:, None].repeat(1, 2)
    exact = rank_alignment(test, left.double() @ right.double().T).rows
    assert torch.equal(rank_alignment(test, left, right).rows, exact)
    assert not torch.equal(rank_alignment(test, left, right, arithmetic="product").rows, exact)
