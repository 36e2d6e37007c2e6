"""What a user installs: sdist and wheel are complete, and the wheel works with its dependencies alone."""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
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
import importlib.util, torch, torchrankmetrics as trm
for name in ("matplotlib", "pytorch_lightning", "lightning", "pykeen", "numba", "sklearn", "typer", "pandas"):
    assert importlib.util.find_spec(name) is None, name
collection = trm.RankCollection(["mrr", "amri", "p_mr"])
collection.update(torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 2]))
print({key: round(value.item(), 6) for key, value in collection.compute().items()})
print(trm.evaluate([1, 2, 5], num_candidates=9, metrics=["mr"])["mr"])
print(trm.adjust("0.355", "mrr", "fb15k237"))  # from a data file
from torchrankmetrics import plots
from torchrankmetrics.integrations import lightning
try:
    plots.rank_ecdf(trm.Ranks([1], None, 9))
except ImportError as error:
    print(error)
print(trm.__version__, trm.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


def dependencies(names: list[str]) -> set[str]:
    """The distributions that ``pip install`` without extras brings, as far as they are installed here."""
    found: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        if name not in found:
            found.add(name)
            parsed = [Requirement(line) for line in requires]
            names += [one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


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


@pytest.mark.slow
def test_wheel_runs_with_its_dependencies_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    _, wheel = built
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    here = Path(sysconfig.get_path("purelib"))
    tops = {
        Path(file).parts[0]
        for name in dependencies([Requirement(line).name for line in PROJECT["dependencies"]])
        for file in importlib.metadata.files(name) or []
    }
    for top in tops - {"..", "__pycache__"}:  # linked, not installed again: torch alone is hundreds of megabytes
        if (here / top).exists():
            (site / top).symlink_to(here / top)
    with zipfile.ZipFile(wheel) as archive:  # a pure wheel is installed by unpacking it
        archive.extractall(site)
    *values, error, where = run(python, "-c", SMOKE, cwd=tmp_path).splitlines()
    assert values == ["{'mrr': 0.75, 'amri': 0.5, 'p_mr': 0.333333}", "2.6666666666666665", "0.3545 [0.3540, 0.3550]"]
    assert error == "plots need matplotlib: pip install 'torchrankmetrics[plot]'"
    version, path = where.split(" ", 1)
    assert Path(path).is_relative_to(site)
    assert wheel.name == f"torchrankmetrics-{version}-py3-none-any.whl"


def test_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"torchrankmetrics"}
    assert "torchrankmetrics/py.typed" in names
    package = ROOT / "src" / "torchrankmetrics"
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in files if "__pycache__" not in name} <= names
    core = [line for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) if "extra ==" not in line]
    assert {Requirement(line) for line in core} == {Requirement(line) for line in PROJECT["dependencies"]}


def test_sdist_contains_the_files_of_tests_and_pages(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"conftest.py", "LICENSE", "README.md", "Makefile", "docs/conf.py", "docs/images/ecdf.png"} <= names
    assert {"tests/helpers/reference.py", "examples/quickstart.py", "benchmarks/results/comparable.json"} <= names
    assert not any(name.startswith(("docs/_build", "logs")) for name in names)
