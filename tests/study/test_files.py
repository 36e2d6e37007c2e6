"""Patterns of paths name model, dataset, seed; only headers are read before ranks are requested."""

from pathlib import Path

import numpy as np
import pytest
import torch

from studies import study_of, table_of
from torchrankmetrics import RankCollection, Ranks, RankTable, compare, rank_scores
from torchrankmetrics.study import RankStudy, verify


def test_files_saved_by_a_pattern_are_found_by_it(tmp_path: Path) -> None:
    study = study_of(seeds=2)
    pattern = tmp_path / "runs" / "{dataset}" / "{model}-{seed}.npz"
    before = study.table("mrr").to_csv()
    study.save(pattern)
    found = RankStudy.open(pattern)
    assert set(found.runs) == set(study.runs)
    assert found.datasets == ["large", "middle", "small"]
    found.arrange(study.models, study.datasets)
    assert found.table("mrr").to_csv() == before == study.table("mrr").to_csv()
    assert {run.file for run in found.runs.values()} == {run.file for run in study.runs.values()}
    assert "large/a-0.npz" in {run.file for run in found.runs.values()}
    assert RankStudy.open(
        tmp_path / "runs" / "small" / "{model}-{seed}.npz", dataset="toy"
    ).datasets == ["toy"]


@pytest.mark.parametrize(
    ("files", "pattern", "names"),
    [
        # as people count
        (
            ["FB.50g.10", "FB.50g.9", "FB.3g.1"],
            "{dataset}.{model}.{seed}.npz",
            ("FB", "3g 50g", "1 9 10"),
        ),
        (["a/x/0\n1", "b\nc/x/0", "d\n/x/0"], "{model}/{dataset}/*.npz", ("x", "a b\nc d\n", "0")),
        # a field that comes twice stands for the same
        (["a/a.x", "a/b.x", "b/b.x"], "{dataset}/{dataset}.{model}.npz", ("a b", "x", "0")),
    ],
)
def test_patterns_name_runs(
    files: list[str], pattern: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        table_of("a", "small", 0).save(tmp_path / f"{file}.npz")
    study = RankStudy.open(tmp_path / pattern)
    assert [study.datasets, study.models, study.seeds] == [one.split(" ") for one in names]


def test_only_headers_are_read_before_a_dataset_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_of(seeds=2).save(tmp_path / "{dataset}" / "{model}" / "{seed}.npz")
    loaded: list[str] = []
    load = RankTable.load
    monkeypatch.setattr(
        RankTable,
        "load",
        lambda path, **known: loaded.append(Path(path).name) or load(path, **known),
    )
    study = RankStudy.open(tmp_path / "{dataset}" / "{model}" / "{seed}.npz")
    assert (repr(study), loaded) == ("RankStudy(18 tables: 3 models x 3 datasets x 2 seeds)", [])
    study.dataset("small")
    assert len(loaded) == 6
    study.table("mrr")
    study.table(["mrr", "hits@10"])
    assert len(loaded) == 18


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("runs/{name}.npz", r"pattern may name .* got the unknown field \{name\}"),
        ("runs/a.npz", "got no field"),
        ("runs/{model}.txt", r"no file matches 'runs/\{model\}.txt'; 'runs' contains a.npz, b.npz"),
        ("other/{model}.npz", "the directory 'other' does not exist"),
        ("runs/{model}.npz", "b.npz is not a whole RankTable file"),
    ],
)
def test_faults_of_a_pattern_raise(
    pattern: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    table_of("a", "small", 0).save("runs/a.npz")
    Path("runs/b.npz").write_bytes(b"PK not an archive")
    with pytest.raises(ValueError, match=message):
        RankStudy.open(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{model}.npz", "pattern must contain the fields that distinguish"),
        ("{model}/*.npz", r"must not contain \*"),
        ("{dataset}/{model}.npz", r"the name '\.\.' cannot be part of a path"),
    ],
)
def test_files_that_would_meet_or_leave_the_folder_are_not_written(
    pattern: str, message: str, tmp_path: Path
) -> None:
    study = study_of("ab", ("small", "large"))
    if "dataset" in pattern:
        study.add(table_of("a", "small", 0), model="..", dataset="small")
    with pytest.raises(ValueError, match=message):
        study.save(tmp_path / pattern)
    assert not list(tmp_path.iterdir())


QUERIES = [f"q{i:02}" for i in range(80)]


def studies(seeds=1):
    """Ranks of three models on two datasets, and the reciprocal ranks as values."""
    rng = np.random.default_rng(0)
    ranks, values = RankStudy(), RankStudy()
    for dataset in ("scifact", "nq"):
        difficulty = rng.gamma(1.0, 6.0, len(QUERIES))
        for model, factor in (("bm25", 2.5), ("dense", 1.0), ("hybrid", 0.9)):
            for seed in range(seeds):
                own = 1 + rng.poisson(difficulty * factor)
                names = {"model": model, "dataset": dataset, "seed": seed}
                ids = np.arange(len(QUERIES))
                ranks.add(RankTable.from_ranks(Ranks(own, None, 1000), sample_id=ids), **names)
                values.add_values(
                    dict(zip(QUERIES, (1 / own).tolist(), strict=True)), metric="mrr", **names
                )
    return ranks, values


