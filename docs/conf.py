"""Sphinx: the Markdown pages of this folder, which the tests execute, and the reference from docstrings."""

import sys
from pathlib import Path
from typing import Any

from torchrankmetrics import __version__

sys.path.insert(0, str(Path(__file__).parent))
from results import sections

project = "torchrankmetrics"
copyright = "The torchrankmetrics developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"torchrankmetrics {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["pages.css"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say shapes, which types do not
napoleon_use_rtype = False
autodoc_mock_imports = ["pykeen"]  # an extra that only its own page of the reference would need


def escape_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings write absolute values as text; docutils would take ``|x|`` for a substitution."""
    lines[:] = [line if line.lstrip().startswith(">>>") else line.replace("|", r"\|") for line in lines]


def add_results(app: Any, docname: str, source: list[str]) -> None:
    """Append what was measured to the page on benchmarks."""
    if docname == "benchmarks":
        source[0] += sections()


def setup(app: Any) -> None:
    """Connect the hooks."""
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("source-read", add_results)
