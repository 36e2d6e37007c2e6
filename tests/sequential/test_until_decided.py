"""Evaluations that end at a decision: what they print, what they cost, what they never pass for."""

import math
import re

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import torchrankmetrics as trm
from checkpoints import KNOWN, QUIET, TRIPLES, Model, decide, full
from torchrankmetrics import (
    RankCollection,
    RankDefinition,
    RankMetric,
    Ranks,
    RankTable,
    compare,
    evaluate,
)
from torchrankmetrics.cli import main
from torchrankmetrics.definitions import WithCandidates
from torchrankmetrics.queries import QueryDefinition
from torchrankmetrics.sequential import SequentialEvaluation, rank_sequentially
from torchrankmetrics.sequential.testing import QueryOrder
from torchrankmetrics.study import RankStudy
from worker_pool import WorkerPool

WEAK, STRONG = Model(1.0), Model(3.0, seed=1)
WEAK_TABLE, STRONG_TABLE = full(WEAK), full(STRONG)
DIFFERENCE = compare(STRONG_TABLE, WEAK_TABLE, "mrr").difference


def rows_by_task(table):
    names = ("side", "sample_id", "optimistic", "pessimistic", "num_candidates")
    rows = zip(*(table.to_numpy()[name].tolist() for name in names), strict=True)
    return {row[:2]: row[2:] for row in rows}


def test_a_clear_difference_is_known_from_a_part_of_the_queries_each_scored_once():
    model = Model(3.0, seed=1)
    found = decide(model, baseline=WEAK_TABLE)
    assert (found.answer, found.is_decided, found.is_exact) == (True, True, False)
    assert 0 < found.num_queries < found.total_queries / 3
    assert 0 < found.low <= DIFFERENCE <= found.high
    assert len(model.requested) == len(set(model.requested)) == found.num_queries
    # all answers of a query come with it, and their ranks are those of the whole evaluation
    whole, part = rows_by_task(STRONG_TABLE), rows_by_task(found.table)
    assert part.items() <= whole.items()
    assert len(part) == found.num_tasks == len(found.table)
    h, r, t = TRIPLES.T.tolist()
    requested = set(model.requested)
    expected = {(2, i) for i in range(len(h)) if ("tail", h[i], r[i]) in requested}
    expected |= {(1, i) for i in range(len(h)) if ("head", r[i], t[i]) in requested}
    assert set(part) == expected
    worse = decide(WEAK, baseline=STRONG_TABLE)
    assert (worse.answer, worse.high < 0) == (False, True)


@pytest.mark.parametrize("sides", ["both", "tails", "hrt"])
def test_where_nothing_stops_it_ranks_and_values_are_those_of_the_whole_evaluation(sides):
    model, other = Model(1.2, seed=3), Model(1.2, seed=4)
    options = QUIET | ({"score_hrt": model.hrt} if sides == "hrt" else {})
    own, given = (
        {"both": m.both, "tails": (m.tails, None), "hrt": (None, None)}[sides]
        for m in (model, other)
    )
    theirs = options | ({"score_hrt": other.hrt} if sides == "hrt" else {})
    whole = [
        trm.rank_triples(*own, TRIPLES, KNOWN, **options),
        trm.rank_triples(*given, TRIPLES, KNOWN, **theirs),
    ]
    found = rank_sequentially(
        *own, TRIPLES, KNOWN, baseline=whole[1], alpha=1e-12, batch_size=999, **options
    )
    values = [evaluate(table, metrics=["mrr"])["mrr"] for table in whole]
    assert found.is_exact
    assert found.is_decided
    assert torch.equal(found.table.rows, whole[0].rows)
    assert found.estimate == found.low == found.high == values[0] - values[1]
    assert found.answer == (values[0] > values[1])
    assert evaluate(found.table, metrics=["mrr"])["mrr"] == values[0]  # it is no sample
    assert set(found.values()) == {"difference_mrr", "decided_share_mrr"}
    same = rank_sequentially(*own, TRIPLES, KNOWN, baseline=whole[0], **options)
    assert (same.answer, same.estimate, same.is_exact) == (False, 0.0, True)
    assert "equal, exactly" in str(same)


