"""What scripts and CI jobs need: one line per fault, exit codes, nothing written, JSON schema."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from command_line import table_of
from scripts import ROOT, forked
from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.cli import main

FB = ["adjust", "-d", "fb15k237", "-m"]
AB = ["compare", "a.npz", "b.npz"]
GROUPS = ["report", "a.npz", "--by-group"]
STUDY = ["study", "models/{model}.npz"]
RUN = ["--qrels", "qrels.tsv", "--run", "run.json"]
BAD = [
    (["report", "none.npz"], "none.npz: No such file"),
    (["report", "digits=3/none.npz"], "error: digits=3/none.npz: No such file"),
    (["compare", "margin=0.1/a.npz", "b.npz"], "error: margin=0.1/a.npz: No such file"),
    (["report", "empty.npz"], "empty.npz is not a whole RankTable file"),
    (["report", "void"], "void is a directory without files of ranks"),
    (["report", "parts"], "read partitions (name=value) with RankTable.from_pandas"),
    (
        ["report", "a.npz", "--max-bytes", "5000"],
        "and --max-bytes 5000: if you trust it, allow more",
    ),
    (
        ["report", "train.tsv"],
        "train.tsv: columns must contain rank, or optimistic and pessimistic",
    ),
    (["report", "zero.npz"], "zero.npz contains no ranking tasks"),
    (["compare", "a.npz", "short.npz"], "b lacks 1: (tail, 59)"),
    (
        ["compare", "a.npz", "raw.csv"],
        "pass sample_id= to every update of both (to a file, a column sample_id)",
    ),
    (
        ["report", "raw.csv", "--by-group"],
        "pass group= to every update (to a file, a column group)",
    ),
    (["study", "ze{model}.npz"], "zero.npz: the ranks of ro on data, seed 0 have no ranking tasks"),
    (
        ["report", "--qrels", "empty.npz", "--run", "run.json"],
        "empty.npz is empty: write a line for each document",
    ),
    (["compare", "a.npz"], "two models or more must be given, got 1"),
    (["report", "a.npz", "-m", "mrr,,mr"], "--metric must be names separated by commas"),
    (["report", "a.npz", "--view", ""], "--view must be names separated by commas"),
    (
        ["report", "a.npz", "--side", "left"],
        "--side must be one of 'both', 'head', 'tail', 'relation'; got 'left'",
    ),
    (["report", "plain.npz", "--side", "tail"], "plain.npz has no ranks of side 'tail'"),
    (["datasets", "fb15k"], "unknown dataset 'fb15k': its candidate counts are not shipped"),
    ([*FB, "mrr", "--value", "35.5"], "(as a share, not in percent)"),
    (
        [*FB, "mrr", "--value", "0.3", "--num-candidates", "9"],
        "one of --dataset and --num-candidates",
    ),
    (
        ["report", "a.npz", "--cluster", "group"],
        "--cluster would do nothing without --confidence-level",
    ),
    (
        ["report", "a.npz", "--by-group", "--view", "p_value"],
        "--view must be one of 'base', 'adjusted_index', 'z_sco",
    ),
    (
        ["adjust", "--num-candidates", "9", "-m", "mr", "--value", "2", "--side", "head"],
        "--side would do nothing",
    ),
    ([*GROUPS, "--confidence-level", "0.9"], "--confidence-level would do nothing with --by-group"),
    (
        [*AB, "--fail-if", "not-equivalent"],
        "--fail-if not-equivalent and --margin must be given together",
    ),
    (
        [*AB, "plain.npz", "--fail-if", "worse"],
        "--fail-if would do nothing with three models or more",
    ),
    ([*AB, "plain.npz", "--margin", "0.1"], "--margin would do nothing with three models or more"),
    ([*AB, "--baseline", "best"], "--baseline would do nothing with two models"),
    ([*AB, "a.npz"], "models must be different files; got a.npz, b.npz, a.npz"),
    (
        ["report", "a.npz", "--fail-under", "mrr"],
        "--fail-under must be metrics with limits, such as mrr=0.3,amri=0.8",
    ),
    (
        ["report", "a.npz", "--fail-under", "mr=3"],
        "--fail-under must name metrics where higher is better, got 'mr'",
    ),
    ([*STUDY, "-f", "html", "--values-only"], "--values-only would do nothing with --format html"),
    ([*STUDY, "--across", "--values-only"], "--values-only would do nothing with --across"),
    (["report"], "files of ranks must be given, or qrels and a run"),
    (["compare", "--qrels", "qrels.tsv"], "--qrels and --run must be given together"),
    (["compare", *RUN], "two models or more must be given, got 1"),
    (["report", "a.npz", *RUN], "files of ranks would do nothing with --run"),
    (
        ["report", "a.npz", "--num-candidates", "3"],
        "--num-candidates would do nothing without --run",
    ),
    (["report", *RUN, "-m", "z_ap"], "Pass --num-candidates (to a file, a column num_candidates)"),
    (["report", *RUN, "--num-candidates", "1"], "error: --num-candidates must count all documents"),
    (["report", "a.npz", "--confidence-level", "2"], "error: --confidence-level must be in (0, 1)"),
    ([*AB, "c.npz", "-m", "rank_variance", "--baseline", "best"], "use no --baseline"),
    (
        ["report", "qrels.trec", "run.json", "--empty-queries", "error"],
        "--empty-queries zero counts",
    ),
    (["report", "empty.tsv", "run.json"], "error: empty.tsv: the file is empty"),
    (["report", "run.trec"], "looks like a run of TREC: give qrels and run together"),
    (["compare", *RUN, "--run", "run.json", "-m", "mr"], "'mr' depends on"),
    (["report", "--qrels", "qrels.tsv", "--run", "none.run"], "none.run: No such file"),
    (["report", "a.npz", "--nothing"], "No such option"),
    (["report", "a.npz", "--nothing"], "(see torchrankmetrics report --help)"),
    (
        ["repot"],
        "No such command 'repot'. Did you mean 'report'? (see torchrankmetrics --help; commands: "
        "report, comp",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=[" ".join(arguments)[:70] for arguments, _ in BAD]
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(
    cli_folder, capsys, arguments, message
):
    Path("empty.npz").touch()
    Path("empty.tsv").touch()
    Path("qrels.trec").write_text("q1 0 d1 1\nq2 0 d4 0\n")
    Path("run.trec").write_text("q1 Q0 d1 1 3.0 bm25\n")
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    Path("run.json").write_text('{"q1": {"d1": 2, "d3": 1}, "q2": {"d4": 1}}')
    Path("raw.csv").write_text("rank\n1\n2\n")
    Path("void").mkdir()
    Path("parts", "lang=en").mkdir(parents=True)
    Path("parts", "lang=en", "0.parquet").touch()
    shutil.copy("b.npz", "c.npz")
    Path("models").mkdir()
    for name in ("a.npz", "b.npz"):
        shutil.copy(name, "models")
    RankTable(torch.empty(0, 8, dtype=torch.int64)).save("zero.npz")
    RankTable(table_of(0, 20).rows[:-1]).save("short.npz")
    before = {path.name for path in cli_folder.iterdir()}
    assert (
        main(arguments if arguments[-1] in ("repot",) else [*arguments, "--output", "out.txt"]) == 2
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert "pickle" not in err
    assert {path.name for path in cli_folder.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["report", "\x1b[31m.csv", "-m", "mrr", "--fail-under", "mrr=0.9"], 1),
        (["report", "\x1b[31m.csv", "-m", "mrr", "-f", "json"], 0),
        (["report", "\x1b[31m.npz"], 2),
        (["report", "bad.csv"], 2),
    ],
    ids=["table", "json", "missing file", "column name"],
)
def test_control_sequences_of_file_and_column_names_do_not_reach_the_terminal(
    arguments, code, cli_folder, capsys
):
    red = "\x1b[31m"
    Path(f"{red}.csv").write_text(f"rank,{red}name\n1,2\n2,3\n")
    Path("bad.csv").write_text(f"{red}rank\n1\n")
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert r"\x1b[31m" in err


def test_deeply_nested_json_is_one_line(cli_folder, capsys):
    Path("deep.json").write_text('{"q": ' + "[" * 100_000)
    Path("qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    assert main(["report", "--qrels", "qrels.tsv", "--run", "deep.json"]) == 2
    error = "error: deep.json, from line 1 on: brackets are nested too deeply\n"
    assert capsys.readouterr().err == error


SUFFIX = (
    "--output must end in .txt, .csv, .json, .md, .tex, .html, or --format must be given; "
    "got out.xlsx\n"
)


@pytest.mark.parametrize(
    ("arguments", "output", "message"),
    [
        (
            ["report", "a.npz"],
            "nowhere/out.csv",
            "nowhere/out.csv: cannot write: No such file or directory\n",
        ),
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
def test_an_output_that_cannot_be_written_leaves_nothing(
    arguments, output, message, cli_folder, capsys
):
    Path("kept").mkdir()
    before = {path: path.is_dir() or path.read_bytes() for path in cli_folder.iterdir()}
    assert main([*arguments, "-o", output]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert {path: path.is_dir() or path.read_bytes() for path in cli_folder.iterdir()} == before


INTERRUPTED = """
import runpy, sys, zipfile
class Finder:
    def find_spec(self, name, path=None, target=None):
        interrupted() if name == "torch" else None
