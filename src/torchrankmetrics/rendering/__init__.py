"""Tables of results, written for people (text, Markdown, LaTeX, HTML) and for programs (CSV, JSON, pandas)."""

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

from torchrankmetrics.rendering import writers
from torchrankmetrics.rendering.tabular import Cell, Column, PValue, Styled, Tabular

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Cell", "Column", "PValue", "Rendered", "Styled", "Tabular"]


_PREVIEW = 100  # rows in a notebook


class Rendered(ABC):
    """A result that is a table: for people as text, Markdown, LaTeX and HTML, for programs as CSV, JSON and pandas."""

    @abstractmethod
    def tabular(self) -> Tabular:
        """The table, before it is written."""

    def records(self) -> Tabular:
        """The table as it is written for programs."""
        return self.tabular()

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int | None = None) -> str:
        """Write aligned columns; wider than ``width`` characters they break into blocks. None: as wide as need be."""
        return writers.to_text(self.tabular(), width)

    def to_markdown(self) -> str:
        """Write a table in Markdown."""
        return writers.to_markdown(self.tabular())

    def to_latex(self, caption: str | None = None, label: str | None = None) -> str:
        """Write a LaTeX ``tabular`` with booktabs; with a caption inside a ``table`` that a label may name."""
        return writers.to_latex(self.tabular(), caption, label)

    def to_html(self) -> str:
        """Write an HTML ``<table>``."""
        return writers.to_html(self.tabular())

    def to_json(self) -> str:
        """Write a JSON list of one object per row, with all digits."""
        return writers.to_json(self.records())

    def to_pandas(self) -> "DataFrame":
        """Give a ``pandas.DataFrame``.

        Raises:
            ImportError: if pandas is not installed.
        """
        frame: DataFrame = writers.to_pandas(self.records())
        return frame

    @overload
    def to_csv(self, path: None = None) -> str: ...

    @overload
    def to_csv(self, path: str | os.PathLike[str]) -> None: ...

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write CSV with all digits, NaN as an empty cell; without a path give the text."""
        content = writers.to_csv(self.records())
        if path is None:
            return content
        Path(path).write_text(content, encoding="utf-8", newline="")
        return None

    def _repr_html_(self) -> str:
        table = self.tabular()
        if len(table.rows) > _PREVIEW:
            note = f"the first {_PREVIEW} of {len(table.rows)} rows"
            table = replace(table, rows=table.rows[:_PREVIEW], notes=(note, *table.notes))
        return writers.to_html(table)
