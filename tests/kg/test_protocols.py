"""Complex queries, temporal facts, long tables against loops and papers; PyKEEN's restrictions."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from fuzzing import cases
from pykeen_lookup import Lookup, evaluated, splits_of
from random_graphs import graph, integers
from reference_ranks import lines, rank
from torchrankmetrics import KnownTriples, RankTable, evaluate, rank_scores, rank_triples
from torchrankmetrics.kg import (
    KnownFacts,
    rank_complex_queries,
    rank_facts,
    rank_long_table,
    rank_long_tables,
)
from torchrankmetrics.ranking import flags

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


ANSWERS = st.lists(
    st.tuples(st.sets(st.integers(0, E - 1), min_size=1), st.sets(st.integers(0, E - 1))),
    max_size=6,
)


@cases(25, 600)
@given(ANSWERS, st.sampled_from(["sets", "pairs"]), st.data())
def test_hard_answers_are_averaged_per_query_and_pattern(queries, form, data):
    """As in BetaE: sort entities, subtract other answers before a hard one's place, average."""
    hard = [h for h, _ in queries]
    easy = [e - h for h, e in queries]
    pattern = data.draw(st.lists(st.integers(0, 2), min_size=len(queries), max_size=len(queries)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 9)))
    # no ties: they have no rule of theirs
    scores = torch.rand(len(queries), E, generator=generator)
    logs = {}
    for i in range(len(queries)):
        order, true = scores[i].argsort(descending=True).tolist(), hard[i] | easy[i]
        before = [sum(x not in true for x in order[: order.index(answer)]) for answer in hard[i]]
        logs.setdefault(pattern[i], []).append(np.mean([1 / (1 + number) for number in before]))

    def given_as(sets):
        pairs = [(i, a) for i, part in enumerate(sets) for a in sorted(part)]
        return sets if form == "sets" else torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T

    table = rank_complex_queries(
        lambda q: scores[q], given_as(hard), given_as(easy), pattern=pattern, progress=False
    )
    assert len(table) == sum(map(len, hard))
    in_order = [(i, answer) for i, part in enumerate(hard) for answer in sorted(part)]
    assert [tuple(pair) for pair in table.positives.T.tolist()] == in_order
    if not queries:
        return
    for one, values in logs.items():
        mrr = evaluate(table.select(group=one), metrics=["mrr"])["mrr"]
        assert mrr == pytest.approx(np.mean(values), rel=1e-12)
    over_patterns = evaluate(table, metrics=["mrr"], average="macro")["macro_mrr"]
    assert over_patterns == pytest.approx(
        np.mean([np.mean(values) for values in logs.values()]), rel=1e-12
    )
    over_queries = evaluate(table, metrics=["mrr"])["mrr"]
    assert over_queries == pytest.approx(np.mean(np.concatenate(list(logs.values()))), rel=1e-12)


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        (torch.tensor([[1, 0, 0], [3, 2, 1]]), [[1, 0, 0], [3, 2, 1]]),
        ((torch.tensor([1, 0, 0]), torch.tensor([3, 2, 1])), [[1, 0, 0], [3, 2, 1]]),
        ([[2, 1], [3]], [[0, 0, 1], [1, 2, 3]]),  # lists are sorted, too
        ([{2, 1}, {3}], [[0, 0, 1], [1, 2, 3]]),
    ],
    ids=["tensor", "tuple", "lists", "sets"],
)
def test_the_positives_of_complex_queries_are_those_of_the_rows(hard, expected):
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    table = rank_complex_queries(lambda queries: scores[queries], hard, progress=False)
    assert table.positives.tolist() == expected
    others = {0: [0.1, 0.4], 1: [0.4, 0.3, 0.2]}  # scores of the candidates that are filtered
    found = [
        1 + sum(score > scores[q, a] for score in others[q]) for q, a in zip(*expected, strict=True)
    ]
    assert table.ranks.optimistic.tolist() == found


