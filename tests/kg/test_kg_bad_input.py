"""Input that cannot be ranked: the error names the argument, what it must be, and what it is."""

from types import SimpleNamespace

import pytest
import torch
from test_protocols import TABLE

from random_graphs import graph
from torchrankmetrics import KnownTriples, RankMetricWarning, rank_triples
from torchrankmetrics.kg import (
    EmbeddingScorer,
    KnownFacts,
    KnownPositives,
    rank_alignment,
    rank_complex_queries,
    rank_facts,
    rank_long_table,
    rank_long_tables,
    relation_categories,
)

E, D = 7, 4
ZEROS, TASK, IDS = torch.zeros, torch.tensor([[0, 0, 1]]), torch.tensor([0, 1])
KNOWN = KnownTriples(TASK, num_entities=3)
SCORES, ONE = (lambda first, second: ZEROS(len(first), E)), (lambda triples: ZEROS(len(triples)))
FACT = [[0, 0, 1, 1]]
DATA = SimpleNamespace(edge_index=ZEROS(2, 3).long())


def triples(tails=None, heads=None, known=None, given=TASK, **options):
    return rank_triples(tails, heads, given, known, **options)


def scorer(rows=99, width=D, **options):
    return EmbeddingScorer(
        lambda first, second: ZEROS(len(first), D)[:rows, :width], ZEROS(E, D), **options
    )


def aligned(pairs=((0, 3), (4, 1)), left=ZEROS(9, D), right=ZEROS(11, D), **options):  # noqa: B008
    return rank_alignment(torch.tensor(pairs), left, right, **options)


def answered(hard, **more):
    return rank_complex_queries(lambda queries: ZEROS(len(queries), E), hard, **more)


def tasks(side="tail", factor=1, **options):
    return KNOWN.num_candidates(TASK * factor, side, **options)


def long(**change):
    return rank_long_table({**TABLE, **change})


