"""Several filters from one scoring, and candidates by relation, against plain loops."""

import pytest
import torch

import reference_ranks as reference
from random_graphs import Model, graph, integers
from torchrankmetrics import KnownTriples, RankMetricWarning, rank_triples
from torchrankmetrics.kg import EmbeddingScorer, KnownFacts, rank_facts
from torchrankmetrics.sequential import rank_sequentially

E, R = 7, 3
TRIPLES = graph()
TEST, TRAIN = TRIPLES[::2], TRIPLES[1::2]
FILTERS = {
    "raw": None,
    "train": KnownTriples(TRAIN, num_entities=E),
    "all": KnownTriples(TRAIN, TEST, num_entities=E),
}
SPLITS = {"raw": [], "train": TRAIN.tolist(), "all": TRIPLES.tolist()}


def model():
    return Model(integers(2, E, R, E))


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_gives_the_ranks_of_plain_loops_and_each_query_is_scored_once(name, batch_size):
    one = model()
    tables = rank_triples(one.tails, one.heads, TEST, FILTERS, batch_size=batch_size)
    assert list(tables) == ["raw", "train", "all"]
    expected = reference.Graph(SPLITS[name]).lines(TEST.tolist(), one.row, range(E))
    assert reference.lines(tables[name].ranks) == expected
    assert len(one.requested) == len(set(one.requested))


@pytest.mark.filterwarnings("ignore:.*evaluated triples are not in known")
def test_filters_of_single_triples_of_facts_and_of_embeddings():
    one = model()
    singles = rank_triples(None, None, TEST, FILTERS, score_hrt=one.hrt)
    facts = torch.cat([TRIPLES, TRIPLES[:, 2:] % 2], 1)

    def score(h, r, time):
        return one.scores[0, h, r] + time[:, None]

    aware, static = KnownFacts(facts), KnownFacts(facts, time_aware=False)
    both = rank_facts(score, None, facts, {"aware": aware, "static": static})
    entities = integers(E, 4, seed=3)
    scorer = EmbeddingScorer(lambda h, r: entities[h] * (1 + r[:, None]), entities)
    embedded = rank_triples(scorer, None, TEST, FILTERS)
    for name, known in FILTERS.items():
        alone = rank_triples(None, None, TEST, known, score_hrt=one.hrt, num_entities=E)
        assert torch.equal(singles[name].rows, alone.rows)
        assert torch.equal(embedded[name].rows, rank_triples(scorer, None, TEST, known).rows)
    for name, known in (("aware", aware), ("static", static)):
        assert torch.equal(both[name].rows, rank_facts(score, None, facts, known).rows)
    assert not torch.equal(both["aware"].rows, both["static"].rows)


def test_memory_that_ends_between_two_filters_repeats_no_query(monkeypatch):
    one, failures = model(), ["out of memory"]
    expected = rank_triples(one.tails, one.heads, TEST, FILTERS, top_k=2)

    def heads_of(self, *ids, look_up=KnownTriples.heads):
        if failures and self is FILTERS["all"] and len(ids[0]) < 10:
            raise MemoryError(failures.pop())
        return look_up(self, *ids)

    monkeypatch.setattr(KnownTriples, "heads", heads_of)
    tables = rank_triples(one.tails, one.heads, TEST, FILTERS, top_k=2, batch_size=8)
    assert not failures
    for name, table in tables.items():
        assert torch.equal(table.rows, expected[name].rows)
        for side, found in table.answers.sides.items():
            assert torch.equal(found.ids, expected[name].answers.sides[side].ids)


def test_a_filter_without_the_evaluated_triples_is_a_warning_unless_another_has_them(recwarn):
    one = model()
    rank_triples(one.tails, None, TEST, FILTERS)
    assert not recwarn.list
    with pytest.warns(RankMetricWarning, match=f"^{len(TEST)} of {len(TEST)} evaluated triples"):
        rank_triples(one.tails, None, TEST, {"raw": None, "train": FILTERS["train"]})


# heads and tails by relation; relation 2 has all
ALLOWED = {0: ([0, 1, 2, 3], None), 1: (None, [1, 2, 6]), 5: ([0], [0])}


def allowed(side, relation):
    given = ALLOWED.get(relation, (None, None))[side == "tail"]
    return set(range(E)) if given is None else set(given)


def lines(triples, row_of, known):
    """The ranks of both sides among the candidates of each relation, by plain loops."""
    of_graph, found = reference.Graph(known), []
    for side in ("tail", "head"):
        for triple in triples:
            query, own = reference.split(triple, side)
            gone = of_graph.answers(side, query) | (set(range(E)) - allowed(side, triple[1]))
            found.append(reference.rank(row_of(side, query), own, gone)[:3])
    return found


def as_mask(ids):
    return None if ids is None else torch.zeros(E).index_fill_(0, torch.tensor(ids), 1).bool()