def test_the_other_model_is_scored_as_far_as_it_is_needed_and_then_gives_the_same_answer():
    expected = decide(STRONG, baseline=WEAK_TABLE)
    other = Model(1.0)
    found = decide(STRONG, score_baseline=other.both)
    assert (found.answer, found.low, found.high) == (True, expected.low, expected.high)
    assert len(other.requested) == found.num_queries == expected.num_queries
    assert found.baseline.is_partial
    assert rows_by_task(found.baseline).items() <= rows_by_task(WEAK_TABLE).items()
    # a third model meets the winner's sample, extends it where it ends, and scores nothing of it
    # twice
    third, winner = Model(2.6, seed=5), Model(3.0, seed=1)
    again = decide(third, baseline=found.table, score_baseline=winner.both)
    assert len(winner.requested) == max(0, again.num_queries - found.num_queries)
    assert again.num_queries > found.num_queries
    direct = decide(third, baseline=STRONG_TABLE)
    assert (again.answer, again.estimate, again.num_queries) == (
        direct.answer,
        direct.estimate,
        direct.num_queries,
    )
    options = {"score_hrt": STRONG.hrt, "score_baseline": WEAK.hrt, "batch_size": 20, **QUIET}
    assert rank_sequentially(None, None, TRIPLES, KNOWN, **options).answer is True


def test_against_a_sample_without_its_scorer_it_ends_undecided_where_the_sample_ends():
    best = decide(STRONG, baseline=WEAK_TABLE).table
    close = Model(2.9, seed=6)
    found = decide(close, baseline=best, batch_size=4)
    assert (found.answer, found.is_decided) == (None, False)
    assert found.num_tasks == len(best)
    assert "not decided" in str(found)
    assert found.low < 0 < found.high
    assert decide(Model(0.0, seed=6), baseline=best).answer is False


def test_at_least_and_within():
    value = evaluate(STRONG_TABLE, metrics=["mrr"])["mrr"]
    for threshold, expected in ((value - 0.15, True), (value + 0.15, False)):
        found = decide(STRONG, threshold=threshold)
        assert found.answer is expected
        assert found.num_queries < found.total_queries
        assert found.low <= value <= found.high
        assert f"{'at least' if expected else 'below'} {threshold:g}" in str(found)
    exactly = decide(STRONG, threshold=value)
    assert (exactly.answer, exactly.is_exact) == (True, True)  # not less, to the last bit
    better_by = decide(STRONG, baseline=WEAK_TABLE, threshold=DIFFERENCE / 3)
    assert better_by.answer is True
    assert better_by.num_queries > decide(STRONG, baseline=WEAK_TABLE).num_queries
    close = decide(STRONG, half_width=0.08)
    assert (close.answer, close.is_decided, close.is_exact) == (None, True, False)
    assert close.high - close.low <= 0.16
    assert close.low <= value <= close.high
    assert set(close.values()) == {
        "partial_mrr",
        "partial_mrr_low",
        "partial_mrr_high",
        "decided_share_mrr",
    }
    difference = decide(STRONG, baseline=WEAK_TABLE, half_width=0.12)
    assert difference.low <= DIFFERENCE <= difference.high <= difference.low + 0.24


@pytest.mark.parametrize("rank_type", ["realistic", "optimistic", "pessimistic", "expected"])
@pytest.mark.parametrize("name", ["mrr", "hits@3", "auc", "mr", "log"])
def test_every_bounded_mean_in_every_rank_type_ends_with_the_value_of_evaluate(name, rank_type):
    definition = RankDefinition("log", f=torch.log) if name == "log" else name
    metric = RankMetric(definition, rank_type=rank_type)
    found = decide(WEAK, baseline=STRONG_TABLE, metric=metric, alpha=1e-9)
    values = [evaluate(table, metrics=[metric]) for table in (WEAK_TABLE, STRONG_TABLE)]
    difference = next(iter(values[0].values())) - next(iter(values[1].values()))
    assert found.metric == metric.key
    if found.is_exact:
        assert found.estimate == difference
    assert found.answer is False  # whichever way the metric points
    assert found.low <= difference <= found.high


