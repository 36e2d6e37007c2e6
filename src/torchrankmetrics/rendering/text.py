"""A table as text: aligned columns, and blocks below each other where a terminal is too narrow."""

import textwrap
from collections.abc import Iterator, Sequence

from torchrankmetrics.rendering.tabular import Shown, Styled, Tabular, spans, visible, width_of

GAP = 2
_NARROW = 20  # a column of text is not broken into lines shorter than this


def to_text(table: Tabular, width: int | None = None) -> str:
    """Write a table as lines.

    No number and no key is ever shortened. What is wider than ``width`` breaks into blocks that repeat the keys, and
    long texts that are no keys go on in a second line.

    Args:
        table: to be written.
        width: columns of the terminal; None: as wide as need be.
    """
    columns = [_Lines(shown) for shown in table.shown]
    blocks = ["\n".join(_block(block)) for block in _blocks(columns, width)]
    notes = [visible(note) for note in table.notes]
    if width is not None:
        notes = [
            textwrap.fill(note, max(width, _NARROW), break_long_words=False, break_on_hyphens=False) for note in notes
        ]
    apart = [""] if len(blocks) > 1 else []
    return "\n".join(["\n\n".join(blocks), *apart, *notes])


class _Lines:
    """A column with the lines of each cell, and how wide they are."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        tail = max((len(_behind(style)) for style in shown.styles), default=0)
        self.cells = [
            [("*" if style.bold else "") + text + _behind(style).ljust(tail if shown.number else 0)]
            for text, style in zip(shown.texts, shown.styles, strict=True)
        ]
        self.measure()

    def measure(self) -> None:
        cells = (width_of(line) for lines in self.cells for line in lines)
        self.width = max([width_of(self.shown.column.title), *cells])

    def wrap(self, width: int) -> None:
        """Break the text of the cells into lines of a width."""
        self.cells = [textwrap.wrap(lines[0], width, break_on_hyphens=False) or [""] for lines in self.cells]
        self.measure()

    def aligned(self, text: str) -> str:
        pad = " " * (self.width - width_of(text))
        return pad + text if self.shown.number else text + pad


def _blocks(columns: Sequence[_Lines], width: int | None) -> Iterator[list[_Lines]]:
    if width is None or _total(columns) <= width:
        yield list(columns)
        return
    keys = [column for column in columns if column.shown.column.key]
    room = max(width - sum(key.width + GAP for key in keys), _NARROW)
    block: list[_Lines] = []
    for column in columns:
        if column.shown.column.key:
            continue
        if column.width > room and not column.shown.number:
            column.wrap(room)
        if block and _total([*block, column]) > room:
            yield _with_keys(columns, block)
            block = []
        block.append(column)
    if block or keys:
        yield _with_keys(columns, block)


def _with_keys(columns: Sequence[_Lines], block: Sequence[_Lines]) -> list[_Lines]:
    return [column for column in columns if column.shown.column.key or column in block]


def _total(columns: Sequence[_Lines]) -> int:
    return sum(column.width + GAP for column in columns) - GAP


def _block(columns: Sequence[_Lines]) -> Iterator[str]:
    gap, first = " " * GAP, 0
    above = []
    for text, number in spans([column.shown for column in columns]):
        over = columns[first : first + number]
        over[-1].width += max(width_of(text) - _total(over), 0)
        above.append(text + " " * (_total(over) - width_of(text)))
        first += number
    if above:
        yield gap.join(above).rstrip()
    yield gap.join(column.aligned(column.shown.column.title) for column in columns).rstrip()
    yield gap.join("-" * column.width for column in columns)
    for row in zip(*(column.cells for column in columns), strict=True):
        for i in range(max(map(len, row))):
            line = (
                column.aligned(lines[i] if i < len(lines) else "") for column, lines in zip(columns, row, strict=True)
            )
            yield gap.join(line).rstrip()


def _behind(style: Styled) -> str:
    return ("*" if style.bold else "") + style.mark
