"""Imports between packages point one way, and a name loads no more than it needs."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from scripts import forked

PACKAGE = Path(__file__).parents[2] / "src" / "torchrankmetrics"
FILES = sorted(PACKAGE.rglob("*.py"))
EXTRAS = ("pytorch_lightning", "lightning", "pykeen", "matplotlib", "numba", "pyarrow", "sklearn", "pandas", "typer")
# A package imports only packages of earlier lines. The companions come last: the core never imports them.
LAYERS = [
    {"validation", "eager", "version"},
    {"errors", "files"},
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
    "typer": {"cli"},
    "rich": set(),
}
# files of the package that the definition of a public name imports, directly or not
CLOSURES = {
    ("ranking/scores.py", "rank_scores"): 12,
    ("kg/known_triples.py", "KnownTriples"): 6,
    ("kg/triples.py", "rank_triples"): 34,
    ("metrics/metric.py", "RankMetric"): 27,
    ("metrics/collection.py", "RankCollection"): 28,
    ("inference/compare.py", "compare"): 39,
}


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imported(path: Path, scope: str = "anywhere") -> frozenset[str]:
    """Modules that a file imports: ``anywhere``, ``at_runtime`` (not for type checkers), or ``on_import``."""
    nodes = nodes_of(path)
    left_out = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    if scope == "on_import":
        left_out += [node for node in nodes if isinstance(node, ast.FunctionDef)]
    skipped = {id(inner) for node in left_out for inner in ast.walk(node)} if scope != "anywhere" else set()
    names: set[str] = set()
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            submodules = {name for alias in node.names if (name := f"{node.module}.{alias.name}") in MODULES}
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
            later = module in imported(path, "on_import") and other != own and level[other] >= level[own]
            if later or level[own] < level["sequential"] <= level[other]:  # the core never imports companions
                wrong.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert not wrong


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    wrong = [path for path in FILES if any(f"{name}.".startswith(f"{library}.") for name in imported(path))]
    assert {package_of(path) for path in wrong} <= LIBRARIES[library]


def test_no_files_import_each_other_in_a_cycle() -> None:
    TopologicalSorter({name: imported(path, "at_runtime") & MODULES.keys() for name, path in MODULES.items()}).prepare()


@pytest.mark.parametrize(("file", "name"), CLOSURES)
def test_a_name_loads_few_files(file: str, name: str) -> None:
    reached, todo = set(), [module_of(PACKAGE / file)]
    assert re.search(rf"^(class|def) {name}\b", (PACKAGE / file).read_text(), re.MULTILINE)
    while todo:
        module = todo.pop()
        reached.add(module)
        todo += imported(MODULES[module], "on_import") & MODULES.keys() - reached
    assert len(reached) <= CLOSURES[file, name]


def test_the_first_adjusted_metric_loads_few_files() -> None:
    code = """
import sys, torch, torchrankmetrics
ranks = torchrankmetrics.RankCollection(["mrr", "adjusted_mrr"])
ranks.update(torch.eye(3), torch.arange(3))
assert ranks.compute()["adjusted_mrr"] == 1
print(sum(name.partition(".")[0] == "torchrankmetrics" for name in sys.modules))
"""
    result = forked("-c", code, cwd=PACKAGE, anew=["torchrankmetrics"])
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) <= 37


def test_no_file_imports_a_private_name_of_another() -> None:
    private = []
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("torchrankmetrics."):
                private += [f"{path.name}: {one.name}" for one in node.names if re.match("_[^_]", one.name)]
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
    assert result.stdout.splitlines() == ["1.0 1.5", "plots need matplotlib: pip install 'torchrankmetrics[plot]'"]
