"""How commands read lists and print results."""

import codecs
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from torchrankmetrics.cli.options import Command, Format
from torchrankmetrics.files import write_whole
from torchrankmetrics.rendering import Tabular, writers
from torchrankmetrics.validation import Choice, check_choice, shorten
from torchrankmetrics.version import __version__

_PAPERS = {"markdown": writers.to_markdown, "latex": writers.to_latex, "html": writers.to_html}
_SUFFIXES: dict[str, Format] = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex", ".html": "html"}


def input_path(path: Path) -> Path:
    """Return the path of the standard input for "-"."""
    return Path("/dev/stdin") if str(path) == "-" else path


def format_of(options: Command) -> Format:
    """Return the format of the result; ValueError for an output file that is named like a file of ranks."""
    suffix = "" if options.output is None else options.output.suffix.lower()
    if suffix in (".npz", ".parquet"):
        raise ValueError(f"--output must not end in {suffix}, the suffix of files of ranks; got {options.output}")
    return options.form or _SUFFIXES.get(suffix, "table")


def emit(
    options: Command,
    table: Tabular,
    *,
    title: str = "",
    fragment: bool = False,
    files: Sequence[str] = (),
    tasks: int | None = None,
    confidence_level: float | None = None,
) -> None:
    """Print a table or write it to the file of the options; notes on CSV and JSON go to stderr.

    HTML is a whole page if ``title`` is given, unless ``fragment`` is true. The last three arguments are fields of the
    JSON object (docs/cli.md, "JSON").
    """
    form, output = format_of(options), None if str(options.output) == "-" else options.output
    if fragment and form != "html":
        raise ValueError("--fragment would do nothing without --format html")
    if form == "json":
        about = {"version": __version__, "files": list(files), "tasks": tasks, "confidence_level": confidence_level}
        utf8 = output is not None or codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
        rows = json.loads(writers.to_json(table))
        text = json.dumps({**about, "rows": rows}, indent=2, ensure_ascii=not utf8) + "\n"
    elif form == "csv":
        text = writers.to_csv(table)
    elif form == "html" and title and not fragment:
        text = writers.page(title, table)
    elif form == "table":  # only a terminal breaks wide tables into blocks
        narrow = output is None and sys.stdout.isatty()
        text = writers.to_text(table, shutil.get_terminal_size().columns if narrow else None) + "\n"
    else:
        text = _PAPERS[form](table, labels={}) + "\n"
    if output is None:
        sys.stdout.write(text)  # click.echo assumes UTF-8 on an ASCII terminal
    else:
        try:
            write_whole(output, text.encode("utf-8"))
        except OSError as error:  # a broken pipe must not be treated as that of stdout
            raise ValueError(f"{output}: cannot write: {error.strerror}") from error
    if form in ("csv", "json"):
        for note in table.notes:
            typer.echo(note, err=True)


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show a spinner on stderr if it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


def exit_code(failed: Sequence[str]) -> int:
    """Return 1 after a line on stderr with the checks that failed, 0 if there are none."""
    if failed:
        typer.echo(f"failed: {'; '.join(failed)}", err=True)
    return int(bool(failed))


def split_list(text: str, option: str) -> list[str]:
    """Split a comma-separated list; ValueError for an empty part."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{option} must be names separated by commas, such as mrr,hits@10; got {shorten(text)}")
    return parts


def choices_of(text: str, option: str, choices: Sequence[Choice]) -> list[Choice]:
    """Read a comma-separated list of choices."""
    return [check_choice(option, part, choices) for part in split_list(text, option)]
