"""Run scripts of this repository in a process, or load them by their path."""

import gc
import importlib.util
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from worker_pool import server

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def fork_script(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a script prints, forked after the import of torch; the end of its errors if it fails."""
    result = forked(*command, cwd=cwd)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def forked(
    *command: str | Path,
    cwd: Path,
    stdin: Path = Path(os.devnull),
    environment: dict[str, str] | None = None,
    anew: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Fork a script, ``-m`` module or ``-c`` code, with arguments, from the server of the pools.

    Packages of ``anew`` count as not imported yet, for tests of their import.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [str(stdin.absolute()), str(Path(folder, "out")), str(Path(folder, "err"))]
        given = [str(word) for word in command], str(cwd), files, environment or {}, anew
        process = server().Process(target=_run, args=given)
        process.start()
        process.join()
        out, err = (Path(file).read_text() for file in files[1:])
    return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _run(
    command: list[str], cwd: str, files: list[str], environment: dict[str, str], anew: Sequence[str]
) -> None:
    gc.freeze()  # what the server has imported is shared and stays
    os.environ |= environment
    for to, file in enumerate(files):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT if to else os.O_RDONLY, 0o600), to)
    # the server's own are those of its parent: not read, not in UTF-8
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    written = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdout, sys.stderr = (os.fdopen(to, "w", encoding=written, closefd=False) for to in (1, 2))
    os.chdir(cwd)
    for name in [name for name in sys.modules if name.partition(".")[0] in anew]:
        del sys.modules[name]
    if command[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *command[2:]], cwd
        exec(command[1], {"__name__": "__main__"})
    elif command[0] == "-m":
        sys.argv, sys.path[0] = command[1:], cwd
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where NamedTuple and dataclass look for their annotations
    spec.loader.exec_module(module)
    return module