VALUES = [
    (lambda: KnownPositives(ZEROS(2, 0).long(), [0, 1]), r"queries must be \(n, k > 0\)"),
    (lambda: KnownPositives([[0, 1]], [1])(ZEROS(2, 3).long()), r"queries.*\(B, 2\)"),
    (lambda: KnownTriples(ZEROS(2, 2).long()), r"triples\[0\].*\(n, 3\)"),
    (lambda: tasks("left"), "side.*left"),
    (lambda: tasks(candidates=torch.ones(2).bool()), r"candidates.*\(3,\)"),
    (lambda: tasks(candidates=[0]), "candidates.*tail.*1"),
    (lambda: KNOWN.tails(IDS, IDS[:1]), "heads and relations"),
    (lambda: relation_categories(ZEROS(3, 2).long()), r"triples must be \(n, 3\).*got \(3, 2\)"),
    (
        lambda: relation_categories(graph(), threshold=1),
        "threshold must be a number above 1, the least mean; got 1",
    ),
    (lambda: relation_categories(graph(), threshold="1.5"), "threshold must be a number above 1"),
    (lambda: triples(SCORES, given=ZEROS(2, 2).long()), "triples"),
    (lambda: answered([[0]], batch_size=0), "batch_size must be an int of at least 1, got 0"),
    (
        lambda: rank_facts(max, None, FACT, None, batch_size=0),
        "batch_size must be an int of at least 1, got 0",
    ),
    (lambda: triples(), "score_tails"),
    (lambda: triples(heads=lambda r, t: ZEROS(2, E)), "score_heads"),
    (lambda: triples(SCORES, candidates=[0]), "target"),
    (
        lambda: triples(SCORES, known=KNOWN),
        r"num_entities=3 columns .*, got 7; .* by candidates=range\(3\)",
    ),
    (
        lambda: triples(scorer(), known=KnownTriples(TASK, num_entities=8)),
        "=8 columns as known, got 7; .*KnownTriples$",
    ),
    (
        lambda: triples(score_hrt=ONE, num_entities=E, known=KNOWN),
        "num_entities=3 columns .*, got 7",
    ),
    (lambda: triples(SCORES, score_hrt=ONE, num_entities=E), "or score_hrt alone"),
    (lambda: triples(score_hrt=ONE), "num_entities"),
    (lambda: triples(SCORES, given=(IDS, IDS, IDS[:1])), "triples as a tuple must be three"),
    (
        lambda: triples(score_hrt=lambda x: x, num_entities=E),
        r"score_hrt must return scores \(7,\).*got \(7, 3\)",
    ),
    (lambda: triples(scorer(), higher_is_better=False), "higher_is_better must be True"),
    (lambda: triples(scorer(width=2)), r"queries must be \(B, d\) and candidates"),
    (lambda: triples(scorer(rows=1), given=graph()), r"queries must return \(B, d\)"),
    (lambda: scorer(similarity="tanh"), "similarity must be one"),
    (lambda: aligned([[0, 1, 2]]), r"pairs must be \(n, 2\): left, right; got \(1, 3\)"),
    (lambda: aligned(candidates="train"), "candidates must be one of 'test', 'all'; got 'train'"),
    (lambda: aligned(similarity="csls"), "similarity must be one of 'dot', .*; got 'csls'"),
    (lambda: aligned(similarity="inner"), """got 'inner': pass "dot"$"""),
    (lambda: aligned(similarity="Euclidean"), """got 'Euclidean': pass "l2"$"""),
    (lambda: aligned(similarity="manhattan"), """got 'manhattan': pass "l1"$"""),
    (lambda: aligned(similarity="csls"), "pass the matrix of CSLS similarities to rank_align"),
    (lambda: aligned(right=None, similarity="dot"), "similarity is for embeddings; without right"),
    (
        lambda: aligned(right=ZEROS(11, D + 1)),
        r"left and right must be .*; got \(9, 4\) and \(11, 5\)",
    ),
    (lambda: aligned(right=ZEROS(11)), r"left and right must be .*; got \(9, 4\) and \(11,\)"),
    (lambda: aligned(left=ZEROS(9), right=None), r"or left similarities \(L, R\), .*; got \(9,\)"),
    (
        lambda: answered([[0], [1]], easy=[[2], [1]]),
        "every answer once; 1 of query 1 is given again",
    ),
    (lambda: answered([[0], [1]], pattern=[0]), r"pattern must be \(Q,\), at least \(2,\)"),
    (lambda: answered(ZEROS(3, 2).long()), r"hard must be \(2, P\)"),
    (lambda: answered((IDS, ZEROS(3).long())), r"hard must be \(2, P\)"),
    (
        lambda: rank_facts(None, None, TASK, None),
        r"facts must be \(n, 4\): head, rel.*got \(1, 3\)",
    ),
    (lambda: rank_facts(None, None, FACT, None), "pass score_tails, score_heads or both"),
    (
        lambda: long(true=[False] * 3 + [True, False]),
        "query 7 has 3 rows here, 0 of them true; it must be whole",
    ),
    (lambda: long(candidate=[0, 1, 1, 0, 1]), "candidate 1 comes twice in query 7"),
    (lambda: long(query=[7, 7, 7, -3, -3]), "query must contain ids of at least 0, got -3"),
    (lambda: long(score=[1, 2]), r"columns must be \(T,\), all of one length; got query \(5,\)"),
    (
        lambda: long(score=[[1]] * 5),
        r"columns must be \(T,\), all of one length; got .*, score \(5, 1\)",
    ),
    (
        lambda: long(exclude=[False] * 5),
        r"columns must be among .*, with the first four; got .*, exclude",
    ),
    (lambda: long(side=["left"] * 5), "side must contain numbers, or head and tail"),
    (lambda: long(side=[1, 5, 1, 1, 1]), "side must be 0 .* got 5 in row 1"),
    (lambda: long(weight=[1, 1, -1, 1, 1]), "weight must be finite and not negative"),
    (
        lambda: rank_long_table({"query": [1], "true": [True]}),
        r"columns must be among .*; got query, true",
    ),
    (
        lambda: rank_long_table({**TABLE, "side": [1] * 5}, side="head"),
        "side is a column of the table already",
    ),
    (
        lambda: [*rank_long_tables([{**TABLE, "side": [1] * 5}], side="head")],
        "side is a column of the table already",
    ),
    (
        lambda: rank_long_table(TABLE, num_rows=3),
        r"query 3 has 2 rows here, 1 of them true; .* and 3 rows",
    ),
]
INDICES = [
    (lambda: KnownPositives([[0]], [-1]), "positives.*-1"),
    (lambda: KnownTriples(-TASK), "triples.*-1"),
    (lambda: KnownTriples(TASK, num_entities=1), "num_entities"),
    (lambda: tasks(factor=3), "triples.*3"),
    (lambda: tasks(candidates=[3]), "candidates.*3"),
    (lambda: relation_categories(-TASK), "ids of at least 0, got -1"),
    (
        lambda: relation_categories(graph(), num_relations=2),
        r"relations in \[0, num_relations\) = \[0, 2\), got 2",
    ),
    (lambda: triples(lambda h, r: ZEROS(len(h), 1)), "target"),
    (lambda: aligned([[0, 1], [9, 1]]), r"pairs must contain left entities in \[0, 9\), got 9"),
    (lambda: aligned([[0, 11]]), r"pairs must contain right entities in \[0, 11\), got 11"),
    (lambda: aligned(known=[[0, 11]]), "known must contain right entities"),
    (
        lambda: answered(torch.tensor([[0, 1], [2, -1]])),
        "hard must contain ids of at least 0, got -1",
    ),
    (
        lambda: KnownFacts(FACT, [[0, 0, 1, -1]]),
        r"facts\[1\] must contain ids of at least 0, got -1",
    ),
]
TYPES = [
    (lambda: KnownPositives([[0.5]], [1]), "queries"),
    (
        lambda: KnownTriples(SimpleNamespace(mapped_triples=TASK)),
        r"triples\[0\] .*pass its \.mapped_triples",
    ),
    (lambda: KnownTriples(TASK, 104), "^triples must be splits .*got 104; pass num_entities=104"),
    (
        lambda: KnownTriples(DATA),
        r"triples\[0\] must be .*got SimpleNamespace; .*integrations\.pyg",
    ),
    (lambda: triples(lambda h, r: [[0.0]]), r"score_tails\(...\) must be a torch.Tensor"),
    (
        lambda: triples(score_hrt=lambda x: 1.0, num_entities=E),
        r"score_hrt\(...\) must be a torch.Tensor",
    ),
    (lambda: triples(max, known=KnownFacts(FACT)), "must be KnownTriples or None, got"),
    (
        lambda: rank_facts(max, None, FACT, KnownTriples()),
        "must be KnownFacts or None, got KnownTr",
    ),
    (lambda: aligned(left=[[0.0] * D] * 9), "left must be a torch.Tensor or an array .* got list"),
    (lambda: aligned(left=ZEROS(9, D).long()), "queries and candidates must share a float dtype"),
    (lambda: long(true=[0, 0, 2, 1, 0]), "true must contain booleans, or 0 and 1; got int64"),
    (lambda: long(score=[1j] * 5), "score must contain real numbers"),
    (
        lambda: triples(SCORES, batchsize=1),
        r"rank_triples\(\) .*'batchsize'; did you mean 'batch_size'",
    ),
    (lambda: rank_long_table([1, 2]), r"table must have named columns .*, got list"),
]
BAD = [(call, error, text)
       for error, cases in ((ValueError, VALUES), (IndexError, INDICES), (TypeError, TYPES))
       for call, text in cases]  # fmt: skip


