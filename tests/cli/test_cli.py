"""The command line: entry points, help, completion, terminals, data sets and published numbers."""

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from command_line import output, records
from scripts import ROOT, forked, load_script
from torchrankmetrics import adjust
from torchrankmetrics.cli import main
from torchrankmetrics.cli.app import app
from torchrankmetrics.datasets import candidate_counts, dataset_names
from torchrankmetrics.definitions.tasks import MEAN_RANK, MEAN_RECIPROCAL_RANK
from torchrankmetrics.null import ExactExpectation
from torchrankmetrics.null.p_values import log_p_value

COMMANDS = {
    "report a.npz --confidence-level 0.95": r"(?m)^mrr +0\.\d{4} +0\.\d{4} +0\.\d{4}$",
    "compare a.npz b.npz -m mrr,hits@10": r"(?m)^hits_at_10 .*sign-flip permutation",
    "adjust --dataset fb15k237 --metric mrr --value 0.355": (
        r"(?m)^adjusted_mrr +0\.3545 +0\.3540 +0\.3550$"
    ),
    "datasets": r"(?m)^fb15k237 .* 319 +10178 +14305\.6292 +14541$",
    "metrics": r"(?m)^success_at_<k> +queries +higher .* hit_rate@<k> ",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_its_table(command, cli_folder, capsys):
    assert re.search(COMMANDS[command], output(capsys, *command.split()))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("by", ["console script", pytest.param("module", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["datasets", "nations"], 0, "dataset ", ""),
        (["report", "none.npz"], 2, "", "error: none.npz: No such file or directory\n"),
    ],
    ids=["datasets", "missing file"],
)
def test_both_entry_points(arguments, code, out, err, by, cli_folder):
    script = Path(sys.executable).with_name("torchrankmetrics")
    assert script.exists(), "the console script is not installed: pip install -e '.[dev]'"
    command = (script,) if by == "console script" else ("-m", "torchrankmetrics")
    result = forked(*command, *arguments, cwd=cli_folder)
    assert (result.returncode, result.stdout[:8], result.stderr) == (code, out, err)


def test_without_its_extra_the_command_line_prints_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.delitem(sys.modules, "torchrankmetrics.cli.app")
    assert main(["datasets"]) == 2
    assert capsys.readouterr().err.endswith("needs click: pip install 'torchrankmetrics[cli]'\n")


@pytest.mark.parametrize(
    ("dataset", "options", "arguments"),
    [
        ("fb15k237", ["--split", "valid", "--side", "tail"], ("valid", "tail", "all")),
        ("Nations", ["--side", "head", "--entities", "train"], ("test", "head", "train")),
    ],
)
def test_adjust_reads_the_counts_of_a_dataset(capsys, dataset, options, arguments):
    views = ("adjusted_index", "z_score")
    got = records(
        capsys,
        "adjust",
        "-d",
        dataset,
        "-m",
        "mrr",
        "--value",
        "0.40",
        "--view",
        ",".join(views),
        *options,
    )
    for row, view in zip(got, views, strict=True):
        one = adjust("0.40", "mrr", candidate_counts(dataset, *arguments), view=view)
        assert tuple(row.values())[1:] == (one.value, one.rounding_low, one.rounding_high)
    assert [row["metric"] for row in got] == ["adjusted_mrr", "z_mrr"]
    hits = ["adjust", "-d", "fb15k237", "-m", "hits@10", "--value", "0.54"]
    base, p = records(capsys, *hits, "--view", "normalized,p_value")
    tasks, counts = 2 * 20466, candidate_counts("fb15k237")
    random = 10 * (counts.count / counts.num_candidates).sum() / tasks
    half = 1.959963984540054 * np.sqrt(0.54 * 0.46 / tasks)
    assert base["sampling_error"] == pytest.approx(half / random)
    assert p["sampling_error"] is None
    (row,) = records(capsys, "adjust", "--num-candidates", "14", "-m", "mr", "--value", "3.5")
    assert (row["metric"], row["value"]) == ("amri", pytest.approx(1 - 2 * 2.5 / 13))


def test_a_published_value_of_tiny_p_is_printed_by_its_logarithm(capsys):
    options = [
        "adjust",
        "-d",
        "fb15k237",
        "-m",
        "mr",
        "--value",
        "200.0",
        "--view",
        "z_score,p_value",
    ]
    z, p = records(capsys, *options)
    counts = candidate_counts("fb15k237")
    log10 = log_p_value(MEAN_RANK, 200.0, counts) / np.log(10)
    assert (p["value"], p["rounding_low"], p["rounding_high"]) == (0, 0, 0)
    assert p["log10_p"] == pytest.approx(log10)
    assert p["log10_p_rounding_low"] < p["log10_p"] < p["log10_p_rounding_high"]
    assert z["log10_p"] is None
    (line,) = re.findall(r"(?m)^p_mr .*$", output(capsys, *options))
    for cell, key in zip(
        line.split()[1:], ("log10_p", "log10_p_rounding_low", "log10_p_rounding_high"), strict=True
    ):
        digits, exponent = cell.split("e")
        assert np.log10(float(digits)) + int(exponent) == pytest.approx(p[key], abs=0.003)
    assert line.split()[1:] == re.findall(
        r"[\de.-]+", str(adjust("200.0", "mr", counts, view="p_value"))
    )


def test_the_list_of_metrics_is_that_of_the_registry():
    names = load_script(ROOT / "docs" / "metric_names.py")
    assert names.FILE.read_text(encoding="utf-8") == names.content(), (
        "run python docs/metric_names.py"
    )


def test_datasets_lists_all_with_moments_of_the_library_and_by_hand(capsys):
    got = records(capsys, "datasets")
    assert [row["dataset"] for row in got] == list(dataset_names())
    known = {row["dataset"]: row["known"] for row in got}
    assert (known["nations"], known["hm-1k"], known["dbp15k-zh-en"]) == (
        "train+valid+test",
        "train+test",
        "",
    )
    valid = records(capsys, "datasets", "--split", "valid")
    assert {*known} - {row["dataset"] for row in valid} >= {"hm-1k", "dbp15k-zh-en"}
    train = records(capsys, "datasets", "wn18rr", "--entities", "train", "--split", "valid,test")
    assert [(row["entities_known"], row["tasks"]) for row in train] == [
        (40559, 2 * 2824),
        (40559, 2 * 2924),
    ]
    command = (
        "datasets nations umls -f csv --side both,head --entities all,train "
        "--split valid,test -m mr,mrr"
    )
    got = list(csv.DictReader(io.StringIO(output(capsys, *command.split()))))
    assert len(got) == 2 * 2 * 2 * 2 * 2
    by_task = {
        tuple(row[key] for key in ("dataset", "split", "side", "entities", "metric")): row
        for row in got
    }
    row = by_task["umls", "test", "head", "train", "mrr"]
    counts = candidate_counts("umls", "test", "head", "train")
    moments = ExactExpectation().moments(MEAN_RECIPROCAL_RANK, counts)
    assert (float(row["mean"]), float(row["variance"])) == (moments.mean, moments.variance)
    n = np.repeat(counts.num_candidates, counts.count)
    by_hand = np.mean([np.mean(1 / np.arange(1, k + 1)) for k in n])
    assert float(row["mean"]) == pytest.approx(by_hand, rel=1e-12)
    assert by_task["nations", "valid", "both", "all", "mr"]["known"] == "train+valid"


NAMES = ["report", "compare", "study", "verify", "adjust", "datasets", "metrics"]
HEAVY = ("torch", "numpy", "scipy", "rich", "tqdm")


def test_commands_that_only_print_import_no_heavy_library():
    """Torch takes two seconds to import, rich half of one; NumPy reads the counts of datasets."""
    arguments = [
        ["--help"],
        ["--version"],
        *([name, "-h"] for name in NAMES),
        ["metrics"],
        ["datasets", "nations"],
    ]
    code = f"""
import sys
from torchrankmetrics.cli import main
for arguments in {arguments!r}:
    status = main(arguments)
    imported = [name for name in {HEAVY!r} if name in sys.modules]
    print(arguments, status, imported, file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    *others, counts = result.stderr.splitlines()
    assert others == [f"{one} 0 []" for one in arguments[:-1]]
    assert counts == "['datasets', 'nations'] 0 ['numpy']"


@pytest.mark.parametrize(
    "command",
    [[], *([name] for name in NAMES)],
    ids=lambda command: command[0] if command else "no command",
)
def test_the_short_and_the_long_word_show_the_same_help(command):
    short, long = (CliRunner().invoke(app, [*command, word]).output for word in ("-h", "--help"))
    assert short == long
    assert "-h, --help" in short
    example = short.split("For example" if command else "Start with")[1]
    assert " ".join(["  torchrankmetrics", *command]) in example


@pytest.mark.parametrize(
    ("shell", "variables", "completion"),
    [
        ("bash", {"COMP_WORDS": "torchrankmetrics c", "COMP_CWORD": "1"}, "plain,compare\n"),
        (
            "bash",
            {"COMP_WORDS": "torchrankmetrics report --fo", "COMP_CWORD": "2"},
            "plain,--format\n",
        ),
        (
            "zsh",
            {"COMP_WORDS": "torchrankmetrics report -f late", "COMP_CWORD": "3"},
            "plain\nlatex\n_\n",
        ),
    ],
)
def test_shells_complete_commands_options_and_formats(shell, variables, completion):
    environment = {**os.environ, "_TORCHRANKMETRICS_COMPLETE": f"{shell}_complete", **variables}
    command = [sys.executable, "-m", "torchrankmetrics"]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    ).stdout
    assert printed == completion


@pytest.mark.parametrize(("width", "number"), [(40, 7), (80, 3), (200, 1)])
def test_a_terminal_breaks_wide_tables_and_shortens_no_name(width, number, monkeypatch, capsys):
    """Columns that distinguish rows are whole; at 40 the keys alone are wider: one column each."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["datasets", "fb15k237", "wn18rr"]) == 0
    text = capsys.readouterr().out
    blocks = [block for block in text.split("\n\n") if "fb15k237" in block]
    assert len(blocks) == number
    for block in blocks:
        for name in ("fb15k237", "wn18rr"):
            assert re.search(rf"(?m)^{name} +test +both +all +train\+valid\+test", block)
    for head in (
        "dataset",
        "entities_known",
        "relations",
        "tasks",
        "distinct",
        "min",
        "mean",
        "max",
    ):
        assert re.search(rf"\b{head}\b", text)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_ends_well_if_its_reader_has_exited(option):
    script = f"set -o pipefail; {sys.executable} -m torchrankmetrics {option} | true"
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 0
