"""Parse numbers, CSV and JSON of files from elsewhere; ambiguous and damaged ones are errors."""

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any

from torchrankmetrics.validation import shorten


def parse_number(value: Any) -> float:
    """Read a number or its text; NaN for others, also for "1_0" and digits of other scripts."""
    if isinstance(value, str) and not is_plain(value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_plain(text: str) -> bool:
    """Whether a text lacks digits of other scripts and "_", which Python allows in numbers."""
    return text.isascii() and "_" not in text


def parse_json(text: str) -> Any:
    """Parse JSON; ValueError for repeated names in an object, deep nesting and long numbers.

    Raises:
        json.JSONDecodeError: for a text that is not JSON.
        ValueError: for the other faults.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("brackets are nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{shorten(name)} occurs twice in one object")
        found[name] = value
    return found


def parse_csv(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line and the cells of each row; ValueError for wrong quotes.

    Empty lines are skipped.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        first = rows.line_num + 1
        try:
            cells = next(rows, None)
        except csv.Error as error:
            is_open = "unexpected end" in str(error)
            what = "a quote is not closed" if is_open else f"{error}"
            raise ValueError(f"line {first}: {what}") from None
        if cells is None:
            return
        if cells:
            yield rows.line_num, cells
