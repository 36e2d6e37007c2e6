"""Docstrings of the public API: arguments with types and defaults, results, and examples."""

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import torchrankmetrics
from scripts import ROOT

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
PATHS = re.findall(r"^   ([A-Za-z][\w.]*)$", REFERENCE, re.MULTILINE)


def public(path: str) -> Any:
    *parents, name = f"torchrankmetrics.{path}".split(".")
    return getattr(importlib.import_module(".".join(parents)), name)


def documented(path: str) -> Iterator[tuple[str, Any]]:
    """A function; or a class and its methods, except overrides, which share the docstring of the base."""
    value = public(path)
    if inspect.isclass(value) or inspect.isroutine(value):
        yield path, value
    if inspect.isclass(value):
        for name, member in vars(value).items():
            method = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            inherited = any(name in vars(base) for base in value.__mro__[1:])
            if inspect.isfunction(method) and not name.startswith("_") and not inherited:
                yield f"{path}.{name}", method


@pytest.mark.parametrize("path", [path for path in PATHS if path != "RankMetricWarning"])
def test_docstrings_are_complete(path: str) -> None:
    for name, value in documented(path):
        text = inspect.getdoc(value) or ""
        assert re.match(r"[^\n]+\.(\n|$)", text), f"{name}: the first line is one sentence"
        if name.count(".") > 1 or getattr(value, "_is_protocol", False):
            continue  # not built by users
        for parameter in set(inspect.signature(value).parameters) - {"self", "cls"}:
            entry = re.search(rf"^ +(\**\w+, )*\**{parameter}(, \**\w+)* \((.+?)\):", text, re.MULTILINE)
            assert entry, f"{name}: {parameter} has no entry 'name (type, default)'"
        if inspect.isroutine(value) and inspect.signature(value).return_annotation not in (None, "None"):
            assert re.search(r"^(Returns:|Yields:|Return )", text, re.MULTILINE) or text.startswith("Yield"), name


def test_functions_and_metrics_have_an_example() -> None:
    needs_files_or_hosts = {"plots.critical_difference", "plots.group_differences", "study.verify"}
    missing = {
        path
        for path in PATHS
        if (inspect.isroutine(value := public(path)) or path.startswith("Rank") or path.endswith("Rank"))
        and not path.startswith("integrations.")
        and ">>>" not in (inspect.getdoc(value) or "")
    }
    assert missing - needs_files_or_hosts == {"RankMetricWarning"}, missing
    assert torchrankmetrics.__doc__
