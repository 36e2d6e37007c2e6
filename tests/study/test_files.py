"""Patterns of paths name model, dataset and seed; only headers are read before ranks are requested."""

from pathlib import Path

import pytest

from studies import study_of, table_of
from torchrankmetrics import RankTable
from torchrankmetrics.study import RankStudy


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


def test_names_come_as_people_count(tmp_path: Path) -> None:
    for seed in (10, 9, 1):
        for model in ("50g", "3g"):
            table_of("a", "small", 0).save(tmp_path / f"FB-v1.{model}.{seed}.npz")
    study = RankStudy.open(f"{tmp_path}/{{dataset}}.{{model}}.{{seed}}.npz")
    assert (study.models, study.datasets, study.seeds) == (["3g", "50g"], ["FB-v1"], ["1", "9", "10"])


def test_names_may_hold_line_breaks(tmp_path: Path) -> None:
    for name in ("a", "b\nc", "d\n"):
        (tmp_path / name).mkdir()
        table_of("a", "small", 0).save(tmp_path / name / "0\n1.npz")
    assert RankStudy.open(f"{tmp_path}/{{model}}/*.npz", dataset="toy").models == ["a", "b\nc", "d\n"]


def test_a_field_that_comes_twice_stands_for_the_same(tmp_path: Path) -> None:
    for folder, name in (("a", "a"), ("a", "b"), ("b", "b")):
        (tmp_path / folder).mkdir(exist_ok=True)
        table_of("a", "small", 0).save(tmp_path / folder / f"{name}.x.npz")
    study = RankStudy.open(f"{tmp_path}/{{model}}/{{model}}.*.npz")
    assert study.models == ["a", "b"]


def test_only_headers_are_read_before_a_dataset_is_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_of(seeds=2).save(tmp_path / "{dataset}" / "{model}" / "{seed}.npz")
    loaded: list[str] = []
    load = RankTable.load
    monkeypatch.setattr(
        RankTable, "load", lambda path, **options: loaded.append(Path(path).name) or load(path, **options)
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
def test_faults_of_a_pattern_raise(pattern: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_files_that_would_meet_or_leave_the_folder_are_not_written(pattern: str, message: str, tmp_path: Path) -> None:
    study = study_of("ab", ("small", "large"))
    if "dataset" in pattern:
        study.add(table_of("a", "small", 0), model="..", dataset="small")
    with pytest.raises(ValueError, match=message):
        study.save(tmp_path / pattern)
    assert not list(tmp_path.iterdir())
