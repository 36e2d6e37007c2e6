"""Public names: completion, reference, docstrings, signatures; one row per metric in the docs."""

import doctest
import importlib
import inspect
import pickle
import re
import rlcompleter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import torchrankmetrics
from public_metrics import METRIC_CLASSES
from scripts import ROOT, forked
from torchrankmetrics import HitsAtK, RankMetric
from torchrankmetrics.definitions.protocol import VIEWS
from torchrankmetrics.metrics.named import _HOST_OPTIONS, NamedMetric
from torchrankmetrics.metrics.names import as_measure
from torchrankmetrics.metrics.registry import all_names
from torchrankmetrics.null.expectation.exact import DEFAULT_EXPECTATION

NAMES = {name for name in torchrankmetrics.__all__ if name != "__version__"}
MODULES = {"audit", "datasets", "definitions", "inference", "kg", "null"}
MODULES |= {"plots", "queries", "ranking", "sequential", "study"}
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
PATHS = re.findall(r"^   ([A-Za-z][\w.]*)$", REFERENCE, re.MULTILINE)
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


def test_every_public_name_completes() -> None:
    completer = rlcompleter.Completer({"trm": torchrankmetrics})
    found: set[str] = set()
    while completion := completer.complete("trm.", len(found)):
        found.add(completion.removeprefix("trm.").rstrip("()"))
    assert found >= NAMES


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_public_name_of_a_module_is_in_its_dir(name: str) -> None:
    module = importlib.import_module(f"torchrankmetrics.{name}")
    assert set(module.__all__) <= set(dir(module))


def test_the_reference_has_every_public_name() -> None:
    assert len(set(PATHS)) == len(PATHS)
    constants = re.findall(r"\b[A-Z][A-Z_]+\b", REFERENCE)
    documented = {*PATHS, *re.findall(r"`(\w+)`", REFERENCE), *constants}
    public_names = NAMES - MODULES - {"integrations"}
    for module in MODULES:
        own = importlib.import_module(f"torchrankmetrics.{module}").__all__
        public_names |= {
            f"{module}.{name}" for name in own if not {name, f"{module}.{name}"} & documented
        }
    assert public_names <= documented, public_names - documented


def test_the_page_of_metrics_has_every_name_with_its_direction_and_views() -> None:
    rows, expected = {}, {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if len(cells := line.strip("| ").split(" | ")) == 7:
            rows |= dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), (cells[3], cells[4]))
    for name in all_names():
        measure = as_measure(name.replace("<k>", "10").replace("<p>", "2"))
        views = "".join(
            view[0] for view, one in zip(VIEWS, measure.with_views(*VIEWS), strict=True) if one
        )
        expected[name] = (
            {True: "higher", False: "lower", None: "none"}[measure.higher_is_better],
            views,
        )
    assert rows == expected


def test_nothing_warns_when_every_warning_is_an_error() -> None:
    result = forked("-c", QUIET, cwd=ROOT, anew=["torchrankmetrics"])
    assert result.returncode == 0, result.stderr[-2000:]


def public(path: str) -> Any:
    *parents, name = f"torchrankmetrics.{path}".split(".")
    return getattr(importlib.import_module(".".join(parents)), name)


def documented(path: str) -> Iterator[tuple[str, Any]]:
    """A function; or a class and its methods, except overrides, which share a base's docstring."""
    value = public(path)
    if inspect.isclass(value) or inspect.isroutine(value):
        yield path, value
    if inspect.isclass(value):
        for name, member in vars(value).items():
            method = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            inherited = any(name in vars(base) for base in value.__mro__[1:])
            if inspect.isfunction(method) and not name.startswith("_") and not inherited:
                yield f"{path}.{name}", method


@pytest.mark.parametrize(
    "path", [path for path in PATHS if path not in ("RankMetricError", "RankMetricWarning")]
)
def test_docstrings_are_complete(path: str) -> None:
    for name, value in documented(path):
        text = inspect.getdoc(value) or ""
        assert re.match(r"[^\n]+\.(\n|$)", text), f"{name}: the first line is one sentence"
        if name.count(".") > 1 or getattr(value, "_is_protocol", False):
            continue  # not built by users
        for parameter in set(inspect.signature(value).parameters) - {"self", "cls"}:
            entry = re.search(
                rf"^ +(\**\w+, )*\**{parameter}(, \**\w+)* \((.+?)\):", text, re.MULTILINE
            )
            assert entry, f"{name}: {parameter} has no entry 'name (type, default)'"
        if inspect.isroutine(value) and inspect.signature(value).return_annotation not in (
            None,
            "None",
        ):
            assert re.search(r"^(Returns:|Yields:|Return )", text, re.MULTILINE) or text.startswith(
                "Yield"
            ), name


