"""Several answers per query: any form, split and sharding has the value of loops over scores."""

import itertools
import pickle
import random

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import reference_queries
from bits import bits
from fuzzing import cases
from query_metrics import looked_up
from torchrankmetrics import RankCollection, RankTable

# the task metrics are on purpose
pytestmark = pytest.mark.filterwarnings("ignore:relevant items of one query", "ignore:.*undefined")
OF_QUERIES = [
    *reference_queries.NAMES,
    "pessimistic_ap",
    "optimistic_ndcg_at_3",
    "adjusted_ap",
    "z_rr",
]
OF_TASKS = [
    "mr",
    "mrr",
    "hits_at_2",
    "gmr",
    "z_mrr",
    "amri",
    "tie_rate",
    "count",
    "macro_mrr",
    "expected_mrr",
]
N = 6


@st.composite
def queries(draw, most=5):
    """Rows of scores with ties, answers, and excluded columns: others, and some or all answers."""
    rows = []
    for _ in range(draw(st.integers(1, most))):
        row = draw(st.lists(st.integers(0, 3), min_size=N, max_size=N))
        answers = sorted(draw(st.sets(st.integers(0, N - 1), min_size=1, max_size=4)))
        listed = draw(
            st.sampled_from([set(), set(answers), draw(st.sets(st.sampled_from(answers)))])
        )
        others = draw(
            st.sets(st.sampled_from([j for j in range(N) if j not in answers]), max_size=2)
        )
        rows.append((row, answers, listed | others))
    return rows


def batch(rows, form):
    scores = torch.tensor([row for row, _, _ in rows]).float()
    relevant = torch.zeros(len(rows), N, dtype=torch.bool)
    excluded = torch.zeros(len(rows), N, dtype=torch.bool)
    for i, (_, answers, out) in enumerate(rows):
        relevant[i, answers], excluded[i, list(out)] = True, True
    if form == "flat":
        kept = ~excluded | relevant
        owner = torch.arange(len(rows))[:, None].expand_as(kept)
        order = torch.randperm(int(kept.sum()), generator=torch.Generator().manual_seed(len(rows)))
        return scores[kept][order], relevant[kept][order], {"indexes": owner[kept][order] * 7 + 3}
    target = {
        "bool": relevant,
        "floats": relevant.double(),
        "tuple": tuple(relevant.nonzero().T),
        "lists": [answers for _, answers, _ in rows],
        "sets": [set(answers) for _, answers, _ in rows],
        "numpy": relevant.numpy(),
    }[form]
    if (excluded & relevant).any():
        return scores, target, {"exclude": looked_up(excluded)}
    return scores, target, {"exclude": excluded if len(rows) % 2 else tuple(excluded.nonzero().T)}


def single(collection, tasks, **known):
    """Tasks (row, answer, excluded) with one row of scores each, as before queries existed."""
    rows, answers, out = zip(*tasks, strict=True)
    excluded = torch.tensor([[j in columns for j in range(N)] for columns in out])
    scores = torch.tensor(rows).float()
    collection.update(scores, torch.tensor(answers), exclude=looked_up(excluded), **known)


def check(collection, rows, weights=None):
    weighted = [(*query, 1 if weights is None else weights[i]) for i, query in enumerate(rows)]
    values = collection.compute()
    for key in reference_queries.NAMES:
        expected = reference_queries.mean(key, weighted)
        assert values[key].item() == pytest.approx(expected, rel=1e-12, abs=1e-15, nan_ok=True), key
    for rank_type, key in (("pessimistic", "ap"), ("optimistic", "ndcg_at_3")):
        expected = reference_queries.mean(key, weighted, rank_type)
        assert values[f"{rank_type}_{key}"].item() == pytest.approx(expected, rel=1e-12), key


@cases(12, 1_000)
@given(queries(), st.sampled_from(["bool", "floats", "tuple", "lists", "sets", "numpy", "flat"]))
def test_every_form_of_a_target_gives_the_value_of_plain_loops(rows, form):
    collection = RankCollection(OF_QUERIES)
    preds, target, options = batch(rows, form)
    # there the other answers are candidates, and what is no candidate is not there
    if form == "flat":
        rows = [(row, answers, set(out) - set(answers)) for row, answers, out in rows]
    collection.update(preds, target, **options)
    check(collection, rows)