@pytest.mark.parametrize("time_aware", [True, False, None])
def test_facts_with_a_time_by_brute_force(time_aware):
    train, test = graph(n=40, columns=(E, R, E, T)), graph(seed=3, n=12, columns=(E, R, E, T))
    scores, requested = integers(2, E, R, T, E), []

    def tails(h, r, time):
        requested.extend(zip(h.tolist(), r.tolist(), time.tolist(), strict=True))
        return scores[0, h, r, time]

    known = None if time_aware is None else KnownFacts(train, test, time_aware=time_aware)
    table = rank_facts(
        tails, lambda r, t, time: scores[1, t, r, time].numpy(), test, known, progress=False
    )
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


SCORES = st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf, -math.inf, math.nan])
TABLE = {"query": [7, 7, 7, 3, 3], "candidate": [0, 1, 2, 0, 1], "score": [0.1, 0.9, 0.5, 1.0, 1.0]}
TABLE |= {"true": [False, False, True, True, False]}


@st.composite
def long_tables(draw):
    """Rows of queries with an answer at least, in any order."""
    rows, rest = [], st.tuples(st.booleans(), st.integers(0, 2))
    for query in draw(st.lists(st.integers(0, 9), unique=True, max_size=4)):
        candidates = draw(st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=6))
        true = draw(st.sampled_from(candidates))
        rows += [
            (query, c, draw(SCORES), c == true or draw(st.booleans()), *draw(rest))
            for c in candidates
        ]
    return draw(st.permutations(rows))


def arrays(rows):
    dtypes = {
        "query": "i4",
        "candidate": "i8",
        "score": "f4",
        "true": "?",
        "excluded": "?",
        "group": "i8",
    }
    records = np.array(rows, dtype=[*dtypes.items()])
    return {name: np.ascontiguousarray(records[name]) for name in dtypes}


def looped(rows):
    """Per true row: optimistic, pessimistic, candidates, query, group, whether a NaN met it."""
    found = []
    for query, own, score, true, _, group in rows:
        if true:
            others = [s for q, c, s, _, out, _ in rows if q == query and c != own and not out]
            *ranks, nan = rank([score, *others], 0)
            found.append((*ranks, query, group, nan))
    return found


@settings(max_examples=80, deadline=None)
@given(rows=long_tables())
def test_true_rows_rank_as_loops_say(rows):
    table = rank_long_table(arrays(rows), side="tail")
    nan = (table.ranks.flags & flags.NAN > 0).tolist()
    columns = [part.tolist() for part in (*table.ranks.columns, table.query, table.group)]
    assert list(zip(*columns, nan, strict=True)) == looped(rows)
    marks = [out for *_, true, out, _ in rows if true]
    assert ((table.ranks.flags & flags.FILTERED) > 0).tolist() == marks
    assert ((table.ranks.flags & flags.RAW) > 0).tolist() == [not mark for mark in marks]
    distances = {**arrays(rows), "score": -arrays(rows)["score"]}
    assert torch.equal(
        rank_long_table(distances, side="tail", higher_is_better=False).rows, table.rows
    )


@settings(max_examples=30, deadline=None)
@given(rows=long_tables(), size=st.integers(1, 5))
def test_batches_of_a_sorted_table_give_its_ranks(rows, size):
    rows = sorted(rows, key=lambda row: row[0])
    batches = [arrays(rows[i : i + size]) for i in range(0, len(rows), size)]
    tables = list(rank_long_tables([*batches, arrays([])], continued=True))
    assert torch.equal(RankTable.concatenate(tables).rows, rank_long_table(arrays(rows)).rows)


