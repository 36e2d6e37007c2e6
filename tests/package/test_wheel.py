"""What a user installs: sdist and wheel are complete, and the wheel works."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytest.importorskip("hatchling", reason="building needs the extra 'dev'")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SMOKE = """
import torch, torchrankmetrics as trm
collection = trm.RankCollection(["mrr", "amri", "p_mr"])
collection.update(torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 2]))
print({key: round(value.item(), 6) for key, value in collection.compute().items()})
print(trm.adjust("0.355", "mrr", "fb15k237"))  # from a data file
print(trm.__version__, trm.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of the tree, and the wheel of that sdist: what an index would hand out."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source")  # Python 3.11.3 and earlier have no filter=
    (source,) = (folder / "source").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_wheel_runs_from_where_it_is_unpacked(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Without extras: test_core_runs_without_extras."""
    with zipfile.ZipFile(built[1]) as archive:  # a pure wheel is installed by unpacking it
        archive.extractall(tmp_path)
    *values, where = run(sys.executable, "-c", SMOKE, cwd=tmp_path).splitlines()
    assert values == ["{'mrr': 0.75, 'amri': 0.5, 'p_mr': 0.333333}", "0.3545 [0.3540, 0.3550]"]
    version, path = where.split(" ", 1)
    assert Path(path).is_relative_to(tmp_path)
    assert built[1].name == f"torchrankmetrics-{version}-py3-none-any.whl"


def test_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"torchrankmetrics"}
    assert "torchrankmetrics/py.typed" in names
    files = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= names
    core = [line for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) if "extra ==" not in line]
    assert {Requirement(line) for line in core} == {Requirement(line) for line in PROJECT["dependencies"]}


def test_sdist_contains_the_files_of_tests_and_pages(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"conftest.py", "LICENSE", "README.md", "Makefile", "docs/conf.py", "docs/images/ecdf.png"} <= names
    assert {"tests/helpers/reference.py", "examples/quickstart.py", "benchmarks/results/comparable.json"} <= names
    assert not any(name.startswith(("docs/_build", "logs")) for name in names)
