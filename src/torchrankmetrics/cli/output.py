"""What the commands print: one table of records, as text, CSV or JSON; and progress on stderr."""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from torchrankmetrics.files import replacing

Cell = str | int | float | None
Item = TypeVar("Item")
Choice = TypeVar("Choice", bound=str)

_WIDE = 10_000  # what is piped is not broken into lines


class Format(StrEnum):
    """How a result is written."""

    table = "table"
    csv = "csv"
    json = "json"


FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How to print: for people, or for programs.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write there instead of printing; written whole or not at all.")
]


@dataclass(frozen=True)
class Records:
    """Rows under columns, with what a reader must know below."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()


def emit(records: Records, form: Format, output: Path | None) -> None:
    """Print the records, or write them to a file; CSV and JSON have all digits, notes go to stderr."""
    if form is Format.table:
        if output is None:
            console = Console()
            _render(records, console if console.is_terminal else Console(width=_WIDE))
            return
        buffer = io.StringIO()
        _render(records, Console(file=buffer, width=_WIDE))
        text = buffer.getvalue()
    else:
        text = _as_csv(records) if form is Format.csv else _as_json(records)
        for note in records.notes:
            typer.echo(note, err=True)
    if output is None:
        typer.echo(text, nl=False)
    else:
        try:
            with replacing(output) as neighbour:
                neighbour.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OSError(error.errno, f"cannot write: {error.strerror}", str(output)) from error


def watch(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """Go through items with a progress bar on stderr, if somebody is there to see it."""
    console = Console(stderr=True)
    yield from track(items, label, total, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show on stderr that something takes its time, if somebody is there to see it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(label):
        yield


def split_list(text: str, option: str) -> list[str]:
    """Read a comma-separated list.

    Raises:
        ValueError: if there is nothing between two commas.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{option} must be names separated by commas, such as mrr,hits@10; got {text!r}")
    return parts


def choice_of(text: str, option: str, choices: Sequence[Choice]) -> Choice:
    """Read one of some choices.

    Raises:
        ValueError: if it is none of them.
    """
    for choice in choices:
        if text == choice:
            return choice
    raise ValueError(f"{option} must be of {', '.join(choices)}; got {text!r}")


def choices_of(text: str, option: str, choices: Sequence[Choice]) -> list[Choice]:
    """Read a comma-separated list of choices."""
    return [choice_of(part, option, choices) for part in split_list(text, option)]


def _render(records: Records, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, column in enumerate(records.columns):
        number = any(isinstance(row[i], int | float) for row in records.rows)
        table.add_column(column, justify="right" if number else "left", no_wrap=number)
    for row in records.rows:
        table.add_row(*(Text(_text(cell)) for cell in row))
    console.print(table)
    for note in records.notes:
        console.print(Text(note))


def _text(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}" if cell == 0 or abs(cell) >= 1e-3 else f"{cell:.3g}"
    return str(cell)


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _as_csv(records: Records) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records.columns)
    writer.writerows(["" if _plain(cell) is None else cell for cell in row] for row in records.rows)
    return text.getvalue()


def _as_json(records: Records) -> str:
    rows = [dict(zip(records.columns, map(_plain, row), strict=True)) for row in records.rows]
    return json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
