"""A figure as an SVG element for an HTML page: text stays text, ids do not meet those of other figures."""

import html
import io
import re
from typing import TYPE_CHECKING

from torchrankmetrics.plots.canvas import pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def to_svg(fig: "Figure", label: str, prefix: str = "figure") -> str:
    """Write a figure as an SVG element, the same bytes each time, and close it.

    Args:
        fig: any figure; its background is left out, so that the page's shows.
        label: what it shows, for those who do not see it.
        prefix: begins the ids in it, another one for each figure of a page.

    Raises:
        ImportError: without matplotlib.
    """
    plt, content = pyplot(), io.StringIO()
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        fig.savefig(content, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(fig)
    text = content.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{prefix}-", text)
    # the size is the page's: what remains is the shape
    text = re.sub(r'^(<svg[^>]*?) width="[^"]*" height="[^"]*"|^(<svg[^>]*?)', r"\1\2", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1).strip()
