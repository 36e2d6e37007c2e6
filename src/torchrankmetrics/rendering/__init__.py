"""Tables of results: text, Markdown, LaTeX and HTML for people, CSV, JSON and pandas for programs."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from torchrankmetrics.rendering import tabular as writers
from torchrankmetrics.rendering.tabular import ROW, Cell, Column, PValue, Styled, Tabular, paper_name

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["ROW", "Cell", "Column", "PValue", "Rendered", "Styled", "Tabular", "paper_name"]


class _Style(TypedDict, total=False):
    percent: bool
    digits: int | None
    labels: Mapping[str, str]
    baseline: str | None
    stars: bool


class Rendered(ABC):
    """A result that is a table.

    ``to_markdown``, ``to_latex`` and ``to_html`` name metrics as papers do (MRR, Hits@10, AMRI), and take

    - ``percent`` (bool, False): multiply values of metrics that are at most 1 by 100;
    - ``digits`` (int): decimals of values of metrics;
    - ``labels`` (dict): text to print instead of a key of a metric, a name of a model or dataset, or a heading;
    - ``baseline`` (str), ``stars`` (bool): see ``RankStudy.table``; other results raise a ValueError.
    """

    @abstractmethod
    def tabular(self) -> Tabular:
        """Give columns, cells and notes."""

    def records(self) -> Tabular:
        """Give the table of machine formats."""
        return self.tabular()

    def marked(self, baseline: str | None = None, stars: bool = False, name: str | None = None) -> Self:
        """Give the table with marks of significance; ``name``: of the baseline in the legend."""
        raise ValueError("baseline and stars need models by datasets, as RankStudy.table returns them")

    def _styled(self, write: Callable[..., str], **style: Any) -> str:
        names, baseline, stars = style.get("labels") or {}, style.pop("baseline", None), style.pop("stars", False)
        table = self.marked(baseline, stars, names.get(baseline)) if baseline is not None or stars else self
        return write(table.tabular(), **style | {"labels": names})

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int | None = None) -> str:
        """Write aligned columns; a table wider than ``width`` characters breaks into blocks."""
        return writers.to_text(self.tabular(), width)

    def to_markdown(self, **style: Unpack[_Style]) -> str:
        """Write a table in Markdown."""
        return self._styled(writers.to_markdown, **style)

    def to_latex(self, caption: str | None = None, label: str | None = None, **style: Unpack[_Style]) -> str:
        """Write a LaTeX ``tabular`` with booktabs; with a caption inside a ``table``."""
        return self._styled(writers.to_latex, caption=caption, label=label, **style)

    def to_html(self, **style: Unpack[_Style]) -> str:
        """Write an HTML ``<table>``."""
        return self._styled(writers.to_html, **style)

    def to_json(self) -> str:
        """Write a JSON list of one object per row, with all digits."""
        return writers.to_json(self.records())

    def to_pandas(self) -> "DataFrame":
        """Return a ``pandas.DataFrame``; ImportError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas; to_csv works without it") from error
        return pandas.DataFrame(self.records().programs())

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write CSV with all digits, NaN as an empty cell; return the text if ``path`` is None."""
        content = writers.to_csv(self.records())
        if path is None:
            return content
        Path(path).write_text(content, encoding="utf-8", newline="")
        return None

    def _repr_html_(self) -> str:
        table = self.tabular()
        if len(table.rows) > 100:
            note = f"the first 100 of {len(table.rows)} rows"
            table = replace(table, rows=table.rows[:100], notes=(note, *table.notes))
        return writers.to_html(table)