BAD += [(lambda k=k: triples(SCORES, top_k=k), ValueError, "top_k must be an int") for k in (0, -1)]
BAD += [
    (lambda k=k: triples(SCORES, top_k=k), TypeError, "top_k must be an int") for k in (2.5, True)
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_scores_may_be_wider_than_known_entities_if_nobody_gave_their_number():
    inferred = triples(SCORES, known=KnownTriples(TASK)).ranks.num_candidates
    restricted = triples(SCORES, known=KNOWN, candidates=range(3)).ranks.num_candidates
    assert (inferred.tolist(), restricted.tolist()) == ([E], [3])


def test_evaluated_triples_that_are_not_known_are_a_warning():
    facts = torch.tensor([*FACT, [0, 0, 2, 1]])
    with pytest.warns(
        RankMetricWarning,
        match=r"^1 of 2 evaluated triples are not in known.*=KnownTriples\(train, v",
    ):
        triples(SCORES, given=facts[:, :3], known=KnownTriples(TASK))
    with pytest.warns(
        RankMetricWarning,
        match=r"^1 of 2 evaluated triples are not in known.*=KnownFacts\(train, v",
    ):
        rank_facts(lambda *ids: SCORES(*ids[:2]), None, facts, KnownFacts(FACT))
    triples(SCORES, known=KnownTriples())  # no filter, on purpose
