"""Marks of "no other model is better by the margin": tests of equivalence, one family; queries as the sample."""

import warnings

import numpy as np
import pytest
import torch

from studies import SIZES, study_of, table_of
from torchrankmetrics import RankCollection, RankMetricWarning, Ranks, RankTable, rank_scores
from torchrankmetrics.inference import equivalence, holm
from torchrankmetrics.study import RankStudy


def p_not_worse(a: object, b: object, metric: str, margin: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankMetricWarning)
        return equivalence(a, b, metric, margin=margin).p_not_worse  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "margin", "seeds"),
    [("mrr", 0.1, 2), ("mr", 8.0, 2), ("amri", 0.2, 2), ("adjusted_mr", 0.2, 3), ("hits@10", 0.1, 1)],
)
def test_a_model_is_within_if_equivalence_finds_it_not_inferior_to_each_other(
    metric: str, margin: float, seeds: int
) -> None:
    table = study_of(seeds=seeds).table(metric, margin=margin)
    runs = {
        (model, data): [table_of(model, data, seed) for seed in range(seeds)] if seeds > 1 else table_of(model, data, 0)
        for model in "abc"
        for data in SIZES
    }
    p = [
        max(p_not_worse(runs[model, data], runs[other, data], metric, margin) for other in "abc" if other != model)
        for model, data in runs
    ]
    found = [table.cell(model, data).p_within for model, data in runs]
    assert found == pytest.approx(holm(p).tolist(), rel=1e-9)
    assert 0 < sum(value <= 0.05 for value in found) < 9


def test_marks_and_records_are_of_the_p_values() -> None:
    table = study_of(seeds=2).table(["mrr", "tie_rate"], margin=0.1)
    marks = {
        place: "≈" in table._entry(table.measures[0], *place[1:]).mark for place in table.cells if place[0] == "mrr"
    }
    assert marks == {place: table.cells[place].p_within <= 0.05 for place in marks}
    assert any(marks.values())
    assert not all(marks.values())
    frame = table.to_pandas()
    assert frame.p_within.isna().tolist() == (frame.metric == "tie_rate").tolist()  # it has no direction
    assert any(
        "no other model is better by 0.1 or more (family-wise error rate 5%, 9 models)" in note for note in table.notes
    )
    assert table.only(table.measures[:1]).legend == table.legend
    assert "p_within" not in study_of().table().to_pandas().columns


@pytest.mark.parametrize("second", [3, 6, 7])
def test_a_difference_that_is_the_same_everywhere_is_no_surer_than_flips_of_signs(second: int) -> None:
    study = RankStudy()
    for model, rank in (("a", 6), ("b", second)):
        ranks = Ranks([rank] * 6, None, 9)
        study.add(RankTable.from_ranks(ranks, sample_id=torch.arange(6)), model=model, dataset="d")
    table = study.table("mrr", margin=0.01)
    assert min(table.cell(model, "d").p_within for model in "ab") >= 2**-6


@pytest.mark.parametrize(
    ("margin", "error"), [(0.0, ValueError), (-1.0, ValueError), (float("nan"), ValueError), ("1", TypeError)]
)
def test_invalid_margins_raise(margin: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="margin must be"):
        study_of(datasets=("small",)).table(margin=margin)  # type: ignore[arg-type]


def queries_of(model: int, seed: int, size: int = 120) -> RankTable:
    """Queries with one to four answers each among 30 candidates, in groups of three queries."""
    rng = np.random.default_rng([model, seed])
    tasks = np.random.default_rng(5)
    answers = np.arange(4) < tasks.integers(1, 5, (size, 1))
    relevant = np.zeros((size, 30), dtype=bool)
    relevant[:, :4] = answers
    scores = rng.normal(size=relevant.shape) + relevant * (1 + 0.4 * model)
    row, column = np.nonzero(relevant)
    ranks = rank_scores(torch.from_numpy(scores[row]), torch.from_numpy(column))
    return RankTable.from_ranks(
        Ranks(ranks.optimistic, ranks.pessimistic, 30, filtered=False),
        query=torch.from_numpy(row),
        group=torch.from_numpy(row // 3),
        sample_id=torch.arange(len(row)),
    )


@pytest.mark.parametrize("cluster", [None, "group"])
def test_metrics_of_queries_have_queries_as_the_sample(cluster: str | None) -> None:
    names = ["recall@3", "ap", "ndcg@5", "success@1"]
    study = RankStudy()
    for model in range(3):
        study.add(queries_of(model, 0), model=str(model), dataset="q")
    table = study.table(names, cluster=cluster, margin=0.5)
    collection = RankCollection(names)
    collection.update(queries_of(1, 0))
    for row in collection.confidence_intervals(cluster=cluster).rows:
        cell = table.cell("1", "q", row.metric)
        assert (cell.value, cell.low, cell.high) == pytest.approx((row.value, row.low, row.high), rel=1e-12)
        assert 0 < table.cell("0", "q", row.metric).p_best < 1
        assert table.cell("2", "q", row.metric).p_within < 0.05


def test_queries_with_other_answers_are_reported_and_not_compared() -> None:
    study, other = RankStudy(), queries_of(1, 0)
    columns = other.to_numpy()
    columns["query"] = np.arange(len(columns["query"]))
    study.add(queries_of(0, 0), model="0", dataset="q")
    study.add(RankTable.from_numpy(columns), model="1", dataset="q")
    table = study.table("ap")
    assert table.num_tests == 0
    assert "differ in which tasks are relevant items of one query" in "".join(table.notes)
    assert not np.isnan([table.cell("0", "q").low, table.cell("1", "q").high]).any()
    with pytest.raises(ValueError, match="its units are queries"):
        study.table("ap", cluster="sample_id")
