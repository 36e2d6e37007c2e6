"""``study`` on the command line: one table of many files, in the requested format."""

import json
from pathlib import Path

import pytest

from command_line import output
from studies import study_of
from torchrankmetrics.cli import main
from torchrankmetrics.study import RankStudy


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    pattern = tmp_path_factory.mktemp("runs") / "{dataset}" / "{model}.{seed}.npz"
    study_of("ab", ("small", "middle"), seeds=2).save(pattern)
    return str(pattern)


def test_a_table_for_people_is_that_of_the_study(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = RankStudy.open(pattern).table(
        ["mrr", "hits@3"], "adjusted_index", confidence_level=0.9, cluster="sample_id"
    )
    arguments = ["study", pattern, "-m", "mrr,hits@3", "--view", "adjusted_index", "--confidence-level", "0.9"]
    arguments += ["--cluster", "sample_id"]
    assert output(capsys, *arguments) == f"{table}\n"
    assert output(capsys, *arguments, "--values-only") == table.with_layout(intervals=False).to_text() + "\n"
    assert output(capsys, *arguments, "--format", "latex") == table.to_latex() + "\n"
    assert output(capsys, *arguments, "--format", "markdown") == table.to_markdown() + "\n"


def test_a_table_for_programs_has_a_row_per_cell(
    pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = RankStudy.open(pattern).table(["mrr", "hits@10"])
    rows = json.loads(output(capsys, "study", pattern, "-f", "json"))["rows"]
    assert rows == json.loads(table.to_json())
    assert len(rows) == 8
    assert main(["study", pattern, "-o", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text() == table.to_csv()


def test_averages_over_the_data_sets(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "study", pattern, "-m", "mrr,amri", "--across")
    assert text == f"{RankStudy.open(pattern).summary(['mrr', 'amri'])}\n"


def test_html_is_the_page(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="the page has figures")
    assert main(["study", pattern, "-m", "mrr", "--output", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == RankStudy.open(pattern).report(metrics="mrr")
    monkeypatch.setattr(
        RankStudy, "report", lambda self, path, names, **options: f"{path} {names} {options['cluster']}"
    )
    assert output(capsys, "study", pattern, "--format", "html", "--cluster", "group") == "None ['mrr', 'hits@10'] group"


def test_a_page_without_a_directory_that_matplotlib_can_write_to_is_one_line_before_the_computation(
    pattern: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> None:
        raise OSError("matplotlib needs a writable directory for its cache: set MPLCONFIGDIR to one")

    monkeypatch.setattr("torchrankmetrics.study.rank_study.pyplot", failing)
    monkeypatch.setattr(RankStudy, "dataset", None)
    assert main(["study", pattern, "-m", "mrr", "--format", "html"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: matplotlib needs a writable directory for its cache: set MPLCONFIGDIR to one\n",
    )