def interrupted(*arguments, **options):
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize(
    "where", ["sys.meta_path.insert(0, Finder())", "zipfile.ZipFile.__enter__ = interrupted"]
)
def test_ctrl_c_while_torch_is_imported_or_ranks_are_read_is_one_line_and_130(where, cli_folder):
    code = f"{INTERRUPTED}{where}\nrunpy.run_module('torchrankmetrics', run_name='__main__')"
    anew = ["torchrankmetrics", *(["torch"] if "Finder" in where else [])]
    result = forked("-c", code, "report", "a.npz", "-o", "out.csv", cwd=cli_folder, anew=anew)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")
    assert not Path("out.csv").exists()


DOCS = ROOT / "docs" / "cli.md"
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
COMMANDS = [
    "report a.npz b.npz -m mrr,p_mrr --confidence-level 0.9",
    "report a.npz --by-group -m mrr",
    "compare a.npz b.npz --margin 0.1",
    "compare a.npz b.npz c.npz",
    "study {model}.npz -m mrr",
    "study {model}.npz -m mrr --across",
    "adjust -d nations -m mr --value 2 --view p_value",
    "datasets nations",
    "metrics",
]


def check(value, schema):
    """Validate the part of JSON schema that the docs use."""
    kinds = schema.get("type", [])
    assert any(
        isinstance(value, TYPES[kind]) for kind in ([kinds] if isinstance(kinds, str) else kinds)
    ), value
    if isinstance(value, list):
        for item in value:
            check(item, schema["items"])
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value)
        for key, part in value.items():
            assert re.search(schema.get("propertyNames", {}).get("pattern", ""), key), key
            known = schema.get("properties", {})
            assert key in known or schema["additionalProperties"], key
            check(part, known.get(key, schema["additionalProperties"]))