def test_arrays_data_frames_and_arrow_are_the_matrix_that_they_list():
    pd, pa = (
        pytest.importorskip("pandas"),
        pytest.importorskip("pyarrow", reason="needs the extra 'parquet'"),
    )
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (20, 15), generator=generator).float()
    target = torch.randint(0, 15, (20,), generator=generator)
    exclude = torch.rand(20, 15, generator=generator) < 0.3
    query, candidate = torch.meshgrid(torch.arange(20), torch.arange(15), indexing="ij")
    columns = {
        "query": query,
        "candidate": candidate,
        "score": scores,
        "true": candidate == target[:, None],
    }
    columns = {
        name: part.flatten().numpy() for name, part in (columns | {"excluded": exclude}).items()
    }
    expected = rank_scores(scores, target, exclude=exclude).columns
    assert torch.equal(rank_long_table(columns, num_rows=15).ranks.columns, expected)
    columns["candidate"] = np.array([f"doc{i}" for i in columns["candidate"]])
    columns["side"] = np.array(["head", "tail"])[columns["query"] % 2]
    expected = rank_long_table(columns)
    assert set(expected.to_numpy()["side"]) == {1, 2}
    arrow = pa.table(columns)
    (whole,) = arrow.to_batches()
    for table in (pd.DataFrame(columns), arrow, whole):
        assert torch.equal(rank_long_table(table).rows, expected.rows)
    parts = (part for _, part in pd.DataFrame(columns).groupby(columns["query"] % 3))
    assert torch.equal(
        RankTable.concatenate([*rank_long_tables(parts)]).compact().rows, expected.compact().rows
    )
    with pytest.raises(ValueError, match="weight has 300 nulls"):
        rank_long_table(arrow.append_column("weight", pa.array([None] * len(arrow), pa.float64())))


@pytest.mark.parametrize("dtype", [str, object])
def test_queries_of_text_have_the_same_numbers_in_every_partition(dtype):
    names = np.array(["u7", "u7", "u7", "u3", "u3"], dtype=dtype)
    whole = rank_long_table({**TABLE, "query": names})
    assert torch.equal(whole.ranks.columns, rank_long_table(TABLE).ranks.columns)
    assert len(set(whole.query.tolist())) == 2
    parts = [{name: column[rows] for name, column in {**TABLE, "query": names}.items()}
             for rows in (slice(3, 5), slice(0, 3))]  # fmt: skip
    apart = RankTable.concatenate([*rank_long_tables(parts)])
    assert torch.equal(apart.compact().rows, whole.compact().rows)
    with pytest.raises(ValueError, match="partition 1 has query u3 of an earlier one"):
        list(rank_long_tables([parts[0]] * 2))


def test_rows_without_queries_merge():
    columns = {
        **TABLE,
        "query": [7, 7, 7, 3, 3],
        "score": [0.1, 0.2, 0.9, 0.3, 0.1],
        "excluded": [1, 0, 0, 0, 0],
    }
    assert len(rank_long_table(columns).compact()) == 2
    compact = rank_long_table(columns, with_queries=False).compact()
    assert compact.to_numpy() == {
        "optimistic": [1],
        "pessimistic": [1],
        "num_candidates": [2],
        "count": [2],
    }
    assert evaluate(rank_long_table(TABLE), metrics=["mrr"]) == {
        "mrr": pytest.approx((1 / 2 + 2 / 3) / 2)
    }


def test_a_query_that_is_split_is_rejected_where_it_can_be_seen():
    first, second = (
        {name: column[part] for name, column in TABLE.items()}
        for part in (slice(0, 2), slice(2, 5))
    )
    with pytest.raises(ValueError, match="query 7 has 2 rows here, 0 of them true"):
        rank_long_table(first)
    # an answer alone: nothing to see
    assert rank_long_table(second).ranks.num_candidates.tolist() == [1, 2]
    both = {**first, "true": [False, True]}
    with pytest.raises(
        ValueError, match="partition 1 has query 7 of an earlier one: partition or sort"
    ):
        list(rank_long_tables([both, second]))
    with pytest.raises(ValueError, match="partition 2 has query 7 of an earlier one"):
        list(rank_long_tables([TABLE, {**TABLE, "query": [4] * 3 + [5] * 2}, both], continued=True))
    heads, tails = ({**TABLE, "side": [side] * 5} for side in (1, 2))
    both_sides = RankTable.concatenate([*rank_long_tables([heads, tails])])
    assert len(both_sides) == 4  # the queries of the other side are others
