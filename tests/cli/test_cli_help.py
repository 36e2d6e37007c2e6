"""Help, version, completion and hints: there at once, and about the command that was meant."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from scripts import forked
from torchrankmetrics.cli.app import app

COMMANDS = ["report", "compare", "study", "verify", "adjust", "datasets", "metrics"]
HEAVY = ("torch", "numpy", "scipy", "rich", "tqdm")


def run_module(arguments, **environment):
    command = [sys.executable, "-m", "torchrankmetrics", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80", **environment}
    )


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


def test_shells_complete_commands_options_and_formats():
    first = run_module([], _TORCHRANKMETRICS_COMPLETE="complete_bash", COMP_WORDS="torchrankmetrics c", COMP_CWORD="1")
    assert first.stdout.split() == ["compare"]
    words = {"COMP_WORDS": "torchrankmetrics report --fo", "COMP_CWORD": "2"}
    assert run_module([], _TORCHRANKMETRICS_COMPLETE="complete_bash", **words).stdout.split() == ["--format"]
    of_zsh = {"_TYPER_COMPLETE_ARGS": "torchrankmetrics report -f "}
    assert '"latex"' in run_module([], _TORCHRANKMETRICS_COMPLETE="complete_zsh", **of_zsh).stdout


TERMINAL = """
import os, pty, sys
child, terminal = pty.fork()
if not child:
    sys.stdout, sys.stderr = (os.fdopen(to, "w", closefd=False) for to in (1, 2))
    exec(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)
try:
    while text := os.read(terminal, 65536):
        sys.stdout.write(text.decode())
except OSError:  # it is closed
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_terminal_breaks_wide_tables_and_shortens_no_name(tmp_path):
    """On a real terminal: nothing of the columns that tell rows apart is lost, whatever its width."""
    pytest.importorskip("pty")
    blocks_of = {"40": 7, "80": 3, "200": 1}  # at 40 the keys alone are wider: one column each
    code = f"""
import os
from torchrankmetrics.cli import main
for os.environ["COLUMNS"] in {list(blocks_of)!r}:
    main(["datasets", "fb15k237", "wn18rr"])
    print("-- end --")
"""
    result = forked("-c", TERMINAL, code, cwd=tmp_path, environment={"TERM": "dumb"})
    assert result.returncode == 0, result.stdout
    texts = result.stdout.replace("\r\n", "\n").split("-- end --\n")
    for text, number in zip(texts, [*blocks_of.values(), 0], strict=True):
        blocks = [block for block in text.split("\n\n") if "fb15k237" in block]
        assert len(blocks) == number
        for block in blocks:
            assert re.search(r"(?m)^fb15k237 +test +both +all +train\+valid\+test", block)
            assert re.search(r"(?m)^wn18rr +test +both +all +train\+valid\+test", block)
        for head in ("dataset", "entities_known", "relations", "tasks", "distinct", "min", "mean", "max"):
            assert bool(re.search(rf"\b{head}\b", text)) == bool(number)
