"""Sphinx: the Markdown pages of this folder, which the tests execute, and the reference from docstrings."""

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

from sphinx.util.fileutil import copy_asset

from torchrankmetrics import __version__

sys.path.insert(0, str(Path(__file__).parent))
from notebook import page
from results import sections

project = "torchrankmetrics"
copyright = "The torchrankmetrics developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"torchrankmetrics {release}"
html_logo = html_favicon = "static/logo.svg"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["pages.css"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

mathjax_path = "mathjax/tex-svg.js"  # of this site: formulas need no network
MATHJAX = {
    "tex-svg.js",
    "LICENSE",
}  # MathJax 3.2.2, Apache licence 2.0, as the extra "docs" brings it

copybutton_prompt_text = r">>> |\.\.\. |\.\.\.$|\$ "
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say shapes, which types do not
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes of a named tuple are its members too


def escape_bars(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings write absolute values as text; docutils would take ``|x|`` for a substitution."""
    lines[:] = [
        line if line.lstrip().startswith(">>>") else line.replace("|", r"\|")
        for line in lines
    ]


FIGURES = {
    "rank_ecdf": "ecdf",
    "critical_difference": "study_ranks",
    "intervals_by_dataset": "study_values",
}


def add_figure(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Append the figure of the page on plots to the docstring of its function."""
    module, _, function = name.rpartition(".")
    picture = f"images/{FIGURES.get(function, function)}.png"
    if (
        module.endswith((".plots", ".study"))
        and (Path(__file__).parent / picture).exists()
    ):
        lines += ["", f".. image:: /{picture}", f"   :alt: an example of {function}"]


def add_results(app: Any, docname: str, source: list[str]) -> None:
    """Append results to the page on benchmarks and the notebook to the tutorial; end blocks without an empty line."""
    if docname == "benchmarks":
        source[0] += sections()
    elif docname == "tutorial":
        source[0] += "\n" + page(
            Path(__file__).parent.parent / "examples" / "scores_to_table.ipynb"
        )
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def add_mathjax(app: Any, _: Exception | None) -> None:
    """Put the one file of MathJax that the pages load, and its licence, beside them."""
    for file in importlib.metadata.files("django-static-mathjax") or []:
        if file.name in MATHJAX and file.parent.name in ("es5", "mathjax"):
            copy_asset(file.locate(), app.outdir / "_static" / "mathjax")


def setup(app: Any) -> None:
    """Connect the hooks."""
    app.connect("build-finished", add_mathjax)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-process-docstring", add_figure)
    app.connect("source-read", add_results)
