"""Bad input of every command: one line that names the fault, exit code 2, nothing written."""

import shutil
from pathlib import Path

import pytest
import torch

from command_line import table_of
from scripts import forked
from torchrankmetrics import RankTable
from torchrankmetrics.cli import main

FB = ["adjust", "-d", "fb15k237", "-m"]
AB = ["compare", "a.npz", "b.npz"]
GROUPS = ["report", "a.npz", "--by-group"]
STUDY = ["study", "models/{model}.npz"]
RUN = ["--qrels", "qrels.tsv", "--run", "run.json"]
BAD = [
    # files
    (["report", "none.npz"], "none.npz: No such file"),
    (["report", "empty.npz"], "empty.npz is not a whole RankTable file"),
    (["report", "void"], "void is a directory without files of ranks"),
    (["report", "a.npz", "--max-bytes", "5000"], "error: a.npz is not loaded: it would take"),
    (["report", "train.tsv"], "train.tsv: columns must contain rank, or optimistic and pessimistic"),
    (["report", "zero.npz"], "zero.npz contains no ranking tasks"),
    (["compare", "a.npz", "short.npz"], "b lacks 1: (tail, 59)"),
    (["compare", "a.npz"], "two models or more must be given, got 1"),
    # names
    (["report", "a.npz", "-m", "mrr,,mr"], "--metric must be names separated by commas"),
    (["report", "a.npz", "--view", ""], "--view must be names separated by commas"),
    (["report", "a.npz", "--side", "left"], "--side must be one of 'both', 'head', 'tail', 'relation'; got 'left'"),
    (["report", "plain.npz", "--side", "tail"], "plain.npz has no ranks of side 'tail'"),
    (["datasets", "fb15k"], "unknown dataset 'fb15k': its candidate counts are not shipped"),
    # values
    ([*FB, "mrr", "--value", "35.5"], "(as a share, not in percent)"),
    ([*FB, "mrr", "--value", "0.3", "--num-candidates", "9"], "one of --dataset and --num-candidates"),
    (["report", "a.npz", "--confidence-level", "95"], "confidence_level must be in (0, 1)"),
    (["report", "a.npz", "--cluster", "group"], "--cluster would do nothing without --confidence-level"),
    (["report", "a.npz", "--by-group", "--view", "p_value"], "--view must be one of 'base', 'adjusted_index', 'z_sco"),
    (["adjust", "--num-candidates", "9", "-m", "mr", "--value", "2", "--side", "head"], "--side would do nothing"),
    ([*GROUPS, "--confidence-level", "0.9"], "--confidence-level would do nothing with --by-group"),
    # gates
    ([*AB, "--fail-if", "not-equivalent"], "--fail-if not-equivalent and --margin must be given together"),
    ([*AB, "plain.npz", "--fail-if", "worse"], "--fail-if would do nothing with three models or more"),
    ([*AB, "--margin", "0"], "margin must be above 0"),
    ([*AB, "plain.npz", "--margin", "0.1"], "--margin would do nothing with three models or more"),
    ([*AB, "--baseline", "best"], "--baseline would do nothing with two models"),
    ([*AB, "a.npz"], "models must be different files; got a.npz, b.npz, a.npz"),
    (["report", "a.npz", "--fail-under", "mrr"], "--fail-under must be metrics with limits, such as mrr=0.3,amri=0.8"),
    (["report", "a.npz", "--fail-under", "mr=3"], "--fail-under must name metrics where higher is better, got 'mr'"),
    # studies
    ([*STUDY, "-f", "html", "--values-only"], "--values-only would do nothing with --format html"),
    ([*STUDY, "--across", "--values-only"], "--values-only would do nothing with --across"),
    # retrieval runs
    (["report"], "files of ranks must be given, or --qrels and --run"),
    (["compare", "--qrels", "qrels.tsv"], "--qrels and --run must be given together"),
    (["compare", *RUN], "two models or more must be given, got 1"),
    (["report", "a.npz", *RUN], "files of ranks would do nothing with --run"),
    (["report", "a.npz", "--num-candidates", "3"], "--num-candidates would do nothing without --run"),
    (["report", *RUN, "-m", "z_ap"], "num_candidates is needed"),
    (["compare", *RUN, "--run", "run.json", "-m", "mr"], "'mr' cannot be"),
    (["report", "--qrels", "qrels.tsv", "--run", "none.run"], "none.run: No such file"),
    # commands and options
    (["report", "a.npz", "--nothing"], "No such option"),
    (["report", "a.npz", "--nothing"], "(see torchrankmetrics report --help)"),
    (["repot"], "No such command 'repot'. Did you mean 'report'? (see torchrankmetrics --help; commands: report, comp"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments)[:70] for arguments, _ in BAD])
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(cli_folder, capsys, arguments, message):
    Path("empty.npz").touch()
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    Path("run.json").write_text('{"q1": {"d1": 2, "d3": 1}, "q2": {"d4": 1}}')
    Path("void").mkdir()
    Path("models").mkdir()
    for name in ("a.npz", "b.npz"):
        shutil.copy(name, "models")
    RankTable(torch.empty(0, 8, dtype=torch.int64)).save("zero.npz")
    RankTable(table_of(0, 20).rows[:-1]).save("short.npz")
    before = {path.name for path in cli_folder.iterdir()}
    assert main(arguments if arguments[-1] in ("repot",) else [*arguments, "--output", "out.txt"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert "pickle" not in err
    assert {path.name for path in cli_folder.iterdir()} == before


SUFFIX = "--output must end in .txt, .csv, .json, .md, .tex, .html, or --format must be given; got out.xlsx\n"


@pytest.mark.parametrize(
    ("arguments", "output", "message"),
    [
        (["report", "a.npz"], "nowhere/out.csv", "nowhere/out.csv: cannot write: No such file or directory\n"),
        (["report", "a.npz"], "kept", "kept: cannot write: Is a directory\n"),
        (["report", "a.npz"], ".", ".: cannot write: Is a directory\n"),
        (["report", "a.npz"], "/", "/: cannot write: Is a directory\n"),
        (["report", "a.npz"], "", ".: cannot write: Is a directory\n"),
        (["report", "a.npz"], "a.npz", "--output must not end in .npz"),
        (["report", "none.npz"], "out.xlsx", SUFFIX),  # before the computation
        (["compare", "none.npz"], "out.xlsx", SUFFIX),
        (["datasets", "none"], "out.xlsx", SUFFIX),
    ],
)
def test_an_output_that_cannot_be_written_leaves_nothing(arguments, output, message, cli_folder, capsys):
    Path("kept").mkdir()
    before = {path: path.is_dir() or path.read_bytes() for path in cli_folder.iterdir()}
    assert main([*arguments, "-o", output]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert {path: path.is_dir() or path.read_bytes() for path in cli_folder.iterdir()} == before


def test_ctrl_c_is_one_line_and_130_also_while_modules_load(cli_folder, tmp_path):
    """Ctrl-C where torch is imported, and where the ranks are read."""
    for module in ("torch", "zipfile"):
        code = f"{INTERRUPT[module]}\nimport runpy\nrunpy.run_module('torchrankmetrics', run_name='__main__')"
        anew = ["torchrankmetrics", *([module] if module == "torch" else [])]
        result = forked("-c", code, "report", "a.npz", "-o", "out.csv", cwd=cli_folder, anew=anew)
        assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")
    assert not Path("out.csv").exists()


INTERRUPT = {
    "torch": """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
""",
    "zipfile": """
import zipfile
def interrupted(*arguments, **options):
    raise KeyboardInterrupt
zipfile.ZipFile.__enter__ = interrupted
""",
}
