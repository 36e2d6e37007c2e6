"""Long tables of scores against plain loops, and against the matrix that they list; partitions with whole queries."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import reference_ranks as reference
from torchrankmetrics import RankTable, evaluate, rank_scores
from torchrankmetrics.kg import rank_long_table, rank_long_tables
from torchrankmetrics.ranking import flags

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
        rows += [(query, c, draw(SCORES), c == true or draw(st.booleans()), *draw(rest)) for c in candidates]
    return draw(st.permutations(rows))


def arrays(rows):
    dtypes = {"query": "i4", "candidate": "i8", "score": "f4", "true": "?", "excluded": "?", "group": "i8"}
    records = np.array(rows, dtype=[*dtypes.items()])
    return {name: np.ascontiguousarray(records[name]) for name in dtypes}


def looped(rows):
    """What each true row should be: optimistic, pessimistic, candidates, query, group, whether a NaN met it."""
    found = []
    for query, own, score, true, _, group in rows:
        if true:
            others = [s for q, c, s, _, out, _ in rows if q == query and c != own and not out]
            *ranks, nan = reference.rank([score, *others], 0)
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
    assert torch.equal(rank_long_table(distances, side="tail", higher_is_better=False).rows, table.rows)


@settings(max_examples=30, deadline=None)
@given(rows=long_tables(), size=st.integers(1, 5))
def test_batches_of_a_sorted_table_give_its_ranks(rows, size):
    rows = sorted(rows, key=lambda row: row[0])
    batches = [arrays(rows[i : i + size]) for i in range(0, len(rows), size)]
    tables = list(rank_long_tables([*batches, arrays([])], continued=True))
    assert torch.equal(RankTable.concatenate(tables).rows, rank_long_table(arrays(rows)).rows)


def matrix_and_table():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (20, 15), generator=generator).float()
    target = torch.randint(0, 15, (20,), generator=generator)
    exclude = torch.rand(20, 15, generator=generator) < 0.3
    rows = torch.arange(20)
    true = torch.zeros(20, 15, dtype=torch.bool)
    true[rows, target] = True
    query, candidate = torch.meshgrid(rows, torch.arange(15), indexing="ij")
    columns = {"query": query, "candidate": candidate, "score": scores, "true": true, "excluded": exclude}
    ranks = rank_scores(scores, target, exclude=exclude)
    return {name: part.flatten().numpy() for name, part in columns.items()}, ranks


def test_arrays_data_frames_and_arrow_are_the_matrix_that_they_list():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    columns, ranks = matrix_and_table()
    assert torch.equal(rank_long_table(columns, num_rows=15).ranks.columns, ranks.columns)
    columns["candidate"] = np.array([f"doc{i}" for i in columns["candidate"]])
    columns["side"] = np.array(["head", "tail"])[columns["query"] % 2]
    expected = rank_long_table(columns)
    assert set(expected.to_numpy()["side"]) == {1, 2}
    arrow = pa.table(columns)
    (whole,) = arrow.to_batches()
    for table in (pd.DataFrame(columns), arrow, whole):
        assert torch.equal(rank_long_table(table).rows, expected.rows)
    parts = (part for _, part in pd.DataFrame(columns).groupby(columns["query"] % 3))
    assert torch.equal(RankTable.concatenate([*rank_long_tables(parts)]).compact().rows, expected.compact().rows)
    with pytest.raises(ValueError, match="weight has 300 nulls"):
        rank_long_table(arrow.append_column("weight", pa.array([None] * len(arrow), pa.float64())))


def test_rows_without_queries_merge():
    columns = {**TABLE, "query": [7, 7, 7, 3, 3], "score": [0.1, 0.2, 0.9, 0.3, 0.1], "excluded": [1, 0, 0, 0, 0]}
    assert len(rank_long_table(columns).compact()) == 2
    compact = rank_long_table(columns, with_queries=False).compact()
    assert compact.to_numpy() == {"optimistic": [1], "pessimistic": [1], "num_candidates": [2], "count": [2]}
    assert evaluate(rank_long_table(TABLE), metrics=["mrr"]) == {"mrr": pytest.approx((1 / 2 + 2 / 3) / 2)}


def test_a_query_that_is_split_is_rejected_where_it_can_be_seen():
    first, second = ({name: column[part] for name, column in TABLE.items()} for part in (slice(0, 2), slice(2, 5)))
    with pytest.raises(ValueError, match="query 7 has 2 rows here, 0 of them true"):
        rank_long_table(first)
    assert rank_long_table(second).ranks.num_candidates.tolist() == [1, 2]  # an answer alone: nothing to see
    both = {**first, "true": [False, True]}
    with pytest.raises(ValueError, match="query 7 of partition 1 was in an earlier partition: partition or sort"):
        list(rank_long_tables([both, second]))
    with pytest.raises(ValueError, match="query 7 of partition 2 was in an earlier partition"):
        list(rank_long_tables([TABLE, {**TABLE, "query": [4] * 3 + [5] * 2}, both], continued=True))
    heads, tails = ({**TABLE, "side": [side] * 5} for side in (1, 2))
    both_sides = RankTable.concatenate([*rank_long_tables([heads, tails])])
    assert len(both_sides) == 4  # the queries of the other side are others
