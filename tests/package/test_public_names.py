"""What an editor shows: every public name completes and has a docstring; a wrong one is known to be wrong."""

import importlib
import inspect
import re
import rlcompleter
from collections.abc import Iterator

import pytest

import torchrankmetrics
from scripts import ROOT, forked
from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.metrics.registry import all_names, as_measure

NAMES = [name for name in torchrankmetrics.__all__ if name != "__version__"]
MODULES = (
    *("audit", "datasets", "definitions", "inference", "kg", "null"),
    *("plots", "queries", "ranking", "sequential", "study"),
)
QUIET = """
import warnings
warnings.simplefilter("error")
import torch, torchmetrics, torchrankmetrics as trm
assert all(hasattr(trm, name) for name in trm.__all__)
mixed = torchmetrics.MetricCollection([trm.HitsAtK(1), trm.MeanReciprocalRank()])
mixed.update(torch.eye(3), torch.arange(3))
assert set(map(float, mixed.compute().values())) == {1.0}
ranks = trm.RankCollection()
ranks.update(torch.eye(14).repeat(3, 1), torch.arange(42) % 14)
ranks.summary(), ranks.clone().compute()
"""


def public(kind: type) -> Iterator[str]:
    return (name for name, member in vars(kind).items() if callable(member) and not name.startswith("_"))


def test_every_public_name_completes() -> None:
    completer = rlcompleter.Completer({"trm": torchrankmetrics})
    found = set()
    while completion := completer.complete("trm.", len(found)):
        found.add(completion.removeprefix("trm.").rstrip("()"))
    assert set(NAMES) <= found


@pytest.mark.parametrize("name", NAMES)
def test_public_names_and_their_methods_have_docstrings(name: str) -> None:
    value = getattr(torchrankmetrics, name)
    assert vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    if inspect.isclass(value):
        assert all(inspect.getdoc(getattr(value, member)) for member in public(value))


def test_the_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    listed = re.findall(r"^   ([A-Za-z][\w.]*)$", page, re.MULTILINE)
    assert len(set(listed)) == len(listed)
    for path in listed:
        *parents, name = f"torchrankmetrics.{path}".split(".")
        owner = ".".join(parents)
        assert hasattr(importlib.import_module(owner), name), path
    documented = {*listed, *re.findall(r"`(\w+)`", page)}
    public_names = {name for name in NAMES if name not in {*MODULES, "integrations"}}
    for module in MODULES:
        own = importlib.import_module(f"torchrankmetrics.{module}").__all__
        public_names |= {f"{module}.{name}" for name in own if not {name, f"{module}.{name}"} & documented}
    assert public_names <= documented, public_names - documented


def test_the_page_of_metrics_has_every_name_with_its_direction_and_views() -> None:
    rows, expected = {}, {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if len(cells := line.strip("| ").split(" | ")) == 7:
            rows |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), (cells[3], cells[4]))
    for name in all_names():
        measure = as_measure(name.replace("<k>", "10").replace("<p>", "2"))
        views = "".join(view[0] for view, one in zip(VIEWS, measure.with_views(*VIEWS), strict=True) if one)
        expected[name] = {True: "higher", False: "lower", None: "none"}[measure.higher_is_better], views
    assert rows == expected


@pytest.mark.parametrize("name", MODULES)
def test_names_of_public_modules_complete_and_have_docstrings(name: str) -> None:
    module = importlib.import_module(f"torchrankmetrics.{name}")
    assert set(module.__all__) <= set(dir(module))
    for public_name in module.__all__:
        value = getattr(module, public_name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, public_name
        if inspect.isclass(value):
            assert all(inspect.getdoc(getattr(value, member)) for member in public(value)), public_name


def test_nothing_warns_when_every_warning_is_an_error() -> None:
    result = forked("-c", QUIET, cwd=ROOT, anew=["torchrankmetrics"])
    assert result.returncode == 0, result.stderr[-2000:]