@pytest.mark.parametrize("command", COMMANDS)
def test_json_follows_the_schema_of_the_docs(command, cli_folder, capsys):
    schema = json.loads(re.search(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)[1])
    Path("plain.npz").unlink()
    table_of(7, 30).save("c.npz")
    assert main([*command.split(), "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    check(found, schema)
    assert found["rows"]
    assert (found["tasks"] is not None) == command.startswith(("report", "compare"))


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A model that is better than another on all tasks, and one that equals the first."""
    monkeypatch.chdir(tmp_path)
    for name, rank in (("good", 1), ("same", 1), ("bad", 3)):
        RankTable.from_ranks(Ranks([rank, rank + 1] * 20, None, 50), sample_id=range(40)).save(
            f"{name}.npz"
        )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            "compare bad.npz good.npz --fail-if worse",
            "a is significantly worse than b in mrr: a - b = -0.4583 [",
        ),
        (
            "compare bad.npz good.npz -m mr,mrr --fail-if worse",
            "b in mr: a - b = +2.0000 [+2.0000, +2.0000]; a is",
        ),
        ("compare good.npz bad.npz -m mrr,mr --fail-if worse", None),
        (
            "compare good.npz same.npz --fail-if not-better",
            "a is not significantly better than b in mrr",
        ),
        (
            "compare good.npz bad.npz --fail-if not-equivalent --margin 0.1",
            "a is not shown to be equivalent to b in",
        ),
        ("report good.npz --fail-under mrr=0.7,amri=0.5", None),
        (
            "report good.npz bad.npz -m mr --fail-under mrr=0.5,hits@1=.4",
            "mrr is 0.291667, below 0.5; bad.npz: hits",
        ),
    ],
)
def test_a_gate_exits_with_1_and_one_line(command, reason, models, capsys):
    assert main([*command.split(), "-f", "json"]) == (0 if reason is None else 1)
    out, err = capsys.readouterr()
    assert json.loads(out)["rows"]
    failed = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(failed) == (reason is not None)
    assert reason is None or reason in failed[0]


READ_ONLY = """
import errno, os, sys
for name in ("HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
    os.environ.pop(name, None)
sys.dont_write_bytecode = True
def refuse(event, arguments):
    mode, flags = arguments[1:3] if event == "open" else ("w", 0)
    writes = set(mode or "") & set("wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    changes = event in ("open", "os.mkdir", "os.rename", "os.remove") and writes
    if changes and arguments[0] != os.devnull:
        raise OSError(errno.EROFS, "Read-only file system", arguments[0])
sys.addaudithook(refuse)
from torchrankmetrics.cli import main
for command in sys.argv[1:]:
    print(main(command.split()))
"""


def test_commands_that_do_not_draw_need_no_writable_path(cli_folder):
    commands = ["report a.npz -m mrr", "compare a.npz b.npz", "study {model}.npz -m mrr"]
    Path("plain.npz").unlink()
    result = forked(
        "-c",
        READ_ONLY,
        *commands,
        cwd=cli_folder,
        anew=["torchrankmetrics", "torchmetrics", "matplotlib"],
    )
    assert [line for line in result.stdout.splitlines() if re.fullmatch(r"\d", line)] == [
        "0",
        "0",
        "0",
    ], result.stderr
