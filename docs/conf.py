"""Sphinx: Markdown pages of this folder, which tests execute, and the reference from docstrings."""

import doctest
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

from sphinx.util.fileutil import copy_asset

from torchrankmetrics import __version__

os.environ.setdefault("MPLBACKEND", "Agg")  # figures are written, not shown
sys.path.insert(0, str(Path(__file__).parent))
from notebook import page

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
}  # MathJax 3.2.2, Apache license 2.0, as the extra "docs" brings it

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


def add_figure(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Run the example of a plot and append the figure that it draws."""
    examples = doctest.DocTestParser().get_examples("\n".join(lines))
    if not any(one.source.startswith("fig, ") for one in examples):
        return
    import matplotlib.pyplot as plt

    names = dict(vars(sys.modules[obj.__module__]))
    for example in examples:
        exec(example.source, names)
    picture = Path(app.srcdir) / "_build" / "figures" / f"{name}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    names["fig"].savefig(picture, dpi=110, bbox_inches="tight")
    plt.close(names["fig"])
    lines += ["", f".. image:: /_build/figures/{name}.png"]
    lines += ["   :alt: the figure that the example draws"]


def add_notebook(app: Any, docname: str, source: list[str]) -> None:
    """Append the cells of the notebook to its page; end blocks without an empty line."""
    if docname == "scores_to_table":
        notebook = Path(__file__).parent.parent / "examples" / "scores_to_table.ipynb"
        app.env.note_dependency(str(notebook))  # a changed notebook is a changed page
        _, _, cells = page(notebook).partition("\n")  # the page has a title of its own
        source[0] += cells
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def add_mathjax(app: Any, _: Exception | None) -> None:
    """Put the one file of MathJax that the pages load, and its license, next to them."""
    for file in importlib.metadata.files("django-static-mathjax") or []:
        if file.name in MATHJAX and file.parent.name in ("es5", "mathjax"):
            copy_asset(file.locate(), app.outdir / "_static" / "mathjax")


def setup(app: Any) -> None:
    """Connect the hooks."""
    app.connect("build-finished", add_mathjax)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-process-docstring", add_figure)
    app.connect("source-read", add_notebook)
