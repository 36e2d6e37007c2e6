"""Tables of results: text, Markdown, LaTeX and HTML for people; CSV, JSON, pandas."""

from torchrankmetrics.rendering.tabular import (
    ROW,
    Cell,
    Column,
    PValue,
    Rendered,
    Styled,
    Tabular,
    paper_name,
)

__all__ = ["ROW", "Cell", "Column", "PValue", "Rendered", "Styled", "Tabular", "paper_name"]