@pytest.mark.parametrize("form", ["ids", "mask"])
@pytest.mark.parametrize("name", FILTERS)
def test_candidates_by_relation_are_those_of_plain_loops_and_targets_stay(name, form):
    one, given = model(), ALLOWED
    if form == "mask":
        given = {relation: tuple(map(as_mask, pair)) for relation, pair in ALLOWED.items()}
    outside = sum(
        (h not in allowed("head", r)) + (t not in allowed("tail", r)) for h, r, t in TEST.tolist()
    )
    assert outside
    message = f"^{outside} of {2 * len(TEST)} targets are not candidates of their relation"
    with pytest.warns(RankMetricWarning, match=message):
        table = rank_triples(
            one.tails, one.heads, TEST, {name: FILTERS[name], "all": FILTERS["all"]},
            candidates=given, batch_size=3, top_k=4,
        )[name]  # fmt: skip
    assert reference.lines(table.ranks) == lines(TEST.tolist(), one.row, SPLITS[name])
    for side, found in table.answers.sides.items():
        for query, ids, correct in zip(found.queries, found.ids, found.correct, strict=True):
            relation = int(query[1 if side == "tail" else 0])
            assert set(ids[~correct].tolist()) <= allowed(side, relation) | {-1}


@pytest.mark.filterwarnings("ignore:.*targets are not candidates of their relation")
@pytest.mark.parametrize("name", ["train", "all"])
@pytest.mark.filterwarnings("ignore:.*not in known", "ignore:.*does not contain the target")
def test_candidates_by_relation_are_counted_without_a_model(name):
    known = FILTERS[name]
    table = rank_triples(model().tails, model().heads, TEST, known, candidates=ALLOWED)
    parts = [known.num_candidates(TEST, side, candidates=ALLOWED) for side in ("tail", "head")]
    assert torch.equal(torch.cat(parts), table.ranks.num_candidates)


def test_a_target_outside_of_its_relation_is_counted_with_a_warning():
    known = KnownTriples([[0, 0, 4], [0, 0, 1]], num_entities=E)
    with pytest.warns(RankMetricWarning, match="^1 of 2 targets are not candidates"):
        found = known.num_candidates(
            [[0, 0, 4], [0, 0, 1]], "tail", candidates={0: (None, [0, 1, 2])}
        )
    assert found.tolist() == [3, 3]  # 0 and 2, which are not known, and the target


def test_candidates_by_relation_of_embeddings_are_those_of_their_scores():
    entities = integers(E, 4, seed=3)
    scorer = EmbeddingScorer(lambda h, r: entities[h] * (1 + r[:, None]), entities)
    inside = TEST[[t in allowed("tail", r) for _, r, t in TEST.tolist()]]
    options = {"candidates": ALLOWED}
    tables = [
        rank_triples(one, None, inside, FILTERS["all"], **options)
        for one in (scorer, lambda h, r: scorer(h, r))
    ]
    assert torch.equal(tables[0].rows, tables[1].rows)
    assert tables[0].ranks.num_candidates.min() < E - 3


BAD = [
    ({"known": {}}, ValueError, "known as a dict must have a filter"),
    ({"known": {1: None}}, TypeError, "known as a dict must have names as keys, got 1"),
    ({"known": {"a": TRAIN}}, TypeError, r"known\['a'\] must be KnownTriples or None, got Tensor"),
    (
        {"known": {"a": FILTERS["all"], "b": KnownTriples(TRIPLES, num_entities=E + 1)}},
        ValueError,
        r"known must have filters of one num_entities, got \[7, 8\]",
    ),
    ({"candidates": {"likes": (None, None)}}, TypeError,
     "relations as keys, integers; got 'likes'"),
    ({"candidates": {0: [1, 2, 3]}}, ValueError,
     r"candidates\[0\] must be a tuple \(heads, tails\)"),
    ({"candidates": {0: (None, [E])}}, IndexError, r"candidates\[0\]\[1\] must lie in \[0, 7\)"),
    ({"candidates": {0: (None, [0.5])}}, TypeError, r"candidates\[0\]\[1\]"),
    (
        {"known": KnownTriples(TRIPLES, TEST[:1] + E)},
        IndexError,
        r"known must contain entities in \[0, 7\), the columns of the scores; it has \d+",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "message"), BAD)
def test_bad_filters_and_candidates_are_named(options, error, message):
    given = {"known": FILTERS["all"], **options}
    with pytest.raises(error, match=message):
        rank_triples(model().tails, None, TEST, **given)


def test_a_sequential_evaluation_has_one_filter():
    with pytest.raises(TypeError, match="known must be KnownTriples or None, got several filters"):
        rank_sequentially(model().tails, None, TEST, FILTERS, half_width=0.1)
