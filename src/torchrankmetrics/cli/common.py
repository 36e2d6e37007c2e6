"""Options that commands share, and how they print results."""

import codecs
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from torchrankmetrics.files import write_whole
from torchrankmetrics.rendering import Tabular, writers
from torchrankmetrics.validation import Choice, check_choice, shorten
from torchrankmetrics.version import __version__


class Format(StrEnum):
    """Format of a result."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    latex = "latex"
    html = "html"


_PAPERS = {Format.markdown: writers.to_markdown, Format.latex: writers.to_latex, Format.html: writers.to_html}
_SUFFIXES = {".csv": Format.csv, ".json": Format.json, ".md": Format.markdown, ".tex": Format.latex}
_SUFFIXES[".html"] = Format.html


def input_path(path: Path) -> Path:
    """Return the path of the standard input for "-"."""
    return Path("/dev/stdin") if str(path) == "-" else path


def _cluster(name: str | None) -> str | None:
    return None if name is None else check_choice("--cluster", name, ("group", "sample_id"))


def opt(text: str, *names: str, **settings: Any) -> Any:
    """Declare an option by its help text; without names it is named after the parameter."""
    return typer.Option(*names, help=text, **settings)


MetricsOption = Annotated[str, opt("Metrics, separated by commas.", "--metric", "-m")]
LevelOption = Annotated[float, opt("Confidence level of intervals and tests.")]
ClusterOption = Annotated[str | None, opt("Sampling unit: group, or sample_id (both sides).", callback=_cluster)]
EntitiesOption = Annotated[str, opt("Candidate entities: all, or train (entities of train, as in PyKEEN).")]
MaxBytesOption = Annotated[int, opt("Maximum memory of a file of ranks; larger files are an error.", min=1)]
FormatOption = Annotated[Format | None, opt("Format; default: suffix of --output, or table.", "--format", "-f")]
FragmentOption = Annotated[bool, opt("Write the HTML <table> without the rest of the page.", "--fragment")]
OutputOption = Annotated[Path | None, opt("File to write; default: standard output.", "--output", "-o")]


def format_of(form: Format | None, output: Path | None) -> Format:
    """Return the format of the options; ValueError for an output file that is named like a file of ranks."""
    suffix = "" if output is None else output.suffix.lower()
    if suffix in (".npz", ".parquet"):
        raise ValueError(f"--output must not end in {suffix}, the suffix of files of ranks; got {output}")
    return form or _SUFFIXES.get(suffix, Format.table)


def emit(
    table: Tabular,
    form: Format | None,
    output: Path | None,
    *,
    title: str = "",
    fragment: bool = False,
    files: Sequence[str] = (),
    tasks: int | None = None,
    confidence_level: float | None = None,
) -> None:
    """Print a table or write it to a file; notes on CSV and JSON go to stderr.

    HTML is a whole page if ``title`` is given, unless ``fragment`` is true. The last three arguments are fields of the
    JSON object (docs/cli.md, "JSON").
    """
    form, output = format_of(form, output), None if str(output) == "-" else output
    if fragment and form is not Format.html:
        raise ValueError("--fragment would do nothing without --format html")
    if form is Format.json:
        about = {"version": __version__, "files": list(files), "tasks": tasks, "confidence_level": confidence_level}
        utf8 = output is not None or codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
        rows = json.loads(writers.to_json(table))
        text = json.dumps({**about, "rows": rows}, indent=2, ensure_ascii=not utf8) + "\n"
    elif form is Format.csv:
        text = writers.to_csv(table)
    elif form is Format.html and title and not fragment:
        text = writers.page(title, table)
    elif form is Format.table:  # only a terminal breaks wide tables into blocks
        narrow = output is None and sys.stdout.isatty()
        text = writers.to_text(table, shutil.get_terminal_size().columns if narrow else None) + "\n"
    else:
        text = _PAPERS[form](table, {"labels": {}}) + "\n"
    if form in (Format.csv, Format.json):
        for note in table.notes:
            typer.echo(note, err=True)
    if output is None:
        sys.stdout.write(text)  # click.echo assumes UTF-8 on an ASCII terminal
        return
    try:
        write_whole(output, text.encode("utf-8"))
    except OSError as error:  # typer would treat a broken pipe as that of stdout
        raise ValueError(f"{output}: cannot write: {error.strerror}") from error


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show a spinner on stderr if it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


def fail(reasons: Sequence[str]) -> None:
    """Print the reasons in one line on stderr and exit with code 1; do nothing if there are none."""
    if reasons:
        typer.echo(f"failed: {'; '.join(reasons)}", err=True)
        raise typer.Exit(1)


def split_list(text: str, option: str) -> list[str]:
    """Split a comma-separated list; ValueError for an empty part."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{option} must be names separated by commas, such as mrr,hits@10; got {shorten(text)}")
    return parts


def choices_of(text: str, option: str, choices: Sequence[Choice]) -> list[Choice]:
    """Read a comma-separated list of choices."""
    return [check_choice(option, part, choices) for part in split_list(text, option)]


def given(context: typer.Context, *names: str) -> list[str]:
    """List the parameters that were given on the command line, as options."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in names}
    return [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def require(context: typer.Context, why: str, *names: str) -> None:
    """Raise a ValueError if one of these parameters was given, because it would have no effect."""
    if options := given(context, *names):
        raise ValueError(f"{', '.join(options)} would do nothing {why}")
