"""Tabular: columns, cells and notes of a table of results, before anybody says how it is written."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torchrankmetrics.validation import probability_text, shown

Plain = str | int | float | None
Names = Mapping[int, str] | Sequence[str] | None
"""Names of ids: a dict of id -> name, or a sequence by id."""


class PValue(float):
    """A probability beside its logarithm, which says how small where a float is 0; programs get that as a column."""

    log10: float

    def __new__(cls, value: float, log10: float) -> "PValue":
        """Build from the value and its logarithm."""
        self = super().__new__(cls, value)
        self.log10 = log10
        return self


@dataclass(frozen=True)
class Styled:
    """A cell that looks otherwise than its column says.

    Attributes:
        value: what programs get.
        text: what people read; None: the value as the column writes it.
        bold: the best of its kind, say.
        mark: what stands raised behind it, such as "†"; a note of the table must say what it means.
    """

    value: Plain
    text: str | None = None
    bold: bool = False
    mark: str = ""


Cell = Plain | Styled


def name_of(number: int, names: Names, argument: str = "names", kind: str = "group") -> int | str:
    """Return the name of an id, or the id itself without names.

    Args:
        number: the id.
        names: names of ids.
        argument: what errors call ``names``.
        kind: what errors call an id.

    Raises:
        TypeError: if ``names`` is a string.
        ValueError: if the id has no name.
    """
    if names is None:
        return number
    if isinstance(names, str):
        raise TypeError(
            f"{argument} must be a dict of id -> name, or a sequence of names by id; got the string {shown(names)}"
        )
    if not (number in names if isinstance(names, Mapping) else 0 <= number < len(names)):
        raise ValueError(f"{argument} must have a name for every {kind} that occurs; {kind} {number} has none")
    return names[number]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: what programs call it, once in a table.
        heading: what people read above it; None: the name.
        above: what stands above the headings of this and the columns beside it that say the same.
        key: tells the rows apart: never shortened, and repeated where a wide table breaks into blocks.
        digits: behind the point of a float.
        audience: "people" for what is written together (an interval in one cell), "programs" for its parts.
    """

    name: str
    heading: str | None = None
    above: str = ""
    key: bool = False
    digits: int = 4
    audience: Literal["all", "people", "programs"] = "all"

    @property
    def title(self) -> str:
        """What people read above it."""
        return self.name if self.heading is None else self.heading

    def text(self, cell: Cell) -> str:
        """A cell as people read it, without its mark: NaN and None are "-", what no terminal shows is escaped."""
        if isinstance(cell, Styled):
            return visible(cell.text) if cell.text is not None else self.text(cell.value)
        if isinstance(cell, PValue):
            return probability_text(cell.log10)
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return "-"
        if isinstance(cell, float):
            small = self.digits > 3 and 0 < abs(cell) < 1e-3  # too few digits would be left of it
            return f"{cell:.3g}" if small else f"{cell:.{self.digits}f}"
        return visible(str(cell))


@dataclass(frozen=True)
class Tabular:
    """A table of results.

    Attributes:
        columns: of its cells; given by name alone they are plain columns, of which the first is a key.
        rows: cells in the order of the columns.
        notes: what a reader must know, a line each.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())

    @classmethod
    def named(
        cls, names: Sequence[str], rows: Sequence[Sequence[Cell]], notes: Sequence[str] = (), keys: int = 1
    ) -> "Tabular":
        """A table of plain columns, of which the first ones are keys."""
        return cls(tuple(Column(name, key=i < keys) for i, name in enumerate(names)), rows, notes)

    def seen_by(self, audience: Literal["people", "programs"]) -> "list[tuple[Column, list[Cell]]]":
        """The columns of an audience with their cells, from top to bottom."""
        cells = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
        pairs = zip(self.columns, cells, strict=True)
        return [(column, list(below)) for column, below in pairs if column.audience in ("all", audience)]

    @cached_property
    def shown(self) -> "list[Shown]":
        """The columns that people read, as text."""
        return [
            Shown(
                column,
                [column.text(cell) for cell in cells],
                [cell if isinstance(cell, Styled) else _PLAIN for cell in cells],
                any(isinstance(value(cell), int | float) for cell in cells),
            )
            for column, cells in self.seen_by("people")
        ]


@dataclass(frozen=True)
class Shown:
    """A column as people read it: texts and styles of its cells, and whether they are numbers, flush right."""

    column: Column
    texts: list[str]
    styles: list[Styled]
    number: bool


_PLAIN = Styled(None)


def spans(shown: Sequence[Shown]) -> list[tuple[str, int]]:
    """What stands above the headings, with the number of columns that it spans; empty if nothing does."""
    found: list[tuple[str, int]] = []
    for above in (one.column.above for one in shown):
        if found and found[-1][0] == above:
            found[-1] = above, found[-1][1] + 1
        else:
            found.append((above, 1))
    return found if any(above for above, _ in found) else []


def value(cell: Cell) -> Plain:
    """What programs get of a cell."""
    return cell.value if isinstance(cell, Styled) else cell


def visible(text: str) -> str:
    """Escape what has no shape: line breaks in names, and what would command a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters take two, those that combine none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
