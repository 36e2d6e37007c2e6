"""Tables of results, written for people (text, Markdown, LaTeX, HTML) and for programs (CSV, JSON, pandas)."""

from torchrankmetrics.rendering.rendered import Rendered
from torchrankmetrics.rendering.tabular import Cell, Column, PValue, Styled, Tabular

__all__ = ["Cell", "Column", "PValue", "Rendered", "Styled", "Tabular"]
