"""Models on other tasks are not compared: no bold, no average, no rank, and a note."""

import numpy as np
import pytest
import torch

from torchrankmetrics import RankCollection, Ranks, RankTable
from torchrankmetrics.study import RankStudy

SAME = {"a": 50, "sampled": 50, "b": 50}
SAMPLED = {"a": 50, "sampled": 10, "b": 50}
REASON = (
    "where these models are not on the same tasks as the others: sampled (the notes of "
    "RankStudy.table give the reason)."
)


def random_ranks(num_candidates: int, *seed: int, ids: bool = True) -> RankTable:
    """Ranks of random scores on 80 tasks."""
    rng = np.random.default_rng([num_candidates, *seed])
    ranks = Ranks(rng.integers(1, num_candidates + 1, 80).tolist(), None, num_candidates)
    return RankTable.from_ranks(ranks, sample_id=torch.arange(80) if ids else None)


def study_of_candidates(candidates: dict[str, dict[str, int]]) -> RankStudy:
    """Numbers of candidates by dataset and model."""
    study = RankStudy()
    for dataset, models in candidates.items():
        for i, (model, number) in enumerate(models.items()):
            study.add(random_ranks(number, ord(dataset), i), model=model, dataset=dataset)
    return study


def test_datasets_on_which_a_model_has_other_candidates_are_not_averaged() -> None:
    study = study_of_candidates({"w": SAMPLED, "x": SAME, "y": SAMPLED, "z": SAME})
    same = study_of_candidates({"x": SAME, "z": SAME})
    averages = study.summary("mr")
    for model in study.models:
        assert averages["mr", model] == same.summary("mr")["mr", model]
    assert averages.notes[-1] == f"MR: without w, y, {REASON}"
    ranking = study.mean_ranks("mr")
    assert ranking.mean == same.mean_ranks("mr").mean
    assert list(ranking.left_out) == ["w", "y"]
    assert ranking.tabular().notes[-1] == f"Without w, y, {REASON}"


def test_datasets_are_left_out_for_missing_values_and_for_other_tasks() -> None:
    study = study_of_candidates({"w": SAMPLED, "x": SAME, "y": {"a": 50}, "z": SAME})
    assert study.summary("mr").notes[-2:] == (
        f"MR: without w, {REASON}",
        "MR: without y, where a model has no value.",
    )


def test_models_that_share_no_tasks_have_no_average() -> None:
    study = study_of_candidates({"x": SAMPLED, "y": SAMPLED})
    message = (
        "no dataset has 'mr' of all models on the same tasks: .*; left out: x, y, where .*sampled"
    )
    for method in (study.summary, study.mean_ranks):
        with pytest.raises(ValueError, match=message):
            method("mr")


def test_values_of_other_queries_are_not_averaged() -> None:
    study = RankStudy()
    for dataset, lost in (("x", 0), ("y", 5)):
        for model in ("a", "b", "sampled"):
            queries = range(lost if model == "sampled" else 0, 20)
            values = {f"q{i}": float(i) for i in queries}
            study.add_values(values, metric="own", model=model, dataset=dataset)
    averages = study.summary("own")
    assert averages["own", "a"].num_datasets == 1
    assert averages.notes[-1] == f"own: without y, {REASON}"


@pytest.mark.parametrize("metric", ["mr", "median_rank"])  # with and without a test of differences
def test_a_model_on_other_tasks_is_not_the_best(metric: str) -> None:
    two = study_of_candidates({"x": {"a": 50, "sampled": 10}}).table(metric)
    assert not any(cell.best for cell in two.cells.values())
    assert "Bold" not in two.to_text()
    three = study_of_candidates({"x": SAMPLED}).table(metric)
    assert three.cell("a", "x").best != three.cell("b", "x").best
    assert not three.cell("sampled", "x").best


def test_seeds_of_one_model_on_other_tasks_are_reported() -> None:
    study = RankStudy()
    for seed, number in enumerate((50, 5)):
        study.add(random_ranks(number), model="a", dataset="x", seed=seed)
    note = (
        "a: not compared, because a, seed 0, and this run differ in num_candidates at 80 tasks, "
        "first task (None, 0): 50 and 5; use the same tasks, filter and weights for all models"
    )
    assert note in study.table("mr").notes[-1]
    with pytest.raises(ValueError, match=r"no dataset has 'mr' of all models on the same tasks"):
        study.summary("mr")