def test_the_order_is_that_of_the_seed_with_the_odds_of_the_tasks():
    requested = []
    for seed in (0, 0, 1):
        model = Model(3.0, seed=1)
        decide(model, baseline=WEAK_TABLE, seed=seed)
        requested.append(model.requested)
    assert requested[0] == requested[1] != requested[2]
    query = np.repeat(np.arange(4), [1, 2, 3, 10])
    first, second = np.zeros(4), np.zeros((4, 4))
    for seed in range(20_000, 24_000):
        draws = QueryOrder(query, seed)
        first[draws.queries[0]] += 1
        second[draws.queries[0], draws.queries[1]] += 1
        if seed < 20_009:
            assert sorted(draws.tasks) == list(range(16))
            assert [set(query[draws.of(i, i + 1)]) for i in range(4)] == [
                {q} for q in draws.queries
            ]
    odds = np.array([1, 2, 3, 10])
    assert np.abs(first / 4000 - odds / 16).max() < 3 * math.sqrt(0.25 / 4000)
    after = second[3] / first[3]
    assert np.abs(after - odds * [1, 1, 1, 0] / 6).max() < 3 * math.sqrt(0.25 / first[3])


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=20),
    st.integers(1, 7),
    st.integers(0, 99),
    st.data(),
)
def test_a_loop_of_ones_own_ranks_each_task_once_and_stays_within_its_bounds(
    query, batch_size, seed, data
):
    ranks = data.draw(st.lists(st.integers(1, 9), min_size=len(query), max_size=len(query)))
    others = data.draw(st.lists(st.integers(1, 9), min_size=len(query), max_size=len(query)))
    ranks, others, index = torch.tensor(ranks), torch.tensor(others), torch.arange(len(query))
    baseline = RankTable.from_ranks(Ranks(others, None, 9), sample_id=index)
    until = SequentialEvaluation(
        torch.tensor(query), baseline=baseline, seed=seed, alpha=0.3, metric="hits@3"
    )
    seen = []
    for tasks in until.batches(batch_size):
        seen += tasks.tolist()
        until.update(Ranks(ranks[tasks], None, 9), sample_id=tasks)
        found = until.decision
        assert -1 <= found.low <= found.high <= 1
        assert found.num_tasks == len(seen) == len(set(seen))
    assert until.is_over
    difference = float((ranks <= 3).double().mean() - (others <= 3).double().mean())
    assert found.is_decided
    if found.is_exact:
        assert found.estimate == pytest.approx(difference)
        assert found.answer == (found.estimate > 0)


@pytest.mark.parametrize(("model", "wins"), [(STRONG, True), (Model(0.0, seed=6), False)])
def test_a_winner_is_completed_on_request_and_a_loser_is_not(model, wins):
    until = SequentialEvaluation(len(TRIPLES), baseline=WEAK_TABLE.select(side="tail"))
    for tasks in until.batches(16, complete=True):
        h, r, t = TRIPLES[tasks].T
        until.update(
            model.noise[0, h, r],
            t,
            exclude=KNOWN.tails(h, r),
            sample_id=tasks,
            side="tail",
            group=r,
        )
    found = until.decision
    assert (found.answer, found.is_exact, found.table.is_partial) == (wins, wins, not wins)
    # batches that a loader has requested already come late and do no harm: rows that were tested
    # stay
    until.update(
        RankTable.from_ranks(Ranks([9], None, 40), side="tail", sample_id=tasks[:1], group=r[:1])
    )
    until.update(RankTable(WEAK_TABLE.select(side="tail").rows[:9]))
    assert until.decision.answer is wins
    assert {name for name in dir(until) if name[0] != "_"} == {
        "batches",
        "decision",
        "is_over",
        "update",
    }
    if wins:
        assert torch.equal(
            found.table.ranks.optimistic, STRONG_TABLE.select(side="tail").ranks.optimistic
        )


