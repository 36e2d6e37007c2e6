"""rank_triples: a whole evaluation against plain loops, each query scored once, batches that fit in memory."""

import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import reference_ranks as reference
from torchrankmetrics import KnownTriples, rank_triples
from torchrankmetrics.protocols import triples as triples_module

E, R = 7, 2
MEMINFO = Path("/proc/meminfo")
TRIPLES = st.lists(st.tuples(st.integers(0, E - 1), st.integers(0, R - 1), st.integers(0, E - 1)), max_size=14)


class Model:
    """Made-up scores with ties, and a record of what was asked."""

    def __init__(self, seed=0):
        self.scores = torch.randint(-2, 3, (2, E, R, E), generator=torch.Generator().manual_seed(seed)).float()
        self.asked = []

    def tails(self, heads, relations):
        self.asked += [("tail", *query) for query in zip(heads.tolist(), relations.tolist(), strict=True)]
        return self.scores[0, heads, relations]

    def heads(self, relations, tails):
        self.asked += [("head", *query) for query in zip(relations.tolist(), tails.tolist(), strict=True)]
        return self.scores[1, tails, relations]

    def row(self, side, query):
        return self.scores[0, query[0], query[1]] if side == "tail" else self.scores[1, query[1], query[0]]


def tensor(triples):
    return torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)


@settings(deadline=None, max_examples=100)
@given(TRIPLES, TRIPLES, st.sampled_from([None, 1, 3]), st.sampled_from(["all", "ids", "bool"]), st.booleans())
def test_both_sides_of_every_triple_are_those_of_plain_loops(train, test, batch_size, form, filtered):
    model, graph = Model(), reference.Graph([*train, *test] if filtered else [])
    known = KnownTriples(tensor(train), tensor(test)) if filtered else None
    allowed = set(range(E)) if form == "all" else {0, 2, *(e for h, _, t in test for e in (h, t))}
    candidates = None if form == "all" else torch.tensor(sorted(allowed))
    if form == "bool":
        candidates = torch.zeros(E, dtype=torch.bool).index_fill_(0, candidates, True)
    table = rank_triples(model.tails, model.heads, tensor(test), known, candidates=candidates, batch_size=batch_size)
    expected = []
    for side in ("tail", "head"):
        for triple in test:
            query, own = reference.split(triple, side)
            excluded = graph.answers(side, query) | (set(range(E)) - allowed)
            expected.append(reference.rank(model.row(side, query).tolist(), own, excluded)[:3])
    assert reference.lines(table.ranks) == expected
    assert table.group.tolist() == [r for _, r, _ in test] * 2
    assert table.sample_id.tolist() == list(range(len(test))) * 2
    assert len(table.select(side="tail")) == len(table.select(side="head")) == len(test)
    # each query is scored once, however many answers it has
    queries = {(side, *reference.split(triple, side)[0]) for side in ("tail", "head") for triple in test}
    assert sorted(model.asked) == sorted(queries)


TEST = tensor([(0, 0, 1), (0, 0, 2), (1, 1, 3), (2, 0, 3), (4, 1, 5)])


def test_a_side_without_a_scorer_has_no_tasks():
    model = Model()
    table = rank_triples(None, model.heads, TEST, None)
    assert len(table) == len(table.select(side="head")) == len(TEST)


def test_out_of_memory_halves_the_batch():
    model, sizes = Model(), []

    def tails(heads, relations):
        sizes.append(len(heads))
        if len(heads) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return model.tails(heads, relations)

    table = rank_triples(tails, model.heads, TEST, None)
    assert torch.equal(table.rows, rank_triples(model.tails, model.heads, TEST, None).rows)
    assert sizes == [4, 2, 1, 1, 1, 1]


def test_other_errors_are_not_tried_again():
    calls = []

    def tails(heads, relations):
        calls.append(len(heads))
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        rank_triples(tails, None, TEST, None)
    assert calls == [4]


def test_the_batch_follows_from_the_memory(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(triples_module, "_free_memory", lambda device: 1 << 40)
    assert triples_module._fitting(1 << 12, 4, cpu) == 1 << 10
    assert triples_module._fitting(1 << 30, 4, cpu) == 1
    monkeypatch.setattr(triples_module, "_free_memory", lambda device: 8 * 4 * 1000 * 5)
    assert triples_module._fitting(1000, 4, cpu) == 5


@pytest.mark.skipif(not MEMINFO.exists(), reason="needs /proc/meminfo")
def test_the_memory_at_hand_is_what_the_system_calls_free():
    free = 1024 * int(re.search(r"MemFree: +(\d+) kB", MEMINFO.read_text())[1])
    assert free / 2 < triples_module._free_memory(torch.device("cpu")) < free * 2


def test_no_triples_no_tasks():
    model = Model()
    assert len(rank_triples(model.tails, model.heads, tensor([]), None)) == 0


BAD = {
    "triples": (lambda m: rank_triples(m.tails, m.heads, torch.zeros(2, 2).long(), None), ValueError, "triples"),
    "float": (lambda m: rank_triples(m.tails, m.heads, torch.zeros(2, 3), None), TypeError, "triples"),
    "batch": (lambda m: rank_triples(m.tails, m.heads, TEST, None, batch_size=0), ValueError, "batch_size"),
    "nothing": (lambda m: rank_triples(None, None, TEST, None), ValueError, "score_tails"),
    "one row": (lambda m: rank_triples(lambda h, r: torch.zeros(E), None, TEST, None), ValueError, "score_tails"),
    "rows": (lambda m: rank_triples(None, lambda r, t: torch.zeros(1, E), TEST, None), ValueError, "score_heads"),
    "candidates": (lambda m: rank_triples(m.tails, None, TEST, None, candidates=[E]), IndexError, "candidates"),
    "restricted": (lambda m: rank_triples(m.tails, None, TEST, None, candidates=[0]), ValueError, "target"),
    "few columns": (
        lambda m: rank_triples(lambda h, r: torch.zeros(len(h), 3), None, TEST, None),
        IndexError,
        "target",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call(Model())
