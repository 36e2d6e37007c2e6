"""What the commands print: one table of records, as text, CSV or JSON; and progress on stderr."""

import codecs
import io
import json
import math
import sys
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

from torchrankmetrics.checks import Choice, check_choice
from torchrankmetrics.digits import probability_text
from torchrankmetrics.evaluation.breakdown import csv_text
from torchrankmetrics.files import write_whole

Cell = str | int | float | None
Item = TypeVar("Item")

_WIDE = 10_000  # what is piped is not broken into lines


class Format(StrEnum):
    """How a result is written."""

    table = "table"
    csv = "csv"
    json = "json"


FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="For people (table), or for programs; without it as --output ends, or table."),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write there instead of printing; written whole or not at all.")
]
_SUFFIXES = {".csv": Format.csv, ".json": Format.json}


class PValue(float):
    """A probability beside its logarithm, which says how small where a float is 0; programs get that as a column."""

    log10: float

    def __new__(cls, value: float, log10: float) -> "PValue":
        """Build from the value and its logarithm."""
        self = super().__new__(cls, value)
        self.log10 = log10
        return self


@dataclass(frozen=True)
class Records:
    """Rows under columns, with what a reader must know below."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    notes: tuple[str, ...] = ()


def emit(records: Records, form: Format | None, output: Path | None) -> None:
    """Print the records, or write them to a file; CSV and JSON have all digits, notes go to stderr.

    Raises:
        ValueError: if the file cannot be written, or is one of ranks.
    """
    if output is not None and str(output) == "-":
        output = None
    form = _form(form, output)
    if form is Format.table:
        if output is None:
            console = Console()
            _render(records, console if console.is_terminal else Console(width=_WIDE))
            return
        buffer = io.StringIO()
        _render(records, Console(file=buffer, width=_WIDE))
        text = buffer.getvalue()
    else:
        utf8 = output is not None or codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
        text = csv_text(*_with_logarithms(records)) if form is Format.csv else _as_json(records, utf8)
        for note in records.notes:
            typer.echo(note, err=True)
    if output is None:
        sys.stdout.write(text)  # click's echo takes an ASCII terminal for one of UTF-8
        return
    try:
        write_whole(output, text.encode("utf-8"))
    except OSError as error:  # typer would take a broken pipe for one of stdout
        raise ValueError(f"{output}: cannot write: {error.strerror}") from error


def _form(form: Format | None, output: Path | None) -> Format:
    suffix = "" if output is None else output.suffix.lower()
    if suffix == ".npz":
        raise ValueError(f"--output must not end in .npz, which files of ranks do; got {output}")
    told = _SUFFIXES.get(suffix)
    if told is not None and form not in (None, told):
        typer.echo(f"note: {output} is written as {form}, not {told}: --format says so", err=True)
    return form or told or Format.table


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


def given(context: typer.Context, *names: str) -> list[str]:
    """Which options, by parameter name, the user has given, as written on the command line: none is to be ignored."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in names}
    return [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def refuse(options: Sequence[str], why: str) -> None:
    """Refuse options that would do nothing.

    Raises:
        ValueError: if there are any.
    """
    if options:
        raise ValueError(f"{', '.join(options)} would do nothing: {why}")


def choices_of(text: str, option: str, choices: Sequence[Choice]) -> list[Choice]:
    """Read a comma-separated list of choices."""
    return [check_choice(option, part, choices) for part in split_list(text, option)]


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
    if isinstance(cell, PValue):
        return probability_text(cell.log10)
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}" if cell == 0 or abs(cell) >= 1e-3 else f"{cell:.3g}"
    return str(cell)


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _with_logarithms(records: Records) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    """Columns and rows for programs: beside p-values their logarithm, which a float can always hold."""
    columns, rows = records.columns, [tuple(map(_plain, row)) for row in records.rows]
    for i, column in enumerate(records.columns):
        cells = [row[i] for row in records.rows]
        if any(isinstance(cell, PValue) for cell in cells):
            columns += ("log10_p" if column == "value" else f"log10_p_{column}",)
            logs = [_plain(cell.log10) if isinstance(cell, PValue) else None for cell in cells]
            rows = [(*row, log) for row, log in zip(rows, logs, strict=True)]
    return columns, rows


def _as_json(records: Records, utf8: bool) -> str:
    columns, rows = _with_logarithms(records)
    content = [dict(zip(columns, row, strict=True)) for row in rows]
    return json.dumps(content, indent=2, ensure_ascii=not utf8) + "\n"
