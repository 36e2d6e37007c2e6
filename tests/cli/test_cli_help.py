"""Help, version, completion and hints: there at once, and about the command that was meant."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from torchrankmetrics.cli import main
from torchrankmetrics.cli.app import app

COMMANDS = ["report", "compare", "study", "verify", "adjust", "datasets", "metrics"]
HEAVY = ("torch", "numpy", "scipy", "rich", "tqdm")


def test_commands_that_only_print_import_no_heavy_library():
    """Torch takes two seconds to import, rich half of one; NumPy reads the counts of datasets."""
    arguments = [["--help"], ["--version"], *([name, "-h"] for name in COMMANDS), ["metrics"], ["datasets", "nations"]]
    code = f"""
import sys
from torchrankmetrics.cli import main
for arguments in {arguments!r}:
    print(arguments, main(arguments), [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    *others, counts = result.stderr.splitlines()
    assert others == [f"{one} 0 []" for one in arguments[:-1]]
    assert counts == "['datasets', 'nations'] 0 ['numpy']"


def test_the_short_and_the_long_word_show_the_same_help():
    for command in ([], *([name] for name in COMMANDS)):
        short, long = (CliRunner().invoke(app, [*command, word]).output for word in ("-h", "--help"))
        assert short == long
        assert "-h, --help" in short
        example = short.split("For example" if command else "Start with")[1]
        assert " ".join(["  torchrankmetrics", *command]) in example


@pytest.mark.parametrize(
    ("shell", "variables", "completion"),
    [
        ("bash", {"COMP_WORDS": "torchrankmetrics c", "COMP_CWORD": "1"}, "compare\n"),
        ("bash", {"COMP_WORDS": "torchrankmetrics report --fo", "COMP_CWORD": "2"}, "--format\n"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "torchrankmetrics report -f "}, '"latex"'),
    ],
)
def test_shells_complete_commands_options_and_formats(shell, variables, completion):
    environment = {**os.environ, "_TORCHRANKMETRICS_COMPLETE": f"complete_{shell}", **variables}
    command = [sys.executable, "-m", "torchrankmetrics"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout
    assert printed == completion if shell == "bash" else completion in printed


@pytest.mark.parametrize(("width", "number"), [(40, 7), (80, 3), (200, 1)])
def test_a_terminal_breaks_wide_tables_and_shortens_no_name(width, number, monkeypatch, capsys):
    """Nothing of the columns that tell rows apart is lost; at 40 the keys alone are wider: one column each."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["datasets", "fb15k237", "wn18rr"]) == 0
    text = capsys.readouterr().out
    blocks = [block for block in text.split("\n\n") if "fb15k237" in block]
    assert len(blocks) == number
    for block in blocks:
        for name in ("fb15k237", "wn18rr"):
            assert re.search(rf"(?m)^{name} +test +both +all +train\+valid\+test", block)
    for head in ("dataset", "entities_known", "relations", "tasks", "distinct", "min", "mean", "max"):
        assert re.search(rf"\b{head}\b", text)