def test_tasks_in_an_unknown_order_are_compared_by_their_candidates() -> None:
    """Tables of collections without sample ids are sorted: there are means, but no tests."""
    study = RankStudy()
    for dataset, last in (("x", 50), ("y", 10)):
        for i, number in enumerate((50, 50, last)):
            collection = RankCollection(["mr"])
            collection.update(random_ranks(number, i, ids=False))
            study.add(collection, model="abc"[i], dataset=dataset)
    table = study.table("mr")
    assert table.num_tests == 0
    assert "a, b, c: not tested, because a, seed 0, has no sample ids" in table.to_text()
    assert (
        "c: not compared, because the tasks differ from those of most models in side, "
        "num_candidates, group, weight or gain" in table.to_text()
    )
    assert study.summary("mr")["mr", "a"].num_datasets == 1


def labeled(gain: float, query: torch.Tensor | None, *, ids: bool = True) -> RankTable:
    """Two relevant items of each of 20 queries, with labels 1 and ``gain``."""
    i = torch.arange(20)
    ranks = torch.stack([5 + i % 4, 1 + i % 3], 1).flatten()
    return RankTable.from_ranks(
        Ranks(ranks, None, 50, filtered=False),
        query=query,
        sample_id=torch.arange(40) if ids else None,
        gain=torch.tensor([1.0, gain]).repeat(20),
    )


PAIRS = torch.arange(20).repeat_interleave(2)


def test_models_with_other_labels_are_not_compared() -> None:
    study = RankStudy()
    study.add(labeled(3.0, PAIRS), model="a", dataset="x")
    study.add(labeled(1.0, PAIRS), model="b", dataset="x")
    table = study.table("ndcg@10")
    assert not any(cell.best for cell in table.cells.values())
    note = "b: not compared, because a, seed 0, and this run differ in gain at 20 tasks"
    assert note in "".join(table.notes)
    with pytest.raises(ValueError, match="can be compared by 'ndcg_at_10' on no dataset"):
        study.difference("a", "b", "ndcg@10")


@pytest.mark.parametrize("metric", ["mrr", "ndcg@10"])
@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("query", [None, torch.arange(40) // 4], ids=["without", "other"])
def test_models_with_other_queries_are_not_compared(
    query: torch.Tensor | None, order: str, metric: str
) -> None:
    tables = {"a": labeled(3.0, PAIRS), "b": labeled(3.0, query)}
    study = RankStudy()
    for model in order:
        study.add(tables[model], model=model, dataset="x")
    table = study.table(metric)
    assert table.num_tests == 0
    assert "not compared, because" in "".join(table.notes)
    assert "quer" in "".join(table.warnings["x"])


def test_queries_may_have_other_names_if_tasks_have_sample_ids() -> None:
    for ids in (True, False):
        study = RankStudy()
        study.add(labeled(3.0, PAIRS, ids=ids), model="a", dataset="x")
        study.add(labeled(3.0, 19 - PAIRS, ids=ids), model="b", dataset="x")
        assert study.table("ndcg@10").num_tests == ids


@pytest.mark.parametrize("ordered", ["", "a", "ab", "abc"])
def test_an_order_of_some_tables_changes_no_average(ordered: str) -> None:
    """Tables of collections without sample ids are sorted, ``Ranks`` are in order."""
    study = RankStudy()
    for i, model in enumerate("abc"):
        ranks = random_ranks(50, i, ids=False).ranks
        collection = RankCollection(["mrr"])
        collection.update(ranks)
        table = ranks if model in ordered else collection
        study.add(table, model=model, dataset="x")
    averages = study.summary("mr")
    for i, model in enumerate("abc"):
        expected = random_ranks(50, i).ranks.optimistic.double().mean().item()
        assert averages["mr", model].value == pytest.approx(expected)
    tested = study.table("mr").results["mr", "x"].tested
    assert tested == (tuple(ordered) if len(ordered) > 1 else tested[:1])


def test_queries_of_rows_of_scores_are_compared() -> None:
    """Their names are made from the ranks and differ between models."""
    target = (torch.eye(8) + torch.eye(8).roll(1, 1)).bool()
    study = RankStudy()
    for seed, model in enumerate("ab"):
        collection = RankCollection(["rr"])
        generator = torch.Generator().manual_seed(seed)
        collection.update(torch.rand(8, 8, generator=generator), target)
        study.add(collection.local_table(), model=model, dataset="x")
    table = study.table("rr")
    assert table.results["rr", "x"].tested == ("a", "b"), table.notes
