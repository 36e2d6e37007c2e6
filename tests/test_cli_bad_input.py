"""Bad input of every command: one line that says what is wrong, exit code 2, nothing written."""

from pathlib import Path

import pytest
import torch

from command_line import table_of
from torchrankmetrics import RankTable
from torchrankmetrics.cli import main

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
    (["report", "a.npz", "--side", "left"], "--side must be of both, head, tail, relation; got 'left'"),
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
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(cli_folder, capsys, arguments, message):
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
    before = {path.name for path in cli_folder.iterdir()}
    assert main([*arguments, "--output", "out.txt"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert {path.name for path in cli_folder.iterdir()} == before


def test_unknown_commands_are_told(capsys):
    assert main(["repot"]) == 2
    assert capsys.readouterr().err.startswith("error: No such command 'repot'. Did you mean 'report'?")


def test_an_output_that_cannot_be_written_leaves_nothing(cli_folder, capsys):
    assert main(["report", "a.npz", "-o", "nowhere/out.txt"]) == 2
    assert capsys.readouterr().err == "error: nowhere/out.txt: cannot write: No such file or directory\n"
    Path("kept").mkdir()
    assert main(["report", "a.npz", "-o", "kept"]) == 2
    assert "error: kept: cannot write:" in capsys.readouterr().err
    assert not [path for path in cli_folder.iterdir() if path.name.startswith(".")]