@cases(12, 1_000)
@given(queries(), st.data())
def test_metrics_of_tasks_keep_their_values_to_the_bit(rows, data):
    weights = data.draw(
        st.lists(st.sampled_from([0.1, 0.7, 3.0]), min_size=len(rows), max_size=len(rows))
    )
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    per_task = [(weights[i], groups[i]) for i, (_, answers, _) in enumerate(rows) for _ in answers]
    before, after = RankCollection(OF_TASKS), RankCollection([*OF_TASKS, *OF_QUERIES])
    each, group = zip(*per_task, strict=True)
    tasks = [(row, answer, out) for row, answers, out in rows for answer in answers]
    single(before, tasks, weight=each, group=group)
    preds, target, options = batch(rows, "tuple")
    after.update(preds, target, weight=each, group=group, **options)
    expected = bits(before)
    assert {key: value for key, value in bits(after).items() if key in expected} == expected
    check(after, rows, weights)
    if data.draw(st.booleans()):
        other = RankCollection([*OF_TASKS, *OF_QUERIES])
        preds, target, options = batch(rows, "bool")
        other.update(preds, target, weight=weights, group=groups, **options)
        assert bits(other) == bits(after)


@cases(12, 1_000)
@given(queries(most=8), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_values_are_the_same_bits_however_queries_are_split_and_whoever_holds_them(
    rows, ids, counts, seed
):
    rng = random.Random(seed)
    whole = RankCollection([*OF_TASKS, *OF_QUERIES])
    first = [0, *itertools.accumulate(len(answers) for _, answers, _ in rows)]
    preds, target, options = batch(rows, "tuple")
    whole.update(
        preds, target, sample_id=list(range(first[-1])) if ids else None, group=0, **options
    )
    shards = [
        RankCollection([*OF_TASKS, *OF_QUERIES], storage="counts" if counts else "ranks")
        for _ in range(3)
    ]
    order = rng.sample(range(len(rows)), len(rows))
    while order:
        taken, order = order[: (size := rng.randint(1, 3))], order[size:]
        preds, target, options = batch([rows[i] for i in taken], "tuple")
        sample_id = [first[i] + j for i in taken for j in range(len(rows[i][1]))] if ids else None
        for shard in rng.sample(shards, 2 if ids else 1):  # with ids a repeat counts once
            shard.update(preds, target, sample_id=sample_id, group=0, **options)
    one, *others = shards
    for other in others:
        one.merge_state(other)
    assert bits(one) == bits(whole)
    assert (one.table().rows == whole.table().rows).all()
    through_a_table = RankCollection([*OF_TASKS, *OF_QUERIES])
    through_a_table.update(RankTable.from_numpy(pickle.loads(pickle.dumps(one)).table().to_numpy()))
    assert bits(through_a_table) == bits(whole)


@cases(12, 1_000)
@given(queries(most=6), st.integers(0, 2**32), st.booleans())
def test_a_named_query_may_come_in_parts_and_its_name_is_of_no_account(rows, seed, listed):
    """Where the filter lists all answers, or none, a part has the same ranks as the whole."""
    rng = random.Random(seed)
    rows = [(row, a, (set(out) - set(a)) | (set(a) if listed else set())) for row, a, out in rows]
    whole, parts = (RankCollection([*OF_TASKS, *OF_QUERIES]) for _ in range(2))
    preds, target, options = batch(rows, "tuple")
    whole.update(preds, target, group=0, **options)
    names = rng.sample(range(2**63 - 1), len(rows))
    tasks = [
        (i, row, answer, out) for i, (row, answers, out) in enumerate(rows) for answer in answers
    ]
    rng.shuffle(tasks)
    stored = [parts, RankCollection([*OF_TASKS, *OF_QUERIES], storage="counts")]
    while tasks:
        taken, tasks = tasks[: (size := rng.randint(1, 4))], tasks[size:]
        query = torch.tensor([names[i] for i, *_ in taken])
        single(rng.choice(stored), [task[1:] for task in taken], query=query, group=0)
    parts.merge_state(stored[1])
    assert bits(parts) == bits(whole)
    check(parts, rows)