def test_a_sample_is_marked_and_no_value_of_it_has_the_name_of_a_full_one(tmp_path, capsys):
    table = decide(STRONG, baseline=WEAK_TABLE).table
    assert table.is_partial
    assert "tasks of a sample" in repr(table)
    table.save(tmp_path / "sample.npz")
    loaded = RankTable.load(tmp_path / "sample.npz")
    assert torch.equal(loaded.rows, table.rows)
    with np.load(tmp_path / "sample.npz") as arrays:
        assert arrays["rank_table_version"] == 3
    assert main(["report", str(tmp_path / "sample.npz")]) == 2
    assert "sample.npz is the sample of a sequential evaluation" in capsys.readouterr().err
    joined = RankTable.concatenate([table, WEAK_TABLE], offset_ids=True)
    again = RankTable.from_numpy(table.to_numpy())
    for kept in (
        loaded,
        joined,
        again,
        table.compact(),
        table.select(side="tail"),
        table.with_group(3),
    ):
        assert kept.is_partial
        for shown in (kept.summary(["mrr"]), kept.breakdown(["mrr"])):
            assert "of a sample of the tasks" in str(shown)
        collection = RankCollection(["mrr"])
        collection.update(kept)
        study = RankStudy()
        study.add(kept, model="a", dataset="b")
        for ask in (
            lambda kept=kept: evaluate(kept),
            collection.compute,
            lambda kept=kept: kept.confidence_intervals(),
            lambda kept=kept: compare(kept, WEAK_TABLE),
            lambda kept=kept: compare({"a": WEAK_TABLE, "b": kept}),
            lambda study=study: study.table("mrr"),
        ):
            with pytest.raises(
                ValueError,
                match=r"sample (of a sequential evaluation|that a sequential test ended)",
            ):
                ask()
    assert not WEAK_TABLE.is_partial


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("gmr", "'gmr' is not a mean over tasks"),
        ("adjusted_mrr", "'adjusted_mrr' must be requested in its base view"),
        (RankMetric("mrr", average="macro"), "micro average"),
        ("tail_mrr", "of one side"),
        (
            RankDefinition(
                "f", f=WithCandidates(lambda r, n: (r <= 0.1 * n).double(), min_candidates=10)
            ),
            "depends on num_candidates",
        ),
        (QueryDefinition("own", f=lambda r: 1 / r), "is not a mean over tasks"),
    ],
    ids=["gmr", "adjusted_mrr", "macro mrr", "tail_mrr", "of num_candidates", "of queries"],
)
def test_metrics_that_a_part_cannot_bound_raise_by_name(metric, message):
    with pytest.raises(ValueError, match=message) as reported:
        SequentialEvaluation(9, metric=metric, threshold=0.5)
    assert (
        "'mrr'" in str(reported.value)
        or "base view" in message
        or "side" in message
        or "micro" in message
    )


def test_a_metric_without_bounds_needs_num_candidates():
    with pytest.raises(ValueError, match=r"'mr' is not bounded.*num_candidates"):
        SequentialEvaluation(9, metric="mr", threshold=5)
    until = SequentialEvaluation(9, metric="mr", threshold=5, num_candidates=20)
    assert not until.is_over
    with pytest.raises(ValueError, match=re.escape("outside of [1, 20]")):
        until.update(Ranks([21], None, 30), sample_id=torch.tensor([0]))
    assert until.decision.num_tasks == 0


