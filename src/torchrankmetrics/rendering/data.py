"""A table for programs: CSV, JSON and pandas, with all digits."""

import csv
import importlib
import io
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from torchrankmetrics.rendering.tabular import Plain, PValue, Tabular, value

_FORMULA = re.compile(r"[=@\t\r\n]|[+-](?![0-9.]+(e[+-]?[0-9]+)?$)")  # what spreadsheets execute: no numbers


def to_csv(table: Tabular) -> str:
    """Write a table as CSV with all digits, None and NaN as empty cells.

    Text that a spreadsheet would execute as a formula begins with an apostrophe (OWASP, "CSV Injection").
    """
    columns = _columns(table)
    rows = [columns, *zip(*columns.values(), strict=True)]
    return "".join(_csv_line(map(_csv_cell, row)) for row in rows)


def to_json(table: Tabular, ascii_only: bool = False) -> str:
    """Write a table as a JSON list of one object per row, with all digits; what JSON lacks is null."""
    columns = _columns(table)
    rows = zip(*(map(_finite, cells) for cells in columns.values()), strict=True)
    content = [dict(zip(columns, row, strict=True)) for row in rows]
    return json.dumps(content, indent=2, ensure_ascii=ascii_only) + "\n"


def to_pandas(table: Tabular) -> Any:
    """Give a table as a ``pandas.DataFrame``.

    Raises:
        ImportError: if pandas is not installed.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas; to_csv does without") from error
    return pandas.DataFrame(_columns(table))


def _columns(table: Tabular) -> dict[str, list[Plain]]:
    """Columns by name; beside p-values their logarithm, which a float can always hold."""
    found: dict[str, list[Plain]] = {}
    logarithms: dict[str, list[Plain]] = {}
    for column, cells in table.seen_by("programs"):
        found[column.name] = [value(cell) for cell in cells]
        if any(isinstance(cell, PValue) for cell in found[column.name]):
            name = "log10_p" if column.name in ("p", "value") else f"log10_p_{column.name}"
            logarithms[name] = [cell.log10 if isinstance(cell, PValue) else None for cell in found[column.name]]
    return found | logarithms


def _csv_line(cells: Iterable[Plain]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line).writerow(cells)  # only with its own line ends does it quote cells that hold "\r"
    return line.getvalue()[:-2] + "\n"


def _csv_cell(cell: Plain) -> Plain:
    if isinstance(cell, str):
        return f"'{cell}" if _FORMULA.match(cell) else cell
    return "" if cell is None or cell != cell else cell


def _finite(cell: Plain) -> Plain:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
