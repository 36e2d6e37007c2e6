"""What CI jobs need: JSON that follows its schema, exit codes of --fail-if and --fail-under, read-only file systems."""

import json
import re
from pathlib import Path

import pytest

from command_line import table_of
from scripts import forked
from torchrankmetrics import Ranks, RankTable
from torchrankmetrics.cli import main

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}
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
    assert any(isinstance(value, TYPES[kind]) for kind in ([kinds] if isinstance(kinds, str) else kinds)), value
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
        RankTable.from_ranks(Ranks([rank, rank + 1] * 20, None, 50), sample_id=range(40)).save(f"{name}.npz")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("compare bad.npz good.npz --fail-if worse", "a is significantly worse than b in mrr: a - b = -0.4583 ["),
        ("compare bad.npz good.npz -m mr,mrr --fail-if worse", "b in mr: a - b = +2.0000 [+2.0000, +2.0000]; a is"),
        ("compare good.npz bad.npz -m mrr,mr --fail-if worse", None),
        ("compare good.npz same.npz --fail-if not-better", "a is not significantly better than b in mrr"),
        ("compare good.npz bad.npz --fail-if not-equivalent --margin 0.1", "a is not shown to be equivalent to b in"),
        ("report good.npz --fail-under mrr=0.7,amri=0.5", None),
        ("report good.npz bad.npz -m mr --fail-under mrr=0.5,hits@1=.4", "mrr is 0.291667, below 0.5; bad.npz: hits"),
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
    if event in ("open", "os.mkdir", "os.rename", "os.remove") and writes and arguments[0] != os.devnull:
        raise OSError(errno.EROFS, "Read-only file system", arguments[0])
sys.addaudithook(refuse)
from torchrankmetrics.cli import main
for command in sys.argv[1:]:
    print(main(command.split()))
"""


def test_commands_that_do_not_draw_need_no_writable_path(cli_folder):
    commands = ["report a.npz -m mrr", "compare a.npz b.npz", "study {model}.npz -m mrr"]
    Path("plain.npz").unlink()
    result = forked("-c", READ_ONLY, *commands, cwd=cli_folder, anew=["torchrankmetrics", "torchmetrics", "matplotlib"])
    assert [line for line in result.stdout.splitlines() if re.fullmatch(r"\d", line)] == ["0", "0", "0"], result.stderr
