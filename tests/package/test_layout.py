"""Imports point one way, and the core needs no extra."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from scripts import forked

PACKAGE = Path(__file__).parents[2] / "src" / "torchrankmetrics"
EXTRAS = ("pytorch_lightning", "lightning", "pykeen", "matplotlib", "numba", "pyarrow", "sklearn")
# every room with the rooms it may know, all of them; a room knows only rooms that stand before it
NEIGHBOURS: dict[str, set[str]] = {
    "errors": set(),
    "checks": set(),
    "digits": set(),
    "eager": set(),
    "files": set(),
    "sides": set(),
    "version": set(),
    "rendering": {"digits"},
    "theory": {"checks"},
    "definitions": {"theory"},
    "ranking": {"checks", "eager", "errors"},
    "table": {"checks", "files", "ranking", "sides"},
    "datasets": {"checks", "sides", "theory"},
    "evaluation": {
        "checks",
        "datasets",
        "digits",
        "eager",
        "errors",
        "ranking",
        "rendering",
        "sides",
        "table",
        "theory",
    },
    "protocols": {
        "checks",
        "datasets",
        "errors",
        "evaluation",
        "files",
        "ranking",
        "rendering",
        "sides",
        "table",
        "theory",
    },
    "deciding": {"checks", "evaluation", "protocols", "ranking", "sides", "table", "theory"},
    "inference": {"evaluation", "theory"},
    "metrics": {"checks", "eager", "errors", "evaluation", "ranking", "sides", "table", "theory"},
    "plots": {"checks", "evaluation", "sides", "theory"},
    "study": {
        "checks",
        "datasets",
        "errors",
        "evaluation",
        "files",
        "plots",
        "protocols",
        "ranking",
        "rendering",
        "sides",
        "table",
        "theory",
        "version",
    },
    "api": {
        "datasets",
        "deciding",
        "errors",
        "evaluation",
        "metrics",
        "protocols",
        "ranking",
        "study",
        "theory",
    },
    "__init__": {"api", "version"},
    "integrations": {"checks", "errors", "evaluation", "metrics", "protocols", "ranking", "table", "theory"},
    "audit": {"checks", "evaluation", "ranking", "theory"},
    "cli": {
        "audit",
        "checks",
        "datasets",
        "errors",
        "evaluation",
        "files",
        "protocols",
        "rendering",
        "sides",
        "study",
        "table",
        "theory",
        "version",
    },
    "__main__": {"cli"},
}
# what a room looks up when somebody asks: the names of the package
LOOKED_UP = {"__init__": "torchrankmetrics.api"}
# what is not everybody's: who may import it
GUESTS = {
    "torchmetrics": {"metrics", "integrations"},
    "numba": {"ranking"},
    "pyarrow": {"table"},
    "matplotlib": {"plots"},
    "pykeen": {"integrations"},
    "pytorch_lightning": {"integrations"},
    "lightning": {"integrations"},
    "sklearn": set(),
    "typer": {"cli"},
    "rich": {"cli"},
}


@cache
def imported(path: Path) -> set[str]:
    """What a file imports, for type checkers too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names.add(node.module or "")
    return names


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_room_is_told_of_and_knows_only_rooms_before_it() -> None:
    assert {room(path) for path in FILES} == set(NEIGHBOURS)
    before: set[str] = set()
    for name, known in NEIGHBOURS.items():
        assert known <= before, name
        before.add(name)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_room_imports_its_neighbours_and_no_others(name: str) -> None:
    used: set[str] = set()
    for path in FILES:
        if room(path) == name:
            modules = [module for module in imported(path) if f"{module}.".startswith("torchrankmetrics.")]
            used |= {(module.split(".") + ["__init__"])[1] for module in modules} - {name}
            for guest, hosts in GUESTS.items():
                there = [module for module in imported(path) if f"{module}.".startswith(f"{guest}.")]
                assert not there or name in hosts, f"{path.name} imports {guest}"
    assert used == NEIGHBOURS[name]


def test_no_files_import_each_other_in_a_circle() -> None:
    """But for names that only type checkers read."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        typed = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        apart = {id(inner) for node in typed for inner in ast.walk(node)}
        lines = [node for node in nodes if isinstance(node, ast.ImportFrom) and id(node) not in apart]
        taken = {f"{line.module}.{one.name}" for line in lines for one in line.names}
        graph[name] = (taken | {f"{line.module}" for line in lines}) & names.keys()
    TopologicalSorter(graph).prepare()  # names a circle where there is one


def test_no_file_imports_a_private_name_of_another() -> None:
    private = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("torchrankmetrics."):
                private += [f"{path.name}: {one.name}" for one in node.names if re.match("_[^_]", one.name)]
    assert not private


def test_what_is_no_candidate_has_one_word_and_one_polarity() -> None:
    others = r"_?(allowed|drop|dropped|keep|known|mask|restriction)(_|$)"
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())) if room(path) == "ranking" else ():
            name = node.arg if isinstance(node, ast.arg) else getattr(getattr(node, "target", None), "id", "")
            if re.match(others, name) and re.search("Tensor|Slices", ast.unparse(node)):
                found.append(f"{path.name}: {name}")
    assert not found


def test_what_is_looked_up_late_is_told_of() -> None:
    found = {}
    for path in FILES:
        for name in re.findall(r'import_module\("(torchrankmetrics[\w.]*)"\)', path.read_text()):
            found[room(path)] = name
    assert found == LOOKED_UP


def test_core_runs_without_extras() -> None:
    """A bare installation evaluates: extras are made unimportable (but matplotlib, which torchmetrics looks for)."""
    code = f"""
import sys
for name in {tuple(name for name in EXTRAS if name != "matplotlib")!r}:
    sys.modules[name] = None
import torch, torchrankmetrics as trm
metric = trm.RankCollection()
metric.update(torch.eye(3), torch.arange(3))
print(metric.compute()["mrr"].item(), trm.evaluate([1, 2], num_candidates=4)["mr"])
"""
    result = forked("-c", code, cwd=PACKAGE, anew=["torchrankmetrics", *EXTRAS])
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1.0", "1.5"]


def test_files_have_one_reason_to_exist() -> None:
    long = {path.name: lines for path in PACKAGE.rglob("*.py") if (lines := len(path.read_text().splitlines())) > 450}
    assert not long


def test_tests_stand_in_rooms_of_the_same_names() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= {path.name for path in Path(__file__).parents[1].iterdir()}


def test_no_two_files_share_a_name_that_says_nothing() -> None:
    names = Counter(path.stem for path in FILES)
    assert [name for name in ("views", "values", "intervals", "files") if names[name] > 1] == []
