"""report and compare: the numbers of the library, in every format."""

import csv
import io
import json
from pathlib import Path

import pytest

from command_line import output, records, table_of
from torchrankmetrics import RankCollection, Ranks, RankTable, compare, evaluate
from torchrankmetrics.cli import main


def test_report_gives_the_values_of_the_library(cli_folder, capsys):
    got = records(
        capsys, "report", "a.npz", "-m", "mrr,mr,hits@3", "--view", "base,adjusted_index,p_value", "--side", "both,tail"
    )
    expected = evaluate(
        RankTable.load("a.npz"),
        metrics=["mrr", "mr", "hits@3"],
        views=["base", "adjusted_index", "p_value"],
        sides=["both", "tail"],
    )
    assert {row["metric"]: row["value"] for row in got} == expected
    assert len(expected) == 18
    ties = records(capsys, "report", "a.npz", "-m", "gmr", "--rank-type", "expected,optimistic")
    expected = evaluate(RankTable.load("a.npz"), metrics=["gmr"], rank_types=["expected", "optimistic"])
    assert {row["metric"]: row["value"] for row in ties} == expected


def test_report_of_several_files_names_each(cli_folder, capsys):
    got = records(capsys, "report", "a.npz", "b.npz", "-m", "mrr")
    assert [row["file"] for row in got] == ["a.npz", "b.npz"]
    assert [row["value"] for row in got] == [
        evaluate(RankTable.load(name), metrics=["mrr"])["mrr"] for name in ("a.npz", "b.npz")
    ]


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ([], {}),
        (["--cluster", "sample_id"], {"cluster": "sample_id"}),
        (["--method", "bootstrap", "-m", "median_rank"], {"method": "bootstrap"}),
    ],
)
def test_report_intervals_are_those_of_a_collection(cli_folder, capsys, options, keywords):
    got = records(capsys, "report", "a.npz", "-m", "mrr", *options, "--level", "0.9")
    collection = RankCollection(["median_rank" if "median_rank" in options else "mrr"])
    for side in ("head", "tail"):
        part = RankTable.load("a.npz").select(side=side)
        collection.update(part.ranks, side=side, group=part.group, sample_id=part.sample_id)
    (row,) = collection.confidence_intervals(0.9, **keywords).rows
    assert got == [{"metric": row.metric, "value": row.value, "low": row.low, "high": row.high}]


def test_report_by_group_with_names(cli_folder, capsys):
    Path("names.txt").write_text("likes\nknows\nowns\n")
    Path("named.tsv").write_text("2\towns\n0\tlikes\n1\tknows\n")
    for names in ("names.txt", "named.tsv"):
        got = records(capsys, "report", "a.npz", "-m", "mrr", "--by-group", "--names", names)
        assert [row["group"] for row in got] == ["likes", "knows", "owns"]
    table = RankTable.load("a.npz")
    for i, row in enumerate(got):
        part = evaluate(table.select(group=i), metrics=["mrr", "adjusted_mrr", "z_mrr"])
        assert row == {"group": row["group"], "count": 40, **part}


def test_report_as_csv_to_a_file(cli_folder, capsys):
    assert output(capsys, "report", "a.npz", "-m", "mrr", "-f", "csv", "-o", "out.csv") == ""
    rows = list(csv.DictReader(io.StringIO(Path("out.csv").read_text())))
    assert float(rows[0]["value"]) == evaluate(RankTable.load("a.npz"), metrics=["mrr"])["mrr"]
    assert sorted(path.name for path in cli_folder.iterdir() if path.name.startswith(".")) == []
    output(capsys, "report", "a.npz", "-m", "mrr", "-o", "out.txt")
    assert "120 ranks among" in Path("out.txt").read_text()


def test_what_is_undefined_is_null_with_a_note(cli_folder, capsys):
    RankTable.from_ranks(Ranks([1, 2], None, 3)).save("few.npz")
    assert main(["report", "few.npz", "-m", "adjusted_hits@10", "-f", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [{"metric": "adjusted_hits_at_10", "value": None}]
    assert "note: adjusted_hits_at_10 is undefined" in err
    Path("few.csv").write_text(output(capsys, "report", "few.npz", "-m", "adjusted_hits@10", "-f", "csv"))
    assert Path("few.csv").read_text() == "metric,value\nadjusted_hits_at_10,\n"


def test_compare_gives_the_numbers_of_the_library(cli_folder, capsys):
    options = ["--level", "0.9", "--resamples", "500", "--permutations", "999", "--seed", "3", "--cluster", "sample_id"]
    got = records(capsys, "compare", "a.npz", "b.npz", "-m", "mrr,hits@10", *options)
    expected = compare(
        RankTable.load("a.npz"),
        RankTable.load("b.npz"),
        ["mrr", "hits@10"],
        level=0.9,
        resamples=500,
        permutations=999,
        seed=3,
        cluster="sample_id",
    )
    for row, one in zip(got, expected.rows, strict=True):
        values = (one.metric, one.a, one.b, one.difference, one.low, one.high, one.p_value, one.p_adjusted, one.test)
        assert tuple(row.values()) == values


def test_compare_of_folders_takes_their_files_as_training_runs(cli_folder, capsys):
    for model, first in (("x", 10), ("y", 20)):
        Path(model).mkdir()
        for run in range(3):
            table_of(first + run, 20).save(f"{model}/{run}.npz")
    (row,) = records(capsys, "compare", "x", "y", "--resamples", "200")
    runs = [[RankTable.load(f"{model}/{run}.npz") for run in range(3)] for model in "xy"]
    assert row["p"] == compare(*runs, "mrr", resamples=200).p_value
    assert row["test"] == "t over seeds and tasks"
