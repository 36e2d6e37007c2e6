"""What a user installs and imports.

Imports point one way, names load no more than they need, the wheel is complete.
"""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts import ROOT, forked

PACKAGE = ROOT / "src" / "torchrankmetrics"
FILES = sorted(PACKAGE.rglob("*.py"))
EXTRAS = (
    "pytorch_lightning",
    "lightning",
    "pykeen",
    "matplotlib",
    "numba",
    "pyarrow",
    "sklearn",
    "pandas",
    "click",
)
# A package imports only packages of earlier lines. The companions come last: the core never imports
# them.
LAYERS = [
    {"validation", "version"},
    {"errors", "decorators", "files", "parsing"},
    {"rendering", "definitions"},
    {"null", "ranking"},
    {"queries"},
    {"datasets", "table"},
    {"metrics"},
    {"inference"},
    {"kg"},
    {"sequential", "plots", "integrations"},
    {"study", "audit"},
    {"cli"},
    {"__init__", "__main__"},
]
# optional and heavy libraries, and the packages that may import them
LIBRARIES = {
    "torchmetrics": {"metrics", "integrations"},
    "numba": {"ranking"},
    "pyarrow": {"table"},
    "matplotlib": {"plots"},
    "pykeen": {"integrations"},
    "pytorch_lightning": {"integrations"},
    "lightning": {"integrations"},
    "sklearn": set(),
    "click": {"cli"},
    "rich": set(),
}
# files of the package that the definition of a public name imports, directly or not
CLOSURES = {
    ("ranking/ranks.py", "rank_scores"): 8,
    ("kg/known_triples.py", "KnownTriples"): 8,
    ("kg/triples.py", "rank_triples"): 35,
    ("metrics/metric.py", "RankMetric"): 26,
    ("metrics/collection.py", "RankCollection"): 28,
    ("inference/compare.py", "compare"): 38,
}


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {module_of(path): path for path in FILES}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imported(path: Path, scope: str = "anywhere") -> frozenset[str]:
    """Imports of a file: ``anywhere``, ``at_runtime`` (not for type checkers) or ``on_import``."""
    nodes = nodes_of(path)
    left_out = [
        node
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    if scope == "on_import":
        left_out += [node for node in nodes if isinstance(node, ast.FunctionDef)]
    skipped = (
        {id(inner) for node in left_out for inner in ast.walk(node)}
        if scope != "anywhere"
        else set()
    )
    names: set[str] = set()
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            submodules = {
                name for alias in node.names if (name := f"{node.module}.{alias.name}") in MODULES
            }
            names |= submodules or {f"{node.module}"}
    return frozenset(names)


def test_packages_import_only_packages_of_earlier_layers() -> None:
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    assert {package_of(path) for path in FILES} == set(level)
    wrong = []
    for path in FILES:
        own = package_of(path)
        for module in imported(path) & MODULES.keys() - {"torchrankmetrics"}:
            other = module.split(".")[1]
            later = (
                module in imported(path, "on_import")
                and other != own
                and level[other] >= level[own]
            )
            # the core never imports companions
            if later or level[own] < level["sequential"] <= level[other]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert not wrong
    # and no files import each other in a cycle
    TopologicalSorter(
        {name: imported(path, "at_runtime") & MODULES.keys() for name, path in MODULES.items()}
    ).prepare()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    wrong = [
        path
        for path in FILES
        if any(f"{name}.".startswith(f"{library}.") for name in imported(path))
    ]
    assert {package_of(path) for path in wrong} <= LIBRARIES[library]


@pytest.mark.parametrize(("file", "name"), CLOSURES)
def test_a_name_loads_few_files(file: str, name: str) -> None:
    reached, todo = set(), [module_of(PACKAGE / file)]
    assert re.search(rf"^(class|def) {name}\b", (PACKAGE / file).read_text(), re.MULTILINE)
    while todo:
        module = todo.pop()
        reached.add(module)
        todo += imported(MODULES[module], "on_import") & MODULES.keys() - reached
    assert len(reached) <= CLOSURES[file, name]


def test_the_first_adjusted_metric_loads_few_files_and_the_second_executes_fewer() -> None:
    code = """
import sys, torch, torchrankmetrics
ranks, executed = torchrankmetrics.RankCollection(["mrr", "adjusted_mrr"]), set()

def adjusted():
    ranks.reset()
    ranks.update(torch.eye(3), torch.arange(3))
    assert ranks.compute()["adjusted_mrr"] == 1

adjusted()
print(sum(name.partition(".")[0] == "torchrankmetrics" for name in sys.modules))
sys.setprofile(lambda frame, *about: executed.add(frame.f_code.co_filename))
adjusted()
sys.setprofile(None)
print(sum("torchrankmetrics" in name for name in executed))
"""
    result = forked("-c", code, cwd=PACKAGE, anew=["torchrankmetrics"])
    assert result.returncode == 0, result.stderr
    loaded, executed = map(int, result.stdout.split())
    assert loaded <= 40
    assert executed <= 20


def test_no_file_imports_a_private_name_of_another() -> None:
    private = []
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(
                "torchrankmetrics."
            ):
                private += [
                    f"{path.name}: {one.name}" for one in node.names if re.match("_[^_]", one.name)
                ]
    assert not private


@pytest.mark.slow
def test_core_runs_without_extras() -> None:
    """Extras are made unimportable, except matplotlib, for which torchmetrics looks itself."""
    code = f"""
import sys
for name in {tuple(name for name in EXTRAS if name != "matplotlib")!r}:
    sys.modules[name] = None
import torch, torchrankmetrics as trm
metric = trm.RankCollection()
metric.update(torch.eye(3), torch.arange(3))
print(metric.compute()["mrr"].item(), trm.evaluate([1, 2], num_candidates=4)["mr"])
sys.modules["matplotlib.pyplot"] = None
from torchrankmetrics import plots
try:
    plots.rank_ecdf(trm.Ranks([1], None, 9))
except ImportError as error:
    print(error)
"""
    result = forked("-c", code, cwd=PACKAGE, anew=["torchrankmetrics", *EXTRAS])
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "1.0 1.5",
        "a plot needs matplotlib: pip install 'torchrankmetrics[plot]'",
    ]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SMOKE = """
import torch, torchrankmetrics as trm
collection = trm.RankCollection(["mrr", "amri", "p_mr"])
scores, target = torch.tensor([[0.3, 0.9, 0.1], [0.8, 0.2, 0.5]]), torch.tensor([1, 2])
collection.update(scores, target, backend="torch")  # Numba would compile for 20 s
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
    pytest.importorskip("hatchling", reason="building needs the extra 'dev'")
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
def test_wheel_runs_from_where_it_is_unpacked(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Without extras: test_core_runs_without_extras."""
    with zipfile.ZipFile(built[1]) as archive:  # a pure wheel is installed by unpacking it
        archive.extractall(tmp_path)
    *values, where = run(sys.executable, "-c", SMOKE, cwd=tmp_path).splitlines()
    assert values == [
        "{'mrr': 0.75, 'amri': 0.5, 'p_mr': 0.333333}",
        "0.3545 (rounding: 0.3540 to 0.3550)",
    ]
    version, path = where.split(" ", 1)
    assert Path(path).is_relative_to(tmp_path)
    assert built[1].name == f"torchrankmetrics-{version}-py3-none-any.whl"


def test_wheel_holds_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"torchrankmetrics"}
    assert "torchrankmetrics/py.typed" in names
    files = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file()
    }
    assert {name for name in files if "__pycache__" not in name} <= names
    core = [
        line
        for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
        if "extra ==" not in line
    ]
    assert {Requirement(line) for line in core} == {
        Requirement(line) for line in PROJECT["dependencies"]
    }


def test_sdist_contains_the_files_of_tests_and_pages(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "conftest.py",
        "LICENSE",
        "README.md",
        "Makefile",
        "docs/conf.py",
        "docs/images/ecdf.png",
    } <= names
    assert {
        "tests/helpers/reference.py",
        "examples/quickstart.py",
        "benchmarks/results/comparable.json",
    } <= names
    assert not any(name.startswith(("docs/_build", "logs")) for name in names)
