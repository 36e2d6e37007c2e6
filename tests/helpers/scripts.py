"""Scripts of this repository as people meet them: run in a process of their own, or loaded by their path."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run_script(*command: str | Path, cwd: Path = ROOT) -> str:
    """What ``python`` prints; the end of its errors if it fails."""
    result = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False, cwd=cwd)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def load_script(path: Path) -> ModuleType:
    """The module, which is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where NamedTuple and dataclass look for their annotations
    spec.loader.exec_module(module)
    return module