@pytest.mark.parametrize("seeds", [1, 3])
def test_tables_are_those_of_ranks(seeds):
    ranks, values = (study.table("mrr") for study in studies(seeds))
    assert values.cells.keys() == ranks.cells.keys()
    for place, cell in ranks.cells.items():
        own = values.cells[place]
        for name in ("value", "low", "high", "standard_error", "p_best"):
            assert getattr(own, name) == pytest.approx(getattr(cell, name), abs=1e-9), (place, name)
        assert (own.best, own.rank, own.seeds) == (cell.best, cell.rank, cell.seeds)
    assert "nq: 80 queries." in str(values)


def test_metrics_of_other_tools():
    study = RankStudy()
    rng = np.random.default_rng(1)
    values = {
        model: dict(zip(QUERIES, rng.random(80) + shift, strict=True))
        for model, shift in (("a", 0), ("b", 0.4))
    }
    hits = {
        model: {query: float(x > 0.7) for query, x in own.items()} for model, own in values.items()
    }
    for model, own in values.items():
        study.add_values(own, metric="ERR@20", model=model, dataset="robust")
        study.add_values(hits[model], metric="success@5", model=model, dataset="robust")
    table = study.table(["ERR@20", "success@5"])
    assert table.value("ERR@20", "b", "robust") == pytest.approx(
        np.mean(list(values["b"].values()))
    )
    for metric, given in (("success_at_5", hits), ("ERR@20", values)):
        ours, theirs = table.results[metric, "robust"].pairs["a", "b"], compare(*given.values())
        assert (ours.value, ours.low, ours.high, ours.p_value) == pytest.approx(
            (theirs.difference, theirs.low, theirs.high, theirs.p_value), rel=1e-12
        )
        assert ours.test == theirs.test
    assert len(study) == 2


def test_models_with_other_queries_are_not_compared():
    study = RankStudy()
    for model, queries in (("a", QUERIES), ("b", QUERIES), ("c", QUERIES[1:])):
        study.add_values(
            dict.fromkeys(queries, 0.5), metric="ap", model=model, dataset="nq", seed=1
        )
    study.add_values(dict.fromkeys(QUERIES, 0.5), metric="ap", model="a", dataset="nq", seed=2)
    text = str(study.table("map"))
    assert "c: not compared, because the queries with ap differ from those of most models" in text
    assert "b, c: seed 2 is missing" in text


def test_bad_values_raise():
    ranks, study = studies()
    with pytest.raises(ValueError, match="the study has a run of dense on nq, seed 0 already"):
        study.add_values({"q": 1.0}, metric="mrr", model="dense", dataset="nq")
    with pytest.raises(
        ValueError, match="no values of 'ap' were added, available: mrr; other metrics"
    ):
        study.table("ap")
    with pytest.raises(ValueError, match="no values of 'adjusted_mrr'"):
        study.table("mrr", "adjusted_index")
    with pytest.raises(ValueError, match="'nq' has the other kind"):
        ranks.add_values({"q": 1.0}, metric="mrr", model="new", dataset="nq")
    with pytest.raises(ValueError, match="has values of queries, not ranks: only ranks have files"):
        study.save("/tmp/{dataset}/{model}/{seed}.npz")
    with pytest.raises(ValueError, match="cluster must be 'auto' or None"):
        study.table("mrr", cluster="group")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [([1.0], TypeError), ({"q": "x"}, TypeError), ({"q": float("inf")}, ValueError)],
    ids=["list", "text", "infinite"],
)
def test_values_of_queries_are_finite_numbers_by_query(wrong, error):
    _, study = studies()
    with pytest.raises(error, match="values of m on d, seed 0 must"):
        study.add_values(wrong, metric="mrr", model="m", dataset="d")


def test_a_page_shows_values_and_has_no_files_to_verify(tmp_path):
    pytest.importorskip(
        "matplotlib", reason="the page has figures: pip install 'torchrankmetrics[plot]'"
    )
    _, study = studies(2)
    study.report(tmp_path / "page.html", "mrr")
    text = (tmp_path / "page.html").read_text()
    for cell in study.table("mrr").cells.values():
        assert f"{cell.value:.3f} [{cell.low:.3f}, {cell.high:.3f}]" in text
    assert "Distribution of ranks" not in text
    assert {files for *_, files in verify(tmp_path / "page.html", tmp_path).differences} == {
        "no file"
    }


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
    table = study.table(names, cluster=cluster)
    collection = RankCollection(names)
    collection.update(queries_of(1, 0))
    for row in collection.confidence_intervals(cluster=cluster).rows:
        cell = table.cell("1", "q", row.metric)
        assert (cell.value, cell.low, cell.high) == pytest.approx(
            (row.value, row.low, row.high), rel=1e-12
        )
        assert 0 < table.cell("0", "q", row.metric).p_best < 1


def test_queries_with_other_answers_are_reported_and_not_compared() -> None:
    study, other = RankStudy(), queries_of(1, 0)
    columns = other.to_numpy()
    columns["query"] = np.arange(len(columns["query"]))
    study.add(queries_of(0, 0), model="0", dataset="q")
    study.add(RankTable.from_numpy(columns), model="1", dataset="q")
    table = study.table("ap")
    assert table.num_tests == 0
    assert "differ in which tasks are" in "".join(table.notes)
    assert not np.isnan([table.cell("0", "q").low, table.cell("1", "q").high]).any()
    with pytest.raises(ValueError, match="cluster must be the same for all tasks of a query"):
        study.table("ap", cluster="sample_id")