def test_every_function_and_class_has_an_example_and_constants_are_in_one() -> None:
    texts = {path: inspect.getdoc(public(path)) or "" for path in PATHS}
    examples = "\n".join(line for text in texts.values() for line in text.splitlines())
    for path, text in texts.items():
        value, name = public(path), path.rpartition(".")[2]
        if inspect.isclass(value) or inspect.isroutine(value):
            assert ">>> " in text, path
        else:
            assert re.search(rf"^(>>>|\.\.\.) .*\b{name}\b", examples, re.MULTILINE), path
    assert torchrankmetrics.__doc__


@pytest.mark.parametrize("module", ["definitions", "queries"])
def test_the_reference_evaluates_every_constant_in_an_example(module) -> None:
    examples = doctest.DocTestParser().get_examples(REFERENCE)
    calls = "".join(one.source for one in examples if not one.source.startswith("from "))
    for name in importlib.import_module(f"torchrankmetrics.{module}").__all__:
        value = public(f"{module}.{name}")
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            assert re.search(rf"\b{name}\b", calls), name


def public_callables() -> Iterator[tuple[str, Any]]:
    for path in PATHS:
        value = public(path)
        yield path, value
        if inspect.isclass(value):
            names = [name for name in dir(value) if not name.startswith("_")]
            yield from ((f"{path}.{name}", getattr(value, name)) for name in names)


def test_signatures_in_help_are_short() -> None:
    lengths = {}
    for path, value in public_callables():
        module = str(getattr(value, "__module__", ""))
        if callable(value) and module.startswith("torchrankmetrics"):
            with suppress(ValueError):  # of a subclass of dict or Warning
                lengths[path] = len(str(inspect.signature(value)))
    for path in ("rank_scores", "RankCollection", "RankCollection.update", "RankMetric"):
        assert lengths[path] < 600, path
    most = max(lengths, key=lengths.__getitem__)
    assert lengths[most] < 900, most


def test_entries_of_arguments_do_not_only_name_another_function() -> None:
    for path, value in public_callables():
        text = inspect.getdoc(value) or "" if callable(value) else ""
        chains = re.findall(
            r"^ +\*{0,2}\w.*\):\s+(?:as in|as for|likewise|see) .*|.*like the next.*",
            text,
            re.MULTILINE,
        )
        assert not chains, (path, chains)


every_class = pytest.mark.parametrize("kind", METRIC_CLASSES, ids=lambda kind: kind.__name__)


@every_class
def test_the_help_of_a_metric_class_has_input_output_and_an_example(kind: type[RankMetric]) -> None:
    rest = (inspect.getdoc(kind) or "").split("As input to ``update`` the metric accepts:\n")[1]
    outputs, example = rest.split("As output of ``compute`` the metric returns:\n")[1].split(
        "Example:\n"
    )
    assert "value (Tensor): 0-d float64" in outputs
    assert f">>> from torchrankmetrics import {kind.__name__}\n" in example


@every_class
def test_the_signature_of_a_metric_class_has_all_arguments_that_it_accepts(
    kind: type[RankMetric],
) -> None:
    parameters = inspect.signature(kind).parameters
    assert all(
        one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) for one in parameters.values()
    )
    number = {name: 3 for name, one in parameters.items() if one.default is one.empty}
    given = {name: one.default for name, one in parameters.items()} | number
    assert kind(**given).key == kind(**number).key
    wanted = {*list(inspect.signature(RankMetric).parameters)[1:-1], *_HOST_OPTIONS}
    assert parameters.keys() - {"k", "p"} <= wanted
    other = {
        "view": "normalized",
        "rank_type": "optimistic",
        "side": "tail",
        "average": "macro",
        "storage": "counts",
        "empty_queries": "zero",
    }
    other |= {"expectation": DEFAULT_EXPECTATION, "process_group": None, "dist_sync_fn": print}
    other |= {"distributed_available_fn": bool}
    for name in wanted - parameters.keys():
        with pytest.raises(ValueError, match=f"but {name}="):
            kind(**number, **{name: "base"})
    for name in wanted & parameters.keys():
        if not (name == "view" and kind(**number).higher_is_better is None):
            assert kind(**number, **{name: other.get(name, True)}).key
    with pytest.raises((TypeError, ValueError), match="wheels"):
        kind(**number, wheels=4)


def test_metric_classes_are_in_the_registry_and_can_be_inherited_and_pickled() -> None:
    names = {kind.metric_name for kind in METRIC_CLASSES if issubclass(kind, NamedMetric)}
    assert {name for name in names if not re.match("amr|adjusted_|z_", name)} <= all_names().keys()

    class Own(HitsAtK):
        """Hits at 3."""

        def __init__(self) -> None:
            super().__init__(3)

    assert not inspect.signature(Own).parameters
    assert Own().key == "hits_at_3"
    assert pickle.loads(pickle.dumps(HitsAtK(3, side="tail"))).key == "tail_hits_at_3"
