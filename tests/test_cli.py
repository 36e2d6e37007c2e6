"""The command line: every command through its entry point, its numbers against the library, bad input in one line."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from torchrankmetrics import (
    ExactExpectation,
    KnownTriples,
    RankCollection,
    Ranks,
    RankTable,
    adjust,
    compare,
    evaluate,
)
from torchrankmetrics.cli import main
from torchrankmetrics.cli.app import app
from torchrankmetrics.datasets import candidate_counts, dataset_names
from torchrankmetrics.theory.definitions import MEAN_RECIPROCAL_RANK

TRIPLES = {
    "train": "a\tr\tb\na\tr\tc\nb\ts\ta\nc\ts\td\n",
    "valid": "a\tr\td\n",
    "test": "c\tr\tb\nb\tr\tc\nd\ts\ta\n",
}


def table_of(seed, top, side=True):
    generator = torch.Generator().manual_seed(seed)
    tables = []
    for name in ("head", "tail"):
        low = torch.randint(1, top, (60,), generator=generator)
        high = low + torch.randint(0, 3, (60,), generator=generator)
        candidates = torch.randint(45, 85, (60,), generator=torch.Generator().manual_seed(len(name)))
        ranks = Ranks(low, high, candidates)
        ids = torch.arange(60)
        tables.append(RankTable.from_ranks(ranks, side=name if side else None, group=ids % 3, sample_id=ids))
        if not side:
            break
    return RankTable.concatenate(tables)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table_of(0, 20).save("a.npz")
    table_of(1, 25).save("b.npz")
    table_of(2, 25, side=False).save("plain.npz")
    for name, text in TRIPLES.items():
        Path(f"{name}.tsv").write_text(text)
    return tmp_path


def output(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def records(capsys, *arguments):
    return json.loads(output(capsys, *arguments, "--format", "json"))


# --- through the entry points -----------------------------------------------------------------------------------------

COMMANDS = {
    "report": (["report", "a.npz", "--level", "0.95"], r"(?m)^mrr +0\.\d{4} +0\.\d{4} +0\.\d{4}$"),
    "compare": (["compare", "a.npz", "b.npz", "-m", "mrr,hits@10"], r"(?m)^hits_at_10 .*exact McNemar"),
    "adjust": (
        ["adjust", "--dataset", "fb15k237", "--metric", "mrr", "--value", "0.355"],
        r"(?m)^adjusted_mrr +0\.3545 +0\.3540 +0\.3550$",
    ),
    "datasets": (["datasets"], r"(?m)^fb15k237 .* 319 +10178 +14305\.6292 +14541$"),
    "candidates": (
        ["candidates", "--train", "train.tsv", "--valid", "valid.tsv", "--test", "test.tsv"],
        r"(?m)^test +all +tail +train\+valid\+test +3 ",
    ),
    "bad": (["report", "none.npz"], r"^error: none\.npz: No such file or directory\n$"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """All commands at once, the first by ``python -m``, the others by the console script."""
    folder = tmp_path_factory.mktemp("cli")
    table_of(0, 20).save(folder / "a.npz")
    table_of(1, 25).save(folder / "b.npz")
    for name, text in TRIPLES.items():
        (folder / f"{name}.tsv").write_text(text)
    script = Path(sys.executable).with_name("torchrankmetrics")
    assert script.exists(), "the console script is not installed: pip install -e '.[dev]'"
    running = {}
    for i, (name, (arguments, _)) in enumerate(COMMANDS.items()):
        command = [sys.executable, "-m", "torchrankmetrics"] if i == 0 else [str(script)]
        running[name] = subprocess.Popen(
            [*command, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    return {name: (process.communicate(timeout=120), process.returncode) for name, process in running.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_through_its_entry_point(finished, name):
    (out, err), code = finished[name]
    wrong = name == "bad"
    assert code == (2 if wrong else 0), err
    assert re.search(COMMANDS[name][1], err if wrong else out), (out, err)
    assert not (out if wrong else err)


def test_help_teaches():
    runner = CliRunner()
    top = runner.invoke(app, ["--help"], terminal_width=200).output
    assert "0 at chance and 1 at the optimum" in top
    for command in ("report", "compare", "adjust", "datasets", "candidates"):
        assert command in top
        text = " ".join(runner.invoke(app, [command, "--help"], terminal_width=300).output.split())
        assert f"For example torchrankmetrics {command} " in text


def test_without_its_extra_the_command_line_says_so(folder):
    code = (
        "import sys; sys.modules['typer'] = None\nfrom torchrankmetrics.cli import main\nsys.exit(main(['datasets']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'torchrankmetrics[cli]'" in result.stderr
    assert result.stderr.count("\n") == 1


# --- report -----------------------------------------------------------------------------------------------------------


def test_report_gives_the_values_of_the_library(folder, capsys):
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


def test_report_of_several_files(folder, capsys):
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
def test_report_intervals(folder, capsys, options, keywords):
    got = records(capsys, "report", "a.npz", "-m", "mrr", *options, "--level", "0.9")
    collection = RankCollection(["median_rank" if "median_rank" in options else "mrr"])
    for side in ("head", "tail"):
        part = RankTable.load("a.npz").select(side=side)
        collection.update(part.ranks, side=side, group=part.group, sample_id=part.sample_id)
    (row,) = collection.confidence_intervals(0.9, **keywords).rows
    assert got == [{"metric": row.metric, "value": row.value, "low": row.low, "high": row.high}]


def test_report_by_group_with_names(folder, capsys):
    Path("names.txt").write_text("likes\nknows\nowns\n")
    Path("named.tsv").write_text("2\towns\n0\tlikes\n1\tknows\n")
    for names in ("names.txt", "named.tsv"):
        got = records(capsys, "report", "a.npz", "-m", "mrr", "--by-group", "--names", names)
        assert [row["group"] for row in got] == ["likes", "knows", "owns"]
    table = RankTable.load("a.npz")
    for i, row in enumerate(got):
        part = evaluate(table.select(group=i), metrics=["mrr", "adjusted_mrr", "z_mrr"])
        assert row == {"group": row["group"], "count": 40, **part}


def test_report_as_csv_to_a_file(folder, capsys):
    assert output(capsys, "report", "a.npz", "-m", "mrr", "-f", "csv", "-o", "out.csv") == ""
    rows = list(csv.DictReader(io.StringIO(Path("out.csv").read_text())))
    assert float(rows[0]["value"]) == evaluate(RankTable.load("a.npz"), metrics=["mrr"])["mrr"]
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
    output(capsys, "report", "a.npz", "-m", "mrr", "-o", "out.txt")
    assert "120 ranks among" in Path("out.txt").read_text()


def test_what_is_undefined_is_null_with_a_note(folder, capsys):
    RankTable.from_ranks(Ranks([1, 2], None, 3)).save("few.npz")
    assert main(["report", "few.npz", "-m", "adjusted_hits@10", "-f", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [{"metric": "adjusted_hits_at_10", "value": None}]
    assert "note: adjusted_hits_at_10 is undefined" in err
    Path("few.csv").write_text(output(capsys, "report", "few.npz", "-m", "adjusted_hits@10", "-f", "csv"))
    assert Path("few.csv").read_text() == "metric,value\nadjusted_hits_at_10,\n"


# --- compare ----------------------------------------------------------------------------------------------------------


def test_compare_gives_the_numbers_of_the_library(folder, capsys):
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


def test_compare_of_folders_takes_their_files_as_training_runs(folder, capsys):
    for model, first in (("x", 10), ("y", 20)):
        Path(model).mkdir()
        for run in range(3):
            table_of(first + run, 20).save(f"{model}/{run}.npz")
    (row,) = records(capsys, "compare", "x", "y", "--resamples", "200")
    runs = [[RankTable.load(f"{model}/{run}.npz") for run in range(3)] for model in "xy"]
    assert row["p"] == compare(*runs, "mrr", resamples=200).p_value
    assert row["test"] == "t over seeds and tasks"


# --- adjust and datasets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], ("test", None, "all")),
        (["--split", "valid", "--side", "tail"], ("valid", "tail", "all")),
        (["--side", "head", "--entities", "train"], ("test", "head", "train")),
    ],
)
@pytest.mark.parametrize("dataset", ["fb15k237", "Nations"])
def test_adjust_with_a_data_set(capsys, options, arguments, dataset):
    got = records(
        capsys, "adjust", "-d", dataset, "-m", "mrr", "--value", "0.40", "--view", "adjusted_index,z_score", *options
    )
    for row, view in zip(got, ("adjusted_index", "z_score"), strict=True):
        one = adjust("0.40", "mrr", candidate_counts(dataset, *arguments), view=view)
        assert (row["value"], row["low"], row["high"]) == (one.value, one.low, one.high)
    assert [row["metric"] for row in got] == ["adjusted_mrr", "z_mrr"]


def test_adjust_with_one_number(capsys):
    (row,) = records(capsys, "adjust", "--num-candidates", "14", "-m", "mr", "--value", "3.5")
    assert row["metric"] == "amri"
    assert row["value"] == pytest.approx(1 - 2 * 2.5 / 13)


def test_datasets_lists_all(capsys):
    got = records(capsys, "datasets")
    assert [row["dataset"] for row in got] == list(dataset_names())
    assert {row["known"] for row in got} == {"train+valid+test"}
    train = records(capsys, "datasets", "wn18rr", "--entities", "train", "--split", "valid,test")
    assert [(row["entities_known"], row["tasks"]) for row in train] == [(40559, 2 * 2824), (40559, 2 * 2924)]
    provenance = records(capsys, "datasets", "nations", "--provenance")
    assert [row["triples"] for row in provenance] == [1592, 199, 201]
    assert all(re.fullmatch("[0-9a-f]{64}", row["sha256"]) for row in provenance)


def test_database_of_moments(capsys):
    command = "datasets nations umls --moments --csv --side both,head --entities all,train --split valid,test -m mr,mrr"
    got = list(csv.DictReader(io.StringIO(output(capsys, *command.split()))))
    assert len(got) == 2 * 2 * 2 * 2 * 2
    by_task = {tuple(row[key] for key in ("dataset", "split", "side", "entities", "metric")): row for row in got}
    row = by_task["umls", "test", "head", "train", "mrr"]
    counts = candidate_counts("umls", "test", "head", "train")
    moments = ExactExpectation().moments(MEAN_RECIPROCAL_RANK, counts)
    assert (float(row["mean"]), float(row["variance"])) == (moments.mean, moments.variance)
    n = np.repeat(counts.num_candidates, counts.count)
    by_hand = np.mean([np.mean(1 / np.arange(1, k + 1)) for k in n])
    assert float(row["mean"]) == pytest.approx(by_hand, rel=1e-12)
    assert by_task["nations", "valid", "both", "all", "mr"]["known"] == "train+valid"


# --- candidates -------------------------------------------------------------------------------------------------------


def test_candidates_of_triples(folder, capsys):
    files = [part for name in TRIPLES for part in (f"--{name}", f"{name}.tsv")]
    got = records(capsys, "candidates", *files, "--histogram")
    ids = {label: i for i, label in enumerate("abcdrs")}
    splits = {
        name: torch.tensor(
            [[ids[h], ids[r] - 4, ids[t]] for h, r, t in (line.split("\t") for line in text.splitlines())]
        )
        for name, text in TRIPLES.items()
    }
    for split, known in (("train", ["train"]), ("valid", ["train", "valid"]), ("test", ["train", "valid", "test"])):
        for side in ("head", "tail"):
            counts = KnownTriples(*(splits[name] for name in known), num_entities=4).num_candidates(splits[split], side)
            expected = dict(zip(*(x.tolist() for x in counts.unique(return_counts=True)), strict=True))
            rows = [row for row in got if (row["split"], row["side"]) == (split, side)]
            assert {row["num_candidates"]: row["count"] for row in rows} == expected
    summary = records(capsys, "candidates", *files, "--entities", "all,train", "--num-entities", "10")
    assert max(row["max"] for row in summary if row["entities"] == "all") > 4
    assert {row["known"] for row in summary if row["split"] == "valid"} == {"train+valid"}


def test_candidates_feed_adjust(folder, capsys):
    output(
        capsys, "candidates", "--train", "train.tsv", "--test", "test.tsv", "--histogram", "-f", "csv", "-o", "c.csv"
    )
    (row,) = records(capsys, "adjust", "--counts", "c.csv", "-m", "mrr", "--value", "0.7", "--side", "tail")
    ids = {label: i for i, label in enumerate("abcd")}
    splits = [
        torch.tensor(
            [[ids[h], int(r == "s"), ids[t]] for h, r, t in (x.split("\t") for x in TRIPLES[name].splitlines())]
        )
        for name in ("train", "test")
    ]
    counts = KnownTriples(*splits, num_entities=4).num_candidates(splits[1], "tail")
    assert row["value"] == pytest.approx(adjust("0.7", "mrr", counts).value)
    header, line = "split,entities,side,num_candidates,count\n", "test,{},tail,{},{}\n"
    Path("both.csv").write_text(header + line.format("all", 9, 4) + line.format("train", 3, 2))
    for entities, expected in (("all", 9), ("train", 3)):
        options = ["--counts", "both.csv", "--side", "tail", "--entities", entities]
        (row,) = records(capsys, "adjust", *options, "-m", "mrr", "--value", "0.7")
        assert row["value"] == pytest.approx(adjust("0.7", "mrr", expected).value)


def test_ids_with_holes_are_told(folder, capsys):
    Path("ids.tsv").write_text("0\t0\t7\n")
    assert main(["candidates", "--train", "ids.tsv", "--test", "ids.tsv"]) == 0
    assert "--num-entities 8" in capsys.readouterr().out


# --- bad input --------------------------------------------------------------------------------------------------------

CANDIDATES = ["candidates", "--train", "train.tsv", "--test"]
FB = ["adjust", "-d", "fb15k237", "-m"]
BAD = [
    # files
    (["report", "none.npz"], "none.npz: No such file"),
    (["report", "a.npz", "none.npz"], "none.npz: No such file"),
    (["report", "empty.npz"], "empty.npz is no whole RankTable file"),
    (["report", "."], ".: Is a directory"),
    (["report", "train.tsv"], "train.tsv is no whole RankTable file"),
    (["report", "zero.npz"], "zero.npz holds no ranking tasks"),
    (["compare", "a.npz", "none.npz"], "none.npz: No such file"),
    (["compare", "a.npz", "short.npz"], "b lacks 1: (tail, 59)"),
    (["compare", "a.npz", "void"], "void is a folder without .npz files"),
    (["compare", "a.npz"], "Missing argument 'b'"),
    ([*CANDIDATES, "none.tsv"], "none.tsv: No such file"),
    ([*CANDIDATES, "empty.tsv"], "empty.tsv is empty: expected a triple"),
    ([*CANDIDATES, "ragged.tsv"], "ragged.tsv line 2: expected head, relation, tail separated by tabs, got 2 columns"),
    ([*CANDIDATES, "a.npz"], "a.npz is no UTF-8 text"),
    ([*CANDIDATES, "test.tsv", "--num-entities", "3"], "--num-entities must be at least 4"),
    ([*CANDIDATES, "test.tsv", "--num-entities", "-1"], "--num-entities must be at least 4"),
    ([*CANDIDATES, "test.tsv", "--entities", "some"], "--entities must be of all, train; got 'some'"),
    (["candidates", "--test", "test.tsv"], "Missing option '--train'"),
    (["adjust", "--counts", "none.csv", "-m", "mr", "--value", "3"], "none.csv: No such file"),
    (
        ["adjust", "--counts", "empty.tsv", "-m", "mr", "--value", "3"],
        "must start with the columns split,entities,side",
    ),
    (["adjust", "--counts", "ragged.csv", "-m", "mr", "--value", "3"], "ragged.csv line 2: expected split,entities"),
    (["adjust", "--counts", "negative.csv", "-m", "mr", "--value", "3"], "negative.csv line 2: expected"),
    (["adjust", "--counts", "head.csv", "-m", "mr", "--value", "3"], "head.csv has no tasks of split 'test'"),
    (["report", "a.npz", "--by-group", "--names", "ragged.tsv"], "ragged.tsv line 1: expected a name, or id TAB name"),
    (["report", "a.npz", "--by-group", "--names", "short.txt"], "names must have a name for every group"),
    # names
    (["report", "a.npz", "-m", "mmr"], "unknown metric 'mmr'; did you mean"),
    (["report", "a.npz", "-m", "mrr,,mr"], "--metric must be names separated by commas"),
    (["report", "a.npz", "-m", "adjusted_count"], "no meaning"),
    (["report", "a.npz", "--view", "index"], "--view must be of base, normalized, adjusted_index"),
    (["report", "a.npz", "--side", "left"], "--side must be of both, head, tail; got 'left'"),
    (["report", "plain.npz", "--side", "tail"], "plain.npz has no ranks of side 'tail'"),
    (["report", "a.npz", "--rank-type", "fair"], "--rank-type must be of"),
    (["compare", "a.npz", "b.npz", "-m", "p_mrr"], "'p_mrr' cannot be compared"),
    (["compare", "a.npz", "b.npz", "--cluster", "day"], "--cluster must be of group, sample_id"),
    (["datasets", "fb15k"], "unknown dataset 'fb15k'; did you mean 'fb15k237'"),
    (["datasets", "--moments", "-m", "amri"], "--metric must name base metrics"),
    (["datasets", "--split", "dev"], "--split must be of train, valid, test; got 'dev'"),
    (["datasets", "--moments", "--provenance"], "are two tables"),
    (["adjust", "-d", "freebase", "-m", "mrr", "--value", "0.3"], "unknown dataset 'freebase'"),
    ([*FB, "mmr", "--value", "0.3"], "unknown metric 'mmr'"),
    ([*FB, "amri", "--value", "0.3"], "metric must name a base metric, such as 'mr'"),
    ([*FB, "mrr", "--value", "0.3", "--view", "base"], "--view must be of normalized, adjusted_index"),
    ([*FB, "mrr", "--value", "0.3", "--split", "dev"], "--split must be of train, valid, test"),
    # values
    ([*FB, "mrr", "--value", "-0.3"], "value of 'mrr' must lie in"),
    ([*FB, "mrr", "--value", "35.5"], "(as a share, not in percent)"),
    ([*FB, "mr", "--value", "0.5"], "value of 'mr' must lie in [1, 14305.6]"),
    ([*FB, "mr", "--value", "20000"], "value of 'mr' must lie in"),
    ([*FB, "mrr", "--value", "a third"], "value must be a number or its digits"),
    ([*FB, "mrr", "--value", "nan"], "value must be a number or its digits"),
    (["adjust", "-m", "mrr", "--value", "0.3"], "one of --dataset, --counts and --num-candidates"),
    ([*FB, "mrr", "--value", "0.3", "--num-candidates", "9"], "one of --dataset, --counts and --num-candidates"),
    (["adjust", "--num-candidates", "0", "-m", "mr", "--value", "1"], "num_candidates must be at least 1"),
    (["adjust", "--num-candidates", "9", "-m", "mr", "--value", "2", "--view", "z_score"], "one count per task"),
    (["adjust", "--num-candidates", "9.5", "-m", "mr", "--value", "2"], "Invalid value for '--num-candidates'"),
    (["report", "a.npz", "--level", "95"], "level must be in (0, 1)"),
    (["report", "a.npz", "-m", "median_rank", "--level", "0.9"], "use method='bootstrap'"),
    (["report", "a.npz", "--method", "exact"], "--method must be of normal, bootstrap"),
    (["report", "a.npz", "--by-group", "--level", "0.9"], "--by-group has no intervals"),
    (["report", "a.npz", "--names", "short.txt"], "add --by-group"),
    (["compare", "a.npz", "b.npz", "--level", "-1"], "level must be in (0, 1)"),
    (["compare", "a.npz", "b.npz", "--resamples", "-5"], "resamples must be an int of at least 100"),
    (["report", "a.npz", "--format", "xml"], "'xml' is not one of"),
    (["report", "a.npz", "--nothing"], "No such option"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments)[:70] for arguments, _ in BAD])
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(folder, capsys, arguments, message):
    for name, text in {
        "empty.npz": "",
        "empty.tsv": "",
        "ragged.tsv": "a\tr\tb\na\tr\n",
        "ragged.csv": "split,entities,side,num_candidates,count\ntest,all,head\n",
        "negative.csv": "split,entities,side,num_candidates,count\ntest,all,head,14,-3\n",
        "head.csv": "split,entities,side,num_candidates,count\n",
        "short.txt": "likes\n",
    }.items():
        Path(name).write_text(text)
    Path("void").mkdir()
    RankTable(torch.empty(0, 8, dtype=torch.int64)).save("zero.npz")
    RankTable(table_of(0, 20).rows[:-1]).save("short.npz")
    before = {path.name for path in folder.iterdir()}
    assert main([*arguments, "--output", "out.txt"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert {path.name for path in folder.iterdir()} == before


def test_unknown_commands_are_told(capsys):
    assert main(["repot"]) == 2
    assert capsys.readouterr().err.startswith("error: No such command 'repot'. Did you mean 'report'?")


def test_an_output_that_cannot_be_written_leaves_nothing(folder, capsys):
    assert main(["report", "a.npz", "-o", "nowhere/out.txt"]) == 2
    assert capsys.readouterr().err == "error: nowhere/out.txt: cannot write: No such file or directory\n"
    Path("kept").mkdir()
    assert main(["report", "a.npz", "-o", "kept"]) == 2
    assert "error: kept: cannot write:" in capsys.readouterr().err
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
