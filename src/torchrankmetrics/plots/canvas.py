"""Shared parts of plots: axes, marks, reading of evaluations, and figures as SVG."""

import html
import importlib
import io
import re
from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any

from torchrankmetrics.definitions.sample import RankSample
from torchrankmetrics.errors import missing_extra
from torchrankmetrics.inference.pairing import Evaluation, as_table, check_evaluation
from torchrankmetrics.metrics.analysis import Analysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

RANDOM: dict[str, Any] = {"color": "0.45", "linewidth": 1.2}
SMALL = 8.5

Models = Evaluation | Mapping[str, Evaluation]  # one, or several by name

# Color, line and marker of a series; any two of them suffice. The colors are ordered from dark to
# light, so that they stay apart in gray, and their hues stay apart for color-blind readers (Okabe
# and Ito).
MARKS = (
    ("#000000", "-", "o"),
    ("#0072b2", "--", "s"),
    ("#d55e00", "-.", "^"),
    ("#009e73", ":", "D"),
    ("#cc79a7", "-", "v"),
    ("#e69f00", "--", "P"),
)


def marks_on(ax: "Axes") -> list[tuple[Any, str, str]]:
    """The marks, the first in the color of the axes: black on white, white in a dark style."""
    return [(ink(ax), *MARKS[0][1:]), *MARKS[1:]]


def ink(ax: "Axes") -> Any:
    """Color of the labels of axes."""
    return ax.xaxis.label.get_color()


def legend(ax: "Axes", own: bool = False, **place: Any) -> None:
    """Draw a legend inside axes, at a place, or beside axes of a figure of its own."""
    place |= {"handlelength": 2.6, "loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if own else {}
    ax.legend(frameon=False, fontsize=SMALL, **place)


def zero_line(ax: "Axes") -> None:
    """Draw the dotted line of no difference."""
    ax.axvline(0, linestyle=(0, (1, 1)), **RANDOM)


def label_rows(
    ax: "Axes", labels: Sequence[str], below: str, margin: float = 0.6, **style: Any
) -> None:
    """Label the rows 0, 1, ... from the top, with margins, and the axis below them in a style."""
    ax.set_xlabel(below, **style)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 1 + margin, -margin)


def beside(ax: "Axes", y: float, text: str) -> None:
    """Write a text on the right of a row."""
    ax.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)


def canvas(ax: "Axes | None", width: float = 5.5, height: float = 3.6) -> "tuple[Figure, Axes]":
    """Return axes with their figure: given ones (else TypeError), or new ones in inches."""
    if ax is None:
        (ax,) = new_axes(width, height)
    if not hasattr(ax, "get_xlim"):
        expected = "matplotlib Axes, as in fig, ax = plt.subplots(), or None for new ones"
        raise TypeError(f"ax must be {expected}; got {type(ax).__name__}")
    return ax.figure, ax  # type: ignore[return-value]


def new_axes(width: float, height: float, number: int = 1) -> "list[Axes]":
    """Return new axes next to each other on a figure of this size in inches."""
    _, axes = pyplot().subplots(
        1, number, figsize=(width, height), layout="constrained", squeeze=False
    )
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
    return list(axes[0])


def pyplot() -> Any:
    """Import ``matplotlib.pyplot``, on first use only."""
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise missing_extra("a plot", "matplotlib", "plot") from error
    except OSError as error:
        raise OSError(
            "matplotlib needs a writable directory for its cache: set MPLCONFIGDIR to one"
        ) from error


def samples_of(models: Models, dataset: str = "") -> dict[str, RankSample]:
    """Read one evaluation, or a dict of name -> evaluation, as samples; as ``analyses_of``."""
    return {name: one.sample() for name, one in analyses_of(models, dataset).items()}


def analyses_of(models: Models, dataset: str = "") -> dict[str, Analysis]:
    """Read one evaluation, or a dict of name -> evaluation; a single one has the name "".

    ValueError if an evaluation has no tasks; errors name the dataset, if it is given.
    """
    named = models if isinstance(models, Mapping) else {"": models}
    check_series(named)
    analyses = {}
    for name, model in named.items():
        label = ", ".join(filter(None, (dataset, str(name))))
        about = f"the evaluation of {label!r}" if label else "the evaluation"
        check_evaluation(model, about, ", or a dict of name -> evaluation")
        analysis = analyses[str(name)] = Analysis([as_table(model).rows])
        if analysis.sample().num_tasks == 0:
            raise ValueError(f"{about} has no ranking tasks to draw")
    return analyses


def check_series(series: Sized, most: int | None = len(MARKS)) -> None:
    """Raise a ValueError for no series, and for more series than there are marks."""
    if not len(series):
        raise ValueError("nothing to draw: pass at least one evaluation with ranking tasks")
    if most is not None and len(series) > most:
        remedy = f"draw at most {most}, the others in a second plot"
        raise ValueError(f"{len(series)} series are too many to distinguish; {remedy}")


def to_svg(fig: "Figure", label: str, prefix: str = "figure") -> str:
    """Write a figure as an SVG element, the same bytes each time, and close it.

    Args:
        fig (matplotlib Figure): any figure; its background is transparent.
        label (str): description for screen readers.
        prefix (str, default "figure"): of the ids in it, unique in a page.

    Returns:
        The text of the element.

    >>> from torchrankmetrics.plots import to_svg
    >>> from torchrankmetrics import Ranks
    >>> from torchrankmetrics.plots import rank_ecdf
    >>> fig, ax = rank_ecdf({"model": Ranks([1, 2, 5, 3], None, 14)})
    >>> to_svg(fig, "Ranks of a model")[:4]
    '<svg'
    """
    plt = pyplot()
    content = io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        metadata = dict.fromkeys(("Date", "Creator"))
        fig.savefig(content, format="svg", transparent=True, bbox_inches="tight", metadata=metadata)
    plt.close(fig)
    text = re.sub(
        r"\A.*?(?=<svg)|<metadata>.*?</metadata>", "", content.getvalue(), flags=re.DOTALL
    )
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{prefix}-", text)
    # the page sets the size
    text = re.sub(r'^(<svg[^>]*?) width="[^"]*" height="[^"]*"|^(<svg[^>]*?)', r"\1\2", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1).strip()