def test_bad_input_is_rejected_before_anything_is_scored():
    model, shifted = (
        Model(1.0),
        RankTable(WEAK_TABLE.rows + torch.eye(10, dtype=torch.int64)[5] * 9),
    )
    for options, message in (
        ({}, "one of baseline, threshold and half_width"),
        ({"threshold": 0.5, "half_width": 0.1}, "must not both be given"),
        ({"threshold": 1.5}, "threshold must lie in"),
        ({"threshold": math.nan}, "finite"),
        ({"half_width": 0}, "above 0"),
        ({"threshold": 0.5, "alpha": 5}, "alpha must be in"),
        ({"baseline": WEAK_TABLE.select(side="tail")}, "lacks .* and is not marked as a sample"),
        ({"baseline": RankTable.from_ranks(WEAK_TABLE.ranks)}, "sample_id of baseline .* got none"),
        ({"baseline": shifted}, "sample_id of baseline must contain the indices"),
        ({"score_baseline": (model.tails, None)}, "the same sides as the model"),
    ):
        with pytest.raises(ValueError, match=message):
            decide(model, **options)
    with pytest.raises(TypeError, match="baseline must be a RankTable"):
        decide(model, baseline=WEAK_TABLE.ranks)
    with pytest.raises(ValueError, match="triples is empty"):
        rank_sequentially(*model.both, TRIPLES[:0], KNOWN, threshold=0.5)
    assert model.requested == []
    with pytest.raises(ValueError, match="differ in num_candidates"):
        rank_sequentially(*model.both, TRIPLES, None, baseline=WEAK_TABLE, **QUIET)
    with pytest.raises(ValueError, match="query must be"):
        SequentialEvaluation(0, threshold=0.5)
    with pytest.raises(TypeError, match=r"must be a torch\.distributed\.ProcessGroup, got str"):
        SequentialEvaluation(9, threshold=0.5, process_group="all")


@pytest.mark.parametrize(
    ("ids", "message"),
    [(torch.tensor([9]), "from 0 to 8; got 9"), (None, "got none")],
    ids=["too large", "missing"],
)
def test_sample_ids_are_those_of_the_tasks(ids, message):
    until = SequentialEvaluation(9, threshold=0.5)
    with pytest.raises(ValueError, match=message):
        until.update(Ranks([1], None, 9), sample_id=ids)


def job(several):
    group = torch.distributed.group.WORLD if several else None
    strong, weak = Model(2.0, seed=1), Model(1.0)
    results = []
    for options in ({"baseline": full(weak)}, {"score_baseline": weak.both}, {"half_width": 0.07}):
        strong.requested = []
        found = decide(strong, process_group=group, batch_size=5, **options)
        results.append((found.answer, found.estimate, found.low, found.high, found.num_queries))
        results.append((found.table.rows.tolist(), len(strong.requested)))
    if several:
        of_the_first = torch.distributed.new_group([0])
        if torch.distributed.get_rank() == 1:
            with pytest.raises(ValueError, match="a group that this process is part of"):
                SequentialEvaluation(len(TRIPLES), threshold=0.2, process_group=of_the_first)
    until = SequentialEvaluation(len(TRIPLES), threshold=0.2, process_group=group)
    for tasks in until.batches(3):  # of which some have none for some processes
        h, r, t = TRIPLES[tasks].T
        until.update(strong.noise[0, h, r], t, sample_id=tasks)
    results.append((until.decision.estimate, until.decision.num_tasks))
    return results


def test_every_process_stops_at_the_same_batch_with_the_bits_of_one():
    alone, workers = job(False), WorkerPool(2)
    try:
        together = workers.run(job, [(True,), (True,)])
    finally:
        workers.close()
    for process in together:
        for mine, expected in zip(process, alone, strict=True):
            assert mine[0] == expected[0]
            # there the number of queries is its own
            assert mine[1:] == expected[1:] or isinstance(mine[0], list)
    for i in (1, 3, 5):
        shared, whole = [process[i][1] for process in together], alone[i][1]
        assert sum(shared) >= whole
        assert max(shared) <= 3 * math.ceil(whole / 5)  # of batches of five
