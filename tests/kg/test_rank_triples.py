"""rank_triples: an evaluation against loops, each query scored once, batches that fit in memory."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_ranks as reference
from fuzzing import cases
from random_graphs import Model, integers
from torchrankmetrics import KnownTriples, RankMetricWarning, evaluate, rank_triples
from torchrankmetrics.kg import batch_size as batching, scorers

E, R = 7, 2
TRIPLES = st.lists(
    st.tuples(st.integers(0, E - 1), st.integers(0, R - 1), st.integers(0, E - 1)), max_size=14
)


def made_up():
    return Model(integers(2, E, R, E))


def tensor(triples):
    return torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)


@cases(40, 1000)
@given(
    TRIPLES,
    TRIPLES,
    st.sampled_from([None, 1, 3]),
    st.sampled_from(["all", "ids", "bool"]),
    st.booleans(),
)
def test_both_sides_of_every_triple_are_those_of_plain_loops(
    train, test, batch_size, form, filtered
):
    model, graph = made_up(), reference.Graph([*train, *test] if filtered else [])
    known = KnownTriples(tensor(train), tensor(test)) if filtered else None
    allowed = set(range(E)) if form == "all" else {0, 2, *(e for h, _, t in test for e in (h, t))}
    candidates = None if form == "all" else torch.tensor(sorted(allowed))
    if form == "bool":
        candidates = torch.zeros(E, dtype=torch.bool).index_fill_(0, candidates, True)
    table = rank_triples(
        model.tails, model.heads, tensor(test), known, candidates=candidates, batch_size=batch_size
    )
    assert reference.lines(table.ranks) == graph.lines(test, model.row, allowed)
    assert table.group.tolist() == [r for _, r, _ in test] * 2
    assert table.sample_id.tolist() == list(range(len(test))) * 2
    assert len(table.select(side="tail")) == len(table.select(side="head")) == len(test)
    # each query is scored once, however many answers it has
    queries = {
        (side, *reference.split(triple, side)[0]) for side in ("tail", "head") for triple in test
    }
    assert sorted(model.requested) == sorted(queries)


TEST = tensor([(0, 0, 1), (0, 0, 2), (1, 1, 3), (2, 0, 3), (4, 1, 5)])


@pytest.mark.parametrize("writeable", [True, False])
def test_triples_may_be_a_tuple_of_columns_and_scores_arrays(writeable, recwarn):
    model = made_up()

    def tails(heads, relations):
        scores = model.tails(heads, relations).numpy().copy()
        scores.flags.writeable = writeable
        return scores

    expected = rank_triples(model.tails, None, TEST, KnownTriples(TEST)).rows
    for columns in (tuple(TEST.T), tuple(TEST.T.numpy())):
        assert torch.equal(rank_triples(tails, None, columns, KnownTriples(columns)).rows, expected)
    assert not recwarn.list


def test_out_of_memory_halves_the_batch():
    model, sizes = made_up(), []

    def tails(heads, relations):
        sizes.append(len(heads))
        if len(heads) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return model.tails(heads, relations)

    table = rank_triples(tails, model.heads, TEST, None)
    assert torch.equal(table.rows, rank_triples(model.tails, model.heads, TEST, None).rows)
    assert sizes == [4, 2, 1, 1, 1, 1]


def test_the_batch_follows_from_the_memory(monkeypatch):
    assert batching.fitting_queries(1 << 12, 4, torch.device("cpu")) == 1 << 10
    assert batching.fitting_queries(1 << 30, 4, torch.device("cpu")) == 1
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 * 4 * 1000 * 5, 0))
    assert batching.fitting_queries(1000, 4, torch.device("cuda")) == 5


@pytest.mark.parametrize(("form", "at_once"), [("(m,)", 1), ("(m, 1)", 10), ("array", 1 << 17)])
def test_scores_of_single_triples_are_those_of_all_candidates(monkeypatch, form, at_once):
    model, known, seen = made_up(), KnownTriples(TEST, num_entities=E), []
    both = lambda h, r: model.scores[0, h, r], lambda r, t: model.scores[0, :, r, t].T
    monkeypatch.setattr(scorers, "_TRIPLES", at_once)

    def score_hrt(triples):
        seen.append(len(triples))
        scores = model.hrt(triples)
        return {"(m,)": scores, "(m, 1)": scores[:, None], "array": scores.numpy()}[form]

    table = rank_triples(None, None, TEST, known, score_hrt=score_hrt)
    assert torch.equal(table.rows, rank_triples(*both, TEST, known).rows)
    assert max(seen) <= at_once
    raw = rank_triples(None, None, TEST, None, score_hrt=score_hrt, num_entities=E)
    assert torch.equal(raw.rows, rank_triples(*both, TEST, None).rows)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_distances_are_ranked_from_the_smallest(dtype):
    low = -2 if dtype not in (torch.uint8, torch.bool) else 0
    scores = torch.randint(low, 3, (E, E), generator=torch.Generator().manual_seed(1)).to(dtype)
    if dtype == torch.int64:
        scores[0, 0] = torch.iinfo(dtype).min
    given = scores.clone()
    table = rank_triples(lambda h, r: scores[h], None, TEST, None, higher_is_better=False)
    expected = [
        reference.rank([-float(x) for x in scores[h].tolist()], t)[:3] for h, _, t in TEST.tolist()
    ]
    assert reference.lines(table.ranks) == expected
    assert torch.equal(scores, given)


def ring(n=40):
    """Entities on a circle, each linked to the next; a model that is right scores by distance."""
    triples = torch.stack(
        [torch.arange(n), torch.zeros(n, dtype=torch.int64), (torch.arange(n) + 1) % n], 1
    )
    apart = (torch.arange(n)[:, None] + 1 - torch.arange(n)) % n
    return triples, torch.minimum(apart, n - apart).float()


def test_ranks_far_worse_than_random_are_a_warning_with_the_values_of_the_metrics():
    triples, distances = ring()
    with pytest.warns(
        RankMetricWarning, match=r"AMRI -1.00, its z-score -10.* pass higher_is_better=False"
    ):
        rank_triples(lambda h, r: distances[h], None, triples, None)
    right = rank_triples(lambda h, r: distances[h], None, triples, None, higher_is_better=False)
    assert evaluate(right, metrics=["mr"]) == {"mr": 1.0}
    with pytest.warns(RankMetricWarning, match="leave out higher_is_better=False"):
        rank_triples(lambda h, r: -distances[h], None, triples, None, higher_is_better=False)
    random = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    for scores in (random, torch.zeros(40, 40), distances * torch.nan):
        rank_triples(lambda h, r, scores=scores: scores[h], None, triples, None)  # no warning
    rank_triples(lambda h, r: distances[h], None, triples[:8], None)
    distances[:, :6] = 100  # some are right
    with pytest.warns(RankMetricWarning) as caught:
        table = rank_triples(lambda h, r: distances[h], None, triples, None)
    values = evaluate(table, metrics=["amri", "z_mr"])
    assert f"AMRI {values['amri']:.2f}, its z-score {values['z_mr']:.1f}" in str(caught[0].message)


@pytest.mark.parametrize(
    ("on_terminal", "options", "shown"),
    [
        (False, {}, 0),
        (True, {"progress": False}, 0),
        (True, {}, 1),
    ],
)
def test_progress_is_shown_on_terminals_only(on_terminal, options, shown, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda on=on_terminal: on, raising=False)
    rank_triples(made_up().tails, None, TEST, None, **options)
    text = capsys.readouterr().err
    assert "ranking: 100%" in text if shown else text == ""


QUERIES = 600


def sizes_of_batches(monkeypatch, cost, **options):
    """With a clock that only scoring moves: ``cost(n)`` seconds for n queries."""
    sizes, now = [], [0.0]

    def score(heads, relations):
        sizes.append(len(heads))
        now[0] += cost(len(heads))
        return torch.zeros(len(heads), QUERIES)

    monkeypatch.setattr(batching.time, "perf_counter", lambda: now[0])
    triples = torch.arange(QUERIES), torch.zeros(QUERIES).long(), torch.arange(QUERIES)
    table = rank_triples(score, None, triples, None, progress=False, **options)
    assert table.ranks.pessimistic.tolist() == [QUERIES] * QUERIES
    return sizes


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (lambda n: 100.0 + n, [16, 32, 64, 128, 256, 104]),  # a call has a price: it grows
        (lambda n: 4000.0 + n * n, [16, 32, 64, 128] + 5 * [64] + [40]),  # 64 is the best
        (lambda n: 4e-5 * n, [16, 32, 64, 128, 256, 104]),  # short batches grow without a gain
        # warm-up
        (
            lambda n, once=[9.0]: (once.pop() if once else 0.0) + 1e-3 * n,
            [16, 32, 64] + 15 * [32] + [8],
        ),
    ],
)
def test_the_size_follows_the_time_per_query(monkeypatch, cost, expected):
    assert sizes_of_batches(monkeypatch, cost) == expected


@pytest.mark.parametrize("source", ["known", "given to known", "targets"])
def test_the_first_call_scores_no_more_than_the_bound(source):
    number, sizes = 2_000_000, []

    def score(heads, relations):
        sizes.append(len(heads))
        return torch.zeros(1, 1).expand(len(heads), number)

    last = torch.tensor([[0, 0, number - 1]])
    test = torch.tensor([[head, 0, 1] for head in range(20)])
    if source == "targets":
        known, test = None, torch.cat([test, last])
    else:
        more = {"num_entities": number} if source == "given to known" else {}
        known = KnownTriples(test, last, **more)
    rank_triples(score, None, test, known, progress=False)
    assert sizes[0] * number <= 1 << 22


def test_a_bound_and_a_given_size_hold(monkeypatch):
    monkeypatch.setattr(batching, "fitting_queries", lambda *args: 40)
    assert max(sizes_of_batches(monkeypatch, lambda n: 100.0)) == 40
    assert set(sizes_of_batches(monkeypatch, lambda n: 100.0, batch_size=50)) == {50}
    monkeypatch.setattr(batching, "fitting_queries", lambda *args: 3)
    assert sizes_of_batches(monkeypatch, lambda n: 100.0)[:3] == [16, 3, 3]


def test_score_functions_may_change_their_arguments():
    """Ids of inverse relations are often made in place."""
    triples = torch.unique(
        torch.randint(6, (40, 3), generator=torch.Generator().manual_seed(0)), dim=0
    )
    scores = torch.rand(6, 12, 6, generator=torch.Generator().manual_seed(1))
    known = KnownTriples(triples, num_entities=6)

    def in_place(relations, tails):
        relations += 6
        return scores[tails, relations]

    tables = [
        rank_triples(None, heads, triples[::3], known, progress=False, candidates=candidates)
        for candidates in (None, {0: ([0, 1, 2], None)})
        for heads in (lambda r, t: scores[t, r + 6], in_place)
    ]
    for expected, found in (tables[:2], tables[2:]):
        assert torch.equal(found.rows, expected.rows)


def test_the_number_of_columns_is_that_of_known(tmp_path):
    """Also of an index that was opened, and if candidates by relation leave all entities open."""
    triples = torch.tensor([[0, 0, 1], [1, 1, 2]])
    known = KnownTriples(triples, num_entities=5)
    known.save(tmp_path / "known.bin")
    for one in (known, KnownTriples.open(tmp_path / "known.bin")):
        for candidates in (None, {0: (None, [1, 2])}):
            with pytest.raises(ValueError, match="num_entities=5 columns as known, got 8"):
                rank_triples(
                    lambda h, r: torch.ones(len(h), 8),
                    None,
                    triples,
                    one,
                    candidates=candidates,
                    progress=False,
                )
    with pytest.raises(ValueError, match="num_entities is for score_hrt"):
        rank_triples(lambda h, r: torch.ones(len(h), 8), None, triples, None, num_entities=5)
