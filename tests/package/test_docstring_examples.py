"""Examples of public docstrings: each runs alone in an empty namespace and pastes into a prompt."""

import codeop
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from scripts import ROOT

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
PATHS = re.findall(r"^   ([A-Za-z][\w.]*)$", REFERENCE, re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
parser = doctest.DocTestParser()


def public(path: str) -> Any:
    *parents, name = f"torchrankmetrics.{path}".split(".")
    return getattr(importlib.import_module(".".join(parents)), name)


def docstrings() -> Iterator[tuple[str, str]]:
    """Docstrings of public names and of the public methods of classes; inherited ones once."""
    seen = set()
    for path in PATHS:
        value = public(path)
        members = {}
        if inspect.isclass(value):
            members = {name: one for name, one in vars(value).items() if not name.startswith("_")}
        named = [(path, value), *((f"{path}.{name}", one) for name, one in members.items())]
        for name, one in named:
            text = inspect.getdoc(one) or ""
            if ">>> " in text and text not in seen:
                seen.add(text)
                yield name, text


TEXTS = dict(docstrings())


@pytest.mark.parametrize("name", TEXTS)
def test_the_example_of_a_docstring_runs_alone(name, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = parser.get_doctest(TEXTS[name], {"__name__": "__main__"}, name, None, 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append)
    assert not report, "".join(report)


def statements(text: str) -> Iterator[list[str]]:
    """Yield the lines of each example; doctest drops a final empty line, which a prompt needs."""
    found: list[str] = []
    for line in text.splitlines():
        prompt, _, code = line.strip().partition(" ")
        if prompt == "..." and found:
            found.append(code)
            continue
        if found:
            yield found
        found = [code] if prompt == ">>>" else []
    if found:
        yield found


def broken_at_a_prompt(text: str) -> list[str]:
    """Examples of which a line ends early, or whose end leaves a plain prompt waiting."""
    broken = []
    for lines in statements(text):
        starts = ["\n".join(lines[:end]) for end in range(1, len(lines) + 1)]
        is_complete = [codeop.compile_command(start) is not None for start in starts]
        if is_complete != [False] * (len(lines) - 1) + [True]:
            broken.append(starts[-1])
    return broken


@pytest.mark.parametrize("name", TEXTS)
def test_the_example_of_a_docstring_pastes_into_a_prompt(name) -> None:
    assert not broken_at_a_prompt(TEXTS[name])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_paste_into_a_prompt(page) -> None:
    for block in re.findall(r"```python\n(>>>.*?)```", page.read_text(), re.DOTALL):
        assert not broken_at_a_prompt(block)


@pytest.mark.parametrize("lines", [">>> for x in y:\n...     x\n>>> 1", ">>> if x:\n...     y\n"])
def test_a_block_without_its_empty_line_breaks_a_prompt(lines) -> None:
    assert broken_at_a_prompt(lines)
